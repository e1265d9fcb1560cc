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

import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import DateType, StructType

from acquit.errors import ConfigurationError, ConnectionFailed, EndpointError, PipelineFailed
from acquit.spark.beforehand import check_beforehand
from acquit.spark.columns import BY_NAME, schema_ddl
from acquit.spark.decoding import body_ddl
from acquit.spark.delta import DeltaAppender, WrittenFile, check_table
from acquit.spark.files import make_folders
from acquit.spark.link import broker_id, connect_patiently
from acquit.spark.metrics import metrics_of
from acquit.spark.options import FORMAT_NAME, BrokerAccess
from acquit.spark.session import QUERY_ERRORS, check_start, failure_of, interrupts, reason_of, start_session
from acquit.spark.source import AcquitDataSource
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import Spool, SpoolStatus, Totals, open_store
from acquit.spark.spool.places import read_place, refuse_private
from acquit.spark.table_source import POSTED_DAY, FilesOrder, TableFilesSource
from acquit.spark.tables import TableKind, open_delta, refuse_misread, table_kind

if TYPE_CHECKING:
    from acquit.spark.audit.reconciled import Reconciliation

WORK_FOLDER: Final = "_acquit"
TARGET_FILE_BYTES: Final = 16 << 20
_POSTED_DAY_SQL: Final = (
    f"date_from_unix_date(cast(floor(unix_micros(posted_at) / 86400000000) AS INT)) AS {POSTED_DAY}"
)
_TRIGGER: Final = re.compile(r"\d+\s+(millisecond|second|minute|hour|day)s?")
_PARTITION_TYPES: Final = ("STRING", "BOOLEAN")
_POLL_S: Final = 0.2
_CUT_OFF: Final = "py4j.protocol.Py4JJavaError: An error occurred while calling collect: java.lang.InterruptedException"
"""How Spark knows an error in `foreachBatch` that comes of stopping the query."""


