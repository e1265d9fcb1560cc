from __future__ import annotations

import random

import pytest

from acquit.bench.latency import LatencyHistogram


def test_nothing_has_no_times() -> None:
    assert (LatencyHistogram().percentile_ns(99), LatencyHistogram().max_ns) == (0, 0)


@pytest.mark.parametrize("percent", [1, 50, 99, 99.9, 100])
def test_a_percentile_is_at_most_a_hundredth_too_large(percent: float) -> None:
    times = [random.Random(7).randrange(1, 10**exponent) for exponent in range(1, 11) for _ in range(100)]
    times = [int(time * factor) for time in times for factor in (1, 1.7, 3.1)]
    histogram = LatencyHistogram()
    for time in times:
        histogram.add(time)
    exact = sorted(times)[max(0, -(-len(times) * percent // 100).__int__() - 1)]
    assert exact <= histogram.percentile_ns(percent) <= exact * 1.01
    assert histogram.max_ns == max(times)
    assert histogram.count == len(times)


def test_a_clock_that_goes_back_is_no_time() -> None:
    histogram = LatencyHistogram()
    histogram.add(-5)
    assert (histogram.percentile_ns(100), histogram.count) == (0, 1)


def test_what_is_kept_is_bounded() -> None:
    histogram = LatencyHistogram()
    for time in range(0, 3_000_000_000, 10_007):
        histogram.add(time)
    assert len(histogram._buckets) < 32 * 128
