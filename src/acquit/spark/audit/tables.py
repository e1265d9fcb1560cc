"""Lives and counters as Parquet files, and files that are whole or not there.

`closed` has a row for each retired message, in files of one day (of the retirement, UTC) and one broker each. `open`
has what is needed to go on: one file for each bucket in which pieces of messages meet. `counters` has the counts that
make `minutes`. Queues are in them by number; their names are in the log's table of queues, for they are found segment
by segment, and a text in each row is what a join of a few names gives as well.

A file is written under its final name in a folder that belongs to one run, and synced; what makes it visible is the
run's entry in the log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from acquit.errors import StoreCorrupt
from acquit.ledger.events import EventKind
from acquit.spark.audit.counters import COUNTER, Counters
from acquit.spark.audit.lives import LIFE, LifeFlag, Lives

DAY_US: Final = 86_400_000_000
_TIME: Final = pa.timestamp("us", "UTC")
_NAMES: Final = pa.array([kind.name for kind in EventKind])
_NAME_AT: Final = np.zeros(256, np.int32)
_NAME_AT[[kind.value for kind in EventKind]] = range(len(EventKind))
LIVE_KEY: Final = b"acquit.live"
_COUNTER_FIELDS: Final = ("minute", "count", "queue", "broker", "code")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a run."""

    table: str
    path: str
    """Within the audit's folder."""
    rows: int
    bytes: int
    day: str = ""
    """Day of the retirements in a file of `closed`: 2026-01-31."""
    broker: str = ""
    bucket: int = -1
    """Bucket of a file of `open`."""


def write(
    root: Path,
    path: str,
    table: pa.Table,
    *,
    name: str,
    day: str = "",
    broker: str = "",
    bucket: int = -1,
    metadata: dict[bytes, bytes] | None = None,
) -> DataFile:
    """Write and sync a file. Raises OSError."""
    full = root / path
    full.parent.mkdir(parents=True, exist_ok=True)
    if metadata:
        table = table.replace_schema_metadata(metadata)
    with full.open("xb") as file:
        pq.write_table(table, file, compression="zstd", write_statistics=True)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    return DataFile(name, path, table.num_rows, size, day, broker, bucket)


def read(path: Path, **how: Any) -> pa.Table:
    """A file of a run; `how` as `pyarrow.parquet.read_table` has it. Raises StoreCorrupt where it is not there, or not
    what was written; OSError."""
    with _whole(path):
        return pq.read_table(path, **how)


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise StoreCorrupt("a file that the audit's log names is not there", path=str(path), offset=0) from error
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        text = str(error).splitlines()[0]
        raise StoreCorrupt(f"not the file that the audit wrote: {text}", path=str(path), offset=0) from error


def closed_files(lives: Lives, brokers: dict[int, str], root: Path, folder: str, label: str) -> list[DataFile]:
    """Write retired messages, a file for each broker and day."""
    files = []
    days = lives["retired_us"] // DAY_US
    for number in np.unique(lives["broker"]).tolist():
        own = lives["broker"] == number
        for day in np.unique(days[own]).tolist():
            text = str(np.datetime64(day, "D"))
            path = f"{folder}/closed/day={text}/broker={brokers[number]}/{label}.parquet"
            table = closed_table(lives[own & (days == day)], brokers[number])
            files.append(write(root, path, table, name="closed", day=text, broker=brokers[number]))
    return files


def _kind_names(kinds: npt.NDArray[Any]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(_NAME_AT[kinds], mask=kinds == 0), _NAMES)


