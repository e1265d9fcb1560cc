"""The audit's two tasks, as functions that give Arrow batches; what Spark does with them is in `run`.

`fold_task` folds segments. It writes what is complete, and gives out *blocks*: for each bucket the pieces of messages
and the counters that belong to it, as an array of fixed-width rows in one binary value. Only these are shuffled: keys,
times and counts, never a body. `merge_task` gets all blocks of one bucket.

What the driver must know comes back as rows of JSON: one for each segment, task and bucket. The rows of a fold go
through the same shuffle, in buckets of their own (below 0), so that each segment's are there exactly once, whatever
was tried again; and what a fold wrote counts only if the row that names it arrives.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from acquit.spark.audit import counters as counting
from acquit.spark.audit import lives as living
from acquit.spark.audit import tables
from acquit.spark.audit.bucket import RunFolders, merge_bucket
from acquit.spark.audit.counters import COUNTER, NO_COUNTERS
from acquit.spark.audit.lives import LIFE, NO_LIVES, Lives
from acquit.spark.audit.segment import Work, fold
from acquit.spark.audit.tables import DataFile
from acquit.spark.collector import spare_imports
from acquit.spark.ledger.options import Verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Part = TypeVar("Part")

BLOCK: Final = pa.schema([("bucket", pa.int32()), ("kind", pa.int32()), ("payload", pa.binary())])
RESULT: Final = pa.schema([("kind", pa.int32()), ("payload", pa.string())])
PIECES, COUNTERS, SEGMENT, TASK, BUCKET = range(5)
"""Kinds of blocks and results."""
CLOSED_ROWS: Final = 2_000_000
"""A task keeps so many before it writes a file."""
_TOLD_IN: Final = 8
"""Buckets for what the driver is told."""


def in_tasks(
    session: SparkSession, parts: Sequence[Part], task: Callable[[Part], Iterator[pa.RecordBatch]], schema: pa.Schema
) -> DataFrame:
    """Return what `task` gives of each of these parts, in a Spark task for each."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_imports()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from task(parts[number])

    return session.range(0, len(parts), 1, len(parts)).mapInArrow(run, from_arrow_schema(schema))


def fold_task(
    part: tuple[int, Sequence[Work]], place: RunFolders, buckets: int, verify: Verify
) -> Iterator[pa.RecordBatch]:
    """Fold the segments of a task; `part` is its number, and these."""
    number, works = part
    label = f"fold-{number:06}-{secrets.token_hex(6)}"
    told = -1 - number % _TOLD_IN
    files: list[DataFile] = []
    kept: list[Lives] = []
    shuffled = 0

    def write() -> None:
        if kept:
            name = f"{label}-{len(files)}"
            lives = living.concatenate(kept)
            files.extend(tables.closed_files(lives, dict(place.brokers), place.root, place.folder, name))
            kept.clear()

    for work in works:
        folded = fold(work, verify, place.anomalies_max)
        if len(folded.closed):
            kept.append(folded.closed)
        if sum(map(len, kept)) >= CLOSED_ROWS:
            write()
        blocks = [
            *_blocks(PIECES, folded.pieces, living.bucket_of(folded.pieces, buckets)),
            *_blocks(COUNTERS, folded.counters, counting.bucket_of(folded.counters, buckets)),
        ]
        shuffled += sum(len(payload) for _, _, payload in blocks)
        blocks.append((told, SEGMENT, json.dumps(folded.facts.to_json()).encode()))
        yield _block_batch(blocks)
    write()
    done = {"files": [asdict(file) for file in files], "shuffled": shuffled}
    yield _block_batch([(told, TASK, json.dumps(done).encode())])


def _blocks(kind: int, rows: npt.NDArray[np.void], buckets: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, bytes]]:
    order = np.argsort(buckets, kind="stable")
    found, starts = np.unique(buckets[order], return_index=True)
    for bucket, own in zip(found.tolist(), np.split(order, starts[1:]), strict=bool(len(found))):
        yield bucket, kind, rows[own].tobytes()


def _block_batch(blocks: Sequence[tuple[int, int, bytes]]) -> pa.RecordBatch:
    columns: list[Any] = list(zip(*blocks, strict=True))
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, BLOCK, strict=True)], schema=BLOCK
    )


def merge_task(place: RunFolders) -> Callable[[pa.Table], pa.Table]:
    """The function that puts one bucket together."""

    def run(blocks: pa.Table) -> pa.Table:
        bucket = blocks["bucket"][0].as_py()
        # With spark.sql.execution.arrow.useLargeVarTypes Spark gives large types, and takes no others.
        text = pa.large_string() if pa.types.is_large_binary(blocks["payload"].type) else pa.string()
        if bucket < 0:
            return pa.table([blocks["kind"], blocks["payload"].cast(text)], names=RESULT.names)
        label = f"bucket-{bucket:04}-{secrets.token_hex(6)}"
        pieces = _rows(blocks, PIECES, LIFE, NO_LIVES)
        counters = _rows(blocks, COUNTERS, COUNTER, NO_COUNTERS)
        facts = merge_bucket(bucket, pieces, counters, place, label)
        payload = pa.array([json.dumps(facts.to_json())], text)
        return pa.table([pa.array([BUCKET], pa.int32()), payload], names=RESULT.names)

    return run


def _rows(blocks: pa.Table, kind: int, dtype: np.dtype[np.void], none: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    parts = [
        np.frombuffer(payload.as_buffer(), dtype)
        for number, payload in zip(blocks["kind"].to_pylist(), blocks["payload"], strict=True)
        if number == kind
    ]
    return np.concatenate(parts) if parts else none
