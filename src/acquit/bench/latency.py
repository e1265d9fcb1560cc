"""Times counted in buckets, so that millions of them take little memory."""

from __future__ import annotations

from collections import defaultdict
from math import ceil
from typing import Final

_BITS: Final = 7
"""Bits of a time that are told apart: a bucket is at most 1/128 of its times wide."""


class LatencyHistogram:
    """Times in nanoseconds, each kept to within 0.8 %. The largest is kept as it is."""

    __slots__ = ("_buckets", "count", "max_ns")

    def __init__(self) -> None:
        self._buckets: defaultdict[int, int] = defaultdict(int)
        self.count = 0
        """Number of times that were counted."""
        self.max_ns = 0
        """The largest of them; 0 if there are none."""

    def add(self, time_ns: int) -> None:
        """Count a time. A negative one, as clocks make it, counts as 0."""
        time_ns = max(0, time_ns)
        shift = max(0, time_ns.bit_length() - _BITS - 1)
        self._buckets[((time_ns >> shift) + 1 << shift) - 1] += 1
        self.count += 1
        if time_ns > self.max_ns:
            self.max_ns = time_ns

    def percentile_ns(self, percent: float) -> int:
        """Return the time that `percent` of all times do not exceed: up to 0.8 % too large, and never above the
        maximum. 0 if there are no times."""
        rank, passed = ceil(self.count * percent / 100), 0
        for upper in sorted(self._buckets):
            passed += self._buckets[upper]
            if passed >= rank:
                return min(upper, self.max_ns)
        return self.max_ns
