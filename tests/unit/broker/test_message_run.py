"""Runs of messages in a broker, where the stories of tests/properties/test_runs.py do not look."""

from __future__ import annotations

from typing import Any

import pytest

from acquit.broker.dispatching.consumers import Consumer
from acquit.broker.memory import Memory
from acquit.broker.message_run import MessageGroup, MessageRun
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.broker.queue import NodeEvent
from acquit.broker.scribe import Scribe
from acquit.errors import StoreFull
from acquit.ledger.events import EventKind
from acquit.ledger.recorder import Recorder
from acquit.protocol.connection_base import Event
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.costs import ACCEPTED_COST
from acquit.protocol.definitions import Accepted, DeliveryState, TransactionalState
from acquit.protocol.extensions import SEQUENCE
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.message import Message
from acquit.store.interface import Position
from tests.support.broker_world import Client, World, durable, runs_in
from tests.support.transacting import Controller


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


@pytest.mark.parametrize(("count", "left"), [(1, 4), (5, 0), (99, 0)])
def test_a_run_counts_what_it_has_left(count: int, left: int) -> None:
    world = World()
    receiving(world, credit=5)
    run = the_consumer(world).timed
    assert isinstance(run, MessageRun) and run.count == 5
    front = run.split(count)
    assert (front.count, run.count) == (len(front.sequences), len(run.sequences)) == (5 - left, left)


# -- of durable messages -----------------------------------------------------------------------------------------------


LEARNT = 3
"""Messages from which the broker learns what those of a sender are like."""


def sending(world: World, address: str = "q") -> tuple[Client, SendingLink]:
    """A client whose durable messages come in runs from now on."""
    client = world.client("sending")
    client.begun.next_delivery_id = 1_000
    link = client.sender(address)
    for count in (1, 2):
        client.post(link, *(durable(f"taught{at}") for at in range(count)))
        world.settle()
    return client, link


def posted(world: World, count: int) -> tuple[Client, SendingLink, MessageRun]:
    """The same, and a run of so many that waits, with nothing before it."""
    client, link = sending(world)
    world.purge("q")
    world.settle()
    client.post(link, *(durable(f"m{at}") for at in range(count)))
    world.settle()
    (run,) = runs_in(world.core.queues.by_name["q"].backlog)
    assert run.recorded is not None
    assert run.count == count
    return client, link, run


def held(world: World, count: int) -> tuple[Client, ReceivingLink, MessageRun]:
    """The same, where a consumer has it."""
    client = world.client("receiving")
    link = client.receiver("q", credit=LEARNT)
    sender, posting = sending(world)
    link.session.settle_all(client.held(link), ACCEPTED)
    link.grant(count)
    world.settle()
    sender.post(posting, *(durable(f"m{at}") for at in range(count)))
    world.settle()
    (run,) = world.core.life._runs.values()
    assert run.holder is not None
    assert run.laid_out is None
    return client, link, run


def test_where_they_stand_is_told_of_a_run_that_stays_one() -> None:
    world = World()
    _, _, run = posted(world, 5)
    assert run.recorded is not None
    holdings, first, last = world.core.holdings, run.sequences[0], run.sequences[-1]
    found = list(holdings.positions([last, first - 1, first, last + 1, first + 2]))
    assert run.laid_out is None
    positions = run.recorded.positions
    assert [found[0], *found[2:]] == [positions[4], positions[0], 0, positions[2]]
    asked = (last, first - 1, first, last + 1, first + 2)
    assert found == [0 if (one := holdings.live(sequence)) is None else one.position for sequence in asked]


def test_where_they_stand_is_told_after_another_run_was_laid_out() -> None:
    """Who has left before it is looked for where that run was."""
    world = World()
    sender, link, run = posted(world, 5)
    sender.post(link, *(durable(f"n{at}") for at in range(4)))
    world.settle()
    holdings, sequences = world.core.holdings, [run.sequences[0] - 1, *sorted(world.core.holdings.sequences())]
    positions = list(holdings.positions(sequences))
    assert positions[0] == 0 and len(set(positions)) == 10
    run.each()
    assert list(holdings.positions(sequences)) == positions
    assert runs_in(world.core.queues.by_name["q"].backlog)


def test_one_is_found_by_its_sequence_while_the_run_waits() -> None:
    world = World()
    _, _, run = posted(world, 5)
    sequence = run.sequences[2]
    message = world.core.life.parking.look(sequence)
    assert message is not None
    assert message is run.each()[2]
    assert world.core.life.parking.look(run.sequences[-1] + 1) is None
    world.check()


def test_one_is_found_by_its_sequence_while_the_run_is_held() -> None:
    world = World()
    client, link, run = held(world, 5)
    message = world.core.life.parking.look(run.sequences[2])
    assert message is not None
    assert message.holder is run.holder
    link.session.settle_all(client.held(link)[:3], ACCEPTED)
    world.settle()
    assert world.core.life.parking.look(run.sequences[2]) is None
    assert world.core.life.parking.look(run.sequences[3]) is not None
    world.check_journal()


