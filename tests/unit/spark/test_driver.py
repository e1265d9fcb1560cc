"""The driver: when an epoch begins, what its parts may take, how AvailableNow ends, what is refused."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from unittest.mock import ANY

import pytest

from acquit.errors import SpoolDamaged, SpoolFenced, SpoolNotShared, SpoolOwned
from acquit.spark.columns import MessageColumns
from acquit.spark.driver import Offset, StreamDriver, spread
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import FolderStore, Poison, Spool, attempt
from acquit.spark.spool.repair import RepairOptions, TakeOver, repair
from tests.support.queue_double import BROKER, DrainDouble, QueueDouble, bodies, posting, sequence_of

READER = MessageColumns("queue")


class ProbeDouble:
    """Answers for a `QueueDouble`; `tells` is what an acquit broker does."""

    def __init__(self, queue: QueueDouble, *, tells: bool = True) -> None:
        self.queue = queue
        self.tells = tells
        self.closed = False
        self.asked = 0

    def available(self, address: str) -> int | None:
        self.asked += 1
        return len(self.queue.available) if self.tells else None

    def last_sequence(self) -> int | None:
        return max(map(sequence_of, self.queue.available), default=0) if self.tells else None

    def older(self, address: str, until: int) -> bool:
        return bool(self.queue.older(until))

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
        self.slept: list[float] = []
        self.driver = StreamDriver(
            self.options, Spool(FolderStore(root)), self.probe, clock=lambda: self.now, sleep=self.slept.append
        )
        self.workers = Spool(FolderStore(root))

    def batch(self, start: Offset, end: Offset) -> list[bytes]:
        rows = []
        for planned in self.driver.partitions(start, end):
            self.workers.check_plan(planned.part.epoch, planned.plan)
            if planned.source is not None:
                self.workers.claim_source(planned.source)
            attach = partial(self.queue.attach, planned.only_until)
            rows += bodies(self.workers.take(planned.part, attach, READER))
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
    assert not query.probe.closed, "it will be asked again and again"
    query.queue.post(posting(1))
    assert query.run(start) == (numbered(1), {"epoch": 1, "parts": 2, "source": ANY, "plan": ANY})


def test_an_idle_query_answers_later_each_time_up_to_a_quarter_of_a_second(tmp_path: Path) -> None:
    query = Query(tmp_path, QueueDouble())
    start = query.driver.initial_offset()
    for _ in range(7):
        assert query.driver.latest_offset(start, 4) == start
    assert query.slept == [0.01, 0.02, 0.04, 0.08, 0.16, 0.25, 0.25]
    query.queue.post(posting(1))
    _, start = query.run(start)
    assert query.slept[7:] == [0.01], "it had something, and then nothing"


def test_a_run_that_ends_does_not_wait(tmp_path: Path) -> None:
    query = Query(tmp_path, QueueDouble(posting(1)))
    query.driver.begin_available_now()
    query.run(query.driver.initial_offset())
    assert query.slept == []


def test_limits_are_shared_among_the_parts(tmp_path: Path) -> None:
    query = Query(tmp_path, QueueDouble(posting(1)), parts="3", maxBytesPerBatch="100", poison="reject")
    start = query.driver.initial_offset()
    end = query.driver.latest_offset(start, 10)
    parts = [planned.part for planned in query.driver.partitions(start, end)]
    assert [part.rows_max for part in parts] == [4, 3, 3]
    assert [part.bytes_max for part in parts] == [34, 33, 33]
    assert {part.poison for part in parts} == {Poison.REJECT}
    assert query.driver.partitions(end, end) == []


def test_the_parts_of_a_run_are_told_from_those_of_another_run(tmp_path: Path) -> None:
    first, second = Query(tmp_path, QueueDouble(posting(1))), Query(tmp_path, QueueDouble())
    start = first.driver.initial_offset()
    end = first.driver.latest_offset(start, 4)

    def runs(query: Query) -> set[str]:
        return {planned.run for planned in query.driver.partitions(start, end)}

    assert runs(first) == runs(first) and len(runs(first) | runs(second)) == 2


def test_without_a_limit_in_messages_the_one_in_bytes_holds(tmp_path: Path) -> None:
    query = Query(tmp_path, QueueDouble(posting(1)), parts="1")
    start = query.driver.initial_offset()
    end = query.driver.latest_offset(start, None)
    assert query.driver.partitions(start, end)[0].part.rows_max == query.options.max_bytes_per_batch


def test_without_a_limit_in_messages_no_link_is_asked_for_more_credit_than_there_is(tmp_path: Path) -> None:
    query = Query(tmp_path, QueueDouble(posting(1)), parts="1", maxBytesPerBatch="1000g")
    start = query.driver.initial_offset()
    end = query.driver.latest_offset(start, None)
    assert query.driver.partitions(start, end)[0].part.rows_max == 100_000_000


@pytest.mark.parametrize("tells", [True, False])
def test_available_now_reads_what_is_there_and_ends(tmp_path: Path, tells: bool) -> None:
    query = Query(tmp_path, QueueDouble(*(posting(number) for number in range(1, 12))), tells=tells)
    query.driver.begin_available_now()
    rows, end = query.run(query.driver.initial_offset())
    assert sorted(rows) == sorted(numbered(*range(1, 12))) and end["epoch"] >= 3


def test_available_now_lets_the_connection_go_at_its_end(tmp_path: Path) -> None:
    """Whoever is killed then has lost nothing, and the broker has no lost connection to tell of."""
    query = Query(tmp_path, QueueDouble(posting(1)))
    query.driver.begin_available_now()
    start = query.driver.initial_offset()
    end = query.driver.latest_offset(start, 4)
    assert query.batch(start, end) == numbered(1)
    assert not query.probe.closed
    assert query.driver.latest_offset(end, 4) == end
    assert query.probe.closed
    assert query.driver.latest_offset(end, 4) == end, "it may be asked again"


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


@pytest.mark.parametrize("rows_max", [1, 4, 100])
@pytest.mark.parametrize("newer_max", [2, 1_000])
def test_available_now_takes_what_is_behind_newer_messages_of_a_higher_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_max: int, newer_max: int
) -> None:
    monkeypatch.setattr(attempt, "NEWER_MAX", newer_max)
    queue = QueueDouble(*(posting(number) for number in range(1, 6)), order=lambda payload: (sequence_of(payload) < 6,))
    query = Query(tmp_path, queue)
    query.driver.begin_available_now()
    queue.post(*(posting(number) for number in range(6, 16)))
    rows, end = query.run(query.driver.initial_offset(), rows_max)
    assert sorted(rows) == numbered(*range(1, 6)) and len(queue.available) == 10
    assert end["epoch"] <= 1 + 5, "one to meet the newer ones, and no more that give nothing"


def test_available_now_takes_what_was_given_back_after_all_parts_had_ended(tmp_path: Path) -> None:
    """An attempt that lost against its copy had taken them."""
    query = Query(tmp_path, QueueDouble(posting(1), posting(2), posting(3)))
    query.driver.begin_available_now()
    start = query.driver.initial_offset()
    end = query.driver.latest_offset(start, 100)
    loser = query.queue.attach()
    loser.receive(2)
    assert query.batch(start, end) == numbered(3)
    loser.detach()
    assert query.run(end)[0] == numbered(1, 2)


def test_available_now_does_not_wait_for_what_is_handed_to_nobody_here(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As what belongs to a group that another consumer has."""
    query = Query(tmp_path, QueueDouble(posting(1)))
    query.driver.begin_available_now()
    query.queue.attach = QueueDouble().attach  # type: ignore[method-assign]
    rows, end = query.run(query.driver.initial_offset())
    assert (rows, end["epoch"]) == ([], 2) and "queue has messages from before the run" in caplog.text


