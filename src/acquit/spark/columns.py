"""Messages as rows: the columns of the source, and how a message becomes a row.

`FIELDS` is the reference: name, Spark type, Arrow type, meaning. `docs/spark.md` repeats it.

**Parsed once, kept whole.** A row is parsed when the message is drained, because only then can a message that cannot be
parsed still be rejected. The data file holds the parsed columns *and* the message as it was transferred, so that a
replay is a mapped read, and a later version that makes other columns of the same messages can parse them again (the
version is in the file). The bytes of the body are not kept twice: a file row holds the message as `head`, `body` and
`tail`, where `body` is at the same time the column; where the body is not one piece of the message (several data
sections, a map, a number), `head` is the whole message and `tail` is null.

**Corrupt** means: some section cannot be decoded, or holds a value that no column can (a time beyond the calendar).
Such a row has the whole message in `corrupt` and nulls in what it is too broken to tell. Where the query wants bodies
as text or JSON (`spark.decoding`), a body that does not fit makes a corrupt row too, with all other columns; as that
depends on what the query wants, it is found again where a replay wants something else.

**Identity** is found without parsing the rest, so that a message with a damaged body is still recognised.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, TypeAlias, TypeVar, cast
from uuid import UUID

import numpy as np
import pyarrow as pa

from acquit.errors import ConfigurationError, DecodeError
from acquit.protocol import sections as s
from acquit.protocol._definitions import Header
from acquit.protocol.codec import Described, Symbol, Timestamp, encode, skip
from acquit.protocol.message import AmqpSequence, AmqpValue, Data, Message
from acquit.protocol.sections import PropertyIndex, Sections, decode_header, map_value, scan_sections
from acquit.spark.decoding import BodyAs, BodyDecoder, body_ddl, decoder_for
from acquit.spark.options import FORMAT_NAME
from acquit.spark.plain import TIME_MAX_MS, Lot, Mask, Places, identify_plain, read_lot
from acquit.spark.spool.drain import Identified, Rows

SEQUENCE_ANNOTATION: Final = "x-opt-acquit-sequence"
POSTED_AT_ANNOTATION: Final = "x-opt-acquit-posted-at"
_OWN_ANNOTATIONS: Final = frozenset((SEQUENCE_ANNOTATION, POSTED_AT_ANNOTATION))

_TEXT: Final = pa.string()
_TIME: Final = pa.timestamp("us", "UTC")
_MAP: Final = pa.map_(pa.string(), pa.string())


class Field(NamedTuple):
    """A column of the source."""

    name: str
    spark_type: str
    arrow_type: pa.DataType
    meaning: str


FIELDS: Final = (
    Field("message_id", "STRING", _TEXT, "message-id; a uuid in its usual form, a number in decimal, binary in hex"),
    Field("sequence", "BIGINT", pa.int64(), "the acquit broker's number for the posting; null from other brokers"),
    Field("correlation_id", "STRING", _TEXT, "correlation-id, written as message_id is"),
    Field("subject", "STRING", _TEXT, "subject"),
    Field("address", "STRING", _TEXT, "the property `to`, or the address that was read where it is absent"),
    Field("queue", "STRING", _TEXT, "the address that was read, as the option names it"),
    Field("content_type", "STRING", _TEXT, "content-type"),
    Field("application_properties", "MAP<STRING, STRING>", _MAP, "values as text, see below"),
    Field(
        "annotations",
        "MAP<STRING, STRING>",
        _MAP,
        "message annotations, values as text; without those that are `sequence` and `posted_at`",
    ),
    Field("delivery_count", "BIGINT", pa.int64(), "failed attempts before the one that was taken"),
    Field("redelivered", "BOOLEAN", pa.bool_(), "delivery_count > 0, or an acquit broker says it was acquired before"),
    Field("posted_at", "TIMESTAMP", _TIME, "when the acquit broker took it; null from other brokers"),
    Field("created_at", "TIMESTAMP", _TIME, "creation-time, the producer's clock"),
    Field("body", "BINARY", pa.binary(), "the content; text as UTF-8; maps, lists and numbers as JSON"),
    Field("body_type", "STRING", _TEXT, "what the body was: data, string, binary, value or sequence; null for none"),
    Field("corrupt", "BINARY", pa.binary(), "the whole message, if it could not be parsed"),
)
BY_NAME: Final = {field.name: field for field in FIELDS}
SCHEMA_DDL: Final = ", ".join(f"{field.name} {field.spark_type}" for field in FIELDS)

PARSER_VERSION: Final = b"1"
"""Raised when the same message would make other columns."""
_PARSER_KEY: Final = b"acquit.parser"
_BROKER_KEY: Final = b"acquit.broker"
_QUEUE_KEY: Final = b"acquit.queue"
_BODY_KEY: Final = b"acquit.body"
_QUEUE: Final = "queue"
"""The same in all rows of a file: in its metadata, and in no column of it."""
_CORRUPT: Final = "corrupt"
_DECODED: Final = "decoded"
_FAILED: Final = "failed"
"""Columns of a file whose bodies are decoded as its metadata says; those that failed have no value."""
_FILE_SCHEMA: Final = pa.schema(
    [
        ("head", pa.binary()),
        ("tail", pa.binary()),
        *((field.name, field.arrow_type) for field in FIELDS if field.name != _QUEUE),
    ],
)
_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 16 * 1024 * 1024

_TIME_MIN_MS: Final = -62_135_596_800_000
"""The year 1; with `TIME_MAX_MS` as far as Spark's and Python's calendars go."""
_INT64_MAX: Final = (1 << 63) - 1
_UINT32: Final = Struct(">I").unpack_from
_SEQUENCE_AND_TIME: Final = Struct(">Qq").unpack


def _sequence_key(broker_id: UUID) -> bytes:
    """How the identity of a posting begins: the sequence follows, in eight bytes."""
    return b"s" + broker_id.bytes


def _symbol(text: str) -> bytes:
    return b"\xa3" + bytes((len(text),)) + text.encode()


_OWN_SECTION: Final = re.compile(
    b"\x00\x53\x72\xc1.\x04%b\x80([\x00-\x7f].{7})%b\x83(.{8})"
    % (re.escape(_symbol(SEQUENCE_ANNOTATION)), re.escape(_symbol(POSTED_AT_ANNOTATION))),
    re.DOTALL,
)
"""A message-annotations section with these two and nothing else (a map8 of 4 items)."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_PROPERTIES: Final = (
    PropertyIndex.MESSAGE_ID,
    PropertyIndex.TO,
    PropertyIndex.SUBJECT,
    PropertyIndex.CORRELATION_ID,
    PropertyIndex.CONTENT_TYPE,
    PropertyIndex.CREATION_TIME,
)
_ID_FIELDS: Final = {"message-id": PropertyIndex.MESSAGE_ID, "correlation-id": PropertyIndex.CORRELATION_ID}
_ID_MAPS: Final = {
    "application-properties": s.APPLICATION_PROPERTIES,
    "message-annotations": s.MESSAGE_ANNOTATIONS,
}

