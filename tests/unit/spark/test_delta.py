"""Batches into a Delta table without Spark: each once, whoever comes second."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from acquit.errors import ConfigurationError, PipelineFailed
from acquit.spark import merging
from acquit.spark.delta import DeltaAppender, WrittenFile
from acquit.spark.table_source import write_files

SCHEMA = pa.schema([("body", pa.binary()), ("at", pa.timestamp("us", "UTC"))])


def write(table: Path, batch_id: int, *bodies: bytes) -> list[WrittenFile]:
    table.mkdir(exist_ok=True)
    batch = pa.RecordBatch.from_pylist([{"body": body} for body in bodies], schema=SCHEMA)
    return write_files(table, f"{batch_id}-{uuid4().hex}", [batch], SCHEMA.names)


def rows(table: Path) -> list[bytes]:
    uris = DeltaTable(table).file_uris()
    return sorted(body for uri in uris for body in pq.read_table(uri.removeprefix("file://"))["body"].to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.mark.promise("sink-takes-once")
def test_a_batch_goes_in_once(table: Path) -> None:
    appender = DeltaAppender(table, SCHEMA, "query-1")
    assert not appender.is_done(0)
    files = write(table, 0, b"a", b"b")
    assert [file.rows for file in files] == [2]
    assert appender.commit(0, files) and appender.is_done(0)
    assert not appender.commit(0, write(table, 0, b"a", b"b"))
    assert appender.commit(1, write(table, 1, b"c"))
    assert rows(table) == [b"a", b"b", b"c"]


def test_another_query_counts_its_own_batches(table: Path) -> None:
    for query in ("query-1", "query-2"):
        appender = DeltaAppender(table, SCHEMA, query)
        assert appender.commit(0, write(table, 0, query.encode()))
    assert rows(table) == [b"query-1", b"query-2"]


@pytest.mark.promise("sink-takes-once")
def test_of_two_drivers_at_once_one_gets_it_in(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = DeltaAppender(table, SCHEMA, "query-1"), DeltaAppender(table, SCHEMA, "query-1")
    first.commit(0, write(table, 0, b"a"))
    files = write(table, 1, b"second")
    real = second._open

    def open_before_the_other_commits(batch_id: int) -> DeltaTable:
        found = real(batch_id)
        monkeypatch.undo()
        first.commit(1, write(table, 1, b"first"))
        return found

    monkeypatch.setattr(second, "_open", open_before_the_other_commits)
    assert not second.commit(1, files)
    assert rows(table) == [b"a", b"first"]


def test_a_batch_that_cannot_be_committed_is_no_batch_that_is_done(table: Path) -> None:
    """delta-rs calls it a conflict, as it does that of two drivers."""
    appender = DeltaAppender(table, SCHEMA, "query-1")
    appender.commit(0, write(table, 0, b"a"))
    asks = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "domainMetadata"]}
    (table / "_delta_log" / f"{2:020d}.json").write_text(json.dumps({"protocol": asks}))
    with pytest.raises(PipelineFailed, match=r"batch 1 cannot be committed: .*RowTracking"):
        appender.commit(1, write(table, 1, b"b"))
    assert not appender.is_done(1)
    assert rows(table) == [b"a"]


def test_who_changes_the_table_under_way_is_waited_out(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appender = DeltaAppender(table, SCHEMA, "query-1")
    appender.is_done(0)
    real, days = appender._open, iter(range(30, 33))

    def open_before_a_change(batch_id: int) -> DeltaTable:
        found = real(batch_id)
        for day in itertools.islice(days, 1):
            DeltaTable(table).alter.set_table_properties({"delta.logRetentionDuration": f"interval {day} days"})
        return found

    monkeypatch.setattr(appender, "_open", open_before_a_change)
    assert appender.commit(0, write(table, 0, b"a"))
    assert [*days] == []
    assert rows(table) == [b"a"]


def test_a_file_that_is_not_there_for_the_driver_is_not_committed(table: Path) -> None:
    appender = DeltaAppender(table, SCHEMA, "query-1")
    assert not appender.is_done(0)
    files = write(table, 0, b"a")
    (table / files[0].path).unlink()
    with pytest.raises(PipelineFailed, match=r"wrote acquit/\S+, \d+ bytes, and the driver finds 0"):
        appender.commit(0, files)
    assert rows(table) == []


def test_a_table_that_goes_under_way_is_not_begun_anew(table: Path) -> None:
    appender = DeltaAppender(table, SCHEMA, "query-1")
    appender.commit(0, write(table, 0, b"a"))
    shutil.rmtree(table)
    table.mkdir()
    with pytest.raises(PipelineFailed, match="it is not there any more, and has had batches up to 0"):
        appender.is_done(1)
    assert not [*table.iterdir()]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    real = merging.sync

    def sync(path: Path) -> None:
        found.append(path.name)
        real(path)

    monkeypatch.setattr(merging, "sync", sync)
    return found


def entry(version: int) -> str:
    return f"{version:020d}.json"


@pytest.mark.promise("sink-takes-once")
def test_all_of_the_log_is_durable_when_a_batch_is_done(
    table: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    appender = DeltaAppender(table, SCHEMA, "query-1")
    files = write(table, 0, b"a")
    real = merging.sync_log

    def after_another_commit(folder: Path, since: int | None) -> int:
        DeltaAppender(table, SCHEMA, "query-2").is_done(0)
        DeltaTable(table).alter.set_table_properties({"delta.logRetentionDuration": "interval 30 days"})
        return real(folder, since)

    monkeypatch.setattr("acquit.spark.delta.sync_log", after_another_commit)
    assert appender.commit(0, files)
    assert {*synced} == {entry(0), entry(1), entry(2), "_delta_log"}
    monkeypatch.undo()
    monkeypatch.setattr(merging, "sync", lambda path: synced.append(path.name))
    synced.clear()
    assert appender.commit(1, write(table, 1, b"b"))
    assert [name for name in synced if name.endswith("json")] == [entry(3)]


def test_a_checkpoint_of_the_log_is_durable_too(table: Path, synced: list[str]) -> None:
    appender = DeltaAppender(table, SCHEMA, "query-1")
    appender.is_done(0)
    DeltaTable(table).alter.set_table_properties({"delta.checkpointInterval": "2"})
    appender.commit(0, write(table, 0, b"a"))
    assert {"_last_checkpoint", entry(2)} <= {*synced}
    assert [name for name in synced if name.endswith(".checkpoint.parquet")]


def test_a_batch_that_is_found_done_is_made_durable(table: Path, synced: list[str]) -> None:
    """By a run that was killed before it had seen to that."""
    DeltaAppender(table, SCHEMA, "query-1").commit(0, write(table, 0, b"a"))
    synced.clear()
    assert DeltaAppender(table, SCHEMA, "query-1").is_done(0)
    assert entry(1) in synced


def test_another_table_that_comes_to_be_first_is_left_alone(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write(table, 0, b"a")
    real = DeltaTable.create

    def create(*arguments: Any, **named: Any) -> DeltaTable:
        real(table, schema=pa.schema([("other", pa.int64())]))
        return real(*arguments, **named)

    monkeypatch.setattr(DeltaTable, "create", create)
    with pytest.raises(ConfigurationError, match="has the columns other"):
        DeltaAppender(table, SCHEMA, "query-1").commit(0, files)


def change_metadata(table: Path, configuration: dict[str, str], **of_the_first_field: object) -> None:
    """As another writer, with a feature that our files do not have."""
    log = table / "_delta_log"
    entries = [json.loads(line) for line in (log / entry(0)).read_text().splitlines()]
    found = next(one["metaData"] for one in entries if "metaData" in one)
    found["configuration"] = configuration
    schema = json.loads(found["schemaString"])
    schema["fields"][0] |= of_the_first_field
    found["schemaString"] = json.dumps(schema)
    version = DeltaTable(table).version() + 1
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    (log / entry(version)).write_text(f"{json.dumps(protocol)}\n{json.dumps({'metaData': found})}\n")


@pytest.mark.parametrize(
    ("configuration", "field", "asked"),
    [
        ({"delta.constraints.short": "body < 'z'"}, {}, "the constraint short"),
        ({}, {"nullable": False}, "a column body that must not be null"),
        (
            {},
            {"metadata": {"delta.generationExpression": "upper(at)"}},
            "a column body with delta.generationExpression",
        ),
    ],
)
def test_what_a_table_asks_of_its_writers_and_is_not_done_is_named(
    table: Path, configuration: dict[str, str], field: dict[str, object], asked: str
) -> None:
    appender = DeltaAppender(table, SCHEMA, "query-1")
    appender.is_done(0)
    change_metadata(table, configuration, **field)
    with pytest.raises(ConfigurationError, match=f"has {asked}, which this pipeline does not see to"):
        appender.commit(0, write(table, 0, b"a"))


def test_columns_with_other_names_in_the_files_are_refused(table: Path) -> None:
    schema = pa.schema([("body", pa.binary())])
    appender = DeltaAppender(table, schema, "query-1")
    appender.is_done(0)
    named = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    change_metadata(table, {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}, metadata=named)
    with pytest.raises(ConfigurationError, match="column mapping"):
        appender.commit(0, [])


def test_a_table_with_other_columns_is_named(table: Path) -> None:
    DeltaAppender(table, SCHEMA, "query-1").is_done(0)
    other = DeltaAppender(table, pa.schema([("body", pa.string())]), "query-1")
    with pytest.raises(ConfigurationError, match="has the columns body, at; this pipeline writes body"):
        other.is_done(0)


def test_of_many_columns_the_first_are_named_and_what_differs(table: Path) -> None:
    names = [f"c{number}" for number in range(9)]
    DeltaAppender(table, pa.schema([(name, pa.string()) for name in [*names, "json"]]), "query-1").is_done(0)
    other = DeltaAppender(table, pa.schema([(name, pa.string()) for name in names]), "query-1")
    listed = "c0, c1, c2, c3, c4, c5"
    with pytest.raises(ConfigurationError) as refused:
        other.is_done(0)
    assert f"has the columns {listed} and 4 more; this pipeline writes {listed} and 3 more" in str(refused.value)
    assert "only the table has json" in str(refused.value)


def test_a_partition_has_files_of_its_own(table: Path) -> None:
    schema = pa.schema([("body", pa.binary()), ("queue", pa.string())])
    appender = DeltaAppender(table, schema, "query-1", ["queue"])
    assert not appender.is_done(0)
    values = {"a b/=%": b"a", None: b"b"}
    batch = pa.table({"body": [*values.values()], "queue": [*values]}, schema).to_batches()[0]
    assert appender.commit(0, write_files(table, "0", [batch], schema.names, ["queue"]))
    found = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert {row["body"]: row["queue"] for row in found} == {b"a": "a b/=%", b"b": None}
    for columns in (schema, schema.remove(1)):
        with pytest.raises(
            ConfigurationError, match=r"partitioned by queue; .* writes partitions by nothing \(partition_by"
        ):
            DeltaAppender(table, columns, "query-1").is_done(0)
    other = pa.schema([("body", pa.string()), ("queue", pa.string())])
    with pytest.raises(ConfigurationError, match="its column body is binary, this pipeline writes string"):
        DeltaAppender(table, other, "query-1", ["queue"]).is_done(0)


def test_many_small_batches_are_merged_as_it_goes(table: Path) -> None:
    appender = DeltaAppender(table, SCHEMA, "query-1")
    most = 0
    for batch in range(80):
        assert appender.commit(batch, write(table, batch, str(batch).encode()))
        appender.merge_small(batch, 16 << 20)
        most = max(most, len(DeltaTable(table).file_uris()))
    assert most <= 64 + 8
    assert rows(table) == sorted(str(batch).encode() for batch in range(80))
    assert appender.is_done(79), "the number of the batch survives the merging"


def test_what_cannot_be_merged_stays_as_it_is(
    table: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    appender = DeltaAppender(table, SCHEMA, "query-1")
    for batch in range(64):
        appender.commit(batch, write(table, batch, b"x"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("acquit.spark.delta.merge", full)
    appender.merge_small(63, 16 << 20)
    assert "its small files are not merged now: [Errno 28] No space left on device" in caplog.text
    assert len(rows(table)) == 64


def test_a_table_that_lost_rows_to_vectors_beside_its_files_is_not_merged(
    table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    DeltaTable.create(table, SCHEMA, configuration={"delta.enableDeletionVectors": "true"})
    appender = DeltaAppender(table, SCHEMA, "query-1")
    for batch in range(64):
        appender.commit(batch, write(table, batch, b"x"))
    appender.merge_small(63, 16 << 20)
    assert f"not merged now: table {table} uses deletionVectors" in caplog.text
    assert len(DeltaTable(table).file_uris()) == 64, "merged, rows that are deleted would be there again"
