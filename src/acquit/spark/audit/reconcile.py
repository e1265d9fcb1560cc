"""The ledger beside what others have: the table that a queue was ingested into, or what a producer wrote down.

``reconcile(ReconcileOptions(audit=..., queue=..., table=...))`` answers whether each message that the ledger says was
accepted is in the table, once, and nothing else is. ``receipts=`` in place of ``table=`` answers whether each message
that the producer took for accepted was posted, and nothing else was.

Most rows agree, so they are not joined. Both sides are summed up by ranges of identities (a million sequences, or one
of 4,096 prefixes of the hash of the message id): how many, and the sum of their hashes modulo 2^64 in two halves. Only
in ranges whose sums differ are rows looked at, and there a message is judged by what the ledger has of it in all
queues. Two sides that agree cost one pass over two columns of each, and a shuffle of one row for each range and task.
That a loss and a doubling hide each other in a sum takes a collision of 64 bits in a range with an equal count.

Nothing is collected but counts and a few examples; whatever differs is written by the executors.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  # as everybody who reads Spark programs knows it
from pyspark.sql.types import StringType

from acquit.errors import ConfigurationError
from acquit.spark.audit.failures import cause_of
from acquit.spark.audit.judging import Judge, fate
from acquit.spark.audit.log import BrokerState
from acquit.spark.audit.others import (
    KNOWN_BY,
    STATE_COLUMN,
    ReceiptState,
    columns_beforehand,
    named,
    read_receipts,
    read_table,
    refuse_alike,
)
from acquit.spark.audit.ranges import MESSAGE_ID, SEQUENCE, compared, marked, totals_of, within
from acquit.spark.audit.reconciled import (
    FINDINGS,
    Against,
    Example,
    Finding,
    Reconciliation,
    replace_reconciliation,
)
from acquit.spark.audit.results import AuditResults
from acquit.spark.ledger.chain import READABLE
from acquit.spark.ledger.chain import plan as plan_segments
from acquit.spark.ledger.options import FORMAT_NAME
from acquit.spark.options import SparkAt
from acquit.spark.parquet import literal_path
from acquit.spark.session import QUERY_ERRORS, refuse_connect, session_of
from acquit.store.reading import FolderReader

_OUTCOME: Final = "outcome"
EXAMPLES_MAX: Final = 20
"""Examples of each finding, at most."""
TAKEN: Final = ("ACCEPTED", "CONSUMED")
"""Outcomes whose messages a table is expected to have."""
_BROADCAST_MAX: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileOptions(SparkAt):
    """Options of a reconciliation: what to compare with what. Raises ConfigurationError for options that cannot be."""

    audit: Path
    """Folder of the audit: absolute, seen by driver and executors."""
    queue: str
    """Queue whose messages are compared."""
    table: Path | None = None
    """Folder of a Delta table, or of Parquet files. This, or `receipts`."""
    receipts: Path | None = None
    """Receipts that a producer wrote down: ``.csv`` with a header, ``.json`` or ``.jsonl`` with an object a line,
    ``.parquet``, or a folder as `table`. A row for each send."""
    broker: str | None = None
    """Beginning of the uuid of the broker; needed where the audit knows the queue of several and rows do not name
    theirs in a column `broker`."""
    by: str | None = None
    """``sequence`` or ``message_id``; by default the sequence for a table that has it, the message id for receipts."""
    column: str | None = None
    """Name of that column on the other side, if it is another."""
    outcome: str | None = None
    """Column of receipts that says how a send ended. By default `outcome`; without one, all were accepted."""
    taken: Sequence[str] = TAKEN
    """Outcomes in the ledger whose messages a table is expected to have."""
    since: datetime | None = None
    """Time of posting from which on messages are expected on the other side."""
    until: datetime | None = None
    """Time of posting before which messages are expected on the other side."""
    complete: bool = True
    """True if the receipts are of all who post to the queue. Else messages that they do not mention are no finding."""

    def __post_init__(self) -> None:
        if (self.table is None) == (self.receipts is None):
            given = "neither" if self.table is None else "both"
            raise ConfigurationError(f"reconcile: expected either a table or receipts, got {given}")
        for name, path in (("audit", self.audit), ("table", self.table), ("receipts", self.receipts)):
            if path is not None and not path.is_absolute():
                raise ConfigurationError(f"{name}: expected an absolute path, got {path}")
        if self.by not in (None, SEQUENCE, MESSAGE_ID):
            raise ConfigurationError(f"by: expected {SEQUENCE} or {MESSAGE_ID}, got {self.by}")
        if self.column is not None and self.by is None:
            raise ConfigurationError(f"column: say with `by` whether {self.column} is a {SEQUENCE} or a {MESSAGE_ID}")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ConfigurationError("since is not before until: no message can be in between")

    @property
    def place(self) -> Path:
        """The other side."""
        place = self.table if self.table is not None else self.receipts
        assert place is not None
        return place

    @property
    def against(self) -> Against:
        """Kind of the other side."""
        return Against.TABLE if self.table is not None else Against.RECEIPTS


def reconcile(
    options: ReconcileOptions,
    *,
    spark: SparkSession | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Reconciliation:
    """Compare, and keep what was found with the audit, where the report shows it.

    `on_progress` is told what is being done. Raises ConfigurationError for what can be known beforehand; StoreCorrupt
    for a journal, or an audit, that is damaged; PipelineFailed with the reason in one line when a job fails;
    KeyboardInterrupt. Then an earlier comparison is kept as it was.
    """
    refuse_connect(spark)
    say = on_progress or (lambda stage: None)
    results = AuditResults(options.audit)
    brokers = _brokers(results, options)
    columns = columns_beforehand(options.place, receipts=options.receipts is not None)
    if columns is not None:
        _identity_column(columns, options, brokers)  # what is wrong with it is told before Spark has started
    session = session_of(spark, options)
    try:
        return _TableComparison(session, results, options, brokers, say).run()
    except QUERY_ERRORS as error:
        raise cause_of(error)  # noqa: B904  # its cause says what kind it is


def _brokers(results: AuditResults, options: ReconcileOptions) -> list[str]:
    """Return the brokers whose queue is meant. Raises ConfigurationError where there is none."""
    of_queue = {row["broker"] for row in results.queues().to_pylist() if row["queue"] == options.queue}
    if not of_queue:
        raise ConfigurationError(f"the audit in {options.audit} knows no queue {options.queue}")
    found = sorted(broker for broker in of_queue if broker.startswith(options.broker or ""))
    if not found:
        raise ConfigurationError(
            f"queue {options.queue} is of the brokers {', '.join(sorted(of_queue))}; none begins with {options.broker}"
        )
    return found


def _identity_column(columns: Sequence[str], options: ReconcileOptions, brokers: Sequence[str]) -> str:
    """Return what the other side's rows are matched by: `SEQUENCE` or `MESSAGE_ID`. Raises ConfigurationError where
    they have no such column, or do not say of which broker they are, or lack the column of outcomes that was named;
    and as `refuse_alike`."""
    order = (SEQUENCE, MESSAGE_ID) if options.table is not None else (MESSAGE_ID, SEQUENCE)
    by = options.by or next((name for name in order if name in columns), None)
    if by is None or (options.column or by) not in columns:
        wanted = options.column or by or f"{order[0]} or {order[1]}"
        there = [name for name in columns if name != STATE_COLUMN]
        raise ConfigurationError(
            f"{options.place} has no column {wanted}; it has {', '.join(there) or 'none'}. "
            "Say which one, and what it is, with `by` and `column`"
        )
    if options.receipts is not None and options.outcome not in (None, *columns):
        raise ConfigurationError(f"{options.place} has no column {options.outcome} that would say how each send ended")
    exact = [options.column or by, *(["broker"] if "broker" in columns else [])]
    if options.receipts is not None:
        exact.append(options.outcome or _OUTCOME)
    refuse_alike(columns, exact, options.place)
    if by == SEQUENCE and "broker" not in columns and len(brokers) > 1:
        raise ConfigurationError(
            f"{options.place} has no column broker, and queue {options.queue} is of the brokers "
            f"{', '.join(brokers)}: say which one"
        )
    return by


@dataclass(frozen=True, slots=True)
class _Kept:
    """Messages that differ: where they were written, how many, and examples."""

    folder: str = ""
    """Below the audit's; "" where there is none."""
    counts: Mapping[Finding, int] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()


