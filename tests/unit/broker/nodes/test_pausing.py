"""Queues and topics that are paused, and resumed."""

from __future__ import annotations

import pytest

from acquit.broker.options import AddressRule, BrokerOptions
from acquit.broker.refusal import Refused
from acquit.ledger.records import Namespace
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Rejected
from acquit.protocol.message import Message
from tests.support.broker_world import TINY, World, durable, live_of, posted


def pause(world: World, how: str, name: str = "q") -> None:
    said: list[object] = []
    world.core.administration.pause(name, how, "ada").when_finished(said.append)
    world.settle()
    assert said == [how]


def paused(world: World, name: str = "q") -> str:
    queue = world.core.administration.figures.node(name)
    assert queue is not None
    return queue.paused


# -- consumers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["consumers", "both"])
def test_nothing_is_handed_out_until_it_is_resumed(how: str) -> None:
    world, client = posted("q", durable(1), durable(2), Message(3))
    pause(world, how)
    link = client.receiver("q", credit=5)
    world.settle()
    assert client.held(link) == []
    assert (link.credit, live_of(world, "q")) == (5, 3)
    pause(world, "none")
    assert sorted(map(str, client.bodies(link))) == ["1", "2", "3"]


def test_consumers_with_selectors_wait_as_well() -> None:
    world, client = posted("q", *[durable(n, application_properties={"n": n}) for n in range(4)])
    pause(world, "consumers")
    chosen = client.receiver("q", "chosen", selector="n = 3", credit=5)
    rest = client.receiver("q", "rest", credit=5)
    world.settle()
    assert client.held(chosen) == client.held(rest) == []
    pause(world, "none")
    assert sorted(client.bodies(chosen) + client.bodies(rest)) == [0, 1, 2, 3]  # type: ignore[type-var]


def test_what_is_acquired_can_be_settled_and_given_back() -> None:
    world, client = posted("q", durable(1), durable(2))
    link = client.receiver("q", credit=2)
    world.settle()
    pause(world, "consumers")
    first, second = client.held(link)
    link.session.settle_all([first], ACCEPTED)
    link.session.settle_all([second], RELEASED)
    link.grant(5)
    world.settle()
    assert live_of(world, "q") == 1
    assert len(client.received[link]) == 2
    pause(world, "none")
    assert len(client.received[link]) == 3


def test_browsers_go_on() -> None:
    world, client = posted("q", durable(1))
    pause(world, "both")
    link = client.receiver("q", browse=True, credit=5)
    world.settle()
    assert client.bodies(link) == [1]


def test_the_readers_of_a_non_destructive_queue_are_its_consumers() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"non_destructive": True}),)))
    client = world.client()
    client.post_all(client.sender("q"), durable(1), durable(2))
    pause(world, "consumers")
    link = client.receiver("q", credit=5)
    world.settle()
    assert client.bodies(link) == []
    pause(world, "none")
    assert client.bodies(link) == [1, 2]
    pause(world, "both")
    asks = client.receiver("q", "asks")
    asks.grant(5)
    asks.drain_credit()
    world.settle()
    assert (asks.credit, client.bodies(asks)) == (0, [])


def test_who_asks_for_what_is_there_is_told_nothing() -> None:
    world, client = posted("q", durable(1))
    pause(world, "consumers")
    link = client.receiver("q", credit=0)
    world.settle()
    link.grant(5)
    link.drain_credit()
    world.settle()
    assert (link.credit, client.held(link)) == (0, [])


# -- producers --------------------------------------------------------------------------------------------------------


def test_credit_is_taken_back_and_granted_again_at_once() -> None:
    world = World()
    client = world.client()
    link = client.sender("q")
    world.settle()
    credit = link.credit
    assert credit > 0
    pause(world, "producers")
    assert link.credit == 0
    late = client.sender("q", "late")
    world.settle()
    assert late.credit == 0
    pause(world, "none")
    assert (link.credit, late.credit > 0) == (credit, True)


@pytest.mark.parametrize("message", [durable(1), Message(1), durable(1, priority=7, ttl_ms=60_000)])
def test_what_was_on_its_way_is_refused(message: Message) -> None:
    world = World()
    client = world.client()
    link = client.sender("q")
    world.settle()
    sent = client.post(link, message)
    world.core.administration.pause("q", "producers", None)
    world.settle()
    for delivery in sent:
        outcome = client.outcome(delivery)
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert str(outcome.error.condition) == "amqp:resource-limit-exceeded"
        assert "paused for producers" in str(outcome.error.description)
    assert live_of(world, "q") == 0


