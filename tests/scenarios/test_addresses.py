"""Addresses and queues: one scenario for each kind of node and for each policy of an address.

What each of them does at its corners is in the unit tests of its module; here each one is seen once, by what clients
see of it.
"""

from __future__ import annotations

from typing import cast

import pytest

from acquit.broker.inspect import QueueSnapshot
from acquit.broker.options import AddressRule, BrokerOptions, ConnectionLimits
from acquit.ledger.events import EventKind
from acquit.protocol._definitions import (
    DeleteOnClose,
    Modified,
    Rejected,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.delivery import Delivery
from acquit.protocol.link import Link, ReceivingLink, SendingLink
from acquit.protocol.message import Message
from acquit.protocol.types import Byte
from tests.support.broker_world import Client, World, durable, live_of
from tests.support.transacting import Controller

FAILED = Modified(delivery_failed=True)
ID = "_AMQ_DUPL_ID"


def world_with(match: str = "#", **settings: object) -> World:
    return World(BrokerOptions(address=(AddressRule(match, settings),)))


def queue_of(world: World, name: str = "q") -> QueueSnapshot:
    queue = world.core.snapshot().queue(name)
    assert queue is not None
    return queue


def post(client: Client, *messages: Message, address: str = "q") -> list[Delivery]:
    """Post and wait until all that will be answered is."""
    link = client.sender(address, f"to {address} {client.tags}")
    sent = client.post(link, *messages)
    client.world.settle()
    link.detach()
    client.world.settle()
    return sent


def condition_of(client: Client, link: Link) -> str | None:
    client.world.settle()
    ended = client.detached.get(link)
    return None if ended is None or ended.error is None else str(ended.error.condition)


def refusal(client: Client, sent: Delivery) -> str:
    outcome = client.outcome(sent)
    assert isinstance(outcome, Rejected) and outcome.error is not None, outcome
    return str(outcome.error.condition)


# -- nodes ------------------------------------------------------------------------------------------------------------


def test_a_queue_gives_each_message_to_one() -> None:
    world = World()
    client = world.client()
    one, other = (client.receiver("q", name, credit=10) for name in ("one", "other"))
    post(client, *(durable(number) for number in range(4)))
    assert sorted(cast(list[int], client.bodies(one) + client.bodies(other))) == [0, 1, 2, 3]
    assert client.bodies(one) and client.bodies(other)


def test_a_topic_gives_each_message_to_every_subscription() -> None:
    world = World()
    client = world.client()
    links = [client.subscriber("news", name) for name in ("one", "other")]
    client.post(client.publisher("news"), durable(b"x"))
    world.settle()
    assert [client.bodies(link) for link in links] == [[b"x"]] * 2


def test_a_fully_qualified_name_is_one_queue_of_an_address() -> None:
    world = World()
    client = world.client()
    client.subscriber("news", "kept", durable=True, shared_by_all=True, credit=0)
    client.post(client.publisher("news"), durable(b"x"))
    world.settle()
    receiver = client.receiver("news::kept", credit=1)
    world.settle()
    assert client.bodies(receiver) == [b"x"]


@pytest.mark.parametrize("create", [True, False])
def test_created_on_first_use_unless_the_policy_forbids(create: bool) -> None:
    world = world_with(create=create)
    client = world.client()
    link = client.receiver("q")
    assert condition_of(client, link) == (None if create else "amqp:not-found")
    assert ("q" in world.core.queues.by_name) is create


def test_deleted_again_when_empty_and_unused_if_the_policy_says_so() -> None:
    world = world_with(auto_delete=True)
    client = world.client()
    post(client, durable(b"x"))
    receiver = client.receiver("q", credit=1)
    world.settle()
    client.received[receiver][0].settle(ACCEPTED)
    receiver.detach()
    world.settle()
    assert "q" not in world.core.queues.by_name
    assert "q" not in world.crash().core.queues.by_name


def test_patterns_of_topics() -> None:
    world = World()
    client = world.client()
    one_word, any_words = client.subscriber("news.*", "one word"), client.subscriber("news.#", "any words")
    for topic in ("news", "news.eu", "news.eu.west", "weather.eu"):
        client.post(client.publisher(topic, topic), durable(topic))
    world.settle()
    assert client.bodies(one_word) == ["news.eu"]
    assert client.bodies(any_words) == ["news", "news.eu", "news.eu.west"]


def test_the_most_specific_policy_decides() -> None:
    rules = (("#", 9), ("orders.#", 7), ("orders.*", 5), ("orders.eu", 3))
    world = World(BrokerOptions(address=tuple(AddressRule(match, {"consumers_max": count}) for match, count in rules)))
    for address, count in (("x", 9), ("orders", 7), ("orders.us", 5), ("orders.eu", 3), ("orders.eu.west", 7)):
        world.client().receiver(address)
        assert world.core.queues.by_name[address].policy.consumers_max == count


def test_temporary_nodes_end_with_their_lifetime() -> None:
    world = World()
    client = world.client()
    properties = {"lifetime-policy": DeleteOnClose()}
    target = Target(
        None,
        TerminusDurability.NONE,
        TerminusExpiryPolicy.LINK_DETACH,
        dynamic=True,
        dynamic_node_properties=properties,
        capabilities=("temporary-queue",),
    )
    maker = client.sender(None, "maker", target=target)
    world.settle()
    address = cast(Target, maker.target).address
    assert address is not None
    receiver = client.receiver(address, credit=1)
    other = world.client("other")
    other.post(other.sender(address), Message(b"answer"))
    world.settle()
    assert client.bodies(receiver) == [b"answer"]
    maker.detach()
    world.settle()
    assert address not in world.core.queues.by_name


def test_the_anonymous_terminus_goes_where_each_message_says() -> None:
    world = World()
    client = world.client()
    anonymous = client.sender(None)
    to_q, nowhere = client.post(anonymous, durable(b"x", to="q"), durable(b"y"))
    world.settle()
    assert client.outcome(to_q) == ACCEPTED
    assert refusal(client, nowhere) == "amqp:not-found"
    assert live_of(world, "q") == 1


def test_a_link_name_attached_twice_from_one_container_steals_the_link() -> None:
    world = World()
    first, second = world.client("same"), world.client("same")
    post(first, durable(b"x"))
    link = first.receiver("q", "mine", credit=1)
    world.settle()
    again = second.receiver("q", "mine", credit=1)
    assert condition_of(first, link) == "amqp:link:stolen"
    assert second.bodies(again) == [b"x"]


def test_half_open_connections_give_their_messages_back() -> None:
    """The idle time-out that we ask of our peers, and what a peer that is gone leaves behind."""
    assert ConnectionLimits().idle_timeout_ms == 30_000
    world = World()
    client = world.client()
    post(client, durable(b"x"))
    client.receiver("q", credit=1)
    world.settle()
    client.lose()
    world.settle()
    assert queue_of(world).available == 1


# -- subscriptions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("kept", [False, True], ids=["volatile", "durable"])
def test_the_four_kinds_of_subscription(kept: bool, shared: bool) -> None:
    world = World()
    client = world.client()
    link = client.subscriber("news", "sub", durable=kept, shared=shared)
    sharing = client.subscriber("news", "sub|2", durable=kept, shared=True) if shared else None
    publisher = client.publisher("news")
    client.post(publisher, durable(b"1"), durable(b"2"))
    world.settle()
    bodies = client.bodies(link) + ([] if sharing is None else client.bodies(sharing))
    assert sorted(cast(list[bytes], bodies)) == [b"1", b"2"], "those who share it take turns"
    for one in (link, sharing):
        for delivery in client.received.get(one, []) if one is not None else ():
            delivery.settle(ACCEPTED)
        if one is not None:
            client.detach(one, closed=False)
    world.settle()
    client.post(publisher, durable(b"while away"))
    world.settle()
    again = client.subscriber("news", "sub", durable=kept, shared=shared)
    world.settle()
    assert client.bodies(again) == ([b"while away"] if kept else [])


@pytest.mark.parametrize("policy", ["accept", "release"])
def test_unroutable_topic_postings(policy: str) -> None:
    world = world_with(unroutable=policy)
    client = world.client()
    (sent,) = client.post(client.publisher("news"), durable(b"x"))
    world.settle()
    assert client.outcome(sent) == (ACCEPTED if policy == "accept" else RELEASED)
    counted = world.core.topics.by_address["news"].counts[EventKind.UNROUTED]
    assert counted == (1 if policy == "accept" else 0)


# -- where messages go that nobody takes ------------------------------------------------------------------------------


def test_dead_letter_address() -> None:
    world = world_with("q", dead_letter_address="letters")
    client = world.client()
    receiver = client.receiver("q", credit=1)
    post(client, durable(b"x"))
    client.received[receiver][0].settle(Rejected())
    world.settle()
    assert live_of(world, "letters") == 1


def test_expiry_address() -> None:
    world = world_with("q", expiry_address="late")
    post(world.client(), durable(b"x", ttl_ms=100))
    world.advance(100)
    world.settle()
    assert live_of(world, "late") == 1


@pytest.mark.parametrize("attempts_max", [10, 3, 0], ids=["default", "three", "never"])
def test_max_delivery_attempts(attempts_max: int) -> None:
    world = World() if attempts_max == 10 else world_with(max_delivery_attempts=attempts_max)
    client = world.client()
    receiver = client.receiver("q", credit=100)
    post(client, durable(b"x"))
    for number in range(20):
        if live_of(world, "q") == 0:
            assert number == attempts_max
            break
        client.received[receiver][-1].settle(FAILED)
        world.settle()
    else:
        assert attempts_max == 0


@pytest.mark.parametrize("policy", ["count", "dead-letter"])
def test_connection_loss(policy: str) -> None:
    world = world_with(connection_loss=policy, max_delivery_attempts=1)
    client = world.client()
    post(client, durable(b"x"))
    client.receiver("q", credit=1)
    world.settle()
    client.lose()
    world.settle()
    assert live_of(world, "DLQ") == (1 if policy == "dead-letter" else 0)


# -- time -------------------------------------------------------------------------------------------------------------


def test_redelivery_delay_multiplier_maximum_and_jitter() -> None:
    world = world_with(
        redelivery_delay_ms=1_000,
        redelivery_multiplier=3.0,
        redelivery_delay_ms_max=5_000,
        redelivery_jitter=0.1,
    )
    client = world.client()
    receiver = client.receiver("q", credit=10)
    post(client, durable(b"x"))
    for low, high in ((900, 1_100), (2_700, 3_300), (4_500, 5_000), (4_500, 5_000)):
        client.received[receiver][-1].settle(FAILED)
        world.settle()
        known = len(client.received[receiver])
        world.advance(low - 1)
        assert len(client.received[receiver]) == known
        world.advance(high - low + 1)
        assert len(client.received[receiver]) == known + 1


@pytest.mark.parametrize(
    ("settings", "ttl_ms", "lives_ms"),
    [
        ({"default_ttl_ms": 500}, None, 500),
        ({"default_ttl_ms": 500}, 900, 900),
        ({"ttl_ms_max": 300}, 900, 300),
        ({"ttl_ms_max": 300}, None, 300),
    ],
    ids=["default", "its own", "cut", "none is cut too"],
)
def test_default_and_maximum_ttl(settings: dict[str, object], ttl_ms: int | None, lives_ms: int) -> None:
    world = world_with("q", **settings)
    post(world.client(), durable(b"x", ttl_ms=ttl_ms))
    world.advance(lives_ms - 1)
    assert live_of(world, "q") == 1
    world.advance(1)
    world.settle()
    assert live_of(world, "q") == 0


def test_lock_duration() -> None:
    world = world_with(lock_duration_ms=1_000)
    client = world.client()
    client.receiver("q", "slow", credit=1)
    post(client, durable(b"x"))
    other = client.receiver("q", "other", credit=1)
    world.advance(1_000)
    world.settle()
    assert client.bodies(other) == [b"x"]


# -- how much ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["page", "block", "reject", "drop-oldest"])
def test_size_limits_and_what_happens_there(policy: str) -> None:
    world = world_with("q", messages_max=3, full_policy=policy)
    client = world.client()
    sender = client.sender("q")
    world.settle()
    if policy == "block":
        client.post_all(sender, *(durable(number) for number in range(3)))
        assert sender.credit == 0, "senders get no credit at the limit"
        return
    sent = client.post(sender, *(durable(number) for number in range(5)))
    world.settle()
    receiver = client.receiver("q", credit=10)
    world.settle()
    if policy == "page":
        assert client.bodies(receiver) == [0, 1, 2, 3, 4]
    elif policy == "reject":
        assert [client.outcome(one) for one in sent[:3]] == [ACCEPTED] * 3
        assert refusal(client, sent[4]) == "amqp:resource-limit-exceeded"
    else:
        assert client.bodies(receiver) == [2, 3, 4]
        assert queue_of(world).displaced == 2


def test_last_value_key() -> None:
    world = world_with(last_value=True, last_value_key="part")
    client = world.client()
    post(client, *(durable(price, application_properties={"part": part}) for part, price in ((1, 5), (2, 6), (1, 7))))
    receiver = client.receiver("q", credit=10)
    world.settle()
    assert client.bodies(receiver) == [6, 7]


def test_ring_size() -> None:
    world = world_with(ring_size=2)
    client = world.client()
    post(client, *(durable(number) for number in range(5)))
    receiver = client.receiver("q", credit=10)
    world.settle()
    assert client.bodies(receiver) == [3, 4]


def test_non_destructive() -> None:
    world = world_with(non_destructive=True)
    client = world.client()
    post(client, durable(b"x"))
    for name in ("one", "other"):
        link = client.receiver("q", name, credit=1)
        world.settle()
        client.received[link][0].settle(ACCEPTED)
        assert client.bodies(link) == [b"x"]
    world.settle()
    assert live_of(world, "q") == 1


# -- who --------------------------------------------------------------------------------------------------------------


def test_exclusive_consumer() -> None:
    world = world_with(consumers="exclusive")
    client = world.client()
    client.receiver("q", "one")
    assert condition_of(client, client.receiver("q", "other")) == "amqp:resource-locked"


def test_single_active_consumer() -> None:
    world = world_with(consumers="single-active")
    client = world.client()
    one = client.receiver("q", "one", credit=1)
    other = client.receiver("q", "other", credit=9)
    post(client, *(durable(number) for number in range(3)))
    assert (client.bodies(one), client.bodies(other)) == ([0], [])
    one.detach()
    world.settle()
    assert client.bodies(other) == [0, 1, 2]


def test_message_groups() -> None:
    world = World()
    client = world.client()
    links = [client.receiver("q", name, credit=10) for name in ("one", "two")]
    post(client, *(durable(f"{group}{number}", group_id=group) for number in range(3) for group in "ab"))
    seen = [cast(list[str], client.bodies(link)) for link in links]
    assert sorted(seen) == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]


