"""Parser of one message into a row, the long way: section by section, whatever bytes it is.

**Corrupt** means: some section cannot be decoded (DecodeError), or holds a value that no column can (NoColumnHoldsIt: a
time beyond the calendar).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from acquit.errors import DecodeError
from acquit.protocol import sections as s
from acquit.protocol.codec import Described, Symbol, Timestamp, skip
from acquit.protocol.definitions import Header, SectionCode
from acquit.protocol.extensions import POSTED_AT, SEQUENCE
from acquit.protocol.message import AmqpSequence, AmqpValue, Data, Message
from acquit.protocol.sections import (
    BINARY8,
    BINARY32,
    MAP8,
    SHORT_DESCRIPTOR,
    STRING8,
    STRING32,
    PropertyIndex,
    Sections,
    decode_header,
    map_value,
    scan_sections,
    section_head,
)
from acquit.protocol.types import Value
from acquit.spark.exact import exact_of, lost_of_map

_OWN_ANNOTATIONS: Final = frozenset((SEQUENCE, POSTED_AT))

TIME_MIN_MS: Final = -62_135_596_800_000
TIME_MAX_MS: Final = 253_402_300_799_999
"""Years 1 to 9999, as far as Spark's and Python's calendars go."""
T = TypeVar("T")
_INT64_MAX: Final = (1 << 63) - 1
_UINT32: Final = Struct(">I").unpack_from
_SEQUENCE_AND_TIME: Final = Struct(">Qq").unpack


def _symbol(text: str) -> bytes:
    return b"\xa3" + bytes((len(text),)) + text.encode()


_OWN_SECTION: Final = re.compile(
    b"%b.\x04%b\x80([\x00-\x7f].{7})%b\x83(.{8})"
    % (
        re.escape(section_head(SectionCode.MESSAGE_ANNOTATIONS, MAP8)),
        re.escape(_symbol(SEQUENCE)),
        re.escape(_symbol(POSTED_AT)),
    ),
    re.DOTALL,
)
"""A message-annotations section with these two and nothing else (a map8 of 4 items)."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_PROPERTIES: Final = range(PropertyIndex.REPLY_TO_GROUP_ID + 1)
"""All of them."""


class ParsedRow(NamedTuple):
    """A row of a data file: the message in pieces, and the columns of the source (`spark.columns`)."""

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
    durable: bool | None
    priority: int | None
    ttl_ms: int | None
    user_id: bytes | None
    reply_to: str | None
    content_encoding: str | None
    expires_at: int | None
    group_id: str | None
    group_sequence: int | None
    reply_to_group_id: str | None
    exact: bytes | None


_UNKNOWN: Final = (None,) * 11
"""Columns behind `corrupt` in the row of a corrupt message."""


class NoColumnHoldsIt(Exception):
    """The message is well-formed, but a value is beyond what the column's type can hold."""


@dataclass(frozen=True, slots=True)
class ReadMessage:
    """A message whose sections have been looked for."""

    payload: bytes
    sections: Sections
    """Sections in front of the damage, or all where there is none."""
    damage: DecodeError | None
    sequence: int | None
    """The broker's, where it is an acquit broker."""


def read_message(payload: bytes, broker_id: UUID | None) -> ReadMessage:
    """Look for its sections. Never raises."""
    damage = None
    try:
        sections = scan_sections(payload)
    except DecodeError as error:
        sections, damage = _readable_start(payload), error
    return ReadMessage(payload, sections, damage, None if broker_id is None else try_to(lambda: _sequence(sections)))


def parse(sections: Sections, address: str, broker_id: UUID | None) -> ParsedRow:
    """The row of a message taken from `address`. Raises DecodeError and NoColumnHoldsIt for a corrupt one."""
    header = _header(sections.header)
    sequence, posted_at, annotations = _annotations(sections, broker_id)
    message_id, user_id, to, subject, reply_to, correlation_id, *others = sections.property_values(*_PROPERTIES)
    content_type, content_encoding, expires_at_ms, created_at, group_id, group_sequence, reply_to_group_id = others
    properties = sections.decode_map(s.APPLICATION_PROPERTIES) if sections.has(s.APPLICATION_PROPERTIES) else {}
    head, body, tail, body_type = _body(sections)
    expires_at = _micros_if_any_calendar_has_it(expires_at_ms)
    lost: dict[str, object] = {
        "message_id": None if type(message_id) is str else message_id,
        "correlation_id": None if type(correlation_id) is str else correlation_id,
        "address": to if to == address else None,
        "application_properties": lost_of_map(properties, str),
        "annotations": lost_of_map(annotations, Symbol),
        "expires_at": expires_at_ms if expires_at is None else None,
    }
    return ParsedRow(  # the codec has checked the types of the properties
        head,
        tail,
        id_text(message_id),
        sequence,
        id_text(correlation_id),
        subject,  # type: ignore[arg-type]
        address if to is None else to,  # type: ignore[arg-type]
        content_type,  # type: ignore[arg-type]
        texts_of(properties),
        texts_of(annotations),
        header.delivery_count,
        header.delivery_count > 0 or (broker_id is not None and not header.first_acquirer),
        posted_at,
        _micros(created_at, "creation-time"),
        body,
        body_type,
        None,
        header.durable,
        header.priority,
        header.ttl,
        user_id,  # type: ignore[arg-type]
        reply_to,  # type: ignore[arg-type]
        content_encoding,  # type: ignore[arg-type]
        expires_at,
        group_id,  # type: ignore[arg-type]
        group_sequence,  # type: ignore[arg-type]
        reply_to_group_id,  # type: ignore[arg-type]
        exact_of(sections, lost, whole_body=tail is not None),  # type: ignore[arg-type]
    )


