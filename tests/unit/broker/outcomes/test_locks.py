"""Locks: who holds a message for too long loses it, and hears so."""

from __future__ import annotations

from typing import cast

import pytest

from acquit.broker.dispatching.consumers import Consumer
from acquit.broker.nodes.locks import _SWEEP_MIN, Locks
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.ledger.records import Cause
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Accepted, Modified, Received, Released
from acquit.protocol.message import Message
from tests.support.broker_world import World, durable, live_of
from tests.support.transacting import Controller

FAILED = Modified(delivery_failed=True)
LOCK_MS = 30_000


def rules(**settings: object) -> BrokerOptions:
    return BrokerOptions(address=(AddressRule("#", {"lock_duration_ms": LOCK_MS, **settings}),))


def test_a_lock_that_runs_out_is_told_and_the_message_goes_to_another() -> None:
    world = World(rules())
    client = world.client()
    slow = client.receiver("q", "slow", credit=1)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    (delivery,) = client.received[slow]
    other = client.receiver("q", "other", credit=1)
    world.advance(LOCK_MS - 1)
    world.settle()
    assert delivery not in client.answers
    world.advance(1)
    world.settle()
    assert client.answers[delivery] == (FAILED, False), "told, and not settled before its receiver has confirmed"
    (again,) = client.received[other]
    message = Message.decode(again.payload)
    assert (message.body, message.delivery_count, message.first_acquirer) == (b"x", 1, False)
    world.check_journal()
    again.settle(ACCEPTED)
    delivery.settle(ACCEPTED)  # stale
    world.settle()
    queue = world.core.snapshot().queue("q")
    assert queue is not None
    assert (queue.accepted, queue.depth, queue.acquired) == (1, 0, 0)
    assert not slow.unsettled()
    world.check_journal()


def test_a_consumer_is_told_how_long_as_it_attaches() -> None:
    world = World(BrokerOptions(address=(AddressRule("jobs", {"lock_duration_ms": LOCK_MS}),)))
    client = world.client()
    told = [client.receiver(address, address).remote_attach.properties for address in ("jobs", "q")]  # type: ignore[union-attr]
    assert [(properties or {}).get("acquit:lock-duration-ms") for properties in told] == [LOCK_MS, None]


