"""Records of the journal: their kinds, and the plain fields beside the event.

A record is framed by `acquit.store.record`; here it is an event (`acquit.ledger.events`), `meta` and `payload`. Each
kind has one class below with `encode()` and `decode(record)`; postings and transitions, the hot path, are written
through `acquit.ledger.recorder` from prepared pieces. Plain fields are little-endian; texts are UTF-8 behind a 16-bit
length. No AMQP is needed to read any of them: only the payload, the message as it came, is AMQP, and no reader of
the ledger looks into it.

Acquisitions and outcomes of one wake-up are **one** TRANSITIONS record: its event and its meta together are an array
of events, so an acknowledgement costs 48 bytes and no framing.

**Setting, not changing.** Records about anything but messages *set* a state by its key (a queue by number, keyed state
by namespace and key, totals by queue). That is what lets a checkpoint be written in small steps while the broker works
on: wherever a record of it lands, it says how its one key stood at that place in the log.

**What may be added later.** New record kinds flagged `store.interface.SKIPPABLE` are passed over by older readers;
without the flag they refuse the journal, naming the kind. The meta of postings ends in tagged extras: unknown tags
below 0x80 are refused, from 0x80 on ignored. Numbers in this module are never reused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from struct import Struct
from typing import Final, NamedTuple, Protocol, Self
from uuid import UUID
from zlib import crc32

from acquit.errors import StoreVersionUnsupported
from acquit.ledger.events import ATTEMPT_MAX, EVENT, Event, EventKind, pack_event, unpack_event, unpack_events
from acquit.ledger.fields import FieldReader, blob_field, text_field
from acquit.store.interface import ARRAY, EVENTFUL, SKIPPABLE, Record


class RecordKind(IntEnum):
    """Kinds of records, each read in its own way. 240 and up belong to the store (`acquit.store.record.StoreKind`)."""

    START = 1
    STOP = 2
    QUEUE = 3
    QUEUE_DELETED = 4
    POSTING = 5
    COPIES = 6
    """More queues that a message entered: an array of POSTED events flagged COPY, `origin` holding the payload."""
    TRANSITIONS = 7
    """An array of events: whatever happened to messages in one turn of the loop."""
    ATTEMPT = 8
    COUNTERS = 9
    RESERVED = 10
    DISPATCHED = 11
    ACTOR = 12
    STATE = 13
    STATE_DELETED = 14
    TRANSACTION = 15
    COMMIT = 16
    """A commit, whose meta is an array of events; its own event only names the transaction."""
    ROLLBACK = 17
    COPIED = 18
    COPIED_WITH = 19
    """A live message of the same payload as one that was copied forward before: only its event, without the payload."""
    AUDIT = 20


class Entry(Protocol):
    """Any record that is written as a whole: the classes below."""

    def encode(self) -> EncodedRecord: ...


class EncodedRecord(NamedTuple):
    """Arguments of `Journal.append`, in its order: ``journal.append(*encoded)``."""

    kind: int
    event: bytes
    meta: bytes = b""
    payload: bytes = b""
    payload_crc: int = 0
    flags: int = 0


MessageId = str | int | UUID | bytes
"""AMQP 1.0 message ids: string, ulong, uuid, binary (specification 3.2.11 to 3.2.14)."""


def encode_id(value: MessageId | None) -> bytes:
    """Encode an id: letter of its type, plain value; b"" for None. Encodings are equal exactly for equal ids."""
    match value:
        case None:
            return b""
        case str():
            return b"s" + value.encode()
        case bytes():
            return b"b" + value
        case UUID():
            return b"u" + value.bytes
        case int():
            return b"n" + value.to_bytes(8, "big")


def decode_id(data: bytes) -> MessageId | None:
    """Raises ValueError for bytes that `encode_id` does not give."""
    if not data:
        return None
    tag, value = data[:1], data[1:]
    if tag == b"s":
        return value.decode()
    if tag == b"b":
        return value
    if tag == b"u":
        return UUID(bytes=value)
    if tag == b"n" and len(value) == 8:
        return int.from_bytes(value, "big")
    raise ValueError(f"not a message id: {data[:20]!r}")


def _plain_event(time_us: int, *, sequence: int = 0, queue: int = 0, actor: int = 0, transaction: int = 0) -> bytes:
    """The event of a record that is not about one message."""
    return pack_event(sequence, 0, time_us, 0, queue, actor, EventKind.NONE, 0, 0, transaction)


# -- runs -------------------------------------------------------------------------------------------------------------

_START: Final = Struct("<QB")
_AUDIT: Final = Struct("<Q")


@dataclass(frozen=True, slots=True)
class Start:
    """A process opened the journal."""

    time_us: int
    run: int
    """Random, 64 bits: names the run."""
    clean: bool
    """The run before ended with a STOP."""
    software: str

    def encode(self) -> EncodedRecord:
        meta = _START.pack(self.run, self.clean) + text_field(self.software)
        return EncodedRecord(RecordKind.START, _plain_event(self.time_us), meta)

    @classmethod
    def decode(cls, record: Record) -> Self:
        reader = FieldReader(record.meta)
        run, clean = reader.struct(_START)
        return cls(unpack_event(record.event).time_us, run, bool(clean), reader.text())


@dataclass(frozen=True, slots=True)
class Stop:
    """A clean stop: nothing else of this run follows."""

    time_us: int

    def encode(self) -> EncodedRecord:
        return EncodedRecord(RecordKind.STOP, _plain_event(self.time_us))

    @classmethod
    def decode(cls, record: Record) -> Self:
        return cls(unpack_event(record.event).time_us)


_RESERVED: Final = Struct("<II")


@dataclass(frozen=True, slots=True)
class Reserved:
    """Numbers that may be in use: after any stop, the next run begins above. Synced before use."""

    time_us: int
    up_to: int
    """Sequences."""
    queue_max: int = 0
    actor_max: int = 0

    def encode(self) -> EncodedRecord:
        meta = _RESERVED.pack(self.queue_max, self.actor_max)
        return EncodedRecord(RecordKind.RESERVED, _plain_event(self.time_us, sequence=self.up_to), meta)

    @classmethod
    def decode(cls, record: Record) -> Self:
        event = unpack_event(record.event)
        queue_max, actor_max = FieldReader(record.meta).struct(_RESERVED)
        return cls(event.time_us, event.sequence, queue_max, actor_max)


_DISPATCHED: Final = Struct("<Q")


@dataclass(frozen=True, slots=True)
class Dispatched:
    """Messages of `queue` up to sequence `up_to` may have been acquired in this run. Synced before any message beyond
    the last such mark is handed out: after an unclean stop, the acquisitions themselves may not be on record."""

    time_us: int
    queue: int
    up_to: int
    doubtful: int = 0
    """Sequence up to which an earlier run that stopped uncleanly may have acquired messages: those are offered with
    first-acquirer false."""

    def encode(self) -> EncodedRecord:
        event = _plain_event(self.time_us, sequence=self.up_to, queue=self.queue)
        return EncodedRecord(RecordKind.DISPATCHED, event, _DISPATCHED.pack(self.doubtful))

    @classmethod
    def decode(cls, record: Record) -> Self:
        event = unpack_event(record.event)
        (doubtful,) = FieldReader(record.meta).struct(_DISPATCHED)
        return cls(event.time_us, event.queue, event.sequence, doubtful)


# -- queues, actors, keyed state -------------------------------------------------------------------------------------


class QueueFlag(IntFlag):
    """Flags that say what kind of queue it is."""

    DURABLE = 0x01
    AUTO_CREATED = 0x02
    TEMPORARY = 0x04
    MULTICAST = 0x08
    """A subscription of a topic; otherwise anycast."""
    NON_DESTRUCTIVE = 0x10
    TOPIC = 0x20
    """No queue, but the node that a topic's subscriptions are fed from: what it could not route is counted here."""
    ENDING = 0x40
    """A queue that is being deleted: nobody finds it, and what is still in it is purged, after a restart as well."""


