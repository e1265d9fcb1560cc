"""Which connections may be opened."""

from __future__ import annotations

from acquit.broker.access.admission import SOLE_CONNECTION
from acquit.broker.server import CAPABILITIES
from acquit.protocol.connection import ESTABLISHMENT_FAILED
from tests.support.broker_world import World


def test_it_is_offered() -> None:
    assert SOLE_CONNECTION in CAPABILITIES


def test_who_asks_to_be_the_only_connection_of_its_container_is_not_the_second() -> None:
    world = World()
    first = world.client("me", desires=(SOLE_CONNECTION,))
    second = world.client("me", desires=(SOLE_CONNECTION,))
    assert second.ended is not None
    error = second.ended.error
    assert error is not None
    assert error.condition == "amqp:invalid-field"
    assert error.info == {"invalid-field": "container-id"}
    opened = second.engine.remote_open
    assert opened is not None
    assert opened.properties is not None
    assert opened.properties[ESTABLISHMENT_FAILED] is True
    assert first.ended is None
    assert first.engine.remote_open is not None
    assert ESTABLISHMENT_FAILED not in (first.engine.remote_open.properties or {})
    assert world.client("another", desires=(SOLE_CONNECTION,)).ended is None


def test_it_may_come_back_when_the_first_is_gone() -> None:
    world = World()
    world.client("me", desires=(SOLE_CONNECTION,)).lose()
    assert world.client("me", desires=(SOLE_CONNECTION,)).ended is None


def test_who_does_not_ask_may_have_several() -> None:
    world = World()
    world.client("me", desires=(SOLE_CONNECTION,))
    client = world.client("me")
    assert client.ended is None
    client.sender("q")
