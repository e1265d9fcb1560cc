"""Answers attaches: what a peer asks of a link, what it gets, and why it gets none.

Each end of a link says what is true of it (2.6.3): the source and target in our answer are as they are here, not as
they were asked for. No terminus outlives its link yet, so they say so; what we cannot do is refused with a condition
that names it, not ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.browsing import Browser
from acquit.broker.endpoints import Consumer, Peer, Producer, verdict_of
from acquit.broker.management import NODE
from acquit.broker.posting import Refused
from acquit.protocol._definitions import (
    AmqpCondition,
    Coordinator,
    Error,
    LinkCondition,
    SndSettleMode,
    Source,
    StdDistMode,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from acquit.protocol.link import Link, ReceivingLink, SendingLink
from acquit.protocol.types import ULong

if TYPE_CHECKING:
    from acquit.broker.crediting import Crediting
    from acquit.broker.management_node import ManagementNode
    from acquit.broker.node import Queue
    from acquit.broker.queues import Queues
    from acquit.broker.scribe import Scribe

LAST_SEQUENCE: Final = "acquit:last-sequence"
OUTCOMES: Final = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")
_TOPICS: Final = frozenset(("topic", "temporary-topic", "shared", "global"))
_TEMPORARY: Final = frozenset(("temporary-queue", "temporary-topic"))

LinkKey = tuple[str | None, str, str, bool]
"""User, container, link name, our role: who a link is (2.6.1). Another user is another link."""


class Attaching:
    """Answers LinkRequested, and knows which links there are."""

    def __init__(
        self, queues: Queues, scribe: Scribe, crediting: Crediting, management: ManagementNode, links_max: int
    ) -> None:
        """`links_max`: links that one connection may have."""
        self._links_max = links_max
        self._queues = queues
        self._scribe = scribe
        self._crediting = crediting
        self._management = management
        self._links: dict[LinkKey, Link] = {}

    def answer(self, peer: Peer, link: Link) -> Link | None:
        """Accept or refuse. Returns the link whose name this one takes over: it is stolen, and must be detached."""
        try:
            context = self._accept(peer, link)
        except Refused as exc:
            link.refuse(Error(exc.condition, exc.description))
            return None
        link.context = context
        peer.links[context] = None
        key = self._key(peer, link)
        stolen = self._links.get(key)
        self._links[key] = link
        return stolen

    def ended(self, peer: Peer, link: Link) -> None:
        """The link is no more."""
        key = self._key(peer, link)
        if self._links.get(key) is link:
            del self._links[key]

    def _key(self, peer: Peer, link: Link) -> LinkKey:
        return peer.user, peer.container, link.name, bool(link.role)

    def _accept(self, peer: Peer, link: Link) -> object:
        if len(peer.links) >= self._links_max:
            raise Refused(
                f"this connection has {self._links_max} links, no more are taken",
                condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED,
            )
        if isinstance(link, SendingLink):
            return self._accept_receiver(peer, link)
        assert isinstance(link, ReceivingLink)
        return self._accept_sender(peer, link)

    # -- peers that receive -------------------------------------------------------------------------------------------

    def _accept_receiver(self, peer: Peer, link: SendingLink) -> object:
        asked = link.remote_attach
        assert asked is not None
        source = asked.source
        if not isinstance(source, Source):
            raise Refused("a receiver must say its source", condition=AmqpCondition.INVALID_FIELD)
        address = self._check_terminus(source)
        properties = {LAST_SEQUENCE: ULong(self._scribe.sequences.last)}
        if address == NODE:
            link.accept_attach(source=Source(NODE), properties=properties)
            target = asked.target
            return self._management.replies(peer, link, target.address if isinstance(target, Target) else None)
        copy = self._distribution(source)
        queue = self._queues.find(peer, address)
        policy = queue.policy
        if not copy and policy.consumers_max and self._rivals(peer, link, queue) >= policy.consumers_max:
            raise Refused(
                f"{queue.name!r} has {policy.consumers_max} consumers, no more are taken",
                condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED,
            )
        default_outcome = source.default_outcome
        presettled = asked.snd_settle_mode is SndSettleMode.SETTLED or copy
        if verdict_of(default_outcome) is None:  # type: ignore[arg-type]  # a described value is no outcome either
            default_outcome = None
        link.accept_attach(
            source=Source(
                address,
                TerminusDurability.NONE,
                TerminusExpiryPolicy.LINK_DETACH,
                distribution_mode=StdDistMode.COPY if copy else StdDistMode.MOVE,
                default_outcome=default_outcome,
                outcomes=OUTCOMES,
                capabilities=("queue",),
            ),
            snd_settle_mode=asked.snd_settle_mode,
            properties=properties,
        )
        link.offer(queue.available)
        if copy:
            browser = Browser(peer, link, queue)
            queue.browsers.append(browser)
            return browser
        consumer = Consumer(peer, link, queue, presettled=presettled, default_outcome=default_outcome)  # type: ignore[arg-type]
        queue.consumers.append(consumer)
        return consumer

    def _rivals(self, peer: Peer, link: Link, queue: Queue) -> int:
        """Consumers of the queue, without the one whose link this one is about to steal: a client that comes back
        before its old connection is known to be lost must not be kept out by itself."""
        old = self._links.get(self._key(peer, link))
        stolen = old is not None and isinstance(old.context, Consumer) and old.context.queue is queue
        return len(queue.consumers) - stolen

    @staticmethod
    def _distribution(source: Source) -> bool:
        """Does it browse?"""
        if source.distribution_mode not in (None, StdDistMode.COPY, StdDistMode.MOVE):
            raise Refused(
                f"distribution-mode {source.distribution_mode:.64} is not known here",
                condition=AmqpCondition.NOT_IMPLEMENTED,
            )
        return source.distribution_mode == StdDistMode.COPY

    # -- peers that send ----------------------------------------------------------------------------------------------

    def _accept_sender(self, peer: Peer, link: ReceivingLink) -> object:
        asked = link.remote_attach
        assert asked is not None
        target = asked.target
        if isinstance(target, Coordinator):
            raise Refused("transactions are not implemented", condition=AmqpCondition.NOT_IMPLEMENTED)
        if not isinstance(target, Target):
            raise Refused("a sender must say its target", condition=AmqpCondition.INVALID_FIELD)
        if target.address is None and not target.dynamic:
            link.accept_attach(target=self._actual_target(None))
            producer = Producer(peer, link, None, "")
        else:
            address = self._check_terminus(target)
            if address == NODE:
                link.accept_attach(target=self._actual_target(NODE))
                return self._management.requests(peer, link)
            queue = self._queues.find(peer, address)
            link.accept_attach(target=self._actual_target(address))
            producer = Producer(peer, link, queue, queue.address)
            queue.producers[producer] = None
        self._crediting.top_up(producer)
        return producer

    @staticmethod
    def _actual_target(address: str | None) -> Target:
        return Target(address, TerminusDurability.NONE, TerminusExpiryPolicy.LINK_DETACH, capabilities=("queue",))

    # -- both ---------------------------------------------------------------------------------------------------------

    @staticmethod
    def _check_terminus(terminus: Source | Target) -> str:
        """The address, of a terminus that we can have. Raises Refused."""
        capabilities = set(terminus.capabilities)
        if terminus.dynamic or capabilities & _TEMPORARY:
            raise Refused("dynamic (temporary) nodes are not implemented", condition=AmqpCondition.NOT_IMPLEMENTED)
        if capabilities & _TOPICS:
            raise Refused("topics and subscriptions are not implemented", condition=AmqpCondition.NOT_IMPLEMENTED)
        if not terminus.address:
            raise Refused("an address is needed", condition=AmqpCondition.INVALID_FIELD)
        return terminus.address


STOLEN: Final = Error(LinkCondition.STOLEN, "the same container attached a link of this name again")

__all__ = ["LAST_SEQUENCE", "OUTCOMES", "STOLEN", "Attaching"]