def test_available_now_ends_on_a_queue_that_keeps_what_is_accepted(tmp_path: Path) -> None:
    """Each link is given all of it again, and all is set aside: nothing says that there is an end."""
    query = Query(tmp_path, QueueDouble(posting(1), posting(2)))
    query.driver.begin_available_now()
    query.queue.attach = lambda until=None: QueueDouble(posting(1), posting(2)).attach(until)  # type: ignore[method-assign]
    start, rows = query.driver.initial_offset(), list[bytes]()
    for _ in range(4):
        end = query.driver.latest_offset(start, 100)
        if end == start:
            break
        rows += query.batch(start, end)
        start = end
    else:
        pytest.fail("it goes on and on")
    assert sorted(rows) == numbered(1, 2)


def test_available_now_does_not_chase_a_trickle_that_leaves_no_time_to_see_the_end(tmp_path: Path) -> None:
    class Trickle(DrainDouble):
        """Newer ones go on coming, one by one, until the time is up, and a consumer elsewhere takes most of them."""

        def receive(self, rows_max: int) -> Sequence[bytes]:
            if self._held and sequence_of(self._held[-1]) > 5:
                return []
            if not self._queue.available:
                self._queue.post(posting(6))
            return super().receive(rows_max)

        def detach(self) -> None:
            self._held = self._held[-1:]
            super().detach()

    query = Query(tmp_path, QueueDouble(posting(5)))
    query.driver.begin_available_now()
    query.queue.attach = lambda until=None: Trickle(query.queue, until)  # type: ignore[method-assign]
    rows, end = query.run(query.driver.initial_offset())
    assert rows == numbered(5) and end["epoch"] <= 2


