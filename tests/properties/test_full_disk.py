"""A disk that is full again and again: nothing that was answered is lost, and nothing is done by half.

Random histories of postings (to a queue, to a ring, to a topic with many subscriptions, with duplicate ids), of
transactions, outcomes, moves, locks that run out and crashes, on a disk that has a little room, none, or enough. After
each step the journal must balance, as it is on the disk at that moment. When there is room again, what was answered
must be where it belongs, exactly once, and what was refused nowhere; and the journal must say the same as the broker.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from acquit.broker.options import AddressRule, BrokerOptions
from acquit.ledger.balance import balance
from acquit.protocol.definitions import Accepted, Error, Modified, Rejected, Released
from acquit.protocol.delivery import Delivery
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.message import Message
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.broker_world import SMALL, Client, World, durable
from tests.support.examples import share
from tests.support.transacting import Controller

OPTIONS = BrokerOptions(
    address=(
        AddressRule("#", {"max_delivery_attempts": 0}),
        AddressRule("ring", {"ring_size": 3}),
        AddressRule("locked", {"lock_duration_ms": 1_000}),
    )
)
SUBSCRIBERS = tuple(f"s{number}" for number in range(6))
QUEUES = ("a", "b", "ring", "locked", "DLQ")
TARGETS = ("a", "b", "ring", "locked", "news")
PLACES = ("a", "b", "locked", "DLQ")
"""Between which a message may go, by a move or as a dead letter."""
KIB = 1024


class Run:
    """A broker, its producer, its consumer, and what they were told."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.disk = FaultyDisk()
        journal = replace(SMALL, first_segment_bytes=random.choice((8, 64)) * KIB)
        self.world = World(OPTIONS, disk=self.disk, journal=journal)
        self.number = 0
        self.asked: list[tuple[Delivery, str, str]] = []
        """Postings without an answer so far: where to, and the body."""
        self.commits: list[tuple[Delivery, list[tuple[str, str, Delivery]], list[tuple[str, str]]]] = []
        """Commits without one: what is posted in them, and where what is retired in them was."""
        self.must: Counter[tuple[str, str]] = Counter()
        """Answered: by where it went (of a topic: every subscription) and body."""
        self.may: Counter[tuple[str, str]] = Counter()
        """Not answered before a crash."""
        self.taken: list[tuple[str, str, Delivery]] = []
        self.settling: list[tuple[str, str, Delivery]] = []
        """Accepted in mode second, not answered so far."""
        self.gone: set[tuple[str, str]] = set()
        """Accepted, as somebody was told."""
        self.perhaps_gone: set[tuple[str, str]] = set()
        self.connect()
        self.producer.post_all(self.producer.sender("churn", "churn"), durable("always"))

    def connect(self) -> None:
        self.producer: Client = self.world.client("producer")
        self.senders: dict[str, SendingLink] = {
            name: self.producer.publisher(name, name) if name == "news" else self.producer.sender(name, name)
            for name in TARGETS
        }
        self.control = Controller(self.producer)
        self.consumer: Client = self.world.client("consumer")
        self.receivers: dict[str, ReceivingLink] = {
            name: self.consumer.receiver(name, name, second=True) for name in (*QUEUES, "churn")
        }
        for name in SUBSCRIBERS:
            self.receivers[name] = self.consumer.subscriber("news", name, durable=True, credit=0)
        self.retiring = Controller(self.consumer)

    @property
    def told_gone(self) -> set[tuple[str, str]]:
        """Not of dead letters, of which there may be one of each subscription."""
        return {one for one in self.gone if one[0] != "DLQ"}

    # -- steps --------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        getattr(self, self.random.choices(tuple(STEPS), tuple(STEPS.values()))[0])()
        self.move_on()
        assert_balanced(self.world)

    def move_on(self) -> None:
        self.world.carry()
        for _ in range(20):
            if not self.world.sync():
                break
            self.world.carry()
        self.hear()

    def hear(self) -> None:
        waiting, self.asked = self.asked, []
        for sent, where, body in waiting:
            answer = self.producer.outcome(sent)
            if answer is None:
                self.asked.append((sent, where, body))
            elif answer == Accepted():
                self.must.update(places(where, body))
            else:
                assert isinstance(answer, Rejected)
        commits, self.commits = self.commits, []
        for sent, posted, retired in commits:
            client = self.consumer if sent in self.consumer.answers else self.producer
            answer = client.outcome(sent)
            if answer is None:
                self.commits.append((sent, posted, retired))
            elif answer == Accepted():
                for where, body, one in posted:
                    if self.control.provisional(one) == Accepted():  # of others it was said that they are not in it
                        self.must.update(places(where, body))
                self.gone.update(retired)
        settling, self.settling = self.settling, []
        for where, body, delivery in settling:
            if self.consumer.outcome(delivery) is None:
                self.settling.append((where, body, delivery))
            elif self.consumer.outcome(delivery) == Accepted():  # it says *modified* where the lock had run out
                self.gone.add((where, body))

    def fresh(self) -> str:
        self.number += 1
        return f"m{self.number}"

    def message(self, body: str, **fields: object) -> Message:
        return durable(body + "." * self.random.choice((0, 0, 500, 3_000)), **fields)

    def post(self) -> None:
        where = self.random.choice(TARGETS)
        link = self.senders[where]
        for _ in range(self.random.randrange(1, 6)):
            if not link.sendable:
                break
            body = self.fresh()
            (sent,) = self.producer.post(link, self.message(body))
            self.asked.append((sent, where, body))

    def post_twice(self) -> None:
        """Both are answered, one is posted."""
        where = self.random.choice(("a", "b", "news"))
        link = self.senders[where]
        body = self.fresh()
        message = self.message(body, application_properties={"_AMQ_DUPL_ID": body})
        for time in range(2):
            if link.sendable:
                (sent,) = self.producer.post(link, message)
                if not time:
                    self.asked.append((sent, where, body))
                if self.random.random() < 0.5:
                    self.move_on()

    def transaction(self) -> None:
        """Post into several places, with ids that are remembered, and ask for the commit."""
        sent = self.control.ask_declare()
        self.move_on()
        txn_id = self.control.declared(sent)
        if txn_id is None:
            return
        posted = []
        for _ in range(self.random.randrange(1, 8)):
            where, body = self.random.choice(TARGETS), self.fresh()
            if not self.senders[where].sendable:
                continue
            properties = {"_AMQ_DUPL_ID": body} if self.random.random() < 0.5 else None
            message = self.message(body, application_properties=properties)
            (one,) = self.control.post(self.senders[where], txn_id, message)
            posted.append((where, body, one))
            if self.random.random() < 0.2:
                self.move_on()
        self.commits.append((self.control.discharge(txn_id), posted, []))

    def take(self) -> None:
        where = self.random.choice((*QUEUES, *SUBSCRIBERS))
        link = self.receivers[where]
        before = len(self.consumer.received.get(link, []))
        link.grant(self.random.randrange(1, 4))
        link.drain_credit()
        self.move_on()
        for delivery in self.consumer.received.get(link, [])[before:]:
            body = str(Message.decode(delivery.payload).body).rstrip(".")
            assert (where, body) not in self.told_gone, "delivered after its outcome was answered"
            self.taken.append((where, body, delivery))

    def settle(self) -> None:
        if not self.taken:
            return
        where, body, delivery = self.taken.pop(self.random.randrange(len(self.taken)))
        said = self.random.choice(
            (Accepted(), Accepted(), Rejected(Error("test:bad", "by chance")), Released(), Modified())
        )
        if delivery.settled:
            return
        delivery.settle(said)
        if said == Accepted() or dropped(where, said):
            self.perhaps_gone.add((where, body))
        if said == Accepted() and where in QUEUES:
            self.settling.append((where, body, delivery))

    def retire(self) -> None:
        if not self.taken:
            return
        sent = self.retiring.ask_declare()
        self.move_on()
        txn_id = self.retiring.declared(sent)
        if txn_id is None:
            return
        some, self.taken = self.taken[:4], self.taken[4:]
        retired = []
        for where, body, delivery in some:
            if delivery.settled:
                continue
            said = self.random.choice((Accepted(), Accepted(), Rejected(Error("test:bad", "by chance"))))
            self.retiring.retire(txn_id, delivery, outcome=said, settled=False)
            if said == Accepted():
                retired.append((where, body))
            elif dropped(where, said):
                self.perhaps_gone.add((where, body))
        self.perhaps_gone.update(retired)
        self.commits.append((self.retiring.discharge(txn_id), [], retired))

    def move(self) -> None:
        queue, to = self.random.sample(("a", "b"), 2)
        if queue in self.world.core.queues.by_name:
            self.world.core.administration.move(queue, to, None, messages_max=None, selector=None)

    def wait(self) -> None:
        self.world.advance(self.random.choice((100, 1_500)))

    def fill(self) -> None:
        """Somebody else needs the disk."""
        self.disk.capacity_bytes = self.disk.used_bytes + self.random.choice((0, 2, 20, 60)) * KIB

    def use_up(self) -> None:
        """Outcomes are served from the reserve, until that is used up, or nearly."""
        if self.disk.capacity_bytes is None:
            self.fill()
        left = self.random.randrange(1, 300)
        link = self.receivers["churn"]
        while left and not self.world.core.scribe.exhausted:
            left -= 1
            link.grant(1)
            self.move_on()
            for delivery in self.consumer.held(link):
                delivery.settle(Modified(delivery_failed=True))
            self.consumer.received[link] = []
            self.move_on()

    def empty(self) -> None:
        """There is room again."""
        self.disk.capacity_bytes = None
        for _ in range(3):
            self.world.advance(5_000)
            self.world.chores()
            self.move_on()
        assert not self.world.core.scribe.exhausted

    def crash(self) -> None:
        for _, where, body in self.asked:
            self.may.update(places(where, body))
        for _, posted, _retired in self.commits:
            for where, body, _sent in posted:
                self.may.update(places(where, body))
        self.asked, self.commits, self.taken, self.settling = [], [], [], []
        self.world = self.world.crash()
        assert isinstance(self.world.disk, FaultyDisk)
        self.disk = self.world.disk
        self.connect()

    # -- the end ------------------------------------------------------------------------------------------------------

    def account(self) -> None:
        self.empty()
        self.world.settle()
        self.hear()
        assert (self.asked, self.commits, self.settling) == ([], [], []), "not answered"
        self.world.check_journal()
        self.consumer.lose()
        self.world.settle()
        left: Counter[tuple[str, str]] = Counter()
        drain = self.world.client("consumer")
        for where in (*QUEUES, *SUBSCRIBERS):
            link = (
                drain.receiver(where, where, credit=10_000)
                if where in QUEUES
                else drain.subscriber("news", where, durable=True, credit=10_000)
            )
            self.world.settle()
            left.update((where, str(body).rstrip(".")) for body in drain.bodies(link))
        assert self.told_gone.isdisjoint(left.keys())
        for place in (PLACES, *((name,) for name in SUBSCRIBERS)):
            here = Counter(body for (where, body) in left.elements() if where in place)
            # Of dead letters there may be one of each subscription.
            assert place == PLACES or max(here.values(), default=1) == 1, "twice"
        everywhere = Counter(body for (_, body) in left.elements())
        for (where, body), times in self.must.items():
            assert times == 1
            if where == "ring":
                continue
            found = left[where, body] or any(left[other, body] for other in PLACES)
            was = any((other, body) in self.perhaps_gone for other in (where, *PLACES))
            assert found or was, f"lost: {where} {body}"
        known = {body for _, body in (*self.must, *self.may)}
        assert everywhere.keys() <= known, "in a queue, and never answered"


