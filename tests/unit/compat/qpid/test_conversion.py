"""Messages of the API as messages of AMQP 1.0, and back."""

from __future__ import annotations

import uuid
from typing import Any, cast

import pytest

from acquit import errors
from acquit.client.blocking import ReceivedMessage
from acquit.compat.qpid.conversion import from_wire, to_wire
from acquit.compat.qpid.messaging import Message
from acquit.compat.qpid.messaging.exceptions import EncodeError, MalformedAddress
from acquit.protocol.body import AmqpSequence, AmqpValue, Data
from acquit.protocol.message import Message as WireMessage
from acquit.protocol.types import Byte


class Arrived(WireMessage):
    """A message as it is received, as far as it is read here."""

    redelivered = True


def arrived(message: WireMessage) -> Message:
    return from_wire(cast(ReceivedMessage, Arrived.decode(message.encode())))


def echo(message: Message, subject: str | None = None) -> Message:
    return arrived(to_wire(message, subject))


@pytest.mark.parametrize(
    "content",
    [
        "text",
        "",
        "ä\n",
        b"data",
        b"",
        {"a": 1, "b": [True, None, {"c": 2.5}]},
        {},
        [1, "x", b"y"],
        [],
        None,
        7,
        True,
        2.5,
    ],
)
def test_contents_come_back_with_their_type(content: object) -> None:
    sent = Message(content)
    got = echo(sent)
    assert got.content == content and type(got.content) is type(content)
    assert got.content_type == sent.content_type


def test_more_contents() -> None:
    assert echo(Message(bytearray(b"x"))).content == b"x"
    assert echo(Message(memoryview(b"x"))).content == b"x"
    assert echo(Message((1, 2))).content == [1, 2]
    identity = uuid.uuid4()
    assert echo(Message(identity)).content == identity


@pytest.mark.parametrize(
    ("content", "content_type", "expected", "expected_type"),
    [
        ("{}", "application/json", b"{}", "application/json"),
        ("x", None, b"x", None),
        (b"x", "text/plain", "x", "text/plain"),
        (b"\xff", "text/plain", b"\xff", "text/plain"),
        (b"x", "image/png", b"x", "image/png"),
        ("x", "text/plain; charset=utf8", "x", "text/plain; charset=utf8"),
        (None, "text/plain", None, "text/plain"),
    ],
)
def test_content_types(content: object, content_type: str | None, expected: object, expected_type: str | None) -> None:
    got = echo(Message(content, content_type=content_type))
    assert (got.content, got.content_type) == (expected, expected_type)


@pytest.mark.parametrize(("content", "content_type"), [({}, "text/plain"), ([], "amqp/map"), (7, "text/plain")])
def test_a_content_of_another_type_is_refused(content: object, content_type: str) -> None:
    with pytest.raises(EncodeError, match="cannot be sent as"):
        to_wire(Message(content, content_type=content_type), None)


def test_a_text_is_a_value_and_says_no_content_type() -> None:
    wire = to_wire(Message("x"), None)
    assert (wire.body, wire.content_type) == ("x", None)
    assert to_wire(Message("x", content_type="a/b"), None).body == b"x"


def test_bodies_of_others() -> None:
    assert arrived(WireMessage(Data((b"a", b"b")))).content == b"ab"
    assert arrived(WireMessage(AmqpValue(b"a"))).content == b"a"
    assert arrived(WireMessage(AmqpSequence(([1], [2, 3])))).content == [1, 2, 3]


def test_fields_come_back() -> None:
    sent = Message(
        "x",
        id="i",
        subject="s",
        user_id="guest",
        reply_to="r",
        correlation_id="c",
        durable=True,
        priority=7,
        ttl=1.5,
        properties={"a": 1, "b": "x", "c": None, "d": 2.5, "e": b"y", "f": True},
    )
    got = echo(sent)
    names = "id subject user_id reply_to correlation_id durable priority ttl properties".split()
    assert {name: getattr(got, name) for name in names} == {name: getattr(sent, name) for name in names}
    assert got.redelivered


def test_what_is_not_said() -> None:
    got = echo(Message("x"))
    assert (got.id, got.subject, got.user_id, got.reply_to, got.correlation_id) == (None,) * 5
    assert (got.durable, got.priority, got.ttl, got.properties) == (False, 4, None, {})
    assert echo(Message("x", user_id=b"\xff")).user_id == b"\xff"


def test_the_address_gives_the_subject_that_the_message_does_not() -> None:
    assert echo(Message("x"), "news").subject == "news"
    assert echo(Message("x", subject="mine"), "news").subject == "mine"
    assert echo(Message("x", subject=""), "news").subject == ""


@pytest.mark.parametrize(
    ("reply_to", "wire", "back"),
    [
        ("replies", "replies", "replies"),
        ("replies; {create: always, delete: always}", "replies", "replies"),
        ("topic/sub", "topic/sub", "topic/sub"),
        (r"a\/b\/c", "a/b/c", r"a\/b\/c"),
        ("t; {node: {type: topic}}", "t", "t; {node: {type: topic}}"),
        ("t/s; {node: {type: topic}}", "t/s", "t/s; {node: {type: topic}}"),
        (None, None, None),
        ("", None, None),
    ],
)
def test_reply_to(reply_to: str | None, wire: str | None, back: str | None) -> None:
    message = Message("x", reply_to=reply_to)
    assert to_wire(message, None).reply_to == wire
    assert echo(message).reply_to == back


def test_a_reply_to_of_jms_says_its_kind() -> None:
    def of_kind(kind: int) -> Any:
        return arrived(WireMessage("x", reply_to="r", annotations={"x-opt-jms-reply-to": Byte(kind)})).reply_to

    assert [of_kind(kind) for kind in range(4)] == ["r", "r; {node: {type: topic}}"] * 2


def test_a_reply_to_that_is_none_is_refused() -> None:
    with pytest.raises(MalformedAddress):
        to_wire(Message("x", reply_to="a; {"), None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"content": "\ud800"},
        {"content": "\ud800", "content_type": "text/x"},
        {"user_id": "\ud800"},
        {"ttl": float("inf")},
        {"ttl": float("nan")},
        {"ttl": "soon"},
        {"ttl": object()},
        {"content": "x", "content_type": 5},
        {"content": b"x", "content_type": 5},
    ],
)
def test_what_cannot_be_said_is_an_error_of_the_api(wrong: dict[str, Any]) -> None:
    with pytest.raises((EncodeError, errors.EncodeError)):  # the other one is translated by who sends
        to_wire(Message(**wrong), None).encode()
