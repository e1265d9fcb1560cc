"""A message at a node: one scenario for each row of the table of its life, told by what clients see.

`tests/unit/broker/test_queue.py` holds the table itself to its rules, and other tests to its corners; here each row
happens, to a broker and its clients on an in-memory wire, and its journal says the same afterwards.
"""

from __future__ import annotations

from typing import cast

import pytest

from acquit.broker.inspect import QueueSnapshot
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Error, Modified, Rejected
from acquit.protocol.delivery import DeliveryState
from acquit.protocol.link import ReceivingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World, durable, live_of
from tests.support.transacting import Controller

FAILED = Modified(delivery_failed=True)
HERE = Modified(delivery_failed=True, undeliverable_here=True)


def world_with(**settings: object) -> World:
    return World(BrokerOptions(address=(AddressRule("#", settings),)))


def queue_of(world: World, name: str = "q") -> QueueSnapshot:
    queue = world.core.snapshot().queue(name)
    assert queue is not None
    return queue


def post(client: Client, *messages: Message, address: str = "q") -> None:
    """Post and wait until all is answered."""
    link = client.sender(address, f"to {address} {client.tags}")
    client.post(link, *messages)
    client.world.settle()
    link.detach()
    client.world.settle()


def messages(client: Client, link: ReceivingLink) -> list[Message]:
    return [Message.decode(delivery.payload) for delivery in client.received.get(link, [])]


def letters(world: World, address: str = "DLQ") -> list[Message]:
    """What is in that queue, looked at."""
    client = world.client("reader")
    link = client.receiver(address, browse=True, credit=100)
    world.settle()
    return messages(client, link)


def ends(world: World) -> None:
    """The journal alone says the same as the broker, and the accounts hold."""
    world.settle()
    world.check_journal()


# -- posted -----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("durable")
def test_posted_durable() -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=10)
    sender = client.sender("q")
    (sent,) = client.post(sender, durable(b"x"))
    world.carry()
    assert client.outcome(sent) is None
    assert client.received == {}, "nobody acts on what a crash would forget"
    assert live_of(world.crash(), "q") == 0
    world.settle()
    assert client.outcome(sent) == ACCEPTED
    assert client.bodies(receiver) == [b"x"]
    ends(world)


def test_posted_not_durable() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    client.post(sender, durable(b"1 durable"), Message(b"2"), Message(b"3"), Message(b"4 urgent", priority=9))
    receiver = client.receiver("q", credit=10)
    world.carry()
    assert client.bodies(receiver) == [b"4 urgent", b"2", b"3"], "at once; it overtakes no other of its priority"
    world.settle()
    assert client.bodies(receiver)[3:] == [b"1 durable"]
    ends(world)


def test_posted_with_a_delivery_time() -> None:
    world = World()
    client = world.client()
    at_ms = world.now_us // 1_000 + 5_000
    post(client, durable(b"x", annotations={"x-opt-delivery-time": at_ms}))
    receiver = client.receiver("q", credit=10)
    assert (queue_of(world).scheduled, queue_of(world).available) == (1, 0)
    world.advance(4_999)
    assert client.received == {}
    world.advance(1)
    world.settle()
    assert client.bodies(receiver) == [b"x"]
    ends(world)


@pytest.mark.promise("transactions")
def test_posted_in_a_transaction() -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=10)
    controller = Controller(client)
    sender = client.sender("q")
    for fail in (False, True):
        transaction = controller.declare()
        controller.post(sender, transaction, durable(b"x"))
        world.settle()
        assert len(client.received.get(receiver, [])) == 0, "invisible until the commit is synced"
        if fail:
            controller.roll_back(transaction)
            assert queue_of(world).entered == 1, "what is rolled back never entered"
            continue
        controller.discharge(transaction)
        assert client.received == {}, "committed, and not synced"
        world.settle()
        assert client.bodies(receiver) == [b"x"]
        client.received.pop(receiver)[0].settle(ACCEPTED)
    ends(world)


