"""From messages to rows: every column, every kind of body, and whatever bytes a queue may hold."""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.errors import ConfigurationError
from acquit.protocol.codec import Decimal64, Symbol, Timestamp, UInt, ULong, encode
from acquit.protocol.message import AmqpSequence, AmqpValue, Data, Message
from acquit.spark import columns as columns_module
from acquit.spark import parsing
from acquit.spark.columns import (
    BY_NAME,
    FIELDS,
    SCHEMA_DDL,
    MessageColumns,
    check_columns,
    identity_finder,
    schema_ddl,
    whole_message,
)
from acquit.spark.decoding import BodyAs, JsonDecoder, TextDecoder
from acquit.spark.exact import read_exact
from acquit.spark.spool import Rows

BROKER = uuid.UUID("6f5c1b1e-6d0e-4f5b-9d43-4b8a55d6a2c1")
READER = MessageColumns("queue")
SCHEMA = pa.schema([(field.name, field.arrow_type) for field in FIELDS])


def table(rows: Rows) -> list[dict[str, object]]:
    return [row for batch in READER.select(rows.batches, SCHEMA) for row in batch.to_pylist()]


def make(payloads: list[bytes], broker_id: uuid.UUID | None) -> Rows:
    return READER.rows(READER.identify(payloads, broker_id).messages, broker_id)


def row(message: Message, broker_id: uuid.UUID | None = BROKER) -> dict[str, object]:
    rows = make([message.encode()], broker_id)
    assert not rows.corrupt
    return table(rows)[0]


def test_every_column() -> None:
    message = Message(
        b"content",
        message_id="id-1",
        correlation_id=ULong(7),
        subject="greeting",
        to="other",
        content_type="text/plain",
        creation_time=Timestamp(1_700_000_000_123),
        delivery_count=2,
        durable=True,
        priority=7,
        ttl_ms=60_000,
        user_id=b"ada",
        reply_to="answers",
        content_encoding="gzip",
        absolute_expiry_time=Timestamp(1_700_000_060_123),
        group_id="group",
        group_sequence=UInt(3),
        reply_to_group_id="answers-1",
        annotations={
            "x-opt-acquit-sequence": ULong(42),
            "x-opt-acquit-posted-at": Timestamp(1_700_000_001_000),
            "x-opt-jms-dest": 0,
        },
        application_properties={"a": "text", "b": True, "c": None, "d": 1.5, "e": b"\x00\xff", "f": 7},
    )
    found = row(message)
    exact = found.pop("exact")
    assert isinstance(exact, bytes)
    assert read_exact(exact) == {
        "correlation_id": 7,
        "application_properties": message.application_properties,
        "annotations": {"x-opt-jms-dest": 0},
    }
    assert found == {
        "message_id": "id-1",
        "sequence": 42,
        "correlation_id": "7",
        "subject": "greeting",
        "address": "other",
        "queue": "queue",
        "content_type": "text/plain",
        "application_properties": [("a", "text"), ("b", "true"), ("c", None), ("d", "1.5"), ("e", "00ff"), ("f", "7")],
        "annotations": [("x-opt-jms-dest", "0")],
        "delivery_count": 2,
        "redelivered": True,
        "posted_at": datetime(2023, 11, 14, 22, 13, 21, tzinfo=UTC),
        "created_at": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
        "body": b"content",
        "body_type": "data",
        "corrupt": None,
        "durable": True,
        "priority": 7,
        "ttl_ms": 60_000,
        "user_id": b"ada",
        "reply_to": "answers",
        "content_encoding": "gzip",
        "expires_at": datetime(2023, 11, 14, 22, 14, 20, 123_000, tzinfo=UTC),
        "group_id": "group",
        "group_sequence": 3,
        "reply_to_group_id": "answers-1",
    }


def test_an_empty_message_from_another_broker() -> None:
    found = row(Message(), None)
    assert found["address"] == "queue" and found["body_type"] == "value" and found["body"] == b"null"
    assert all(found[name] is None for name in ("message_id", "sequence", "posted_at", "created_at", "corrupt"))
    assert found["redelivered"] is False


def test_no_body_at_all() -> None:
    found = table(make([b""], None))[0]
    assert (found["body"], found["body_type"]) == (None, None)


