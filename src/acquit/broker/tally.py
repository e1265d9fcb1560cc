"""Counts of one queue in this run, beside its accounts: how its messages were acquired, and how that ended.

Accounts (`QueueBase.counts`) are what the journal records, and outlive a restart. A tally is for operators alone and
begins at 0 with the broker. It costs the hot path one addition a message; the rest is done once for each run of
messages that are handed out, or settled, together. So both histograms are estimates:

in queue    each run counts as its first message, which has mostly waited longest
held        each link has one message followed at a time, from the middle of a run until it is held no more, as TCP
            times one segment a round trip; then `RUNS_SKIPPED` runs pass
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from acquit.broker.durations import STAY_BOUNDS_S, Durations
from acquit.broker.queue import Ending, Verdict


class HoldEnd(IntEnum):
    """Ways in which it ends that a consumer holds a message."""

    ACCEPTED = 0
    REJECTED = 1
    RELEASED = 2
    MODIFIED = 3
    FAILED = 4
    """modified(delivery-failed=true)"""
    DETACHED = 5
    """The link was closed, by whichever end, and nothing was said."""
    CONNECTION_LOST = 6
    LOCK_EXPIRED = 7


RUNS_SKIPPED: Final = 7
"""Runs of a link that pass after one of which a message was timed: where each run is one message, that costs most."""
_BY_VERDICT: Final = {verdict: HoldEnd[verdict.name] for verdict in Verdict}
_BY_ENDING: Final = {
    Ending.DETACHED: HoldEnd.DETACHED,
    Ending.ENDED_HERE: HoldEnd.DETACHED,
    Ending.CONNECTION_LOST: HoldEnd.CONNECTION_LOST,
    Ending.RESTARTED: HoldEnd.CONNECTION_LOST,
    Ending.LOCK_EXPIRED: HoldEnd.LOCK_EXPIRED,
}
HOLD_ENDS: Final = tuple(end.name.lower() for end in HoldEnd)
"""Names of these, in the order of `QueueTally.ended`."""


_BUCKETS: Final = len(STAY_BOUNDS_S) + 1
TALLY_FIGURES: Final = (
    "acquisitions",
    "read",
    "redelivered",
    *(f"ended_{name}" for name in HOLD_ENDS),
    "in_queue_s",
    *(f"in_queue_{place}" for place in range(_BUCKETS)),
    "held_s",
    *(f"held_{place}" for place in range(_BUCKETS)),
)
"""Names of what `QueueTally.figures` returns, all of which can be summed up. Of each histogram: the sum in seconds, and
the number in each bucket."""
NO_TALLY: Final[tuple[float, ...]] = (0,) * len(TALLY_FIGURES)
"""The figures of a queue that never handed anything out."""


class QueueTally:
    """The tally of one queue."""

    __slots__ = ("ended", "held", "in_queue", "redelivered")

    def __init__(self) -> None:
        self.redelivered = 0
        """Acquisitions of messages that had been acquired before."""
        self.ended = [0] * len(HoldEnd)
        """Acquisitions that have ended, by `HoldEnd`."""
        self.in_queue = Durations(STAY_BOUNDS_S)
        """Times from posting to acquisition."""
        self.held = Durations(STAY_BOUNDS_S)
        """Times from acquisition until a message was held no more."""

    def end(self, verdict: Verdict, ending: Ending) -> None:
        """Count an acquisition that has ended with this verdict, which a consumer said (`Ending.SETTLED`), or which its
        link's ending stood for."""
        self.ended[_BY_ENDING.get(ending, _BY_VERDICT[verdict])] += 1

    def figures(self, acquired: int, read: int) -> Sequence[float]:
        """Return the `TALLY_FIGURES` at this moment, the first two of which are those of the queue's accounts."""
        if not acquired and not read:
            return NO_TALLY
        in_queue, held = self.in_queue, self.held
        return (
            acquired,
            read,
            self.redelivered,
            *self.ended,
            in_queue.sum_s,
            *in_queue.counts,
            held.sum_s,
            *held.counts,
        )


__all__ = ["HOLD_ENDS", "NO_TALLY", "RUNS_SKIPPED", "TALLY_FIGURES", "HoldEnd", "QueueTally"]
