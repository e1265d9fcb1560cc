"""The ledger beside tables and receipts that differ from it in every way there is.

One journal of real traffic, audited once; the tables and receipts are written from what the broker's consumers saw.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import acquit
import acquit.spark.audit.reconcile as module
from acquit.broker.options import BrokerOptions
from acquit.errors import ConfigurationError
from acquit.spark.audit import AuditOptions, audit, others
from acquit.spark.audit.log import BrokerState
from acquit.spark.audit.others import ReceiptState, columns_beforehand, read_receipts
from acquit.spark.audit.reconcile import ReconcileOptions, reconcile
from acquit.spark.audit.reconciled import Finding, read_reconciliations, write_reconciliation
from acquit.spark.audit.results import AuditResults
from acquit.spark.compact import CompactOptions, compact
from acquit.spark.ledger.chain import plan_folder
from acquit.spark.tables import table_files
from acquit.store.options import JournalOptions
from tests.support.audit_tables import reconciliation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    before = reconciliation(
        {"missing": 1}, place=str(table), broker=broker.store, findings="reconciliations/findings-before"
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
    assert examples["not-accepted", str(rejected[0])] == ("dead lettered", "1×")
    assert examples["other-queue", str(seen.elsewhere)] == ("accepted elsewhere", "1×")
    assert {identity for kind, identity in examples if kind == "missing"} == {str(each) for each in accepted[:2]}
    written = pq.read_table(seen.audit / found.findings).to_pylist()
    assert Counter(row["finding"] for row in written) == {
        k: n for k, n in kinds(found.counts).items() if k != "without-identity"
    }


def test_a_table_without_a_row_lacks_all_of_them(spark: SparkSession, seen: Seen, tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "delta", pa.schema([("sequence", pa.int64()), ("a b", pa.binary())]))
    (tmp_path / "stream" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "stream" / "_spark_metadata" / "0").write_text("v1")
    for table in (tmp_path / "delta", tmp_path / "stream"):
        found = reconcile(seen.options(table=table), spark=spark)
        assert (found.identity, found.other_rows) == ("sequence", 0)
        assert kinds(found.counts) == {"missing": 50}
    accepted = reconcile(seen.options(table=tmp_path / "delta", taken=["EXPIRED"]), spark=spark)
    assert accepted.equal, "nothing is expected in it"


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
        "accepted-twice": 1,
        "posted-though-refused": 1,
        "unknown-to-producer": 1,
        "in-doubt-posted": 1,
        "in-doubt-not-posted": 1,
    }
    assert not found.equal
    assert {each.identity: each.other for each in found.examples}["m-0"] == "accepted 2×"
    assert {each.identity: each.other for each in found.examples}["m-3"] == "refused 1×"


def test_what_was_posted_where_the_journal_has_ended_is_not_accused(spark: SparkSession, tmp_path: Path) -> None:
    """By message id: those of segments that are no more are not known."""
    config = BrokerOptions(journal=JournalOptions.small())
    with acquit.Broker(tmp_path / "data", config=config) as broker, acquit.connect(broker.url) as connection:
        session = connection.session("individual")
        sender, receiver = session.sender(QUEUE), session.receiver(QUEUE)
        for number in range(6):
            sender.send(acquit.Message(bytes(1 << 20), message_id=f"m-{number}"))
            message = receiver.receive(timeout=10)
            assert message is not None
            message.accept()
    audit(AuditOptions(folders=[tmp_path / "data"], into=tmp_path / "audit"), spark=spark)
    receipts = tmp_path / "receipts.jsonl"
    ids = [*(f"m-{number}" for number in range(6)), "never"]
    lines = [{"message_id": name, "outcome": "accepted"} for name in ids]
    receipts.write_text("\n".join(map(json.dumps, [*lines, {"message_id": "who knows", "outcome": "in doubt"}])))
    (gone, *_) = plan_folder(tmp_path / "data")
    gone.path.unlink()
    found = reconcile(ReconcileOptions(audit=tmp_path / "audit", queue=QUEUE, receipts=receipts), spark=spark)
    assert list(found.counts) == [Finding.UNMATCHED]
    assert 3 <= found.counts[Finding.UNMATCHED] < 8, "some ids are known, and these two are not among them"
    assert not found.equal and not found.differs


@pytest.mark.parametrize(
    ("columns", "given", "complaint"),
    [
        (["message_id", "Outcome"], {}, "has a column Outcome and none outcome: say Outcome"),
        (["message_id", "outcome", "OUTCOME"], {}, "has columns outcome and OUTCOME, which Spark does not tell apart"),
        (["sequence", "SEQUENCE"], {"by": "sequence"}, "has columns sequence and SEQUENCE"),
        (["message_id", "sent", "Sent"], {"outcome": "sent"}, "has columns sent and Sent"),
        (["sequence", "broker", "Broker"], {"by": "sequence"}, "has columns broker and Broker"),
    ],
)
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", ""])
def test_names_of_columns_that_differ_in_case_alone(
    seen: Seen, tmp_path: Path, columns: list[str], given: dict[str, str], complaint: str, form: str
) -> None:
    """What would be passed over is the outcome: all would count as accepted."""
    receipts = tmp_path / f"receipts.{form}".strip(".")
    row = dict.fromkeys(columns, "1")
    if form == "csv":
        receipts.write_text(",".join(columns) + "\n")
    elif form == "jsonl":
        receipts.write_text(json.dumps(row))
    else:
        if not form:
            receipts.mkdir()
        pq.write_table(pa.Table.from_pylist([row]), receipts if form else receipts / "one.parquet")
    with pytest.raises(ConfigurationError, match=complaint):
        reconcile(seen.options(receipts=receipts, **given))


def test_a_column_in_another_case_may_be_named(spark: SparkSession, seen: Seen, tmp_path: Path) -> None:
    receipts = tmp_path / "receipts.jsonl"
    receipts.write_text(json.dumps({"sequence": seen.accepted[1], "Outcome": "refused"}))
    options = seen.options(receipts=receipts, by="sequence", outcome="Outcome", complete=False)
    assert kinds(reconcile(options, spark=spark).counts) == {"posted-though-refused": 1}


@pytest.mark.parametrize("name", ["large.jsonl", "many"])
def test_the_case_of_an_outcome_is_seen_where_only_spark_reads_the_columns(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    receipts = tmp_path / name
    if name == "many":
        receipts.mkdir()
        pq.write_table(pa.table({"message_id": ["a"], "Outcome": ["refused"]}), receipts / "one.parquet")
    else:
        receipts.write_text(json.dumps({"message_id": "a", "Outcome": "refused"}))
    with pytest.raises(ConfigurationError, match="has a column Outcome and none outcome"):
        read_receipts(spark, receipts, "outcome")


def test_some_receipts_that_are_as_the_ledger_has_them(spark: SparkSession, seen: Seen, tmp_path: Path) -> None:
    receipts = tmp_path / "receipts.csv"
    receipts.write_text(f"its.id,result\n{seen.accepted[1]},accepted\n{seen.accepted[2]},In-Doubt\n")
    given = {"receipts": receipts, "by": "sequence", "column": "its.id", "outcome": "result", "complete": False}
    found = reconcile(seen.options(**given), spark=spark)
    assert found.equal
    assert kinds(found.counts) == {"in-doubt-posted": 1}
    with pytest.raises(ConfigurationError, match=r"has no column message_id; it has its\.id, result\. Say"):
        reconcile(seen.options(**{**given, "by": "message_id", "column": None}), spark=spark)


ODD_IDS = ['say "a"', "a,b", "back\\", 'both\\"', '"', "one\ntwo", " around ", "#5", "é", "'"]


@pytest.mark.parametrize("form", [{}, {"lineterminator": "\n"}, {"quoting": csv.QUOTE_ALL}], ids=str)
@pytest.mark.parametrize("name", ["receipts.csv", "receipts.csv.gz"])
def test_receipts_are_read_as_they_are_written(
    spark: SparkSession, tmp_path: Path, name: str, form: dict[str, Any]
) -> None:
    header = ["message_id", 'the "outcome"']
    text = io.StringIO(newline="")
    csv.writer(text, **form).writerows([header, *([each, "accepted"] for each in ODD_IDS)])
    content = text.getvalue().encode()
    (tmp_path / name).write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    found = read_receipts(spark, tmp_path / name, 'the "outcome"')
    assert found.columns[:2] == columns_beforehand(tmp_path / name, receipts=True) == header
    assert [(row[0], row[2]) for row in found.collect()] == [(each, ReceiptState.ACCEPTED.value) for each in ODD_IDS]


def test_many_ranges_of_several_brokers(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss and a doubling in one range, which leave its count as it was; and rows outside the time asked for."""
    step, count = 1 << 18, 40  # four messages in a range, ten ranges for each broker
    day = datetime(2026, 3, 4, tzinfo=UTC)
    rows = [
        {
            "broker": broker,
            "queue": QUEUE,
            "sequence": number * step,
            "origin": None,
            "entered": "POSTED",
            "outcome": "ACCEPTED",
            "posted_at": day + timedelta(hours=number),
        }
        for broker in ("a", "b")
        for number in range(1, count + 1)
    ]
    schema = "broker string, queue string, sequence bigint, origin bigint, entered string, outcome string"
    schema += ", posted_at timestamp"

    class Results:
        brokers: ClassVar = {
            number: BrokerState(store=store, number=number, folder="", entered_max=1 << 50)
            for number, store in enumerate("ab")
        }

        def __init__(self, folder: Path) -> None:
            (folder / "reconciliations").mkdir(parents=True, exist_ok=True)

        def queues(self) -> pa.Table:
            return pa.table({"broker": ["a", "b", "a"], "queue": [QUEUE, QUEUE, "other"]})

        def closed(self, session: SparkSession) -> DataFrame:
            return session.createDataFrame(rows, schema)

        def open(self, session: SparkSession) -> None:
            return None

    monkeypatch.setattr(module, "AuditResults", Results)
    there = [(row["broker"], row["sequence"]) for row in rows]
    there.remove(("a", 5 * step))
    there.append(("a", 6 * step))
    there = [(broker, sequence) for broker, sequence in there if (broker, sequence) <= ("b", 30 * step)]
    table = tmp_path / "table"
    write_deltalake(table, pa.table({"broker": [b for b, _ in there], "seq": [s for _, s in there]}))
    given = ReconcileOptions(
        audit=tmp_path / "audit",
        queue=QUEUE,
        table=table,
        by="sequence",
        column="seq",
        until=day + timedelta(hours=31),
    )
    found = reconcile(given, spark=spark)
    examples = {(each.broker, each.identity): each.finding.value for each in found.examples}
    assert examples == {("a", str(5 * step)): "missing", ("a", str(6 * step)): "doubled"}
    assert found.broker is None
    # One range for the swap; those after the time, of which the table has some, are looked at and found to be in order.
    assert found.ranges_differing < found.ranges / 2
    assert found.ledger_rows == 60
    (tmp_path / "other").mkdir()
    pq.write_table(pa.table({"sequence": [1]}), tmp_path / "other" / "one.parquet")
    with pytest.raises(ConfigurationError, match="has no column seq; it has sequence"):
        reconcile(replace(given, table=tmp_path / "other"), spark=spark)
    with pytest.raises(ConfigurationError, match="no column broker, and queue orders is of the brokers a, b"):
        reconcile(replace(given, table=tmp_path / "other", column=None), spark=spark)
    with pytest.raises(ConfigurationError, match="knows no queue nowhere"):
        reconcile(replace(given, queue="nowhere"), spark=spark)
    with pytest.raises(ConfigurationError, match="none begins with c"):
        reconcile(replace(given, broker="c"), spark=spark)


