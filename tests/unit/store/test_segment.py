"""Headers, seals, and the headers of side files."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID
from zlib import crc32

import pytest

from acquit.errors import StoreCorrupt, StoreVersionUnsupported
from acquit.store.interface import Position
from acquit.store.segment import (
    EVENTS_HEADER_BYTES,
    HEADER_BYTES,
    DeletedSegment,
    EventsHeader,
    Seal,
    SegmentHeader,
    decode_left,
    decode_seal,
    decode_seal_head,
    encode_left,
)

STORE = UUID("00112233-4455-6677-8899-aabbccddeeff")
HEADER = SegmentHeader(
    store=STORE,
    number=7,
    epoch=0xDEADBEEF,
    base=Position(1 << 33),
    created_us=1_700_000_000_000_000,
    alignment=4096,
    previous_number=6,
    previous_length=64 << 20,
    previous_sha256=bytes(range(32)),
    previous_cut=12,
)


def test_a_header_comes_back() -> None:
    page = HEADER.encode()
    assert len(page) == HEADER_BYTES
    assert SegmentHeader.decode(page, "x.seg") == HEADER


@pytest.mark.parametrize("bit", [0, 64, 100, 1000, 2000, 8 * 4096 - 1])
def test_a_flipped_bit_in_a_header(bit: int) -> None:
    page = bytearray(HEADER.encode())
    page[bit // 8] ^= 1 << bit % 8
    with pytest.raises(StoreCorrupt, match="x.seg, offset 0"):
        SegmentHeader.decode(bytes(page), "x.seg")


def test_a_short_header() -> None:
    with pytest.raises(StoreCorrupt, match="not a journal segment"):
        SegmentHeader.decode(HEADER.encode()[:100], "x.seg")


def test_a_header_of_another_version() -> None:
    page = bytearray(HEADER.encode())
    page[8] = 2
    page[-4:] = crc32(page[:-4]).to_bytes(4, "little")
    with pytest.raises(StoreVersionUnsupported, match="x.seg has format 2"):
        SegmentHeader.decode(bytes(page), "x.seg")


def seal(summary: bytes = b"summary") -> Seal:
    return Seal(epoch=1, number=7, end=Position(5), sealed_us=9, cut=3, summary=summary)


@pytest.mark.parametrize("summary", [b"", b"x", b"y" * 448, b"z" * 449, b"w" * 100_000])
def test_a_seal_comes_back(summary: bytes) -> None:
    data = seal(summary).encode(512)
    assert len(data) % 512 == 0
    head = decode_seal_head(data)
    assert head is not None
    assert (head.length, head.number, head.end) == (len(data), 7, 5)
    assert decode_seal(data) == seal(summary)


@pytest.mark.parametrize("byte", [0, 5, 9, 20, 70, 511])
def test_a_spoiled_seal(byte: int) -> None:
    data = bytearray(seal().encode(512))
    data[byte] ^= 1
    assert decode_seal(bytes(data)) is None


def test_no_seal() -> None:
    assert decode_seal_head(bytes(64)) is None
    assert decode_seal(b"SEAL") is None
    assert decode_seal(seal().encode(512)[:-1]) is None


def test_the_stores_own_records() -> None:
    deleted = DeletedSegment(7, 100, bytes(32), 1, 2)
    assert DeletedSegment.decode(deleted.encode()) == deleted
    assert decode_left(encode_left(1 << 40)) == 1 << 40


@pytest.mark.parametrize("decode", [DeletedSegment.decode, decode_left])
def test_records_of_another_length_are_refused_as_recovery_expects_it(decode: Callable[[bytes], object]) -> None:
    with pytest.raises(ValueError, match="has 3 bytes, expected"):
        decode(b"abc")


def test_the_header_of_a_side_file() -> None:
    header = EventsHeader(STORE, 7, 1000, bytes(range(32)), Position(77))
    data = header.encode()
    assert len(data) == EVENTS_HEADER_BYTES
    assert EventsHeader.decode(data) == header
    assert EventsHeader.decode(data[:50]) is None
    assert EventsHeader.decode(b"\0" + data[1:]) is None
    assert EventsHeader.decode(data[:20] + b"\x7f" + data[21:]) is None
    other = bytearray(data)
    other[8] = 2
    other[124:] = crc32(other[:124]).to_bytes(4, "little")
    assert EventsHeader.decode(bytes(other)) is None
