from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from acquit.ledger.events import EventKind
from acquit.spark.audit import tables
from acquit.spark.audit.counters import COUNTER
from acquit.spark.audit.lives import LIFE, LifeFlag, Lives

UUIDS = {1: "a", 3: "b"}


def lives() -> Lives:
    rows = np.zeros(4, LIFE)
    rows["sequence"] = [1, 2, (1 << 40) + 5, 9]
    rows["broker"], rows["queue"] = [1, 1, 3, 3], [5, 6, 5, 1 << 31]
    rows["entered"], rows["entered_us"] = [EventKind.POSTED, 0, EventKind.MOVED_IN, EventKind.POSTED], [10, 0, 30, 40]
    rows["origin"] = [0, 0, 8, 0]
    rows["acquired"], rows["acquired_us"] = [0, 2, 1, 0], [0, 25, 35, 0]
    rows["first_us"] = rows["last_us"] = [10, 25, 35, 40]
    rows["last"] = [EventKind.POSTED, EventKind.RELEASED, EventKind.ACQUIRED, EventKind.DUE]
    rows["size"], rows["crc"], rows["attempt"], rows["returned"] = 3, 0xFFFFFFFF, 65535, 1
    rows["first_segment"], rows["last_segment"] = 1, 1 << 33
    rows["flags"] = np.where(rows["acquired"] > 0, LifeFlag.COUNTED, 0)
    return rows


def test_open_lives_come_back_as_they_were(tmp_path: Path) -> None:
    live = {"1 5": [1, 1 << 100]}
    metadata = tables.live_metadata(live)
    file = tables.write(tmp_path, "x/open.parquet", tables.open_table(lives(), UUIDS), name="open", metadata=metadata)
    assert (file.rows, file.bytes) == (4, (tmp_path / "x" / "open.parquet").stat().st_size)
    assert tables.open_lives(tmp_path / file.path).tolist() == lives().tolist()
    assert tables.live_of(tmp_path / file.path) == live
    rows = pq.read_table(tmp_path / file.path).to_pylist()
    assert [row["broker"] for row in rows] == ["a", "a", "b", "b"]
    assert [row["posted_at"] is None for row in rows] == [False, True, False, False]


def test_closed_messages_lie_by_broker_and_day(tmp_path: Path) -> None:
    rows = lives()
    rows["retired"] = EventKind.ACCEPTED
    rows["retired_us"] = [tables.DAY_US - 1, tables.DAY_US, 0, 1]
    files = tables.closed_files(rows, UUIDS, tmp_path, "runs/1", "part")
    assert [(file.broker, file.day, file.rows) for file in files] == [
        ("a", "1970-01-01", 1),
        ("a", "1970-01-02", 1),
        ("b", "1970-01-01", 2),
    ]
    [row] = pq.ParquetFile(tmp_path / files[0].path).read().to_pylist()
    assert (row["outcome"], row["entered"], row["attempts"], row["first_acquired_at"]) == (
        "ACCEPTED",
        "POSTED",
        0,
        None,
    )
    assert (row["delivery_count"], row["crc"]) == (65535, 0xFFFFFFFF)


def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    table = tables.open_table(lives(), UUIDS)
    tables.write(tmp_path, "one", table, name="open")
    with pytest.raises(FileExistsError):
        tables.write(tmp_path, "one", table, name="open")


def test_counters_come_back_as_they_were(tmp_path: Path) -> None:
    rows = np.array([(29_000_000, 5, 1 << 31, 3, 1535), (-1, 1 << 40, 1, 1, 0)], COUNTER)
    file = tables.write(tmp_path, "counters", tables.counter_table(rows), name="counters")
    assert tables.read_counters(tmp_path / file.path).tolist() == rows.tolist()
