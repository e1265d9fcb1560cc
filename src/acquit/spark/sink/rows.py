"""Rows as messages: the columns that the sink takes, and the bytes of the message that a row is.

`COLUMNS` is the reference, which `docs/spark-sink.md` repeats. Names and meanings are those of the source, so that what
one query reads another can write, and nothing is lost on the way (`spark.exact`); columns of the source that only a
broker can say are passed over. What does not fit is refused when the write is planned (`plan_columns`); what a single
row says that no message can hold is a `BadRow`.

A message is written as ``header`` and ``rest`` because something may go between them: delivery annotations. The pieces
are put together by hand, as few columns are there and most are short texts: that is much faster than the general
encoder, to which a test compares the result.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Final, NamedTuple

import pyarrow as pa

from acquit.errors import ConfigurationError, DecodeError, EncodeError
from acquit.protocol._encoder import compound_bytes
from acquit.protocol.codec import encode
from acquit.protocol.definitions import SectionCode
from acquit.protocol.jsonform import read_json
from acquit.protocol.sections import BINARY8, BINARY32, STRING8, STRING32, VALUE_HEAD, encode_header, section_head
from acquit.protocol.types import UInt, Value
from acquit.spark.exact import read_exact
from acquit.spark.parsing import body_of, id_text, text_of

DUPLICATE_ID: Final = "_AMQ_DUPL_ID"
_BODY_TYPES: Final = ("data", "string", "binary", "value", "sequence")
_UINT_MAX: Final = 0xFFFF_FFFF
_NULL: Final = b"\x40"


class SinkColumn(NamedTuple):
    """A column of the sink."""

    name: str
    kinds: tuple[str, ...]
    """Keys of `_KINDS`."""
    meaning: str

    @property
    def spark_type(self) -> str:
        """The types that it may have, as one would write them."""
        return " or ".join(_KINDS[kind] for kind in self.kinds)


_KINDS: Final[Mapping[str, str]] = {
    "bytes": "BINARY",
    "text": "STRING",
    "whole": "BIGINT (or a smaller one)",
    "truth": "BOOLEAN",
    "time": "TIMESTAMP (not TIMESTAMP_NTZ)",
    "texts": "MAP<STRING, STRING>",
    "values": "MAP<STRING, ...> of STRING, BIGINT, DOUBLE, BOOLEAN or BINARY",
}

COLUMNS: Final = (
    SinkColumn("body", ("bytes", "text"), "the content, the one column that must be there; null: an empty message"),
    SinkColumn(
        "body_type",
        ("text",),
        "what the body becomes: data, string, binary, or of JSON value or sequence; else data of BINARY and string of "
        "STRING",
    ),
    SinkColumn("message_id", ("text",), "message-id; where it is null, or the column is missing, the row's own id"),
    SinkColumn("correlation_id", ("text",), "correlation-id"),
    SinkColumn("subject", ("text",), "subject"),
    SinkColumn("content_type", ("text",), "content-type"),
    SinkColumn("content_encoding", ("text",), "content-encoding"),
    SinkColumn("reply_to", ("text",), "reply-to"),
    SinkColumn("group_id", ("text",), "group-id"),
    SinkColumn(
        "address", ("text",), "where the message goes, if the option address is not given; else only what `to` says"
    ),
    SinkColumn("ttl_ms", ("whole",), "time to live, in milliseconds from the posting"),
    SinkColumn("priority", ("whole",), "0 to 255, higher is more urgent; null: 4"),
    SinkColumn("durable", ("truth",), "whether the message survives a crash of the broker; null: the option durable"),
    SinkColumn("application_properties", ("values",), "the application's own properties"),
    SinkColumn("annotations", ("texts",), "message annotations"),
    SinkColumn("created_at", ("time",), "creation-time"),
    SinkColumn("corrupt", ("bytes",), "of the source: a row where it is not null cannot be posted"),
    SinkColumn("user_id", ("bytes",), "user-id; a broker may refuse that of somebody else"),
    SinkColumn("expires_at", ("time",), "absolute-expiry-time"),
    SinkColumn("group_sequence", ("whole",), "group-sequence"),
    SinkColumn("reply_to_group_id", ("text",), "reply-to-group-id"),
    SinkColumn(
        "queue",
        ("text",),
        "of the source, beside the option address: where `address` repeats it, the message says no `to`",
    ),
    SinkColumn(
        "exact",
        ("bytes",),
        "of the source: what other columns have as text alone; a column that was changed counts and not this",
    ),
)
PASSED_OVER: Final = frozenset(("sequence", "delivery_count", "redelivered", "posted_at", "text", "json"))
"""Columns of the source that say what only a broker can, or say the body again."""
_BY_NAME: Final = {column.name: column for column in COLUMNS}
_NAMES: Final = tuple(_BY_NAME)
_BODY_SIZED: Final = section_head(SectionCode.DATA, BINARY8), section_head(SectionCode.DATA, BINARY32)
_TEXT_SIZED: Final = section_head(SectionCode.AMQP_VALUE, STRING8), section_head(SectionCode.AMQP_VALUE, STRING32)
_ANNOTATIONS_HEAD: Final = section_head(SectionCode.MESSAGE_ANNOTATIONS)
_PROPERTIES_HEAD: Final = section_head(SectionCode.PROPERTIES)
_APPLICATION_PROPERTIES_HEAD: Final = section_head(SectionCode.APPLICATION_PROPERTIES)
_SEQUENCE_HEAD: Final = section_head(SectionCode.AMQP_SEQUENCE)
_NULL_BODY: Final = VALUE_HEAD + _NULL
_OCTETS_SIZED: Final = section_head(SectionCode.AMQP_VALUE, BINARY8), section_head(SectionCode.AMQP_VALUE, BINARY32)


class BadRow(ValueError):
    """A row that no message can hold; says why."""


class RowValues(NamedTuple):
    """Values of a row, in the order of `COLUMNS`."""

    body: bytes | str | None
    body_type: str | None
    message_id: str | None
    correlation_id: str | None
    subject: str | None
    content_type: str | None
    content_encoding: str | None
    reply_to: str | None
    group_id: str | None
    address: str | None
    ttl_ms: int | None
    priority: int | None
    durable: bool | None
    application_properties: Sequence[tuple[object, object]] | None
    annotations: Sequence[tuple[object, object]] | None
    created_at: int | None
    corrupt: bytes | None
    user_id: bytes | None
    expires_at: int | None
    group_sequence: int | None
    reply_to_group_id: str | None
    queue: str | None
    exact: bytes | None


assert RowValues._fields == _NAMES


def plan_columns(schema: pa.Schema, *, id_column: str | None, addressed: bool) -> None:
    """Raise ConfigurationError for columns that the sink cannot write. `addressed`: the option address is given."""
    names = list(schema.names)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(f"column {twice[0]} is there {names.count(twice[0])} times")
    if "body" not in names:
        raise ConfigurationError(f"column body is missing: the content of the message; there are {', '.join(names)}")
    if not addressed and "address" not in names:
        raise ConfigurationError(
            "neither the option address nor a column address says where messages go: one of them must be there"
        )
    if id_column is not None and id_column not in names:
        raise ConfigurationError(f"option idColumn: there is no column {id_column}; there are {', '.join(names)}")
    for field in schema:
        column = _BY_NAME.get(field.name)
        if column is not None and not any(_is(kind, field.type) for kind in column.kinds):
            raise ConfigurationError(f"column {field.name} is {field.type}, expected {column.spark_type}")
        if field.name == id_column:
            if not any(_is(kind, field.type) for kind in ("text", "bytes", "whole")):
                raise ConfigurationError(f"column {field.name}, the option idColumn, is {field.type}: no id of a row")
        elif column is None and field.name not in PASSED_OVER:
            close = difflib.get_close_matches(field.name, _NAMES, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_NAMES)}."
            raise ConfigurationError(
                f"column {field.name} is none of a message; {hint} Leave it out, or make it part of the body or of "
                "application_properties"
            )


def _is(kind: str, arrow_type: pa.DataType) -> bool:
    types = pa.types
    match kind:
        case "bytes":
            return bool(types.is_binary(arrow_type) or types.is_large_binary(arrow_type))
        case "text":
            return bool(types.is_string(arrow_type) or types.is_large_string(arrow_type))
        case "whole":
            return bool(types.is_signed_integer(arrow_type))
        case "truth":
            return bool(types.is_boolean(arrow_type))
        case "time":
            # TIMESTAMP_NTZ has no zone, and says no instant.
            return bool(types.is_timestamp(arrow_type) and arrow_type.tz is not None)
        case "fraction":
            return bool(types.is_floating(arrow_type))
        case _:
            values = ("text",) if kind == "texts" else ("text", "whole", "truth", "bytes", "fraction")
            return bool(
                types.is_map(arrow_type)
                and _is("text", arrow_type.key_type)
                and any(_is(value, arrow_type.item_type) for value in values)
            )


def rows_of(batch: pa.RecordBatch, id_column: str | None) -> Iterator[tuple[RowValues, object]]:
    """The rows of a batch, each with the value of its id column."""
    present = set(batch.schema.names)
    columns = [_values(batch, name) if name in present else repeat(None) for name in _NAMES]
    ids = repeat(None) if id_column is None else _values(batch, id_column)
    for row, identity, _ in zip(zip(*columns, strict=False), ids, range(batch.num_rows), strict=False):
        yield RowValues._make(row), identity


def _values(batch: pa.RecordBatch, name: str) -> list[object]:
    column = batch.column(name)
    if pa.types.is_timestamp(column.type):
        # Arrow cuts towards 1970: what is before would come out a millisecond late.
        times_us = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64()).to_pylist()
        return [None if time_us is None else time_us // 1000 for time_us in times_us]
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:  # Spark's STRING is octets, as those of a BINARY that was cast, and Arrow looks at none
        return _octets_as_text(column)


def _octets_as_text(column: pa.Array) -> list[object]:
    """The values of a column of text, or of maps with it. Octets that are no UTF-8 become lone surrogates (PEP 383),
    which no message can hold: so it is the row that is told and refused, and not the whole batch."""
    kind = column.type
    if not pa.types.is_map(kind):
        return [_surrogated(octets) for octets in column.cast(pa.large_binary()).to_pylist()]
    items: list[object] = _octets_as_text(column.items) if _is("text", kind.item_type) else column.items.to_pylist()
    entries = list(zip(_octets_as_text(column.keys), items, strict=True))
    bounds = column.offsets.to_pylist()
    return [
        entries[start:end] if there else None
        for start, end, there in zip(bounds, bounds[1:], column.is_valid().to_pylist(), strict=False)
    ]


def _surrogated(octets: bytes | None) -> str | None:
    return None if octets is None else octets.decode(errors="surrogateescape")


class RowEncoder:
    """Makes messages of rows."""

    def __init__(self, *, addressed: bool, durable: bool) -> None:
        """`addressed`: the link says where messages go. `durable`: where a row does not say."""
        self._addressed = addressed
        self._durable = durable

    def encode(self, row: RowValues, own_id: str, duplicate_id: str | None) -> tuple[bytes, bytes]:
        """Header, and the rest of the message. `own_id`: the row's, for a message without an id; `duplicate_id`: what a
        broker is to tell it by. Raises BadRow."""
        if row.corrupt is not None:
            raise BadRow("the column corrupt is not null: this message could not be parsed when it was read")
        address = row.address
        if not self._addressed and not address:
            raise BadRow("the column address is null: it says where the message goes")
        try:
            header = _header(self._durable if row.durable is None else row.durable, row.priority, row.ttl_ms)
            exact = read_exact(row.exact)
            if self._addressed and address == row.queue and exact.get("address") != address:
                address = None
            parts = []
            if row.annotations:
                annotations = _entries(row.annotations, exact.get("annotations"))
                parts.append(_map_section(_ANNOTATIONS_HEAD, _pairs(annotations, symbols=True)))
            parts.append(_properties(row, exact, own_id, address))
            properties = row.application_properties
            if properties is not None and "application_properties" in exact:
                properties = _entries(properties, exact["application_properties"])
            if duplicate_id is not None:
                # Instead of the one that a message of the source may have: a key that is there twice is no message.
                others = [pair for pair in properties or () if pair[0] != DUPLICATE_ID]
                properties = [*others, (DUPLICATE_ID, duplicate_id)]
            if properties:
                parts.append(_map_section(_APPLICATION_PROPERTIES_HEAD, _pairs(properties)))
            parts.append(_exact_body(row, exact.get("body")) or _body(row.body, row.body_type))
            footer = exact.get("footer")
            if isinstance(footer, bytes):
                parts.append(footer)
            return header, b"".join(parts)
        except UnicodeEncodeError as error:
            raise BadRow(f"the text {error.object[:60]!r} has octets that are no UTF-8") from error
        except (DecodeError, EncodeError, UnicodeError, OverflowError) as error:
            raise BadRow(str(error)) from error


@lru_cache(maxsize=1024)
def _header(durable: bool, priority: int | None, ttl_ms: int | None) -> bytes:
    if priority is not None and not 0 <= priority <= 255:
        raise BadRow(f"the column priority is {priority}, expected 0 to 255")
    if ttl_ms is not None and not 0 <= ttl_ms <= _UINT_MAX:
        raise BadRow(f"the column ttl_ms is {ttl_ms}, expected 0 to {_UINT_MAX} milliseconds")
    return encode_header(durable, 4 if priority is None else priority, ttl_ms)


def _sized(heads: tuple[bytes, bytes], octets: bytes) -> bytes:
    size = len(octets)
    return heads[0] + size.to_bytes(1) + octets if size < 256 else heads[1] + size.to_bytes(4) + octets


_BINARY: Final = (b"\xa0", b"\xb0")
_TEXT: Final = (b"\xa1", b"\xb1")
_SYMBOL: Final = (b"\xa3", b"\xb3")


def _text(value: str) -> bytes:
    return _sized(_TEXT, value.encode())


def _symbol(value: str, name: str) -> bytes:
    if not value.isascii():
        raise BadRow(f"the column {name} has {value!r:.60}: ASCII is all that AMQP takes there")
    return _sized(_SYMBOL, value.encode())


def _entries(entries: Sequence[tuple[object, object]], exact: Value) -> Sequence[tuple[object, object]]:
    """A map's entries, with the exact keys and values of those that still say the same."""
    if not isinstance(exact, dict):
        return entries
    known = {str(key): (key, value) for key, value in exact.items()}
    return [
        known[str(key)] if str(key) in known and text_of(known[str(key)][1]) == value else (key, value)
        for key, value in entries
    ]


