"""Pieces without a posting, and postings that may be second ones: explained by what is closed or open already.

A message that is retired again in a later segment, or posted again, leaves a piece that meets nothing, for closed
messages are not kept at hand. Such pieces are few, so they are looked for in all files, by their keys alone.
Sequences are used in ascending order, so a posting can only be a second one where a segment has one that is not above
all those before; only such segments are read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acquit.spark.audit import tables
from acquit.spark.audit.anomalies import Anomaly, AnomalyRow
from acquit.spark.audit.bucket import BucketFacts
from acquit.spark.audit.jobs import in_tasks
from acquit.spark.audit.plan import Plan
from acquit.spark.audit.segment import Facts, Work
from acquit.spark.ledger.options import Verify
from acquit.spark.ledger.segments import entering, read_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LATE: Final = pa.schema(
    [("broker", pa.int32()), *((name, pa.int64()) for name in ("queue", "sequence", "segment", "time_us"))]
)
_AGAIN: Final = {
    Anomaly.RETIRED_WITHOUT_POSTING.value: Anomaly.RETIRED_TWICE.value,
    Anomaly.ACQUIRED_WITHOUT_POSTING.value: Anomaly.ACQUIRED_AFTER_RETIREMENT.value,
}
SUSPECT: Final = frozenset(_AGAIN)
"""Kinds of what a bucket found without a posting, before it is explained."""
_FOUND: Final = pa.schema([("broker", pa.string()), ("queue_number", pa.int64()), ("sequence", pa.int64())])
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
    found = in_tasks(session, again, partial(_late_task, verify=verify, most=most), _LATE).limit(most).toArrow()
    return [AnomalyRow(kind=Anomaly.POSTED_TWICE.value, detail="posted again", **row) for row in found.to_pylist()]


def _late_task(part: tuple[Work, int], verify: Verify, most: int) -> Iterator[pa.RecordBatch]:
    work, mark = part
    events = read_events(work.segment, verify)[work.skip :]
    events = events[entering(events) & (events["sequence"] <= mark)][:most]
    own = {"broker": [work.broker] * len(events), "segment": [work.segment.number] * len(events)}
    yield pa.RecordBatch.from_pydict(
        own | {name: events[name].astype(np.int64) for name in ("queue", "sequence", "time_us")}, schema=_LATE
    )


def _lives(
    session: SparkSession, keys: set[Key], stores: dict[int, str], closed: Sequence[Path], opened: Sequence[Path]
) -> Counter[Key]:
    """Count the closed and open lives that each of these messages has."""
    numbers = {store: number for number, store in stores.items()}
    wanted = {(stores[broker], queue, sequence) for broker, queue, sequence in keys}
    files = [*closed, *opened]
    parts = min(len(files), session.sparkContext.defaultParallelism * 4)
    groups = [files[start::parts] for start in range(parts)]
    found: Counter[Key] = Counter()
    if groups:
        for row in in_tasks(session, groups, partial(_lives_task, wanted=wanted), _FOUND).toArrow().to_pylist():
            found[numbers[row["broker"]], row["queue_number"], row["sequence"]] += 1
    return found


def _lives_task(files: Sequence[Path], wanted: set[tuple[str, int, int]]) -> Iterator[pa.RecordBatch]:
    among = pc.field("sequence").isin(pa.array(sorted({sequence for *_, sequence in wanted}), pa.int64()))
    for path in files:
        table = tables.read(path, columns=_FOUND.names, filters=among).cast(_FOUND)
        yield pa.RecordBatch.from_pylist(
            [row for row in table.to_pylist() if tuple(row.values()) in wanted], schema=_FOUND
        )
