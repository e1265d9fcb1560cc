"""What is parked comes back as runs, or, where somebody looks at one of them, as single messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from acquit.broker import parking
from acquit.broker.dispatching.paging import Paging
from acquit.broker.message import DISPATCHED, OBJECT_BYTES, PARKED_BYTES
from acquit.broker.message_run import MessageRun
from acquit.broker.nodes.node import Queue
from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions
from acquit.broker.outcomes.settling import Settling
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.extensions import POSTED_AT, SEQUENCE
from acquit.protocol.message import Message
from acquit.protocol.rope import ROPE_MIN, Rope
from acquit.store.options import MIB
from tests.support.broker_world import Client, World, durable, live_of

DEPTH = 64
SIZES = parking.Sizes(8, 16, 8)
TOGETHER = [16] * 3
"""Runs that are handed out: the first block is laid out while it waits for the mark that it may be handed out."""
OPTIONS = BrokerOptions(
    address=(
        AddressRule("locked", {"lock_duration_ms": 60_000}),
        AddressRule("paged", {"full_policy": "page", "messages_max": 3}),
    )
)


def deep(messages: list[Message] | None = None, address: str = "q", options: BrokerOptions = OPTIONS) -> World:
    """A broker that has started again, in whose queue these are parked."""
    world = World(options, sizes=SIZES)
    fill(world, [durable(f"m{at:02}") for at in range(DEPTH)] if messages is None else messages, address)
    return world.stop()


def fill(world: World, messages: list[Message], address: str = "q") -> None:
    client = world.client()
    link = client.sender(address)
    for message in messages:
        client.post_all(link, message)
    client.close()
    world.settle()


def by_turns(count: int) -> World:
    """The same with so many messages by turns in the queues *a* and *b*."""
    world = World(OPTIONS, sizes=SIZES)
    client = world.client()
    links = [client.sender(address, f"to {address}") for address in "ab"]
    for at in range(DEPTH):
        client.post_all(links[at // count % 2], durable(f"m{at:02}"))
    client.close()
    return world.stop()


def named(world: World, address: str = "q") -> Queue:
    return world.core.queues.by_name[address]


def handed(world: World) -> list[int]:
    """Sizes of the runs of durable messages that consumers hold."""
    return [run.count for run in world.core.life._runs.values() if run.holder is not None]


def take(world: World, credit: int = 100, address: str = "q", **options: Any) -> tuple[Client, Any]:
    client = world.client()
    link = client.receiver(address, credit=credit, **options)
    world.settle()
    return client, link


def texts(client: Client, link: Any) -> list[str]:
    return [str(body) for body in client.bodies(link)]


def messages(client: Client, link: Any) -> list[Message]:
    return [Message.decode(delivery.payload) for delivery in client.received[link]]


def test_blocks_are_handed_out_as_runs() -> None:
    world = deep()
    client, link = take(world)
    assert texts(client, link) == [f"m{at:02}" for at in range(DEPTH)]
    assert handed(world) == TOGETHER
    link.session.settle_all(client.held(link), ACCEPTED)
    world.settle()
    world.check_journal()
    assert not live_of(world, "q")


def test_who_drains_gets_runs_as_well() -> None:
    """Whether there is more for him is asked each turn, also while the next block is being read."""
    world = deep()
    client = world.client()
    link = client.receiver("q", credit=0)
    link.grant(100)
    link.drain_credit()
    world.settle()
    assert texts(client, link) == [f"m{at:02}" for at in range(DEPTH)]
    assert handed(world) == TOGETHER
    assert not link.credit


def over_time() -> tuple[World, dict[int, int]]:
    """The same, of messages that were posted one after the other; and when, by sequence."""
    world = World(OPTIONS, sizes=SIZES)
    client = world.client()
    link = client.sender("q")
    for at in range(DEPTH):
        world.advance(7)
        client.post_all(link, durable(f"m{at:02}"))
    client.close()
    world = world.stop()
    rows = world.core.life.parking.rows
    posted_us = {row.sequence: row.posted_us for row in map(rows.find, rows.sequences()) if row is not None}
    assert len(set(posted_us.values())) == DEPTH
    return world, posted_us


def test_each_says_when_it_was_posted() -> None:
    """They were posted at times of their own, and say so as single ones do."""
    world, posted_us = over_time()
    client, receiver = take(world)
    assert handed(world) == TOGETHER
    annotations = [message.annotations or {} for message in messages(client, receiver)]
    said = {one[SEQUENCE]: one[POSTED_AT] for one in annotations}
    assert said == {sequence: time_us // 1000 for sequence, time_us in posted_us.items()}


def test_the_oldest_of_what_is_left_of_a_run_says_how_old_it_is() -> None:
    world, posted_us = over_time()
    take(world, credit=20)
    assert handed(world) == [4]
    assert named(world).backlog.oldest_us() == sorted(posted_us.values())[20]


def test_one_that_was_handed_out_before_says_so() -> None:
    world = deep()
    rows = world.core.life.parking.rows
    marked = list(rows.sequences())[20]
    rows.mark(marked, DISPATCHED)
    client, link = take(world)
    assert texts(client, link) == [f"m{at:02}" for at in range(DEPTH)]
    again = [message.header is not None and not message.header.first_acquirer for message in messages(client, link)]
    assert [at for at, told in enumerate(again) if told] == [20]


def test_what_comes_back_of_a_run_is_in_its_place() -> None:
    world = deep()
    client, link = take(world, credit=20)
    assert handed(world) == [4], "the second is split"
    client.lose()
    world.settle()
    client, link = take(world)
    assert texts(client, link) == [f"m{at:02}" for at in range(DEPTH)]
    link.session.settle_all(client.held(link), ACCEPTED)
    world.settle()
    world.check_journal()


def test_messages_that_are_not_alike_come_singly() -> None:
    kinds = [durable("x"), Message("y", durable=True, subject="other")]
    world = deep([kinds[at % 2] for at in range(DEPTH)])
    client, link = take(world)
    assert texts(client, link) == ["x", "y"] * (DEPTH // 2)
    assert not handed(world)


@pytest.mark.parametrize("name", ["_AMQ_DUPL_ID"])
def test_messages_with_ids_to_detect_duplicates_by_are_alike(name: str) -> None:
    world = deep([Message(f"m{at}", durable=True, application_properties={name: f"{at:03}"}) for at in range(DEPTH)])
    client, link = take(world)
    assert texts(client, link) == [f"m{at}" for at in range(DEPTH)]
    assert handed(world) == TOGETHER


@pytest.mark.pure
def test_what_was_not_where_it_was_looked_for_comes_singly(monkeypatch: pytest.MonkeyPatch) -> None:
    world = deep()
    loaded = Paging._loaded

    def missing(paging: Paging, queue: Queue, block: Any, sequences: range, payloads: Any) -> None:
        loaded(paging, queue, block, sequences, [*payloads[:3], None, *payloads[4:]])

    monkeypatch.setattr(Paging, "_loaded", missing)
    client, link = take(world)
    assert texts(client, link) == [f"m{at:02}" for at in range(DEPTH)]
    assert not handed(world)


@pytest.mark.parametrize("credit", [0, 1])
def test_where_somebody_looks_at_each_they_come_singly(credit: int) -> None:
    """A browser without credit, as Spark's that asks how many there are, looks at none."""
    world = deep()
    world.client().receiver("q", "browser", credit=credit, browse=True)
    world.settle()
    client, link = take(world)
    assert texts(client, link) == [f"m{at:02}" for at in range(DEPTH)]
    assert handed(world) == ([] if credit else TOGETHER)


