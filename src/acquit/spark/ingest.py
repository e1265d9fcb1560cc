"""The pipeline *ingest*: from a queue into a table, each posting once, and an account of what was done.

``ingest(IngestOptions(url=..., address=..., table=...))`` runs a streaming query from the source `acquit` into a Delta
table or a folder of Parquet files, until what is in the queue now is in the table, or for ever with a `trigger`.

Exactly once to the end, because each link of the chain is: the source gives every batch the same rows however often it
is read (`spark.spool`), and the table takes each batch once: Delta by a transaction identifier (`spark.delta`), Parquet
by the list that Spark keeps beside the files (`_spark_metadata`, which Spark and few others read).

**Small files.** Each batch makes a file for each part. In a Delta table small ones are merged as the stream goes, into
files of up to `target_file_bytes` (`spark.merging`); `spark.compact` makes large ones. Parquet files that Spark lists
cannot be exchanged: there longer batches (`trigger`) are what helps, and a compacted copy.

The query's own files, spool and checkpoint, belong together and to one table. By default they lie in the table's
folder, in ``_acquit``: readers of tables skip names that begin with an underscore.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deltalake import DeltaTable
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import DateType, StructType

from acquit.errors import PipelineFailed
from acquit.spark.beforehand import STARTING, WAITING
from acquit.spark.columns import schema_ddl
from acquit.spark.delta import DeltaAppender, WrittenFile
from acquit.spark.delta import check_types as check_delta_types
from acquit.spark.ingest_checks import check_body_schema, check_queues, check_table, check_types
from acquit.spark.ingest_options import IngestOptions, TableFormat
from acquit.spark.metrics import metrics_of
from acquit.spark.options import FORMAT_NAME
from acquit.spark.session import (
    QUERY_ERRORS,
    QUICK_JAVA,
    check_start,
    failure_of,
    interrupts,
    refuse_connect,
    session_of,
)
from acquit.spark.source import AcquitDataSource
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import LogTotals, Spool, SpoolStatus, open_store
from acquit.spark.spool.places import read_place, refuse_private
from acquit.spark.table_source import POSTED_DAY, FilesOrder, TableFilesSource
from acquit.spark.tables import open_delta

if TYPE_CHECKING:
    from acquit.spark.audit.reconciled import Reconciliation

TARGET_FILE_BYTES: Final = 16 << 20
_POSTED_DAY_SQL: Final = (
    f"date_from_unix_date(cast(floor(unix_micros(posted_at) / 86400000000) AS INT)) AS {POSTED_DAY}"
)
_POLL_S: Final = 0.2
_QUIET_S: Final = 10.0
"""Seconds without a batch after which a run says that it lives."""
_CUT_OFF: Final = "py4j.protocol.Py4JJavaError: An error occurred while calling collect: java.lang.InterruptedException"
"""Message by which Spark recognises an error in `foreachBatch` that comes of stopping the query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSummary:
    """Result of a run. Messages that an earlier run took and did not yet put into the table count as rows only."""

    table: Path
    query_id: str
    batches: int
    """Batches with rows."""
    rows: int
    """Put into the table."""
    taken: LogTotals
    """Taken from the queue by this run: rows, set aside as come again, corrupt, rejected, conflicts."""
    duration_s: float
    spool: SpoolStatus
    """State of the spool: what it remembers, what it forgot."""
    reconciliation: Reconciliation | None = None
    """The ledger beside the whole table, where `ledger` was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestProgress:
    """Progress of a run so far."""

    batch_id: int
    batch_rows: int
    rows: int
    """Rows of all batches of this run."""
    left: int | None
    """Messages that were available when the batch was planned, over all queues; None where the broker does not tell."""


def ingest(
    options: IngestOptions,
    *,
    spark: SparkSession | None = None,
    on_progress: Callable[[IngestProgress], None] | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> IngestSummary:
    """Run the pipeline. An interrupt (KeyboardInterrupt) of a run with a `trigger` ends it in order, with its summary.

    `on_progress` is told of each batch with rows, and `on_stage` what is being done before the first, and after ten
    seconds without one, again and again, that the query lives.

    Raises ConfigurationError for what can be known beforehand, PipelineFailed with the reason in one line when the
    query ends with an error: what is in the table then is right, and the next run goes on from there. What
    `on_progress` raises ends the query too, and is raised.
    """
    started_s = time.monotonic()
    refuse_connect(spark)
    options = check_table(options)
    if spark is None:
        check_start(options.master)
    say = on_stage or (lambda stage: None)
    say(WAITING.format(options.url))
    check_queues(options)
    say(STARTING)
    session = session_of(spark, options, java_options=QUICK_JAVA)
    session.dataSource.register(AcquitDataSource)
    session.dataSource.register(TableFilesSource)
    spool = Spool(open_store(read_place(options.source_options()["spool"])))
    refuse_private(spool.place, session.conf.get("spark.master") or "local")
    before = spool.state().totals
    run = _IngestRun(options, on_progress, say)
    try:
        query = run.start(session)
        run.follow(query)
        while run.passed_over and options.trigger is None:
            query = run.start(session)
            run.follow(query)
    except QUERY_ERRORS as error:
        if error is run.raised:
            raise
        raise failure_of(error)  # noqa: B904  # its cause says what kind it is
    status = spool.status()
    reconciliation = None if options.ledger is None else _reconcile(session, options, options.ledger)
    return IngestSummary(
        table=options.table,
        query_id=str(query.id),
        batches=run.batches,
        rows=run.rows,
        taken=status.totals - before,
        duration_s=time.monotonic() - started_s,
        spool=status,
        reconciliation=reconciliation,
    )


def _reconcile(session: SparkSession, options: IngestOptions, ledger: Path) -> Reconciliation:
    from acquit.spark.audit import AuditOptions, audit
    from acquit.spark.audit.reconcile import ReconcileOptions, reconcile

    into = options.work_folder / "audit"
    audit(AuditOptions(folders=(ledger,), into=into), spark=session)
    return reconcile(ReconcileOptions(audit=into, queue=options.addresses[0], table=options.table), spark=session)


class _IngestRun:
    """Run of the query, and what has been reported of it."""

    def __init__(
        self,
        options: IngestOptions,
        on_progress: Callable[[IngestProgress], None] | None,
        say: Callable[[str], None] = lambda stage: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._on_progress = on_progress
        self._say = say
        self._clock = clock
        self._told_s = clock()
        self._heard = -1
        self._written: dict[int, int] = {}
        """Rows of the batches that went into a Delta table. What Spark counts there are files."""
        self._stopping = threading.Event()
        self.raised: BaseException | None = None
        """Error that `on_progress` raised: it may be of a type that Spark's errors have as well."""
        self.rows = 0
        self.batches = 0
        self.passed_over = False
        """True if the table had the newest batch already. Of a checkpoint and a spool that were put back together, and
        are older than the table, that is one that nobody has read, which the source takes for the end."""

    def start(self, session: SparkSession) -> StreamingQuery:
        self.passed_over = False
        check_body_schema(self._options)
        if self._options.format is TableFormat.PARQUET:
            return self._to_parquet(session)
        return self._to_delta(session)

    def _to_parquet(self, session: SparkSession) -> StreamingQuery:
        options = self._options
        frame = session.readStream.format(FORMAT_NAME).options(**options.source_options()).load()
        chosen = list(options.columns or frame.columns)
        frame = frame.selectExpr(*chosen, *((_POSTED_DAY_SQL,) if POSTED_DAY in options.partition_by else ()))
        check_types(options, frame.schema)
        writer = self._writer(frame)
        if options.partition_by:
            writer = writer.partitionBy(*options.partition_by)
        return writer.format("parquet").option("path", str(options.table)).start()

    def _to_delta(self, session: SparkSession) -> StreamingQuery:
        options = self._options
        columns = _table_columns(options)
        order = FilesOrder(options.table, columns, options.partition_by)
        source = session.readStream.format(TableFilesSource.name())
        frame = source.options(**options.source_options(), **order.to_option()).load()
        target_bytes = TARGET_FILE_BYTES if options.target_file_bytes is None else options.target_file_bytes
        schema = to_arrow_schema(columns, timezone="UTC")
        if DeltaTable.is_deltatable(str(options.table)):
            check_delta_types(open_delta(options.table), options.table, schema)
        appender: DeltaAppender | None = None

        def append(batch: DataFrame, batch_id: int) -> None:
            nonlocal appender
            if appender is None:
                query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
                assert query_id is not None
                appender = DeltaAppender(options.table, schema, query_id, options.partition_by)
            self.passed_over = appender.is_done(batch_id)
            if self.passed_over:
                return
            files = [_written(row) for row in self._collect(batch)]
            if files:
                appender.commit(batch_id, files)
                self._written[batch_id] = sum(file.rows for file in files)
                if target_bytes:
                    appender.merge_small(batch_id, target_bytes)

        return self._writer(frame).foreachBatch(append).start()

    def _collect(self, batch: DataFrame) -> list[Row]:
        try:
            return batch.collect()
        except QUERY_ERRORS:
            if not self._stopping.is_set():
                raise
        # Spark looks for these words with a pattern that takes some of its stack for each character behind them. What
        # was raised has Java's whole trace, and ended in a StackOverflowError, which a thread prints.
        raise PipelineFailed(_CUT_OFF)

    def _writer(self, frame: DataFrame) -> DataStreamWriter:
        options = self._options
        writer = frame.writeStream.option("checkpointLocation", str(options.work_folder / "checkpoint"))
        writer = writer.queryName(f"ingest {', '.join(options.addresses)}")
        if options.trigger_ms is None:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{options.trigger_ms} milliseconds")

    def follow(self, query: StreamingQuery) -> None:
        """Wait until the query ends. Raises its error, or what `on_progress` raises; the query is stopped then."""
        try:
            with interrupts() as interrupted:
                while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]  # it takes fractions
                    self._listen(query)
                    self._say_that_it_lives(query)
                    if interrupted.is_set():
                        raise KeyboardInterrupt
        except KeyboardInterrupt:
            self._stopping.set()
            query.stop()
            if self._options.trigger is None:
                raise
        except BaseException:
            self._stopping.set()
            with suppress(*QUERY_ERRORS):  # what is told is what came first
                query.stop()
            raise
        self._listen(query)
        error = query.exception()
        if error is not None:
            raise error

    def _say_that_it_lives(self, query: StreamingQuery) -> None:
        """Tell an idle run, and a long batch, from a dead one."""
        if self._clock() - self._told_s >= _QUIET_S:
            self._told_s = self._clock()
            doing = "a batch is under way" if query.status["isTriggerActive"] else "waiting for messages"
            self._say(f"{self.rows:,} row{'' if self.rows == 1 else 's'}, {doing}")

    def _listen(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            batch_id, rows = int(progress["batchId"]), int(progress["numInputRows"])
            if batch_id <= self._heard or not rows:
                continue
            rows = self._written.pop(batch_id, rows)
            self._heard = batch_id
            self.batches += 1
            self.rows += rows
            self._told_s = self._clock()
            if self._on_progress is not None:
                told = IngestProgress(batch_id=batch_id, batch_rows=rows, rows=self.rows, left=_left(progress))
                try:
                    self._on_progress(told)
                except BaseException as error:
                    self.raised = error
                    raise


def _table_columns(options: IngestOptions) -> StructType:
    """Return the columns of a Delta table, in their order."""
    source = SourceOptions.parse(options.source_options())
    found = StructType.fromDDL(schema_ddl(source.body_as, source.body_schema))
    assert isinstance(found, StructType)
    columns = StructType([found[name] for name in options.columns or found.names])
    return columns.add(POSTED_DAY, DateType()) if POSTED_DAY in options.partition_by else columns


def _written(row: Row) -> WrittenFile:
    found = row.asDict()
    return WrittenFile(**{**found, "partition": tuple(found["partition"].items())})


def _left(progress: Mapping[str, object]) -> int | None:
    depths = [depth for source in metrics_of(progress) for depth in source.queue_depth.values()]
    known = [depth for depth in depths if depth is not None]
    return sum(known) if known and len(known) == len(depths) else None


__all__ = ["IngestOptions", "IngestProgress", "IngestSummary", "TableFormat", "ingest"]
