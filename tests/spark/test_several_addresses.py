"""Several queues in one query, their bodies read as JSON, in a real Spark: rows, a replay with another schema, and what
the query says of itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import acquit
from acquit.protocol.message import Message
from acquit.spark.metrics import metrics_of
from acquit.spark.session import reason_of
from acquit.spark.source import AcquitDataSource
from acquit.spark.spool import FolderStore, Spool
from tests.support.crashing import arm, passed
from tests.support.outages import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def post(url: str, address: str, *bodies: str) -> None:
    with acquit.connect(url) as connection, connection.session() as session:
        sender = session.sender(address)
        for number, body in enumerate(bodies):
            sender.send(Message(body, message_id=f"id-{number}"), wait=False)
        sender.flush()


class Reading:
    """A query from queues into a list of rows, started again and again on one checkpoint."""

    def __init__(self, spark: SparkSession, root: Path, **options: str) -> None:
        spark.dataSource.register(AcquitDataSource)
        self.spark = spark
        self.root = root
        self.options = {"spool": str(root / "spool"), "bodyAs": "json"} | options
        self.rows: list[Row] = []

    def run(self, body_schema: str) -> StreamingQuery:
        def keep(frame: DataFrame, _: int) -> None:
            self.rows += frame.select("queue", "message_id", "json", "corrupt").collect()

        frame = self.spark.readStream.format("acquit").options(bodySchema=body_schema, **self.options).load()
        query = (
            frame.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self.root / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    def forget_commit(self) -> None:
        """As if the driver had died before Spark's own commit log said that the newest batch was done."""
        commits = self.root / "checkpoint" / "commits"
        newest = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        (commits / str(newest)).unlink()
        (commits / f".{newest}.crc").unlink(missing_ok=True)


def test_rows_say_their_queue_old_epochs_are_read_by_a_new_schema_and_figures_come_along(
    spark: SparkSession, broker: acquit.Broker, address: str, tmp_path: Path
) -> None:
    north, south = f"{address}.north", f"{address}.south"
    post(broker.url, north, '{"id": 1, "tags": ["a"]}', '{"id": "two"}', '{"id": 3}')
    post(broker.url, south, '{"id": 4}', "not json")
    reading = Reading(spark, tmp_path, url=broker.url, addresses=f"{north}, {south}", parts="1")
    reading.run("id BIGINT, tags ARRAY<STRING>")
    found = {(row.queue, row.message_id): row for row in reading.rows}
    assert len(found) == len(reading.rows) == 5
    assert [found[north, "id-0"].json.asDict(), found[south, "id-0"].json.id] == [{"id": 1, "tags": ["a"]}, 4]
    assert [key for key, row in found.items() if row.corrupt is not None] == [(north, "id-1"), (south, "id-1")]
    assert found[north, "id-1"].json is None

    reading.forget_commit()
    reading.rows.clear()
    post(broker.url, north, '{"id": "six"}')
    # A worker dies between publishing and settling: what it held comes again, to be recognised.
    arm(tmp_path, "published", "worker", epoch=2)
    query = reading.run("id STRING")
    assert passed(tmp_path, "published")
    assert len(reading.rows) == 6
    found = {(row.queue, row.message_id, None if row.json is None else row.json.id) for row in reading.rows}
    assert found == {
        (north, "id-0", "1"), (north, "id-1", "two"), (north, "id-2", "3"), (south, "id-0", "4"),
        (south, "id-1", None), (north, "id-0", "six"),
    }  # fmt: skip
    # As the last batch was planned: that of the sixth message, or the one that set it aside as it came again.
    (metrics,) = metrics_of(query.lastProgress)
    assert metrics.rows in (5, 6) and metrics.queue_depth == {north: 1, south: 0}
    assert replace(metrics, spool_bytes=0, epoch=0, oldest_epoch=None) == replace(
        metrics, spool_bytes=0, epoch=0, oldest_epoch=None, set_aside=0, poison=2, rejected=0, conflicts=0,
        unidentified=0, stale=0, unacknowledged=metrics.unacknowledged,
    )  # fmt: skip
    assert metrics.spool_bytes > 0 and metrics.oldest_epoch is not None

    until(lambda: not broker.inspect().queue(north).acquired, "the broker has seen the worker's end")
    reading.rows.clear()
    reading.run("id STRING")
    totals = Spool(FolderStore(tmp_path / "spool")).status().totals
    assert (totals.rows, totals.set_aside) == (6, 1) and not reading.rows


def test_a_schema_that_is_no_schema_is_refused_when_the_query_is_defined(
    spark: SparkSession, broker: acquit.Broker, address: str, tmp_path: Path
) -> None:
    post(broker.url, address, "1")
    reading = Reading(spark, tmp_path, url=broker.url, address=address)
    with pytest.raises(Exception, match="(?i)syntax") as caught:
        reading.run("id NUMBERS, <")
    assert "\n" not in reason_of(caught.value)
