"""The figures of the process that a broker runs in: how late its loop is, how long its disk takes; the room there.

They are measured where something happens anyway (a tick, a sync), but for the room on the disk: that is asked for when
somebody wants to know, on a thread that may block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from acquit.broker.durations import Durations
from acquit.broker.inspect import ProcessSnapshot, SyncSnapshot

SYNCS_KEPT: Final = 500
"""Syncs of which percentiles are made."""
LAGS_KEPT: Final = 10
"""Ticks of which the longest lag is told."""


class SyncLatencies:
    """The durations of the latest syncs."""

    def __init__(self) -> None:
        self._count = 0
        self._latest_s: deque[float] = deque(maxlen=SYNCS_KEPT)

    def took(self, seconds: float) -> None:
        """Note how long a sync took."""
        self._count += 1
        self._latest_s.append(seconds)

    def snapshot(self) -> SyncSnapshot:
        """Return the figures at this moment."""
        if not self._latest_s:
            return SyncSnapshot()
        latest, ordered = self._latest_s[-1], sorted(self._latest_s)
        return SyncSnapshot(
            count=self._count,
            last_ms=_ms(latest),
            p50_ms=_ms(ordered[(len(ordered) - 1) // 2]),
            p99_ms=_ms(ordered[(len(ordered) - 1) * 99 // 100]),
        )


class Vitals:
    """The figures of one broker's process."""

    def __init__(self, steady_s: Callable[[], float]) -> None:
        """`steady_s`: seconds since some moment, that nobody sets."""
        self._steady_s = steady_s
        self._began_s = steady_s()
        self._lags_s: deque[float] = deque([0.0], maxlen=LAGS_KEPT)
        self.syncs = SyncLatencies()
        self.lags = Durations()
        """Times by which ticks were late, and requests that came from other threads."""

    def late(self, seconds: float) -> None:
        """Note how late a tick came; below 0: it came early, because somebody asked for it."""
        self._lags_s.append(max(0.0, seconds))
        self.lags.add(seconds)

    def snapshot(self, free_bytes: int | None) -> ProcessSnapshot:
        """Return the figures at this moment."""
        return ProcessSnapshot(
            uptime_ms=round((self._steady_s() - self._began_s) * 1000),
            loop_lag_ms=_ms(max(self._lags_s)),
            free_bytes=free_bytes,
            sync=self.syncs.snapshot(),
        )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


__all__ = ["LAGS_KEPT", "SYNCS_KEPT", "SyncLatencies", "Vitals"]
