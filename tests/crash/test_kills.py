"""kill -9 of a real `acquit serve` under load, again and again on one data folder.

After each kill the journal it left must verify and balance, and the next broker must open it. At the end: no message
that was answered *accepted* is missing, none was delivered after its acknowledgement had been *applied*, and nothing
came twice to a consumer that acknowledges on receipt.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import acquit
from acquit import AckMode
from acquit.demo.children import Children
from acquit.ledger.balance import balance
from acquit.ledger.fold import Fold
from acquit.ledger.verify import verify
from acquit.store.reading import FolderReader
from tests.crash.load import ONCE, WORK, Client, Consumer, Memory, OnceConsumer, Producer
from tests.support.draining import take_all
from tests.support.endpoint import BrokerProcess

pytestmark = pytest.mark.promise("durable", "balance")

DEAD_LETTERS = "DLQ"
PROGRESS = 200
"""Postings answered and acknowledgements applied between one kill and the next, at least."""


def test_three_kills_lose_nothing(tmp_path: Path, rng: random.Random) -> None:
    kill_and_account(tmp_path, rng, kills=3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_kills_lose_nothing(tmp_path: Path, rng: random.Random, soak_rounds: int) -> None:
    kill_and_account(tmp_path, rng, kills=soak_rounds)


def kill_and_account(folder: Path, rng: random.Random, *, kills: int) -> None:
    memory = Memory()
    with Children(folder / "logs") as children:
        broker = BrokerProcess(children, folder / "broker", folder / "endpoint")
        broker.start()
        clients = start_clients(folder / "endpoint", memory, rng)
        for _ in range(kills):
            answered, applied = len(memory.answered) + PROGRESS, len(memory.applied) + PROGRESS
            more = rng.randrange(PROGRESS)
            memory.wait_for(lambda a=answered + more, b=applied: len(memory.answered) >= a and len(memory.applied) >= b)
            broker.kill()
            assert_ledger_holds(folder / "broker")
            broker.start()
        finish(clients)
        letters = drain(broker.url, DEAD_LETTERS)
        remaining = drain(broker.url, WORK) | drain(broker.url, ONCE)
        assert broker.stop() == 0
    assert_ledger_holds(folder / "broker")
    assert memory.losses >= kills, "no client noticed"
    assert remaining == set(), "the consumers left nothing"
    work = {identity for identity in memory.answered if identity.startswith(WORK)}
    assert work - memory.delivered.keys() == set(), "answered accepted, and lost"
    assert memory.delivered.keys() <= memory.sent, "delivered, and never sent"
    assert memory.delivered_after_applied == []
    assert memory.rejected <= letters <= memory.sent
    assert [one for one, count in memory.delivered.items() if one.startswith(ONCE) and count > 1] == []


def start_clients(endpoint: Path, memory: Memory, rng: random.Random) -> list[Client]:
    def seeded() -> random.Random:
        return random.Random(rng.random())

    clients: list[Client] = [Producer(f"producer-{n}", endpoint, memory, seeded(), WORK) for n in range(2)]
    clients.append(Producer("producer-once", endpoint, memory, seeded(), ONCE))
    clients += [Consumer(f"consumer-{n}", endpoint, memory, seeded()) for n in range(2)]
    clients.append(OnceConsumer("consumer-once", endpoint, memory, seeded()))
    for client in clients:
        client.start()
    return clients


def finish(clients: list[Client]) -> None:
    """Producers first, then the consumers when nothing more can come."""
    for kind in (Producer, (Consumer, OnceConsumer)):
        chosen = [client for client in clients if isinstance(client, kind)]
        for client in chosen:
            client.finish.set()
        for client in chosen:
            client.join(60)
            assert not client.is_alive(), f"{client.name} did not finish"
    for failure in clients[0].memory.failures:
        raise failure


def drain(url: str, address: str) -> set[str]:
    with acquit.connect(url) as connection, connection.session(AckMode.AUTO) as session:
        return {str(message.message_id) for message in take_all(session.receiver(address))}


def assert_ledger_holds(data: Path) -> None:
    """The journal is whole, and for each queue what entered is what left and what is there."""
    assert verify(data).problems == ()
    fold = Fold()
    FolderReader(data).replay(fold, archive=True)
    fold.settle()
    found = balance(fold)
    assert found.balanced, [row.mismatch for row in found.queues] + list(found.anomalies)
