"""Durations, counted in buckets, as Prometheus has its histograms."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets, in seconds; one more is for what is longer."""
STAY_BOUNDS_S: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 300.0, 1_800.0, 7_200.0, 28_800.0, 86_400.0)
"""The same for stays: a message may wait for milliseconds or for days."""


class DurationsSnapshot(NamedTuple):
    """Durations by bucket, at one moment."""

    bounds_s: tuple[float, ...]
    counts: tuple[int, ...]
    """Durations in each bucket, not added up."""
    sum_s: float


class Durations:
    """Durations by bucket. One thread adds; any may read, and may miss the one that is being added."""

    __slots__ = ("bounds_s", "counts", "sum_s")

    def __init__(self, bounds_s: tuple[float, ...] = BOUNDS_S) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        """Durations in each bucket, not added up."""
        self.sum_s = 0.0

    def add(self, duration_s: float, count: int = 1) -> None:
        """Count one, or so many of the same length. Below 0, because a clock was set back meanwhile, is 0."""
        if duration_s > 0:
            self.counts[bisect_left(self.bounds_s, duration_s)] += count
            self.sum_s += duration_s * count
        else:
            self.counts[0] += count

    def snapshot(self) -> DurationsSnapshot:
        """Return the durations at this moment."""
        return DurationsSnapshot(self.bounds_s, tuple(self.counts), self.sum_s)


__all__ = ["BOUNDS_S", "STAY_BOUNDS_S", "Durations", "DurationsSnapshot"]
