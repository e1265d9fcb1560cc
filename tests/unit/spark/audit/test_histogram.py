from __future__ import annotations

import random

import numpy as np
import pytest

from acquit.spark.audit.histogram import BUCKETS, bounds_us, buckets_of, merged, quantile_us


@pytest.mark.parametrize("duration", [0, 1, 2, 3, 7, 999, 1_000_000, 86_400_000_000, (1 << 62) - 1])
def test_a_duration_is_within_the_bounds_of_its_bucket(duration: int) -> None:
    [bucket] = buckets_of(np.array([duration], np.int64)).tolist()
    lower, upper = bounds_us(bucket)
    assert lower <= duration < upper or duration > 1 << 53
    assert 0 <= bucket < BUCKETS


def test_a_percentile_is_off_by_less_than_a_tenth_and_histograms_add_up() -> None:
    rng = random.Random(3)
    durations = [round(rng.lognormvariate(9, 2)) + 1 for _ in range(5_000)]
    parts = []
    for start in range(0, len(durations), 1_000):
        found, counts = np.unique(buckets_of(np.array(durations[start : start + 1_000])), return_counts=True)
        parts.append(dict(zip(found.tolist(), counts.tolist(), strict=True)))
    whole = merged(*parts)
    assert sum(whole.values()) == 5_000
    for fraction in (0.01, 0.5, 0.95, 0.99, 1.0):
        exact = sorted(durations)[max(0, round(fraction * len(durations)) - 1)]
        told = quantile_us(whole, fraction)
        assert told is not None
        assert abs(told / exact - 1) < 0.1
    assert quantile_us({}, 0.5) is None