# -- acquired ---------------------------------------------------------------------------------------------------------


@pytest.mark.promise("order", "one-holder")
def test_acquired_by_a_link() -> None:
    world = World()
    client = world.client()
    post(client, *(durable(body) for body in (b"1", b"2", b"3")), durable(b"urgent", priority=9))
    receiver = client.receiver("q", credit=2)
    world.settle()
    assert client.bodies(receiver) == [b"urgent", b"1"], "in order within priority, and never more than the credit"
    assert [message.first_acquirer for message in messages(client, receiver)] == [True, True]
    assert [message.delivery_count for message in messages(client, receiver)] == [0, 0]
    assert (queue_of(world).acquired, queue_of(world).available) == (2, 2)
    ends(world)


@pytest.mark.promise("at-most-once")
def test_acquired_by_a_pre_settled_link() -> None:
    world = World()
    client = world.client()
    post(client, durable(b"x"))
    receiver = client.receiver("q", presettled=True)
    receiver.grant(10)
    world.carry()
    assert client.received == {}, "consumed is synced before the first frame leaves"
    world.settle()
    assert client.bodies(receiver) == [b"x"]
    assert (queue_of(world).consumed, queue_of(world).depth) == (1, 0)
    assert live_of(world.crash(), "q") == 0, "at most once, also over a crash"
    ends(world)


def test_browsed() -> None:
    world = World()
    client = world.client()
    post(client, durable(b"1"), durable(b"2"))
    browsers = [client.receiver("q", name, browse=True, credit=10) for name in ("one", "two")]
    world.settle()
    post(client, durable(b"3"))
    for browser in browsers:
        assert client.bodies(browser) == [b"1", b"2", b"3"], "each sees each message once"
    assert (queue_of(world).available, queue_of(world).acquired) == (3, 0)
    ends(world)


# -- time to live -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["ExpiryQueue", ""], ids=["expiry address", "nowhere"])
@pytest.mark.parametrize("scheduled", [False, True], ids=["available", "scheduled"])
def test_ttl_passed_available_or_scheduled(scheduled: bool, address: str) -> None:
    world = world_with(expiry_address=address)
    client = world.client()
    annotations = {"x-opt-delivery-delay": 60_000} if scheduled else {}
    post(client, durable(b"x", message_id="it", ttl_ms=1_000, annotations=annotations))
    world.advance(1_000)
    world.settle()
    assert (queue_of(world).expired, queue_of(world).depth) == (1, 0)
    ends(world)
    if address:
        (copy,) = letters(world, address)
        assert (copy.body, copy.ttl_ms, copy.delivery_count) == (b"x", None, 0)
        assert copy.annotations["x-opt-ORIG-QUEUE"] == copy.annotations["x-opt-ORIG-ADDRESS"] == "q"
        assert copy.annotations["x-opt-ORIG-MESSAGE-ID"] == "it"
        assert copy.annotations["x-opt-ACTUAL-EXPIRY"] == world.now_us // 1_000


@pytest.mark.parametrize("outcome", [ACCEPTED, RELEASED], ids=["accepted", "released"])
def test_ttl_passed_acquired(outcome: DeliveryState) -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=10)
    post(client, durable(b"x", ttl_ms=1_000))
    world.advance(5_000)
    world.settle()
    assert (queue_of(world).expired, queue_of(world).acquired) == (0, 1), "the outcome wins"
    client.received[receiver][0].settle(outcome)
    world.settle()
    counted = queue_of(world)
    assert (counted.accepted, counted.expired) == ((1, 0) if outcome is ACCEPTED else (0, 1))
    assert len(client.received[receiver]) == 1, "on return it expires at once"
    ends(world)


# -- outcomes ---------------------------------------------------------------------------------------------------------


