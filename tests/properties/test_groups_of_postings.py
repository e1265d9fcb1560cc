"""What arrives becomes what it becomes on the careful path: the hot paths of postings, outside of transactions and
within, are equal to it."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Iterable
from operator import attrgetter
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acquit.broker.intake.posting import Poster
from acquit.broker.links.endpoints import Producer
from acquit.broker.message import COPY
from acquit.broker.options import AddressRule, BrokerOptions, TransactionLimits
from acquit.broker.transact.held_postings import HeldRun
from acquit.broker.transact.transactions import Transactions
from acquit.ledger.fold import Fold
from acquit.ledger.records import RecordKind
from acquit.protocol.definitions import Accepted, RcvSettleMode, Rejected, Released, TransactionalState
from acquit.protocol.delivery import Delivery
from acquit.protocol.link import ReceivingLink
from acquit.protocol.message import Message
from acquit.protocol.types import Byte, Described, Timestamp, ULong
from acquit.store.interface import Record
from acquit.store.recovery import open_store
from tests.support.broker_world import DATA, SMALL, START_US, Client, World, after_kill
from tests.support.raw_journal import Gathered
from tests.support.raw_payloads import with_creation_time
from tests.support.transacting import Controller

OPTIONS = BrokerOptions(
    address=(
        AddressRule("q", {"max_delivery_attempts": 3}),
        AddressRule("small", {"messages_max": 6, "full_policy": "reject"}),
        AddressRule("narrow", {"bytes_max": 700, "full_policy": "reject"}),
        AddressRule("ids", {"duplicate_detection": "message-id", "duplicate_window": 3}),
        AddressRule("careless", {"duplicate_detection": "off", "message_groups": False}),
        AddressRule("passing", {"default_ttl_ms": 60_000}),
        AddressRule("bounded", {"ttl_ms_max": 60_000}),
        AddressRule("latest", {"last_value": True, "last_value_key": "k"}),
        AddressRule("newest", {"bytes_max": 200, "full_policy": "drop-oldest"}),
    ),
    transactions=TransactionLimits(postings_max=9, bytes_max=1_500),
)
ADDRESSES = ["q", "q", "q", "small", "narrow", "ids", "careless", "passing", "bounded", "latest", "newest"]
NOW_MS = START_US // 1000
JMS = {"x-opt-jms-msg-type": Byte(3), "x-opt-jms-dest": Byte(0)}
CREATED = [b"\x83" + bytes(8), b"\xa1\x08" + b"A" * 8, b"\xa1\xff" + b"A" * 8, b"\xa1\x02AA\xa1\x01g\x43\x40\x40"]
"""A creation time, and what would be read as something else in its place."""

messages = st.builds(
    Message,
    st.sampled_from([b"x", b"y" * 300, "text"]),
    durable=st.booleans(),
    priority=st.sampled_from([4, 4, 9]),
    ttl_ms=st.sampled_from([None, None, None, None, 5_000]),
    message_id=st.sampled_from([None, "id-1", "id-2", "é", "ab", 5]),
    subject=st.sampled_from([None, None, "s", "t"]),
    group_id=st.sampled_from([None, None, "g", "h", "h" * 100]),
    group_sequence=st.sampled_from([None, None, None, 0xFFFF_FFFF]),
    creation_time=st.sampled_from([None, Timestamp(NOW_MS), Timestamp(1)]),
    annotations=st.sampled_from([{}, {}, JMS, {"x-opt-acquit-sequence": 5}, {"x-opt-delivery-delay": 50}]),
    application_properties=st.sampled_from([{}, {"k": 1}, {"k": "v"}, {"_AMQ_DUPL_ID": "d"}]),
)
payloads = st.one_of(
    messages.map(Message.encode),
    messages.map(Message.encode),
    messages.map(Message.encode),
    st.sampled_from([Message(b"x", message_id="ab").encode().replace(b"ab", b"\xff\xfe")]),
    st.sampled_from(CREATED).map(with_creation_time),
    st.sampled_from([b"", b"\x00\x53\x99\x40", b"\x00\x53\x72\xc1\x04\x01\xa3\x01a\x00\x53\x75\xa0\x00"]),
)


def one_by_one(poster: Poster, producer: Producer, deliveries: Iterable[Delivery]) -> None:
    """`Poster.receive` without its hot path."""
    for delivery in deliveries:
        poster._receive_one(producer, delivery)


def records_of(world: World) -> list[Record]:
    """All that is in the journal."""
    gathered, digest = Gathered(), Fold().digest
    open_store(DATA, SMALL, gathered, digest, replayed=lambda report: None, disk=after_kill(world.disk))
    return gathered.records


def metas_of(world: World) -> list[bytes]:
    """What the records of postings say beside event and payload."""
    return [record.meta for record in records_of(world) if record.kind == RecordKind.POSTING]


def posted(address: str, sent: list[bytes], *, hot: bool, together: bool) -> tuple[object, ...]:
    """What a broker says of these, keeps of them and hands out."""
    world = World(OPTIONS)
    client = world.client()
    sender = client.sender(address)
    with pytest.MonkeyPatch.context() as patch:
        if not hot:
            patch.setattr(Poster, "receive", one_by_one)
        deliveries = client.post(sender, *sent) if together else []
        for payload in () if together else sent:
            deliveries += client.post(sender, payload)
            world.carry()
        world.carry()
    world.settle()
    world.check_journal()
    outcomes = [client.outcome(delivery) for delivery in deliveries]
    queue = world.core.queues.by_name[address]
    accounts = queue.live, queue.bytes, queue.memory_bytes, list(queue.counts), world.core.life.live_bytes
    extras = [message.extra for message in queue.backlog.next_messages()]
    groups = [extra and (extra.group, extra.closes_group) for extra in extras]
    fold = world.fold()
    recorded = {
        sequence: (kept.fingerprint, kept.expires_at_ms, kept.due_at_ms, kept.priority, kept.flags, kept.notes)
        for sequence, kept in fold.messages.items()
    }
    windows = {name: list(window) for name, window in fold.table.windows.by_address.items()}
    receiver = client.receiver(address, credit=100)
    world.settle()
    return (
        outcomes,
        accounts,
        groups,
        recorded,
        metas_of(world),
        windows,
        [one.payload for one in client.received.get(receiver, [])],
    )


@example("narrow", [Message(b"x").encode()] * 4, True)
@given(st.sampled_from(ADDRESSES), st.lists(payloads, min_size=2, max_size=12), st.booleans())
def test_the_hot_path_is_equal_to_the_careful_one(address: str, sent: list[bytes], together: bool) -> None:
    careful = posted(address, sent, hot=False, together=False)
    assert posted(address, sent, hot=True, together=together) == careful


# -- to topics --------------------------------------------------------------------------------------------------------

NAMES = ("p", "q", "r", "s")
"""Of subscriptions, one of each at most."""
FILTERS = {
    "none": None,
    "k": {"s": Described(ULong(0x468C00000004), "k = 1 OR JMSPriority > 4")},
    "durable": {"s": Described(ULong(0x468C00000004), "JMSDeliveryMode = 'PERSISTENT'")},
    "own": {"n": Described(ULong(0x468C00000003), [])},
}


def subscriptions_that(*take: str) -> st.SearchStrategy[dict[str, tuple[str, str, str, int]]]:
    """By name: a pattern in place of the topic, how it lasts, what it takes, and the credit of its receiver."""
    one = st.tuples(
        st.sampled_from(("", "", "*")),
        st.sampled_from(("durable", "durable", "away", "volatile", "shared")),
        st.sampled_from(take),
        st.sampled_from((0, 2, 100)),
    )
    return st.dictionaries(st.sampled_from(NAMES), one, min_size=1, max_size=4)


subscriptions = st.one_of(subscriptions_that("none"), subscriptions_that(*FILTERS))
runs = st.lists(st.tuples(payloads, st.sampled_from((1, 3, 5))), min_size=1, max_size=6).map(
    lambda counted: [payload for payload, count in counted for _ in range(count)]
)


def subscribe(world: World, topic: str, name: str, asked: tuple[str, str, str, int]) -> tuple[Client, ReceivingLink]:
    pattern, lasting, takes, credit = asked
    # Of one container with the publisher is who wants nothing of its own.
    client = world.client("publisher" if takes == "own" else name)
    link = client.subscriber(
        pattern or topic,
        name,
        durable=lasting in ("durable", "away"),
        shared=lasting == "shared",
        filters=FILTERS[takes],
        credit=0 if lasting == "away" else credit,
    )
    if lasting == "away":
        client.detach(link, closed=False)
        world.settle()
    return client, link


def copied(
    topic: str, asked: dict[str, tuple[str, str, str, int]], sent: list[bytes], *, hot: bool, together: bool
) -> dict[str, object]:
    """What a broker says of these postings to a topic, keeps of them and hands out."""
    world = World(OPTIONS)
    publisher = world.client("publisher")
    sender = publisher.publisher(topic)
    subscribed = [subscribe(world, topic, name, asked[name]) for name in asked]
    with pytest.MonkeyPatch.context() as patch:
        if not hot:
            patch.setattr(Poster, "receive", one_by_one)
        deliveries = publisher.post(sender, *sent) if together else []
        for payload in () if together else sent:
            deliveries += publisher.post(sender, payload)
            world.carry()
        world.carry()
        before = [publisher.outcome(delivery) for delivery in deliveries]
        handed_out = [[one.payload for one in client.received.get(link, [])] for client, link in subscribed]
    world.settle()
    world.check_journal()
    core, fold = world.core, world.fold()
    seen = {
        "answered": [publisher.outcome(delivery) for delivery in deliveries],
        "queues": {
            name: (queue.live, queue.bytes, queue.available, list(queue.counts))
            for name, queue in core.queues.by_name.items()
        },
        "uncounted": copy.deepcopy(core.scribe._uncounted),
        "groups": {
            name: [one.extra and (one.extra.group, one.extra.closes_group) for one in queue.backlog.next_messages()]
            for name, queue in core.queues.by_name.items()
        },
        "topic": list(core.topics.by_address[topic].counts),
        "live": [(one.sequence, one.flags & COPY, one.fingerprint) for one in core.life.live.values()],
        "live bytes": core.life.live_bytes,
        "recorded": [
            (one.kind, one.event, one.meta, one.payload)
            for one in records_of(world)
            if one.kind in (RecordKind.POSTING, RecordKind.COPIES)
        ],
        "windows": {name: list(window) for name, window in fold.table.windows.by_address.items()},
        "handed out at once": handed_out,
    }
    if all(takes == "none" for _, _, takes, _ in asked.values()):
        # Else some of a group may have copies on the disk, and others not: it is answered together.
        seen["answered at once"] = before
        # How many queues a filter leaves decides of those at which nobody waits which bodies are kept.
        memory = core.life.memory
        seen["memory"] = [memory.bytes, memory.object_bytes]
        seen["memory of queues"] = [queue.memory_bytes for queue in core.queues.by_name.values()]
    for name, (client, link) in zip(asked, subscribed, strict=True):
        if asked[name][1] == "away":
            client, link = subscribe(world, topic, name, (asked[name][0], "durable", asked[name][2], 100))
        else:
            link.grant(100)
        world.settle()
        seen[name] = [one.payload for one in client.received.get(link, [])]
    return seen


@given(st.sampled_from(ADDRESSES), subscriptions, runs, st.booleans())
def test_the_hot_path_of_topics_is_equal_to_the_careful_one(
    topic: str, asked: dict[str, tuple[str, str, str, int]], sent: list[bytes], together: bool
) -> None:
    careful = copied(topic, asked, sent, hot=False, together=together)
    assert copied(topic, asked, sent, hot=True, together=together) == careful


# -- in transactions ---------------------------------------------------------------------------------------------------


class Sent(NamedTuple):
    """One posting of several that arrive together."""

    payload: bytes
    transaction: int
    """0 or 1; 2: none."""
    settled: bool


class Step(NamedTuple):
    """Something that a client does, or an operator."""

    verb: str
    address: str
    transaction: int
    sent: list[Sent]


VERBS = ["post"] * 9 + ["commit"] * 5 + ["retire"] * 2 + ["roll back", "subscribe", "watch", "pause", "purge", "sync"]
sent = st.builds(Sent, payloads, st.sampled_from([0, 0, 0, 0, 0, 1, 2]), st.sampled_from([False] * 5 + [True]))
alike = st.builds(
    lambda one, durable, times: [
        Sent(Message(b"x" * size, durable=durable, message_id=f"{size:>4}").encode(), one, False) for size in times
    ],
    st.sampled_from([0, 0, 1]),
    st.booleans(),
    st.lists(st.integers(0, 200), min_size=2, max_size=6),
)
steps = st.builds(
    Step,
    st.sampled_from(VERBS),
    st.sampled_from(["q", "q", "q", "careless", "careless", "ids", "small", "narrow", "news"]),
    st.sampled_from([0, 0, 0, 1]),
    st.one_of(st.lists(sent, min_size=1, max_size=8), alike, alike),
)
NOT_COMPARED = {RecordKind.START, RecordKind.DISPATCHED}
"""A run has a random name. A mark goes further than it must: how far, depends on which of a group asked for it."""


QUEUE_FIGURES = "live", "pending", "acquired", "bytes", "memory_bytes", "held", "held_bytes"


class Stage:
    """One broker, a client that has two transactions, and another that consumes."""

    def __init__(self, *, runs: bool) -> None:
        """`runs`: what comes together may come as a run."""
        self.runs = runs
        self.world = world = World(OPTIONS)
        self.client = world.client("poster")
        self.client.begun.next_delivery_id = 1_000  # wide, so that they are predicted
        self.controller = Controller(self.client)
        self.transactions = [self.controller.declare(), self.controller.declare()]
        self.senders = {
            name: self.client.sender(name, f"to-{name}", rcv_settle_mode=RcvSettleMode(name == "careless"))
            for name in dict.fromkeys(ADDRESSES)
        }
        self.senders["news"] = self.client.publisher("news", "to-news")
        self.receivers = {name: self.client.receiver(name, f"from-{name}", credit=3) for name in ("q", "small")}
        self.deliveries: list[Delivery] = []
        self.links = 0
        self.said: list[object] = []
        """What the broker was like after each step."""
        world.settle()

    def perform(self, step: Step, *, together: bool) -> None:
        world, client, controller = self.world, self.client, self.controller
        verb, address, one, sent = step
        name = address if address in world.core.queues.by_name else "q"
        if verb == "post":
            self.post(address, sent, together=together)
        elif verb == "retire":
            for receiver in self.receivers.values():
                for at, delivery in enumerate(client.held(receiver)):
                    outcome = (Accepted(), Accepted(), Released(), Rejected())[at % 4]
                    controller.retire(self.transactions[one], delivery, outcome=outcome, settled=one == 0)
                receiver.grant(3)
        elif verb in ("commit", "roll back"):
            self.deliveries.append(controller.discharge(self.transactions[one], fail=verb != "commit"))
            self.transactions[one] = controller.declare()
        elif verb == "subscribe":
            client.subscriber("news", f"subscriber-{self.links}", durable=self.links % 2 == 0, credit=0)
        elif verb == "watch":
            client.receiver(name, f"watch-{self.links}", no_local=True, credit=5)
        elif verb == "pause":
            queue = world.core.queues.by_name[name]
            world.core.administration.pause(name, "none" if queue.producers_paused else "producers", None)
        elif verb == "purge":
            world.purge(name)
        else:
            world.settle()
        self.links += 1
        world.carry()
        world.check()
        self.look()

    def post(self, address: str, postings: list[Sent], *, together: bool) -> None:
        sender = self.senders[address]
        for payload, one, settled in postings:
            if not sender.sendable:
                return
            self.client.tags += 1
            state = TransactionalState(self.transactions[one]) if one < 2 else None
            self.deliveries.append(
                sender.send(self.client.tags.to_bytes(4, "big"), payload, settled=settled, state=state)
            )
            if not together:
                self.world.carry()

    def look(self) -> None:
        core = self.world.core
        held = core.transactions.postings
        self.said.append(
            [(attrgetter(*QUEUE_FIGURES)(node), list(node.counts)) for node in core.queues.by_name.values()]
        )
        self.said.append(copy.deepcopy(core.scribe._uncounted))
        self.said.append((core.memory.bytes, core.holdings.live_bytes, core.holdings.live_count))
        self.said.append((held.memory_bytes, held.durable_bytes, sorted(held.durable)))
        self.said.append([(one.bytes, one.posted, one.failed) for one in core.transactions])
        sequences = list(core.holdings.sequences())
        positions = core.holdings.positions(sequences)
        self.said.append([core.holdings.live(sequence) for sequence in sequences])
        assert list(positions) == [one and one.position for one in self.said[-1]]
        extras = [message.extra for queue in core.queues.by_name.values() for message in queue.backlog.next_messages()]
        self.said.append([extra and (extra.group, extra.closes_group, extra.poster) for extra in extras])

    def end(self, how: str) -> None:
        if how == "lose":
            self.client.lose()
        if how != "crash":
            self.world.settle()
            self.world.check_journal()
        # Whether a link that ends in the middle of a read is answered before that, depends on what came as a run.
        asked = [one for one in self.deliveries if not (self.runs and one.link in self.client.detached)]
        self.said.append([self.client.answers.get(delivery) for delivery in asked])
        self.said.append([link.name for link in self.client.detached])
        records = [record for record in records_of(self.world) if record.kind not in NOT_COMPARED]
        self.said.append([(one.kind, one.event, one.meta, one.payload) for one in records])
        self.world = self.world.crash() if how == "crash" else self.world
        fold = self.world.fold()
        self.said.append({name: list(window) for name, window in fold.table.windows.by_address.items()})
        reader = self.world.client("reader")
        links = [reader.receiver(name, f"all-{name}", credit=100) for name in self.world.core.queues.by_name]
        self.world.settle()
        self.said.append([[one.payload for one in reader.received.get(link, [])] for link in links])


def transacted(script: list[Step], ending: str, *, hot: bool, together: bool, runs: bool) -> list[object]:
    """What a broker says of this, keeps of it and hands out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_bytes", Random(0).randbytes)
        if not hot:
            patch.setattr(Transactions, "run", lambda *_: None)
        if not runs:
            patch.setattr(HeldRun, "predicted", False)
        stage = Stage(runs=runs)
        for step in script:
            stage.perform(step, together=together)
        stage.end(ending)
    return stage.said


@given(st.lists(steps, min_size=4, max_size=12), st.sampled_from(["settle", "lose", "crash"]), st.booleans())
def test_postings_of_transactions_as_well(script: list[Step], ending: str, runs: bool) -> None:
    expected = transacted(script, ending, hot=False, together=True, runs=runs)
    assert transacted(script, ending, hot=True, together=True, runs=runs) == expected
