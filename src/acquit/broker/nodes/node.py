"""A queue: its messages, who uses it, and its accounts.

The queue itself decides nothing; it is what posting, dispatch and settlement work on. Its accounts hold at every moment
(ledger promise P3)::

    entered - retired  ==  live  ==  pending + available + acquired + suspended + scheduled
"""

from __future__ import annotations

from heapq import heappop, heappush
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Protocol

from acquit.broker.dispatching.consumers import ServedQueue
from acquit.broker.nodes.capacity import Values, displaces, resident_bytes_max, resident_messages_max, treats_alike
from acquit.broker.queue import NodeState
from acquit.ledger.duplicates import window_id
from acquit.ledger.events import ENTERING, RETIRING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acquit.broker.dispatching.browsing import Browser
    from acquit.broker.message import Message, QueueBase
    from acquit.broker.nodes.lifetime import Temporary
    from acquit.broker.nodes.locks import Locks
    from acquit.broker.nodes.subscription import Subscription
    from acquit.broker.options import AddressPolicy
    from acquit.broker.parking import Parking
    from acquit.protocol.link import ReceivingLink

_entering: Final = itemgetter(*map(int, ENTERING))
_retiring: Final = itemgetter(*map(int, RETIRING))


class NodeSender(Protocol):
    """A link that messages come on, as their node sees it: `links.endpoints.Producer`."""

    link: ReceivingLink


