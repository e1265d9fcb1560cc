"""The broker's core against a small model: whatever happens in whatever order, nothing is lost, and the books balance.

Clients post, take, decide and disappear; the disk syncs, or loses power; time passes. The model knows what any client
could know: which durable postings were *answered* accepted, and which messages were settled for good in a way that the
broker had confirmed. After every step the accounts of every queue hold. At the end everything is drained, and each
answered message is found exactly once: with its consumer, in the dead letter queue, in the expiry queue, or purged.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.broker.options import AddressRule, BrokerOptions
from acquit.ledger.events import EventKind
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Error, Modified, Rejected, SndSettleMode
from acquit.protocol.delivery import Delivery, DeliveryState
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World
from tests.support.examples import examples

QUEUES = ("a", "b")
OPTIONS = BrokerOptions(
    address=(
        AddressRule("#", {"max_delivery_attempts": 3, "memory_bytes_max": 65_536}),
        AddressRule("b", {"redelivery_delay_ms": 700, "connection_loss": "dead-letter"}),
    )
)
OUTCOMES = (
    ACCEPTED,
    RELEASED,
    Rejected(Error("app:bad", "by chance")),
    Modified(delivery_failed=True),
    Modified(delivery_failed=True, undeliverable_here=True),
    Modified(delivery_failed=False, message_annotations={"x-opt-seen": 1}),
    None,
)

KINDS = ("durable", "volatile", "ttl", "priority", "big")
Step = tuple[str, tuple[object, ...]]


def draw_steps(rng: Random) -> list[Step]:
    """A story: mostly traffic, now and then a calamity."""
    weights = {
        "post": 4,
        "grant": 4,
        "settle": 6,
        "sync": 3,
        "carry": 2,
        "advance": 1,
        "detach": 1,
        "lose": 1,
        "purge": 0.2,
        "stall": 1,
        "crash": 0.3,
        "stop": 0.3,
    }
    names = rng.choices(list(weights), list(weights.values()), k=rng.randrange(5, 90))
    return [(name, draw_arguments(rng, name)) for name in names]


def draw_arguments(rng: Random, name: str) -> tuple[object, ...]:
    which = rng.randrange(6)
    match name:
        case "post":
            return which, rng.randrange(1, 7), rng.choice(KINDS)
        case "grant":
            return which, rng.randrange(1, 9)
        case "settle":
            return which, rng.randrange(1, 5), rng.choice(OUTCOMES)
        case "advance":
            return (rng.randrange(1, 1_500),)
        case "stall":
            return which, rng.random() < 0.4
        case "detach" | "lose" | "purge":
            return (which,)
        case _:
            return ()


class Model:
    """The clients, and what they know."""

    def __init__(self) -> None:
        self.world = World(OPTIONS)
        self.number = 0
        self.answered: set[str] = set()
        """Durable postings that were answered accepted."""
        self.posted: set[str] = set()
        self.volatile: set[str] = set()
        self.finished: Counter[str] = Counter()
        """Accepted by a consumer, which heard that the broker knows."""
        self.once: Counter[str] = Counter()
        """Delivered to a pre-settled consumer."""
        self.maybe: set[str] = set()
        """Settled by a consumer that was not answered: the broker may not know."""
        self.purged = 0
        self.connect()

    # -- clients ------------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        self.senders: dict[str, tuple[Client, SendingLink]] = {}
        self.receivers: list[tuple[Client, ReceivingLink, str]] = []
        self.waiting: list[tuple[Client, Delivery, str]] = []
        self.deciding: list[tuple[Client, Delivery, str]] = []
        self.client = self.world.client("producer")
        for queue in QUEUES:
            self.senders[queue] = self.client, self.client.sender(queue, queue)
        for number in range(4):
            self.attach(number)

    def attach(self, number: int) -> None:
        """Each consumer has a connection of its own, and a mode of its own."""
        self.number += 1
        client = self.world.client(f"consumer-{self.number}")
        queue = QUEUES[number % 2]
        link = client.receiver(queue, f"r{self.number}", second=number < 2, presettled=number == 3)
        self.receivers.append((client, link, queue))

    def do(self, name: str, *arguments: object) -> None:
        getattr(self, name)(*arguments)
        self.listen()
        self.world.check()

    # -- steps --------------------------------------------------------------------------------------------------------

    def post(self, which: int, count: int, kind: str) -> None:
        queue = QUEUES[which % 2]
        client, link = self.senders[queue]
        for _ in range(min(count, link.credit)):
            self.number += 1
            identity = f"m{self.number}"
            message = Message(
                bytes(9_000) if kind == "big" else b"x",
                message_id=identity,
                durable=kind != "volatile",
                ttl_ms=1_000 if kind == "ttl" else None,
                priority=7 if kind == "priority" else 4,
            )
            (delivery,) = client.post(link, message)
            if kind == "volatile":
                self.volatile.add(identity)
            else:
                self.posted.add(identity)
                self.waiting.append((client, delivery, identity))

    def grant(self, which: int, credit: int) -> None:
        _, link, _ = self.receivers[which % len(self.receivers)]
        link.grant(credit)

    def settle(self, which: int, count: int, state: DeliveryState | None) -> None:
        client, link, _ = self.receivers[which % len(self.receivers)]
        second = link.rcv_settle_mode == 1
        for delivery in client.held(link)[:count]:
            identity = str(Message.decode(delivery.payload).message_id)
            if second:
                delivery.settle(state if state is not None else RELEASED)
                if state is ACCEPTED:
                    self.deciding.append((client, delivery, identity))
            else:
                delivery.settle(state)
                if state is ACCEPTED:
                    self.maybe.add(identity)

    def sync(self) -> None:
        self.world.carry()
        self.world.sync()

    def carry(self) -> None:
        self.world.carry()

    def advance(self, milliseconds: int) -> None:
        self.world.advance(milliseconds)

    def detach(self, which: int) -> None:
        client, link, queue = self.receivers.pop(which % len(self.receivers))
        client.close()
        self.note_once(client, link)
        self.forget(client)
        self.attach(QUEUES.index(queue))

    def lose(self, which: int) -> None:
        client, link, queue = self.receivers.pop(which % len(self.receivers))
        client.lose()
        self.note_once(client, link)
        self.forget(client)
        self.attach(QUEUES.index(queue))

    def purge(self, which: int) -> None:
        self.purged += self.world.purge(QUEUES[which % 2], None)

    def stall(self, which: int, reading: bool) -> None:
        client, _, _ = self.receivers[which % len(self.receivers)]
        client.reading = reading
        self.world.core.writable(client.peer, reading)

    def crash(self) -> None:
        self.restart(self.world.crash())

    def stop(self) -> None:
        for client in self.world.clients:
            client.reading = True
        self.restart(self.world.stop())

    def restart(self, world: World) -> None:
        self.listen()
        for _, _, identity in self.deciding:
            self.maybe.add(identity)  # decided, and never answered
        for client, link, _ in self.receivers:
            self.note_once(client, link)
        self.world = world
        world.check()
        self.connect()

    def forget(self, client: Client) -> None:
        """A client is gone: what it decided without an answer is not known."""
        self.listen()
        for one, _, identity in self.deciding:
            if one is client:
                self.maybe.add(identity)
        self.deciding = [entry for entry in self.deciding if entry[0] is not client]

    # -- what clients hear --------------------------------------------------------------------------------------------

    def listen(self) -> None:
        still = []
        for client, delivery, identity in self.waiting:
            outcome = client.outcome(delivery)
            if outcome == ACCEPTED:
                self.answered.add(identity)
            elif outcome is None:
                still.append((client, delivery, identity))
        self.waiting = still
        deciding = []
        for client, delivery, identity in self.deciding:
            if client.answers.get(delivery, (None, False))[1]:
                self.finished[identity] += 1
            else:
                deciding.append((client, delivery, identity))
        self.deciding = deciding

    # -- the end ------------------------------------------------------------------------------------------------------

    def account(self) -> None:
        """Take everything that is left, and find each answered message once."""
        for client in self.world.clients:
            client.reading = True
            self.world.core.writable(client.peer, True)
        for _, link, _ in list(self.receivers):
            link.detach()
        self.world.settle()
        self.world.advance(2_000)
        self.world.settle()
        self.listen()
        self.maybe.update(identity for _, _, identity in self.deciding)  # the link went before the answer came
        self.world.check_journal()
        for client, link, _ in self.receivers:
            self.note_once(client, link)
        left: Counter[str] = Counter()
        last = self.world.client("last")
        for queue in (*QUEUES, "DLQ", "ExpiryQueue"):
            receiver = last.receiver(queue, queue, credit=10_000)
            self.world.settle()
            left.update(str(Message.decode(delivery.payload).message_id) for delivery in last.held(receiver))
            for delivery in last.held(receiver):
                delivery.settle(ACCEPTED)
        self.world.settle()
        assert not self.world.core.life.live
        assert all(count == 1 for count in left.values()), "twice in the broker"
        assert not left.keys() & self.finished.keys(), "accepted for good, and there again"
        assert all(count == 1 for count in self.finished.values()), "accepted for good twice"
        delivered_once = self.once.keys() & self.posted
        assert all(self.once[identity] == 1 for identity in delivered_once), "twice to who acknowledges on receipt"
        consumed = sum(totals.counts.get(EventKind.CONSUMED, 0) for totals in self.world.fold().totals().values())
        assert len(delivered_once) <= consumed, "delivered before it was recorded as consumed"
        # What was consumed and then lost on its way is lost: at most once.
        excused = self.purged + consumed - len(delivered_once)
        missing = self.answered - left.keys() - self.finished.keys() - self.maybe - self.once.keys()
        assert len(missing) <= excused, "answered accepted, and lost"
        assert left.keys() <= self.posted | self.volatile

    def note_once(self, client: Client, link: ReceivingLink) -> None:
        if link.snd_settle_mode == SndSettleMode.SETTLED:
            for delivery in client.received.pop(link, []):
                self.once[str(Message.decode(delivery.payload).message_id)] += 1


@pytest.mark.promise("durable", "at-least-once")
@examples(75)
@given(st.integers(0, 1 << 32))
def test_nothing_is_lost_and_the_books_balance(seed: int) -> None:
    model = Model()
    for name, arguments in draw_steps(Random(seed)):
        model.do(name, *arguments)
    model.account()
