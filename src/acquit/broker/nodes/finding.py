"""Nodes by address: the one that an address means to a link, or to a message that names it itself.

The same words may name a queue and a topic. Who attaches says which by a capability of its terminus, ``queue`` or
``topic``, JMS clients in the annotation `reader.JMS_DESTINATION` as well. For those who do not say, the address's
policy decides (`routing`); without one, a topic is meant if there is one of this name and no queue, otherwise a queue.
A pattern means topics: to receive from them, for nothing is sent to a pattern.

``address::queue`` is one queue, whatever kind it is of: that of a subscription, or the anycast queue where both parts
are equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.nodes.addresses import is_pattern
from acquit.broker.nodes.node import Queue
from acquit.broker.refusal import Refused
from acquit.broker.selector import fields_of_posting
from acquit.protocol.definitions import AmqpCondition
from acquit.protocol.extensions import CREATE_ON_DEMAND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acquit.broker.intake.arrival import Arrival
    from acquit.broker.intake.shaping import Posting
    from acquit.broker.intake.templates import Template
    from acquit.broker.links.peers import Peer
    from acquit.broker.nodes.addresses import Policies
    from acquit.broker.nodes.queues import Queues
    from acquit.broker.nodes.topics import Topic, Topics
    from acquit.broker.selector import Fields

_TOPIC_WORDS: Final = frozenset(("topic", "temporary-topic", "shared", "global"))
_QUEUE_WORDS: Final = frozenset(("queue", "temporary-queue"))
SEPARATOR: Final = "::"


def wants_topic(capabilities: Iterable[str]) -> bool | None:
    """True if a terminus with these capabilities means a topic, False if it means a queue; None: it does not say."""
    words = set(capabilities)
    if words & _TOPIC_WORDS:
        return True
    return False if words & _QUEUE_WORDS else None


def asks_creation(capabilities: Iterable[str]) -> bool:
    """True if a terminus with these capabilities asks for its node to be made, whatever the address's policy says."""
    return CREATE_ON_DEMAND in capabilities


class Nodes:
    """Finds nodes."""

    def __init__(self, queues: Queues, topics: Topics, policies: Policies) -> None:
        self._queues = queues
        self._topics = topics
        self._policies = policies

    def is_topic(self, address: str, wanted: bool | None) -> bool:
        """True if a topic is meant; `wanted` as `wants_topic` gives it."""
        if wanted is not None:
            return wanted
        routing = self._policies.policy_of(address).routing
        if routing:
            return routing == "multicast"
        if address in self._queues.by_name:
            return False
        return address in self._topics.by_address or is_pattern(address)

    def to_send_to(self, peer: Peer, address: str, wanted: bool | None, *, on_demand: bool = False) -> Queue | Topic:
        """Return the node for messages to this address; made if the policy allows, or on demand. Raises Refused."""
        if SEPARATOR in address:
            queue = self.qualified(address)
            if queue is None:
                raise Refused(f"there is no queue {address!r}", condition=AmqpCondition.NOT_FOUND)
            return queue
        if self.is_topic(address, wanted):
            return self._topics.find(peer, address, on_demand=on_demand)
        return self._queues.find(peer, address, on_demand=on_demand)

    def known(self, address: str, wanted: bool | None) -> Queue | Topic | None:
        """Return the node as `to_send_to` does, but make none: None where it is not there."""
        if SEPARATOR in address:
            return self.qualified(address)
        if self.is_topic(address, wanted):
            return self._topics.by_address.get(address)
        return self._queues.by_name.get(address)

    def qualified(self, address: str) -> Queue | None:
        """The queue that ``address::queue`` names, if it is there."""
        node, _, name = address.partition(SEPARATOR)
        return self._queues.by_name.get(node if node == name else address)

    def exists(self, node: Queue | Topic) -> bool:
        """True if the node is still there; False if it has been deleted."""
        if isinstance(node, Queue):
            return self._queues.by_name.get(node.name) is node and not node.removing
        return self._topics.by_address.get(node.address) is node

    def posted(self, arrival: Arrival) -> None:
        """A message is where it goes. A topic that no link has, only the message named, may not be needed any more."""
        topic = arrival.target
        if not isinstance(topic, Queue) and not topic.in_use:
            self._topics.let_go(topic)

    def queues_of(self, arrival: Arrival) -> list[Queue]:
        """The queues that a posting enters: for a topic those of all subscriptions that take it."""
        target = arrival.target
        if isinstance(target, Queue):
            return [target]
        return self.matching(target, arrival.container, arrival.payload, arrival.posting, arrival.expires_at_ms)

    def plain_routes(self, topic: Topic) -> list[Queue]:
        """The queues of the topic's subscriptions, but for their filters, where a posting that says nothing special is
        treated alike in all of them; none where it is not."""
        routes = self._topics.routes_of(topic) if topic.plain else []
        return list(routes) if all(queue.plain for queue in routes) else []

    def matching(
        self, topic: Topic, container: str, payload: bytes, posting: Posting | Template, expires_at_ms: int = 0
    ) -> list[Queue]:
        """The queues of the topic's subscriptions that take this posting of a container."""
        matching = []
        fields = None
        for queue in self._topics.routes_of(topic):
            subscription = queue.subscription
            if subscription is not None and subscription.filtered:
                if subscription.no_local and subscription.container == container:
                    continue
                if subscription.selector is not None:
                    if fields is None:
                        fields = _fields_of(topic, payload, posting, expires_at_ms)
                    if not subscription.selector.matches(fields):
                        continue
            matching.append(queue)
        return matching


def _fields_of(topic: Topic, payload: bytes, posting: Posting | Template, expires_at_ms: int) -> Fields:
    return fields_of_posting(
        payload,
        topic.address,
        durable=posting.durable,
        priority=posting.priority,
        expires_at_ms=expires_at_ms,
        size_bytes=len(payload),
    )


__all__ = ["SEPARATOR", "Nodes", "asks_creation", "wants_topic"]
