"""Runs of durable messages in a broker, where the stories of tests/properties/test_runs.py do not look."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from acquit.broker.memory import Memory
from acquit.broker.message_run import MessageRun
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.broker.scribe import Scribe
from acquit.errors import StoreFull
from acquit.ledger.events import EventKind
from acquit.ledger.recorder import Recorder
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.costs import ACCEPTED_COST
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.message import Message
from acquit.store.interface import Position
from tests.support.broker_world import Client, World, durable, runs_in
from tests.support.transacting import Controller

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


def test_one_is_found_by_its_sequence_while_the_run_waits() -> None:
    world = World()
    _, _, run = posted(world, 5)
    sequence = run.sequences[2]
    message = world.core.life.look(sequence)
    assert message is not None
    assert message is run.each()[2]
    assert world.core.life.look(run.sequences[-1] + 1) is None
    world.check()


def test_one_is_found_by_its_sequence_while_the_run_is_held() -> None:
    world = World()
    client, link, run = held(world, 5)
    message = world.core.life.look(run.sequences[2])
    assert message is not None
    assert message.holder is run.holder
    link.session.settle_all(client.held(link)[:3], ACCEPTED)
    world.settle()
    assert world.core.life.look(run.sequences[2]) is None
    assert world.core.life.look(run.sequences[3]) is not None
    world.check_journal()


def test_what_is_said_of_a_run_while_somebody_looks_at_it_counts() -> None:
    """The engine has its word, and the broker has not heard it yet."""
    world = World()
    client, link, run = held(world, 5)
    link.session.settle_all(client.held(link), ACCEPTED)
    events = client.server.receive_data(client.engine.data_to_send(), world.now_s)
    assert len(world.core.life.live) == 5
    assert run.laid_out is not None
    world.core.handle(client.peer, events, world.now_us)
    world.settle()
    assert world.core.holdings.live_count == 0
    assert world.core.queues.by_name["q"].counts[EventKind.ACCEPTED] == LEARNT + 5
    world.check_journal()


def test_who_was_purged_meanwhile_is_not_accepted() -> None:
    world = World()
    client, link, run = held(world, 3)
    link.session.settle_all(client.held(link), ACCEPTED)
    events = client.server.receive_data(client.engine.data_to_send(), world.now_s)
    gone = world.core.life.live[run.sequences[0]]
    assert gone.holder is not None
    gone.holder.held -= 1  # type: ignore[attr-defined]
    gone.queue.acquired -= 1
    gone.holder = None
    world.core.handle(client.peer, events, world.now_us)
    assert world.core.queues.by_name["q"].counts[EventKind.ACCEPTED] == LEARNT + 2


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
    controller.retire(txn_id, *client.held(link))
    controller.commit(txn_id)
    world.settle()
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
    assert not world.core.life._runs
    assert run.laid_out is not None


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
    assert max(asked) == world.core.life.scribe.sequences.last
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
def test_who_accepts_one_of_many_makes_them_single() -> None:
    world = World()
    client, link, run = held(world, 9)
    client.held(link)[0].settle(ACCEPTED)
    world.settle()
    assert run.laid_out is not None
    assert world.core.holdings.live_count == 8
    world.check_journal()


@pytest.mark.pure
def test_no_more_is_handed_out_once_their_events_find_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client, link, _ = held(world, 4)
    transitions = Recorder.transitions

    def full(recorder: Recorder, events: Iterable[bytes]) -> None:
        transitions(recorder, events)
        raise StoreFull("full")

    monkeypatch.setattr(Recorder, "transitions", full)
    link.session.settle_all(client.held(link), ACCEPTED)
    world.carry()
    assert world.core.scribe.exhausted
