"""Records that are appended together are those that would be appended one by one, also where a full disk ends them."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

from hypothesis import example, given
from hypothesis import strategies as st

from acquit.errors import StoreFull
from acquit.ledger.recorder import Recorder
from acquit.ledger.table import StateTable
from acquit.store.interface import EVENT_BYTES, Position
from acquit.store.record import RECORD_HEAD_BYTES
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.examples import examples
from tests.support.raw_journal import OPTIONS, Raw

Rows = list[tuple[bytes, bytes, bytes]]
"""Event, meta and payload of each record."""

bulk = st.integers(0, 300).map(bytes) | st.binary(max_size=40)
rows = st.lists(st.tuples(st.binary(min_size=EVENT_BYTES, max_size=EVENT_BYTES), bulk, bulk), max_size=12)
ROWS: Rows = [(bytes(EVENT_BYTES), b"", b"")] * 2


def journal_with_room(room_bytes: int | None) -> Raw:
    """A journal that has so much room for the pending batch, exactly; None: as much as anybody wants."""
    disk = FaultyDisk()
    raw = Raw(disk, options=replace(OPTIONS, archive_bytes_max=0))
    if room_bytes is None:
        raw.append(b"before")
        return raw
    raw.chores()
    disk.capacity_bytes = disk.used_bytes + 2000
    while raw.journal.room_bytes > OPTIONS.segment_bytes:
        raw.put(bytes(900))
        raw.chores()
    assert not raw.journal.full, "postings are still taken"
    raw.append(bytes(raw.journal.room_bytes - room_bytes - RECORD_HEAD_BYTES - len(b"meta")))
    assert raw.journal.room_bytes == room_bytes
    return raw


def written(raw: Raw, positions: list[Position]) -> list[object]:
    """All that the records are, once they are on the disk, and what the journal says of them."""
    journal = raw.journal
    said = [journal.end, journal.pending_bytes, journal.room_bytes]
    raw.sync()
    return [*said, journal.synced, raw.digest.events, [journal.read(position) for position in positions]]


def one_by_one(raw: Raw, given_rows: Rows) -> list[Position]:
    positions: list[Position] = []
    for event, meta, payload in given_rows:
        try:
            positions.append(raw.journal.append(7, event, meta, payload, crc32(payload)))
        except StoreFull:
            break
    return positions


@examples(60)
@given(rows, st.none() | st.integers(0, 2_000))
@example(ROWS, 2 * RECORD_HEAD_BYTES)
@example(ROWS, 2 * RECORD_HEAD_BYTES - 1)
@example(ROWS, RECORD_HEAD_BYTES - 1)
@example(ROWS, 0)
def test_records_appended_together_are_those_one_by_one(given_rows: Rows, room_bytes: int | None) -> None:
    apart, together = journal_with_room(room_bytes), journal_with_room(room_bytes)
    expected = one_by_one(apart, given_rows)
    events, metas, payloads = ([row[at] for row in given_rows] for at in range(3))
    assert together.journal.append_together(7, iter(events), metas, payloads, map(crc32, payloads)) == expected
    # What finds room behind the first that found none is what comes next, not another of these.
    assert together.journal.room_bytes == apart.journal.room_bytes
    assert written(together, expected) == written(apart, expected)


@examples(40)
@given(
    st.lists(st.tuples(bulk, bulk), max_size=12) | st.lists(st.tuples(bulk, bulk), min_size=16, max_size=24),
    st.none() | st.integers(0, 2_000),
    st.integers(0, 2**64 - 25),
)
@example([(b"", bytes(100)), (b"", b"")], 2 * RECORD_HEAD_BYTES, 1)  # the second would find room
@example([(b"", bytes(100)), *[(b"", b"")] * 16], 2 * RECORD_HEAD_BYTES, 1)
def test_postings_recorded_together_are_those_one_by_one(
    postings: list[tuple[bytes, bytes]], room_bytes: int | None, first: int
) -> None:
    apart, together = journal_with_room(room_bytes), journal_with_room(room_bytes)
    metas, payloads = [meta for meta, _ in postings], [payload for _, payload in postings]
    expected: list[tuple[Position, int]] = []
    recorder = Recorder(apart.journal, StateTable())
    for sequence, (meta, payload) in enumerate(postings, first):
        try:
            expected.append(recorder.posted(sequence, 5, payload, meta, 500, actor=6))
        except StoreFull:
            break
    recorder = Recorder(together.journal, StateTable())
    sequences = range(first, first + len(postings))
    fits = recorder.has_room(metas, sum(map(len, payloads)))
    found = recorder.posted_together(sequences, 5, payloads, metas, 500, 6)
    assert not fits or len(found[0]) == len(postings)
    assert list(zip(*found, strict=True)) == expected
    positions = found[0]
    assert written(together, positions) == written(apart, positions)
