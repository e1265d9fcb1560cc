"""Kinds of JMS messages, and the kind that another client makes of one of ours.

A JMS client has six kinds of messages, AMQP has bodies. The mapping that Qpid JMS, ActiveMQ and Artemis share says the
kind in the annotation ``x-opt-jms-msg-type`` (a byte), and goes by body and content type where it is absent. What a
Python program sends without it arrives as one expects for text and bytes; a map is the case that needs it, as it is
taken for an ObjectMessage else.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from acquit.errors import BodyError
from acquit.protocol.body import AmqpSequence, AmqpValue, Data, FileBody, describe

ANNOTATION: Final = "x-opt-jms-msg-type"
JAVA_OBJECT: Final = "application/x-java-serialized-object"
_TEXTS: Final = ("text/", "application/json", "application/xml", "application/javascript", "application/ecmascript")


class JmsKind(IntEnum):
    """The kinds of JMS messages, with the values of ``x-opt-jms-msg-type``."""

    MESSAGE = 0
    """A message without a body."""
    OBJECT = 1
    """A Java object, or any AMQP value that no other kind holds."""
    MAP = 2
    """Names and values: a dict with strings for keys."""
    BYTES = 3
    """Data sections."""
    STREAM = 4
    """A row of values: a list, or AmqpSequence."""
    TEXT = 5
    """A string."""

    def __str__(self) -> str:
        return self.name


def kind_of(annotation: object, body: object, content_type: str | None) -> JmsKind:
    """The kind that a JMS client takes a message for: what the annotation says, else what body and content type do."""
    if isinstance(annotation, int) and 0 <= annotation <= JmsKind.TEXT:
        return JmsKind(annotation)
    content = (content_type or "").partition(";")[0].strip().lower()
    if isinstance(body, AmqpValue):
        body = body.value
        if isinstance(body, bytes):
            return JmsKind.BYTES
    match body:
        case bytes() | Data() | FileBody():
            if content == JAVA_OBJECT:
                return JmsKind.OBJECT
            return JmsKind.TEXT if content.startswith(_TEXTS) or content.endswith(("+json", "+xml")) else JmsKind.BYTES
        case str() | None:
            return JmsKind.TEXT
        case _:
            return JmsKind.OBJECT


_FITS: Final[dict[JmsKind, tuple[type, ...]]] = {
    JmsKind.MESSAGE: (type(None),),
    JmsKind.OBJECT: (object,),
    JmsKind.MAP: (dict,),
    JmsKind.BYTES: (bytes, Data, FileBody),
    JmsKind.STREAM: (list, AmqpSequence),
    JmsKind.TEXT: (str, type(None)),
}


def check_fits(kind: JmsKind, body: object) -> None:
    """Raise BodyError for a body that a JMS client cannot read as this kind."""
    fits = isinstance(body, _FITS[kind])
    if kind is JmsKind.MAP and isinstance(body, dict):
        fits = all(isinstance(key, str) for key in body)
    if not fits:
        raise BodyError(f"{describe(body)}, which is no body of a JMS {kind.name.lower()} message")
