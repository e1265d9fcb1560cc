"""The state of a broker as a fold over its journal.

Recovery and the audit are the same function of the same records, so what the broker starts from and what the ledger
claims cannot differ. The fold is over batches: within one, the order of records does not matter but for this, that a
record never refers to a message posted later in it (`acquit.ledger.recorder` writes postings first).

**Beginning in the middle.** Recovery reads only segments that have not left; the oldest of them may retire messages,
and concern queues, whose records have left. Whatever of that is still alive was written again further on, so a fold
that begins in the middle passes over what it does not know, until it meets the LEFT record of the last segment before
its beginning: from there on it knows everything, and what is unknown is wrong. That record also brings the totals up
to the beginning. A fold that never meets it does not know the state (`incomplete`).

**Anomalies.** A record that does not fit (a message retired twice, a copy of nothing) does not stop a recovery: it
would turn one wrong message into a broker that does not start. It is kept, with its position, up to a bound, and
every reader of the ledger shows it. Records that cannot be read at all do stop it.

Per posting the fold keeps a row of numbers, or a `LiveMessage` (`ledger.live_messages`); bodies stay on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import compress, repeat
from operator import gt, ne
from struct import Struct
from typing import Final

from acquit.errors import StoreCorrupt, StoreError, StoreVersionUnsupported
from acquit.ledger.digest import RunningDigest
from acquit.ledger.duplicates import WindowEntry, read_id_extras, remember, window_id
from acquit.ledger.events import COPY, DISPATCHED, ENTERING, EVENT, RETIRING, Event, EventKind, unpack_event
from acquit.ledger.live import (
    CHANGES,
    LiveMessage,
    Notes,
    enters_with,
    is_attempt,
    let_see_again,
    note_attempt,
    notes_of,
)
from acquit.ledger.live_messages import LiveMessages
from acquit.ledger.records import (
    POSTING_META,
    Attempt,
    Copied,
    CopiedWith,
    Extra,
    Namespace,
    Posting,
    RecordKind,
    Rollback,
    Start,
    StateDeleted,
    Verdict,
    encode_id,
    extra_tags,
)
from acquit.ledger.table import DECODERS, StateTable
from acquit.ledger.totals import QueueTotals, Summary, SummaryRow
from acquit.store.interface import EVENTFUL, SKIPPABLE, Position, Record, RecordRun
from acquit.store.reading import FolderReader, SegmentDeleted
from acquit.store.record import StoreKind, records_of
from acquit.store.segment import DeletedSegment, decode_left

ANOMALIES_MAX: Final = 100
ATTEMPTS: Final = 5
"""Times that a folder is read from the beginning where retention deletes what is to be read."""
_POSTED: Final = int(EventKind.POSTED)
_KNOWN_EVENTS: Final = frozenset(EventKind)
_RECORD_VERSION: Final = 1
_POSTING: Final = Struct("<Q8xqQI4xBBHI" + "qq4xHHB")
"""Fields that are looked at of each posting: of its event, and of `POSTING_META` behind it."""
_IDLE_EXTRAS: Final = frozenset({int(Extra.DUPLICATE_ID), int(Extra.GROUP_ID)})
"""Extras of a posting that by themselves change no state."""


class Fold:
    """The state, and how each record changes it. A `Replay` for the store's recovery and readers."""

    def __init__(self) -> None:
        self.messages = LiveMessages()
        """Messages by sequence: those in queues, and those held by open transactions."""
        self.table = StateTable()
        self.held: dict[int, set[int]] = {}
        """Provisional sequences, by transaction of the last run, of what was posted in it and has not entered."""
        self.delayed_ids: dict[int, bytes] = {}
        """Message-ids, as `records.encode_id` gives them, of what was posted with a delivery time, by sequence. Some of
        it may be gone, or have had its time."""
        self._excluded: dict[str, set[int]] = {}
        """Sequences of messages, by the terminus that shall not see them."""
        self.digest = RunningDigest()
        self.start: Start | None = None
        """Start of the last run."""
        self.written_us = 0
        """Microseconds since the epoch when the last batch was written, by the clock of that moment."""
        self.clean = False
        """The last run ended with a STOP and nothing after it."""
        self.incomplete = False
        self.left_through = 0
        self.deleted: DeletedSegment | None = None
        """The newest segment that retention deleted."""
        self.anomalies: list[str] = []
        """Descriptions of records that did not fit, at most `ANOMALIES_MAX`; `anomaly_count` goes on."""
        self.anomaly_count = 0
        self._first_segment = 0
        self._segment = 0

    # -- what it says -----------------------------------------------------------------------------------------------

    def totals(self) -> dict[int, QueueTotals]:
        """Return the totals by queue number; queue 0 for those that were deleted. Up to the newest seal as that states
        them, whatever the fold itself had counted; from there on as counted."""
        return self.digest.totals()

    def settle(self) -> None:
        """Check, after the last batch of a recovery, that nothing is unknown. Raises StoreCorrupt when the fold began
        in the middle and never learned what was before."""
        if self.incomplete:
            raise StoreCorrupt(
                f"begins with segment {self._first_segment}, and nothing says what was live before it",
                path="journal",
                offset=0,
            )

    def begin_run(self, start: Start) -> list[LiveMessage]:
        """A new run: transactions of the last are rolled back, its links are gone. What those transactions held."""
        dropped = [self.messages[sequence] for held in self.held.values() for sequence in held]
        for number in list(self.held):
            self._drop_held(number)
        self.table.apply(start, Position(0))
        self.start = start
        self.clean = False
        return dropped

    # -- the replay (`acquit.store.interface.Replay`) -----------------------------------------------------------------

    def segment(self, number: int, base: Position) -> None:
        if not self._first_segment:
            self._first_segment = number
            self.incomplete = self.digest.awaits_base = number > 1
            if self.incomplete:
                self.table.windows.begin_in_the_middle()
        self._segment = number

    def batch(self, runs: Iterator[RecordRun], time_us: int) -> None:
        self.written_us = time_us
        for run in runs:
            known = run.version == _RECORD_VERSION
            if known and run.kind == RecordKind.POSTING:
                self._postings(run)
            elif known and run.kind in _APPLIERS:
                apply = _APPLIERS[run.kind]
                for record in records_of(run, payloads=run.kind != RecordKind.COPIED):
                    apply(self, record)
            else:
                self._unknown(run)

    def sealed(self, summary: bytes) -> None:
        stated, own = Summary.decode(summary), self.digest.end_segment()
        for queue in stated.rows.keys() | own.rows.keys():
            theirs, mine = stated.rows.get(queue, SummaryRow()), own.rows.get(queue, SummaryRow())
            # Without what was before, only what the segment itself adds can be compared.
            if theirs.here != mine.here or (theirs != mine and not self.digest.awaits_base):
                self._anomaly(None, f"the seal of segment {self._segment} counts queue {queue} as {theirs}, not {mine}")
        self.digest.go_on_from(stated)

    def _unknown(self, run: RecordRun) -> None:
        if not run.flags & SKIPPABLE:
            raise StoreVersionUnsupported(
                f"record kind {run.kind}, version {run.version}, at position {run.positions[0]}: "
                "written by a later version of acquit"
            )

    def _anomaly(self, position: Position | None, what: str) -> None:
        self.anomaly_count += 1
        if len(self.anomalies) < ANOMALIES_MAX:
            self.anomalies.append(what if position is None else f"position {position}: {what}")

    # -- messages -----------------------------------------------------------------------------------------------------

    def _postings(self, run: RecordRun) -> None:
        """Take together those postings of which a row says all: a start may read millions."""
        shortest = min(run.meta_bytes)
        if shortest < POSTING_META.size:
            raise ValueError(f"a posting with {shortest} bytes of plain fields")
        fields = list(map(_POSTING.unpack_from, repeat(run.data), run.events))
        columns = tuple(zip(*fields, strict=True))
        sequences, times_us, fingerprints, queues, kinds, flags, attempts = columns[:7]
        expiries, dues, address_bytes, id_bytes, priorities = columns[8:]
        marks = [priority << 8 | mark for priority, mark in zip(priorities, flags, strict=True)]
        plain = sequences, run.positions, fingerprints, times_us, queues, marks
        special, ids = _special(run, kinds, (attempts, expiries, dues), address_bytes, id_bytes)
        begin = 0
        for end in (*special, len(fields)):
            if begin < end and not self._take_plain(*(column[begin:end] for column in plain)):
                for index in range(begin, end):
                    self._posting(run, index, *fields[index])
            elif ids:
                for index in filter(ids.__contains__, range(begin, end)):
                    self._remember(run, index, sequences[index], address_bytes[index], *ids[index])
            if end < len(fields):
                self._posting(run, end, *fields[end])
            begin = end + 1

    def _remember(
        self, run: RecordRun, index: int, sequence: int, address_bytes: int, identity: bytes, fingerprint: int
    ) -> None:
        """Remember the id to detect duplicates by of a posting that was taken with others."""
        at = run.events[index]
        address_at = at + EVENT.size + POSTING_META.size
        address = run.data[address_at : address_at + address_bytes].decode()
        entry = WindowEntry(sequence, fingerprint, window_id(identity))
        self.table.windows.remember(address, entry, Position(run.shift + at))

    def _take_plain(
        self,
        sequences: Sequence[int],
        positions: Sequence[int],
        fingerprints: Sequence[int],
        times_us: Sequence[int],
        queues: Sequence[int],
        marks: Sequence[int],
    ) -> bool:
        """Take postings of which a row says all; False, and nothing is changed, where one may be there already."""
        known = not self.messages.objects.keys().isdisjoint(sequences)
        if known or not self.messages.rows.extend(sequences, positions, fingerprints, times_us, queues, marks):
            return False
        here = self.digest.here
        if queues.count(queues[0]) == len(queues):
            here.add_run(_POSTED, queues[0], sequences, fingerprints, times_us)
        else:
            for sequence, fingerprint, time_us, queue in zip(sequences, fingerprints, times_us, queues, strict=True):
                here.add_event(_POSTED, queue, sequence, fingerprint, time_us)
        return True

    def _posting(
        self,
        run: RecordRun,
        index: int,
        sequence: int,
        time_us: int,
        fingerprint: int,
        queue: int,
        kind: int,
        flags: int,
        attempt: int,
        transaction: int,
        expires_at_ms: int,
        due_at_ms: int,
        address_bytes: int,
        id_bytes: int,
        priority: int,
    ) -> None:
        """Take one posting of a run, whatever it is."""
        data, at = run.data, run.events[index]
        position, notes = Position(run.shift + at), None
        end = at + EVENT.size + run.meta_bytes[index]
        id_at = at + EVENT.size + POSTING_META.size + address_bytes
        if not extra_tags(data, id_at + id_bytes, end) <= _IDLE_EXTRAS:
            posting = Posting.decode(*records_of(run, (index,), payloads=False))
            notes = notes_of(posting)
            if kind == _POSTED:
                remember(self.table.windows, posting, position)
        if sequence in self.messages:
            self._anomaly(position, f"message {sequence} is posted, which is live")
        message = LiveMessage(
            sequence,
            queue,
            position,
            fingerprint,
            flags,
            attempt,
            time_us,
            expires_at_ms,
            due_at_ms,
            priority,
            notes=notes,
        )
        if kind != _POSTED:
            self._posted_as(kind, message, transaction)
        self.messages[sequence] = message
        self.digest.here.add_event(kind, queue, sequence, fingerprint, time_us)
        if due_at_ms:
            self._keep_id(sequence, data[id_at : min(id_at + id_bytes, end)])

    def _posted_as(self, kind: int, message: LiveMessage, transaction: int) -> None:
        """Take what a posting says that is not simply posted: a transaction holds it, or it enters by another event."""
        sequence = message.sequence
        if kind == EventKind.HELD:
            message.transaction = transaction
            self.held.setdefault(transaction, set()).add(sequence)
            if transaction not in self.table.transactions and not self.incomplete:
                self._anomaly(
                    message.position, f"message {sequence} is held by transaction {transaction}, which is not open"
                )
        elif kind not in ENTERING:
            if kind not in _KNOWN_EVENTS:
                raise StoreVersionUnsupported(f"event kind {kind}: written by a later version of acquit")
            self._anomaly(message.position, f"message {sequence} is posted by {EventKind(kind).name}")

    def _array(self, record: Record) -> None:
        data = record.event + record.meta if record.flags & EVENTFUL else record.meta
        if len(data) % EVENT.size:
            raise ValueError(f"an event array of {len(data)} bytes")
        self.digest.here.add_events(data)
        drop, acquire = self.messages.drop, self.messages.acquire
        for event in EVENT.iter_unpack(data):
            kind = event[6]
            if kind in RETIRING:
                if not drop(event[0]):
                    self._missing(record, event)
            elif kind == EventKind.ACQUIRED:
                if not acquire(event[0], event[5]):
                    self._missing(record, event)
            elif not self._copy_plain(event):
                self._event(record, Event._make(event))

    def _copy_plain(self, event: tuple[int, ...]) -> bool:
        """`_enter` for a copy of which a row says all, as most of a topic's. False, and nothing is done, for all other
        events."""
        sequence, origin, time_us, _, queue, _, kind, flags, attempt, _ = event
        if kind != _POSTED or not flags & COPY or attempt:
            return False
        return self.messages.add_copy(origin, sequence, queue, time_us, flags)

    def _missing(self, record: Record, event: tuple[int, ...] | Event) -> None:
        if not self.incomplete:
            self._anomaly(record.position, f"{_name(event[6])} of message {event[0]}, which is not live")

    def _event(self, record: Record, event: Event) -> LiveMessage | None:
        """Apply one event; the message that it concerned, if it was there."""
        kind = event.kind
        if kind in RETIRING:
            message = self.messages.pop(event.sequence, None)
        elif kind in ENTERING:
            return self._enter(record, event)
        elif kind in (EventKind.UNROUTED, EventKind.PASSED):
            self._leave_held(event)
            return None
        elif kind in CHANGES:
            message = self.messages.get(event.sequence)
            if message is not None:
                CHANGES[kind](message, event)
        elif kind in _KNOWN_EVENTS:
            return None
        else:
            raise StoreVersionUnsupported(f"event kind {kind}: written by a later version of acquit")
        if message is None:
            self._missing(record, event)
        return message

    def _enter(self, record: Record, event: Event) -> LiveMessage | None:
        """A message enters without a posting of its own: a copy, or one that a transaction held."""
        source = self.messages.look(event.origin)
        if source is None:
            # What a transaction held may have been posted in a segment that left; if it still lives, it was copied.
            if not self.incomplete:
                self._anomaly(record.position, f"message {event.sequence} enters as {event.origin}, which is not there")
            return None
        if not event.flags & COPY:
            del self.messages[event.origin]
            self.held.get(event.transaction, set()).discard(event.origin)
        message = LiveMessage(
            event.sequence,
            event.queue,
            source.position,
            source.fingerprint,
            event.flags,
            event.attempt,
            event.time_us,
            source.expires_at_ms,
            source.due_at_ms,
            source.priority,
            notes=enters_with(source.notes),
        )
        if source.due_at_ms:
            self._keep_id(event.sequence, self.delayed_ids.get(event.origin, b""))
        self.messages[event.sequence] = message
        return message

    def _leave_held(self, event: Event) -> None:
        """Drop a held posting that is committed and enters no queue that is recorded: nothing matches it any more."""
        if event.sequence in self.held.get(event.transaction, ()):
            self.held[event.transaction].discard(event.sequence)
            self.messages.pop(event.sequence, None)

    def _attempt(self, record: Record) -> None:
        attempt = Attempt.decode(record)
        event = attempt.event
        self.digest.here.add_events(record.event)
        before = self.messages.look(event.sequence)
        noted = before is not None and is_attempt(before, event)
        message = self._event(record, event)
        if message is None or event.kind in RETIRING:
            return
        note_attempt(message, attempt, noted=noted)
        if attempt.excluded:
            self._excluded.setdefault(attempt.excluded, set()).add(event.sequence)

    def _keep_id(self, sequence: int, message_id: bytes) -> None:
        ids = self.delayed_ids
        if message_id:
            ids[sequence] = message_id
        if len(ids) > 1_000 + 2 * len(self.messages):
            self.delayed_ids = {kept: id_ for kept, id_ in ids.items() if kept in self.messages}

    def _copied(self, record: Record) -> None:
        copied = Copied.decode(record)
        posting, event = copied.posting, copied.posting.event
        message = LiveMessage(
            event.sequence,
            event.queue,
            record.position,
            event.fingerprint,
            event.flags,
            event.attempt,
            event.time_us,
            posting.expires_at_ms,
            posting.due_at_ms,
            posting.priority,
            event.actor,
            event.transaction,
            notes_of(posting),
        )
        if not self._copied_forward(record, message):
            return
        if message.due_at_ms:
            self._keep_id(event.sequence, encode_id(posting.message_id))
        for terminus in message.notes.excluded if message.notes is not None else ():
            self._excluded.setdefault(terminus, set()).add(event.sequence)

    def _copied_with(self, record: Record) -> None:
        event = CopiedWith.decode(record).event
        base = self.messages.look(event.origin)
        if base is None:
            if not self.incomplete:
                self._anomaly(
                    record.position, f"message {event.sequence} is copied with {event.origin}, which is not live"
                )
            return
        message = LiveMessage(
            event.sequence,
            event.queue,
            base.position,
            event.fingerprint,
            event.flags,
            event.attempt,
            event.time_us,
            base.expires_at_ms,
            base.due_at_ms,
            base.priority,
            event.actor,
            event.transaction,
        )
        self._copied_forward(record, message)

    def _copied_forward(self, record: Record, message: LiveMessage) -> bool:
        """A live message was written again: here is where it stands now. False if it is not live."""
        sequence = message.sequence
        known = self.messages.get(sequence)
        if known is None and not self.incomplete:
            self._anomaly(record.position, f"message {sequence} is copied forward, which is not live")
            return False
        if known is not None:
            _bring_up_to(known, message)
            message.position, position = known.position, message.position
            if message != known:
                self._anomaly(record.position, f"message {sequence} is copied forward as {message}, but is {known}")
            message.position = position
        self.messages[sequence] = message
        if message.transaction:
            self.held.setdefault(message.transaction, set()).add(sequence)
        return True

    # -- transactions, runs, the rest ---------------------------------------------------------------------------------

    def _drop_held(self, transaction: int) -> None:
        for sequence in self.held.pop(transaction, ()):
            self.messages.pop(sequence, None)

    def _commit(self, record: Record) -> None:
        event = unpack_event(record.event)
        number = event.transaction
        open_ = self.table.discharge(number, Verdict.COMMITTED, event.time_us)
        if not open_ and not self.incomplete:
            self._anomaly(record.position, f"transaction {number} commits, which is not open")
        self._array(record)
        if self.held.get(number):
            self._anomaly(record.position, f"transaction {number} commits without all that it held")
        self._drop_held(number)

    def _rollback(self, record: Record) -> None:
        rollback = Rollback.decode(record)
        number = rollback.number
        open_ = self.table.discharge(number, Verdict.ROLLED_BACK, rollback.time_us)
        if not open_ and not self.incomplete:
            self._anomaly(record.position, f"transaction {number} is rolled back, which is not open")
        self._drop_held(number)

    def _start(self, record: Record) -> None:
        self.begin_run(Start.decode(record))

    def _stop(self, record: Record) -> None:
        self.clean = True

    def _set(self, record: Record) -> None:
        self.table.apply(DECODERS[record.kind](record), record.position)
        if record.kind == RecordKind.QUEUE_DELETED:
            self.digest.add_other(record)
        elif record.kind == RecordKind.STATE_DELETED:
            deleted = StateDeleted.decode(record)
            if deleted.namespace == Namespace.TERMINUS:
                terminus = deleted.key.decode()
                for sequence in self._excluded.pop(terminus, ()):
                    message = self.messages.get(sequence)
                    if message is not None:
                        let_see_again(message, terminus)

    def _counters(self, record: Record) -> None:
        self.digest.add_other(record)

    def _left(self, record: Record) -> None:
        number = decode_left(record.meta)
        self.left_through = max(self.left_through, number)
        if number == self._first_segment - 1 and self.incomplete:
            if self.digest.awaits_base:
                self.digest.add_base(Summary.decode(record.payload))
            self.incomplete = False
            self.table.windows.all_known()

    def _deleted(self, record: Record) -> None:
        self.deleted = DeletedSegment.decode(record.meta)


