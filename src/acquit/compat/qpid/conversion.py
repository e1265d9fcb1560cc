"""The API's messages as messages of AMQP 1.0, and back.

=========================  ==================================  ====================================
content                    content type                        body (3.2)
=========================  ==================================  ====================================
str                        ``text/plain``                      amqp-value, string
str                        another, or none                    data, as UTF-8
bytes                      any                                 data
dict, list                 ``amqp/map``, ``amqp/list``         amqp-value, map or list
None, number, bool, UUID   none, or any                        amqp-value
=========================  ==================================  ====================================

A content type that follows from the body is not written (3.2.4: it is for data). Read, data of type ``text/plain`` is a
str, all other data bytes. A reply-to that is a topic's says so in the annotation that JMS clients use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from acquit.client.blocking import ReceivedMessage
from acquit.compat.qpid.messaging.address import quote
from acquit.compat.qpid.messaging.exceptions import EncodeError
from acquit.compat.qpid.messaging.message import TEXT, Message, get_type
from acquit.compat.qpid.resolving import read
from acquit.protocol.body import AmqpSequence, AmqpValue, Body, Data
from acquit.protocol.message import Message as WireMessage
from acquit.protocol.types import Byte

REPLY_TO_KIND: Final = "x-opt-jms-reply-to"
"""0 a queue, 1 a topic, 2 and 3 temporary ones."""
_TOPICS: Final = (1, 3)


def to_wire(message: Message, subject: str | None) -> WireMessage:
    """The message to send; `subject` is that of the sender's address. Raises EncodeError, and MalformedAddress for a
    reply-to that is none."""
    body, content_type = _body(message)
    reply_to, annotations = _reply_to(message.reply_to)
    user_id = message.user_id
    return WireMessage(
        body,
        durable=bool(message.durable),
        priority=4 if message.priority is None else message.priority,
        ttl_ms=None if message.ttl is None else _milliseconds(message.ttl),
        message_id=message.id,  # type: ignore[arg-type]  # checked as it is encoded
        user_id=_octets("user_id", user_id) if isinstance(user_id, str) else user_id,
        subject=subject if message.subject is None else message.subject,
        reply_to=reply_to,
        correlation_id=message.correlation_id,  # type: ignore[arg-type]
        content_type=content_type,
        annotations=annotations,
        application_properties=message.properties or None,
    )


def _body(message: Message) -> tuple[Body, str | None]:
    content, content_type = message.content, message.content_type
    said = None if content_type == get_type(content) else content_type
    if content_type is not None and not isinstance(content_type, str):
        raise EncodeError(text=f"content_type must be a str or None, got {content_type!r}")
    if isinstance(content, str):
        plain = content_type is not None and content_type.partition(";")[0].strip() == TEXT
        return (content, said) if plain else (_octets("content", content), said)
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content), said
    if content is None:
        return None, said
    expected = get_type(content)
    if content_type not in (None, expected):
        raise EncodeError(text=f"content of type {type(content).__name__} cannot be sent as {content_type!r}")
    if isinstance(content, Mapping):
        return dict(content), None
    if isinstance(content, list | tuple):
        return list(content), None
    return content, None  # type: ignore[return-value]  # checked as it is encoded


def _octets(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        raise EncodeError(text=f"{name} must be a text that UTF-8 can hold: {exc}") from exc


def _milliseconds(ttl: float) -> int:
    try:
        return max(0, int(ttl * 1000))
    except (TypeError, ValueError, OverflowError) as exc:
        raise EncodeError(text=f"ttl must be a number of seconds, got {ttl!r}") from exc


def _reply_to(address: str | None) -> tuple[str | None, dict[str, object] | None]:
    if not address:
        return None, None
    name, subject, options = read(address)
    node = options.get("node")
    topic = isinstance(node, dict) and node.get("type") == "topic"
    return name if subject is None else f"{name}/{subject}", {REPLY_TO_KIND: Byte(1)} if topic else None


def from_wire(received: ReceivedMessage) -> Message:
    """The message as it is fetched. Raises acquit's DecodeError where it is malformed."""
    content, content_type = _content(received)
    message = Message(content, content_type)
    message.id = received.message_id
    message.subject = received.subject
    message.user_id = _text(received.user_id)
    message.reply_to = _address(received)
    message.correlation_id = received.correlation_id
    message.durable = received.durable
    message.priority = received.priority
    message.ttl = None if received.ttl_ms is None else received.ttl_ms / 1000
    message.redelivered = received.redelivered
    message.properties = dict(received.application_properties)
    return message


def _content(received: ReceivedMessage) -> tuple[object, str | None]:
    body, content_type = received.body, received.content_type
    if isinstance(body, AmqpValue):
        body = body.value
    elif isinstance(body, AmqpSequence):
        body = [value for values in body.lists for value in values]
    elif isinstance(body, bytes | Data):
        data = bytes(body)
        if content_type is not None and content_type.partition(";")[0].strip() == TEXT:
            try:
                return data.decode(), str(content_type)
            except UnicodeDecodeError:
                pass  # in another charset: bytes are better than nothing
        return data, None if content_type is None else str(content_type)
    return body, get_type(body) if content_type is None else str(content_type)


def _address(received: ReceivedMessage) -> str | None:
    name = received.reply_to
    if not name:
        return None
    # As other clients of this API write it: one slash stands between name and subject.
    node, _, subject = name.partition("/")
    address = f"{quote(node)}/{quote(subject)}" if node and subject and "/" not in subject else quote(name)
    topic = received.annotations.get(REPLY_TO_KIND) in _TOPICS
    return f"{address}; {{node: {{type: topic}}}}" if topic else address


def _text(value: bytes | None) -> str | bytes | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


__all__ = ["from_wire", "to_wire"]
