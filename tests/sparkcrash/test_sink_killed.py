"""Queue to queue through Spark, killed with -9 at the points of the sink: each message is in the other queue once, on
acquit by the sender's mark, on Artemis by ids."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import acquit
from acquit.ledger.events import EventKind
from acquit.ledger.fold import Fold
from acquit.protocol.message import Message
from acquit.store.reading import FolderReader
from tests.crash.test_kills import assert_ledger_holds
from tests.interop.artemis import Artemis
from tests.sparkcrash.pipelines import Queue, Run
from tests.support.crashing import SINK, arm, passed
from tests.support.sink_program import BATCH

pytestmark = pytest.mark.promise("sink")

COUNT = len(SINK) * BATCH
"""A batch for each point."""
WINDOW = 20_000
"""Ids that Artemis remembers for each address, unless it is told otherwise."""


class Moving:
    """The program, run again and again, and what it has left."""

    def __init__(self, origin: Queue, target: Queue, folder: Path) -> None:
        self.origin, self.target, self._folder = origin, target, folder
        self._last = [origin.url, origin.address, target.address]
        if origin.user is not None:
            (folder / "password").write_text(str(origin.password))
            self._last += [origin.user, str(WINDOW)]
        with origin.session() as session:
            sender = session.sender(origin.address)
            for number in range(COUNT):
                sender.send(Message(f"body {number}", message_id=f"id-{number}"), wait=False)
            sender.flush()

    def killed_at(self, *kills: tuple[str, str]) -> None:
        """A run that passes these points, in one batch each, and is killed at the last."""
        for batch, (point, ending) in enumerate(kills):
            arm(self._folder, point, ending, epoch=batch)
        run = self._run()
        assert [point for point, _ in kills if not passed(self._folder, point)] == [], run.said
        assert run.status != 0, "nobody was killed"

    def finish(self) -> None:
        run = self._run()
        assert run.status == 0, run.said

    def check(self) -> None:
        found: Counter[tuple[object, object]] = Counter()
        with self.target.session() as session:
            receiver = session.receiver(self.target.address, prefetch=2 * COUNT)
            receiver.drain(10)
            for message in receiver.receive_many(2 * COUNT, 0):
                found[message.message_id, message.body] += 1
                message.accept()
        assert found == Counter({(f"id-{number}", f"body {number}"): 1 for number in range(COUNT)})
        assert self.origin.left() == []

    def told(self, what: str) -> dict[int, object]:
        """Of each batch that was brought to its end, what the sink said of this."""
        reports = [json.loads(path.read_text()) for path in (self._folder / "reports").glob("*.json")]
        return {report["batch"]: report[what] for report in reports if report["partitions"]}

    def _run(self) -> Run:
        run = Run(self._folder, "sink_program", str(self._folder), *self._last)
        run.wait()
        return run


def test_a_message_is_in_the_other_queue_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with acquit.Broker(data) as broker:
        moving = Moving(Queue(url=broker.url, address="from"), Queue(url=broker.url, address="to"), tmp_path)
        moving.killed_at(("posting", "worker"), ("posted", "worker"), ("batch-posted", "everything"))
        moving.finish()
        moving.check()
    written, suppressed = moving.told("written"), moving.told("suppressed")
    assert written[2] == 0, "all of the batch was posted, and Spark did not know it"
    assert all(suppressed[batch] for batch in range(len(SINK)))
    assert_ledger_holds(data)
    fold = Fold()
    FolderReader(data).replay(fold)
    (counts,) = (own.counts for number, own in fold.totals().items() if fold.table.queues[number].name == "to")
    assert counts[EventKind.POSTED] == COUNT
    # Of what was posted before, a task sends only the last row again.
    assert counts[EventKind.DUPLICATE] >= len(SINK)


def test_on_artemis_it_is_there_once_by_its_id(artemis: Artemis, address: str, tmp_path: Path) -> None:
    def queue(name: str) -> Queue:
        artemis.queue(name)
        return Queue(url=artemis.url, address=name, user=artemis.username, password=artemis.password)

    origin, target = queue(f"{address}.from"), queue(f"{address}.to")
    moving = Moving(origin, target, tmp_path)
    moving.killed_at(("posted", "worker"), ("posting", "everything"))
    posted = len(target.left())
    moving.finish()
    written = moving.told("written")
    sent = sum(int(str(rows)) for batch, rows in written.items() if batch >= 1)
    assert posted + sent > COUNT, "nothing was posted twice"
    assert {str(by) for by in moving.told("told_by").values()} == {"['ids in _AMQ_DUPL_ID']"}
    moving.check()
