"""What transactions hold that is to be posted."""

from __future__ import annotations

import pytest

from acquit.broker.message import OVERHEAD_BYTES
from acquit.broker.options import BrokerLimits, BrokerOptions
from acquit.ledger.events import EventKind
from acquit.protocol.definitions import Accepted, Rejected, Target
from acquit.protocol.message import Message
from tests.support.broker_world import World, durable, live_of
from tests.support.transacting import Controller


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("posted", [Message, durable])
def test_each_is_counted_once_in_the_journal(posted: type[Message], commit: bool) -> None:
    world = World()
    controller = Controller(world.client())
    txn = controller.declare()
    controller.post(controller.client.sender("q"), txn, posted(b"1"), posted(b"2"))
    if commit:
        assert controller.commit(txn) is None
    else:
        controller.roll_back(txn)
    world.core.tick(world.now_us)
    world.settle()
    queue = world.core.queues.by_name["q"]
    totals = world.fold().totals()[queue.number]
    counts = totals.counts if posted is durable else totals.volatile
    assert counts[EventKind.HELD] == 2
    assert counts.get(EventKind.POSTED, 0) == live_of(world, "q") == (2 if commit else 0)
    assert counts.get(EventKind.ROLLED_BACK, 0) == (0 if commit else 2)


def test_memory_is_given_back_at_the_end() -> None:
    world = World()
    controller = Controller(world.client())
    sender = controller.client.sender("q")
    before = world.core.memory.bytes
    for _ in range(3):
        txn = controller.declare()
        controller.post(sender, txn, durable(bytes(10_000)), Message(bytes(10_000)))
        assert world.core.memory.bytes >= before + 20_000
        controller.roll_back(txn)
        assert world.core.memory.bytes == before
    postings = world.core.transactions.postings
    assert (postings.memory_bytes, postings.durable_bytes) == (0, 0)


def test_there_must_be_memory_for_the_record_of_a_posting_too() -> None:
    """At a topic, where no queue is there to be full."""
    world = World(BrokerOptions(limits=BrokerLimits(memory_bytes_max=1 << 20)))
    controller = Controller(world.client())
    sender = controller.client.sender("news", target=Target("news", capabilities=("topic",)))
    txn = controller.declare()
    filler = durable(bytes(world.core.memory.left // 2))
    (answer,) = controller.post(sender, txn, filler)
    assert controller.provisional(answer) == Accepted()
    head = len(durable(bytes(1_000)).encode()) - 1_000
    (answer,) = controller.post(sender, txn, durable(bytes(world.core.memory.left - OVERHEAD_BYTES - head + 1)))
    assert isinstance(controller.provisional(answer), Rejected)
    (answer,) = controller.post(sender, txn, durable(bytes(world.core.memory.left - OVERHEAD_BYTES - head)))
    assert controller.provisional(answer) == Accepted()
