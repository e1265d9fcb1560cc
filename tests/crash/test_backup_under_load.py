"""Copies of a real broker's folder, taken while it is busy: each is whole, and has all that was answered before."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import acquit
from acquit.demo.children import Children
from acquit.ledger.records import Posting, RecordKind
from acquit.store.backup import USED_MARK, back_up
from acquit.store.reading import FolderReader
from acquit.store.record import walk
from tests.crash.load import ONCE, WORK, Memory
from tests.crash.test_duplicate_kills import CONFIG
from tests.crash.test_kills import assert_ledger_holds, drain, finish, start_clients
from tests.support.endpoint import BrokerProcess

COPIES = 4
PROGRESS = 300


def posted(folder: Path) -> set[str]:
    """Message ids of all postings in a folder, archive and all."""
    reader = FolderReader(folder)
    contents = reader.contents()
    found = set()
    for number in (*contents.archive, *contents.journal):
        with reader.open(number) as segment:
            for head, data in segment.batches():
                for record in walk(head, data):
                    if record.kind == RecordKind.POSTING:
                        found.add(str(Posting.decode(record).message_id))
    return found


@pytest.mark.timeout(180)
def test_copies_of_a_busy_broker(tmp_path: Path, rng: random.Random) -> None:
    memory = Memory()
    config = tmp_path / "acquit.toml"
    config.write_text(CONFIG)
    data = tmp_path / "broker"
    with Children(tmp_path / "logs") as children:
        broker = BrokerProcess(children, data, tmp_path / "endpoint", config=config)
        broker.start()
        clients = start_clients(broker.endpoint, memory, rng)
        answered: list[set[str]] = []
        for number in range(COPIES):
            goal = len(memory.answered) + PROGRESS
            memory.wait_for(lambda goal=goal: len(memory.answered) >= goal)
            with memory.changed:
                answered.append(set(memory.answered))
            back_up(data, tmp_path / f"copy-{number}", archive=True)
        finish(clients)
        assert broker.stop() == 0
    for number in range(COPIES):
        copy = tmp_path / f"copy-{number}"
        assert_ledger_holds(copy)
        assert answered[number] - posted(copy) == set(), "answered before the copy was begun, and not in it"
    last = tmp_path / f"copy-{COPIES - 1}"
    with acquit.Broker(last) as broker2:
        drain(broker2.url, WORK)
        drain(broker2.url, ONCE)
        assert all(not queue.depth for queue in broker2.inspect().queues if queue.name in (WORK, ONCE))
    assert (last / USED_MARK).exists()
    assert_ledger_holds(last)
