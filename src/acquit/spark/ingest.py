"""The pipeline *ingest*: from a queue into a table, each posting once, and an account of what was done.

``ingest(IngestOptions(url=..., address=..., table=...))`` runs a streaming query from the source `acquit` into a Delta
table or a folder of Parquet files, until what is in the queue now is in the table, or for ever with a `trigger`.

Exactly once to the end, because each link of the chain is: the source gives every batch the same rows however often it
is read (`spark.spool`), and the table takes each batch once: Delta by a transaction identifier (`spark.delta`), Parquet
by the list that Spark keeps beside the files (`_spark_metadata`, which Spark and few others read).

The query's own files, spool and checkpoint, belong together and to one table. By default they lie in the table's
folder, in ``_acquit``: readers of tables skip names that begin with an underscore.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acquit.errors import ConfigurationError, PipelineFailed
from acquit.spark.columns import BY_NAME
from acquit.spark.delta import DeltaAppender, written_files
from acquit.spark.options import FORMAT_NAME
from acquit.spark.session import reason_of, start_session
from acquit.spark.source import AcquitDataSource
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import FolderStore, Spool, SpoolStatus, Totals
from acquit.spark.spool.places import refuse_private

WORK_FOLDER: Final = "_acquit"
_POLL_S: Final = 0.2


class TableFormat(StrEnum):
    """What kind of table."""

    DELTA = "delta"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """What to ingest, and where to. Raises ConfigurationError for what cannot be."""

    url: str
    """The broker: ``amqp://host:port``, without user and password."""
    address: str
    """The queue."""
    table: Path
    """Folder of the table, seen under the same path by driver and workers."""
    format: TableFormat = TableFormat.DELTA
    columns: tuple[str, ...] = tuple(BY_NAME)
    """Columns of the source that the table has."""
    work: Path | None = None
    """Folder of the query's spool and checkpoint; by default `_acquit` in the table's folder."""
    user: str | None = None
    credential: str | None = None
    """Where the password is: ``env:NAME``, ``file:PATH`` or ``provider:module.function``."""
    parts: int = 2
    """Tasks that read the queue in parallel."""
    source: Mapping[str, str] = field(default_factory=dict)
    """More options of the source, by their names in `docs/spark.md`."""
    trigger: str | None = None
    """None: ingest what is in the queue now, and end. Else run until interrupted, a batch each such interval
    (``2 seconds``; ``0 seconds`` for as fast as may be)."""
    master: str | None = None
    """For a session that is started here: ``local[4]``, ``spark://host:7077``."""
    memory_mb: int = 1_024
    """For a session that is started here: memory of the driver's JVM."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.columns if name not in BY_NAME]
        if unknown or not self.columns:
            raise ConfigurationError(
                f"columns: {', '.join(unknown) or 'none'} given; the source has {', '.join(BY_NAME)}"
            )
        if not self.table.is_absolute():
            raise ConfigurationError(f"table: expected an absolute path, got {self.table}")
        self.source_options()

    @property
    def work_folder(self) -> Path:
        """Where spool and checkpoint are."""
        return self.work if self.work is not None else self.table / WORK_FOLDER

    def source_options(self) -> dict[str, str]:
        """As the source takes them; checked."""
        options = {
            "url": self.url,
            "address": self.address,
            "spool": str(self.work_folder / "spool"),
            "parts": str(self.parts),
            **({"user": self.user} if self.user is not None else {}),
            **({"credential": self.credential} if self.credential is not None else {}),
            **self.source,
        }
        SourceOptions.parse(options)
        return options


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


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestProgress:
    """So far."""

    batch_id: int
    batch_rows: int
    rows: int
    """Of all batches of this run."""


def ingest(
    options: IngestOptions,
    *,
    spark: SparkSession | None = None,
    on_progress: Callable[[IngestProgress], None] | None = None,
) -> IngestSummary:
    """Run the pipeline. An interrupt (KeyboardInterrupt) of a run with a `trigger` ends it in order, with its summary.

    Raises ConfigurationError for what can be known beforehand, PipelineFailed with the reason in one line when the
    query ends with an error: what is in the table then is right, and the next run goes on from there.
    """
    started_s = time.monotonic()
    session = spark if spark is not None else start_session(master=options.master, memory_mb=options.memory_mb)
    session.dataSource.register(AcquitDataSource)
    spool = Spool(FolderStore(options.work_folder / "spool"))
    refuse_private(spool.place, session.conf.get("spark.master") or "local")
    before = spool.state().totals
    run = _Run(options, on_progress)
    try:
        query = run.start(session)
        run.follow(query)
    except PySparkException as error:
        raise PipelineFailed(reason_of(error)) from error
    status = spool.status()
    return IngestSummary(
        table=options.table,
        query_id=str(query.id),
        batches=run.batches,
        rows=run.rows,
        taken=status.totals - before,
        duration_s=time.monotonic() - started_s,
        spool=status,
    )


class _Run:
    """One run of the query, and what has been heard of it."""

    def __init__(self, options: IngestOptions, on_progress: Callable[[IngestProgress], None] | None) -> None:
        self._options = options
        self._on_progress = on_progress
        self._heard = -1
        self.rows = 0
        self.batches = 0

    def start(self, session: SparkSession) -> StreamingQuery:
        options = self._options
        frame = session.readStream.format(FORMAT_NAME).options(**options.source_options()).load()
        frame = frame.select(*options.columns)
        writer = frame.writeStream.option("checkpointLocation", str(options.work_folder / "checkpoint"))
        writer = writer.queryName(f"ingest {options.address}")
        writer = (
            writer.trigger(availableNow=True)
            if options.trigger is None
            else writer.trigger(processingTime=options.trigger)
        )
        if options.format is TableFormat.PARQUET:
            return writer.format("parquet").option("path", str(options.table)).start()
        return self._to_delta(writer, frame)

    def _to_delta(self, writer: DataStreamWriter, frame: DataFrame) -> StreamingQuery:
        table = self._options.table
        schema = to_arrow_schema(frame.schema, timezone="UTC")
        appender: DeltaAppender | None = None

        def append(batch: DataFrame, batch_id: int) -> None:
            nonlocal appender
            if appender is None:
                query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
                assert query_id is not None
                appender = DeltaAppender(table, schema, query_id)
            if appender.is_done(batch_id):
                return
            folder = appender.batch_folder(batch_id)
            # Delta has no place for the 96-bit times that Spark writes by default.
            batch.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
            batch.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(str(folder))
            files = written_files(table, folder)
            if files:
                appender.commit(batch_id, files)

        return writer.foreachBatch(append).start()

    def follow(self, query: StreamingQuery) -> None:
        """Until it ends. Raises what it ended with."""
        try:
            while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]  # it takes fractions
                self._listen(query)
        except KeyboardInterrupt:
            query.stop()
            if self._options.trigger is None:
                raise
        finally:
            self._listen(query)
        error = query.exception()
        if error is not None:
            raise error

    def _listen(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            batch_id, rows = int(progress["batchId"]), int(progress["numInputRows"])
            if batch_id <= self._heard or not rows:
                continue
            self._heard = batch_id
            self.batches += 1
            self.rows += rows
            if self._on_progress is not None:
                self._on_progress(IngestProgress(batch_id=batch_id, batch_rows=rows, rows=self.rows))
