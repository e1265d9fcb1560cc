"""Links of peers that receive: from a queue, as a consumer or a browser; from a topic, by a subscription.

The source in our answer is as it is here, not as it was asked for (2.6.3): its durability, its expiry, the filters that
are applied. A link from a topic is not a browser where it says distribution-mode *copy*, as JMS clients do: each
subscription gets a copy of its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from acquit.broker.denials import Denials
from acquit.broker.dispatching.browsing import Browser
from acquit.broker.dispatching.consumers import Consumer
from acquit.broker.dispatching.succession import SHARED, arrive, priority_of
from acquit.broker.links.endpoints import WaitingLink, verdict_of
from acquit.broker.links.filters import NOTHING, AppliedFilters, read_filters
from acquit.broker.links.parting import outlives
from acquit.broker.links.peers import Actor, Peer
from acquit.broker.links.terminus import map_room
from acquit.broker.nodes import subscriptions, temporary
from acquit.broker.nodes.addresses import is_pattern
from acquit.broker.nodes.finding import SEPARATOR, Nodes, asks_creation, wants_topic
from acquit.broker.nodes.node import Queue
from acquit.broker.options import UINT_MAX
from acquit.broker.refusal import Refused
from acquit.errors import SelectorError
from acquit.protocol.definitions import (
    AmqpCondition,
    Error,
    SndSettleMode,
    Source,
    StdDistMode,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from acquit.protocol.extensions import (
    ACTIVE,
    EXISTING,
    LAST_SEQUENCE,
    LOCK_DURATION,
    MANAGEMENT_NODE,
    RESUME,
    TERMINUS,
)
from acquit.protocol.resumption import MISSING, first_fitting
from acquit.protocol.types import UInt, ULong

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from acquit.broker.admin.management_node import ManagementNode
    from acquit.broker.dispatching.resuming import Resuming
    from acquit.broker.life import Life
    from acquit.broker.links.termini import Termini
    from acquit.broker.links.terminus import SourceTerminus
    from acquit.broker.nodes.queues import Queues
    from acquit.broker.nodes.subscriptions import Subscriptions
    from acquit.broker.nodes.temporary import TemporaryNodes
    from acquit.protocol.constants import Outcome
    from acquit.protocol.definitions import Attach
    from acquit.protocol.delivery import DeliveryState
    from acquit.protocol.endpoint import Unsettled
    from acquit.protocol.link import SendingLink

OUTCOMES: Final = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")


class Receivers:
    """Answers peers that want to receive."""

    def __init__(
        self,
        nodes: Nodes,
        queues: Queues,
        subscriptions: Subscriptions,
        temporary: TemporaryNodes,
        management: ManagementNode,
        life: Life,
        termini: Termini,
        resuming: Resuming,
        denials: Denials,
    ) -> None:
        self._denials = denials
        self._termini = termini
        self._resuming = resuming
        self._nodes = nodes
        self._queues = queues
        self._subscriptions = subscriptions
        self._temporary = temporary
        self._management = management
        self._life = life
        self._scribe = life.scribe

    def accept(self, peer: Peer, link: SendingLink, stolen: object) -> object:
        """Accept the link, and give what is its context from now on. Raises Refused.

        `stolen`: the context of the link whose name this one takes over; None where there is none.
        """
        asked = link.remote_attach
        assert asked is not None
        source = asked.source
        if source is None:
            return self._look_up(peer, link)
        if asked.incomplete_unsettled and not self._termini.granted_ms(link):
            # Until the rest of the map is told, nothing new may be sent on it (2.7.3).
            raise Refused("this link is not resumed here", condition=AmqpCondition.NOT_IMPLEMENTED)
        if not isinstance(source, Source):
            raise Refused("a receiver must say its source", condition=AmqpCondition.INVALID_FIELD)
        if source.address == MANAGEMENT_NODE:
            link.accept_attach(source=Source(MANAGEMENT_NODE), properties=self._properties())
            target = asked.target
            return self._management.replies(peer, link, target.address if isinstance(target, Target) else None)
        filters = _filters(source)
        priority_of(asked.properties)  # what is refused is so before anything is made for it
        if source.dynamic:
            if filters.portion is not None:
                raise Refused(
                    "a temporary node is there to be read, not browsed", condition=AmqpCondition.NOT_IMPLEMENTED
                )
            return self._from_dynamic(peer, link, source, filters)
        address = source.address
        if not address:
            raise Refused("an address is needed", condition=AmqpCondition.INVALID_FIELD)
        topic, copy = wants_topic(source.capabilities), _browses(source)
        if not (peer.rights.may("consume", address) or (copy and peer.rights.may("browse", address))):
            # Who may neither is told nothing of what is there: not even that it is a topic, unless they say so.
            peer.rights.check("browse" if copy and not topic and not is_pattern(address) else "consume", address)
        if EXISTING in source.capabilities and not is_pattern(address):
            peer.rights.check("browse" if copy else "consume", address)
            if self._nodes.known(address, topic) is None:
                raise Refused(f"there is no queue {address!r}", condition=AmqpCondition.NOT_FOUND)
        if SEPARATOR in address:
            return self._from_qualified(peer, link, source, address, filters, stolen)
        if self._nodes.is_topic(address, topic):
            if filters.portion is not None:
                raise Refused(
                    f"{address!r:.80} is a topic, and has no messages of its own to look at",
                    condition=AmqpCondition.NOT_IMPLEMENTED,
                )
            return self._from_topic(peer, link, source, address, filters, stolen)
        peer.rights.check("browse" if copy else "consume", address)
        queue = self._queues.find(peer, address, on_demand=asks_creation(source.capabilities))
        return self._from_queue(peer, link, queue, _queue_source(queue, address, copy=copy), filters, stolen)

    # -- from what ----------------------------------------------------------------------------------------------------

    def _look_up(self, peer: Peer, link: SendingLink) -> object:
        lookup = self._subscriptions.look_up(peer, link)
        link.accept_attach(source=subscriptions.describe(lookup.queue, None), properties=self._properties())
        return lookup

    def _from_topic(
        self, peer: Peer, link: SendingLink, source: Source, address: str, filters: AppliedFilters, stolen: object
    ) -> Actor:
        peer.rights.check("consume", address)
        queue = self._subscriptions.open(peer, link, source, address, filters, stolen)
        terminus = self._open_terminus(peer, link, queue)
        if terminus is not None or queue in self._subscriptions.unsynced:
            accept = partial(self._subscriber, peer, link, queue, source, None, terminus)
            return self._later(peer, link, queue, accept, terminus, subscriber=True)
        return self._subscriber(peer, link, queue, source, stolen)

    def _subscriber(
        self,
        peer: Peer,
        link: SendingLink,
        queue: Queue,
        source: Source,
        stolen: object,
        terminus: SourceTerminus | None = None,
    ) -> Consumer:
        described = subscriptions.describe(queue, source)
        consumer = self._consumer(peer, link, queue, described, NOTHING, stolen, terminus)
        consumer.subscriber = True
        return consumer

    def _open_terminus(self, peer: Peer, link: SendingLink, queue: Queue) -> SourceTerminus | None:
        """Return the terminus of a link that is resumable (`termini`), and None for any other."""
        asked = link.remote_attach
        assert asked is not None
        granted_ms = self._termini.granted_ms(link)
        if not granted_ms or (queue.subscription is not None and queue.subscription.shared):
            return None
        outcome = _default_outcome(asked)
        return self._termini.open_source(peer, link.name, queue.name, granted_ms, outcome, anew=asked.unsettled is None)

    def _later(
        self,
        peer: Peer,
        link: SendingLink,
        queue: Queue,
        accept: Callable[[], Actor],
        terminus: SourceTerminus | None = None,
        *,
        subscriber: bool = False,
    ) -> WaitingLink:
        """Accept a link when what was recorded for it is on the disk: a subscription that is said to be durable is, and
        so is a terminus that outlives its link, with all that becomes of what it holds, and a queue that was made."""
        waiting = WaitingLink(peer, link, queue, terminus, queue, subscriber=subscriber)

        def synced() -> None:
            if link.context is not waiting:
                return  # it is gone, or its name was taken over
            if terminus is not None and terminus.busy:
                terminus.waiting = synced  # what the link before it held is still being suspended
                return
            try:
                _check_free(queue)
                context = accept()
            except Refused as exc:
                self._denials.link(peer, link.name, exc)
                link.refuse(Error(exc.condition, exc.description))
                self._termini.refused(waiting)
            else:
                link.context = context
                link.ends_later = outlives(link)
                peer.replace_link(waiting, context)
                if isinstance(context, Consumer):
                    context.stand_in_line()  # its first flow may have come meanwhile
                    self._resuming.begin(context)
                self._life.wake(queue)
            self._life.touch(peer.engine)

        if terminus is not None:
            terminus.attached = waiting
        if terminus is None and queue.subscription is None:
            self._queues.await_sync(queue.number, waiting, synced)
        else:
            self._subscriptions.awaited(waiting)
            self._scribe.when_synced(synced)
        return waiting

    def _from_qualified(
        self, peer: Peer, link: SendingLink, source: Source, address: str, filters: AppliedFilters, stolen: object
    ) -> object:
        """Attach a link to one queue of an address: an existing one, or a subscription that is begun for whoever asks
        for it."""
        copy = _browses(source)
        node, _, name = address.partition(SEPARATOR)
        peer.rights.check("browse" if copy else "consume", node)
        queue = self._nodes.qualified(address)
        owner = None if queue is None or queue.subscription is None else queue.subscription.user
        if reason := peer.rights.refusal_of_others(owner, peer.user, node):
            raise Refused(reason, condition=AmqpCondition.UNAUTHORIZED_ACCESS)
        if queue is None and node == name:
            queue = self._queues.find(peer, node, on_demand=asks_creation(source.capabilities))
        elif queue is None:
            if not self._nodes.is_topic(node, wants_topic(source.capabilities)):
                raise Refused(f"there is no queue {address!r}", condition=AmqpCondition.NOT_FOUND)
            queue = self._subscriptions.qualified(peer, address)
        said = _queue_source(queue, address, copy=copy)
        if queue in self._subscriptions.unsynced:
            return self._later(peer, link, queue, partial(self._from_queue, peer, link, queue, said, filters, None))
        return self._from_queue(peer, link, queue, said, filters, stolen)

    def _from_dynamic(self, peer: Peer, link: SendingLink, source: Source, filters: AppliedFilters) -> Consumer:
        node = self._temporary.make(peer, source)
        assert node.temporary is not None
        dynamic = temporary.describe(node, queue=isinstance(node, Queue))
        if isinstance(node, Queue):
            said = _queue_source(node, node.address, copy=False)
            queue = node
        else:
            # What is subscribed to ends with a restart at the latest, so that nothing here is durable.
            source = replace(source, durable=TerminusDurability.NONE, expiry_policy=TerminusExpiryPolicy.LINK_DETACH)
            try:
                queue = self._subscriptions.open(peer, link, source, node.address, filters, None)
            except Refused:
                self._temporary.unmake(node)  # nobody has heard of it, and no link will ever end for it
                raise
            said = subscriptions.describe(queue, source)
            said = replace(said, capabilities=(*said.capabilities, "temporary-topic"))
            filters = NOTHING
        said = replace(said, dynamic=True, dynamic_node_properties=dynamic)
        consumer = self._consumer(peer, link, queue, said, filters, None)
        consumer.subscriber = queue is not node
        node.temporary.owner = consumer
        return consumer

    def _from_queue(
        self, peer: Peer, link: SendingLink, queue: Queue, said: Source, filters: AppliedFilters, stolen: object
    ) -> Actor:
        reads = queue.policy.non_destructive and said.distribution_mode != StdDistMode.COPY
        if said.distribution_mode != StdDistMode.COPY and not reads:
            terminus = self._open_terminus(peer, link, queue)
            if terminus is not None or queue.number in self._queues.unsynced:
                accept = partial(self._consumer, peer, link, queue, said, filters, None, terminus)
                return self._later(peer, link, queue, accept, terminus)
            return self._consumer(peer, link, queue, said, filters, stolen)
        if queue.number in self._queues.unsynced:
            return self._later(peer, link, queue, partial(self._from_queue, peer, link, queue, said, filters, None))
        asked = link.remote_attach
        assert asked is not None
        browsers_max = queue.policy.browsers_max
        if browsers_max and sum(browser is not stolen for browser in queue.browsers) >= browsers_max:
            raise Refused(
                f"{queue.name!r} has {browsers_max} browsers, no more are taken",
                condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED,
            )
        self._accept(link, asked, queue, replace(said, distribution_mode=StdDistMode.COPY, filter=filters.echo))
        browser = Browser(
            peer,
            link,
            queue,
            selector=filters.selector,
            no_local=filters.no_local,
            portion=filters.portion,
            reads=reads,
        )
        queue.browsers.append(browser)
        if browser.no_local:
            queue.look_at_policy()
        return browser

    def _consumer(
        self,
        peer: Peer,
        link: SendingLink,
        queue: Queue,
        said: Source,
        filters: AppliedFilters,
        stolen: object,
        terminus: SourceTerminus | None = None,
    ) -> Consumer:
        """`filters`: those that are asked of each message as it is handed out; a subscription's were asked before."""
        consumers_max = queue.policy.consumers_max
        # A client that comes back before its old connection is known to be lost must not be kept out by itself.
        rivals = [consumer for consumer in queue.consumers if consumer is not stolen]
        if consumers_max and len(rivals) >= consumers_max:
            raise Refused(
                f"{queue.name!r} has {consumers_max} consumers, no more are taken",
                condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED,
            )
        if rivals and queue.policy.consumers == "exclusive":
            raise Refused(f"{queue.name!r} has its one consumer", condition=AmqpCondition.RESOURCE_LOCKED)
        asked = link.remote_attach
        assert asked is not None
        default_outcome = _default_outcome(asked)
        if filters.echo is not None:
            said = replace(said, filter=filters.echo)
        properties: dict[str, object] = {}
        if queue.policy.consumers != SHARED:
            properties[ACTIVE] = queue.active is None or queue.active is stolen
        if queue.policy.lock_duration_ms:
            properties[LOCK_DURATION] = UInt(min(queue.policy.lock_duration_ms, UINT_MAX))
        said = replace(said, default_outcome=default_outcome)
        resumed: dict[bytes, DeliveryState | None] = {}
        incomplete = asked.incomplete_unsettled
        if terminus is None:
            self._accept(link, asked, queue, said, properties)
        else:
            room_bytes = map_room(asked, link.session.connection.frame_size_max)
            resumed, cut = first_fitting(terminus.unsettled(), asked.unsettled or {}, room_bytes)
            incomplete = incomplete or cut
            properties[TERMINUS] = terminus.identity
            self._accept(link, asked, queue, _lasting(said, terminus), properties, resumed, incomplete=cut)
        consumer = Consumer(
            peer,
            link,
            queue,
            presettled=asked.snd_settle_mode is SndSettleMode.SETTLED,
            default_outcome=default_outcome,
            selector=filters.selector,
            no_local=filters.no_local,
            priority=priority_of(asked.properties),
        )
        if terminus is not None:
            terminus.attached = consumer
            terminus.fresh = False
            consumer.number = terminus.number
            consumer.resumable = terminus
            consumer.resuming_only = incomplete
            theirs = asked.unsettled or {}
            consumer.resuming.extend((tag, theirs.get(tag, MISSING)) for tag in resumed)
        arrive(consumer)
        return consumer

    # -- the answer ---------------------------------------------------------------------------------------------------

    def _accept(
        self,
        link: SendingLink,
        asked: Attach,
        queue: Queue,
        said: Source,
        properties: Mapping[str, object] = MappingProxyType({}),
        unsettled: Unsettled | None = None,
        *,
        incomplete: bool = False,
    ) -> None:
        """`unsettled`: of a resumable link, as much of our map as fits; `incomplete`: not all of it does."""
        link.accept_attach(
            source=replace(said, outcomes=OUTCOMES),
            snd_settle_mode=asked.snd_settle_mode,
            unsettled=unsettled,
            incomplete_unsettled=incomplete,
            offered_capabilities=() if unsettled is None else (RESUME,),
            properties={**self._properties(), **properties},
        )
        link.offer(queue.available)

    def _properties(self) -> dict[str, object]:
        return {LAST_SEQUENCE: ULong(self._scribe.sequences.last)}


