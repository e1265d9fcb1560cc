"""Who of a queue's consumers is served: one at a time, the highest priority first, and who takes over."""

from __future__ import annotations

import pytest

from acquit.broker.dispatching.succession import PRIORITIES, priority_of
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.message import Message
from acquit.protocol.types import UInt
from tests.support.broker_world import World, durable
from tests.support.transacting import Controller


def world_of(consumers: str = "shared", **policy: object) -> World:
    return World(BrokerOptions(address=(AddressRule("q", {"consumers": consumers, **policy}),)))


def change(world: World, **policy: object) -> None:
    """The configuration is read again."""
    world.core.apply(BrokerOptions(address=(AddressRule("q", policy),)))
    world.settle()


def numbered(count: int, *, start: int = 0, **fields: object) -> list[Message]:
    return [durable(b"%d" % number, **fields) for number in range(start, start + count)]


# -- one active consumer ----------------------------------------------------------------------------------------------


def test_one_is_served_and_another_takes_over_in_order() -> None:
    world = world_of("single-active")
    posting, one, two = world.client("posting"), world.client("one"), world.client("two")
    first = one.receiver("q", "first", credit=3)
    second = two.receiver("q", "second", credit=100)
    posting.post_all(posting.sender("q"), *numbered(6))
    assert one.bodies(first) == [b"0", b"1", b"2"]
    assert two.bodies(second) == [], "the active one has no credit, but it is the active one"
    assert first.remote_attach is not None and second.remote_attach is not None
    assert (first.remote_attach.properties or {})["acquit:active"] is True
    assert (second.remote_attach.properties or {})["acquit:active"] is False
    snapshot = world.core.snapshot().queue("q")
    assert snapshot is not None and snapshot.active_consumer == "one/first"
    one.received[first][0].settle(ACCEPTED)
    world.carry()
    one.lose()
    world.settle()
    assert two.bodies(second) == [b"1", b"2", b"3", b"4", b"5"]
    snapshot = world.core.snapshot().queue("q")
    assert snapshot is not None and snapshot.active_consumer == "two/second"
    two.close()
    world.settle()
    snapshot = world.core.snapshot().queue("q")
    assert snapshot is not None and snapshot.active_consumer == ""
    world.check_journal()


def test_who_waits_hears_at_once_that_there_is_nothing_for_it() -> None:
    world = world_of("single-active")
    client = world.client()
    client.receiver("q", "active")
    client.post_all(client.sender("q"), *numbered(3))
    waiting = client.receiver("q", "waiting", credit=5)
    waiting.drain_credit()
    world.settle()
    assert waiting.credit == 0
    assert client.bodies(waiting) == []


def test_the_highest_priority_takes_over_among_equals_who_waited_longest() -> None:
    world = world_of("single-active")
    client = world.client()
    active = client.receiver("q", "active", credit=1)
    low = client.receiver("q", "low", credit=100)
    high = client.receiver("q", "high", credit=1, properties={"priority": 7})
    same = client.receiver("q", "same", credit=100, properties={"priority": 7})
    client.post_all(client.sender("q"), *numbered(3))
    assert client.bodies(active) == [b"0"], "a newcomer of a higher priority does not displace it"
    active.detach()
    world.settle()
    assert (client.bodies(high), client.bodies(same), client.bodies(low)) == ([b"0"], [], [])
    high.detach()
    world.settle()
    assert (client.bodies(same), client.bodies(low)) == ([b"0", b"1", b"2"], [])


def test_a_successor_with_another_selector_finds_what_is_aside() -> None:
    world = world_of("single-active")
    client = world.client()
    first = client.receiver("q", "first", selector="n = 1", credit=100)
    second = client.receiver("q", "second", selector="n = 2", credit=100)
    client.post_all(client.sender("q"), *(durable(b"%d" % n, application_properties={"n": n % 3}) for n in range(9)))
    assert client.bodies(first) == [b"1", b"4", b"7"]
    first.detach()
    world.settle()
    assert client.bodies(second) == [b"2", b"5", b"8"]


def test_a_client_that_steals_its_own_link_goes_on() -> None:
    world = world_of("single-active")
    old, new = world.client("me"), world.client("me")
    before = old.receiver("q", "link", credit=10)
    waiting = world.client("other").receiver("q", "waiting")
    after = new.receiver("q", "link", credit=10)
    world.settle()
    assert before in old.detached
    assert waiting.remote_attach is not None
    queue = world.core.queues.by_name["q"]
    assert queue.active is not None and len(queue.consumers) == 2
    new.post_all(new.sender("q"), *numbered(1))
    assert after.remote_attach is not None and (after.remote_attach.properties or {})["acquit:active"] is True


