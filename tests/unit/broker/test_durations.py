"""Durations fall into the bucket whose bound they do not exceed."""

from __future__ import annotations

from acquit.broker.durations import BOUNDS_S, Durations


def test_bounds_belong_to_their_bucket() -> None:
    durations = Durations()
    for duration_s in (0.0, BOUNDS_S[0], BOUNDS_S[0] * 1.01, BOUNDS_S[-1], BOUNDS_S[-1] * 2):
        durations.add(duration_s)
    assert durations.counts[:2] == [2, 1]
    assert durations.counts[-2:] == [1, 1]
    assert sum(durations.counts) == 5
    assert durations.sum_s == sum((0.0, BOUNDS_S[0], BOUNDS_S[0] * 1.01, BOUNDS_S[-1], BOUNDS_S[-1] * 2))


def test_many_of_one_length_and_clocks_that_were_set_back() -> None:
    durations = Durations((1.0, 10.0))
    durations.add(2.0, 3)
    durations.add(-5.0, 2)
    found = durations.snapshot()
    assert (found.bounds_s, found.counts, found.sum_s) == ((1.0, 10.0), (2, 3, 0), 6.0)
