"""A redrive in a real Spark, killed with -9 between its requests, and its broker killed with -9 in the middle of them:
each letter is back in its queue once, and is the message that it was."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import acquit
from acquit.demo.children import Children
from acquit.ledger.events import EventKind
from acquit.ledger.fold import Fold
from acquit.protocol.message import Message
from acquit.store.reading import FolderReader
from tests.crash.test_kills import assert_ledger_holds
from tests.sparkcrash.pipelines import Run
from tests.support.crashing import CRASHES, PYTHONPATH, REDRIVE, arm, folder_of, passed
from tests.support.endpoint import BrokerProcess

pytestmark = pytest.mark.promise("redrive")

QUEUES = ("orders", "invoices", "returns")
"""A request for each."""
LETTERS = 5
"""Of each queue."""


def die(url: str) -> Counter[tuple[object, ...]]:
    """Letters of all queues; what each is, and the sequence that it has as one."""
    with acquit.connect(url) as connection, connection.session("individual") as session:
        for queue in QUEUES:
            sender, receiver = session.sender(queue), session.receiver(queue)
            for number in range(LETTERS):
                sender.send(
                    Message(
                        f"{queue} {number}",
                        message_id=f"{queue}-{number}",
                        application_properties={"number": number},
                    )
                )
                received = receiver.receive(timeout=10)
                assert received is not None
                received.reject("shop:closed", "for now")
        letters = session.receiver("DLQ", browse=True).receive_many(LETTERS * len(QUEUES), 10)
        return Counter((*_said(letter), letter.sequence) for letter in letters)


def back(url: str) -> Counter[tuple[object, ...]]:
    """What is in the queues, and the sequences that it says it had as letters."""
    found: Counter[tuple[object, ...]] = Counter()
    with acquit.connect(url) as connection, connection.session("auto") as session:
        for queue in QUEUES:
            receiver = session.receiver(queue)
            receiver.drain(10)
            for message in receiver.receive_many(2 * LETTERS, 0):
                assert str(message.body).startswith(queue)
                found[*_said(message), message.annotations["x-opt-acquit-origin"]] += 1
        left = session.receiver("DLQ", browse=True)
        left.drain(10)
        assert left.receive_many(1, 0) == []
    return found


def _said(message: acquit.ReceivedMessage) -> tuple[object, ...]:
    return message.message_id, message.body, tuple(sorted(message.application_properties.items()))


def test_each_letter_is_back_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CRASHES, str(folder_of(tmp_path)))
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)  # for the broker
    data = tmp_path / "data"
    with Children(tmp_path / "logs") as children:
        broker = BrokerProcess(children, data, tmp_path / "endpoint")
        broker.start()
        port = int(broker.url.rpartition(":")[2])
        letters = die(broker.url)
        assert len(letters) == LETTERS * len(QUEUES)
        arm(tmp_path, "moving", "worker")
        arm(tmp_path, "move-recorded", "worker")
        run = Run(tmp_path, "redrive_program", broker.url)
        try:
            for point in ("moving", "move-recorded"):
                run.wait_until(lambda point=point: passed(tmp_path, point) is not None)  # type: ignore[misc]
                broker.kill()
                assert_ledger_holds(data)
                # What is not answered may have been moved, and is not moved again.
                assert moved(data) == (LETTERS if point == "move-recorded" else 0)
                if point == "move-recorded":
                    arm(tmp_path, "moved", "everything")
                broker.start(port)
        finally:
            run.wait()
        assert [point for point in REDRIVE if passed(tmp_path, point) is None] == [], run.said
        assert run.status != 0
        assert run.output.count("letters were moved for sure: run it again") == 2, run.said
        run = Run(tmp_path, "redrive_program", broker.url)
        run.wait()
        assert run.status == 0, run.said
        assert f"moved {LETTERS} of {LETTERS}" in run.output, run.said
        assert back(broker.url) == letters
        assert broker.stop() == 0
    assert_ledger_holds(data)
    assert moved(data) == LETTERS * len(QUEUES)


def moved(data: Path) -> int:
    """Letters that the ledger says have left the dead letter queue."""
    fold = Fold()
    FolderReader(data).replay(fold)
    queues = fold.table.queues
    totals = {queues[number].name: own.counts for number, own in fold.totals().items() if number in queues}
    out = totals["DLQ"].get(EventKind.MOVED_OUT, 0)
    assert out == sum(totals[queue].get(EventKind.MOVED_IN, 0) for queue in QUEUES)
    return out