def test_accepted() -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=10)
    post(client, durable(b"x"))
    client.received[receiver][0].settle(ACCEPTED)
    world.settle()
    assert (queue_of(world).accepted, queue_of(world).depth) == (1, 0)
    assert live_of(world.crash(), "q") == 0
    ends(world)


@pytest.mark.parametrize("address", ["DLQ", ""], ids=["dead letter address", "nowhere"])
def test_rejected(address: str) -> None:
    world = world_with(dead_letter_address=address)
    client = world.client()
    receiver = client.receiver("q", credit=10)
    post(client, durable(b"x", message_id="it", ttl_ms=60_000))
    client.received[receiver][0].settle(Rejected(Error("app:bad", "cannot be parsed")))
    world.settle()
    counted = queue_of(world)
    assert (counted.dead_lettered, counted.dropped, counted.depth) == ((1, 0, 0) if address else (0, 1, 0))
    ends(world)
    if address:
        (letter,) = letters(world)
        assert (letter.body, letter.delivery_count, letter.ttl_ms) == (b"x", 0, None)
        assert letter.annotations["x-opt-ORIG-MESSAGE-ID"] == "it"
        (attempt,) = cast(list[dict[str, object]], letter.annotations["x-opt-acquit-attempts"])
        assert (attempt["outcome"], attempt["condition"]) == ("rejected", "app:bad")
        assert attempt["consumer"] == "client/receiver"
        assert attempt["description"] == "cannot be parsed"


def test_rejected_at_a_dead_letter_queue() -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("DLQ", credit=10)
    post(client, durable(b"x"), address="DLQ")
    client.received[receiver][0].settle(Rejected())
    world.settle()
    assert (queue_of(world, "DLQ").dropped, queue_of(world, "DLQ").depth) == (1, 0), "it has no dead letter queue"
    ends(world)


@pytest.mark.promise("redelivered", "order")
@pytest.mark.parametrize("state", [RELEASED, None], ids=["released", "settled without a state"])
def test_released_or_settled_without_a_state(state: DeliveryState | None) -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=1)
    post(client, durable(b"1"), durable(b"2"))
    client.received[receiver][0].settle(state)
    receiver.grant(1)
    world.settle()
    again = messages(client, receiver)[1]
    assert (again.body, again.delivery_count, again.first_acquirer) == (b"1", 0, False), "at its old place"
    assert again.annotations["x-opt-acquit-acquired-count"] == 1
    ends(world)


def test_settled_without_a_state_and_with_a_default_outcome() -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=1, default_outcome=FAILED)
    post(client, durable(b"x"))
    client.received[receiver][0].settle()
    receiver.grant(1)
    world.settle()
    assert messages(client, receiver)[1].delivery_count == 1
    ends(world)


@pytest.mark.parametrize("delay_ms", [0, 1_000], ids=["at once", "delayed"])
def test_modified_delivery_failed(delay_ms: int) -> None:
    world = world_with(max_delivery_attempts=3, redelivery_delay_ms=delay_ms)
    client = world.client()
    receiver = client.receiver("q", credit=10)
    post(client, durable(b"x"))
    for attempt in range(3):
        assert messages(client, receiver)[attempt].delivery_count == attempt
        client.received[receiver][attempt].settle(FAILED)
        world.settle()
        if attempt < 2:
            assert queue_of(world).scheduled == (1 if delay_ms else 0)
        world.advance(delay_ms)
        world.settle()
    assert (queue_of(world).dead_lettered, queue_of(world).depth) == (1, 0), "the count has reached the limit"
    (letter,) = letters(world)
    attempts = cast(list[dict[str, object]], letter.annotations["x-opt-acquit-attempts"])
    assert [attempt["outcome"] for attempt in attempts] == ["modified"] * 3
    assert letter.delivery_count == 0
    ends(world)