def _default_outcome(asked: Attach) -> Outcome | None:
    """Return the default-outcome of a requested link's source (3.5.3); None for what is none that can be performed."""
    outcome = asked.source.default_outcome if isinstance(asked.source, Source) else None
    return None if verdict_of(outcome) is None else outcome  # type: ignore[arg-type, return-value]


def _lasting(said: Source, terminus: SourceTerminus) -> Source:
    """Return the source of a resumable link as it is: it expires after its time, from when its link has gone."""
    return replace(
        said,
        durable=TerminusDurability.UNSETTLED_STATE,
        expiry_policy=TerminusExpiryPolicy.LINK_DETACH,
        timeout=-(-terminus.timeout_ms // 1000),
    )


def _check_free(queue: Queue) -> None:
    """Raise Refused unless a link that has waited may still receive from its subscription."""
    subscription = queue.subscription
    if queue.removing:
        raise Refused("the subscription was ended meanwhile", condition=AmqpCondition.RESOURCE_DELETED)
    if queue.consumers and subscription is not None and not subscription.shared:
        raise Refused(f"the subscription {subscription.name!r} has a receiver", condition=AmqpCondition.RESOURCE_LOCKED)


def _queue_source(queue: Queue, address: str, *, copy: bool) -> Source:
    """The source of a link from a queue, as it is: it goes with its link."""
    return Source(
        address,
        TerminusDurability.NONE,
        TerminusExpiryPolicy.LINK_DETACH,
        distribution_mode=StdDistMode.COPY if copy else StdDistMode.MOVE,
        capabilities=("queue",) if queue.temporary is None else ("queue", "temporary-queue"),
    )


def _browses(source: Source) -> bool:
    """True if a link from a queue acquires nothing."""
    if source.distribution_mode not in (None, StdDistMode.COPY, StdDistMode.MOVE):
        raise Refused(
            f"distribution-mode {source.distribution_mode:.64} is not known here",
            condition=AmqpCondition.NOT_IMPLEMENTED,
        )
    return source.distribution_mode == StdDistMode.COPY


def _filters(source: Source) -> AppliedFilters:
    try:
        return read_filters(source.filter, browses=source.distribution_mode == StdDistMode.COPY)
    except SelectorError as exc:
        raise Refused(exc.description, condition=exc.condition) from exc


__all__ = ["OUTCOMES", "Receivers"]
