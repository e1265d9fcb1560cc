"""The source in a real Spark: rows, crashes at named points, restarts, and errors that say what is wrong."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import acquit
from acquit.protocol.message import Message
from acquit.spark.columns import FIELDS
from acquit.spark.session import reason_of
from acquit.spark.source import AcquitDataSource
from acquit.spark.spool import FolderStore, Spool
from tests.support.crashing import arm, passed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def post(url: str, address: str, *numbers: int, priority: int = 4) -> None:
    with acquit.connect(url) as connection, connection.session() as session:
        sender = session.sender(address)
        for number in numbers:
            sender.send(Message(f"m{number}", message_id=f"id-{number}", priority=priority), wait=False)
        sender.flush()


def left(url: str, address: str) -> int | None:
    with acquit.connect(url) as connection, connection.session("no-ack") as session:
        receiver = session.receiver(address, prefetch=0, browse=True)
        receiver.refresh(10)
        return receiver.available


class Reading:
    """A query from a queue into a Parquet folder, started again and again on one checkpoint."""

    def __init__(self, spark: SparkSession, url: str, address: str, root: Path, **options: str) -> None:
        spark.dataSource.register(AcquitDataSource)
        self.spark = spark
        self.root = root
        self.options = {"url": url, "address": address, "spool": str(root / "spool"), "parts": "2"} | options

    def frame(self, format_name: str = "acquit", **options: str) -> DataFrame:
        return self.spark.readStream.format(format_name).options(**(self.options | options)).load()

    def run(self, format_name: str = "acquit", **options: str) -> None:
        query = (
            self.frame(format_name, **options)
            .writeStream.format("parquet")
            .option("path", str(self.root / "table"))
            .option("checkpointLocation", str(self.root / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def bodies(self) -> list[str]:
        rows = self.spark.read.parquet(str(self.root / "table")).select("body").collect()
        return sorted(bytes(row.body).decode() for row in rows)


@pytest.fixture
def reading(spark: SparkSession, broker: acquit.Broker, address: str, tmp_path: Path) -> Reading:
    return Reading(spark, broker.url, address, tmp_path)


def named(*numbers: int) -> list[str]:
    return sorted(f"m{number}" for number in numbers)


@pytest.mark.promise("once-in-a-table")
def test_every_posting_once_over_crashes_of_workers_and_a_restart(
    reading: Reading, broker: acquit.Broker, address: str, tmp_path: Path
) -> None:
    post(broker.url, address, *range(100))
    points = ("drained", "published", "settled")
    for epoch, point in enumerate(points, 1):
        arm(tmp_path, point, "worker", epoch=epoch)
    reading.run(maxMessagesPerBatch="25")
    assert all(passed(tmp_path, point) for point in points)
    assert reading.bodies() == named(*range(100))

    # The driver dies after the sink has its batch and before Spark's own commit log says so: the batch is read again.
    commits = tmp_path / "checkpoint" / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink(missing_ok=True)
    post(broker.url, address, *range(100, 110))
    reading.run()
    assert reading.bodies() == named(*range(110))
    totals = Spool(FolderStore(tmp_path / "spool")).status().totals
    assert totals.rows == 110 and totals.set_aside > 0, "what was published and not settled came again"
    assert left(broker.url, address) == 0


def test_workers_spare_what_they_have_imported_their_garbage_collections(
    spark: SparkSession, reading: Reading, broker: acquit.Broker, address: str
) -> None:
    post(broker.url, address, *range(20))
    reading.run(maxMessagesPerBatch="2")  # so that each has had more than one task

    def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.record_batch([[gc.get_freeze_count()]], ["frozen"])

    # More tasks than there are workers, which take turns.
    counts = [row.frozen for row in spark.range(0, 16, 1, 16).mapInArrow(frozen, "frozen long").collect()]
    assert max(counts) > 10_000


def test_columns_by_name_and_types_as_documented(reading: Reading, broker: acquit.Broker, address: str) -> None:
    types = {"bigint": "BIGINT", "string": "STRING", "binary": "BINARY", "boolean": "BOOLEAN", "timestamp": "TIMESTAMP"}
    types |= {"int": "INT", "map<string,string>": "MAP<STRING, STRING>"}
    assert [(name, types[kind]) for name, kind in reading.frame().dtypes] == [(f.name, f.spark_type) for f in FIELDS]
    post(broker.url, address, 1)
    chosen = reading.spark.readStream.format("acquit").schema("body BINARY, sequence BIGINT").options(**reading.options)
    rows: list[tuple[bytes, int]] = []
    query = (
        chosen.load()
        .writeStream.option("checkpointLocation", str(reading.root / "checkpoint"))
        .foreachBatch(lambda frame, _: rows.extend((bytes(row.body), row.sequence) for row in frame.collect()))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert [body for body, _ in rows] == [b"m1"] and rows[0][1] > 0


def test_available_now_takes_what_is_behind_newer_messages(
    reading: Reading, broker: acquit.Broker, address: str
) -> None:
    post(broker.url, address, *range(5))
    batches: list[list[str]] = []

    def keep(frame: DataFrame, _: int) -> None:
        if not batches:
            post(broker.url, address, *range(100, 110), priority=9)
        batches.append([bytes(row.body).decode() for row in frame.collect()])

    query = (
        reading.frame(maxMessagesPerBatch="4")
        .writeStream.option("checkpointLocation", str(reading.root / "checkpoint"))
        .foreachBatch(keep)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert query.exception() is None
    assert sorted(body for batch in batches for body in batch) == named(*range(5))
    assert left(broker.url, address) == 10


@pytest.mark.promise("one-spool")
def test_another_query_may_not_use_the_spool(reading: Reading, broker: acquit.Broker, address: str) -> None:
    post(broker.url, address, 1)
    reading.run()
    shutil.rmtree(reading.root / "checkpoint")
    shutil.rmtree(reading.root / "table")
    post(broker.url, address, 2)
    with pytest.raises(Exception, match="belongs to the query") as caught:
        reading.run()
    # A fresh checkpoint starts at epoch 1, which the spool has; whichever is noticed first names the repair.
    assert "\n" not in reason_of(caught.value)
    assert left(broker.url, address) == 1


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"address": ""}, "option address is missing"),
        ({"poisson": "column"}, "did you mean poison"),
        ({"password": "x"}, "option password is refused"),
        ({"drainTimeout": "2"}, "option draintimeout = '2': expected a time"),
    ],
)
def test_wrong_options_are_named_when_the_query_is_defined(
    reading: Reading, wrong: dict[str, str], reason: str
) -> None:
    with pytest.raises(Exception, match="acquit") as caught:
        reading.frame(**wrong)
    assert reason.lower() in reason_of(caught.value).lower()


def test_a_broker_that_cannot_be_reached_is_named(reading: Reading) -> None:
    with pytest.raises(Exception, match="acquit") as caught:
        reading.run(url="amqp://127.0.0.1:9", connectTimeout="200ms")
    assert reason_of(caught.value).startswith("cannot reach the broker at amqp://127.0.0.1:9 within 0.2 s")
