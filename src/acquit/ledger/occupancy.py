"""Account of the live messages that have their record in each segment: it must be zero before a segment leaves.

Who stands in a segment, the census says, and the checkpoint copies those forward (`ledger.census`,
`ledger.checkpoint`). This is the second line of defence: it knows nobody's name. Whenever a message becomes live, or
its record moves, the position of its record is noted as *entered*; whenever it is retired, or its record moves, as
*left*. For each segment the difference is kept, in number and in the sum of positions, so that one who left twice does
not cover for one who stayed. When a segment is to leave, both must be zero for it and for all before it.

To note a position is one append to an array, because it is done for each message. They are sorted and counted some
thousands at a time: sorting is cheap where most are in order, and of a sorted lot each segment's share is a slice. What
stands in the open segment waits until that is closed; before, it is not known where a batch in flight will be laid.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from acquit.store.interface import SegmentInfo

LOT: Final = 8192
"""Number of positions that are sorted at once: in less than a millisecond."""


class Occupancy:
    """See above. On the loop."""

    def __init__(self) -> None:
        self._entered = array("Q")
        self._left = array("Q")
        self._lots: list[tuple[int, array[int]]] = []
        """Sorted positions that are not counted yet; 1 for those that entered, -1 for those that left."""
        self._counts: dict[int, list[int]] = {}
        """Number and sum of positions, by segment, of those that entered and have not left."""
        self.entered: Final[Callable[[int], None]] = self._entered.append
        """A live message has its record at this position from now on."""
        self.entered_together: Final[Callable[[Iterable[int]], None]] = self._entered.extend
        """The same of several, at these positions."""
        self.left: Final[Callable[[int], None]] = self._left.append
        """A live message had its record at this position until now."""
        self.left_together: Final[Callable[[Iterable[int]], None]] = self._left.extend
        """The same of several, at these positions."""

    def all_entered(self, positions: Sequence[int], segments: Sequence[SegmentInfo]) -> None:
        """Note many messages that have their records at these positions, some thousands of them, and count."""
        self._entered.extend(positions)
        self._count(segments)

    def collect(self, segments: Sequence[SegmentInfo]) -> None:
        """Count, if enough has gathered. Cheap, and right to call at the end of every turn."""
        if len(self._entered) + len(self._left) >= LOT:
            self._count(segments)

    def occupants(self, segments: Sequence[SegmentInfo], number: int) -> int:
        """Return how many live messages have their record in segment `number` or an older one: -1 where the number says
        none, and the sum says otherwise. `segments`: all there are, oldest first."""
        self._count(segments)
        counts = [count for segment, count in self._counts.items() if segment <= number]
        return sum(count for count, _ in counts) or -any(map(any, counts))

    def _count(self, segments: Sequence[SegmentInfo]) -> None:
        for sign, positions in ((1, self._entered), (-1, self._left)):
            self._lots.append((sign, array("Q", sorted(positions))))
            del positions[:]
        closed = [info for info in segments if info.sealed]
        end = closed[-1].end if closed else 0
        bases = [info.base for info in closed]
        uncounted = []
        for sign, lot in self._lots:
            at, stop = 0, bisect_left(lot, end)
            while at < stop:
                # Of several segments with one base it is the last: those before it are empty. 0: it left long ago.
                index = bisect_right(bases, lot[at]) - 1
                number, upto = (closed[index].number, closed[index].end) if index >= 0 else (0, bases[0])
                following = bisect_left(lot, upto, at, stop)
                count = self._counts.setdefault(number, [0, 0])
                count[0] += sign * (following - at)
                count[1] += sign * sum(lot[at:following])
                if not any(count):
                    del self._counts[number]
                at = following
            if stop < len(lot):
                uncounted.append((sign, lot[stop:] if stop else lot))
        self._lots = uncounted


__all__ = ["LOT", "Occupancy"]