def test_consumer_priority() -> None:
    world = World()
    client = world.client()
    low = client.receiver("q", "low", credit=9, properties={"priority": -1})
    high = client.receiver("q", "high", credit=2, properties={"priority": 5})
    post(client, *(durable(number) for number in range(3)))
    assert (client.bodies(high), client.bodies(low)) == ([0, 1], [2])


def test_prefetch_cap() -> None:
    world = world_with(prefetch_max=2)
    client = world.client()
    receiver = client.receiver("q", credit=100)
    post(client, *(durable(number) for number in range(5)))
    assert client.bodies(receiver) == [0, 1]
    client.received[receiver][0].settle(ACCEPTED)
    world.settle()
    assert client.bodies(receiver) == [0, 1, 2]


def test_message_priorities() -> None:
    world = World()
    client = world.client()
    post(client, *(durable(priority, priority=priority) for priority in (4, 0, 9, 4)))
    receiver = client.receiver("q", credit=10)
    world.settle()
    assert client.bodies(receiver) == [9, 4, 4, 0]


# -- duplicate detection ----------------------------------------------------------------------------------------------


def identified(body: object, identity: str = "id") -> Message:
    return durable(body, application_properties={ID: identity})


def test_a_duplicate_is_answered_accepted_after_the_first_is_synced_and_posts_nothing() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    world.settle()
    first, again = client.post(sender, identified(b"x"), identified(b"x"))
    world.carry()
    assert (client.outcome(first), client.outcome(again)) == (None, None)
    world.settle()
    assert (client.outcome(first), client.outcome(again)) == (ACCEPTED, ACCEPTED)
    assert live_of(world, "q") == 1
    world = world.crash()
    post(world.client(), identified(b"x"))
    assert live_of(world, "q") == 1, "the window is in the journal"


