"""The fixed-width event."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.ledger.events import (
    ENTERING,
    EVENT,
    EVENT_DTYPE,
    RETIRING,
    Event,
    EventKind,
    fingerprint,
    pack_event,
    pack_events,
    unpack_event,
    unpack_events,
)
from acquit.store.interface import EVENT_BYTES

numpy = pytest.importorskip("numpy")

U64, U32, U16, U8 = (st.integers(0, 2**bits - 1) for bits in (64, 32, 16, 8))
EVENTS = st.builds(Event, U64, U64, st.integers(-(2**63), 2**63 - 1), U64, U32, U32, U8, U8, U16, U32)


@given(st.lists(EVENTS, max_size=5))
def test_an_array_of_events_comes_back(events: list[Event]) -> None:
    data = b"".join(pack_event(*event) for event in events)
    assert len(data) == len(events) * EVENT_BYTES
    assert unpack_events(data) == events
    assert [unpack_event(data[n : n + 48]) for n in range(0, len(data), 48)] == events


@given(st.lists(EVENTS, min_size=1, max_size=5))
def test_numpy_reads_the_same(events: list[Event]) -> None:
    array = numpy.frombuffer(b"".join(pack_event(*event) for event in events), numpy.dtype(list(EVENT_DTYPE)))
    for name in ("sequence", "origin", "time_us", "crc", "size", "queue", "actor", "kind", "flags", "attempt"):
        assert array[name].tolist() == [getattr(event, name) for event in events]
    assert array["transaction"].tolist() == [event.transaction for event in events]


@given(EVENTS, st.lists(st.tuples(U64, U64, U64), max_size=5), st.booleans())
def test_columns_are_packed_as_events_are(alike: Event, rows: list[tuple[int, int, int]], with_origins: bool) -> None:
    rows = [(sequence, origin if with_origins else 0, fingerprint_) for sequence, origin, fingerprint_ in rows]
    sequences, origins, fingerprints = ([row[column] for row in rows] for column in range(3))
    events = [
        alike._replace(sequence=sequence, origin=origin, fingerprint=fingerprint_, attempt=0)
        for sequence, origin, fingerprint_ in rows
    ]
    packed = pack_events(
        sequences,
        fingerprints,
        alike.time_us,
        alike.queue,
        alike.actor,
        alike.kind,
        flags=alike.flags,
        transaction=alike.transaction,
        origins=origins if with_origins else None,
    )
    assert packed == b"".join(pack_event(*event) for event in events)


def test_columns_of_different_lengths() -> None:
    with pytest.raises(ValueError, match="size"):
        pack_events([1, 2], [9], 0, 0, 0, 0)


def test_every_field_is_aligned_to_its_size() -> None:
    dtype = numpy.dtype(list(EVENT_DTYPE))
    assert dtype.itemsize == EVENT.size == EVENT_BYTES
    for name in dtype.names:
        field, offset = dtype.fields[name][:2]
        assert offset % field.itemsize == 0, name


def test_half_an_event() -> None:
    with pytest.raises(struct.error):
        unpack_event(bytes(47))
    with pytest.raises(struct.error):
        unpack_events(bytes(49))


def test_a_fingerprint_is_size_and_crc() -> None:
    mark = fingerprint(b"payload")
    event = Event(1, 0, 0, mark, 1, 0, EventKind.POSTED, 0, 0, 0)
    assert (event.size, event.crc) == (7, crc32(b"payload"))


def test_kinds_keep_their_numbers() -> None:
    """They are on disks."""
    assert {kind.name: int(kind) for kind in EventKind} == {
        "NONE": 0,
        "POSTED": 1,
        "MOVED_IN": 2,
        "DEAD_LETTERED_IN": 3,
        "EXPIRED_IN": 4,
        "ACCEPTED": 16,
        "CONSUMED": 17,
        "DEAD_LETTERED": 18,
        "EXPIRED": 19,
        "DROPPED": 20,
        "DISPLACED": 21,
        "MOVED_OUT": 22,
        "PURGED": 23,
        "LOST_VOLATILE": 24,
        "ACQUIRED": 32,
        "RELEASED": 33,
        "MODIFIED": 34,
        "DUE": 35,
        "SUSPENDED": 36,
        "RESUMED": 37,
        "READ": 38,
        "UNROUTED": 48,
        "DUPLICATE": 49,
        "HELD": 50,
        "ROLLED_BACK": 51,
        "COPIED_FORWARD": 52,
        "PASSED": 53,
    }
    assert {int(kind) for kind in ENTERING} == {1, 2, 3, 4}
    assert {int(kind) for kind in RETIRING} == set(range(16, 25))
