"""What the oracle knows of each message, and what parties know of each other: the words in which they tell it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto


class Sent(Enum):
    """What the sender knows."""

    UNKNOWN = auto()
    ACCEPTED = auto()
    REFUSED = auto()


class Held(Enum):
    """What is known of a copy that was delivered."""

    NO = auto()
    YES = auto()
    MAYBE_RETIRED = auto()
    RETIRED = auto()


@dataclass(frozen=True, slots=True)
class Seen:
    """What a message said of itself when a client got it."""

    queue: str
    sequence: int
    body: str
    fresh: bool = True
    """Nobody had it before."""
    count: int = 0
    priority: int = 4
    posted_at_ms: int = 0
    origin: int = 0
    """Of a dead letter or an expired message: its sequence before."""
    origin_queue: str = ""
    ended_at_ms: int = 0
    """When it expired."""

    @property
    def key(self) -> str:
        """What was sent."""
        return self.body.partition(" ")[0]


@dataclass(slots=True)
class Posting:
    """One send."""

    key: str
    queue: str
    durable: bool
    sent_s: float = 0.0
    priority: int = 4
    group: str | None = None
    value: str | None = None
    colour: str = ""
    ttl_ms: int = 0
    delay_ms: int = 0
    queues: tuple[str, ...] = ()
    """Where it must go."""
    exactly: bool = False
    """It was sent exactly once, and nobody has given that up since."""
    watched: set[tuple[str, object]] = field(default_factory=set)
    """Links of volatile subscriptions that were there: queues and holders."""
    known: Sent = Sent.UNKNOWN
    told_s: float = math.inf
    """When it was answered."""
    due_ms: float = 0.0
    """The earliest time of day at which it may be delivered, where it has a delivery time and was answered."""
    transaction: Transaction | None = None
    copies: set[int] = field(default_factory=set)
    """Sequences under which it was delivered."""


@dataclass(slots=True)
class Copy:
    """One message in one queue."""

    key: str
    queue: str
    state: Held = Held.NO
    holder: object = None
    """Who has it, on which connection."""
    arrivals: int = 0
    retiring: set[int] = field(default_factory=set)
    """The calls by which it may have been retired (`Oracle.retires`)."""
    taker: Transaction | None = None
    """In which its holder took it."""
    count_min: int = 0
    count_max: int = 0
    """Beside what lost connections add."""
    failures: int = 0
    """That were applied."""
    failures_max: int = 0
    """That may have been."""
    releases_max: int = 0
    rejected: bool = False
    """By an outcome that was applied."""
    maybe_rejected: bool = False
    failed_at_s: float | None = None
    """When the last failure that was applied was said."""
    count_seen: int = 0
    """The delivery-count that it had when it came last."""
    moved: bool = False
    """To another queue: it has another sequence now."""
    free_s: float = 0.0
    """Whoever has it now was given it later than this."""
    locked_until_s: float = 0.0
    """The lock of its holder does not run out before this."""
    runs_out_s: float = math.inf
    """And if nobody stands still, no later than this."""
    keeper: object = None
    """The terminus (`termini.Terminus`) that holds it, or whose outcome for it is safe and not confirmed."""
    sole: object = None
    """The terminus by which alone it has come so far."""


@dataclass(slots=True)
class Transaction:
    """Postings and retirements that happen together."""

    name: str
    committing: bool = False
    posts: list[str] = field(default_factory=list)
    takes: list[int] = field(default_factory=list)
    retirings: dict[int, int] = field(default_factory=dict)
    """By sequence: the call by which its commit may retire it (`Oracle.retires`)."""
    late: list[int] = field(default_factory=list)
    """Taken from a connection, or with a lock, that may be gone: others may have had, or have, these."""
    known: bool | None = None
    """Committed, rolled back, or in doubt."""


class Violation(AssertionError):
    """A promise is broken."""


def terminus(holder: object) -> str:
    """Who that is, on all connections."""
    return str(holder).partition("#")[0]


class Wall:
    """The time of day, and how it was set."""

    def __init__(self, now: Callable[[], float], start_s: float) -> None:
        self._now = now
        self._start_s = start_s
        self._since: list[float] = [0.0]
        self._ahead_us: list[int] = [0]

    @property
    def ahead_us(self) -> int:
        """By how much it was set in all."""
        return self._ahead_us[-1]

    @ahead_us.setter
    def ahead_us(self, ahead_us: int) -> None:
        self._since.append(self._now())
        self._ahead_us.append(ahead_us)

    @property
    def ahead_us_max(self) -> int:
        """The furthest that it ever was."""
        return max(self._ahead_us)

    @property
    def now_us(self) -> int:
        return int((self._start_s + self._now()) * 1e6) + self.ahead_us

    def between_ms(self, since_s: float) -> tuple[float, float]:
        """The earliest and the latest that it showed since then."""
        first = bisect_right(self._since, since_s) - 1
        shown = []
        for number in range(first, len(self._since)):
            begin = max(since_s, self._since[number])
            end = self._since[number + 1] if number + 1 < len(self._since) else self._now()
            shown += [(self._start_s + when) * 1e3 + self._ahead_us[number] / 1e3 for when in (begin, end)]
        return min(shown), max(shown)

    def reached_s(self, time_ms: float, since_s: float) -> float:
        """When it showed this time or a later one for the first time since then, however it was set after that."""
        for number in range(bisect_right(self._since, since_s) - 1, len(self._since)):
            begin = max(since_s, self._since[number])
            end = self._since[number + 1] if number + 1 < len(self._since) else math.inf
            shows_s = max(begin, (time_ms - self._ahead_us[number] / 1e3) / 1e3 - self._start_s)
            if shows_s < end:
                return shows_s
        return math.inf


__all__ = ["Copy", "Held", "Posting", "Seen", "Sent", "Transaction", "Violation", "Wall", "terminus"]