def test_what_the_broker_puts_there_enters() -> None:
    options = BrokerOptions(address=(AddressRule("DLQ", {"create": True}),))
    world, client = posted("q", durable(1), durable(2), options=options)
    world.core.administration.create("DLQ", None, topic=False)
    pause(world, "both", "DLQ")
    link = client.receiver("q", credit=1)
    world.settle()
    link.session.settle_all(client.held(link), Rejected())
    link.detach()
    world.settle()
    world.core.administration.move("q", "DLQ", None, messages_max=None, selector=None)
    world.settle()
    assert (live_of(world, "q"), live_of(world, "DLQ")) == (0, 2)


def test_a_topic_is_paused_for_producers() -> None:
    world = World()
    client = world.client()
    receiver = client.subscriber("t", "s", durable=True, credit=5)
    link = client.publisher("t")
    world.settle()
    pause(world, "producers", "t")
    assert (paused(world, "t"), link.credit) == ("producers", 0)
    world = world.crash()
    assert paused(world, "t") == "producers"
    client = world.client()
    link = client.publisher("t")
    receiver = client.subscriber("t", "s", durable=True, credit=5)
    world.settle()
    assert link.credit == 0
    pause(world, "none", "t")
    client.post_all(link, durable(2))
    world.settle()
    assert client.bodies(receiver) == [2]


@pytest.mark.parametrize("how", ["consumers", "both"])
def test_what_a_topic_cannot_be_paused_for(how: str) -> None:
    world = World()
    client = world.client()
    client.subscriber("t", "s", durable=True, credit=5)
    world.settle()
    with pytest.raises(Refused, match="is a topic"):
        world.core.administration.pause("t", how, None)
    (name,) = world.core.queues.by_name
    with pytest.raises(Refused, match="is the queue of a subscription"):
        world.core.administration.pause(name, "producers", None)
    pause(world, "consumers", name)
    assert paused(world, name) == "consumers"


# -- in the journal ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["producers", "consumers", "both"])
def test_it_outlives_a_restart_and_says_who(how: str) -> None:
    world, _ = posted("q", durable(1))
    pause(world, how)
    key = (Namespace.PAUSE, world.core.queues.by_name["q"].number.to_bytes(4, "little"))
    assert world.fold().table.state[key].value[1:] == b"ada"
    world = world.crash()
    assert paused(world) == how
    client = world.client()
    receiver, sender = client.receiver("q", credit=5), client.sender("q")
    world.settle()
    assert bool(client.held(receiver)) == (how == "producers")
    assert bool(sender.credit) == (how == "consumers")
    pause(world, "none")
    assert len(client.held(receiver)) == 1
    assert key not in world.fold().table.state
    assert paused(world.crash()) == "none"


def test_it_is_carried_on_when_its_segment_leaves() -> None:
    world, client = posted("q", durable(1), journal=TINY)
    pause(world, "consumers")
    link, sender = client.receiver("other", credit=1_000), client.sender("other", "posts")
    for _ in range(30):
        client.post_all(sender, durable(bytes(2_000)))
        link.session.settle_all(client.held(link), ACCEPTED)
        world.settle()
        world.chores()
    assert world.opened.journal.left_through > 0
    assert paused(world.crash()) == "consumers"


def test_it_goes_with_its_queue() -> None:
    world, client = posted("q", durable(1))
    pause(world, "both")
    world.core.administration.delete("q", None)
    world.settle()
    assert not [key for key in world.fold().table.state if key[0] == Namespace.PAUSE]
    client.sender("q", "again")
    world.settle()
    assert paused(world) == "none"


@pytest.mark.parametrize("end", ["its last link ends", "killed", "killed twice"])
def test_what_is_paused_is_kept_though_auto_delete_would_delete_it_until_it_is_resumed(end: str) -> None:
    world = World(BrokerOptions(address=(AddressRule("#", {"auto_delete": True}),)))
    client = world.client()
    client.sender("q")
    client.publisher("t")
    pause(world, "both")
    pause(world, "producers", "t")
    if end == "its last link ends":
        client.lose()
        world.settle()
    else:
        world = world.crash(int(end == "killed twice"))
    assert (paused(world), paused(world, "t")) == ("both", "producers")
    client = world.client()
    links = [client.sender("q"), client.publisher("t")]
    world.settle()
    assert [link.credit for link in links] == [0, 0]
    client.close()
    world.settle()
    pause(world, "none")
    pause(world, "none", "t")
    core = world.core
    assert (core.queues.by_name, core.topics.by_address) == ({}, {})
    assert not [key for key in world.fold().table.state if key[0] == Namespace.PAUSE]
    world.check_journal()