def _exact_body(row: RowValues, section: Value) -> bytes | None:
    """The sections of the body as they were, if they still say the same."""
    if not isinstance(section, bytes):
        return None
    body = row.body.encode() if isinstance(row.body, str) else row.body
    return section if body_of(section) == (body, row.body_type) else None


def _id(said: str | None, exact: Value) -> bytes:
    if exact is not None and said == id_text(exact):
        return encode(exact)
    return _NULL if said is None else _text(said)


def _time(time_ms: int | None) -> bytes:
    return _NULL if time_ms is None else b"\x83" + time_ms.to_bytes(8, signed=True)


def _properties(row: RowValues, exact: Mapping[str, Value], own_id: str, address: str | None) -> bytes:
    expires_at = row.expires_at
    if expires_at is None and isinstance(beyond := exact.get("expires_at"), int):
        expires_at = beyond
    if row.group_sequence is not None and not 0 <= row.group_sequence <= _UINT_MAX:
        raise BadRow(f"the column group_sequence is {row.group_sequence}, expected 0 to {_UINT_MAX}")
    fields = [
        _id(row.message_id, exact.get("message_id")) if row.message_id is not None else _text(own_id),
        _NULL if row.user_id is None else _sized(_BINARY, row.user_id),
        _NULL if address is None else _text(address),
        _NULL if row.subject is None else _text(row.subject),
        _NULL if row.reply_to is None else _text(row.reply_to),
        _id(row.correlation_id, exact.get("correlation_id")),
        _NULL if row.content_type is None else _symbol(row.content_type, "content_type"),
        _NULL if row.content_encoding is None else _symbol(row.content_encoding, "content_encoding"),
        _time(expires_at),
        _time(row.created_at),
        _NULL if row.group_id is None else _text(row.group_id),
        _NULL if row.group_sequence is None else encode(UInt(row.group_sequence)),
        _NULL if row.reply_to_group_id is None else _text(row.reply_to_group_id),
    ]
    while fields[-1] is _NULL:
        fields.pop()
    return _PROPERTIES_HEAD + compound_bytes(0, len(fields), b"".join(fields))