def test_modified_undeliverable_here() -> None:
    world = World()
    client = world.client()
    one = client.receiver("q", "one", credit=5)
    post(client, durable(b"1"), durable(b"2"))
    client.received[one][0].settle(Modified(True, True, {"x-opt-note": "not mine"}))
    world.settle()
    assert client.bodies(one) == [b"1", b"2"], "skipped without blocking others"
    assert queue_of(world).undeliverable == 1
    other = client.receiver("q", "other", credit=5)
    world.settle()
    assert queue_of(world).undeliverable == 0
    (given,) = messages(client, other)
    assert (given.body, given.delivery_count, given.annotations["x-opt-note"]) == (b"1", 1, "not mine")
    client.received[other][0].settle(RELEASED)
    other.detach()
    world.settle()
    assert len(client.received[one]) == 2, "never again to this terminus"
    one.detach()
    world.settle()
    again = client.receiver("q", "one", credit=5)
    world.settle()
    assert client.bodies(again)[:1] == [b"1"], "until that is destroyed"
    ends(world)


# -- links that go ----------------------------------------------------------------------------------------------------

CLOSINGS = ["detached", "detached and closed", "session ended", "connection closed"]


def close(client: Client, link: ReceivingLink, how: str) -> None:
    match how:
        case "detached":
            link.detach(closed=False)
        case "detached and closed":
            link.detach()
        case "session ended":
            client.begun.end()
        case _:
            client.close()
    client.world.settle()


@pytest.mark.promise("redelivered", "attempts")
@pytest.mark.parametrize("default_outcome", [None, FAILED, ACCEPTED], ids=["none", "modified", "accepted"])
@pytest.mark.parametrize("how", CLOSINGS)
@pytest.mark.parametrize("policy", ["uncounted", "count"])
def test_link_session_or_connection_closed_in_order(
    how: str, default_outcome: DeliveryState | None, policy: str
) -> None:
    world = world_with(orderly_close=policy, max_delivery_attempts=2)
    client = world.client()
    link = client.receiver("q", credit=1, default_outcome=default_outcome)
    told = link.remote_attach.source.default_outcome  # type: ignore[union-attr]
    assert told == default_outcome, "it is echoed only as the client set it"
    post(world.client("producer"), durable(b"x"))
    close(client, link, how)
    counted = queue_of(world)
    if default_outcome is ACCEPTED:
        assert (counted.accepted, counted.depth) == (1, 0)
    else:
        other = world.client("other")
        receiver = other.receiver("q", credit=1)
        world.settle()
        (message,) = messages(other, receiver)
        assert message.delivery_count == (1 if default_outcome is FAILED and policy == "count" else 0)
        assert message.first_acquirer is False
        other.received[receiver][0].settle(FAILED)
        world.settle()
        assert (live_of(world, "q"), live_of(world, "DLQ")) == (1, 0), "one failure of two"
    ends(world)


@pytest.mark.promise("redelivered", "attempts")
@pytest.mark.parametrize("policy", ["count", "dead-letter"])
@pytest.mark.parametrize("default_outcome", [None, RELEASED, FAILED], ids=["none", "released", "modified"])
def test_connection_lost(default_outcome: DeliveryState | None, policy: str) -> None:
    world = world_with(connection_loss=policy, max_delivery_attempts=1)
    client = world.client()
    client.receiver("q", credit=1, default_outcome=default_outcome)
    post(world.client("producer"), durable(b"x"))
    client.lose()
    world.settle()
    if default_outcome is not RELEASED and policy == "dead-letter":
        assert (live_of(world, "q"), live_of(world, "DLQ")) == (0, 1)
        (letter,) = letters(world)
        (attempt,) = cast(list[dict[str, object]], letter.annotations["x-opt-acquit-attempts"])
        assert attempt["cause"] == "connection-lost"
    else:
        assert (live_of(world, "q"), live_of(world, "DLQ")) == (1, 0)
        other = world.client("other")
        receiver = other.receiver("q", credit=1)
        world.settle()
        (message,) = messages(other, receiver)
        assert message.delivery_count == (0 if default_outcome is RELEASED else 1), "it counts"
        other.received[receiver][0].settle(FAILED)
        world.settle()
        assert (live_of(world, "q"), live_of(world, "DLQ")) == (0, 1), "the first failure, of one"
    ends(world)


