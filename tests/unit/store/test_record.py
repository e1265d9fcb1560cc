"""Records and batches as bytes."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.store import record as record_module
from acquit.store.interface import ARRAY, ERASED, EVENTFUL, Position, Record
from acquit.store.record import (
    BATCH_HEAD_BYTES,
    BATCH_MAGIC,
    PIECE_BYTES,
    RECORD_HEAD_BYTES,
    RecordMalformed,
    batch_is_whole,
    check_records,
    copied,
    decode_batch_head,
    decode_record,
    encode_batch_head,
    encode_record,
    erase_payloads,
    find_payload,
    gathered,
    padding,
    record_bytes,
    records_of,
    runs,
    split_events,
    walk,
)

EVENT = bytes(range(48))

Parts = tuple[int, bytes, bytes, bytes, int]


def record(
    kind: int = 5, event: bytes = EVENT, meta: bytes = b"", payload: bytes = b"", flags: int = EVENTFUL
) -> bytes:
    return b"".join((*encode_record(kind, event, meta, payload, crc32(payload), flags, 1), payload))


def batch(*records: bytes, position: int = 512, epoch: int = 7, synced_end: int = 512) -> bytes:
    body = b"".join(records)
    filled = body + bytes(padding(BATCH_HEAD_BYTES + len(body), 512))
    head = encode_batch_head(
        length=BATCH_HEAD_BYTES + len(filled),
        records=len(records),
        epoch=epoch,
        position=position,
        synced_end=synced_end,
        time_us=123,
        body_bytes=len(body),
        body_crc=crc32(filled),
    )
    return head + filled


@given(
    st.lists(
        st.tuples(
            st.integers(0, 255), st.binary(min_size=48, max_size=48), st.binary(max_size=300), st.binary(max_size=2000)
        ),
        max_size=8,
    )
)
def test_what_goes_in_comes_out(parts: list[tuple[int, bytes, bytes, bytes]]) -> None:
    data = batch(*(record(*part) for part in parts))
    head = decode_batch_head(data)
    assert head is not None
    assert batch_is_whole(head, data)
    assert (head.length, head.records, head.epoch, head.position, head.time_us) == (len(data), len(parts), 7, 512, 123)
    records = list(walk(head, data))
    assert [(r.kind, r.event, r.meta, r.payload) for r in records] == parts
    for found in records:
        offset = found.position - head.position
        size = record_bytes(data[offset : offset + 12])
        assert decode_record(data[offset : offset + size], found.position) == found


@pytest.mark.pure
@given(st.lists(st.binary(max_size=300), max_size=9))
def test_a_batch_is_the_same_in_pieces(parts: list[bytes]) -> None:
    made, crc = gathered(parts, False)
    whole = made.getvalue()
    assert (whole, crc) == (bytes(BATCH_HEAD_BYTES) + b"".join(parts), crc32(b"".join(parts)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_module, "PIECE_BYTES", 7)
        made, in_pieces_crc = gathered(parts, True)
        assert (made.getvalue(), in_pieces_crc) == (whole, crc)
        for end in range(len(whole)):
            assert copied(whole, 3, end) == (whole[3:end], crc32(whole[3:end]))


@pytest.mark.pure
def test_others_may_run_between_the_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is while a checksum is taken, where the code is compiled: so it is taken of each piece."""
    summed: list[int] = []

    def crc(data: bytes, before: int = 0) -> int:
        summed.append(len(data))
        return crc32(data, before)

    monkeypatch.setattr(record_module, "crc32", crc)
    large = bytes(3 * PIECE_BYTES + 1)
    gathered([b"small", large], True)
    assert summed == [5, *[PIECE_BYTES] * 3, 1]
    summed.clear()
    copied(large, 1, len(large))
    assert summed == [PIECE_BYTES] * 3


def test_a_record_begins_right_behind_the_head_of_its_batch() -> None:
    head = decode_batch_head(data := batch(record(meta=b"x"), record()))
    assert head is not None
    first, second = walk(head, data)
    assert first.position == head.position + BATCH_HEAD_BYTES
    assert second.position == first.position + RECORD_HEAD_BYTES + 1


def test_payloads_can_be_left_out_by_kind() -> None:
    head = decode_batch_head(data := batch(record(5, payload=b"abc"), record(6, payload=b"def")))
    assert head is not None
    found = [r for run in runs(head, data) for r in records_of(run, payloads=run.kind != 5)]
    assert [(r.payload, r.payload_bytes) for r in found] == [(b"", 3), (b"def", 3)]
    assert found == [r._replace(payload=b"" if r.kind == 5 else r.payload) for r in walk(head, data)]