def _pairs(entries: Sequence[tuple[object, object]], *, symbols: bool = False) -> list[bytes]:
    encoded = []
    for key, value in entries:
        if type(key) is not str:
            name = encode(key)
        else:
            name = _symbol(key, "annotations") if symbols else _text(key)
        encoded.append(name + (_text(value) if type(value) is str else encode(value)))
    return encoded


def _map_section(head: bytes, pairs: list[bytes]) -> bytes:
    return head + compound_bytes(1, 2 * len(pairs), b"".join(pairs))


def _body(body: bytes | str | None, body_type: str | None) -> bytes:
    if body is None:
        return _NULL_BODY
    octets = body.encode() if isinstance(body, str) else body
    match body_type:
        case None if octets is body:
            return _sized(_BODY_SIZED, octets)
        case None:
            return _sized(_TEXT_SIZED, octets)
        case "data":
            return _sized(_BODY_SIZED, octets)
        case "string":
            if not octets.isascii():
                octets.decode()  # raises where it is no text
            return _sized(_TEXT_SIZED, octets)
        case "binary":
            return _sized(_OCTETS_SIZED, octets)
        case "value" | "sequence":
            try:
                value = read_json(octets)
            except (ValueError, RecursionError) as error:
                raise BadRow(f"the body is no JSON, which body_type {body_type} takes it for: {error}") from error
            if body_type == "value":
                return VALUE_HEAD + encode(value)
            if not isinstance(value, list):
                raise BadRow("the body is no JSON array, which body_type sequence takes it for")
            return _SEQUENCE_HEAD + encode(value)
        case _:
            raise BadRow(f"the column body_type is {body_type!r:.40}, expected one of {', '.join(_BODY_TYPES)}")