def test_duplicates_and_transactions() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    one, other = Controller(client, "one"), Controller(client, "other")
    held, second = one.declare(), other.declare()
    one.post(sender, held, identified(b"x"))
    world.settle()
    (contested,) = other.post(sender, second, identified(b"x"))
    world.settle()
    assert isinstance(other.provisional(contested), Rejected), "an id that another live transaction holds"
    one.roll_back(held)
    (freed,) = client.post(sender, identified(b"x"))
    world.settle()
    assert client.outcome(freed) == ACCEPTED
    third = one.declare()
    (suppressed,) = one.post(sender, third, identified(b"x"))
    world.settle()
    assert one.provisional(suppressed) == ACCEPTED, "of a committed id: provisionally accepted, and posts nothing"
    assert one.commit(third) is None
    assert live_of(world, "q") == 1


def test_dead_letters_bypass_the_window() -> None:
    world = World()
    client = world.client()
    post(client, identified(b"x"), address="DLQ")
    receiver = client.receiver("q", credit=1)
    post(client, identified(b"x"))
    client.received[receiver][0].settle(Rejected())
    world.settle()
    assert live_of(world, "DLQ") == 2


def test_the_same_id_with_a_different_body_is_never_dropped() -> None:
    world = World()
    client = world.client()
    post(client, identified(b"x"), identified(b"y"))
    assert live_of(world, "q") == 2


