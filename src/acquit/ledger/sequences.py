"""Numbers that must not be used twice, over any crash: reserved in the journal before they are used.

A volatile message leaves no record, yet its sequence must not be given to another message after a crash. So blocks
are reserved: a RESERVED record says that all up to n may be in use, and none is used before that record is synced.
The next block is asked for when half of the present one is gone, so nobody waits. A crash skips what was left of a
block; with 64 bits that matters to nobody.

The marks of what may have been acquired (DISPATCHED) work in the same way, for each queue.

**Restored copies.** What a copy reserved says nothing of the other histories that began with it: its original may have
gone on, and the same copy may be put to use twice, for a drill and then in earnest. Neither knows of the other, so
nothing but chance can keep their numbers apart (`first_of_copy`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from acquit.errors import StoreFull
from acquit.ledger.recorder import Recorder
from acquit.ledger.records import Dispatched, Reserved
from acquit.store.backup import EPOCH_GAP
from acquit.store.interface import Position

BLOCK: Final = 1 << 20
MARK_BLOCK: Final = 1 << 16
"""Smaller: after a crash, everything up to the mark is offered as perhaps acquired before."""
EXACT_MAX: Final = 1 << 53
"""The highest number up to which a double tells each from the next: JSON's readers in JavaScript, the console among
them, and columns of pandas with gaps know no others."""
DRAWN_SHARE: Final = 16
"""Divisor: a restored copy begins within one such part of the numbers that are left. More would leave less for copies
of copies: with this there are enough for two hundred, each made from the one before."""


def first_of_copy(reserved_up_to: int, draw: Callable[[int], int]) -> int:
    """Draw the first sequence of a copy that is put to use. `draw(n)` gives a number from 0 to n - 1.

    It is further on by EPOCH_GAP at least, for what the original used since, and by what was drawn. Two that begin with
    the same copy, and number n messages together, use a number twice with probability n / 2**49 at most, as long as the
    copy itself is far from EXACT_MAX. Behind that, as little is drawn as the gap is long.
    """
    left = EXACT_MAX - reserved_up_to
    return reserved_up_to + 1 + EPOCH_GAP + draw(max(EPOCH_GAP, left // DRAWN_SHARE))


class Sequences:
    """Sequence numbers for new messages. On the loop.

    `first` is the first number free to use; everything up to `reserved_up_to` must be reserved, in records that are
    synced.
    """

    def __init__(self, recorder: Recorder, first: int, reserved_up_to: int, *, block: int = BLOCK) -> None:
        self._recorder = recorder
        self._next = first
        self._usable = reserved_up_to
        self._block = block
        self._asked: tuple[int, Position] | None = None

    @property
    def last(self) -> int:
        """The last number taken."""
        return self._next - 1

    def take(self, time_us: int) -> int:
        """The next number. Raises StoreFull when a whole block was used within one sync."""
        sequence = self._next
        if sequence + self._block // 2 > self._usable:
            self._extend(time_us)
            if sequence > self._usable:
                raise StoreFull("sequence numbers are used faster than they are reserved; wait for the next sync")
        self._next = sequence + 1
        return sequence

    def take_all(self, count: int, time_us: int) -> int:
        """The first of so many next numbers. Raises StoreFull as `take` does."""
        first = self.take(time_us)
        if first + count - 1 > self._usable:
            raise StoreFull("sequence numbers are used faster than they are reserved; wait for the next sync")
        self._next = first + count
        return first

    def _extend(self, time_us: int) -> None:
        if self._asked is not None:
            up_to, position = self._asked
            if position < self._recorder.journal.synced:
                self._usable = up_to
                self._asked = None
        if self._asked is None and self._next + self._block // 2 > self._usable:
            table = self._recorder.table
            up_to = self._usable + self._block
            position = self._recorder.append(Reserved(time_us, up_to, table.queue_max, table.actor_max))
            self._asked = up_to, position


class DispatchMarks:
    """Marks of what may have been acquired, for each queue, as of the last sync. On the loop.

    A message may be handed out once `covered` says so: from then on even a crash that loses the acquisition's own
    record leaves the message marked as one that may have been acquired.
    """

    def __init__(self, recorder: Recorder, *, block: int = MARK_BLOCK) -> None:
        self._recorder = recorder
        self._block = block
        self._synced: dict[int, int] = {}
        self._asked: dict[int, tuple[int, Position]] = {}

    def covered(self, queue: int, sequence: int, time_us: int) -> bool:
        """Return True if a message may be handed out. If not, the mark is on its way: ask again after the next sync."""
        usable = self._synced.get(queue, 0)
        if sequence + self._block // 2 > usable:
            usable = self._extend(queue, sequence, usable, time_us)
        return sequence <= usable

    def _extend(self, queue: int, sequence: int, usable: int, time_us: int) -> int:
        asked = self._asked.get(queue)
        if asked is not None:
            up_to, position = asked
            if position >= self._recorder.journal.synced:
                return usable
            usable = self._synced[queue] = up_to
            del self._asked[queue]
        if sequence + self._block // 2 > usable:
            known = self._recorder.table.dispatched.get(queue)
            up_to = max(sequence, usable) + self._block
            doubtful = known.doubtful if known is not None else 0
            self._asked[queue] = up_to, self._recorder.append(Dispatched(time_us, queue, up_to, doubtful))
        return usable

    def forget(self, queue: int) -> None:
        """The queue was deleted."""
        self._synced.pop(queue, None)
        self._asked.pop(queue, None)
