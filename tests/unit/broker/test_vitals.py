"""The figures of a broker's process."""

from __future__ import annotations

from acquit.broker.inspect import SyncSnapshot
from acquit.broker.vitals import LAGS_KEPT, SYNCS_KEPT, SyncLatencies, Vitals


def test_no_sync_yet() -> None:
    assert SyncLatencies().snapshot() == SyncSnapshot(count=0, last_ms=0, p50_ms=0, p99_ms=0)


def test_percentiles_are_those_of_the_latest_syncs() -> None:
    times = SyncLatencies()
    times.took(1_000)
    for number in range(SYNCS_KEPT):
        times.took((number % 100 + 1) / 1000)
    assert times.snapshot() == SyncSnapshot(count=SYNCS_KEPT + 1, last_ms=100, p50_ms=50, p99_ms=99)


def test_the_longest_lag_is_told_until_it_is_long_ago() -> None:
    now = [5.0]
    vitals = Vitals(lambda: now[0])
    vitals.late(0.25)
    vitals.late(-3)
    now[0] = 7.5
    told = vitals.snapshot(123)
    assert (told.uptime_ms, told.loop_lag_ms, told.free_bytes) == (2_500, 250, 123)
    for _ in range(LAGS_KEPT):
        vitals.late(0)
    assert vitals.snapshot(None).loop_lag_ms == 0
    assert (sum(vitals.lags.counts), vitals.lags.sum_s) == (2 + LAGS_KEPT, 0.25)
