"""Messages that have a time: when they expire, when they are due. A heap, asked at each turn and tick.

An entry stays until its time even if its message is long gone; when half of the entries are such, they are swept out,
so that the size follows the live messages. A sweep goes on a little with each message that leaves, and holds up nobody:
what it keeps goes to another heap, and until the old one is empty there are two.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import chain
from typing import Final

from acquit.broker.message import Message
from acquit.broker.queue import NodeState

SWEEP_MIN: Final = 1_000
"""Entries of messages that are gone, below which nothing is swept."""
SWEPT_AT_ONCE: Final = 4
"""Entries that are looked at for one message that leaves. A sweep of n entries ends after n / 4 messages."""


class Timers:
    """Times in milliseconds since the epoch."""

    __slots__ = ("_gone", "_heap", "_old")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Message]] = []
        self._old: list[tuple[int, int, Message]] = []
        """Entries that were there when a sweep began and were not looked at yet, a heap as well."""
        self._gone = 0
        """Entries of messages that are gone, but for what is known better by a sweep under way."""

    def __len__(self) -> int:
        return len(self._heap) + len(self._old)

    @property
    def next_ms(self) -> int | None:
        """The earliest time, or None."""
        first = self._first()
        return first[0][0] if first else None

    def _first(self) -> list[tuple[int, int, Message]]:
        """Return the heap that has the earliest time, or an empty one."""
        if self._old and (not self._heap or self._old[0][:2] < self._heap[0][:2]):
            return self._old
        return self._heap

    def messages(self) -> Iterator[Message]:
        """Return the messages that have a time, some more than once, and some that are gone."""
        for entry in chain(self._heap, self._old):
            yield entry[2]

    def add(self, at_ms: int, message: Message) -> None:
        """Bring the message up at that time. It may have several."""
        heappush(self._heap, (at_ms, message.sequence, message))

    def forget(self, message: Message) -> None:
        """The message, which has a time, has left its queue."""
        self._gone += 1
        if self._old:
            self._sweep()
        elif self._gone > SWEEP_MIN and 2 * self._gone > len(self._heap):
            self._heap, self._old = [], self._heap
            self._gone = 0

    def _sweep(self) -> None:
        # From the end: what is left of the old heap is one still.
        for _ in range(min(SWEPT_AT_ONCE, len(self._old))):
            entry = self._old.pop()
            if entry[2].state is not NodeState.ARCHIVED:
                heappush(self._heap, entry)

    def take_due(self, now_ms: int, limit: int) -> list[Message]:
        """Messages whose time has come, at most `limit`. Some may be gone, or have another time by now."""
        due: list[Message] = []
        while len(due) < limit and (heap := self._first()) and heap[0][0] <= now_ms:
            message = heappop(heap)[2]
            if message.state is NodeState.ARCHIVED:
                self._gone = max(0, self._gone - 1)
            else:
                due.append(message)
        return due


__all__ = ["SWEEP_MIN", "SWEPT_AT_ONCE", "Timers"]
