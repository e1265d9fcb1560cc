"""The locks of one queue: until when each of its deliveries may be held without an outcome.

Locks stand in a heap. The duration is the queue's, so what is added is nearly always the latest and goes
to the end in one step. Nobody tells a lock that its message has its outcome: it is seen when its time comes, or, when
most of the heap are such, as the heap is made anew. What was renewed keeps its old entry, which does nothing. A message
whose outcome waits for a transaction is the transaction's, which has a time of its own; its lock begins again.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from acquit.broker.message import Message, QueueBase
from acquit.broker.transact.retirement import Retirement

if TYPE_CHECKING:
    from acquit.protocol.delivery import Delivery

_SWEEP_MIN: Final = 1_000


class Locks:
    """Locks of the deliveries of one queue. Times are in milliseconds since the epoch."""

    __slots__ = ("_heap", "_number", "_queue", "_until", "duration_ms")

    def __init__(self, queue: QueueBase) -> None:
        self._queue = queue
        self.duration_ms = queue.policy.lock_duration_ms
        self._heap: list[tuple[int, int, Delivery]] = []
        self._number = 0
        self._until: dict[Delivery, int] = {}
        """The true end of those that were renewed: the entry of another time is nothing."""

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_ms(self) -> int | None:
        """Time when the first lock may run out; None for none."""
        return self._heap[0][0] if self._heap else None

    def acquired(self, deliveries: Iterable[Delivery], now_ms: int) -> None:
        """Messages have been handed out."""
        until_ms = now_ms + self.duration_ms
        for delivery in deliveries:
            self._number += 1
            heappush(self._heap, (until_ms, self._number, delivery))
        if len(self._heap) > _SWEEP_MIN + 2 * self._queue.acquired:
            self._heap = [entry for entry in self._heap if self._stands(*entry)]
            heapify(self._heap)

    def renew(self, deliveries: Iterable[Delivery], now_ms: int) -> None:
        """Start the locks again of deliveries whose consumer is still at work. Those that are its no more stay lost."""
        held = [delivery for delivery in deliveries if _holds(delivery)]
        for delivery in held:
            self._until[delivery] = now_ms + self.duration_ms
        self.acquired(held, now_ms)

    def take_due(self, now_ms: int, limit: int) -> list[Delivery]:
        """Deliveries whose lock has run out and that still hold their message, at most `limit`."""
        due: list[Delivery] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms and len(due) < limit:
            entry = heappop(heap)
            if self._stands(*entry):
                self._until.pop(entry[2], None)
                if isinstance(entry[2].context, Retirement):
                    self.acquired((entry[2],), now_ms)
                else:
                    due.append(entry[2])
        return due

    def shift(self, by_ms: int) -> None:
        """The clock was set, by so much: what is left of each stays what it was."""
        self._heap = [(until_ms + by_ms, number, delivery) for until_ms, number, delivery in self._heap]
        self._until = {delivery: until_ms + by_ms for delivery, until_ms in self._until.items()}

    def _stands(self, until_ms: int, number: int, delivery: Delivery) -> bool:
        if not _holds(delivery):
            self._until.pop(delivery, None)
            return False
        return self._until.get(delivery, until_ms) == until_ms


def _holds(delivery: Delivery) -> bool:
    message = delivery.context
    if isinstance(message, Retirement):
        return delivery.link.context is message.consumer
    return isinstance(message, Message) and message.holder is not None and message.holder is delivery.link.context


__all__ = ["Locks"]
