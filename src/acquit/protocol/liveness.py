"""Idle time-outs of both ends (2.4.5): heartbeats to send, and a peer to give up.

Two rules. We drop a peer that sends no frame for twice the idle-time-out we advertised. And we send something at least
as often as half of what the peer advertised. The first is a deadline that moves with every frame heard.

The second has a catch: output is taken by whoever writes it, and nobody says when. So we look at fixed times, a quarter
of the peer's time-out apart, and send a heartbeat unless something was taken since the last look. What was taken right
after one look is followed by something at the second look after it at the latest: half of the time-out.
"""

from __future__ import annotations


class Liveness:
    """The two idle time-outs of one connection. Times are `now` in seconds; None: there is no such limit."""

    __slots__ = ("_heard_at", "_look_interval_s", "_next_look", "_sent", "_silence_s_max")

    def __init__(self, idle_timeout_ms: int, now: float) -> None:
        self._silence_s_max = 2 * idle_timeout_ms / 1000 if idle_timeout_ms else None
        self._heard_at = now
        self._look_interval_s: float | None = None
        self._next_look = 0.0
        self._sent = False

    def keep_alive(self, remote_idle_timeout_ms: int, now: float) -> None:
        """The peer's open asks for frames this often. 0: it does not."""
        if remote_idle_timeout_ms:
            self._look_interval_s = remote_idle_timeout_ms / 4000
            self._next_look = now + self._look_interval_s

    def heard(self, now: float) -> None:
        """A frame came."""
        self._heard_at = now

    def sent(self) -> None:
        """Output was taken."""
        self._sent = True

    @property
    def deadline(self) -> float | None:
        """The earlier of the two."""
        silence = None if self._silence_s_max is None else self._heard_at + self._silence_s_max
        if self._look_interval_s is None:
            return silence
        return self._next_look if silence is None else min(silence, self._next_look)

    def silent_too_long(self, now: float) -> bool:
        """Return True if the peer is to be given up."""
        return self._silence_s_max is not None and now >= self._heard_at + self._silence_s_max

    def heartbeat_due(self, now: float) -> bool:
        """Return True if a heartbeat is to be sent now. Asking at or after the deadline moves it."""
        if self._look_interval_s is None or now < self._next_look:
            return False
        self._next_look = now + self._look_interval_s
        due = not self._sent
        self._sent = False
        return due


__all__ = ["Liveness"]
