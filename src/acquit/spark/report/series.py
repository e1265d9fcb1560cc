"""Minutes as what a chart can show: at most `BINS_MAX` intervals, however many minutes there are.

All charts of one broker have the same intervals, so that they can be read side by side. Counts are summed within an
interval; of a depth the highest counts, because a peak that is averaged away was not shown; percentiles come from the
sum of the interval's histograms, which is exact to a bucket. Percentiles themselves are never averaged.

A queue that was not empty when the journal begins (its start was deleted) has an unknown depth there, and a known one
at the end: so depths are counted backwards from what is live now.

Everything is a whole-array operation; a million minutes take two seconds of a core.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acquit.spark.audit.histogram import BUCKETS, PER_OCTAVE
from acquit.spark.report.tables import ENTERED, RETIRED, Key

Longs = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

BINS_MAX: Final = 180
_MINUTE_US: Final = 60_000_000
SPAN_MIN_US: Final = 10 * _MINUTE_US
"""Less than this fills no axis: a bar that is as wide as the chart says nothing."""
_STEPS_MIN: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1_440, 2_880, 10_080)
_YEAR_US: Final = 525_949 * _MINUTE_US
DRAWN_US: Final = (-900 * _YEAR_US, 7_000 * _YEAR_US)
"""Dates are drawn of the years 1070 to 8970, about: an axis has margins, and must be of years with four digits."""
QUANTILES: Final = (0.5, 0.95, 0.99)
_COUNTED: Final = (*ENTERED, *RETIRED, "released", "modified", "redelivered", "depth_change")


@dataclass(frozen=True, slots=True)
class Axis:
    """Intervals of equal length: the first begins at `start_us`."""

    start_us: int
    step_us: int
    count: int

    @classmethod
    def over(cls, first_us: int, last_us: int) -> Axis:
        """Return the shortest usual intervals that cover these minutes in at most `BINS_MAX`, and some around a few."""
        around = max(0, SPAN_MIN_US - (last_us - first_us)) // _MINUTE_US // 2 * _MINUTE_US
        first, last = first_us - around, last_us + around
        wanted = (last - first) // _MINUTE_US // BINS_MAX + 1
        step = next((step for step in _STEPS_MIN if step >= wanted), -(-wanted // _STEPS_MIN[-1]) * _STEPS_MIN[-1])
        step_us = step * _MINUTE_US
        start = first // step_us * step_us
        return cls(start, step_us, (last - start) // step_us + 1)

    def place(self, minutes_us: Any) -> Any:
        """Return which interval each minute of an array is in."""
        return (minutes_us - self.start_us) // self.step_us

    def widened(self, intervals_max: int, values: pd.DataFrame) -> tuple[Axis, pd.DataFrame]:
        """Return at most so many intervals, each as long as some of these; and `values` summed for them."""
        together = -(-self.count // intervals_max)
        summed = values.groupby(np.arange(self.count) // together).sum()
        return Axis(self.start_us, self.step_us * together, len(summed)), summed

    @property
    def edges(self) -> npt.NDArray[np.datetime64]:
        """Times at which intervals begin, and the last ends."""
        return (self.start_us + self.step_us * np.arange(self.count + 1)).astype("datetime64[us]")


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of a duration, in seconds: over all, and by interval (NaN where nothing was measured)."""

    count: int
    overall: tuple[float, ...]
    by_interval: pd.DataFrame
    """A column for each of `QUANTILES`: p50."""


@dataclass(frozen=True, slots=True)
class Series:
    """A queue, or all queues of a broker, over time."""

    axis: Axis
    counts: pd.DataFrame
    """Counts by interval; `entered` and `retired` are sums of the others."""
    depth: Doubles
    """The highest of each interval."""
    depth_last: int
    latency: Spread
    """Time from posting to retirement."""
    wait: Spread
    """Time from posting to the first acquisition."""


