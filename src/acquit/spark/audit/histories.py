"""The histories of messages that anomalies name: every event of theirs in the segments of the run.

A bounded number of messages is looked for, by their sequences, in the segments that were just folded; a segment that
has one is read a second time, record by record, for what consumers said. What earlier runs folded is not read again:
for those, `acquit ledger history`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from acquit.spark.audit.anomalies import AnomalyRow
from acquit.spark.audit.dead_letters import cause_name
from acquit.spark.audit.jobs import in_tasks
from acquit.spark.audit.plan import Plan, tasks
from acquit.spark.audit.segment import Work
from acquit.spark.ledger.names import names_at
from acquit.spark.ledger.options import Verify
from acquit.spark.ledger.segments import KINDS, Details, read_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS_MAX: Final = 10_000
"""Events of one segment, at most: a message may be given back for ever."""
_EVENT: Final = (
    ("queue_number", pa.int64()),
    ("sequence", pa.int64()),
    ("segment", pa.int64()),
    ("index", pa.int32()),
    ("time", pa.timestamp("us", "UTC")),
    ("kind", pa.string()),
    ("attempt", pa.int32()),
    ("actor", pa.string()),
    ("cause", pa.string()),
    ("condition", pa.string()),
)
SCHEMA: Final = pa.schema([("broker", pa.string()), ("queue", pa.string()), *_EVENT])
_FOUND: Final = pa.schema([("broker_number", pa.int32()), *_EVENT])
"""Columns of events as tasks give them: without names, which they do not know."""


def read(session: SparkSession, rows: Sequence[AnomalyRow], plan: Plan, verify: Verify, most: int) -> pa.Table:
    """The events of the messages that these anomalies name, of `most` of them; queues and brokers by number."""
    messages = list(dict.fromkeys((row.broker, row.sequence) for row in rows if row.sequence))[:most]
    wanted: dict[int, list[int]] = {}
    for broker, sequence in messages:
        wanted.setdefault(broker, []).append(sequence)
    works = [work for work in plan.works if work.broker in wanted]
    if not works:
        return _FOUND.empty_table()
    task = partial(
        _task, wanted={broker: np.array(sorted(own), np.uint64) for broker, own in wanted.items()}, verify=verify
    )
    found = in_tasks(session, tasks(works, session.sparkContext.defaultParallelism), task, _FOUND).toArrow()
    return found.sort_by([(name, "ascending") for name in ("broker_number", "sequence", "segment", "index")])


def _task(
    works: Sequence[Work], wanted: Mapping[int, np.ndarray[tuple[int], np.dtype[np.uint64]]], verify: Verify
) -> Iterator[pa.RecordBatch]:
    for work in works:
        events = read_events(work.segment, verify)
        places = np.flatnonzero(np.isin(events["sequence"], wanted[work.broker]))
        if len(places):
            yield _events(work, places[:EVENTS_MAX])


def _events(work: Work, places: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.RecordBatch:
    details = Details()
    events = read_events(work.segment, Verify.FULL, details)[places]
    actors = names_at(work.segment, set(), set(np.unique(events["actor"]).tolist()) - {0}).actors
    texts = {
        number: " ".join(part for part in (actor.container, actor.link, actor.user) if part)
        for number, actor in actors.items()
    }
    attempts = [details.attempts.get(place) for place in places.tolist()]
    columns = [
        pa.repeat(pa.scalar(work.broker, pa.int32()), len(events)),
        pa.array(events["queue"].astype(np.int64)),
        pa.array(events["sequence"].astype(np.int64)),
        pa.repeat(pa.scalar(work.segment.number, pa.int64()), len(events)),
        pa.array(places.astype(np.int32)),
        pa.array(events["time_us"].astype(np.int64)).view(_FOUND.field("time").type),
        pa.array([KINDS.get(kind, str(kind)) for kind in events["kind"].tolist()], pa.string()),
        pa.array(events["attempt"].astype(np.int32)),
        pa.array([texts.get(actor) for actor in events["actor"].tolist()], pa.string()),
        pa.array([None if attempt is None else cause_name(attempt.cause) for attempt in attempts], pa.string()),
        pa.array([None if attempt is None else attempt.condition or None for attempt in attempts], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_FOUND)


def named(events: pa.Table, brokers: Mapping[int, str], names: Mapping[int, Mapping[int, tuple[str, str]]]) -> pa.Table:
    """Return the events with the uuids of brokers and the names of queues."""
    keys = list(zip(events["broker_number"].to_pylist(), events["queue_number"].to_pylist(), strict=True))
    stores = pa.array([brokers[broker] for broker, _ in keys], pa.string())
    queues = pa.array([names.get(broker, {}).get(queue, ("",))[0] or None for broker, queue in keys], pa.string())
    return pa.table([stores, queues, *(events[name] for name, _ in _EVENT)], schema=SCHEMA)