_QUEUE: Final = Struct("<I")


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as it now is; declared again whenever something about it changes."""

    time_us: int
    number: int
    name: str
    address: str
    flags: int = QueueFlag.DURABLE
    fingerprint: bytes = b""
    """Fingerprint of the policy it was made under, to see a change of configuration."""
    properties: bytes = b""
    """The broker's own, opaque here."""
    actor: int = 0

    def encode(self) -> EncodedRecord:
        meta = _QUEUE.pack(self.flags) + text_field(self.name) + text_field(self.address) + blob_field(self.fingerprint)
        event = _plain_event(self.time_us, queue=self.number, actor=self.actor)
        return EncodedRecord(RecordKind.QUEUE, event, meta, self.properties, crc32(self.properties))

    @classmethod
    def decode(cls, record: Record) -> Self:
        event = unpack_event(record.event)
        reader = FieldReader(record.meta)
        (flags,) = reader.struct(_QUEUE)
        name, address, fingerprint = reader.text(), reader.text(), reader.blob()
        return cls(event.time_us, event.queue, name, address, flags, fingerprint, record.payload, event.actor)


@dataclass(frozen=True, slots=True)
class QueueDeleted:
    """The queue is gone. What was in it was purged before, message by message."""

    time_us: int
    number: int
    actor: int = 0

    def encode(self) -> EncodedRecord:
        return EncodedRecord(RecordKind.QUEUE_DELETED, _plain_event(self.time_us, queue=self.number, actor=self.actor))

    @classmethod
    def decode(cls, record: Record) -> Self:
        event = unpack_event(record.event)
        return cls(event.time_us, event.queue, event.actor)


