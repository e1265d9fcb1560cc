"""Tasks of Spark's sink whose broker is killed, again and again, and which are themselves cut off and run anew: each
row is in its queue once, in its order, and the journal holds.

What runs is what a task of Spark runs (`write_rows`), without Spark. Segments are small, so that the records of marks
have left the recovery set by the end and only what was copied forward tells of them.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import acquit
from acquit.demo.children import Children
from acquit.errors import AcquitError
from acquit.ledger.events import EventKind
from acquit.ledger.fold import Fold
from acquit.store.reading import FolderReader
from tests.crash.test_duplicate_kills import CONFIG
from tests.crash.test_kills import assert_ledger_holds
from tests.support.draining import take_all
from tests.support.endpoint import BrokerProcess
from tests.support.outages import until

pytestmark = pytest.mark.promise("marks", "sink")

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

KILLS = 4
PARTITIONS = 3
ROWS = 600
"""Of one partition of one batch."""
ATTEMPTS_MAX = 100


class CutOff(Exception):
    """This attempt of the task is killed."""


class Task(threading.Thread):
    """Writes its partition of one batch after the other, each in as many attempts as it takes."""

    def __init__(self, partition: int, url: str, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.partition = partition
        self.finish = threading.Event()
        self.batches = 0
        self.rows = 0
        """Given to a poster, in all attempts together."""
        self.suppressed = 0
        self.failure: BaseException | None = None
        self._url = url
        self._rng = rng

    def run(self) -> None:
        try:
            while not self.finish.is_set():
                self._write(self.batches)
                self.batches += 1
        except BaseException as why:
            self.failure = why

    def _write(self, batch: int) -> None:
        from acquit.spark.sink.options import SinkOptions
        from acquit.spark.sink.poster import TaskOrigin
        from acquit.spark.sink.writers import write_rows

        options = SinkOptions.parse({"url": self._url, "address": f"q{self.partition}", "maxInFlight": "100"})
        for _ in range(ATTEMPTS_MAX):
            ends = self._rng.randrange(ROWS) if self._rng.random() < 0.5 else ROWS
            try:
                result = write_rows(options, TaskOrigin("query", batch, self.partition), self._rows(batch, ends))
            except (CutOff, AcquitError):
                continue
            assert result.suppressed is not None
            assert result.written + result.suppressed == ROWS
            self.suppressed += result.suppressed
            return
        raise AssertionError(f"batch {batch} was not written in {ATTEMPTS_MAX} attempts")

    def _rows(self, batch: int, ends: int) -> Iterator[object]:
        for begin in range(0, ROWS, 20):
            if begin >= ends:
                raise CutOff
            bodies = [f"{batch}.{number}".ljust(700) for number in range(begin, begin + 20)]
            self.rows += len(bodies)
            yield pa.RecordBatch.from_pydict({"body": bodies})


@pytest.mark.slow
def test_each_row_is_posted_once_whatever_is_killed(tmp_path: Path, rng: random.Random) -> None:
    config = tmp_path / "acquit.toml"
    config.write_text(CONFIG)
    with Children(tmp_path / "logs") as children:
        broker = BrokerProcess(children, tmp_path / "broker", tmp_path / "endpoint", config=config)
        broker.start()
        port = int(broker.url.rpartition(":")[2])
        tasks = [Task(partition, broker.url, random.Random(rng.random())) for partition in range(PARTITIONS)]
        for task in tasks:
            task.start()
        progressed = threading.Event()
        for _ in range(KILLS):
            goal = [task.rows + ROWS + rng.randrange(ROWS) for task in tasks]
            while not all(task.rows >= rows or task.failure for task, rows in zip(tasks, goal, strict=True)):
                progressed.wait(0.01)
            broker.kill()
            assert_ledger_holds(tmp_path / "broker")
            broker.start(port)
        for task in tasks:
            task.finish.set()
        for task in tasks:
            task.join(120)
            assert not task.is_alive()
            assert task.failure is None, task.failure
        for task in tasks:
            with acquit.connect(broker.url) as connection, connection.session("auto") as session:
                rows = take_all(session.receiver(f"q{task.partition}", prefetch=500))
            found = [str(message.body).strip() for message in rows]
            assert found == [f"{batch}.{number}" for batch in range(task.batches) for number in range(ROWS)]
        until(lambda: any((tmp_path / "broker" / "archive").glob("*.seg")), "a segment leaves")
        assert broker.stop() == 0
    assert sum(task.suppressed for task in tasks) > ROWS, "hardly anything was posted again: it shows nothing"
    assert_ledger_holds(tmp_path / "broker")
    fold = Fold()
    FolderReader(tmp_path / "broker").replay(fold)
    assert fold.left_through > 0
    for number, totals in fold.totals().items():
        task = tasks[int(fold.table.queues[number].name[1:])]
        assert totals.counts[EventKind.POSTED] == task.batches * ROWS
