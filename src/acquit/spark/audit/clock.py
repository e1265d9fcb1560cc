"""Detection of a broker's clock that went back, as far as the journal shows it.

Times in the journal are of the wall clock, and not all that stands in it before an event was before it. A batch has
what entered a queue in one order, and what else happened in one order, but the first may stand before the second
whenever they happened, for outcomes gather as long as the disk takes (`acquit.ledger.recorder`). What is in another
segment was before all that is in this one. So an event is held to those of its own kind; one that is about a message,
to all that had entered when that message did; and each, to the segments before.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from acquit.ledger.events import EventKind
from acquit.ledger.totals import Summary
from acquit.spark.ledger.segments import Events, entering

JUMP_US: Final = 1_000_000
"""A clock that is corrected by less is said to drift. Where one message's own events go back, any amount is told."""


def went_back_us(events: Events, skip: int, before: Summary | None) -> int:
    """Return by how much at most an event of a segment is earlier than one that was before it; 0 where that is a drift.
    `before`: the seal of the segment before. The first `skip` events were reported by an earlier run."""
    most = 0
    # The first finds whatever there is, and more, and costs next to nothing.
    for known_before_us in (_standing_before_us, _certainly_before_us):
        latest = known_before_us(events)
        if before is not None and before.events:
            latest = np.maximum(latest, before.last_us)
        most = int((latest - events["time_us"])[skip:].max(initial=0))
        if most <= JUMP_US:
            return 0
    return most


def _standing_before_us(events: Events) -> npt.NDArray[np.int64]:
    """Return for each event the latest time of those that stand before it, or its own."""
    return np.maximum.accumulate(events["time_us"].astype(np.int64))


def _certainly_before_us(events: Events) -> npt.NDArray[np.int64]:
    """Return for each event the latest time of those that were certainly before it, or its own."""
    entered = entering(events) | (events["kind"] == EventKind.HELD)
    entries, others = np.flatnonzero(entered), np.flatnonzero(~entered)
    latest = events["time_us"].astype(np.int64)
    latest[entries] = np.maximum.accumulate(latest[entries])
    if len(entries):
        entries = entries[np.argsort(events["sequence"][entries], kind="stable")]
        sequences = events["sequence"][entries]
        mine = events["sequence"][others]
        place = np.minimum(np.searchsorted(sequences, mine), len(entries) - 1)
        entry = entries[place]
        seen = (sequences[place] == mine) & (entry < others)
        latest[others[seen]] = np.maximum(latest[others[seen]], latest[entry[seen]])
    latest[others] = np.maximum.accumulate(latest[others])
    return latest
