"""Batches into a Delta table, once each, without a row through the driver.

The executors write a batch as ordinary Parquet files of the table that no reader knows yet (`spark.table_source`). Then
the driver commits one entry to the table's log that names these files *and* says "application A has done batch n" (a
transaction identifier, Delta protocol). A batch that comes again is recognised by that number before anything is
written. Files of an attempt that died are in nobody's log; the table's own `vacuum` removes them.

Traps that shaped this:

- delta-rs stores the number and does not enforce it: it must be looked up, and the *same* table object committed
  with, so that a commit of somebody else in between is noticed as a conflict.
- the application's name contains the query's id, because a new checkpoint counts its batches from 0 again.
- it reports as a failed commit what no repetition mends as well (a feature of the table that it does not write), and
  fails after a commit that succeeded. So a batch is done when the log says so, and a commit that did not come to that
  is an error.
- delta-rs does not sync local files. The spool's files go when the batch is committed, so rows are made durable by who
  writes them, before the log names them, and the log here, before Spark is told: all of it, as an entry of ours is
  worth nothing without those before it. An entry that is found may be of a run that was killed before it had done so.
- others may have been at the table since: its files are looked for right before the log names them.

A stream makes a file for each part of each batch. Those of a slow one are small and many, so the appender merges them
as it goes (`acquit.spark.merging`), into files of moderate size; `acquit.spark.compact` makes large ones.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, Transaction

from acquit.errors import ConfigurationError, PipelineFailed
from acquit.spark.merging import Partition, alike, delta_files, merge, sync_log, tier_bins
from acquit.spark.tables import first_line, refuse_other_columns

logger = logging.getLogger("acquit.spark")

_MERGE_EVERY: Final = 8
"""Batches between two looks at what could be merged: a look reads the table's list of files."""
_TRIES: Final = 20
"""Attempts at a commit while others change the table. Each takes milliseconds."""
_CONSTRAINT: Final = "delta.constraints."
_MAPPING: Final = "delta.columnMapping.mode"
_OF_FIELDS: Final = ("delta.generationExpression", "delta.invariants")
"""Demands of columns on a writer that this one does not meet, as are `_CONSTRAINT` and `_MAPPING` (Delta protocol)."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file of the batch, by its path within the table."""

    path: str
    size_bytes: int
    rows: int
    modified_ms: int
    partition: Partition = ()
    stats: str = ""
    """Statistics made by `acquit.spark.stats`; where there are none, the log has the number of rows."""


