"""The stream's reader as plain Python: what it refuses, when, and what a body that does not fit comes to."""

from __future__ import annotations

import pickle
import shutil
from collections import OrderedDict
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import acquit
from acquit.errors import AuthenticationFailed, ConfigurationError, ConnectionFailed, MessageUnusable, SpoolOwned
from acquit.spark import stream
from acquit.spark.columns import MessageColumns
from acquit.spark.decoding import JsonDecoder
from acquit.spark.driver import PlannedPart
from acquit.spark.source import AcquitDataSource
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import FolderStore, Outcome, Poison, Spool
from acquit.spark.spool.repair import RepairOptions, TakeOver, repair
from acquit.spark.stream import AcquitPartition, AcquitStreamReader
from tests.support.guarded import CA, guarded_broker
from tests.support.queue_double import BROKER, QueueDouble, part, posting

GOOD = {"url": "amqp://localhost:5672", "address": "orders", "spool": "/nowhere"}
KIND = pa.struct([("id", pa.int64())])
READER = MessageColumns("queue", None, JsonDecoder(KIND))
SCHEMA = pa.schema([("message_id", pa.string()), ("json", KIND), ("corrupt", pa.binary())])


def schema(**columns: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])  # type: ignore[arg-type]


def test_a_reader_is_made_whatever_is_wrong_and_says_so_when_it_is_first_asked() -> None:
    for given, columns in (({"url": "amqp://h"}, schema()), (GOOD, schema(nonsense=StringType()))):
        reader = AcquitStreamReader(given, columns)
        for ask in (reader.initialOffset, reader.prepareForTriggerAvailableNow, reader.reportLatestOffset):
            with pytest.raises(ConfigurationError, match="spool is missing|no column nonsense"):
                ask()
        reader.stop()


def test_a_source_with_a_spool_is_checked_when_it_is_made_and_else_when_its_schema_is_asked_for(
    broker: acquit.Broker,
) -> None:
    good = {**GOOD, "url": broker.url}
    with pytest.raises(ConfigurationError, match="parts"):
        AcquitDataSource({**good, "parts": "none"})
    with pytest.raises(ConfigurationError, match="bodySchema"):
        AcquitDataSource({**good, "bodyAs": "json"}).schema()
    assert AcquitDataSource({**good, "bodyAs": "json", "bodySchema": "id INT"}).schema().endswith("json STRUCT<id INT>")
    with pytest.raises(ConfigurationError, match="option spool is not known"):  # of a sink, which has a checkpoint
        AcquitDataSource({**good, "checkpointLocation": "/c"}).streamWriter(StructType(), overwrite=False)


@pytest.mark.parametrize(
    ("given", "kind", "reason"),
    [
        ({"url": "amqp://127.0.0.1:9", "connectTimeout": "1ms"}, ConnectionFailed, "cannot reach the broker at amqp:"),
        ({"selector": "a ="}, ConfigurationError, "option selector = 'a ='"),
        ({"create": "false"}, ConfigurationError, "there is no queue 'never-made'"),
        (
            {"user": "ada", "credential": "env:NOT_SET_HERE"},
            ConfigurationError,
            "NOT_SET_HERE is not set on the driver",
        ),
    ],
    ids=["broker", "selector", "queue", "credential"],
)
def test_what_the_broker_has_against_a_stream_is_told_when_it_is_defined(
    broker: acquit.Broker, given: dict[str, str], kind: type[Exception], reason: str
) -> None:
    with pytest.raises(kind, match=reason) as caught:
        AcquitDataSource({"url": broker.url, "address": "never-made", "spool": "/nowhere", **given})
    assert "\n" not in str(caught.value)
    assert all(queue.name != "never-made" for queue in broker.inspect().queues), "and it is not made by asking"


def test_a_password_that_the_broker_does_not_take_is_told_when_the_stream_is_defined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WRONG", "no such password")
    tls = {"ca": str(CA), "user": "bob", "credential": "env:WRONG"}
    with guarded_broker() as broker, pytest.raises(AuthenticationFailed) as caught:
        AcquitDataSource({"url": broker.url, "address": "orders", "spool": "/nowhere", **tls})
    assert "\n" not in str(caught.value)


def test_a_reader_travels_with_what_it_was_asked() -> None:
    wanted = StructType([StructField("json", schema(id=LongType()))])
    reader = pickle.loads(pickle.dumps(AcquitStreamReader({**GOOD, "bodyAs": "json"}, wanted)))
    arrow, decoder = reader._columns
    assert arrow.names == ["json"] and decoder.decode(pa.array([b'{"id": 1}'])).values.to_pylist() == [{"id": 1}]