@dataclass(frozen=True, slots=True)
class Actor:
    """The number that events call this link or user by. Numbers grow over the life of the journal."""

    time_us: int
    number: int
    container: str
    link: str
    user: str
    address: str

    def encode(self) -> EncodedRecord:
        meta = b"".join(map(text_field, (self.container, self.link, self.user, self.address)))
        return EncodedRecord(RecordKind.ACTOR, _plain_event(self.time_us, actor=self.number), meta)

    @classmethod
    def decode(cls, record: Record) -> Self:
        event = unpack_event(record.event)
        reader = FieldReader(record.meta)
        return cls(event.time_us, event.actor, reader.text(), reader.text(), reader.text(), reader.text())


@dataclass(frozen=True, slots=True)
class AuditLine:
    """A line of the audit: what an operator did or was refused, or a peer that was not let in. It says nothing of
    messages, and older readers pass over it."""

    time_us: int
    action: str
    """An operation, as ``PURGE acquit:queue``, ``login``, ``attach``; ``suppressed`` for lines that were too many."""
    user: str
    """User who asked; empty for an anonymous one, and for a name that is nobody's."""
    peer: str
    """``host:port``"""
    target: str
    """Name of what it concerns: a queue, a connection, a link, a SASL mechanism."""
    result: str
    """Outcome, as ``purged 5`` or ``refused: 403 ...``."""
    count: int = 1
    """Times that it happened."""

    def encode(self) -> EncodedRecord:
        texts = (self.action, self.user, self.peer, self.target, self.result)
        meta = _AUDIT.pack(self.count) + b"".join(map(text_field, texts))
        return EncodedRecord(RecordKind.AUDIT, _plain_event(self.time_us), meta, flags=SKIPPABLE)

    @classmethod
    def decode(cls, record: Record) -> Self:
        reader = FieldReader(record.meta)
        (count,) = reader.struct(_AUDIT)
        texts = (reader.text(), reader.text(), reader.text(), reader.text(), reader.text())
        return cls(unpack_event(record.event).time_us, *texts, count)


