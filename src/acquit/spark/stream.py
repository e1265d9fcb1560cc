"""The streaming source `acquit`: a queue as a Spark stream, each posting once.

Guarantee: every message that is acknowledged to the broker is in exactly one batch, whatever is killed, and that batch
is the same however often Spark reads it, given an identity for each message, a spool that the driver and all workers
share, and identity retention longer than any redelivery (`docs/guarantees.md`). With a sink that is idempotent by
batch that is once in the table.

This module is the adapter to PySpark and decides nothing: options are read in `spark.source_options`, epochs planned in
`spark.driver`, parts read in `spark.spool`, messages understood in `spark.columns`. What of PySpark shaped it:

- `read` runs in a pooled worker, which keeps the spool's log between the tasks of a run; everything else in one process
  for a run.
- The reader is pickled into tasks: it holds options and schema, and makes everything else when first needed.
- Errors in `streamReader` are masked by another error of PySpark's own: so options are checked when the source is
  made, and the schema, and options that the source did not know to be a stream's, when the reader is first asked for
  anything.
- `commit(end)` comes when the batch after `end` is built, and never for the last one: nothing is acknowledged in it.
- The query's id is only to be had in tasks, as a local property: so the task claims the spool.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from acquit.errors import ConfigurationError
from acquit.ledger.collection import without_collection
from acquit.spark.collector import spare_imports
from acquit.spark.columns import MessageColumns, check_columns
from acquit.spark.decoding import BodyDecoder
from acquit.spark.driver import PlannedPart, StreamDriver
from acquit.spark.link import QueueDrain, QueueProbe
from acquit.spark.metrics import plain
from acquit.spark.options import FORMAT_NAME
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import Spool, open_store

_SPOOLS_KEPT: Final = 8
_QUERY_PROPERTY: Final = "sql.streaming.queryId"


class AcquitPartition(InputPartition):
    """Part of an epoch, as Spark hands it to a task."""

    def __init__(self, planned: PlannedPart) -> None:
        super().__init__(planned)
        self.planned = planned


class AcquitStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's verbs, handed on. Offsets are ``{"epoch": n, "parts": n, "source": n, "plan": n}``."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._given = dict(given)
        self._schema = schema
        self._made: StreamDriver | None = None

    @cached_property
    def _options(self) -> SourceOptions:
        return SourceOptions.parse(self._given)

    @cached_property
    def _columns(self) -> tuple[pa.Schema, BodyDecoder | None]:
        """Schema that Spark expects of batches, and the decoder of their bodies, if they need one. Raises
        ConfigurationError for a column that is not ours."""
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        return wanted, check_columns(wanted, self._options.body_as)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the offset before the first epoch."""
        return dict(self._driver().initial_offset())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what is there now, and end."""
        self._driver().begin_available_now()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxMessagesPerBatch`."""
        return ReadMaxRows(self._options.max_messages_per_batch)

    def latestOffset(self, start: Mapping[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The next epoch, or `start` when there is nothing to read."""
        return dict(self._driver().latest_offset(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None))

    def reportLatestOffset(self) -> dict[str, object]:  # noqa: N802
        """Return what Spark shows of the source in the progress of a query: see `spark.metrics`."""
        return plain(self._driver().report())

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[AcquitPartition]:
        """The tasks of a batch."""
        return [AcquitPartition(planned) for planned in self._driver().partitions(start, end)]

    def commit(self, end: Mapping[str, int]) -> None:
        """Epochs up to `end` are done with."""
        self._driver().commit(end)

    def stop(self) -> None:
        """The query has ended."""
        if self._made is not None:
            self._made.stop()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Replay or drain a part. Everything that must happen once has happened before the first row is yielded."""
        assert isinstance(partition, AcquitPartition)
        spare_imports()
        schema, decoder = self._columns
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY_PROPERTY)
        if query is None:
            raise ConfigurationError(f"the format {FORMAT_NAME} is read by a streaming query, in a Spark task")
        options, planned = self._options, partition.planned
        spool = _spool_for(options, query, planned)
        part = planned.part
        reader = MessageColumns(planned.address, options.identity_field, decoder)
        with without_collection():
            result = spool.take(
                part,
                lambda: QueueDrain(
                    options, planned.address, part.rows_max, part.bytes_max, only_until=planned.only_until
                ),
                reader,
            )
        return reader.select(result.batches, schema)

    def _driver(self) -> StreamDriver:
        if self._made is None:
            _ = self._columns  # to refuse a wrong schema before anything is done
            spool = Spool(open_store(self._options.spool), self._options.retention)
            self._made = StreamDriver(self._options, spool, QueueProbe(self._options))
        return self._made


_spools: OrderedDict[str, tuple[str, Spool]] = OrderedDict()
"""Spools of this worker process, each with the run of its query, by the spool's own id: a folder that was removed and
made anew is another spool, and one that was put back to an older copy between two runs has another log."""


def _spool_for(options: SourceOptions, query: str, planned: PlannedPart) -> Spool:
    """The spool of a task, as warm as this process has it, after every check that comes before the first write."""
    store = open_store(options.spool)
    fresh = Spool(store, options.retention)
    fresh.check_plan(planned.part.epoch, planned.plan)
    identity = fresh.claim(query)
    if planned.source is not None:
        fresh.claim_source(planned.source)
    run, spool = _spools.pop(identity, ("", fresh))
    if run != planned.run or spool.place != fresh.place:
        spool = fresh
        spool.prove()
    _spools[identity] = planned.run, spool
    while len(_spools) > _SPOOLS_KEPT:
        _spools.popitem(last=False)
    return spool