T = TypeVar("T")
IdentityFinder: TypeAlias = Callable[[Sections], object]


class _Row(NamedTuple):
    head: bytes
    tail: bytes | None
    message_id: str | None
    sequence: int | None
    correlation_id: str | None
    subject: str | None
    address: str
    content_type: str | None
    application_properties: list[tuple[str, str | None]]
    annotations: list[tuple[str, str | None]]
    delivery_count: int | None
    redelivered: bool | None
    posted_at: int | None
    created_at: int | None
    body: bytes | None
    body_type: str | None
    corrupt: bytes | None


assert _Row._fields == tuple(_FILE_SCHEMA.names)


def identity_finder(field: str) -> IdentityFinder:
    """What finds the value of `identityField`: ``message-id``, ``correlation-id``, ``application-properties.NAME`` or
    ``message-annotations.NAME``. Raises ValueError for anything else."""
    if field in _ID_FIELDS:
        index = _ID_FIELDS[field]
        return lambda sections: sections.property_values(index)[0]
    section, _, key = field.partition(".")
    if section in _ID_MAPS and key:
        rank = _ID_MAPS[section]
        return lambda sections: map_value(sections.section(rank), key)
    raise ValueError("message-id, correlation-id, application-properties.NAME or message-annotations.NAME")


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """The `MessageReader` of the source: reads AMQP messages taken from `address`."""

    address: str
    identity_field: str | None = None
    decoder: BodyDecoder | None = None

    def identify(self, payloads: Sequence[bytes], broker_id: UUID | None) -> Identified:
        """Identity in this order: `identity_field` where the user names one, the broker's sequence, message-id.

        A field that the user names says which messages are one, whoever posted them and however often: a producer that
        posts again what was in doubt has one row. The broker's sequence names each posting. The message-id, where
        nobody said so, is believed less: two deliveries on one unbroken link are two messages. Fields identify within
        one queue: the copies of a topic's message in two subscriptions are two messages. Never raises.
        """
        if broker_id is None or self.identity_field is not None:
            return Identified.of(self._identify(payload, broker_id) for payload in payloads)
        parts = []
        for chunk in _chunks(payloads):
            plain, part = identify_plain(chunk, _sequence_key(broker_id))
            for row in np.flatnonzero(~plain).tolist():
                for column, value in zip(part, self._identify(chunk[row], broker_id), strict=True):
                    cast("list[object]", column)[row] = value
            parts.append(part)
        return Identified.join(parts)

    def rows(self, messages: Sequence[object], broker_id: UUID | None) -> Rows:
        """Rows in the form of a data file; `select` makes the source's columns of them. Never raises."""
        corrupt: dict[int, str] = {}
        batches = []
        metadata = {
            _PARSER_KEY: PARSER_VERSION,
            _BROKER_KEY: b"" if broker_id is None else broker_id.bytes,
            _QUEUE_KEY: self.address.encode(),
        }
        start = 0
        for chunk in _chunks(messages):
            batch = self._batch(chunk, broker_id, start, corrupt)
            batches.append(batch.replace_schema_metadata(metadata))
            start += len(chunk)
        if self.decoder is not None:
            batches = _decode(batches, self.decoder, corrupt)
        return Rows(batches, corrupt)

    def select(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The columns of `schema`, by name, of batches of a data file; parsed anew if an older version wrote them, and
        bodies decoded anew if they were decoded otherwise."""
        for batch in batches:
            metadata = batch.schema.metadata or {}
            if metadata.get(_PARSER_KEY) == PARSER_VERSION:
                others = {} if self.decoder is None else _decoded(batch, self.decoder)
                if _QUEUE in schema.names:
                    queue = metadata.get(_QUEUE_KEY, self.address.encode()).decode()
                    others[_QUEUE] = pa.repeat(pa.scalar(queue, _TEXT), batch.num_rows)
                arrays = [others[name] if name in others else batch.column(name) for name in schema.names]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            else:
                broker = UUID(bytes=metadata[_BROKER_KEY]) if metadata.get(_BROKER_KEY) else None
                kept = batch.select(["head", "body", "tail"]).to_pylist()
                identified = self.identify([whole_message(row) for row in kept], broker)
                yield from self.select(self.rows(identified.messages, broker).batches, schema)

    def _identify(
        self, payload: bytes, broker_id: UUID | None
    ) -> tuple[bytes | None, bool, bytes | memoryview, int | None, object]:
        """The columns of `Identified`, of one message, the long way."""
        message = _read(payload, broker_id)
        sections, sequence = message.sections, message.sequence
        bare = sections.bare_message if message.damage is None else payload[sections.bounds[s.PROPERTIES] :]
        if self.identity_field is not None:
            key = self._field_key(self.identity_field, sections)
            if key is not None:
                return key, True, bare, sequence, message
        if broker_id is not None and sequence is not None:
            return _sequence_key(broker_id) + sequence.to_bytes(8, "big"), True, bare, sequence, message
        return self._field_key("message-id", sections), False, bare, sequence, message

    def _batch(
        self, messages: Sequence[object], broker_id: UUID | None, start: int, corrupt: dict[int, str]
    ) -> pa.RecordBatch:
        """The rows of messages, of which the first is number `start`; who cannot be parsed is added to `corrupt`."""
        short = np.array([type(message) is bytes for message in messages], np.bool_)
        lot = read_lot([message for message in messages if type(message) is bytes])
        numbers, examples = lot.patterns()
        read = [self._try_parse(_read(lot.payload(row), broker_id), broker_id) for row in examples.tolist()]
        good = np.array([isinstance(row, _Row) for row in read], np.bool_)[numbers]
        short[short] = good
        parts = []
        if good.any():
            parts.append(_batch_like([row for row in read if isinstance(row, _Row)], lot, good, numbers))
        rows = []
        for number in np.flatnonzero(~short).tolist():
            message = messages[number]
            if type(message) is bytes:
                message = _read(message, broker_id)
            assert isinstance(message, _Message)
            row = self._try_parse(message, broker_id)
            if not isinstance(row, _Row):
                corrupt[start + number] = row
                row = _corrupt_row(message.payload, self.address, message.sequence)
            rows.append(row)
        if rows:
            arrays = [
                pa.array(column, type_)
                for column, type_ in zip(zip(*rows, strict=True), _FILE_SCHEMA.types, strict=True)
            ]
            parts.append(pa.RecordBatch.from_arrays(arrays, schema=_FILE_SCHEMA))
        if len(parts) == 1:
            return parts[0]
        order = np.argsort(np.concatenate((np.flatnonzero(short), np.flatnonzero(~short))))
        return pa.concat_batches(parts).take(pa.array(order))

    def _try_parse(self, message: _Message, broker_id: UUID | None) -> _Row | str:
        """Its row, or why there is none."""
        try:
            if message.damage is not None:
                raise message.damage
            return _parse(message.sections, self.address, broker_id)
        except (DecodeError, _NoColumnHoldsIt) as error:
            return str(error)

    def _field_key(self, field: str, sections: Sections) -> bytes | None:
        """The identity that a field gives, if it is there. Encoded as AMQP: the string "1", the ulong 1 and the binary
        0x31 are three ids."""
        value = _try(lambda: identity_finder(field)(sections))
        return None if value is None else f"f{field}\0{self.address}\0".encode() + encode(value)


def schema_ddl(body_as: BodyAs = BodyAs.BYTES, body_schema: str | None = None) -> str:
    """All columns, as DDL. Raises ConfigurationError where the schema of JSON bodies is missing."""
    return ", ".join(column for column in (SCHEMA_DDL, body_ddl(body_as, body_schema)) if column is not None)


def check_columns(wanted: pa.Schema, body_as: BodyAs = BodyAs.BYTES) -> BodyDecoder | None:
    """What decodes bodies for rows of the schema `wanted`. Raises ConfigurationError for a column that is not ours."""
    decoder = decoder_for(body_as, wanted)
    for column in wanted:
        field = BY_NAME.get(column.name)
        if decoder is not None and column.name == decoder.column:
            continue
        if field is None:
            names = [*BY_NAME, *(() if decoder is None else (decoder.column,))]
            raise ConfigurationError(
                f"schema: the format {FORMAT_NAME} has no column {column.name}; it has {', '.join(names)}"
            )
        if column.type != field.arrow_type:
            raise ConfigurationError(
                f"schema: column {column.name} is {field.spark_type}, and cannot be read as {column.type}"
            )
    return decoder


def _decode(batches: list[pa.RecordBatch], decoder: BodyDecoder, corrupt: dict[int, str]) -> list[pa.RecordBatch]:
    """Decode the bodies, add what failed to `corrupt`, and keep the values with the rows where they are dear."""
    start = 0
    found = []
    for batch in batches:
        decoded = decoder.decode(batch.column("body"))
        corrupt.update({start + row: reason for row, reason in decoded.failed.items()})
        start += batch.num_rows
        if decoder.stored is not None:
            failed = np.zeros(batch.num_rows, np.bool_)
            failed[list(decoded.failed)] = True
            schema = batch.schema.append(pa.field(_DECODED, decoded.values.type)).append(pa.field(_FAILED, pa.bool_()))
            schema = schema.with_metadata({**(batch.schema.metadata or {}), _BODY_KEY: decoder.stored})
            batch = pa.RecordBatch.from_arrays([*batch.columns, decoded.values, pa.array(failed)], schema=schema)
        found.append(batch)
    return found


def _decoded(batch: pa.RecordBatch, decoder: BodyDecoder) -> dict[str, pa.Array]:
    """The decoder's column of a batch of a data file, and `corrupt` with what does not fit it."""
    if decoder.stored is not None and (batch.schema.metadata or {}).get(_BODY_KEY) == decoder.stored:
        values, failed = batch.column(_DECODED), np.flatnonzero(batch.column(_FAILED)).tolist()
    else:
        values, reasons = decoder.decode(batch.column("body"))
        failed = list(reasons)
    corrupt = batch.column(_CORRUPT)
    if failed:
        messages = corrupt.to_pylist()
        for row in failed:
            messages[row] = whole_message({name: batch.column(name)[row].as_py() for name in ("head", "body", "tail")})
        corrupt = pa.array(messages, pa.binary())
    return {decoder.column: values, _CORRUPT: corrupt}


def whole_message(row: Mapping[str, bytes | None]) -> bytes:
    """The message as transferred, from the `head`, `body` and `tail` of a row in a data file."""
    head, body, tail = row["head"], row["body"], row["tail"]
    assert head is not None
    return head if tail is None else head + (body or b"") + tail


class _NoColumnHoldsIt(Exception):
    """The message is well-formed, but a value is beyond what the column's type can hold."""


@dataclass(frozen=True, slots=True)
class _Message:
    """A message whose sections have been looked for."""

    payload: bytes
    sections: Sections
    """Those in front of the damage, where there is some."""
    damage: DecodeError | None
    sequence: int | None
    """The broker's, where it is an acquit broker."""


def _read(payload: bytes, broker_id: UUID | None) -> _Message:
    damage = None
    try:
        sections = scan_sections(payload)
    except DecodeError as error:
        sections, damage = _readable_start(payload), error
    return _Message(payload, sections, damage, None if broker_id is None else _try(lambda: _sequence(sections)))


def _parse(sections: Sections, address: str, broker_id: UUID | None) -> _Row:
    header = _header(sections.header)
    sequence, posted_at, annotations = _annotations(sections, broker_id)
    message_id, to, subject, correlation_id, content_type, created_at = sections.property_values(*_PROPERTIES)
    properties = sections.decode_map(s.APPLICATION_PROPERTIES) if sections.has(s.APPLICATION_PROPERTIES) else {}
    head, body, tail, body_type = _body(sections)
    return _Row(
        head,
        tail,
        _id_text(message_id),
        sequence,
        _id_text(correlation_id),
        subject,  # type: ignore[arg-type]  # the codec has checked the types of the properties
        address if to is None else to,  # type: ignore[arg-type]
        content_type,  # type: ignore[arg-type]
        [(str(key), _text(value)) for key, value in properties.items()],
        annotations,
        header.delivery_count,
        header.delivery_count > 0 or (broker_id is not None and not header.first_acquirer),
        posted_at,
        _micros(created_at, "creation-time"),
        body,
        body_type,
        None,
    )


def _batch_like(read: Sequence[_Row], lot: Lot, good: Mask, numbers: Places) -> pa.RecordBatch:
    """What `_parse` makes of the `good` ones of plain messages. `read` is what it made of one of each pattern, and
    `numbers` says which message has which."""
    rows = np.flatnonzero(good)
    patterns = pa.array(np.unique(numbers[rows], return_inverse=True)[1])
    starts, ends = lot.starts[rows], lot.ends[rows]
    found = {
        "head": lot.slices(starts, lot.body_at[rows]),
        "message_id": lot.slices(lot.id_at[rows], lot.id_end[rows]).view(_TEXT),
        "sequence": pa.array(lot.sequences[rows]),
        "posted_at": pa.array(lot.posted_ms[rows] * 1_000).view(_TIME),
        "body": lot.slices(lot.body_at[rows], ends),
    }
    for field, values in zip(_FILE_SCHEMA, zip(*read, strict=True), strict=True):
        if field.name not in found:
            found[field.name] = pa.array(values, field.type).take(patterns)
    return pa.RecordBatch.from_arrays([found[name] for name in _FILE_SCHEMA.names], schema=_FILE_SCHEMA)


def _corrupt_row(payload: bytes, address: str, sequence: int | None) -> _Row:
    nothing = None, None
    return _Row(payload, None, None, sequence, *nothing, address, None, [], [], *nothing, *nothing, *nothing, payload)


def _annotations(
    sections: Sections, broker_id: UUID | None
) -> tuple[int | None, int | None, list[tuple[str, str | None]]]:
    """sequence, posted_at in microseconds, and the other annotations."""
    start, end = sections.bounds[s.MESSAGE_ANNOTATIONS], sections.bounds[s.MESSAGE_ANNOTATIONS + 1]
    if start == end:
        return None, None, []
    if broker_id is not None:
        # As an acquit broker writes it where the producer gave none: no need to read it entry by entry.
        match = _OWN_SECTION.fullmatch(sections.payload, start, end)
        if match is not None:
            sequence, posted_ms = _SEQUENCE_AND_TIME(match[1] + match[2])
            return _sequence_column(sequence), _micros(posted_ms, POSTED_AT_ANNOTATION), []
    annotations = sections.decode_map(s.MESSAGE_ANNOTATIONS)
    others = [(str(key), _text(value)) for key, value in annotations.items() if key not in _OWN_ANNOTATIONS]
    if broker_id is None:
        return None, None, others
    posted_at = _micros(annotations.get(POSTED_AT_ANNOTATION), POSTED_AT_ANNOTATION)
    return _sequence_column(annotations.get(SEQUENCE_ANNOTATION)), posted_at, others


# Few combinations come up, and most messages of a queue have the same.
@lru_cache(maxsize=1024)
def _header(section: bytes) -> Header:
    return decode_header(section) if section else Header()


def _body(sections: Sections) -> tuple[bytes, bytes | None, bytes | None, str | None]:
    """head, body, tail and body_type."""
    payload = sections.payload
    offset, end = sections.bounds[s.BODY], sections.bounds[s.BODY + 1]
    if offset == end:
        return payload, None, None, None
    # One piece of bytes or text, by far the most common: 0x00 0x53 code, constructor, size, content.
    if payload[offset + 1] == 0x53:
        form = payload[offset + 3]
        name = _PLAIN_FORMS.get((payload[offset + 2], form))
        if name is not None:
            start = offset + 5 if form < 0xB0 else offset + 8
            size = payload[offset + 4] if form < 0xB0 else _UINT32(payload, offset + 4)[0]
            if start + size == end:
                content = payload[start:end]
                if name == "string":
                    _check_utf8(content)
                return payload[:start], content, payload[end:], name
    body = Message.of_sections(sections).body
    match body:
        case Data():
            return payload, bytes(body), None, "data"
        case AmqpSequence():
            return (
                payload,
                json.dumps([_plain(value) for one in body.lists for value in one]).encode(),
                None,
                "sequence",
            )
        case AmqpValue(bytes() as content):
            return payload, content, None, "binary"
        case str() if not isinstance(body, Symbol):
            return payload, body.encode(), None, "string"
        case bytes():
            return payload, body, None, "data"
        case _:
            return payload, json.dumps(_plain(body)).encode(), None, "value"


_PLAIN_FORMS: Final = {
    (0x75, 0xA0): "data",
    (0x75, 0xB0): "data",
    (0x77, 0xA0): "binary",
    (0x77, 0xB0): "binary",
    (0x77, 0xA1): "string",
    (0x77, 0xB1): "string",
}


def _check_utf8(content: bytes) -> None:
    if not content.isascii():
        try:
            content.decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"the body is a string that is not UTF-8: {error.reason} at {error.start}") from error


