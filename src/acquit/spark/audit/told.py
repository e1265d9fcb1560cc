"""Results that the tasks of a run told the driver, and what follows from them without a look elsewhere."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from acquit.spark.audit import tables
from acquit.spark.audit.anomalies import Anomaly, AnomalyRow
from acquit.spark.audit.balance import live_by_broker
from acquit.spark.audit.bucket import BucketFacts
from acquit.spark.audit.jobs import BUCKET, SEGMENT, TASK
from acquit.spark.audit.plan import Hole, Plan
from acquit.spark.audit.segment import Facts
from acquit.spark.audit.suspects import SUSPECT
from acquit.spark.audit.tables import DataFile


@dataclass(slots=True)
class Told:
    """See the module's text."""

    segments: list[Facts] = field(default_factory=list)
    """Facts of segments, in the journals' order."""
    buckets: list[BucketFacts] = field(default_factory=list)
    files: list[DataFile] = field(default_factory=list)
    """Files that tasks wrote."""
    shuffled_bytes: int = 0

    @classmethod
    def of(cls, rows: pa.Table) -> Told:
        """Read the results in rows of `jobs.RESULT`."""
        told = cls()
        for kind, payload in zip(rows["kind"].to_pylist(), rows["payload"].to_pylist(), strict=True):
            value = json.loads(payload)
            if kind == SEGMENT:
                told.segments.append(Facts.from_json(value))
            elif kind == BUCKET:
                told.buckets.append(BucketFacts.from_json(value))
                told.files += told.buckets[-1].files
            elif kind == TASK:
                told.files += [DataFile(**file) for file in value["files"]]
                told.shuffled_bytes += value["shuffled"]
        told.segments.sort(key=lambda facts: (facts.broker, facts.number))
        return told

    def opened(self, before: Mapping[int, str]) -> dict[int, str]:
        """The file of each bucket that now has open lives; `before`: as it was."""
        found = dict(before)
        for bucket in self.buckets:
            if bucket.opened:
                found.pop(bucket.bucket, None)
                found.update({file.bucket: file.path for file in bucket.files if file.table == "open"})
        return found

    def live(self, root: Path, opened: Mapping[int, str]) -> dict[int, dict[int, list[int]]]:
        """Count the open messages by broker and queue, with the sum of their hashes. `opened`: as above."""
        written = {bucket.bucket: bucket.live for bucket in self.buckets if bucket.opened}
        left = (tables.live_of(root / path) for bucket, path in opened.items() if bucket not in written)
        return live_by_broker([*written.values(), *left])

    def unknown(self) -> dict[int, dict[int, list[int]]]:
        """The same of messages that were retired, and posted in segments that could not be read."""
        return live_by_broker(bucket.unknown for bucket in self.buckets)

    def anomalies(self, plan: Plan) -> tuple[list[AnomalyRow], Counter[str]]:
        """All but those that `suspects` has to look for: rows, and how many there are of each kind."""
        rows: list[AnomalyRow] = []
        counts: Counter[str] = Counter()
        for facts in self.segments:
            rows += facts.anomalies
            counts.update(facts.counts)
        for bucket in self.buckets:
            rows += bucket.anomalies
            counts.update({kind: count for kind, count in bucket.counts.items() if kind not in SUSPECT})
        notes = [
            *(_unclean(facts) for facts in self.segments if facts.unclean),
            *self._backward(),
            *(_hole(hole) for hole in plan.holes),
        ]
        counts.update(row.kind for row in notes)
        return rows + notes, counts

    def _backward(self) -> Iterator[AnomalyRow]:
        """Yield a row for each segment in which the clock went back, or messages' events do."""
        segments = {(facts.broker, facts.number): facts for facts in self.segments}
        messages = Counter({key: facts.backward_messages for key, facts in segments.items()})
        for bucket in self.buckets:
            for broker, segment, count in bucket.backward:
                messages[broker, segment] += count
        for broker, segment in sorted(messages):
            facts, count = segments.get((broker, segment)), messages[broker, segment]
            back_us = facts.backward_us if facts is not None else 0
            parts = [f"the clock went back by {back_us / 1e6:.3f} s"] if back_us else []
            parts += [f"{count} messages have an event with an earlier time than the one before"] if count else []
            if parts:
                last_us = facts.last_us if facts is not None else 0
                yield _about(broker, Anomaly.BACKWARD_CLOCK, "; ".join(parts), segment, last_us)


def _unclean(facts: Facts) -> AnomalyRow:
    text = "the broker did not stop in order before: acquisitions of its last moments may be missing"
    return _about(facts.broker, Anomaly.LOWER_BOUNDS, text, facts.number, facts.created_us)


def _hole(hole: Hole) -> AnomalyRow:
    kind, text = (
        (Anomaly.DELETED, "were deleted by retention before they were audited")
        if hole.deleted
        else (Anomaly.GAP, "are missing, and no record says that retention deleted them")
    )
    return _about(hole.broker, kind, f"segments {hole.first} to {hole.last} {text}", hole.first, 0)


def _about(broker: int, kind: Anomaly, text: str, segment: int, time_us: int) -> AnomalyRow:
    """Return a row that is about a segment, and no message."""
    return AnomalyRow(broker, 0, 0, kind.value, text, segment, time_us)
