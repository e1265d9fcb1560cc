"""Messages as rows: the columns of the source, and how messages become batches of rows.

`FIELDS` is the reference: name, Spark type, Arrow type, meaning. `docs/spark.md` repeats it.

**Parsed once, kept whole.** A row is parsed when the message is drained, because only then can a message that cannot be
parsed still be rejected. The data file holds the parsed columns *and* the message as it was transferred, so that a
replay is a mapped read, and a later version that makes other columns of the same messages can parse them again (the
version is in the file). The bytes of the body are not kept twice: a file row holds the message as `head`, `body` and
`tail`, where `body` is at the same time the column; where the body is not one piece of the message (several data
sections, a map, a number), `head` is the whole message and `tail` is null.

**Corrupt** (`spark.parsing` says what is) is a row with the whole message in `corrupt` and nulls in what it is too
broken to tell. Where the query wants bodies as text or JSON (`spark.decoding`), a body that does not fit makes a
corrupt row too, with all other columns; as that depends on what the query wants, it is found again where a replay wants
something else.

**Identity** is found whatever the sections behind it are, so that a message with a damaged body is still recognised.

Most messages go the short way (`spark.plain`), all others the long one (`spark.parsing`). The lots that are read for
the identities are kept for the rows: the bytes are joined and looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, NamedTuple, Self, TypeAlias, cast
from uuid import UUID

import numpy as np
import pyarrow as pa

from acquit.errors import ConfigurationError, DecodeError
from acquit.protocol import sections as s
from acquit.protocol.codec import encode
from acquit.protocol.sections import PropertyIndex, Sections, map_value
from acquit.spark.alike import batch_like, holds
from acquit.spark.decoding import BodyAs, BodyDecoder, body_ddl, decoder_for
from acquit.spark.options import FORMAT_NAME, type_ddl
from acquit.spark.parsing import (
    NoColumnHoldsIt,
    ParsedRow,
    ReadMessage,
    corrupt_row,
    parse,
    posting_time,
    read_message,
    try_to,
)
from acquit.spark.plain import Lot, Mask, Places, read_lot
from acquit.spark.spool.drain import Identified, KeptMessages, Rows
from acquit.spark.spool.entries import FIRST_FORMAT
from acquit.spark.spool.identities import Content, Identities

_TEXT: Final = pa.string()
_TIME: Final = pa.timestamp("us", "UTC")
_MAP: Final = pa.map_(pa.string(), pa.string())


class SourceColumn(NamedTuple):
    """A column of the source."""

    name: str
    spark_type: str
    arrow_type: pa.DataType
    meaning: str
    since: int = 1
    """Generation of tables that has it first. An ingest goes on with the columns of its table's own (`generations`)."""


