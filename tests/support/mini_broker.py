"""A broker without a network, for the tests of journal and ledger.

It posts, acquires, settles, dead-letters, purges, copies forward, and keeps beside its own state what the journal
must say after any crash: a snapshot for each batch. After recovery the state must be exactly one of the snapshots,
and none older than the last batch that was answered (`check_recovered`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from pathlib import Path
from unittest.mock import patch

from acquit.ledger.balance import balance
from acquit.ledger.checkpoint import Checkpointer
from acquit.ledger.events import Event, EventFlag, EventKind, fingerprint, pack_event
from acquit.ledger.fold import Fold
from acquit.ledger.live import CHANGES, LiveMessage, note_attempt
from acquit.ledger.records import (
    FATES_KNOWN,
    Actor,
    Attempt,
    Cause,
    Commit,
    Namespace,
    Queue,
    QueueDeleted,
    RecordKind,
    Rollback,
    State,
    StateDeleted,
    Transaction,
    encode_id,
    encode_posting_meta,
)
from acquit.ledger.recovery import OpenedJournal, close_journal, open_journal
from acquit.store.disk import Disk
from acquit.store.interface import Batch, Journal, Position, Record, RecordRun
from acquit.store.options import JournalOptions
from acquit.store.reading import FolderReader
from acquit.store.record import records_of
from acquit.store.recovery import open_store
from acquit.store.writer import Tail
from acquit.testing.simulation.disk import FaultyDisk

DATA = Path("/data")
FIELDS = attrgetter(*LiveMessage.__slots__)
DURABLE = int(EventFlag.DURABLE)
QUIET = 1_000_000
"""The number of a queue whose messages live long."""
FATE = (Namespace.FATE, bytes(16))
KNOWN = (Namespace.FATE, FATES_KNOWN)
"""Of all transactions here."""
SMALL = JournalOptions(
    segment_bytes=64 * 1024,
    alignment_bytes=512,
    reserve_segments=1,
    spare_segments=0,
    recovery_bytes_max=128 * 1024,
    archive_bytes_max=128 * 1024,
)


def with_empty_segments(disk: FaultyDisk, count: int, *, options: JournalOptions = SMALL) -> FaultyDisk:
    """The disk after so many closed segments without a batch, as earlier versions left one whenever they were killed
    before their first batch."""
    with patch.object(Tail, "vacant", False):
        for _ in range(count + 1):  # the last is not closed yet, and gives its place away
            fold = Fold()
            open_store(DATA, options, fold, fold.digest, replayed=lambda report: None, disk=disk)
            disk = disk.after_kill()
    return disk


class Clock:
    """A wall clock and a monotonic one that move when told, and a little with each look."""

    def __init__(self, step_us: int = 10) -> None:
        self.us = 1_700_000_000_000_000
        self.ahead_us = 0
        """By so much the wall clock is wrong."""
        self._step_us = step_us

    def wall_us(self) -> int:
        self.us += self._step_us
        return self.us + self.ahead_us

    def seconds(self) -> float:
        return self.us / 1e6


@dataclass(slots=True)
class Snapshot:
    """What the fold of the journal must say."""

    messages: dict[int, tuple[object, ...]]
    """The `FIELDS` of each, by sequence."""
    queues: dict[int, str]
    state: dict[tuple[int, bytes], bytes]


@dataclass(slots=True)
class History:
    """What outlives a crash, in the test's memory: the truth."""

    snapshots: dict[int, Snapshot] = field(default_factory=lambda: {0: Snapshot({}, {}, {})})
    """By the position at which a batch ended."""
    answered: int = 0
    """Position up to which somebody was told that it is durable."""
    payloads: dict[int, bytes] = field(default_factory=dict)
    """By sequence."""
    sequences: set[int] = field(default_factory=set)
    """All that were ever used."""


