"""What an address means, and which are made."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from acquit.broker.access.permissions import Permissions
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.broker.options.security import Role, Security, User
from acquit.protocol.definitions import Source, Target
from acquit.protocol.extensions import CREATE_ON_DEMAND
from acquit.protocol.link import Link
from tests.support.broker_world import Client, World

CLOSED = BrokerOptions(address=(AddressRule("#", {"create": False}),))


def to(address: str, *words: str) -> Callable[[Client], Link]:
    return lambda client: client.begun.attach_sender(  # type: ignore[attr-defined, no-any-return]
        "link", source=Source("here"), target=Target(address, capabilities=words)
    )


def of(address: str, *words: str) -> Callable[[Client], Link]:
    return lambda client: client.begun.attach_receiver(  # type: ignore[attr-defined, no-any-return]
        "link", source=Source(address, capabilities=words), target=Target("here")
    )


LINKS = {
    "to a queue": to("x", "queue"),
    "to a topic": to("x", "topic"),
    "to either": to("x"),
    "from a queue": of("x", "queue"),
    "from a topic": of("x", "topic"),
    "from topics": of("x.#", "topic"),
    "from a shared subscription": of("x", "topic", "shared"),
    "from the queue of a queue": of("x::x"),
}
ON_DEMAND = {
    "to a queue": to("x", "queue", CREATE_ON_DEMAND),
    "to a topic": to("x", "topic", CREATE_ON_DEMAND),
    "to either": to("x", CREATE_ON_DEMAND),
    "from a queue": of("x", "queue", CREATE_ON_DEMAND),
    "from a topic": of("x", "topic", CREATE_ON_DEMAND),
    "from topics": of("x.#", "topic", CREATE_ON_DEMAND),
    "from a shared subscription": of("x", "topic", "shared", CREATE_ON_DEMAND),
    "from the queue of a queue": of("x::x", CREATE_ON_DEMAND),
}


def condition(client: Client, link: Link) -> str | None:
    client.world.settle()
    ended = client.detached.get(link)
    if ended is None:
        return None
    assert ended.error is not None
    return ended.error.condition


@pytest.mark.parametrize("what", LINKS)
def test_under_a_policy_that_makes_nothing_who_asks_for_it_has_its_node_made(what: str) -> None:
    world = World(CLOSED)
    client = world.client()
    assert condition(client, LINKS[what](client)) == "amqp:not-found"
    assert not world.core.queues.by_name
    assert condition(client, ON_DEMAND[what](client)) is None
    assert world.core.queues.by_name or world.core.topics.by_address


@pytest.mark.parametrize("what", LINKS)
def test_who_may_not_make_nodes_does_not_have_them_made(what: str) -> None:
    world = World(CLOSED)
    world.core.permissions = Permissions(
        Security(
            users={"ada": User(roles=("clerk",)), "eve": User(roles=("visitor",))},
            roles={
                "clerk": Role(send=("#",), consume=("#",), create=("#",)),
                "visitor": Role(send=("#",), consume=("#",)),
            },
        )
    )
    client = world.client()
    client.peer.rights = world.core.permissions.of("eve")
    assert condition(client, ON_DEMAND[what](client)) == "amqp:unauthorized-access"
    client.peer.rights = world.core.permissions.of("ada")
    assert condition(client, ON_DEMAND[what](client)) is None


def test_a_temporary_node_that_is_gone_is_not_made_again() -> None:
    world = World(CLOSED)
    client = world.client()
    gone = to("temporary.queue." + "0" * 32, CREATE_ON_DEMAND)
    assert condition(client, gone(client)) == "amqp:not-found"
