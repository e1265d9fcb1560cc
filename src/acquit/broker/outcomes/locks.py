"""Locks: how long a consumer may hold a message of a queue without an outcome, where the address sets a limit.

A delivery's lock begins as the message is acquired, and again when its consumer *renews* it, which is a disposition of
state received (3.4.1): progress without an outcome, which every client can say of its own deliveries and of no others.
A lock that runs out makes a failed attempt (`settling.Settling.lock_expired`).

Each queue has a heap of its locks. The duration is the queue's, so what is added is nearly always the latest and goes
to the end in one step. Nobody tells a lock that its message has its outcome: it is seen when its time comes, or, when
most of the heap are such, as the heap is made anew. What was renewed keeps its old entry, which does nothing. A message
whose outcome waits for a transaction is the transaction's, which has a time of its own; its lock begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from acquit.broker.links.endpoints import Consumer
from acquit.broker.message import Message
from acquit.broker.transact.transaction import Retirement

if TYPE_CHECKING:
    from acquit.broker.life import Life
    from acquit.broker.nodes.node import Queue
    from acquit.broker.outcomes.settling import Settling
    from acquit.protocol.delivery import Delivery

TURN_MAX: Final = 250
"""Locks that one turn lets run out: some may become dead letters, which takes longer."""
_SWEEP_MIN: Final = 1_000


class Locks:
    """Those of one queue. Times are in milliseconds since the epoch."""

    __slots__ = ("_heap", "_number", "_queue", "_until", "duration_ms")

    def __init__(self, queue: Queue) -> None:
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
        """When the first one may run out; None for none."""
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
        """Their consumer is still at it: their time begins again. Those that are its no more stay lost."""
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


class LockKeeper:
    """All queues that have locks, and one time for all of them."""

    def __init__(self, life: Life, settling: Settling) -> None:
        self._life = life
        self._settling = settling
        self._due: list[tuple[int, int, Queue]] = []
        """A heap: for each queue with locks, a time that is not later than its first."""

    @property
    def next_ms(self) -> int | None:
        """When to look next; None: nothing is locked."""
        return self._due[0][0] if self._due else None

    def noting(self, queue: Queue, send: Callable[..., Delivery]) -> Callable[..., Delivery]:
        """`send` of a link, for a queue with a lock duration: whatever it sends is locked from now on."""
        locks = queue.locks
        if locks is None or locks.duration_ms != queue.policy.lock_duration_ms:
            if locks is None:
                locks = queue.locks = Locks(queue)
            locks.duration_ms = queue.policy.lock_duration_ms
        now_ms = self._life.scribe.time_us // 1000
        found, first = locks, locks.next_ms

        def send_noting(*arguments: object, **options: object) -> Delivery:
            delivery = send(*arguments, **options)
            found.acquired((delivery,), now_ms)
            return delivery

        until_ms = now_ms + locks.duration_ms
        if first is None or until_ms < first:
            heappush(self._due, (until_ms, queue.number, queue))
        return send_noting

    def run(self) -> bool:
        """Let run out what is due. True if there is more."""
        now_ms = self._life.scribe.time_us // 1000
        left = TURN_MAX
        while self._due and self._due[0][0] <= now_ms and left > 0:
            _, number, queue = heappop(self._due)
            locks = queue.locks
            if locks is None:
                continue
            due = locks.take_due(now_ms, left)
            left -= len(due)
            by_consumer: dict[Consumer, list[Delivery]] = {}
            for delivery in due:
                consumer = delivery.link.context
                assert isinstance(consumer, Consumer)
                by_consumer.setdefault(consumer, []).append(delivery)
            for consumer, deliveries in by_consumer.items():
                self._settling.lock_expired(consumer, deliveries)
            if by_consumer:
                self._life.wake(queue)
            if locks.next_ms is not None:
                heappush(self._due, (locks.next_ms, number, queue))
            else:
                queue.locks = None
        return bool(self._due) and self._due[0][0] <= now_ms

    def clock_set(self, by_ms: int) -> None:
        """The clock jumped, forward or (negative) back: a lock is a duration."""
        for queue in {queue for _, _, queue in self._due}:
            if queue.locks is not None:
                queue.locks.shift(by_ms)
        self._due = [(at_ms + by_ms, number, queue) for at_ms, number, queue in self._due]


__all__ = ["TURN_MAX", "LockKeeper", "Locks"]
