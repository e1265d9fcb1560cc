"""What peers are refused is told: who, what, why."""

from __future__ import annotations

from collections.abc import Mapping

from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World

Told = list[tuple[str, str, Mapping[str, object]]]


def listening(world: World) -> Told:
    told: Told = []
    world.core.denials.report = lambda text, by, particulars: told.append((text, by, particulars))
    return told


def begun(world: World) -> Client:
    client = world.client("shop")
    assert client.begun is not None
    return client


def test_a_link_that_is_refused() -> None:
    world = World(BrokerOptions(address=(AddressRule("#", {"create": False}),)))
    told = listening(world)
    begun(world).receiver("nowhere", "reader")
    ((text, by, particulars),) = told
    assert text == "a link is refused"
    assert by.endswith("amqp:not-found")
    assert particulars["link"] == "reader" and particulars["container"] == "shop"
    assert particulars["condition"] == "amqp:not-found" and "nowhere" in str(particulars["description"])


def test_messages_that_are_refused() -> None:
    world = World(BrokerOptions(address=(AddressRule("#", {"messages_max": 1, "full_policy": "reject"}),)))
    told = listening(world)
    client = begun(world)
    sender = client.sender("small")
    world.settle()
    client.post(sender, *(Message(b"x") for _ in range(3)))
    world.settle()
    assert {text for text, _, _ in told} == {"a message is refused"}
    assert sum(int(str(particulars["messages"])) for _, _, particulars in told) == 2
    assert all(particulars["address"] == "small" for _, _, particulars in told)
    assert all(particulars["condition"] == "amqp:resource-limit-exceeded" for _, _, particulars in told)


def test_connections_that_are_refused() -> None:
    world = World(BrokerOptions(limits=BrokerLimits(connections_max=1)))
    told = listening(world)
    world.client("first", user="ann")
    world.client("second", user="bob")
    ((text, by, particulars),) = told
    assert text == "a connection is refused" and by == "bob amqp:resource-limit-exceeded"
    assert particulars["user"] == "bob" and particulars["condition"] == "amqp:resource-limit-exceeded"
    assert world.core.denials.counts == {("connection", "amqp:resource-limit-exceeded"): 1}


def test_what_is_taken_is_not_told() -> None:
    world = World()
    told = listening(world)
    client = begun(world)
    client.post_all(client.sender("q"), Message(b"x"))
    client.receiver("q", credit=5)
    assert told == []
