"""The audit in a real Spark, of a real broker that is driven through every outcome, while it runs and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import TimestampType

import acquit
from acquit.cli.ledger import read_fold
from acquit.errors import ConfigurationError, StoreCorrupt
from acquit.ledger.balance import balance
from acquit.ledger.events import EventKind
from acquit.spark.audit import AuditOptions, AuditProgress, AuditSummary, audit
from acquit.spark.audit.results import AuditResults
from tests.support.audited import all_of, audited
from tests.support.draining import take_each
from tests.support.ledger_folder import grow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, into: Path, *folders: Path) -> tuple[AuditSummary, list[AuditProgress]]:
    told: list[AuditProgress] = []
    return audit(AuditOptions(folders=folders, into=into), spark=spark, on_progress=told.append), told


def take(session: acquit.Session, queue: str) -> Iterator[acquit.ReceivedMessage]:
    """All that is in it, and comes back to it, one after the other."""
    with session.receiver(queue, prefetch=1) as receiver:
        yield from take_each(receiver)


def drive(broker: acquit.Broker, connection: acquit.Connection) -> None:
    """Every outcome that a message can have, in queues that are called like it."""
    with connection.session("individual") as session:

        def post(address: str, count: int, *, topic: bool = False, ttl_ms: int | None = None) -> None:
            sender = session.sender(address, topic=topic)
            for number in range(count):
                sender.send(acquit.Message(f"{address} {number}", durable=True, ttl_ms=ttl_ms), timeout=20)
            sender.close()

        for queue in ("accepted", "rejected", "modified", "released", "left"):
            post(queue, 3)
        for message in take(session, "accepted"):
            message.accept()
        for message in take(session, "rejected"):
            message.reject("app:no-stock", "none left")
        for message in take(session, "modified"):
            # Ten attempts, then it is a dead letter.
            message.modify(delivery_failed=True)
        released = take(session, "released")
        for message in released:
            if message.first_acquirer:
                message.release()
            else:
                message.accept()
        post("short", 2, ttl_ms=60_000)
        broker.advance(61_000)
        with session.receiver("short") as receiver:
            assert receiver.receive(timeout=0.1) is None
        kept = acquit.Subscription(name="kept")
        with session.receiver("news", subscription=kept), session.receiver("news", topic=True):
            post("news", 4, topic=True)
        session.unsubscribe(kept)
    with connection.session("no-ack") as session:
        post_session = connection.session("individual")
        with post_session.sender("consumed") as sender:
            for _ in range(5):
                sender.send(acquit.Message("taken", durable=True), timeout=20)
        assert len(list(take(session, "consumed"))) == 5
        post_session.close()
    with connection.session("transacted") as session:
        sender = session.sender("committed")
        with session.transaction():
            sender.send(acquit.Message("kept", durable=True))
            sender.send(acquit.Message("kept", durable=True))
        sender.send(acquit.Message("never there", durable=True))
        session.rollback()
    with connection.session() as session:
        sender = session.sender("volatile", delivery_mode=acquit.DeliveryMode.NON_PERSISTENT)
        sender.send(acquit.Message("only counted"))


def ledger_of(path: Path) -> dict[str, tuple[Counter[str], int]]:
    """Counts by queue, and how many are live, by the broker's own fold."""
    found = balance(read_fold(path, archive=True))
    assert found.balanced
    return {
        row.name: (Counter({EventKind(k).name.lower(): n for k, n in row.totals.counts.items()}), row.live.total)
        for row in found.queues
        if row.name and row.totals.counts
    }


def check_against_ledger(into: Path, path: Path) -> None:
    results = AuditResults(into)
    expected = ledger_of(path)
    rows = {row["queue"]: row for row in results.balance().to_pylist()}
    assert expected.keys() <= rows.keys()
    for name, (counts, live) in expected.items():
        row = rows[name]
        assert row["state"] == "balanced"
        assert (row["live"], row["live_by_seal"], row["sums_agree"]) == (live, live, True)
        kinds = [kind for kind in row if kind in {EventKind(k).name.lower() for k in EventKind}]
        assert {kind: row[kind] for kind in kinds if row[kind]} == {k: n for k, n in counts.items() if k in kinds}
        minutes = [minute for minute in results.minutes().to_pylist() if minute["queue"] == name]
        for kind in ("posted", "accepted", "released", "modified", "dead_lettered", "expired", "purged", "consumed"):
            assert sum(minute[kind] for minute in minutes) == counts[kind], (name, kind)
        assert sum(minute["depth_change"] for minute in minutes) == live


