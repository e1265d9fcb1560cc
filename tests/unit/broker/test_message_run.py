"""Runs of messages in a broker, where the stories of tests/properties/test_runs.py do not look."""

from __future__ import annotations

import pytest

from acquit.broker.dispatching.consumers import Consumer
from acquit.broker.message_run import MessageGroup, MessageRun
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.costs import ACCEPTED_COST
from acquit.protocol.definitions import DeliveryState
from acquit.protocol.extensions import SEQUENCE
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World, runs_in


def posted_as_runs(world: World, client: Client, link: SendingLink, count: int) -> None:
    """So many, behind those from which the broker learns what they are like."""
    for size in (1, 2, count):
        client.post(link, *[Message(b"m", durable=False)] * size)
        world.settle()


def the_consumer(world: World) -> Consumer:
    (consumer,) = world.core.queues.by_name["q"].consumers
    return consumer


def receiving(world: World, credit: int) -> tuple[Client, ReceivingLink]:
    client = world.client("receiving")
    link = client.receiver("q", credit=3)
    posted_as_runs(world, world.client("sending"), world.clients[-1].sender("q"), 6)
    link.session.settle_all(client.held(link), ACCEPTED)
    the_consumer(world).untimed = 0
    link.grant(credit)
    world.settle()
    return client, link


@pytest.mark.parametrize("state", [ACCEPTED, RELEASED])
@pytest.mark.parametrize("at_once", [4, 1])
def test_how_long_a_run_is_held_is_measured(state: DeliveryState, at_once: int) -> None:
    world = World()
    client, link = receiving(world, credit=4)
    consumer = the_consumer(world)
    assert isinstance(consumer.timed, MessageRun)
    before = sum(world.core.queues.by_name["q"].tally.held.counts)
    link.grant(0)
    while held := client.held(link):
        link.session.settle_all(held[:at_once], state)
        world.settle()
    assert consumer.timed is None
    assert sum(world.core.queues.by_name["q"].tally.held.counts) == before + 1
    assert consumer.held == 0


@pytest.mark.pure
def test_the_copies_of_a_run_share_the_rests_of_their_payloads() -> None:
    world = World()
    client = world.client()
    for name in ("one", "other"):
        client.subscriber("t", name, durable=True, credit=0)
    posted_as_runs(world, client, client.publisher("t"), 5)
    runs = [runs_in(queue.backlog) for queue in world.core.queues.by_name.values()]
    assert [[run.count for run in waiting] for waiting in runs] == [[1, 5], [1, 5]], "the first ones taught"
    first, second = (waiting[-1] for waiting in runs)
    assert first.rests is second.rests
    assert first.count == 5
    assert {*first.sequences}.isdisjoint(second.sequences)


@pytest.mark.parametrize("groups", [False, True])
def test_each_copy_of_a_run_is_itself_whatever_becomes_of_the_others(groups: bool) -> None:
    """One is handed out whole, one in parts, one to two consumers, in turns or by groups, and one waits."""
    world = World(BrokerOptions(address=(AddressRule("#", {"message_groups": groups}),)))
    client, other = world.client(), world.client("other")
    whole = client.subscriber("t", "whole")
    parts = client.subscriber("t", "parts", credit=8)
    waits = client.subscriber("t", "waits", credit=0)
    mine, others = (one.subscriber("t", "shared", shared_by_all=True) for one in (client, other))
    sender = client.publisher("t")
    sent = [Message(f"m{at:02}", durable=False, priority=6, group_id=f"g{at // 2 % 2}") for at in range(12)]
    for lot in (sent[:1], sent[1:3], sent[3:]):
        client.post(sender, *lot)
        world.settle()
    assert [run.count for queue in world.core.queues.by_name.values() for run in runs_in(queue.backlog)][-1] == 9
    for link in (parts, waits):
        link.grant(100)
        world.settle()
    got = [[Message.decode(one.payload) for one in client.received[link]] for link in (whole, parts, waits)]
    first, second = (
        [Message.decode(one.payload) for one in two] for two in (client.received[mine], other.received[others])
    )
    assert first and second
    assert not groups or {one.group_id for one in first}.isdisjoint(one.group_id for one in second)
    got.append(sorted(first + second, key=lambda message: str(message.body)))
    said = [(one.body, one.group_id, one.priority) for one in sent]
    assert [[(one.body, one.group_id, one.priority) for one in copies] for copies in got] == [said] * 4
    sequences = [[int(str(one.annotations[SEQUENCE])) for one in copies] for copies in got]
    assert sorted(map(tuple, sequences)) == [tuple(range(start, start + 48, 4)) for start in range(1, 5)]


def test_a_run_that_waits_is_seen_by_a_policy_of_last_values() -> None:
    world = World()
    client = world.client()
    link = client.sender("q")
    for size in (1, 2, 5):
        client.post(link, *[Message(b"m", durable=False, application_properties={"k": "v"})] * size)
        world.settle()
    queue = world.core.queues.by_name["q"]
    taught, run = runs_in(queue.backlog)
    assert (taught.count, run.count) == (1, 5)
    world.core.apply(BrokerOptions(address=(AddressRule("q", {"last_value": True, "last_value_key": "k"}),)))
    world.settle()
    assert queue.values is not None
    assert not runs_in(queue.backlog)
    assert not run.rests, "the messages have them: they are not kept twice"


def test_what_it_costs_to_accept_a_run_and_a_group() -> None:
    """Of a run nothing is done for each message; the messages of a group are taken away one by one."""
    world = World()
    receiving(world, credit=4)
    run = the_consumer(world).timed
    assert isinstance(run, MessageRun)
    assert run.accepted_cost == ACCEPTED_COST
    group = MessageGroup(the_consumer(world), run.each())
    assert group.accepted_cost == 4 * ACCEPTED_COST
    assert (group.split(3).accepted_cost, group.accepted_cost) == (3 * ACCEPTED_COST, ACCEPTED_COST)
