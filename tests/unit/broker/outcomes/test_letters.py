"""What the copies of messages that nobody took look like."""

from __future__ import annotations

import pytest

from acquit.broker.options import AddressRule, BrokerOptions
from acquit.protocol.definitions import AmqpCondition, Error, Modified, Rejected
from acquit.protocol.message import Message
from tests.support.broker_world import World, durable, live_of

START_MS = 1_000_000


def dying(world: World, how: str) -> tuple[Message, str]:
    """A message that says until when it lives dies; what arrives of it, and where."""
    client = world.client()
    expires_ms = int(world.now_s * 1000) + START_MS
    message = durable(
        b"x",
        message_id="id",
        user_id=b"user",
        absolute_expiry_time=expires_ms,
        group_id="g",
        application_properties={"a": 1},
    )
    client.post(client.sender("q"), message)
    world.settle()
    if how == "expires":
        world.advance(START_MS + 1)
        where = "ExpiryQueue"
    else:
        receiver = client.receiver("q", credit=1)
        world.settle()
        client.received[receiver][0].settle(Modified(delivery_failed=True))
        where = "DLQ"
    world.settle()
    assert live_of(world, where) == 1
    late = client.receiver(where, "late", credit=1)
    world.settle()
    return Message.decode(client.received[late][0].payload), where


@pytest.mark.parametrize("how", ["expires", "fails"])
def test_a_copy_lives_for_ever_and_says_so(how: str) -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"max_delivery_attempts": 1}),)))
    letter, where = dying(world, how)
    assert (letter.ttl_ms, letter.absolute_expiry_time) == (None, None)
    assert (letter.message_id, letter.user_id, letter.group_id) == ("id", b"user", "g")
    assert (letter.body, letter.application_properties) == (b"x", {"a": 1})
    world.advance(2 * START_MS)
    assert live_of(world, where) == 1


@pytest.mark.parametrize("items", [b"\xc1\x03\x01\xa1\x00", b"\xc1\x05\x02\xa1\x09ab", b"\xd1\0\0\0\x05\0\0\0\x07\xff"])
def test_delivery_annotations_that_make_no_sense_keep_no_message_from_its_dead_letter_address(items: bytes) -> None:
    world = World()
    client = world.client()
    header, body = b"\x00\x53\x70\xc0\x02\x01\x41", b"\x00\x53\x77\xa1\x01x"
    client.post(client.sender("q"), header + b"\x00\x53\x71" + items + body)
    world.settle()
    receiver = client.receiver("q", credit=1)
    world.settle()
    client.received[receiver][0].settle(Rejected(Error(AmqpCondition.DECODE_ERROR, "what is this?")))
    world.settle()
    late = client.receiver("DLQ", "late", credit=1)
    world.settle()
    letter = Message.decode(client.received[late][0].payload)
    assert letter.body == "x"
    assert list(letter.delivery_annotations) == ["rejected"]


@pytest.mark.parametrize("how", ["expires", "rejected"])
def test_a_copy_with_a_value_that_is_too_long_is_taken_without_it(how: str) -> None:
    latest = {"last_value": True, "last_value_key": "k"}
    world = World(BrokerOptions(address=(AddressRule("DLQ", latest), AddressRule("ExpiryQueue", latest))))
    client = world.client()
    for number in range(2):
        ttl_ms = 1_000 if how == "expires" else None
        message = durable(number, application_properties={"k": "x" * 3_000}, ttl_ms=ttl_ms)
        client.post_all(client.sender("q", f"sender-{number}"), message)
    if how == "expires":
        world.advance(5_000)
    else:
        receiver = client.receiver("q", credit=2)
        world.settle()
        for delivery in client.held(receiver):
            delivery.settle(Rejected())
    world.settle()
    assert live_of(world, "ExpiryQueue" if how == "expires" else "DLQ") == 2
    world.check_journal()
