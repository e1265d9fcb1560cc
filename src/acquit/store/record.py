"""Records and batches as bytes.

::

    record:  crc u32 | payload bytes u32 | meta bytes u32 | kind u8 | version u8 | flags u16 | event 48 | meta | payload

    batch:   "BTCH" | crc u32 | length u32 | records u32 | epoch u64 | position u64 | synced end u64
             | wall time, microseconds i64 | body bytes u32 | reserved u32 | reserved u32 | header crc u32
             | body (the records) | zeros up to the alignment

All little-endian; both heads are 64 bytes. A record's head and event together fill one cache line.

**Checksums** are CRC-32 (the zlib one: present everywhere, and fast in C). Each is computed over the bulk first and the
head after it: ``crc32(head, crc32(bulk))``. So the CRC of a payload, which the ledger wants in the event anyway as the
message's fingerprint, is also the first half of the record's own, and a message is passed over once for both. For a
batch it means that the event loop can checksum the body before the batch thread knows which segment it goes to.

* record crc: payload, then the record from `payload bytes` to the end of meta.
* batch crc: body and padding, then the batch head from `length` to its end (the header crc included).
* header crc: the batch head from `length` up to it, alone: tells a damaged head from a damaged body, and lets recovery
  believe what the head of a batch says even when its body is torn.

**A batch says where it is.** `epoch` is the segment's random number: what a recycled block holds from an earlier life
does not match. `position` is the batch's own address: a copy of it elsewhere (a misdirected write, or a journal file
somebody sent through the broker as a message) does not match. `synced end` is the end of the last batch that was known
to be synced when this one was made: whatever is damaged before it was not torn, but destroyed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from io import BytesIO
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from acquit.store.interface import ARRAY, ERASED, EVENT_BYTES, EVENTFUL, Erasing, Position, Record, RecordRun


class StoreKind(IntEnum):
    """Record kinds that are the store's own. Kinds below 240 belong to the ledger."""

    LEFT = 240
    """A segment left the recovery set: whatever was live in it and before it has been appended again before here.
    meta: segment number u64; payload: the summary of its seal."""
    DELETED = 241
    """Segments up to this one were deleted by retention. meta: `DeletedSegment`; payload: the summary of its seal."""
    ERASED = 242
    """An archived segment's payloads are erased. meta: `ErasedSegment`. Flagged SKIPPABLE."""
    TURNED = 243
    """Closes a segment: this record is the first of the batch that begins the next. Flagged SKIPPABLE."""


RECORD_HEAD_BYTES: Final = 64
_CRC: Final = Struct("<I")
_HEAD_AFTER_CRC: Final = Struct("<IIBBH48s")
_HEAD: Final = Struct("<IIIBBH48s")
_SIZES: Final = Struct("<III")
_LAYOUT: Final = Struct("<4xIII")
"""Payload bytes, meta bytes; kind, version and flags in one word."""
_EVENT_AT: Final = 16
assert _HEAD.size == RECORD_HEAD_BYTES == _EVENT_AT + EVENT_BYTES

_FLAGS_AT: Final = 14
pack_crc = _CRC.pack
pack_head = _HEAD_AFTER_CRC.pack
"""payload bytes, meta bytes, kind, version, flags, event -> the head without its leading crc."""

BATCH_MAGIC: Final = b"BTCH"
BATCH_HEAD_BYTES: Final = 64
_BATCH: Final = Struct("<4sIIIQQQqIIII")
_BATCH_AFTER_CRC: Final = Struct("<IIQQQqIII")
assert _BATCH.size == BATCH_HEAD_BYTES


class BatchHead(NamedTuple):
    """A batch head, as read back."""

    crc: int
    length: int
    """Bytes of the whole batch, head and padding included."""
    records: int
    epoch: int
    position: Position
    synced_end: Position
    time_us: int
    body_bytes: int


def padding(length: int, alignment: int) -> int:
    """Return how many zeros bring `length` up to a multiple of `alignment`."""
    return -length % alignment


def encode_record(
    kind: int, event: bytes, meta: bytes, payload: bytes, payload_crc: int, flags: int, version: int
) -> tuple[bytes, bytes]:
    """crc, and head with meta; the payload follows them."""
    head = pack_head(len(payload), len(meta), kind, version, flags, event) + meta
    return pack_crc(crc32(head, payload_crc)), head


def encode_batch_head(
    *,
    length: int,
    records: int,
    epoch: int,
    position: int,
    synced_end: int,
    time_us: int,
    body_bytes: int,
    body_crc: int,
) -> bytes:
    """`body_crc` is the CRC-32 of the body and its padding."""
    head = _BATCH_AFTER_CRC.pack(length, records, epoch, position, synced_end, time_us, body_bytes, 0, 0)
    head += pack_crc(crc32(head))
    return BATCH_MAGIC + pack_crc(crc32(head, body_crc)) + head


