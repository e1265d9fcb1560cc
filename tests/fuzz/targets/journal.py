"""The journal's files: segments, batches, records, seals, side files; and what the ledger makes of the records.

`segment` takes the bytes of a file as they are, so nearly all changes break a checksum: what is accepted must be what a
reader accepts that is written from docs/journal-format.md alone. `records` makes a file whose checksums are right,
whatever its records say.
"""

from __future__ import annotations

import binascii
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID
from zlib import crc32

import numpy as np

from acquit.client.entries import EntryKind, LinkEntries, StoreEntry, apply_entry
from acquit.client.stores import _HEADER, _RECORD, _read_records, _record
from acquit.errors import ConfigurationError, DecodeError, StoreCorrupt, StoreVersionUnsupported
from acquit.ledger.events import EventKind, pack_event
from acquit.ledger.fold import Fold
from acquit.ledger.records import (
    Actor,
    Attempt,
    Commit,
    Copied,
    CopiedWith,
    Counters,
    EncodedRecord,
    Namespace,
    Posting,
    Queue,
    QueueDeleted,
    RecordKind,
    Rollback,
    State,
    StateDeleted,
    Transaction,
    decode_events,
    decode_fate,
    decode_id,
    encode_fate,
    encode_id,
    encode_posting_meta,
)
from acquit.ledger.table import DECODERS
from acquit.ledger.totals import Summary, Totals
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import ACCEPTED
from acquit.spark.ledger.segments import DTYPE, sums_by
from acquit.store.disk import Disk, DiskFile
from acquit.store.folder import Folder, StoreIdentity
from acquit.store.interface import EVENTFUL, Position, Record
from acquit.store.record import (
    RecordMalformed,
    check_records,
    decode_record,
    encode_batch_head,
    encode_record,
    find_payload,
    split_events,
    walk,
)
from acquit.store.recovery import Replayer
from acquit.store.scan import SegmentReader
from acquit.store.segment import (
    HEADER_BYTES,
    DeletedSegment,
    EventsHeader,
    Seal,
    SegmentHeader,
    decode_left,
    decode_seal,
    encode_left,
)
from tests.fuzz.target import Reader, Target
from tests.fuzz.targets.texts import deep_json

ALIGNMENT = 64
EPOCH = 0x1234_5678_9ABC_DEF0
STORE = UUID(int=7)
PATH = Path("/data/journal/1.seg")
HEADER = SegmentHeader(store=STORE, number=1, epoch=EPOCH, base=Position(100_000), created_us=5, alignment=ALIGNMENT)
FRONT = HEADER.encode()


