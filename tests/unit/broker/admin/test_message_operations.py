"""Posting by the management node: what a link would have brought."""

from __future__ import annotations

import pytest

from acquit.broker.access.permissions import EVERYTHING, Permissions, Rights
from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.operations import operation, perform
from acquit.broker.admin.requests import ManagementRequest
from acquit.broker.options import AddressRule, BrokerOptions, ConnectionLimits, Role, Security, User
from acquit.ledger.events import EventKind
from acquit.protocol.message import Message
from acquit.protocol.types import Described, ULong
from tests.support.broker_world import World, after_kill, live_of


def publish(world: World, name: str | None, body: object, rights: Rights = EVERYTHING) -> object:
    """Return what the operation says once all is on the disk; None before."""
    request = ManagementRequest(world.core.administration, None, rights, name, body)
    later = perform(operation("PUBLISH", "acquit:queue"), request)
    assert isinstance(later, Later)
    told: list[object] = []
    later.when_finished(told.append)
    world.settle()
    (answer,) = told
    return answer


def taken(world: World, address: str) -> list[Message]:
    client = world.client()
    link = client.receiver(address)
    link.grant(100)
    world.settle()
    return [Message.decode(delivery.payload) for delivery in client.received.get(link, [])]


def test_parts_and_an_encoded_message() -> None:
    world = World()
    world.client().sender("orders", "makes it")
    parts = {
        "body": "hello",
        "message_id": "m1",
        "subject": "greeting",
        "priority": 7,
        "application_properties": {"colour": "red"},
        "annotations": {"x-opt-mine": 1},
    }
    assert publish(world, "orders", parts) == {"queues": 1, "duplicate": False}
    encoded = Message(b"octets", message_id="m2").encode()
    assert publish(world, "orders", {"message": encoded}) == {"queues": 1, "duplicate": False}
    first, second = taken(world, "orders")
    assert (first.body, first.message_id, first.subject, first.priority) == ("hello", "m1", "greeting", 7)
    assert first.durable and first.application_properties == {"colour": "red"} and first.annotations["x-opt-mine"] == 1
    assert (second.body, second.message_id, second.durable) == (b"octets", "m2", False)


def test_the_name_means_the_queue_that_is_there_whatever_the_address_is_made_to_be() -> None:
    world = World()
    client = world.client()
    client.sender("work", "makes it")
    client.publisher("news")
    rules = {"work": "multicast", "news": "anycast"}
    world.core.apply(BrokerOptions(address=tuple(AddressRule(name, {"routing": rules[name]}) for name in rules)))
    assert publish(world, "work", {"body": "1"}) == {"queues": 1, "duplicate": False}
    assert publish(world, "news", {"body": "1"}) == {"queues": 0, "duplicate": False}, "the topic that is there"
    world.core.administration.create("work", None, topic=True)
    assert publish(world, "work", {"body": "2"}) == {"queues": 1, "duplicate": False}
    assert live_of(world, "work") == 2


def test_it_is_answered_when_the_disk_has_it_and_outlives_the_run() -> None:
    world = World()
    world.client().sender("orders", "makes it")
    world.settle()
    request = ManagementRequest(world.core.administration, "ada", EVERYTHING, "orders", {"body": "kept"})
    told: list[object] = []
    later = perform(operation("PUBLISH", "acquit:queue"), request)
    assert isinstance(later, Later)
    later.when_finished(told.append)
    assert told == []
    world.settle()
    assert told == [{"queues": 1, "duplicate": False}]
    again = World(disk=after_kill(world.disk))
    assert live_of(again, "orders") == 1
    assert again.core.queues.by_name["orders"].counts[EventKind.POSTED] == 1


def test_each_subscription_that_takes_it() -> None:
    world = World()
    for number, colour in enumerate(("red", "blue")):
        chosen = {"jms-selector": Described(ULong(0x0000468C_00000004), f"colour = '{colour}'")}
        world.client(f"c{number}").subscriber("news", filters=chosen)
    world.settle()
    body = {"body": "x", "application_properties": {"colour": "red"}}
    assert publish(world, "news", body) == {"queues": 1, "duplicate": False}
    assert publish(world, "news", {"body": "x"}) == {"queues": 0, "duplicate": False}
    assert world.core.topics.by_address["news"].counts[EventKind.UNROUTED] == 1


def test_a_duplicate_is_told_and_not_posted() -> None:
    world = World(BrokerOptions(address=(AddressRule("orders", {"duplicate_detection": "message-id"}),)))
    world.client().sender("orders", "makes it")
    for duplicate in (False, True):
        told = publish(world, "orders", {"body": "x", "message_id": "one"})
        assert told == {"queues": 0 if duplicate else 1, "duplicate": duplicate}
    assert live_of(world, "orders") == 1


RULES = BrokerOptions(
    address=(AddressRule("full", {"messages_max": 1}), AddressRule("news", {"unroutable": "release"}))
)


@pytest.mark.parametrize(
    ("name", "body", "status", "why"),
    [
        ("absent", {"body": "x"}, 404, "there is no queue or topic 'absent'"),
        (None, {"body": "x"}, 400, "name"),
        ("full", {"body": "x"}, 409, "limit"),
        ("news", {"body": "x"}, 400, "no subscription"),
        ("orders", {"nonsense": 1}, 400, "the body must be a map of some of"),
        ("orders", {"priority": "high"}, 400, "the body must be a map of some of"),
        ("orders", {"priority": 999}, 400, "priority"),
        ("orders", {"priority": True}, 400, "the body must be a map of some of"),
        ("orders", {"message": b"\x00\x53"}, 400, "the bytes end"),
        ("orders", {"message": b""}, 400, "0 bytes"),
        ("orders", {"message": Message("x").encode(), "durable": True}, 400, "encoded already"),
        ("orders", {"application_properties": {"list": [1]}}, 400, "list"),
        ("paused", {"body": "x"}, 409, "paused"),
    ],
)
def test_what_cannot_be_posted_is_said(name: str | None, body: object, status: int, why: str) -> None:
    world = World(RULES)
    client = world.client()
    for queue in ("full", "orders", "paused"):
        client.sender(queue, queue)
    world.core.administration.create("news", None, topic=True)
    publish(world, "full", {"body": "first"})
    world.core.administration.pause("paused", "producers", None)
    world.settle()
    before = [live_of(world, queue) for queue in ("full", "orders", "paused")]
    with pytest.raises(RequestFailure, match=why) as caught:
        publish(world, name, body)
    assert caught.value.status == status
    assert [live_of(world, queue) for queue in ("full", "orders", "paused")] == before


def test_no_message_is_larger_than_on_a_link() -> None:
    world = World(BrokerOptions(connection=ConnectionLimits(message_bytes_max=100)))
    world.client().sender("orders", "makes it")
    publish(world, "orders", {"message": Message("x" * 50).encode()})
    with pytest.raises(RequestFailure, match="at most 100 are taken") as caught:
        publish(world, "orders", {"body": "x" * 100})
    assert (caught.value.status, live_of(world, "orders")) == (413, 1)


def test_nobody_posts_in_the_name_of_another() -> None:
    world = World()
    world.client().sender("orders", "makes it")
    rights = Permissions(Security(users={"ada": User(roles=("r",))}, roles={"r": Role(send=("#",))})).of("ada")
    with pytest.raises(RequestFailure, match="user-id") as caught:
        publish(world, "orders", {"message": Message("x", user_id=b"bea").encode()}, rights)
    assert caught.value.status == 403
