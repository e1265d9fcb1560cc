"""The balance of segments: each seal against the events of its segment, and against the seal before.

A seal says for each queue what its segment did and what all did to its end. So the balance at any size is in the newest
seal, as long as each seal says what its events say, and adds to the one before. A task that folds a segment has its
events and reads two seals; what differs is said with queue and kind, and the segment's number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from acquit.ledger.events import EventKind
from acquit.ledger.totals import HASH_MODULUS, QueueTotals, RowFlag, Summary
from acquit.spark.audit.lives import entering
from acquit.spark.ledger.segments import Events

DIFFERENCES_MAX: Final = 10
"""More of one segment are not told."""
Totals = dict[int, QueueTotals]
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


def totals_of(events: Events) -> Totals:
    """What these events do, by queue: as a seal counts."""
    found: Totals = {}
    if not len(events):
        return found
    queues, kinds = events["queue"], events["kind"]
    keys, counts = np.unique(queues.astype(np.uint64) << np.uint64(8) | kinds, return_counts=True)
    for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
        found.setdefault(key >> 8, QueueTotals()).counts[key & 0xFF] = count
    entered, retired = entering(events), kinds - np.uint8(16) < 16
    for queue, value in sums_by(events[entered], events["queue"][entered]).items():
        found[queue].entered_sum = value[1]
    for queue, value in sums_by(events[retired], events["queue"][retired]).items():
        found[queue].retired_sum = value[1]
    return found


def sums_by(rows: npt.NDArray[np.void], keys: npt.NDArray[Any]) -> dict[int, tuple[int, int]]:
    """By key: how many rows, and the sum of `acquit.ledger.totals.message_hash` over their messages, modulo 2^128. In
    halves of 32 bits, whose products fit 64 and whose sums, of as many rows as fit into memory, do as well."""
    if not len(rows):
        return {}
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    sequences = np.ascontiguousarray(rows["sequence"])[order]
    crc, size = (np.ascontiguousarray(rows[name])[order].astype(np.uint64) for name in ("crc", "size"))
    low, high = sequences & _LOW, sequences >> _HALF
    parts = [(low, 64), (high, 96)]
    for sequence, word, shift in ((low, crc, 0), (low, size, 32), (high, crc, 32), (high, size, 64)):
        product = sequence * word
        parts += [(product & _LOW, shift), (product >> _HALF, shift + 32)]
    summed = [(np.add.reduceat(values, starts).tolist(), shift) for values, shift in parts]
    counts = np.diff(starts, append=len(rows)).tolist()
    return {
        key: (counts[place], sum(values[place] << shift for values, shift in summed) % HASH_MODULUS)
        for place, key in enumerate(ordered[starts].tolist())
    }


def differences(found: Totals, summary: Summary) -> list[str]:
    """In what the events of a segment differ from what its seal says it did."""
    stated = {queue: row.here for queue, row in summary.rows.items()}
    return _differences(found, stated, "its events", "its seal")


def chain_differences(before: Summary | None, summary: Summary) -> list[str]:
    """In what a seal's sums over all differ from those of the seal before (None: there is no segment before) and what
    its own segment did."""
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
    """Without volatile messages, of which nothing is known one by one."""
    return {str(queue): _json(row) for queue, row in totals.items()}


def _json(row: QueueTotals) -> list[Any]:
    return [{str(kind): count for kind, count in row.counts.items()}, row.entered_sum, row.retired_sum]


def from_json(value: Mapping[str, Any]) -> Totals:
    """What `to_json` gave."""
    return {
        int(queue): QueueTotals(
            {int(kind): count for kind, count in counts.items()},
            {},
            entered % HASH_MODULUS,
            retired % HASH_MODULUS,
        )
        for queue, (counts, entered, retired) in value.items()
    }
