from __future__ import annotations

import pytest

from acquit.errors import BodyError
from acquit.protocol.jms import JmsKind
from acquit.protocol.message import AmqpSequence, AmqpValue, Body, Data, Message
from acquit.protocol.types import Byte, Int


@pytest.mark.parametrize(
    ("body", "content_type", "kind"),
    [
        ("text", None, JmsKind.TEXT),
        (AmqpValue("text"), None, JmsKind.TEXT),
        (None, None, JmsKind.TEXT),
        (b"data", None, JmsKind.BYTES),
        (Data((b"a", b"b")), "application/octet-stream", JmsKind.BYTES),
        (AmqpValue(b"data"), None, JmsKind.BYTES),
        (b"data", "text/plain; charset=utf-8", JmsKind.TEXT),
        (b"{}", "application/json", JmsKind.TEXT),
        (b"{}", "application/problem+json", JmsKind.TEXT),
        (b"data", "application/x-java-serialized-object", JmsKind.OBJECT),
        ({"a": 1}, None, JmsKind.OBJECT),
        ([1], None, JmsKind.OBJECT),
        (AmqpSequence(([1],)), None, JmsKind.OBJECT),
        (17, None, JmsKind.OBJECT),
    ],
)
def test_without_an_annotation_body_and_content_type_say_the_kind(
    body: Body, content_type: str | None, kind: JmsKind
) -> None:
    message = Message.decode(Message(body, content_type=content_type).encode())
    assert message.jms_kind is kind


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"a": Int(1)}, JmsKind.MAP),
        ([1, "two"], JmsKind.STREAM),
        (AmqpSequence(([1],)), JmsKind.STREAM),
        (b"data", JmsKind.BYTES),
        ("text", JmsKind.TEXT),
        (None, JmsKind.TEXT),
        (None, JmsKind.MESSAGE),
        (17, JmsKind.OBJECT),
    ],
)
def test_the_annotation_says_it_where_it_is_set(body: Body, kind: JmsKind) -> None:
    message = Message(body)
    message.jms_kind = kind
    sent = Message.decode(message.encode())
    assert sent.jms_kind is kind
    annotation = sent.annotations["x-opt-jms-msg-type"]
    assert (annotation, type(annotation)) == (kind, Byte)


@pytest.mark.parametrize(
    ("body", "kind", "complaint"),
    [
        ([1], JmsKind.MAP, "the body is a list .amqp-value., which is no body of a JMS map message"),
        ({1: 2}, JmsKind.MAP, "no body of a JMS map message"),
        ("text", JmsKind.BYTES, "no body of a JMS bytes message"),
        (b"data", JmsKind.TEXT, "the body is binary data"),
        (b"data", JmsKind.MESSAGE, "the body is binary data"),
        ({}, JmsKind.STREAM, "stream"),
    ],
)
def test_a_kind_that_the_body_cannot_be_is_refused(body: Body, kind: JmsKind, complaint: str) -> None:
    message = Message(body)
    with pytest.raises(BodyError, match=complaint):
        message.jms_kind = kind
    assert message.annotations == {}


def test_an_annotation_that_is_no_kind_says_nothing() -> None:
    for value in (99, -1, "text", None):
        assert Message(b"x", annotations={"x-opt-jms-msg-type": value}).jms_kind is JmsKind.BYTES