class MiniBroker:
    """See above. Everything happens in the calling thread."""

    def __init__(
        self,
        disk: Disk,
        rng: random.Random,
        *,
        truth: History | None = None,
        options: JournalOptions = SMALL,
        clock: Clock | None = None,
        path: Path = DATA,
    ) -> None:
        self.disk = disk
        self.path = path
        self.rng = rng
        self.clock = clock if clock is not None else Clock()
        self.truth = truth if truth is not None else History()
        self.promised = self.truth.answered
        self.opened: OpenedJournal = open_journal(
            path, options, disk=disk, sequence_block=64, clock_us=self.clock.wall_us, clock_s=self.clock.seconds
        )
        self.journal = self.opened.journal
        self.recorder = self.opened.recorder
        self.messages: dict[int, LiveMessage] = dict(self.opened.fold.messages)
        self.queues = {number: queue.name for number, queue in self.opened.fold.table.queues.items()}
        self.state = {key: state.value for key, state in self.opened.fold.table.state.items()}
        self.transactions = 0
        self.committed: list[int] = []
        self.staying: list[tuple[int, int]] = []
        self.checkpointer = Checkpointer(
            self.recorder,
            self,
            recovery_bytes_max=options.recovery_bytes_max,
            leave_after_us=options.leave_after_us,
            step_records=3,
            step_bytes=4096,
        )
        self._batch: Batch | None = None
        # The run's own first batch is synced, and changes none of this.
        self._note(self.journal.synced)
        self.truth.answered = self.journal.synced

    # -- the truth ----------------------------------------------------------------------------------------------------

    def _note(self, end: int) -> None:
        # A transaction that is open in a crash is rolled back by it.
        messages = {key: FIELDS(message) for key, message in self.messages.items() if not message.transaction}
        self.truth.snapshots[end] = Snapshot(messages, dict(self.queues), dict(self.state))

    # -- what happens -------------------------------------------------------------------------------------------------

    def declare(self, number: int | None = None) -> int:
        number = self.recorder.table.queue_max + 1 if number is None else number
        self.queues[number] = f"queue-{number}"
        self.recorder.append(Queue(self.clock.wall_us(), number, f"queue-{number}", f"address-{number}"))
        return number

    def delete(self, queue: int) -> None:
        for message in [m for m in self.messages.values() if m.queue == queue and not m.transaction]:
            self.retire(message, EventKind.PURGED)
        del self.queues[queue]
        declaration = self.recorder.table.renewed(("queue", queue), self.journal.segments[-1].base, 0)
        if declaration is not None:
            self.recorder.append(declaration)
        self.recorder.append(QueueDeleted(self.clock.wall_us(), queue))

    def post(
        self,
        queue: int,
        payload: bytes,
        *,
        kind: EventKind = EventKind.POSTED,
        origin: int = 0,
        transaction: int = 0,
        essential: bool = False,
    ) -> LiveMessage:
        now = self.clock.wall_us()
        sequence = self.opened.sequences.take(now)
        assert sequence not in self.truth.sequences, "a sequence was used twice"
        due = 5 if self.rng.random() < 0.1 else 0
        meta = encode_posting_meta(b"address", encode_id(f"id-{sequence}"), expires_at_ms=9, due_at_ms=due, priority=3)
        position, mark = self.recorder.posted(
            sequence,
            queue,
            payload,
            meta,
            now,
            kind=EventKind.HELD if transaction else kind,
            origin=origin,
            transaction=transaction,
            essential=essential,
        )
        self.truth.sequences.add(sequence)
        self.truth.payloads[sequence] = payload
        message = LiveMessage(sequence, queue, position, mark, DURABLE, 0, now, 9, due, 3, 0, transaction)
        self.messages[sequence] = message
        return message

    def leave_alone(self, payload: bytes) -> None:
        """Post to a queue of which `act` knows nothing."""
        if QUIET not in self.queues:
            self.declare(QUIET)
        self.post(QUIET, payload)

    def transition(self, message: LiveMessage, kind: EventKind, **fields: int) -> None:
        now = self.clock.wall_us()
        fields.setdefault("attempt", message.attempt)
        self.recorder.transition(kind, message.sequence, message.queue, message.fingerprint, now, **fields)
        if kind in CHANGES:
            CHANGES[kind](message, self.event(message, kind, now, **fields))

    def event(self, message: LiveMessage, kind: EventKind, now: int, **fields: int) -> Event:
        return Event(
            message.sequence,
            fields.get("origin", 0),
            now,
            message.fingerprint,
            message.queue,
            fields.get("actor", 0),
            kind,
            fields.get("flags", DURABLE),
            fields.get("attempt", message.attempt),
            fields.get("transaction", 0),
        )

    def retire(self, message: LiveMessage, kind: EventKind, **fields: int) -> None:
        self.transition(message, kind, **fields)
        del self.messages[message.sequence]

    def dead_letter(self, message: LiveMessage, queue: int) -> None:
        copy_ = self.post(
            queue,
            self.truth.payloads[message.sequence],
            kind=EventKind.DEAD_LETTERED_IN,
            origin=message.sequence,
            essential=True,
        )
        event = self.event(message, EventKind.DEAD_LETTERED, self.clock.wall_us(), origin=copy_.sequence, attempt=1)
        self.recorder.append(Attempt(event, Cause.REJECTED, "amqp:decode-error", "line 3: not JSON"))
        del self.messages[message.sequence]

    def modify(self, message: LiveMessage) -> None:
        event = self.event(
            message,
            EventKind.MODIFIED,
            self.clock.wall_us(),
            attempt=message.attempt + 1,
            origin=7,
            actor=message.actor,
        )
        attempt = Attempt(event, Cause.MODIFIED, "app:busy", "try later", "link@container", b"\xc1\x01\x00")
        self.recorder.append(attempt)
        CHANGES[event.kind](message, event)
        note_attempt(message, attempt)

    def copies(self, message: LiveMessage, queues: Iterable[int]) -> None:
        """The topic posting just made enters more queues."""
        now = self.clock.wall_us()
        packed = []
        for queue in queues:
            sequence = self.opened.sequences.take(now)
            self.truth.sequences.add(sequence)
            self.truth.payloads[sequence] = self.truth.payloads[message.sequence]
            flags = DURABLE | EventFlag.COPY
            event = Event(sequence, message.sequence, now, message.fingerprint, queue, 0, EventKind.POSTED, flags, 0, 0)
            packed.append(pack_event(*event))
            self.messages[sequence] = LiveMessage(
                sequence, queue, message.position, message.fingerprint, flags, 0, now, 9, message.due_at_ms, 3
            )
        self.recorder.copies(b"".join(packed))

    def transact(self, queue: int, count: int, *, commit: bool) -> None:
        """A whole transaction that posts and accepts."""
        self.transactions += 1
        number = self.transactions
        now = self.clock.wall_us()
        self.recorder.append(Transaction(now, number, FATE[1], "user"))
        held = [self.post(queue, b"held %d" % i, transaction=number) for i in range(count)]
        if self.rng.random() < 0.3:
            self.sync()
        if not commit:
            for message in held:
                del self.messages[message.sequence]
            self.recorder.append(Rollback(self.clock.wall_us(), number))
            return
        now = self.clock.wall_us()
        events = []
        for message in held:
            sequence = self.opened.sequences.take(now)
            self.truth.sequences.add(sequence)
            self.truth.payloads[sequence] = self.truth.payloads[message.sequence]
            events.append(
                Event(
                    sequence, message.sequence, now, message.fingerprint, queue, 0, EventKind.POSTED, DURABLE, 0, number
                )
            )
            del self.messages[message.sequence]
            self.messages[sequence] = LiveMessage(
                sequence, queue, message.position, message.fingerprint, DURABLE, 0, now, 9, message.due_at_ms, 3
            )
            self.committed.append(sequence)
        free = [m for m in self.messages.values() if m.queue == queue and not m.actor and m not in held]
        for message in free[:1]:
            if message.sequence not in {event.sequence for event in events}:
                events.append(self.event(message, EventKind.ACCEPTED, now, transaction=number))
                del self.messages[message.sequence]
        self.recorder.append(Commit(now, number, b"".join(pack_event(*event) for event in events)))

    # -- the disk -----------------------------------------------------------------------------------------------------

    def take(self) -> Batch | None:
        """Take a batch, and note what the journal says once it is there."""
        if self._batch is None:
            self._batch = self.recorder.take_batch()
            if self._batch is not None:
                self._note(self._batch.end)
        return self._batch

    def sync(self) -> None:
        batch = self.take()
        if batch is not None:
            batch.write_and_sync(self.answer)
            self.done(batch)

    def done(self, batch: Batch) -> None:
        self._batch = None
        self.journal.complete(batch)

    def answer(self) -> None:
        """Somebody is told: from here on it must never be lost."""
        assert self._batch is not None
        self.truth.answered = self._batch.end

    def chores(self, most: int = 100) -> None:
        for _ in range(most):
            chore = self.journal.take_chore()
            if chore is None:
                return
            chore.run()
            self.journal.complete_chore(chore)

    def checkpoint(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.checkpointer.advance(self.clock.wall_us())
            read = self.checkpointer.take_read()
            if read is not None:
                read.run()
                self.checkpointer.complete_read(read)
        check_left(self.journal, (message.position for message in self.messages.values()))

    def close(self) -> None:
        self.sync()
        close_journal(self.recorder, self.clock.wall_us())
        # The STOP is a batch of its own, and changes nothing.
        self._note(self.journal.synced)
        self.truth.answered = self.journal.synced

    # -- CheckpointOwner ----------------------------------------------------------------------------------------------

    @property
    def live_bytes(self) -> int:
        return sum(message.size_bytes for message in self.messages.values())

    @property
    def live_count(self) -> int:
        return len(self.messages)

    @property
    def last_sequence(self) -> int:
        return self.opened.sequences.last

    def sequences(self) -> Iterable[int]:
        return list(self.messages)

    def take_committed(self) -> Iterable[int]:
        committed, self.committed = self.committed, []
        return committed

    def live(self, sequence: int) -> LiveMessage | None:
        return self.messages.get(sequence)

    def positions(self, sequences: Sequence[int]) -> Sequence[int]:
        return [message.position if (message := self.live(sequence)) else 0 for sequence in sequences]

    def occupants(self, segment: int) -> int:
        end = next(info.end for info in self.journal.segments if info.number == segment)
        return sum(message.position < end for message in self.messages.values())

    def stays(self, segment: int, messages: int) -> None:
        self.staying.append((segment, messages))

    def moved(self, sequence: int, position: Position) -> None:
        self.messages[sequence].position = position

    # -- a life at random ---------------------------------------------------------------------------------------------

    def act(self) -> None:
        """Something happens."""
        rng = self.rng
        queues = sorted(self.queues.keys() - {QUIET})
        if not queues or (len(queues) < 4 and rng.random() < 0.1):
            queues.append(self.declare())
        queue = rng.choice(queues)
        mine = [m for m in self.messages.values() if m.queue == queue and not m.transaction]
        free = [m for m in mine if not m.actor]
        taken = [m for m in mine if m.actor]
        choice = rng.random()
        if len(self.messages) > 12 and choice < 0.25:
            # Crowded: settle rather than post, or nothing would ever leave.
            if taken:
                self.retire(rng.choice(taken), EventKind.ACCEPTED)
                return
            choice = 0.5
        if choice < 0.35 or not mine:
            message = self.post(queue, rng.randbytes(rng.choice((0, 1, 40, 900, 3000))))
            if rng.random() < 0.2:
                self.copies(message, rng.sample(queues, k=min(2, len(queues))))
        elif choice < 0.6 and free:
            self.transition(rng.choice(free), EventKind.ACQUIRED, actor=rng.randint(1, 5))
        elif choice < 0.85 and taken:
            message = rng.choice(taken)
            left = EventFlag.LEFT_BEHIND if message.sequence & 1 else 0
            match rng.randrange(6):
                case 0:
                    self.transition(message, EventKind.RELEASED, flags=DURABLE | left)
                case 1:
                    lost = DURABLE | EventFlag.CONNECTION_LOST | left
                    self.transition(message, EventKind.MODIFIED, attempt=message.attempt + 1, flags=lost)
                case 2:
                    self.modify(message)
                case 3:
                    self.dead_letter(message, rng.choice(queues))
                case _:
                    self.retire(message, EventKind.ACCEPTED, actor=message.actor)
        elif choice < 0.9:
            # Windows of duplicates and losses are no opaque values: test_duplicates.py and test_balance.py have them.
            opaque = [space for space in Namespace if space not in (Namespace.DUPLICATES, Namespace.LOSS)]
            key = (int(rng.choice(opaque)), b"key-%d" % rng.randrange(4))
            if key in self.state and rng.random() < 0.4:
                del self.state[key]
                self.recorder.append(StateDeleted(self.clock.wall_us(), *key))
            else:
                self.state[key] = rng.randbytes(30)
                self.recorder.append(State(self.clock.wall_us(), *key, self.state[key]))
        elif choice < 0.93:
            self.transact(queue, rng.randrange(3), commit=rng.random() < 0.6)
        elif choice < 0.94 and len(queues) > 1 and not any(m.transaction for m in self.messages.values()):
            self.delete(queue)
        elif choice < 0.95:
            number = self.recorder.table.actor_max + 1
            self.recorder.append(Actor(self.clock.wall_us(), number, "container", "link", "user", "address"))
        else:
            self.checkpoint(rng.randrange(4))

    def live_on(self, turns: int, *, sync: float = 0.3, chores: float = 0.2) -> None:
        """Turns of a loop: a few acts, then perhaps a batch, perhaps a chore."""
        unsynced = 0
        for _ in range(turns):
            for _ in range(self.rng.randrange(1, 6)):
                self.act()
            unsynced += 1
            # Sequences are reserved in blocks of 64: no more than that between two syncs.
            if self.rng.random() < sync or unsynced >= 4:
                self.sync()
                unsynced = 0
            while self.rng.random() < chores:
                self.chores(1)


def check_left(journal: Journal, positions: Iterable[int]) -> None:
    """Nothing live stands, at one of `positions`, in a segment that recovery does not read any more."""
    left = [info.end for info in journal.segments if info.number <= journal.left_through]
    if left:
        assert min(positions, default=left[-1]) >= left[-1], "a segment left with something live in it"


def check_recovered(broker: MiniBroker) -> None:
    """Is the state with which this broker began what its predecessors promised, and nothing else?"""
    truth, fold = broker.truth, broker.opened.fold
    end = broker.journal.segments[-1].base
    assert end >= broker.promised, f"the journal ends at {end}; what was answered, at {broker.promised}"
    noted = max(position for position in truth.snapshots if position <= end)
    between = Kinds(noted, end)
    FolderReader(broker.path, broker.disk).replay(between)
    # What opening and closing write by themselves changes nothing, so no snapshot was taken of it.
    assert between.kinds <= {RecordKind.START, RecordKind.RESERVED, RecordKind.STOP}, "within a batch, or invented"
    check_fold(fold, truth, noted)
    for message in broker.messages.values():
        record = broker.journal.read(message.position)
        assert record.payload == truth.payloads[message.sequence]
        assert fingerprint(record.payload) == message.fingerprint


class Kinds:
    """Which kinds of record stand between two positions. A `Replay`."""

    def __init__(self, start: int, end: int) -> None:
        self._start, self._end = start, end
        self.kinds: set[int] = set()

    def segment(self, number: int, base: Position) -> None:
        """Of no interest."""

    def batch(self, runs: Iterator[RecordRun], time_us: int) -> None:
        self.kinds |= {
            record.kind
            for record in chain.from_iterable(map(records_of, runs))
            if self._start <= record.position < self._end and not _is_said_at_a_start(record)
        }

    def sealed(self, summary: bytes) -> None:
        """Of no interest."""


def _is_said_at_a_start(record: Record) -> bool:
    if record.kind != RecordKind.STATE:
        return False
    state = State.decode(record)
    return (state.namespace, state.key) == KNOWN


def _values(state: dict[tuple[int, bytes], State]) -> dict[tuple[int, bytes], bytes]:
    """What is set, but for the fate that follows from other records, and what each start says."""
    return {key: entry.value for key, entry in state.items() if key not in (FATE, KNOWN)}


def check_fold(fold: Fold, truth: History, end: int) -> None:
    """Does the fold of a journal that ends at `end` say what it must?"""
    expected = truth.snapshots[end]
    assert fold.messages.keys() == expected.messages.keys()
    assert {key: FIELDS(message) for key, message in fold.messages.items()} == expected.messages
    assert {number: queue.name for number, queue in fold.table.queues.items()} == expected.queues
    assert _values(fold.table.state) == {
        key: value for key, value in expected.state.items() if key not in (FATE, KNOWN)
    }
    assert fold.anomalies == [], fold.anomalies[:5]
    rows = balance(fold)
    assert rows.balanced, [row.mismatch for row in rows.queues]
