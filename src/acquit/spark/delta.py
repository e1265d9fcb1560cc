"""Batches into a Delta table, once each, without a row through the driver.

The executors write a batch as ordinary Parquet files into a folder of the table that no reader knows yet. Then the
driver commits one entry to the table's log that names these files *and* says "application A has done batch n" (a
transaction identifier, Delta protocol). A batch that comes again is recognised by that number before anything is
written. Files of an attempt that died are in nobody's log; the table's own `vacuum` removes them.

Three traps that shaped this:

- delta-rs stores the number and does not enforce it: it must be looked up, and the *same* table object committed
  with, so that a commit of somebody else in between is noticed as a conflict.
- the application's name contains the query's id, because a new checkpoint counts its batches from 0 again.
- neither Spark nor delta-rs syncs local files. The spool's files go when the batch is committed, so here the rows are
  made durable before the log names them, and the log before Spark is told.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, Transaction

from acquit.errors import ConfigurationError

_BATCH_FOLDER: Final = "acquit"
_MILLISECOND_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file of the batch, by its path within the table."""

    path: str
    size_bytes: int
    rows: int
    modified_ms: int


class DeltaAppender:
    """Appends batches of query `query_id` to the Delta table in the folder `table`, which is made if it is not there.

    `schema` is that of the rows. Raises ConfigurationError when the table has other columns.
    """

    def __init__(self, table: Path, schema: pa.Schema, query_id: str) -> None:
        self._table = table
        self._schema = schema
        self._application = f"acquit:{query_id}"

    def is_done(self, batch_id: int) -> bool:
        """Whether the table has the batch."""
        return self._done(self._open(), batch_id)

    def batch_folder(self, batch_id: int) -> Path:
        """A fresh folder within the table for one attempt at a batch."""
        return self._table / _BATCH_FOLDER / f"{batch_id:09d}-{uuid.uuid4().hex}"

    def commit(self, batch_id: int, files: Sequence[WrittenFile]) -> bool:
        """Make `files` rows of the table, as batch `batch_id`. False, and nothing, when the table has that batch."""
        for _ in range(2):
            table = self._open()
            if self._done(table, batch_id):
                return False
            try:
                table.create_write_transaction(
                    actions=[_add_action(file) for file in files],
                    mode="append",
                    schema=self._schema,
                    commit_properties=CommitProperties(app_transactions=[Transaction(self._application, batch_id)]),
                )
            except CommitFailedError:
                # Somebody committed this application's number since we looked: another driver of this very query.
                continue
            _sync_folder(self._table / "_delta_log")
            return True
        return self.is_done(batch_id)

    def _done(self, table: DeltaTable, batch_id: int) -> bool:
        version = table.transaction_version(self._application)
        return version is not None and version >= batch_id

    def _open(self) -> DeltaTable:
        try:
            table = DeltaTable(self._table)
        except TableNotFoundError:
            return DeltaTable.create(self._table, schema=self._schema, mode="ignore")
        found = pa.schema(table.schema().to_arrow())
        if [(field.name, str(field.type)) for field in found] != [(f.name, str(f.type)) for f in self._schema]:
            raise ConfigurationError(
                f"table {self._table} has the columns {', '.join(found.names)}; this pipeline writes "
                f"{', '.join(self._schema.names)}. Name another table, or choose the columns"
            )
        return table


def written_files(table: Path, folder: Path) -> list[WrittenFile]:
    """The Parquet files under `folder`, made durable. Reads their footers, no row."""
    found = []
    for path in sorted(folder.glob("*.parquet")):
        _sync(path)
        status = path.stat()
        rows = pq.read_metadata(path).num_rows
        if rows:
            found.append(
                WrittenFile(
                    path.relative_to(table).as_posix(), status.st_size, rows, status.st_mtime_ns // _MILLISECOND_NS
                )
            )
    for parent in (folder, folder.parent, table):
        _sync(parent)
    return found


def _add_action(file: WrittenFile) -> AddAction:
    stats = json.dumps({"numRecords": file.rows})
    return AddAction(file.path, file.size_bytes, {}, file.modified_ms, True, stats)


def _sync_folder(folder: Path) -> None:
    newest: Iterable[Path] = sorted(folder.glob("*.json"))[-1:]
    for path in (*newest, folder):
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