class TableFormat(StrEnum):
    """What kind of table."""

    DELTA = "delta"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions(BrokerAccess):
    """What to ingest, and where to. Raises ConfigurationError for what cannot be."""

    address: str | tuple[str, ...]
    """The queue, or several."""
    table: Path
    """Folder of the table, seen under the same path by driver and workers."""
    format: TableFormat = TableFormat.DELTA
    columns: tuple[str, ...] = ()
    """Columns of the source that the table has; by default all."""
    partition_by: tuple[str, ...] = ()
    """Columns to make partitions by: chosen ones of type STRING or BOOLEAN with few values (`queue`, `subject`), or
    ``posted_day``, which is made of `posted_at` in UTC and added to the table. Each batch makes a file for each value,
    so a partition should take days to become large. By default none."""
    target_file_bytes: int | None = None
    """Delta: small files are merged as the stream goes into files of up to about this size; 0 for never. By default
    16 MiB."""
    work: Path | None = None
    """Folder of the query's spool and checkpoint; by default `_acquit` in the table's folder."""
    spool: str | None = None
    """The spool, where it is not to be in `work`: an absolute path, or ``s3://bucket/path``."""
    create: bool = False
    """Whether a queue that is not there is made by reading it, instead of being a mistake. For a run with a `trigger`
    that may begin before its producers. Brokers other than acquit do as they do."""
    parts: int = 2
    """Tasks that read the queue in parallel."""
    source: Mapping[str, str] = field(default_factory=dict)
    """More options of the source, by their names in `docs/spark.md`."""
    ledger: Path | None = None
    """A folder of the broker's data, seen here: at the end the ledger is audited into `work`, and reconciled with the
    table (`acquit.spark.audit.reconcile`). Of one queue, with the column `sequence` or `message_id`."""
    trigger: str | None = None
    """None: ingest what is in the queue now, and end. Else run until interrupted, a batch each such interval
    (``2 seconds``; ``0 seconds`` for as fast as may be)."""
    master: str | None = None
    """For a session that is started here: ``local[4]``, ``spark://host:7077``."""
    memory_mb: int = 1_024
    """For a session that is started here: memory of the driver's JVM."""

    def __post_init__(self) -> None:
        if not self.table.is_absolute():
            raise ConfigurationError(f"table: expected an absolute path, got {self.table}")
        if self.trigger is not None and _TRIGGER.fullmatch(self.trigger.strip()) is None:
            raise ConfigurationError(f"trigger: expected an interval such as '2 seconds', got {self.trigger!r}")
        if self.target_file_bytes is not None:
            if self.format is not TableFormat.DELTA:
                raise ConfigurationError(
                    "target file size: the files of a Parquet table that Spark lists are not merged"
                )
            if self.target_file_bytes < 0:
                raise ConfigurationError(f"target file size: expected bytes, got {self.target_file_bytes}")
        if self.ledger is not None:
            self._check_ledger(self.ledger)
        source = SourceOptions.parse(self.source_options())
        for place in (self.work_folder, Path(source.spool)):
            if place.is_relative_to(self.table) and not str(place.relative_to(self.table)).startswith("_"):
                raise ConfigurationError(
                    f"{place} is within the table's folder: there its name must begin with _, as a vacuum removes what "
                    "is not the table's"
                )
        available = _columns_of(source)
        unknown = [name for name in self.columns if name not in available]
        if unknown:
            raise ConfigurationError(f"columns: {', '.join(unknown)} given; the source has {', '.join(available)}")
        self._check_partitions()

    def _check_ledger(self, ledger: Path) -> None:
        if not ledger.is_absolute():
            raise ConfigurationError(f"ledger: expected an absolute path, got {ledger}")
        if not ledger.is_dir():
            raise ConfigurationError(f"ledger {ledger}: expected the folder of a broker's data")
        if len(self.addresses) > 1:
            raise ConfigurationError("ledger: a table of several queues is not reconciled; make one for each")
        if self.columns and not {"sequence", "message_id"} & set(self.columns):
            raise ConfigurationError("ledger: expected sequence or message_id among the columns, to know messages by")
        if not (ledger / "broker.json").is_file():
            raise ConfigurationError(
                f"ledger {ledger}: expected the folder of a broker's data, which has a broker.json"
            )

    def _check_partitions(self) -> None:
        for name in self.partition_by:
            field = BY_NAME.get(name)
            if name != POSTED_DAY and (field is None or field.spark_type not in _PARTITION_TYPES):
                raise ConfigurationError(
                    f"partition by {name}: expected {POSTED_DAY}, or a column of type {' or '.join(_PARTITION_TYPES)}"
                )
            if name != POSTED_DAY and self.columns and name not in self.columns:
                raise ConfigurationError(f"partition by {name}: not one of the columns {', '.join(self.columns)}")
        if self.columns and not set(self.columns) - set(self.partition_by):
            raise ConfigurationError("partition by: expected at least one column that is not a partition's")

    @property
    def addresses(self) -> tuple[str, ...]:
        """The queues."""
        return (self.address,) if isinstance(self.address, str) else self.address

    @property
    def work_folder(self) -> Path:
        """Where spool and checkpoint are."""
        return self.work if self.work is not None else self.table / WORK_FOLDER

    def source_options(self) -> dict[str, str]:
        """As the source takes them."""
        queues = self.addresses
        return {
            **self.access_options(),
            **({"address": queues[0]} if len(queues) == 1 else {"addresses": ",".join(queues)}),
            "spool": self.spool or str(self.work_folder / "spool"),
            "parts": str(self.parts),
            "create": str(self.create).lower(),
            **self.source,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSummary:
    """What a run did. Messages that an earlier run had taken and not yet put into the table count as its rows only."""

    table: Path
    query_id: str
    batches: int
    """With rows."""
    rows: int
    """Put into the table."""
    taken: Totals
    """Taken from the queue by this run: rows, set aside as come again, corrupt, rejected, conflicts."""
    duration_s: float
    spool: SpoolStatus
    """How the spool stands: what is remembered, what was forgotten."""
    reconciliation: Reconciliation | None = None
    """The ledger beside the whole table, where `ledger` was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestProgress:
    """So far."""

    batch_id: int
    batch_rows: int
    rows: int
    """Of all batches of this run."""
    left: int | None
    """Messages that were available when the batch was planned, over all queues; None where the broker does not tell."""


def ingest(
    options: IngestOptions,
    *,
    spark: SparkSession | None = None,
    on_progress: Callable[[IngestProgress], None] | None = None,
) -> IngestSummary:
    """Run the pipeline. An interrupt (KeyboardInterrupt) of a run with a `trigger` ends it in order, with its summary.

    Raises ConfigurationError for what can be known beforehand, PipelineFailed with the reason in one line when the
    query ends with an error: what is in the table then is right, and the next run goes on from there. What
    `on_progress` raises ends the query too, and is raised.
    """
    started_s = time.monotonic()
    _check_table(options)
    if spark is None:
        check_start(options.master)
    _check_queues(options)
    session = spark if spark is not None else start_session(master=options.master, memory_mb=options.memory_mb)
    session.dataSource.register(AcquitDataSource)
    session.dataSource.register(TableFilesSource)
    spool = Spool(open_store(read_place(options.source_options()["spool"])))
    refuse_private(spool.place, session.conf.get("spark.master") or "local")
    before = spool.state().totals
    run = _Run(options, on_progress)
    try:
        query = run.start(session)
        run.follow(query)
    except QUERY_ERRORS as error:
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


class _Run:
    """One run of the query, and what has been heard of it."""

    def __init__(self, options: IngestOptions, on_progress: Callable[[IngestProgress], None] | None) -> None:
        self._options = options
        self._on_progress = on_progress
        self._heard = -1
        self._written: dict[int, int] = {}
        """Rows of the batches that went into a Delta table. What Spark counts there are files."""
        self._stopping = threading.Event()
        self.rows = 0
        self.batches = 0

    def start(self, session: SparkSession) -> StreamingQuery:
        _check_body_schema(self._options)
        if self._options.format is TableFormat.PARQUET:
            return self._to_parquet(session)
        return self._to_delta(session)

    def _to_parquet(self, session: SparkSession) -> StreamingQuery:
        options = self._options
        frame = session.readStream.format(FORMAT_NAME).options(**options.source_options()).load()
        chosen = list(options.columns or frame.columns)
        frame = frame.selectExpr(*chosen, *((_POSTED_DAY_SQL,) if POSTED_DAY in options.partition_by else ()))
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
        appender: DeltaAppender | None = None

        def append(batch: DataFrame, batch_id: int) -> None:
            nonlocal appender
            if appender is None:
                query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
                assert query_id is not None
                appender = DeltaAppender(options.table, schema, query_id, options.partition_by)
            if appender.is_done(batch_id):
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
        if options.trigger is None:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=options.trigger)

    def follow(self, query: StreamingQuery) -> None:
        """Until it ends. Raises what it ended with, or what `on_progress` raises: then it has been stopped."""
        try:
            with interrupts() as interrupted:
                while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]  # it takes fractions
                    self._listen(query)
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

    def _listen(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            batch_id, rows = int(progress["batchId"]), int(progress["numInputRows"])
            if batch_id <= self._heard or not rows:
                continue
            rows = self._written.pop(batch_id, rows)
            self._heard = batch_id
            self.batches += 1
            self.rows += rows
            if self._on_progress is not None:
                left = _left(progress)
                self._on_progress(IngestProgress(batch_id=batch_id, batch_rows=rows, rows=self.rows, left=left))


def _columns_of(source: SourceOptions) -> list[str]:
    """What the source has with these options."""
    decoded = body_ddl(source.body_as, source.body_schema)
    return [*BY_NAME, *(() if decoded is None else (decoded.partition(" ")[0],))]


def _table_columns(options: IngestOptions) -> StructType:
    """Of a Delta table, in their order."""
    source = SourceOptions.parse(options.source_options())
    found = StructType.fromDDL(schema_ddl(source.body_as, source.body_schema))
    assert isinstance(found, StructType)
    columns = StructType([found[name] for name in options.columns or found.names])
    return columns.add(POSTED_DAY, DateType()) if POSTED_DAY in options.partition_by else columns


def _written(row: Row) -> WrittenFile:
    found = row.asDict()
    return WrittenFile(**{**found, "partition": tuple(found["partition"].items())})


def _check_body_schema(options: IngestOptions) -> None:
    """Raise ConfigurationError for DDL that is none. Of a whole schema with such a column Spark names another place."""
    source = SourceOptions.parse(options.source_options())
    column = body_ddl(source.body_as, source.body_schema)
    if source.body_schema is None or column is None:
        return
    try:
        StructType.fromDDL(column)
    except PySparkException as error:
        raise ConfigurationError(
            f"option bodySchema = {source.body_schema!r}: expected DDL such as `id BIGINT, tags ARRAY<STRING>`; "
            f"Spark says: {reason_of(error)}"
        ) from error


def _left(progress: Mapping[str, object]) -> int | None:
    depths = [depth for source in metrics_of(progress) for depth in source.queue_depth.values()]
    known = [depth for depth in depths if depth is not None]
    return sum(known) if known and len(known) == len(depths) else None


def _check_table(options: IngestOptions) -> None:
    """What is known of the table before Spark starts. Raises ConfigurationError where it cannot be this pipeline's."""
    table = options.table
    if options.format is TableFormat.DELTA:
        refuse_misread(table)
    try:
        make_folders(table)
    except OSError as error:
        if table.is_file():
            raise ConfigurationError(f"table {table}: expected a folder, or nothing yet; found a file") from None
        raise ConfigurationError(f"table {table}: the folder cannot be made: {error.strerror}") from error
    try:
        kind = table_kind(table)
    except ConfigurationError:
        _check_empty(table)
        _check_not_lost(options)
        return
    if kind is not _KINDS[options.format]:
        raise ConfigurationError(
            f"table {table}: expected nothing yet or a table of format {options.format}, found {_FOUND[kind]}"
        )
    if kind is TableKind.DELTA:
        if not DeltaTable.is_deltatable(str(table)):  # killed before the log had its first entry
            _check_not_lost(options)
            return
        names = [*(options.columns or _columns_of(SourceOptions.parse(options.source_options())))]
        names += [POSTED_DAY] if POSTED_DAY in options.partition_by else []
        check_table(open_delta(table), table, names, options.partition_by)


def _check_not_lost(options: IngestOptions) -> None:
    """Raise ConfigurationError where there is no table and the query has one: its first batch makes it."""
    checkpoint = options.work_folder / "checkpoint"
    if any(path.name.isdecimal() for path in (checkpoint / "commits").glob("*")):
        raise ConfigurationError(
            f"table {options.table}: it is not there, and the query whose checkpoint is {checkpoint} has put batches "
            f"into it. Name the table that it was; or, for a new one, remove {options.work_folder} and its spool too"
        )


def _check_queues(options: IngestOptions) -> None:
    """Raise ConfigurationError for a queue that is not there, unless it may be made, and for a selector that is none;
    PipelineFailed where no broker answers. The source asks the same, but only when Spark has started; so if the
    connection is lost here, it is left to that."""
    source = SourceOptions.parse(options.source_options())
    if source.create and source.selector is None:
        return
    try:
        connection = connect_patiently(source)
    except ConnectionFailed as error:
        raise PipelineFailed(str(error)) from error
    with suppress(EndpointError), connection:
        if broker_id(connection) is not None:
            check_beforehand(connection, source)


def _check_empty(table: Path) -> None:
    """Raise ConfigurationError where the folder, which has no table, has files: it is that of something else. Folders
    may be there: ours, of a run that was killed before its first batch was done."""
    others = [path.name for path in table.iterdir() if path.name[0] not in "._" and path.is_file()]
    if others:
        raise ConfigurationError(
            f"table {table}: expected nothing yet, or a table; found other files, such as {min(others)}"
        )


_KINDS: Final = {TableFormat.DELTA: TableKind.DELTA, TableFormat.PARQUET: TableKind.STREAM}
_FOUND: Final = {
    TableKind.DELTA: "a Delta table",
    TableKind.STREAM: "the Parquet files of a Spark stream",
    TableKind.PLAIN: "Parquet files of something else",
}