class Namespace(IntEnum):
    """Namespaces of keyed state, by what it is about. The values are the broker's own encodings."""

    SUBSCRIPTION = 1
    TERMINUS = 2
    """Messages that a terminus called undeliverable, by its name."""
    DUPLICATES = 3
    FATE = 4
    """Fates of transactions, by their ids, kept for a bounded time; by `FATES_KNOWN`, how long that is."""
    ADDRESS = 5
    SENDER_MARK = 6
    """The high-water mark of a sender with monotone ids (Spark's sink)."""
    LOSS = 7
    """Messages that are missing, by queue, and that a person went on without (`ledger.balance.accept_losses`)."""
    RESUMABLE = 8
    """Termini that outlive their links, by name, and the delivery-tags that they remember."""
    PAUSE = 9
    """Queues and topics that an operator has paused, by number (u32): for whom (u8), and the user who said so."""


_NAMESPACE: Final = Struct("<H")
_NAMESPACES: Final = frozenset(map(int, Namespace))


def _namespace(reader: FieldReader) -> int:
    """Read a namespace. Raises StoreVersionUnsupported for an unknown one: to pass over it is to lose what it says."""
    number: int = reader.struct(_NAMESPACE)[0]
    if number not in _NAMESPACES:
        raise StoreVersionUnsupported(f"keyed state of namespace {number}: written by a later version of acquit")
    return number


@dataclass(frozen=True, slots=True)
class State:
    """Keyed state is now this value."""

    time_us: int
    namespace: int
    key: bytes
    value: bytes

    def encode(self) -> EncodedRecord:
        meta = _NAMESPACE.pack(self.namespace) + blob_field(self.key)
        return EncodedRecord(RecordKind.STATE, _plain_event(self.time_us), meta, self.value, crc32(self.value))

    @classmethod
    def decode(cls, record: Record) -> Self:
        reader = FieldReader(record.meta)
        return cls(unpack_event(record.event).time_us, _namespace(reader), reader.blob(), record.payload)


@dataclass(frozen=True, slots=True)
class StateDeleted:
    """Keyed state is gone."""

    time_us: int
    namespace: int
    key: bytes

    def encode(self) -> EncodedRecord:
        meta = _NAMESPACE.pack(self.namespace) + blob_field(self.key)
        return EncodedRecord(RecordKind.STATE_DELETED, _plain_event(self.time_us), meta)

    @classmethod
    def decode(cls, record: Record) -> Self:
        reader = FieldReader(record.meta)
        return cls(unpack_event(record.event).time_us, _namespace(reader), reader.blob())


# -- messages ---------------------------------------------------------------------------------------------------------


class Extra(IntEnum):
    """Tags of the optional fields at the end of a posting's meta: tag u8, length u16, bytes."""

    DUPLICATE_ID = 1
    """The id that duplicate detection compares, as `encode_id` gives it."""
    GROUP_ID = 2
    LAST_VALUE_KEY = 3
    ATTEMPTS = 4
    """History of attempts so far, on COPIED, as `encode_attempts` gives it."""
    EXCLUDED = 5
    """Terminus that said undeliverable-here, on COPIED; may repeat."""
    ANNOTATIONS = 6
    """AMQP map that *modified* outcomes merged into the message annotations, on COPIED and ATTEMPT; opaque here."""
    RETURNS = 0x80
    """Times that the message came back uncounted, on COPIED, u32."""
    LEFT_BEHIND = 0x82
    """Counts on COPIED: how many of its delivery-count are no failures, u32, and how many of RETURNS are no releases,
    u32. A message without it has none."""
    BODY_FINGERPRINT = 0x81
    """Size and CRC-32 of the body sections, u64 as in events: the posting's id, DUPLICATE_ID or else the message id, is
    in the window of its address from when it enters (`acquit.ledger.duplicates`)."""


_EXTRA: Final = Struct("<BH")
_EXTRA_IGNORABLE: Final = 0x80


def encode_extras(extras: Iterable[tuple[int, bytes]]) -> bytes:
    """Raises ValueError for a value above 65535 bytes."""
    return b"".join(bytes((tag,)) + blob_field(value) for tag, value in extras)


def _read_extras(reader: FieldReader) -> tuple[tuple[int, bytes], ...]:
    extras = []
    while reader.left:
        tag, length = reader.struct(_EXTRA)
        value = reader.raw(length)
        if tag in Extra._value2member_map_:
            extras.append((tag, value))
        elif tag < _EXTRA_IGNORABLE:
            raise StoreVersionUnsupported(f"a posting with extra field {tag}: written by a later version of acquit")
    return tuple(extras)


