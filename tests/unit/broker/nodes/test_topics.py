"""Topics: which subscriptions get what is posted, how it is recorded, and what is left over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions
from acquit.ledger.balance import balance
from acquit.ledger.events import EventKind
from acquit.ledger.records import RecordKind
from acquit.protocol.definitions import (
    Accepted,
    AmqpCondition,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    TerminusDurability,
)
from acquit.protocol.message import Message
from acquit.protocol.types import Byte, Described, ULong
from acquit.store.options import MIB
from tests.support.broker_world import SMALL, Client, World, durable, live_of
from tests.support.transacting import Controller


def world_of(*rules: AddressRule, **limits: int) -> World:
    return World(BrokerOptions(address=rules, limits=BrokerLimits(**limits)))


def counts_of(world: World, topic: str) -> list[int]:
    return world.core.topics.by_address[topic].counts


def balanced(world: World) -> None:
    """Of what the journal says on the disk, every queue adds up."""
    world.check_journal()
    fold = world.fold()
    assert balance(fold).balanced, fold.anomalies


def selector(text: str) -> dict[str, object]:
    return {"jms-selector": Described(ULong(0x468C00000004), text)}


NO_LOCAL = {"no-local": Described(ULong(0x468C00000003), [])}


# -- who gets it ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [Message(b"x"), durable(b"x")], ids=["volatile", "durable"])
def test_every_subscription_gets_each_message_once(message: Message) -> None:
    world = World()
    client = world.client()
    receivers = [
        client.subscriber("news", "one"),
        client.subscriber("news", "two", durable=True),
        client.subscriber("news", "three", durable=True),
    ]
    delivery = client.post(client.publisher("news"), message)[0]
    world.settle()
    assert [client.bodies(receiver) for receiver in receivers] == [[b"x"]] * 3
    assert client.outcome(delivery) == Accepted()
    sequences = {
        Message.decode(client.received[receiver][0].payload).annotations["x-opt-acquit-sequence"]
        for receiver in receivers
    }
    assert len(sequences) == 3
    for receiver in receivers:
        assert Message.decode(client.received[receiver][0].payload).durable == message.durable
        client.received[receiver][0].settle(Accepted())
    world.settle()
    balanced(world)
    assert world.core.life.live == {}


def test_order_is_that_of_the_postings_for_each_subscription() -> None:
    world = World()
    client = world.client()
    receivers = [client.subscriber("news", "one", durable=True), client.subscriber("news", "two", durable=True)]
    client.post_all(client.publisher("news"), *[durable(number) for number in range(50)])
    assert [client.bodies(receiver) for receiver in receivers] == [list(range(50))] * 2


def test_who_subscribes_later_gets_what_comes_later() -> None:
    world = World()
    client = world.client()
    publisher = client.publisher("news")
    client.post(publisher, durable(1))
    world.settle()
    receiver = client.subscriber("news")
    client.post(publisher, durable(2))
    world.settle()
    assert client.bodies(receiver) == [2]


def test_nobody_sees_a_durable_message_before_it_is_synced() -> None:
    world = World()
    client = world.client()
    receivers = [client.subscriber("news", "one", durable=True), client.subscriber("news", "two", durable=True)]
    world.settle()
    delivery = client.post(client.publisher("news"), durable(b"x"))[0]
    world.carry()
    assert client.received == {}
    assert client.outcome(delivery) is None
    world.settle()
    assert [client.bodies(receiver) for receiver in receivers] == [[b"x"]] * 2
    assert client.outcome(delivery) == Accepted()


@pytest.mark.parametrize(
    ("pattern", "gets"),
    [
        ("news.*", ["news.eu", "news.us"]),
        ("news.#", ["news", "news.eu", "news.us", "news.eu.fr"]),
        ("#", ["news", "news.eu", "news.us", "news.eu.fr", "sport"]),
        ("*.eu.#", ["news.eu", "news.eu.fr"]),
        ("news.eu", ["news.eu"]),
    ],
)
def test_a_pattern_subscribes_to_all_topics_it_matches(pattern: str, gets: list[str]) -> None:
    world = World()
    client = world.client()
    receiver = client.subscriber(pattern)
    assert receiver.source is not None
    assert receiver.source.address == pattern
    for topic in ("news", "news.eu", "news.us", "news.eu.fr", "sport"):
        client.post(client.publisher(topic, topic), Message(topic))
    world.settle()
    assert client.bodies(receiver) == gets


def test_patterns_that_come_and_go_are_seen_by_topics_that_are_there() -> None:
    world = World()
    client = world.client()
    publisher = client.publisher("news.eu")
    client.post(publisher, Message(1))
    world.settle()
    receiver = client.subscriber("news.*")
    client.post(publisher, Message(2))
    world.settle()
    client.detach(receiver)
    client.post(publisher, Message(3))
    world.settle()
    assert client.bodies(receiver) == [2]
    assert counts_of(world, "news.eu")[EventKind.UNROUTED] == 2


def test_routes_are_looked_up_once_and_take_note_of_changes() -> None:
    world = World()
    client = world.client()
    client.subscriber("a", "one")
    publisher = client.publisher("a")
    client.post(publisher, Message(1))
    world.settle()
    topics = world.core.topics
    topic = topics.by_address["a"]
    routes = topic.routes
    assert routes is not None
    others = [
        client.subscriber(address, f"more {number}") for number, address in enumerate(["a", "b", "*", "b.*", "#"])
    ]
    assert topics.routes_of(topic) is routes, "what came is added"
    assert {queue.address for queue in routes} == {"a", "*", "#"}
    assert len(routes) == 4
    for link in others:
        client.detach(link)
    assert [queue.address for queue in topics.routes_of(topic)] == ["a"]
    assert topics.routes_of(topic) is topic.routes


def test_routes_are_right_after_more_changes_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acquit.broker.nodes.topics.CHANGES_MAX", 3)
    world = World()
    client = world.client()
    publisher = client.publisher("a")
    client.post(publisher, Message(0))
    world.settle()
    links = []
    for number in range(12):
        links.append(client.subscriber("#", f"s{number}"))
        if number % 5 == 4:
            client.post(publisher, Message(number))
            world.settle()
        if number % 3 == 2:
            client.detach(links[number - 1])
    client.post(publisher, Message("last"))
    world.settle()
    gone = {1, 4, 7, 10}
    assert {number for number, link in enumerate(links) if "last" in client.bodies(link)} == set(range(12)) - gone


def test_routes_of_all_topics_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acquit.broker.nodes.topics.ROUTES_MAX", 10)
    world = World()
    client = world.client()
    links = [client.subscriber("#", f"s{number}") for number in range(4)]
    for at, number in enumerate((*range(6), 0)):
        client.post(client.publisher(f"t{number}", f"to {at}"), Message(number))
        world.settle()
        kept = [topic.routes for topic in world.core.topics.by_address.values() if topic.routes is not None]
        assert sum(map(len, kept)) <= 10
    assert [client.bodies(link) for link in links] == [[0, 1, 2, 3, 4, 5, 0]] * 4


@pytest.mark.parametrize("capabilities", [("topic",), ()], ids=["topic", "none"])
def test_nothing_is_sent_to_a_pattern(capabilities: tuple[str, ...]) -> None:
    """Also by those who do not say what they mean: who receives from it would get nothing of a queue of the name."""
    world = World()
    client = world.client()
    link = client.sender(None, target=Target("news.*", capabilities=capabilities))
    error = client.detached[link].error
    assert error is not None
    assert error.condition == AmqpCondition.INVALID_FIELD
    assert "pattern" in str(error.description)


# -- filters ----------------------------------------------------------------------------------------------------------


def test_a_selector_is_asked_when_a_message_is_posted() -> None:
    world = World()
    client = world.client()
    receiver = client.subscriber("news", durable=True, filters=selector("n > 1"))
    assert receiver.source is not None
    assert receiver.source.filter == selector("n > 1")
    publisher = client.publisher("news")
    for number in (1, 2, 3):
        client.post(publisher, durable(number, application_properties={"n": number}))
    world.settle()
    assert client.bodies(receiver) == [2, 3]
    (queue,) = world.core.queues.by_name.values()
    assert queue.entered == 2
    assert counts_of(world, "news")[EventKind.UNROUTED] == 1


def test_a_bad_selector_is_refused() -> None:
    world = World()
    client = world.client()
    link = client.subscriber("news", filters=selector("n >"))
    error = client.detached[link].error
    assert error is not None
    assert error.condition == AmqpCondition.INVALID_FIELD
    assert world.core.queues.by_name == {}


def test_no_local_skips_what_the_same_client_posts() -> None:
    world = World()
    one, two = world.client("one"), world.client("two")
    receiver = one.subscriber("news", filters=NO_LOCAL)
    one.post(one.publisher("news"), Message("own"))
    two.post(two.publisher("news"), Message("other"))
    world.settle()
    assert one.bodies(receiver) == ["other"]


# -- what nobody takes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [Message(b"x"), durable(b"x")], ids=["volatile", "durable"])
def test_what_no_subscription_takes_is_accepted_and_counted(message: Message) -> None:
    world = World()
    client = world.client()
    delivery = client.post(client.publisher("news"), message)[0]
    world.settle()
    assert client.outcome(delivery) == Accepted()
    assert counts_of(world, "news")[EventKind.UNROUTED] == 1
    assert world.core.snapshot().queue("news").unrouted == 1  # type: ignore[union-attr]
    again = world.stop()
    assert counts_of(again, "news")[EventKind.UNROUTED] == 1
    balanced(again)


def test_a_durable_message_that_nobody_takes_is_accepted_after_the_sync() -> None:
    world = World()
    client = world.client()
    publisher = client.publisher("news")
    world.settle()
    delivery = client.post(publisher, durable(b"x"))[0]
    world.carry()
    assert client.outcome(delivery) is None
    world.settle()
    assert client.outcome(delivery) == Accepted()
    assert counts_of(world.crash(), "news")[EventKind.UNROUTED] == 1


def test_the_policy_may_give_it_back() -> None:
    world = world_of(AddressRule("news", {"unroutable": "release"}))
    client = world.client()
    publisher = client.publisher("news")
    (delivery,) = client.post(publisher, durable(b"x"))
    world.settle()
    assert client.outcome(delivery) == Released()
    assert counts_of(world, "news")[EventKind.UNROUTED] == 0
    client.post(publisher, Message(b"nobody waits for this one"), settled=True)
    world.settle()
    assert counts_of(world, "news")[EventKind.UNROUTED] == 1


@pytest.mark.parametrize("transacted", [False, True])
def test_what_came_in_one_read_with_the_end_is_given_back_as_well(transacted: bool) -> None:
    """Its sender has not settled it: whether or not it hears so, the message is not counted as gone."""
    world = world_of(AddressRule("news", {"unroutable": "release"}))
    client = world.client()
    publisher = client.publisher("news")
    other = client.engine.begin()
    controller = Controller(client, session=other)
    txn = controller.declare()
    with world.in_one_read():
        if transacted:
            controller.post(publisher, txn, durable(b"x"))
        else:
            client.post(publisher, durable(b"x"))
        client.begun.end()
    assert controller.commit(txn) is None
    world.settle()
    assert counts_of(world, "news")[EventKind.UNROUTED] == 0


# -- all or nothing ---------------------------------------------------------------------------------------------------


def test_a_posting_enters_all_subscriptions_or_none() -> None:
    world = world_of(AddressRule("#", {"messages_max": 2}))
    client = world.client()
    fast = client.subscriber("news", "fast", durable=True)
    client.subscriber("news", "slow", durable=True, credit=0)
    publisher = client.publisher("news")
    answers = []
    for number in range(3):
        answers += client.post(publisher, durable(number)) if publisher.credit else []
        world.settle()
        for delivery in client.held(fast):
            delivery.settle(Accepted())
        world.settle()
    assert client.bodies(fast) == [0, 1]
    assert live_of(world, "news::client/slow") == 2
    assert [client.outcome(delivery) for delivery in answers] == [Accepted()] * 2
    assert publisher.credit == 0  # the slow one has no room, so nobody gets any more


def test_what_overshoots_a_full_subscription_is_refused_for_all() -> None:
    world = world_of(AddressRule("#", {"messages_max": 2}))
    client = world.client()
    client.subscriber("news", "one", durable=True, credit=0)
    publisher = client.publisher("news")
    deliveries = client.post(publisher, *[durable(number) for number in range(2)])
    client.subscriber("news", "two", durable=True, credit=0)
    world.settle()
    other = client.publisher("news", "with credit of its own")
    assert other.credit == 0
    assert [client.outcome(delivery) for delivery in deliveries] == [Accepted()] * 2


# -- in the journal ---------------------------------------------------------------------------------------------------


def test_a_thousand_subscriptions_cost_one_payload() -> None:
    world = World(journal=replace(SMALL, segment_bytes=MIB, recovery_bytes_max=8 * MIB))
    client = world.client()
    for number in range(1_000):
        client.subscriber("news", f"s{number}", durable=True, credit=0)
    publisher = client.publisher("news")
    client.post_all(publisher, durable(b"the first is marked as perhaps acquired, for each subscription"))
    before = world.opened.journal.end
    client.post_all(publisher, durable(b"x" * 10_000))
    written = world.opened.journal.end - before
    assert 10_000 < written < 10_000 + 1_000 * 50  # an event of 48 bytes for each copy, not 10,000
    assert world.core.holdings.live_bytes < 2 * 10_300  # that is what the journal must keep
    assert all(queue.live == 2 for queue in world.core.queues.by_name.values())
    balanced(world)


def test_copies_that_nobody_waits_for_are_not_kept_in_memory() -> None:
    limits = BrokerLimits(memory_bytes_max=MIB)
    world = World(BrokerOptions(limits=limits), journal=replace(SMALL, segment_bytes=MIB, recovery_bytes_max=8 * MIB))
    client = world.client()
    live = client.subscriber("news", "live", durable=True)
    for number in range(50):
        client.detach(client.subscriber("news", f"s{number}", durable=True), closed=False)
    publisher = client.publisher("news")
    client.post_all(publisher, *[durable(bytes([n]) * 100_000) for n in range(4)])  # 20 MB in all
    assert world.core.memory.bytes < MIB
    assert [len(body) for body in client.bodies(live)] == [100_000] * 4  # type: ignore[arg-type]
    link = client.subscriber("news", "s7", durable=True)
    world.settle()
    assert client.bodies(link) == [bytes([n]) * 100_000 for n in range(4)]


def test_volatile_copies_that_find_no_memory_are_refused_for_all() -> None:
    world = World(BrokerOptions(limits=BrokerLimits(memory_bytes_max=MIB)))
    client = world.client()
    for number in range(20):
        client.subscriber("news", f"s{number}", credit=0)
    (delivery,) = client.post(client.publisher("news"), durable(b"x" * 100_000))
    world.settle()
    refused = client.outcome(delivery)
    assert isinstance(refused, Rejected)
    assert refused.error is not None
    assert refused.error.condition == AmqpCondition.RESOURCE_LIMIT_EXCEEDED
    assert all(queue.entered == 0 for queue in world.core.queues.by_name.values())


def test_the_first_copy_may_go_before_the_others() -> None:
    world = World()
    client = world.client()
    one, two = (client.subscriber("news", name, durable=True, credit=credit) for name, credit in (("1", 9), ("2", 0)))
    client.post_all(client.publisher("news"), *[durable(b"y" * 500) for _ in range(9)])
    for delivery in client.held(one):
        delivery.settle(Accepted())
    world.settle()
    assert live_of(world, "news::client/1") == 0
    balanced(world)
    world = world.crash()
    balanced(world)
    client = world.client()
    two = client.subscriber("news", "2", durable=True)
    world.settle()
    assert client.bodies(two) == [b"y" * 500] * 9


def fill(world: World, client: Client, rounds: int = 60) -> None:
    """Write so much that the first segments leave."""
    filler, receiver = client.sender("filler", "filler"), client.receiver("filler", "drain", credit=1_000)
    for _ in range(rounds):
        client.post_all(filler, *[durable(b"f" * 3_000) for _ in range(5)])
        for delivery in client.held(receiver):
            delivery.settle(Accepted())
        world.settle()
    client.detach(filler)
    client.detach(receiver)
    world.settle()


@pytest.mark.pure
@pytest.mark.parametrize("taken", [[], ["1"], ["2"], ["1", "2"]], ids=lambda taken: f"without {taken}")
def test_copies_survive_their_segment(taken: list[str]) -> None:
    """One of them takes the payload along, the others name it; and again, when that one's segment leaves."""
    world = World()
    client = world.client()
    links = {name: client.subscriber("news", name, durable=True, credit=0) for name in "1234"}
    client.post_all(client.publisher("news"), *[durable(bytes([n]) * 900) for n in range(9)])
    for round_ in range(2):
        kinds: list[int] = []
        append = world.opened.journal.append

        def noting(kind: int, *rest: object, into: list[int] = kinds, to: object = append) -> object:
            into.append(kind)
            return to(kind, *rest)  # type: ignore[operator]

        world.opened.journal.append = noting  # type: ignore[method-assign, assignment]
        before = world.opened.journal.left_through
        fill(world, client)
        world.opened.journal.append = append  # type: ignore[method-assign]
        assert world.opened.journal.left_through > before
        assert RecordKind.COPIED_WITH in kinds
        world.check_journal()
        if round_ == 0:
            for name in taken:
                links[name].grant(9)
                world.settle()
                for delivery in client.held(links[name]):
                    delivery.settle(Accepted())
            world.settle()
    world = world.crash()
    client = world.client()
    for name in "1234":
        link = client.subscriber("news", name, durable=True)
        world.settle()
        assert client.bodies(link) == ([] if name in taken else [bytes([n]) * 900 for n in range(9)])
    balanced(world)


