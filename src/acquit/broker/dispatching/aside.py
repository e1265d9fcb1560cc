"""Messages that are available but out of the line: whoever was offered them may not have them, or cannot just now.

A queue hands out its backlog in order. A message that nobody who waits may have (a selector that does not match, a
group whose consumer is busy) would hold up all behind it, so it is put *aside*, where it is found again by those whom
it is for (`choosing`). Here is where it is kept: in one order, by priority and place, as sorted blocks of bounded size.
So what comes in order is appended, and everything else costs a search and a move within one block, however many there
are; and whoever has looked as far as some place can go on from there, whatever came and went meanwhile.

What came together and is for one consumer alone may stay together here (`Retained.runs`). Nobody but that consumer need
know: whoever looks at what is aside, or at what is retained for one, finds single messages, laid out before.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, Protocol

from acquit.broker.message import ASIDE, Message
from acquit.broker.message_run import MessageRun

_BLOCK: Final = 1_024
FIRST: Final = 0
"""No rank is lower."""
BEYOND: Final = 1 << 80
"""Every rank is lower."""
_PRIORITY_MAX: Final = 255


def rank(message: Message) -> int:
    """Return a message's place in its queue as one number: the lower goes first."""
    return rank_of(message.priority, message.sequence)


def rank_of(priority: int, sequence: int) -> int:
    """The rank of what has this priority and sequence."""
    return (_PRIORITY_MAX - priority << 64) | sequence


class RunKeeper(Protocol):
    """Keeper of messages of groups for one consumer alone: `groups.Retained`."""

    runs: deque[MessageRun]

    def add(self, group: str, message: Message) -> None:
        """Keep a message of this group."""
        ...


class Aside:
    """The messages of one queue that are set aside, in order."""

    __slots__ = ("_blocks", "_count", "_retaining")

    def __init__(self) -> None:
        self._blocks: list[list[Message]] = []  # none of them is empty
        self._count = 0
        self._retaining: dict[RunKeeper, None] = {}  # those that have runs

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        self.lay_out()
        for block in self._blocks:
            yield from block

    def oldest_us(self) -> int | None:
        """The time when the first was posted; None for none. Nothing is made an object for it."""
        first = [(rank(message), message.posted_us) for block in self._blocks[:1] for message in block[:1]]
        runs = [retained.runs[0] for retained in self._retaining]
        first += [(rank_of(run.priority, run.sequences[0]), run.posted_us) for run in runs]
        return min(first)[1] if first else None

    # -- runs ---------------------------------------------------------------------------------------------------------

    def retain(self, retained: RunKeeper, run: MessageRun) -> None:
        """Put messages aside that came together, for one consumer alone, behind all that it has in runs."""
        self._count += run.count
        self._retaining[retained] = None
        retained.runs.append(run)

    def take_run(self, retained: RunKeeper, limit: int) -> MessageRun:
        """Take back the first that are retained in a run, at most `limit`."""
        run = retained.runs[0]
        if run.count > limit:
            run = run.split(limit)
        else:
            retained.runs.popleft()
            if not retained.runs:
                del self._retaining[retained]
        self._count -= run.count
        return run

    def lay_out(self, retained: RunKeeper | None = None) -> None:
        """Let what is retained in runs, of all or of one, be single messages."""
        for one in list(self._retaining) if retained is None else [retained]:
            del self._retaining[one]
            runs, one.runs = one.runs, deque()
            for run in runs:
                self._count -= run.count
                groups = run.shape.groups(run.rests)
                for message, group in zip(run.each(), groups, strict=True):
                    self.add(message)
                    one.add(group.decode(), message)

    # -- messages -----------------------------------------------------------------------------------------------------

    def add(self, message: Message) -> None:
        """Put a message aside that is not there."""
        message.flags |= ASIDE
        self._count += 1
        blocks = self._blocks
        if not blocks:
            blocks.append([message])
            return
        last = blocks[-1]
        if rank(last[-1]) < rank(message):
            if len(last) < _BLOCK:
                last.append(message)
            else:
                blocks.append([message])
            return
        at = self._block_at(rank(message))
        block = blocks[at]
        insort(block, message, key=rank)
        if len(block) > 2 * _BLOCK:
            blocks[at : at + 1] = [block[:_BLOCK], block[_BLOCK:]]

    def remove(self, message: Message) -> bool:
        """Take it back, or out of the queue. False where it is not aside."""
        if not message.flags & ASIDE:
            return False
        message.flags &= ~ASIDE
        self._count -= 1
        at = self._block_at(rank(message))
        block = self._blocks[at]
        del block[bisect_left(block, rank(message), key=rank)]
        if not block:
            del self._blocks[at]
        return True

    def since(self, place: int, limit: int) -> list[Message]:
        """The first messages, at most `limit`, with a rank that is not below `place`."""
        return list(islice(self._since(place), limit))

    def first_rank(self, place: int) -> int:
        """The lowest rank that is not below `place`; BEYOND where there is none."""
        message = next(self._since(place), None)
        return BEYOND if message is None else rank(message)

    def _since(self, place: int) -> Iterator[Message]:
        self.lay_out()
        at = self._block_at(place)
        if at == len(self._blocks):
            return
        block = self._blocks[at]
        yield from islice(block, bisect_left(block, place, key=rank), None)
        for block in islice(self._blocks, at + 1, None):
            yield from block

    def _block_at(self, place: int) -> int:
        """The first block that reaches as far as `place`."""
        return bisect_left(self._blocks, place, key=_last_rank)


def _last_rank(block: list[Message]) -> int:
    return rank(block[-1])


__all__ = ["BEYOND", "FIRST", "Aside", "RunKeeper", "rank", "rank_of"]