def test_only_an_acquit_broker_is_believed_about_first_acquirer_and_sequence() -> None:
    message = Message(b"", first_acquirer=False, annotations={"x-opt-acquit-sequence": ULong(1)})
    assert (row(message)["redelivered"], row(message)["sequence"]) == (True, 1)
    assert (row(message, None)["redelivered"], row(message, None)["sequence"]) == (False, None)


@pytest.mark.parametrize(
    ("body", "content", "kind"),
    [
        (b"bytes", b"bytes", "data"),
        (b"b" * 300, b"b" * 300, "data"),
        (b"", b"", "data"),
        (Data((b"one", b"two")), b"onetwo", "data"),
        ("tëxt", "tëxt".encode(), "string"),
        ("t" * 300, b"t" * 300, "string"),
        (AmqpValue(b"binary"), b"binary", "binary"),
        ({"k": [1, None, b"\x01"]}, {"k": [1, None, "01"]}, "value"),
        (AmqpSequence(([1, "a"], [True])), [1, "a", True], "sequence"),
        (7, 7, "value"),
        (Symbol("s"), "s", "value"),
        (uuid.UUID(int=1), str(uuid.UUID(int=1)), "value"),
        (Timestamp(0), "1970-01-01T00:00:00Z", "value"),
        (Timestamp(1 << 62), 1 << 62, "value"),
    ],
)
def test_bodies_and_the_message_beside_them(body: object, content: object, kind: str) -> None:
    payload = Message(body, message_id="x", footer={"f": 1}).encode()  # type: ignore[arg-type]
    rows = make([payload], None)
    found = table(rows)[0]
    assert found["body_type"] == kind
    shown = found["body"]
    assert isinstance(shown, bytes)
    assert (shown if isinstance(content, bytes) else json.loads(shown)) == content
    kept = rows.batches[0].select(["head", "body", "tail"]).to_pylist()[0]
    assert whole_message(kept) == payload


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00",
        b"not a message at all",
        Message(b"body").encode()[:-1],
        Message(b"body", creation_time=Timestamp(1 << 62)).encode(),
        Message(b"body", annotations={"x-opt-acquit-sequence": "seven"}).encode(),
        b"\x00\x53\x77\xa1\x02\xff\xff",  # a string that is not UTF-8
    ],
)
def test_what_cannot_be_a_row_is_kept_whole(payload: bytes) -> None:
    rows = make([Message(b"good").encode(), payload], BROKER)
    assert list(rows.corrupt) == [1]
    good, bad = table(rows)
    assert good["corrupt"] is None
    assert bad["corrupt"] == payload and bad["body"] is None and bad["address"] == "queue"


@given(st.binary(max_size=200))
def test_no_bytes_raise(payload: bytes) -> None:
    rows = make([payload], BROKER)
    kept = rows.batches[0].select(["head", "body", "tail"]).to_pylist()[0]
    assert whole_message(kept) == payload


@given(st.data())
def test_no_damage_raises_and_none_changes_what_is_kept(data: st.DataObject) -> None:
    payload = bytearray(
        Message(
            {"k": [1, "two"]},
            message_id="id",
            annotations={"x-opt-acquit-sequence": ULong(3)},
            application_properties={"p": 1},
        ).encode()
    )
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(payload[: data.draw(st.integers(0, len(payload)))])
    rows = make([damaged], BROKER)
    assert whole_message(rows.batches[0].select(["head", "body", "tail"]).to_pylist()[0]) == damaged


# -- identity ---------------------------------------------------------------------------------------------------------


class One(NamedTuple):
    """A row of `Identified`."""

    key: int | None
    """Fingerprint of the identity; None if it has none."""
    names_posting: bool
    content: tuple[int, int]
    """Fingerprint of identity and content."""
    sequence: int | None


def identify(reader: MessageColumns, payload: bytes, broker_id: uuid.UUID | None) -> One:
    found = reader.identify([payload], broker_id)
    named = found.named.tolist()[0]
    identity, low, high = (int(column[0]) for column in found.identities.columns()[:3])
    sequence = int(found.sequences[0]) or None
    return One(identity if named else None, bool(found.names_posting[0]), (low, high), sequence)


def key(message: Message, broker_id: uuid.UUID | None = None, field: str | None = None) -> int | None:
    return identify(MessageColumns("queue", field), message.encode(), broker_id).key


