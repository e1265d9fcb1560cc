"""Ids that a sender gives to its messages."""

from __future__ import annotations

import re

import pytest

from acquit.client.message_ids import MessageIds
from acquit.client.options import DeliveryMode
from acquit.client.sending import encode
from acquit.protocol.message import Message


def test_ids_are_a_prefix_and_a_number() -> None:
    ids = MessageIds()
    first, second = ids.next(), ids.next()
    assert re.fullmatch(r"[0-9a-f]{16}-000000000001", first)
    assert second == first[:-1] + "2"
    assert MessageIds().next()[:16] != first[:16]


def test_a_section_says_the_next_id_alone() -> None:
    ids = MessageIds()
    first = ids.next()
    message = Message.decode(ids.next_section() + b"\x00\x53\x75\xa0\x00")
    assert message == Message(b"", message_id=first[:-1] + "2")
    assert ids.next_section() == Message(b"", message_id=first[:-1] + "3").encode()[: -len(b"\x00\x53\x75\xa0\x00")]


@pytest.mark.parametrize(
    "message",
    [
        Message("x"),
        Message("x", subject="s", group_sequence=3, reply_to="r"),
        Message(b"x" * 300, durable=True, annotations={"x-opt-a": 1}, application_properties={"k": "v"}),
        Message.decode(Message("x", user_id=b"u", delivery_count=3).encode()),
    ],
)
def test_a_message_without_an_id_is_sent_with_one_and_left_as_it_was(message: Message) -> None:
    before = Message.decode(message.encode())
    ids = MessageIds()
    sent = Message.decode(encode(message, DeliveryMode.PERSISTENT, None, ids))
    assert sent.message_id == ids.next()[:-1] + "1"
    assert message == before
    assert message.message_id is None
    sent.message_id = None
    sent.header = message.header
    assert sent == message


def test_an_id_of_its_own_stays() -> None:
    sent = Message.decode(encode(Message("x", message_id=7), DeliveryMode.PERSISTENT, None, MessageIds()))
    assert sent.message_id == 7
