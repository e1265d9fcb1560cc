"""Each kind of record, there and back."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.errors import StoreVersionUnsupported
from acquit.ledger.events import EVENT, Event, EventKind, fingerprint, pack_event, unpack_event
from acquit.ledger.records import (
    Actor,
    Attempt,
    AttemptNote,
    AuditLine,
    Cause,
    Commit,
    Copied,
    Counters,
    Dispatched,
    EncodedRecord,
    Entry,
    Extra,
    MessageId,
    Namespace,
    Posting,
    Queue,
    QueueDeleted,
    QueueFlag,
    RecordKind,
    Reserved,
    Rollback,
    Start,
    State,
    StateDeleted,
    Stop,
    Transaction,
    decode_attempts,
    decode_events,
    decode_id,
    encode_attempts,
    encode_events,
    encode_extras,
    encode_id,
    encode_posting_meta,
    without_body,
)
from acquit.store.interface import ARRAY, EVENTFUL, SKIPPABLE, Position, Record

POSTED = Event(7, 0, 1_000_000, fingerprint(b"payload"), 2, 3, EventKind.POSTED, 1, 0, 0)
POSTING = Posting(POSTED, "orders", "id-7", 99, 50, 0, 4, ((Extra.GROUP_ID, b"g"), (Extra.DUPLICATE_ID, b"sdup")))

ENTRIES: list[Entry] = [
    Start(5, 2**64 - 1, True, "acquit 1.0"),
    Stop(5),
    Reserved(5, 2**64 - 1, 7, 9),
    Dispatched(5, 2, 1000, 900),
    Queue(5, 2, "quêue", "address", QueueFlag.DURABLE | QueueFlag.MULTICAST, b"print", b"{}", 3),
    Queue(5, 2**32 - 1, "", ""),
    QueueDeleted(5, 2, 3),
    Actor(5, 3, "container", "link", "user", "address"),
    State(5, Namespace.TERMINUS, b"key", b"value" * 20_000),
    StateDeleted(5, Namespace.FATE, b""),
    Attempt(POSTED._replace(kind=EventKind.DEAD_LETTERED), Cause.REJECTED, "amqp:decode-error", "line 3", "", b"map"),
    Attempt(POSTED._replace(kind=EventKind.MODIFIED), Cause.MODIFIED, excluded="link@container"),
    Counters(5, ((1, EventKind.POSTED, 2**64 - 1), (2, EventKind.CONSUMED, 0))),
    Counters(5, ()),
    Transaction(5, 1, bytes(16), "user", 3),
    Commit(5, 1, pack_event(*POSTED) + pack_event(*POSTED._replace(kind=EventKind.ACCEPTED))),
    Commit(5, 1, b""),
    Rollback(5, 1),
    AuditLine(5, "PURGE acquit:queue", "ada", "127.0.0.1:5", "orders", "purged 5", 2**64 - 1),
    Copied(POSTING, 1 << 40, 0xFFFFFFFF, EventKind.MOVED_IN, b"payload"),
]


def stored(encoded: EncodedRecord) -> Record:
    """As the journal gives it back."""
    assert encoded.payload_crc == crc32(encoded.payload)
    return Record(
        Position(0),
        encoded.kind,
        1,
        encoded.flags,
        encoded.event,
        encoded.meta,
        encoded.payload,
        len(encoded.payload),
        0,
    )


def decoder(entry: Entry) -> Callable[[Record], Entry]:
    decode: Callable[[Record], Entry] = type(entry).decode  # type: ignore[attr-defined]
    return decode


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_there_and_back(entry: Entry) -> None:
    assert decoder(entry)(stored(entry.encode())) == entry


def test_a_posting_there_and_back() -> None:
    encoded = POSTING.encode(b"payload")
    assert encoded.flags == EVENTFUL
    assert Posting.decode(stored(encoded)) == POSTING
    assert decode_events(stored(encoded)) == [POSTED]


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.encode().meta], ids=lambda e: type(e).__name__)
def test_plain_fields_cut_short_are_refused(entry: Entry) -> None:
    record = stored(entry.encode())
    if isinstance(entry, Commit):
        cuts = [n for n in range(len(record.meta)) if n % EVENT.size]
    elif isinstance(entry, Counters):
        cuts = [n for n in range(len(record.meta)) if n % 16]
    elif isinstance(entry, Copied):
        cuts = list(range(20))
    else:
        cuts = list(range(len(record.meta)))
    for cut in cuts:
        with pytest.raises(ValueError, match=r".+"):
            decoder(entry)(record._replace(meta=record.meta[:cut]))


def test_kinds_keep_their_numbers() -> None:
    """They are on disks."""
    assert [int(kind) for kind in RecordKind] == list(range(1, 21))
    assert [RecordKind(number).name for number in (1, 5, 7, 18)] == ["START", "POSTING", "TRANSITIONS", "COPIED"]


TEXTS = st.text(max_size=300)


@given(st.integers(0, 2**62), TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, st.integers(0, 2**64 - 1))
def test_an_audit_line_comes_back_and_older_readers_pass_over_it(
    time_us: int, action: str, user: str, peer: str, target: str, result: str, count: int
) -> None:
    line = AuditLine(time_us, action, user, peer, target, result, count)
    record = stored(line.encode())
    assert record.flags == SKIPPABLE
    assert AuditLine.decode(record) == line


# -- message ids -------------------------------------------------------------------------------------------------------
IDS = st.one_of(st.text(max_size=40), st.binary(max_size=40), st.uuids(), st.integers(0, 2**64 - 1))


@given(IDS)
def test_an_id_comes_back_with_its_type(value: MessageId) -> None:
    back = decode_id(encode_id(value))
    assert back == value
    assert type(back) is type(value)


@given(IDS, IDS)
def test_ids_are_equal_when_their_encodings_are(one: MessageId, other: MessageId) -> None:
    assert (encode_id(one) == encode_id(other)) == (type(one) is type(other) and one == other)


def test_no_id() -> None:
    assert encode_id(None) == b""
    assert decode_id(b"") is None


@pytest.mark.parametrize("data", [b"x", b"n123", b"u123", b"s\xff", b"\0"])
def test_what_is_no_id(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_id(data)


# -- extras ------------------------------------------------------------------------------------------------------------
def posting_with(extras: bytes) -> Record:
    meta = encode_posting_meta(b"orders", encode_id(UUID(int=5)), extras=extras)
    return Record(Position(0), RecordKind.POSTING, 1, EVENTFUL, pack_event(*POSTED), meta, b"", 0, 0)


def test_an_unknown_extra_that_may_be_ignored() -> None:
    record = posting_with(encode_extras([(0xF0, b"of the future"), (Extra.GROUP_ID, b"g")]))
    assert Posting.decode(record).extras == ((Extra.GROUP_ID, b"g"),)


def test_an_unknown_extra_that_may_not() -> None:
    with pytest.raises(StoreVersionUnsupported, match="extra field 127: written by a later version"):
        Posting.decode(posting_with(encode_extras([(0x7F, b"of the future")])))


@pytest.mark.parametrize("extras", [b"\x01", b"\x01\x05", b"\x01\x05\x00abc"])
def test_half_an_extra(extras: bytes) -> None:
    with pytest.raises(ValueError, match="field of"):
        Posting.decode(posting_with(extras))


# -- arrays and attempts -----------------------------------------------------------------------------------------------
def test_an_array_of_events_is_one_record() -> None:
    events = [POSTED._replace(sequence=n) for n in range(1, 4)]
    encoded = encode_events(RecordKind.TRANSITIONS, b"".join(pack_event(*event) for event in events))
    assert encoded.flags == EVENTFUL | ARRAY
    assert unpack_event(encoded.event) == events[0]
    assert decode_events(stored(encoded)) == events


def test_half_an_array() -> None:
    encoded = encode_events(RecordKind.TRANSITIONS, pack_event(*POSTED) * 2)
    with pytest.raises(ValueError, match="95 bytes"):
        decode_events(stored(encoded._replace(meta=encoded.meta[:-1])))
    commit = Commit(5, 1, pack_event(*POSTED)[:-1])
    with pytest.raises(ValueError, match="47 bytes"):
        Commit.decode(stored(commit.encode()))


def test_records_of_no_message_have_no_events() -> None:
    assert decode_events(stored(Queue(5, 2, "name", "address").encode())) == []
    commit = Commit(5, 1, pack_event(*POSTED))
    assert decode_events(stored(commit.encode())) == [POSTED]


@given(
    st.lists(
        st.builds(
            AttemptNote,
            st.integers(-(2**63), 2**63 - 1),
            st.integers(0, 2**32 - 1),
            st.integers(0, 255),
            st.integers(0, 255),
            st.text(max_size=20),
            st.text(max_size=20),
        ),
        max_size=4,
    )
)
def test_attempts_there_and_back(notes: list[AttemptNote]) -> None:
    assert decode_attempts(encode_attempts(notes)) == tuple(notes)


def test_what_is_left_without_bodies() -> None:
    annotations = b"\xc1\x07\x02\xa1\x01k\xa1\x01v"
    extras = ((Extra.GROUP_ID, b"sg"), (Extra.ANNOTATIONS, annotations), (Extra.RETURNS, b"\x01\0\0\0"))
    posting = Posting(POSTED, "orders", "id", 1, 2, 3, 5, extras)
    blank = ((Extra.GROUP_ID, b"sg"), (Extra.ANNOTATIONS, bytes(len(annotations))), (Extra.RETURNS, b"\x01\0\0\0"))
    for entry, kind in (
        (posting.encode(b"body"), RecordKind.POSTING),
        (Copied(posting, 7, 8, 1, b"body").encode(), 18),
    ):
        record = stored(entry)
        meta = without_body(record)
        assert meta is not None and len(meta) == len(record.meta) and record.kind == kind
        kept = record._replace(meta=meta, payload=b"")
        read = Posting.decode(kept) if kind == RecordKind.POSTING else Copied.decode(kept).posting
        assert read.extras == blank and (read.address, read.message_id) == ("orders", "id")
    attempt = stored(Attempt(POSTED, 3, "app:busy", "later", annotations=annotations).encode())
    assert without_body(attempt) == attempt.meta
    assert without_body(stored(Stop(5).encode())) is None