def test_the_brokers_sequence_comes_first_and_elsewhere_the_named_field_then_message_id() -> None:
    message = Message(
        b"",
        message_id="m",
        correlation_id="c",
        annotations={"x-opt-acquit-sequence": ULong(3), "x-opt-key": "a"},
        application_properties={"order": 9},
    )
    found = identify(READER, message.encode(), BROKER)
    assert found.key is not None and found.names_posting and found.sequence == 3
    ids = [
        key(message, BROKER),
        key(message, uuid.uuid4()),
        key(message),
        key(message, None, "message-id"),
        key(message, None, "correlation-id"),
        key(message, None, "application-properties.order"),
        key(message, None, "message-annotations.x-opt-key"),
    ]
    assert ids[2] == ids[3] and len(set(ids)) == len(ids) - 1 and None not in ids
    assert key(message, None, "application-properties.absent") == ids[2]
    assert key(Message(b"")) is None


def test_ids_of_different_types_are_different() -> None:
    ids = [key(Message(b"", message_id=one)) for one in ("1", ULong(1), b"1", uuid.UUID(int=1))]
    assert len(set(ids)) == 4


def test_content_is_the_bare_message_so_redelivery_changes_nothing() -> None:
    first = Message(b"body", message_id="m", annotations={"x-opt-acquit-sequence": ULong(1)})
    again = Message(b"body", message_id="m", delivery_count=3, annotations={"x-opt-acquit-sequence": ULong(1)})
    assert identify(READER, first.encode(), BROKER).content == identify(READER, again.encode(), BROKER).content
    other = Message(b"body", message_id="n")
    assert identify(READER, first.encode(), None).content != identify(READER, other.encode(), None).content


def test_a_damaged_body_is_still_recognised() -> None:
    payload = Message(b"body", message_id="m", annotations={"x-opt-acquit-sequence": ULong(5)}).encode()
    assert identify(READER, payload[:-1], BROKER).sequence == 5
    unordered = encode(1) + payload
    assert identify(READER, unordered, BROKER).key is None


def test_a_sequence_inside_of_another_annotation_is_not_believed() -> None:
    inner = encode(Symbol("x-opt-acquit-sequence")) + encode(ULong(99))
    message = Message(b"", annotations={"x-opt-other": inner, "x-opt-acquit-sequence": ULong(1)})
    assert identify(READER, message.encode(), BROKER).sequence == 1


def test_a_sequence_that_is_no_number_is_none() -> None:
    """Also where the message is corrupt, so that the sequence is all that is told of it."""
    payload = Message(b"body", message_id="m", annotations={"x-opt-acquit-sequence": True}).encode()
    assert identify(READER, payload, BROKER).sequence is None
    (batch,) = READER.rows(READER.identify([payload[:-1]], BROKER).messages, BROKER).batches
    assert batch.column("sequence").to_pylist() == [None] and batch.column("corrupt").to_pylist() == [payload[:-1]]


def test_a_field_that_the_user_names_comes_before_the_sequence() -> None:
    """What was posted twice has two sequences and one message id: to who names that field, it is one message."""
    reader = MessageColumns("queue", "message-id")
    first, again = (
        Message("x", message_id="id-1", annotations={"x-opt-acquit-sequence": ULong(number)}).encode()
        for number in (1, 2)
    )
    one, other = identify(reader, first, BROKER), identify(reader, again, BROKER)
    assert one.key == other.key
    assert one.key is not None
    assert one.names_posting, "so that it is set aside on one unbroken link as well"
    assert (one.sequence, other.sequence) == (1, 2)
    assert identify(READER, first, BROKER).key != identify(READER, again, BROKER).key


@pytest.mark.promise("identity")
def test_without_the_named_field_the_sequence_is_the_identity() -> None:
    message = Message("x", message_id="id-1", annotations={"x-opt-acquit-sequence": ULong(1)}).encode()
    named = identify(MessageColumns("queue", "application-properties.order"), message, BROKER)
    assert named.key == identify(READER, message, BROKER).key


def posted(message_id: str, body: object = "order 17", **changes: object) -> bytes:
    """One posting of an order: the application gives it a new id and a new time, and the broker a sequence."""
    fields: dict[str, object] = {"application_properties": {"order": "17"}, "creation_time": Timestamp(len(message_id))}
    annotations = {"x-opt-acquit-sequence": ULong(len(message_id))}
    return Message(body, message_id=message_id, annotations=annotations, **(fields | changes)).encode()  # type: ignore[arg-type]