@pytest.mark.promise("balance")
def test_every_outcome_of_a_real_broker_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    data, into = tmp_path / "data", tmp_path / "into"
    with acquit.Broker(data=data) as broker:
        with acquit.connect(broker.url, container_id="shop") as connection:
            drive(broker, connection)
            summary, told = run(spark, into, data)
            assert summary.sound, summary
            assert [told[0].stage, told[-1].stage] == ["planning", "committing"]
            assert summary.anomalies == {}
            check_against_ledger(into, data)
            drive(broker, connection)
        second, _ = run(spark, into, data)
        assert second.sound, second
        check_against_ledger(into, data)
    results = AuditResults(into)
    assert results.coverage()["open"].to_pylist() == [True]
    closed, left = results.closed(spark), results.open(spark)
    assert closed is not None
    assert left is not None
    outcomes = Counter((row["queue"], row["outcome"]) for row in closed.collect())
    assert outcomes["accepted", "ACCEPTED"] == 6
    assert outcomes["rejected", "DEAD_LETTERED"] == 6
    assert outcomes["modified", "DEAD_LETTERED"] == 6
    assert outcomes["released", "ACCEPTED"] == 6
    assert outcomes["short", "EXPIRED"] == 4
    assert outcomes["consumed", "CONSUMED"] == 10
    assert sum(count for (_, outcome), count in outcomes.items() if outcome == "PURGED") == 8
    attempts = {(row["queue"], row["attempts"]) for row in closed.collect()}
    assert {("accepted", 1), ("modified", 10), ("released", 2), ("short", 0), ("consumed", 1)} <= attempts
    live = Counter(row["queue"] for row in left.collect())
    assert live == {"left": 6, "committed": 4, "DLQ": 12, "ExpiryQueue": 4}
    rows = results.dead_letters().to_pylist()
    letters: Counter[tuple[str, str | None, str | None]] = Counter()
    for row in rows:
        letters[row["queue"], row["cause"], row["condition"]] += row["count"]
    assert letters["rejected", "REJECTED", "app:no-stock"] == 6
    assert sum(count for (queue, _, _), count in letters.items() if queue == "modified") == 6
    # After a clean stop, nothing is different; and the whole, made anew, is the same.
    last, _ = run(spark, into, data)
    assert last.sound
    assert audited([data], tmp_path / "whole").sound
    whole, parts = all_of(tmp_path / "whole"), all_of(into)
    for name in ("closed", "open", "minutes", "balance", "dead_letters"):
        assert whole[name] == parts[name], name


def test_in_spark_as_without_it_and_one_readable_error(spark: SparkSession, tmp_path: Path) -> None:
    brokers = [grow(tmp_path / "a"), grow(tmp_path / "b", seed=11)]
    spark.sparkContext.setJobGroup("nightly", "of the night")
    summary, told = run(spark, tmp_path / "into", *(broker.path for broker in brokers))
    for name, value in (("jobGroup.id", "nightly"), ("job.description", "of the night")):
        assert spark.sparkContext.getLocalProperty(f"spark.{name}") == value
        spark.sparkContext.setLocalProperty(f"spark.{name}", None)  # type: ignore[arg-type]
    assert summary.segments == sum(broker.newest for broker in brokers)
    assert told[-1].segments == summary.segments
    plain = audited([broker.path for broker in brokers], tmp_path / "plain")
    assert (plain.closed, plain.open, plain.shuffled_bytes) == (summary.closed, summary.open, summary.shuffled_bytes)
    assert all_of(tmp_path / "into") == all_of(tmp_path / "plain")
    brokers[1].flip(2, 4096 + 100)
    with pytest.raises(StoreCorrupt, match="segment 2: altered: a batch of") as caught:
        run(spark, tmp_path / "again", *(broker.path for broker in brokers))
    assert "\n" not in str(caught.value)
    assert (caught.value.path, caught.value.offset) == (str(brokers[1].file(2)), 4096)
    with pytest.raises(ConfigurationError, match="has no audit"):
        AuditResults(tmp_path / "again")


def test_a_session_that_makes_other_types_of_texts_and_times(spark: SparkSession, tmp_path: Path) -> None:
    folder = grow(tmp_path / "a").path
    settings = {
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.session.timeZone": "Asia/Kolkata",
    }
    plain, _ = run(spark, tmp_path / "plain", folder)
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        summary, _ = run(spark, tmp_path / "audit", folder)
        events = spark.read.format("acquit.ledger").options(folders=str(folder), details="true").load()
        first = events.selectExpr("CAST(time AS BIGINT) AS s").orderBy("segment", "index").first()
    finally:
        for name in settings:
            spark.conf.unset(name)
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert (summary.closed, summary.open, summary.balance) == (plain.closed, plain.open, plain.balance)
    assert first is not None and events.schema["time"].dataType == TimestampType()
    (coverage,) = AuditResults(tmp_path / "audit").coverage().to_pylist()
    assert first.s == int(coverage["first_time"].timestamp())