@pytest.mark.promise("redelivered")
def test_lock_duration_passed() -> None:
    world = world_with(lock_duration_ms=30_000, redelivery_delay_ms=1_000)
    client = world.client()
    slow = client.receiver("q", credit=10, second=True)
    post(client, durable(b"x"))
    (delivery,) = client.received[slow]
    world.advance(30_000)
    world.settle()
    assert client.answers[delivery] == (FAILED, False), "told, not settled"
    assert queue_of(world).scheduled == 1, "with delay"
    delivery.settle(ACCEPTED)
    world.settle()
    assert client.answers[delivery] == (FAILED, True), "a later outcome is stale"
    world.advance(1_000)
    world.settle()
    assert [message.delivery_count for message in messages(client, slow)] == [0, 1]
    ends(world)


# -- the rest of life -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{"ring_size": 1}, {"messages_max": 2, "full_policy": "drop-oldest"}, {"last_value": True}],
    ids=["ring", "drop-oldest", "last-value"],
)
def test_displaced(settings: dict[str, object]) -> None:
    world = world_with(**settings)
    client = world.client()
    receiver = client.receiver("q", credit=1)
    for number in range(4):
        post(client, durable(bytes([number]), application_properties={"_AMQ_LVQ_NAME": "same"}))
    counted = queue_of(world)
    assert (counted.entered, counted.displaced, counted.acquired) == (4, 2, 1)
    assert client.bodies(receiver) == [b"\0"], "acquired ones are skipped"
    receiver.grant(5)
    world.settle()
    assert client.bodies(receiver)[1:] == [b"\3"]
    ends(world)


def test_its_time_has_come() -> None:
    world = world_with(redelivery_delay_ms=1_000)
    client = world.client()
    receiver = client.receiver("q", credit=1)
    post(client, durable(b"1"), durable(b"2"), durable(b"3"))
    client.received[receiver][0].settle(FAILED)
    receiver.grant(1)
    world.settle()
    assert client.bodies(receiver) == [b"1", b"2"], "a delayed one is overtaken"
    world.advance(1_000)
    receiver.grant(2)
    world.settle()
    assert client.bodies(receiver)[2:] == [b"1", b"3"], "at its old place"
    ends(world)


@pytest.mark.parametrize("blocks", ["queue", "group"])
def test_its_time_has_come_and_it_held_others_up(blocks: str) -> None:
    world = world_with(redelivery_delay_ms=1_000, redelivery_blocks=blocks)
    client = world.client()
    receiver = client.receiver("q", credit=1)
    post(client, durable(b"a1", group_id="a"), durable(b"b1", group_id="b"), durable(b"a2", group_id="a"))
    client.received[receiver][0].settle(FAILED)
    receiver.grant(9)
    world.settle()
    assert client.bodies(receiver) == ([b"a1"] if blocks == "queue" else [b"a1", b"b1"])
    world.advance(1_000)
    world.settle()
    assert client.bodies(receiver)[-2 if blocks == "group" else -3 :][0] == b"a1"
    assert [body for body in client.bodies(receiver) if body in (b"a1", b"a2")] == [b"a1", b"a1", b"a2"]
    ends(world)


@pytest.mark.promise("durable")
def test_purged() -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=1)
    post(client, *(durable(b"x") for _ in range(3)), durable(b"later", annotations={"x-opt-delivery-delay": 9_000}))
    assert world.purge("q", "somebody") == 3
    world.settle()
    assert (queue_of(world).purged, queue_of(world).acquired, queue_of(world).depth) == (3, 1, 1)
    client.received[receiver][0].settle(ACCEPTED)
    world.settle()
    assert queue_of(world).accepted == 1, "nobody purges what is acquired"
    ends(world)