FIELDS: Final = (
    SourceColumn(
        "message_id", "STRING", _TEXT, "message-id; a uuid in its usual form, a number in decimal, binary in hex"
    ),
    SourceColumn(
        "sequence", "BIGINT", pa.int64(), "the acquit broker's number for the posting; null from other brokers"
    ),
    SourceColumn("correlation_id", "STRING", _TEXT, "correlation-id, written as message_id is"),
    SourceColumn("subject", "STRING", _TEXT, "subject"),
    SourceColumn("address", "STRING", _TEXT, "the property `to`, or the address that was read where it is absent"),
    SourceColumn("queue", "STRING", _TEXT, "the address that was read, as the option names it"),
    SourceColumn("content_type", "STRING", _TEXT, "content-type"),
    SourceColumn("application_properties", "MAP<STRING, STRING>", _MAP, "values as text, see below"),
    SourceColumn(
        "annotations",
        "MAP<STRING, STRING>",
        _MAP,
        "message annotations, values as text; without those that are `sequence` and `posted_at`",
    ),
    SourceColumn("delivery_count", "BIGINT", pa.int64(), "failed attempts before the one that was taken"),
    SourceColumn(
        "redelivered", "BOOLEAN", pa.bool_(), "delivery_count > 0, or an acquit broker says it was acquired before"
    ),
    SourceColumn("posted_at", "TIMESTAMP", _TIME, "when the acquit broker took it; null from other brokers"),
    SourceColumn("created_at", "TIMESTAMP", _TIME, "creation-time, the producer's clock"),
    SourceColumn("body", "BINARY", pa.binary(), "the content; text as UTF-8; maps, lists and numbers as JSON"),
    SourceColumn(
        "body_type", "STRING", _TEXT, "what the body was: data, string, binary, value or sequence; null for none"
    ),
    SourceColumn("corrupt", "BINARY", pa.binary(), "the whole message, if it could not be parsed"),
    SourceColumn("durable", "BOOLEAN", pa.bool_(), "whether the producer said so", 2),
    SourceColumn("priority", "INT", pa.int32(), "0 to 255; 4 where the producer said nothing", 2),
    SourceColumn("ttl_ms", "BIGINT", pa.int64(), "what was left of the time to live, in milliseconds", 2),
    SourceColumn("user_id", "BINARY", pa.binary(), "user-id", 2),
    SourceColumn("reply_to", "STRING", _TEXT, "reply-to", 2),
    SourceColumn("content_encoding", "STRING", _TEXT, "content-encoding", 2),
    SourceColumn("expires_at", "TIMESTAMP", _TIME, "absolute-expiry-time", 2),
    SourceColumn("group_id", "STRING", _TEXT, "group-id", 2),
    SourceColumn("group_sequence", "BIGINT", pa.int64(), "group-sequence", 2),
    SourceColumn("reply_to_group_id", "STRING", _TEXT, "reply-to-group-id", 2),
    SourceColumn(
        "exact",
        "BINARY",
        pa.binary(),
        "what the text of other columns loses, as the types of properties, as an AMQP map for the sink; else null",
        2,
    ),
)
BY_NAME: Final = {field.name: field for field in FIELDS}
SCHEMA_DDL: Final = ", ".join(f"{field.name} {type_ddl(field.spark_type)}" for field in FIELDS)

PARSER_VERSION: Final = b"2"
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
_FEW_ROWS: Final = 1_024
"""Fewer messages than that, as come from a queue that is nearly empty, are read once more with those around them: what
a lot costs, whatever its size, would be more."""


class _Identity(NamedTuple):
    """Identity of one message, as the long way finds it."""

    key: bytes | None
    """Unambiguous over all kinds of identity; None if it has none."""
    content: Content
    names_posting: bool
    sequence: int | None
    by_sequence: bool
    """True if it is the sequence that identifies the message."""


def _sequence_key(broker_id: UUID, sequence: int) -> bytes:
    """Return a posting's identity as bytes."""
    return b"s" + broker_id.bytes + sequence.to_bytes(8, "big")


_ID_FIELDS: Final = {"message-id": PropertyIndex.MESSAGE_ID, "correlation-id": PropertyIndex.CORRELATION_ID}
_ID_MAPS: Final = {
    "application-properties": s.APPLICATION_PROPERTIES,
    "message-annotations": s.MESSAGE_ANNOTATIONS,
}

IdentityFinder: TypeAlias = Callable[[Sections], object]

assert ParsedRow._fields == tuple(_FILE_SCHEMA.names)


def identity_finder(field: str) -> IdentityFinder:
    """Return the function that finds the value of `identityField` in a message: ``message-id``, ``correlation-id``,
    ``application-properties.NAME`` or ``message-annotations.NAME``. Raises ValueError for anything else."""
    if field in _ID_FIELDS:
        index = _ID_FIELDS[field]
        return lambda sections: sections.property_values(index)[0]
    section, _, key = field.partition(".")
    if section in _ID_MAPS and key:
        rank = _ID_MAPS[section]
        return lambda sections: map_value(sections.section(rank), key)
    raise ValueError("message-id, correlation-id, application-properties.NAME or message-annotations.NAME")


