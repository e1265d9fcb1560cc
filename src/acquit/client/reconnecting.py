"""The policy of reconnection, without clock or socket: when a lost connection is worth another try, and when to try.

Theory of operation. The core (`core`) keeps what must survive a connection: sessions, links with their specs, sends
without an outcome. The driver asks this module what to do::

    lost ─ worth_another_try? ─ no ─▶ the end: every wait raises
                  │ yes
                  ▼
    interrupted ─ Backoff.next_delay ─▶ each host once ─ opened ─▶ restored: sessions begin, links attach, sends repeat
                  ▲                          │ none
                  └──────────────────────────┘ until a limit of `Reconnect` is reached, or all answers are final

The delay before the first round is `delay_ms`, and grows by `multiplier` up to `delay_max_ms`. Each delay is shortened
by a random part of itself, up to `jitter`, so that a thousand clients of a broker that comes back do not all come in
the same moment. A connection that is lost again right after it opened goes on with the delay that it had come to: only
one that has held for ten times as long starts anew, so that flapping costs no more than a tenth of the attempts' time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from acquit.errors import (
    AuthenticationFailed,
    ConfigurationError,
    ConnectionClosed,
    ConnectionFailed,
    ConnectionLost,
    ConnectTimeout,
    EndpointError,
)
from acquit.protocol.definitions import AmqpCondition, ConnectionCondition
from acquit.protocol.events import ConnectionEnded

RETRIED: Final = frozenset(
    (
        ConnectionCondition.CONNECTION_FORCED,
        AmqpCondition.INTERNAL_ERROR,
        AmqpCondition.RESOURCE_LIMIT_EXCEEDED,
        AmqpCondition.RESOURCE_LOCKED,
    )
)
"""Conditions of a *close* that may be gone at the next try: an operator or a crash ended the connection, or there was
no room. All others (permission, not found, what we said wrong) would be the same again."""
_TELLING: Final = (
    ConfigurationError,
    AuthenticationFailed,
    ConnectionClosed,
    ConnectionLost,
    ConnectTimeout,
    ConnectionFailed,
)
"""Errors of an attempt to connect, those that say most first: the further a host went with us, the more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reconnect:
    """The policy to restore a connection (`ConnectOptions.reconnect`). Raises ConfigurationError, naming the field."""

    delay_ms: int = 100
    """Milliseconds before the first round of attempts. A round tries every host once, in turn. 0: the first round is
    made at once, and the delay grows as if this were 1."""

    delay_max_ms: int = 30_000
    """The longest delay between two rounds."""

    multiplier: float = 2.0
    """Factor by which the delay grows with each round; 1 keeps it."""

    jitter: float = 0.5
    """The largest part of a delay by which it is shortened at random, from 0 to 1."""

    outage_max_ms: int = 300_000
    """Milliseconds of outage until the connection is lost for good: every wait raises ConnectionLost. 0: no limit."""

    rounds_max: int = 0
    """Rounds in one outage after which the connection is lost for good. 0: no limit."""

    first_rounds: int = 1
    """Rounds that `connect` itself makes before it raises. 0: no limit but `outage_max_ms`."""

    shuffle: bool = False
    """Try the hosts in a random order, so that clients spread over them, rather than as they are given."""

    def __post_init__(self) -> None:
        for name, low in (("delay_ms", 0), ("delay_max_ms", 1), ("outage_max_ms", 0), ("rounds_max", 0)):
            _check_whole(name, getattr(self, name), low)
        _check_whole("first_rounds", self.first_rounds, 0)
        if not _is_within(self.multiplier, 1, 100):
            raise ConfigurationError(f"reconnect: multiplier must be a number from 1 to 100, got {self.multiplier!r}")
        if not _is_within(self.jitter, 0, 1):
            raise ConfigurationError(f"reconnect: jitter must be a number from 0 to 1, got {self.jitter!r}")