@pytest.mark.promise("durable")
@pytest.mark.parametrize("acquired", [False, True])
def test_durable_and_the_broker_was_restarted(acquired: bool) -> None:
    world = World()
    client = world.client()
    post(client, durable(b"x", priority=7, ttl_ms=60_000))
    client.receiver("q", credit=1 if acquired else 0)
    world.settle()
    world = world.crash()
    client = world.client()
    receiver = client.receiver("q", credit=1)
    world.settle()
    (message,) = messages(client, receiver)
    assert (message.body, message.priority, message.ttl_ms) == (b"x", 7, 60_000)
    if acquired:
        assert (message.delivery_count, message.first_acquirer) == (1, False), "as for a lost connection"
    else:
        assert message.delivery_count == 0
    ends(world)


def test_scheduled_durable_and_the_broker_was_restarted() -> None:
    world = world_with(redelivery_delay_ms=5_000)
    client = world.client()
    receiver = client.receiver("q", credit=1)
    post(client, durable(b"delayed"), durable(b"later", annotations={"x-opt-delivery-delay": 5_000}))
    client.received[receiver][0].settle(FAILED)
    world.settle()
    world = world.crash()
    client = world.client()
    receiver = client.receiver("q", credit=10)
    world.settle()
    assert (queue_of(world).scheduled, client.received) == (2, {})
    world.advance(5_000)
    world.settle()
    assert client.bodies(receiver) == [b"delayed", b"later"]
    ends(world)


@pytest.mark.parametrize("how", ["stop", "crash"])
def test_volatile_and_the_broker_was_restarted(how: str) -> None:
    world = World()
    client = world.client()
    post(client, Message(b"x"), Message(b"y"))
    world.advance(1_000)  # the counts are recorded
    world.settle()
    world = world.stop() if how == "stop" else world.crash()
    counted = queue_of(world)
    assert (counted.entered, counted.lost_volatile, counted.depth) == (2, 2, 0)
    ends(world)


def test_a_non_destructive_queue() -> None:
    world = world_with(non_destructive=True)
    client = world.client()
    post(client, durable(b"1"), durable(b"2"))
    links = [client.receiver("q", name, credit=10) for name in ("one", "two")]
    world.settle()
    for link in links:
        assert client.bodies(link) == [b"1", b"2"], "every link reads by cursor"
        for delivery, outcome in zip(client.received[link], (ACCEPTED, Rejected()), strict=True):
            delivery.settle(outcome)
    world.settle()
    assert (queue_of(world).depth, queue_of(world).acquired) == (2, 0), "nothing is acquired or retired"
    ends(world)


# -- what transactions hold -------------------------------------------------------------------------------------------


@pytest.mark.promise("transactions")
@pytest.mark.parametrize("settled", [False, True], ids=["not settled", "settled"])
def test_what_a_transaction_retires_is_held_until_it_ends(settled: bool) -> None:
    world = World()
    client = world.client()
    controller = Controller(client)
    receiver = client.receiver("q", credit=1)
    post(client, durable(b"x"))
    transaction = controller.declare()
    controller.retire(transaction, client.received[receiver][0], settled=settled)
    world.settle()
    assert (queue_of(world).acquired, queue_of(world).accepted) == (1, 0)
    controller.roll_back(transaction)
    world.settle()
    if settled:
        receiver.grant(1)
        world.settle()
        assert len(client.received[receiver]) == 2, "the default-outcome applies: it is released"
    else:
        assert queue_of(world).acquired == 1, "still acquired by the controller"
        again = controller.declare()
        controller.retire(again, client.received[receiver][0])
        assert controller.commit(again) is None
        assert (queue_of(world).accepted, queue_of(world).depth) == (1, 0)
    ends(world)
