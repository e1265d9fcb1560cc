"""The depth of each queue over the last hours, and what went in and out: a point a minute, for charts.

It is kept in memory alone, and begins anew with each start of the broker. It is bounded: `POINTS_MAX` points of a
queue, and `QUEUES_MAX` queues. Where there are more, those have one where most goes in and out: once a minute a queue
without one takes the place of the least busy, if it is busier. All queues are looked at once in a minute, some in each
tick, so that ten thousand of them hold up nobody.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from acquit.broker.nodes.node import Queue
    from acquit.broker.nodes.queues import Queues

STEP_MS: Final = 60_000
"""Milliseconds between two points, about."""
POINTS_MAX: Final = 240
"""Points of one queue: four hours."""
QUEUES_MAX: Final = 1_000
"""Queues that have points."""
LOOKED_AT: Final = 500
"""Queues that one tick looks at, or more where a minute would not be enough."""
_TICKS: Final = 30
_FADING: Final = 0.9
"""The share that counts of how busy a queue was a minute ago: half of it after seven minutes."""
_STEP_US: Final = STEP_MS * 1000


class TrendPoint(NamedTuple):
    """The state of one queue at one time."""

    time_ms: int
    """Milliseconds since the epoch."""
    depth: int
    """Messages in the queue."""
    entered: int
    """Messages that entered since the point before; 0 in the first."""
    retired: int
    """Messages that left for good since the point before; 0 in the first."""
    acquired: int
    """Messages that consumers held."""


class _Trend:
    """The points of one queue."""

    __slots__ = ("busy", "points")

    def __init__(self, busy: float) -> None:
        self.busy = busy
        self.points: deque[TrendPoint] = deque(maxlen=POINTS_MAX)


class Trends:
    """The points of all queues."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._trends: dict[int, _Trend] = {}
        """The queues that have points, by number."""
        self._before: dict[int, tuple[int, int]] = {}
        """The messages that had entered and retired when a queue was last looked at, by its number."""
        self._pending: deque[Queue] = deque()
        self._at_once = LOOKED_AT
        self._least: list[tuple[float, int]] = []
        """The queues with points at the beginning of this minute, as (busy, number), the busiest first."""
        self._next_us = 0

    def points(self, queue: str) -> list[TrendPoint]:
        """Return the points of a queue, the oldest first; none for one that has none."""
        node = self._queues.by_name.get(queue)
        trend = None if node is None else self._trends.get(node.number)
        return [] if trend is None else list(trend.points)

    def look(self, time_us: int) -> None:
        """Look at some queues; to be called about once a second."""
        if time_us >= self._next_us or time_us < self._next_us - 2 * _STEP_US:  # or the clock was set back
            self._begin(time_us)
        for _ in range(min(self._at_once, len(self._pending))):
            self._look_at(self._pending.popleft(), time_us // 1000)

    def _begin(self, time_us: int) -> None:
        self._next_us = (time_us // _STEP_US + 1) * _STEP_US
        self._pending = deque(self._queues.by_name.values())
        self._at_once = max(LOOKED_AT, -(-len(self._pending) // _TICKS))
        there = {queue.number for queue in self._pending}
        self._trends = {number: trend for number, trend in self._trends.items() if number in there}
        self._before = {number: counts for number, counts in self._before.items() if number in there}
        self._least = sorted(((trend.busy, number) for number, trend in self._trends.items()), reverse=True)

    def _look_at(self, queue: Queue, now_ms: int) -> None:
        entered, retired = queue.entered, queue.retired
        before = self._before.get(queue.number, (entered, retired))
        self._before[queue.number] = entered, retired
        point = TrendPoint(now_ms, queue.live, entered - before[0], retired - before[1], queue.acquired)
        moved = point.entered + point.retired
        trend = self._trends.get(queue.number)
        if trend is None:
            trend = self._room_for(queue.number, moved)
            if trend is None:
                return
        else:
            trend.busy = trend.busy * _FADING + moved
        trend.points.append(point)

    def _room_for(self, number: int, moved: int) -> _Trend | None:
        """Return a place for the points of one more queue; None where all that have one are busier."""
        if len(self._trends) >= QUEUES_MAX:
            if not self._least or self._least[-1][0] >= moved:
                return None
            self._trends.pop(self._least.pop()[1], None)
        trend = self._trends[number] = _Trend(moved)
        return trend


__all__ = ["POINTS_MAX", "QUEUES_MAX", "STEP_MS", "TrendPoint", "Trends"]
