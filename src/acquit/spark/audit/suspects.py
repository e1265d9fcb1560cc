"""Pieces without a posting, and postings that may be second ones: explained by what is closed or open already.

A message that is retired again in a later segment, or posted again, leaves a piece that meets nothing, for closed
messages are not kept at hand. Such pieces are few, so they are looked for in all files, by their keys alone.
Sequences are used in ascending order, so a posting can only be a second one where a segment has one that is not above
all those before; only such segments are read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acquit.spark.audit import tables
from acquit.spark.audit.anomalies import Anomaly, AnomalyRow
from acquit.spark.audit.bucket import BucketFacts
from acquit.spark.audit.plan import Plan
from acquit.spark.audit.segment import Facts, Work
from acquit.spark.ledger.options import Verify
from acquit.spark.ledger.segments import entering, read_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LATE: Final = "broker INT, queue BIGINT, sequence BIGINT, segment BIGINT, time_us BIGINT"
_LATE_SCHEMA: Final = pa.schema(
    [
        ("broker", pa.int32()),
        ("queue", pa.int64()),
        ("sequence", pa.int64()),
        ("segment", pa.int64()),
        ("time_us", pa.int64()),
    ]
)
_AGAIN: Final = {
    Anomaly.RETIRED_WITHOUT_POSTING.value: Anomaly.RETIRED_TWICE.value,
    Anomaly.ACQUIRED_WITHOUT_POSTING.value: Anomaly.ACQUIRED_AFTER_RETIREMENT.value,
}
SUSPECT: Final = frozenset(_AGAIN)
"""Kinds of what a bucket found without a posting, before it is explained."""
_FOUND: Final = "broker STRING, queue_number BIGINT, sequence BIGINT"
_FOUND_SCHEMA: Final = pa.schema([("broker", pa.string()), ("queue_number", pa.int64()), ("sequence", pa.int64())])
Key = tuple[int, int, int]


def explain(
    session: SparkSession,
    facts: Sequence[Facts],
    buckets: Sequence[BucketFacts],
    plan: Plan,
    closed: Sequence[Path],
    opened: Sequence[Path],
    verify: Verify,
    most: int,
) -> tuple[list[AnomalyRow], Counter[str]]:
    """The anomalies that they are: rows for `most` of them, and how many there are. `closed` and `opened`: all files of
    these tables, those of this run included."""
    counts: Counter[str] = Counter()
    for bucket in buckets:
        counts.update({kind: count for kind, count in bucket.counts.items() if kind in _AGAIN})
    suspects = [row for bucket in buckets for row in bucket.suspects][:most]
    late = _late(session, facts, plan, verify, most)
    if not suspects and not late:
        return [], counts
    stores = {broker.number: broker.store for broker in plan.brokers}
    keys = {(row.broker, row.queue, row.sequence) for row in (*suspects, *late)}
    lives = _lives(session, keys, stores, closed, opened)
    rows = [row for row in late if lives[row.broker, row.queue, row.sequence] > 1]
    counts.update(row.kind for row in rows)
    for row in suspects:
        if lives[row.broker, row.queue, row.sequence]:
            counts[row.kind] -= 1
            row = row._replace(kind=_AGAIN[row.kind], detail=f"{row.detail.partition(';')[0]} again")
            counts[row.kind] += 1
        rows.append(row)
    return rows, +counts


def _late(session: SparkSession, facts: Sequence[Facts], plan: Plan, verify: Verify, most: int) -> list[AnomalyRow]:
    """Postings that are not above all those of the segments before."""
    marks = {broker.number: broker.entered_max for broker in plan.brokers}
    works = {(work.broker, work.segment.number): work for work in plan.works}
    again: list[tuple[Work, int]] = []
    for fact in facts:
        if fact.entered_min and fact.entered_min <= marks[fact.broker]:
            again.append((works[fact.broker, fact.number], marks[fact.broker]))
        marks[fact.broker] = max(marks[fact.broker], fact.entered_max)
    if not again:
        return []
    numbers = session.range(0, len(again), 1, len(again))
    found = numbers.mapInArrow(_late_task(again, verify, most), _LATE).limit(most).toArrow()
    return [
        AnomalyRow(
            row["broker"],
            row["queue"],
            row["sequence"],
            Anomaly.POSTED_TWICE.value,
            "posted again",
            row["segment"],
            row["time_us"],
        )
        for row in found.to_pylist()
    ]


def _late_task(
    again: Sequence[tuple[Work, int]], verify: Verify, most: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                work, mark = again[number]
                events = read_events(work.segment, verify)[work.skip :]
                events = events[entering(events) & (events["sequence"] <= mark)][:most]
                columns = [
                    pa.repeat(pa.scalar(work.broker, pa.int32()), len(events)),
                    pa.array(events["queue"].astype(np.int64)),
                    pa.array(events["sequence"].astype(np.int64)),
                    pa.repeat(pa.scalar(work.segment.number, pa.int64()), len(events)),
                    pa.array(events["time_us"].astype(np.int64)),
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=_LATE_SCHEMA)

    return run


def _lives(
    session: SparkSession, keys: set[Key], stores: dict[int, str], closed: Sequence[Path], opened: Sequence[Path]
) -> Counter[Key]:
    """How many closed and open lives each of these messages has."""
    numbers = {store: number for number, store in stores.items()}
    wanted = {(stores[broker], queue, sequence) for broker, queue, sequence in keys}
    files = [*closed, *opened]
    size = -(-len(files) // (session.sparkContext.defaultParallelism * 4)) or 1
    groups = [files[start : start + size] for start in range(0, len(files), size)]
    found: Counter[Key] = Counter()
    if groups:
        frame = session.range(0, len(groups), 1, len(groups)).mapInArrow(_lives_task(groups, wanted), _FOUND)
        for row in frame.toArrow().to_pylist():
            found[numbers[row["broker"]], row["queue_number"], row["sequence"]] += 1
    return found


def _lives_task(
    groups: Sequence[Sequence[Path]], wanted: set[tuple[str, int, int]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    sequences = pa.array(sorted({sequence for _, _, sequence in wanted}), pa.int64())

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for path in groups[number]:
                    among = pc.field("sequence").isin(sequences)
                    table = tables.read(path, columns=_FOUND_SCHEMA.names, filters=among).cast(_FOUND_SCHEMA)
                    rows = [row for row in table.to_pylist() if tuple(row.values()) in wanted]
                    yield pa.RecordBatch.from_pylist(rows, schema=_FOUND_SCHEMA)

    return run