@pytest.mark.parametrize("broker_id", [BROKER, None])
def test_to_who_names_a_field_the_content_is_the_body_alone(broker_id: uuid.UUID | None) -> None:
    reader = MessageColumns("queue", "application-properties.order")
    first = identify(reader, posted("a"), broker_id)
    for again in (
        posted("bb", subject="again"),
        posted("ccc", application_properties={"order": "17", "try": 2}, footer={"crc": 1}),
    ):
        found = identify(reader, again, broker_id)
        assert (found.key, found.content) == (first.key, first.content)
    for other in (posted("dddd", "order 18"), posted("eeeee", b"order 17"), posted("ffffff", "order 17")[:-1]):
        found = identify(reader, other, broker_id)
        assert found.key == first.key and found.content != first.content
    damaged = [identify(reader, posted(one)[:-1], broker_id) for one in ("g", "hh")]
    assert damaged[0].key == damaged[1].key is not None and damaged[0].content == damaged[1].content
    # Where the field is absent, and where nobody names one, it is the bare message, as ever.
    absent = MessageColumns("queue", "application-properties.customer")
    for reader in (absent, READER):
        found = [identify(reader, posted("a", creation_time=Timestamp(time)), broker_id) for time in (1, 2)]
        assert found[0].key == found[1].key and found[0].content != found[1].content


@pytest.mark.promise("identity")
@pytest.mark.parametrize("field", ["subject", "application-properties", "application-properties.", "footer.x", ""])
def test_fields_that_cannot_be_an_identity(field: str) -> None:
    with pytest.raises(ValueError, match="message-id, correlation-id"):
        identity_finder(field)


@given(
    st.integers(0, (1 << 64) - 1),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.dictionaries(st.text("ab", max_size=3), st.integers(0, 9), max_size=2),
    st.booleans(),
)
def test_the_short_way_through_the_brokers_own_annotations_says_what_the_long_way_says(
    sequence: int, posted_ms: int, others: dict[str, int], wide: bool
) -> None:
    ours = {"x-opt-acquit-sequence": ULong(sequence), "x-opt-acquit-posted-at": Timestamp(posted_ms)}
    payload = Message(b"", annotations={**others, **ours}).encode()
    if wide:  # the broker writes the sequence in 8 bytes, whatever its size
        payload = own_annotations(sequence, posted_ms) + Message(b"").encode()
    short = make([payload], BROKER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "_OWN_SECTION", re.compile(b"(?!)"))
        long = make([payload], BROKER)
    assert table(short) == table(long) and short.corrupt == long.corrupt
    assert identify(READER, payload, BROKER).sequence == (sequence if 0 < sequence < 1 << 63 else None)


def own_annotations(sequence: int, posted_ms: int) -> bytes:
    def symbol(text: bytes) -> bytes:
        return b"\xa3" + bytes([len(text)]) + text

    entries = symbol(b"x-opt-acquit-sequence") + b"\x80" + sequence.to_bytes(8, "big")
    entries += symbol(b"x-opt-acquit-posted-at") + b"\x83" + posted_ms.to_bytes(8, "big", signed=True)
    return b"\x00\x53\x72\xc1" + bytes([1 + len(entries), 4]) + entries


def test_a_sequence_is_one_identity_with_a_time_and_without() -> None:
    timed = identify(READER, own_annotations(3, 5) + Message(b"x").encode(), BROKER)
    other = identify(READER, own_annotations(3, 6) + Message(b"x").encode(), BROKER)
    without = identify(READER, Message(b"x", annotations={"x-opt-acquit-sequence": ULong(3)}).encode(), BROKER)
    assert timed.key == other.key == without.key is not None
    assert len({timed.content, other.content, without.content}) == 3


def test_fields_identify_within_one_queue_and_a_sequence_anywhere() -> None:
    """A topic's message lies in each of its subscriptions, and a query that reads two of them has two rows."""
    message = Message(b"x", message_id="m", annotations={"x-opt-acquit-sequence": ULong(3)}).encode()
    here, there = MessageColumns("a"), MessageColumns("b")
    assert identify(here, message, None).key != identify(there, message, None).key
    assert identify(here, message, BROKER).key == identify(there, message, BROKER).key
    named = [identify(MessageColumns(queue, "message-id"), message, BROKER).key for queue in ("a", "b")]
    assert named[0] != named[1]


# -- bodies that are decoded ------------------------------------------------------------------------------------------


