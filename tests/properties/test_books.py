"""The broker's accounts against `tests.support.books`, after every step and at every crash point (promise P3).

Random histories over queues, a topic with two durable subscriptions, a topic without any, a non-destructive queue and
volatile messages, inside and outside of transactions, with purges, moves, lost connections and crashes, over segments
that a few batches fill, and with starts that are killed before their first batch. After each step two things must hold:
as the disk is at that moment, whether synced or not, the journal alone balances (entered = live + retired, with equal
hash sums and no anomaly); and once the step is done, every count of every queue is the model's, and as many messages of
it are listed.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.broker.admin.examining import Examined, MessagePage
from acquit.broker.admin.later import RequestFailure
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.ledger.balance import balance
from acquit.ledger.events import EventKind
from acquit.protocol.definitions import Accepted, Error, Modified, Rejected, Released
from acquit.protocol.delivery import Delivery
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.message import Message
from tests.support.books import ATTEMPTS_MAX, DEAD, Books, Copy, Transaction
from tests.support.broker_world import SMALL, TINY, Client, World
from tests.support.examples import examples
from tests.support.transacting import Controller

pytestmark = pytest.mark.promise("balance")

OPTIONS = BrokerOptions(
    address=(
        AddressRule("#", {"max_delivery_attempts": ATTEMPTS_MAX}),
        AddressRule("wall", {"non_destructive": True}),
    )
)
SUBSCRIPTIONS = {"news::consumer/one": "one", "news::consumer/two": "two"}
ADDRESSES = ("a", "b", "news", "void", "wall")
TAKEN_FROM = ("a", "b", DEAD, *SUBSCRIPTIONS)
OUTCOMES = {
    "accepted": Accepted(),
    "rejected": Rejected(Error("test:bad", "by chance")),
    "released": Released(),
    "modified": Modified(delivery_failed=False),
    "failed": Modified(delivery_failed=True),
}
COUNTED = ("entered", "accepted", "dead_lettered", "dropped", "purged", "moved_out", "lost_volatile")


class Run:
    """A broker, its one producer and its one consumer, and the books."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.world = World(OPTIONS, journal=random.choice((SMALL, TINY)))
        self.books = Books({"news": list(SUBSCRIPTIONS), "void": []}, {"wall"})
        self.number = 0
        self.connect()

    def connect(self) -> None:
        self.producer: Client = self.world.client("producer")
        self.senders: dict[str, SendingLink] = {}
        for address in ADDRESSES:
            topic = address in self.books.topics
            self.senders[address] = (
                self.producer.publisher(address, address) if topic else self.producer.sender(address, address)
            )
        self.consume()
        self.world.settle()

    def consume(self) -> None:
        self.consumer: Client = self.world.client("consumer")
        self.receivers: dict[str, ReceivingLink] = {}
        for queue in TAKEN_FROM:
            name = SUBSCRIPTIONS.get(queue)
            self.receivers[queue] = (
                self.consumer.receiver(queue, queue, default_outcome=OUTCOMES["failed"])
                if name is None
                else self.consumer.subscriber("news", name, durable=True, credit=0, default_outcome=OUTCOMES["failed"])
            )
        self.control = Controller(self.consumer)
        self.held: list[tuple[str, Copy, Delivery]] = []
        self.open: dict[bytes, Transaction] = {}

    # -- steps --------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        name = self.random.choices(tuple(STEPS), tuple(STEPS.values()))[0]
        getattr(self, name)()
        assert_balanced(self.world)  # what a crash would leave here
        self.world.settle()
        assert_balanced(self.world)
        self.compare()

    def transaction(self) -> bytes | None:
        """One of those that are open, or none."""
        return self.random.choice([None, *self.open])

    def post(self) -> None:
        address, durable = self.random.choice(ADDRESSES), self.random.random() < 0.7
        txn_id = self.transaction()
        for _ in range(self.random.randrange(1, 4)):
            self.number += 1
            name = f"m{self.number}"
            message = Message(name, durable=durable)
            if txn_id is None:
                self.producer.post(self.senders[address], message)
                self.books.post(address, name, durable)
            else:
                # Transactions are the consumer's: it posts over a link of its own.
                link = self.transactional_sender(address)
                self.control.post(link, txn_id, message)
                self.open[txn_id].postings.append((address, name, durable))
        self.world.carry()

    def transactional_sender(self, address: str) -> SendingLink:
        name = f"txn {address}"
        known = [link for link in self.consumer.begun.links if link.name == name]
        if known:
            return known[0]  # type: ignore[no-any-return]
        topic = address in self.books.topics
        return self.consumer.publisher(address, name) if topic else self.consumer.sender(address, name)

    def take(self) -> None:
        queue = self.random.choice(TAKEN_FROM)
        link = self.receivers[queue]
        before = len(self.consumer.received.get(link, []))
        link.grant(1)
        link.drain_credit()
        self.world.settle()
        expected = self.books.take(queue)
        came = self.consumer.received.get(link, [])[before:]
        assert [Message.decode(one.payload).body for one in came] == ([expected.name] if expected else [])
        if expected is not None:
            self.held.append((queue, expected, came[0]))

    def settle(self) -> None:
        if not self.held:
            return
        queue, copy, delivery = self.held.pop(self.random.randrange(len(self.held)))
        said = self.random.choice(tuple(OUTCOMES))
        txn_id = self.transaction()
        if txn_id is None:
            delivery.settle(OUTCOMES[said])
            self.books.settle(queue, copy, said)
        else:
            self.control.retire(txn_id, delivery, outcome=OUTCOMES[said])
            self.open[txn_id].outcomes.append((queue, copy, said))
        self.world.carry()

    def begin(self) -> None:
        if len(self.open) < 3:
            self.open[self.control.declare()] = Transaction()

    def commit(self) -> None:
        self.end(self.books.commit, fail=False)

    def roll_back(self) -> None:
        self.end(self.books.roll_back, fail=True)

    def end(self, in_the_books: object, *, fail: bool) -> None:
        if not self.open:
            return
        txn_id = self.random.choice(list(self.open))
        sent = self.control.discharge(txn_id, fail=fail)
        assert_balanced(self.world)
        self.world.settle()
        assert self.consumer.outcome(sent) == Accepted()
        in_the_books(self.open.pop(txn_id))  # type: ignore[operator]

    def purge(self) -> None:
        queue = self.random.choice((*TAKEN_FROM, "wall"))
        if queue in self.world.core.queues.by_name:
            self.world.purge(queue, None)
            self.books.purge(queue)

    def move(self) -> None:
        queue, to = self.random.sample(("a", "b"), 2)
        if queue not in self.world.core.queues.by_name:
            return
        self.world.core.administration.move(queue, to, None, messages_max=None, selector=None)
        self.books.move(queue, to)

    def lose(self) -> None:
        self.consumer.lose()
        self.lost()
        self.world.settle()
        self.consume()

    def crash(self) -> None:
        self.world.core.tick(self.world.now_us)  # so that the counts of volatile messages are on the disk
        self.world.settle()
        self.world = self.world.crash(self.random.randrange(4))
        self.lost(crashed=True)
        self.connect()

    def lost(self, *, crashed: bool = False) -> None:
        """Rolled back with the connection: outcomes that were never committed are as if they had not been said."""
        for transaction in self.open.values():
            for _, copy, _ in transaction.outcomes:
                copy.acquired = True
        if crashed:
            self.books.crash()
        else:
            self.books.lose()

    # -- what holds ---------------------------------------------------------------------------------------------------

    def compare(self) -> None:
        """Every count of every queue."""
        snapshot = self.world.core.snapshot()
        for queue in {name for name, _ in self.books.counts} | self.books.queues.keys():
            if queue == "void":
                continue
            told = snapshot.queue(queue)
            assert told is not None, queue
            counts = self.books.counts
            assert {name: getattr(told, name) for name in COUNTED} == {name: counts[queue, name] for name in COUNTED}, (
                queue
            )
            copies = self.books.queues.get(queue, [])
            acquired = sum(copy.acquired for copy in copies)
            assert (told.available, told.acquired) == (len(copies) - acquired, acquired), queue
            assert self.listed(queue) == Counter(available=told.available, acquired=told.acquired), queue
        void = self.world.core.topics.by_address["void"]
        assert void.counts[EventKind.UNROUTED] == self.books.counts["void", "unrouted"]

    def listed(self, queue: str) -> Counter[str]:
        """The messages of a queue that operators are shown, page by page: how many are in each state."""
        found: Counter[str] = Counter()
        pages: list[MessagePage[Examined] | RequestFailure] = []
        after: int | None = 0
        while after is not None:
            page = self.world.core.administration.examine(queue, states="all", after=after, limit=3, selector=None)
            page.when_finished(pages.append)
            self.world.carry()
            latest = pages[-1]
            assert isinstance(latest, MessagePage)
            assert all(row.sequence > after for row in latest.rows)
            found.update(row.state for row in latest.rows)
            after = latest.next_after
        return found


STEPS = {
    "post": 6,
    "take": 6,
    "settle": 6,
    "begin": 2,
    "commit": 2,
    "roll_back": 1,
    "purge": 0.3,
    "move": 0.6,
    "lose": 0.4,
    "crash": 0.6,
}


def assert_balanced(world: World) -> None:
    """The journal as it is on the disk, and nothing else."""
    found = balance(world.fold())
    assert found.balanced, (found.anomalies, [row.mismatch for row in found.queues if row.mismatch])


@examples(20)
@given(st.randoms(use_true_random=False), st.integers(5, 60))
def test_every_count_of_every_queue_is_what_plain_bookkeeping_says(random: Random, steps: int) -> None:
    run = Run(random)
    for _ in range(steps):
        run.step()
