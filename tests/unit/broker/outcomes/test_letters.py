"""What the copies of messages that nobody took look like."""

from __future__ import annotations

import pytest

from acquit.broker.options import AddressRule, BrokerOptions
from acquit.protocol._definitions import Modified
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