def test_more_subscriptions_than_recovery_is_to_read_leave_the_journal_in_peace() -> None:
    """What is written again makes no room: it is not written again for that alone."""
    world = World()
    client = world.client()
    for number in range(1_200):
        client.begun.attach_receiver(
            f"s{number}", source=Source("news", TerminusDurability.CONFIGURATION, capabilities=("topic",))
        )
    world.settle()
    assert world.opened.journal.end > SMALL.recovery_bytes_max
    before = world.opened.journal.end
    for _ in range(20):
        world.advance(1_000)
        world.settle()
        world.checkpoint()
    assert world.opened.journal.end == before
    assert len(world.crash().core.queues.by_name) == 1_200


def test_copies_with_a_story_of_their_own_take_it_along() -> None:
    world = World()
    client = world.client()
    links = [client.subscriber("news", name, durable=True, credit=3) for name in "12"]
    client.post_all(client.publisher("news"), durable(b"x"))
    for link in links:
        client.held(link)[0].settle(Modified(delivery_failed=True))
        world.settle()
    fill(world, client)
    assert world.opened.journal.left_through > 0
    world = world.crash()
    world.settle()
    world.check_journal()
    client = world.client()
    for name in "12":
        link = client.subscriber("news", name, durable=True)
        world.settle()
        assert Message.decode(client.received[link][0].payload).delivery_count == 2  # that one, and the crash


