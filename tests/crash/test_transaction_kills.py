"""kill -9 of a real broker under transactions: each message is in one queue, exactly once, and no answer was a lie."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

import acquit
from acquit import AckMode, Message
from acquit.demo.broker import BrokerProcess
from acquit.demo.children import Children
from acquit.ledger.balance import balance
from acquit.ledger.fold import Fold
from acquit.ledger.verify import verify
from acquit.store.reading import FolderReader
from tests.crash.mover import FROM, TO, Mover
from tests.support.draining import take_all


def test_three_kills_leave_nothing_half_done(tmp_path: Path, rng: random.Random) -> None:
    kill_and_count(tmp_path, rng, kills=3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_kills_leave_nothing_half_done(tmp_path: Path, rng: random.Random, soak_rounds: int) -> None:
    kill_and_count(tmp_path, rng, kills=soak_rounds)


def kill_and_count(folder: Path, rng: random.Random, *, kills: int) -> None:
    count = 100 * (kills + 1)
    everything = {f"m{number}" for number in range(count)}
    with Children(folder / "logs") as children:
        broker = BrokerProcess(children, folder / "broker", folder / "endpoint")
        broker.start()
        with acquit.connect(broker.url) as connection, connection.session() as session:
            sender = session.sender(FROM)
            for receipt in [sender.send(Message(body, durable=True), wait=False) for body in sorted(everything)]:
                receipt.result(30)
        mover = Mover(count)
        mover.broker_is(broker.url)
        mover.start()
        for number in range(kills):
            mover.wait_for(100 * number + rng.randrange(100))
            mover.broker_is(None)
            broker.kill()
            assert_ledger_holds(folder / "broker")
            broker.start()
            mover.broker_is(broker.url)
        mover.wait_for(count)
        mover.join(30)
        assert mover.failure is None
        found = contents(broker.url, TO)
        left = contents(broker.url, FROM)
        assert broker.stop() == 0
    assert_ledger_holds(folder / "broker")
    assert mover.losses >= kills
    assert left == Counter()
    assert found == Counter(dict.fromkeys(everything, 1))
    assert mover.moved == everything


def contents(url: str, address: str) -> Counter[str]:
    with acquit.connect(url) as connection, connection.session(AckMode.AUTO) as session:
        return Counter(str(message.body) for message in take_all(session.receiver(address)))


def assert_ledger_holds(data: Path) -> None:
    """The journal is whole, and for each queue what entered is what left and what is there."""
    assert verify(data).problems == ()
    fold = Fold()
    FolderReader(data).replay(fold, archive=True)
    fold.settle()
    found = balance(fold)
    assert found.balanced, [row.mismatch for row in found.queues] + list(found.anomalies)
