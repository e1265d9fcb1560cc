"""Deleting a queue, whatever is in it and whoever uses it.

It goes at once for all who ask: nobody finds it, nothing is posted to it, its links end with amqp:resource-deleted.
What is in it is purged, message by message and with who asked, over as many turns as that takes; what was held comes
back with the end of its link, or with the outcome that is still being performed. When it is empty its deletion is
recorded. A durable queue that is not empty is marked in the journal first, so that a crash in between only delays the
rest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from acquit.broker.admin.purging import STEP, Purge
from acquit.broker.nodes.node import Queue
from acquit.errors import StoreFull
from acquit.ledger.records import QueueFlag
from acquit.protocol.definitions import AmqpCondition, Error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from acquit.broker.life import Life
    from acquit.broker.nodes.queues import Queues
    from acquit.broker.nodes.topics import Topic, Topics
    from acquit.protocol.link import Link

DELETED: Final = Error(AmqpCondition.RESOURCE_DELETED, "the node was deleted")


class Removal:
    """Deletes queues and topics."""

    def __init__(
        self,
        life: Life,
        queues: Queues,
        topics: Topics,
        end_link: Callable[[Link, Error], None],
        end_termini: Callable[[Queue], None],
    ) -> None:
        """`end_link` detaches a link with an error, and does what follows from that; `end_termini` ends the termini of
        a queue that outlived their links."""
        self._end_termini = end_termini
        self._life = life
        self._queues = queues
        self._topics = topics
        self._end_link = end_link
        self.forget: Callable[[Queue], None] = topics.remove
        """Called for the queue of a subscription that goes."""
        self._going: dict[Queue, int] = {}
        """Queues that are being deleted, with the number of the actor who asked."""
        self._purges: dict[Queue, Purge] = {}
        self._left = STEP
        """Messages that may still be purged in this turn, of all these queues together."""
        self._unmarked: set[Queue] = set()
        """Durable queues of these whose deletion the journal is still to be told of."""
        self._unheard: dict[Queue, list[Callable[[], None]]] = {}
        """Calls that wait until it is told of that."""
        self._awaited: dict[Queue, Callable[[Queue], None]] = {}

    @property
    def queues(self) -> Iterable[Queue]:
        """Queues that are being deleted: nobody finds them any more, and they are not empty yet, or the disk has no
        room to record that they are no more."""
        return self._going

    def left(self, node: Queue | Topic, context: object) -> None:
        """A link of the node has ended; `context` was its context."""
        temporary = node.temporary
        if temporary is not None and temporary.owner is context:
            temporary.owner = None
        self.let_go(node)
        topic = self._topics.by_address.get(node.address)
        if topic is not None and topic is not node and topic.temporary is not None:
            # The link of a subscription is one of its topic as well.
            self.left(topic, context)

    def let_go(self, node: Queue | Topic) -> None:
        """A link of it has ended, or its last message: it may not be needed any more."""
        if isinstance(node, Queue):
            if self._queues.unneeded(node):
                self.remove(node, 0)
        elif node.temporary is None:
            self._topics.let_go(node)
        elif node.temporary.over(node):
            self.remove_topic(node, 0)

    def remove(self, queue: Queue, actor: int) -> None:
        """Delete a queue; `actor` is who asked, 0 the broker itself."""
        if queue.removing:
            return
        queue.removing = True
        if queue.durable:
            self._unmarked.add(queue)
        if queue.subscription is not None:
            self.forget(queue)
        self._queues.forget(queue)
        links: list[Link] = [consumer.link for consumer in queue.consumers]
        links += [browser.link for browser in queue.browsers]
        links += [producer.link for producer in queue.producers]
        links += [waiting.link for waiting in self._queues.waiting(queue.number)]
        for link in links:
            self._end_link(link, DELETED)
        if queue.suspended:
            self._end_termini(queue)
        self._going[queue] = actor
        self._step(queue)

    def remove_topic(self, topic: Topic, actor: int) -> None:
        """Delete a topic, and its subscriptions."""
        for queue in list(topic.queues):
            self.remove(queue, actor)
        links: list[Link] = [producer.link for producer in topic.producers]
        links += [waiting.link for waiting in self._queues.waiting(topic.number)]
        for link in links:
            self._end_link(link, DELETED)
        self._topics.delete(topic, actor)

    def when_gone(self, queue: Queue, call: Callable[[Queue], None]) -> None:
        """Call it once what is recorded, as soon as that is durable, lets no crash bring back a queue that is being
        deleted, and all is purged that no transaction has taken from it."""
        self._awaited[queue] = call
        self._tell(queue)

    def when_recorded(self, queue: Queue | None, call: Callable[[], None]) -> None:
        """Call it once all that is recorded by now is durable, and with it, if the queue is being deleted, that it is,
        whatever is left in it."""
        if queue in self._unmarked:
            self._unheard.setdefault(queue, []).append(call)
        else:
            self._life.scribe.once_durable(call)

    def run(self) -> bool:
        """Go on with what has been begun. True if there is more that can be done at once."""
        self._left = STEP
        for queue in list(self._going):
            self._step(queue)
        self._topics.record_deleted()
        return bool(self._purges) or self._left <= 0

    def _step(self, queue: Queue) -> None:
        if queue in self._unmarked and queue.live:
            self._mark(queue)
        if self._left > 0:
            self._purge(queue)
        if not queue.live and self._queues.record_deleted(queue.number, self._going[queue]):
            del self._going[queue]
            self._purges.pop(queue, None)  # its last step left nothing, and did not know yet that it was the last
            self._unmarked.discard(queue)
        if queue in self._unheard and queue not in self._unmarked:
            for call in self._unheard.pop(queue):
                self._life.scribe.once_durable(call)
        if queue in self._awaited:
            self._tell(queue)

    def _purge(self, queue: Queue) -> None:
        purge = self._purges.get(queue)
        if purge is None and (queue.available or queue.scheduled):
            purge = self._purges[queue] = Purge(self._life, queue, self._going[queue])
        if purge is not None:
            before = purge.count
            if purge.run():
                del self._purges[queue]
            self._left -= purge.count - before

    def _tell(self, queue: Queue) -> None:
        held_alone = queue.live and queue.live == queue.acquired and queue not in self._unmarked
        if held_alone or queue not in self._going:
            self._awaited.pop(queue)(queue)

    def _mark(self, queue: Queue) -> None:
        recorder = self._life.scribe.recorder
        entry = recorder.table.queues[queue.number]
        try:
            recorder.append(replace(entry, time_us=self._life.scribe.time_us, flags=entry.flags | QueueFlag.ENDING))
            self._unmarked.discard(queue)
        except StoreFull:
            self._life.scribe.exhausted = True


__all__ = ["DELETED", "Removal"]