def test_a_copy_that_fails_becomes_a_dead_letter_of_its_own() -> None:
    world = World()
    client = world.client()
    one = client.subscriber("news", "one", durable=True)
    two = client.subscriber("news", "two")
    client.post(client.publisher("news"), durable(b"x"))
    world.settle()
    for link in (one, two):
        client.received[link][0].settle(Rejected())
    world.settle()
    assert live_of(world, "DLQ") == 2
    dead = client.receiver("DLQ", "dead", credit=2)
    world.settle()
    letters = [Message.decode(delivery.payload) for delivery in client.received[dead]]
    assert [letter.durable for letter in letters] == [True, True]  # its sender said so, wherever it was kept
    assert {letter.annotations["x-opt-ORIG-ADDRESS"] for letter in letters} == {"news"}
    balanced(world)


def test_a_message_from_a_topic_comes_back_as_any_other() -> None:
    world = World()
    client = world.client()
    link = client.subscriber("news", "one", durable=True)
    client.subscriber("news", "two", durable=True, credit=0)
    client.post(client.publisher("news"), durable(b"x"))
    world.settle()
    client.received[link][0].settle(Modified(delivery_failed=True))
    world.settle()
    again = Message.decode(client.received[link][1].payload)
    assert again.delivery_count == 1
    balanced(world)


