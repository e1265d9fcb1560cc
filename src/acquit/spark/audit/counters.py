"""Counts by broker, queue and minute: what happened how often, and how long it took.

A counter is a fixed-width row: the minute (of the broker's clock), what is counted (`code`), and the count. Codes below
256 are kinds of events. `FIRST` counts messages that were handed out for the first time: every other acquisition is a
redelivery. From `LATENCY` and `WAIT` on are the buckets of two histograms (`histogram`): from the posting to the
retirement, counted in the minute of the retirement, and from the posting to the first acquisition, in the minute of
that. A duration that is negative, because the clock was set back, is in no histogram.

Counters of segments, of messages whose pieces met, and of runs add up.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from acquit.spark.audit.histogram import BUCKETS, buckets_of
from acquit.spark.audit.lives import LifeFlag, Lives, complete, flagged
from acquit.spark.ledger.segments import Events

MINUTE_US: Final = 60_000_000
FIRST: Final = 256
LATENCY: Final = 512
WAIT: Final = LATENCY + BUCKETS
COUNTER: Final = np.dtype([("minute", "<i8"), ("count", "<i8"), ("queue", "<u4"), ("broker", "<u2"), ("code", "<u2")])
"""`minute`: minutes since the epoch."""
Counters = npt.NDArray[np.void]
NO_COUNTERS: Final = np.zeros(0, COUNTER)


def of_events(events: Events, broker: int) -> Counters:
    """Count the events of each kind, by queue and minute."""
    if not len(events):
        return NO_COUNTERS
    return summed(_counters(broker, events["queue"], events["time_us"], events["kind"].astype(np.uint16)))


def _counters(
    broker: int | npt.NDArray[np.uint16],
    queues: npt.NDArray[np.uint32],
    times_us: npt.NDArray[np.int64],
    codes: npt.NDArray[np.uint16] | int,
) -> Counters:
    counters = np.zeros(len(queues), COUNTER)
    counters["minute"] = times_us // MINUTE_US
    counters["count"] = 1
    counters["queue"], counters["broker"], counters["code"] = queues, broker, codes
    return counters


def of_lives(lives: Lives) -> Counters:
    """First acquisitions that are not counted yet, waits and latencies. Where the posting is not known, a duration is
    not."""
    known = lives["entered"] != 0
    first = (lives["acquired"] > 0) & ~flagged(lives, LifeFlag.COUNTED)
    waited = first & known & (lives["acquired_us"] >= lives["entered_us"])
    ended = complete(lives) & (lives["retired_us"] >= lives["entered_us"])
    parts = (
        _counters_of(lives[first], "acquired_us", FIRST),
        _durations(lives[waited], "acquired_us", WAIT),
        _durations(lives[ended], "retired_us", LATENCY),
    )
    return summed(np.concatenate(parts))


def _counters_of(lives: Lives, at: str, code: npt.NDArray[np.uint16] | int) -> Counters:
    return _counters(lives["broker"], lives["queue"], lives[at], code)


def _durations(lives: Lives, until: str, base: int) -> Counters:
    codes = buckets_of(lives[until] - lives["entered_us"]) + base
    return _counters_of(lives, until, codes.astype(np.uint16))


def summed(counters: Counters) -> Counters:
    """Return one row for each minute, broker, queue and code, in this order."""
    if not len(counters):
        return NO_COUNTERS
    place = (counters["broker"].astype(np.uint64) << np.uint64(48)) | (
        counters["queue"].astype(np.uint64) << np.uint64(16)
    )
    place |= counters["code"]
    order = np.lexsort((place, counters["minute"]))
    place, minutes = place[order], counters["minute"][order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (place[1:] != place[:-1]) | (minutes[1:] != minutes[:-1])
    starts = np.flatnonzero(new)
    total = counters[order[starts]]
    total["count"] = np.add.reduceat(counters["count"][order], starts)
    return total


def bucket_of(counters: Counters, buckets: int) -> npt.NDArray[np.int64]:
    """Return the bucket, of so many, in which counters of one hour and queue meet."""
    mixed = counters["minute"] // 60 * 31 + counters["queue"] * 7 + counters["broker"]
    found: npt.NDArray[np.int64] = mixed % buckets
    return found
