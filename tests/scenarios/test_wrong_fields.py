"""Fields of a message that were given what they cannot hold: one line that names the field and says what it takes."""

from __future__ import annotations

from typing import Any

import pytest

from acquit.errors import EncodeError
from acquit.protocol.message import Message

UINT = "a whole number from 0 to 4294967295"
TEXT = "a text that UTF-8 can hold"
ID = "a text, a UUID, bytes, or a whole number from 0 to 18446744073709551615"
TIME = "a whole number of milliseconds since the Unix epoch"

FIELDS: dict[str, tuple[str, list[object]]] = {
    "durable": ("True or False", ["no", 1, 0.5]),
    "priority": ("a whole number from 0 to 255", [0.5, "4", 256, -1, True]),
    "ttl_ms": (UINT, [0.5, "5", -1, 2**32, True]),
    "first_acquirer": ("True or False", ["no", 1]),
    "delivery_count": (UINT, [0.5, -1, "1", 2**32, True]),
    "message_id": (ID, [5.0, -1, 2**64, ["a"], True]),
    "user_id": ("bytes", ["ada", 5]),
    "to": (TEXT, [5, b"q", "\ud800"]),
    "subject": (TEXT, [5, b"q"]),
    "reply_to": (TEXT, [5]),
    "correlation_id": (ID, [5.0, -1, {}]),
    "content_type": ("a text of ASCII", [5, b"x", "ü"]),
    "content_encoding": ("a text of ASCII", [5, "ü"]),
    "absolute_expiry_time": (TIME, [0.5, "x", 2**63]),
    "creation_time": (TIME, [0.5, "x", 2**63, True]),
    "group_id": (TEXT, [5]),
    "group_sequence": (UINT, [0.5, -1, 2**32, "1", False]),
    "reply_to_group_id": (TEXT, [5]),
    "delivery_annotations": ("a mapping", [5, "x", [1]]),
    "annotations": ("a mapping", [5, "x", [1]]),
    "application_properties": ("a mapping", [5, "x", [1]]),
    "footer": ("a mapping", [5, "x"]),
}


@pytest.mark.parametrize("made", ["at once", "later"])
@pytest.mark.parametrize(
    ("name", "value", "expected"), [(name, value, said) for name, (said, values) in FIELDS.items() for value in values]
)
def test_a_field_that_cannot_hold_its_value_is_named(name: str, value: Any, expected: str, made: str) -> None:
    Message("x", durable=True, priority=5, ttl_ms=5).encode()  # remembered, but not for what is only equal
    message = Message("x")
    if made == "later":
        setattr(message, name, value)
    with pytest.raises(EncodeError) as caught:
        (message if made == "later" else Message("x", **{name: value})).encode()
    assert str(caught.value) == f"{name} must be {expected}, got {value!r}"


def test_all_fields_are_looked_at() -> None:
    assert set(FIELDS) == set(Message.__init__.__kwdefaults__)


@pytest.mark.parametrize(
    ("name", "right"),
    [("ttl", "`ttl_ms`"), ("id", "`message_id`"), ("content", "`body`"), ("delivery_mode", "`durable`")],
)
def test_the_name_that_another_api_has_for_a_field_is_refused(name: str, right: str) -> None:
    message = Message("x")
    with pytest.raises(AttributeError, match=f"^a message has no '{name}': it is {right}"):
        setattr(message, name, 5)
    with pytest.raises(AttributeError, match=f"^a message has no '{name}': it is {right}"):
        getattr(message, name)
    assert not hasattr(message, name)
    assert message == Message("x")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("prority", "priority"),
        ("ttl_msec", "ttl_ms"),
        ("subjekt", "subject"),
        ("aplication_properties", "application_properties"),
    ],
)
def test_a_name_that_a_message_does_not_have_is_told_when_it_is_sent(name: str, hint: str) -> None:
    """What was said there would go nowhere."""
    message = Message("x")
    setattr(message, name, 5)
    with pytest.raises(EncodeError) as caught:
        message.encode()
    assert str(caught.value) == f"a message has no {name!r}: did you mean {hint!r}?"
    message = Message("x")
    setattr(message, "zzz", 5)  # noqa: B010
    with pytest.raises(EncodeError, match=r"^a message has no 'zzz': what is meant"):
        message.encode()


def test_a_class_of_messages_may_have_attributes_of_its_own() -> None:
    class Order(Message):
        def __init__(self, number: int) -> None:
            super().__init__(f"order {number}")
            self.number = number

    assert Order(5).encode() == Message("order 5").encode()
