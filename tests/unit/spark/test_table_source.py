"""Rows written as files of a Delta table: which are in which, and that each column comes back as it was."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from acquit.spark.columns import FIELDS
from acquit.spark.table_source import POSTED_DAY, FilesOrder, _partitions, write_files

TIME = pa.timestamp("us", "UTC")


def test_every_column_comes_back_as_it_was(tmp_path: Path) -> None:
    schema = pa.schema([(field.name, field.arrow_type) for field in FIELDS])
    at = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
    row = {"message_id": "a", "sequence": 1 << 62, "application_properties": [("k", None)], "annotations": []}
    full = {**row, "redelivered": False, "posted_at": at, "body": b"\xff" * 70_000}
    batches = [pa.RecordBatch.from_pylist([one], schema=schema) for one in (full, {})]
    (file,) = write_files(tmp_path, "7-0", batches, schema.names)
    assert (file.path, file.rows, file.partition) == ("acquit/7-0-0.parquet", 2, ())
    assert file.size_bytes == (tmp_path / file.path).stat().st_size
    found = pq.read_table(tmp_path / file.path)
    assert found.schema.equals(schema)
    assert found.to_pylist() == pa.Table.from_batches(batches).to_pylist()


def test_each_combination_of_values_has_its_file(tmp_path: Path) -> None:
    rows = [("x", True), (None, True), ("", None), ("x", False), ("x", True), (None, True)]
    batches = [
        pa.RecordBatch.from_pylist([{"n": n, "subject": subject, "redelivered": again}])
        for n, (subject, again) in enumerate(rows)
    ]
    schema = pa.schema([("n", pa.int64()), ("subject", pa.string()), ("redelivered", pa.bool_())])
    batches = [batch.cast(schema) for batch in batches]
    files = write_files(tmp_path, "7-0", batches, schema.names, ["subject", "redelivered"])
    found = [(dict(file.partition), pq.read_table(tmp_path / file.path).to_pydict()) for file in files]
    expected = [
        ({"subject": "x", "redelivered": "true"}, {"n": [0, 4]}),
        ({"subject": "x", "redelivered": "false"}, {"n": [3]}),
        ({"subject": None, "redelivered": "true"}, {"n": [1, 5]}),
        ({"subject": None, "redelivered": None}, {"n": [2]}),
    ]
    assert len(found) == 4 and all(one in found for one in expected)


def test_there_may_be_more_bodies_than_a_column_holds_in_one_piece() -> None:
    size = 900 << 20  # of zeros that nobody looks at
    offsets = pa.py_buffer(np.array([0, 1, size], np.int32))
    bodies = pa.BinaryArray.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(np.zeros(size, np.uint8))])
    batch = pa.RecordBatch.from_arrays([bodies, pa.array(["small", "large"])], names=["body", "subject"])
    partition, rows = next(_partitions(pa.Table.from_batches([batch] * 3), ["subject"]))
    assert (dict(partition), rows.to_pydict()) == ({"subject": "small"}, {"body": [b"\0"] * 3})


@pytest.mark.parametrize("kept", [("n", "posted_at"), ("n",)])
def test_days_are_those_of_utc_before_1970_too(tmp_path: Path, kept: tuple[str, ...]) -> None:
    times = [datetime(1969, 12, 31, 23, 59, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC), None]
    batch = pa.RecordBatch.from_arrays([pa.array([0, 1, 2]), pa.array(times, TIME)], names=["n", "posted_at"])
    (file,) = write_files(tmp_path, "7-0", [batch], [*kept, POSTED_DAY])
    found = pq.read_table(tmp_path / file.path)
    assert found.column_names == [*kept, POSTED_DAY]
    assert found[POSTED_DAY].to_pylist() == [date(1969, 12, 31), date(1970, 1, 1), None]


def test_many_rows_make_row_groups_that_memory_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acquit.spark.table_source._GROUP_BYTES", 10_000)
    batch = pa.RecordBatch.from_arrays([pa.array([b"x" * 1_000] * 50)], names=["body"])
    (file,) = write_files(tmp_path, "7-0", [batch], ["body"])
    assert pq.read_metadata(tmp_path / file.path).num_row_groups >= 5


def test_the_order_and_the_options_of_the_source_go_one_way(tmp_path: Path) -> None:
    columns = StructType().add("body", "binary")
    order = FilesOrder(tmp_path, columns, ("queue",))
    assert FilesOrder.take({"url": "amqp://host", **order.to_option()}) == (order, {"url": "amqp://host"})
