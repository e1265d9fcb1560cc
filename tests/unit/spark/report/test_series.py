from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from acquit.spark.audit.histogram import merged, quantile_us
from acquit.spark.report.series import BINS_MAX, QUANTILES, Axis, Minutes, Series
from tests.support.audit_tables import BROKER, SCHEMAS, START, histogram, minute, table

MINUTE_US = 60_000_000
START_US = int(START.timestamp()) * 1_000_000


def minutes(*rows: dict[str, object]) -> Minutes:
    return Minutes(table("minutes", rows))


def series_of(found: Minutes, *name: str, live: int | None = None) -> Series:
    series = found.series(name, live)
    assert series is not None
    return series


@pytest.mark.parametrize("count", [1, 2, 180, 181, 1_000, 43_200, 1_000_000, 5_000_000])
def test_an_axis_covers_all_minutes_in_few_equal_intervals(count: int) -> None:
    first, last = START_US, START_US + (count - 1) * MINUTE_US
    axis = Axis.over(first, last)
    assert 1 <= axis.count <= BINS_MAX + 1
    assert 0 <= axis.place(np.array([first]))[0] <= axis.place(np.array([last]))[0] < axis.count
    assert axis.count >= 10
    assert axis.step_us % MINUTE_US == 0
    assert len(axis.edges) == axis.count + 1


def test_a_million_minutes_keep_their_sums() -> None:
    rows = 1_000_000
    columns: dict[str, pa.Array] = {}
    for field in SCHEMAS["minutes"]:
        columns[field.name] = pa.array(np.ones(rows, np.int64)) if field.type == pa.int64() else pa.nulls(rows)
    columns["broker"] = pa.repeat(BROKER, rows)
    columns["queue"] = pa.array(np.where(np.arange(rows) % 3 == 0, "a", "b"))
    columns["minute"] = pa.array(START_US + np.arange(rows)[::-1] * MINUTE_US).cast(pa.timestamp("us", "UTC"))
    columns = {name: pa.array(values).cast(SCHEMAS["minutes"].field(name).type) for name, values in columns.items()}
    found = Minutes(pa.table(columns, schema=SCHEMAS["minutes"]))
    series = series_of(found, BROKER, "a", live=7)
    assert series.axis.count <= BINS_MAX
    assert series.counts["accepted"].sum() == 333_334
    assert series.depth_last == 7
    assert series_of(found, BROKER).counts["accepted"].sum() == rows


def test_percentiles_are_of_the_summed_histograms() -> None:
    # The averages of the two minutes' percentiles would be elsewhere: 3 slow ones among 100 are beyond p95, not p99.
    fast, slow = histogram(b80=97), histogram(b200=3)
    found = minutes(minute(0, latency=fast), minute(1, latency=slow), minute(400, latency=fast))
    series = series_of(found, BROKER, "orders")
    assert series.axis.step_us > MINUTE_US
    spread = series.latency
    first = merged({80: 97}, {200: 3})
    wanted = [quantile_us(first, quantile) for quantile in QUANTILES]
    assert list(spread.by_interval.iloc[0] * 1e6) == pytest.approx(wanted)
    assert spread.count == 197
    assert spread.by_interval.iloc[1].isna().all()
    everything = merged(first, {80: 97})
    assert [s * 1e6 for s in spread.overall] == pytest.approx([quantile_us(everything, q) for q in QUANTILES])


def test_brokers_have_axes_and_percentiles_of_their_own() -> None:
    found = minutes(
        minute(0, broker="one", latency=histogram(b80=10)), minute(9_000, broker="two", latency=histogram(b160=10))
    )
    one, two = series_of(found, "one"), series_of(found, "two")
    assert one.axis.count == two.axis.count == 11
    assert one.axis.start_us != two.axis.start_us
    assert one.latency.overall[0] * 1000 < two.latency.overall[0]
    assert found.series(("three",), None) is None


def test_queues_of_one_broker_are_summed_and_share_an_axis() -> None:
    found = minutes(minute(0, "a", posted=1, wait=histogram(b8=1)), minute(500, "b", posted=2, wait=histogram(b8=2)))
    a, whole = series_of(found, BROKER, "a"), series_of(found, BROKER)
    assert a.axis == whole.axis
    assert whole.counts["posted"].sum() == whole.counts["entered"].sum() == 3
    assert whole.wait.count == 3
    assert found.traffic == {(BROKER, "a"): 1, (BROKER, "b"): 2}


def test_depth_is_counted_back_from_what_is_live() -> None:
    rows = [minute(0, depth_change=5), minute(1, depth_change=-2), minute(400, depth_change=10), minute(401)]
    counted = series_of(minutes(*rows), BROKER, "orders")
    known = series_of(minutes(*rows), BROKER, "orders", live=113)
    assert counted.depth_last == 13
    assert known.depth_last == 113
    # The highest of the first interval, what was left of it in those without a change, and the end.
    assert (counted.depth[0], counted.depth[1], counted.depth[-1]) == (5, 3, 13)
    assert (known.depth[0], known.depth[1], known.depth[-1]) == (105, 103, 113)
    # Before its first minute it had what it has now, but for what has come since.
    before = series_of(minutes(minute(0, depth_change=5)), BROKER, "orders", live=15)
    assert (before.depth[0], before.depth[-1]) == (10, 15)


def test_depth_at_the_start_of_an_interval_counts() -> None:
    rows = [minute(0, depth_change=50), minute(200, depth_change=-50), minute(359)]
    found = series_of(minutes(*rows), BROKER, "orders", live=0)
    at = (200 * MINUTE_US) // found.axis.step_us
    assert found.depth[at] == 50
    assert found.depth[at + 1] == 0


def test_nothing_is_no_series() -> None:
    found = Minutes(SCHEMAS["minutes"].empty_table())
    assert found.traffic == {}
    assert found.series((BROKER, "orders"), 0) is None
    assert found.series((BROKER,), 0) is None


def test_widened_intervals_keep_their_sums() -> None:
    axis = Axis(START_US, MINUTE_US, 100)
    wide, values = axis.widened(48, pd.Series(np.arange(100)))
    assert (wide.count, wide.step_us) == (34, 3 * MINUTE_US)
    assert values.sum() == sum(range(100))
    assert values[0] == 0 + 1 + 2
