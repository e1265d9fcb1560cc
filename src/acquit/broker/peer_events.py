"""The table of the engine's events: who answers each, by what the link is that it comes on.

What a peer did comes here as a list of events (`handle`). The context of a link says what it is: a `Producer` posts, a
`Consumer` settles and gets credit, a `Browser` reads, a `Control` speaks of transactions, a `RequestLink` and a
`ReplyLink` are those of ``$management``. It is None where the link has ended since, by what came with the event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from acquit.broker.admin.management_node import ReplyLink, RequestLink
from acquit.broker.dispatching.browsing import Browser
from acquit.broker.dispatching.consumers import Consumer
from acquit.broker.intake.gathering import gather
from acquit.broker.links.attaching import STOLEN
from acquit.broker.links.endpoints import Producer
from acquit.broker.links.parting import held_by
from acquit.broker.message_run import MessageGroup, MessageRun
from acquit.broker.transact.coordinator import Control
from acquit.ledger.recorder import NOTHING_SUMMED
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import AmqpCondition, Error, TransactionalState
from acquit.protocol.events import (
    ConnectionEnded,
    ConnectionOpened,
    CreditChanged,
    DeliveriesReceived,
    FlowReceived,
    LinkDetached,
    LinkRequested,
    RunAccepted,
    RunReceived,
    SessionEnded,
    StatesReceived,
    TransactionalStateMissed,
)

if TYPE_CHECKING:
    from acquit.broker.access.quotas import Quotas
    from acquit.broker.admin.connections import Connections
    from acquit.broker.admin.management_node import ManagementNode
    from acquit.broker.dispatching.dispatch import Dispatch
    from acquit.broker.dispatching.reading import Reading
    from acquit.broker.dispatching.resuming import Resuming
    from acquit.broker.intake.posting import Poster
    from acquit.broker.life import Life
    from acquit.broker.links.attaching import Attaching
    from acquit.broker.links.crediting import Crediting
    from acquit.broker.links.endings import Endings
    from acquit.broker.links.peers import Peer
    from acquit.broker.links.termini import Termini
    from acquit.broker.outcomes.settling import Settling
    from acquit.broker.transact.coordinator import Coordinator
    from acquit.broker.transact.transactions import Transactions
    from acquit.protocol.delivery import Delivery, DeliveryState
    from acquit.protocol.events import Event

TXN_ID: Final = "txn-id"
"""Property of a flow: what the link acquires from now on belongs to this transaction (4.4.3)."""


class PeerEvents:
    """Hands each event of the engine to the part that answers it."""

    def __init__(
        self,
        connections: Connections,
        quotas: Quotas,
        life: Life,
        attaching: Attaching,
        endings: Endings,
        poster: Poster,
        crediting: Crediting,
        dispatch: Dispatch,
        resuming: Resuming,
        reading: Reading,
        settling: Settling,
        termini: Termini,
        transactions: Transactions,
        coordinator: Coordinator,
        management: ManagementNode,
    ) -> None:
        self._connections = connections
        self._quotas = quotas
        self._life = life
        self._attaching = attaching
        self._endings = endings
        self._poster = poster
        self._crediting = crediting
        self._dispatch = dispatch
        self._resuming = resuming
        self._reading = reading
        self._settling = settling
        self._termini = termini
        self._transactions = transactions
        self._coordinator = coordinator
        self._management = management
        self._handlers: Mapping[type, Callable[[Peer, Any], None]] = {
            DeliveriesReceived: self._deliveries_received,
            RunReceived: self._run_received,
            StatesReceived: self._states_received,
            RunAccepted: self._run_accepted,
            CreditChanged: self._credit_changed,
            FlowReceived: self._flow_received,
            TransactionalStateMissed: self._transactional_state_missed,
            LinkRequested: self._link_requested,
            LinkDetached: endings.link_detached,
            SessionEnded: endings.session_ended,
            ConnectionOpened: self._connection_opened,
            ConnectionEnded: endings.connection_ended,
        }

    def handle(self, peer: Peer, events: list[Event]) -> None:
        """Act on what a peer did."""
        handlers = self._handlers
        for event in events if len(events) < 3 else gather(events):  # fewer hold nothing of one link apart
            handler = handlers.get(event.__class__)
            if handler is not None:
                handler(peer, event)
        self._life.touch(peer.engine)

    def writable(self, peer: Peer) -> None:
        """Go on with all links of a peer whose socket takes more again."""
        for context in peer.links:
            self._go_on(context)

    # -- messages and outcomes ----------------------------------------------------------------------------------------

    def _deliveries_received(self, peer: Peer, event: DeliveriesReceived) -> None:
        context = event.link.context
        if context.__class__ is Producer:
            if event.crc is None:
                self._poster.receive(context, event.deliveries)
            else:
                recorder = self._life.scribe.recorder
                recorder.summed = event.deliveries[0].payload, event.crc
                self._poster.receive(context, event.deliveries)
                recorder.summed = NOTHING_SUMMED
            self._crediting.top_up(context)
        elif isinstance(context, RequestLink):
            self._management.receive(context, event.deliveries)
        elif isinstance(context, Control):
            self._coordinator.receive(context, event.deliveries)

    def _run_received(self, peer: Peer, event: RunReceived) -> None:
        context = event.link.context
        if context.__class__ is Producer:
            self._poster.receive_run(context, event.run)
            self._crediting.top_up(context)
        elif isinstance(context, Control):
            self._coordinator.receive(context, event.run.deliveries)

    def _run_accepted(self, peer: Peer, event: RunAccepted) -> None:
        run = event.run
        contexts = run.contexts
        if run.waits and not run.whole:  # somebody has looked at them since this was said
            self._states_received(peer, StatesReceived(run.link, run.deliveries, ACCEPTED, False))
        elif isinstance(run.state, TransactionalState):
            consumer = run.link.context
            if consumer.__class__ is not Consumer or not self._transactions.retire_run(consumer, run):
                self._states_received(peer, StatesReceived(run.link, run.deliveries, run.state, True))
        else:
            if isinstance(contexts, MessageRun):
                durable = self._settling.run_accepted(contexts)
            else:
                assert isinstance(contexts, MessageGroup)  # nothing else is sent together
                durable = self._settling.group_accepted(contexts)
            if run.waits:
                self._settling.answer_run(run, durable=durable)

    def _states_received(self, peer: Peer, event: StatesReceived) -> None:
        context = event.link.context
        if context.__class__ is Consumer:
            self._heard(context, event.deliveries, event.state, settled=event.settled)
        elif context.__class__ is Producer:
            if context.resumable is not None and event.settled:
                self._termini.posted_heard(context.resumable, event.deliveries)
        elif isinstance(context, Browser) and context.reads and isinstance(event.state, TransactionalState):
            self._transactions.read(context, event.deliveries, event.state, event.settled)
        elif isinstance(context, Browser) and context.reads:
            self._reading.heard(context, event.deliveries, event.state, event.settled)
        elif context is None:
            # The link has ended since this came, by what came with it: it was stolen, or its queue deleted. What the
            # peer has settled already was not among what its link still held then, and is not heard of again.
            held = held_by(event.deliveries)
            for consumer, deliveries in held.items():
                self._heard(consumer, deliveries, event.state, settled=event.settled)
            if isinstance(event.state, TransactionalState) and sum(map(len, held.values())) < len(event.deliveries):
                self._transactions.fail(peer, event.state.txn_id)  # others have, or had, what this counts on
        elif not event.settled and isinstance(context, Browser | ReplyLink):
            event.link.session.settle_all(event.deliveries, event.state)

    def _heard(
        self, consumer: Consumer, deliveries: list[Delivery], state: DeliveryState | None, *, settled: bool
    ) -> None:
        """A disposition of what a consumer holds: in a transaction, or at once."""
        if isinstance(state, TransactionalState):
            self._transactions.retire(consumer, deliveries, state, settled)
        else:
            self._settling.heard(consumer, deliveries, state, settled)
            if consumer.resumable is not None:
                self._termini.heard(consumer, deliveries, state, settled=settled)

    def _credit_changed(self, peer: Peer, event: CreditChanged) -> None:
        self._go_on(event.link.context)

    def _go_on(self, context: object) -> None:
        """Send what waited for credit, or for the peer's socket, and let a consumer have more."""
        if isinstance(context, Consumer):
            if context.resuming:
                self._resuming.go_on(context)
            if context.outbox:
                self._dispatch.empty_outbox(context)
            context.stand_in_line()
            self._life.wake(context.queue)
        elif isinstance(context, Browser):
            self._life.wake(context.queue)
        elif isinstance(context, ReplyLink):
            self._management.answerable(context)

    def _flow_received(self, peer: Peer, event: FlowReceived) -> None:
        if TXN_ID in (event.flow.properties or {}):
            error = Error(AmqpCondition.NOT_IMPLEMENTED, "messages are not acquired in transactions here (4.4.3)")
            self._endings.end_link(event.link, error)

    def _transactional_state_missed(self, peer: Peer, event: TransactionalStateMissed) -> None:
        self._transactions.fail(peer, event.state.txn_id)

    # -- connections and links ----------------------------------------------------------------------------------------

    def _connection_opened(self, peer: Peer, event: ConnectionOpened) -> None:
        peer.container = event.open.container_id
        peer.user = peer.engine.user
        peer.rights = self._quotas.permissions.of(peer.user)
        self._quotas.enter(peer)
        self._connections.enter(peer, self._life.scribe.time_us)

    def _link_requested(self, peer: Peer, event: LinkRequested) -> None:
        if self._connections.of(peer.engine) is None:
            return  # what it asked just before cost it its connection: its own transaction was fenced
        stolen = self._attaching.answer(peer, event.link)
        if isinstance(event.link.context, Consumer | Browser):
            self._life.wake(event.link.context.queue)  # its first flow may have come with the attach
        if stolen is not None:
            self._endings.end_link(stolen, STOLEN, lives_on=True)


__all__ = ["TXN_ID", "PeerEvents"]