class _File:
    """A file of these bytes. A `DiskFile` to read from."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, length: int, offset: int) -> bytes:
        return self.content[offset : offset + length]

    def size(self) -> int:
        return len(self.content)

    def close(self) -> None:
        pass


class OneFile:
    """A disk with one file. As much of a `Disk` as readers use."""

    def __init__(self, content: bytes, name: str = "") -> None:
        self.content = content
        self.name = name

    def open(self, path: Path, mode: object) -> DiskFile:
        return _File(self.content)  # type: ignore[return-value]

    def names(self, folder: Path) -> list[str]:
        return [self.name]


def one_file(content: bytes, name: str = "") -> Disk:
    return OneFile(content, name)  # type: ignore[return-value]


# -- files as they are ------------------------------------------------------------------------------------------------


def number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def by_the_page(image: bytes) -> tuple[list[bytes], int]:
    """The whole batches of a segment, and where valid bytes end: as docs/journal-format.md says."""
    batches: list[bytes] = []
    at = HEADER_BYTES
    while True:
        head = image[at : at + 64]
        place = HEADER.base + at - HEADER_BYTES
        if len(head) == 64 and head[:4] == b"SEAL":
            length = number(head, 8, 4)
            seal = image[at : at + length]
            right = number(head, 16, 8) == EPOCH and number(head, 24, 8) == 1 and number(head, 32, 8) == place
            right &= length >= 64 + number(head, 12, 4) and len(seal) == length
            if right and binascii.crc32(seal[8:]) == number(head, 4, 4):
                return batches, at + length
        if len(head) < 64 or head[:4] != b"BTCH" or binascii.crc32(head[8:60]) != number(head, 60, 4):
            return batches, at
        if number(head, 16, 8) != EPOCH or number(head, 24, 8) != place:
            return batches, at
        batch = image[at : at + number(head, 8, 4)]
        if len(batch) != number(head, 8, 4) or len(batch) < 64:
            return batches, at
        if binascii.crc32(batch[8:64], binascii.crc32(batch[64:])) != number(head, 4, 4):
            return batches, at
        batches.append(batch)
        at += len(batch)


def segment(data: bytes) -> None:
    """A file, but for its first page, as it is."""
    image = FRONT + data
    with SegmentReader(one_file(image), PATH) as reader:
        found = [batch for _, batch in reader.batches()]
        expected, end = by_the_page(image)
        assert found == expected, "a batch is taken that the page refuses, or the other way round"
        assert reader.offset == end
        assert (reader.seal is None) != (reader.stop is None)
        reader.check_end(newest=True)
        if not found and reader.seal is None:
            raise StoreCorrupt("nothing of it is taken", path="", offset=0)


def record(data: bytes) -> None:
    """One record, as reads by position meet it."""
    payload = find_payload(data, 0)
    if payload is not None:
        payload_at = 64 + number(data, 8, 4)
        assert binascii.crc32(data[4:payload_at], binascii.crc32(payload)) == number(data, 0, 4)
    found = decode_record(data, Position(0))
    meta_end = 64 + number(data, 8, 4)
    if number(data, 14, 2) & 0x1000:  # erased: the checksum is that of what stood there
        assert not data[meta_end:].strip(b"\0") and found.payload == data[meta_end:]
        return
    assert payload == found.payload
    assert binascii.crc32(data[4:meta_end], binascii.crc32(data[meta_end:])) == number(data, 0, 4)
    assert data[64:meta_end] + data[meta_end:] == found.meta + found.payload


# -- files whose checksums are right ----------------------------------------------------------------------------------


def framed(kind: int, event: bytes, meta: bytes, payload: bytes, flags: int, version: int = 1) -> bytes:
    crc, head = encode_record(kind, event, meta, payload, crc32(payload), flags, version)
    return crc + head + payload


def batch_of(records: list[bytes], offset: int, *, length: int | None = None, count: int | None = None) -> bytes:
    """A batch with right checksums. Given `length` and `count`, it claims those."""
    body = b"".join(records)
    padded = body.ljust(-(-(64 + len(body)) // ALIGNMENT) * ALIGNMENT - 64, b"\0")
    if length is not None:
        padded = padded[: max(0, length - 64)].ljust(min(max(0, length - 64), 1 << 12), b"\0")
    place = HEADER.base + offset - HEADER_BYTES
    return (
        encode_batch_head(
            length=64 + len(padded) if length is None else length,
            records=len(records) if count is None else count,
            epoch=EPOCH,
            position=place,
            synced_end=place,
            time_us=9,
            body_bytes=len(body),
            body_crc=crc32(padded),
        )
        + padded
    )


def records(data: bytes) -> None:
    """A list of records in batches, as the ledger and the audit read them."""
    way = Reader(data)
    image = FRONT
    while way.left:
        how = way.number()
        written = []
        for _ in range(how & 7):
            kind, flags, version = way.number(), way.number(2), way.number() & 1 ^ 1
            event = way.block().ljust(48, b"\0")[:48]
            written.append(framed(kind, event, way.take(way.number(2)), way.block(), flags, version))
        length = way.number(2) if how & 8 else None
        count = way.number() if how & 16 else None
        if how & 32:
            seal = Seal(
                epoch=EPOCH,
                number=1,
                end=Position(HEADER.base + len(image) - HEADER_BYTES),
                sealed_us=7,
                cut=0,
                summary=way.block(),
            )
            image += seal.encode(ALIGNMENT)
            break
        image += batch_of(written, len(image), length=length, count=count)
    with SegmentReader(one_file(image), PATH) as reader:
        for head, batch in reader.batches():
            with contextlib.suppress(StoreVersionUnsupported, ValueError):
                alike(head, batch)
    fold = Fold()
    with SegmentReader(one_file(image), PATH) as reader:
        Replayer(fold).segment(reader, 1, STORE)
    fold.settle()


def alike(head: object, batch: bytes) -> None:
    """Events split off as one array are those of the records one by one; so are the sums over them."""
    found = list(walk(head, batch))  # type: ignore[arg-type]
    check_records(head, batch)  # type: ignore[arg-type]
    each = [event for one in found for event in decode_events(one)]
    array, _ = split_events(batch, len(found))
    assert array == b"".join(pack_event(*event) for event in each)
    told = [event for event in each if event.kind < 32]
    totals = Totals()
    totals.add_events(array)
    rows = np.frombuffer(array, DTYPE)
    rows = rows[rows["kind"] < 32]
    keys = rows["queue"].astype(np.uint64) << np.uint64(8) | rows["kind"]
    by_array = sums_by(rows, keys)
    assert sum(count for count, _ in by_array.values()) == len(told)
    for queue, kinds in totals.queues().items():
        for kind, count in kinds.counts.items():
            if kind < 32:
                assert by_array[queue << 8 | kind][0] == count


KINDS: tuple[Callable[[Record], Any], ...] = (
    *DECODERS.values(),
    Posting.decode,
    Attempt.decode,
    Copied.decode,
    CopiedWith.decode,
    Commit.decode,
    Rollback.decode,
    Counters.decode,
)


def entry(data: bytes) -> None:
    """The fields of one record of each kind: what is read is written again, and then read the same."""
    way = Reader(data)
    read = KINDS[way.number() % len(KINDS)]
    flags = way.number(2)
    event = way.block().ljust(48, b"\0")[:48]
    meta, payload = way.take(way.number(2)), way.block()
    found = read(Record(Position(0), 0, 1, flags, event, meta, payload, len(payload), 0))
    kind, event, meta, payload, crc, flags = found.encode(payload) if isinstance(found, Posting) else found.encode()
    assert read(Record(Position(0), kind, 1, flags, event, meta, payload, len(payload), crc)) == found


def small(data: bytes) -> None:
    """The small things: summaries, ids, verdicts, headers of side files, what a deletion keeps."""
    which, rest = data[:1], data[1:]
    match which[0] % 7 if which else 0:
        case 0:
            summary = Summary.decode(rest)
            assert Summary.decode(summary.encode()) == summary
        case 1:
            identity = decode_id(rest)
            assert decode_id(encode_id(identity)) == identity
        case 2:
            verdict, user = decode_fate(rest)
            assert decode_fate(encode_fate(verdict, user)) == (verdict, user)
        case 3:
            header = EventsHeader.decode(rest)
            assert header is None or header.encode() == rest[:128]
        case 4:
            assert DeletedSegment.decode(rest).encode() == rest
        case 5:
            assert encode_left(decode_left(rest)) == rest
        case _:
            seal = decode_seal(rest)
            assert seal is None or decode_seal(seal.encode(ALIGNMENT)) == seal


def first_page(data: bytes) -> None:
    """The page, whose checksum is mended where the first byte is even."""
    page = data[1:].ljust(HEADER_BYTES, b"\0")[:HEADER_BYTES]
    if data[:1] < b"\x80":
        page = page[:-4] + crc32(page[:-4]).to_bytes(4, "little")
    assert SegmentHeader.decode(page, "path").encode()


def identity(data: bytes) -> None:
    """broker.json."""
    found = Folder(Path("/data"), one_file(data, "broker.json")).read_identity()
    assert found is not None
    assert StoreIdentity.decode(json.loads(found.encode())) == found


# -- seeds ------------------------------------------------------------------------------------------------------------


def an_event(kind: EventKind, sequence: int = 5, queue: int = 1) -> bytes:
    return pack_event(sequence, 0, 1_000, 77, queue, 0, kind, 1, 0, 0)


def spelled(one: EncodedRecord) -> bytes:
    """A record as `records` reads it."""
    return (
        bytes((one.kind,))
        + one.flags.to_bytes(2, "big")
        + b"\0"
        + bytes((48,))
        + one.event
        + len(one.meta).to_bytes(2, "big")
        + one.meta
        + bytes((len(one.payload),))
        + one.payload
    )


META = encode_posting_meta(b"address", encode_id("id"))
ENTRIES = (
    Queue(1, 1, "queue", "address").encode(),
    EncodedRecord(RecordKind.POSTING, an_event(EventKind.POSTED), META, b"payload", 0, EVENTFUL),
    EncodedRecord(RecordKind.TRANSITIONS, an_event(EventKind.ACQUIRED), an_event(EventKind.ACCEPTED), b"", 0, 3),
    Actor(1, 7, "container", "link", "user", "address").encode(),
    State(1, Namespace.FATE, bytes(16), b"\1\0\0").encode(),
    StateDeleted(1, Namespace.FATE, bytes(16)).encode(),
    Transaction(1, 3, bytes(16), "user").encode(),
    Rollback(1, 3).encode(),
    QueueDeleted(1, 1).encode(),
    Counters(1, ((1, 2, 3),)).encode(),
)
SEEDS = (
    b"".join(bytes((1,)) + spelled(one) for one in ENTRIES),
    bytes((3,)) + b"".join(map(spelled, ENTRIES[:3])) + bytes((32, len(Summary().encode()))) + Summary().encode(),
)


def written() -> bytes:
    """Two batches and a seal, as they are in a file."""
    image = FRONT
    for some in (ENTRIES[:2], ENTRIES[2:4]):
        image += batch_of([framed(one.kind, one.event, one.meta, one.payload, one.flags) for one in some], len(image))
    end = Position(HEADER.base + len(image) - HEADER_BYTES)
    seal = Seal(epoch=EPOCH, number=1, end=end, sealed_us=7, cut=0, summary=Summary().encode())
    return (image + seal.encode(ALIGNMENT))[HEADER_BYTES:]


ONE = ENTRIES[1]


def deliveries(data: bytes) -> None:
    """A client's file of deliveries: as it is, and in a record whose checksum is right."""
    links: dict[str, LinkEntries] = {}
    size = _RECORD.size - 4
    framed_rightly = crc32(data).to_bytes(4, "little") + data if len(data) >= size else b""
    for file in (data, _HEADER + framed_rightly):
        for found in _read_records(file):
            apply_entry(links, found)