@given(st.integers(0, 8 * 600 - 1))
def test_every_flipped_bit_of_a_batch_shows(bit: int) -> None:
    data = bytearray(batch(record(meta=b"meta", payload=b"p" * 400)))
    bit %= len(data) * 8
    data[bit // 8] ^= 1 << bit % 8
    head = decode_batch_head(bytes(data))
    assert head is None or not batch_is_whole(head, bytes(data))


def test_a_head_without_its_body_is_still_believed() -> None:
    data = batch(record(payload=b"p" * 400))
    head = decode_batch_head(data[:BATCH_HEAD_BYTES])
    assert head is not None
    assert not batch_is_whole(head, data[:-1])
    assert not batch_is_whole(head, data[:100] + bytes(len(data) - 100))


@pytest.mark.parametrize("data", [b"", b"BTCH", bytes(64), BATCH_MAGIC + bytes(60), b"\xff" * 64])
def test_no_head(data: bytes) -> None:
    assert decode_batch_head(data) is None


def lying(field: int, value: int) -> bytes:
    """A record whose head claims another length for its payload (field 4) or meta (field 8), with a good batch."""
    data = bytearray(record(meta=b"meta", payload=b"payload"))
    data[field : field + 4] = value.to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize("field", [4, 8])
@pytest.mark.parametrize("value", [0, 1, 2**31, 2**32 - 1])
def test_a_record_that_lies_about_its_length(field: int, value: int) -> None:
    data = batch(lying(field, value))
    head = decode_batch_head(data)
    assert head is not None
    with pytest.raises(RecordMalformed):
        list(walk(head, data))


def test_more_records_than_there_are() -> None:
    body = record()
    filled = body + bytes(padding(BATCH_HEAD_BYTES + len(body), 512))
    for records, body_bytes in ((2, len(body)), (0, len(body)), (1, len(body) - 1), (1, 5000)):
        head = encode_batch_head(
            length=BATCH_HEAD_BYTES + len(filled),
            records=records,
            epoch=1,
            position=0,
            synced_end=0,
            time_us=0,
            body_bytes=body_bytes,
            body_crc=crc32(filled),
        )
        decoded = decode_batch_head(head)
        assert decoded is not None
        with pytest.raises(RecordMalformed):
            list(walk(decoded, head + filled))


@pytest.mark.parametrize("cut", [0, 5, 63, 64, 70])
def test_half_a_record(cut: int) -> None:
    with pytest.raises(RecordMalformed):
        decode_record(record(payload=b"payload")[:cut], Position(0))


def test_a_spoiled_record() -> None:
    data = bytearray(record(meta=b"meta", payload=b"payload"))
    data[-1] ^= 1
    with pytest.raises(RecordMalformed, match="checksum"):
        decode_record(bytes(data), Position(0))


def test_a_payload_is_found_where_a_whole_and_right_record_is() -> None:
    data = b"before" + record(payload=b"payload", meta=b"meta")
    assert find_payload(data + b"after", 6) == b"payload"
    assert find_payload(b"before" + record(payload=b""), 6) == b""
    for cut in range(len(data)):
        assert find_payload(data[:cut], 6) is None
    for at in range(6, len(data)):
        spoiled = bytearray(data)
        spoiled[at] ^= 0x40
        assert find_payload(bytes(spoiled), 6) is None


def test_events_are_gathered_as_one_array() -> None:
    one, two, three = (bytes([n]) * 48 for n in (1, 2, 3))
    plain = record(3, event=two, meta=b"name", flags=0)
    data = batch(
        record(5, event=one, meta=b"fields", payload=b"body"),
        record(7, event=two, meta=three + one, flags=EVENTFUL | ARRAY),
        plain,
        record(16, event=one, meta=three, flags=ARRAY),
    )
    events, others = split_events(data, 4)
    assert events == one + two + three + one + three
    assert [(r.kind, r.event, r.meta, r.payload) for r in others] == [(3, two, b"name", b"")]


def without(record: Record) -> bytes | None:
    return b"META" if record.kind == 5 else None


def test_payloads_are_erased_in_their_places() -> None:
    data = batch(
        *(record(kind, meta=b"meta", payload=body) for kind, body in ((5, b"a"), (9, b"other"), (5, b"x" * 700)))
    )
    head = decode_batch_head(data)
    assert head is not None
    kept = erase_payloads(head, data, without)
    again = decode_batch_head(kept)
    assert again is not None and batch_is_whole(again, kept) and len(kept) == len(data)
    check_records(again, kept)
    before, after = list(walk(head, data)), list(walk(again, kept))
    erased = [one._replace(flags=EVENTFUL | ERASED, meta=b"META", payload=bytes(one.payload_bytes)) for one in before]
    assert after == [erased[0], before[1], erased[2]], "the same places, sizes and checksums"
    assert erase_payloads(again, kept, without) == kept
    assert [find_payload(kept, one.position - head.position) for one in after] == [None, b"other", None]
    size = record_bytes(kept[BATCH_HEAD_BYTES : BATCH_HEAD_BYTES + 12])
    found = kept[BATCH_HEAD_BYTES : BATCH_HEAD_BYTES + size]
    assert decode_record(found, after[0].position) == after[0]
    with pytest.raises(RecordMalformed, match="checksum"):
        decode_record(found[:-1] + b"x", after[0].position)