PIECE_BYTES: Final = 1 << 20
"""Bytes that are copied at once: while one thread copies, no other runs."""


def gathered(parts: Iterable[bytes], in_pieces: bool) -> tuple[BytesIO, int]:
    """Return a batch of these parts, behind room for its head, and their CRC-32. `in_pieces`: some are longer than
    `PIECE_BYTES`.

    A buffer that grows is filled in place, and gives its bytes away without a copy. Other threads run while the CRC of
    a piece is taken: compiled code (docs/native.md) lets them at no other time.
    """
    batch = BytesIO()
    batch.write(bytes(BATCH_HEAD_BYTES))
    if not in_pieces:
        batch.writelines(parts)
        return batch, crc32(batch.getbuffer()[BATCH_HEAD_BYTES:])
    crc = 0
    for part in parts:
        for at in range(0, len(part), PIECE_BYTES):
            piece = memoryview(part)[at : at + PIECE_BYTES]
            batch.write(piece)
            crc = crc32(piece, crc)
    return batch, crc


def copied(data: bytes, start: int, end: int) -> tuple[bytes, int]:
    """Return the bytes from `start` to `end`, copied in pieces likewise, and their CRC-32."""
    if end - start <= PIECE_BYTES:
        copy = data[start:end]
        return copy, crc32(copy)
    grown, crc = BytesIO(), 0
    for at in range(start, end, PIECE_BYTES):
        piece = memoryview(data)[at : min(at + PIECE_BYTES, end)]
        grown.write(piece)
        crc = crc32(piece, crc)
    return grown.getvalue(), crc


def decode_batch_head(data: bytes) -> BatchHead | None:
    """The head at the front of `data`, or None when there is none or it is damaged."""
    if len(data) < BATCH_HEAD_BYTES or data[:4] != BATCH_MAGIC:
        return None
    _, crc, length, records, epoch, position, synced_end, time_us, body, _, _, head_crc = _BATCH.unpack_from(data)
    if crc32(data[8:60]) != head_crc:
        return None
    return BatchHead(crc, length, records, epoch, Position(position), Position(synced_end), time_us, body)


def batch_is_whole(head: BatchHead, data: bytes) -> bool:
    """`data` is the whole batch, head included."""
    return len(data) == head.length and crc32(data[8:64], crc32(memoryview(data)[64:])) == head.crc


class RecordMalformed(ValueError):
    """Bytes that are not a record. Callers know the file and make it StoreCorrupt."""


def runs(head: BatchHead, batch: bytes) -> Iterator[RecordRun]:
    """The records of a whole batch whose checksum was verified, as long as each run can be.

    Raises RecordMalformed when the records do not fill the body exactly: the writer was wrong, not the disk.
    """
    offset = BATCH_HEAD_BYTES
    end = offset + head.body_bytes
    if end > len(batch):
        raise RecordMalformed(f"a batch body of {head.body_bytes} bytes in a batch of {len(batch)}")
    shift = head.position - _EVENT_AT
    unpack_from = _LAYOUT.unpack_from
    likeness = 0
    events: list[int] = []
    metas: list[int] = []
    for _ in range(head.records):
        if offset + RECORD_HEAD_BYTES > end:
            raise RecordMalformed(f"the batch ends within the head of a record, {end - offset} bytes into it")
        payload_bytes, meta_bytes, this = unpack_from(batch, offset)
        following = offset + RECORD_HEAD_BYTES + meta_bytes + payload_bytes
        if following > end:
            raise RecordMalformed(f"a record of {following - offset} bytes, of which {end - offset} are in its batch")
        if this != likeness:
            if events:
                yield _run(likeness, shift, batch, events, metas)
            likeness, events, metas = this, [], []
        events.append(offset + _EVENT_AT)
        metas.append(meta_bytes)
        offset = following
    if offset != end:
        raise RecordMalformed(f"{end - offset} bytes after the last record of a batch")
    if events:
        yield _run(likeness, shift, batch, events, metas)


def _run(likeness: int, shift: int, batch: bytes, events: list[int], metas: list[int]) -> RecordRun:
    return RecordRun(likeness & 0xFF, likeness >> 8 & 0xFF, likeness >> 16, shift, batch, events, metas)


def records_of(run: RecordRun, indexes: Iterable[int] | None = None, *, payloads: bool = True) -> Iterator[Record]:
    """The records of a run one by one, or those of some indexes; without payloads for who has no use for them."""
    new, unpack_from, data = Record._make, _HEAD.unpack_from, run.data
    for index in range(len(run.events)) if indexes is None else indexes:
        at = run.events[index]
        crc, payload_bytes, meta_bytes, kind, version, flags, event = unpack_from(data, at - _EVENT_AT)
        meta_at = at + EVENT_BYTES
        meta_end = meta_at + meta_bytes
        payload = data[meta_end : meta_end + payload_bytes] if payloads else b""
        yield new((run.shift + at, kind, version, flags, event, data[meta_at:meta_end], payload, payload_bytes, crc))