@pytest.mark.parametrize("tells", [True, False])
def test_available_now_goes_on_behind_what_a_lost_query_has_published(tmp_path: Path, tells: bool) -> None:
    """Its parts had come to the end of the queue, as it was then."""
    first = Query(tmp_path, filled(1, tells=tells), tells=tells)
    first.workers.claim("query-1")
    start = first.driver.initial_offset()
    first.batch(start, first.driver.latest_offset(start, 100))
    repair(FolderStore(tmp_path), RepairOptions(take_over=TakeOver.REPLAY))
    query = Query(tmp_path, filled(2, 3, tells=tells), tells=tells)
    query.driver.begin_available_now()
    assert sorted(query.run(query.driver.initial_offset())[0]) == numbered(1, 2, 3)


def test_a_restart_replays_the_pending_epoch_and_goes_on(tmp_path: Path) -> None:
    queue = QueueDouble(*(posting(number) for number in range(1, 4)))
    first = Query(tmp_path, queue)
    start = first.driver.initial_offset()
    end = first.driver.latest_offset(start, 2)
    rows = first.batch(start, end)
    # Another process, the same offsets, no latest_offset before.
    second = Query(tmp_path, queue)
    assert second.batch(start, end) == rows
    assert second.run(end) == (numbered(3), end | {"epoch": 2, "plan": ANY})


def test_a_replay_has_the_parts_it_was_planned_with(tmp_path: Path) -> None:
    queue = QueueDouble(posting(1))
    Query(tmp_path, queue).run({"epoch": 0, "parts": 2})
    more = Query(tmp_path, queue, parts="5")
    assert len(more.driver.partitions({"epoch": 0, "parts": 2}, {"epoch": 1, "parts": 2})) == 2
    queue.post(posting(2))
    end = more.driver.latest_offset({"epoch": 1, "parts": 2}, 4)
    assert end == {"epoch": 2, "parts": 5, "source": ANY, "plan": ANY}


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


def test_a_spool_that_is_lost_within_the_first_epoch_is_refused(tmp_path: Path) -> None:
    """What it took is acknowledged, and not in the table."""
    queue = QueueDouble(*(posting(number) for number in range(1, 5)))
    first = Query(tmp_path / "spool", queue)
    start = first.driver.initial_offset()
    end = first.driver.latest_offset(start, 4)
    # Spark writes the offset now. Killed right after that, nothing is lost, and it goes on.
    assert Query(tmp_path / "spool", queue).batch(start, end) == numbered(1, 2, 3, 4)
    shutil.rmtree(tmp_path / "spool")
    queue.post(posting(5))
    with pytest.raises(SpoolDamaged, match="is empty, but the checkpoint is at epoch 1"):
        Query(tmp_path / "spool", queue).batch(start, end)
    assert len(queue.available) == 1


@pytest.mark.parametrize("replayed", [True, False])
def test_a_log_that_has_lost_its_newest_entry_is_refused(tmp_path: Path, replayed: bool) -> None:
    """What it published is acknowledged; the batch may be committed, or Spark asks for it again."""
    queue = QueueDouble(*(posting(number) for number in range(1, 5)))
    first = Query(tmp_path, queue, parts="1")
    start = first.driver.initial_offset()
    end = first.driver.latest_offset(start, 4)
    assert first.batch(start, end) == numbered(1, 2, 3, 4)
    max((tmp_path / "log").iterdir()).unlink()
    queue.post(posting(5))
    again = Query(tmp_path, queue, parts="1")
    with pytest.raises(SpoolDamaged, match="the entry of the log that acknowledged/1-0-.* is missing") as caught:
        again.batch(start, end) if replayed else again.run(end)
    assert "\n" not in str(caught.value) and len(queue.available) == 1