class DeltaAppender:
    """Appends batches of query `query_id` to the Delta table in the folder `table`, which is made if it is not there.

    `schema` is that of the rows, `partition_by` are some of its columns. Raises ConfigurationError when the table has
    other columns or partitions.
    """

    def __init__(self, table: Path, schema: pa.Schema, query_id: str, partition_by: Sequence[str] = ()) -> None:
        self._table = table
        self._schema = schema
        self._application = f"acquit:{query_id}"
        self._partition_by = list(partition_by)
        self._not_durable: int | None = None
        """The version from which on the log may not be; None until this process has seen to it."""

    def is_done(self, batch_id: int) -> bool:
        """True if the table has the batch, durably."""
        done = self._done(self._open(batch_id), batch_id)
        if done:
            self._sync()
        return done

    def commit(self, batch_id: int, files: Sequence[WrittenFile]) -> bool:
        """Make `files` rows of the table, as batch `batch_id`. False, and nothing, when the table has that batch.

        Raises PipelineFailed when it has not, and these files cannot be made rows of it: nothing has changed then.
        """
        failure: Exception | None = None
        for _ in range(_TRIES):
            table = self._open(batch_id)
            if self._done(table, batch_id):
                break
            self._look_for(files)
            try:
                table.create_write_transaction(
                    actions=[_add_action(file) for file in files],
                    mode="append",
                    schema=self._schema,
                    partition_by=self._partition_by,
                    commit_properties=CommitProperties(app_transactions=[Transaction(self._application, batch_id)]),
                )
            except CommitFailedError as error:
                # Somebody changed the table since we looked, or another driver of this very query was faster.
                failure = error
                continue
            self._sync()
            return True
        if self.is_done(batch_id):
            return False
        raise PipelineFailed(f"table {self._table}: batch {batch_id} cannot be committed: {first_line(failure)}")

    def merge_small(self, batch_id: int, target_bytes: int) -> None:
        """Merge the small files that are worth it into files of up to `target_bytes`, after every `_MERGE_EVERY`
        batches. An error does not stop the query: it is logged, and the files stay as they are."""
        if batch_id % _MERGE_EVERY != _MERGE_EVERY - 1:
            return
        try:
            for files in alike(self._table, tier_bins(delta_files(self._open(batch_id)), target_bytes)):
                merge(self._table, files)
        except (PipelineFailed, ConfigurationError, OSError, DeltaError, pa.ArrowException) as error:
            logger.warning("table %s: its small files are not merged now: %s", self._table, error)

    def _look_for(self, files: Sequence[WrittenFile]) -> None:
        for file in files:
            try:
                size_bytes = (self._table / file.path).stat().st_size
            except FileNotFoundError:
                size_bytes = 0
            if size_bytes != file.size_bytes:
                raise PipelineFailed(
                    f"table {self._table}: a task wrote {file.path}, {file.size_bytes:,} bytes, and the driver finds "
                    f"{size_bytes:,}: the table must be one folder for the driver and all workers, and no `vacuum` may "
                    "remove files that are younger than a batch takes"
                )

    def _sync(self) -> None:
        self._not_durable = sync_log(self._table, self._not_durable) + 1

    def _done(self, table: DeltaTable, batch_id: int) -> bool:
        version = table.transaction_version(self._application)
        return version is not None and version >= batch_id

    def _open(self, batch_id: int) -> DeltaTable:
        try:
            table = DeltaTable(self._table)
        except TableNotFoundError:
            if batch_id:  # the first batch makes it
                raise PipelineFailed(
                    f"table {self._table}: it is not there any more, and has had batches up to {batch_id - 1}"
                ) from None
            # Somebody else may be faster, with another table.
            DeltaTable.create(self._table, schema=self._schema, mode="ignore", partition_by=self._partition_by or None)
            table = DeltaTable(self._table)
        check_table(table, self._table, self._schema.names, self._partition_by)
        check_types(table, self._table, self._schema)
        return table


def check_table(opened: DeltaTable, table: Path, columns: Sequence[str], partition_by: Sequence[str]) -> None:
    """Raise ConfigurationError unless the table has these columns, in this order, and these partitions, and asks
    nothing of its writers that this one does not do."""
    found = [field.name for field in opened.schema().fields]
    partitions = opened.metadata().partition_columns
    refuse_other_columns(table, found, columns, partitions, partition_by)
    asked = next(_asked(opened), None)
    if asked is not None:
        raise ConfigurationError(f"table {table} has {asked}, which this pipeline does not see to: name another table")


def check_types(opened: DeltaTable, table: Path, schema: pa.Schema) -> None:
    """Raise ConfigurationError unless the table, which has these columns, has them of these types."""
    for have, want in zip(pa.schema(opened.schema().to_arrow()), schema, strict=True):
        if str(have.type) != str(want.type):
            raise ConfigurationError(
                f"table {table}: its column {have.name} is {have.type}, this pipeline writes {want.type}"
            )


def _asked(opened: DeltaTable) -> Iterator[str]:
    configuration = opened.metadata().configuration
    yield from (f"the constraint {name.removeprefix(_CONSTRAINT)}" for name in configuration if _CONSTRAINT in name)
    if configuration.get(_MAPPING, "none") != "none":
        yield "columns with other names in its files (column mapping)"
    for field in opened.schema().fields:
        if not field.nullable:
            yield f"a column {field.name} that must not be null"
        yield from (f"a column {field.name} with {name}" for name in _OF_FIELDS if name in field.metadata)


def _add_action(file: WrittenFile) -> AddAction:
    stats = file.stats or json.dumps({"numRecords": file.rows})
    return AddAction(file.path, file.size_bytes, dict(file.partition), file.modified_ms, True, stats)
