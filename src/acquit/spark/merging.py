"""Small files of a Delta table merged into larger ones, while others read the table and append to it.

Files are merged with neighbours of their partition into files of a target size, about: one of half that size and more
is left alone, so that merging again finds nothing to do. For each merged file there is one commit, which takes out what
it replaces: rows are the same before and after. Killed at any point, the table is whole, and a file that nobody's log
names waits for the table's `vacuum`.

**Who else changes the table.** delta-rs does not notice that two compactions, or a compaction and a deletion, took out
the same files: both commit, and rows are there twice. (Its own ``optimize`` does the same to itself; a test shows it,
so that we hear when it no longer does.) So each commit here is of one version, the one after the version in which all
the files were seen to be there. If somebody was faster it is looked at again, and when one of the files is gone the
merged file is thrown away.

**Tiers** keep merging cheap for a stream that merges as it goes: files grow through sizes, from 1/64 of the target over
1/8 to the target, and are merged when those of a tier make the next size. Each row is copied about once for each tier,
not once for each batch.

What is merged is made durable before the log names it, and the log before success is told. A commit may have happened
although it failed: delta-rs writes checkpoints of the log after it, disks fill up, somebody interrupts. So a merged
file is removed only where the log was seen not to name it; else it is left to the table's `vacuum`.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction

from acquit.errors import ConfigurationError, PipelineFailed
from acquit.spark.files import sync
from acquit.spark.stats import file_stats
from acquit.spark.tables import DELTA_LOG, Use, first_line, refuse_unhandled

Partition: TypeAlias = tuple[tuple[str, str | None], ...]
"""Names and values, as the log writes them."""

FOLDER: Final = "acquit"
"""Within the table: what we write."""
_GROUP_BYTES: Final = 64 << 20
"""Bytes of a row group, before compression: what merging holds in memory."""
_GROUP_ROWS: Final = 1 << 20
_TIERS: Final = (64, 8, 1)
"""Sizes that files grow through, as parts of the target."""
_FILES_MAX: Final = 64
"""Files in the lowest tier that are merged however small they are."""
_TRIES: Final = 20
"""Attempts at a commit while others commit. Each takes milliseconds."""


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """A file of the table, by its path within the table."""

    path: str
    size_bytes: int
    partition: Partition = ()


def delta_files(table: DeltaTable) -> list[DeltaFile]:
    """Return the files of the version that `table` has open, the oldest first. Raises ConfigurationError for partitions
    by a type that is not handled here, and for a table whose files do not hold its rows as they are."""
    refuse_unhandled(table, Use.MERGE)
    actions = pa.table(table.get_add_actions()).to_pylist()
    return [
        DeltaFile(
            unquote(action["path"]),
            int(action["size_bytes"]),
            tuple((name, partition_text(name, value)) for name, value in (action.get("partition") or {}).items()),
        )
        for action in reversed(actions)
    ]


def partition_text(name: str, value: object) -> str | None:
    """A partition's value as the log has it. Raises ConfigurationError for a type that is not handled."""
    match value:
        case None | str():
            return value
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case datetime.date() if not isinstance(value, datetime.datetime):
            return value.isoformat()
        case _:
            raise ConfigurationError(f"the table is partitioned by {name}, of type {type(value).__name__}: not handled")