@pytest.mark.parametrize("replayed", [True, False])
@pytest.mark.parametrize("lost", ["000000000001", "000000000002"], ids=["of the floor", "of a part"])
def test_a_log_that_has_lost_an_entry_before_others_is_refused(tmp_path: Path, lost: str, replayed: bool) -> None:
    """Its settlements are taken, though nobody knows: its part would be drained again, and its rows be in no table."""
    queue = QueueDouble(*(posting(number) for number in range(1, 6)))
    queue.answers = False
    first = Query(tmp_path, queue, parts="1")
    start = first.driver.initial_offset()
    end = first.driver.latest_offset(start, 1)
    assert first.batch(start, end) == numbered(1)
    start, end = end, first.driver.latest_offset(end, 4)
    first.driver.commit(start)
    assert first.batch(start, {**end, "parts": 2}) == numbered(2, 3, 4, 5)
    (tmp_path / "log" / lost).unlink()
    queue.post(posting(6))
    again = Query(tmp_path, queue, parts="1")
    with pytest.raises(SpoolDamaged, match=f"log/{lost} is missing, and there are entries after it") as caught:
        again.batch(start, end) if replayed else again.run(end)
    assert "\n" not in str(caught.value) and len(queue.available) == 1


def test_a_log_that_has_lost_an_entry_whose_rows_come_again_goes_on(tmp_path: Path) -> None:
    queue = QueueDouble(posting(1))
    queue.answers = False
    first = Query(tmp_path, queue, parts="1")
    start = first.driver.initial_offset()
    end = first.driver.latest_offset(start, 4)
    assert first.batch(start, end) == numbered(1)
    max((tmp_path / "log").iterdir()).unlink()
    queue.post(*(() if queue.available else (posting(1),)))
    assert Query(tmp_path, queue, parts="1").batch(start, end) == numbered(1)


def test_a_spool_that_is_older_than_the_checkpoint_is_refused(tmp_path: Path) -> None:
    queue = QueueDouble(*(posting(number) for number in range(1, 9)))
    query = Query(tmp_path / "spool", queue)
    _, end = query.run(query.driver.initial_offset(), rows_max=4)
    shutil.copytree(tmp_path / "spool", tmp_path / "backup")
    queue.post(*(posting(number) for number in range(9, 17)))
    _, end = query.run(end, rows_max=4)
    assert Query(tmp_path / "spool", queue).driver.latest_offset(end, 4) == end
    with pytest.raises(SpoolDamaged, match="has finished epoch 1, but the checkpoint is at epoch 4"):
        Query(tmp_path / "backup", queue).driver.latest_offset(end, 4)


def test_a_spool_that_is_an_epoch_older_than_the_checkpoint_is_refused(tmp_path: Path) -> None:
    """A copy at rest, one epoch before: that epoch was published and acknowledged, and its batch has failed."""
    queue = QueueDouble(posting(1), posting(2))
    _, start = Query(tmp_path / "spool", queue).run({"epoch": 0, "parts": 2}, rows_max=1)
    shutil.copytree(tmp_path / "spool", tmp_path / "backup")
    queue.post(posting(3))
    failing = Query(tmp_path / "spool", queue)
    end = failing.driver.latest_offset(start, 4)
    failing.driver.commit(start)
    assert failing.batch(start, end) == numbered(3)
    queue.post(posting(4))
    with pytest.raises(SpoolDamaged, match="does not know that epoch 2 has begun, .* is older than the ch") as caught:
        Query(tmp_path / "backup", queue).batch(start, end)
    assert "\n" not in str(caught.value) and len(queue.available) == 1
    assert Query(tmp_path / "spool", queue).batch(start, end) == numbered(3)
    # A checkpoint from before offsets had the number of a plan: what cannot be told is let pass, as it was.
    assert Query(tmp_path / "backup", queue).batch(start, {"epoch": 2, "parts": 2}) == numbered(4)


