"""The broker as a pure machine: what happened goes in, and what must be done lies in outboxes.

Theory of operation. The server calls `handle` with what a peer did, `synced` when the disk has a batch, `loaded` when
a body was read back, and `tick` now and then; with the time of day. The core never blocks, never looks at a clock and
knows no socket. What it wants done, it leaves:

    bytes to send      in the engines; `take_touched` says which connections have some
    records            in the journal's pending batch (`scribe`)
    bodies to read     `take_reads`
    another turn       the result of `turn`: there is more to do, once output is written
    time               `next_due_ms`

`turn` comes at the end of every wake-up: time is served, messages are handed out, credit is granted. So a thousand
messages that arrived together are dispatched in one pass.

Inside, each concern is a module: `attaching` answers links, `posting` takes messages in, `dispatch` hands them out,
`settling` performs outcomes, `expiry` and `letters` see to those nobody took, `memory` decides which bodies are kept,
`life` performs the table of `queue`, `scribe` writes the journal. The core connects them with the engine's events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from acquit.broker.access.admission import gate
from acquit.broker.access.permissions import Permissions, build_permissions
from acquit.broker.access.quotas import Quotas, share
from acquit.broker.admin.administration import Administration
from acquit.broker.admin.connections import Connections
from acquit.broker.admin.figures import Figures
from acquit.broker.admin.later import Later
from acquit.broker.admin.management_node import ManagementNode, ReplyLink, RequestLink
from acquit.broker.admin.survey import Surveys
from acquit.broker.auditing import Auditor
from acquit.broker.denials import Denials
from acquit.broker.dispatching.browsing import Browser
from acquit.broker.dispatching.consumers import Consumer
from acquit.broker.dispatching.dispatch import Dispatch
from acquit.broker.dispatching.reading import Reading
from acquit.broker.dispatching.resuming import Resuming
from acquit.broker.dispatching.succession import reconsider
from acquit.broker.holdings import Holdings
from acquit.broker.inspect import BrokerSnapshot, QueueSnapshot
from acquit.broker.intake.assembly import Assembly
from acquit.broker.intake.duplicates import Duplicates
from acquit.broker.intake.entering import Entering
from acquit.broker.intake.gathering import gather
from acquit.broker.intake.limits import Limits
from acquit.broker.intake.marks import Marks
from acquit.broker.intake.posting import Poster
from acquit.broker.life import Life
from acquit.broker.links.attaching import STOLEN, Attaching
from acquit.broker.links.crediting import Crediting
from acquit.broker.links.endpoints import Producer, WaitingLink
from acquit.broker.links.parting import Parting, held_by, outlives
from acquit.broker.links.peers import Peer
from acquit.broker.links.receivers import Receivers
from acquit.broker.links.senders import Senders
from acquit.broker.links.termini import Termini
from acquit.broker.memory import Memory, Reads
from acquit.broker.message import QueueBase
from acquit.broker.nodes.addresses import Policies
from acquit.broker.nodes.finding import Nodes
from acquit.broker.nodes.node import Queue, whole
from acquit.broker.nodes.operator_rules import OperatorRules
from acquit.broker.nodes.pausing import Pauses
from acquit.broker.nodes.queues import Queues
from acquit.broker.nodes.removal import Removal
from acquit.broker.nodes.subscriptions import Lookup, Subscriptions
from acquit.broker.nodes.temporary import TemporaryNodes
from acquit.broker.nodes.topics import Topic, Topics
from acquit.broker.options import BrokerOptions
from acquit.broker.outcomes.expiry import Expiry
from acquit.broker.outcomes.leaving import Leaving
from acquit.broker.outcomes.letters import Letters
from acquit.broker.outcomes.locks import LockKeeper
from acquit.broker.outcomes.settling import Settling
from acquit.broker.outcomes.timers import Timers
from acquit.broker.queue import Ending
from acquit.broker.recovery import recover
from acquit.broker.scribe import Scribe
from acquit.broker.snapshots import connection_snapshot, node_snapshots, queue_snapshot, topic_snapshot
from acquit.broker.transact.coordinator import Control, Coordinator
from acquit.broker.transact.transactions import Transactions
from acquit.ledger.events import EventKind
from acquit.ledger.fold import Fold
from acquit.ledger.recorder import Recorder
from acquit.ledger.sequences import Sequences
from acquit.protocol.connection import Connection
from acquit.protocol.connection_base import ConnectionBase
from acquit.protocol.definitions import (
    AmqpCondition,
    ConnectionCondition,
    Error,
    Role,
    TransactionalState,
)
from acquit.protocol.delivery import AnyLink, Delivery, DeliveryState
from acquit.protocol.endpoint import LinkState
from acquit.protocol.events import (
    ConnectionEnded,
    ConnectionOpened,
    CreditChanged,
    DeliveriesReceived,
    Event,
    FlowReceived,
    LinkDetached,
    LinkRequested,
    SessionEnded,
    StatesReceived,
    TransactionalStateMissed,
)
from acquit.protocol.link import Link
from acquit.protocol.session import Session
from acquit.store.interface import Position

TXN_ID: Final = "txn-id"
"""Property of a flow: what the link acquires from now on belongs to this transaction (4.4.3)."""

logger = logging.getLogger("acquit.broker.journal")

_FULL: Final = "the disk is full: postings are refused until there is room"


class Core:
    """The deciding part of one broker, without I/O or clock. All methods belong to one thread; none blocks."""

    def __init__(
        self, options: BrokerOptions, recorder: Recorder, sequences: Sequences, broker_id: str, time_us: int
    ) -> None:
        """An empty broker on a journal that is open; `restore` gives it what the journal holds."""
        self.options = options
        self._broker_id = broker_id
        self.quotas = Quotas(options.limits, build_permissions(options.security))
        self.scribe = Scribe(recorder, sequences)
        self.scribe.time_us = time_us
        self.memory = Memory(options.limits)
        self._assembly = Assembly(self.memory, self._shed)
        self.life = Life(self.scribe, self.memory, Timers())
        self.policies = policies = Policies(options.address)
        topics: dict[str, Topic] = {}
        self.queues = Queues(self.life, policies, options.limits.queues_max, topics)
        self._apply_shares()
        self.topics = Topics(self.queues, self.scribe, policies, topics)
        self.removal = Removal(self.life, self.queues, self.topics, self._end_link, self._end_termini)
        self._subscriptions = Subscriptions(self.queues, self.topics, self.scribe, self.removal)
        nodes = Nodes(self.queues, self.topics, policies)
        self.duplicates = Duplicates(self.scribe, options.limits.duplicate_ids_max)
        self._limits = Limits(self.life)
        self._marks = Marks(self.scribe, options.limits)
        self.auditor = Auditor(self.scribe)
        self.denials = Denials(self.auditor.refused)
        entering = Entering(self.life, self.duplicates)
        self._letters = Letters(self.scribe, entering, self.queues.of_address)
        self._expiry = Expiry(self.life, self._letters)
        self._termini = Termini(self.life, options.limits)
        self._settling = Settling(self.life, self._letters, self._termini.take, self._termini.tell)
        self._leaving = Leaving()
        self._parting = Parting(
            self.life, self._settling, self._leaving, self._termini, self._subscriptions, self.removal
        )
        self._locks = LockKeeper(self.life, self._settling)
        self._reading = Reading(self.life)
        self._dispatch = Dispatch(self.life, self._expiry, self._locks, self.denials)
        self._resuming = Resuming(self.life, self._dispatch.sending, self._termini, self._settling.heard)
        self._crediting = Crediting(self.life, self.topics, options.connection.credit_max)
        self.transactions = Transactions(
            self.life, options.transactions, entering, self._settling, nodes, self.duplicates, self._reading
        )
        self.holdings = Holdings(self.life, self.transactions.postings)
        """The live messages, as the journal's checkpoint sees them."""
        self._connections = Connections(partial(self._put_out, lost=False), self._end_link)
        self._operator_rules = OperatorRules(self.scribe, policies, self._policies_changed)
        self._poster = Poster(
            self.life,
            entering,
            nodes,
            self.duplicates,
            self._marks,
            self.transactions,
            self._termini,
            options.connection,
            self.denials,
        )
        self.postings = self._poster.durations
        """Times from the arrival of a durable message until it was on the disk."""
        self._pauses = Pauses(self.life, self.queues, self.topics, self._crediting)
        self.administration = Administration(
            self._snapshot_queues,
            self.queue_snapshot,
            self._fate,
            self.life,
            entering,
            self.queues,
            self.topics,
            self.removal,
            self.duplicates,
            self._termini,
            self._end_terminus_link,
            self._connections,
            Figures(
                *(self._head, self.life, self.queues, self.topics, self.transactions),
                *(self._connections, self.denials, self.quotas),
            ),
            Surveys(self.queues, self.topics, self.policies, self.scribe, self._connections),
            self._pauses,
            self.auditor,
            nodes,
            self._poster,
            self._operator_rules,
            policies,
            self._marks,
        )
        management = ManagementNode(self.administration, options.limits.requests_max, self.life, entering, self.queues)
        self._management = management
        self._coordinator = Coordinator(self.transactions, self.life.touch)
        temporary = TemporaryNodes(self.queues, self.topics, self.scribe)
        self._attaching = Attaching(
            Receivers(
                nodes,
                self.queues,
                self._subscriptions,
                temporary,
                management,
                self.life,
                self._termini,
                self._resuming,
                self.denials,
            ),
            Senders(
                nodes,
                temporary,
                self._crediting,
                management,
                self._coordinator,
                self._marks,
                self._termini,
                self.scribe,
                self.life.touch,
            ),
            options.connection.links_max,
            self.quotas,
            self.denials,
        )
        self.stopping = False
        """We are about to close all connections: those that do not answer are not lost, but left."""
        self._full = False
        """The journal takes no postings."""
        self._stalled = False
        """The journal has no room at all, and nothing is handed out."""
        self._peers: dict[ConnectionBase, Peer] = {}
        self._moved: dict[ConnectionBase, None] = {}
        """Connections that had output since the last tick."""
        self._handlers: Mapping[type, Callable[[Peer, Any], None]] = {
            DeliveriesReceived: self._deliveries_received,
            StatesReceived: self._states_received,
            CreditChanged: self._credit_changed,
            FlowReceived: self._flow_received,
            TransactionalStateMissed: self._transactional_state_missed,
            LinkRequested: self._link_requested,
            LinkDetached: self._link_detached,
            SessionEnded: self._session_ended,
            ConnectionOpened: self._connection_opened,
            ConnectionEnded: self._connection_ended,
        }

    def restore(self, fold: Fold) -> int:
        """Take over what the journal holds; how many messages. Once, before anything else."""
        self._operator_rules.restore()
        count = recover(
            fold,
            self.queues,
            self.topics,
            self._subscriptions,
            self.removal,
            self.life,
            self._settling,
            self._termini,
        )
        self._pauses.restore()
        for address in self.duplicates.addresses():
            self.duplicates.apply_policy(address, self.policies.policy_of(address))
        for queue in self.queues.by_name.values():
            self._limits.policy_changed(queue)
        return count

    def apply(self, options: BrokerOptions) -> None:
        """Go by other options from now on: policies, limits. Nothing that is in a queue is refused afterwards; what has
        to give way does so in the turns that follow. Raises ConfigurationError, with nothing changed."""
        self.policies.replace(options.address)
        self.options = options
        limits = options.limits
        self.quotas.limits = limits
        self.quotas.connections_max = limits.connections_max
        self.memory.apply(limits)
        self.queues.queues_max = limits.queues_max
        self._apply_shares()
        self.duplicates.ids_max = limits.duplicate_ids_max
        self._marks.limits = limits
        self._termini.limits = limits
        self._management.requests_max = limits.requests_max
        self._crediting.credit_max = options.connection.credit_max
        self._attaching.links_max = options.connection.links_max
        self._poster.limits = options.connection
        self.transactions.limits = options.transactions
        self._policies_changed()

    def _policies_changed(self) -> None:
        """Apply the policies that hold now to all topics and queues, and to the ids kept to find duplicates."""
        policy_of = self.policies.policy_of
        for topic in self.topics.by_address.values():
            topic.policy = policy_of(topic.address)
        for queue in self.queues.by_name.values():
            policy = policy_of(queue.address)
            if policy != queue.policy:
                queue.policy = policy
                queue.look_at_policy()
                reconsider(queue)
                self._limits.policy_changed(queue)
                self.life.wake(queue)
        for address in self.duplicates.addresses():
            self.duplicates.apply_policy(address, policy_of(address))

    @property
    def permissions(self) -> Permissions:
        """Permissions that hold now: who may do what."""
        return self.quotas.permissions

    @permissions.setter
    def permissions(self, permissions: Permissions) -> None:
        self.quotas.permissions = permissions
        self._apply_shares()

    def _apply_shares(self) -> None:
        """Limits of one user hold where there are users to be told apart."""
        limits = self.options.limits
        all_of_them = limits.queues_max
        mine = share(limits.queues_per_user_max, all_of_them)
        self.queues.per_user_max = mine if self.permissions.distinguish else all_of_them
        arriving = self._assembly.bytes_max = limits.assembly_bytes_max or limits.memory_bytes_max // 2
        mine = share(limits.assembly_bytes_per_user_max, arriving)
        self._assembly.per_user_max = mine if self.permissions.distinguish else arriving

    # -- what happens -------------------------------------------------------------------------------------------------

    def connected(self, engine: Connection, name: str, network: str = "") -> Peer:
        """A connection; `name` is for people, by `network` it counts among those of one address. Its events go to
        `handle`, until ConnectionEnded."""
        peer = Peer(engine, name, self.options.connection.output_bytes_max, network)
        self._peers[engine] = peer
        sole = gate(peer, self.quotas.of_container, self._put_out)
        engine.admit = lambda opening: self.denials.connection(peer, self.quotas.refusal(peer)) or sole(opening)
        engine.count_assembled = partial(self._assembly.count, peer)
        return peer

    def _shed(self, peer: Peer) -> None:
        peer.engine.shed_assembled()
        self.life.touch(peer.engine)

    def handle(self, peer: Peer, events: list[Event], time_us: int) -> None:
        """Act on what a peer did. `turn` should follow before anything else happens."""
        self.scribe.time_us = time_us
        handlers = self._handlers
        for event in events if len(events) < 3 else gather(events):  # fewer hold nothing of one link apart
            handler = handlers.get(event.__class__)
            if handler is not None:
                handler(peer, event)
        self.life.touched[peer.engine] = None

    def writable(self, peer: Peer, writable: bool) -> None:
        """The peer's socket takes no more, or does again."""
        peer.writable = writable
        if writable:
            self._wake(peer)

    def synced(self, position: Position, time_us: int) -> None:
        """The batch in flight is on the disk."""
        self.scribe.time_us = time_us
        self.scribe.synced(position)
        self.memory.retry()

    def loaded(self, reads: Reads, payloads: Sequence[bytes | None]) -> None:
        """Bodies were read, or (None) were not where they were looked for: their records were moved just then."""
        for queue in self.memory.loaded(reads.messages, payloads):
            self.life.wake(queue)

    def clock_set(self, by_us: int) -> None:
        """The wall clock jumped, forward or (negative) back. What was to last for a while still does; what was to be at
        a time (to expire, to be delivered) is at that time by the clock as it is now."""
        self._expiry.clock_set(by_us // 1000)
        self._locks.clock_set(by_us // 1000)
        self._termini.clock_set(by_us // 1000)
        self.transactions.clock_set(by_us)
        self._connections.clock_set(by_us)

    def tick(self, time_us: int) -> None:
        """A second or so has passed: what happened to volatile messages is recorded now and then."""
        self.scribe.time_us = time_us
        self.transactions.expire()
        self.memory.page_out(self.queues.by_name.values())
        self._dispatch.look_again()
        self.scribe.write_counters()
        moved, self._moved = self._moved, {}
        moved.update(self.life.touched)
        self._connections.look([self._peers[engine] for engine in moved if engine in self._peers], time_us)
        self.auditor.tick()
        self.administration.trends.look(time_us)

    def turn(self, time_us: int) -> bool:
        """Do what has become possible. True: call again soon, after what was produced is written."""
        self.scribe.time_us = time_us
        if self.scribe.journal.full is not self._full:
            self._full = not self._full
            logger.warning("%s", _FULL if self._full else "there is room on the disk again: postings are taken")
        if self.scribe.exhausted:
            self.scribe.look_for_room()
        if self.scribe.exhausted:
            self._stalled = True
        elif self._stalled:
            self._stalled = False
            self.life.dirty.update(dict.fromkeys(self.queues.by_name.values()))
        more = self._leaving.run()
        more = self._locks.run() or more
        more = self._expiry.run() or more
        more = self._termini.run(self._settling.terminus_ended) or more
        more = self.administration.run() or more
        more = self._limits.run() or more
        for queue in [queue for queue in map(whole, self.life.dirty) if not queue.in_use]:
            self.removal.let_go(queue)  # its last message expired, or was purged, after its last link had gone
        more = self.removal.run() or more
        more = self._resuming.run() or more
        more = self._dispatch.run() or more
        more = self._management.send_answers() or more
        self._connections.run()
        self._crediting.look_again()
        self.life.occupancy.collect(self.scribe.journal.segments)
        return more

    def close(self, time_us: int) -> None:
        """The last words before a clean stop, when all connections have ended: volatile messages end here."""
        self.scribe.time_us = time_us
        while self._leaving.run():
            pass
        durable: dict[QueueBase, int] = {}
        for message in self.life.live.values():
            durable[message.queue] = durable.get(message.queue, 0) + 1
        for queue in (*self.queues.by_name.values(), *self.removal.queues):
            lost = queue.live - durable.get(queue, 0) - self.life.parking.count(queue)
            if lost:
                queue.counts[EventKind.LOST_VOLATILE] += lost
                self.scribe.count_volatile(queue, EventKind.LOST_VOLATILE, lost)
        self.scribe.write_counters()
        self.auditor.tick()

    # -- what is to be done -------------------------------------------------------------------------------------------

    def take_touched(self) -> Iterable[ConnectionBase]:
        """Connections with something to send since the last time."""
        touched, self.life.touched = self.life.touched, {}
        self._moved.update((engine, None) for engine in touched if engine in self._peers)
        return touched

    def take_reads(self) -> list[Reads]:
        """Bodies that are wanted; give each lot to `loaded`."""
        return self.memory.take_reads()

    @property
    def next_due_ms(self) -> int | None:
        """Latest time to call `turn`, in milliseconds since the epoch; None: nothing waits for a time."""
        times_ms = self._expiry.next_ms, self._locks.next_ms, self._termini.next_ms
        return min((at_ms for at_ms in times_ms if at_ms is not None), default=None)

    def _warnings(self) -> Iterator[str]:
        if self.scribe.journal.full:
            yield _FULL
        if self.scribe.exhausted:
            yield "not even the reserve has room: no message is handed out"
        if self.holdings.warning:
            yield self.holdings.warning

    # -- for the management node --------------------------------------------------------------------------------------

    def snapshot(self) -> BrokerSnapshot:
        """Return a snapshot of all queues, topics and connections."""
        time_us = self.scribe.time_us
        connections = tuple(connection_snapshot(peer, time_us) for peer in self._peers.values())
        return replace(self._snapshot_queues(), connections=connections)

    def _snapshot_queues(self) -> BrokerSnapshot:
        """Return the same without the connections, of which there may be thousands."""
        nodes = node_snapshots(self.queues.by_name, self.topics.by_address, self.scribe.time_us)
        return replace(self._head(), queues=nodes)

    def _head(self) -> BrokerSnapshot:
        return BrokerSnapshot(
            broker_id=self._broker_id,
            last_sequence=self.scribe.sequences.last,
            accepting=not self.scribe.journal.full,
            warnings=tuple(self._warnings()),
        )

    def queue_snapshot(self, name: str) -> QueueSnapshot | None:
        """Return a snapshot of the queue of this name, or else of the topic; None if there is neither."""
        queue, topic = self.queues.by_name.get(name), self.topics.by_address.get(name)
        if queue is not None:
            return queue_snapshot(queue, self.scribe.time_us)
        return None if topic is None else topic_snapshot(topic)

    # -- the engine's events ------------------------------------------------------------------------------------------

    def _deliveries_received(self, peer: Peer, event: DeliveriesReceived) -> None:
        context = event.link.context
        if context.__class__ is Producer:
            self._poster.receive(context, event.deliveries)
            self._crediting.top_up(context)
        elif isinstance(context, RequestLink):
            self._management.receive(context, event.deliveries)
        elif isinstance(context, Control):
            self._coordinator.receive(context, event.deliveries)

    def _states_received(self, peer: Peer, event: StatesReceived) -> None:
        context = event.link.context
        if context.__class__ is Consumer:
            self._heard(context, event.deliveries, event.state, settled=event.settled)
        elif context.__class__ is Producer:
            if context.resumable is not None and event.settled:
                self._termini.posted_heard(context.resumable, event.deliveries)
        elif isinstance(context, Browser) and context.reads and isinstance(event.state, TransactionalState):
            self.transactions.read(context, event.deliveries, event.state, event.settled)
        elif isinstance(context, Browser) and context.reads:
            self._reading.heard(context, event.deliveries, event.state, event.settled)
        elif context is None:
            # The link has ended since this came, by what came with it: it was stolen, or its queue deleted. What the
            # peer has settled already was not among what its link still held then, and is not heard of again.
            held = held_by(event.deliveries)
            for consumer, deliveries in held.items():
                self._heard(consumer, deliveries, event.state, settled=event.settled)
            if isinstance(event.state, TransactionalState) and sum(map(len, held.values())) < len(event.deliveries):
                self.transactions.fail(peer, event.state.txn_id)  # others have, or had, what this counts on
        elif not event.settled and isinstance(context, Browser | ReplyLink):
            event.link.session.settle_all(event.deliveries, event.state)

    def _heard(
        self, consumer: Consumer, deliveries: list[Delivery], state: DeliveryState | None, *, settled: bool
    ) -> None:
        """A disposition of what a consumer holds: in a transaction, or at once."""
        if isinstance(state, TransactionalState):
            self.transactions.retire(consumer, deliveries, state, settled)
        else:
            self._settling.heard(consumer, deliveries, state, settled)
            if consumer.resumable is not None:
                self._termini.heard(consumer, deliveries, state, settled=settled)

    def _credit_changed(self, peer: Peer, event: CreditChanged) -> None:
        context = event.link.context
        if isinstance(context, Consumer):
            self._go_on(context)
        elif isinstance(context, Browser):
            self.life.wake(context.queue)
        elif isinstance(context, ReplyLink):
            self._management.answerable(context)

    def _go_on(self, consumer: Consumer) -> None:
        """Send what waited for credit, or for the peer's socket, and let the consumer have more."""
        if consumer.resuming:
            self._resuming.go_on(consumer)
        if consumer.outbox:
            self._dispatch.empty_outbox(consumer)
        consumer.stand_in_line()
        self.life.wake(consumer.queue)

    def _flow_received(self, peer: Peer, event: FlowReceived) -> None:
        if TXN_ID in (event.flow.properties or {}):
            error = Error(AmqpCondition.NOT_IMPLEMENTED, "messages are not acquired in transactions here (4.4.3)")
            self._end_link(event.link, error)

    def _transactional_state_missed(self, peer: Peer, event: TransactionalStateMissed) -> None:
        self.transactions.fail(peer, event.state.txn_id)

    def _fate(self, txn_id: bytes, user: str | None) -> Later[tuple[str, int]]:
        """Return what became of a transaction, and for how many milliseconds that is known. One that is live is fenced
        first: what its client has sent and we have not read does not count any more."""
        transaction = self.transactions.live(txn_id, user or "")
        if transaction is not None:
            self._put_out(
                transaction.peer,
                Error(ConnectionCondition.CONNECTION_FORCED, "the fate of its transaction was asked for"),
            )
        later: Later[tuple[str, int]] = Later()

        def tell() -> None:
            fate = self.transactions.fate(txn_id, user or "")
            if fate is None:
                self.scribe.when_synced(tell)
            else:
                later.finish((fate, self.transactions.fates_kept_ms))

        tell()
        return later

    def _put_out(self, peer: Peer, error: Error, *, lost: bool = True) -> None:
        """Close a connection. What it has sent and we have not read does not count any more, and what it held goes back
        as it does from one that is lost; not `lost`: from one that we close."""
        self._connection_ended(peer, ConnectionEnded(None, lost=lost, remote=False))
        peer.engine.close(error)
        self.life.touch(peer.engine)

    def _connection_opened(self, peer: Peer, event: ConnectionOpened) -> None:
        peer.container = event.open.container_id
        peer.user = peer.engine.user
        peer.rights = self.permissions.of(peer.user)
        self.quotas.enter(peer)
        self._connections.enter(peer, self.scribe.time_us)

    def _link_requested(self, peer: Peer, event: LinkRequested) -> None:
        if peer.engine not in self._peers:
            return  # what it asked just before cost it its connection: its own transaction was fenced
        stolen = self._attaching.answer(peer, event.link)
        if isinstance(event.link.context, Consumer | Browser):
            self.life.wake(event.link.context.queue)  # its first flow may have come with the attach
        if stolen is not None:
            self._end_link(stolen, STOLEN, lives_on=True)

    def _end_link(self, link: Link, error: Error, *, lives_on: bool = False) -> None:
        """End a link ourselves, as if its peer had detached it."""
        peer = self._peers.get(link.session.connection)
        if peer is not None:
            self._link_over(peer, link, link.unsettled(), Ending.ENDED_HERE, lives_on=lives_on)
        if link.state is LinkState.ATTACH_RECEIVED:
            link.refuse(error)  # it was to be answered later
        else:
            link.detach(error)
        self.life.touch(link.session.connection)

    def _link_detached(self, peer: Peer, event: LinkDetached) -> None:
        lives_on = not event.closed and outlives(event.link)
        destroyed = event.closed and event.remote and event.error is None
        ending = _closed(event.remote)
        resumable = lives_on and getattr(event.link.context, "resumable", None) is not None
        self._link_over(peer, event.link, event.unsettled, ending, lives_on=lives_on, destroyed=destroyed)
        if resumable:
            event.link.session.lose_deliveries(event.unsettled)  # they go on under other delivery-ids, or end without
        elif not event.closed and event.link.role == Role.SENDER:
            # This terminus does not outlive its link: what it held is given back, so this end forgets it as well.
            event.link.session.settle_all(event.unsettled)

    def _session_ended(self, peer: Peer, event: SessionEnded) -> None:
        self._session_over(peer, event.session, _closed(event.remote))
        event.session.release()

    def _connection_ended(self, peer: Peer, event: ConnectionEnded) -> None:
        ending = Ending.CONNECTION_LOST if event.lost and not self.stopping else _closed(event.remote)
        self.transactions.abandon(peer, ending)
        for session in peer.engine.sessions:
            self._session_over(peer, session, ending)
        self._peers.pop(peer.engine, None)
        self.quotas.leave(peer)
        self._connections.leave(peer)
        self.life.touched.pop(peer.engine, None)
        self._moved.pop(peer.engine, None)

    def _session_over(self, peer: Peer, session: Session, ending: Ending) -> None:
        by_link: dict[AnyLink, list[Delivery]] = {link: [] for link in session.links}
        for delivery in session.unsettled():
            by_link.setdefault(delivery.link, []).append(delivery)
        for link, deliveries in by_link.items():
            self._link_over(peer, link, deliveries, ending, lives_on=self.stopping or outlives(link))

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
                self.life.wake(consumer.queue)
            return
        link.context = None
        peer.links.pop(context, None)
        self._attaching.ended(peer, link)
        node: Queue | Topic | None
        match context:
            case Consumer():
                self._parting.consumer(context, deliveries, ending, lives_on=lives_on, destroyed=destroyed)
                return
            case WaitingLink():
                self._parting.resumable(context, lives_on=lives_on)
                return
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
            self.life.wake(node)
        if node is not None:
            self.removal.left(node, context)

    def _end_terminus_link(self, context: object, error: Error) -> None:
        """End the link of a terminus that is no more."""
        link = getattr(context, "link", None)
        if isinstance(link, Link):
            self._end_link(link, error)

    def _end_termini(self, queue: Queue) -> None:
        """A queue is being deleted: nobody comes back for what is held of it."""
        self._termini.end_all(queue.name)

    def _wake(self, peer: Peer) -> None:
        for context in peer.links:
            if isinstance(context, Consumer):
                self._go_on(context)
            elif isinstance(context, Browser):
                self.life.wake(context.queue)
            elif isinstance(context, ReplyLink):
                self._management.answerable(context)


def _closed(remote: bool) -> Ending:
    """Return the ending of something that was closed in order, by the peer (`remote`) or by us."""
    return Ending.DETACHED if remote else Ending.ENDED_HERE


__all__ = ["Core"]