def on_its_way(world: World, client: Client, link: ReceivingLink) -> list[Event]:
    """Accept all that is held: the engine has this word, and the broker has not heard it yet."""
    link.session.settle_all(client.held(link), ACCEPTED)
    return client.server.receive_data(client.engine.data_to_send(), world.now_s)


@pytest.mark.parametrize("purged", [0, 1])
def test_what_is_said_of_a_run_while_somebody_looks_at_it_counts(purged: int) -> None:
    world = World()
    client, link, run = held(world, 5)
    events = on_its_way(world, client, link)
    assert len(world.core.life.live) == 5
    assert run.laid_out is not None
    for message in run.laid_out[:purged]:
        world.core.life.apply(message, NodeEvent.PURGE)
    world.core.handle(client.peer, events, world.now_us)
    world.settle()
    assert world.core.holdings.live_count == 0
    assert world.core.queues.by_name["q"].counts[EventKind.ACCEPTED] == LEARNT + 5 - purged
    world.check_journal()


def test_the_checkpoint_sees_and_moves_those_of_a_run() -> None:
    world = World()
    _, _, run = posted(world, 4)
    holdings = world.core.holdings
    assert holdings.live_count == 4
    assert set(holdings.sequences()) == set(run.sequences)
    assert run.recorded is not None
    there = Position(run.recorded.positions[1] + 1)
    holdings.moved(run.sequences[1], there)
    assert run.each()[1].position == there


@pytest.mark.parametrize("at", ["waiting", "held"])
def test_a_clean_stop_keeps_them(at: str) -> None:
    world = World()
    if at == "waiting":
        posted(world, 4)
    else:
        held(world, 4)
    after = world.stop()
    queue = after.core.queues.by_name["q"]
    assert queue.live == 4
    assert queue.counts[EventKind.LOST_VOLATILE] == 0


@pytest.mark.parametrize("at", ["pending", "waiting", "held"])
def test_a_crash_keeps_what_was_answered(at: str) -> None:
    world = World()
    if at == "held":
        held(world, 4)
    else:
        client, link, _ = posted(world, 4)
        if at == "pending":
            answers = client.post(link, *(durable("more") for _ in range(3)))
            world.carry()
            assert all(client.outcome(answer) is None for answer in answers)
            assert world.core.queues.by_name["q"].pending == 3
    after = world.crash()
    receiving = after.client("later")
    receiver = receiving.receiver("q", credit=9)
    after.settle()
    assert receiving.bodies(receiver) == [f"m{at}" for at in range(4)]
    headers = [Message.decode(delivery.payload).header for delivery in receiving.held(receiver)]
    assert {header.delivery_count for header in headers if header is not None} == {int(at == "held")}


def test_what_overtook_them_while_they_were_synced_stays_in_its_place() -> None:
    world = World()
    client, link, _ = posted(world, 1)
    world.purge("q")
    world.settle()
    volatile = client.sender("q", "volatile")
    client.post(link, *(durable(f"first{at}") for at in range(3)))
    world.carry()
    client.post(volatile, *[Message(f"second{at}", durable=False) for at in range(2)])
    world.settle()
    receiving = world.client("receiving")
    receiver = receiving.receiver("q", credit=9)
    world.settle()
    assert receiving.bodies(receiver) == ["first0", "first1", "first2", "second0", "second1"]


def test_a_browser_that_came_while_they_were_synced_sees_them() -> None:
    world = World()
    client, link, _ = posted(world, 1)
    client.post(link, *(durable(f"m{at}") for at in range(3)))
    world.carry()
    browsing = world.client("browsing")
    browser = browsing.receiver("q", credit=9, browse=True)
    world.settle()
    assert browsing.bodies(browser) == ["m0", "m0", "m1", "m2"]


def test_their_bodies_leave_memory_when_it_is_short() -> None:
    world = World()
    _, _, run = posted(world, 700)
    memory = world.core.life.memory
    memory._paging_from = 0
    memory.page_out(world.core.queues.by_name.values())
    assert run.laid_out is not None
    assert any(message.body is None for message in run.laid_out)
    world.check()


def test_of_a_queue_that_is_deep_they_are_single() -> None:
    world = World()
    client, link = sending(world)
    for _ in range(30):
        client.post(link, *(durable("m") for _ in range(50)))
        world.settle()
    queue = world.core.queues.by_name["q"]
    assert sum(run.count for run in runs_in(queue.backlog)) <= 1_100
    assert queue.backlog.count == 1_503


def test_in_a_transaction_they_are_accepted_one_by_one() -> None:
    world = World()
    client, link, _ = held(world, 4)
    controller = Controller(client)
    txn_id = controller.declare()
    link.session.settle_all(client.held(link), TransactionalState(txn_id, ACCEPTED))
    commit = controller.discharge(txn_id)
    assert client.outcome(commit) is None, "it is not on the disk"
    world.settle()
    assert isinstance(client.outcome(commit), Accepted)
    assert world.core.queues.by_name["q"].live == 0
    world.check_journal()