def test_a_query_that_was_killed_before_an_epoch_was_said_to_be_done_goes_on(tmp_path: Path) -> None:
    """Spark says it after it has written down that the next begins, and when it asks for that again, not at all."""
    queue = QueueDouble(posting(1), posting(2))
    _, start = Query(tmp_path, queue).run({"epoch": 0, "parts": 2}, rows_max=1)
    queue.post(posting(3))
    end = Query(tmp_path, queue).driver.latest_offset(start, 4)
    again = Query(tmp_path, queue)
    assert again.batch(start, end) == numbered(3)
    assert again.driver.latest_offset(end, 4) == end
    queue.post(posting(4))
    assert Query(tmp_path, queue).run(end)[0] == numbered(4)


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


def test_two_sources_of_a_query_do_not_share_a_spool(tmp_path: Path) -> None:
    """Their tasks bear one query id, and would take each other's parts for their own."""
    first, second = Query(tmp_path, QueueDouble(posting(1))), Query(tmp_path, QueueDouble(posting(2)))
    start = first.driver.initial_offset()
    end, other = first.driver.latest_offset(start, 4), second.driver.latest_offset(start, 4)
    assert first.batch(start, end) == numbered(1)
    with pytest.raises(SpoolOwned, match="another source.* name another `spool`") as caught:
        second.batch(start, other)
    assert "\n" not in str(caught.value) and second.queue.attached == 0
    again = Query(tmp_path, QueueDouble())
    assert again.batch(start, end) == numbered(1), "the number is in the offset"
    third = Query(tmp_path, QueueDouble(posting(3)))
    with pytest.raises(SpoolOwned, match="another source.* name another `spool`"):
        third.driver.latest_offset(start, 4)
    assert Query(tmp_path, QueueDouble()).driver.latest_offset(end, 4) == end, "its own goes on"


def test_a_source_from_before_it_had_a_number_gets_one(tmp_path: Path) -> None:
    query = Query(tmp_path, QueueDouble(posting(1)))
    start, end = query.driver.initial_offset(), {"epoch": 1, "parts": 2}
    query.driver.latest_offset(start, 4)
    assert query.batch(start, end) == numbered(1)
    query.queue.post(posting(2))
    rows, after = query.run(end)
    assert rows == numbered(2) and after == end | {"epoch": 2, "source": ANY, "plan": ANY}


def test_stopping_closes_the_probe(tmp_path: Path) -> None:
    query = Query(tmp_path, QueueDouble())
    query.driver.stop()
    assert query.probe.closed


# -- several addresses ------------------------------------------------------------------------------------------------


class Several(Query):
    """A query that reads several queues, each named as in `queues`."""

    def __init__(self, root: Path, queues: dict[str, QueueDouble], *, tells: bool = True, **options: str) -> None:
        super().__init__(root, QueueDouble(), tells=tells, **options)
        self.options = SourceOptions.parse(
            {"url": "amqp://localhost", "addresses": ",".join(queues), "spool": str(root), "parts": "2"} | options
        )
        self.queues = queues
        self.driver = StreamDriver(self.options, Spool(FolderStore(root)), self, clock=lambda: self.now)
        self.tells = tells

    def available(self, address: str) -> int | None:
        return len(self.queues[address].available) if self.tells else None

    def last_sequence(self) -> int | None:
        waiting = [one for queue in self.queues.values() for one in queue.available]
        return max((one or 0 for one in READER.identify(waiting, BROKER).sequences), default=0) if self.tells else None

    def older(self, address: str, until: int) -> bool:
        return bool(self.queues[address].older(until))

    def close(self) -> None:
        """There is nothing open."""

    def batch(self, start: Offset, end: Offset) -> list[bytes]:
        rows = []
        for planned in self.driver.partitions(start, end):
            queue, reader = self.queues[planned.address], MessageColumns(planned.address)
            rows += bodies(self.workers.take(planned.part, partial(queue.attach, planned.only_until), reader))
        return rows


def filled(*numbers: int, tells: bool = True) -> QueueDouble:
    if tells:
        return QueueDouble(*(posting(number) for number in numbers))
    messages = (posting(0, f"m{number}".encode(), message_id=str(number)) for number in numbers)
    return QueueDouble(*messages, broker_id=None)