class Queue(ServedQueue):
    """A queue: its messages, links and accounts. Made by `queues.Queues`."""

    __slots__ = (
        "_ages",
        "browsers",
        "locks",
        "producers",
        "scheduled_ids",
        "values",
    )

    def __init__(
        self,
        number: int,
        name: str,
        address: str,
        policy: AddressPolicy,
        *,
        auto_created: bool,
        durable: bool = True,
        subscription: Subscription | None = None,
        temporary: Temporary | None = None,
        parking: Parking | None = None,
    ) -> None:
        super().__init__(
            number,
            name,
            address,
            policy,
            auto_created=auto_created,
            durable=durable,
            subscription=subscription,
            temporary=temporary,
            parking=parking,
        )
        self.values: Values | None = None
        """Newest messages by value, if it is a last-value queue."""
        self.scheduled_ids: dict[bytes, dict[Message, None]] = {}
        """Messages that wait for their delivery time, by message-id as the ledger encodes it."""
        self._ages: list[int] = []
        """A heap of the sequences of SCHEDULED messages, where these may have to give way; some are not any more."""
        self.locks: Locks | None = None
        """Locks of the acquired messages, where the policy sets a lock duration."""
        self.browsers: list[Browser] = []
        self.producers: dict[NodeSender, None] = {}
        self.look_at_policy()

    def offer(self, message: Message) -> None:
        """Put an AVAILABLE message in its place, and let those see it who go by that."""
        self.backlog.add(message)
        if self.values is not None:
            self.values.arrived.append(message)
        for browser in self.browsers:
            browser.offered(message)

    def schedule(self, message: Message) -> None:
        """Keep a SCHEDULED message until its time."""
        self.scheduled[message.sequence] = message
        if self.displaces:
            heappush(self._ages, message.sequence)
            if len(self._ages) > 2 * len(self.scheduled) + 64:
                self._ages = sorted(self.scheduled)
        if not message.came_back:
            extra = message.need_extra()
            if extra.message_id:
                extra.message_id = window_id(extra.message_id)  # it is in memory although the message may not be
                self.scheduled_ids.setdefault(extra.message_id, {})[message] = None
        elif self.policy.redelivery_blocks == "queue":
            heappush(self.delayed, (-message.priority, message.sequence, message))

    def unschedule(self, message: Message) -> bool:
        """Let go of a message that was SCHEDULED. True where it may have held up others."""
        extra = message.extra
        del self.scheduled[message.sequence]
        if extra is not None and extra.message_id:
            same = self.scheduled_ids.get(extra.message_id, {})
            same.pop(message, None)
            if not same:
                self.scheduled_ids.pop(extra.message_id, None)
            extra.message_id = b""
        return bool(self.delayed)

    def oldest_scheduled(self) -> Message:
        """Return the SCHEDULED message that was posted first, of a queue that displaces; there is one."""
        while (sequence := self._ages[0]) not in self.scheduled:
            heappop(self._ages)
        return self.scheduled[sequence]

    def look_at_policy(self) -> None:
        """The policy has changed, or is seen for the first time."""
        policy = self.policy
        self.asks_poster = any(consumer.no_local for consumer in self.consumers) or any(
            browser.no_local for browser in self.browsers
        )
        self.plain = treats_alike(policy) and not self.asks_poster and not self.producers_paused
        self.displaces = displaces(policy)
        self._ages = sorted(self.scheduled) if self.displaces else []
        self.memory_bytes_max = resident_bytes_max(policy)
        self.memory_messages_max = resident_messages_max(policy)
        if not policy.last_value:
            self.values = None
        elif self.values is None:
            self.values = Values()

    @property
    def live(self) -> int:
        """Messages in the queue, whatever their state."""
        return self.pending + self.available + self.acquired + self.suspended + len(self.scheduled)

    @property
    def entered(self) -> int:
        """Messages that ever entered."""
        return sum(_entering(self.counts))

    @property
    def retired(self) -> int:
        """Messages that left for good."""
        return sum(_retiring(self.counts))

    @property
    def held_up(self) -> bool:
        """True while nothing is handed out: bodies are being read back, or a purge has not ended, or what consumers
        that have left held is being given back, which goes first, or an operator has paused it."""
        return self.consumers_paused or self.reading or self.purging > 0 or self.learning > 0 or self.leaving > 0

    @property
    def paused(self) -> str:
        """Return for whom it is paused: one of `pausing.PAUSES`."""
        if self.consumers_paused:
            return "both" if self.producers_paused else "consumers"
        return "producers" if self.producers_paused else "none"

    @property
    def barrier(self) -> tuple[int, int] | None:
        """Place (-priority, sequence) of the first message that waits for another attempt and holds up what is behind
        it: only what stands before may be handed out. None: nothing is held up."""
        delayed = self.delayed
        while delayed and delayed[0][2].state is not NodeState.SCHEDULED:
            heappop(delayed)
        return delayed[0][:2] if delayed else None

    @property
    def undeliverable(self) -> int:
        """Available messages that none of the consumers that are here may have: each called it undeliverable, or takes
        only smaller ones."""
        if not self.aside:
            return 0
        if any(interest.members and not interest.wants.particular for interest in self.interests):
            return 0  # somebody who is here passed over nothing for that: there may be a million to look at
        consumers = {(consumer.terminus, consumer.body_bytes_max) for consumer in self.consumers}
        return sum(_is_undeliverable(message, consumers) for message in self.aside)

    @property
    def links(self) -> bool:
        """True if it has consumers, browsers or producers."""
        return bool(self.consumers or self.browsers or self.producers)

    @property
    def in_use(self) -> bool:
        """True if it has messages or links, or postings that a transaction holds."""
        return bool(self.links or self.live or self.held)

    def __repr__(self) -> str:
        return f"<Queue {self.number} {self.name!r} live={self.live}>"


def pause_key(number: int) -> bytes:
    """Return the key of the journal's state that tells of the pause of a queue or topic with this number."""
    return number.to_bytes(4, "little")


def whole(queue: QueueBase) -> Queue:
    """Return all of what a message or a link names as its queue: each is a `Queue`."""
    assert isinstance(queue, Queue)
    return queue


def _is_undeliverable(message: Message, consumers: Iterable[tuple[str, int]]) -> bool:
    """True if no consumer (terminus, largest body) may have it; with none here, if those that were may not."""
    excluded = frozenset[str]() if message.extra is None else message.extra.excluded
    if not consumers:
        return bool(excluded)
    size = message.size_bytes if message.body is None else len(message.body)
    return all(terminus in excluded or size > bytes_max for terminus, bytes_max in consumers)


__all__ = ["NodeSender", "Queue", "pause_key", "whole"]
