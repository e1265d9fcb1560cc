"""Durations, counted in buckets, as Prometheus has its histograms."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets, in seconds; one more is for what is longer."""


class Durations:
    """Durations by bucket. One thread adds; any may read, and may miss the one that is being added."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """Durations in each bucket, not added up."""
        self.sum_s = 0.0

    def add(self, duration_s: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS_S, duration_s)] += 1
        self.sum_s += duration_s


__all__ = ["BOUNDS_S", "Durations"]