# -- addresses --------------------------------------------------------------------------------------------------------


def test_a_queue_and_a_topic_may_have_the_same_name() -> None:
    world = World()
    client = world.client()
    subscriber = client.subscriber("both")
    consumer = client.begun.attach_receiver(
        "consumer", source=Source("both", capabilities=("queue",)), target=Target("there")
    )
    consumer.grant(5)
    world.carry()
    client.post(client.publisher("both"), Message("to the topic"))
    client.post(client.sender(None, target=Target("both", capabilities=("queue",))), Message("to the queue"))
    world.settle()
    assert client.bodies(subscriber) == ["to the topic"]
    assert client.bodies(consumer) == ["to the queue"]


def test_without_a_word_it_is_the_topic_that_is_there() -> None:
    world = World()
    client = world.client()
    receiver = client.subscriber("news")
    plain = client.receiver("news", "says nothing", credit=5)
    assert plain.source is not None
    assert "topic" in plain.source.capabilities
    client.post(client.sender("news"), Message("x"))
    world.settle()
    assert client.bodies(receiver) == client.bodies(plain) == ["x"]


def test_without_a_word_it_is_a_queue_where_nothing_is() -> None:
    world = World()
    client = world.client()
    link = client.sender("orders")
    assert link.target is not None
    assert link.target.capabilities == ("queue",)  # type: ignore[union-attr]


