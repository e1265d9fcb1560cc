"""The pipeline: into Delta and Parquet, over restarts, with an account, and errors in one line."""

from __future__ import annotations

import itertools
import re
import shutil
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import acquit
from acquit.client.tls import make_ssl_context
from acquit.errors import ConfigurationError, PipelineFailed
from acquit.protocol.message import Message
from acquit.spark.audit.reconciled import Finding
from acquit.spark.columns import BY_NAME
from acquit.spark.delta import DeltaAppender
from acquit.spark.ingest import IngestOptions, IngestProgress, IngestSummary, TableFormat, ingest
from acquit.spark.ingest_checks import check_body_schema
from acquit.spark.spool import FolderStore
from acquit.spark.spool.repair import RepairOptions, TakeOver, repair
from tests.support.guarded import ADA, CA, guarded_broker, split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def post(url: str, address: str, *numbers: int) -> None:
    with acquit.connect(url) as connection, connection.session() as session:
        sender = session.sender(address)
        for number in numbers:
            properties = {"number": number}
            sender.send(Message(f"m{number}", application_properties=properties, creation_time=number), wait=False)
        sender.flush()


def delta_bodies(table: Path) -> list[str]:
    found = []
    for uri in DeltaTable(table).file_uris():
        found += [body.decode() for body in pq.read_table(uri.removeprefix("file://"))["body"].to_pylist()]
    return sorted(found)


def forget_newest_commit(checkpoint: Path) -> None:
    commits = checkpoint / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink(missing_ok=True)


class Pipeline:
    def __init__(
        self, spark: SparkSession, url: str, address: str | tuple[str, ...], table: Path, **options: object
    ) -> None:
        self.spark = spark
        self.options = IngestOptions(url=url, address=address, table=table, **options)  # type: ignore[arg-type]
        self.progress: list[IngestProgress] = []

    def run(self) -> IngestSummary:
        return ingest(self.options, spark=self.spark, on_progress=self.progress.append)


@pytest.mark.promise("sink-takes-once")
def test_into_delta(spark: SparkSession, broker: acquit.Broker, address: str, tmp_path: Path) -> None:
    post(broker.url, address, *range(50))
    table = tmp_path / "table"
    pipeline = Pipeline(spark, broker.url, address, table, source={"maxMessagesPerBatch": "30"})
    summary = pipeline.run()
    assert (summary.rows, summary.taken.rows, summary.taken.set_aside, summary.batches) == (50, 50, 0, 2)
    assert [step.rows for step in pipeline.progress] == [30, 50]
    assert delta_bodies(table) == sorted(f"m{number}" for number in range(50))
    assert [field.name for field in DeltaTable(table).schema().fields] == list(BY_NAME)

    # The driver dies after the table has the batch and before Spark's commit log says so.
    forget_newest_commit(table / "_acquit" / "checkpoint")
    post(broker.url, address, 50)
    assert pipeline.run().rows == 1
    assert delta_bodies(table) == sorted(f"m{number}" for number in range(51))
    assert pipeline.run().rows == 0, "nothing new, nothing done"


def test_work_that_was_put_back_and_is_older_than_the_table_is_caught_up(
    spark: SparkSession, broker: acquit.Broker, address: str, tmp_path: Path
) -> None:
    """Batches that the table has are passed over unread, and are no end of the queue."""
    pipeline = Pipeline(spark, broker.url, address, tmp_path / "table", work=tmp_path / "work", parts=1)
    for number in range(3):
        post(broker.url, address, number)
        assert pipeline.run().rows == 1
        if number == 0:
            shutil.copytree(tmp_path / "work", tmp_path / "backup")
    shutil.rmtree(tmp_path / "work")
    (tmp_path / "backup").rename(tmp_path / "work")
    post(broker.url, address, 3)
    assert pipeline.run().rows == 1
    assert delta_bodies(tmp_path / "table") == ["m0", "m1", "m2", "m3"]
    assert broker.inspect().queue(address).depth == 0


def test_over_tls_with_a_certificate(spark: SparkSession, address: str, tmp_path: Path) -> None:
    cert, key = split(tmp_path)
    with guarded_broker() as broker:
        shown = make_ssl_context(CA, ADA, None)
        with acquit.connect(broker.url, ssl_context=shown) as connection, connection.session() as session:
            session.sender(address).send(Message("m1"))
        tls = {"ca": CA, "cert": cert, "key": key}
        pipeline = Pipeline(spark, broker.url, address, tmp_path / "table", **tls)
        assert pipeline.run().rows == 1
        assert broker.inspect().queue(address).depth == 0
        key.unlink()
        with pytest.raises(ConfigurationError, match=f"option key = {key} on the driver: cannot be read"):
            pipeline.run()
    assert delta_bodies(tmp_path / "table") == ["m1"]