def bins(files: Iterable[DeltaFile], target_bytes: int) -> list[list[DeltaFile]]:
    """Return groups of small files, each to be merged into one file of about `target_bytes`."""
    found: list[list[DeltaFile]] = []
    for small in _by_partition(file for file in files if file.size_bytes < target_bytes // 2):
        found += _neighbours(small, target_bytes)
    return found


def tier_bins(files: Iterable[DeltaFile], target_bytes: int) -> list[list[DeltaFile]]:
    """The same for a table that grows, and is looked at often: only what is worth it now."""
    found: list[list[DeltaFile]] = []
    for group in _by_partition(files):
        for tier in _TIERS:
            size = target_bytes // tier
            small = [file for file in group if file.size_bytes < size // 2]
            many = tier == _TIERS[0] and len(small) >= _FILES_MAX
            if many or sum(file.size_bytes for file in small) >= size:
                found += _neighbours(small, size)
                break
    return found


def _by_partition(files: Iterable[DeltaFile]) -> Iterable[list[DeltaFile]]:
    groups: dict[Partition, list[DeltaFile]] = {}
    for file in files:
        groups.setdefault(file.partition, []).append(file)
    return groups.values()


def _neighbours(files: Sequence[DeltaFile], target_bytes: int) -> list[list[DeltaFile]]:
    found: list[list[DeltaFile]] = [[]]
    size = 0
    for file in files:
        if found[-1] and size + file.size_bytes > target_bytes:
            found.append([])
            size = 0
        found[-1].append(file)
        size += file.size_bytes
    return [one for one in found if len(one) > 1]


def alike(table: Path, groups: Iterable[Sequence[DeltaFile]]) -> list[list[DeltaFile]]:
    """Return the groups, each split into files of the same columns: a table may have got one later than its first rows.
    Reads the footers. Raises as `open_rows`."""
    found: list[list[DeltaFile]] = []
    for group in groups:
        by_columns: dict[str, list[DeltaFile]] = {}
        for file in group:
            with open_rows(table / file.path) as footer:
                columns = _columns(footer, table / file.path).to_string(show_field_metadata=False)
            by_columns.setdefault(columns, []).append(file)
        found += [one for one in by_columns.values() if len(one) > 1]
    return found


def merge(table: Path, files: Sequence[DeltaFile]) -> DeltaFile:
    """Put one file in the place of `files`, all of one partition.

    Raises PipelineFailed when somebody else has taken one of them out meanwhile (the table is as they left it), or when
    the files have different columns.
    """
    name = f"{FOLDER}/merged-{uuid.uuid4().hex}.parquet"
    path = table / name
    if not path.parent.exists():
        path.parent.mkdir(exist_ok=True)
        sync(table)
    try:
        roll = Roll(lambda: path)
        for file in files:
            for group in row_groups(table / file.path):
                roll.write(group, table / file.path)
        roll.close()
        sync(path.parent)
        stats = file_stats(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    merged = DeltaFile(name, path.stat().st_size, files[0].partition)
    try:
        _commit(table, files, merged, stats)
    except _NotCommittedError:
        path.unlink()
        raise
    return merged


class _NotCommittedError(PipelineFailed):
    """The log does not name the file, and never will."""


def _commit(table: Path, replaced: Sequence[DeltaFile], merged: DeltaFile, stats: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    partition = dict(merged.partition)
    actions: list[AddAction | RemoveAction] = [
        RemoveAction(
            path=file.path,
            data_change=False,
            deletion_timestamp=now_ms,
            size=file.size_bytes,
            partition_values=partition,
        )
        for file in replaced
    ]
    actions.append(AddAction(merged.path, merged.size_bytes, partition, now_ms, False, stats))
    failure: Exception | None = None
    looked_at = None
    for tries in itertools.count():
        opened = DeltaTable(table)
        looked_at = opened.version() if looked_at is None else looked_at
        present = {file.path for file in delta_files(opened)}
        if merged.path in present:
            break  # it was committed, and what comes after that failed
        gone = next((file.path for file in replaced if file.path not in present), None)
        if gone is not None:
            raise _NotCommittedError(
                f"table {table}: somebody else took {gone} out of the table while it was being merged; the table is as "
                "they left it"
            )
        if tries == _TRIES:
            raise _NotCommittedError(f"table {table}: a compaction could not be committed: {first_line(failure)}")
        try:
            opened.create_write_transaction(
                actions=actions,
                mode="append",
                schema=opened.schema(),
                partition_by=list(opened.metadata().partition_columns),
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except (DeltaError, OSError) as error:
            failure = error  # mostly: somebody committed since we looked
            continue
        break
    sync_log(table, looked_at)


class Roll:
    """Writes row groups into files that `next_path` names, and begins another one when a file has `target_bytes`."""

    def __init__(self, next_path: Callable[[], Path], target_bytes: int | None = None) -> None:
        self._next_path = next_path
        self._target_bytes = target_bytes
        self._schema: pa.Schema | None = None
        self._writer: pq.ParquetWriter | None = None
        self._path = Path()
        self.rows = 0

    def write(self, group: pa.Table, origin: Path) -> None:
        """`group` is of the file `origin`. Raises PipelineFailed when that has other columns than those before."""
        if self._schema is None:
            self._schema = group.schema.remove_metadata()
        if not group.schema.equals(self._schema):
            raise PipelineFailed(f"{origin} has other columns than the files before: {', '.join(group.schema.names)}")
        if self._writer is None:
            self._path = self._next_path()
            self._writer = pq.ParquetWriter(self._path, self._schema)
        self._writer.write_table(group.replace_schema_metadata(None))
        self.rows += group.num_rows
        if self._target_bytes is not None and self._path.stat().st_size >= self._target_bytes:
            self.close()

    def close(self) -> None:
        """Close the file that is being written, and make it durable."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            sync(self._path)


def row_groups(path: Path) -> Iterator[pa.Table]:
    """The rows of a file, in groups of a size that memory holds.

    Times as Spark writes them by default (INT96) become instants in microseconds, which Spark reads as the same type.
    """
    with open_rows(path) as file:
        metadata, columns = file.metadata, _columns(file, path)
        if not metadata.num_rows:
            return
        raw_bytes = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
        rows = max(1, min(_GROUP_ROWS, _GROUP_BYTES * metadata.num_rows // max(1, raw_bytes)))
        for batch in file.iter_batches(batch_size=rows):
            group = pa.Table.from_batches([batch])
            yield group if group.schema.equals(columns) else group.cast(columns)


def open_rows(path: Path) -> pq.ParquetFile:
    """Open a file with rows. Raises OSError, and PipelineFailed where it is no Parquet file."""
    try:
        return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
    except pa.ArrowInvalid as error:
        raise PipelineFailed(f"{path} is no Parquet file: {first_line(error)}") from error


def _columns(file: pq.ParquetFile, path: Path) -> pa.Schema:
    """Return the columns of the rows that `row_groups` gives of the file."""
    if any(file.schema.column(index).physical_type == "INT96" for index in range(len(file.schema))):
        # By itself pyarrow reads INT96 as nanoseconds: so one sees which they are.
        return pa.schema([_instant(field) for field in pq.read_schema(path)])
    return file.schema_arrow.remove_metadata()


def _instant(field: pa.Field) -> pa.Field:
    """Return a field with instants in microseconds in the place of times in nanoseconds, also in fields within it."""
    kind = field.type
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_instant(inner) for inner in kind]))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_instant(kind.value_field)))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_instant(kind.key_field), _instant(kind.item_field)))
    return field.with_type(pa.timestamp("us", "UTC")) if kind == pa.timestamp("ns") else field


def sync_log(table: Path, since: int | None = None) -> int:
    """Make durable what the table's log says from version `since` on; None: from its last checkpoint. Returns the
    newest version. Others' entries as well: what one of ours says is lost with an entry before it."""
    log = table / DELTA_LOG
    entries = {path: number for path in log.iterdir() if (number := _version(path)) is not None}
    checkpoints = {path for path in entries if path.suffix == ".parquet"}
    if since is None:
        since = max((entries[path] for path in checkpoints), default=0)
    newer = [path for path, number in entries.items() if number >= since]
    if not checkpoints.isdisjoint(newer):
        newer.append(log / "_last_checkpoint")
    for path in newer:
        with contextlib.suppress(FileNotFoundError):  # somebody cleaned the log
            sync(path)
    sync(log)
    return max(entries.values())


def _version(path: Path) -> int | None:
    """Return the version of an entry or a checkpoint of a Delta log; None for another file."""
    digits = path.name.partition(".")[0]
    return int(digits) if digits.isdecimal() and path.suffix in (".json", ".parquet") else None