@pytest.mark.parametrize("routing", ["anycast", "multicast"])
def test_the_policy_says_what_an_address_is(routing: str) -> None:
    world = world_of(AddressRule("news.#", {"routing": routing}))
    client = world.client()
    one, two = (client.receiver("news.eu", name, credit=5) for name in ("one", "two"))
    client.post(client.sender("news.eu"), Message("x"))
    world.settle()
    assert len(client.bodies(one) + client.bodies(two)) == (1 if routing == "anycast" else 2)


def test_a_fully_qualified_name_is_one_queue() -> None:
    world = World()
    client = world.client()
    client.subscriber("news", "one", durable=True, credit=0)
    client.subscriber("news", "two", durable=True, credit=0)
    client.post(client.sender("news::client/two"), durable("for two alone"))
    client.post(client.publisher("news"), durable("for both"))
    world.settle()
    assert live_of(world, "news::client/one") == 1
    assert live_of(world, "news::client/two") == 2
    link = client.receiver("news::client/two", "qualified", credit=5)
    assert link.source is not None
    assert link.source.address == "news::client/two"
    world.settle()
    assert client.bodies(link) == ["for two alone", "for both"]
    browser = client.receiver("news::client/one", "browser", credit=5, browse=True)
    world.settle()
    assert client.bodies(browser) == ["for both"]
    client.detach(link)
    assert "news::client/two" in world.core.queues.by_name  # it was not the subscriber's


