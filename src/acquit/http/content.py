"""The content of a message for people to read: each section as JSON, the body as text or JSON where it is that.

A body of JSON that would not be told as it was written, because a number would be rounded or one of two equal keys left
out, is shown as text.

A body may be anything at all, so whatever shows it must show it as text, never as markup.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from decimal import Decimal
from typing import Final

from acquit.errors import DecodeError
from acquit.protocol.definitions import SectionCode
from acquit.protocol.jsonform import Json, to_json
from acquit.protocol.message import AmqpSequence, AmqpValue, Data, Message
from acquit.protocol.sections import (
    APPLICATION_PROPERTIES,
    BINARY32,
    BODY,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    STRING32,
    VALUE_HEAD,
    Sections,
    scan_sections,
)
from acquit.protocol.types import Array, Described

SHOWN_BYTES_MAX: Final = 64 * 1024
"""Bytes of a body, or of another section, that are shown; of octets that are no text, a sixteenth of them."""
NESTED_MAX: Final = 100
"""Lists and objects in one another, in a body that is shown as JSON; a deeper one is shown as text."""
WHOLE_MAX: Final = (1 << 53) - 1
"""The largest whole number that all who read JSON read exactly."""
READ_BYTES_MAX: Final = 4 * SHOWN_BYTES_MAX
"""Encoded bytes of a section that is decoded at all, unless it is a text or octets: in no more than these there can be
so little that it is shown, and a MiB can hold half a million values."""
_RANKS: Final = {
    "header": HEADER,
    "delivery_annotations": DELIVERY_ANNOTATIONS,
    "annotations": MESSAGE_ANNOTATIONS,
    "properties": PROPERTIES,
    "application_properties": APPLICATION_PROPERTIES,
    "body": BODY,
    "footer": FOOTER,
}
_PLAIN: Final = (STRING32, BINARY32)
"""Constructors of large texts and octets."""
_TOO_MUCH: Final = f"too much to be shown: more than {SHOWN_BYTES_MAX} bytes"


def content_of(payload: bytes) -> dict[str, Json]:
    """Return the sections of an encoded message by name; one that is malformed says so in its place."""
    try:
        sections = scan_sections(payload)
    except DecodeError as exc:
        return {"malformed": str(exc), "octets": _octets(payload)}
    message = Message.of_sections(sections)
    found: dict[str, Json] = {}
    for name, rank in _RANKS.items():
        try:
            if rank == BODY:
                found[name], found["body_type"] = _large(sections) or _body(message.body)
            elif _size(sections, rank) > READ_BYTES_MAX:
                found[name] = _TOO_MUCH
            else:
                found[name] = _section(getattr(message, name))
        except DecodeError as exc:
            found[name] = f"malformed: {exc}"
    return {name: value for name, value in found.items() if value not in ({}, None)}


def _size(sections: Sections, rank: int) -> int:
    return sections.bounds[rank + 1] - sections.bounds[rank]


def _large(sections: Sections) -> tuple[Json, str] | None:
    """Return what is told of a body of values that are too many to look at; None for another."""
    if sections.body_code == SectionCode.DATA or _size(sections, BODY) <= READ_BYTES_MAX:
        return None
    if sections.body_code == SectionCode.AMQP_SEQUENCE:
        return _TOO_MUCH, "sequence"
    start = sections.bounds[BODY]
    head, constructor = sections.payload[start : start + len(VALUE_HEAD)], sections.payload[start + len(VALUE_HEAD)]
    return None if head == VALUE_HEAD and constructor in _PLAIN else (_TOO_MUCH, "value")


def _section(section: object) -> Json:
    if isinstance(section, Mapping):
        if _left(section, SHOWN_BYTES_MAX) < 0:
            return _TOO_MUCH
        return {str(key): to_json(value) for key, value in section.items()}
    values = {field.name: getattr(section, field.name) for field in fields(section)}  # type: ignore[arg-type]
    return {name: to_json(value) for name, value in values.items() if value is not None}


def _body(body: object) -> tuple[Json, str]:
    match body:
        case bytes() | Data():
            return _data(bytes(body)), "data"
        case AmqpSequence():
            return _few(body.lists), "sequence"
        case AmqpValue(value=value) | value:
            if isinstance(value, str):
                return _cut(value), "value: string"
            if isinstance(value, bytes):
                return _data(value), "value: binary"
            return _few(value), "value"


def _few(value: object) -> Json:
    """Return a value as JSON, or in its place that there is too much of it."""
    return _TOO_MUCH if _left(value, SHOWN_BYTES_MAX) < 0 else to_json(value)


def _left(value: object, room: int) -> int:
    """Return what a value leaves of the room for it: it takes about as many bytes as it has. Below 0: it is too large,
    which is found without looking at all of it."""
    match value:
        case str() | bytes():
            return room - len(value) - 1
        case Mapping():
            for key, item in value.items():
                room = _left(item, _left(key, room))
                if room < 0:
                    break
        case list() | tuple():
            for item in value:
                room = _left(item, room)
                if room < 0:
                    break
        case Array():
            return _left(value.items, room)
        case Described():
            return _left(value.value, _left(value.descriptor, room))
        case _:
            return room - 4
    return room - 1


def _data(octets: bytes) -> Json:
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        return _octets(octets)
    if text.lstrip()[:1] in ("{", "[") and len(text) <= SHOWN_BYTES_MAX:
        try:
            found: Json = _EXACTLY.decode(text)
            # What Python reads and JSON does not have: NaN, half a pair of surrogates.
            json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, ArithmeticError, RecursionError):
            return text
        return text if _is_deep(found) else found
    return _cut(text)


def _whole(digits: str) -> int:
    """Return a whole number. Raises ValueError for one that readers of JSON round."""
    number = int(digits)
    if abs(number) > WHOLE_MAX:
        raise ValueError(f"{digits:.40} is rounded by many who read JSON")
    return number


def _fraction(digits: str) -> float:
    """Return a number with a fraction or an exponent. Raises ValueError or ArithmeticError for one that a double does
    not tell as it was written."""
    number = float(digits)
    if not math.isfinite(number) or Decimal(repr(number)) != Decimal(digits):
        raise ValueError(f"{digits:.40} is no number that a double tells exactly")
    return number


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Return an object. Raises ValueError for one that has a key twice, of which readers leave one out."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key is there twice")
    return members


_EXACTLY: Final = json.JSONDecoder(parse_int=_whole, parse_float=_fraction, object_pairs_hook=_members)
"""The reader of JSON that refuses what it would change."""


def _is_deep(value: Json) -> bool:
    """Return whether it is nested deeper than `NESTED_MAX`: who writes it as JSON may find less of the stack left than
    there is here."""
    level: list[Json] = [value]
    for _ in range(NESTED_MAX + 1):
        within = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, list | dict)]
        level = [item for items in within for item in items]
    return bool(level)


def _cut(text: str) -> str:
    left = len(text) - SHOWN_BYTES_MAX
    return text if left <= 0 else f"{text[:SHOWN_BYTES_MAX]}\n... and {left} characters more"


def _octets(octets: bytes) -> str:
    """Return octets in hex and as far as they are ASCII, sixteen a line."""
    most = SHOWN_BYTES_MAX // 16
    lines = []
    for at in range(0, min(len(octets), most), 16):
        row = octets[at : at + 16]
        shown = "".join(chr(octet) if 0x20 <= octet < 0x7F else "." for octet in row)
        lines.append(f"{at:08x}  {row.hex(' '):47}  {shown}")
    if len(octets) > most:
        lines.append(f"... and {len(octets) - most} octets more")
    return "\n".join(lines)


__all__ = ["NESTED_MAX", "SHOWN_BYTES_MAX", "content_of"]