def _is_within(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and low <= value <= high


def _check_whole(name: str, value: object, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= 0x7FFF_FFFF:
        raise ConfigurationError(f"reconnect: {name} must be a whole number from {low} to {0x7FFF_FFFF}, got {value!r}")


HELD: Final = 10
"""A connection that has held for so many times the delay counts as one that holds."""
LEAST_S: Final = 0.001
"""Seconds from which a delay grows that began with none: nothing grows from 0, and a host that refuses at once would be
tried thousands of times a second."""


class Backoff:
    """The delays of one connection's outages, in seconds. `draw` gives random numbers from 0 to 1."""

    __slots__ = ("_delay_s", "_draw", "_opened_at", "_options", "_outage_began", "_restored", "_rounds_max", "rounds")

    def __init__(self, options: Reconnect, rounds_max: int, now: float, draw: Callable[[], float]) -> None:
        """`rounds_max`: of the first outage, in which there has been no connection yet."""
        self._options = options
        self._draw = draw
        self._rounds_max = rounds_max
        self._delay_s = options.delay_ms / 1000
        self._outage_began = self._opened_at = now
        self._restored = False
        self.rounds = 0
        """Made in this outage."""

    def lost(self, now: float) -> bool:
        """The connection is lost. Return True if that is once more, after it was restored and has not held."""
        held = now - self._opened_at >= HELD * self._delay_s
        again, self._restored = self._restored and not held, True
        if held:
            self._delay_s = self._options.delay_ms / 1000
        self._outage_began = now
        self._rounds_max = self._options.rounds_max
        self.rounds = 0
        return again

    def opened(self, now: float) -> None:
        """The connection is there again."""
        self._opened_at = now

    def begin_round(self) -> None:
        """The hosts are tried once more."""
        self.rounds += 1

    def next_delay(self, now: float) -> float:
        """Return the seconds until the next round. The last one is when the outage has lasted for as long as it may."""
        options = self._options
        delay_s = min(self._delay_s, options.delay_max_ms / 1000)
        self._delay_s = min(max(self._delay_s, LEAST_S) * options.multiplier, options.delay_max_ms / 1000)
        delay_s *= 1 - options.jitter * self._draw()
        if options.outage_max_ms:
            delay_s = min(delay_s, max(0.0, self._outage_began + options.outage_max_ms / 1000 - now))
        return delay_s

    def exhausted(self, now: float) -> str | None:
        """Return the limit that forbids another round, for people; None while there is another."""
        options = self._options
        if self._rounds_max and self.rounds >= self._rounds_max:
            return f"{self.rounds} {'round' if self.rounds == 1 else 'rounds'} of attempts"
        if options.outage_max_ms and now - self._outage_began >= options.outage_max_ms / 1000:
            return f"{options.outage_max_ms / 1000:g} s"
        return None


def worth_another_try(event: ConnectionEnded, *, elsewhere: bool = False) -> bool:
    """Return True if a connection that ended like this may be had again. `elsewhere`: there are other hosts, to which
    a host may send us that does not want us any more (*redirect*), though not by names of its own."""
    if event.authentication:
        return False
    if elsewhere and event.remote and event.error is not None and event.error.condition == ConnectionCondition.REDIRECT:
        return True
    return event.lost or (event.remote and (event.error is None or event.error.condition in RETRIED))


def better_elsewhere(condition: str | None, *, remote: bool) -> bool:
    """Return True if a host whose connection ended like this may well open the next one to no better end: it sends us
    elsewhere, or it fell silent and we ended it."""
    if remote:
        return condition == ConnectionCondition.REDIRECT
    return condition == AmqpCondition.RESOURCE_LIMIT_EXCEEDED


def is_final(error: Exception) -> bool:
    """Return True if an attempt that failed with `error` would fail again at the same host: a mistake of ours, a user
    that is not known there, or a *close* in answer to our *open* of a condition that stays (permission, not found)."""
    if isinstance(error, AuthenticationFailed | ConfigurationError):
        return True
    answered = isinstance(error, EndpointError) and error.remote and error.condition is not None
    return answered and error.condition not in RETRIED  # type: ignore[attr-defined]  # an EndpointError


def most_telling(failures: Sequence[Exception]) -> Exception:
    """Return the error that says most about why no host of a list has taken us, in whatever order they were tried: a
    mistake of ours, then what a host had against us, then those that said nothing."""
    return min(failures, key=lambda error: [isinstance(error, kind) for kind in _TELLING].index(True))


class ConnectionEventKind(Enum):
    """The kind of event that happened to a connection."""

    CONNECTED = "connected"
    """The connection opened for the first time."""
    INTERRUPTED = "interrupted"
    """The connection is lost, and will be restored if that can be done."""
    RESTORED = "restored"
    """The connection opened again: links come back, sends without an outcome are sent again."""
    FAILED = "failed"
    """The connection is over, though nobody here closed it."""


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """An event of a connection, which `on_event` is told."""

    kind: ConnectionEventKind
    where: str
    """The peer, as ``host:port``; of the connection that was lost for INTERRUPTED and FAILED."""
    reason: str | None = None
    """The reason why the connection was lost."""
    rounds: int = 0
    """Number of rounds of attempts that the outage has taken."""
    outage_s: float = 0.0
    """Seconds that the outage has lasted."""


__all__ = [
    "Backoff",
    "ConnectionEvent",
    "ConnectionEventKind",
    "Reconnect",
    "better_elsewhere",
    "is_final",
    "most_telling",
    "worth_another_try",
]
