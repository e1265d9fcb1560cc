"""Rows as messages, held to the general encoder and to what the source reads."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.errors import ConfigurationError
from acquit.protocol.message import AmqpSequence, AmqpValue, Message
from acquit.spark.columns import FIELDS
from acquit.spark.sink.rows import COLUMNS, PASSED_OVER, BadRow, RowEncoder, RowValues, plan_columns, rows_of

NOTHING = RowValues(*[None] * len(RowValues._fields))
TEXT = pa.string()


def row(**fields: object) -> RowValues:
    return NOTHING._replace(**fields)  # type: ignore[arg-type]


def message(
    values: RowValues, own_id: str = "own", duplicate_id: str | None = None, *, durable: bool = True
) -> Message:
    header, rest = RowEncoder(addressed=True, durable=durable).encode(values, own_id, duplicate_id)
    return Message.decode(header + rest)


def test_a_row_says_all_that_a_message_can() -> None:
    found = message(
        row(
            body=b"body",
            message_id="m",
            correlation_id="c",
            subject="s",
            content_type="text/plain",
            content_encoding="gzip",
            reply_to="r",
            group_id="g",
            address="to",
            ttl_ms=5_000,
            priority=9,
            durable=False,
            application_properties=[("a", "1"), ("n", None)],
            annotations=[("x-opt-a", "b")],
            created_at=1_700_000_000_000,
        )
    )
    assert (found.body, found.durable, found.priority, found.ttl_ms) == (b"body", False, 9, 5_000)
    properties = found.properties
    assert (properties.message_id, properties.correlation_id, properties.subject) == ("m", "c", "s")
    assert (properties.content_type, properties.content_encoding) == ("text/plain", "gzip")
    assert (properties.reply_to, properties.group_id, properties.to) == ("r", "g", "to")
    assert properties.creation_time == 1_700_000_000_000
    assert found.application_properties == {"a": "1", "n": None}
    assert found.annotations == {"x-opt-a": "b"}


def test_what_a_row_does_not_say() -> None:
    found = message(row(body=b""), "query:1:2:3", "query:1:2:3")
    assert (found.message_id, found.durable, found.priority) == ("query:1:2:3", True, 4)
    assert found.application_properties == {"_AMQ_DUPL_ID": "query:1:2:3"}
    assert message(row(body="x"), durable=False).durable is False
    assert message(row(body="x", message_id="")).message_id == "", "it says that"


def test_the_id_of_a_row_takes_the_place_of_the_one_that_its_message_had() -> None:
    """It came twice: nobody could read the message, and the broker went by the other one."""
    values = row(body="x", application_properties=[("_AMQ_DUPL_ID", "its producer's"), ("a", "1")])
    assert message(values, duplicate_id="the row's").application_properties == {"a": "1", "_AMQ_DUPL_ID": "the row's"}
    assert message(values).application_properties == {"_AMQ_DUPL_ID": "its producer's", "a": "1"}


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b"x" * 300, None, b"x" * 300),
        ("text é", None, "text é"),
        ("text", "data", b"text"),
        (b"text", "string", "text"),
        (b"\xff", "binary", AmqpValue(b"\xff")),
        (b'{"a": [1, 2.5, null]}', "value", {"a": [1, 2.5, None]}),
        (b"[1, 2]", "sequence", AmqpSequence(([1, 2],))),
        (None, None, None),
    ],
)
def test_bodies(body: bytes | str | None, kind: str | None, expected: object) -> None:
    assert message(row(body=body, body_type=kind)).body == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"priority": 256}, "priority is 256"),
        ({"ttl_ms": -1}, "ttl_ms is -1"),
        ({"body_type": "photo"}, "body_type is 'photo'"),
        ({"body": b"\xff", "body_type": "string"}, "utf-8"),
        ({"body": b"{", "body_type": "value"}, "no JSON"),
        ({"body": b"NaN", "body_type": "value"}, "no JSON, .*: JSON has no NaN"),
        ({"body": b"[Infinity]", "body_type": "sequence"}, "no JSON, .*: JSON has no Infinity"),
        ({"body": b"{}", "body_type": "sequence"}, "no JSON array"),
        ({"body": b"[" * 100_000, "body_type": "value"}, "no JSON"),
        ({"body": b"[" * 500 + b"]" * 500, "body_type": "value"}, "nested deeper"),
        ({"content_type": "é"}, "content_type"),
        ({"corrupt": b"x"}, "corrupt is not null"),
        ({"subject": "caf\udce9"}, "text 'caf.udce9' has octets that are no UTF-8"),
    ],
)
def test_what_no_message_can_hold(fields: dict[str, object], expected: str) -> None:
    with pytest.raises(BadRow, match=expected):
        message(row(**{"body": b"x", **fields}))


def test_without_an_address_anywhere() -> None:
    with pytest.raises(BadRow, match="address is null"):
        RowEncoder(addressed=False, durable=True).encode(row(body=b"x"), "id", None)


@given(
    body=st.binary(max_size=300),
    message_id=st.text(max_size=300),
    subject=st.none() | st.text(max_size=300),
    group=st.none() | st.text(max_size=10),
    properties=st.dictionaries(
        st.text(max_size=20), st.none() | st.text(max_size=300) | st.integers(-(1 << 63), (1 << 63) - 1) | st.booleans()
    ),
)
def test_it_is_what_the_general_encoder_writes(
    body: bytes, message_id: str, subject: str | None, group: str | None, properties: dict[str, object]
) -> None:
    values = row(
        body=body, message_id=message_id, subject=subject, group_id=group, application_properties=[*properties.items()]
    )
    header, rest = RowEncoder(addressed=True, durable=True).encode(values, "own", None)
    expected = Message(body, durable=True, message_id=message_id, subject=subject, group_id=group)
    if properties:
        expected.application_properties = properties
    assert header + rest == expected.encode()


def test_rows_of_arrow() -> None:
    when = datetime(2024, 2, 29, 12, 0, 0, 123_000, UTC)
    batch = pa.RecordBatch.from_pylist(
        [
            {"body": b"a", "created_at": when, "application_properties": [("k", 7)], "number": 3},
            {"body": None, "created_at": None, "application_properties": None, "number": None},
        ],
        schema=pa.schema(
            [
                ("body", pa.binary()),
                ("created_at", pa.timestamp("us", "UTC")),
                ("application_properties", pa.map_(TEXT, pa.int64())),
                ("number", pa.int32()),
            ]
        ),
    )
    assert list(rows_of(batch, "number")) == [
        (row(body=b"a", created_at=int(when.timestamp() * 1000), application_properties=[("k", 7)]), 3),
        (row(), None),
    ]


@pytest.mark.parametrize("name", ["created_at", "expires_at"])
def test_a_part_of_a_millisecond_is_left_out_also_before_1970(name: str) -> None:
    times = pa.array([1_999, 999, 0, -1, -999, -1_000, -1_001, None], pa.int64()).cast(pa.timestamp("us", "UTC"))
    read = [values for values, _ in rows_of(pa.RecordBatch.from_arrays([times], [name]), None)]
    assert [getattr(values, name) for values in read] == [1, 0, 0, -1, -1, -1, -2, None]
    assert message(read[3]._replace(body=b"a")).creation_time == (-1 if name == "created_at" else None)


def not_all_text(*octets: bytes | None) -> pa.Array:
    """Text as Spark hands it over that made it of octets without a look at them."""
    column = pa.array(octets, pa.binary())
    return pa.Array.from_buffers(TEXT, len(column), column.buffers())


def test_octets_that_are_no_text_are_of_their_row_alone() -> None:
    names = not_all_text(b"a", b"\xe9", b"b", None, b"\xff")
    texts = pa.MapArray.from_arrays(pa.array([0, 1, None, 1, 3]), names.slice(0, 3), names.slice(2))
    octets = pa.MapArray.from_arrays(
        pa.array([0, 0, 0, 1, 3]), names.slice(0, 3), pa.array([b"\xff", None, b"x"], pa.binary())
    )
    columns = {"body": names.slice(0, 4), "subject": pa.array(["1", "2", "3", "4"])}
    batch = pa.RecordBatch.from_pydict(columns | {"annotations": texts, "application_properties": octets})
    for start in range(4):
        assert (
            list(rows_of(batch.slice(start), "body"))
            == [
                (row(body="a", subject="1", annotations=[("a", "b")], application_properties=[]), "a"),
                (row(body="\udce9", subject="2", annotations=[], application_properties=[]), "\udce9"),
                (row(body="b", subject="3", application_properties=[("a", b"\xff")]), "b"),
                (
                    row(
                        subject="4",
                        annotations=[("\udce9", None), ("b", "\udcff")],
                        application_properties=[("\udce9", None), ("b", b"x")],
                    ),
                    None,
                ),
            ][start:]
        )


def test_the_page_repeats_the_columns() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "spark-sink.md").read_text()
    for column in COLUMNS:
        assert f"| `{column.name}` | {column.spark_type} | {column.meaning} |\n" in page
    for name in PASSED_OVER:
        assert f"`{name}`" in page


def test_all_columns_of_the_source_are_taken_or_passed_over() -> None:
    schema = pa.schema([(field.name, field.arrow_type) for field in FIELDS])
    plan_columns(schema, id_column=None, addressed=True)
    assert {field.name for field in FIELDS} <= {column.name for column in COLUMNS} | PASSED_OVER


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"text": TEXT}, "column body is missing"),
        ({"body": pa.int64()}, "column body is int64, expected BINARY or STRING"),
        ({"body": TEXT, "adress": TEXT}, "column adress is none of a message; did you mean address?"),
        ({"body": TEXT, "priority": TEXT}, "column priority is string, expected BIGINT"),
        ({"body": TEXT, "annotations": pa.map_(TEXT, pa.int64())}, "expected MAP<STRING, STRING>"),
        ({"body": TEXT, "application_properties": pa.map_(TEXT, pa.list_(TEXT))}, "column application_properties"),
        ({"body": TEXT, "created_at": pa.int64()}, "expected TIMESTAMP"),
        (
            {"body": TEXT, "created_at": pa.timestamp("us")},
            "column created_at is timestamp[us], expected TIMESTAMP (not",
        ),
        (
            {"body": TEXT, "expires_at": pa.timestamp("us")},
            "column expires_at is timestamp[us], expected TIMESTAMP (not",
        ),
        ({"body": TEXT, "n": pa.float64()}, "the option idColumn, is double"),
    ],
)
def test_columns_that_no_message_has_are_named(columns: dict[str, pa.DataType], expected: str) -> None:
    id_column = "n" if "n" in columns else None
    with pytest.raises(ConfigurationError) as raised:
        plan_columns(pa.schema(list(columns.items())), id_column=id_column, addressed=True)
    assert expected in str(raised.value)


def test_somebody_must_say_where_to() -> None:
    with pytest.raises(ConfigurationError, match="neither the option address nor a column address"):
        plan_columns(pa.schema([("body", TEXT)]), id_column=None, addressed=False)
    with pytest.raises(ConfigurationError, match="there is no column order; there are body"):
        plan_columns(pa.schema([("body", TEXT)]), id_column="order", addressed=True)