def test_a_browser_that_begins_while_a_run_stands_in_front_sees_all() -> None:
    world = deep()
    browsing = world.client()
    browser = browsing.receiver("q", "browser", credit=0, browse=True)
    client, link = take(world, credit=20)
    assert handed(world) == [4]
    browser.grant(100)
    world.settle()
    link.grant(100)
    world.settle()
    assert texts(browsing, browser) == [f"m{at:02}" for at in range(20, DEPTH)]
    assert texts(client, link) == [f"m{at:02}" for at in range(DEPTH)]


@pytest.mark.parametrize(("address", "options"), [("q", {"presettled": True}), ("locked", {})])
def test_consumers_that_take_no_runs_get_single_ones(address: str, options: dict[str, Any]) -> None:
    world = deep(address=address)
    client, link = take(world, address=address, **options)
    assert texts(client, link) == [f"m{at:02}" for at in range(DEPTH)]
    assert not handed(world)


def test_groups_are_kept() -> None:
    world = deep([Message(f"m{at:02}", durable=True, group_id="g") for at in range(DEPTH)])
    first, other = world.client(), world.client()
    links = [first.receiver("q", "first", credit=100), other.receiver("q", "other", credit=100)]
    world.settle()
    assert sorted(len(client.bodies(link)) for client, link in zip((first, other), links, strict=True)) == [0, DEPTH]


