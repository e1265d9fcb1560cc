"""The end of a link, a session or a connection, by the peer or by us: what is given back, and who is told.

A link that ends is told to what it stood on: a consumer gives back what it held (`parting`), its node may not be needed
any more, its name is free. A session ends its links, a connection its sessions. All of it may come twice, as events of
the engine that came with the first end are still to be heard; the second does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acquit.broker.admin.management_node import ReplyLink
from acquit.broker.dispatching.browsing import Browser
from acquit.broker.dispatching.consumers import Consumer
from acquit.broker.links.endpoints import Producer, WaitingLink
from acquit.broker.links.parting import held_by, outlives
from acquit.broker.nodes.node import Queue, whole
from acquit.broker.nodes.subscriptions import Lookup
from acquit.broker.queue import Ending
from acquit.broker.transact.coordinator import Control
from acquit.protocol.definitions import Role
from acquit.protocol.endpoint import LinkState
from acquit.protocol.events import ConnectionEnded

if TYPE_CHECKING:
    from acquit.broker.access.quotas import Quotas
    from acquit.broker.admin.connections import Connections
    from acquit.broker.admin.management_node import ManagementNode
    from acquit.broker.intake.marks import Marks
    from acquit.broker.life import Life
    from acquit.broker.links.attaching import Attaching
    from acquit.broker.links.crediting import Crediting
    from acquit.broker.links.parting import Parting
    from acquit.broker.links.peers import Peer
    from acquit.broker.nodes.removal import Removal
    from acquit.broker.nodes.subscriptions import Subscriptions
    from acquit.broker.nodes.topics import Topic
    from acquit.broker.outcomes.settling import Settling
    from acquit.broker.transact.coordinator import Coordinator
    from acquit.broker.transact.transactions import Transactions
    from acquit.protocol.definitions import Error
    from acquit.protocol.delivery import AnyLink, Delivery
    from acquit.protocol.events import LinkDetached, SessionEnded
    from acquit.protocol.link import Link
    from acquit.protocol.session import Session


class Endings:
    """Ends links, sessions and connections."""

    def __init__(
        self,
        connections: Connections,
        quotas: Quotas,
        life: Life,
        attaching: Attaching,
        parting: Parting,
        settling: Settling,
        subscriptions: Subscriptions,
        removal: Removal,
        crediting: Crediting,
        marks: Marks,
        transactions: Transactions,
        coordinator: Coordinator,
        management: ManagementNode,
    ) -> None:
        self._connections = connections
        self._quotas = quotas
        self._life = life
        self._attaching = attaching
        self._parting = parting
        self._settling = settling
        self._subscriptions = subscriptions
        self._removal = removal
        self._crediting = crediting
        self._marks = marks
        self._transactions = transactions
        self._coordinator = coordinator
        self._management = management
        self._stopping = False

    def begin_stop(self) -> None:
        """We are about to close all connections: those that do not answer are not lost, but left."""
        self._stopping = True

    # -- by us --------------------------------------------------------------------------------------------------------

    def end_link(self, link: Link, error: Error, *, lives_on: bool = False) -> None:
        """End a link ourselves, as if its peer had detached it."""
        peer = self._connections.of(link.session.connection)
        if peer is not None:
            self._link_over(peer, link, link.unsettled(), Ending.ENDED_HERE, lives_on=lives_on)
        if link.state is LinkState.ATTACH_RECEIVED:
            link.refuse(error)  # it was to be answered later
        else:
            link.detach(error)
        self._life.touch(link.session.connection)

    def put_out(self, peer: Peer, error: Error, *, lost: bool = True) -> None:
        """Close a connection. What it has sent and we have not read does not count any more, and what it held goes back
        as it does from one that is lost; not `lost`: from one that we close."""
        self.connection_ended(peer, ConnectionEnded(None, lost=lost, remote=False))
        peer.engine.close(error)
        self._life.touch(peer.engine)

    # -- heard from the engine ----------------------------------------------------------------------------------------

    def link_detached(self, peer: Peer, event: LinkDetached) -> None:
        lives_on = not event.closed and outlives(event.link)
        destroyed = event.closed and event.remote and event.error is None
        ending = _closed(event.remote)
        context = event.link.context
        resumable = lives_on and getattr(context, "resumable", None) is not None
        self._link_over(peer, event.link, event.unsettled, ending, lives_on=lives_on, destroyed=destroyed)
        if not isinstance(context, Consumer):  # which has to give back first what it held
            self._parting.answer(event.link, getattr(context, "queue", None))
        if resumable:
            event.link.session.lose_deliveries(event.unsettled)  # they go on under other delivery-ids, or end without
        elif not event.closed and event.link.role == Role.SENDER:
            # This terminus does not outlive its link: what it held is given back, so this end forgets it as well.
            event.link.session.settle_all(event.unsettled)

    def session_ended(self, peer: Peer, event: SessionEnded) -> None:
        self._session_over(peer, event.session, _closed(event.remote))
        event.session.release()

    def connection_ended(self, peer: Peer, event: ConnectionEnded) -> None:
        ending = Ending.CONNECTION_LOST if event.lost and not self._stopping else _closed(event.remote)
        self._transactions.abandon(peer, ending)
        for session in peer.engine.sessions:
            self._session_over(peer, session, ending)
        self._quotas.leave(peer)
        self._connections.leave(peer)
        self._life.touched.pop(peer.engine, None)

    # -- what follows -------------------------------------------------------------------------------------------------

    def _session_over(self, peer: Peer, session: Session, ending: Ending) -> None:
        by_link: dict[AnyLink, list[Delivery]] = {link: [] for link in session.links}
        for delivery in session.unsettled():
            by_link.setdefault(delivery.link, []).append(delivery)
        for link, deliveries in by_link.items():
            self._link_over(peer, link, deliveries, ending, lives_on=self._stopping or outlives(link))

    def _link_over(
        self,
        peer: Peer,
        link: AnyLink,
        deliveries: list[Delivery],
        ending: Ending,
        *,
        lives_on: bool = False,
        destroyed: bool = False,
    ) -> None:
        """A link has ended, by itself or with what it stood on. Twice is once. `lives_on`: its terminus may be attached
        to again, and what was undeliverable there still is. `destroyed`: its peer says that its terminus goes too."""
        context = link.context
        if context is None:
            # We ended it ourselves since this came, when the engine had given up its deliveries already.
            for consumer, held in held_by(deliveries).items():
                self._settling.ended(consumer, held, ending)
                self._life.wake(consumer.queue)
            return
        link.context = None
        peer.links.pop(context, None)
        self._attaching.ended(peer, link)
        node: Queue | Topic | None
        match context:
            case Consumer():
                self._parting.consumer(context, deliveries, ending, lives_on=lives_on, destroyed=destroyed)
                return
            case WaitingLink(node=node):
                self._subscriptions.given_up(context, destroyed=destroyed)
                if context.mark is not None:
                    self._marks.release(context.mark)
                self._parting.resumable(context, lives_on=lives_on)
            case Browser():
                node = queue = whole(context.queue)
                queue.browsers.remove(context)
                if context.no_local:
                    queue.look_at_policy()
            case Producer():
                node = context.queue or context.topic
                if node is not None:
                    node.producers.pop(context, None)
                if context.mark is not None:
                    self._marks.release(context.mark)
                self._crediting.forget(context)
                self._parting.resumable(context, lives_on=lives_on)
            case Lookup(queue=node):
                self._subscriptions.left(context, destroyed=destroyed)
            case Control():
                self._coordinator.ended(context, ending)
                return
            case ReplyLink():
                self._management.forget(context)
                return
            case _:
                return
        if isinstance(node, Queue):
            self._life.wake(node)
        if node is not None:
            self._removal.left(node, context)


def _closed(remote: bool) -> Ending:
    """Return the ending of something that was closed in order, by the peer (`remote`) or by us."""
    return Ending.DETACHED if remote else Ending.ENDED_HERE


__all__ = ["Endings"]
