"""What the log of a table says of its files, and that readers skip files by it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from acquit.spark.columns import FIELDS
from acquit.spark.delta import DeltaAppender
from acquit.spark.merging import delta_files, merge
from acquit.spark.stats import file_stats
from acquit.spark.table_source import write_files

SCHEMA = pa.schema([(field.name, field.arrow_type) for field in FIELDS])
TIME = pa.timestamp("us", "UTC")


def at(micros: int) -> datetime:
    return datetime(2026, 1, 31, 12, 0, 0, micros, UTC)


def ingested(table: Path, *batches: range) -> DeltaTable:
    """A table with a file for each batch, of messages with these sequences."""
    appender = DeltaAppender(table, SCHEMA, "query")
    for number, sequences in enumerate(batches):
        rows = [
            {
                "sequence": one,
                "message_id": f"m-{one:04}",
                "posted_at": at(one),
                "body": b"secret",
                "corrupt": b"secret",
            }
            for one in sequences
        ]
        written = write_files(table, f"{number}-0", [pa.RecordBatch.from_pylist(rows, SCHEMA)], SCHEMA.names)
        assert appender.commit(number, written)
    return DeltaTable(table)


def actions(table: DeltaTable) -> list[dict[str, object]]:
    found: list[dict[str, object]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return found


def test_the_log_has_bounds_of_what_readers_skip_by_and_nothing_of_bodies(tmp_path: Path) -> None:
    found, _ = sorted(actions(ingested(tmp_path, range(1, 10), range(10, 20))), key=lambda one: str(one["path"]))
    assert (found["num_records"], found["min.sequence"], found["max.sequence"]) == (9, 1, 9)
    assert (found["min.message_id"], found["max.message_id"]) == ("m-0001", "m-0009")
    assert (found["null_count.message_id"], found["null_count.subject"]) == (0, 9)
    log = "".join(path.read_text() for path in (tmp_path / "_delta_log").glob("*.json"))
    (added,) = {json.loads(line)["add"]["stats"] for line in log.splitlines() if '"add"' in line and "m-0019" in line}
    assert not {"body", "corrupt", "exact"} & json.loads(added)["nullCount"].keys()
    assert "secret" not in log


@pytest.mark.parametrize("merged", [False, True], ids=["as written", "merged"])
def test_readers_skip_files_by_it(tmp_path: Path, merged: bool) -> None:
    """What is skipped need not even be there."""
    table = ingested(tmp_path, range(1, 10), range(10, 20), range(20, 30))
    if merged:
        merge(tmp_path, [file for file in delta_files(table) if "/2-0-" not in file.path])
        table = DeltaTable(tmp_path)
        assert len(table.file_uris()) == 2
    for file in delta_files(table):
        if "/2-0-" not in file.path:
            (tmp_path / file.path).unlink()
    query = "SELECT sequence FROM t WHERE sequence >= 25 ORDER BY sequence"
    rows = pa.table(QueryBuilder().register("t", table).execute(query)).to_pylist()
    assert [row["sequence"] for row in rows] == [25, 26, 27, 28, 29]
    seen = table.to_pyarrow_table(columns=["message_id"], filters=[("message_id", ">=", "m-0028")])
    assert seen.column(0).to_pylist() == ["m-0028", "m-0029"]


def test_text_is_cut_and_times_have_milliseconds(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "subject": ["a" * 40, "b" * 40, None],
            "short": ["a" * 32, "é", ""],
            "long": ["x" * 5_000, "y", "z"],
            "posted_at": pa.array([at(1), at(999_001), at(5_000)], TIME),
            "negative": pa.array([datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), None, None], TIME),
            "nothing": pa.array([None, None, None], pa.int64()),
            "map": pa.array([[("a", "b")], [], None], pa.map_(pa.string(), pa.string())),
            "text": ["never", "said", "here"],
            "truth": [True, False, None],
        }
    )
    pq.write_table(rows, tmp_path / "f", row_group_size=2)
    assert json.loads(file_stats(tmp_path / "f")) == {
        "numRecords": 3,
        "minValues": {
            "subject": "a" * 32,
            "short": "",
            "posted_at": "2026-01-31T12:00:00.000Z",
            "negative": "1969-12-31T23:59:59.999Z",
        },
        "maxValues": {
            "subject": "b" * 32 + "\U0010ffff",
            "short": "é",
            "posted_at": "2026-01-31T12:00:01.000Z",
            "negative": "1970-01-01T00:00:00.000Z",
        },
        "nullCount": {"subject": 1, "short": 0, "long": 0, "posted_at": 0, "negative": 2, "nothing": 3},
    }


def test_a_file_without_a_row_says_so(tmp_path: Path) -> None:
    pq.write_table(SCHEMA.empty_table(), tmp_path / "f")
    assert json.loads(file_stats(tmp_path / "f"))["numRecords"] == 0


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, 253_402_300_799_999_999], TIME),  # the last moment of 9999, "for ever" in many tables
        ([0, 253_402_300_800_000_000], TIME),
        ([-70_000_000_000_000_000, 0], TIME),
        ([0, 2_932_897], pa.date32()),
        ([-800_000, 0], pa.date32()),
    ],
    ids=str,
)
def test_what_is_beyond_the_calendar_has_no_bounds(tmp_path: Path, values: list[int], kind: pa.DataType) -> None:
    whole = pa.int32() if kind == pa.date32() else pa.int64()
    column = pa.array(values, whole).view(kind)
    pq.write_table(pa.table({"until": column, "n": [1, 2]}), tmp_path / "f")
    assert json.loads(file_stats(tmp_path / "f")) == {
        "numRecords": 2,
        "minValues": {"n": 1},
        "maxValues": {"n": 2},
        "nullCount": {"until": 0, "n": 0},
    }