@pytest.mark.promise("sink-takes-once")
def test_into_parquet(spark: SparkSession, broker: acquit.Broker, address: str, tmp_path: Path) -> None:
    post(broker.url, address, 1, 2)
    pipeline = Pipeline(
        spark, broker.url, address, tmp_path / "table", format=TableFormat.PARQUET, columns=("body", "created_at")
    )
    summary = pipeline.run()
    assert summary.rows == 2
    rows = spark.read.parquet(str(tmp_path / "table")).orderBy("created_at").collect()
    assert [(bytes(row.body), row.created_at.microsecond) for row in rows] == [(b"m1", 1_000), (b"m2", 2_000)]

    # The driver dies after the table has the batch and before Spark's commit log says so.
    work = tmp_path / "table" / "_acquit"
    forget_newest_commit(work / "checkpoint")
    post(broker.url, address, 3)
    assert pipeline.run().rows == 1
    assert spark.read.parquet(str(tmp_path / "table")).count() == 3

    # Its batches would be counted from 0 again, which the table has; what the spool holds would be passed over.
    shutil.rmtree(work / "checkpoint")
    repair(FolderStore(work / "spool"), RepairOptions(take_over=TakeOver.REPLAY))
    post(broker.url, address, 4)
    with pytest.raises(ConfigurationError, match="has batches up to 1, .* is new: .*; or name another table"):
        pipeline.run()
    assert broker.inspect().queue(address).depth == 1
    other = Pipeline(
        spark, broker.url, address, tmp_path / "new", format=TableFormat.PARQUET, spool=str(work / "spool")
    )
    assert other.run().rows == 2
    rows = spark.read.parquet(str(tmp_path / "new")).collect()
    assert sorted(bytes(row.body) for row in rows) == [b"m3", b"m4"], "the last epoch again, and what came since"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_until_interrupted(
    spark: SparkSession,
    broker: acquit.Broker,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    from pyspark.sql.streaming.query import StreamingQuery

    post(broker.url, address, 1)
    pipeline = Pipeline(spark, broker.url, address, tmp_path / "table", trigger="0 seconds")
    real = StreamingQuery.awaitTermination
    waits = itertools.count()

    def wait(query: StreamingQuery, timeout: int | None = None) -> bool | None:
        # As a user would: a second posting when the first has arrived, and ctrl-C when that has.
        if len(pipeline.progress) >= 1 and next(waits) == 0:
            post(broker.url, address, 2)
        if len(pipeline.progress) >= 2:
            signal.raise_signal(number)
        return real(query, timeout)

    monkeypatch.setattr(StreamingQuery, "awaitTermination", wait)
    before = signal.signal(number, signal.default_int_handler)
    try:
        assert pipeline.run().rows == 2
    finally:
        signal.signal(number, before)


def test_a_failure_is_one_line(spark: SparkSession, broker: acquit.Broker, address: str, tmp_path: Path) -> None:
    post(broker.url, address, 1)
    source = {"poison": "fail", "missingIdentity": "fail", "identityField": "application-properties.order"}
    pipeline = Pipeline(
        spark, "amqp://127.0.0.1:9", address, tmp_path / "t", source={"connectTimeout": "1ms", **source}
    )
    with pytest.raises(PipelineFailed) as caught:
        pipeline.run()
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("cannot reach the broker at amqp://127.0.0.1:9")
    # Of the query itself, where nothing was asked before.
    source = {"connectTimeout": "1ms", **source}
    pipeline = Pipeline(spark, "amqp://127.0.0.1:9", address, tmp_path / "t", create=True, source=source)
    with pytest.raises(PipelineFailed) as caught:
        pipeline.run()
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("cannot reach the broker at amqp://127.0.0.1:9")


def test_a_queue_that_is_not_there_is_refused_unless_it_may_be_made(
    spark: SparkSession, broker: acquit.Broker, address: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=f"there is no queue '{address}'"):
        Pipeline(spark, broker.url, address, tmp_path / "t").run()
    assert all(queue.name != address for queue in broker.inspect().queues)
    assert Pipeline(spark, broker.url, address, tmp_path / "t", create=True).run().rows == 0
    assert broker.inspect().queue(address).depth == 0


def test_several_queues_with_decoded_bodies_into_partitions(
    spark: SparkSession, broker: acquit.Broker, address: str, tmp_path: Path
) -> None:
    other = f"{address}/b =%é"
    post(broker.url, address, *range(4))
    post(broker.url, other, *range(4, 8))
    table = tmp_path / "table"
    pipeline = Pipeline(
        spark,
        broker.url,
        (address, other),
        table,
        columns=("queue", "text", "sequence"),
        partition_by=("queue", "posted_day"),
        source={"bodyAs": "text", "selector": "number <> 3"},
    )
    assert pipeline.run().rows == 7
    assert all(step.left is not None for step in pipeline.progress)
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert {row["text"]: row["queue"] for row in rows} == {
        **{f"m{number}": address for number in range(3)},
        **{f"m{number}": other for number in range(4, 8)},
    }
    assert {row["posted_day"] for row in rows} <= {datetime.now(UTC).date(), datetime.now(UTC).date() - timedelta(1)}
    assert DeltaTable(table).metadata().partition_columns == ["queue", "posted_day"]


@pytest.mark.promise("sink-takes-once")
def test_the_ledger_says_whether_all_of_it_is_in_the_table(spark: SparkSession, tmp_path: Path) -> None:
    table, data = tmp_path / "table", tmp_path / "data"
    with acquit.Broker(data) as broker:
        post(broker.url, "orders", *range(5))
        with acquit.connect(broker.url) as connection, connection.session() as session:
            assert session.receiver("orders").receive(timeout=10) is not None  # accepted, and in no table
        found = Pipeline(spark, broker.url, "orders", table, columns=("sequence",), ledger=data).run().reconciliation
    assert found is not None
    assert (found.equal, found.ledger_rows, found.other_rows) == (False, 5, 4)
    assert found.counts == {Finding.MISSING: 1}


def test_a_table_with_other_columns_is_refused(
    spark: SparkSession, broker: acquit.Broker, address: str, tmp_path: Path
) -> None:
    post(broker.url, address, 1)
    Pipeline(spark, broker.url, address, tmp_path / "table", columns=("body",)).run()
    post(broker.url, address, 2)
    other = Pipeline(
        spark, broker.url, address, tmp_path / "table", columns=("body", "subject"), work=tmp_path / "other work"
    )
    with pytest.raises(ConfigurationError, match="has the columns body; this pipeline writes body, subject"):
        other.run()


def test_a_parquet_table_of_another_schema_of_bodies_is_refused(
    spark: SparkSession, broker: acquit.Broker, address: str, tmp_path: Path
) -> None:
    post(broker.url, address, 1)
    given = {"format": TableFormat.PARQUET, "columns": ("sequence", "json", "corrupt")}
    first = {"bodyAs": "json", "bodySchema": "id BIGINT NOT NULL"}
    pipeline = Pipeline(spark, broker.url, address, tmp_path / "t", source=first, **given)
    pipeline.run()
    post(broker.url, address, 2)
    other = Pipeline(spark, broker.url, address, tmp_path / "t", source={**first, "bodySchema": "id STRING"}, **given)
    with pytest.raises(ConfigurationError, match="json is struct<id:bigint>, this pipeline writes struct<id:string>"):
        other.run()
    assert broker.inspect().queue(address).depth == 1
    assert pipeline.run().rows == 1


@pytest.mark.parametrize(
    ("body_schema", "complaint"),
    [
        ("id BIGINT, tags ARRAY<STRING>, m MAP<STRING, STRUCT<a: TIMESTAMP_NTZ>>", None),
        ("id BIGNT", "expected DDL such as .*; Spark says: .*BIGNT"),
        ("v VARCHAR(3)", r"json.v is VARCHAR\(3\), whose length nobody holds bodies to: use STRING"),
        ("a ARRAY<STRUCT<c: CHAR(3)>>", r"json.a\[\].c is CHAR\(3\), whose length"),
        ("i INTERVAL DAY TO SECOND", "json.i is .*, which cannot be read from JSON"),
        ("i INTERVAL YEAR TO MONTH", "it has a type that cannot be read from JSON; Spark says: .*YearMonth"),
        ("t TIME", "json.t is .*, which cannot be read from JSON"),
        ("n VOID", "json.n is null, which cannot be read from JSON"),
        ("x VARIANT", "json.x is VARIANT, which is not read from JSON here: use STRING"),
        ("m MAP<INT, INT>", "json.m is a map whose keys are int32; JSON has STRING keys alone"),
        ("id BIGINT, id BIGINT", "json has the member id twice"),
        (
            "m MAP<STRING, STRUCT<id: BIGINT, ID: STRING>>",
            r"json.m\[\] has the member ID twice; names that differ by case",
        ),
    ],
    ids=str,
)
def test_a_schema_of_bodies_that_cannot_be_is_refused(
    spark: SparkSession, tmp_path: Path, body_schema: str, complaint: str | None
) -> None:
    source = {"bodyAs": "json", "bodySchema": body_schema}
    options = IngestOptions(url="amqp://host", address="a", table=tmp_path / "t", source=source)
    if complaint is None:
        check_body_schema(options)
    else:
        told = f"^option bodySchema = {re.escape(repr(body_schema))}: .*{complaint}"
        with pytest.raises(ConfigurationError, match=told) as caught:
            check_body_schema(options)
        assert "\n" not in str(caught.value)


def test_a_delta_table_of_another_schema_of_bodies_is_refused(
    spark: SparkSession, broker: acquit.Broker, address: str, tmp_path: Path
) -> None:
    DeltaAppender(tmp_path / "t", pa.schema([("json", pa.struct([("id", pa.int64())]))]), "query").commit(0, [])
    source = {"bodyAs": "json", "bodySchema": "id STRING"}
    with pytest.raises(
        ConfigurationError, match="its column json is struct<id: int64>, this pipeline writes struct<id: s"
    ):
        Pipeline(spark, broker.url, address, tmp_path / "t", columns=("json",), source=source, create=True).run()


def test_what_can_be_known_beforehand(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="columns: price given; the source has message_id"):
        IngestOptions(url="amqp://host", address="a", table=tmp_path, columns=("price",))
    json = {"bodyAs": "json", "bodySchema": "id BIGINT"}
    with pytest.raises(ConfigurationError, match="bodyAs = json makes the column json, .* columns body: choose it, or"):
        IngestOptions(url="amqp://host", address="a", table=tmp_path, columns=("body",), source=json)
    IngestOptions(
        url="amqp://host", address="a", table=tmp_path, columns=("body",), source=json, format=TableFormat.PARQUET
    )  # bodies are held to the schema, and kept as they are
    with pytest.raises(ConfigurationError, match="expected an absolute path, got table"):
        IngestOptions(url="amqp://host", address="a", table=Path("table"))
    with pytest.raises(ConfigurationError, match="option parts = '0'"):
        IngestOptions(url="amqp://host", address="a", table=tmp_path, parts=0)
    with pytest.raises(ConfigurationError, match="there its name must begin with _"):
        IngestOptions(url="amqp://host", address="a", table=tmp_path, work=tmp_path / "work" / "_a")
    with pytest.raises(ConfigurationError, match="there its name must begin with _"):
        IngestOptions(url="amqp://host", address="a", table=tmp_path, spool=f"file://{tmp_path}/spool")
    IngestOptions(url="amqp://host", address="a", table=tmp_path, work=tmp_path / "_work" / "a")
    data = tmp_path / "data"
    data.mkdir()
    (data / "broker.json").write_text("{}")
    several = {"url": "amqp://host", "address": ("a", "b"), "table": tmp_path, "ledger": tmp_path}
    for wrong, complaint in (
        (several, "a table of several queues is not reconciled"),
        ({**several, "address": "a", "columns": ("body",)}, "expected sequence or message_id among the columns"),
        ({**several, "ledger": tmp_path / "gone"}, "gone: expected the folder of a broker's data"),
        ({**several, "ledger": Path("data")}, "ledger: expected an absolute path, got data"),
        (
            {**several, "address": "a", "ledger": data, "source": {"identityField": "message-id"}},
            "with the option identityField a message that was posted twice is one row, and the ledger has two",
        ),
        ({**several, "address": "a"}, "the folder of a broker's data, which has a broker.json"),
    ):
        with pytest.raises(ConfigurationError, match=complaint):
            IngestOptions(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="did you mean poison"):
        IngestOptions(url="amqp://host", address="a", table=tmp_path, source={"poisn": "fail"})
