"""Topics: addresses whose messages go to every subscription that matches, each into a queue of its own.

A topic holds no messages. It is a node with a number in the journal all the same, because what finds no subscription
there is counted as *unrouted* under it. Subscriptions are made and ended by `subscriptions`; here is who gets what.

**Which queues a posting goes to** is the same for every posting to one address but for filters, so it is looked up
once: `Topic.routes` lists the queues of its own subscriptions and of those whose pattern matches its address. Patterns
that came and went since are a short list, of which the next posting to the topic takes note. So a posting costs a pass
over those that may take it, however many others there are, and a pattern that comes or goes costs nothing where nobody
posts: neither many patterns nor many topics make the other slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.message import KINDS
from acquit.broker.nodes.addresses import is_pattern, match_words
from acquit.broker.nodes.capacity import treats_alike
from acquit.broker.nodes.node import NodeSender, Queue
from acquit.broker.nodes.queues import check_address
from acquit.broker.refusal import Refused
from acquit.ledger import records
from acquit.ledger.records import QueueFlag
from acquit.protocol.definitions import AmqpCondition

if TYPE_CHECKING:
    from acquit.broker.links.peers import Peer
    from acquit.broker.nodes.addresses import Policies
    from acquit.broker.nodes.lifetime import Temporary
    from acquit.broker.nodes.queues import Queues
    from acquit.broker.options import AddressPolicy
    from acquit.broker.scribe import Scribe

CHANGES_MAX: Final = 1_000
"""Patterns that came or went, which topics have not taken note of yet. Beyond, they look up all."""
ROUTES_MAX: Final = 1_000_000
"""Queues in the routes of all topics together. Beyond, topics give way that looked theirs up first."""
_TOPIC: Final = QueueFlag.TOPIC | QueueFlag.MULTICAST


class Topic:
    """A topic: its routes, senders and accounts. Made by `Topics`."""

    __slots__ = (
        "address",
        "auto_created",
        "counts",
        "held",
        "held_bytes",
        "number",
        "policy",
        "producers",
        "producers_paused",
        "queues",
        "routes",
        "seen",
        "temporary",
    )

    def __init__(
        self,
        number: int,
        address: str,
        policy: AddressPolicy,
        *,
        auto_created: bool,
        temporary: Temporary | None = None,
    ) -> None:
        self.number = number
        """Number of the topic in the journal, from the numbers of queues; never reused."""
        self.address = address
        self.policy = policy
        self.auto_created = auto_created
        self.temporary = temporary
        """Lifetime of the topic, if a client had it made for itself; else None."""
        self.queues: dict[Queue, None] = {}
        """Queues of the subscriptions that name it."""
        self.routes: list[Queue] | None = None
        """Queues of all subscriptions that its address matches; None until they are looked up."""
        self.seen = 0
        """Changes of patterns that its routes know of."""
        self.producers: dict[NodeSender, None] = {}
        self.producers_paused = False
        """An operator wants nothing to be posted."""
        self.held = 0
        """Postings of transactions that are to go through it."""
        self.held_bytes = 0
        """Bytes of the payloads of these postings."""
        self.counts = [0] * KINDS
        """Number of events since the beginning of the journal, by EventKind."""

    @property
    def name(self) -> str:
        """Name of the topic, which is its address."""
        return self.address

    @property
    def paused(self) -> str:
        """Return for whom it is paused: one of `pausing.PAUSES`."""
        return "producers" if self.producers_paused else "none"

    @property
    def plain(self) -> bool:
        """Return the same as of a queue: whether postings that say nothing special are treated alike."""
        return treats_alike(self.policy) and not self.producers_paused

    @property
    def fan(self) -> int:
        """Number of queues that a message goes to, filters left out; while its routes are not looked up, of those that
        name it."""
        return len(self.queues if self.routes is None else self.routes)

    live: Final = 0
    """Messages in it: it has none."""

    @property
    def links(self) -> bool:
        """True if it has subscriptions or senders, or postings that a transaction holds."""
        return bool(self.queues or self.producers or self.held)

    in_use = links

    def __repr__(self) -> str:
        return f"<Topic {self.number} {self.address!r}>"


class Topics:
    """All topics of one broker."""

    def __init__(self, queues: Queues, scribe: Scribe, policies: Policies, by_address: dict[str, Topic]) -> None:
        self._queues = queues
        self._scribe = scribe
        self._policies = policies
        self.by_address = by_address
        self._patterns: dict[Queue, list[str]] = {}
        """Queues of subscriptions whose address is a pattern, with its words."""
        self._deleted: dict[int, int] = {}
        """Topics that are no more, and who asked; the journal has had no room to say so."""
        self._changes: list[tuple[Queue, list[str] | None]] = []
        """Latest changes of patterns: a queue with its pattern, which came, or with None, which went."""
        self._changed = 0
        """Number of all changes so far."""
        self._routed: dict[Topic, int] = {}
        """Topics that have looked up their routes, and how many they were then."""
        self._routes = 0
        """Number of the routes of these, all together."""

    # -- nodes --------------------------------------------------------------------------------------------------------

    def find(self, peer: Peer, address: str, *, on_demand: bool = False) -> Topic:
        """The topic of an address, for a link or a message of `peer`; made if the policy allows, or on demand.

        Raises Refused with the condition to tell the peer.
        """
        topic = self.by_address.get(address)
        if topic is not None:
            return topic
        check_address(address, topic=True)
        if is_pattern(address):
            raise Refused(
                f"{address!r} is a pattern: it can be received from, but messages go to one topic",
                condition=AmqpCondition.INVALID_FIELD,
            )
        self._queues.check_creation(peer, address, on_demand=on_demand)
        return self.make(address, self._scribe.declare(peer.container, "", peer.user, address))

    def make(self, address: str, actor: int, temporary: Temporary | None = None, *, auto_created: bool = True) -> Topic:
        """A new topic. Raises Refused where the disk has no room."""
        self.record_deleted()  # one of this address may be among them
        number = self._scribe.recorder.table.queue_max + 1
        flags = _TOPIC | (QueueFlag.TEMPORARY if temporary else QueueFlag.DURABLE)
        flags |= QueueFlag.AUTO_CREATED * auto_created
        entry = records.Queue(self._scribe.time_us, number, address, address, flags, actor=actor)
        self._queues.record(entry)
        topic = Topic(
            number, address, self._policies.policy_of(address), auto_created=auto_created, temporary=temporary
        )
        self.by_address[address] = topic
        return topic

    def restore(self, entry: records.Queue) -> Topic:
        """A topic that the journal tells of."""
        topic = Topic(
            entry.number,
            entry.address,
            self._policies.policy_of(entry.address),
            auto_created=bool(entry.flags & QueueFlag.AUTO_CREATED),
        )
        self.by_address[topic.address] = topic
        return topic

    def let_go(self, topic: Topic) -> None:
        """Delete a topic, whose last link may have ended, if the policy says so and nobody uses it."""
        wanted = topic.in_use or topic.producers_paused or self._queues.waiting(topic.number)
        if topic.temporary is None and topic.auto_created and topic.policy.auto_delete and not wanted:
            self.delete(topic, 0)

    def delete(self, topic: Topic, actor: int) -> None:
        """Delete a topic that nobody uses, and record that."""
        if self.by_address.get(topic.address) is topic:
            del self.by_address[topic.address]
            self._routes -= self._routed.pop(topic, 0)
            self._deleted[topic.number] = actor
            self.record_deleted()

    def record_deleted(self) -> None:
        """Record which topics are no more: later, where the disk has no room now."""
        for number, actor in list(self._deleted.items()):
            if not self._queues.record_deleted(number, actor):
                return
            del self._deleted[number]

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def add(self, queue: Queue) -> None:
        """A subscription begins: its queue is fed from now on. The topic of one that is no pattern is there."""
        if is_pattern(queue.address):
            self._patterns[queue] = pattern = queue.address.split(".")
            self._change(queue, pattern)
        else:
            topic = self.by_address.get(queue.address) or self.make(queue.address, 0)
            topic.queues[queue] = None
            if topic.routes is not None:
                topic.routes.append(queue)

    def remove(self, queue: Queue) -> None:
        """End a subscription, and with it the topic if that is to go with its last subscription."""
        if queue in self._patterns:
            del self._patterns[queue]
            self._change(queue, None)
            return
        topic = self.by_address.get(queue.address)
        if topic is not None and queue in topic.queues:
            del topic.queues[queue]
            if topic.routes is not None:
                topic.routes.remove(queue)
            self.let_go(topic)

    def _change(self, queue: Queue, pattern: list[str] | None) -> None:
        if len(self._changes) >= CHANGES_MAX:
            self._changes.clear()
        self._changes.append((queue, pattern))
        self._changed += 1

    # -- postings -----------------------------------------------------------------------------------------------------

    def routes_of(self, topic: Topic) -> list[Queue]:
        """The queues of all subscriptions that get what is posted to the topic, but for their filters."""
        routes = topic.routes
        if routes is None or topic.seen != self._changed:
            routes = self._look_up(topic, routes)
        return routes

    def _look_up(self, topic: Topic, routes: list[Queue] | None) -> list[Queue]:
        """The same, where they are not known as they are now."""
        words = topic.address.split(".")
        missed = self._changed - topic.seen
        if routes is None or missed > len(self._changes):
            routes = [
                *topic.queues,
                *(queue for queue, pattern in self._patterns.items() if match_words(pattern, words)),
            ]
        else:
            changes = self._changes[-missed:]
            routes += [queue for queue, pattern in changes if pattern is not None and match_words(pattern, words)]
            gone = {queue for queue, pattern in changes if pattern is None}
            if gone:
                routes = [queue for queue in routes if queue not in gone]
        topic.routes, topic.seen = routes, self._changed
        self._routes += len(routes) - self._routed.pop(topic, 0)
        self._routed[topic] = len(routes)
        while self._routes > ROUTES_MAX and len(self._routed) > 1:
            other = next(iter(self._routed))
            self._routes -= self._routed.pop(other)
            other.routes = None
        return routes


__all__ = ["Topic", "Topics"]
