"""The events of one planned segment, held to the hash chain before the first of them is given out.

Two ways lead to the same array (`acquit.ledger.events`):

* **full**: the segment is read front to back. Each batch's checksum says where it was altered, and the SHA-256 over
  all of it, against what the plan pinned, whether somebody mended the checksums. Events are split off on the way.
* **quick**: the side file. It must name the hash that the chain names, and its events must have the counts and the
  sums of sequences and fingerprints, for all that entered and all that was retired, that the segment's seal has. A side
  file that is not there, or fails that, is passed over: it is derived, and the segment is read in full.

A segment without a side file by nature (the newest) is always read in full.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from acquit.errors import StoreCorrupt
from acquit.ledger.events import EVENT, EVENT_DTYPE, EventKind
from acquit.ledger.records import Attempt, Cause, MessageId, Posting, RecordKind
from acquit.ledger.totals import HASH_MODULUS, Summary
from acquit.spark.ledger.chain import Segment, SegmentState, open_file, read_seal
from acquit.spark.ledger.names import Names, keep
from acquit.spark.ledger.options import Verify
from acquit.store.folder import EVENTS
from acquit.store.interface import ARRAY, EVENTFUL, Record
from acquit.store.reading import FolderReader
from acquit.store.record import RecordMalformed, split_events, walk
from acquit.store.segment import EVENTS_HEADER_BYTES, HEADER_BYTES, EventsHeader

DTYPE: Final = np.dtype(list(EVENT_DTYPE))
Events = npt.NDArray[np.void]
Mask = npt.NDArray[np.bool_]
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


def entering(events: Events) -> Mask:
    """Return which events bring a message into a queue."""
    return _of_kinds(events, EventKind.POSTED, EventKind.ACCEPTED)


def retiring(events: Events) -> Mask:
    """Return which events take a message out of its queue for good."""
    return _of_kinds(events, EventKind.ACCEPTED, EventKind.ACQUIRED)


def _of_kinds(events: Events, first: EventKind, end: EventKind) -> Mask:
    # One comparison: what is below the first is beyond all others then.
    found: Mask = events["kind"] - np.uint8(first) < end - first
    return found


@dataclass(slots=True)
class Details:
    """Details that records say beside their events, by the index of the event in the segment."""

    postings: dict[int, Posting] = field(default_factory=dict)
    attempts: dict[int, Attempt] = field(default_factory=dict)


def read_events(segment: Segment, verify: Verify, details: Details | None = None) -> Events:
    """All events, in the journal's order; `details` is filled where it is given, and then the segment is read in full.

    Raises StoreCorrupt naming file, offset and segment, StoreError where retention deleted it meanwhile, StoreFailed.
    """
    if segment.length == HEADER_BYTES:  # nothing yet, and the next run may put its own segment in that place
        return np.frombuffer(b"", DTYPE)
    reader = FolderReader(segment.folder)
    if verify is Verify.QUICK and details is None and segment.sha256 and segment.state is not SegmentState.OPEN:
        events = _from_side_file(reader, segment)
        if events is not None:
            return events
    return _from_segment(reader, segment, details)


def _from_segment(reader: FolderReader, planned: Segment, details: Details | None) -> Events:
    parts: list[bytes] = []
    names = Names()
    count = 0
    try:
        opened = reader.open(planned.number, hashing=True)
    except KeyError:
        raise planned.gone() from None
    with opened as segment:
        assert segment.sha256 is not None
        for head, data in segment.batches():
            end = segment.offset + head.length
            try:
                if details is not None:
                    _note_details(walk(head, data), count, details)
                events, others = split_events(data, head.records)
                names.note(others)
            except (RecordMalformed, struct.error, ValueError) as error:
                raise planned.corrupt(str(error), segment.offset) from error
            parts.append(events)
            count += len(events) // EVENT.size
            if end == planned.length:
                break
        else:
            end = segment.offset
        if planned.state is not SegmentState.OPEN and segment.seal is None:
            reason = segment.stop.reason if segment.stop is not None else ""
            raise planned.corrupt(f"altered: {reason or 'a closed segment ends without its seal'}", segment.offset)
        if planned.length and end != planned.length:
            raise planned.corrupt(f"its valid bytes end here, not at {planned.length}", end)
        if planned.sha256 and segment.chained_sha256 != planned.sha256:
            raise planned.corrupt(
                "altered: its SHA-256 is not what its successor says of it; its checksums were mended"
            )
        if segment.seal is not None:
            keep(segment.header, names)
    return np.frombuffer(b"".join(parts), DTYPE)


def _note_details(records: Iterator[Record], index: int, details: Details) -> None:
    for record in records:
        if record.kind == RecordKind.POSTING:
            details.postings[index] = Posting.decode(record)
        elif record.kind == RecordKind.ATTEMPT:
            details.attempts[index] = Attempt.decode(record)
        index += bool(record.flags & EVENTFUL)
        if record.flags & ARRAY:
            index += len(record.meta) // EVENT.size


def _from_side_file(reader: FolderReader, segment: Segment) -> Events | None:
    """None where there is none that can be read and believed."""
    try:
        file = open_file(reader, segment.number, EVENTS)
    except StoreCorrupt:
        return None
    if file is None:
        return None
    try:
        header = EventsHeader.decode(file.read(EVENTS_HEADER_BYTES, 0))
        if header is None or (header.store, header.number, header.sha256) != (
            segment.store,
            segment.number,
            segment.sha256,
        ):
            return None
        data = file.read(header.events * EVENT.size, EVENTS_HEADER_BYTES)
    except OSError:
        return None
    finally:
        file.close()
    if len(data) != header.events * EVENT.size:
        return None
    events = np.frombuffer(data, DTYPE)
    try:
        summary = segment.summary or Summary.decode(read_seal(reader, segment).summary)
    except ValueError as error:
        raise segment.corrupt(f"its summary: {error}", segment.seal_at) from error
    return events if agrees(events, summary) else None


def agrees(events: Events, summary: Summary) -> bool:
    """True if these events have the counts, the times and the sums that the seal has of its segment's."""
    if len(events) != summary.events:
        return False
    stated = {
        (queue, kind): count for queue, row in summary.rows.items() for kind, count in row.here.counts.items() if count
    }
    keys = events["queue"].astype(np.uint64) << np.uint64(8) | events["kind"]
    numbers, counts = np.unique(keys, return_counts=True)
    found = {(int(key) >> 8, int(key) & 0xFF): int(count) for key, count in zip(numbers, counts, strict=True)}
    if found != stated:
        return False
    if len(events) and (events["time_us"].min(), events["time_us"].max()) != (summary.first_us, summary.last_us):
        return False
    rows = [row.here for row in summary.rows.values()]
    return (
        message_sum(events[entering(events)]) == sum(row.entered_sum for row in rows) % HASH_MODULUS
        and message_sum(events[retiring(events)]) == sum(row.retired_sum for row in rows) % HASH_MODULUS
    )


