"""The pipeline *compact*: many small files of a table into few of about one size.

A stream makes a file for each part of each batch, and readers pay for each file.

- **Delta**: in place, while readers and writers go on (`acquit.spark.merging`). The replaced files stay on the disk for
  readers of older versions, until they are vacuumed: a file goes that no version of the table's retention time (7 days)
  needs. What attempts at batches left that died is such a file too.
- **Files that a Spark stream wrote**: their list names each file, and nobody can exchange files in it in one step. So
  they are not touched; `into` writes a copy of what the list names, with large files, into another folder.
- **A plain folder** has no list that could change in one step: the same.

The rows go through the process that calls this, a row group at a time. Neither Spark nor Java is needed.
"""

from __future__ import annotations

import itertools
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from acquit.errors import ConfigurationError, PipelineFailed
from acquit.spark.files import make_folders, sync
from acquit.spark.merging import Roll, alike, bins, delta_files, merge, open_rows, row_groups, sync_log
from acquit.spark.tables import (
    TableFile,
    TableFiles,
    TableKind,
    first_line,
    open_delta,
    place_within,
    table_files,
    table_kind,
)

TARGET_BYTES: Final = 128 << 20
_VACUUM_MIN_HOURS: Final = 24
_IS_LONGER: Final = "Invalid retention period"
"""Words of delta-rs in the error for a time that is shorter than the table's own."""
_TARGET_MIN: Final = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions:
    """Options of the pipeline *compact*. Raises ConfigurationError for options that cannot be."""

    table: Path
    """Folder of the table."""
    target_file_bytes: int = TARGET_BYTES
    """Size of the files to make, about. Files of half that size and more are left alone."""
    vacuum: bool = False
    """Delta: also remove files that no version within the table's retention time (7 days; a day at least) needs."""
    into: Path | None = None
    """A folder that is not there yet, for a compacted copy. Delta tables are compacted in place."""
    dry_run: bool = False
    """Say what would be done, and do nothing."""

    def __post_init__(self) -> None:
        if self.target_file_bytes < _TARGET_MIN:
            raise ConfigurationError(
                f"target file size: expected at least {_TARGET_MIN} bytes, got {self.target_file_bytes}"
            )
        if self.into is not None and self.into.exists():
            raise ConfigurationError(f"into {self.into}: expected a folder that is not there yet")
        if self.into is not None and self.into.resolve().is_relative_to(self.table.resolve()):
            raise ConfigurationError(
                f"into {self.into}: expected a folder outside of the table, whose readers would see its rows twice"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSummary:
    """Result of a compaction; after a dry run, the result that it would have had."""

    table: Path
    """The table that was compacted, or the copy."""
    files_before: int
    files_after: int
    """Number of files afterwards; approximate after a dry run of a copy."""
    size_bytes: int
    """Size of the table's files before the compaction."""
    merged: int
    """Files that were merged into others, or copied."""
    vacuumed: tuple[str, ...]
    """Paths within the table of files that were removed."""
    dry_run: bool
    duration_s: float


Progress = Callable[[int, int], None]
"""Told what is done, and of how much: files merged, or rows copied."""


def compact(options: CompactOptions, *, on_progress: Progress | None = None) -> CompactSummary:
    """Run the pipeline.

    Raises ConfigurationError where there is no table, or where its kind cannot be compacted as asked; PipelineFailed
    when somebody else took files out of the table meanwhile, or the files are of different tables. What was merged
    until then is merged, and the rows are the same.
    """
    started_s = time.monotonic()
    kind = _kind(options)
    run = _compact_delta if kind is TableKind.DELTA else _copy
    before = table_files(options.table)
    after, merged, vacuumed = run(options, before, on_progress or (lambda done, total: None))
    return CompactSummary(
        table=options.into or options.table,
        files_before=len(before.files),
        files_after=after,
        size_bytes=before.size_bytes,
        merged=merged,
        vacuumed=vacuumed,
        dry_run=options.dry_run,
        duration_s=time.monotonic() - started_s,
    )


_WHY_NOT_IN_PLACE: Final = {
    TableKind.STREAM: "the files of this table are listed in _spark_metadata, which nobody can change in one step: "
    "files exchanged in place would be lost or doubled for readers, and the stream that writes it",
    TableKind.PLAIN: "nothing says which files of this folder are rows: readers would see those before and after",
}


def _kind(options: CompactOptions) -> TableKind:
    kind = table_kind(options.table)
    if kind is TableKind.DELTA:
        if options.into is not None:
            raise ConfigurationError(f"table {options.table} is a Delta table: compacted in place, without --into")
        return kind
    if options.vacuum:
        raise ConfigurationError(f"table {options.table} is no Delta table: there is nothing to vacuum")
    if options.into is None:
        raise ConfigurationError(f"table {options.table}: {_WHY_NOT_IN_PLACE[kind]}. --into DIR writes a copy")
    return kind


def _compact_delta(
    options: CompactOptions, before: TableFiles, on_progress: Progress
) -> tuple[int, int, tuple[str, ...]]:
    planned = alike(options.table, bins(delta_files(open_delta(options.table)), options.target_file_bytes))
    merged = sum(len(one) for one in planned)
    if not options.dry_run:
        done = 0
        for one in planned:
            merge(options.table, one)
            done += len(one)
            on_progress(done, merged)
    vacuumed = _vacuum(options.table, dry_run=options.dry_run) if options.vacuum else ()
    return len(before.files) - merged + len(planned), merged, vacuumed


def _vacuum(table: Path, *, dry_run: bool) -> tuple[str, ...]:
    """Files that no version needs, those of attempts that died among them. Names that begin with an underscore are
    nobody's rows: the spool and the checkpoint stay."""
    try:
        # The files of a batch that is being written are in no log yet, however short the table's retention time is.
        removed = DeltaTable(table).vacuum(_VACUUM_MIN_HOURS, dry_run=dry_run, full=True)
    except DeltaError as error:
        if _IS_LONGER not in str(error):
            raise PipelineFailed(f"table {table}: its old files were not all removed: {first_line(error)}") from error
        removed = DeltaTable(table).vacuum(dry_run=dry_run, full=True)
    if not dry_run:
        sync_log(table)
    return tuple(sorted(set(removed)))


def _copy(options: CompactOptions, before: TableFiles, on_progress: Progress) -> tuple[int, int, tuple[str, ...]]:
    """Write the rows into another folder, which is there when all of them are, and else not at all. Folders within are
    values of columns that are not in the files: they stay."""
    into = options.into
    assert into is not None
    if options.dry_run:
        return -(-before.size_bytes // options.target_file_bytes), len(before.files), ()
    folder = into.with_name(f".{into.name}.{uuid.uuid4().hex}")
    folder.mkdir(parents=True)
    try:
        written = _write(options, before, folder, on_progress)
        sync(folder)
        folder.rename(into)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    sync(into.parent)
    return written, len(before.files), ()


def _write(options: CompactOptions, before: TableFiles, folder: Path, on_progress: Progress) -> int:
    """Write all rows below `folder`; into how many files."""
    rows_all = 0
    for file in before.files:
        with open_rows(file.path) as footer:
            rows_all += footer.metadata.num_rows
    numbers = itertools.count()
    inside = folder
    roll = Roll(lambda: inside / f"part-{next(numbers):05d}.parquet", options.target_file_bytes)

    def within(file: TableFile) -> Path:
        return place_within(file.path, options.table).parent

    for parent, files in itertools.groupby(sorted(before.files, key=within), key=within):
        inside = folder / parent
        make_folders(inside)
        for file in files:
            for group in row_groups(file.path):
                roll.write(group, file.path)
                on_progress(roll.rows, rows_all)
        roll.close()
        sync(inside)
    if roll.rows != rows_all:
        raise PipelineFailed(f"copied {roll.rows} rows of {rows_all}: files of {options.table} changed meanwhile")
    return next(numbers)
