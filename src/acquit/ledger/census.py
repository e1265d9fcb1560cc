"""Census of the live messages: which of them stand in which segment of the journal.

Segments leave one after the other (`ledger.checkpoint`), and each time it must be known who stands there. To ask all
live messages each time would cost a backlog of millions more than all else that is done for it. So they are asked once
for all the segments that there are, a few at a time between other work, and again when the segments that there were
have left.

That is enough because records stand in the order in which they were written. A message that enters later, or is copied
forward, has its record behind the end of the census; one that leaves is asked for in vain. One thing comes to stand
where something stood: what a transaction held is another message once it is committed, and has its record where it was.
Whoever commits tells of those (`add`).

A segment is known by its number. Its base does not name it: a segment in which nothing was written has the base of the
one after it, and what was appended when the census began may have gone to a segment that was begun later.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from acquit.store.interface import Position, SegmentInfo


class Census:
    """Census of the messages that are live when it begins."""

    def __init__(
        self,
        segments: Sequence[SegmentInfo],
        end: Position,
        sequences: Iterable[int],
        find: Callable[[Sequence[int]], Sequence[int]],
    ) -> None:
        """`segments` oldest first, and `end`, which is theirs; `sequences` of all that is live now, messages held
        by transactions included, whatever becomes of it while it is asked; `find` says where the records of these
        messages are now, 0 of one that is live no more."""
        self._bases = [info.base for info in segments]
        self._numbers = [info.number for info in segments]
        self._standing = {number: array("Q") for number in self._numbers}
        """Sequences that stand in each segment, by its number."""
        self._end = end
        self._unasked = iter(sequences)
        self._find = find

    def covers(self, segment: SegmentInfo) -> bool:
        """Return True if the census can tell about the segment, once it is complete."""
        return segment.number in self._standing and segment.end <= self._end

    def ask(self, count: int) -> bool:
        """Ask so many more; True when there is nobody left to be asked."""
        asked = list(islice(self._unasked, count))
        self.add(asked)
        return len(asked) < count

    def add(self, sequences: Iterable[int]) -> None:
        """Add messages to the segments where their records stand."""
        asked = list(sequences)
        base = end = 0
        note = self._standing[self._numbers[0]].append
        for sequence, position in zip(asked, self._find(asked), strict=True):
            if not base <= position < end:  # mostly it is the segment of the one before
                if not 0 < position < self._end:
                    continue
                # Of several with one base it is the last: those before it are empty.
                at = bisect_right(self._bases, position)
                base, end = max(1, self._bases[at - 1]), self._bases[at] if at < len(self._bases) else self._end
                note = self._standing[self._numbers[at - 1]].append
            note(sequence)

    def take(self, segment: SegmentInfo) -> Sequence[int]:
        """Return the sequences that stand in the segment, told once: a superset, as some have gone since."""
        found, self._standing[segment.number] = self._standing[segment.number], array("Q")
        return found


__all__ = ["Census"]