def test_what_was_handed_out_before_the_restart_comes_singly_and_says_so() -> None:
    world = World(OPTIONS, sizes=SIZES)
    fill(world, [durable(f"m{at:02}") for at in range(DEPTH)])
    take(world, credit=20)
    world = world.crash()
    client, link = take(world)
    assert texts(client, link) == [f"m{at:02}" for at in range(DEPTH)]
    first = [message.header is not None and message.header.first_acquirer for message in messages(client, link)]
    assert first[20:] and not any(first[:20])


def read_on(world: World, then: Callable[[World], object]) -> World:
    """Do this while a block is being read."""
    memory = world.core.memory
    take_reads = memory.take_reads
    memory.take_reads = list  # type: ignore[method-assign]
    take(world)
    reads = take_reads()
    assert reads and all(lot.then is not None for lot in reads)
    then(world)
    memory.take_reads = take_reads  # type: ignore[method-assign]
    for lot in reads:
        world.core.loaded(lot, world.opened.journal.read_payloads(lot.positions, lot.size_hints))
    world.settle()
    return world


@pytest.mark.pure
def test_a_block_that_is_purged_while_it_is_read_is_gone() -> None:
    world = read_on(deep(), lambda world: world.purge("q"))
    assert named(world).live == 0
    world.check_journal()


@pytest.mark.pure
def test_one_of_a_block_that_is_looked_at_while_it_is_read_is_one_thing() -> None:
    kept: list[Any] = []

    def look(world: World) -> None:
        sequence = next(iter(world.core.life.parking.rows.sequences())) + 3
        kept.append(world.core.life.parking.look(sequence))

    world = read_on(deep(), look)
    assert world.core.life.parking.message(kept[0].sequence) is kept[0]
    assert kept[0].holder is not None
    assert sum(handed(world)) == DEPTH - 16


def test_who_walks_over_a_block_finds_what_has_come_into_a_run() -> None:
    world = deep()
    walk = named(world).backlog.remembered()
    seen = [next(walk).sequence for _ in range(2)]
    client, link = take(world, credit=40)
    assert handed(world)
    rest = list(walk)
    assert len({*seen, *(one.sequence for one in rest)}) == DEPTH, "each of them, wherever it is"
    held = sum(one.holder is not None for one in rest)
    assert held == 40 - 2
    assert texts(client, link) == [f"m{at:02}" for at in range(40)]
    world.settle()


def test_messages_of_two_queues_by_turns_are_each_found() -> None:
    """Sequences of a run follow one another: one that had gaps would hide what is in the gaps from `Life.message`."""
    world = by_turns(12)
    receiving = world.client()
    for address in "ab":
        receiving.receiver(address, f"of {address}", credit=100)
    world.settle()
    assert handed(world)
    life = world.core.life
    for sequence in list(life.sequences()):
        message = life.message(sequence)
        assert message is not None and message.sequence == sequence
    world.check_journal()