@pytest.mark.parametrize(
    ("depths", "parts", "shares"),
    [
        ({"a": 5}, 3, {"a": 3}),
        ({"a": None, "b": None}, 5, {"a": 3, "b": 2}),
        ({"a": 1, "b": 1, "c": 1}, 2, {"a": 1, "b": 1, "c": 1}),
        ({"a": 900, "b": 90, "c": 10}, 10, {"a": 8, "b": 1, "c": 1}),
        ({"a": 10, "b": 20}, 6, {"a": 2, "b": 4}),
    ],
)
def test_parts_are_spread_over_addresses_by_what_lies_there(
    depths: dict[str, int | None], parts: int, shares: dict[str, int]
) -> None:
    assert Counter(spread(depths, parts)) == shares


def test_an_epoch_reads_the_addresses_that_have_something(tmp_path: Path) -> None:
    query = Several(tmp_path, {"a": filled(1, 2), "b": filled(), "c": filled(3)})
    start: Offset = query.driver.initial_offset()
    end = query.driver.latest_offset(start, 10)
    assert end == {"epoch": 1, "parts": 2, "source": ANY, "plan": ANY}
    assert [planned.address for planned in query.driver.partitions(start, end)] == ["a", "c"]
    assert sorted(query.batch(start, end)) == numbered(1, 2, 3)
    assert query.driver.latest_offset(end, 10) == end
    query.queues["b"].post(posting(4))
    end2 = query.driver.latest_offset(end, 10)
    assert end2 == end | {"epoch": 2, "plan": ANY}
    assert [planned.address for planned in query.driver.partitions(end, end2)] == ["b", "b"]


def test_a_replay_of_an_epoch_of_an_earlier_run_needs_no_memory_of_who_read_what(tmp_path: Path) -> None:
    queues = {"a": filled(), "b": filled(1), "c": filled(2)}
    first = Several(tmp_path, queues)
    start: Offset = first.driver.initial_offset()
    end = first.driver.latest_offset(start, 10)
    assert [planned.address for planned in first.driver.partitions(start, end)] == ["b", "c"]
    # One part is published; then the driver dies. The next run gives the other part to another address.
    planned = first.driver.partitions(start, end)[0]
    rows = bodies(first.workers.take(planned.part, queues["b"].attach, MessageColumns("b")))
    second = Several(tmp_path, queues)
    assert [planned.address for planned in second.driver.partitions(start, end)] == ["a", "b"]
    replayed = second.batch(start, end)
    assert rows == numbered(1) and replayed == rows, "the other part came to be empty"
    assert second.run(end)[0] == numbered(2)


@pytest.mark.parametrize("tells", [True, False])
def test_available_now_reads_each_address_to_its_end(tmp_path: Path, tells: bool) -> None:
    queues = {"a": filled(*range(1, 12), tells=tells), "b": filled(20, tells=tells), "c": filled(tells=tells)}
    query = Several(tmp_path, queues, tells=tells)
    query.driver.begin_available_now()
    rows, end = query.run(query.driver.initial_offset(), rows_max=6)
    assert sorted(rows) == sorted(numbered(*range(1, 12), 20)) and end["epoch"] >= 3


@pytest.mark.parametrize("tells", [True, False])
def test_available_now_does_not_end_at_an_address_that_a_limit_left_unread(tmp_path: Path, tells: bool) -> None:
    """A limit of rows in foreachBatch is often filled by the first tasks: the others never run."""
    query = Several(tmp_path, {"a": filled(1, tells=tells), "b": filled(2, tells=tells)}, tells=tells)
    query.driver.begin_available_now()
    start: Offset = query.driver.initial_offset()
    rows = []
    while (end := query.driver.latest_offset(start, 10)) != start:
        planned = query.driver.partitions(start, end)[0]
        attach = partial(query.queues[planned.address].attach, planned.only_until)
        rows += bodies(query.workers.take(planned.part, attach, MessageColumns(planned.address)))
        start = end
    assert rows == numbered(1, 2)


