"""Links of peers that send: to a queue, to a topic, to a node made for them, or to wherever each message says.

The target in our answer is as it is here, not as it was asked for (2.6.3). No target outlives its link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.intake.marks import Marks
from acquit.broker.links.endpoints import Producer, WaitingLink
from acquit.broker.links.peers import Peer
from acquit.broker.links.terminus import map_room
from acquit.broker.nodes import temporary
from acquit.broker.nodes.finding import Nodes, asks_creation, wants_topic
from acquit.broker.nodes.node import Queue
from acquit.broker.nodes.removal import DELETED
from acquit.broker.refusal import Refused
from acquit.protocol.definitions import (
    AmqpCondition,
    Coordinator,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from acquit.protocol.endpoint import LinkState
from acquit.protocol.extensions import MANAGEMENT_NODE, RESUME, SENDER_MARK, TERMINUS
from acquit.protocol.resumption import first_fitting

if TYPE_CHECKING:
    from collections.abc import Callable

    from acquit.broker.admin.management_node import ManagementNode
    from acquit.broker.intake.marks import Claim
    from acquit.broker.links.crediting import Crediting
    from acquit.broker.links.termini import Termini
    from acquit.broker.nodes.queues import Queues
    from acquit.broker.nodes.temporary import TemporaryNodes
    from acquit.broker.nodes.topics import Topic
    from acquit.broker.scribe import Scribe
    from acquit.broker.transact.coordinator import Coordinator as Coordinating
    from acquit.protocol.connection_base import ConnectionBase
    from acquit.protocol.definitions import Attach
    from acquit.protocol.link import ReceivingLink


REQUEST_BYTES_MAX: Final = 64 * 1024
"""Largest request to the management node: it is decoded as a whole."""


class Senders:
    """Answers peers that want to send."""

    def __init__(
        self,
        nodes: Nodes,
        queues: Queues,
        temporary: TemporaryNodes,
        crediting: Crediting,
        management: ManagementNode,
        coordinator: Coordinating,
        marks: Marks,
        termini: Termini,
        scribe: Scribe,
        touch: Callable[[ConnectionBase], None],
    ) -> None:
        """`touch` is told of connections that have something to send outside of their own turn."""
        self._nodes = nodes
        self._queues = queues
        self._temporary = temporary
        self._crediting = crediting
        self._management = management
        self._coordinator = coordinator
        self._marks = marks
        self._termini = termini
        self._scribe = scribe
        self._touch = touch

    def accept(self, peer: Peer, link: ReceivingLink) -> object:
        """Accept the link, and give what is its context from now on. Raises Refused."""
        asked = link.remote_attach
        assert asked is not None
        target = asked.target
        if isinstance(target, Coordinator):
            return self._coordinator.attach(peer, link)
        if not isinstance(target, Target):
            raise Refused("a sender must say its target", condition=AmqpCondition.INVALID_FIELD)
        if target.address == MANAGEMENT_NODE:
            link.accept_attach(target=_target(MANAGEMENT_NODE, ("queue",)), max_message_size=REQUEST_BYTES_MAX)
            return self._management.requests(peer, link)
        if target.dynamic:
            producer = self._to_dynamic(peer, link, target)
        elif target.address is None:
            claim = self._claim(peer, asked)
            self._answer(link, _target(None, ()), claim)
            producer = Producer(peer, link, None, "")
            producer.mark = claim
        elif not target.address:
            raise Refused("an address is needed", condition=AmqpCondition.INVALID_FIELD)
        else:
            peer.rights.check("send", target.address)
            # The mark first: a link that is refused it leaves no node behind.
            claim = self._claim(peer, asked)
            granted_ms = 0 if claim is not None else self._termini.granted_ms(link)
            try:
                words = target.capabilities
                node = self._nodes.to_send_to(peer, target.address, wants_topic(words), on_demand=asks_creation(words))
            except Refused:
                if claim is not None:
                    self._marks.release(claim)
                raise
            if granted_ms:
                return self._later(peer, link, node, target.address, granted_ms)
            if node.number in self._queues.unsynced:
                return self._once_made(peer, link, node, target.address, claim)
            producer = self._to_node(peer, link, node, target.address, claim)
        self._crediting.top_up(producer)
        return producer

    def _to_node(
        self, peer: Peer, link: ReceivingLink, node: Queue | Topic, address: str, claim: Claim | None
    ) -> Producer:
        self._answer(link, _target(address, _capabilities(node)), claim)
        producer = _producer(peer, link, node)
        producer.mark = claim
        return producer

    def _once_made(
        self, peer: Peer, link: ReceivingLink, node: Queue | Topic, address: str, claim: Claim | None
    ) -> WaitingLink:
        """Accept a link when its node, which was made just now, is on the disk."""
        waiting = WaitingLink(peer, link, node)
        waiting.mark = claim

        def synced() -> None:
            link.context = producer = self._to_node(peer, link, node, address, claim)
            link.ends_later = False
            peer.replace_link(waiting, producer)
            self._crediting.top_up(producer)
            self._touch(peer.engine)

        self._queues.await_sync(node.number, waiting, synced)
        return waiting

    def _later(
        self, peer: Peer, link: ReceivingLink, node: Queue | Topic, address: str, granted_ms: int
    ) -> WaitingLink:
        """Accept a resumable link when its terminus, and all that was posted on the link before it, is on the disk."""
        asked = link.remote_attach
        assert asked is not None
        terminus = self._termini.open_target(peer, link.name, address, granted_ms, anew=asked.unsettled is None)
        waiting = terminus.attached = WaitingLink(peer, link, node, terminus)

        def synced() -> None:
            if link.context is not waiting:
                return  # it is gone, or its name was taken over
            if not self._nodes.exists(node):
                link.refuse(DELETED)
                self._termini.refused(waiting)
                self._touch(peer.engine)
                return
            theirs = asked.unsettled or {}
            if not asked.incomplete_unsettled:
                self._termini.forget(terminus, [tag for tag in terminus.answered if tag not in theirs])
            room_bytes = map_room(asked, link.session.connection.frame_size_max)
            ours, incomplete = first_fitting(terminus.answered, theirs, room_bytes)
            target = _target(address, _capabilities(node))
            target.durable = TerminusDurability.UNSETTLED_STATE
            target.timeout = -(-terminus.timeout_ms // 1000)
            link.accept_attach(
                target=target,
                unsettled=ours,
                incomplete_unsettled=incomplete,
                offered_capabilities=(RESUME,),
                properties={TERMINUS: terminus.identity},
            )
            if link.state is not LinkState.ATTACHED:
                return  # the peer has gone meanwhile, and the end of its link is on the way
            producer = _producer(peer, link, node)
            producer.resumable = terminus
            terminus.attached = link.context = producer
            peer.replace_link(waiting, producer)
            self._crediting.top_up(producer)
            self._touch(peer.engine)

        self._scribe.when_synced(synced)
        return waiting

    def _claim(self, peer: Peer, asked: Attach) -> Claim | None:
        """The mark that it wants, if it wants one. Who is refused something afterwards lets go of it."""
        name = (asked.properties or {}).get(SENDER_MARK)
        return None if name is None else self._marks.claim(peer.user, name)

    @staticmethod
    def _answer(link: ReceivingLink, target: Target, claim: Claim | None) -> None:
        if claim is None:
            link.accept_attach(target=target)
        else:
            link.accept_attach(
                target=target,
                offered_capabilities=(SENDER_MARK,),
                properties={SENDER_MARK: Marks.describe(claim)},
            )

    def _to_dynamic(self, peer: Peer, link: ReceivingLink, target: Target) -> Producer:
        node = self._temporary.make(peer, target)
        assert node.temporary is not None
        said = _target(node.address, _capabilities(node))
        said.dynamic = True
        said.dynamic_node_properties = temporary.describe(node, queue=isinstance(node, Queue))
        link.accept_attach(target=said)
        producer = _producer(peer, link, node)
        node.temporary.owner = producer
        return producer


def _producer(peer: Peer, link: ReceivingLink, node: Queue | Topic) -> Producer:
    queue, topic = (node, None) if isinstance(node, Queue) else (None, node)
    producer = Producer(peer, link, queue, node.address, topic)
    node.producers[producer] = None
    return producer


def _capabilities(node: Queue | Topic) -> tuple[str, ...]:
    kind = "queue" if isinstance(node, Queue) else "topic"
    return (kind,) if node.temporary is None else (kind, f"temporary-{kind}")


def _target(address: str | None, capabilities: tuple[str, ...]) -> Target:
    return Target(address, TerminusDurability.NONE, TerminusExpiryPolicy.LINK_DETACH, capabilities=capabilities)


__all__ = ["Senders"]