def extra_tags(data: bytes, at: int, end: int) -> set[int]:
    """The tags of the extras that begin at `at`; without looking into them, for who reads a million postings."""
    tags = set()
    while at + 3 <= end:
        tags.add(data[at])
        at += 3 + (data[at + 1] | data[at + 2] << 8)
    return tags


POSTING_META: Final = Struct("<qqIHHB3x")
"""expires_at_ms, due_at_ms, message_format, address length, message id length, priority; then address, id, extras."""


def encode_posting_meta(
    address: bytes,
    message_id: bytes,
    *,
    expires_at_ms: int = 0,
    due_at_ms: int = 0,
    message_format: int = 0,
    priority: int = 4,
    extras: bytes = b"",
) -> bytes:
    """The plain fields of a posting. `address` is UTF-8, `message_id` as `encode_id` gives it, both at most 65535
    bytes; times are milliseconds since the epoch, 0 for none; `extras` as `encode_extras` gives them."""
    fixed = POSTING_META.pack(expires_at_ms, due_at_ms, message_format, len(address), len(message_id), priority)
    return fixed + address + message_id + extras


@dataclass(frozen=True, slots=True)
class Posting:
    """A message as it was posted: the event is one of the entering kinds, or HELD."""

    event: Event
    address: str
    message_id: MessageId | None
    expires_at_ms: int
    due_at_ms: int
    message_format: int
    priority: int
    extras: tuple[tuple[int, bytes], ...]

    def encode(self, payload: bytes) -> EncodedRecord:
        meta = encode_posting_meta(
            self.address.encode(),
            encode_id(self.message_id),
            expires_at_ms=self.expires_at_ms,
            due_at_ms=self.due_at_ms,
            message_format=self.message_format,
            priority=self.priority,
            extras=encode_extras(self.extras),
        )
        return EncodedRecord(RecordKind.POSTING, pack_event(*self.event), meta, payload, crc32(payload), EVENTFUL)

    @classmethod
    def decode(cls, record: Record) -> Self:
        return cls.read(unpack_event(record.event), FieldReader(record.meta))

    @classmethod
    def read(cls, event: Event, reader: FieldReader) -> Self:
        expires, due, message_format, address_length, id_length, priority = reader.struct(POSTING_META)
        address = reader.raw(address_length).decode()
        message_id = decode_id(reader.raw(id_length))
        return cls(event, address, message_id, expires, due, message_format, priority, _read_extras(reader))


class Cause(IntEnum):
    """Reasons why an attempt ended; beside the event kind, which says what it meant for the message."""

    REJECTED = 1
    RELEASED = 2
    MODIFIED = 3
    DETACHED = 4
    CONNECTION_LOST = 5
    LOCK_EXPIRED = 6
    RESTART = 7


_ATTEMPT: Final = Struct("<B")


@dataclass(frozen=True, slots=True)
class Attempt:
    """Event with what the consumer said about it: rejected with an error, modified with annotations."""

    event: Event
    cause: int
    condition: str = ""
    description: str = ""
    excluded: str = ""
    """Terminus that shall not see the message again; it goes with UNDELIVERABLE_HERE."""
    annotations: bytes = b""
    """An AMQP map to merge into the message annotations; opaque here."""

    def encode(self) -> EncodedRecord:
        texts = b"".join(map(text_field, (self.condition, self.description, self.excluded)))
        meta = _ATTEMPT.pack(self.cause) + texts
        annotations = self.annotations
        event = pack_event(*self.event._replace(attempt=min(self.event.attempt, ATTEMPT_MAX)))
        return EncodedRecord(RecordKind.ATTEMPT, event, meta, annotations, crc32(annotations), EVENTFUL)

    @classmethod
    def decode(cls, record: Record) -> Self:
        reader = FieldReader(record.meta)
        (cause,) = reader.struct(_ATTEMPT)
        texts = reader.text(), reader.text(), reader.text()
        return cls(unpack_event(record.event), cause, *texts, record.payload)