@dataclass(frozen=True, slots=True)
class ChosenMessages:
    """The `KeptMessages` of the source: some of a lot."""

    lot: Lot
    chosen: Places
    """Rows in the lot, which ascend."""

    def __len__(self) -> int:
        return len(self.chosen)

    def take(self, rows: Places) -> Self:
        """See `KeptMessages`."""
        return replace(self, chosen=self.chosen[rows])

    def payload(self, row: int) -> bytes:
        """Return the bytes of one message."""
        return self.lot.payload(self.chosen[row])

    def payloads(self) -> list[bytes]:
        """Return the bytes of each."""
        return [self.lot.payload(row) for row in self.chosen.tolist()]

    def plain(self) -> tuple[Mask, Lot]:
        """Return which of them are plain, and the lot of these."""
        plain = self.lot.plain[self.chosen]
        rows = self.chosen[plain]
        return plain, self.lot if len(rows) == len(self.lot.plain) else self.lot.take(rows)


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """The `MessageReader` of the source: reads AMQP messages taken from `address`."""

    address: str
    identity_field: str | None = None
    decoder: BodyDecoder | None = None

    def identify(self, payloads: Sequence[bytes], broker_id: UUID | None) -> Identified:
        """Identity in this order: `identity_field` where the user names one, the broker's sequence, message-id.

        A field that the user names says which messages are one, whoever posted them and however often: a producer that
        posts again what was in doubt has one row, though its message has another id and another time by then: their
        bodies are compared, and nothing else of them. The broker's sequence names each posting: that it is one, and no
        other of a broker that gave its sequences twice, the time of the posting tells. The message-id, where nobody
        said so, is believed less: two deliveries on one unbroken link are two messages. Fields identify within
        one queue: the copies of a topic's message in two subscriptions are two messages. Never raises.
        """
        parts = [self._identify_lot(chunk, broker_id) for chunk in _chunks(payloads)]
        return parts[0] if len(parts) == 1 else Identified.join(parts)

    def rows(self, messages: Sequence[KeptMessages], broker_id: UUID | None) -> Rows:
        """Rows in the form of a data file; `select` makes the source's columns of them. Never raises."""
        corrupt: dict[int, str] = {}
        batches = []
        metadata = {
            _PARSER_KEY: PARSER_VERSION,
            _BROKER_KEY: b"" if broker_id is None else broker_id.bytes,
            _QUEUE_KEY: self.address.encode(),
        }
        start = 0
        for chosen in _together([cast("ChosenMessages", some) for some in messages], broker_id):
            batch = self._batch(chosen, broker_id, start, corrupt)
            batches.append(batch.replace_schema_metadata(metadata))
            start += len(chosen)
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

    def earlier(self, messages: Sequence[KeptMessages], broker_id: UUID | None, log_format: int) -> Identities:
        """Return the fingerprints that messages of `identify`, all with an identity, had in an earlier format of the
        log: digests of their keys and contents, of which one was the time of a posting; before that, a bare message."""
        keys: list[bytes] = []
        contents: list[Content] = []
        for some in messages:
            chosen = cast("ChosenMessages", some)
            sequences, times = chosen.lot.postings() if broker_id is not None else (chosen.chosen, chosen.chosen)
            posted = self._by_posting(chosen.lot, broker_id)
            for row in chosen.chosen.tolist():
                if broker_id is not None and posted[row]:
                    key: bytes | None = _sequence_key(broker_id, int(sequences[row]))
                    content: Content = int(times[row])
                else:
                    key, content, *_ = self._identify(chosen.lot.payload(row), broker_id)
                if log_format == FIRST_FORMAT and isinstance(content, int):
                    content = _bare(read_message(chosen.lot.payload(row), broker_id))
                assert key is not None
                keys.append(key)
                contents.append(content)
        return Identities.of(keys, contents)

    def _by_posting(self, lot: Lot, broker_id: UUID | None) -> Mask:
        """Return which messages a lot tells the identity of, by sequence and time."""
        if broker_id is None or self.identity_field is not None:
            return np.zeros_like(lot.numbered)
        return lot.numbered

    def _identify_lot(self, payloads: Sequence[bytes], broker_id: UUID | None) -> Identified:
        """Return the identities of messages that are read together."""
        lot, count = read_lot(payloads, ours=broker_id is not None), len(payloads)
        known = self._by_posting(lot, broker_id)
        named, names_posting, by_sequence = known.copy(), known.copy(), known.copy()
        sequences, times = np.zeros(count, np.int64), np.zeros(count, np.int64)
        if broker_id is not None:
            sequences, times = (np.where(known, column, 0) for column in lot.postings())
        digested: dict[int, tuple[bytes, Content]] = {}
        if broker_id is None and self.identity_field is None:
            digested = self._identify_names(lot)
            known = lot.plain & lot.nameless
            known[list(digested)] = True
        for row in np.flatnonzero(~known).tolist():
            found = self._identify(payloads[row], broker_id)
            names_posting[row], by_sequence[row] = found.names_posting, found.by_sequence
            sequences[row] = found.sequence or 0
            if isinstance(found.content, int):
                times[row], named[row] = found.content, True
            elif found.key is not None:
                digested[row] = found.key, found.content
        identities = Identities.of_postings(broker_id or UUID(int=0), sequences, times)
        if digested:
            rows = np.array([*digested], np.int64)
            named[rows] = True
            others = Identities.of(*zip(*digested.values(), strict=True))
            # The sequence of a posting without a time is the same identity as with one.
            identity = np.where(by_sequence[rows], identities.identity[rows], others.identity)
            identities = identities.put(rows, replace(others, identity=identity))
        return Identified(identities, named, names_posting, sequences, [ChosenMessages(lot, np.arange(count))])

    def _identify_names(self, lot: Lot) -> dict[int, tuple[bytes, Content]]:
        """Return keys and contents of plain messages, by row, of those that the lot tells the message-id of."""
        prefix, bare = self._field_prefix("message-id"), lot.bare()
        rows, names = lot.names()
        return {row: (prefix + name, bare[row]) for row, name in zip(rows.tolist(), names, strict=True)}

    def _identify(self, payload: bytes, broker_id: UUID | None) -> _Identity:
        message = read_message(payload, broker_id)
        sections, sequence = message.sections, message.sequence
        if self.identity_field is not None:
            key = self._field_key(self.identity_field, sections)
            if key is not None:
                body = payload[sections.bounds[s.BODY] : _content_end(message)]
                return _Identity(key, body, True, sequence, by_sequence=False)
        bare = _bare(message)
        if broker_id is not None and sequence is not None:
            posted_ms = try_to(lambda: posting_time(sections))
            content: Content = bare if posted_ms is None else posted_ms
            return _Identity(_sequence_key(broker_id, sequence), content, True, sequence, by_sequence=True)
        return _Identity(self._field_key("message-id", sections), bare, False, sequence, by_sequence=False)

    def _batch(
        self, messages: ChosenMessages, broker_id: UUID | None, start: int, corrupt: dict[int, str]
    ) -> pa.RecordBatch:
        """The rows of messages, of which the first is number `start`; what cannot be parsed is added to `corrupt`."""
        alike, batch = self._rows_alike(messages, broker_id)
        if alike.all():
            return batch
        rows = []
        for number in np.flatnonzero(~alike).tolist():
            message = read_message(messages.payload(number), broker_id)
            row = self._try_parse(message, broker_id)
            if not isinstance(row, ParsedRow):
                corrupt[start + number] = row
                row = corrupt_row(message.payload, self.address, message.sequence)
            rows.append(row)
        columns = zip(zip(*rows, strict=True), _FILE_SCHEMA.types, strict=True)
        others = pa.RecordBatch.from_arrays([pa.array(*column) for column in columns], schema=_FILE_SCHEMA)
        order = np.argsort(np.concatenate((np.flatnonzero(alike), np.flatnonzero(~alike))))
        return pa.concat_batches([batch, others]).take(pa.array(order))

    def _rows_alike(self, messages: ChosenMessages, broker_id: UUID | None) -> tuple[Mask, pa.RecordBatch]:
        """Return which messages are plain (`spark.plain`) and of a pattern that can be used, and their rows."""
        alike, lot = messages.plain()
        numbers, examples = lot.patterns()
        read: list[ParsedRow] = []
        usable = np.zeros(len(examples), np.bool_)
        for pattern, example in enumerate(examples.tolist()):
            row = self._try_parse(read_message(lot.payload(example), broker_id), broker_id)
            if isinstance(row, ParsedRow) and holds(row, lot, example):
                usable[pattern] = True
                read.append(row)
        good = usable[numbers]
        alike[alike] = good
        return alike, batch_like(read, lot, good, numbers, _FILE_SCHEMA)

    def _try_parse(self, message: ReadMessage, broker_id: UUID | None) -> ParsedRow | str:
        """Return the row of a message, or the reason why it has none."""
        try:
            if message.damage is not None:
                raise message.damage
            return parse(message.sections, self.address, broker_id)
        except (DecodeError, NoColumnHoldsIt) as error:
            return str(error)

    def _field_key(self, field: str, sections: Sections) -> bytes | None:
        """The identity that a field gives, if it is there. Encoded as AMQP: the string "1", the ulong 1 and the binary
        0x31 are three ids."""
        value = try_to(lambda: identity_finder(field)(sections))
        return None if value is None else self._field_prefix(field) + encode(value)

    def _field_prefix(self, field: str) -> bytes:
        return f"f{field}\0{self.address}\0".encode()