@pytest.mark.parametrize("tells", [True, False])
def test_available_now_chases_no_producer_at_any_address(tmp_path: Path, tells: bool) -> None:
    """While one address is still being read, another that has come to its end gets more, and more, and more."""
    queues = {"slow": filled(*range(1, 20), tells=tells), "busy": filled(100, tells=tells)}
    query = Several(tmp_path, queues, tells=tells)
    query.driver.begin_available_now()
    rows: list[bytes] = []
    start: Offset = query.driver.initial_offset()
    number = 200
    while (end := query.driver.latest_offset(start, 4)) != start:
        rows += query.batch(start, end)
        late = posting(number) if tells else posting(0, f"m{number}".encode(), message_id=str(number))
        queues["busy"].post(late)
        start, number = end, number + 1
        assert number < 230, "it must end"
    assert set(numbered(*range(1, 20), 100)) <= set(rows)
    assert len(rows) <= 22, "of what came later, at most what was seen before the end"


def test_an_address_that_had_nothing_is_left_alone_while_others_are_read(tmp_path: Path) -> None:
    query = Several(tmp_path, {"busy": filled(*range(1, 90), tells=False), "idle": filled(tells=False)}, tells=False)
    start: Offset = query.driver.initial_offset()
    read = []
    for _ in range(10):
        end = query.driver.latest_offset(start, 4)
        read.append({planned.address for planned in query.driver.partitions(start, end)})
        query.batch(start, end)
        start, query.now = end, query.now + 0.05
    assert all("busy" in addresses for addresses in read)
    assert 2 <= sum("idle" in addresses for addresses in read) <= 5


@pytest.mark.parametrize("given", [{"selector": "colour = 'red'"}, {}], ids=["a selector", "a group of another's"])
def test_what_is_not_handed_out_makes_no_batch_after_batch(tmp_path: Path, given: dict[str, str]) -> None:
    """What is available is not for us: the broker says that there are messages, and hands none out."""
    queue = filled(1)
    query = Several(tmp_path, {"a": queue}, **given)
    start: Offset = query.driver.initial_offset()
    end = query.driver.latest_offset(start, 4)
    for planned in query.driver.partitions(start, end):
        query.workers.take(planned.part, QueueDouble().attach, READER)
    assert query.driver.latest_offset(end, 4) == end
    query.now += 10
    assert query.driver.latest_offset(end, 4) != end


def test_what_comes_beside_messages_that_are_not_handed_out_is_not_waited_for(tmp_path: Path) -> None:
    queue = filled(1)
    query = Several(tmp_path, {"a": queue})
    end = query.driver.latest_offset(query.driver.initial_offset(), 4)
    for planned in query.driver.partitions(query.driver.initial_offset(), end):
        query.workers.take(planned.part, QueueDouble().attach, READER)
    assert query.driver.latest_offset(end, 4) == end
    queue.post(posting(2))
    assert query.driver.latest_offset(end, 4) != end


# -- what the driver reports ------------------------------------------------------------------------------------------


def test_the_report_counts_what_the_spool_has_seen(tmp_path: Path) -> None:
    queue = QueueDouble(posting(1), posting(2), posting(3, damaged=True))
    query = Query(tmp_path, queue, parts="1")
    query.driver.begin_available_now()
    start: Offset = query.driver.initial_offset()
    assert query.driver.report().rows == 0 and query.driver.report().oldest_epoch is None
    end = query.driver.latest_offset(start, 10)
    query.batch(start, end)
    assert query.driver.latest_offset(end, 10) == end, "at its end"
    queue.post(posting(1))
    assert query.driver.latest_offset(end, 10) == end
    found = query.driver.report()
    assert (found.epoch, found.rows, found.poison, found.rejected, found.set_aside) == (1, 3, 1, 0, 0)
    assert found.spool_bytes > 0 and found.oldest_epoch == 1
    assert found.queue_depth == {"queue": 1}
    fresh = Query(tmp_path, queue, parts="1")
    end2 = fresh.driver.latest_offset(end, 10)
    fresh.batch(end, end2)
    query.now += 60
    assert (query.driver.report().set_aside, query.driver.report().rows) == (1, 3)
    query.driver.commit(end2)
    query.now += 60
    assert (query.driver.report().spool_bytes, query.driver.report().oldest_epoch) == (0, None)


def test_settlements_without_an_answer_are_counted(tmp_path: Path) -> None:
    query = Query(tmp_path, QueueDouble(posting(1), posting(2)), parts="1")
    query.queue.answers = False
    start: Offset = query.driver.initial_offset()
    end = query.driver.latest_offset(start, 10)
    query.batch(start, end)
    query.driver.latest_offset(end, 10)
    assert query.driver.report().unacknowledged == 1
    query.driver.commit(end)
    query.now += 60
    assert query.driver.report().unacknowledged == 0, "finished"


