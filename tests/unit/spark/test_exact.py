"""Messages that become rows of the source, and messages of the sink again: nothing of them is lost."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.errors import DecodeError
from acquit.protocol.codec import encode
from acquit.protocol.definitions import Properties
from acquit.protocol.message import AmqpSequence, AmqpValue, Data, Message
from acquit.protocol.sections import scan_sections
from acquit.protocol.types import (
    Array,
    Byte,
    Char,
    Decimal64,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from acquit.spark.columns import FIELDS, MessageColumns
from acquit.spark.exact import read_exact
from acquit.spark.sink.rows import COLUMNS, PASSED_OVER, RowEncoder, rows_of
from tests.support.queue_double import BROKER

SCHEMA = pa.schema([(field.name, field.arrow_type) for field in FIELDS])
ID = uuid.UUID(int=7)
VALUES = [
    True, 5, Int(5), UInt(5), ULong(5), UByte(5), Byte(-5), Short(4), UShort(3), 1.5, Float(1.5), "text", Symbol("sym"),
    b"\x00\xff", ID, Timestamp(1_700_000_000_123), Char("c"), Decimal64(bytes(8)), None,
]  # fmt: skip
TYPED = {f"v{number}": value for number, value in enumerate(VALUES)}


def row_of(message: Message | bytes, **changes: object) -> pa.RecordBatch:
    payload = message if isinstance(message, bytes) else message.encode()
    reader = MessageColumns("orders")
    rows = reader.rows(reader.identify([payload], BROKER).messages, BROKER)
    assert not rows.corrupt
    (batch,) = reader.select(rows.batches, SCHEMA)
    (values,) = batch.to_pylist()
    return pa.RecordBatch.from_pylist([{**values, **changes}], SCHEMA)


def copied(message: Message | bytes, **changes: object) -> bytes:
    ((values, _),) = rows_of(row_of(message, **changes), None)
    return b"".join(RowEncoder(addressed=True, durable=True).encode(values, "own", None))


def same(message: Message) -> None:
    """With the types, so encoded; a field that says the default is one that is not there."""
    found = Message.decode(copied(message))
    assert found.properties == message.properties
    for name in ("application_properties", "annotations", "footer"):
        assert encode(dict(getattr(found, name))) == encode(dict(getattr(message, name))), name
    assert scan_sections(found.encode()).bare_message == scan_sections(message.encode()).bare_message
    assert (found.durable, found.priority, found.ttl_ms) == (message.durable, message.priority, message.ttl_ms)


FULL = Message(
    b"body",
    durable=False,
    priority=9,
    ttl_ms=60_000,
    annotations={
        Symbol("x-opt-jms-msg-type"): Byte(0),
        Symbol("x-opt-map"): {"a": UInt(1)},
        Symbol("x-opt-list"): [1, ID],
    },
    application_properties=TYPED,
    footer={Symbol("x-sum"): UInt(1)},
)
FULL.properties = Properties(
    message_id=ID,
    user_id=b"ada",
    to="orders",
    subject="subject",
    reply_to="answers",
    correlation_id=ULong(5),
    content_type=Symbol("text/plain"),
    content_encoding=Symbol("gzip"),
    absolute_expiry_time=Timestamp(4_000_000_000_000),
    creation_time=Timestamp(1_700_000_000_123),
    group_id="group",
    group_sequence=UInt(3),
    reply_to_group_id="answers-1",
)


def test_a_message_with_every_field_is_the_same_behind_source_and_sink() -> None:
    same(FULL)


@pytest.mark.parametrize(
    "body",
    [
        b"", "text", AmqpValue(b"binary"), AmqpValue({"a": UInt(1), Symbol("b"): ID}), AmqpValue(Symbol("s")),
        AmqpValue(None), AmqpValue(Described(Symbol("x:y"), [1])), AmqpValue(Array(UInt, (UInt(1), UInt(2)))),
        AmqpSequence(([1, UInt(2)], ["b"])), Data((b"a", b"b")),
    ],
    ids=str,
)  # fmt: skip
def test_bodies_keep_their_types_and_pieces(body: object) -> None:
    same(Message(body, message_id="m"))  # type: ignore[arg-type]


@pytest.mark.parametrize("to", [None, "orders", "elsewhere"])
def test_who_says_no_address_is_told_from_who_says_that_of_the_queue(to: str | None) -> None:
    same(Message(b"x", message_id="m", to=to))


@pytest.mark.parametrize("identity", ["7", ULong(7), b"7", ID], ids=repr)
def test_ids_that_look_alike_stay_what_they_were(identity: object) -> None:
    same(Message(b"x", message_id=identity, correlation_id=identity))  # type: ignore[arg-type]


def test_an_expiry_beyond_the_calendar_is_kept() -> None:
    message = Message(b"x", message_id="m")
    message.properties = replace(message.properties, absolute_expiry_time=Timestamp((1 << 63) - 1))
    assert row_of(message)["expires_at"].to_pylist() == [None]
    same(message)


_values = st.sampled_from(VALUES) | st.text(max_size=3) | st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.dictionaries(st.text(max_size=3), _values, max_size=4))
def test_properties_of_any_types(properties: dict[str, object]) -> None:
    same(Message(b"x", message_id="m", application_properties=properties))  # type: ignore[arg-type]


def test_most_messages_need_it_not() -> None:
    message = Message("text", message_id="m", subject="s", priority=7, application_properties={"a": "b"})
    assert row_of(message)["exact"].to_pylist() == [None]


def test_a_column_that_was_changed_is_what_is_meant() -> None:
    changed = {
        "message_id": "another",
        "correlation_id": None,
        "application_properties": [("v1", "6"), ("v2", "5"), ("new", "n")],
        "annotations": [],
        "body": b"other",
        "address": "there",
        "group_sequence": 4,
    }
    found = Message.decode(copied(FULL, **changed))
    properties = found.properties
    assert (properties.message_id, properties.correlation_id, properties.to) == ("another", None, "there")
    assert found.application_properties == {"v1": "6", "v2": Int(5), "new": "n"}
    assert type(found.application_properties["v2"]) is Int
    assert (found.annotations, found.body, properties.group_sequence) == ({}, b"other", 4)
    typed = Message(AmqpValue({"a": UInt(1)}), message_id="m")
    assert Message.decode(copied(typed, body=b'{"a": 2}')).body == {"a": 2}


@pytest.mark.parametrize("column", [b"", b"\x40", b"\xff", encode({"a": 1}) + b"x"])
def test_what_is_no_such_column_is_refused(column: bytes) -> None:
    with pytest.raises(DecodeError):
        read_exact(column)


def test_source_and_sink_have_the_same_columns() -> None:
    ours = {field.name for field in FIELDS}
    theirs = {column.name for column in COLUMNS}
    assert theirs <= ours and ours <= theirs | PASSED_OVER