def _bare(message: ReadMessage) -> bytes:
    """Return the bare message, and with it what is behind it where that is damaged."""
    return message.payload[message.sections.bounds[s.PROPERTIES] : _content_end(message)]


def _content_end(message: ReadMessage) -> int:
    """Return where the bare message ends. What is damaged goes to the end: where a section would have ended nobody
    knows."""
    return message.sections.bounds[s.FOOTER] if message.damage is None else len(message.payload)


def schema_ddl(body_as: BodyAs = BodyAs.BYTES, body_schema: str | None = None) -> str:
    """All columns, as DDL. Raises ConfigurationError where the schema of JSON bodies is missing."""
    return ", ".join(column for column in (SCHEMA_DDL, body_ddl(body_as, body_schema)) if column is not None)


def generations() -> Iterator[list[str]]:
    """The columns that tables without a choice of columns were made with, the newest first."""
    for generation in range(max(field.since for field in FIELDS), 0, -1):
        yield [field.name for field in FIELDS if field.since <= generation]


def check_columns(wanted: pa.Schema, body_as: BodyAs = BodyAs.BYTES) -> BodyDecoder | None:
    """Return the decoder of bodies, if any. Raises ConfigurationError for a column or type that is not the source's."""
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


def _chunks(payloads: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Few enough messages and bytes in each that 32-bit offsets hold and a reader's memory is bounded."""
    bytes_until = np.cumsum([0, *map(len, payloads)], dtype=np.int64)
    start = 0
    while start < len(payloads):
        full = int(np.searchsorted(bytes_until, bytes_until[start] + _BATCH_BYTES))
        end = max(start + 1, min(start + _BATCH_ROWS, full, len(payloads)))
        yield payloads[start:end]
        start = end


def _together(messages: Sequence[ChosenMessages], broker_id: UUID | None) -> Iterator[ChosenMessages]:
    """Yield these messages, those together that are few."""
    for few, group in groupby(messages, lambda chosen: len(chosen) < _FEW_ROWS):
        some = list(group)
        if few and len(some) > 1:
            payloads = [payload for chosen in some for payload in chosen.payloads()]
            for chunk in _chunks(payloads):
                yield ChosenMessages(read_lot(chunk, ours=broker_id is not None), np.arange(len(chunk)))
        else:
            yield from some
