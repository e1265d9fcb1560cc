"""Which connections may be opened."""

from __future__ import annotations

import pytest

from acquit.broker.access.admission import ENFORCEMENT_POLICY, SOLE_CONNECTION
from acquit.broker.links.peers import Peer
from acquit.broker.server import CAPABILITIES
from acquit.protocol.connection import ESTABLISHMENT_FAILED, Connection
from acquit.protocol.definitions import Open
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.types import UInt
from tests.support.broker_world import Client, World, durable

ASKS = (SOLE_CONNECTION,)
CLOSE_EXISTING = {ENFORCEMENT_POLICY: UInt(1)}
REFUSE = {ENFORCEMENT_POLICY: UInt(0)}

ASKED: dict[str, tuple[tuple[str, ...], dict[str, object] | None]] = {
    "nothing": ((), None),
    "close, without the capability": ((), CLOSE_EXISTING),
    "to be the only one": (ASKS, None),
    "refuse": (ASKS, REFUSE),
    "close": (ASKS, CLOSE_EXISTING),
}

# What the first asks for, what the second does, and which of them is there in the end.
OUTCOMES = [
    ("nothing", "nothing", "both"),
    ("nothing", "close, without the capability", "both"),
    ("nothing", "to be the only one", "first"),
    ("nothing", "refuse", "first"),
    ("nothing", "close", "second"),
    ("to be the only one", "nothing", "first"),
    ("refuse", "nothing", "first"),
    ("close", "nothing", "second"),
    ("to be the only one", "to be the only one", "first"),
    ("refuse", "close", "first"),
    ("close", "refuse", "second"),
    ("close", "close", "second"),
]


def connect(world: World, asks: str, name: str = "me") -> Client:
    desires, properties = ASKED[asks]
    return world.client(name, desires=desires, properties=properties)


def check_refused(client: Client, info: object) -> None:
    assert client.ended is not None
    error = client.ended.error
    assert error is not None
    assert (error.condition, error.info) == ("amqp:invalid-field", info)
    opened = client.engine.remote_open
    assert opened is not None
    assert opened.properties is not None
    assert opened.properties[ESTABLISHMENT_FAILED] is True


def test_it_is_offered() -> None:
    assert SOLE_CONNECTION in CAPABILITIES


@pytest.mark.parametrize(("first", "second", "there"), OUTCOMES)
def test_two_connections_of_a_container(first: str, second: str, there: str) -> None:
    world = World()
    one, two = connect(world, first), connect(world, second)
    world.carry()
    assert (one.ended is None) is (there != "second")
    assert (two.ended is None) is (there != "first")
    if two.ended is not None:
        check_refused(two, {"invalid-field": "container-id"})
        assert one.engine.remote_open is not None
        assert ESTABLISHMENT_FAILED not in (one.engine.remote_open.properties or {})
    if one.ended is not None:
        error = one.ended.error
        assert error is not None
        assert (error.condition, error.info) == ("amqp:resource-locked", {"sole-connection-enforcement": True})
    assert connect(world, second, "another").ended is None


def test_the_answer_says_that_it_closes_the_others() -> None:
    world = World()
    for asks in ASKED:
        opened = connect(world, asks, asks).engine.remote_open
        assert opened is not None
        assert (opened.properties or {}).get(ENFORCEMENT_POLICY) == (1 if asks == "close" else None)


def test_all_others_are_closed_and_what_they_held_goes_to_the_new_one() -> None:
    world = World()
    others = [world.client("me"), world.client("me")]
    receiver = others[0].receiver("q", credit=5)
    others[1].post_all(others[1].sender("q"), durable("x"))
    assert others[0].bodies(receiver) == ["x"]
    client = connect(world, "close")
    assert all(one.ended is not None for one in others)
    again = client.receiver("q", credit=5)
    world.settle()
    assert client.bodies(again) == ["x"]
    assert [peer.engine for peer in world.core.connections.all] == [client.server]


@pytest.mark.parametrize("policy", [UInt(2), -1, True, "close", b"1"])
def test_a_policy_that_is_none_is_refused(policy: object) -> None:
    client = World().client("me", desires=ASKS, properties={ENFORCEMENT_POLICY: policy})
    check_refused(client, {"invalid-field": "properties"})


def test_it_may_come_back_when_the_first_is_gone() -> None:
    world = World()
    connect(world, "to be the only one").lose()
    assert connect(world, "to be the only one").ended is None


def test_other_users_are_other_containers() -> None:
    world = World()
    world.client("me", user="ada", desires=ASKS)
    assert connect(world, "close").ended is None
    assert len(world.core.connections.all) == 2


def test_a_connection_that_is_not_open_yet_has_no_name() -> None:
    """Not even an empty one."""
    world = World()
    _, admitted = (
        world.core.connected(
            Connection(ConnectionOptions(container_id="broker"), server=True, sasl=None, now=world.now_s), name
        ).engine
        for name in ("silent", "admitted")
    )
    assert admitted.admit is not None
    assert admitted.admit(Open("", desired_capabilities=ASKS)) is None


@pytest.mark.pure
def test_among_many_connections_of_a_container_none_is_looked_at() -> None:
    """Thousands may have one container-id, and each of them is asked about by the next one."""
    world = World()
    for _ in range(3):
        connect(world, "nothing")
    alike = world.core.quotas.of_container(None, "me")
    assert len(alike) == 3
    looked_at: list[str] = []

    class Watched(Peer):
        __slots__ = ()

        def __getattribute__(self, name: str) -> object:
            looked_at.append(name)
            return super().__getattribute__(name)

    for peer in alike:
        peer.__class__ = Watched  # type: ignore[assignment]
    connect(world, "nothing")
    assert "enforcement" not in looked_at
    connect(world, "close")
    assert "enforcement" in looked_at
    assert len(world.core.quotas.of_container(None, "me")) == 1