def test_a_fully_qualified_name_of_a_topic_begins_a_subscription_that_all_share() -> None:
    world = World()
    one, two = world.client("one"), world.client("two")
    topic = Source("news::audit", capabilities=("topic",))
    links = []
    for client in (one, two):
        link = client.begun.attach_receiver("x", source=topic, target=Target("there"))
        link.grant(1)
        world.carry()
        links.append((client, link))
    one.post(one.publisher("news"), durable(1), durable(2))
    world.settle()
    assert sorted(body for client, link in links for body in client.bodies(link)) == [1, 2]  # type: ignore[type-var]
    one.lose()
    two.lose()
    world.settle()
    assert live_of(world.crash(), "news::audit") == 2


@pytest.mark.parametrize("address", ["news::nothing", "news::nobody/x", "orders::other"])
def test_a_fully_qualified_name_that_is_not_there_is_not_found(address: str) -> None:
    world = World()
    client = world.client()
    for link in (client.receiver(address), client.sender(address)):
        error = client.detached[link].error
        assert error is not None
        assert error.condition == AmqpCondition.NOT_FOUND


def test_twice_the_same_name_is_the_queue() -> None:
    world = World()
    client = world.client()
    link = client.receiver("orders::orders", credit=1)
    client.post(client.sender("orders"), Message("x"))
    world.settle()
    assert client.bodies(link) == ["x"]


