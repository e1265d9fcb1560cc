"""Credit of producers: who is looked at in every turn, and who is not."""

from __future__ import annotations

import pytest

from acquit.broker.options import AddressRule, BrokerOptions
from acquit.protocol.definitions import Accepted
from acquit.protocol.message import Message
from tests.support.broker_world import World

PRODUCERS = 50
OPTIONS = BrokerOptions(address=(AddressRule("q", {"messages_max": 4 * PRODUCERS, "full_policy": "block"}),))


@pytest.mark.pure
def test_who_has_some_credit_is_not_looked_at_in_every_turn() -> None:
    """However many share a queue: each gets more as it uses what it has."""
    world = World(OPTIONS)
    client = world.client()
    links = [client.sender("q", f"p{number}") for number in range(PRODUCERS)]
    assert all(0 < link.credit < world.options.connection.credit_max for link in links)
    crediting = world.core._crediting
    looks = 0
    allowance = crediting._allowance

    def counted(producer: object) -> int:
        nonlocal looks
        looks += 1
        return allowance(producer)  # type: ignore[arg-type]

    crediting._allowance = counted  # type: ignore[method-assign, assignment]
    receiver = client.receiver("q")
    for _ in range(10):
        client.post(links[0], Message(b"x"))
        receiver.grant(1)
        world.carry()
        client.held(receiver)[0].settle(Accepted())
        world.carry()
    assert len(client.received[receiver]) == 10
    assert looks < 5 * 10


def test_who_had_none_gets_some_when_there_is_room() -> None:
    world = World(OPTIONS)
    client = world.client()
    sender = client.sender("q", "first")
    client.post_all(sender, *[Message(b"x")] * (4 * PRODUCERS))
    late = client.sender("q", "late")
    assert (sender.credit, late.credit) == (0, 0)
    receiver = client.receiver("q", credit=100)
    for delivery in client.held(receiver):
        delivery.settle(Accepted())
    world.settle()
    assert sender.credit > 0
    assert late.credit > 0


def test_a_new_sender_of_durable_messages_is_let_in_where_others_have_filled_the_memory() -> None:
    """What is durable needs none: bodies beyond the limit stay in the journal."""
    limit = 64 * 1024
    world = World(BrokerOptions(address=(AddressRule("q", {"memory_bytes_max": limit}),)))
    client = world.client()
    first = client.sender("q", "first")
    while world.core.queues.by_name["q"].memory_bytes < limit - 500:
        client.post_all(first, Message(bytes(100), durable=True))
    late = client.sender("q", "late")
    world.settle()
    assert late.credit == 1
    client.post_all(late, *[Message(bytes(100), durable=True)] * 3)
    assert late.credit > 1