NARROW = pa.struct([("id", pa.int64())])
WIDE = pa.struct([("id", pa.int64()), ("name", pa.string())])


def decoding(kind: pa.DataType | None) -> MessageColumns:
    return MessageColumns("queue", None, TextDecoder() if kind is None else JsonDecoder(kind))


def schema_of(kind: pa.DataType | None) -> pa.Schema:
    return pa.schema([*SCHEMA, pa.field("text", pa.string()) if kind is None else pa.field("json", kind)])


def drained(reader: MessageColumns, *bodies: bytes) -> Rows:
    payloads = [Message(body, message_id=f"id-{number}").encode() for number, body in enumerate(bodies)]
    return reader.rows(reader.identify(payloads, None).messages, None)


def selected(reader: MessageColumns, rows: Rows, schema: pa.Schema) -> list[dict[str, object]]:
    return [row for batch in reader.select(rows.batches, schema) for row in batch.to_pylist()]


def test_a_body_that_does_not_fit_is_a_corrupt_row_with_all_other_columns() -> None:
    reader = decoding(NARROW)
    rows = drained(reader, b'{"id": 1}', b'{"id": "one"}', b"not json", b'{"id": 4}')
    assert rows.corrupt == {
        1: "the body does not fit bodySchema: id is no whole number of 64 bits",
        2: "the body is not JSON: Expecting value at 0",
    }
    found = selected(reader, rows, schema_of(NARROW))
    assert [one["json"] for one in found] == [{"id": 1}, None, None, {"id": 4}]
    assert [one["message_id"] for one in found] == ["id-0", "id-1", "id-2", "id-3"]
    assert found[1]["body"] == b'{"id": "one"}'
    assert found[1]["corrupt"] == Message(b'{"id": "one"}', message_id="id-1").encode()
    assert found[0]["corrupt"] is None and found[3]["corrupt"] is None


def test_what_was_drained_under_one_schema_is_replayed_under_another() -> None:
    wide = pa.struct([("id", pa.string()), ("name", pa.string())])
    rows = drained(decoding(NARROW), b'{"id": 1, "name": "a"}', b'{"id": "x"}')
    assert list(rows.corrupt) == [1]
    found = selected(decoding(wide), rows, schema_of(wide))
    assert [one["json"] for one in found] == [{"id": "1", "name": "a"}, {"id": "x", "name": None}]
    assert [one["corrupt"] for one in found] == [None, None]
    stricter = pa.struct([pa.field("name", pa.string(), nullable=False)])
    found = selected(decoding(stricter), rows, schema_of(stricter))
    assert [one["json"] for one in found] == [{"name": "a"}, None]
    assert found[1]["corrupt"] is not None


@pytest.mark.parametrize("drained_by", [MessageColumns("queue"), decoding(None), decoding(NARROW)])
@pytest.mark.parametrize("replayed_by", [None, NARROW])
def test_each_way_of_decoding_reads_what_each_other_has_drained(
    drained_by: MessageColumns, replayed_by: pa.DataType | None
) -> None:
    rows = drained(drained_by, b'{"id": 1}', b"\xff")
    sliced = Rows([batch.slice(1) for batch in rows.batches], {})
    name = "text" if replayed_by is None else "json"
    found = selected(decoding(replayed_by), rows, schema_of(replayed_by))
    assert [one[name] for one in found] == [{"id": 1} if replayed_by is not None else '{"id": 1}', None]
    assert [one["corrupt"] is None for one in found] == [True, False]
    assert selected(decoding(replayed_by), sliced, schema_of(replayed_by)) == found[1:]
    assert [one["corrupt"] for one in selected(READER, rows, SCHEMA)] == [None, None], "to it a body is bytes"


def test_values_that_were_made_when_a_message_was_drained_are_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = decoding(NARROW)
    rows = drained(reader, b'{"id": 1}', b"{")
    monkeypatch.setattr(JsonDecoder, "decode", None)
    assert [one["json"] for one in selected(reader, rows, schema_of(NARROW))] == [{"id": 1}, None]


def test_a_damaged_message_and_one_without_a_body_have_no_value() -> None:
    reader = decoding(NARROW)
    damaged = Message(b'{"id": 1}', message_id="m").encode()[:-1]
    rows = reader.rows(reader.identify([damaged, b""], None).messages, None)
    assert list(rows.corrupt) == [0]
    found = selected(reader, rows, schema_of(NARROW))
    assert [one["json"] for one in found] == [None, None] and [one["corrupt"] for one in found] == [damaged, None]