def journals_of(brokers: Iterable[BrokerState]) -> list[str]:
    """The data folders of these brokers. Raises ConfigurationError where one holds another journal by now, whose ids
    would be taken for none, and as `FolderReader.contents`."""
    folders = []
    for broker in brokers:
        store = str(FolderReader(Path(broker.folder)).contents().identity.store)
        if store != broker.store:
            raise ConfigurationError(
                f"{broker.folder} holds the journal of broker {store}; when it was audited, that of {broker.store}: "
                "message ids are read from the journal"
            )
        if "," in broker.folder:
            raise ConfigurationError(f"{broker.folder}: message ids cannot be read from a folder with a comma")
        folders.append(broker.folder)
    return folders


def ids_known_since_us(folders: Iterable[str]) -> int:
    """Return the time from which on the journals have the ids of all messages that were posted (microseconds since the
    epoch, the broker's clock); 0 where no segment is missing. Raises as `acquit.spark.ledger.chain.plan`."""
    segments = plan_segments(map(Path, folders))
    return max(
        (
            after.header.created_us
            for before, after in pairwise(segments)
            if before.state not in READABLE and after.header is not None and after.folder == before.folder
        ),
        default=0,
    )


class _TableComparison:
    def __init__(
        self,
        spark: SparkSession,
        results: AuditResults,
        options: ReconcileOptions,
        brokers: list[str],
        say: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._results = results
        self._options = options
        self._brokers = brokers
        self._say = say

    def run(self) -> Reconciliation:
        options = self._options
        self._say(f"reading {options.place}")
        other = self._other()
        by = _identity_column(other.columns, options, self._brokers)
        per_broker = "broker" in other.columns or by == SEQUENCE
        other = self._placed(other, by, per_broker=per_broker)
        ledger = self._ledger(by, per_broker=per_broker)
        self._say("comparing ranges")
        accepted = F.col("state") == ReceiptState.ACCEPTED.value
        sums = compared(marked(ledger, by, F.col("due")), marked(other, by, accepted)).cache()
        try:
            totals = totals_of(sums)
            kept = _Kept()
            if totals["differing"]:
                self._say(f"looking into {totals['differing']:,} of {totals['ranges']:,} ranges")
                ranges = sums.where("differs").select("scope", "range")
                if totals["differing"] <= _BROADCAST_MAX:
                    ranges = F.broadcast(ranges)
                judge = Judge(
                    against=options.against,
                    by=by,
                    complete=options.complete,
                    brokers=list(self._results.brokers.values()),
                    ids_known=by == SEQUENCE or self._ids_known(),
                )
                kept = self._kept(judge.judged(within(ledger, ranges, by), within(other, ranges, by)))
        finally:
            with suppress(*QUERY_ERRORS):
                sums.unpersist()
        nameless = {Finding.NAMELESS: totals["nameless"]} if totals["nameless"] else {}
        counts = {**kept.counts, **nameless}
        found = Reconciliation(
            against=options.against,
            place=str(options.place),
            broker=self._brokers[0] if len(self._brokers) == 1 else None,
            queue=options.queue,
            identity=by,
            made_at_us=time.time_ns() // 1_000,
            ledger_rows=totals["ledger"],
            other_rows=totals["other"],
            ranges=totals["ranges"],
            ranges_differing=totals["differing"],
            counts={finding: counts[finding] for finding in Finding if finding in counts},
            examples=kept.examples,
            findings=kept.folder,
        )
        replace_reconciliation(options.audit, found)
        return found

    # -- the two sides ------------------------------------------------------------------------------------------------

    def _other(self) -> DataFrame:
        options = self._options
        known_by = KNOWN_BY if options.column is None else (options.column,)
        if options.table is not None:
            return read_table(self._spark, options.table, known_by, ["broker"])
        assert options.receipts is not None
        return read_receipts(self._spark, options.receipts, options.outcome or _OUTCOME, known_by, ["broker"])

    def _placed(self, other: DataFrame, by: str, *, per_broker: bool) -> DataFrame:
        """The other side as rows of scope, key and state."""
        options = self._options
        kind = "bigint" if by == SEQUENCE else "string"
        scope: Column = F.lit("")
        if per_broker:
            scope = F.coalesce(F.col("broker"), F.lit("")) if "broker" in other.columns else F.lit(self._brokers[0])
        column = options.column or by
        key = named(column)
        if by == SEQUENCE and other.schema[column].dataType == StringType():
            # The text of a float has a point or an exponent, and pandas makes floats of numbers where one is missing.
            number = key.try_cast("decimal(38, 9)")
            key = F.when(number % 1 == 0, number)
        rows = other.select(
            scope.alias("scope"),
            # What is none has no identity, whatever the session makes of a cast that fails.
            key.try_cast(kind).alias("key"),
            (F.col(STATE_COLUMN) if options.receipts is not None else F.lit(ReceiptState.ACCEPTED.value)).alias(
                "state"
            ),
        )
        if options.broker is not None and per_broker:
            rows = rows.where(F.col("scope").isin(self._brokers))
        return rows

    def _ledger(self, by: str, *, per_broker: bool) -> DataFrame:
        """The ledger as rows of scope, key, and what it says of the message."""
        options = self._options
        columns = ("broker", "queue", "sequence", "origin", "entered", "outcome", "posted_at")
        parts = []
        closed, opened = self._results.closed(self._spark), self._results.open(self._spark)
        if closed is not None:
            parts.append(closed.select(*columns))
        if opened is not None:
            parts.append(opened.withColumn("outcome", F.lit(None).cast("string")).select(*columns))
        nothing = (
            "broker string, queue string, sequence bigint, origin bigint, entered string, outcome string, "
            "posted_at timestamp"
        )
        rows = reduce(DataFrame.unionByName, parts) if parts else self._spark.createDataFrame([], nothing)
        rows = rows.where(F.col("broker").isin(self._brokers))
        mine = F.coalesce(F.col("queue") == options.queue, F.lit(False))
        taken = F.coalesce(F.col("outcome").isin(*options.taken), F.lit(False))
        posted = F.coalesce(F.col("entered") == "POSTED", F.lit(False))
        counted = mine & (taken if options.table is not None else posted)
        in_time: Column = F.lit(True)
        if options.since is not None:
            in_time = in_time & (F.col("posted_at") >= F.lit(options.since))
        if options.until is not None:
            in_time = in_time & (F.col("posted_at") < F.lit(options.until))
        rows = rows.select(
            "broker",
            "sequence",
            "origin",
            F.when(mine, fate()).otherwise(0).alias("here"),
            F.when(mine, 0).otherwise(fate()).alias("there"),
            counted.alias("counted"),
            (counted & F.coalesce(in_time, F.lit(False))).alias("due"),
            (mine & ~counted & F.col("outcome").isNotNull()).alias("otherwise"),
            (mine & ~counted & F.col("outcome").isNull()).alias("live"),
            (~mine).alias("elsewhere"),
        )
        if by == MESSAGE_ID:
            rows = self._with_ids(rows)
        else:
            rows = rows.withColumn("key", F.col("sequence")).withColumn("suppressed", F.lit(0))
        scope: Column = F.col("broker") if per_broker else F.lit("")
        return rows.withColumn("scope", scope).drop("broker", "sequence", "origin")

    def _with_ids(self, rows: DataFrame) -> DataFrame:
        """Add the message ids of postings, and how many that repeated them were suppressed. A copy (a second
        subscription, a dead letter, what a transaction held) has the id of the message that it is a copy of."""
        folders = self._journals()
        ids = (
            self._spark.read.format(FORMAT_NAME)
            .schema("broker string, sequence bigint, kind string, message_id string")
            .options(folders=",".join(folders), details="true", missing="allow")
            .load()
            .where("message_id is not null or kind = 'DUPLICATE'")
            .groupBy("broker", "sequence")
            .agg(F.first("message_id", True).alias("key"), F.count_if(F.col("kind") == "DUPLICATE").alias("suppressed"))
        )
        of_origin = ids.select("broker", F.col("sequence").alias("origin"), F.col("key").alias("origin_key"))
        found = rows.join(ids, ["broker", "sequence"], "left").join(of_origin, ["broker", "origin"], "left")
        # What was posted without an id cannot be known to the other side by one.
        key = F.coalesce("key", "origin_key")
        found = found.withColumn("key", key).drop("origin_key").where(F.col("key").isNotNull())
        return found.na.fill(0, ["suppressed"])

    def _journals(self) -> list[str]:
        return journals_of(broker for broker in self._results.brokers.values() if broker.store in self._brokers)

    def _ids_known(self) -> bool:
        """True if the ids of all postings that are compared are known: since `since`, where that is given."""
        known_since_us = ids_known_since_us(self._journals())
        since = self._options.since
        return not known_since_us or (since is not None and round(since.timestamp() * 1e6) >= known_since_us)

    # -- where they differ --------------------------------------------------------------------------------------------

    def _kept(self, found: DataFrame) -> _Kept:
        """Write what was found."""
        name = f"{FINDINGS}-{secrets.token_hex(8)}"
        place = str(self._options.audit / name)
        found.write.parquet(place)
        written = self._spark.read.schema(found.schema).parquet(literal_path(place))
        place_in_kind = F.row_number().over(
            Window.partitionBy("finding").orderBy("broker", F.length("identity"), "identity")
        )
        of_kind = F.count("*").over(Window.partitionBy("finding"))
        some = written.withColumn("place", place_in_kind).withColumn("of_kind", of_kind)
        rows = some.where(F.col("place") <= EXAMPLES_MAX).collect()
        if not rows:
            shutil.rmtree(place, ignore_errors=True)
            return _Kept()
        order = list(Finding)
        rows.sort(key=lambda row: (order.index(Finding(row["finding"])), row["place"]))
        examples = tuple(
            Example(
                finding=Finding(row["finding"]),
                broker=row["broker"],
                identity=row["identity"],
                ledger=row["ledger"],
                other=row["other"],
            )
            for row in rows
        )
        return _Kept(name, {Finding(row["finding"]): row["of_kind"] for row in rows}, examples)