def message_sum(rows: npt.NDArray[np.void]) -> int:
    """The sum of `acquit.ledger.totals.message_hash` over the rows' messages, modulo 2^128."""
    words = _hash_words(rows["sequence"], rows["crc"], rows["size"])
    return sum(int(values.sum(dtype=np.uint64)) << shift for values, shift in words) % HASH_MODULUS


def sums_by(rows: npt.NDArray[np.void], keys: npt.NDArray[Any]) -> dict[int, tuple[int, int]]:
    """Return for each key how many rows it has, and the `message_sum` of these."""
    if not len(rows):
        return {}
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    words = _hash_words(*(np.ascontiguousarray(rows[name])[order] for name in ("sequence", "crc", "size")))
    summed = [(np.add.reduceat(values, starts).tolist(), shift) for values, shift in words]
    counts = np.diff(starts, append=len(rows)).tolist()
    return {
        key: (counts[place], sum(values[place] << shift for values, shift in summed) % HASH_MODULUS)
        for place, key in enumerate(ordered[starts].tolist())
    }


def _hash_words(
    sequences: npt.NDArray[np.uint64], crc: npt.NDArray[np.uint32], size: npt.NDArray[np.uint32]
) -> Iterator[tuple[npt.NDArray[np.uint64], int]]:
    """Yield what each message's hash is the sum of, each to be shifted by so many bits. In halves of 32 bits, whose
    products fit 64 and whose sums, of as many rows as fit into memory, do as well."""
    low, high = sequences & _LOW, sequences >> _HALF
    yield low, 64
    yield high, 96
    checks, sizes = crc.astype(np.uint64), size.astype(np.uint64)
    for half, word, shift in ((low, checks, 0), (low, sizes, 32), (high, checks, 32), (high, sizes, 64)):
        product = half * word
        yield product & _LOW, shift
        yield product >> _HALF, shift + 32


def id_text(value: MessageId | None) -> str | None:
    """Return an id as the format `acquit` writes it: a uuid in its usual form, a number in decimal, binary in hex."""
    return value.hex() if isinstance(value, bytes) else None if value is None else str(value)


CAUSES: Final = {cause.value: cause.name for cause in Cause}
KINDS: Final = {kind.value: kind.name for kind in EventKind}
