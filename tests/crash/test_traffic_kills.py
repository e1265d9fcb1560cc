"""kill -9 of a real broker under transactions into queues and a topic at once, consumed in transactions and otherwise.

At the end every posting of every transaction that was committed (as the answer said, or the broker when it was asked)
has been in each place it belongs exactly once, and nothing of any other transaction has been anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from acquit.demo.children import Children
from acquit.ledger.balance import balance
from acquit.ledger.fold import Fold
from acquit.store.reading import FolderReader
from tests.crash.test_kills import assert_ledger_holds
from tests.crash.traffic import QUEUES, SUBSCRIPTIONS, TOPIC, Books, Consumer, Posting, Producer, Worker
from tests.crash.wire import Wire
from tests.support.endpoint import BrokerProcess

pytestmark = pytest.mark.promise("transactions", "topics")

CONFIG = """
[journal]
segment_bytes = 1_048_576
recovery_bytes_max = 2_097_152
reserve_segments = 1

[[address]]
match = "#"
max_delivery_attempts = 0
"""
PROGRESS = 40
"""Transactions ended between one kill and the next, at least."""


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_kills_under_transactions_of_several_places(tmp_path: Path, rng: random.Random, soak_rounds: int) -> None:
    kill_and_count(tmp_path, rng, kills=max(3, soak_rounds))


def kill_and_count(folder: Path, rng: random.Random, *, kills: int) -> None:
    config = folder / "acquit.toml"
    config.write_text(CONFIG)
    books = Books()

    def seeded() -> random.Random:
        return random.Random(rng.random())

    with Children(folder / "logs") as children:
        broker = BrokerProcess(children, folder / "broker", folder / "endpoint", config=config)
        broker.start()
        consumers = [
            Consumer(place, books, seeded(), transactional=place in (QUEUES[0], SUBSCRIPTIONS[0]))
            for place in (*QUEUES, *SUBSCRIPTIONS)
        ]
        subscribe(broker.url, consumers)
        producers = [Producer(f"producer-{number}", books, seeded()) for number in range(2)]
        books.broker_is(broker.url)
        for worker in (*consumers, *producers):
            worker.start()
        for _ in range(kills):
            goal = books.transactions + PROGRESS + rng.randrange(PROGRESS)
            books.wait_for(lambda goal=goal: books.transactions >= goal)
            books.broker_is(None)
            broker.kill()
            assert_ledger_holds(folder / "broker")
            broker.start()
            books.broker_is(broker.url)
        finish(producers, books)
        finish(consumers, books)
        assert broker.stop() == 0
    assert_ledger_holds(folder / "broker")

    assert books.losses >= kills * len(consumers), "not everybody noticed"
    assert books.void, "nothing was rolled back: the test shows less than it says"
    expected = in_places(books.committed)
    assert expected.isdisjoint(in_places(books.void))
    assert books.sequences.keys() - expected == set(), "delivered, and not committed"
    assert expected - books.sequences.keys() == set(), "committed, and lost"
    assert {one: seen for one, seen in books.sequences.items() if len(seen) != 1} == {}, "posted twice"
    assert books.again == []
    transactional = {consumer.place for consumer in consumers if consumer.transactional}
    assert {one for one in expected - books.retired if one[0] in transactional} == set()
    assert entered(folder / "broker") == {
        place: (sum(one[0] == place for one in expected), 0) for place in (*QUEUES, *SUBSCRIPTIONS)
    }


def subscribe(url: str, consumers: Sequence[Consumer]) -> None:
    """Begin the subscriptions, before anything is posted."""
    for consumer in consumers:
        wire = Wire(url, consumer.name)
        with wire.socket:
            consumer.attach(wire)


def finish(workers: Sequence[Worker], books: Books) -> None:
    for worker in workers:
        worker.finish.set()
    for worker in workers:
        worker.join(60)
        assert not books.failures, books.failures
        assert not worker.is_alive(), f"{worker.name} did not finish"


def in_places(postings: set[Posting]) -> set[Posting]:
    """Where each of them belongs: what was posted to the topic, to both subscriptions."""
    return {(place, body) for where, body in postings for place in (SUBSCRIPTIONS if where == TOPIC else (where,))}


def entered(data: Path) -> dict[str, tuple[int, int]]:
    """From the journal alone: how many messages entered each place, and how many are there."""
    fold = Fold()
    FolderReader(data).replay(fold, archive=True)
    fold.settle()
    return {
        row.name.rpartition("/")[2]: (sum(row.entered.values()), row.live.total)
        for row in balance(fold).queues
        if row.entered
    }
