"""Small files into large ones: rows stay, conflicts double nothing, what Spark lists is not touched."""

from __future__ import annotations

import datetime
import errno
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from acquit.errors import ConfigurationError, PipelineFailed
from acquit.spark.compact import CompactOptions, compact
from acquit.spark.merging import DeltaFile, bins, delta_files, merge, tier_bins
from acquit.spark.tables import TableKind, table_files

SMALL = 20
MICROSECONDS = pa.timestamp("us")
NESTED = pa.struct([("at", pa.list_(MICROSECONDS)), ("by", pa.map_(pa.string(), MICROSECONDS))])


def delta_table(folder: Path, files: int = SMALL) -> Path:
    for number in range(files):
        write_deltalake(folder, pa.table({"sequence": [number], "body": [b"x" * 100]}), mode="append")
    return folder


def stream_table(folder: Path, *, batches: int = 3) -> Path:
    """As Spark's file sink leaves it, with a file of an attempt that died."""
    (folder / "_spark_metadata").mkdir(parents=True)
    for batch in range(batches):
        lines = ["v1"]
        path = folder / f"part-00000-a {batch}.parquet"
        pq.write_table(pa.table({"sequence": [batch]}), path)
        lines.append(json.dumps({"path": path.as_uri(), "size": path.stat().st_size, "action": "add"}))
        (folder / "_spark_metadata" / str(batch)).write_text("\n".join(lines))
    pq.write_table(pa.table({"sequence": [99]}), folder / "part-00000-died.parquet")
    return folder


def sequences(table: Path) -> list[int]:
    return sorted(
        number for file in table_files(table).files for number in pq.read_table(file.path)["sequence"].to_pylist()
    )


def test_a_delta_table_keeps_its_rows_in_fewer_files(tmp_path: Path) -> None:
    table = delta_table(tmp_path / "table")
    planned = compact(CompactOptions(table=table, dry_run=True))
    assert (planned.files_before, planned.files_after, planned.merged, planned.dry_run) == (SMALL, 1, SMALL, True)
    assert len(table_files(table).files) == SMALL, "a dry run does nothing"
    done = compact(CompactOptions(table=table))
    assert (done.files_before, done.files_after, done.merged) == (SMALL, 1, SMALL)
    assert sequences(table) == list(range(SMALL))
    again = compact(CompactOptions(table=table))
    assert (again.files_before, again.files_after, again.merged) == (1, 1, 0)


def test_files_of_a_table_that_has_grown_are_merged_with_their_like(tmp_path: Path) -> None:
    table = delta_table(tmp_path / "table")
    for number in range(SMALL):
        grown = pa.table({"sequence": [SMALL + number], "subject": [f"s{number}"]})
        write_deltalake(table, grown, mode="append", schema_mode="merge")
    write_deltalake(table, pa.table({"sequence": [99], "priority": [4]}), mode="append", schema_mode="merge")
    before = sorted(DeltaTable(table).to_pyarrow_table().to_pylist(), key=str)
    planned = compact(CompactOptions(table=table, dry_run=True))
    done = compact(CompactOptions(table=table))
    assert (done.files_after, done.merged) == (planned.files_after, planned.merged)
    assert (done.files_before, done.files_after) == (2 * SMALL + 1, 3)
    assert len(table_files(table).files) == done.files_after
    assert sorted(DeltaTable(table).to_pyarrow_table().to_pylist(), key=str) == before
    assert compact(CompactOptions(table=table)).merged == 0


def test_delta_rs_does_not_see_two_compactions_at_once(tmp_path: Path) -> None:
    """Why `merging` commits by itself. When this fails, delta-rs has learned it."""
    table = delta_table(tmp_path / "table", 2)
    first, second = DeltaTable(table), DeltaTable(table)
    first.optimize.compact()
    second.optimize.compact()
    assert sequences(table) == [0, 0, 1, 1]


def test_who_compacts_at_the_same_time_doubles_nothing(tmp_path: Path) -> None:
    table = delta_table(tmp_path / "table")
    seen = delta_files(DeltaTable(table))
    write_deltalake(table, pa.table({"sequence": [SMALL], "body": [b""]}), mode="append")
    merge(table, seen[:5])
    with pytest.raises(PipelineFailed, match="somebody else took .*; the table is as they left it"):
        merge(table, seen[4:])
    assert sequences(table) == list(range(SMALL + 1))
    assert len(list((table / "acquit").iterdir())) == 1, "what was not needed is gone"