def corrupt_row(payload: bytes, address: str, sequence: int | None) -> ParsedRow:
    """The row of a message that `parse` refuses."""
    nothing = None, None
    behind = *nothing, *nothing, *nothing, payload, *_UNKNOWN
    return ParsedRow(payload, None, None, sequence, *nothing, address, None, [], [], *behind)


def _annotations(sections: Sections, broker_id: UUID | None) -> tuple[int | None, int | None, Mapping[Value, Value]]:
    """sequence, posted_at in microseconds, and the other annotations."""
    start, end = sections.bounds[s.MESSAGE_ANNOTATIONS], sections.bounds[s.MESSAGE_ANNOTATIONS + 1]
    if start == end:
        return None, None, {}
    if broker_id is not None:
        # As an acquit broker writes it where the producer gave none: no need to read it entry by entry.
        match = _OWN_SECTION.fullmatch(sections.payload, start, end)
        if match is not None:
            sequence, posted_ms = _SEQUENCE_AND_TIME(match[1] + match[2])
            return _sequence_column(sequence), _micros(posted_ms, POSTED_AT), {}
    annotations = sections.decode_map(s.MESSAGE_ANNOTATIONS)
    others = {key: value for key, value in annotations.items() if key not in _OWN_ANNOTATIONS}
    if broker_id is None:
        return None, None, others
    posted_at = _micros(annotations.get(POSTED_AT), POSTED_AT)
    return _sequence_column(annotations.get(SEQUENCE)), posted_at, others


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
    if payload[offset + 1] == SHORT_DESCRIPTOR:
        form = payload[offset + 3]
        name = _PLAIN_FORMS.get((payload[offset + 2], form))
        if name is not None:
            start = offset + 5 if form < BINARY32 else offset + 8
            size = payload[offset + 4] if form < BINARY32 else _UINT32(payload, offset + 4)[0]
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
    (SectionCode.DATA, BINARY8): "data",
    (SectionCode.DATA, BINARY32): "data",
    (SectionCode.AMQP_VALUE, BINARY8): "binary",
    (SectionCode.AMQP_VALUE, BINARY32): "binary",
    (SectionCode.AMQP_VALUE, STRING8): "string",
    (SectionCode.AMQP_VALUE, STRING32): "string",
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


def try_to(find: Callable[[], T]) -> T | None:
    """Return what `find` finds; None where the section that it looks into is damaged."""
    try:
        return find()
    except DecodeError:
        return None


def _sequence(sections: Sections) -> int | None:
    bounds = sections.bounds
    match = _OWN_SECTION.fullmatch(sections.payload, bounds[s.MESSAGE_ANNOTATIONS], bounds[s.MESSAGE_ANNOTATIONS + 1])
    if match is not None:
        return int.from_bytes(match[1], "big") or None
    value = map_value(sections.message_annotations, SEQUENCE)
    return value if isinstance(value, int) and type(value) is not bool and 0 < value <= _INT64_MAX else None


def posting_time(sections: Sections) -> int | None:
    """Return when the broker says that it took the message, in milliseconds. None where it does not say so: then a
    posting has no content but itself. Raises DecodeError."""
    bounds = sections.bounds
    match = _OWN_SECTION.fullmatch(sections.payload, bounds[s.MESSAGE_ANNOTATIONS], bounds[s.MESSAGE_ANNOTATIONS + 1])
    if match is not None:
        return int.from_bytes(match[2], "big", signed=True)
    value = map_value(sections.message_annotations, POSTED_AT)
    return int(value) if isinstance(value, Timestamp) else None


def _sequence_column(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value <= _INT64_MAX:
        raise NoColumnHoldsIt(f"{SEQUENCE} is {value!s:.40}, which is no number of a column")
    return int(value)


def _micros(value: object, name: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or not TIME_MIN_MS <= value <= TIME_MAX_MS:
        raise NoColumnHoldsIt(f"{name} is {value!s:.40}, beyond any calendar")
    return int(value) * 1_000


def _micros_if_any_calendar_has_it(value: object) -> int | None:
    try:
        return _micros(value, "absolute-expiry-time")
    except NoColumnHoldsIt:
        return None


def texts_of(entries: Mapping[Value, Value]) -> list[tuple[str, str | None]]:
    """A map of a message as the columns have it."""
    return [(str(key), text_of(value)) for key, value in entries.items()]


def body_of(section: bytes) -> tuple[bytes | None, str | None]:
    """The columns `body` and `body_type` of these sections of a body. Raises DecodeError."""
    _, body, _, body_type = _body(scan_sections(section))
    return body, body_type


def id_text(value: object) -> str | None:
    """A message-id or correlation-id as its column has it."""
    return value if value is None or type(value) is str else text_of(value)


def text_of(value: object) -> str | None:
    """A value as text: booleans as in JSON, times as ISO 8601 in UTC, binary in hex, compounds as JSON."""
    if value is None or type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _plain(value: object) -> object:
    """Return a value in a form that JSON can hold."""
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
            return {str(text_of(key)): _plain(item) for key, item in value.items()}
        case Described():
            return _plain(value.value)
        case Iterable():
            return [_plain(item) for item in value]
        case _:
            return str(value)