# Of all kinds but POSTING.
_APPLIERS: Final[dict[int, Callable[[Fold, Record], None]]] = {
    RecordKind.START: Fold._start,
    RecordKind.STOP: Fold._stop,
    RecordKind.QUEUE: Fold._set,
    RecordKind.QUEUE_DELETED: Fold._set,
    RecordKind.COPIES: Fold._array,
    RecordKind.TRANSITIONS: Fold._array,
    RecordKind.ATTEMPT: Fold._attempt,
    RecordKind.COUNTERS: Fold._counters,
    RecordKind.RESERVED: Fold._set,
    RecordKind.DISPATCHED: Fold._set,
    RecordKind.ACTOR: Fold._set,
    RecordKind.STATE: Fold._set,
    RecordKind.STATE_DELETED: Fold._set,
    RecordKind.TRANSACTION: Fold._set,
    RecordKind.COMMIT: Fold._commit,
    RecordKind.ROLLBACK: Fold._rollback,
    RecordKind.COPIED: Fold._copied,
    RecordKind.COPIED_WITH: Fold._copied_with,
    StoreKind.LEFT: Fold._left,
    StoreKind.DELETED: Fold._deleted,
}


def _special(
    run: RecordRun,
    kinds: Sequence[int],
    others: Sequence[Sequence[int]],
    address_bytes: Sequence[int],
    id_bytes: Sequence[int],
) -> tuple[list[int], dict[int, tuple[bytes, int]]]:
    """Return the indexes of the postings of a run of which a row does not say all, but for an id to detect duplicates
    by; and the ids of those that have one. `others`: columns of what is 0 for all else."""
    indexes = range(len(run.events))
    ids: dict[int, tuple[bytes, int]] = {}
    special = set(compress(indexes, map(ne, kinds, repeat(_POSTED))))
    special.update(*(compress(indexes, column) for column in others))
    extras_at = [POSTING_META.size + address + id_ for address, id_ in zip(address_bytes, id_bytes, strict=True)]
    for index in compress(indexes, map(gt, run.meta_bytes, extras_at)):
        at = run.events[index] + EVENT.size
        place = at + extras_at[index], at + run.meta_bytes[index]
        told = read_id_extras(run.data, *place)
        if told is not None:
            ids[index] = told
        elif not extra_tags(run.data, *place) <= _IDLE_EXTRAS:
            special.add(index)
    return sorted(special), ids