def test_an_attempt_that_came_to_nothing_is_counted(tmp_path: Path) -> None:
    query = Query(tmp_path, QueueDouble(posting(1), posting(2)), parts="2")
    start: Offset = query.driver.initial_offset()
    end = query.driver.latest_offset(start, 10)
    query.batch(start, end)
    # What a sleeper leaves that wrote its rows and found its part decided.
    (tmp_path / "data" / "1-0-0123456789abcdef0123456789abcdef.arrow").write_bytes(b"rows")
    query.driver.commit(end)
    assert query.driver.report().stale == 1
    query.driver.commit(end)
    assert query.driver.report().stale == 1


def test_an_idle_query_does_not_look_at_the_spool_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(tmp_path, QueueDouble())
    looked = []
    held = Spool.held
    monkeypatch.setattr(Spool, "held", lambda self: looked.append(1) or held(self))
    for _ in range(100):
        query.driver.latest_offset({"epoch": 0, "parts": 2}, 4)
        query.driver.report()
        query.now += 0.01
    assert len(looked) == 1


def test_depth_is_unknown_where_the_broker_does_not_tell(tmp_path: Path) -> None:
    query = Query(tmp_path, QueueDouble(), tells=False)
    query.driver.latest_offset(query.driver.initial_offset(), 4)
    assert query.driver.report().queue_depth == {"queue": None}


def test_an_idle_query_asks_the_broker_and_not_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(tmp_path, QueueDouble(posting(1)))
    _, start = query.run(query.driver.initial_offset())
    query.driver.report()
    monkeypatch.setattr(FolderStore, "get", None)
    monkeypatch.setattr(FolderStore, "names", None)
    for _ in range(3):
        assert query.driver.latest_offset(start, 4) == start
        assert query.driver.report().rows == 1


def lost_checkpoint(root: Path, take_over: TakeOver) -> None:
    """A query of three epochs in three parts each, the last one not finished; and its checkpoint is gone."""
    queue = QueueDouble()
    query = Query(root, queue, parts="3")
    query.workers.claim("query-1")
    start = query.driver.initial_offset()
    for number in range(1, 10, 3):
        queue.post(*(posting(number + more) for more in range(3)))
        _, start = query.run(start, rows_max=3)
    assert start["epoch"] == 3
    repair(FolderStore(root), RepairOptions(take_over=take_over))


def test_a_query_with_a_new_checkpoint_does_not_begin_where_another_stands(tmp_path: Path) -> None:
    query = Query(tmp_path, QueueDouble(posting(1), posting(2)))
    query.workers.claim("query-1")
    _, start = query.run(query.driver.initial_offset(), rows_max=2)
    query.driver.commit(start)
    again = Query(tmp_path, QueueDouble(posting(3)))
    with pytest.raises(SpoolOwned, match=r"belongs to the query query-1, which has finished epoch 1.*--take-over"):
        again.driver.initial_offset()


@pytest.mark.parametrize("messages", [(), (10,)])
def test_a_spool_that_is_taken_over_gives_out_what_it_holds_first(tmp_path: Path, messages: tuple[int, ...]) -> None:
    lost_checkpoint(tmp_path, TakeOver.REPLAY)
    query = Query(tmp_path, QueueDouble(*map(posting, messages)), parts="1")
    start = query.driver.initial_offset()
    assert start == {"epoch": 2, "parts": 1}
    end = query.driver.latest_offset(start, 100)
    assert end == {"epoch": 3, "parts": 3, "source": ANY, "plan": ANY}, (
        "as many parts as it was published with, though there may be nothing new"
    )
    assert sorted(query.batch(start, end)) == numbered(7, 8, 9)
    assert query.run(end)[0] == numbered(*messages)


def test_a_spool_that_is_taken_over_may_leave_out_what_the_table_has(tmp_path: Path) -> None:
    lost_checkpoint(tmp_path, TakeOver.FINISH)
    query = Query(tmp_path, QueueDouble(*(posting(number) for number in (1, 5, 9, 10))), parts="1")
    start = query.driver.initial_offset()
    assert start["epoch"] == 3
    assert query.run(start)[0] == numbered(10), "what was taken before is recognised"
