"""The sink as PySpark sees it: writers of a batch and of a stream, both given Arrow batches.

A writer is made where the write is planned, for each batch of a stream anew, and checks options and columns there; it
is pickled into the tasks, whose `write` posts; another process is told what came of all tasks (`commit`, `abort`). So
what is reported goes to the log and, with the option `report`, to a file: nothing else of that process is to be seen.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from acquit.errors import ConfigurationError
from acquit.spark.collector import spare_imports
from acquit.spark.files import write_whole
from acquit.spark.sink.options import Guarantee, SinkOptions
from acquit.spark.sink.poster import Mechanism, OutgoingRow, SinkPoster, TaskOrigin
from acquit.spark.sink.rows import BadRow, RowEncoder, RowValues, plan_columns, rows_of

logger = logging.getLogger("acquit.spark")

_BATCH_PROPERTY: Final = "streaming.sql.batchId"
_QUERY_PROPERTY: Final = "sql.streaming.queryId"
_FILE_NAME_MAX: Final = 200
"""Bytes of a run id in the name of a file, of 255 with all that is around it."""
_AT_ONCE_ROWS: Final = 50_000
_AT_ONCE_BYTES: Final = 32 << 20
"""Bytes, about, of rows that are Python objects at a time while they are brought in order (and `_AT_ONCE_ROWS`)."""


@dataclass(frozen=True, slots=True)
class TaskResult(WriterCommitMessage):
    """Result of posting the rows of one task, as Spark hands it to `commit` and `abort`."""

    name: str
    partition: int
    mechanism: str
    written: int
    suppressed: int | None
    rejected: int
    rejections: tuple[str, ...]


def write_rows(options: SinkOptions, origin: TaskOrigin, batches: Iterator[pa.RecordBatch]) -> TaskResult:
    """Post the rows of one task. Raises whatever keeps one of them from being posted."""
    addressed = options.address is not None
    encoder = RowEncoder(addressed=addressed, durable=options.durable)
    poster = SinkPoster(options, origin)
    try:
        by_ids = poster.mechanism is Mechanism.IDS
        ordered = options.id_column is not None and poster.mechanism is Mechanism.MARK
        if ordered:
            rows = in_order(batches, str(options.id_column), options.sort_bytes)
        else:
            rows = chain.from_iterable(rows_of(batch, options.id_column) for batch in batches)
        before: object = None
        for index, (values, given) in enumerate(rows):
            identity = origin.row_id(index) if options.id_column is None else _id_text(given)
            try:
                if options.id_column is not None and given is None:
                    raise BadRow(f"the column {options.id_column}, its id, is null")
                if isinstance(given, str) and given != identity:
                    raise BadRow(f"the column {options.id_column}, its id, has octets that are no UTF-8")
                if ordered and given == before and index:
                    raise ConfigurationError(
                        f"option idColumn = {options.id_column}: two rows of partition {origin.partition}, batch "
                        f"{origin.batch}, have the id {identity:.300}"
                    )
                before = given
                header, rest = encoder.encode(values, identity, identity if by_ids else None)
            except BadRow as error:
                poster.reject(index, identity, str(error))
            else:
                poster.post(OutgoingRow(index, identity, header, rest))
        posted = poster.finish()
    finally:
        poster.close()
    return TaskResult(origin.name or "", origin.partition, poster.mechanism.value, *posted)


def in_order(batches: Iterator[pa.RecordBatch], column: str, bytes_max: int) -> Iterator[tuple[RowValues, object]]:
    """All rows, as `rows_of` gives them, by the values of a column. Raises ConfigurationError where they are more than
    may be held."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > bytes_max:
            raise ConfigurationError(
                f"option idColumn: the rows of one task are more than sortMemory = {bytes_max} bytes, and cannot be "
                "brought in order. Raise it, or write more and smaller partitions"
            )
    if not held:
        return
    # The ids alone are sorted, and rows taken batch by batch: a column of all rows would be joined, and holds 2 GiB.
    order = pc.sort_indices(pa.chunked_array([batch.column(column) for batch in held])).to_numpy().astype(np.int64)
    starts = np.cumsum([0, *(batch.num_rows for batch in held)])
    at_once = max(1, min(_AT_ONCE_ROWS, len(order) * _AT_ONCE_BYTES // max(1, size)))
    for first in range(0, len(order), at_once):
        wanted = order[first : first + at_once]
        places = np.argsort(wanted)
        ascending = wanted[places]
        bounds = np.searchsorted(ascending, starts).tolist()
        found: dict[int, tuple[RowValues, object]] = {}
        for batch, start, low, high in zip(held, starts, bounds, bounds[1:], strict=False):
            if low < high:
                rows = rows_of(batch.take(pa.array(ascending[low:high] - start)), column)
                found.update(zip(places[low:high].tolist(), rows, strict=True))
        yield from map(found.__getitem__, range(len(wanted)))


def _id_text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value).encode(errors="backslashreplace").decode()


def _parse(given: Mapping[str, str], schema: StructType) -> SinkOptions:
    options = SinkOptions.parse(given)
    arrow_schema = pa.schema([_arrow_field(field) for field in schema])
    plan_columns(arrow_schema, id_column=options.id_column, addressed=options.address is not None)
    if options.report is not None:
        _folder(options.report)  # before anything is posted
    return options


def _arrow_field(field: StructField) -> pa.Field:
    try:
        return to_arrow_schema(StructType([field]), timezone="UTC").field(0)
    except (PySparkException, ValueError) as error:  # the second of Arrow, as for the keys of `map()`
        kind = field.dataType.simpleString().upper()
        raise ConfigurationError(
            f"column {field.name} is {kind}, of which Spark makes nothing that is written"
        ) from error


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise ConfigurationError("the sink writes in a Spark task, and there is none")
    spare_imports()
    return context


class AcquitStreamWriter(DataSourceStreamArrowWriter):
    """``writeStream.format("acquit")``."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        """Raises ConfigurationError."""
        self._options = _parse(options, schema)
        if overwrite:
            raise ConfigurationError("output mode complete: what was posted cannot be taken back; use append")
        if self._options.run_id is not None:
            raise ConfigurationError("option runId is of batch writes: a stream has its query's id and its batches")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Post the rows of a task."""
        context = _task()
        query, batch = context.getLocalProperty(_QUERY_PROPERTY), context.getLocalProperty(_BATCH_PROPERTY)
        if query is None or batch is None:
            raise ConfigurationError("the task does not say which query and batch its rows are of")
        return write_rows(self._options, TaskOrigin(query, int(batch), context.partitionId()), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All rows of a batch are posted."""
        _report(self._options, messages, batchId, done=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Some are; the batch will be written again."""
        _report(self._options, messages, batchId, done=False)


class AcquitWriter(DataSourceArrowWriter):
    """``df.write.format("acquit")``."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        """Raises ConfigurationError."""
        self._options = options_ = _parse(options, schema)
        if overwrite:
            raise ConfigurationError('mode overwrite: what was posted cannot be taken back; use mode("append")')
        nameless = options_.run_id is None and options_.id_column is None
        if options_.guarantee is Guarantee.EXACTLY_ONCE and nameless:
            raise ConfigurationError(
                "a batch write has no id of its own, by which rows that are written again could be told: give it one "
                "(option runId), or name a column that names each row (option idColumn), or say guarantee = "
                "at-least-once"
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Post the rows of a task."""
        return write_rows(self._options, TaskOrigin(self._options.run_id, 0, _task().partitionId()), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All rows are posted."""
        _report(self._options, messages, None, done=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Some may be."""
        _report(self._options, messages, None, done=False)


def _report(
    options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch: int | None, *, done: bool
) -> None:
    """Log what came of a batch, and leave the file that the option `report` asks for."""
    tasks = [message for message in messages if isinstance(message, TaskResult)]
    told = [task.suppressed for task in tasks]
    said = {
        "name": next((task.name for task in tasks), options.run_id or ""),
        "batch": batch,
        "done": done,
        "partitions": len(tasks),
        "guarantee": options.guarantee.value,
        "told_by": sorted({task.mechanism for task in tasks}),
        "written": sum(task.written for task in tasks),
        "suppressed": None if None in told else sum(one or 0 for one in told),
        "rejected": sum(task.rejected for task in tasks),
        "rejections": [told for task in tasks for told in task.rejections],
    }
    log = logger.info if done and not said["rejected"] else logger.warning
    log("%s: %s", "posted" if done else "not all posted", json.dumps(said))
    if options.report is not None:
        name = f"{batch:012d}" if batch is not None else _file_name(options.run_id or uuid.uuid4().hex)
        path = _folder(options.report) / f"{name}{'' if done else '.failed'}.json"
        try:
            write_whole(path, (json.dumps(said, indent=2) + "\n").encode())
        except OSError as error:
            raise ConfigurationError(
                f"option report = {options.report}: what came of the batch cannot be written: {error}"
            ) from error


def _folder(report: str) -> Path:
    folder = Path(report)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"option report = {report}: expected a folder, or that one can be made: {error}"
        ) from error
    return folder


def _file_name(run_id: str) -> str:
    name = run_id.replace(os.sep, "_").replace("\0", "_")
    octets = name.encode()
    if len(octets) <= _FILE_NAME_MAX:
        return name
    return f"{octets[: _FILE_NAME_MAX - 9].decode(errors='ignore')}-{crc32(octets):08x}"


__all__ = ["AcquitStreamWriter", "AcquitWriter", "TaskResult", "in_order", "write_rows"]