class AttemptNote(NamedTuple):
    """Failed attempt, as a live message remembers it and as a dead letter tells it."""

    time_us: int
    actor: int
    kind: int
    cause: int
    condition: str
    description: str


_NOTE: Final = Struct("<qIBB")


def encode_attempts(notes: Iterable[AttemptNote]) -> bytes:
    """The value of an ATTEMPTS extra."""
    return b"".join(
        _NOTE.pack(note.time_us, note.actor, note.kind, note.cause)
        + text_field(note.condition)
        + text_field(note.description)
        for note in notes
    )


def decode_attempts(data: bytes) -> tuple[AttemptNote, ...]:
    """Raises ValueError."""
    reader = FieldReader(data)
    notes = []
    while reader.left:
        time_us, actor, kind, cause = reader.struct(_NOTE)
        notes.append(AttemptNote(time_us, actor, kind, cause, reader.text(), reader.text()))
    return tuple(notes)


_COPIED: Final = Struct("<QIBB2x")


@dataclass(frozen=True, slots=True)
class Copied:
    """A live message, rewritten before the segment of its record leaves.

    Its posting's event with kind COPIED_FORWARD: `time_us` is still the posting's, `actor` who holds it acquired (0:
    nobody), `attempt` and the flags as they now are.
    """

    posting: Posting
    original_position: int
    """Position and CRC of the record it was first posted by."""
    original_crc: int
    entered: int
    """The kind it entered by."""
    payload: bytes

    def encode(self) -> EncodedRecord:
        encoded = self.posting.encode(self.payload)
        head = _COPIED.pack(self.original_position, self.original_crc, self.entered, 0)
        return encoded._replace(kind=RecordKind.COPIED, meta=head + encoded.meta, flags=0)

    @classmethod
    def decode(cls, record: Record) -> Self:
        reader = FieldReader(record.meta)
        position, crc, entered, _ = reader.struct(_COPIED)
        return cls(Posting.read(unpack_event(record.event), reader), position, crc, entered, record.payload)


def without_body(record: Record) -> bytes | None:
    """Return the meta of a record as it is when bodies are erased, of the same length; None: it has none. See
    `acquit.store.interface.Erasing`.

    Bodies are the payloads of messages, with all of their sections, and the annotations that consumers merged into
    them.
    """
    if record.kind == RecordKind.ATTEMPT:
        return record.meta
    if record.kind not in (RecordKind.POSTING, RecordKind.COPIED):
        return None
    meta = bytearray(record.meta)
    at = _COPIED.size if record.kind == RecordKind.COPIED else 0
    _, _, _, address_length, id_length, _ = POSTING_META.unpack_from(meta, at)
    at += POSTING_META.size + address_length + id_length
    while at < len(meta):
        tag, length = _EXTRA.unpack_from(meta, at)
        at += _EXTRA.size
        if tag == Extra.ANNOTATIONS:
            meta[at : at + length] = bytes(length)
        at += length
    return bytes(meta)


@dataclass(frozen=True, slots=True)
class CopiedWith:
    """A live message, copied forward beside another copy of the same posting: its payload and its plain fields are
    those of the message that `event.origin` names, which is live at this moment. The event is otherwise as of COPIED.
    """

    event: Event

    def encode(self) -> EncodedRecord:
        return EncodedRecord(RecordKind.COPIED_WITH, pack_event(*self.event))

    @classmethod
    def decode(cls, record: Record) -> Self:
        return cls(unpack_event(record.event))


def encode_events(kind: RecordKind, events: bytes) -> EncodedRecord:
    """Packed events, one or more, as one record, TRANSITIONS or COPIES."""
    return EncodedRecord(kind, events[: EVENT.size], events[EVENT.size :], flags=EVENTFUL | ARRAY)


