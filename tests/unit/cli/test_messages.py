from __future__ import annotations

import json
from uuid import UUID

import pytest

from acquit.cli.messages import FIELDS, compose, describe
from acquit.errors import ConfigurationError
from acquit.protocol.message import AmqpSequence, AmqpValue, Body, Data, Message
from acquit.protocol.types import Symbol


def received(message: Message) -> Message:
    """As a receiver has it: decoded from bytes, with the facts of a delivery."""
    decoded = Message.decode(message.encode())
    decoded.sequence, decoded.redelivered = 12, True  # type: ignore[attr-defined]
    return decoded


@pytest.mark.parametrize(
    ("body", "form", "body_type"),
    [
        ("text", "text", "value"),
        (b"text", "text", "data"),
        (b"\xff\x00", {"base64": "/wA="}, "data"),
        (Data((b"a", b"b")), "ab", "data"),
        (None, None, "value"),
        ({"a": [1, 2.5]}, {"a": [1, 2.5]}, "value"),
        (AmqpValue(b"\xff"), {"base64": "/w=="}, "value"),
        (AmqpSequence(([1, "a"], [2])), [[1, "a"], [2]], "sequence"),
    ],
)
def test_every_kind_of_body_is_printed_and_sent_as_it_was(body: Body, form: object, body_type: str) -> None:
    document = describe(received(Message(body)))  # type: ignore[arg-type]
    assert (document["body"], document["body_type"]) == (form, body_type)
    again = compose(json.dumps(document))
    assert describe(received(again)) == {**document, "durable": document["durable"]}  # type: ignore[arg-type]


def test_every_field_is_printed_and_sent_as_it_was() -> None:
    message = Message(
        "x",
        durable=False,
        priority=7,
        ttl_ms=5000,
        message_id=UUID(int=1),
        user_id=b"me",
        to="a",
        subject="s",
        reply_to="r",
        correlation_id=b"\x01",
        content_type=Symbol("text/plain"),
        content_encoding=Symbol("gzip"),
        absolute_expiry_time=5,
        creation_time=6,
        group_id="g",
        group_sequence=3,
        reply_to_group_id="h",
        application_properties={"n": 1, "t": "x", "b": b"\xff"},
        annotations={"x-opt-where": "here"},
    )
    document = describe(received(message))  # type: ignore[arg-type]
    assert set(document) == {"body", "body_type", *FIELDS, "annotations", "delivery"}
    assert document["delivery"] == {"sequence": 12, "delivery_count": 0, "redelivered": True}
    message.annotations = {}
    assert compose(json.dumps(document)) == message


def test_what_a_message_does_not_set_is_left_out() -> None:
    assert describe(received(Message("x", durable=True))) == {  # type: ignore[arg-type]
        "body": "x",
        "body_type": "value",
        "durable": True,
        "delivery": {"sequence": 12, "delivery_count": 0, "redelivered": True},
    }


def test_a_document_without_durable_is_durable() -> None:
    assert compose('{"body": "x"}') == Message("x", durable=True)
    assert compose("{}") == Message(None, durable=True)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ('{"body": NaN}', "not JSON: JSON has no NaN"),
        ('{"body": [1e999]}', 'found Infinity; as a value of AMQP it is {"double": "Infinity"}'),
        ("[" * 100_000, "not JSON"),
        ("[1]", "expected an object"),
        ('{"bodi": 1}', "bodi: no such field; expected body, body_type, message_id"),
        ('{"durable": 1}', "durable: expected true or false, found 1"),
        ('{"priority": 256}', "priority: expected an integer from 0 to 255, found 256"),
        ('{"priority": true}', "priority: expected an integer"),
        ('{"ttl_ms": -1}', "ttl_ms: expected an integer"),
        ('{"subject": 5}', "subject: expected a string"),
        ('{"content_type": "té"}', "content_type: expected a string of ASCII"),
        ('{"message_id": 1.5}', "message_id: expected a string, an integer"),
        ('{"user_id": "me"}', "user_id: expected"),
        ('{"creation_time": "now"}', "creation_time: expected an integer"),
        ('{"properties": [1]}', "properties: expected an object"),
        ('{"body": {"base64": "?"}}', "base64"),
        ('{"body": 5, "body_type": "data"}', "body: expected a string"),
        ('{"body": [1], "body_type": "sequence"}', "body: expected a list of lists"),
        ('{"body": 5, "body_type": "number"}', "body_type: expected"),
    ],
)
def test_what_is_wrong_is_named(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=r"(?s).*") as caught:
        compose(text)
    assert complaint in str(caught.value)
