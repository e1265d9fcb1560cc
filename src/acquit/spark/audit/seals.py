"""The balance of segments: each seal against the events of its segment, and against the seal before.

A seal says for each queue what its segment did and what all did to its end. So the balance at any size is in the newest
seal, as long as each seal says what its events say, and adds to the one before. A task that folds a segment has its
events and reads two seals; what differs is said with queue and kind, and the segment's number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from acquit.ledger.events import EventKind
from acquit.ledger.totals import HASH_MODULUS, QueueTotals, RowFlag, Summary
from acquit.spark.ledger.segments import Events, entering, retiring, sums_by

DIFFERENCES_MAX: Final = 10
"""More of one segment are not told."""
Totals = dict[int, QueueTotals]


def totals_of(events: Events) -> Totals:
    """Return what these events do, by queue: as a seal counts."""
    found: Totals = {}
    if not len(events):
        return found
    keys, counts = np.unique(events["queue"].astype(np.uint64) << np.uint64(8) | events["kind"], return_counts=True)
    for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
        found.setdefault(key >> 8, QueueTotals()).counts[key & 0xFF] = count
    entered, retired = events[entering(events)], events[retiring(events)]
    for queue, (_, value) in sums_by(entered, entered["queue"]).items():
        found[queue].entered_sum = value
    for queue, (_, value) in sums_by(retired, retired["queue"]).items():
        found[queue].retired_sum = value
    return found


def differences(found: Totals, summary: Summary) -> list[str]:
    """Return in what the events of a segment differ from what its seal says it did."""
    stated = {queue: row.here for queue, row in summary.rows.items()}
    return _differences(found, stated, "its events", "its seal")


def chain_differences(before: Summary | None, summary: Summary) -> list[str]:
    """Return in what a seal's sums over all differ from those of the seal before (None: there is no segment before) and
    what its own segment did."""
    expected: Totals = {}
    if before is not None:
        for queue, row in before.rows.items():
            key = 0 if row.flags & RowFlag.DELETED else queue
            expected.setdefault(key, QueueTotals()).add(row.cumulated)
    for queue, row in summary.rows.items():
        expected.setdefault(queue, QueueTotals()).add(row.here)
    stated = {queue: row.cumulated for queue, row in summary.rows.items()}
    return _differences(expected, stated, "the seal before and its own counts", "its seal")


def _differences(found: Totals, stated: Totals, first: str, second: str) -> list[str]:
    texts = []
    empty = QueueTotals()
    for queue in sorted(found.keys() | stated.keys()):
        mine, theirs = found.get(queue, empty), stated.get(queue, empty)
        for kind in sorted(mine.counts.keys() | theirs.counts.keys()):
            ours, said = mine.counts.get(kind, 0), theirs.counts.get(kind, 0)
            if ours != said:
                texts.append(f"queue {queue}: {ours} {_name(kind)} by {first}, {said} by {second}")
        for label, ours, said in (
            ("entered", mine.entered_sum, theirs.entered_sum),
            ("were retired", mine.retired_sum, theirs.retired_sum),
        ):
            if ours != said:
                texts.append(f"queue {queue}: {first} and {second} disagree on which messages {label}")
    return texts[:DIFFERENCES_MAX]


def _name(kind: int) -> str:
    try:
        return EventKind(kind).name
    except ValueError:
        return f"kind {kind}"


def to_json(totals: Mapping[int, QueueTotals]) -> dict[str, Any]:
    """Return totals as plain values, without volatile messages, of which nothing is known one by one."""
    return {str(queue): _json(row) for queue, row in totals.items()}


def _json(row: QueueTotals) -> list[Any]:
    return [{str(kind): count for kind, count in row.counts.items()}, row.entered_sum, row.retired_sum]


def from_json(value: Mapping[str, Any]) -> Totals:
    """Return the totals that `to_json` gave."""
    return {
        int(queue): QueueTotals(
            {int(kind): count for kind, count in counts.items()},
            {},
            entered % HASH_MODULUS,
            retired % HASH_MODULUS,
        )
        for queue, (counts, entered, retired) in value.items()
    }
