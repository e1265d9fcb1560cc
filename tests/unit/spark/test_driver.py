"""The driver: when an epoch begins, what its parts may take, how AvailableNow ends, what is refused."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from acquit.errors import SpoolDamaged, SpoolFenced, SpoolNotShared
from acquit.spark.columns import MessageColumns
from acquit.spark.driver import Driver, Offset
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import FolderStore, Poison, Spool
from tests.support.queue_double import BROKER, QueueDouble, bodies, posting

READER = MessageColumns("queue")


class ProbeDouble:
    """Answers for a `QueueDouble`; `tells` is what an acquit broker does."""

    def __init__(self, queue: QueueDouble, *, tells: bool = True) -> None:
        self.queue = queue
        self.tells = tells
        self.broker_id: UUID | None = BROKER if tells else None
        self.closed = False
        self.asked = 0

    def available(self) -> int | None:
        self.asked += 1
        return len(self.queue.available) if self.tells else None

    def last_sequence(self) -> int | None:
        return max((READER.identify(one, BROKER).sequence or 0 for one in self.queue.available), default=0)

    def close(self) -> None:
        self.closed = True


class Query:
    """A driver with the tasks of its batches, on one spool folder."""

    def __init__(self, root: Path, queue: QueueDouble, *, tells: bool = True, **options: str) -> None:
        self.options = SourceOptions.parse(
            {"url": "amqp://localhost", "address": "queue", "spool": str(root), "parts": "2"} | options
        )
        self.now = 0.0
        self.queue = queue
        self.probe = ProbeDouble(queue, tells=tells)
        self.driver = Driver(self.options, Spool(FolderStore(root)), self.probe, clock=lambda: self.now)
        self.workers = Spool(FolderStore(root))

    def batch(self, start: Offset, end: Offset) -> list[bytes]:
        rows = []
        for planned in self.driver.partitions(start, end):
            self.workers.check_plan(planned.part.epoch, planned.plan)
            rows += bodies(self.workers.take(planned.part, self.queue.attach, READER))
        return rows

    def run(self, start: Offset, rows_max: int | None = 4) -> tuple[list[bytes], Offset]:
        """Batches until the source says that there is nothing."""
        rows = []
        while (end := self.driver.latest_offset(start, rows_max)) != start:
            self.driver.commit(start)
            rows += self.batch(start, end)
            start = end
        return rows, start


def numbered(*numbers: int) -> list[bytes]:
    return [f"m{number}".encode() for number in numbers]


def test_an_idle_query_makes_no_batches(tmp_path: Path) -> None:
    query = Query(tmp_path, QueueDouble())
    start = query.driver.initial_offset()
    assert start == {"epoch": 0, "parts": 2}
    assert query.run(start) == ([], start)
    query.queue.post(posting(1))
    assert query.run(start) == (numbered(1), {"epoch": 1, "parts": 2})


def test_limits_are_shared_among_the_parts(tmp_path: Path) -> None:
    query = Query(tmp_path, QueueDouble(posting(1)), parts="3", maxBytesPerBatch="100", poison="reject")
    start = query.driver.initial_offset()
    end = query.driver.latest_offset(start, 10)
    parts = [planned.part for planned in query.driver.partitions(start, end)]
    assert [part.rows_max for part in parts] == [4, 3, 3]
    assert [part.bytes_max for part in parts] == [34, 33, 33]
    assert {part.poison for part in parts} == {Poison.REJECT}
    assert query.driver.partitions(end, end) == []


def test_without_a_limit_in_messages_the_one_in_bytes_holds(tmp_path: Path) -> None:
    query = Query(tmp_path, QueueDouble(posting(1)), parts="1")
    start = query.driver.initial_offset()
    end = query.driver.latest_offset(start, None)
    assert query.driver.partitions(start, end)[0].part.rows_max == query.options.max_bytes_per_batch


@pytest.mark.parametrize("tells", [True, False])
def test_available_now_reads_what_is_there_and_ends(tmp_path: Path, tells: bool) -> None:
    query = Query(tmp_path, QueueDouble(*(posting(number) for number in range(1, 12))), tells=tells)
    query.driver.begin_available_now()
    rows, end = query.run(query.driver.initial_offset())
    assert sorted(rows) == sorted(numbered(*range(1, 12))) and end["epoch"] >= 3


def test_available_now_does_not_chase_a_producer(tmp_path: Path) -> None:
    queue = QueueDouble(*(posting(number) for number in range(1, 6)))
    query = Query(tmp_path, queue)
    query.driver.begin_available_now()
    queue.post(*(posting(number) for number in range(6, 20)))
    rows, _ = query.run(query.driver.initial_offset(), rows_max=100)
    assert sorted(rows) == numbered(*range(1, 6)) and len(queue.available) == 14


def test_available_now_goes_on_after_an_epoch_that_an_earlier_run_ended(tmp_path: Path) -> None:
    queue = QueueDouble(posting(1))
    first = Query(tmp_path, queue)
    first.driver.begin_available_now()
    start = first.driver.initial_offset()
    end = first.driver.latest_offset(start, 4)
    rows = first.batch(start, end)
    # It dies before the batch is committed; more is posted; the next run repeats the batch, which had come to the end.
    queue.post(posting(2))
    second = Query(tmp_path, queue)
    second.driver.begin_available_now()
    assert second.batch(start, end) == rows
    assert second.run(end)[0] == numbered(2)


def test_a_restart_replays_the_pending_epoch_and_goes_on(tmp_path: Path) -> None:
    queue = QueueDouble(*(posting(number) for number in range(1, 4)))
    first = Query(tmp_path, queue)
    start = first.driver.initial_offset()
    end = first.driver.latest_offset(start, 2)
    rows = first.batch(start, end)
    # Another process, the same offsets, no latest_offset before.
    second = Query(tmp_path, queue)
    assert second.batch(start, end) == rows
    assert second.run(end) == (numbered(3), {"epoch": 2, "parts": 2})


def test_a_replay_has_the_parts_it_was_planned_with(tmp_path: Path) -> None:
    queue = QueueDouble(posting(1))
    Query(tmp_path, queue).run({"epoch": 0, "parts": 2})
    more = Query(tmp_path, queue, parts="5")
    assert len(more.driver.partitions({"epoch": 0, "parts": 2}, {"epoch": 1, "parts": 2})) == 2
    queue.post(posting(2))
    assert more.driver.latest_offset({"epoch": 1, "parts": 2}, 4) == {"epoch": 2, "parts": 5}


def test_on_other_brokers_an_empty_epoch_is_followed_by_a_pause_that_grows(tmp_path: Path) -> None:
    query = Query(tmp_path, QueueDouble(), tells=False)
    start: Offset = query.driver.initial_offset()
    pauses = []
    for _ in range(3):
        end = query.driver.latest_offset(start, 4)
        began = query.now
        while end == start:
            query.now += 0.05
            end = query.driver.latest_offset(start, 4)
        pauses.append(query.now - began)
        assert query.batch(start, end) == []
        start = end
    assert pauses[0] == 0 < pauses[1] < pauses[2]
    query.queue.post(posting(0, b"x", message_id="a"))
    while (end := query.driver.latest_offset(start, 4)) == start:
        query.now += 1
    assert query.batch(start, end) == [b"x"]
    assert query.driver.latest_offset(end, 4) != end, "after rows the next epoch does not wait"


def test_a_checkpoint_older_than_the_spool_is_refused(tmp_path: Path) -> None:
    queue = QueueDouble(posting(1), posting(2))
    query = Query(tmp_path, queue)
    _, end = query.run(query.driver.initial_offset(), rows_max=2)
    query.driver.commit(end)
    queue.post(posting(3))
    old = Query(tmp_path, queue)
    with pytest.raises(SpoolFenced, match="the checkpoint is older than the spool"):
        old.run({"epoch": 0, "parts": 2})


def test_a_lost_spool_is_refused(tmp_path: Path) -> None:
    query = Query(tmp_path / "new", QueueDouble(posting(1)))
    with pytest.raises(SpoolDamaged, match="is empty, but the checkpoint is at epoch 7"):
        query.driver.latest_offset({"epoch": 7, "parts": 2}, 4)
    with pytest.raises(SpoolDamaged, match="is empty, but the checkpoint is at epoch 7"):
        query.driver.partitions({"epoch": 7, "parts": 2}, {"epoch": 8, "parts": 2})


def test_a_task_elsewhere_is_told_that_the_spool_is_not_shared(tmp_path: Path) -> None:
    query = Query(tmp_path / "driver", QueueDouble(posting(1)))
    query.workers = Spool(FolderStore(tmp_path / "worker"))
    with pytest.raises(SpoolNotShared):
        query.run(query.driver.initial_offset())
    assert query.queue.attached == 0


def test_a_batch_that_nobody_reads_does_not_go_on_for_ever(tmp_path: Path) -> None:
    query = Query(tmp_path, QueueDouble(posting(1)))
    query.driver.begin_available_now()
    start: Offset = query.driver.initial_offset()
    end = query.driver.latest_offset(start, 4)
    query.driver.partitions(start, end)  # and foreachBatch ignores the rows
    assert query.driver.latest_offset(end, 4) == end
    assert query.queue.attached == 0


def test_stopping_closes_the_probe(tmp_path: Path) -> None:
    query = Query(tmp_path, QueueDouble())
    query.driver.stop()
    assert query.probe.closed
