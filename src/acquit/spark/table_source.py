"""The stream that *ingest* into Delta reads: the task that drained a part writes it into Parquet files of the table,
and the rows that Spark sees only name these files.

A message's row is in that task's memory as Arrow already. So it is written from there: in the JVM it would be copied,
made a row of Spark's and encoded by a slower writer.

Everything that makes a part what it is has happened before its first row is written (`spark.stream`). A part that is
read again is written again, under other names. Spark hands the driver the rows of one attempt at each part, whichever
that is; the files of others are in nobody's log, and the table's own `vacuum` removes them. A file is durable before it
is named.

A partition (`partition_by`) has files of its own. Its columns are not in them: the log says what they are, as text, the
way Spark writes it; text without a character is null there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType, TimestampType

from acquit.spark.delta import WrittenFile
from acquit.spark.files import sync
from acquit.spark.merging import FOLDER, Partition, partition_text
from acquit.spark.stats import file_stats
from acquit.spark.stream import AcquitPartition, AcquitStreamReader

POSTED_DAY: Final = "posted_day"
"""A column for partitions: the day of `posted_at` in UTC."""
_FORMAT: Final = "acquit.table-files"
_ORDER: Final = "files"
"""The option that says what to write; all others are the source's."""
_FILES_DDL: Final = (
    "path STRING, size_bytes BIGINT, rows BIGINT, modified_ms BIGINT, partition MAP<STRING, STRING>, stats STRING"
)
_FILES: Final = pa.schema(
    [
        ("path", pa.string()),
        ("size_bytes", pa.int64()),
        ("rows", pa.int64()),
        ("modified_ms", pa.int64()),
        ("partition", pa.map_(pa.string(), pa.string())),
        ("stats", pa.string()),
    ]
)
_GROUP_BYTES: Final = 64 << 20
"""Bytes of a row group, before compression: what writing one holds in memory beside the rows."""
_MILLISECOND_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class FilesOrder:
    """Order to tasks: which columns to write into files of which table."""

    table: Path
    columns: StructType
    """Columns of the table: the source's, and `POSTED_DAY` where it is wanted."""
    partition_by: tuple[str, ...] = ()

    def to_option(self) -> dict[str, str]:
        """Return the order as an option of the reader."""
        found = {"table": str(self.table), "columns": self.columns.json(), "partition_by": self.partition_by}
        return {_ORDER: json.dumps(found)}

    @classmethod
    def take(cls, options: Mapping[str, str]) -> tuple[FilesOrder, dict[str, str]]:
        """Return the order that `to_option` wrote, and the other options."""
        said = json.loads(options[_ORDER])
        columns = StructType.fromJson(json.loads(said["columns"]))
        order = cls(Path(said["table"]), columns, tuple(said["partition_by"]))
        return order, {name: value for name, value in options.items() if name.lower() != _ORDER}


class TableFilesSource(DataSource):
    """Data source for *ingest* alone, which gives it the source's options and a `FilesOrder`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return _FORMAT

    def schema(self) -> str:
        """A row for each file."""
        return _FILES_DDL

    def streamReader(self, schema: StructType) -> TableFilesReader:  # noqa: N802  # PySpark's name
        """Never raises, as the source's own."""
        return TableFilesReader(*FilesOrder.take(self.options))


class TableFilesReader(AcquitStreamReader):
    """The source's reader, with files in the place of rows."""

    def __init__(self, order: FilesOrder, given: Mapping[str, str]) -> None:
        wanted = StructType([field for field in order.columns if field.name != POSTED_DAY])
        if POSTED_DAY in order.columns.names and "posted_at" not in wanted.names:
            wanted = wanted.add("posted_at", TimestampType())
        super().__init__(given, wanted)
        self._order = order

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Drain or replay a part, write it, and name its files."""
        assert isinstance(partition, AcquitPartition)
        part = partition.planned.part
        batches = list(super().read(partition))
        if batches:
            name = f"{part.epoch:09d}-{part.part}-{uuid4().hex}"
            order = self._order
            yield _named(write_files(order.table, name, batches, order.columns.names, order.partition_by))


def write_files(
    table: Path, name: str, batches: Sequence[pa.RecordBatch], columns: Sequence[str], partition_by: Sequence[str] = ()
) -> list[WrittenFile]:
    """Files of the table that hold these columns of `batches`, durable, with `name` in their names. `POSTED_DAY` is
    made here, of `posted_at`."""
    rows = pa.Table.from_batches(batches).replace_schema_metadata(None)
    if POSTED_DAY in columns:
        rows = rows.append_column(POSTED_DAY, _days(rows.column("posted_at")))
    rows = rows.select(list(columns))
    folder = table / FOLDER
    folder.mkdir(exist_ok=True)
    written = []
    for number, (partition, inside) in enumerate(_partitions(rows, partition_by)):
        path = folder / f"{name}-{number}.parquet"
        group_rows = max(1, _GROUP_BYTES * inside.num_rows // max(1, inside.nbytes))
        pq.write_table(inside, path, row_group_size=group_rows, store_schema=False)
        sync(path)
        status = path.stat()
        modified_ms = status.st_mtime_ns // _MILLISECOND_NS
        name_inside = f"{FOLDER}/{path.name}"
        found = WrittenFile(name_inside, status.st_size, inside.num_rows, modified_ms, partition, file_stats(path))
        written.append(found)
    # Both: whoever made the folder may have died before its name was durable.
    for one in (folder, table):
        sync(one)
    return written


def _partitions(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[Partition, pa.Table]]:
    """The rows of each combination of values, without these columns, in the order in which they came."""
    if not names:
        yield (), rows
        return
    keys = [rows.column(name).combine_chunks().dictionary_encode("encode") for name in names]
    codes = np.zeros(len(rows), np.int64)
    for key in keys:
        # Numbered anew after each column, so that they stay as small as there are rows.
        codes = np.unique(codes * len(key.dictionary) + key.indices.to_numpy(), return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    inner = rows.drop_columns(list(names))
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        chosen = order[start:end]
        values = (key[int(chosen[0])].as_py() for key in keys)
        partition = tuple(
            (name, partition_text(name, value) or None) for name, value in zip(names, values, strict=True)
        )
        yield partition, _taken(inner, chosen)


def _taken(rows: pa.Table, chosen: NDArray[np.int64]) -> pa.Table:
    """Return these rows, whose numbers ascend, batch by batch: a column of the whole table would be joined first, and
    holds 2 GiB at most."""
    found = []
    start = 0
    for batch in rows.to_batches():
        end = start + batch.num_rows
        first, last = np.searchsorted(chosen, (start, end))
        if first < last:
            found.append(batch.take(pa.array(chosen[first:last] - start)))
        start = end
    return pa.Table.from_batches(found, rows.schema)


def _days(times: pa.ChunkedArray) -> pa.Array:
    """Return the days in UTC, rounded down, without asking for a time zone: what an Arrow time holds is UTC."""
    micros = times.combine_chunks().view(pa.timestamp("us"))
    return pc.cast(micros, pa.date32(), safe=False)


def _named(files: Sequence[WrittenFile]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "path": file.path,
                "size_bytes": file.size_bytes,
                "rows": file.rows,
                "modified_ms": file.modified_ms,
                "partition": list(file.partition),
                "stats": file.stats,
            }
            for file in files
        ],
        schema=_FILES,
    )
