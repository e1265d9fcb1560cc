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

Inside, each concern is a module, and knows those that it is given here, where all of them are made. What a peer did
goes through the table of `peer_events`; what ends goes through `links.endings`; `agenda` has the order of a turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import chain

from acquit.broker.access.admission import gate
from acquit.broker.access.permissions import Permissions, build_permissions
from acquit.broker.access.quotas import Quotas, share
from acquit.broker.admin.administration import Administration
from acquit.broker.admin.adopting import Adoption
from acquit.broker.admin.connections import Connections
from acquit.broker.admin.figures import Figures
from acquit.broker.admin.management_node import ManagementNode
from acquit.broker.admin.survey import Surveys
from acquit.broker.agenda import Agenda
from acquit.broker.auditing import Auditor
from acquit.broker.denials import Denials
from acquit.broker.dispatching.dispatch import Dispatch
from acquit.broker.dispatching.reading import Reading
from acquit.broker.dispatching.resuming import Resuming
from acquit.broker.holdings import Holdings
from acquit.broker.inspect import BrokerSnapshot
from acquit.broker.intake.assembly import Assembly
from acquit.broker.intake.duplicates import Duplicates
from acquit.broker.intake.entering import Entering
from acquit.broker.intake.limits import Limits
from acquit.broker.intake.marks import Marks
from acquit.broker.intake.posting import Poster
from acquit.broker.life import Life
from acquit.broker.links.attaching import Attaching
from acquit.broker.links.crediting import Crediting
from acquit.broker.links.endings import Endings
from acquit.broker.links.parting import Parting
from acquit.broker.links.peers import Peer
from acquit.broker.links.receivers import Receivers
from acquit.broker.links.senders import Senders
from acquit.broker.links.termini import Termini
from acquit.broker.memory import Memory, Reads
from acquit.broker.message import Message
from acquit.broker.nodes.addresses import Policies
from acquit.broker.nodes.finding import Nodes
from acquit.broker.nodes.node import Queue
from acquit.broker.nodes.operator_rules import OperatorRules
from acquit.broker.nodes.pausing import Pauses
from acquit.broker.nodes.queues import Queues
from acquit.broker.nodes.removal import Removal
from acquit.broker.nodes.subscriptions import Subscriptions
from acquit.broker.nodes.temporary import TemporaryNodes
from acquit.broker.nodes.topics import Topic, Topics
from acquit.broker.options import BrokerOptions
from acquit.broker.outcomes.expiry import Expiry
from acquit.broker.outcomes.leaving import Leaving
from acquit.broker.outcomes.letters import Letters
from acquit.broker.outcomes.locks import LockKeeper
from acquit.broker.outcomes.settling import Settling
from acquit.broker.outcomes.timers import Timers
from acquit.broker.peer_events import PeerEvents
from acquit.broker.recovery import recover
from acquit.broker.scribe import Scribe
from acquit.broker.transact.coordinator import Coordinator
from acquit.broker.transact.transactions import Transactions
from acquit.ledger.fold import Fold
from acquit.ledger.recorder import Recorder
from acquit.ledger.sequences import Sequences
from acquit.protocol.connection import Connection
from acquit.protocol.connection_base import ConnectionBase
from acquit.protocol.definitions import Error
from acquit.protocol.events import Event
from acquit.protocol.link import Link
from acquit.store.interface import Position


