"""What an epoch costs on an object store, in requests: docs/spool.md says these numbers, and they are paid for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from acquit.spark.columns import MessageColumns
from acquit.spark.driver import Offset, StreamDriver
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import Spool, open_store
from tests.support.queue_double import QueueDouble, posting
from tests.support.s3 import Requests
from tests.unit.spark.spool.conftest import bucket, s3_server
from tests.unit.spark.test_driver import ProbeDouble

__all__ = ["bucket", "s3_server"]  # fixtures

READER = MessageColumns("queue")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "spool.md"
WRITES = {"PutObject", "ListObjectsV2"}
"""What is paid ten times as much as a read; deletions are free."""
EPOCHS = 11
"""Of two parts each: as many entries as there are between two checkpoints."""


class Query:
    """A query on an object store: its driver, and a worker for each part that lives as long as the query."""

    def __init__(self, place: str, parts: int) -> None:
        self.queue = QueueDouble()
        options = SourceOptions.parse(
            {"url": "amqp://localhost", "address": "queue", "spool": place, "parts": str(parts)}
        )
        self.driver = StreamDriver(options, Spool(open_store(place)), ProbeDouble(self.queue))
        self.workers = [Spool(open_store(place)) for _ in range(parts)]
        self.place = place
        self.start: Offset = self.driver.initial_offset()

    def epoch(self, first: int) -> None:
        """As Spark goes about it: an epoch of one message for each part, and the one before is committed."""
        self.queue.post(*(posting(first + number) for number in range(len(self.workers))))
        end = self.driver.latest_offset(self.start, len(self.workers))
        self.driver.report()
        if self.start["epoch"]:
            self.driver.commit(self.start)
        for planned, worker in zip(self.driver.partitions(self.start, end), self.workers, strict=True):
            fresh = Spool(open_store(self.place))
            fresh.check_plan(planned.part.epoch, planned.plan)
            fresh.claim("query")
            worker.take(planned.part, self.queue.attach, READER)
        self.start = end


def measured(place: str, parts: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Requests of an epoch, over a checkpoint and its clean-up."""
    query = Query(place, parts)
    query.epoch(1)
    query.epoch(1 + parts)
    requests = Requests(monkeypatch)
    for number in range(2, 2 + EPOCHS):
        query.epoch(1 + number * parts)
    return {verb: count / EPOCHS for verb, count in requests.taken().items()}


@pytest.mark.slow
def test_an_epoch_costs_what_the_page_says(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = 2
    counts = measured(f"s3://{bucket}/spool", parts, monkeypatch)
    writes = sum(count for verb, count in counts.items() if verb in WRITES)
    reads = counts["GetObject"]
    row = re.search(rf"^\| {parts} \| (\d+) \| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert row is not None
    assert writes == pytest.approx(int(row[1]), abs=2), counts
    assert reads == pytest.approx(int(row[2]), abs=2), counts


def test_an_idle_query_costs_no_request(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(f"s3://{bucket}/spool", 2)
    query.epoch(1)
    query.driver.latest_offset(query.start, 2)
    query.driver.report()
    requests = Requests(monkeypatch)
    for _ in range(5):
        assert query.driver.latest_offset(query.start, 2) == query.start
        query.driver.report()
    assert requests.taken() == {}
