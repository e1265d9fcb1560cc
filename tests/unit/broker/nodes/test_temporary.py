"""Dynamic nodes: made for a link, with an address that is generated, and gone when their lifetime policy says so."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions
from acquit.ledger.balance import balance
from acquit.ledger.events import EventKind
from acquit.protocol.definitions import (
    Accepted,
    AmqpCondition,
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Rejected,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from acquit.protocol.link import Link, ReceivingLink, SendingLink
from acquit.protocol.message import Message
from acquit.protocol.types import Array, Byte, Described, Symbol
from tests.support.broker_world import Client, World, durable, live_of

POLICIES = [DeleteOnClose(), DeleteOnNoLinks(), DeleteOnNoMessages(), DeleteOnNoLinksOrMessages()]


def make(client: Client, policy: object = None, word: str = "temporary-queue", name: str = "maker") -> SendingLink:
    """A sender to a node made for it, as JMS makes temporary destinations."""
    properties = None if policy is None else {"lifetime-policy": policy}
    target = Target(
        None,
        TerminusDurability.NONE,
        TerminusExpiryPolicy.LINK_DETACH,
        dynamic=True,
        dynamic_node_properties=properties,
        capabilities=(word,),
    )
    return client.sender(None, name, target=target)


def make_receiver(client: Client, word: str = "temporary-queue", *, credit: int = 9) -> ReceivingLink:
    link = client.begun.attach_receiver(
        "receiver of its own", source=Source(None, dynamic=True, capabilities=(word,)), target=Target("here")
    )
    link.grant(credit)
    client.world.carry()
    assert isinstance(link, ReceivingLink)
    return link


def address_of(link: Link) -> str:
    terminus = link.target if isinstance(link, SendingLink) else link.source
    assert isinstance(terminus, Source | Target)
    assert terminus.address is not None
    return terminus.address


def is_there(world: World, address: str) -> bool:
    return address in world.core.queues.by_name or address in world.core.topics.by_address


def condition_of(client: Client, link: Link) -> str | None:
    ended = client.detached.get(link)
    return None if ended is None or ended.error is None else str(ended.error.condition)


def balanced(world: World) -> None:
    world.settle()
    world.check_journal()
    assert balance(world.fold()).balanced


# -- made -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_dynamic_target_gets_a_node_of_its_own(kind: str) -> None:
    world = World()
    client = world.client()
    one, two = make(client, DeleteOnClose(), f"temporary-{kind}"), make(client, None, f"temporary-{kind}", "second")
    for link in (one, two):
        said = link.target
        assert isinstance(said, Target)
        assert said.dynamic
        assert re.fullmatch(rf"temporary\.{kind}\.[0-9a-f]{{32}}", said.address or "")
        assert said.dynamic_node_properties is not None
        assert said.dynamic_node_properties["lifetime-policy"] == DeleteOnClose()
        modes = said.dynamic_node_properties["supported-dist-modes"]
        assert modes == (Array(Symbol, ("move", "copy")) if kind == "queue" else Symbol("copy")), "as multiple=true"
        assert type(modes) is (Array if kind == "queue" else Symbol)
        assert said.expiry_policy == TerminusExpiryPolicy.LINK_DETACH
        assert said.capabilities == (kind, f"temporary-{kind}")
    assert address_of(one) != address_of(two)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_the_answer_says_which_policy_the_node_has(policy: object) -> None:
    world = World()
    said = make(world.client(), policy).target
    assert isinstance(said, Target)
    assert said.dynamic_node_properties is not None
    assert said.dynamic_node_properties["lifetime-policy"] == policy


def test_messages_to_it_come_to_whoever_knows_its_address() -> None:
    world = World()
    asker, answerer = world.client("asker"), world.client("answerer")
    replies = make_receiver(asker)
    source = replies.source
    assert source is not None
    assert source.dynamic
    assert source.capabilities == ("queue", "temporary-queue")
    answerer.post(answerer.sender(address_of(replies)), durable("by name"))
    answerer.post(
        answerer.sender(None, "anonymous"),
        Message("by message", to=address_of(replies), annotations={"x-opt-jms-dest": Byte(2)}),
    )
    world.settle()
    assert asker.bodies(replies) == ["by name", "by message"]
    assert Message.decode(asker.received[replies][0].payload).durable


def test_a_temporary_topic_goes_to_all_who_subscribe() -> None:
    world = World()
    client, other = world.client("one"), world.client("two")
    maker = make(client, DeleteOnClose(), "temporary-topic")
    links = [(one, one.subscriber(address_of(maker), "s")) for one in (client, other)]
    client.post(maker, Message("x"))
    other.post(other.sender(None), Message("y", to=address_of(maker), annotations={"x-opt-jms-dest": Byte(3)}))
    world.settle()
    assert [sorted(map(str, one.bodies(link))) for one, link in links] == [["x", "y"]] * 2


def test_a_dynamic_source_of_a_topic() -> None:
    world = World()
    client = world.client()
    link = make_receiver(client, "temporary-topic")
    assert link.source is not None
    assert link.source.capabilities == ("topic", "temporary-topic")
    client.post(client.sender(address_of(link)), Message("x"))
    world.settle()
    assert client.bodies(link) == ["x"]
    client.detach(link)
    world.settle()
    assert world.core.queues.by_name == {}


def test_an_address_and_dynamic_do_not_go_together() -> None:
    world = World()
    client = world.client()
    link = client.sender(None, target=Target("mine", dynamic=True))
    assert condition_of(client, link) == AmqpCondition.INVALID_FIELD


def test_a_lifetime_policy_that_is_not_known_is_refused() -> None:
    world = World()
    client = world.client()
    link = make(client, Described("acme:for-ever:list", []))
    assert condition_of(client, link) in (AmqpCondition.NOT_IMPLEMENTED, AmqpCondition.DECODE_ERROR)
    assert world.core.queues.by_name == {}


def test_temporary_nodes_count_as_queues_and_follow_policies() -> None:
    rules = (AddressRule("temporary.#", {"messages_max": 1}),)
    world = World(BrokerOptions(address=rules, limits=BrokerLimits(queues_max=1)))
    client = world.client()
    link = make(client)
    assert link.credit == 1
    assert condition_of(client, make(client, name="one more")) == AmqpCondition.RESOURCE_LIMIT_EXCEEDED
    closed = World(BrokerOptions(address=(AddressRule("temporary.#", {"create": False}),)))
    client = closed.client()
    assert condition_of(client, make(client)) == AmqpCondition.NOT_FOUND


# -- gone -------------------------------------------------------------------------------------------------------------


def a_message(client: Client, address: str, link: SendingLink) -> None:
    client.post(client.sender(address, "another sender"), Message("x"))
    client.world.settle()


def the_message_goes(client: Client, address: str, link: SendingLink) -> None:
    receiver = client.receiver(address, "taker", credit=1)
    client.world.settle()
    client.received[receiver][0].settle(Accepted())
    client.world.carry()
    client.detach(receiver)


def the_maker_goes(client: Client, address: str, link: SendingLink) -> None:
    client.detach(link)


def a_link_comes(client: Client, address: str, link: SendingLink) -> None:
    client.receiver(address, "stays")


def the_link_goes(client: Client, address: str, link: SendingLink) -> None:
    for one in client.begun.links:
        if one.name == "stays":
            client.detach(one)


def other_senders_go(client: Client, address: str, link: SendingLink) -> None:
    for one in client.begun.links:
        if one.name == "another sender":
            client.detach(one)


Step = Callable[[Client, str, SendingLink], None]


@pytest.mark.parametrize(
    ("policy", "steps", "over"),
    [
        (DeleteOnClose(), [a_link_comes, a_message, the_maker_goes], 3),
        (DeleteOnNoLinks(), [a_message, other_senders_go, a_link_comes, the_maker_goes, the_link_goes], 5),
        (DeleteOnNoLinks(), [the_maker_goes], 1),
        (DeleteOnNoMessages(), [a_message, the_maker_goes, the_message_goes], 3),
        (DeleteOnNoMessages(), [a_link_comes, the_maker_goes], 2),
        (
            DeleteOnNoLinksOrMessages(),
            [a_message, other_senders_go, a_link_comes, the_maker_goes, the_link_goes, the_message_goes],
            6,
        ),
        (DeleteOnNoLinksOrMessages(), [a_link_comes, the_maker_goes, the_link_goes], 3),
    ],
    ids=lambda value: type(value).__name__ if value in POLICIES else "",
)
def test_a_node_lives_as_its_policy_says(policy: object, steps: list[Step], over: int) -> None:
    world = World()
    client = world.client()
    link = make(client, policy)
    address = address_of(link)
    for number, step in enumerate(steps, start=1):
        assert is_there(world, address), step.__name__
        step(client, address, link)
        world.settle()
        assert is_there(world, address) == (number < over), step.__name__
    balanced(world)
    assert world.fold().table.queues == {}


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_node_goes_with_the_connection_of_its_maker(kind: str) -> None:
    world = World()
    maker, other = world.client("maker"), world.client("other")
    address = address_of(make(maker, DeleteOnClose(), f"temporary-{kind}"))
    receiver, sender = other.receiver(address, credit=0), other.sender(address)
    other.post(sender, Message("left in it"))
    world.settle()
    maker.lose()
    world.settle()
    assert not is_there(world, address)
    assert world.core.queues.by_name == {}
    assert condition_of(other, receiver) == AmqpCondition.RESOURCE_DELETED
    assert condition_of(other, sender) == AmqpCondition.RESOURCE_DELETED
    balanced(world)
    assert world.fold().totals()[0].volatile[EventKind.PURGED] == 1  # recorded, not forgotten


def test_what_was_held_is_purged_as_well() -> None:
    world = World()
    maker, other = world.client("maker"), world.client("other")
    link = make(maker)
    receiver = other.receiver(address_of(link), credit=5)
    maker.post(link, durable(1), durable(2))
    world.settle()
    (queue,) = world.core.queues.by_name.values()
    assert queue.acquired == 2
    maker.detach(link)
    world.settle()
    assert queue.live == 0
    assert queue.counts[EventKind.PURGED] == 2
    assert condition_of(other, receiver) == AmqpCondition.RESOURCE_DELETED
    balanced(world)


def test_a_dead_letter_of_a_temporary_queue_outlives_it() -> None:
    world = World()
    client = world.client()
    link = make(client)
    receiver = client.receiver(address_of(link), credit=1)
    client.post(link, durable("x"))
    world.settle()
    client.received[receiver][0].settle(Rejected())
    world.settle()
    again = world.crash()
    assert live_of(again, "DLQ") == 1
    balanced(again)


@pytest.mark.parametrize("restart", ["crash", "stop"])
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_temporary_nodes_end_at_a_restart(restart: str, kind: str) -> None:
    world = World()
    client = world.client()
    link = make(client, DeleteOnNoMessages(), f"temporary-{kind}")
    client.post(link, durable("x"))
    world.settle()
    world.core.tick(world.now_us)
    world.settle()
    again = world.crash() if restart == "crash" else world.stop()
    again.settle()
    assert not is_there(again, address_of(link))
    assert again.fold().table.queues == {}
    lost = again.fold().totals()[0].volatile
    assert lost.get(EventKind.LOST_VOLATILE, 0) == (1 if kind == "queue" else 0)
    balanced(again)


def test_a_snapshot_shows_what_is_temporary() -> None:
    world = World()
    client = world.client()
    make(client)
    make(client, word="temporary-topic", name="topic")
    assert {row.kind for row in world.core.snapshot().queues} == {"temporary queue", "temporary topic"}