# -- exclusive --------------------------------------------------------------------------------------------------------


def test_a_second_consumer_of_an_exclusive_queue_is_refused() -> None:
    world = world_of("exclusive")
    one, two = world.client("one"), world.client("two")
    first = one.receiver("q", "first", credit=10)
    second = two.receiver("q", "second", credit=10)
    browser = two.receiver("q", "browser", credit=10, browse=True)
    world.settle()
    error = two.detached[second].error
    assert error is not None and error.condition == "amqp:resource-locked"
    one.post_all(one.sender("q"), *numbered(2))
    assert one.bodies(first) == [b"0", b"1"]
    assert two.bodies(browser) == []
    first.detach()
    world.settle()
    third = two.receiver("q", "third", credit=10)
    world.settle()
    assert two.bodies(third) == [b"0", b"1"]


def test_who_comes_back_to_an_exclusive_queue_is_not_kept_out_by_itself() -> None:
    world = world_of("exclusive")
    old, new = world.client("me"), world.client("me")
    old.receiver("q", "link", credit=10)
    new.post_all(new.sender("q"), *numbered(2))
    again = new.receiver("q", "link", credit=10)
    world.settle()
    assert new.bodies(again) == [b"0", b"1"]


# -- a policy that changes --------------------------------------------------------------------------------------------


def test_a_policy_that_changes_is_heeded_at_once() -> None:
    world = world_of("shared")
    client = world.client()
    links = [client.receiver("q", name, credit=100) for name in ("one", "two")]
    sender = client.sender("q")
    client.post_all(sender, *numbered(4))
    assert [len(client.bodies(link)) for link in links] == [2, 2]
    queue = world.core.queues.by_name["q"]
    change(world, consumers="single-active")
    client.post_all(sender, *numbered(4, start=4))
    assert [len(client.bodies(link)) for link in links] == [6, 2]
    change(world)
    client.post_all(sender, *numbered(4, start=8))
    assert [len(client.bodies(link)) for link in links] == [8, 4]
    assert queue.active is None


def test_a_consumer_may_hold_more_as_soon_as_the_policy_says_so() -> None:
    world = world_of(prefetch_max=2)
    client = world.client()
    link = client.receiver("q", credit=10)
    client.post_all(client.sender("q"), *numbered(5))
    assert len(client.bodies(link)) == 2
    change(world, prefetch_max=4)
    assert len(client.bodies(link)) == 4


@pytest.mark.parametrize("is_durable", [True, False])
def test_groups_hold_for_what_is_there_as_soon_as_the_policy_has_them(is_durable: bool) -> None:
    world = world_of(message_groups=False)
    client = world.client()
    posted = [Message(number, durable=is_durable, group_id="g") for number in range(8)]
    client.post_all(client.sender("q"), *posted)
    first = client.receiver("q", "first", credit=1)
    world.settle()
    change(world, message_groups=True)
    links = [client.receiver("q", f"{number}", credit=2) for number in range(3)]
    world.settle()
    assert [client.bodies(link) for link in (first, *links)] == [[0], [1, 2], [], []]


def test_groups_are_free_as_soon_as_the_policy_has_none() -> None:
    world = world_of()
    client = world.client()
    client.receiver("q", "owner", credit=1)
    sender = client.sender("q")
    client.post_all(sender, *numbered(1, group_id="g"))
    other = client.receiver("q", "other", credit=10)
    client.post_all(sender, *numbered(3, start=1, group_id="g"))
    assert client.bodies(other) == []
    change(world, message_groups=False)
    assert client.bodies(other) == [b"1", b"2", b"3"]
    assert world.core.queues.by_name["q"].groups is None


# -- priorities of consumers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["priority", "rabbitmq:priority"])
@pytest.mark.parametrize("selective", [False, True])
def test_higher_consumers_come_first_while_they_have_credit(name: str, selective: bool) -> None:
    world = world_of()
    client = world.client()
    selector = "n IS NULL" if selective else None
    low = client.receiver("q", "low", credit=100, properties={name: -5}, selector=selector)
    usual = client.receiver("q", "usual", credit=100)
    highs = [client.receiver("q", f"high-{number}", credit=2, properties={name: 10}) for number in range(2)]
    sender = client.sender("q")
    client.post_all(sender, *numbered(6))
    assert [len(client.bodies(link)) for link in highs] == [2, 2]
    assert client.bodies(usual) == [b"4", b"5"]
    assert client.bodies(low) == []
    usual.drain_credit()
    world.settle()
    client.post_all(sender, *numbered(1, start=6))
    assert client.bodies(low) == [b"6"]
    highs[0].grant(1)
    world.settle()
    client.post_all(sender, *numbered(2, start=7))
    assert client.bodies(highs[0])[2:] == [b"7"]
    assert client.bodies(low) == [b"6", b"8"]