def _bring_up_to(known: LiveMessage, copied: LiveMessage) -> None:
    """Take over what a copy may say of a message that no event told: after a crash, that it may have been acquired
    before; and that links which it was not for have gone. The first versions did not copy how often a message came back
    uncounted: where a copy does not say it, counting begins anew, as it does for who reads from the copy on."""
    known.flags |= copied.flags & DISPATCHED
    if known.notes is not None:
        said = copied.notes or Notes()
        notes = known.notes._replace(excluded=said.excluded)
        if not said.returns:
            notes = notes._replace(returns=0, left_uncounted=0)
        known.notes = notes if any(notes) else None


def read_fold(reader: FolderReader, *, archive: bool = False) -> Fold:
    """Return the state that the journal in a folder says, as recovery would have it, also while its broker runs.

    `archive`: from the oldest segment that is kept. Raises as `FolderReader.replay`; StoreError where retention deletes
    segments faster than they are read.
    """
    for _ in range(ATTEMPTS):
        fold = Fold()
        try:
            reader.replay(fold, archive=archive)
        except SegmentDeleted:
            continue
        fold.settle()
        return fold
    raise StoreError(f"{reader.folder.path}: retention deleted what was to be read, at each of {ATTEMPTS} attempts")


def _name(kind: int) -> str:
    return EventKind(kind).name if kind in _KNOWN_EVENTS else f"event kind {kind}"
