"""A message as the JSON document that `receive --json` prints and `send --json-lines` takes.

::

    {"body": "one order", "body_type": "value", "message_id": "o-17", "durable": true,
     "properties": {"customer": 9}, "delivery": {"sequence": 12, "delivery_count": 0, ...}}

``body_type`` is "data" (binary; text where it is UTF-8, else ``{"base64": ...}``), "value", or "sequence" (a list of
lists). Without it ``{"base64": ...}`` is data and everything else a value. Fields that a message does not set are left
out; where `durable` is left out of what is sent, it is true. ``delivery`` and ``annotations`` tell of one delivery:
they are printed and, when a document is sent, left behind. So ``acquit receive a --json | acquit send b --json-lines``
copies what the senders wrote. Times are milliseconds since 1970.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from acquit.errors import ConfigurationError
from acquit.protocol.jsonform import Json, from_json, read_json, to_json
from acquit.protocol.message import AmqpSequence, AmqpValue, Data, Message
from acquit.protocol.types import Symbol

if TYPE_CHECKING:
    from acquit import ReceivedMessage


class _NotExpected(ValueError):
    """A message on the command line that cannot be sent; the text says what was expected instead."""


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise _NotExpected("true or false")
    return value


def _integer(low: int, high: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _NotExpected(f"an integer from {low} to {high}")
        return value

    return read


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _NotExpected("a string")
    return value


def _symbol(value: object) -> Symbol:
    if not isinstance(value, str) or not value.isascii():
        raise _NotExpected("a string of ASCII characters")
    return Symbol(value)


def _identity(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | UUID | bytes):
        raise _NotExpected('a string, an integer, {"uuid": ...} or {"base64": ...}')
    return value


def _binary(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise _NotExpected('{"base64": ...}')
    return value


def _properties(value: object) -> dict[str, object]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise _NotExpected("an object")
    return value


# key of the document: (attribute of Message, how the sent value is read), in the order they are printed
FIELDS: Final[dict[str, tuple[str, Callable[[object], object]]]] = {
    "message_id": ("message_id", _identity),
    "subject": ("subject", _text),
    "to": ("to", _text),
    "user_id": ("user_id", _binary),
    "reply_to": ("reply_to", _text),
    "correlation_id": ("correlation_id", _identity),
    "content_type": ("content_type", _symbol),
    "content_encoding": ("content_encoding", _symbol),
    "absolute_expiry_time": ("absolute_expiry_time", _integer(-(2**63), 2**63 - 1)),
    "creation_time": ("creation_time", _integer(-(2**63), 2**63 - 1)),
    "group_id": ("group_id", _text),
    "group_sequence": ("group_sequence", _integer(0, 2**32 - 1)),
    "reply_to_group_id": ("reply_to_group_id", _text),
    "durable": ("durable", _boolean),
    "priority": ("priority", _integer(0, 255)),
    "ttl_ms": ("ttl_ms", _integer(0, 2**32 - 1)),
    "properties": ("application_properties", _properties),
}
UNTOLD: Final[dict[str, object]] = {"priority": 4, "properties": {}}
"""Values that go without saying."""
TOLD: Final = ("annotations", "delivery")
"""Keys that are printed and not sent."""
BODY_CHARACTERS_MAX: Final = 2000
"""Characters of a body that a person is shown; `--json` prints all of it."""


def describe(message: ReceivedMessage) -> dict[str, Json]:
    """The document of a received message."""
    document: dict[str, Json] = {}
    document["body"], document["body_type"] = body_to_json(message.body)
    for key, (attribute, _) in FIELDS.items():
        value = getattr(message, attribute)
        if value is not None and value != UNTOLD.get(key):
            document[key] = to_json(value)
    if message.annotations:
        document["annotations"] = to_json(message.annotations)
    document["delivery"] = {
        "sequence": message.sequence,
        "delivery_count": message.delivery_count,
        "redelivered": message.redelivered,
    }
    return document


def compose(text: str) -> Message:
    """The message of one line of JSON. Raises ConfigurationError naming the key and what was expected of it."""
    try:
        document = read_json(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"not JSON: {error}") from error
    try:
        return _compose(document)
    except RecursionError:
        raise ConfigurationError("the JSON is nested too deeply for a message") from None


def _compose(document: object) -> Message:
    if not isinstance(document, dict):
        raise ConfigurationError(f'expected an object like {{"body": ...}}, found {json.dumps(document)[:40]}')
    values: dict[str, object] = {"durable": True}
    for key, form in document.items():
        if key in FIELDS:
            attribute, read = FIELDS[key]
            try:
                values[attribute] = read(from_json(form))
            except _NotExpected as error:
                raise ConfigurationError(f"{key}: expected {error}, found {json.dumps(form)[:60]}") from None
        elif key not in ("body", "body_type", *TOLD):
            raise ConfigurationError(f"{key}: no such field; expected body, body_type, {', '.join(FIELDS)}")
    values["body"] = _body_from_json(document.get("body"), document.get("body_type"))
    return Message(**values)  # type: ignore[arg-type]  # each value was read by its own row of FIELDS


def body_text(form: Json) -> str:
    """Return the JSON form of a body as a person reads it, cut after `BODY_CHARACTERS_MAX`."""
    text = form if isinstance(form, str) else json.dumps(form, ensure_ascii=False)
    if len(text) > BODY_CHARACTERS_MAX:
        return f"{text[:BODY_CHARACTERS_MAX]}… ({len(text) - BODY_CHARACTERS_MAX} characters more; --json shows all)"
    return text


def body_to_json(body: object) -> tuple[Json, str]:
    """Return the JSON form of a body, and its type: data, value or sequence."""
    match body:
        case bytes():
            return _data_to_json(body), "data"
        case Data():
            return _data_to_json(bytes(body)), "data"
        case AmqpSequence():
            return to_json(body.lists), "sequence"
        case AmqpValue():
            return to_json(body.value), "value"
        case _:
            return to_json(body), "value"


def _data_to_json(data: bytes) -> Json:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return to_json(data)


def _body_from_json(form: Json, body_type: object) -> object:
    value = from_json(form)
    match body_type:
        case None:
            return value  # bytes are a data section, everything else a value
        case "value":
            return AmqpValue(value) if isinstance(value, bytes) else value
        case "data" if isinstance(value, bytes):
            return value
        case "data" if isinstance(value, str):
            return value.encode("utf-8")
        case "sequence" if isinstance(value, list) and value and all(isinstance(items, list) for items in value):
            return AmqpSequence(tuple(value))
        case "data":
            raise ConfigurationError('body: expected a string or {"base64": ...} for body_type "data"')
        case "sequence":
            raise ConfigurationError('body: expected a list of lists for body_type "sequence"')
        case _:
            raise ConfigurationError(f'body_type: expected "data", "value" or "sequence", found {body_type!r}')


def death(queue: str, origin_queue: str, origin: object, reason: object) -> str:
    """Return where a message in this queue has died, and why.

    One that was sent back is in the queue where it died, and its origin is the dead letter that it was since.
    """
    if queue == origin_queue:
        return f"died here before: {reason}; sent back as a copy of #{origin}"
    return f"died in {origin_queue} as #{origin}: {reason}"