def test_the_sequence_is_unique_and_stable_over_redeliveries() -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=10)
    post(client, durable(b"1"), durable(b"2"))
    post(client, durable(b"3"), address="elsewhere")
    client.received[receiver][0].settle(FAILED)
    world.settle()

    def sequences(client: Client, link: ReceivingLink) -> list[object]:
        found = client.received[link]
        return [Message.decode(one.payload).annotations["x-opt-acquit-sequence"] for one in found]

    first, second, again = sequences(client, receiver)
    assert first == again != second
    world = world.crash()
    client = world.client()
    assert sorted([first, second]) == sequences(client, receiver_of(client)), "and over restarts"  # type: ignore[type-var]


def receiver_of(client: Client) -> ReceivingLink:
    link = client.receiver("q", credit=10)
    client.world.settle()
    return link


# -- the node itself --------------------------------------------------------------------------------------------------


def manage(client: Client, operation: str, name: str, body: object = None) -> tuple[object, object]:
    """Status and body of the answer of $management."""
    answers = client.begun.attach_receiver("answers", source=Source("$management"), target=Target("me"))  # type: ignore[attr-defined]
    answers.grant(1)
    sender = client.sender("$management", "ask")
    properties = {"operation": operation, "type": "acquit:queue", "name": name}
    client.post(sender, Message(body, message_id="1", reply_to="me", application_properties=properties))
    client.world.settle()
    answer = Message.decode(client.received[answers][-1].payload)
    answers.detach()
    sender.detach()
    client.world.settle()
    return answer.application_properties["statusCode"], answer.body