def test_an_amqp_map_is_read_as_the_object_that_it_is() -> None:
    reader = decoding(WIDE)
    payload = Message({"id": 7, "name": "n"}, message_id="m").encode()
    rows = reader.rows(reader.identify([payload], None).messages, None)
    assert selected(reader, rows, schema_of(WIDE))[0]["json"] == {"id": 7, "name": "n"}


@pytest.mark.parametrize(
    ("schema", "body_as", "reason"),
    [
        (pa.schema([("nonsense", pa.string())]), BodyAs.BYTES, "has no column nonsense; it has message_id"),
        (pa.schema([("body", pa.string())]), BodyAs.BYTES, "column body is BINARY, and cannot be read as string"),
        (pa.schema([("text", pa.string())]), BodyAs.BYTES, "the column text needs the option bodyAs = text"),
        (pa.schema([("text", pa.string())]), BodyAs.JSON, "the column text needs the option bodyAs = text"),
        (pa.schema([("text", pa.binary())]), BodyAs.TEXT, "column text is STRING"),
        (pa.schema([("body", pa.binary())]), BodyAs.JSON, "bodyAs = json needs the column json"),
        (pa.schema([("json", pa.string())]), BodyAs.JSON, "column json is a STRUCT"),
    ],
)
def test_schemas_that_cannot_be_read(schema: pa.Schema, body_as: BodyAs, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        check_columns(schema, body_as)


def test_the_columns_of_a_query_that_gives_no_schema() -> None:
    assert schema_ddl() == SCHEMA_DDL
    # TIMESTAMP would be what the session takes it for (spark.sql.timestampType).
    assert "posted_at TIMESTAMP_LTZ, created_at TIMESTAMP_LTZ" in SCHEMA_DDL
    assert schema_ddl(BodyAs.TEXT) == SCHEMA_DDL + ", text STRING"
    assert schema_ddl(BodyAs.JSON, "id BIGINT") == SCHEMA_DDL + ", json STRUCT<id BIGINT>"
    assert schema_ddl(BodyAs.JSON, "struct<id: BIGINT>") == SCHEMA_DDL + ", json struct<id: BIGINT>"
    with pytest.raises(ConfigurationError, match="bodyAs = json needs the option bodySchema"):
        schema_ddl(BodyAs.JSON)


# -- versions and schemas ---------------------------------------------------------------------------------------------


def test_columns_by_name_in_any_order() -> None:
    schema = pa.schema([("body", pa.binary()), ("message_id", pa.string())])
    batches = list(READER.select(make([Message(b"x", message_id="m").encode()], None).batches, schema))
    assert batches[0].schema == schema and batches[0].to_pylist() == [{"body": b"x", "message_id": "m"}]


def test_a_newer_version_parses_old_files_again(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = Message(b"x", first_acquirer=False, annotations={"x-opt-acquit-sequence": ULong(8)}).encode()
    monkeypatch.setattr(columns_module, "PARSER_VERSION", b"0")
    old = make([payload], BROKER)
    monkeypatch.undo()
    damaged = [
        batch.set_column(batch.schema.names.index("sequence"), "sequence", pa.array([1])) for batch in old.batches
    ]
    found = next(iter(READER.select(damaged, SCHEMA))).to_pylist()[0]
    assert (found["sequence"], found["body"], found["redelivered"]) == (8, b"x", True)


def test_large_messages_come_in_batches_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "_BATCH_BYTES", 1_000)
    rows = make([Message(b"b" * 400).encode()] * 7, None)
    assert [batch.num_rows for batch in rows.batches] == [3, 3, 1]


def test_a_value_that_json_has_no_word_for_does_not_stop_a_row() -> None:
    found = row(Message(b"", application_properties={"d": Decimal64(bytes(8))}))
    assert isinstance(dict(found["application_properties"])["d"], str)  # type: ignore[call-overload]


def test_the_page_repeats_the_reference() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "spark.md").read_text()
    for field in FIELDS:
        assert f"| `{field.name}` | {field.spark_type} | {field.meaning} |\n" in page


def test_the_schema_names_every_field_once() -> None:
    assert SCHEMA_DDL.count(",") >= len(FIELDS) - 1 and len(BY_NAME) == len(FIELDS)