@pytest.mark.pure
def test_no_more_bytes_are_read_than_are_good_at_once() -> None:
    limits = BrokerLimits(read_ahead_bytes=MIB)
    world = deep([durable("x" * 50_000)] * 32, options=BrokerOptions(limits=limits))
    reads = []
    take_reads = world.core.memory.take_reads

    def noted() -> Any:
        taken = take_reads()
        reads.extend(sum(lot.size_hints) for lot in taken if lot.then is not None)
        return taken

    world.core.memory.take_reads = noted  # type: ignore[method-assign]
    client, link = take(world)
    assert len(client.bodies(link)) == 32
    assert reads and 0.4 * MIB < max(reads) < 0.505 * MIB, "two of them are good"


def test_large_messages_make_no_run() -> None:
    """They would be copied for it, and none is sent with others."""
    world = deep([durable("x" * ROPE_MIN)] * 32)
    client, link = take(world)
    assert client.bodies(link) == ["x" * ROPE_MIN] * 32
    assert handed(world) == []
    assert all(isinstance(message.body, Rope | None) for message in world.core.life.objects.values())
    assert len(client.held(link)) == 32


def test_what_is_not_worth_a_run_comes_singly() -> None:
    world = by_turns(SIZES.run - 1)
    client, link = take(world, address="a")
    assert len(texts(client, link)) > DEPTH // 3
    assert not handed(world)


@pytest.mark.pure
@pytest.mark.parametrize("outcome", [ACCEPTED, RELEASED])
def test_a_receiver_in_mode_second_hears_once_it_is_on_the_disk(monkeypatch: pytest.MonkeyPatch, outcome: Any) -> None:
    together: list[int] = []
    answer_run = Settling.answer_run

    def noted(settling: Settling, run: Any, *, durable: bool) -> None:
        assert durable
        together.append(len(run.tags))
        answer_run(settling, run, durable=durable)

    monkeypatch.setattr(Settling, "answer_run", noted)
    world = deep()
    client, link = take(world, second=True)
    held = client.held(link)
    link.session.settle_all(held, outcome)
    world.carry()
    assert not any(one.settled for one in held), "it is not on the disk yet"
    world.settle()
    assert all(one.settled for one in held)
    assert together == (TOGETHER if outcome is ACCEPTED else [])
    world.check_journal()


def test_what_is_accepted_is_gone_though_its_link_is_lost_before_the_answer() -> None:
    world = deep()
    client, link = take(world, second=True)
    link.session.settle_all(client.held(link), ACCEPTED)
    world.carry()
    client.lose()
    world.settle()
    world.check_journal()
    assert named(world).live == 0


