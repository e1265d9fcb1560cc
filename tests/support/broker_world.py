"""A broker's core on a disk in memory, and clients' engines joined to it by wires in memory. Nothing moves by itself.

`World.settle` carries bytes, has turns and syncs until nobody has anything to say; `carry` does it without the disk, so
that a test can look at what is not synced yet, or `crash`. Time is `world.now_us`.
"""

from __future__ import annotations

import copy
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Any, Final

from acquit.broker import parking
from acquit.broker.core import Core
from acquit.broker.dispatching.backlog import Backlog
from acquit.broker.links.peers import Peer
from acquit.broker.message import COPY, DURABLE, OBJECT_BYTES, PARKED_BYTES
from acquit.broker.message_run import MessageRun
from acquit.broker.options import BrokerOptions
from acquit.broker.queue import NodeState
from acquit.errors import StoreFull
from acquit.ledger.checkpoint import Checkpointer
from acquit.ledger.fold import Fold
from acquit.ledger.live import LiveMessage, Notes
from acquit.ledger.recovery import OpenedJournal, close_journal, open_journal
from acquit.protocol.connection import Connection
from acquit.protocol.definitions import (
    RcvSettleMode,
    SndSettleMode,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from acquit.protocol.delivery import Delivery, DeliveryState
from acquit.protocol.events import (
    ConnectionEnded,
    DeliveriesReceived,
    Event,
    LinkDetached,
    StatesReceived,
)
from acquit.protocol.link import Link, ReceivingLink, SendingLink
from acquit.protocol.message import Message
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.session import Session
from acquit.protocol.types import Described, ULong
from acquit.store.disk import Disk
from acquit.store.interface import Batch, Position
from acquit.store.memory import MemoryDisk
from acquit.store.options import JournalOptions
from acquit.store.recovery import open_store
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.mini_broker import check_left

DATA = Path("/data")
SMALL = JournalOptions(
    segment_bytes=64 * 1024,
    alignment_bytes=512,
    reserve_segments=1,
    spare_segments=0,
    recovery_bytes_max=128 * 1024,
)
TINY = replace(SMALL, segment_bytes=8 * 1024, recovery_bytes_max=8 * 1024)
"""Segments that a few batches fill, and that leave as soon as they can."""
START_US = 1_700_000_000_000_000


@dataclass
class Client:
    """A client's engine, and what it heard."""

    world: World
    engine: Connection
    server: Connection
    peer: Peer
    session: Session | None = None
    received: dict[Link, list[Delivery]] = field(default_factory=dict)
    """Deliveries of each receiving link, in order."""
    answers: dict[Delivery, tuple[DeliveryState | None, bool]] = field(default_factory=dict)
    """The last state that was told of a delivery, and whether it was settled."""
    detached: dict[Link, LinkDetached] = field(default_factory=dict)
    ended: ConnectionEnded | None = None
    reading: bool = True
    tags: int = 0

    def hear(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case DeliveriesReceived(link=link, deliveries=deliveries):
                    self.received.setdefault(link, []).extend(deliveries)
                case StatesReceived(deliveries=deliveries, state=state, settled=settled):
                    for delivery in deliveries:
                        self.answers[delivery] = state, settled
                case LinkDetached(link=link):
                    self.detached[link] = event
                case ConnectionEnded():
                    self.ended = event
                case _:
                    pass

    def sender(self, address: str | None, name: str = "sender", **options: Any) -> SendingLink:
        link = self.begun.attach_sender(
            name, source=Source("here"), target=options.pop("target", Target(address)), **options
        )
        self.world.make()
        assert isinstance(link, SendingLink)
        return link

    def receiver(
        self,
        address: str,
        name: str = "receiver",
        *,
        credit: int = 0,
        presettled: bool = False,
        second: bool = False,
        browse: bool = False,
        default_outcome: DeliveryState | None = None,
        selector: str | None = None,
        no_local: bool = False,
        **options: Any,
    ) -> ReceivingLink:
        filters: dict[str, object] = {}
        if selector is not None:
            filters["jms-selector"] = Described(ULong(0x0000468C_00000004), selector)
        if no_local:
            filters["no-local"] = Described(ULong(0x0000468C_00000003), [])
        link = self.begun.attach_receiver(
            name,
            source=Source(
                address,
                distribution_mode="copy" if browse else None,
                default_outcome=default_outcome,
                filter=filters or None,
            ),
            target=Target("there"),
            snd_settle_mode=SndSettleMode.SETTLED if presettled else SndSettleMode.UNSETTLED,
            rcv_settle_mode=RcvSettleMode.SECOND if second else RcvSettleMode.FIRST,
            **options,
        )
        assert isinstance(link, ReceivingLink)
        if credit:
            link.grant(credit)
        self.world.make()
        return link

    def subscriber(
        self,
        topic: str | None,
        name: str = "subscriber",
        *,
        durable: bool = False,
        shared: bool = False,
        shared_by_all: bool = False,
        filters: dict[str, object] | None = None,
        credit: int = 100,
        presettled: bool = False,
        default_outcome: DeliveryState | None = None,
    ) -> ReceivingLink:
        """Attach as Qpid JMS does to receive from a topic; without one, to unsubscribe."""
        words = ["shared"] if shared or shared_by_all else []
        words += ["global"] if shared_by_all else []
        source = None
        if topic is not None:
            source = Source(
                topic,
                TerminusDurability.UNSETTLED_STATE if durable else TerminusDurability.NONE,
                TerminusExpiryPolicy.NEVER if durable else TerminusExpiryPolicy.LINK_DETACH,
                distribution_mode="copy",
                filter=filters,
                default_outcome=default_outcome,
                capabilities=("topic", *words),
            )
        link = self.begun.attach_receiver(
            name,
            source=source,
            target=Target(),
            snd_settle_mode=SndSettleMode.SETTLED if presettled else SndSettleMode.UNSETTLED,
            desired_capabilities=words if source is None else (),
        )
        assert isinstance(link, ReceivingLink)
        if credit:
            link.grant(credit)
        self.world.make()
        if durable:
            self.world.settle()  # it is answered when it is on the disk
        return link

    def publisher(self, topic: str, name: str = "publisher") -> SendingLink:
        """A sender to a topic."""
        return self.sender(None, name, target=Target(topic, capabilities=("topic",)))

    def detach(self, link: Link, *, closed: bool = True) -> None:
        link.detach(closed=closed)
        self.world.carry()

    @property
    def begun(self) -> Session:
        if self.session is None:
            self.session = self.engine.begin()
        return self.session

    def post(self, link: SendingLink, *messages: Message | bytes, settled: bool | None = None) -> list[Delivery]:
        """Send now. What the link has no credit for raises."""
        sent = []
        for message in messages:
            self.tags += 1
            payload = message if isinstance(message, bytes) else message.encode()
            sent.append(link.send(self.tags.to_bytes(4, "big"), payload, settled=settled))
        return sent

    def post_all(self, link: SendingLink, *messages: Message) -> None:
        """Send as credit comes, until all are answered. Refuses to go on without credit."""
        for number, message in enumerate(messages):
            if not link.sendable:
                self.world.settle()
                assert link.sendable, f"no credit for message {number}"
            self.post(link, message)
        self.world.settle()

    def held(self, link: ReceivingLink) -> list[Delivery]:
        """Deliveries that have no outcome from us."""
        return [one for one in self.received.get(link, []) if not one.settled and one.local_state is None]

    def bodies(self, link: ReceivingLink) -> list[object]:
        """The bodies of all deliveries of a link so far."""
        return [Message.decode(delivery.payload).body for delivery in self.received.get(link, [])]

    def outcome(self, delivery: Delivery) -> DeliveryState | None:
        """The answer to a delivery that we sent; None where there is none yet."""
        state, settled = self.answers.get(delivery, (None, False))
        return state if settled else None

    def close(self) -> None:
        self.engine.close()
        self.world.carry()

    def lose(self) -> None:
        """The socket is gone."""
        self.world.clients.remove(self)
        self.world.core.handle(self.peer, self.server.receive_eof(self.world.now_s), self.world.now_us)
        self.hear(self.engine.receive_eof(self.world.now_s))
        self.world.carry()


SHALLOW: Final = parking.Sizes(3, 2)
"""Sizes of queues by which a few messages are deep enough to be parked."""


class World:
    """One broker and its clients."""

    def __init__(
        self,
        options: BrokerOptions | None = None,
        *,
        disk: Disk | None = None,
        now_us: int = START_US,
        journal: JournalOptions = SMALL,
        sizes: parking.Sizes = SHALLOW,
        seed: int = 0,
    ) -> None:
        """`seed`: of what is drawn where the disk has a copy."""
        self.options = options if options is not None else BrokerOptions()
        self.journal_options = journal
        self.sizes = sizes
        self.disk = disk if disk is not None else MemoryDisk()
        self.now_us = now_us
        self.clients: list[Client] = []
        self.stuck: Batch | None = None
        """A batch that found no room."""
        self.gathering = False
        """True while nothing is carried (`in_one_read`)."""
        self.opened: OpenedJournal = open_journal(
            DATA,
            journal,
            disk=self.disk,
            sequence_block=8_192,
            clock_us=lambda: self.now_us,
            clock_s=lambda: self.now_s,
            draw=Random(seed).randrange,
        )
        parking.SIZES, before = sizes, parking.SIZES
        self.core = Core(self.options, self.opened.recorder, self.opened.sequences, "world", self.now_us)
        parking.SIZES = before
        self.recovered = self.core.restore(self.opened.fold)
        self.checkpointer = Checkpointer(
            self.opened.recorder,
            self.core.holdings,
            recovery_bytes_max=journal.recovery_bytes_max,
            leave_after_us=journal.leave_after_us,
            step_records=16,
        )

    @property
    def now_s(self) -> float:
        return self.now_us / 1e6

    def client(
        self,
        name: str = "client",
        *,
        user: str | None = None,
        max_frame_size: int = 65_536,
        window: int = 2_048,
        desires: tuple[str, ...] = (),
        properties: Mapping[str, object] | None = None,
    ) -> Client:
        engine = Connection(
            ConnectionOptions(
                container_id=name,
                max_frame_size=max_frame_size,
                incoming_window_frames=window,
                desired_capabilities=desires,
                properties=properties,
            ),
            server=False,
            sasl=None,
            now=self.now_s,
        )
        server = Connection(
            ConnectionOptions(container_id="broker", output_chunk_bytes=self.options.connection.output_bytes_max),
            server=True,
            sasl=None,
            now=self.now_s,
        )
        server.user = user
        client = Client(self, engine, server, self.core.connected(server, name))
        self.clients.append(client)
        engine.open()
        self.carry()
        return client

    # -- what moves ---------------------------------------------------------------------------------------------------

    def carry(self) -> None:
        """Bytes and turns until nobody has anything to say. The disk does nothing."""
        if self.gathering:
            return
        for _ in range(10_000):
            busy = self.core.turn(self.now_us)
            for client in list(self.clients):
                busy = self._exchange(client) or busy
            busy = self._read_back() or busy
            if not busy:
                return
        raise AssertionError("the two sides never fall silent")

    def make(self) -> None:
        """Carry, and have the disk take what a link that was carried had made, for which its answer waits."""
        self.carry()
        if not self.gathering and self.core.queues.unsynced:
            self.sync()
            self.carry()

    @contextmanager
    def in_one_read(self) -> Iterator[None]:
        """What a client says here comes to the broker in one read, after it: its engine knows the end of all of it
        before the broker hears of the beginning."""
        self.gathering = True
        try:
            yield
        finally:
            self.gathering = False
        self.carry()

    def _exchange(self, client: Client) -> bool:
        to_server = client.engine.data_to_send()
        if to_server:
            self.core.handle(client.peer, client.server.receive_data(to_server, self.now_s), self.now_us)
        to_client = client.server.data_to_send() if client.reading else b""
        if to_client:
            client.hear(client.engine.receive_data(to_client, self.now_s))
        # What is written can free a link, which is due at once. Nobody is silent, however much time is made to pass.
        due = client.server.next_deadline() if client.server.events else None
        if due is not None:
            self.core.handle(client.peer, client.server.handle_deadline(due), self.now_us)
        return bool(to_server or to_client or due is not None)

    def _read_back(self) -> bool:
        lots = self.core.take_reads()
        for reads in lots:
            self.core.loaded(reads, self.opened.journal.read_payloads(reads.positions, reads.size_hints))
        return bool(lots)

    def sync(self) -> bool:
        """Write and sync what is recorded. False where there was nothing, or no room."""
        batch = self.core.scribe.take_batch()
        if batch is None:
            return False
        try:
            batch.write_and_sync()
        except StoreFull:
            self.stuck = batch
            return False
        self.core.synced(self.opened.journal.complete(batch), self.now_us)
        self.chores()
        self.checkpoint()
        return True

    def checkpoint(self) -> None:
        """A step of moving the oldest segment out of what recovery reads."""
        with suppress(StoreFull):
            self.checkpointer.advance(self.now_us)
            read = self.checkpointer.take_read()
            if read is not None:
                read.run()
                self.checkpointer.complete_read(read)
        check_left(self.opened.journal, self.live_positions())

    def chores(self) -> None:
        """The journal's housekeeping, as far as it goes now, and a batch that found no room before it."""
        for _ in range(20):
            chore = self.opened.journal.take_chore()
            if chore is None:
                break
            chore.run()
            self.opened.journal.complete_chore(chore)
        if self.stuck is not None:
            batch, self.stuck = self.stuck, None
            batch.write_and_sync()
            self.core.synced(self.opened.journal.complete(batch), self.now_us)

    def settle(self) -> None:
        """Everything, until nothing moves."""
        self.carry()
        while self.sync():
            self.carry()
        self.check()

    def advance(self, milliseconds: int) -> None:
        """Time passes."""
        self.now_us += milliseconds * 1000
        self.core.tick(self.now_us)
        self.carry()

    def purge(self, name: str, user: str | None = None) -> int:
        """Begin to purge a queue; how many messages that is about."""
        queue = self.core.queues.by_name[name]
        waiting = queue.available + len(queue.scheduled)
        self.core.administration.purge(name, user)
        return waiting

    # -- ends ---------------------------------------------------------------------------------------------------------

    def crash(self, starts: int = 0) -> World:
        """kill -9, and a new broker on what is on the disk. `starts`: so many others in between, each of which was
        killed as it started, before its first batch."""
        disk = after_kill(self.disk)
        for _ in range(starts):
            fold = Fold()
            open_store(DATA, self.journal_options, fold, fold.digest, replayed=lambda report: None, disk=disk)
            disk = after_kill(disk)
        return World(self.options, disk=disk, now_us=self.now_us, journal=self.journal_options, sizes=self.sizes)

    def stop(self) -> World:
        """A clean stop, and a new broker."""
        self.core.begin_stop()
        for client in list(self.clients):
            client.server.close()
        self.carry()
        self.core.turn(self.now_us)
        self.core.close(self.now_us)
        while self.sync():
            self.carry()
        close_journal(self.opened.recorder, self.now_us)
        return World(self.options, disk=self.disk, now_us=self.now_us, journal=self.journal_options, sizes=self.sizes)

    def fold(self) -> Fold:
        """What the journal says as it is on the disk, read by a fold of its own."""
        disk = after_kill(self.disk)
        return open_journal(DATA, self.journal_options, disk=disk, clock_us=lambda: self.now_us).fold

    def live_positions(self) -> list[int]:
        """Where the records of all live messages stand, those held by transactions included. Lays out none."""
        life, postings = self.core.life, self.core.transactions.postings
        positions = [message.position for message in life.objects.values()]
        positions += map(postings.position, postings.durable)
        for run in life._runs.values():
            assert run.recorded is not None and len(run.recorded.positions) == run.count
            positions += run.recorded.positions
        for chunk in life.parking.rows._chunks.values():
            positions += filter(None, chunk.positions)
        return positions

    # -- what holds ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """The accounts of every queue, at any moment, and which segments messages are in."""
        core = self.core
        check_accounts(core)
        holdings, positions = core.holdings, self.live_positions()
        assert len(positions) == holdings.live_count
        for info in self.opened.journal.segments:
            if info.sealed:
                assert holdings.occupants(info.number) == sum(position < info.end for position in positions)

    def check_journal(self) -> None:
        """After `settle`: the journal alone says the same of every durable message, and of every id that duplicates
        are detected by, as the broker does."""
        fold = self.fold()
        assert fold.anomalies == []
        recorded, remembered = (
            {address: list(window) for address, window in windows.by_address.items() if len(window)}
            for windows in (fold.table.windows, self.core.duplicates._windows)
        )
        assert recorded == remembered
        life = self.core.life
        alone = (*life.objects, *life.parking.rows.sequences())
        mine = {sequence: self.core.holdings.live(sequence) for sequence in alone}
        for run in life._runs.values():
            mine |= live_in(run)
        assert fold.messages.keys() == mine.keys()
        for sequence, message in mine.items():
            kept = fold.messages[sequence]
            assert message is not None
            for name in ("queue", "fingerprint", "attempt", "expires_at_ms", "due_at_ms", "priority", "posted_us"):
                assert getattr(kept, name) == getattr(message, name), (name, kept, message)
            assert (kept.actor != 0) == (message.actor != 0), (kept, message)
            said, noted = (Notes() if one is None else one for one in (kept.notes, message.notes))
            counts = "returns", "left_counted", "left_uncounted", "attempts"
            assert attrgetter(*counts)(said) == attrgetter(*counts)(noted), (kept, message)


def places(backlog: Backlog) -> list[int]:
    """The sequences of all that wait in a backlog, in no order; nothing is made an object for that."""
    parts = [part for lane in backlog._lanes for part in (lane.line, *lane.blocks, lane.tail)]
    parts += [[message for _, message in lane.returned] for lane in backlog._lanes]
    for part in [part for lane in backlog._lanes for part in (*lane.front, *lane.parts)]:
        parts += [part if isinstance(part, list) else part.laid_out or []]
    objects = [one for part in parts if not isinstance(part, array) for one in part]
    found = [one.sequence for one in objects if one.state is NodeState.AVAILABLE]
    blocks = [part for part in parts if isinstance(part, array)]
    assert not blocks or backlog._parking is not None
    found += [sequence for run in runs_in(backlog) for sequence in run.sequences]
    return found + [one for block in blocks for one in block if backlog._parking and backlog._parking.waits(one)]


def live_in(run: MessageRun) -> dict[int, LiveMessage]:
    """Durable messages of a run as the ledger sees them, the first actor for whoever has them; it is not laid out."""
    assert run.recorded is not None
    actor = 0 if run.holder is None else 1
    times_us = run.times_us or [run.posted_us] * run.count
    columns = zip(run.sequences, run.recorded.positions, run.recorded.fingerprints, times_us, strict=True)
    number, priority = run.queue.number, run.priority
    return {
        sequence: LiveMessage(
            sequence, number, Position(position), mark, DURABLE, 0, posted_us, 0, 0, priority, actor, 0
        )
        for sequence, position, mark, posted_us in columns
    }


def runs_in(backlog: Backlog) -> list[MessageRun]:
    """The runs that wait in a backlog."""
    parts = (part for lane in backlog._lanes for part in (*lane.front, *lane.parts))
    return [part for part in parts if isinstance(part, MessageRun) and part.laid_out is None]


def check_accounts(core: Core) -> None:
    """What a broker counts of its messages is what there is. At any moment between two calls of the core."""
    memory = messages = without_body = 0
    live_bytes = live_count = 0
    for queue in (*core.queues.by_name.values(), *core.removal.queues):
        assert queue.entered - queue.retired == queue.live, (queue, queue.counts)
        assert queue.acquired >= 0
        assert queue.pending >= 0
        assert queue.backlog.count == len(places(queue.backlog))
        memory += queue.memory_bytes
        messages += queue.live
    for run in core.life._runs.values():
        assert run.laid_out is None and run.recorded is not None
        assert run.sequences[-1] - run.sequences[0] == run.count - 1, "else it could hide what is in another run"
        assert run.payload_bytes == sum(fingerprint >> 32 for fingerprint in run.recorded.fingerprints)
        assert not run.rests or run.payload_bytes == run.count * run.shape.rest_at + sum(map(len, run.rests))
        without_body += 0 if run.in_memory else run.count
        live_bytes += run.payload_bytes
        live_count += run.count
    for message in core.life.objects.values():
        live_bytes += 0 if message.flags & COPY else message.size_bytes
        live_count += 1
        without_body += message.body is None
    rows = core.life.parking.rows
    parked = sum(core.life.parking.count(queue) for queue in (*core.queues.by_name.values(), *core.removal.queues))
    assert parked == len(rows)
    for chunk in rows._chunks.values():
        for position, fingerprint, actor, mark in zip(
            chunk.positions, chunk.fingerprints, chunk.actors, chunk.marks, strict=True
        ):
            if position:
                assert not actor
                live_bytes += 0 if mark & COPY else fingerprint >> 32
                live_count += 1
    retirements = {id(one) for transaction in core.transactions for one in transaction.retirements}
    assert all(message.state is NodeState.ACQUIRED for message in core.life.retiring)
    assert all(id(one) in retirements for one in core.life.retiring.values())
    runs = {run.messages for transaction in core.transactions for run in transaction.runs}
    assert core.life.retired_runs.keys() == {run for run in runs if run.recorded is not None}
    assert all(run.laid_out is None for run in runs)
    postings = core.transactions.postings
    assert core.memory.object_bytes == (messages - parked) * OBJECT_BYTES + parked * PARKED_BYTES
    arriving = core._assembly._by_peer  # one of them may be put out, and keep it until its close is answered
    assert all(not peer.engine.closed and count == peer.engine.assembled_bytes for peer, count in arriving.items())
    assert all(peer in arriving for peer in core.connections.all if peer.engine.assembled_bytes)
    elsewhere = postings.memory_bytes + sum(arriving.values()) + core._management.waiting_bytes
    assert core.memory.bytes == memory + without_body * OBJECT_BYTES + parked * PARKED_BYTES + elsewhere
    assert min(memory, postings.memory_bytes) >= 0
    live_bytes += sum(one.fingerprint >> 32 for one in map(postings.live, postings.durable) if one is not None)
    live_count += len(postings.durable)
    assert (core.holdings.live_bytes, core.holdings.live_count) == (live_bytes, live_count)


def after_kill(disk: Disk) -> Disk:
    return disk.after_kill() if isinstance(disk, FaultyDisk) else copy.deepcopy(disk)


def live_of(world: World, name: str) -> int:
    """Messages in a queue; 0 where it is not there."""
    queue = world.core.queues.by_name.get(name)
    return 0 if queue is None else queue.live


def durable(body: object, **fields: object) -> Message:
    """A durable message."""
    return Message(body, durable=True, **fields)  # type: ignore[arg-type]


def posted(
    address: str, *messages: Message, options: BrokerOptions | None = None, journal: JournalOptions = SMALL
) -> tuple[World, Client]:
    """Return a broker whose queue has these messages, and the client that has sent them."""
    world = World(options, journal=journal)
    client = world.client()
    client.post_all(client.sender(address), *messages)
    return world, client


__all__ = [
    "SMALL",
    "START_US",
    "Client",
    "World",
    "after_kill",
    "check_accounts",
    "durable",
    "live_of",
    "places",
    "posted",
]
