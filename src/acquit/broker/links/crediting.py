"""The credit of senders, which follows the room in their queues.

A producer has `credit_max` where nothing holds it back, topped up when half is used. As memory gets scarce, or its
queue comes near its limit, it gets less: the room that is left, shared among the producers that want some, in messages
of the size it sends. None at all while the journal cannot keep up, the disk is full, or an operator has paused the
node. What overshoots all the same (credit was out, messages are larger than before) is refused, not lost. Whoever may
have none is remembered, and is looked at again when room may have come; who has some gets more as it uses that.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from acquit.broker.links.terminus import TAGS_MAX
from acquit.broker.message import OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acquit.broker.life import Life
    from acquit.broker.links.endpoints import Producer
    from acquit.broker.nodes.node import Queue
    from acquit.broker.nodes.topics import Topics


LOOKS_MAX: Final = 64
"""Producers that one turn looks at again."""


class Crediting:
    """Grants credit to producers."""

    def __init__(self, life: Life, topics: Topics, credit_max: int) -> None:
        self._life = life
        self._topics = topics
        self._memory = life.memory
        self._journal = life.scribe.journal
        self.credit_max = credit_max
        self._starved: dict[Producer, None] = {}

    def top_up(self, producer: Producer) -> None:
        """Grant what it may have, if it has used half of it or has never had any."""
        link = producer.link
        if link.credit > self.credit_max // 2:
            return
        target = self._allowance(producer)
        if target > link.credit:
            link.grant(target)
            self._life.touch(link.session.connection)
        if not target:
            self._starved[producer] = None
        else:
            self._starved.pop(producer, None)

    def look_again(self) -> None:
        """Room may have come: look at some of those who may have had none, in turns."""
        for producer in list(islice(self._starved, LOOKS_MAX)):
            del self._starved[producer]
            self._starved[producer] = None
            self.top_up(producer)

    def reconsider(self, producers: Iterable[Producer]) -> None:
        """A node was paused for these, or resumed: take back the credit of those that may have none any more, and grant
        it to others at once."""
        for producer in producers:
            link = producer.link
            if link.credit and not self._allowance(producer):
                link.grant(0)
                self._life.touch(link.session.connection)
            self.top_up(producer)

    def forget(self, producer: Producer) -> None:
        """Forget a producer whose link has ended."""
        self._starved.pop(producer, None)

    def _allowance(self, producer: Producer) -> int:
        """Credit that there is room for."""
        if self._journal.full or self._journal.congested or self._life.scribe.exhausted:
            return 0
        node = producer.queue or producer.topic
        if node is not None and node.producers_paused:
            return 0
        limit = self.credit_max
        if producer.resumable is not None:
            limit = min(limit, TAGS_MAX - len(producer.resumable.answered))
        memory = self._memory
        if memory.scarce:
            limit = int(limit * memory.share_left)
        if producer.queue is not None:
            limit = self._room_in(producer.queue, producer, len(producer.queue.producers), limit)
        elif producer.topic is not None:
            # A message goes to all subscriptions or to none: the fullest one decides.
            rivals = len(producer.topic.producers)
            for queue in self._topics.routes_of(producer.topic):
                limit = self._room_in(queue, producer, rivals, limit)
                if limit <= 0:
                    break
        return max(0, limit)

    @staticmethod
    def _room_in(queue: Queue, producer: Producer, rivals: int, limit: int) -> int:
        """Return how many of `limit` messages one queue has room for, where `rivals` producers share it."""
        policy, size = queue.policy, producer.average_bytes
        rivals = max(1, rivals)
        blocks = policy.full_policy == "block"
        if blocks and policy.bytes_max:
            limit = min(limit, _share(queue, policy.bytes_max - queue.bytes, size, rivals))
        if producer.volatile is not False or not queue.durable:
            cost = size + OVERHEAD_BYTES
            left = policy.memory_bytes_max - queue.memory_bytes
            if producer.volatile is None and queue.durable:
                left = max(left, cost)  # one message shows whether they need memory at all
            limit = min(limit, _share(queue, left, cost, rivals))
        if blocks and policy.messages_max:
            limit = min(limit, (policy.messages_max - queue.live) // rivals or int(queue.live < policy.messages_max))
        return limit


def _share(queue: Queue, room_bytes: int, cost_bytes: int, rivals: int) -> int:
    """Return how many messages of this cost one of `rivals` may send: half of its share of the room, and one where they
    have no more than that. Into an empty queue always one: what the next costs is only known when it comes."""
    return room_bytes // (2 * rivals * max(1, cost_bytes)) or int(room_bytes >= cost_bytes or not queue.live)


__all__ = ["Crediting"]
