"""Subscriptions of topics: begun by a receiver's attach, found again by its name, ended as JMS clients end them.

What a receiver asks for is in its source and its link's name (capabilities ``shared`` and ``global``, terminus
durability), which is how Qpid JMS says it::

    exclusive, durable     its own, by name, container and user; one link at a time
    shared, durable        by name, and container and user unless global; several links take turns
    shared                 the same, while any link has it
    neither                one for each link, as long as that lasts

A subscription belongs to the user who began it: another one with the same container-id and link name begins one of its
own. One that was begun by a peer that had not logged in, or comes from a journal without users, belongs to the
first user who asks for it by its names and may consume there, unless somebody receives from it. A *global* one belongs
to nobody: that is what its subscriber asks for.

A durable subscription is ended by its subscriber's detach(closed), and by *unsubscribe*: an attach with the
subscription's link name and no source, answered with the source as it is, and then detach(closed). That is answered
once the journal knows of the end (`links.parting`); the name is free at once. A subscriber that detaches without
closing, or is lost, finds it again. Under the same name but for another topic or another filter, it is a new one, and
the old one goes with what is in it, if nobody receives from it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from acquit.broker.dispatching.consumers import Consumer
from acquit.broker.links.peers import Actor
from acquit.broker.nodes.addresses import is_pattern
from acquit.broker.nodes.finding import SEPARATOR, asks_creation
from acquit.broker.nodes.node import whole
from acquit.broker.nodes.queues import check_address
from acquit.broker.nodes.subscription import NAME_MAX, Subscription, shown, subscription_name
from acquit.broker.refusal import Refused
from acquit.protocol.definitions import (
    AmqpCondition,
    Source,
    StdDistMode,
    TerminusDurability,
    TerminusExpiryPolicy,
)

if TYPE_CHECKING:
    from acquit.broker.links.endpoints import WaitingLink
    from acquit.broker.links.filters import AppliedFilters
    from acquit.broker.links.peers import Peer
    from acquit.broker.nodes.node import Queue
    from acquit.broker.nodes.queues import Queues
    from acquit.broker.nodes.removal import Removal
    from acquit.broker.nodes.topics import Topics
    from acquit.broker.scribe import Scribe
    from acquit.protocol.link import SendingLink

SHARED: Final = "shared"
GLOBAL: Final = "global"
_VOLATILE: Final = "|volatile"

Identity = tuple[str | None, str | None, str]
"""User, container and name."""


class Lookup(Actor):
    """A link that asks for a subscription, to end it."""

    __slots__ = ("link", "queue")

    def __init__(self, peer: Peer, link: SendingLink, queue: Queue) -> None:
        super().__init__(peer, link.name, queue.address)
        self.link = link
        self.queue = queue


class Subscriptions:
    """All subscriptions of one broker, by identity."""

    def __init__(self, queues: Queues, topics: Topics, scribe: Scribe, removal: Removal) -> None:
        self._queues = queues
        self._topics = topics
        self._scribe = scribe
        self._removal = removal
        removal.forget = self._forget
        self._durable: dict[Identity, Queue] = {}
        self._shared: dict[Identity, Queue] = {}
        """Queues of shared subscriptions that are not durable."""
        self._ending: dict[Identity, Queue] = {}
        """Durable ones that have ended, and the disk has not heard of it: who asks for the end once more is answered as
        the first is, and not told that there is none."""
        self.unsynced: dict[Queue, set[WaitingLink]] = {}
        """Durable ones that were begun just now, and others of topics that were made just now, and who waits for them.
        Who is told that it has one can rely on it, so it is told later."""

    # -- begun, or found ----------------------------------------------------------------------------------------------

    def open(
        self, peer: Peer, link: SendingLink, source: Source, address: str, filters: AppliedFilters, stolen: object
    ) -> Queue:
        """The queue of the subscription that a receiver asks for. Raises Refused.

        `stolen`: the context of the link whose name this one takes over, if there is one: it is as good as gone.
        """
        durable = source.durable != TerminusDurability.NONE or source.expiry_policy is TerminusExpiryPolicy.NEVER
        shared = SHARED in source.capabilities
        on_demand = asks_creation(source.capabilities)
        name = subscription_name(link.name)
        container = None if GLOBAL in source.capabilities else peer.container
        if durable or shared:
            _check_name("the name of a subscription", name)
            _check_name("the container of a subscription", container if container is not None else name)
            _check_name("the user of a subscription", peer.user if peer.user is not None else name)
        try:
            wanted = Subscription(name, container, user=peer.user, shared=shared, durable=durable, filters=filters)
        except ValueError as exc:
            raise Refused(f"a subscription with {exc}", condition=AmqpCondition.INVALID_FIELD) from exc
        topic = self._topics.by_address.get(address)
        if durable and topic is not None and topic.temporary is not None:
            raise Refused("a temporary topic has no durable subscriptions", condition=AmqpCondition.NOT_ALLOWED)
        if not (durable or shared):
            # Nobody finds it by its name: that is for people.
            number = self._scribe.recorder.table.queue_max + 1
            return self._make(peer, address, wanted, f"|{number}", on_demand=on_demand)
        known = (self._durable if durable else self._shared).get(wanted.identity)
        if known is None and durable:
            known = self._adopted(peer, wanted)
        if known is not None:
            _check_right(peer, known)
            if self._is_that(known, address, wanted, stolen):
                return known
            self._end(known, peer)
        return self._make(peer, address, wanted, "" if durable else _VOLATILE, on_demand=on_demand)

    def qualified(self, peer: Peer, address: str) -> Queue:
        """The queue that ``topic::name`` names: a durable subscription that everybody may share, begun now. Raises
        Refused."""
        node, _, name = address.partition(SEPARATOR)
        if not name or "/" in name or "|" in name:
            raise Refused(f"there is no queue {address!r}", condition=AmqpCondition.NOT_FOUND)
        wanted = Subscription(name.replace("%2F", "/").replace("%25", "%"), None, shared=True)
        _check_name("the name of a subscription", wanted.name)
        known = self._durable.get(wanted.identity)
        if known is not None:
            _check_right(peer, known)
            raise Refused(f"the subscription {name!r} is of {known.address!r}", condition=AmqpCondition.NOT_ALLOWED)
        return self._make(peer, node, wanted, "")

    def restore(self, queue: Queue) -> None:
        """Take over a subscription that the journal tells of: it is durable."""
        assert queue.subscription is not None
        self._durable[queue.subscription.identity] = queue
        self._topics.add(queue)

    def _tell_later(self, queue: Queue) -> None:
        self.unsynced.setdefault(queue, set())
        self._scribe.when_synced(self._synced, queue)

    def _synced(self, queue: Queue) -> None:
        self.unsynced.pop(queue, None)

    def _ownerless(self, identity: Identity) -> Queue | None:
        """The subscription of these names that belongs to no user, where a user asks."""
        user, container, name = identity
        return None if user is None else self._durable.get((None, container, name))

    def _adopted(self, peer: Peer, wanted: Subscription) -> Queue | None:
        """The subscription of these names that belonged to no user, and belongs to this one from now on. None where
        there is none, or it is not for this user. Raises Refused where the disk has no room to say so."""
        queue = self._ownerless(wanted.identity)
        if queue is None or queue.consumers or queue.removing or not peer.rights.may("consume", queue.address):
            return None
        known = queue.subscription
        assert known is not None and wanted.user is not None
        if known.shared != wanted.shared:
            return None
        owned = known.owned_by(wanted.user)
        declared = self._scribe.recorder.table.queues[queue.number]
        self._queues.record(replace(declared, time_us=self._scribe.time_us, properties=owned.encoded))
        del self._durable[known.identity]
        queue.subscription = owned
        self._durable[owned.identity] = queue
        self._tell_later(queue)
        return queue

    def _is_that(self, known: Queue, address: str, wanted: Subscription, stolen: object) -> bool:
        """True if the subscription of this name is the one that is wanted; False: the wanted one takes its place.
        Raises Refused where neither can be."""
        subscription = known.subscription
        assert subscription is not None
        if subscription.shared != wanted.shared:
            raise Refused(
                f"the subscription {wanted.name!r} is {'shared' if subscription.shared else 'not shared'}",
                condition=AmqpCondition.NOT_ALLOWED,
            )
        rivals = [consumer for consumer in known.consumers if consumer is not stolen]
        same = known.address == address and subscription.takes_the_same(wanted)
        if rivals and not same:
            raise Refused(
                f"the subscription {wanted.name!r} of {known.address!r} has receivers, and is not for another topic or "
                "selector meanwhile",
                condition=AmqpCondition.RESOURCE_LOCKED,
            )
        if rivals and not wanted.shared:
            raise Refused(f"the subscription {wanted.name!r} has a receiver", condition=AmqpCondition.RESOURCE_LOCKED)
        return same

    def _make(
        self,
        peer: Peer,
        address: str,
        subscription: Subscription,
        suffix: str,
        *,
        on_demand: bool = False,
    ) -> Queue:
        topic = None
        if is_pattern(address):
            check_address(address, topic=True)
            self._queues.check_creation(peer, address, on_demand=on_demand)
        else:
            topic = self._topics.find(peer, address, on_demand=on_demand)
            self._queues.check_number(peer.user)
        durable = subscription.durable
        if subscription.queue_name(address, suffix) in self._queues.by_name:
            suffix = f"|{self._scribe.recorder.table.queue_max + 1}"  # of one that had no owner and has one now
        queue = self._queues.make(
            subscription.queue_name(address, suffix),
            address,
            self._scribe.declare(peer.container, subscription.name, peer.user, address),
            auto_created=False,
            durable=durable,
            subscription=subscription,
        )
        if durable:
            self._durable[subscription.identity] = queue
        elif subscription.shared:
            self._shared[subscription.identity] = queue
        if durable or (topic is not None and topic.number in self._queues.unsynced):
            self._tell_later(queue)
        self._topics.add(queue)
        return queue

    # -- ended --------------------------------------------------------------------------------------------------------

    def look_up(self, peer: Peer, link: SendingLink) -> Lookup:
        """A client that wants to unsubscribe: its attach has the subscription's name and no source. Raises Refused."""
        asked = link.remote_attach
        assert asked is not None
        container = None if GLOBAL in asked.desired_capabilities else peer.container
        name = subscription_name(link.name)
        identity = (None if container is None else peer.user), container, name
        queue = self._durable.get(identity) or self._ownerless(identity) or self._ending.get(identity)
        if queue is None:
            raise Refused(f"there is no subscription {name!r}", condition=AmqpCondition.NOT_FOUND)
        _check_right(peer, queue)
        if queue.consumers or self.unsynced.get(queue):
            raise Refused(f"the subscription {name!r} has a receiver", condition=AmqpCondition.RESOURCE_LOCKED)
        return Lookup(peer, link, queue)

    def awaited(self, waiting: WaitingLink) -> None:
        """Note that a link waits: it receives as soon as its subscription is on the disk."""
        if waiting.queue in self.unsynced:
            self.unsynced[waiting.queue].add(waiting)

    def given_up(self, waiting: WaitingLink, *, destroyed: bool) -> None:
        """A link has ended before it was answered: what follows is what would have followed if it had been."""
        self._queues.give_up(waiting.node.number, waiting)
        if waiting.queue in self.unsynced:
            self.unsynced[waiting.queue].discard(waiting)
        if waiting.subscriber:
            self.left(waiting, destroyed=destroyed)

    def left(self, context: Consumer | Lookup | WaitingLink, *, destroyed: bool) -> None:
        """A link of a subscription has ended. `destroyed`: its client wants the subscription to end as well, which it
        does unless others receive, or wait to."""
        assert context.queue is not None
        queue = whole(context.queue)
        subscription = queue.subscription
        if subscription is None or self.unsynced.get(queue):
            return
        if not queue.consumers and (destroyed or not subscription.durable):
            self._end(queue, context.peer)

    def _end(self, queue: Queue, peer: Peer) -> None:
        self._removal.remove(queue, self._scribe.declare(peer.container, "", peer.user, queue.address))

    def _forget(self, queue: Queue) -> None:
        """The queue is being deleted, for whatever reason."""
        subscription = queue.subscription
        if subscription is not None:
            for known in (self._durable, self._shared):
                if known.get(subscription.identity) is queue:
                    del known[subscription.identity]
            if subscription.durable:
                self._ending[subscription.identity] = queue
                self._removal.when_recorded(queue, partial(self._ended, queue, subscription.identity))
        self._topics.remove(queue)

    def _ended(self, queue: Queue, identity: Identity) -> None:
        if self._ending.get(identity) is queue:
            del self._ending[identity]