# -- the anonymous terminus -------------------------------------------------------------------------------------------


def test_a_message_of_jms_says_itself_whether_it_goes_to_a_topic() -> None:
    world = World()
    client = world.client()
    subscriber, consumer = client.subscriber("both"), client.receiver("queue", credit=5)
    link = client.sender(None)
    client.post(link, Message("t", to="both", annotations={"x-opt-jms-dest": Byte(1)}))
    client.post(link, Message("q", to="queue", annotations={"x-opt-jms-dest": Byte(0)}))
    client.post(link, Message("also t", to="both"))
    client.post(link, Message("a queue of the same name", to="both", annotations={"x-opt-jms-dest": Byte(0)}))
    world.settle()
    assert client.bodies(subscriber) == ["t", "also t"]
    assert client.bodies(consumer) == ["q"]
    assert live_of(world, "both") == 1


def test_a_message_to_nowhere_is_rejected_by_its_tag() -> None:
    world = world_of(AddressRule("closed", {"create": False}))
    client = world.client()
    link = client.sender(None)
    bad, good = client.post(link, Message("x", to="closed"), Message("y", to="open"))
    world.settle()
    rejected = client.outcome(bad)
    assert isinstance(rejected, Rejected)
    assert rejected.error is not None
    assert rejected.error.condition == AmqpCondition.NOT_FOUND
    assert rejected.error.info == {"delivery-tag": bad.tag}
    assert client.outcome(good) == Accepted()


def test_a_sender_that_knows_no_rejection_is_detached() -> None:
    world = world_of(AddressRule("closed", {"create": False}))
    client = world.client()
    link = client.begun.attach_sender("s", source=Source("here", outcomes=("amqp:accepted:list",)), target=Target(None))
    world.carry()
    (bad,) = client.post(link, Message("x", to="closed"))
    world.settle()
    error = client.detached[link].error
    assert error is not None
    assert (error.condition, error.info) == (AmqpCondition.NOT_FOUND, {"delivery-tag": bad.tag})


