"""Locks: how long a consumer may hold a message of a queue without an outcome, where the address sets a limit.

A delivery's lock begins as the message is acquired, and again when its consumer *renews* it, which is a disposition of
state received (3.4.1): progress without an outcome, which every client can say of its own deliveries and of no others.
A lock that runs out makes a failed attempt (`settling.Settling.lock_expired`). One queue has `nodes.locks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from acquit.broker.dispatching.consumers import Consumer
from acquit.broker.nodes.locks import Locks

if TYPE_CHECKING:
    from acquit.broker.life import Life
    from acquit.broker.nodes.node import Queue
    from acquit.broker.outcomes.settling import Settling
    from acquit.protocol.delivery import Delivery

TURN_MAX: Final = 250
"""Locks that one turn lets run out: some may become dead letters, which takes longer."""


class LockKeeper:
    """All queues that have locks, and one time for all of them."""

    def __init__(self, life: Life, settling: Settling) -> None:
        self._life = life
        self._settling = settling
        self._due: list[tuple[int, int, Queue]] = []
        """A heap: for each queue with locks, a time that is not later than its first."""

    @property
    def next_ms(self) -> int | None:
        """Time of the next look, in milliseconds since the epoch; None: nothing is locked."""
        return self._due[0][0] if self._due else None

    def acquired(self, queue: Queue, deliveries: Sequence[Delivery]) -> None:
        """Lock what a queue with a lock duration has just sent."""
        locks = queue.locks
        if locks is None:
            locks = queue.locks = Locks(queue)
        locks.duration_ms = queue.policy.lock_duration_ms
        now_ms, first_ms = self._life.scribe.time_us // 1000, locks.next_ms
        locks.acquired(deliveries, now_ms)
        until_ms = now_ms + locks.duration_ms
        if first_ms is None or until_ms < first_ms:
            heappush(self._due, (until_ms, queue.number, queue))

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


__all__ = ["TURN_MAX", "LockKeeper"]
