"""Messages and dispositions as values."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from acquit.compat.qpid.messaging import REJECTED, RELEASED, Disposition, Message


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("text", "text/plain"),
        (b"data", None),
        (bytearray(b"data"), None),
        ({"a": 1}, "amqp/map"),
        (OrderedDict(a=1), "amqp/map"),
        ([1], "amqp/list"),
        ((1,), "amqp/list"),
        (None, None),
        (7, None),
    ],
)
def test_the_content_type_follows_from_the_content(content: object, expected: str | None) -> None:
    assert Message(content).content_type == expected


def test_a_content_type_that_is_given_stands() -> None:
    assert Message("{}", content_type="application/json").content_type == "application/json"
    assert Message("x", content_type=None).content_type is None


def test_each_message_has_properties_of_its_own() -> None:
    Message().properties["a"] = 1
    assert Message().properties == {}


def test_a_message_shows_what_was_said() -> None:
    assert repr(Message("x")) == "Message('x')"
    assert repr(Message()) == "Message()"
    shown = repr(Message("x", content_type="a/b", id="1", subject="s", durable=True, ttl=5, properties={"k": 2}))
    assert shown == (
        "Message(id='1', subject='s', ttl=5, durable=True, properties={'k': 2}, content_type='a/b', content='x')"
    )


def test_a_disposition_shows_its_options() -> None:
    assert repr(Disposition(RELEASED)) == "Disposition(RELEASED)"
    assert repr(Disposition(REJECTED, code=3, text="no")) == "Disposition(REJECTED, code=3, text='no')"