TARGETS = (
    Target(
        "segment",
        segment,
        ("store.scan", "store.segment", "store.chores"),
        (StoreCorrupt,),
        (written(),),
        words=(b"BTCH", b"SEAL", bytes(64)),
    ),
    Target(
        "record",
        record,
        ("store.record",),
        (RecordMalformed,),
        (framed(ONE.kind, ONE.event, ONE.meta, ONE.payload, ONE.flags),),
    ),
    Target(
        "records",
        records,
        ("store.recovery", "ledger.fold", "ledger.events", "ledger.live", "ledger.digest", "spark.ledger.segments"),
        (StoreCorrupt, StoreVersionUnsupported),
        SEEDS,
        steps=10_000,
        steps_per_byte=300,
        words=tuple(map(spelled, ENTRIES)),
        long=(*((b"\1" + spelled(one)) * 60 for one in ENTRIES), (b"\7" + spelled(ENTRIES[2]) * 7) * 12),
    ),
    Target(
        "entry",
        entry,
        ("ledger.records", "ledger.fields", "ledger.table"),
        (StoreVersionUnsupported, ValueError),
        tuple(bytes((place,)) + spelled(one)[1:3] + spelled(one)[4:] for place, one in ((3, ENTRIES[0]), (9, ONE))),
        length_max=300,
    ),
    Target(
        "small",
        small,
        ("ledger.totals", "ledger.history", "ledger.balance"),
        (StoreVersionUnsupported, ValueError),
        (b"\0" + Summary().encode(), b"\1sid", b"\2" + encode_fate(decode_fate(b"\1\0\0")[0], "ada"), b"\5" + bytes(8)),
        length_max=300,
    ),
    Target(
        "deliveries",
        deliveries,
        ("client.stores",),
        (ConfigurationError, DecodeError, ValueError),
        (
            _HEADER + _record(StoreEntry(EntryKind.OUTCOME, "in", b"1.0", encode_composite(ACCEPTED))),
            _record(StoreEntry(EntryKind.SEND, "out", b"t", b"body"))[4:],
        ),
    ),
    Target("first_page", first_page, (), (StoreCorrupt, StoreVersionUnsupported), (b"\0" + FRONT[:200],)),
    Target(
        "identity",
        identity,
        ("store.folder", "store.backup"),
        (StoreCorrupt, StoreVersionUnsupported),
        (StoreIdentity(STORE, "c").encode(),),
        words=(b'"format": 1', b'"check": ', b"NaN", b"[[[["),
        long=deep_json(),
    ),
)