def test_two_queues_by_turns_keep_their_order() -> None:
    """A block that is read in pieces goes on where its last piece ended."""
    world = by_turns(12)
    for which, address in enumerate("ab"):
        client, link = take(world, address=address)
        assert texts(client, link) == [f"m{at:02}" for at in range(DEPTH) if at // 12 % 2 == which]


def test_no_more_than_two_blocks_are_read_ahead() -> None:
    world = deep()
    _, link = take(world, credit=20)
    for _ in range(3):
        link.grant(1)
        world.settle()
    assert 1 <= len(named(world).backlog._lanes[0].front) <= 2
    assert world.core.life.parking.count(named(world)) >= 8


@pytest.mark.pure
def test_what_is_more_urgent_goes_before_a_block_that_is_being_read() -> None:
    world = read_on(deep(), lambda world: fill(world, [Message("urgent", durable=True, priority=9)]))
    [deliveries] = world.clients[0].received.values()
    bodies = [str(Message.decode(one.payload).body) for one in deliveries]
    assert bodies == ["urgent", *(f"m{at:02}" for at in range(DEPTH))]


def test_who_walks_over_a_run_in_front_finds_what_was_taken_of_it_and_comes_back() -> None:
    world = deep()
    client, link = take(world, credit=18)
    front = named(world).backlog._lanes[0].front
    assert isinstance(front[0], MessageRun) and front[0].laid_out is None
    walk = named(world).backlog.remembered()
    link.grant(5)
    world.settle()
    link.session.settle_all(client.held(link)[18:], RELEASED)
    world.settle()
    assert len([one.sequence for one in walk]) >= DEPTH - 18


@pytest.mark.pure
def test_a_body_that_somebody_else_has_read_is_counted_once() -> None:
    def look(world: World) -> None:
        sequence = next(iter(world.core.life.parking.rows.sequences())) + 3
        message = world.core.life.parking.look(sequence)
        assert message is not None
        world.core.memory.want(message, lambda message: None)
        [reads] = world.core.memory.take_reads() or [None]
        assert reads is None or reads.then is None

    world = read_on(deep(), look)
    world.check()


def test_who_knows_a_message_by_its_sequence_finds_it_in_a_run() -> None:
    world = deep()
    take(world)
    life = world.core.life
    sequence = next(iter(life._runs.values())).sequences[3]
    message = life.parking.message(sequence)
    assert message is not None and message.sequence == sequence
    assert life.message(sequence) is message is life.parking.look(sequence)


@pytest.mark.parametrize("accepted", [3, 16, 40])
def test_parts_of_what_a_receiver_in_mode_second_holds_are_answered(accepted: int) -> None:
    world = deep()
    client, link = take(world, second=True)
    held = client.held(link)
    [session] = client.server.sessions
    link.session.settle_all(held[:accepted], ACCEPTED)
    world.carry()
    assert session.oldest_outgoing == held[0].delivery_id
    assert session.outgoing_count == DEPTH
    world.settle()
    assert session.outgoing_count == DEPTH - accepted
    assert [one.settled for one in held] == [True] * accepted + [False] * (DEPTH - accepted)
    link.session.settle_all(held[accepted:], ACCEPTED)
    world.settle()
    assert all(one.settled for one in held)


def test_copies_of_a_topic_come_singly() -> None:
    """They share a record: what a run counts of the disk would count it twice."""
    world = World(OPTIONS, sizes=SIZES)
    clients = [world.client(f"c{at}") for at in range(2)]
    for client in clients:
        client.subscriber("t", "s", durable=True, credit=0)
    publisher = world.client()
    link = publisher.publisher("t")
    for at in range(DEPTH):
        publisher.post_all(link, durable(f"m{at:02}"))
    world.settle()
    world = world.stop()
    for at in range(2):
        client = world.client(f"c{at}")
        receiver = client.subscriber("t", "s", durable=True, credit=100)
        world.settle()
        assert texts(client, receiver) == [f"m{at:02}" for at in range(DEPTH)]
        receiver.session.settle_all(client.held(receiver), ACCEPTED)
        world.settle()
    world.check_journal()


def paged() -> tuple[World, Client, Any]:
    """A broker whose queue *paged* is deep, and its sender."""
    world = World(OPTIONS, sizes=SIZES)
    client = world.client()
    link = client.sender("paged")
    client.post_all(link, *[durable(f"m{at:02}") for at in range(DEPTH)])
    return world, client, link


def test_what_comes_together_behind_much_is_parked_together() -> None:
    """None of it is ever an object, and nothing of it is in memory."""
    world, client, link = paged()
    life = world.core.life
    kept, parked, memory, live = len(life.objects), len(life.parking.rows), life.memory.bytes, life.live_bytes
    client.post(link, *[durable(f"n{at:02}") for at in range(20)])
    world.settle()
    fewer = kept - len(life.objects)
    assert fewer >= 0
    assert len(life.parking.rows) == parked + 20 + fewer
    assert life.memory.bytes == memory + 20 * PARKED_BYTES - fewer * (OBJECT_BYTES - PARKED_BYTES)
    assert named(world, "paged").memory_bytes == 0
    assert life.live_bytes - live == sum(len(durable(f"n{at:02}").encode()) for at in range(20))
    taker = client.receiver("paged", "taker", credit=DEPTH + 20)
    world.settle()
    assert texts(client, taker) == [f"m{at:02}" for at in range(DEPTH)] + [f"n{at:02}" for at in range(20)]


def test_a_browser_that_comes_before_the_sync_is_offered_what_came_together() -> None:
    world, client, link = paged()
    client.post(link, *[durable(f"n{at:02}") for at in range(20)])
    world.carry()
    browser = client.receiver("paged", "browser", credit=2 * DEPTH, browse=True)
    world.settle()
    assert texts(client, browser) == [f"m{at:02}" for at in range(DEPTH)] + [f"n{at:02}" for at in range(20)]
