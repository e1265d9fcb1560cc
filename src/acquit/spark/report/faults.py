"""What ought not to be: anomalies by kind, with the histories of the messages that they name."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acquit.spark.audit.anomalies import NOTES, Anomaly
from acquit.spark.report.formats import name_of, time_text
from acquit.spark.report.said import AnomalyKind, Instance, Mood, Step
from acquit.spark.report.tables import rows_of

Row = dict[str, Any]

ANOMALIES_MAX: Final = 50
"""Of one kind that are shown."""

MEANINGS: Final[Mapping[str, str]] = {
    Anomaly.RETIRED_WITHOUT_POSTING: "left a queue that it never entered, as far as the journal goes",
    Anomaly.ACQUIRED_WITHOUT_POSTING: "handed out of a queue that it never entered, as far as the journal goes",
    Anomaly.RETIRED_TWICE: "left its queue more than once",
    Anomaly.POSTED_TWICE: "one number was given to two postings",
    Anomaly.ACQUIRED_AFTER_RETIREMENT: "something happened to it after it had left its queue",
    Anomaly.BEFORE_POSTING: "something happened to it before it was posted",
    Anomaly.ALTERED: "events of one message disagree on its size or checksum",
    Anomaly.UNBALANCED: "what a segment's seal says is not what its events add up to",
    Anomaly.GAP: "segments are missing, and nothing says that they were deleted",
    Anomaly.BACKWARD_CLOCK: "the broker's clock went back: durations across that moment are not to be trusted",
    Anomaly.DELETED: "segments were deleted by rule, and on record, before they were audited",
    Anomaly.LOWER_BOUNDS: "after an unclean stop: some attempts may not have been recorded",
}


def faults(anomalies: pa.Table, histories: pa.Table) -> list[AnomalyKind]:
    """All kinds that there are, those that are more than notes first."""
    counts = Counter({row["kind"]: row["kind_count"] for row in _counted(anomalies, "kind")})
    steps: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in rows_of(histories):
        steps[row["broker"], row["queue"], row["sequence"]].append(row)
    found = []
    for kind, count in counts.items():
        mood, meaning = Mood.NOTE if kind in NOTES else Mood.BAD, MEANINGS.get(kind, "")
        rows = rows_of(anomalies.filter(pc.equal(anomalies["kind"], kind)).slice(0, ANOMALIES_MAX))
        shown = [_anomaly(row, steps.get((row["broker"], row["queue"], row["sequence"]), [])) for row in rows]
        found.append(AnomalyKind(kind=kind, mood=mood, meaning=meaning, count=count, shown=shown))
    return sorted(found, key=lambda each: (each.mood is not Mood.BAD, each.kind))


def _counted(table: pa.Table, column: str) -> list[Row]:
    rows: list[Row] = table.group_by(column).aggregate([(column, "count")]).to_pylist()
    return rows


def _anomaly(row: Row, steps: list[Row]) -> Instance:
    where = [f"queue {row['queue']}" if row["queue"] else "", _numbered("message", row["sequence"])]
    where.append(_numbered("segment", row["segment"]))
    return Instance(
        broker=row["broker"] or "",
        where=", ".join(part for part in where if part),
        detail=row["detail"] or "",
        time="" if row["time"] is None else time_text(row["time"], exact=True),
        steps=[_step(step) for step in sorted(steps, key=lambda step: (step["segment"] or 0, step["index"] or 0))],
    )


def _step(row: Row) -> Step:
    reason = ": ".join(part for part in (row["cause"], row["condition"]) if part)
    attempt = "" if row["attempt"] is None else str(row["attempt"])
    return Step(time_text(row["time"], exact=True), name_of(row["kind"] or ""), attempt, row["actor"] or "", reason)


def _numbered(what: str, number: int | None) -> str:
    return "" if number is None else f"{what} {number}"
