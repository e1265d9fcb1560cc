"""Batches into a Delta table without Spark: each once, whoever comes second."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from acquit.errors import ConfigurationError
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


def test_of_two_drivers_at_once_one_gets_it_in(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = DeltaAppender(table, SCHEMA, "query-1"), DeltaAppender(table, SCHEMA, "query-1")
    first.commit(0, write(table, 0, b"a"))
    files = write(table, 1, b"second")
    real = second._open

    def open_before_the_other_commits() -> DeltaTable:
        found = real()
        monkeypatch.undo()
        first.commit(1, write(table, 1, b"first"))
        return found

    monkeypatch.setattr(second, "_open", open_before_the_other_commits)
    assert not second.commit(1, files)
    assert rows(table) == [b"a", b"first"]


def test_a_table_with_other_columns_is_named(table: Path) -> None:
    DeltaAppender(table, SCHEMA, "query-1").is_done(0)
    other = DeltaAppender(table, pa.schema([("body", pa.string())]), "query-1")
    with pytest.raises(ConfigurationError, match="has the columns body, at; this pipeline writes body"):
        other.is_done(0)


def test_a_partition_has_files_of_its_own(table: Path) -> None:
    schema = pa.schema([("body", pa.binary()), ("queue", pa.string())])
    appender = DeltaAppender(table, schema, "query-1", ["queue"])
    assert not appender.is_done(0)
    values = {"a b/=%": b"a", None: b"b"}
    batch = pa.table({"body": [*values.values()], "queue": [*values]}, schema).to_batches()[0]
    assert appender.commit(0, write_files(table, "0", [batch], schema.names, ["queue"]))
    found = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert {row["body"]: row["queue"] for row in found} == {b"a": "a b/=%", b"b": None}
    with pytest.raises(ConfigurationError, match="is partitioned by queue; this pipeline writes partitions by nothing"):
        DeltaAppender(table, schema, "query-1").is_done(0)
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