def _readable_start(payload: bytes) -> Sections:
    """The sections in front of the damage, of those in front of the body: enough to know a message again."""
    offset = 0
    for _ in range(s.BODY):
        try:
            end = skip(payload, offset, len(payload))
            scan_sections(payload[:end])
        except DecodeError:
            break
        offset = end
    return scan_sections(payload[:offset])


def _try(find: Callable[[], T]) -> T | None:
    """What `find` finds; None where the section that it looks into is damaged."""
    try:
        return find()
    except DecodeError:
        return None


def _sequence(sections: Sections) -> int | None:
    bounds = sections.bounds
    match = _OWN_SECTION.fullmatch(sections.payload, bounds[s.MESSAGE_ANNOTATIONS], bounds[s.MESSAGE_ANNOTATIONS + 1])
    if match is not None:
        return int.from_bytes(match[1], "big") or None
    value = map_value(sections.message_annotations, SEQUENCE_ANNOTATION)
    return value if isinstance(value, int) and 0 < value <= _INT64_MAX else None


def _sequence_column(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value <= _INT64_MAX:
        raise _NoColumnHoldsIt(f"{SEQUENCE_ANNOTATION} is {value!s:.40}, which is no number of a column")
    return int(value)


def _micros(value: object, name: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or not _TIME_MIN_MS <= value <= TIME_MAX_MS:
        raise _NoColumnHoldsIt(f"{name} is {value!s:.40}, beyond any calendar")
    return int(value) * 1_000


def _id_text(value: object) -> str | None:
    return value if value is None or type(value) is str else _text(value)


def _text(value: object) -> str | None:
    """A value as text: booleans as in JSON, times as ISO 8601 in UTC, binary in hex, compounds as JSON."""
    if value is None or type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _plain(value: object) -> object:
    """What JSON can say of a value."""
    match value:
        case None | bool() | float():
            return value
        case Timestamp():
            try:
                return (_EPOCH + timedelta(milliseconds=int(value))).isoformat().replace("+00:00", "Z")
            except OverflowError:
                return int(value)
        case int():
            return int(value)
        case str():
            return str(value)
        case UUID():
            return str(value)
        case bytes():
            return value.hex()
        case dict():
            return {str(_text(key)): _plain(item) for key, item in value.items()}
        case Described():
            return _plain(value.value)
        case Iterable():
            return [_plain(item) for item in value]
        case _:
            return str(value)


def _chunks(messages: Sequence[T]) -> Iterator[Sequence[T]]:
    """Few enough messages and bytes in each that 32-bit offsets hold and a reader's memory is bounded."""
    start = size = 0
    for end, message in enumerate(messages, 1):
        size += len(message.payload if isinstance(message, _Message) else message)  # type: ignore[arg-type]
        if end - start == _BATCH_ROWS or size >= _BATCH_BYTES or end == len(messages):
            yield messages[start:end]
            start, size = end, 0