def _times(lives: Lives, name: str, known: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(lives[name], pa.int64(), mask=~known).view(_TIME)


def closed_table(lives: Lives, broker: str) -> pa.Table:
    """Return lives as the table `closed` has them."""
    entered = lives["entered"] != 0
    return pa.table(
        {
            "broker": _constant(broker, len(lives)),
            "queue_number": pa.array(lives["queue"].astype(np.int64)),
            "sequence": pa.array(lives["sequence"].astype(np.int64)),
            "origin": _known(lives["origin"]),
            "entered": _kind_names(lives["entered"]),
            "posted_at": _times(lives, "entered_us", entered),
            "first_acquired_at": _times(lives, "acquired_us", lives["acquired"] > 0),
            "retired_at": _times(lives, "retired_us", lives["retired"] != 0),
            "outcome": _kind_names(lives["retired"]),
            "attempts": pa.array(lives["acquired"].astype(np.int32)),
            "returned": pa.array(lives["returned"].astype(np.int32)),
            "delivery_count": pa.array(lives["attempt"].astype(np.int32)),
            "size": pa.array(lives["size"].astype(np.int64)),
            "crc": pa.array(lives["crc"].astype(np.int64)),
            "became": _known(lives["became"]),
        }
    )


def _constant(text: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([text]))


def _known(values: npt.NDArray[Any]) -> pa.Array:
    return pa.array(values.astype(np.int64), mask=values == 0)


def open_table(lives: Lives, brokers: dict[int, str]) -> pa.Table:
    """Return lives as the table `open` has them, with all that is needed to go on."""
    entered = lives["entered"] != 0
    numbers = sorted(brokers)
    place = np.searchsorted(np.array(numbers, np.uint16), lives["broker"]).astype(np.int32)
    uuids = pa.array([brokers[number] for number in numbers], pa.string())
    return pa.table(
        {
            "broker": pa.DictionaryArray.from_arrays(pa.array(place), uuids),
            "broker_number": pa.array(lives["broker"].astype(np.int32)),
            "queue_number": pa.array(lives["queue"].astype(np.int64)),
            "sequence": pa.array(lives["sequence"].astype(np.int64)),
            "origin": _known(lives["origin"]),
            "entered": _kind_names(lives["entered"]),
            "entered_kind": pa.array(lives["entered"].astype(np.int32)),
            "posted_at": _times(lives, "entered_us", entered),
            "first_acquired_at": _times(lives, "acquired_us", lives["acquired"] > 0),
            "attempts": pa.array(lives["acquired"].astype(np.int32)),
            "returned": pa.array(lives["returned"].astype(np.int32)),
            "delivery_count": pa.array(lives["attempt"].astype(np.int32)),
            "size": pa.array(lives["size"].astype(np.int64)),
            "crc": pa.array(lives["crc"].astype(np.int64)),
            "first_at": pa.array(lives["first_us"]).view(_TIME),
            "last_at": pa.array(lives["last_us"]).view(_TIME),
            "last": _kind_names(lives["last"]),
            "last_kind": pa.array(lives["last"].astype(np.int32)),
            "first_segment": pa.array(lives["first_segment"].astype(np.int64)),
            "last_segment": pa.array(lives["last_segment"].astype(np.int64)),
        }
    )


_OPEN_FIELDS: Final = {
    "broker_number": "broker",
    "queue_number": "queue",
    "sequence": "sequence",
    "origin": "origin",
    "entered_kind": "entered",
    "posted_at": "entered_us",
    "first_acquired_at": "acquired_us",
    "attempts": "acquired",
    "returned": "returned",
    "delivery_count": "attempt",
    "size": "size",
    "crc": "crc",
    "first_at": "first_us",
    "last_at": "last_us",
    "last_kind": "last",
    "first_segment": "first_segment",
    "last_segment": "last_segment",
}


def open_lives(path: Path) -> Lives:
    """The lives of a file of `open`, as they were written."""
    table = read(path, columns=list(_OPEN_FIELDS))
    lives = np.zeros(table.num_rows, LIFE)
    for column, name in _OPEN_FIELDS.items():
        values = table[column].combine_chunks()
        if values.type == _TIME:
            values = values.view(pa.int64())
        lives[name] = values.fill_null(0).to_numpy(zero_copy_only=False)
    lives["flags"] = np.where(lives["acquired"] > 0, LifeFlag.COUNTED, 0)
    return lives


def live_metadata(live: Mapping[str, list[int]]) -> dict[bytes, bytes]:
    """Return the metadata that `live_of` reads, for `write`."""
    return {LIVE_KEY: json.dumps(live).encode()}


def live_of(path: Path) -> dict[str, list[int]]:
    """Return what a file of `open` says of itself: for each broker and queue, how many, and the sum of their hashes."""
    with _whole(path):
        metadata = pq.read_metadata(path).metadata or {}
    found: dict[str, list[int]] = json.loads(metadata[LIVE_KEY])
    return found


def counter_table(counters: Counters) -> pa.Table:
    """Return counters as a table, column by column."""
    return pa.table({name: pa.array(np.ascontiguousarray(counters[name])) for name in _COUNTER_FIELDS})


def read_counters(path: Path) -> Counters:
    """Return the counters of a file, as they were written."""
    table = read(path)
    counters = np.zeros(table.num_rows, COUNTER)
    for name in _COUNTER_FIELDS:
        counters[name] = table[name].to_numpy()
    return counters
