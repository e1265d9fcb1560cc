"""A survey of the whole broker that holds nobody up: a snapshot that is taken a few queues at a time.

A broker may have ten thousand queues and as many connections, and a snapshot of all of them in one turn of the loop
would keep every delivery waiting for a tenth of a second. So `Surveying` looks at `AT_ONCE` of them in each round of
the loop, and lets everybody else have a turn between. The numbers of one queue belong together; those of two queues may
be some milliseconds apart. What concerns the broker as a whole is looked at last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol

from acquit.broker.inspect import BrokerSnapshot, ConnectionSnapshot, QueueSnapshot
from acquit.broker.tally import TallySnapshot

AT_ONCE: Final = 25
"""Queues or connections that one round of the loop looks at: a fifth of a millisecond's work."""


class SurveyedQueue(NamedTuple):
    """A queue, as a survey sees it."""

    snapshot: QueueSnapshot
    tally: TallySnapshot


Found = SurveyedQueue | QueueSnapshot | ConnectionSnapshot | None
"""A queue, a topic (a snapshot alone), a connection; None for what has gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyTotals:
    """SurveyTotals of a broker as a whole."""

    memory_bytes: int
    """Messages in memory, as limits.memory_bytes_max counts them."""
    transactions: int
    """Transactions that are open."""
    journal_bytes: int
    """Bytes that were ever written to the journal: an address in it."""
    journal_pending_bytes: int
    """Bytes that wait to be written."""
    segments: int
    """Segments of the journal that are there."""
    segment_bytes: int
    """Size of all of these, as far as they are filled."""
    refused: Mapping[tuple[str, str], int]
    """Links, messages, connections and logins that were refused, by which of these and the condition that the peer was
    given, or would be in AMQP's words."""
    connections_max: int
    """Connections that are let in at once: limits.connections_max, or what the limit of open files leaves of it."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The result of a survey."""

    broker: BrokerSnapshot
    figures: SurveyTotals
    tallies: Mapping[str, TallySnapshot] = field(default_factory=dict)
    """The tallies of queues, by name."""


class Surveyed(Protocol):
    """A broker, as a survey sees it."""

    def surveyed(self) -> Iterator[tuple[Callable[[Any], Found], list[Any]]]:
        """Yield functions that make a snapshot of one thing, or None if it has gone, and the things."""

    def figures(self) -> tuple[BrokerSnapshot, SurveyTotals]:
        """Return what there is to say of the broker as a whole."""


class Surveying:
    """A survey under way. `step` is one round's work."""

    def __init__(self, core: Surveyed, finished: Callable[[Survey], None]) -> None:
        self._core = core
        self._finished = finished
        self._queues: list[QueueSnapshot] = []
        self._tallies: dict[str, TallySnapshot] = {}
        self._connections: list[ConnectionSnapshot] = []
        self._steps = self._walk()

    def step(self) -> bool:
        """Look at some more. True when all is done, and `finished` was called."""
        try:
            next(self._steps)
        except StopIteration:
            return True
        return False

    def _walk(self) -> Iterator[None]:
        for take, names in self._core.surveyed():
            for start in range(0, len(names), AT_ONCE):
                for name in names[start : start + AT_ONCE]:
                    found = take(name)
                    if isinstance(found, SurveyedQueue):
                        self._queues.append(found.snapshot)
                        self._tallies[found.snapshot.name] = found.tally
                    elif isinstance(found, QueueSnapshot):
                        self._queues.append(found)
                    elif found is not None:
                        self._connections.append(found)
                yield
        broker, figures = self._core.figures()
        self._finished(Survey(broker_with(broker, self._queues, self._connections), figures, self._tallies))


def broker_with(
    broker: BrokerSnapshot, queues: list[QueueSnapshot], connections: list[ConnectionSnapshot]
) -> BrokerSnapshot:
    """Return the snapshot with these queues, by name, and these connections."""
    queues.sort(key=lambda queue: ("topic" in queue.kind, queue.name))
    return replace(broker, queues=tuple(queues), connections=tuple(connections))


__all__ = ["AT_ONCE", "Found", "Survey", "SurveyTotals", "SurveyedQueue", "Surveying"]
