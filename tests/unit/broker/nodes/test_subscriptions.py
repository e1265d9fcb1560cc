"""Subscriptions of topics: begun, found again, shared, taken over and ended, as Qpid JMS does it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from acquit.broker.access.permissions import build_permissions
from acquit.broker.admin.later import RequestFailure
from acquit.broker.admin.operations import operation, perform
from acquit.broker.admin.requests import ManagementRequest
from acquit.broker.links.filters import AppliedFilters, read_filters
from acquit.broker.nodes.subscription import Subscription, subscription_name
from acquit.broker.options import AddressRule, BrokerOptions, Role, Security, User
from acquit.errors import StoreFull, StoreVersionUnsupported
from acquit.ledger.balance import balance
from acquit.ledger.events import EventKind
from acquit.ledger.records import QueueFlag
from acquit.protocol.definitions import (
    Accepted,
    AmqpCondition,
    LinkCondition,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from acquit.protocol.endpoint import LinkState
from acquit.protocol.link import Link, ReceivingLink
from acquit.protocol.message import Message
from acquit.protocol.session import Session
from acquit.protocol.types import Described, ULong
from tests.support.broker_world import Client, World, durable, live_of

TOPIC = "news"


def selector(text: str) -> dict[str, object]:
    return {"jms-selector": Described(ULong(0x468C00000004), text)}


def condition_of(client: Client, link: Link) -> str | None:
    """Why a link was refused or ended; None while it is there."""
    ended = client.detached.get(link)
    return None if ended is None or ended.error is None else str(ended.error.condition)


def publish(world: World, *bodies: object, topic: str = TOPIC) -> None:
    """By somebody else."""
    client = world.client("publisher")
    client.post_all(client.publisher(topic), *[durable(body) for body in bodies])
    client.close()


def queues(world: World) -> list[str]:
    return sorted(world.core.queues.by_name)


def balanced(world: World) -> None:
    world.settle()
    world.check_journal()
    assert balance(world.fold()).balanced


# -- who is who -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "name"),
    [
        ("audit", "audit"),
        ("audit|2", "audit"),
        ("audit|global", "audit"),
        ("audit|global2", "audit"),
        ("audit|volatile1", "audit"),
        ("audit|global-volatile3", "audit"),
    ],
)
def test_a_subscription_is_named_by_the_first_part_of_its_link(link: str, name: str) -> None:
    assert subscription_name(link) == name


def test_no_two_subscriptions_have_one_queue() -> None:
    subscriptions = [
        Subscription("a/b", None),
        Subscription("b", "a"),
        Subscription("b", "a/"),
        Subscription("/b", "a"),
        Subscription("a%2Fb", None),
        Subscription("b", "a%2F"),
        Subscription("b", "a", user="eve"),
        Subscription("b", "a", user="ada"),
    ]
    assert len({one.queue_name("t") for one in subscriptions}) == len(subscriptions)


@pytest.mark.parametrize(("container", "user"), [(None, None), ("c", None), ("c", "ada")])
def test_a_subscription_reads_back_as_it_was_written(container: str | None, user: str | None) -> None:
    one = Subscription("name", container, user=user, shared=True, filters=read_filters(selector("a = 1")))
    again = Subscription.decode(one.encoded)
    assert (again.identity, again.shared, again.encoded) == (one.identity, True, one.encoded)
    assert again.takes_the_same(one)
    assert one.encoded[0] == (1 if user is None else 2), "who knows no owners must not give it to others"


def test_a_subscription_as_it_was_written_before_it_had_users() -> None:
    again = Subscription.decode(b"\x01\x01" + b"\x01\x00c" + b"\x04\x00name" + b"\x00\x00")
    assert (again.identity, again.shared) == ((None, "c", "name"), True)
    with pytest.raises(StoreVersionUnsupported, match="a later version of acquit"):
        Subscription.decode(b"\x03\x01" + b"\x01\x00c" + b"\x04\x00name" + b"\x00\x00")


# -- volatile ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "detach", "lose", "end"])
def test_a_volatile_subscription_lasts_as_long_as_its_link(end: str) -> None:
    world = World()
    client = world.client()
    link = client.subscriber(TOPIC, "one", credit=2)
    assert link.source is not None
    assert link.source.durable == TerminusDurability.NONE
    assert link.source.expiry_policy == TerminusExpiryPolicy.LINK_DETACH
    publish(world, 1, 2, 3)
    (queue,) = world.core.queues.by_name.values()
    match end:
        case "close" | "detach":
            client.detach(link, closed=end == "close")
        case "lose":
            client.lose()
        case _:
            client.session.end()  # type: ignore[attr-defined]
            world.carry()
    world.settle()
    assert queues(world) == []
    assert queue.counts[EventKind.PURGED] == 3  # what was left in it is on record
    assert queue.live == 0
    balanced(world)


def test_volatile_subscriptions_of_the_same_name_are_different() -> None:
    world = World()
    one, two = world.client("one"), world.client("two")
    links = [(one, one.subscriber(TOPIC, "same")), (two, two.subscriber(TOPIC, "same"))]
    publish(world, "x")
    assert [client.bodies(link) for client, link in links] == [["x"], ["x"]]


def test_a_volatile_subscription_ends_at_a_restart_with_what_was_in_it() -> None:
    world = World()
    world.client().subscriber(TOPIC, "one", credit=0)
    publish(world, 1, 2)
    world.core.tick(world.now_us)
    world.settle()
    again = world.crash()
    assert queues(again) == []
    again.settle()
    assert again.fold().totals()[0].volatile[EventKind.LOST_VOLATILE] == 2
    assert TOPIC in again.core.topics.by_address
    balanced(again)


def test_what_a_volatile_subscription_holds_is_durable_to_those_who_read_it() -> None:
    world = World()
    client = world.client()
    link = client.subscriber(TOPIC)
    publish(world, "x")
    delivery = client.received[link][0]
    assert Message.decode(delivery.payload).durable
    assert world.core.life.live == {}  # but there is no record of it


def test_a_publisher_waits_for_no_disk_where_only_volatile_subscriptions_are() -> None:
    world = World()
    client = world.client()
    client.subscriber(TOPIC)
    publisher = client.publisher(TOPIC)
    world.settle()
    (delivery,) = client.post(publisher, durable("x"))
    world.carry()
    assert client.outcome(delivery) == Accepted()


def test_a_presettled_subscriber() -> None:
    world = World()
    client = world.client()
    link = client.subscriber(TOPIC, durable=True, presettled=True)
    publish(world, 1, 2)
    assert client.bodies(link) == [1, 2]
    assert live_of(world, f"{TOPIC}::client/subscriber") == 0


# -- durable ----------------------------------------------------------------------------------------------------------


def test_a_durable_subscription_keeps_what_comes_while_nobody_receives() -> None:
    world = World()
    client = world.client()
    link = client.subscriber(TOPIC, "audit", durable=True)
    assert link.source is not None
    assert (link.source.address, link.source.expiry_policy) == (TOPIC, TerminusExpiryPolicy.NEVER)
    assert link.source.durable == TerminusDurability.CONFIGURATION  # unsettled deliveries go back with their link
    assert link.source.capabilities == ("topic",)
    client.detach(link, closed=False)
    publish(world, 1, 2)
    link = client.subscriber(TOPIC, "audit", durable=True)
    world.settle()
    assert client.bodies(link) == [1, 2]
    assert queues(world) == [f"{TOPIC}::client/audit"]


@pytest.mark.parametrize("restart", ["crash", "stop"])
def test_a_durable_subscription_its_selector_and_its_messages_survive(restart: str) -> None:
    world = World()
    client = world.client()
    client.subscriber(TOPIC, "audit", durable=True, filters=selector("n > 1"), credit=0)
    publisher = client.publisher(TOPIC)
    for number in (1, 2):
        client.post(publisher, durable(number, application_properties={"n": number}))
    world.settle()
    world = world.crash() if restart == "crash" else world.stop()
    client = world.client()
    publisher = client.publisher(TOPIC)
    for number in (1, 3):
        client.post(publisher, durable(number, application_properties={"n": number}))
    world.settle()
    link = client.subscriber(TOPIC, "audit", durable=True, filters=selector("n > 1"))
    world.settle()
    assert client.bodies(link) == [2, 3]
    balanced(world)


def test_a_durable_subscription_survives_the_segment_it_was_declared_in() -> None:
    world = World()
    client = world.client()
    client.subscriber(TOPIC, "audit", durable=True, credit=0)
    filler, receiver = client.sender("filler"), client.receiver("filler", credit=1_000)
    for _ in range(60):
        client.post_all(filler, *[durable(b"f" * 3_000) for _ in range(5)])
        for delivery in client.held(receiver):
            delivery.settle(Accepted())
        world.settle()
    assert world.opened.journal.left_through > 0
    again = world.crash()
    publish(again, "x")
    assert live_of(again, f"{TOPIC}::client/audit") == 1


def test_a_pattern_subscribes_durably() -> None:
    world = World()
    world.client().subscriber("news.#", "audit", durable=True, credit=0)
    world.settle()
    world = world.crash()
    publish(world, "x", topic="news.eu")
    client = world.client()
    link = client.subscriber("news.#", "audit", durable=True)
    world.settle()
    assert client.bodies(link) == ["x"]


def test_a_durable_subscription_is_of_its_container() -> None:
    world = World()
    one, two = world.client("one"), world.client("two")
    links = [(client, client.subscriber(TOPIC, "audit", durable=True)) for client in (one, two)]
    publish(world, "x")
    assert [client.bodies(link) for client, link in links] == [["x"], ["x"]]


def test_an_exclusive_subscription_has_one_receiver() -> None:
    world = World()
    client = world.client()
    first = client.subscriber(TOPIC, "audit", durable=True)
    second = client.subscriber(TOPIC, "audit|2", durable=True)
    assert condition_of(client, second) == AmqpCondition.RESOURCE_LOCKED
    publish(world, "x")
    assert client.bodies(first) == ["x"]


def test_the_same_link_from_another_connection_takes_it_over() -> None:
    world = World()
    lost, back = world.client("me"), world.client("me")
    old = lost.subscriber(TOPIC, "audit", durable=True)
    publish(world, 1)
    new = back.subscriber(TOPIC, "audit", durable=True)
    world.settle()
    assert condition_of(lost, old) == LinkCondition.STOLEN
    assert back.bodies(new) == [1]
    publish(world, 2)
    assert back.bodies(new) == [1, 2]
    assert queues(world) == [f"{TOPIC}::me/audit"]


def test_a_volatile_subscription_that_is_stolen_is_a_new_one() -> None:
    world = World()
    lost, back = world.client("me"), world.client("me")
    old = lost.subscriber(TOPIC, "same")
    new = back.subscriber(TOPIC, "same")
    world.settle()
    assert condition_of(lost, old) == LinkCondition.STOLEN
    publish(world, 1)
    assert back.bodies(new) == [1]
    assert lost.bodies(old) == []
    assert len(queues(world)) == 1


@pytest.mark.parametrize("what", ["topic", "selector"])
def test_another_topic_or_selector_begins_anew(what: str) -> None:
    world = World()
    client = world.client()
    link = client.subscriber(TOPIC, "audit", durable=True, credit=0)
    client.detach(link, closed=False)
    publish(world, "old")
    (old,) = world.core.queues.by_name.values()
    topic, filters = ("sport", None) if what == "topic" else (TOPIC, selector("n = 1"))
    link = client.subscriber(topic, "audit", durable=True, filters=filters)
    world.settle()
    assert client.bodies(link) == []
    assert old.counts[EventKind.PURGED] == 1
    assert queues(world) == [f"{topic}::client/audit"]
    client.post_all(client.publisher(topic), durable("new", application_properties={"n": 1}))
    assert client.bodies(link) == ["new"]
    balanced(world)
    again = world.crash()
    assert queues(again) == [f"{topic}::client/audit"]


@pytest.mark.parametrize("what", ["topic", "selector"])
def test_another_topic_or_selector_is_an_error_while_it_has_a_receiver(what: str) -> None:
    world = World()
    client = world.client()
    first = client.subscriber(TOPIC, "audit", durable=True)
    topic, filters = ("sport", None) if what == "topic" else (TOPIC, selector("n = 1"))
    second = client.subscriber(topic, "audit|2", durable=True, filters=filters)
    assert condition_of(client, second) == AmqpCondition.RESOURCE_LOCKED
    publish(world, "x")
    assert client.bodies(first) == ["x"]


def test_a_client_that_comes_back_with_another_selector_is_not_kept_out_by_itself() -> None:
    world = World()
    lost, back = world.client("me"), world.client("me")
    old = lost.subscriber(TOPIC, "audit", durable=True)
    publish(world, 1)
    new = back.subscriber(TOPIC, "audit", durable=True, filters=selector("n = 1"))
    world.settle()
    assert old in lost.detached
    assert new not in back.detached
    back.post_all(back.publisher(TOPIC), durable(2, application_properties={"n": 1}))
    assert back.bodies(new) == [2]
    balanced(world)


# -- of whom ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True], ids=["exclusive", "shared"])
def test_users_with_the_same_container_and_name_have_subscriptions_of_their_own(shared: bool) -> None:
    world = World()
    ada, eve = world.client("c", user="ada"), world.client("c", user="eve")
    hers = ada.subscriber(TOPIC, "audit", durable=True, shared=shared)
    ada.detach(hers, closed=False)
    publish(world, "for ada")
    theirs = eve.subscriber(TOPIC, "audit", durable=True, shared=shared)
    world.settle()
    assert eve.bodies(theirs) == []
    assert queues(world) == [f"{TOPIC}::c/audit|user=ada", f"{TOPIC}::c/audit|user=eve"]
    eve.detach(theirs)
    world.settle()
    assert queues(world) == [f"{TOPIC}::c/audit|user=ada"], "eve has ended her own"
    gone = eve.subscriber(None, "audit", credit=0)
    assert condition_of(eve, gone) == AmqpCondition.NOT_FOUND, "there is none of hers to unsubscribe"
    again = world.crash()
    back = again.client("c", user="ada")
    assert back.bodies(back.subscriber(TOPIC, "audit", durable=True, shared=shared)) == ["for ada"]
    balanced(again)


def test_a_live_subscriber_is_not_disturbed_by_another_user_with_its_names() -> None:
    world = World()
    ada, eve = world.client("c", user="ada"), world.client("c", user="eve")
    hers = ada.subscriber(TOPIC, "audit", durable=True)
    theirs = eve.subscriber(TOPIC, "audit", durable=True)
    publish(world, "x")
    world.settle()
    assert (condition_of(ada, hers), condition_of(eve, theirs)) == (None, None)
    assert [ada.bodies(hers), eve.bodies(theirs)] == [["x"], ["x"]]


def test_volatile_shared_subscriptions_belong_to_users_too() -> None:
    world = World()
    ada, eve = world.client("c", user="ada"), world.client("c", user="eve")
    links = [(one, one.subscriber(TOPIC, "audit|volatile1", shared=True)) for one in (ada, eve)]
    publish(world, "x")
    assert [one.bodies(link) for one, link in links] == [["x"], ["x"]]


def test_a_global_subscription_is_for_all_users() -> None:
    world = World()
    ada, eve = world.client("one", user="ada"), world.client("two", user="eve")
    hers = ada.subscriber(TOPIC, "audit|global", durable=True, shared_by_all=True)
    theirs = eve.subscriber(TOPIC, "audit|global", durable=True, shared_by_all=True)
    publish(world, *range(10))
    assert len(ada.bodies(hers) + eve.bodies(theirs)) == 10
    assert queues(world) == [f"{TOPIC}::audit"]


def left_behind(world: World) -> None:
    """By somebody who has not logged in."""
    nobody = world.client("c")
    nobody.detach(nobody.subscriber(TOPIC, "audit", durable=True), closed=False)
    publish(world, "from before")
    world.settle()


def test_a_subscription_of_nobody_belongs_to_the_first_user_who_asks_for_it() -> None:
    world = World()
    left_behind(world)
    ada = world.client("c", user="ada")
    hers = ada.subscriber(TOPIC, "audit", durable=True, credit=0)
    ada.detach(hers, closed=False)
    eve = world.client("c", user="eve")
    theirs = eve.subscriber(TOPIC, "audit", durable=True)
    assert eve.bodies(theirs) == []
    nobody = world.client("c")
    assert nobody.bodies(nobody.subscriber(TOPIC, "audit", durable=True)) == []
    world.settle()
    again = world.crash()
    back = again.client("c", user="ada")
    assert back.bodies(back.subscriber(TOPIC, "audit", durable=True)) == ["from before"]
    names = queues(again)
    assert len(names) == 3
    assert {f"{TOPIC}::c/audit", f"{TOPIC}::c/audit|user=eve"} < set(names), "its queue has the name that it had"
    balanced(again)


def test_a_subscription_of_nobody_that_somebody_receives_from_stays_theirs() -> None:
    world = World()
    nobody, ada = world.client("c"), world.client("c", user="ada")
    link = nobody.subscriber(TOPIC, "audit", durable=True)
    hers = ada.subscriber(TOPIC, "audit", durable=True)
    publish(world, "x")
    assert [nobody.bodies(link), ada.bodies(hers)] == [["x"], ["x"]]


def test_a_subscription_of_nobody_is_not_for_a_user_who_may_not_consume_there() -> None:
    first = World()
    left_behind(first)
    security = Security(
        users={"eve": User(roles=("sport",))}, roles={"sport": Role(consume=("sport",), create=("sport",))}
    )
    world = World(BrokerOptions(security=security), disk=first.disk)
    world.core.permissions = build_permissions(security)
    eve = world.client("c", user="eve")
    for link, condition in (
        (eve.subscriber("sport", "audit", durable=True), None),
        (eve.subscriber(TOPIC, "audit|2", durable=True), AmqpCondition.UNAUTHORIZED_ACCESS),
    ):
        assert condition_of(eve, link) == condition
    assert queues(world) == [f"{TOPIC}::c/audit", "sport::c/audit|user=eve"]


def test_a_user_ends_a_subscription_of_nobody_by_its_names() -> None:
    world = World()
    left_behind(world)
    ada = world.client("c", user="ada")
    ada.detach(ada.subscriber(None, "audit", credit=0))
    world.settle()
    assert queues(world) == []


@pytest.mark.parametrize("lasting", [False, True], ids=["volatile", "durable"])
@pytest.mark.parametrize("way", ["consumed", "browsed", "listed", "read"])
def test_the_queue_of_a_users_subscription_is_for_her_and_for_who_manages_it(way: str, lasting: bool) -> None:
    security = Security(
        users={name: User(roles=(name,)) for name in ("ada", "eve", "operator")},
        roles={
            "ada": Role(consume=("#",), browse=("#",), create=("#",)),
            "eve": Role(consume=("#",), browse=("#",), create=("#",)),
            "operator": Role(consume=("#",), browse=("#",), manage=("#",)),
            "anonymous": Role(send=("#",), create=("#",)),
        },
    )
    world = World(BrokerOptions(security=security))
    world.core.permissions = build_permissions(security)
    ada = world.client("c", user="ada")
    ada.subscriber(TOPIC, "audit", durable=lasting, shared=lasting, credit=0)
    publish(world, "for ada")
    world.settle()
    (name,) = queues(world)
    for user, allowed in (("eve", False), ("operator", True), ("ada", True)):
        if way in ("consumed", "browsed"):
            client = world.client("other", user=user)
            link = client.receiver(name, credit=0, browse=way == "browsed")
            assert condition_of(client, link) == (None if allowed else AmqpCondition.UNAUTHORIZED_ACCESS), user
            client.close()
            continue
        request = ManagementRequest(
            world.core.administration,
            user,
            world.core.permissions.of(user),
            name,
            {"state": "all"} if way == "listed" else {"sequence": 1},
        )
        wanted = operation("QUERY" if way == "listed" else "READ", "acquit:message")
        with nullcontext() if allowed else pytest.raises(RequestFailure, match="may not manage") as failure:
            perform(wanted, request)
        assert failure is None or failure.value.status == 403


# -- shared -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lasting", [True, False], ids=["durable", "volatile"])
@pytest.mark.parametrize("by_all", [True, False], ids=["global", "container"])
def test_receivers_of_a_shared_subscription_take_turns(lasting: bool, by_all: bool) -> None:
    world = World()
    if by_all:
        clients = [world.client("one"), world.client("two")]
        names = ["audit|global", "audit|global"] if lasting else ["audit|global-volatile1"] * 2
    else:
        clients = [world.client("me"), world.client("me")]
        names = ["audit", "audit|2"] if lasting else ["audit|volatile1", "audit|volatile2"]
    links = [
        client.subscriber(TOPIC, name, durable=lasting, shared=True, shared_by_all=by_all)
        for client, name in zip(clients, names, strict=True)
    ]
    publish(world, *range(10))
    got = [client.bodies(link) for client, link in zip(clients, links, strict=True)]
    assert sorted(got[0] + got[1]) == list(range(10))  # type: ignore[type-var]
    assert got[0]
    assert got[1]
    source = links[0].source
    assert source is not None
    assert set(source.capabilities) == {"topic", "shared"} | ({"global"} if by_all else set())
    assert (source.expiry_policy == TerminusExpiryPolicy.NEVER) is lasting
    clients[0].lose()
    world.settle()
    assert len(queues(world)) == 1  # the other one is still there
    clients[1].lose()
    world.settle()
    assert len(queues(world)) == (1 if lasting else 0)
    balanced(world)


def test_shared_and_exclusive_are_not_the_same_name() -> None:
    world = World()
    client = world.client()
    link = client.subscriber(TOPIC, "audit", durable=True)
    client.detach(link, closed=False)
    other = client.subscriber(TOPIC, "audit", durable=True, shared=True)
    assert condition_of(client, other) == AmqpCondition.NOT_ALLOWED


def test_durable_and_volatile_ones_of_a_name_are_different() -> None:
    world = World()
    client = world.client()
    links = [
        client.subscriber(TOPIC, "audit", durable=True, shared=True),
        client.subscriber(TOPIC, "audit|volatile1", shared=True),
    ]
    publish(world, "x")
    assert [client.bodies(link) for link in links] == [["x"], ["x"]]


def test_a_shared_subscription_with_another_selector_is_an_error_while_it_is_received_from() -> None:
    world = World()
    one, two = world.client("one"), world.client("two")
    one.subscriber(TOPIC, "audit|global-volatile1", shared_by_all=True)
    link = two.subscriber(TOPIC, "audit|global-volatile1", shared_by_all=True, filters=selector("n = 1"))
    assert condition_of(two, link) == AmqpCondition.RESOURCE_LOCKED


def test_a_shared_subscription_needs_a_name() -> None:
    world = World()
    client = world.client()
    link = client.subscriber(TOPIC, "|volatile1", shared=True)
    assert condition_of(client, link) == AmqpCondition.INVALID_FIELD


# -- ended ------------------------------------------------------------------------------------------------------------


def test_closing_the_subscriber_ends_a_durable_subscription() -> None:
    world = World()
    client = world.client()
    link = client.subscriber(TOPIC, "audit", durable=True, credit=1)
    publish(world, 1, 2)
    (queue,) = world.core.queues.by_name.values()
    client.detach(link)
    world.settle()
    assert queues(world) == []
    assert queue.counts[EventKind.PURGED] == 2
    assert queues(world.crash()) == []
    balanced(world)


@pytest.mark.parametrize("same", [True, False], ids=["alike", "another topic"])
def test_who_attaches_right_after_the_subscriber_has_closed_begins_anew(same: bool) -> None:
    """Although that one has much to give back, which takes turns."""
    world = World()
    client, other = world.client("me"), world.client("me")
    link = client.subscriber(TOPIC, "audit", durable=True)
    publish(world, *range(150))
    assert len(client.held(link)) == 100
    with world.in_one_read():
        client.detach(link)
        new = other.subscriber(TOPIC if same else "sport", "audit", durable=True)
    world.settle()
    assert (link.state, new.state) == (LinkState.DETACHED, LinkState.ATTACHED)
    assert other.bodies(new) == []
    assert queues(world) == [f"{TOPIC if same else 'sport'}::me/audit"]
    balanced(world)


@pytest.mark.parametrize("way", ["end", "close", "lose", "stop"])
def test_who_has_closed_its_link_may_go_before_the_answer(way: str) -> None:
    world = World()
    client = world.client()
    link = client.subscriber(TOPIC, "audit", durable=True)
    client.detach(link)
    assert link.state is LinkState.DETACH_SENT
    match way:
        case "end":
            client.begun.end()
            world.carry()
        case "close":
            client.close()
        case "lose":
            client.lose()
        case _:
            world = world.stop()
    world.settle()
    assert queues(world) == queues(world.crash()) == []
    balanced(world)


@pytest.mark.pure
def test_an_end_for_which_there_is_no_room_is_answered_when_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client = world.client()
    links = [client.subscriber(TOPIC, name, durable=True, credit=0) for name in ("empty", "audit")]
    client.detach(links[1], closed=False)
    publish(world, "x")
    links[1] = client.subscriber(None, "audit", credit=0)
    recorder = world.core.scribe.recorder

    def full(*_: object) -> int:
        raise StoreFull("a test")

    with monkeypatch.context() as patched:
        patched.setattr(recorder, "append", full)
        for link in links:
            client.detach(link)
        world.settle()
        assert [link.state for link in links] == [LinkState.DETACH_SENT] * 2
        assert len(queues(world.crash())) == 2
        assert client.subscriber(TOPIC, "other", durable=True).state is LinkState.DETACHED, "nothing can be begun"
    world.settle()
    assert [link.state for link in links] == [LinkState.DETACHED] * 2
    assert queues(world.crash()) == []
    balanced(world)


def test_closing_one_of_several_ends_nothing() -> None:
    world = World()
    client = world.client()
    one = client.subscriber(TOPIC, "audit", durable=True, shared=True)
    two = client.subscriber(TOPIC, "audit|2", durable=True, shared=True)
    client.detach(one)
    publish(world, "x")
    assert client.bodies(two) == ["x"]


def test_an_end_that_we_make_ourselves_ends_no_subscription() -> None:
    world = World()
    client = world.client()
    link = client.subscriber(TOPIC, "audit", durable=True)
    world.core._endings.end_link(client.server.sessions[0].links[0], _error())
    world.settle()
    assert link in client.detached
    assert queues(world) == [f"{TOPIC}::client/audit"]


def _error() -> object:
    from acquit.protocol.definitions import Error

    return Error(AmqpCondition.INTERNAL_ERROR, "a test")


@pytest.mark.parametrize(
    ("begin", "end", "shared", "by_all"),
    [
        ("audit", "audit", False, False),
        ("audit", "audit", True, False),
        ("audit|global", "audit|global", False, True),
    ],
    ids=["exclusive", "shared", "global"],
)
def test_unsubscribe(begin: str, end: str, shared: bool, by_all: bool) -> None:
    world = World()
    client = world.client()
    link = client.subscriber(TOPIC, begin, durable=True, shared=shared, shared_by_all=by_all, credit=0)
    client.detach(link, closed=False)
    publish(world, "x")
    lookup = client.subscriber(None, end, shared_by_all=by_all, credit=0)
    assert lookup.source is not None  # it is as it is, and not ended yet
    assert lookup.source.address == TOPIC
    assert lookup.source.expiry_policy == TerminusExpiryPolicy.NEVER
    assert len(queues(world)) == 1
    client.detach(lookup)
    world.settle()
    assert queues(world) == []
    balanced(world)
    again = world.crash()
    assert queues(again) == []
    balanced(again)


def test_a_lookup_that_is_not_closed_ends_nothing() -> None:
    world = World()
    client = world.client()
    client.detach(client.subscriber(TOPIC, "audit", durable=True), closed=False)
    client.detach(client.subscriber(None, "audit", credit=0), closed=False)
    client.subscriber(None, "audit", credit=0)
    client.lose()
    world.settle()
    assert queues(world) == [f"{TOPIC}::client/audit"]


def test_unsubscribing_from_what_is_not_there() -> None:
    world = World()
    client = world.client()
    link = client.subscriber(None, "nothing", credit=0)
    assert condition_of(client, link) == AmqpCondition.NOT_FOUND
    assert link.source is None


def test_another_container_cannot_unsubscribe() -> None:
    world = World()
    client = world.client("me")
    client.detach(client.subscriber(TOPIC, "audit", durable=True), closed=False)
    other = world.client("other")
    link = other.subscriber(None, "audit", credit=0)
    assert condition_of(other, link) == AmqpCondition.NOT_FOUND


def test_a_subscription_with_a_receiver_is_not_unsubscribed() -> None:
    world = World()
    one, two = world.client("me"), world.client("me")
    one.subscriber(TOPIC, "audit", durable=True)
    link = two.subscriber(None, "audit", credit=0)
    assert condition_of(two, link) == AmqpCondition.RESOURCE_LOCKED
    assert queues(world) == [f"{TOPIC}::me/audit"]


def test_a_crash_in_between_only_delays_the_rest_of_a_deletion() -> None:
    world = World()
    client = world.client()
    link = client.subscriber(TOPIC, "audit", durable=True, credit=0)
    publish(world, *range(12_000))
    client.detach(link)  # more than one turn purges, were it not for `carry`
    again = world.crash()  # nothing of it was synced
    assert live_of(again, f"{TOPIC}::client/audit") == 12_000
    client = again.client()
    lookup = client.subscriber(None, "audit", credit=0)
    lookup.detach()
    data = client.engine.data_to_send()
    again.core.handle(client.peer, client.server.receive_data(data, again.now_s), again.now_us)
    again.sync()
    last = again.crash()
    assert queues(last) == []
    last.settle()
    assert last.fold().messages == {}
    assert last.fold().table.queues.keys() == {last.core.topics.by_address[TOPIC].number}
    balanced(last)


def test_a_subscription_with_auto_delete_stays_when_nobody_uses_it() -> None:
    world = World(BrokerOptions(address=(AddressRule("#", {"auto_delete": True}),)))
    client = world.client()
    client.detach(client.subscriber(TOPIC, "audit", durable=True), closed=False)
    world.settle()
    assert queues(world) == [f"{TOPIC}::client/audit"]
    assert TOPIC in world.core.topics.by_address


@pytest.mark.parametrize("earlier", [False, True], ids=["begun now", "begun by an earlier version"])
def test_a_subscription_that_a_qualified_name_began_stays_with_auto_delete_as_any_other(earlier: bool) -> None:
    world = World(BrokerOptions(address=(AddressRule("#", {"auto_delete": True}),)))
    client = world.client()
    publisher = client.publisher(TOPIC)
    link = attach(client, address=f"{TOPIC}::audit", qualified=True)
    world.settle()
    if earlier:
        recorder = world.core.scribe.recorder
        entry = recorder.table.queues[world.core.queues.by_name[f"{TOPIC}::audit"].number]
        recorder.append(replace(entry, flags=entry.flags | QueueFlag.AUTO_CREATED))
    client.detach(link)
    world.settle()
    client.post(publisher, durable("while nobody reads"))
    world.settle()
    world = world.crash()
    client = world.client()
    link = attach(client, address=f"{TOPIC}::audit", qualified=True)
    world.settle()
    assert client.bodies(link) == ["while nobody reads"]
    link.session.settle_all(client.held(link), Accepted())
    client.lose()
    world.settle()
    assert queues(world) == queues(world.crash()) == [f"{TOPIC}::audit"]


def test_durability_alone_makes_it_durable() -> None:
    """Not every client says expiry-policy never beside terminus durability."""
    world = World()
    client = world.client()
    link = client.begun.attach_receiver(
        "audit", source=Source(TOPIC, TerminusDurability.CONFIGURATION, capabilities=("topic",))
    )
    world.carry()
    client.lose()
    world.settle()
    assert link is not None
    assert queues(world) == [f"{TOPIC}::client/audit"]


# -- said when it is so -----------------------------------------------------------------------------------------------


def attach(client: Client, name: str = "audit", *, address: str = TOPIC, qualified: bool = False) -> ReceivingLink:
    """Attach a durable subscriber, and carry what can be carried without the disk."""
    source = (
        Source(address, capabilities=("topic",))
        if qualified
        else Source(address, TerminusDurability.UNSETTLED_STATE, TerminusExpiryPolicy.NEVER, capabilities=("topic",))
    )
    session = client.begun
    assert isinstance(session, Session)
    link = session.attach_receiver(name, source=source, target=Target())
    link.grant(10)
    client.world.carry()
    return link


@pytest.mark.parametrize("qualified", [False, True], ids=["by name", "qualified"])
def test_a_durable_subscription_is_answered_when_it_is_on_the_disk(qualified: bool) -> None:
    world = World()
    client = world.client()
    address = f"{TOPIC}::audit" if qualified else TOPIC
    link = attach(client, address=address, qualified=qualified)
    assert link.state is LinkState.ATTACH_SENT
    lost = world.crash()
    assert queues(lost) == []  # nobody was told otherwise
    world.settle()
    assert link.state is LinkState.ATTACHED
    assert len(queues(world.crash())) == 1
    publish(world, "x")
    assert client.bodies(link) == ["x"]  # the credit that came ahead of the answer counts


def test_the_second_time_there_is_nothing_to_wait_for() -> None:
    world = World()
    client = world.client()
    client.detach(client.subscriber(TOPIC, "audit", durable=True), closed=False)
    assert attach(client).state is LinkState.ATTACHED


@pytest.mark.parametrize("end", ["detach", "end", "close connection", "lose"])
def test_who_goes_before_the_answer_has_subscribed_all_the_same(end: str) -> None:
    world = World()
    client = world.client()
    link = attach(client)
    match end:
        case "lose":
            client.lose()
        case "detach":
            client.detach(link, closed=False)
        case "end":
            client.begun.end()
        case _:
            client.close()
    world.settle()
    assert queues(world) == [f"{TOPIC}::client/audit"]
    assert world.core.queues.by_name[f"{TOPIC}::client/audit"].consumers == []
    assert attach(world.client()).state is LinkState.ATTACHED


@pytest.mark.parametrize("glued", [False, True])
def test_closing_the_subscriber_before_the_answer_ends_the_subscription(glued: bool) -> None:
    world = World()
    client = world.client()
    if glued:
        with world.in_one_read():
            attach(client).detach(closed=True)
    else:
        client.detach(attach(client))
    world.settle()
    assert queues(world) == []
    publish(world, "x")
    assert queues(world.crash()) == []
    assert attach(world.client()).state is LinkState.ATTACH_SENT, "it begins anew"
    balanced(world)


@pytest.mark.parametrize("qualified", [False, True], ids=["by name", "qualified"])
def test_closing_one_of_several_before_the_answer_ends_nothing(qualified: bool) -> None:
    world = World()
    source = Source(
        f"{TOPIC}::audit" if qualified else TOPIC,
        TerminusDurability.NONE if qualified else TerminusDurability.UNSETTLED_STATE,
        TerminusExpiryPolicy.LINK_DETACH if qualified else TerminusExpiryPolicy.NEVER,
        capabilities=("topic",) if qualified else ("topic", "shared"),
    )
    client = world.client()
    one, two = (client.begun.attach_receiver(name, source=source, target=Target()) for name in ("audit", "audit|2"))
    world.carry()
    client.detach(one)
    world.settle()
    assert two.state is LinkState.ATTACHED
    assert len(queues(world)) == 1
    client.detach(two)
    world.settle()
    assert len(queues(world)) == qualified, "what others have named is not for one of them to end"


def test_a_subscription_that_a_link_waits_for_is_not_unsubscribed() -> None:
    world = World()
    client = world.client()
    waiting = attach(client)
    lookup = client.subscriber(None, "audit|2", credit=0)
    assert condition_of(client, lookup) == AmqpCondition.RESOURCE_LOCKED
    world.settle()
    assert waiting.state is LinkState.ATTACHED


def test_a_link_is_taken_over_before_it_is_answered() -> None:
    world = World()
    lost, back = world.client("me"), world.client("me")
    old, new = attach(lost), attach(back)
    world.settle()
    assert condition_of(lost, old) == LinkCondition.STOLEN
    assert new.state is LinkState.ATTACHED
    publish(world, "x")
    assert back.bodies(new) == ["x"]
    assert len(queues(world)) == 1


def test_of_two_that_wait_for_an_exclusive_subscription_one_gets_it() -> None:
    world = World()
    client = world.client()
    first, second = attach(client, "audit"), attach(client, "audit|2")
    world.settle()
    assert first.state is LinkState.ATTACHED
    assert condition_of(client, second) == AmqpCondition.RESOURCE_LOCKED
    assert len(client.peer.links) == 1  # nothing is left of the other


def test_another_selector_while_the_first_waits() -> None:
    world = World()
    one, two = world.client("me"), world.client("me")
    attach(one)
    link = two.subscriber(TOPIC, "audit", durable=True, filters=selector("n = 1"))
    world.settle()
    assert link.state is LinkState.ATTACHED
    assert len(queues(world)) == 1
    balanced(world)


def test_a_subscription_that_is_ended_while_a_link_waits_for_it() -> None:
    world = World()
    one, two = world.client("me"), world.client("me")
    waiting = attach(one, "audit|2")
    attach(two, "audit", address="sport")  # another topic, and nobody receives yet
    world.settle()
    assert condition_of(one, waiting) == AmqpCondition.RESOURCE_DELETED
    assert queues(world) == ["sport::me/audit"]


def test_a_temporary_topic_has_no_durable_subscriptions() -> None:
    world = World()
    client = world.client()
    maker = client.sender(None, target=Target(None, dynamic=True, capabilities=("temporary-topic",)))
    assert isinstance(maker.target, Target)
    link = client.subscriber(maker.target.address, "audit", durable=True)
    assert condition_of(client, link) == AmqpCondition.NOT_ALLOWED


# -- what peers may say -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "n" * 501, "bell\a", "|2"])
def test_names_that_can_be_no_subscriptions(name: str) -> None:
    world = World()
    client = world.client()
    link = client.subscriber(TOPIC, name, durable=True)
    assert condition_of(client, link) == AmqpCondition.INVALID_FIELD
    assert queues(world) == []


def test_a_container_with_a_name_that_can_be_no_part_of_a_queues() -> None:
    world = World()
    client = world.client("c" * 501)
    assert condition_of(client, client.subscriber(TOPIC, "audit", durable=True)) == AmqpCondition.INVALID_FIELD
    assert client.subscriber(TOPIC, "audit|global", durable=True, shared_by_all=True) not in client.detached


def test_the_name_of_a_link_is_no_matter_where_its_subscription_goes_with_it() -> None:
    world = World()
    client = world.client("c" * 9_000)
    link = client.subscriber(TOPIC, "line\nbreak " + "n" * 9_000)
    publish(world, "x")
    assert client.bodies(link) == ["x"]
    (name,) = queues(world)
    assert len(name) < 1_100
    assert name.isprintable()


def test_what_the_journal_cannot_say_is_no_subscription() -> None:
    too_long = {"key": Described(ULong(0x468C00000004), "a = '" + "x" * 70_000 + "'")}
    with pytest.raises(ValueError, match="65535"):
        Subscription("audit", None, filters=AppliedFilters(echo=too_long))


@pytest.mark.parametrize("address", ["$SYS.#", "news." * 64 + "*", "n" * 1_025 + ".*", "bell\a.*"])
def test_patterns_that_are_none(address: str) -> None:
    world = World()
    client = world.client()
    link = client.subscriber(address)
    assert condition_of(client, link) in (AmqpCondition.INVALID_FIELD, AmqpCondition.NOT_FOUND)
    assert queues(world) == []


def role(**permissions: tuple[str, ...]) -> World:
    """A broker where those who come in anonymously may do this much."""
    return World(BrokerOptions(security=Security(roles={"anonymous": Role(**permissions)})))


def test_a_pattern_needs_the_right_to_all_it_matches() -> None:
    world = role(consume=("news.*", "sport.#"), create=("#",))
    client = world.client()
    for address, allowed in [
        ("news.eu", True),
        ("news.*", True),
        ("news.#", False),
        ("sport.#", True),
        ("sport.*.cup", True),
        ("#", False),
        ("*.eu", False),
    ]:
        link = client.subscriber(address, address)
        assert (condition_of(client, link) is None) == allowed, address
        if not allowed:
            assert condition_of(client, link) == AmqpCondition.UNAUTHORIZED_ACCESS


def test_a_subscription_is_not_ended_by_somebody_who_may_not_receive_from_it() -> None:
    world = role(consume=("sport",), create=("#",))
    client = world.client()
    everything = World()  # who made it had the right
    maker = everything.client()
    maker.detach(maker.subscriber(TOPIC, "audit|global", durable=True, shared_by_all=True), closed=False)
    everything.settle()
    world = World(world.options, disk=everything.disk)
    client = world.client()
    for link in (
        client.subscriber("sport", "audit|global", durable=True, shared_by_all=True),
        client.subscriber(None, "audit|global", shared_by_all=True, credit=0),
        client.subscriber(TOPIC, "audit|global", durable=True, shared_by_all=True),
        client.receiver(f"{TOPIC}::audit", "by its name"),
    ):
        assert condition_of(client, link) == AmqpCondition.UNAUTHORIZED_ACCESS
    assert queues(world) == [f"{TOPIC}::audit"]


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        (kind, way)
        for kind in ("volatile", "durable", "left")
        for way in ("another topic", "another kind", "sport::audit", "sport.*::audit", "unsubscribe")
        if kind != "volatile" or way == "another topic"  # nothing else finds a volatile one
    ],
)
def test_who_may_not_receive_from_it_learns_nothing_of_it(kind: str, way: str) -> None:
    """But that the name is taken, which cannot be kept from who asks for it."""
    security = Security(
        users={name: User(roles=(name,)) for name in ("ada", "eve")},
        roles={
            "ada": Role(consume=("#",), create=("#",)),
            "eve": Role(consume=("sport", "sport.*"), create=("#",)),
        },
    )
    world = World(BrokerOptions(security=security))
    world.core.permissions = build_permissions(security)
    ada, eve = world.client("one", user="ada"), world.client("two", user="eve")
    durable = kind != "volatile"
    hers = ada.subscriber("secret.news", "audit", durable=durable, shared_by_all=True)
    if kind == "left":
        ada.detach(hers, closed=False)
    world.settle()
    if way == "unsubscribe":
        link = eve.subscriber(None, "audit", shared_by_all=True, credit=0)
    elif way == "another topic":
        link = eve.subscriber("sport", "audit", durable=durable, shared_by_all=True)
    else:
        kinds = ("topic", "global") if way == "another kind" else ("topic",)
        address = "sport" if way == "another kind" else way
        asked = Source(address, TerminusDurability.CONFIGURATION, capabilities=kinds)
        found = eve.begun.attach_receiver("audit", source=asked, target=Target())
        assert isinstance(found, ReceivingLink)
        link = found
        world.settle()
    told = eve.detached[link].error
    assert told is not None
    assert str(told.condition) == AmqpCondition.UNAUTHORIZED_ACCESS
    assert told.description == (
        "'eve' may not consume from the subscription 'audit': no role gives the permission at its address"
    )
    assert condition_of(ada, hers) is None
