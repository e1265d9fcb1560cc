"""Nodes that clients have made for themselves: dynamic sources and targets, with their lifetime policies (3.5.10 to
3.5.13).

Their address is generated and cannot be guessed: who knows it was told. It begins with ``temporary.queue.`` or
``temporary.topic.``, so that policies and permissions can be given for them. They are not durable: a restart ends them,
and what is in them is kept in memory alone, whatever its sender says. When they go, what is left in them is purged, and
links that still use them end with amqp:resource-deleted.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from acquit.broker.nodes.finding import wants_topic
from acquit.broker.nodes.lifetime import Lifetime, Temporary
from acquit.broker.refusal import Refused
from acquit.protocol.composite import several
from acquit.protocol.definitions import (
    AmqpCondition,
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    StdDistMode,
)
from acquit.protocol.types import Described

if TYPE_CHECKING:
    from acquit.broker.links.peers import Peer
    from acquit.broker.nodes.node import Queue
    from acquit.broker.nodes.queues import Queues
    from acquit.broker.nodes.topics import Topic, Topics
    from acquit.broker.scribe import Scribe
    from acquit.protocol.definitions import Source, Target

LIFETIME_POLICY: Final = "lifetime-policy"
DIST_MODES: Final = "supported-dist-modes"
_ADDRESS_BYTES: Final = 16


_KINDS: Final[
    dict[type[DeleteOnClose | DeleteOnNoLinks | DeleteOnNoMessages | DeleteOnNoLinksOrMessages], Lifetime]
] = {
    DeleteOnClose: Lifetime.ON_CLOSE,
    DeleteOnNoLinks: Lifetime.ON_NO_LINKS,
    DeleteOnNoMessages: Lifetime.ON_NO_MESSAGES,
    DeleteOnNoLinksOrMessages: Lifetime.ON_NO_LINKS_OR_MESSAGES,
}
_POLICIES: Final = {lifetime: kind() for kind, lifetime in _KINDS.items()}
_DESCRIPTORS: Final = {
    descriptor: lifetime for kind, lifetime in _KINDS.items() for descriptor in (kind.DESCRIPTOR, kind.SYMBOL)
}


class TemporaryNodes:
    """Makes them."""

    def __init__(self, queues: Queues, topics: Topics, scribe: Scribe) -> None:
        self._queues = queues
        self._topics = topics
        self._scribe = scribe

    def make(self, peer: Peer, terminus: Source | Target) -> Queue | Topic:
        """The node that a dynamic terminus asks for; its `temporary.owner` is to be set. Raises Refused."""
        if terminus.address is not None:
            raise Refused(
                "a dynamic terminus has no address yet: the broker gives it one (3.5.3, 3.5.4)",
                condition=AmqpCondition.INVALID_FIELD,
            )
        temporary = Temporary(_lifetime(terminus))
        topic = bool(wants_topic(terminus.capabilities))
        address = f"temporary.{'topic' if topic else 'queue'}.{secrets.token_hex(_ADDRESS_BYTES)}"
        self._queues.check_creation(peer, address, generated=True)
        actor = self._scribe.declare(peer.container, "", peer.user, address)
        if topic:
            return self._topics.make(address, actor, temporary)
        return self._queues.make(address, address, actor, durable=False, temporary=temporary)

    def unmake(self, topic: Topic) -> None:
        """A topic that was made just now, and whose first link is refused after all."""
        self._topics.delete(topic, 0)


def describe(node: Queue | Topic, *, queue: bool) -> dict[str, object] | None:
    """The dynamic-node-properties of an answer: what is true of the node. None for one that is not dynamic."""
    if node.temporary is None:
        return None
    modes = (StdDistMode.MOVE, StdDistMode.COPY) if queue else (StdDistMode.COPY,)
    return {LIFETIME_POLICY: _POLICIES[node.temporary.lifetime], DIST_MODES: several(modes)}


def _lifetime(terminus: Source | Target) -> Lifetime:
    """Return the lifetime that a terminus asks for, by default its link's. Raises Refused for one that is not known."""
    asked = (terminus.dynamic_node_properties or {}).get(LIFETIME_POLICY)
    if asked is None:
        return Lifetime.ON_CLOSE
    if isinstance(asked, Described):
        lifetime = _DESCRIPTORS.get(asked.descriptor) if isinstance(asked.descriptor, int | str) else None
    else:
        lifetime = next((lifetime for kind, lifetime in _KINDS.items() if isinstance(asked, kind)), None)
    if lifetime is None:
        raise Refused(f"lifetime-policy {asked!r:.100} is not known here", condition=AmqpCondition.NOT_IMPLEMENTED)
    return lifetime


__all__ = ["TemporaryNodes", "describe"]