def _check_right(peer: Peer, queue: Queue) -> None:
    """Raise Refused unless the peer may consume from a subscription that it names. Who may not is told neither where it
    is nor whether anybody receives from it."""
    subscription = queue.subscription
    assert subscription is not None
    if not peer.rights.may("consume", queue.address):
        raise Refused(
            f"{peer.rights.who} may not consume from the subscription {subscription.name!r}: "
            "no role gives the permission at its address",
            condition=AmqpCondition.UNAUTHORIZED_ACCESS,
        )


def _check_name(what: str, name: str) -> None:
    """Raise Refused unless it can be part of a queue's name."""
    if not name or shown(name) != name:
        raise Refused(
            f"{what} has 1 to {NAME_MAX} printable characters, not {name!r:.100}",
            condition=AmqpCondition.INVALID_FIELD,
        )


def describe(queue: Queue, asked: Source | None) -> Source:
    """The source of a subscription's link, as it is."""
    subscription = queue.subscription
    assert subscription is not None
    durable = subscription.durable
    words = ["topic"]
    if subscription.shared:
        words.append(SHARED)
    if subscription.container is None:
        words.append(GLOBAL)
    # What nobody has settled goes back as the link ends: of the terminus, its existence and its filters are durable.
    return Source(
        queue.address,
        TerminusDurability.CONFIGURATION if durable else TerminusDurability.NONE,
        TerminusExpiryPolicy.NEVER if durable else TerminusExpiryPolicy.LINK_DETACH,
        distribution_mode=StdDistMode.COPY if asked is None else asked.distribution_mode,
        filter=subscription.filters.echo,
        capabilities=tuple(words),
    )


__all__ = ["GLOBAL", "SHARED", "Lookup", "Subscriptions", "describe"]