def walk(head: BatchHead, batch: bytes) -> Iterator[Record]:
    """`runs`, as records one by one."""
    for run in runs(head, batch):
        yield from records_of(run)


def erase_payloads(head: BatchHead, batch: bytes, erasing: Erasing) -> bytes:
    """Return a whole batch without the payloads that `erasing` says: as long, each record where it was and flagged.

    A record's checksum stays that of the original, which names it for the audit; the batch's covers what now stands
    there. Twice is once. Raises RecordMalformed as `walk`.
    """
    kept = bytearray(batch)
    for record in walk(head, batch):
        meta = erasing(record)
        if meta is None:
            continue
        offset = record.position - head.position
        payload_at = offset + RECORD_HEAD_BYTES + len(record.meta)
        kept[offset + _FLAGS_AT : offset + _FLAGS_AT + 2] = (record.flags | ERASED).to_bytes(2, "little")
        kept[offset + RECORD_HEAD_BYTES : payload_at] = meta
        kept[payload_at : payload_at + record.payload_bytes] = bytes(record.payload_bytes)
    kept[4:8] = pack_crc(crc32(kept[8:64], crc32(memoryview(kept)[64:])))
    assert len(kept) == len(batch)
    return bytes(kept)


def check_records(head: BatchHead, batch: bytes) -> None:
    """Verify each record's own checksum too: what a read by position will rely on. Raises RecordMalformed.

    What was erased has the checksum of what stood there.
    """
    for record in walk(head, batch):
        if record.flags & ERASED:
            continue
        offset = record.position - head.position
        meta_end = offset + RECORD_HEAD_BYTES + len(record.meta)
        if crc32(batch[offset + 4 : meta_end], crc32(record.payload)) != record.crc:
            raise RecordMalformed(f"the checksum of the record at position {record.position} does not match")


def split_events(batch: bytes, records: int) -> tuple[bytes, list[Record]]:
    """All events of a batch as one array, and the records that tell of no message, without payloads.

    For batches of our own making, or verified by `walk` before: bounds are not checked again.
    """
    offset = BATCH_HEAD_BYTES
    unpack_from = _HEAD.unpack_from
    events: list[bytes] = []
    others: list[Record] = []
    for _ in range(records):
        crc, payload_bytes, meta_bytes, kind, version, flags, event = unpack_from(batch, offset)
        if flags & EVENTFUL:
            if flags & ARRAY:
                events.append(batch[offset + 16 : offset + RECORD_HEAD_BYTES + meta_bytes])
            else:
                events.append(event)
        elif flags & ARRAY:
            events.append(batch[offset + RECORD_HEAD_BYTES : offset + RECORD_HEAD_BYTES + meta_bytes])
        else:
            meta = batch[offset + RECORD_HEAD_BYTES : offset + RECORD_HEAD_BYTES + meta_bytes]
            others.append(Record(Position(0), kind, version, flags, event, meta, b"", payload_bytes, crc))
        offset += RECORD_HEAD_BYTES + meta_bytes + payload_bytes
    return b"".join(events), others


def find_payload(data: bytes, offset: int) -> bytes | None:
    """The payload of the record at `offset`, verified; None where no whole record is there, or not a right one, or it
    was erased."""
    meta_at = offset + RECORD_HEAD_BYTES
    if meta_at > len(data):
        return None
    crc, payload_bytes, meta_bytes = _SIZES.unpack_from(data, offset)
    payload_at = meta_at + meta_bytes
    end = payload_at + payload_bytes
    if end > len(data):
        return None
    payload, payload_crc = copied(data, payload_at, end)
    return payload if crc32(data[offset + 4 : payload_at], payload_crc) == crc else None


def record_bytes(head: bytes) -> int:
    """The size of the record whose first 12 bytes are given."""
    return RECORD_HEAD_BYTES + int.from_bytes(head[4:8], "little") + int.from_bytes(head[8:12], "little")


def decode_record(data: bytes, position: Position) -> Record:
    """The one record that `data` is, verified by its own checksum. Raises RecordMalformed.

    One that was erased has the checksum of what stood there, which tells nothing: it must have zeros for a payload.
    """
    if len(data) < RECORD_HEAD_BYTES or record_bytes(data) != len(data):
        raise RecordMalformed(f"{len(data)} bytes that are not one record")
    crc, payload_bytes, meta_bytes, kind, version, flags, event = _HEAD.unpack_from(data)
    meta_end = RECORD_HEAD_BYTES + meta_bytes
    payload, payload_crc = copied(data, meta_end, len(data))
    if payload.strip(b"\0") if flags & ERASED else crc32(data[4:meta_end], payload_crc) != crc:
        raise RecordMalformed("the record's checksum does not match")
    meta = data[RECORD_HEAD_BYTES:meta_end]
    return Record(position, kind, version, flags, event, meta, payload, payload_bytes, crc)
