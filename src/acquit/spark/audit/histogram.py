"""Durations as counts in buckets whose bounds grow by the eighth root of two: 8 buckets an octave of microseconds.

A percentile read from it is at most 9 % too high or too low, whether it is of a microsecond or of a month, and
histograms of minutes, segments and runs add up to that of a day. They are never added across brokers: each has its own
clock, and its own load.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt

PER_OCTAVE: Final = 8
BUCKETS: Final = 64 * PER_OCTAVE
"""Bucket numbers are below this."""


def buckets_of(durations_us: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The bucket of each duration in microseconds. What is shorter than one is in bucket 0."""
    logarithm = np.log2(np.maximum(durations_us, 1).astype(np.float64))
    found: npt.NDArray[np.int64] = np.floor(logarithm * PER_OCTAVE).astype(np.int64)
    return found


def bounds_us(bucket: int) -> tuple[float, float]:
    """A bucket's lower bound, which is in it, and its upper one, which is not. In microseconds."""
    lower = 0.0 if bucket == 0 else 2.0 ** (bucket / PER_OCTAVE)
    return lower, 2.0 ** ((bucket + 1) / PER_OCTAVE)


def merged(*histograms: Mapping[int, int]) -> dict[int, int]:
    """Counts by bucket, added up."""
    total: dict[int, int] = {}
    for histogram in histograms:
        for bucket, count in histogram.items():
            total[bucket] = total.get(bucket, 0) + count
    return dict(sorted(total.items()))


def quantile_us(histogram: Mapping[int, int], fraction: float) -> float | None:
    """The duration that this fraction of all does not exceed: the middle of its bucket on the logarithmic scale.
    None of an empty histogram. In microseconds."""
    total = sum(histogram.values())
    if not total:
        return None
    buckets = sorted(histogram)
    reached = accumulate(histogram[bucket] for bucket in buckets)
    bucket = next(bucket for bucket, seen in zip(buckets, reached, strict=True) if seen >= fraction * total)
    return float(2.0 ** ((bucket + 0.5) / PER_OCTAVE))