def test_a_table_is_read_whatever_its_files_are(
    spark: SparkSession, seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted = list(seen.accepted.values())
    (broker,) = AuditResults(seen.audit).brokers.values()
    # A folder for each broker, a merged file that is in none, and folders again.
    delta = tmp_path / "{a,b}"
    for part in (accepted[:20], accepted[20:40], accepted[40:]):
        rows = pa.table({"sequence": part, "broker": [broker.store] * len(part)})
        write_deltalake(delta, rows, mode="append", partition_by=["broker"])
        if part == accepted[20:40]:
            compact(CompactOptions(table=delta))
    found = reconcile(seen.options(table=delta), spark=spark)
    assert (found.counts, found.other_rows, len(table_files(delta).files)) == ({}, 50, 2)
    # Other types in each file, also one that Spark cannot read; a value that is none; a file without the column.
    plain = tmp_path / "[odd] *"
    plain.mkdir()
    for number, (sequence, other) in enumerate(
        [
            (pa.array(accepted[:20], pa.int32()), pa.array([0] * 20, pa.timestamp("ns"))),
            (pa.array(accepted[20:30], pa.int64()), pa.array(["text"] * 10)),
            (pa.array([*accepted[30:40], None], pa.float64()), pa.array(["text"] * 11)),
            (pa.array([*map(str, accepted[40:]), "none", "1.5"]), pa.array([None] * 12, pa.int32())),
        ]
    ):
        pq.write_table(pa.table({"sequence": sequence, "other": other}), plain / f"{number}.parquet")
    pq.write_table(pa.table({"other": [1]}), plain / "without.parquet")
    found = reconcile(seen.options(table=plain), spark=spark)
    assert (kinds(found.counts), found.other_rows) == ({"without-identity": 4}, 54)
    receipts = tmp_path / "[r].parquet"
    pq.write_table(
        pa.table({"message_id": [f"m-{n}" for n in range(COUNT)], "at": pa.array([0] * 60).cast("timestamp[ns]")}),
        receipts,
    )
    assert reconcile(seen.options(receipts=receipts), spark=spark).equal
    # Of so many files that nobody looks beforehand.
    monkeypatch.setattr(others, "_FOOTERS_MAX", 0)
    (tmp_path / "other").mkdir()
    pq.write_table(pa.table({"broker": ["b"], "its": [1]}), tmp_path / "other" / "0.parquet")
    with pytest.raises(ConfigurationError, match="has no column sequence or message_id; it has broker, its"):
        reconcile(seen.options(table=tmp_path / "other"), spark=spark)
