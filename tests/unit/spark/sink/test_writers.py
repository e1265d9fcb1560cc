"""The writers as PySpark calls them, without Spark: what is refused when a write is planned, and what is reported."""

from __future__ import annotations

import json
import logging
import pickle
import random
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from acquit.errors import ConfigurationError
from acquit.spark.sink import writers as module
from acquit.spark.sink.writers import AcquitStreamWriter, AcquitWriter, TaskResult, in_order

SCHEMA = StructType([StructField("body", BinaryType())])
GIVEN = {"url": "amqp://127.0.0.1:1", "address": "q"}


def result(partition: int, suppressed: int | None = 2, rejections: tuple[str, ...] = ()) -> TaskResult:
    return TaskResult("name", partition, "the sender's mark", 10, suppressed, len(rejections), rejections)


def test_a_batch_needs_a_name() -> None:
    with pytest.raises(ConfigurationError, match="a batch write has no id of its own"):
        AcquitWriter(GIVEN, SCHEMA, False)
    AcquitWriter(GIVEN | {"guarantee": "at-least-once"}, SCHEMA, False)
    AcquitWriter(GIVEN | {"idColumn": "body"}, SCHEMA, False)
    writer = AcquitWriter(GIVEN | {"runId": "r"}, SCHEMA, False)
    assert pickle.loads(pickle.dumps(writer))._options.run_id == "r"


def test_what_cannot_be_taken_back_is_not_written_over() -> None:
    with pytest.raises(ConfigurationError, match="mode overwrite"):
        AcquitWriter(GIVEN | {"runId": "r"}, SCHEMA, True)
    with pytest.raises(ConfigurationError, match="output mode complete"):
        AcquitStreamWriter(GIVEN, SCHEMA, True)


def test_a_stream_has_its_own_name() -> None:
    with pytest.raises(ConfigurationError, match="option runId is of batch writes"):
        AcquitStreamWriter(GIVEN | {"runId": "r"}, SCHEMA, False)


def test_columns_are_looked_at_when_the_write_is_planned() -> None:
    schema = StructType([StructField("body", BinaryType()), StructField("subjekt", StringType())])
    with pytest.raises(ConfigurationError, match=r"column subjekt is none of a message; did you mean subject\?"):
        AcquitStreamWriter(GIVEN, schema, False)
    schema = StructType([StructField("body", BinaryType()), StructField("age", YearMonthIntervalType())])
    with pytest.raises(ConfigurationError, match="column age is INTERVAL YEAR TO MONTH"):
        AcquitStreamWriter(GIVEN, schema, False)
    schema = StructType([*SCHEMA, StructField("application_properties", MapType(NullType(), NullType()))])  # map()
    with pytest.raises(ConfigurationError, match="column application_properties is MAP<VOID,VOID>"):
        AcquitStreamWriter(GIVEN, schema, False)


def test_rows_are_written_in_tasks() -> None:
    for writer in (AcquitStreamWriter(GIVEN, SCHEMA, False), AcquitWriter(GIVEN | {"runId": "r"}, SCHEMA, False)):
        with pytest.raises(ConfigurationError, match="in a Spark task"):
            writer.write(iter(()))


@pytest.mark.parametrize("ids", [pa.int64(), pa.string(), pa.binary()], ids=str)
def test_rows_are_brought_in_order_some_at_a_time(ids: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE_ROWS", 7)
    numbers = [*range(100), None]
    random.Random(3).shuffle(numbers)
    rows = pa.table({"body": [f"row {n}" for n in numbers], "n": pa.array(numbers, pa.int64()).cast(pa.string())})
    if ids != pa.string():
        rows = rows.set_column(1, "n", rows["n"].cast(ids))
    found = [values.body for values, _ in in_order(iter(rows.to_batches(max_chunksize=13)), "n", 1 << 20)]
    expected = sorted(range(100), key=lambda n: n if ids == pa.int64() else str(n))
    assert found == [*(f"row {n}" for n in expected), "row None"]
    assert list(in_order(iter(()), "n", 1)) == []


def test_more_bodies_can_be_brought_in_order_than_a_column_holds_in_one_piece() -> None:
    size = 900 << 20  # of zeros that nobody looks at
    offsets = pa.py_buffer(np.array([0, size - 1, size], np.int32))
    bodies = pa.BinaryArray.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(np.zeros(size, np.uint8))])
    batch = pa.RecordBatch.from_arrays([bodies, pa.array(["large", "a small one"])], names=["body", "n"])
    first = islice(in_order(iter([batch] * 3), "n", 1 << 33), 3)
    assert [(values.body, given) for values, given in first] == [(b"\0", "a small one")] * 3


def test_what_came_of_a_batch_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = AcquitStreamWriter(GIVEN | {"report": str(tmp_path / "new")}, SCHEMA, False)
    with caplog.at_level(logging.INFO, "acquit.spark"):
        writer.commit([result(0), result(1, rejections=("row 3: no",))], 7)
    report = json.loads((tmp_path / "new" / "000000000007.json").read_text())
    assert (report["batch"], report["done"], report["partitions"]) == (7, True, 2)
    assert (report["written"], report["suppressed"], report["rejected"]) == (20, 4, 1)
    assert report["rejections"] == ["row 3: no"]
    assert '"written": 20' in caplog.text


def test_what_was_not_all_posted_is_reported_apart(tmp_path: Path) -> None:
    writer = AcquitWriter(GIVEN | {"report": f"file://{tmp_path}", "runId": "a/b"}, SCHEMA, False)
    writer.abort([result(0, None), None])
    report = json.loads((tmp_path / "a_b.failed.json").read_text())
    assert (report["done"], report["partitions"], report["suppressed"]) == (False, 1, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a_b.failed.json"]


def test_a_run_id_that_no_file_can_be_called(tmp_path: Path) -> None:
    for run_id in ("ü" * 199 + "a", "ü" * 199 + "b", "nul\0"):
        AcquitWriter(GIVEN | {"report": str(tmp_path), "runId": run_id}, SCHEMA, False).commit([result(0)])
    names = [path.name for path in tmp_path.iterdir()]
    assert len(names) == 3
    assert "nul_.json" in names


def test_a_report_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    given = GIVEN | {"runId": "r", "report": str(tmp_path / "folder")}
    writer = AcquitWriter(given, SCHEMA, False)
    (tmp_path / "folder" / "r.json").mkdir()
    with pytest.raises(
        ConfigurationError, match=r"^option report = .*folder: what came of the batch cannot be written"
    ):
        writer.commit([result(0)])
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"^option report = .*file: expected a folder"):
        AcquitStreamWriter(GIVEN | {"report": str(tmp_path / "file")}, SCHEMA, False)
