"""Kinds of anomalies in a journal, and the rows that report them.

An anomaly names the broker, the segment in which it shows, and where it is about one message, that message. What holds
for a whole segment (a clock that went back, a seal that does not fit its events) is one row for the segment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

import pyarrow as pa

from acquit.ledger.events import EventKind
from acquit.spark.audit.lives import WRONG, LifeFlag, Lives, flagged


class Anomaly(StrEnum):
    """Kind of an anomaly."""

    RETIRED_WITHOUT_POSTING = "retired-without-posting"
    ACQUIRED_WITHOUT_POSTING = "acquired-without-posting"
    RETIRED_TWICE = "retired-twice"
    POSTED_TWICE = "posted-twice"
    ACQUIRED_AFTER_RETIREMENT = "acquired-after-retirement"
    """Acquisition, return, or another event that only a live message has, after the retirement."""
    BEFORE_POSTING = "event-before-posting"
    ALTERED = "fingerprint-differs"
    """Events of one message disagree on its size or checksum."""
    BACKWARD_CLOCK = "backward-clock"
    UNBALANCED = "unbalanced-segment"
    """A seal that does not say what its segment's events say, or does not follow from the seal before."""
    GAP = "gap"
    DELETED = "deleted-by-retention"
    LOWER_BOUNDS = "attempts-are-lower-bounds"
    """The broker did not stop in order: acquisitions of its last moments may be missing."""


NOTES: Final = frozenset((Anomaly.DELETED, Anomaly.LOWER_BOUNDS, Anomaly.BACKWARD_CLOCK))
"""Anomalies that say what the audit cannot know; the others say that something went wrong."""


class AnomalyRow(NamedTuple):
    """Row of the table of anomalies, as tasks hand it over: with the broker's number instead of its uuid."""

    broker: int
    queue: int
    sequence: int
    """0: about no message."""
    kind: str
    detail: str
    segment: int
    time_us: int
    """0: at no time that is known."""


SCHEMA: Final = pa.schema(
    [
        ("broker", pa.string()),
        ("queue", pa.string()),
        ("queue_number", pa.int64()),
        ("sequence", pa.int64()),
        ("kind", pa.string()),
        ("detail", pa.string()),
        ("segment", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
    ]
)


def row(life: Any, kind: Anomaly, detail: str, time: str = "last_us") -> AnomalyRow:
    """Return the row about one life."""
    return AnomalyRow(
        int(life["broker"]),
        int(life["queue"]),
        int(life["sequence"]),
        kind.value,
        detail,
        int(life["last_segment"]),
        int(life[time]),
    )


def told_of(
    found: Iterable[tuple[Lives, Anomaly, Callable[[Any], str], str]], most: int
) -> tuple[list[AnomalyRow], Counter[str]]:
    """Return rows for the first `most` lives of each kind, with the text that says it and the field of its time; and
    how many there are of each kind."""
    rows: list[AnomalyRow] = []
    counts: Counter[str] = Counter()
    for lives, kind, text, time in found:
        counts[kind.value] += len(lives)
        rows += [row(life, kind, text(life), time) for life in lives[:most]]
    return rows, +counts


def of_extras(extras: Lives, most: int) -> tuple[list[AnomalyRow], Counter[str]]:
    """Return what came to messages after their retirement, and postings beyond the first."""
    entered, retired = extras["entered"] != 0, extras["retired"] != 0
    masks = (
        (entered, Anomaly.POSTED_TWICE, "entered", "entered_us"),
        (retired, Anomaly.RETIRED_TWICE, "retired", "retired_us"),
        (~entered & ~retired, Anomaly.ACQUIRED_AFTER_RETIREMENT, "last", "last_us"),
    )

    def again(field: str) -> Callable[[Any], str]:
        return lambda life: f"{EventKind(int(life[field])).name} again"

    return told_of(((extras[mask], kind, again(field), time) for mask, kind, field, time in masks), most)


def of_flags(lives: Lives, most: int) -> tuple[list[AnomalyRow], Counter[str]]:
    """Return anomalies of lives that show in their flags, a clock that went back excepted."""
    masks = (
        (LifeFlag.ALTERED, Anomaly.ALTERED, "its events disagree on its size or checksum"),
        (LifeFlag.EARLY, Anomaly.BEFORE_POSTING, "its posting is not its first event"),
    )
    found = ((lives[flagged(lives, flag)], kind, lambda _, text=text: text, "last_us") for flag, kind, text in masks)
    return told_of(found, most) if flagged(lives, WRONG).any() else ([], Counter())


def table(rows: Iterable[AnomalyRow], brokers: Mapping[int, str], names: Mapping[tuple[int, int], str]) -> pa.Table:
    """The table, in order."""
    ordered = sorted(set(rows), key=lambda r: (r.broker, r.segment, r.queue, r.sequence, r.kind, r.detail))
    return pa.table(
        [
            pa.array([brokers[r.broker] for r in ordered], pa.string()),
            pa.array([names.get((r.broker, r.queue)) for r in ordered], pa.string()),
            pa.array([r.queue or None for r in ordered], pa.int64()),
            pa.array([r.sequence or None for r in ordered], pa.int64()),
            pa.array([r.kind for r in ordered], pa.string()),
            pa.array([r.detail for r in ordered], pa.string()),
            pa.array([r.segment for r in ordered], pa.int64()),
            pa.array([r.time_us or None for r in ordered], pa.int64()).view(pa.timestamp("us", "UTC")),
        ],
        schema=SCHEMA,
    )