def test_a_lock_lays_them_out() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"lock_duration_ms": 500}),)))
    _, _, run = posted(world, 4)
    client = world.client("receiving")
    link = client.receiver("q", credit=4)
    world.settle()
    assert run.laid_out is not None
    assert len(client.held(link)) == 4


@pytest.mark.pure
def test_bodies_beyond_a_limit_stay_in_the_journal() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"messages_max": 5, "full_policy": "page"}),)))
    client, link = sending(world)
    client.post(link, *(durable(f"m{at}") for at in range(30)))
    world.settle()
    waiting = list(world.core.queues.by_name["q"].backlog.objects())
    assert len(waiting) == LEARNT + 30
    assert sum(message is not None and message.body is not None for message in waiting) <= 5


@pytest.mark.pure
@pytest.mark.parametrize("from_", ["posted", "handed out"])
def test_where_memory_is_short_they_are_single(monkeypatch: pytest.MonkeyPatch, from_: str) -> None:
    world = World()
    client, link, run = posted(world, 1)
    if from_ == "posted":
        monkeypatch.setattr(Memory, "crowded", lambda memory, queue: True)
    client.post(link, *(durable(f"m{at}") for at in range(5)))
    world.settle()
    assert len(runs_in(world.core.queues.by_name["q"].backlog)) == (2 if from_ == "handed out" else 1)
    monkeypatch.setattr(Memory, "crowded", lambda memory, queue: True)
    receiving = world.client("receiving")
    receiver = receiving.receiver("q", credit=9)
    world.settle()
    assert len(receiving.held(receiver)) == 6
    assert run.laid_out is not None if from_ == "posted" else not run.in_memory
    assert not any(run.in_memory for run in world.core.life._runs.values()), (
        "a consumer holds them, in the journal alone"
    )
    assert world.core.queues.by_name["q"].memory_bytes == 0
    receiving.lose()
    monkeypatch.undo()
    again = world.client("again")
    receiver = again.receiver("q", credit=9)
    world.settle()
    assert sorted(map(str, again.bodies(receiver))) == [*(f"m{at}" for at in (0, 0, 1, 2, 3, 4))]


@pytest.mark.pure
def test_they_are_handed_out_only_where_a_synced_mark_covers_all(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client, link, _ = held(world, 2)
    sender = world.clients[-1]
    posting = sender.sender("q", "another")
    for count in (1, 2):
        sender.post(posting, *[durable("taught")] * count)
        world.settle()
    link.grant(9)
    world.settle()
    covered = Scribe.mark_ahead
    asked: list[int] = []

    def refused(scribe: Scribe, queue: Any, sequence: int) -> bool:
        asked.append(sequence)
        return False

    monkeypatch.setattr(Scribe, "mark_ahead", refused)
    before = len(client.held(link))
    sender.post(posting, *(durable(f"more{at}") for at in range(4)))
    world.settle()
    assert len(client.held(link)) == before
    assert asked[:2] == [world.core.life.scribe.sequences.last] * 2, "as they are posted, and as they are on the disk"
    monkeypatch.setattr(Scribe, "mark_ahead", covered)
    link.grant(8)
    world.settle()
    assert len(client.held(link)) == before + 4


def test_what_it_costs_to_accept_them() -> None:
    """Each has its record."""
    world = World()
    _, _, run = held(world, 4)
    assert run.accepted_cost == 4 * ACCEPTED_COST


@pytest.mark.pure
def test_who_accepts_one_of_many_makes_some_single() -> None:
    """It will go on so: each time the others would be copied."""
    world = World()
    client, link, run = held(world, 40)
    client.held(link)[0].settle(ACCEPTED)
    world.settle()
    assert (len(world.core.life.objects), run.count, run.laid_out) == (15, 24, None)
    for delivery in client.held(link):
        delivery.settle(ACCEPTED)
        world.settle()
    assert world.core.holdings.live_count == 0
    world.check_journal()


@pytest.mark.pure
def test_no_more_is_handed_out_once_their_events_find_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client, link, _ = held(world, 4)
    transitions = Recorder.transitions

    def full(recorder: Recorder, events: list[bytes]) -> None:
        transitions(recorder, events)
        raise StoreFull("full")

    monkeypatch.setattr(Recorder, "transitions", full)
    link.session.settle_all(client.held(link), ACCEPTED)
    world.carry()
    assert world.core.scribe.exhausted


def test_those_that_consumers_choose_are_single() -> None:
    world = World()
    chosen = {
        colour: (client := world.client(colour), client.receiver("q", credit=99, selector=f"colour = '{colour}'"))
        for colour in ("red", "blue")
    }
    sender = world.client("sending")
    sender.begun.next_delivery_id = 1_000
    link = sender.sender("q")
    for count in (2, 2, 8, 8):
        for_whom = ["red", "blue"] * (count // 2)
        sender.post(link, *(durable("m", application_properties={"colour": colour}) for colour in for_whom))
        world.settle()
    for client, receiver in chosen.values():
        assert len(client.held(receiver)) == 10
        receiver.session.settle_all(client.held(receiver), ACCEPTED)
        world.settle()
    assert world.core.holdings.live_count == 0
    world.check_journal()
