"""What transactions hold that is to be posted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from acquit.broker.message import OVERHEAD_BYTES
from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions, TransactionLimits
from acquit.broker.transact.transaction import HeldTogether
from acquit.ledger.events import EventKind, fingerprint, unpack_event
from acquit.ledger.fold import Fold
from acquit.ledger.records import Actor, RecordKind, decode_events
from acquit.protocol.definitions import Accepted, Rejected, Target
from acquit.protocol.link import SendingLink
from acquit.protocol.message import Message
from acquit.store.interface import Position
from acquit.store.journal import SegmentedJournal
from acquit.store.recovery import open_store
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.broker_world import DATA, SMALL, World, after_kill, durable, live_of, runs_in
from tests.support.raw_journal import Gathered
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


def test_what_was_idle_for_too_long_holds_nothing() -> None:
    world = World(BrokerOptions(transactions=TransactionLimits(idle_timeout_ms=1_000)))
    controller = Controller(world.client())
    txn = controller.declare()
    controller.post(controller.client.sender("q"), txn, Message(b"1"), Message(b"2"))
    (transaction,) = world.core.transactions
    assert (transaction.posted, len(transaction.postings)) == (2, 2)
    world.advance(3_000)
    assert (transaction.posted, transaction.postings, transaction.bytes) == (0, [], 0)


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


def test_a_volatile_posting_needs_room_in_the_memory_of_its_queue() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"memory_bytes_max": 64 * 1024}),)))
    controller = Controller(world.client())
    sender = controller.client.sender("q")
    controller.client.post_all(sender, Message(bytes(60_000)))
    txn = controller.declare()
    sent = controller.post(sender, txn, durable(bytes(10_000)), Message(bytes(10_000)), durable(bytes(10_000)))
    kinds = [type(controller.provisional(one)) for one in sent]
    assert kinds == [Accepted, Rejected, Accepted]
    assert controller.commit(txn) is None
    assert live_of(world, "q") == 3


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize("kind", [Message, durable])
def test_what_arrives_together_leaves_the_memory_as_it_may_be(kind: type[Message], within: bool) -> None:
    world = World(BrokerOptions(limits=BrokerLimits(memory_bytes_max=1 << 20)))
    client = world.client()
    client.begun.next_delivery_id = 1_000  # wide, so that they are predicted
    controller, sender = Controller(client), client.sender("q")
    txn = controller.declare()
    messages = [kind(bytes(30_000), message_id=f"{number:>2}") for number in range(40)]
    controller.post(sender, txn, messages[0])
    assert sender.credit >= len(messages)
    sent = controller.post(sender, txn, *messages) if within else client.post(sender, *messages)
    world.settle()
    assert world.core.memory.left >= 0
    answers = [controller.provisional(one) if within else client.outcome(one) for one in sent]
    assert {type(answer) for answer in answers} == {Accepted, Rejected}


def test_what_a_transaction_may_hold_counts_over_all_that_arrives() -> None:
    world = World(BrokerOptions(transactions=TransactionLimits(bytes_max=10_000)))
    controller = Controller(world.client())
    sender = controller.client.sender("q")
    txn = controller.declare()
    sent = [*controller.post(sender, txn, durable(bytes(6_000))), *controller.post(sender, txn, durable(bytes(6_000)))]
    assert [type(controller.provisional(one)) for one in sent] == [Accepted, Rejected]


def held_together(
    *counts: int, kind: Callable[[bytes], Message] = Message, world: World | None = None
) -> tuple[World, Controller, bytes, SendingLink]:
    """A transaction with postings of which the payloads are held, behind one from which the broker learned what they
    are like."""
    world = world or World()
    client = world.client()
    client.begun.next_delivery_id = 1_000  # wide, so that they are predicted
    controller = Controller(client)
    sender, txn = client.sender("q"), controller.declare()
    controller.post(sender, controller.declare(), kind(b"m"))
    for count in counts:
        controller.post(sender, txn, *[kind(b"m")] * count)
    return world, controller, txn, sender


def test_postings_that_are_alike_are_held_and_enter_as_one() -> None:
    world, controller, txn, _ = held_together(5, 1, 7)
    transaction = world.core.transactions.find(controller.client.peer, txn)
    (held,) = transaction.postings
    assert isinstance(held, HeldTogether)
    assert (transaction.posted, len(held.payloads), live_of(world, "q")) == (13, 13, 0)
    assert controller.commit(txn) is None
    (run,) = runs_in(world.core.queues.by_name["q"].backlog)
    assert run.count == live_of(world, "q") == 13


def test_durable_ones_are_held_and_enter_as_they_came() -> None:
    world, controller, txn, _ = held_together(5, 1, 7, kind=durable)
    controller.client.receiver("q", credit=0)
    transaction = world.core.transactions.find(controller.client.peer, txn)
    held = transaction.postings
    assert [len(one.payloads) for one in held if isinstance(one, HeldTogether)] == [5, 1, 7]
    assert (transaction.posted, live_of(world, "q")) == (13, 0)
    world.check()
    controller.discharge(txn)
    queue = world.core.queues.by_name["q"]
    assert (queue.pending, queue.available) == (13, 0)
    world.settle()
    assert (queue.pending, queue.available) == (0, 13)
    assert [run.count for run in runs_in(queue.backlog)] == [5, 1, 7]
    world.check()
    world.check_journal()


@pytest.mark.parametrize("look", [False, True])
def test_the_bodies_of_durable_ones_wait_in_the_journal_where_nobody_waits_for_them(look: bool) -> None:
    world, controller, txn, _ = held_together(5, kind=durable)
    assert controller.commit(txn) is None
    queue = world.core.queues.by_name["q"]
    assert (queue.memory_bytes, runs_in(queue.backlog)) == (0, [])
    if look:
        assert [message.body for message in queue.backlog.next_messages()] == [None] * 5
    world.check()
    receiver = controller.client.receiver("q", credit=10)
    world.settle()
    assert controller.client.bodies(receiver) == [b"m"] * 5


def test_durable_ones_are_held_together_where_volatile_ones_have_no_room() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"memory_bytes_max": 64 * 1024}),)))
    controller = Controller(world.client())
    controller.client.post_all(controller.client.sender("q"), Message(bytes(60_000)))
    kind = partial(durable, application_properties={"a": "x" * 5_000})
    _, controller, txn, _ = held_together(1, 1, kind=kind, world=world)
    held = world.core.transactions.find(controller.client.peer, txn).postings
    assert [isinstance(one, HeldTogether) for one in held] == [True, True]


def test_durable_ones_for_which_the_disk_has_no_room_are_looked_at_one_by_one() -> None:
    disk = FaultyDisk()
    kind = partial(durable, application_properties={"a": "x" * 5_000})
    world, controller, txn, sender = held_together(3, kind=kind, world=World(disk=disk))
    disk.capacity_bytes = disk.used_bytes + 256 * 1024
    other, filler = controller.client.sender("other", "to-other"), durable(bytes(8_000))
    while not world.opened.journal.full:
        controller.client.post(other, filler)
        world.settle()
    sent = controller.post(sender, txn, kind(b"late"), kind(b"late"))
    assert [type(controller.provisional(one)) for one in sent] == [Rejected] * 2
    assert controller.commit(txn) is None
    assert live_of(world, "q") == 3
    world.check()
    world.check_journal()


def test_an_actor_is_declared_before_the_room_is_looked_at() -> None:
    """Its names may take more than all that is posted."""
    world = World()
    client = world.client("c" * 1_000)
    client.begun.next_delivery_id = 1_000  # wide, so that they are predicted
    sender, controller = client.sender("q", "l" * 1_000), Controller(client)
    txn, journal = controller.declare(), world.opened.journal
    assert isinstance(journal, SegmentedJournal)
    limit, journal._limit = journal._limit, journal._next
    controller.post(sender, txn, durable(b"1"))
    journal._limit = Position(journal._next + 2_200)  # room for two, not for the names as well
    sent = controller.post(sender, txn, durable(b"2"), durable(b"3"))
    journal._limit = limit
    assert [type(controller.provisional(one)) for one in sent] == [Rejected] * 2
    assert controller.commit(txn) is None
    assert live_of(world, "q") == 0
    world.check()


def test_durable_ones_know_what_the_checkpoint_asks_of_each() -> None:
    kind = partial(durable, priority=9)
    world, *_ = held_together(3, 20, kind=kind)
    postings = world.core.transactions.postings
    posted_us, number = world.core.scribe.time_us, max(transaction.number for transaction in world.core.transactions)
    world.advance(1_000)
    world.settle()
    together = [sequence for sequence, held in postings.durable.items() if isinstance(held, HeldTogether)]
    assert len(together) == 23
    for sequence in together:
        live = postings.live(sequence)
        assert live is not None
        assert (live.priority, live.posted_us, live.transaction) == (9, posted_us, number)
        record = world.opened.journal.read(postings.position(sequence))
        assert unpack_event(record.event).sequence == sequence
        assert live.fingerprint == fingerprint(record.payload)


def test_durable_ones_of_several_sizes_enter_as_one_run() -> None:
    world, controller, txn, sender = held_together(1, kind=durable)
    controller.client.receiver("q", credit=0)
    controller.post(sender, txn, durable(b"m"), durable(b"m" * 90), durable(b"m"))
    assert controller.commit(txn) is None
    *_, run = runs_in(world.core.queues.by_name["q"].backlog)
    assert (run.count, run.size_max - len(run.rests[0])) == (3, run.shape.rest_at + 89)


def test_the_journal_tells_of_each_of_those_that_are_together() -> None:
    """Who posted it and who took it, and in which transaction."""
    world, controller, txn, _ = held_together(2, 20, kind=durable)
    client = controller.client
    receiver = client.receiver("q", credit=30)
    assert controller.commit(txn) is None
    txn = controller.declare()
    controller.retire(txn, *client.held(receiver))
    transaction = world.core.transactions.find(client.peer, txn)
    assert ([run.messages.count for run in transaction.runs], len(transaction.retirements)) == ([20], 2)
    assert controller.commit(txn) is None
    gathered = Gathered()
    open_store(DATA, SMALL, gathered, Fold().digest, replayed=lambda report: None, disk=after_kill(world.disk))
    actors = {
        one.link: one.number for one in [Actor.decode(one) for one in gathered.records if one.kind == RecordKind.ACTOR]
    }
    poster, taker = actors["sender"], actors[receiver.name]
    commits = [decode_events(one) for one in gathered.records if one.kind == RecordKind.COMMIT]
    said = [Counter((one.kind, one.actor, one.transaction, one.attempt) for one in events) for events in commits]
    posting, retiring = (events[0].transaction for events in commits)
    assert said == [
        {(EventKind.POSTED, poster, posting, 0): 22},
        {(EventKind.ACCEPTED, taker, retiring, 0): 22},
    ]
    assert 0 < posting < retiring


@pytest.mark.parametrize("posts", [True, False])
def test_what_waits_for_the_disk_with_their_commit_is_not_seen_before(posts: bool) -> None:
    world, controller, txn, sender = held_together(5)
    if posts:
        controller.post(sender, txn, durable(b"d"))
    else:
        controller.client.post_all(controller.client.sender("other", "to-other"), durable(b"d"))
        receiver = controller.client.receiver("other", credit=1)
        world.settle()
        controller.retire(txn, *controller.client.held(receiver))
    controller.discharge(txn)
    queue = world.core.queues.by_name["q"]
    assert (queue.pending, queue.available) == (5 + posts, 0)
    world.settle()
    assert (queue.pending, queue.available) == (0, 5 + posts)


def test_what_waits_with_a_repetition_of_what_is_not_on_the_disk_is_not_seen_before() -> None:
    world, controller, txn, sender = held_together(5)
    same = durable(b"d", application_properties={"_AMQ_DUPL_ID": "1"})
    controller.client.post(sender, same)
    controller.post(sender, txn, same)
    controller.discharge(txn)
    queue = world.core.queues.by_name["q"]
    assert queue.available == 0
    world.settle()
    assert queue.available == 6


def test_what_is_held_singly_keeps_its_place_among_them() -> None:
    world, controller, txn, sender = held_together(2)
    controller.post(sender, txn, Message(b"1"), Message(b"2", durable=True), Message(b"3"))
    assert controller.commit(txn) is None
    receiver = controller.client.receiver("q", credit=10)
    world.settle()
    assert controller.client.bodies(receiver) == [b"m", b"m", b"1", b"2", b"3"]


def test_who_browses_sees_what_was_held_together() -> None:
    world, controller, txn, _ = held_together(5)
    browser = controller.client.receiver("q", "browser", browse=True, credit=10)
    assert controller.commit(txn) is None
    assert controller.client.bodies(browser) == [b"m"] * 5
    assert live_of(world, "q") == 5


def test_who_wants_nothing_of_its_own_is_not_given_what_was_held_together() -> None:
    world, controller, txn, _ = held_together(5)
    receiver = controller.client.receiver("q", no_local=True, credit=10)
    assert controller.commit(txn) is None
    assert not controller.client.held(receiver)
    assert live_of(world, "q") == 5


def test_messages_of_a_group_that_are_committed_know_it() -> None:
    world = World()
    controller = Controller(world.client())
    txn = controller.declare()
    controller.post(controller.client.sender("q"), txn, durable(b"1", group_id="g"), durable(b"2", group_id="g"))
    assert controller.commit(txn) is None
    messages = list(world.core.queues.by_name["q"].backlog.next_messages())
    assert [message.extra is not None and message.extra.group for message in messages] == ["g", "g"]
