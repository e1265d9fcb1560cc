"""Anomalies by kind, with the histories of the messages that they name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acquit.spark.audit.anomalies import NOTES, Anomaly
from acquit.spark.report.said import AnomalyKind, Mood
from acquit.spark.report.tables import Row, rows_of

ANOMALIES_MAX: Final = 50
"""Anomalies of one kind that are shown, at most."""

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
    """Return all kinds that there are, those that are more than notes first."""
    steps: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in sorted(rows_of(histories), key=lambda step: (step["segment"] or 0, step["index"] or 0)):
        steps[row["broker"], row["queue"], row["sequence"]].append(row)
    found = []
    for kind, count in ((each["values"], each["counts"]) for each in anomalies["kind"].value_counts().to_pylist()):
        rows = rows_of(anomalies.filter(pc.equal(anomalies["kind"], kind)).slice(0, ANOMALIES_MAX))
        shown = [{**row, "steps": steps.get((row["broker"], row["queue"], row["sequence"]), [])} for row in rows]
        mood = Mood.NOTE if kind in NOTES else Mood.BAD
        found.append(AnomalyKind(kind, mood, MEANINGS.get(kind, ""), count, shown))
    return sorted(found, key=lambda each: (each.mood is not Mood.BAD, each.kind))
