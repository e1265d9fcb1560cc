"""Counts of one queue in this run, beside its accounts: how its messages were acquired, and how that ended.

Accounts (`QueueBase.counts`) are what the journal records, and outlive a restart. A tally is for operators alone and
begins at 0 with the broker. It costs the hot path one addition a message; the rest is done once for each run of
messages that are handed out, or settled, together. So both histograms are estimates:

in queue    each run counts as its first message, which has mostly waited longest
held        each link has one message followed at a time, from the middle of a run until it is held no more, as TCP
            times one segment a round trip; then `RUNS_SKIPPED` runs pass
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from acquit.broker.durations import STAY_BOUNDS_S, Durations, DurationsSnapshot
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
"""Names of these, in the order of `TallySnapshot.ended`."""


class TallySnapshot(NamedTuple):
    """The tally of one queue, with what its accounts say of acquisition, at one moment."""

    acquired: int
    read: int
    redelivered: int
    ended: tuple[int, ...]
    in_queue: DurationsSnapshot
    held: DurationsSnapshot


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

    def snapshot(self, acquired: int, read: int) -> TallySnapshot:
        """Return the tally at this moment, with these two of the queue's accounts."""
        return TallySnapshot(
            acquired, read, self.redelivered, tuple(self.ended), self.in_queue.snapshot(), self.held.snapshot()
        )


__all__ = ["HOLD_ENDS", "RUNS_SKIPPED", "HoldEnd", "QueueTally", "TallySnapshot"]
