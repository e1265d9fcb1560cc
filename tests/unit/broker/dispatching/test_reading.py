"""Non-destructive queues: everybody reads all of it, nothing leaves but by its own time."""

from __future__ import annotations

import pytest

from acquit.broker.options import AddressRule, BrokerOptions
from acquit.ledger.events import EventKind
from acquit.ledger.history import history
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Accepted, Modified, Rejected, TransactionCondition
from acquit.protocol.message import Message
from tests.support.broker_world import DATA, World, durable, live_of
from tests.support.transacting import Controller


def world_of(**policy: object) -> World:
    return World(BrokerOptions(address=(AddressRule("q", {"non_destructive": True, **policy}),)))


def numbered(count: int) -> list[Message]:
    return [durable(b"%d" % number, application_properties={"n": number}) for number in range(count)]


def test_each_receiver_reads_everything_in_order() -> None:
    world = world_of()
    client = world.client()
    sender = client.sender("q")
    early = client.receiver("q", "early", credit=100)
    client.post_all(sender, *numbered(10))
    late = client.receiver("q", "late", credit=5)
    world.settle()
    assert client.bodies(early) == [b"%d" % n for n in range(10)]
    assert client.bodies(late) == [b"%d" % n for n in range(5)]
    assert late.remote_attach is not None and late.remote_attach.source is not None
    assert late.remote_attach.source.distribution_mode == "copy"
    client.post_all(sender, durable(b"10"))
    late.grant(100)
    world.settle()
    assert client.bodies(late) == [b"%d" % n for n in range(11)]
    assert live_of(world, "q") == 11
    world.check_journal()


OUTCOMES = [
    pytest.param(ACCEPTED, 1, id="accepted"),
    pytest.param(Rejected(), 2, id="rejected"),
    pytest.param(RELEASED, 3, id="released"),
    pytest.param(Modified(), 4, id="modified"),
    pytest.param(Modified(delivery_failed=True, undeliverable_here=True), 5, id="failed"),
]


@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
@pytest.mark.parametrize(("outcome", "recorded"), OUTCOMES)
def test_an_outcome_moves_on_and_is_recorded(outcome: object, recorded: int, second: bool) -> None:
    world = world_of()
    client = world.client()
    client.post_all(client.sender("q"), *numbered(2))
    reader = client.receiver("q", "reader", credit=1, second=second)
    first = client.received[reader][0]
    first.settle(outcome)  # type: ignore[arg-type]
    world.carry()
    assert first.settled is not second, "in mode second we answer once it is synced"
    reader.grant(10)
    world.settle()
    assert first.settled
    assert client.bodies(reader) == [b"0", b"1"], "nothing comes again"
    assert live_of(world, "q") == 2
    assert live_of(world, "DLQ") == 0
    queue = world.core.queues.by_name["q"]
    assert queue.counts[EventKind.READ] == 1
    assert queue.acquired == 0
    (life,) = history(DATA, sequence=1, disk=world.disk).lives
    (step,) = [step for step in life.steps if step.kind == EventKind.READ]
    assert step.origin == recorded
    assert "client" in step.actor_name and "reader" in step.actor_name
    world.check_journal()


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "unsettled"])
def test_an_outcome_in_a_transaction_is_recorded_with_its_commit(settled: bool) -> None:
    world = world_of()
    client = world.client()
    client.post_all(client.sender("q"), *numbered(2))
    reader = client.receiver("q", "reader", credit=2, second=not settled)
    world.settle()
    kept, dropped = client.received[reader]
    control = Controller(client)
    committed, rolled_back = control.declare(), control.declare()
    control.retire(committed, kept, settled=settled)
    control.retire(rolled_back, dropped, settled=settled)
    world.settle()
    queue = world.core.queues.by_name["q"]
    assert queue.counts[EventKind.READ] == 0
    control.roll_back(rolled_back)
    sent = control.discharge(committed)
    assert client.outcome(sent) is None, "it is not on the disk yet"
    assert kept.settled is settled
    world.settle()
    assert client.outcome(sent) == Accepted()
    assert kept.settled
    assert queue.counts[EventKind.READ] == 1
    assert history(DATA, sequence=1, disk=world.disk).lives[0].steps[-1].kind == EventKind.READ
    assert live_of(world, "q") == 2
    world.check_journal()


def test_an_outcome_in_a_transaction_that_is_not_there_ends_the_link() -> None:
    world = world_of()
    client = world.client()
    client.post_all(client.sender("q"), *numbered(1))
    reader = client.receiver("q", "reader", credit=1)
    world.settle()
    Controller(client).retire(bytes(16), *client.received[reader])
    world.settle()
    error = client.detached[reader].error
    assert error is not None and error.condition == TransactionCondition.UNKNOWN_ID
    assert world.core.queues.by_name["q"].counts[EventKind.READ] == 0


def test_a_link_that_ends_returns_nothing_and_begins_anew() -> None:
    world = world_of()
    client = world.client()
    client.post_all(client.sender("q"), *numbered(3))
    reader = client.receiver("q", "reader", credit=2)
    reader.detach()
    world.settle()
    again = client.receiver("q", "reader", credit=10)
    world.settle()
    assert client.bodies(again) == [b"0", b"1", b"2"]
    queue = world.core.queues.by_name["q"]
    assert all(message.attempt == 0 for message in queue.backlog.next_messages())


def test_selectors_and_drain() -> None:
    world = world_of()
    client = world.client()
    client.post_all(client.sender("q"), *numbered(100))
    reader = client.receiver("q", selector="n > 96")
    reader.grant(10)
    reader.drain_credit()
    world.settle()
    assert client.bodies(reader) == [b"97", b"98", b"99"]
    assert reader.credit == 0


def test_time_and_purge_still_end_messages() -> None:
    world = world_of(expiry_address="")
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, durable(b"short", ttl_ms=1_000), durable(b"long"))
    reader = client.receiver("q", "reader", credit=1)
    world.advance(2_000)
    world.settle()
    assert live_of(world, "q") == 1
    client.received[reader][0].settle(ACCEPTED)
    world.settle()
    assert world.core.queues.by_name["q"].counts[EventKind.READ] == 0, "what is gone is not read"
    world.purge("q", None)
    world.settle()
    assert live_of(world, "q") == 0
    world.check_journal()


def test_it_is_all_there_after_a_crash() -> None:
    world = world_of(memory_bytes_max=65_536)
    client = world.client()
    client.post_all(client.sender("q"), *(durable(b"%d" % n + bytes(1_000)) for n in range(200)))
    reader = client.receiver("q", credit=200)
    world.settle()
    for delivery in client.received[reader]:
        delivery.settle(ACCEPTED)
    world.settle()
    after = world.crash()
    client = after.client()
    reader = client.receiver("q", credit=200)
    after.settle()
    assert len(client.received[reader]) == 200
    assert after.core.queues.by_name["q"].memory_bytes <= 65_536 + 10_000
    after.check_journal()


def test_readers_are_bounded() -> None:
    world = world_of(browsers_max=2)
    client = world.client()
    links = [client.receiver("q", name) for name in ("one", "two", "three")]
    links.append(client.receiver("q", "four", browse=True))
    world.settle()
    assert [link in client.detached for link in links] == [False, False, True, True]
    error = client.detached[links[2]].error
    assert error is not None and error.condition == "amqp:resource-limit-exceeded"
    same = world.client("client")
    again = same.receiver("q", "two")
    world.settle()
    assert again not in same.detached, "who comes back under its name is not kept out by itself"