def test_a_commit_between_look_and_commit_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = delta_table(tmp_path / "table", 4)
    seen = delta_files(DeltaTable(table))
    real = DeltaTable.create_write_transaction
    hooked: list[bool] = []

    def overtaken(opened: DeltaTable, *arguments: Any, **named: Any) -> None:
        if not hooked:
            hooked.append(True)
            merge(table, seen[2:])
        real(opened, *arguments, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", overtaken)
    with pytest.raises(PipelineFailed, match="somebody else took"):
        merge(table, seen)
    assert sequences(table) == [0, 1, 2, 3]
    hooked.clear()

    def appended(opened: DeltaTable, *arguments: Any, **named: Any) -> None:
        if not hooked:
            hooked.append(True)
            write_deltalake(table, pa.table({"sequence": [4], "body": [b""]}), mode="append")
        real(opened, *arguments, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", appended)
    merge(table, seen[:2])
    assert sequences(table) == [0, 1, 2, 3, 4], "who only appends is in nobody's way"


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_fails_after_the_commit_takes_no_rows_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    table = delta_table(tmp_path / "table", 4)

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr("acquit.spark.merging.sync_log", fail)
    with pytest.raises(type(failure)):
        merge(table, delta_files(DeltaTable(table)))
    assert sequences(table) == [0, 1, 2, 3]
    assert len(table_files(table).files) == 1


def test_a_commit_that_fails_after_it_happened_has_happened(tmp_path: Path) -> None:
    """delta-rs writes a checkpoint after it, and cannot."""
    table = delta_table(tmp_path / "table", 4)
    DeltaTable(table).alter.set_table_properties({"delta.checkpointInterval": "1"})
    in_its_way = table / "_delta_log" / f"{DeltaTable(table).version() + 1:020d}.checkpoint.parquet" / "x"
    in_its_way.mkdir(parents=True)
    merge(table, delta_files(DeltaTable(table)))
    in_its_way.rmdir()
    in_its_way.parent.rmdir()
    assert sequences(table) == [0, 1, 2, 3]
    assert len(table_files(table).files) == 1


def test_a_commit_that_fails_for_ever_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = delta_table(tmp_path / "table", 4)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", full)
    with pytest.raises(PipelineFailed, match="a compaction could not be committed: .*No space left on device"):
        merge(table, delta_files(DeltaTable(table)))
    assert not list((table / "acquit").iterdir())
    assert sequences(table) == [0, 1, 2, 3]


def test_partitions_stay_apart(tmp_path: Path) -> None:
    table = tmp_path / "table"
    days = [datetime.date(2026, 1, 2), None]
    for number in range(8):
        rows = {
            "sequence": [number],
            "address": [("a b/:%é", "b")[number % 2]],
            "day": pa.array([days[number // 4]], pa.date32()),
        }
        write_deltalake(table, pa.table(rows), mode="append", partition_by=["address", "day"])
    before = DeltaTable(table).to_pyarrow_table().sort_by("sequence")
    done = compact(CompactOptions(table=table))
    assert (done.files_before, done.files_after) == (8, 4)
    assert len(DeltaTable(table).file_uris()) == 4
    assert DeltaTable(table).to_pyarrow_table().sort_by("sequence").equals(before)


def test_a_table_whose_files_are_not_its_rows_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "table"
    DeltaTable.create(table, pa.schema([("a", pa.int64())]), configuration={"delta.enableDeletionVectors": "true"})
    with pytest.raises(ConfigurationError, match="uses deletionVectors.*: compact it with what writes it"):
        compact(CompactOptions(table=table))


def test_vacuum_takes_old_attempts_and_leaves_the_querys_work(tmp_path: Path) -> None:
    table = delta_table(tmp_path / "table", 2)
    old = time.time() - 8 * 86_400
    work = table / "_acquit" / "spool" / "data" / "1-0-a.arrow"
    died = table / "acquit" / "000000001-0-a-0.parquet"
    young = table / "acquit" / "000000002-0-b-0.parquet"
    for path in (work, died, young):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        os.utime(path, (old, old) if path is not young else None)
    planned = compact(CompactOptions(table=table, vacuum=True, dry_run=True))
    assert planned.vacuumed == ("acquit/000000001-0-a-0.parquet",)
    assert died.exists()
    done = compact(CompactOptions(table=table, vacuum=True))
    assert done.vacuumed == planned.vacuumed
    assert (work.exists(), died.exists(), young.exists()) == (True, False, True)
    assert sequences(table) == [0, 1]


def test_vacuum_leaves_what_a_batch_has_just_written_whatever_the_table_says(tmp_path: Path) -> None:
    table = delta_table(tmp_path / "table", 2)
    DeltaTable(table).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    (table / "acquit").mkdir()
    young = table / "acquit" / "000000002-0-b-0.parquet"
    young.touch()
    assert compact(CompactOptions(table=table, vacuum=True)).vacuumed == ()
    assert young.exists()


def test_what_a_stream_lists_is_copied_and_not_touched(tmp_path: Path) -> None:
    table = stream_table(tmp_path / "table")
    assert table_files(table).kind is TableKind.STREAM
    with pytest.raises(ConfigurationError, match="_spark_metadata, which nobody can change .* --into DIR"):
        compact(CompactOptions(table=table))
    told: list[tuple[int, int]] = []
    done = compact(
        CompactOptions(table=table, into=tmp_path / "copy"), on_progress=lambda rows, of: told.append((rows, of))
    )
    assert (done.files_before, done.files_after, done.table) == (3, 1, tmp_path / "copy")
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert sequences(tmp_path / "copy") == [0, 1, 2], "not what died"
    assert sequences(table) == [0, 1, 2]
    with pytest.raises(ConfigurationError, match="expected a folder that is not there yet"):
        CompactOptions(table=table, into=tmp_path / "copy")


def test_a_list_that_repeats_what_was_before(tmp_path: Path) -> None:
    table = stream_table(tmp_path / "table", batches=3)
    log = table / "_spark_metadata"
    lines = [line for batch in (0, 1) for line in (log / str(batch)).read_text().splitlines()[1:]]
    (log / "1.compact").write_text("\n".join(["v1", *lines]))
    (log / "1").unlink()
    assert sequences(table) == [0, 1, 2]
    (log / "2").write_text("v2\n")
    with pytest.raises(PipelineFailed, match="expected a list of version v1, found 'v2'"):
        table_files(table)


def test_a_copy_of_partitions_that_lie_elsewhere_has_them_in_itself(tmp_path: Path) -> None:
    """Whoever wrote the table called it by another name, and a folder in it is a link to another disk."""
    table = tmp_path / "table"
    (tmp_path / "disk").mkdir()
    table.mkdir()
    (table / "day=1").symlink_to(tmp_path / "disk")
    (tmp_path / "other").symlink_to(table)
    stream_table(tmp_path / "other" / "day=1")
    (table / "day=1" / "_spark_metadata").rename(table / "_spark_metadata")
    done = compact(CompactOptions(table=table, into=tmp_path / "copy"))
    assert (done.files_before, done.files_after) == (3, 1)
    assert [str(path.relative_to(tmp_path)) for path in (tmp_path / "copy").rglob("*.parquet")] == [
        "copy/day=1/part-00000.parquet"
    ]
    assert sequences(tmp_path / "copy") == [0, 1, 2]


@pytest.mark.parametrize("repeated", [False, True])
def test_a_list_without_one_of_its_batches_is_not_copied_as_if_that_were_all(tmp_path: Path, repeated: bool) -> None:
    table = stream_table(tmp_path / "table", batches=4)
    log = table / "_spark_metadata"
    if repeated:
        (log / "0").rename(log / "0.compact")
    (log / "2").unlink()
    with pytest.raises(PipelineFailed, match="No such file or directory: '.*/_spark_metadata/2'"):
        compact(CompactOptions(table=table, into=tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


def test_a_copy_rolls_at_the_size(tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.mkdir()
    for number in range(6):
        rows = pa.table({"sequence": [number], "body": [os.urandom(3_000)]})
        pq.write_table(rows, table / f"{number}.parquet")
    done = compact(CompactOptions(table=table, into=tmp_path / "copy", target_file_bytes=30_000))
    assert 1 < done.files_after < 6
    assert len(table_files(tmp_path / "copy").files) == done.files_after
    assert sequences(tmp_path / "copy") == list(range(6))


def test_a_copy_keeps_the_folders_of_partitions(tmp_path: Path) -> None:
    """Their values are nowhere else."""
    table = tmp_path / "table"
    for queue, number in itertools.product(("a", "b%20c"), range(2)):
        (table / f"queue={queue}" / "day=1").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"sequence": [number]}), table / f"queue={queue}" / "day=1" / f"{number}.parquet")
    done = compact(CompactOptions(table=table, into=tmp_path / "copy"))
    assert (done.files_before, done.files_after) == (4, 2)
    found = {str(file.path.parent.relative_to(tmp_path / "copy")) for file in table_files(tmp_path / "copy").files}
    assert found == {"queue=a/day=1", "queue=b%20c/day=1"}
    assert sequences(tmp_path / "copy") == [0, 0, 1, 1]


def test_times_as_spark_writes_them_stay_what_they_are(tmp_path: Path) -> None:
    """Spark reads no nanoseconds, which pyarrow makes of them, and what is beyond those must not be another time."""
    table = tmp_path / "table"
    table.mkdir()
    instant = datetime.datetime(9999, 12, 31, 23, 59, 59, 123456, datetime.UTC)
    far = instant.replace(tzinfo=None)
    times = pa.array([far, None], pa.timestamp("us"))
    nested = pa.array([{"at": [far], "by": [("x", far)]}, None], NESTED)
    for number in range(2):
        rows = pa.table({"at": times, "json": nested, "sequence": [number, number]})
        pq.write_table(rows, table / f"{number}.parquet", use_deprecated_int96_timestamps=True)
    compact(CompactOptions(table=table, into=tmp_path / "copy"))
    (file,) = table_files(tmp_path / "copy").files
    found = pq.read_table(file.path)
    assert found["at"].to_pylist() == [instant, None] * 2
    assert found["json"].to_pylist()[0] == {"at": [instant], "by": [("x", instant)]}
    written = pq.ParquetFile(file.path).schema
    kinds = {
        str(column.logical_type) for index in range(len(written)) if "at" in (column := written.column(index)).path
    }
    assert all("isAdjustedToUTC=true, timeUnit=microseconds" in kind for kind in kinds)


def test_a_copy_of_two_tables_is_refused_and_leaves_nothing_named(tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.mkdir()
    pq.write_table(pa.table({"sequence": [1]}), table / "a.parquet")
    pq.write_table(pa.table({"number": [1]}), table / "b.parquet")
    with pytest.raises(PipelineFailed, match=r"b\.parquet has other columns than the files before: number"):
        compact(CompactOptions(table=table, into=tmp_path / "copy"))
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_copy_that_is_not_finished_is_removed(tmp_path: Path, failure: BaseException) -> None:
    table = stream_table(tmp_path / "table")

    def fail(rows: int, of: int) -> None:
        if rows == 2:
            (copy,) = (path for path in tmp_path.iterdir() if path != table)
            assert list(copy.iterdir()), "something of it is there"
            raise failure

    with pytest.raises(type(failure)) as caught:
        compact(CompactOptions(table=table, into=tmp_path / "copy"), on_progress=fail)
    assert caught.value is failure
    assert list(tmp_path.iterdir()) == [table]
    assert compact(CompactOptions(table=table, into=tmp_path / "copy")).files_after == 1


def test_what_is_no_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="gone: expected a folder with a table, found nothing"):
        compact(CompactOptions(table=tmp_path / "gone"))
    with pytest.raises(ConfigurationError, match="found neither _delta_log nor _spark_metadata nor a Parquet file"):
        compact(CompactOptions(table=tmp_path))
    with pytest.raises(ConfigurationError, match="compacted in place, without --into"):
        compact(CompactOptions(table=delta_table(tmp_path / "delta", 1), into=tmp_path / "copy"))
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(ConfigurationError, match="there is nothing to vacuum"):
        compact(CompactOptions(table=tmp_path, vacuum=True))
    with pytest.raises(ConfigurationError, match="at least 1024 bytes, got 5"):
        CompactOptions(table=tmp_path, target_file_bytes=5)
    missing = stream_table(tmp_path / "stream")
    next(missing.glob("*a 1.parquet")).unlink()
    with pytest.raises(PipelineFailed, match=r"its list names .*a 1\.parquet, which is not there"):
        table_files(missing)


def files(*sizes: int) -> list[DeltaFile]:
    return [DeltaFile(str(number), size) for number, size in enumerate(sizes)]


def test_what_is_merged_with_what() -> None:
    def sizes(*given: int) -> list[list[int]]:
        return [[file.size_bytes for file in one] for one in bins(files(*given), 100)]

    assert sizes(10, 20, 60, 30) == [[10, 20, 30]], "what has half the size is left alone"
    assert sizes(40, 40, 40, 40, 5) == [[40, 40], [40, 40, 5]]
    assert sizes(49, 49, 49) == [[49, 49]]
    assert sizes(7) == []
    apart = [
        DeltaFile("a", 10, (("day", "1"),)),
        DeltaFile("b", 10, (("day", "2"),)),
        DeltaFile("c", 10, (("day", "1"),)),
    ]
    assert [[file.path for file in one] for one in bins(apart, 100)] == [["a", "c"]]


def test_growing_by_small_files_each_row_is_copied_a_few_times() -> None:
    """A stream of 20,000 batches of 100 kB: how often its bytes are written again, and how many files readers see."""
    target, batch, batches = 128 << 20, 100_000, 20_000
    present: list[DeltaFile] = []
    written = most = 0
    for number in range(batches):
        present.append(DeltaFile(str(number), batch))
        for one in tier_bins(present, target):
            size = sum(file.size_bytes for file in one)
            written += size
            present = [file for file in present if file not in one] + [DeltaFile(f"m{written}", size)]
        most = max(most, len(present))
    assert written / (batch * batches) < 5
    assert most < 100


def test_tiny_files_are_not_left_to_pile_up() -> None:
    assert tier_bins(files(*[10] * 63), 128 << 20) == []
    assert len(tier_bins(files(*[10] * 64), 128 << 20)) == 1
    assert tier_bins(files(*[70 << 20] * 100), 128 << 20) == []


@pytest.mark.parametrize("into", [False, True])
def test_a_file_that_is_no_parquet_is_named_and_nothing_changes(tmp_path: Path, into: bool) -> None:
    if into:
        table = tmp_path / "table"
        table.mkdir()
        (table / "odd.parquet").write_bytes(b"garbage")
    else:
        table = delta_table(tmp_path / "table", 2)
        table_files(table).files[0].path.write_bytes(b"garbage")
    for dry_run in (False,) if into else (True, False):
        with pytest.raises(PipelineFailed, match=r"\.parquet is no Parquet file: "):
            compact(CompactOptions(table=table, into=tmp_path / "copy" if into else None, dry_run=dry_run))
    assert [path.name for path in tmp_path.iterdir()] == ["table"]
    assert not list(table.glob("acquit/merged-*"))


def test_a_copy_is_no_part_of_its_table(tmp_path: Path) -> None:
    """Readers of a plain folder would see the rows twice."""
    table = tmp_path / "table"
    table.mkdir()
    pq.write_table(pa.table({"a": [1]}), table / "a.parquet")
    (tmp_path / "other").symlink_to(table)
    for into in (table / "copy", tmp_path / "other" / "deep" / "copy"):
        with pytest.raises(ConfigurationError, match="expected a folder outside of the table"):
            CompactOptions(table=table, into=into)
    assert compact(CompactOptions(table=table, into=tmp_path / "table-copy")).files_after == 1


def test_a_vacuum_that_fails_is_not_tried_with_a_shorter_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table says an hour, and a batch may be written for longer."""
    table = tmp_path / "table"
    hour = {"delta.deletedFileRetentionDuration": "interval 1 hours"}
    write_deltalake(table, pa.table({"sequence": [1]}), configuration=hour)
    being_written = table / "acquit" / "batch.parquet"
    being_written.parent.mkdir()
    being_written.write_bytes(b"rows")
    two_hours_ago = time.time() - 7_200
    os.utime(being_written, (two_hours_ago, two_hours_ago))
    asked: list[tuple[object, ...]] = []

    def fails(self: DeltaTable, *given: object, **options: object) -> list[str]:
        asked.append(given)
        raise DeltaError("Generic LocalFileSystem error: Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "vacuum", fails)
        with pytest.raises(PipelineFailed, match="its old files were not all removed: .*Input/output error"):
            compact(CompactOptions(table=table, vacuum=True))
    assert asked == [(24,)]
    assert compact(CompactOptions(table=table, vacuum=True)).vacuumed == ()
    assert being_written.exists()
