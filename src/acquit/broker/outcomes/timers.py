"""Messages that have a time: when they expire, when they are due. A heap, asked at each turn and tick.

An entry stays until its time even if its message is long gone; when most entries are such, the heap is made anew, so
that its size follows the live messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from acquit.broker.message import Message
from acquit.broker.queue import NodeState

_SWEEP_MIN: Final = 1_000


class Timers:
    """Times in milliseconds since the epoch."""

    __slots__ = ("_gone", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Message]] = []
        self._gone = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_ms(self) -> int | None:
        """The earliest time, or None."""
        return self._heap[0][0] if self._heap else None

    def messages(self) -> Iterator[Message]:
        """Return the messages that have a time, some more than once, and some that are gone."""
        for entry in self._heap:
            yield entry[2]

    def add(self, at_ms: int, message: Message) -> None:
        """Bring the message up at that time. It may have several."""
        heappush(self._heap, (at_ms, message.sequence, message))

    def forget(self, message: Message) -> None:
        """The message, which has a time, has left its queue."""
        self._gone += 1
        if self._gone > _SWEEP_MIN and 2 * self._gone > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].state is not NodeState.ARCHIVED]
            heapify(self._heap)
            self._gone = 0

    def take_due(self, now_ms: int, limit: int) -> list[Message]:
        """Messages whose time has come, at most `limit`. Some may be gone, or have another time by now."""
        due: list[Message] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms and len(due) < limit:
            message = heappop(heap)[2]
            if message.state is NodeState.ARCHIVED:
                self._gone = max(0, self._gone - 1)
            else:
                due.append(message)
        return due


__all__ = ["Timers"]