class Core:
    """The deciding part of one broker, without I/O or clock. All methods belong to one thread; none blocks."""

    def __init__(
        self, options: BrokerOptions, recorder: Recorder, sequences: Sequences, broker_id: str, time_us: int
    ) -> None:
        """An empty broker on a journal that is open; `restore` gives it what the journal holds."""
        self.options = options
        limits = options.limits

        # What follows from an end is told to nearly all of these, so `endings` is made after them.
        def end_link(link: Link, error: Error) -> None:
            self._endings.end_link(link, error)

        def put_out(peer: Peer, error: Error) -> None:
            self._endings.put_out(peer, error)

        def close(peer: Peer, error: Error) -> None:
            self._endings.put_out(peer, error, lost=False)

        # The journal, memory, and who is connected.
        self.quotas = Quotas(limits, build_permissions(options.security))
        self.scribe = scribe = Scribe(recorder, sequences)
        scribe.time_us = time_us
        self.memory = Memory(limits)
        self.life = life = Life(scribe, self.memory, Timers())
        self._assembly = Assembly(self.memory, self._shed)
        self.auditor = Auditor(scribe)
        self.denials = denials = Denials(self.auditor.refused)
        self.connections = connections = Connections(close, end_link)

        # Nodes: what an address means.
        self.policies = policies = Policies(options.address)
        by_address: dict[str, Topic] = {}
        self.queues = queues = Queues(life, policies, limits.queues_max, by_address)
        self._apply_shares()
        self.topics = topics = Topics(queues, scribe, policies, by_address)
        self._termini = termini = Termini(life, limits)
        self.removal = Removal(life, queues, topics, end_link, lambda queue: termini.end_all(queue.name))
        self._subscriptions = Subscriptions(queues, topics, scribe, self.removal)
        nodes = Nodes(queues, topics, policies)
        temporary = TemporaryNodes(queues, topics, scribe)

        # Messages that come in, that go out, and what becomes of them.
        self.duplicates = Duplicates(scribe, limits.duplicate_ids_max)
        self._limits = Limits(life)
        self._adoption = Adoption(life, queues, topics, policies, self.duplicates, self._limits)
        self._operator_rules = OperatorRules(scribe, policies, self._adoption.begin)
        self._marks = Marks(scribe, limits)
        entering = Entering(life, self.duplicates)
        self._letters = Letters(scribe, entering, queues.of_address)
        expiry = Expiry(life, self._letters)
        self._settling = Settling(life, self._letters, termini.take, termini.tell)
        leaving = Leaving()
        locks = LockKeeper(life, self._settling)
        reading = Reading(life)
        dispatch = Dispatch(life, expiry, locks, denials, self._held_apart)
        resuming = Resuming(life, dispatch.sending, termini, self._settling.heard)
        self._crediting = Crediting(life, topics, options.connection.credit_max)
        self._pauses = Pauses(life, queues, topics, self._crediting)
        self.transactions = Transactions(
            life, options.transactions, entering, self._settling, nodes, self.duplicates, reading
        )
        coordinator = Coordinator(self.transactions, life.touch)
        self.holdings = Holdings(life, self.transactions.postings)
        """The live messages, as the journal's checkpoint sees them."""
        self._poster = Poster(
            *(life, entering, nodes, self.duplicates, self._marks, self.transactions, termini),
            *(options.connection, denials),
        )
        self.postings = self._poster.durations
        """Times from the arrival of a durable message until it was on the disk."""

        # What operators see and do.
        self.administration = Administration(
            life,
            entering,
            queues,
            topics,
            self.removal,
            self.duplicates,
            termini,
            self.transactions,
            connections,
            end_link,
            put_out,
            Figures(
                *(broker_id, life, queues, topics, self.transactions, connections, denials, self.quotas, self.holdings)
            ),
            Surveys(queues, topics, policies, scribe, connections),
            self._pauses,
            self.auditor,
            nodes,
            self._poster,
            self._operator_rules,
            policies,
            self._adoption,
            self._marks,
        )
        self._management = management = ManagementNode(
            self.administration, limits.requests_max, life, entering, queues, self.transactions
        )

        # Links and connections, and the turn.
        self._attaching = Attaching(
            Receivers(
                *(nodes, queues, self._subscriptions, temporary, management, life, termini, resuming, denials),
            ),
            Senders(
                *(nodes, queues, temporary, self._crediting, management, coordinator, self._marks, termini, scribe),
                life.touch,
            ),
            options.connection.links_max,
            self.quotas,
            denials,
        )
        self._endings = Endings(
            connections,
            self.quotas,
            life,
            self._attaching,
            Parting(life, self._settling, leaving, termini, self._subscriptions, self.removal),
            self._settling,
            self._subscriptions,
            self.removal,
            self._crediting,
            self._marks,
            self.transactions,
            coordinator,
            management,
        )
        self._peer_events = PeerEvents(
            connections,
            self.quotas,
            life,
            self._attaching,
            self._endings,
            self._poster,
            self._crediting,
            dispatch,
            resuming,
            reading,
            self._settling,
            termini,
            self.transactions,
            coordinator,
            management,
        )
        self._agenda = Agenda(
            life,
            queues,
            self.removal,
            connections,
            leaving,
            locks,
            expiry,
            termini,
            self._settling,
            self.transactions,
            self._limits,
            resuming,
            dispatch,
            self._crediting,
            self.administration,
            management,
            self.auditor,
        )

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
            self._pauses,
        )
        for address in self.duplicates.addresses():
            self.duplicates.apply_policy(address, self.policies.policy_of(address))
        self._limits.policies_changed(self.queues.by_name.values())
        return count

    def apply(self, options: BrokerOptions) -> None:
        """Go by other options from now on: policies, limits. Nothing that is in a queue is refused afterwards; what has
        to give way does so in the turns that follow, in which also all but the first queues come to their policies
        (`Adoption`). Raises ConfigurationError, with nothing changed."""
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
        self._poster.reader.limits = options.connection
        self.transactions.limits = options.transactions
        self._adoption.begin()

    def _held_apart(self, queue: Queue) -> Iterator[Message]:
        """Return what is held of a queue by nobody who is attached."""
        return chain(self.transactions.retired_of(queue), self._termini.held_of(queue.name))

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
        self.connections.add(peer)
        sole = gate(peer, self.quotas.of_container, self._endings.put_out)
        engine.admit = lambda opening: self.denials.connection(peer, self.quotas.refusal(peer)) or sole(opening)
        engine.count_assembled = partial(self._assembly.count, peer)
        engine.ends_later = True  # until it is known what a link stands on
        return peer

    def _shed(self, peer: Peer) -> None:
        peer.engine.shed_assembled()
        self.life.touch(peer.engine)

    def handle(self, peer: Peer, events: list[Event], time_us: int) -> None:
        """Act on what a peer did. `turn` should follow before anything else happens."""
        self.scribe.time_us = time_us
        self._peer_events.handle(peer, events)

    def writable(self, peer: Peer, writable: bool) -> None:
        """The peer's socket takes no more, or does again."""
        peer.writable = writable
        if writable:
            self._peer_events.writable(peer)

    def synced(self, position: Position, time_us: int) -> None:
        """The batch in flight is on the disk."""
        self.scribe.time_us = time_us
        self.scribe.synced(position)
        self.memory.retry()

    def loaded(self, reads: Reads, payloads: Sequence[bytes | None]) -> None:
        """Bodies were read, or (None) were not where they were looked for: their records were moved just then."""
        if reads.then is not None:
            reads.then(payloads)
            return
        for queue in self.memory.loaded(reads, payloads):
            self.life.wake(queue)

    def clock_set(self, by_us: int) -> None:
        """The wall clock jumped, forward or (negative) back. What was to last for a while still does; what was to be at
        a time (to expire, to be delivered) is at that time by the clock as it is now."""
        self._agenda.clock_set(by_us)

    def tick(self, time_us: int) -> None:
        """A second or so has passed: what happened to volatile messages is recorded now and then."""
        self.scribe.time_us = time_us
        self._agenda.tick(time_us)

    def turn(self, time_us: int, *, go_on: bool = True) -> bool:
        """Do what has become possible. True: call again soon, after what was produced is written. `go_on`: with what
        takes many turns as well, which is left to another turn where that is due already."""
        self.scribe.time_us = time_us
        return self._agenda.run(go_on=go_on)

    def begin_stop(self) -> None:
        """All connections are about to be closed: those that do not answer are not lost, but left."""
        self._endings.begin_stop()

    def close(self, time_us: int) -> None:
        """The last words before a clean stop, when all connections have ended: volatile messages end here."""
        self.scribe.time_us = time_us
        self._agenda.close()

    # -- what is to be done -------------------------------------------------------------------------------------------

    def take_touched(self) -> Collection[ConnectionBase]:
        """Connections with something to send since the last time."""
        touched = self.life.take_touched()
        self.connections.note_output(touched)
        return touched

    def take_reads(self) -> list[Reads]:
        """Bodies that are wanted; give each lot to `loaded`."""
        return self.memory.take_reads()

    @property
    def next_due_ms(self) -> int | None:
        """Latest time to call `turn`, in milliseconds since the epoch; None: nothing waits for a time."""
        return self._agenda.next_due_ms

    def snapshot(self) -> BrokerSnapshot:
        """Return a snapshot of all queues, topics and connections."""
        return self.administration.figures.snapshot()


__all__ = ["Core"]
