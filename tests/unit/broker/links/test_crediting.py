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


@pytest.mark.parametrize("body_bytes", [4, 1_300])
def test_into_an_empty_queue_one_message_may_come_however_little_it_may_hold(body_bytes: int) -> None:
    world = World(BrokerOptions(address=(AddressRule("#", {"bytes_max": 1_400}),)))
    client = world.client()
    for address in ("q", "t"):
        receiver = client.receiver("q") if address == "q" else client.subscriber("t", "s", durable=True, credit=0)
        sender = client.sender("q") if address == "q" else client.publisher("t")
        world.settle()
        for _ in range(3):
            assert sender.credit == 1 or body_bytes == 4
            (posted,) = client.post(sender, Message(bytes(body_bytes), durable=True))
            receiver.grant(1)
            world.settle()
            assert client.outcome(posted) == Accepted()
            client.held(receiver)[0].settle(Accepted())
            world.settle()


def test_who_has_sent_large_messages_is_not_starved_by_a_limit_below_their_size() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"bytes_max": 20_000}),)))
    client = world.client()
    sender, receiver = client.sender("q"), client.receiver("q", credit=10)
    for _ in range(10):
        client.post_all(sender, Message(bytes(4_000), durable=True))
        client.held(receiver)[0].settle(Accepted())
        receiver.grant(10)
        world.settle()
    world.core.administration.put_rule("q", {"bytes_max": 1_000})
    for credit in range(40):
        world.settle()
        assert sender.credit >= 1, f"after {credit} small ones"
        client.post_all(sender, *[Message(b"x", durable=True)] * min(sender.credit, 10))
        for delivery in client.held(receiver):
            delivery.settle(Accepted())
        receiver.grant(20)
        world.settle()


def test_a_queue_in_memory_with_less_than_a_large_sender_needs_lets_it_send_one() -> None:
    world = World()
    client = world.client()
    sender, receiver = client.sender("q"), client.receiver("q")
    for _ in range(12):
        receiver.grant(1)
        client.post_all(sender, Message(bytes(150_000)))
        client.held(receiver)[0].settle(Accepted())
    world.core.administration.put_rule("q", {"memory_bytes_max": 65_536})
    while sender.credit > 1:
        client.post(sender, Message(bytes(150_000)))  # more than it may hold: refused
        world.settle()
    receiver.grant(1)
    (posted,) = client.post(sender, Message(b"x"))
    world.settle()
    assert (client.outcome(posted), len(client.held(receiver))) == (Accepted(), 1)
