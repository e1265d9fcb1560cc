"""The content of a message for people to read: each section as JSON, the body as text or JSON where it is that.

A body may be anything at all, so whatever shows it must show it as text, never as markup.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from acquit.errors import DecodeError
from acquit.protocol.jsonform import Json, to_json
from acquit.protocol.message import AmqpSequence, AmqpValue, Data, Message

SHOWN_BYTES_MAX: Final = 64 * 1024
"""Bytes of a body that are shown; of octets that are no text, a sixteenth of them."""


def content_of(payload: bytes) -> dict[str, Json]:
    """Return the sections of an encoded message by name; one that is malformed says so in its place."""
    try:
        message = Message.decode(payload)
    except DecodeError as exc:
        return {"malformed": str(exc), "octets": _octets(payload)}
    found: dict[str, Json] = {}
    for name in ("header", "delivery_annotations", "annotations", "properties", "application_properties"):
        try:
            found[name] = _section(getattr(message, name))
        except DecodeError as exc:
            found[name] = f"malformed: {exc}"
    try:
        found["body"], found["body_type"] = _body(message.body)
        found["footer"] = _section(message.footer)
    except DecodeError as exc:
        found["body"] = f"malformed: {exc}"
    return {name: value for name, value in found.items() if value not in ({}, None)}


def _section(section: object) -> Json:
    if isinstance(section, Mapping):
        return {str(key): to_json(value) for key, value in section.items()}
    values = {field.name: getattr(section, field.name) for field in fields(section)}  # type: ignore[arg-type]
    return {name: to_json(value) for name, value in values.items() if value is not None}


def _body(body: object) -> tuple[Json, str]:
    match body:
        case bytes() | Data():
            return _data(bytes(body)), "data"
        case AmqpSequence():
            return to_json(body.lists), "sequence"
        case AmqpValue(value=value) | value:
            if isinstance(value, str):
                return _cut(value), "value: string"
            if isinstance(value, bytes):
                return _data(value), "value: binary"
            return to_json(value), "value"


def _data(octets: bytes) -> Json:
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        return _octets(octets)
    if text.lstrip()[:1] in ("{", "["):
        try:
            found: Json = json.loads(text)
        except (ValueError, RecursionError):
            return _cut(text)
        return found if len(text) <= SHOWN_BYTES_MAX else _cut(text)
    return _cut(text)


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


__all__ = ["SHOWN_BYTES_MAX", "content_of"]