def decode_events(record: Record) -> list[Event]:
    """Every event of any record that tells of messages. Raises ValueError for an array that is not whole."""
    data = record.event if record.flags & EVENTFUL else b""
    if record.flags & ARRAY:
        data += record.meta
    if len(data) % EVENT.size:
        raise ValueError(f"an event array of {len(data)} bytes")
    return unpack_events(data)


# -- volatile messages -------------------------------------------------------------------------------------

_COUNT: Final = Struct("<IIQ")


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts of events of volatile messages since the last such record of this run: (queue, EventKind, how many)."""

    time_us: int
    counts: tuple[tuple[int, int, int], ...]

    def encode(self) -> EncodedRecord:
        meta = b"".join(_COUNT.pack(*count) for count in self.counts)
        return EncodedRecord(RecordKind.COUNTERS, _plain_event(self.time_us), meta)

    @classmethod
    def decode(cls, record: Record) -> Self:
        if len(record.meta) % _COUNT.size:
            raise ValueError(f"counters of {len(record.meta)} bytes")
        counts = tuple((queue, kind, count) for queue, kind, count in _COUNT.iter_unpack(record.meta))
        return cls(unpack_event(record.event).time_us, counts)


# -- transactions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction began. `number` is what events of this run call it by."""

    time_us: int
    number: int
    txn_id: bytes
    """16 random bytes, never reused."""
    user: str
    actor: int = 0

    def encode(self) -> EncodedRecord:
        event = _plain_event(self.time_us, actor=self.actor, transaction=self.number)
        return EncodedRecord(RecordKind.TRANSACTION, event, blob_field(self.txn_id) + text_field(self.user))

    @classmethod
    def decode(cls, record: Record) -> Self:
        event = unpack_event(record.event)
        reader = FieldReader(record.meta)
        return cls(event.time_us, event.transaction, reader.blob(), reader.text(), event.actor)


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction committed: the events of all it held. Held postings enter under fresh sequences (origin = held)."""

    time_us: int
    number: int
    events: bytes
    """Packed, one behind the other."""

    def encode(self) -> EncodedRecord:
        event = _plain_event(self.time_us, transaction=self.number)
        return EncodedRecord(RecordKind.COMMIT, event, self.events, flags=ARRAY)

    @classmethod
    def decode(cls, record: Record) -> Self:
        head = unpack_event(record.event)
        if len(record.meta) % EVENT.size:
            raise ValueError(f"a commit with {len(record.meta)} bytes of events")
        return cls(head.time_us, head.transaction, record.meta)


@dataclass(frozen=True, slots=True)
class Rollback:
    """A transaction was rolled back: its held postings never enter, its deliveries are as before."""

    time_us: int
    number: int

    def encode(self) -> EncodedRecord:
        return EncodedRecord(RecordKind.ROLLBACK, _plain_event(self.time_us, transaction=self.number))

    @classmethod
    def decode(cls, record: Record) -> Self:
        head = unpack_event(record.event)
        return cls(head.time_us, head.transaction)


class Verdict(IntEnum):
    """Ends that a transaction can come to."""

    COMMITTED = 1
    ROLLED_BACK = 2


FATES_KNOWN: Final = b""
"""A key among those of FATE, which no transaction has: for how long all fates are known. See `encode_known`."""
KNOWN_EVER_US: Final = (1 << 64) - 1
_KNOWN: Final = Struct("<Q")


def encode_known(known_us: int) -> bytes:
    """The value of FATES_KNOWN: a transaction of which nothing is known was not committed in the last so many
    microseconds of the run that set it."""
    return _KNOWN.pack(known_us)


def decode_known(value: bytes) -> int:
    """Raises ValueError."""
    (known_us,) = FieldReader(value).struct(_KNOWN)
    return int(known_us)


def encode_fate(verdict: Verdict, user: str) -> bytes:
    """The value of a FATE, whose key is the txn-id: the verdict as one byte, and whose transaction it was."""
    return bytes((verdict,)) + text_field(user)


def decode_fate(value: bytes) -> tuple[Verdict, str]:
    """Raises ValueError."""
    reader = FieldReader(value)
    return Verdict(reader.raw(1)[0]), reader.text()
