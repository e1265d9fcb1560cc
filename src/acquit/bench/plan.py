"""Plans of measurements, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from acquit.bench.latency import LatencyHistogram
from acquit.client.modes import AckMode
from acquit.errors import AcquitError, ConfigurationError

STAMP_BYTES: Final = 8
"""The beginning of each body: when it was sent."""
PERCENTILES: Final[Mapping[str, float]] = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9}


class Scenario(StrEnum):
    """The kinds of measurement."""

    SEND = "send"
    """Posting, up to the broker's outcome, into a queue from which nobody receives."""
    RECEIVE = "receive"
    """Receiving and acknowledging what was posted before."""
    END_TO_END = "end-to-end"
    """Both at once, as fast as it goes."""
    LATENCY = "latency"
    """Both at once, at a rate that is given."""
    FAN_OUT = "fan-out"
    """Posting to a topic, of which each of several consumers gets a copy."""


class BenchStalled(AcquitError):
    """Raised when nothing is posted, answered or received for too long, and there is more to come."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchPlan:
    """All there is to say about a measurement. Raises ConfigurationError for what does not go together."""

    scenario: Scenario
    size_bytes: int = 1024
    """Bytes of a body, of which the first eight are its time."""
    count: int | None = None
    """Messages to post; None: as many as `seconds` allow."""
    seconds: float | None = None
    """Seconds in which messages are posted; None: until `count` are."""
    durable: bool = False
    rate: float | None = None
    """Messages a second, over all connections; None: as fast as it goes."""
    credit: int = 500
    """Messages that each receiver is sent ahead."""
    in_flight: int = 500
    """Messages that each sender may have posted without having heard their outcome."""
    mode: AckMode = AckMode.AUTO
    """The mode of the receivers' sessions."""
    connections: int = 1
    """Connections, each with one sender and one receiver."""
    consumers: int = 1
    """Receivers of the topic, in FAN_OUT; spread over the connections."""
    stall_s: float = 30.0
    """Seconds without any progress after which it is given up."""

    def __post_init__(self) -> None:
        if self.size_bytes < STAMP_BYTES:
            raise ConfigurationError(f"a body has {STAMP_BYTES} bytes or more, not {self.size_bytes}")
        if (self.count is None) == (self.seconds is None):
            raise ConfigurationError("either a number of messages or a number of seconds ends a measurement")
        if self.scenario is Scenario.RECEIVE and self.count is None:
            raise ConfigurationError("receive takes a number of messages, which are posted before")
        if (self.scenario is Scenario.LATENCY) != (self.rate is not None):
            raise ConfigurationError("a rate belongs to the scenario latency, and it to a rate")
        if self.durable and self.scenario is Scenario.FAN_OUT:
            raise ConfigurationError("fan-out has a topic of its own, which is not durable")
        if self.mode is AckMode.TRANSACTED:
            raise ConfigurationError("transacted is not a mode that is measured")

    @property
    def copies(self) -> int:
        """Return how many times each message is received."""
        return {Scenario.SEND: 0, Scenario.FAN_OUT: self.consumers}.get(self.scenario, 1)

    @property
    def receivers(self) -> int:
        """Return how many receivers there are."""
        return {Scenario.SEND: 0, Scenario.FAN_OUT: self.consumers}.get(self.scenario, self.connections)


@dataclass(slots=True)
class BenchResult:
    """The findings of a measurement."""

    plan: BenchPlan
    peer: str = ""
    """The broker's product and version, as it says."""
    sent: int = 0
    accepted: int = 0
    refused: int = 0
    """Messages that were not accepted."""
    refusal: str = ""
    """The reason of the first of them."""
    full: bool = False
    """True if the queue was full before all was posted. What did not leave is not among `sent`."""
    received: int = 0
    seconds: float = 0.0
    """Time from the first message to the last: to its outcome in SEND, to its arrival in the others."""
    cpu_share: float = 0.0
    """CPU time of this process, in cores. Near 1 it is this client that limits the rate."""
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    """Times from sending to the outcome in SEND, to the arrival in the others. RECEIVE has none: its messages have
    waited for it."""

    @property
    def expected(self) -> int:
        """Return how many messages should have been received."""
        return self.accepted * self.plan.copies

    @property
    def whole(self) -> bool:
        """True if all was accepted, and each message received as often as it should be."""
        return self.refused == 0 and self.received == self.expected

    @property
    def rate(self) -> float:
        """Messages a second: posted ones in SEND, received ones in the others."""
        counted = self.accepted if self.plan.scenario is Scenario.SEND else self.received
        return counted / self.seconds if self.seconds else 0.0