def test_a_settled_message_to_nowhere_ends_the_link() -> None:
    world = world_of(AddressRule("closed", {"create": False}))
    client = world.client()
    link = client.sender(None)
    client.post(link, Message("x", to="closed"), settled=True)
    world.settle()
    assert client.detached[link].error.condition == AmqpCondition.NOT_FOUND  # type: ignore[union-attr]


# -- how many, and for how long ---------------------------------------------------------------------------------------


def test_subscriptions_and_topics_count_as_queues() -> None:
    world = world_of(queues_max=3)
    client = world.client()
    client.subscriber("news", "one")
    client.subscriber("news", "two")
    third = client.subscriber("news", "three")
    error = client.detached[third].error
    assert error is not None
    assert error.condition == AmqpCondition.RESOURCE_LIMIT_EXCEEDED
    assert client.publisher("sport") in client.detached


def test_a_topic_that_may_not_be_made_is_not_found() -> None:
    world = world_of(AddressRule("#", {"create": False}))
    client = world.client()
    for link in (client.publisher("news"), client.subscriber("news"), client.subscriber("news.*", "pattern")):
        assert client.detached[link].error.condition == AmqpCondition.NOT_FOUND  # type: ignore[union-attr]


def test_a_topic_goes_with_its_last_link_where_the_policy_says_so() -> None:
    world = world_of(AddressRule("#", {"auto_delete": True}))
    client = world.client()
    publisher, subscriber = client.publisher("news"), client.subscriber("news")
    client.detach(publisher)
    assert "news" in world.core.topics.by_address
    client.detach(subscriber)
    world.settle()
    assert world.core.topics.by_address == {}
    assert world.core.queues.by_name == {}
    assert world.fold().table.queues == {}


def test_a_topic_that_only_a_message_named_goes_with_it_where_the_policy_says_so() -> None:
    world = world_of(AddressRule("#", {"auto_delete": True}), queues_max=3)
    client = world.client()
    link = client.subscriber("news.#")
    sender = client.sender(None)
    for number in range(9):
        client.post(
            sender,
            durable(number, to=f"news.{number}", annotations={"x-opt-jms-dest": Byte(1)}),
            Message(number, to=f"sport.{number}", annotations={"x-opt-jms-dest": Byte(1)}),
        )
        world.settle()
    assert client.bodies(link) == list(range(9))
    assert world.core.topics.by_address == {}
    balanced(world)
    assert world.fold().totals()[0].volatile[EventKind.UNROUTED] == 9


def test_a_topic_is_there_after_a_restart() -> None:
    world = World()
    world.client().publisher("news")
    world.settle()
    assert "news" in world.crash().core.topics.by_address


def test_a_snapshot_shows_topics_and_subscriptions() -> None:
    world = World()
    client = world.client()
    client.subscriber("news", "one", durable=True, credit=0)
    client.post(client.publisher("news"), durable(b"x"))
    world.settle()
    rows = {row.name: row for row in world.core.snapshot().queues}
    assert rows["news::client/one"].address == "news"
    assert rows["news::client/one"].entered == 1
    assert (rows["news"].entered, rows["news"].unrouted) == (0, 0)
    assert rows["news"].kind == "topic"
    assert rows["news::client/one"].kind == "subscription"


@pytest.mark.pure
def test_copies_are_recorded_as_events_only() -> None:
    world = World()
    client = world.client()
    client.subscriber("news", "one", durable=True, credit=0)
    client.subscriber("news", "two", durable=True, credit=0)
    client.subscriber("news", "volatile", credit=0)
    appended: list[int] = []
    journal = world.opened.journal
    append = journal.append

    def noting(kind: int, *rest: object) -> object:
        appended.append(kind)
        return append(kind, *rest)  # type: ignore[arg-type]

    journal.append = noting  # type: ignore[method-assign, assignment]
    client.post(client.publisher("news"), durable(b"x"))
    world.settle()
    assert appended.count(RecordKind.POSTING) == 1
    assert appended.count(RecordKind.COPIES) == 1