def test_it_is_read_by_a_streaming_query_alone() -> None:
    reader = AcquitStreamReader(GOOD, schema(body_type=StringType()))
    with pytest.raises(ConfigurationError, match="is read by a streaming query, in a Spark task"):
        reader.read(AcquitPartition(PlannedPart(part(), "orders", "nonce", "run")))


def test_what_a_worker_knows_of_the_log_is_kept_for_one_run_of_a_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers outlive queries; a folder that was put back to an older copy between two runs is believed."""
    monkeypatch.setattr(stream, "_spools", OrderedDict())
    root, copy = tmp_path / "spool", tmp_path / "copy"
    options = SourceOptions.parse({**GOOD, "spool": str(root)})

    def take(epoch: int, run: str) -> Spool:
        planned = PlannedPart(part(epoch), "orders", Spool(FolderStore(root)).plan(epoch), run)
        spool = stream._spool_for(options, "query", planned)
        spool.take(planned.part, QueueDouble(posting(epoch)).attach, MessageColumns("queue"))
        return spool

    first = take(1, "run-1")
    shutil.copytree(root, copy)
    assert take(2, "run-1") is take(3, "run-1") is first, "warm within a run"
    shutil.rmtree(root)
    copy.rename(root)
    take(4, "run-2")
    assert set(Spool(FolderStore(root)).state().decided) == {(1, 0), (4, 0)}, "a fresh reader finds what was published"
    assert len(stream._spools) == 1


def test_a_query_that_may_not_have_the_spool_leaves_no_number_of_its_source_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else who may have it would be taken for another source."""
    monkeypatch.setattr(stream, "_spools", OrderedDict())
    options = SourceOptions.parse({**GOOD, "spool": str(tmp_path)})
    store = FolderStore(tmp_path)
    Spool(store).claim("old")
    repair(store, RepairOptions(take_over=TakeOver.FINISH))

    def begin(query: str, source: int) -> None:
        planned = PlannedPart(part(), "orders", Spool(store).plan(1), "run", None, source)
        stream._spool_for(options, query, planned)

    with pytest.raises(SpoolOwned, match="was taken from the query old"):
        begin("old", 7)
    begin("new", 8)
    with pytest.raises(SpoolOwned, match="another source of that one"):
        begin("new", 9)


def json_posting(number: int, body: bytes) -> bytes:
    return posting(number, body, message_id=f"id-{number}")


GOOD_BODY, BAD_BODY = json_posting(1, b'{"id": 1}'), json_posting(2, b'{"id": "two"}')


def test_a_body_that_does_not_fit_can_be_rejected(tmp_path: Path) -> None:
    queue = QueueDouble(GOOD_BODY, BAD_BODY)
    spool = Spool(FolderStore(tmp_path))
    result = spool.take(part(poison=Poison.REJECT), queue.attach, READER)
    rows = [row for batch in READER.select(result.batches, SCHEMA) for row in batch.to_pylist()]
    assert rows == [{"message_id": "id-1", "json": {"id": 1}, "corrupt": None}]
    assert queue.outcomes() == {GOOD_BODY: Outcome.ACCEPTED, BAD_BODY: Outcome.REJECTED}
    assert (result.publication.totals.rejected, result.publication.totals.corrupt) == (1, 0)


def test_a_body_that_does_not_fit_can_stop_the_query_and_stays_in_the_queue(tmp_path: Path) -> None:
    queue = QueueDouble(GOOD_BODY, BAD_BODY)
    with pytest.raises(MessageUnusable, match="1 of 2 messages cannot be parsed, the first: the body does not fit"):
        Spool(FolderStore(tmp_path)).take(part(poison=Poison.FAIL), queue.attach, READER)
    assert sorted(queue.available) == sorted([GOOD_BODY, BAD_BODY])


def test_a_schema_that_fits_no_longer_stops_no_replay(tmp_path: Path) -> None:
    """What is published is acknowledged: all that can be done then is to say that it does not fit."""
    queue = QueueDouble(GOOD_BODY, json_posting(3, b'{"id": 3, "name": "c"}'))
    spool = Spool(FolderStore(tmp_path))
    spool.take(part(poison=Poison.FAIL), queue.attach, READER)
    stricter = pa.struct([pa.field("name", pa.string(), nullable=False)])
    reader = MessageColumns("queue", None, JsonDecoder(stricter))
    again = Spool(FolderStore(tmp_path)).take(part(poison=Poison.FAIL), queue.attach, reader)
    assert again.replayed
    wanted = pa.schema([("json", stricter), ("corrupt", pa.binary())])
    rows = [row for batch in reader.select(again.batches, wanted) for row in batch.to_pylist()]
    assert rows == [{"json": None, "corrupt": GOOD_BODY}, {"json": {"name": "c"}, "corrupt": None}]
    assert queue.broker_id == BROKER