def test_who_waits_for_an_answer_hears_what_became_of_a_late_outcome() -> None:
    world = World(rules())
    client = world.client()
    slow = client.receiver("q", "slow", credit=2, second=True)
    client.post(client.sender("q"), durable(b"late"), durable(b"in time"))
    world.settle()
    late, in_time = client.received[slow]
    in_time.update(Received(0, 0))
    world.carry()
    world.advance(LOCK_MS // 2)
    in_time.update(Received(0, 0))
    world.carry()
    world.advance(LOCK_MS // 2)
    world.settle()
    assert client.answers[late] == (FAILED, False)
    for delivery in (late, in_time):
        delivery.settle(ACCEPTED)
    world.settle()
    assert client.answers[late] == (FAILED, True)
    assert client.answers[in_time] == (ACCEPTED, True)
    queue = world.core.snapshot().queue("q")
    assert queue is not None
    assert queue.accepted == 1
    world.check_journal()


@pytest.mark.parametrize("late", [ACCEPTED, RELEASED, FAILED], ids=["accepted", "released", "failed"])
def test_a_late_outcome_is_answered_when_the_journal_knows_of_the_lock(late: Accepted | Released | Modified) -> None:
    """Who said that it failed takes the answer for its own outcome, and believes that it is on the disk."""
    world = World(rules())
    client = world.client()
    slow = client.receiver("q", credit=1, second=True)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    (delivery,) = client.received[slow]
    world.advance(LOCK_MS)
    assert client.answers[delivery] == (FAILED, False), "that it is lost, it hears at once"
    delivery.settle(late)
    world.carry()
    assert client.answers[delivery] == (FAILED, False)
    world.settle()
    assert client.answers[delivery] == (FAILED, True)


def test_a_late_outcome_that_crosses_the_news_is_stale() -> None:
    world = World(rules())
    client = world.client()
    slow = client.receiver("q", "slow", credit=1, second=True)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    (delivery,) = client.received[slow]
    delivery.settle(ACCEPTED)  # on its way
    world.now_us += LOCK_MS * 1_000
    world.core.turn(world.now_us)
    world.settle()
    assert client.answers[delivery] == (FAILED, True)
    assert live_of(world, "q") == 1
    world.check_journal()


def test_a_renewed_lock_lasts_as_long_again() -> None:
    world = World(rules())
    client = world.client()
    worker = client.receiver("q", credit=1)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    (delivery,) = client.received[worker]
    for _ in range(5):
        world.advance(LOCK_MS - 1)
        delivery.update(Received(0, 0))
        world.settle()
    assert delivery not in client.answers
    world.advance(LOCK_MS)
    assert client.answers[delivery] == (FAILED, False)
    delivery.update(Received(0, 0))
    world.settle()
    assert live_of(world, "q") == 1
    queue = world.core.snapshot().queue("q")
    assert queue is not None
    assert queue.acquired == 0, "what is lost is not renewed"


def test_attempts_that_end_so_are_limited_and_delayed_and_say_why() -> None:
    world = World(rules(max_delivery_attempts=2, redelivery_delay_ms=500))
    client = world.client()
    worker = client.receiver("q", credit=10)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    world.advance(LOCK_MS)
    world.settle()
    assert len(client.received[worker]) == 1, "delayed"
    world = world.crash()
    client = world.client()
    worker = client.receiver("q", credit=10)
    world.advance(500)
    world.settle()
    assert len(client.received[worker]) == 1
    world.advance(LOCK_MS)
    world.settle()
    assert (live_of(world, "q"), live_of(world, "DLQ")) == (0, 1)
    letters = client.receiver("DLQ", "letters", credit=1)
    world.settle()
    attempts = Message.decode(client.received[letters][0].payload).annotations["x-opt-acquit-attempts"]
    assert isinstance(attempts, list)
    assert [(attempt["outcome"], attempt["cause"]) for attempt in attempts] == [("modified", "lock-expired")] * 2
    world.check_journal()


def test_a_body_that_has_to_be_read_for_the_dead_letter() -> None:
    world = World(rules(max_delivery_attempts=1, memory_bytes_max=65_536))
    client = world.client()
    client.receiver("q", credit=50)
    client.post_all(client.sender("q"), *(durable(bytes(4_000)) for _ in range(50)))
    world.advance(LOCK_MS)
    world.settle()
    assert (live_of(world, "q"), live_of(world, "DLQ")) == (0, 50)
    world.check_journal()


@pytest.mark.parametrize("by_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_is_set_ends_no_lock(by_ms: int) -> None:
    world = World(rules())
    client = world.client()
    worker = client.receiver("q", credit=1)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    world.advance(LOCK_MS // 2)
    world.now_us += by_ms * 1_000
    world.core.clock_set(by_ms * 1_000)
    world.advance(LOCK_MS // 2 - 1)
    assert client.received[worker][0] not in client.answers
    world.advance(1)
    assert client.received[worker][0] in client.answers


def test_there_is_one_time_to_wake_up_and_none_without_locks() -> None:
    world = World(rules())
    client = world.client()
    worker = client.receiver("q", credit=10)
    assert world.core.next_due_ms is None
    client.post(client.sender("q"), durable(b"1"), durable(b"2"))
    world.settle()
    assert world.core.next_due_ms == world.now_us // 1_000 + LOCK_MS
    for delivery in client.received[worker]:
        delivery.settle(ACCEPTED)
    world.settle()
    world.advance(LOCK_MS)
    assert world.core.next_due_ms is None
    assert world.core.queues.by_name["q"].locks is None


def test_locks_of_what_is_settled_do_not_pile_up() -> None:
    world = World(rules())
    client = world.client()
    worker = client.receiver("q", credit=1_000)
    sender = client.sender("q")
    for _ in range(40):
        client.post_all(sender, *(Message(b"x") for _ in range(100)))
        for delivery in client.received[worker]:
            delivery.settle(ACCEPTED)
        client.received[worker].clear()
        worker.grant(100)
        world.settle()
    locks = world.core.queues.by_name["q"].locks
    assert locks is not None
    assert len(locks) <= _SWEEP_MIN + 200


def test_many_locks_that_run_out_together_take_turns() -> None:
    from acquit.broker.outcomes.locks import TURN_MAX

    world = World(rules(redelivery_delay_ms=1))
    client = world.client()
    client.receiver("q", credit=TURN_MAX + 500)
    client.post_all(client.sender("q"), *(Message(b"x") for _ in range(TURN_MAX + 500)))
    world.now_us += LOCK_MS * 1_000
    assert world.core.turn(world.now_us)
    queue = world.core.queues.by_name["q"]
    assert queue.acquired == 500
    world.carry()
    assert queue.acquired == 0


def test_a_shorter_duration_holds_from_the_next_message_on() -> None:
    world = World(rules())
    client = world.client()
    worker = client.receiver("q", credit=1)
    client.post(client.sender("q"), durable(b"1"), durable(b"2"))
    world.settle()
    queue = world.core.queues.by_name["q"]
    queue.policy = world.core.queues.by_name["q"].policy.__class__(lock_duration_ms=1_000)
    worker.grant(1)
    world.settle()
    one, two = client.received[worker]
    world.advance(1_000)
    assert two in client.answers
    assert one not in client.answers


def test_a_link_that_ends_keeps_nothing_for_its_lock() -> None:
    world = World(rules())
    client = world.client()
    worker = client.receiver("q", credit=1)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    worker.detach()
    world.settle()
    world.advance(LOCK_MS)
    (message,) = world.core.life.live.values()
    assert (message.attempt, message.state.name) == (0, "AVAILABLE")


def test_a_release_in_time_ends_the_lock() -> None:
    world = World(rules())
    client = world.client()
    worker = client.receiver("q", credit=2)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    world.advance(LOCK_MS - 1)
    client.received[worker][0].settle(RELEASED)
    world.settle()
    assert len(client.received[worker]) == 2
    world.advance(LOCK_MS - 1)
    first, second = client.received[worker]
    assert second not in client.answers, "the second delivery has a lock of its own"
    world.advance(1)
    assert (first in client.answers, second in client.answers) == (False, True)


def test_the_heap_alone() -> None:
    world = World(rules())
    client = world.client()
    client.receiver("q", credit=3)
    client.post(client.sender("q"), *(durable(b"x") for _ in range(3)))
    world.settle()
    queue = world.core.queues.by_name["q"]
    (consumer,) = queue.consumers
    deliveries = cast(Consumer, consumer).link.unsettled()
    locks = Locks(queue)
    locks.acquired(deliveries[:2], 0)
    locks.acquired(deliveries[2:], 10)
    assert locks.take_due(LOCK_MS - 1, 10) == []
    assert locks.take_due(LOCK_MS, 1) == deliveries[:1]
    assert locks.take_due(LOCK_MS + 9, 10) == deliveries[1:2]
    locks.renew(deliveries[2:], 20)
    assert locks.take_due(LOCK_MS + 19, 10) == []
    assert locks.take_due(LOCK_MS + 20, 10) == deliveries[2:]
    assert (len(locks), locks.next_ms) == (0, None)


def test_the_cause_is_in_the_ledger() -> None:
    world = World(rules())
    client = world.client()
    client.receiver("q", credit=1)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    world.advance(LOCK_MS)
    world.settle()
    (kept,) = world.fold().messages.values()
    assert kept.notes is not None
    assert [note.cause for note in kept.notes.attempts] == [Cause.LOCK_EXPIRED]


@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
def test_a_lock_waits_for_the_transaction_that_has_the_outcome(fail: bool) -> None:
    world = World(rules())
    client = world.client()
    controller = Controller(client)
    worker = client.receiver("q", credit=1)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    (delivery,) = client.received[worker]
    transaction = controller.declare()
    controller.retire(transaction, delivery, settled=False)
    world.advance(LOCK_MS + LOCK_MS // 2)
    world.settle()
    assert delivery not in client.answers
    if not fail:
        assert controller.commit(transaction) is None
        assert live_of(world, "q") == 0
    else:
        controller.roll_back(transaction)
        assert live_of(world, "q") == 1
        queue = world.core.snapshot().queue("q")
        assert queue is not None and queue.acquired == 1, "the controller has it again"
        world.advance(LOCK_MS)
        world.settle()
        queue = world.core.snapshot().queue("q")
        assert queue is not None and queue.acquired == 0, "and a lock that runs out"
    world.check_journal()
