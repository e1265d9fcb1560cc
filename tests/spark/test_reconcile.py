"""The ledger beside tables and receipts that differ from it in every way there is.

One journal of real traffic, audited once; the tables and receipts are written from what the broker's consumers saw.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import acquit
from acquit.spark.audit import AuditOptions, audit
from acquit.spark.audit.reconcile import ReconcileOptions, reconcile
from acquit.spark.audit.reconciled import (
    Against,
    Finding,
    Reconciliation,
    read_reconciliations,
    write_reconciliation,
)
from acquit.spark.audit.results import AuditResults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUE = "orders"
COUNT = 60
NEVER = 1 << 40


@dataclass
class Seen:
    """What consumers did with each message: its sequence by its number."""

    audit: Path
    accepted: dict[int, int] = field(default_factory=dict)
    rejected: dict[int, int] = field(default_factory=dict)
    elsewhere: int = 0

    def options(self, **given: Any) -> ReconcileOptions:
        return ReconcileOptions(**{"audit": self.audit, "queue": QUEUE, **given})


def sequence_of(message: acquit.ReceivedMessage) -> int:
    return int(message.annotations["x-opt-acquit-sequence"])


@pytest.fixture(scope="module")
def seen(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    root = tmp_path_factory.mktemp("reconcile")
    found = Seen(root / "audit")
    with acquit.Broker(root / "data") as broker, acquit.connect(broker.url) as connection:
        session = connection.session("individual")
        sender = session.sender(QUEUE)
        for number in range(COUNT):
            sender.send(acquit.Message(str(number), message_id=f"m-{number}"))
        session.sender("other").send(acquit.Message("elsewhere", message_id="m-elsewhere"))
        receiver = session.receiver(QUEUE)
        for number in range(COUNT - 5):  # the last five stay
            message = receiver.receive(timeout=10)
            assert message is not None
            if number % 10 == 9:
                found.rejected[number] = sequence_of(message)
                message.reject("orders:test", "on purpose")
            else:
                found.accepted[number] = sequence_of(message)
                message.accept()
        message = session.receiver("other").receive(timeout=10)
        assert message is not None
        found.elsewhere = sequence_of(message)
        message.accept()
    audit(AuditOptions(folders=[root / "data"], into=found.audit), spark=spark)
    return found


def kinds(counts: dict[Finding, int] | Any) -> dict[str, int]:
    return {finding.value: count for finding, count in counts.items()}


def test_a_table_that_has_each_once_is_equal(spark: SparkSession, seen: Seen, tmp_path: Path) -> None:
    table = tmp_path / "table"
    write_deltalake(table, pa.table({"sequence": pa.array(seen.accepted.values(), pa.int64()), "body": ["x"] * 50}))
    (broker,) = AuditResults(seen.audit).brokers.values()
    before = Reconciliation(
        against=Against.TABLE,
        place=str(table),
        broker=broker.store,
        queue=QUEUE,
        identity="sequence",
        made_at_us=1,
        ledger_rows=1,
        other_rows=0,
        ranges=1,
        ranges_differing=1,
        counts={Finding.MISSING: 1},
        findings="reconciliations/findings-before",
    )
    write_reconciliation(seen.audit, before)
    (seen.audit / before.findings).mkdir()
    found = reconcile(seen.options(table=table), spark=spark)
    assert (found.equal, found.counts, found.examples, found.findings) == (True, {}, (), "")
    assert (found.ledger_rows, found.other_rows, found.ranges, found.ranges_differing) == (50, 50, 1, 0)
    # It took the place of what was found before.
    assert read_reconciliations(seen.audit) == [found]
    assert not (seen.audit / before.findings).exists()


def test_a_table_that_differs_in_every_way(spark: SparkSession, seen: Seen, tmp_path: Path) -> None:
    accepted, rejected = list(seen.accepted.values()), list(seen.rejected.values())
    live = max(*accepted, *rejected) + 1
    rows = [*accepted[2:], accepted[5], accepted[5], rejected[0], live, seen.elsewhere, 0, NEVER, None]
    table = tmp_path / "table"
    table.mkdir()
    for number, part in enumerate((rows[:20], rows[20:])):
        pq.write_table(pa.table({"sequence": pa.array(part, pa.int64())}), table / f"{number}.parquet")
    found = reconcile(seen.options(table=table), spark=spark)
    assert not found.equal
    assert kinds(found.counts) == {
        "missing": 2,
        "doubled": 1,
        "not-accepted": 1,
        "still-live": 1,
        "other-queue": 1,
        "unknown": 1,
        "without-identity": 1,
        "later-than-audit": 1,
    }
    examples = {(each.finding.value, each.identity): (each.ledger, each.other) for each in found.examples}
    assert examples["doubled", str(accepted[5])] == ("accepted", "3×")
    assert examples["not-accepted", str(rejected[0])] == ("dead_lettered", "1×")
    assert examples["other-queue", str(seen.elsewhere)] == ("accepted in other", "1×")
    assert {identity for kind, identity in examples if kind == "missing"} == {str(each) for each in accepted[:2]}
    written = pq.read_table(seen.audit / found.findings).to_pylist()
    assert Counter(row["finding"] for row in written) == {
        k: n for k, n in kinds(found.counts).items() if k != "without-identity"
    }


def test_receipts_of_a_producer(spark: SparkSession, seen: Seen, tmp_path: Path) -> None:
    outcomes = {f"m-{number}": "accepted" for number in range(COUNT)}
    del outcomes["m-7"]
    outcomes |= {"m-3": "rejected", "m-4": "in doubt", "never": "accepted", "lost": "DeliveryInDoubt", "no": "rejected"}
    receipts = tmp_path / "receipts.jsonl"
    lines = [json.dumps({"message_id": name, "outcome": outcome}) for name, outcome in outcomes.items()]
    receipts.write_text("\n".join([*lines, lines[0]]))
    found = reconcile(seen.options(receipts=receipts), spark=spark)
    assert kinds(found.counts) == {
        "never-posted": 1,
        "posted-though-refused": 1,
        "unknown-to-producer": 1,
        "in-doubt-posted": 1,
        "in-doubt-not-posted": 1,
    }
    assert not found.equal
    assert {each.identity: each.other for each in found.examples}["m-3"] == "refused 1×"


def test_some_receipts_that_are_as_the_ledger_has_them(spark: SparkSession, seen: Seen, tmp_path: Path) -> None:
    receipts = tmp_path / "receipts.csv"
    receipts.write_text("id,result\nm-1,accepted\nm-2,in-doubt\n")
    given = {"receipts": receipts, "by": "message_id", "column": "id", "outcome": "result", "complete": False}
    found = reconcile(seen.options(**given), spark=spark)
    assert found.equal
    assert kinds(found.counts) == {"in-doubt-posted": 1}