def dropped(where: str, said: object) -> bool:
    """A dead letter queue has none of its own."""
    return where == "DLQ" and isinstance(said, Rejected)


def places(where: str, body: str) -> list[tuple[str, str]]:
    return [(one, body) for one in (SUBSCRIBERS if where == "news" else (where,))]


STEPS = {
    "post": 8,
    "post_twice": 3,
    "transaction": 6,
    "take": 8,
    "settle": 6,
    "retire": 3,
    "move": 1,
    "wait": 2,
    "fill": 3,
    "use_up": 1,
    "empty": 1,
    "crash": 0.5,
}


def assert_balanced(world: World) -> None:
    """The journal as it is on the disk, and nothing else."""
    found = balance(world.fold())
    assert found.balanced, (found.anomalies, [row.mismatch for row in found.queues if row.mismatch])


@pytest.mark.promise("durable")
@pytest.mark.parametrize("history", range(share(6)))
def test_a_full_disk_loses_nothing_and_does_nothing_by_half(seed: int, history: int) -> None:
    run = Run(Random(seed * 1_000 + history))
    for _ in range(60):
        run.step()
    run.account()


@pytest.mark.parametrize("history", [6007, 7011])
def test_long_histories_of_a_full_disk(history: int) -> None:
    """In the first, a lock ran out when not even that could be written; in the second, a mark found no room."""
    run = Run(Random(history))
    for _ in range(300):
        run.step()
    run.account()


@pytest.mark.promise("durable")
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_full_disk_over_long_histories(rng: Random, soak_rounds: int) -> None:
    for _ in range(soak_rounds):
        run = Run(rng)
        for _ in range(300):
            run.step()
        run.account()
