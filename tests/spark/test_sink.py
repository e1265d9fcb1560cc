"""The sink in a real Spark: batches and streams as messages, each row once however often its task or batch is run."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

import acquit
from acquit.protocol.message import AmqpValue
from acquit.protocol.sections import scan_sections
from acquit.protocol.types import Int, Timestamp, UInt, ULong
from acquit.spark.columns import FIELDS
from acquit.spark.session import reason_of
from acquit.spark.sink.writers import AcquitWriter, TaskResult
from acquit.spark.source import AcquitDataSource
from tests.support.draining import take_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ROWS = 400
ID = uuid.UUID(int=7)


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(AcquitDataSource)


def taken(url: str, address: str) -> list[acquit.ReceivedMessage]:
    with acquit.connect(url) as connection, connection.session("auto") as session:
        return take_all(session.receiver(address, prefetch=1_000))


def numbers(spark: SparkSession, columns: str = "CAST(id AS STRING) AS body") -> DataFrame:
    return spark.range(0, ROWS, 1, 2).selectExpr(*columns.split("; "))


@pytest.mark.promise("sink")
def test_a_batch_is_posted_once_however_often_it_is_written(spark: SparkSession, tmp_path: Path) -> None:
    columns = "CAST(id AS STRING) AS body; CAST(id % 10 AS INT) AS priority; MAP('n', id) AS application_properties"
    with acquit.Broker() as broker:
        write = (
            numbers(spark, columns)
            .write.format("acquit")
            .mode("append")
            .options(url=broker.url, address="q", runId="monday", report=str(tmp_path / "reports"))
        )
        write.save()
        write.save()
        messages = taken(broker.url, "q")
        assert sorted(int(str(message.body)) for message in messages) == list(range(ROWS))
        assert messages[0].priority == 9
        assert {message.application_properties["n"] for message in messages} == set(range(ROWS))
        assert {str(message.message_id).rpartition(":")[0] for message in messages} == {"monday:0:0", "monday:0:1"}
    report = json.loads((tmp_path / "reports" / "monday.json").read_text())
    assert (report["written"], report["suppressed"], report["partitions"]) == (0, ROWS, 2)
    assert report["told_by"] == ["the sender's mark"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"url": "amqp://127.0.0.1:9", "connectTimeout": "1ms"}, "cannot reach the broker at amqp://127.0.0.1:9"),
        ({"user": "ada", "credential": "env:PASSWORD_OF_NOBODY"}, "credential env:PASSWORD_OF_NOBODY"),
    ],
)
def test_no_connection_is_told_before_anything_runs(
    spark: SparkSession, tmp_path: Path, given: dict[str, str], reason: str
) -> None:
    """In one line, not behind the tracebacks of a task that has failed four times."""
    with acquit.Broker() as broker:
        options = {"url": broker.url, "address": "q", **given}
        stream = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS body")
        query = stream.writeStream.format("acquit").options(**options, checkpointLocation=str(tmp_path)).start()
        with pytest.raises(StreamingQueryException) as of_stream:
            query.awaitTermination(60)
        with pytest.raises(AnalysisException) as of_batch:
            numbers(spark).write.format("acquit").mode("append").options(**options, runId="monday").save()
    for caught in (of_stream, of_batch):
        told = reason_of(caught.value)
        assert reason in told and "\n" not in told
        assert "Task" not in str(caught.value)


class Dying(AcquitWriter):
    """Its first task is killed with kill -9 when some of its rows are posted."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        return super().write(self._deadly(iterator))

    def _deadly(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(iterator):
            if number == 3 and self._kill_once():
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    def _kill_once(self) -> bool:
        assert self._options.report is not None
        try:
            Path(self._options.report, "killed").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class DyingSource(AcquitDataSource):
    """The format, with tasks that die."""

    @classmethod
    def name(cls) -> str:
        return "acquit-dying"

    def writer(self, schema: StructType, overwrite: bool) -> Dying:
        return Dying(self.options, schema, overwrite)


@pytest.mark.promise("sink")
def test_a_worker_that_is_killed_in_its_task(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(DyingSource)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "40")
    try:
        with acquit.Broker() as broker:
            numbers(spark).write.format("acquit-dying").mode("append").options(
                url=broker.url, address="q", runId="run", maxInFlight="20", report=str(tmp_path)
            ).save()
            assert sorted(int(str(message.body)) for message in taken(broker.url, "q")) == list(range(ROWS))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert (tmp_path / "killed").exists()
    report = json.loads((tmp_path / "run.json").read_text())
    assert report["suppressed"] >= 100
    assert report["written"] + report["suppressed"] == ROWS


@pytest.mark.promise("sink")
def test_a_stream_goes_on_where_it_was_killed_before_its_commit(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "files"
    numbers(spark).repartition(2).write.parquet(str(source))

    def run() -> None:
        query = (
            spark.readStream.schema("body STRING")
            .parquet(str(source))
            .writeStream.format("acquit")
            .options(url=broker.url, address="q", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with acquit.Broker() as broker:
        run()
        for name in ("0", ".0.crc"):  # as after a crash between the sink's commit and the query's
            (tmp_path / "checkpoint" / "commits" / name).unlink()
        run()
        assert broker.inspect().queue("q").depth == ROWS
        assert sorted(int(str(message.body)) for message in taken(broker.url, "q")) == list(range(ROWS))


def test_what_the_source_reads_the_sink_writes(spark: SparkSession, tmp_path: Path) -> None:
    with acquit.Broker() as broker:
        with acquit.connect(broker.url) as connection, connection.session() as session:
            sender = session.sender("from")
            for body in (b"bytes", "text", {"a": 1}):
                sender.send(
                    acquit.Message(body, message_id=f"id-{body!r}", subject="s", application_properties={"k": "v"})
                )
        query = (
            spark.readStream.format("acquit")
            .options(url=broker.url, address="from", spool=str(tmp_path / "spool"), parts="1")
            .load()
            .writeStream.format("acquit")
            .options(url=broker.url, address="to", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        messages = taken(broker.url, "to")
    assert [message.body for message in messages] == [b"bytes", "text", {"a": 1}]
    assert {(message.subject, message.application_properties["k"]) for message in messages} == {("s", "v")}
    assert [message.message_id for message in messages] == [f"id-{body!r}" for body in (b"bytes", "text", {"a": 1})]
    assert len(FIELDS) >= 15


@pytest.mark.parametrize(
    ("columns", "options", "mode", "expected"),
    [
        ("id AS body", {"runId": "r"}, "append", "column body is int64, expected BINARY or STRING"),
        ("CAST(id AS STRING) AS body", {}, "append", "a batch write has no id of its own"),
        ("CAST(id AS STRING) AS body", {"runId": "r"}, "overwrite", "cannot be taken back"),
        (
            "CAST(id AS STRING) AS body; IF(id = 7, 300, 4) AS priority",
            {"runId": "r"},
            "append",
            "row 7 of partition 0, batch 0 (id r:0:0:7): the column priority is 300",
        ),
    ],
)
def test_what_is_wrong_is_one_readable_line(
    spark: SparkSession, columns: str, options: dict[str, str], mode: str, expected: str
) -> None:
    with acquit.Broker() as broker, pytest.raises(Exception) as raised:  # noqa: PT011  # PySpark's own classes
        numbers(spark, columns).write.format("acquit").mode(mode).options(url=broker.url, address="q", **options).save()
    reason = reason_of(raised.value)
    assert expected in reason
    assert "\n" not in reason


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("update", "acquit does not support Update mode"), ("complete", "output mode complete: .*; use append")],
)
def test_a_stream_is_appended(spark: SparkSession, tmp_path: Path, mode: str, expected: str) -> None:
    counted = (
        spark.readStream.format("rate").load().groupBy("value").count().selectExpr("CAST(value AS STRING) AS body")
    )
    with acquit.Broker() as broker:
        sink = {"url": broker.url, "address": "q", "checkpointLocation": str(tmp_path)}
        query = counted.writeStream.format("acquit").outputMode(mode).options(**sink).start()
        with pytest.raises(StreamingQueryException, match=expected):
            query.awaitTermination()


def test_a_copy_of_all_columns_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    message = acquit.Message(
        AmqpValue({"a": UInt(1), "id": ID}),
        durable=True,
        priority=9,
        message_id=ID,
        correlation_id=ULong(5),
        reply_to="answers",
        content_encoding="gzip",
        group_id="g",
        group_sequence=3,
        application_properties={"int": Int(5), "long": 5, "text": "5", "id": ID, "when": Timestamp(7), "bytes": b"5"},
    )
    with acquit.Broker() as broker:
        with acquit.connect(broker.url) as connection, connection.session() as session:
            session.sender("from").send(message)
        source = {"url": broker.url, "address": "from", "spool": str(tmp_path / "spool")}
        query = (
            spark.readStream.format("acquit")
            .options(**source)
            .load()
            .writeStream.format("acquit")
            .options(url=broker.url, address="to", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert query.exception() is None
        (found,) = taken(broker.url, "to")
        assert scan_sections(found.payload).bare_message == scan_sections(message.encode()).bare_message
        assert (found.durable, found.priority) == (True, 9)
