"""The batch source `acquit.ledger` in a real session: every event once, equal to the balance, or one readable error."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import acquit
import pyspark_acquit_ledger
from acquit.cli.ledger import read_fold
from acquit.ledger.balance import balance
from acquit.ledger.events import EventKind
from acquit.spark.ledger.source import LedgerDataSource
from acquit.spark.session import reason_of
from acquit.store.segment import HEADER_BYTES
from tests.support.ledger_folder import LedgerFolder, grow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FAILURES = (PySparkException, Py4JJavaError)
Counts = dict[tuple[str, int, str], int]


def read(spark: SparkSession, *folders: LedgerFolder, **options: str) -> DataFrame:
    paths = ",".join(str(folder.path) for folder in folders)
    return spark.read.format("acquit.ledger").options(folders=paths, **options).load()


def counts_of(frame: DataFrame) -> Counts:
    """By broker, queue and kind."""
    rows = frame.groupBy("broker", "queue_number", "kind").count().collect()
    return {(row["broker"], row["queue_number"], row["kind"]): row["count"] for row in rows}


def balanced(folder: LedgerFolder) -> tuple[dict[tuple[int, str], int], Counter[str]]:
    """What the ledger's own fold counts, archive included: by queue and kind where the queue still exists, and by
    kind."""
    found = balance(read_fold(folder.path, archive=True))
    assert found.balanced
    by_queue: dict[tuple[int, str], int] = {}
    by_kind: Counter[str] = Counter()
    for row in found.queues:
        counts = {EventKind(kind).name: count for kind, count in row.totals.counts.items()}
        by_kind.update(counts)
        if row.name:
            by_queue.update({(row.queue, kind): count for kind, count in counts.items()})
    return by_queue, by_kind


@pytest.mark.parametrize("verify", ["full", "quick"])
def test_the_events_of_two_brokers_are_what_their_balances_count(
    spark: SparkSession, tmp_path: Path, verify: str
) -> None:
    brokers = [grow(tmp_path / "a"), grow(tmp_path / "b", seed=11)]
    frame = read(spark, *brokers, verify=verify)
    found = counts_of(frame)
    assert frame.rdd.getNumPartitions() == sum(broker.newest for broker in brokers), "one a segment"
    stores = {store for store, _, _ in found}
    assert len(stores) == 2
    for broker in brokers:
        by_queue, by_kind = balanced(broker)
        [own] = [
            {(queue, kind): count for (store, queue, kind), count in found.items() if store == candidate}
            for candidate in stores
            if candidate in (broker.path / "broker.json").read_text()
        ]
        kinds: Counter[str] = Counter()
        for (_, kind), count in own.items():
            kinds[kind] += count
        assert kinds == by_kind
        assert {key: own.get(key, 0) for key in by_queue} == by_queue


def test_beside_a_running_broker(spark: SparkSession, tmp_path: Path) -> None:
    with acquit.Broker(data=tmp_path) as broker, acquit.connect(broker.url, container_id="shop") as connection:
        sender = connection.session().sender("orders")
        for number in range(3):
            sender.send(acquit.Message(b"", message_id=f"order-{number}", durable=True))
        frame = spark.read.format("acquit.ledger").load(folders=str(tmp_path), details="true")
        posted = frame.where("kind = 'POSTED'").orderBy("sequence").collect()
        assert [row["message_id"] for row in posted] == ["order-0", "order-1", "order-2"]
        assert {(row["queue"], row["address"], row["posted_to"]) for row in posted} == {("orders",) * 3}
        assert {(row["container"], row["user"]) for row in posted} == {("shop", None)}
        sender.send(acquit.Message(b"", durable=True))
        assert frame.where("kind = 'POSTED'").count() == 3, "what was loaded stays as it was planned"
        again = spark.read.format("acquit.ledger").load(folders=str(tmp_path))
        assert again.where("kind = 'POSTED'").count() == 4


def test_options_columns_and_details(spark: SparkSession, tmp_path: Path) -> None:
    folder = grow(tmp_path)
    events = [event for number in range(1, folder.newest + 1) for event in folder.events(number) if event.kind]
    frame = read(spark, folder, queue="queue-1", details="true")
    rows = frame.where("kind = 'POSTED'").select("sequence", "message_id", "queue", "time").collect()
    expected = {event.sequence for event in events if event.queue == 1 and event.kind == EventKind.POSTED}
    assert {row["sequence"] for row in rows} == expected
    assert {row["queue"] for row in rows} == {"queue-1"}
    few = (
        spark.read.format("acquit.ledger")
        .schema("kind_number INT, sequence BIGINT")
        .options(folders=str(folder.path), since="2100-01-01")
    )
    assert few.load().columns == ["kind_number", "sequence"]
    assert few.load().collect() == []
    assert few.option("since", "2000-01-01").load().count() == len(events)


def test_a_torn_tail_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    folder = grow(tmp_path)
    before = read(spark, folder).count()
    path = folder.file(folder.newest)
    content = bytearray(path.read_bytes())
    last = max(at for at in range(HEADER_BYTES, len(content), 512) if content[at : at + 4] == b"BTCH")
    content[last + 100] ^= 1
    path.write_bytes(content)
    assert read(spark, folder).count() == before - 2
    assert balanced(folder)[1].total() == before - 2


def test_an_altered_byte_is_one_readable_error(spark: SparkSession, tmp_path: Path) -> None:
    folder = grow(tmp_path)
    folder.flip(2, HEADER_BYTES + 100)
    with pytest.raises(FAILURES) as caught:
        read(spark, folder).count()
    reason = reason_of(caught.value)
    assert reason.startswith(f"{folder.file(2)}, offset {HEADER_BYTES}: segment 2: altered: a batch of"), reason


def test_a_gap_is_one_readable_error_unless_it_is_allowed(spark: SparkSession, tmp_path: Path) -> None:
    folder = grow(tmp_path)
    whole = read(spark, folder).count()
    lost = sum(bool(event.kind) for event in folder.events(3))
    folder.file(3).unlink()
    with pytest.raises(FAILURES) as caught:
        read(spark, folder).count()
    assert "segment 3: missing, and no record says that retention deleted it" in reason_of(caught.value)
    assert read(spark, folder, missing="allow").count() == whole - lost > 0


def test_what_retention_deleted_is_reported_and_no_error(spark: SparkSession, tmp_path: Path) -> None:
    folder = grow(tmp_path, archive_bytes_max=100_000)
    segments = {row["segment"]: row for row in read(spark, folder, table="segments").collect()}
    deleted = {number for number, row in segments.items() if row["state"] == "deleted"}
    assert deleted and set(segments) == set(range(1, folder.newest + 1))
    assert all(segments[number]["events"] > 0 for number in deleted)
    found = {row["segment"]: row["count"] for row in read(spark, folder).groupBy("segment").count().collect()}
    assert set(found) == set(segments) - deleted
    for number in set(found) - {folder.newest}:
        assert found[number] == segments[number]["events"]


def test_spark_finds_the_format_without_being_told(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.newSession().read.format("acquit.ledger").options(folders=str(grow(tmp_path).path)).load()
    assert "sequence" in frame.columns
    assert pyspark_acquit_ledger.DefaultSource is LedgerDataSource


def test_the_format_can_be_registered_by_hand(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    session.dataSource.register(LedgerDataSource)
    folder = grow(tmp_path)
    assert session.read.format("acquit.ledger").load(folders=str(folder.path)).count() == read(spark, folder).count()


def test_a_wrong_option_is_one_readable_error(spark: SparkSession) -> None:
    with pytest.raises(FAILURES) as caught:
        spark.read.format("acquit.ledger").options(folders="/nowhere", sinse="2026").load()
    assert reason_of(caught.value) == "option sinse is not known; did you mean since?"


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow", "acquit"])
def test_nothing_raises_where_something_is_missing(missing: str) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "import pyspark_acquit_ledger\n"
        "assert not hasattr(pyspark_acquit_ledger, 'DefaultSource')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