class Minutes:
    """The table `minutes`, sorted once by broker, queue and time; `left_out` are those of a clock gone wrong, which no
    axis of dates can have."""

    def __init__(self, table: pa.Table) -> None:
        times = table["minute"].cast(pa.int64())
        drawn = pc.and_(pc.greater(times, DRAWN_US[0]), pc.less(times, DRAWN_US[1]))
        ordered = table.set_column(table.column_names.index("minute"), "minute", times).filter(drawn)
        ordered = ordered.sort_by([(name, "ascending") for name in ("broker", "queue", "minute")]).combine_chunks()
        self.left_out = table.num_rows - ordered.num_rows
        self._histograms = [ordered[name].combine_chunks() for name in ("latency", "wait")]
        columns = {name: pc.fill_null(ordered[name], 0) for name in ("minute", *_COUNTED)}
        names = {name: ordered[name].dictionary_encode() for name in ("broker", "queue")}
        self._rows: pd.DataFrame = pa.table(names | columns).to_pandas()
        self._rows["entered"] = self._rows[[*ENTERED]].sum(axis=1)
        self._rows["retired"] = self._rows[[*RETIRED]].sum(axis=1)
        brokers, queues = (self._rows.groupby(by, observed=True) for by in ("broker", ["broker", "queue"]))
        self._ranges = {**queues.indices, **{(broker,): rows for broker, rows in brokers.indices.items()}}
        spans = brokers["minute"].agg(["min", "max"])
        self._axes = {broker: Axis.over(int(first), int(last)) for broker, first, last in spans.itertuples()}
        moved = queues[["entered", "retired"]].sum().sum(axis=1)
        self.traffic: dict[Key, int] = {key: int(count) for key, count in moved.items()}
        """Messages that entered and were retired, added up, for each queue that has a minute."""

    def series(self, name: tuple[str, ...], live: int | None) -> Series | None:
        """Return those of a broker and queue, or of all queues of a broker together; None where there is no minute.

        `live`: how many are in it at the end, where that is known."""
        found = self._ranges.get(name)
        if found is None:
            return None
        rows = slice(found[0], found[-1] + 1)  # sorted by broker and queue: they lie together
        own, axis = self._rows.iloc[rows], self._axes[name[0]]
        place = axis.place(own["minute"].to_numpy())
        counts = own[[*_COUNTED, "entered", "retired"]].groupby(place).sum()
        latency, wait = (_spread(lists[rows], place, axis.count) for lists in self._histograms)
        depth, last = _depth(own, axis, live)
        return Series(axis, counts.reindex(range(axis.count), fill_value=0), depth, last, latency, wait)


def _spread(histograms: pa.ListArray, place: Longs, intervals: int) -> Spread:
    """Return percentiles of histograms that are in the intervals `place`: middles of buckets, on the logarithmic
    scale."""
    flat = pc.list_flatten(histograms)
    table = np.zeros((intervals, BUCKETS), np.int64)
    where = (place[np.asarray(pc.list_parent_indices(histograms))], np.asarray(pc.struct_field(flat, "bucket")))
    np.add.at(table, where, np.asarray(pc.struct_field(flat, "count")))
    cumulated = np.vstack([table, table.sum(axis=0)]).cumsum(axis=1)
    total = cumulated[:, -1:]
    bucket = [(cumulated < np.maximum(1, np.ceil(quantile * total))).sum(axis=1) for quantile in QUANTILES]
    seconds = np.where(total > 0, np.exp2((np.transpose(bucket) + 0.5) / PER_OCTAVE) / 1e6, np.nan)
    by_interval = pd.DataFrame(seconds[:-1], columns=[f"p{quantile * 100:g}" for quantile in QUANTILES])
    return Spread(int(total[-1, 0]), tuple(seconds[-1].tolist()), by_interval)


def _depth(rows: pd.DataFrame, axis: Axis, live: int | None) -> tuple[Doubles, int]:
    """Return the highest depth of each interval, and that at the end."""
    change = rows.groupby("minute")["depth_change"].sum()
    after = change.cumsum()
    last = int(after.iloc[-1]) if live is None else live
    after += last - after.iloc[-1]
    before = after.iloc[0] - change.iloc[0]
    intervals = after.groupby(axis.place(after.index.to_numpy()))
    # At an interval's start the depth is what it was at the end of the one before.
    found = intervals.agg(["last", "max"]).reindex(range(axis.count))
    starts = found["last"].ffill().shift().fillna(before)
    return np.fmax(starts.to_numpy(), found["max"].to_numpy()), last