@pytest.mark.parametrize("selective", [False, True])
def test_a_higher_consumer_gets_all_that_it_has_credit_for(selective: bool) -> None:
    """Also where that is more than what one gets in one turn."""
    world = world_of()
    client = world.client()
    client.post_all(client.sender("q"), *numbered(500))
    selector = "n IS NULL" if selective else None
    low = client.receiver("q", "low", selector=selector)
    high = client.receiver("q", "high", properties={"priority": 1})
    low.grant(1_000)
    high.grant(300)
    world.settle()
    assert client.bodies(high) == [b"%d" % n for n in range(300)]
    assert client.bodies(low) == [b"%d" % n for n in range(300, 500)]


def test_a_higher_consumer_comes_first_for_what_is_aside() -> None:
    world = world_of()
    client = world.client()
    client.receiver("q", "none", selector="n = 1", credit=1)
    client.post_all(client.sender("q"), *numbered(200))
    low = client.receiver("q", "low", selector="n IS NULL")
    high = client.receiver("q", "high", properties={"priority": 1})
    low.grant(1_000)
    high.grant(150)
    world.settle()
    assert client.bodies(high) == [b"%d" % n for n in range(150)]
    assert client.bodies(low) == [b"%d" % n for n in range(150, 200)]


def test_priorities_of_messages_hold_with_those_of_consumers() -> None:
    world = world_of()
    client = world.client()
    order = [4, 9, 0, 5, 9, 1, 4, 8]
    client.post_all(client.sender("q"), *(Message(b"%d" % p, priority=p) for p in order))
    low = client.receiver("q", "low", properties={"priority": -1})
    high = client.receiver("q", "high", properties={"priority": 1})
    high.grant(3)
    low.grant(100)
    world.settle()
    assert client.bodies(high) == [b"9", b"9", b"8"]
    assert client.bodies(low) == [b"5", b"4", b"4", b"1", b"0"]


@pytest.mark.parametrize(
    ("properties", "priority"),
    [
        (None, 0),
        ({}, 0),
        ({"priority": 5}, 5),
        ({"priority": UInt(5)}, 5),
        ({"rabbitmq:priority": -3}, -3),
        ({"priority": 5.0}, 5),
        ({"priority": None}, 0),
        ({"priority": 1 << 60}, 0x7FFF_FFFF),
        ({"priority": None, "rabbitmq:priority": 2}, 2),
    ],
)
def test_the_link_property(properties: dict[str, object] | None, priority: int) -> None:
    assert priority_of(properties) == priority


@pytest.mark.parametrize("name", PRIORITIES)
@pytest.mark.parametrize("value", ["high", "5", True, 5.5, b"5", [5]])
def test_a_priority_that_is_no_whole_number_is_refused(name: str, value: object) -> None:
    world = World()
    client = world.client()
    link = client.receiver("new", properties={name: value})
    error = client.detached[link].error
    assert error is not None
    assert error.condition == "amqp:invalid-field"
    assert name in str(error.description)
    assert not world.core.queues.by_name, "nothing is made for it"


@pytest.mark.parametrize("consumers", ["single-active", "shared"])
@pytest.mark.parametrize("lost", [True, False])
def test_a_connection_that_ends_gives_back_what_its_transactions_had_before_anybody_takes_over(
    consumers: str, lost: bool
) -> None:
    """In order, where one consumer is served at a time and for a group."""
    world = world_of(consumers)
    client, other = world.client("first"), world.client("second")
    client.post_all(client.sender("q"), *[durable(number, group_id="g") for number in range(3)])
    link = client.receiver("q", credit=1)
    world.settle()
    controller = Controller(client)
    controller.retire(controller.declare(), client.held(link)[0], settled=False)
    successor = other.receiver("q", "other", credit=10)
    world.settle()
    assert other.bodies(successor) == []
    if lost:
        client.lose()
    else:
        client.close()
    world.settle()
    assert other.bodies(successor) == [0, 1, 2]