def test_a_queue_in_use_is_deleted_and_its_messages_are_purged() -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=1, second=True)
    post(client, durable(b"1"), durable(b"2"))
    (delivery,) = client.received[receiver]
    assert manage(world.client("operator"), "DELETE", "q")[0] == 200
    assert condition_of(client, receiver) == "amqp:resource-deleted"
    assert "q" not in world.core.queues.by_name
    assert not delivery.settle(ACCEPTED), "a later outcome is stale"
    world.settle()
    world.check_journal()
    assert "q" not in world.crash().core.queues.by_name


def test_messages_are_moved_and_name_each_other() -> None:
    world = World()
    client = world.client()
    post(client, durable(b"1"), durable(b"2"), address="DLQ")
    assert manage(client, "MOVE", "DLQ", {"to": "q"}) == (200, {"moved": 2})
    assert (queue_of(world, "DLQ").moved_out, queue_of(world, "DLQ").depth) == (2, 0)
    assert (queue_of(world).entered, queue_of(world).depth) == (2, 2)
    receiver = client.receiver("q", credit=10)
    world.settle()
    assert client.bodies(receiver) == [b"1", b"2"]
    world.check_journal()


def test_a_message_of_jms_says_itself_what_its_destination_is() -> None:
    world = World()
    client = world.client()
    subscriber = client.subscriber("news")
    anonymous = client.sender(None, "anonymous")
    assert isinstance(anonymous, SendingLink)
    client.post(anonymous, durable(b"x", to="news", annotations={"x-opt-jms-dest": Byte(1)}))
    world.settle()
    assert client.bodies(subscriber) == [b"x"]
