"""Minutes as what a chart can show: at most `BINS_MAX` intervals, however many minutes there are.

All charts of one broker have the same intervals, so that they can be read side by side. Counts are summed within an
interval; of a depth the highest counts, because a peak that is averaged away was not shown; percentiles come from the
sum of the interval's histograms, which is exact to a bucket. Percentiles themselves are never averaged.

A queue that was not empty when the journal begins (its start was deleted) has an unknown depth there, and a known one
at the end: so depths are counted backwards from what is live now.

Everything is a whole-array operation; a million minutes take about a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acquit.spark.audit.histogram import BUCKETS, PER_OCTAVE
from acquit.spark.report.tables import ENTERED, RETIRED

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
_MIDDLE_US: Final = np.exp2((np.arange(BUCKETS) + 0.5) / PER_OCTAVE)
"""Of each bucket of a histogram, on the logarithmic scale."""
_SUMMED: Final = (*ENTERED, *RETIRED, "released", "modified", "redelivered")


@dataclass(frozen=True, slots=True)
class Axis:
    """Intervals of equal length: the first begins at `start_us`."""

    start_us: int
    step_us: int
    count: int

    @classmethod
    def over(cls, minutes_us: Longs) -> Axis:
        """The shortest usual intervals that cover these minutes in at most `BINS_MAX`, and some around a few."""
        first, last = int(minutes_us.min()), int(minutes_us.max())
        around = max(0, SPAN_MIN_US - (last - first)) // _MINUTE_US // 2 * _MINUTE_US
        first, last = first - around, last + around
        wanted = (last - first) // _MINUTE_US // BINS_MAX + 1
        step = next((step for step in _STEPS_MIN if step >= wanted), -(-wanted // _STEPS_MIN[-1]) * _STEPS_MIN[-1])
        step_us = step * _MINUTE_US
        start = first // step_us * step_us
        return cls(start, step_us, (last - start) // step_us + 1)

    def place(self, minutes_us: Longs) -> Longs:
        """Which interval each minute is in."""
        return (minutes_us - self.start_us) // self.step_us

    def widened(self, intervals_max: int, values: Sequence[Doubles | Longs]) -> tuple[Axis, list[Doubles | Longs]]:
        """At most so many intervals, each as long as some of these; and `values` summed for them."""
        together = -(-self.count // intervals_max)
        starts = np.arange(0, self.count, together)
        wide = Axis(self.start_us, self.step_us * together, len(starts))
        return wide, [np.add.reduceat(each, starts) for each in values]

    @property
    def edges(self) -> npt.NDArray[np.datetime64]:
        """Where intervals begin, and the last ends."""
        microseconds = self.start_us + self.step_us * np.arange(self.count + 1, dtype=np.int64)
        return microseconds.astype("datetime64[us]")

    @property
    def seconds(self) -> float:
        """Of one interval."""
        return self.step_us / 1e6


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of a duration, in seconds: over all, and by interval (NaN where nothing was measured)."""

    count: int
    overall: tuple[float, ...]
    by_interval: Doubles
    """One row for each of `QUANTILES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A queue, or all queues of a broker, over time."""

    axis: Axis
    totals: Mapping[str, int]
    counts: Mapping[str, Longs]
    """By interval, of each column that is summed."""
    entered: Longs
    retired: Longs
    depth: Longs
    """The highest of each interval."""
    depth_last: int
    latency: Spread
    """From posting to retirement."""
    wait: Spread
    """From posting to the first acquisition."""


@dataclass(frozen=True, slots=True)
class Histograms:
    """A column of histograms, flat: whose each bucket is, which, and how many."""

    offsets: Longs
    buckets: Longs
    counts: Longs

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Histograms:
        """From the column as the audit has it; null is empty."""
        lists = column.combine_chunks()
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        flat = pc.list_flatten(lists)
        return cls(
            np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
            np.asarray(pc.struct_field(flat, "bucket"), np.int64),
            np.asarray(pc.struct_field(flat, "count"), np.int64),
        )

    def spread(self, first: int, after: int, place: Longs, intervals: int) -> Spread:
        """Of the rows from `first` up to `after`, which are in the intervals `place`."""
        low, high = int(self.offsets[first]), int(self.offsets[after])
        row = np.repeat(place, np.diff(self.offsets[first : after + 1]))
        table = np.zeros((intervals, BUCKETS), np.int64)
        np.add.at(table, (row, np.minimum(self.buckets[low:high], BUCKETS - 1)), self.counts[low:high])
        whole = table.sum(axis=0)
        return Spread(
            int(whole.sum()),
            tuple(float(_quantile(whole[None, :], q)[0]) for q in QUANTILES),
            np.stack([_quantile(table, q) for q in QUANTILES]),
        )


def _quantile(table: Longs, quantile: float) -> Doubles:
    """Of each row, in seconds: the middle of the bucket in which the quantile lies."""
    cumulated = table.cumsum(axis=1)
    total = cumulated[:, -1]
    needed = np.maximum(1, np.ceil(quantile * total))
    found = (cumulated < needed[:, None]).sum(axis=1)
    return np.where(total > 0, _MIDDLE_US[np.minimum(found, BUCKETS - 1)] / 1e6, np.nan)


class Minutes:
    """The table `minutes`, sorted once by broker, queue and time."""

    def __init__(self, table: pa.Table) -> None:
        ordered = table.sort_by([("broker", "ascending"), ("queue", "ascending"), ("minute", "ascending")])
        ordered = ordered.combine_chunks()
        self._minute: Longs = np.asarray(ordered["minute"].cast(pa.int64()), np.int64)
        self._columns: dict[str, Longs] = {
            name: np.asarray(pc.fill_null(ordered[name], 0), np.int64) for name in (*_SUMMED, "depth_change")
        }
        self._latency = Histograms.of(ordered["latency"])
        self._wait = Histograms.of(ordered["wait"])
        self._ranges = _ranges(ordered)
        self._axes = {
            broker: Axis.over(np.concatenate([self._minute[a:b] for _, a, b in queues]))
            for broker, queues in self._by_broker().items()
        }

    @property
    def queues(self) -> list[tuple[str, str]]:
        """Broker and queue of each that has a minute."""
        return list(self._ranges)

    @property
    def traffic(self) -> dict[tuple[str, str], int]:
        """How much entered and was retired, for each queue."""
        moved = sum(self._columns[name] for name in (*ENTERED, *RETIRED))
        cumulated = np.concatenate(([0], np.cumsum(moved)))
        return {key: int(cumulated[b] - cumulated[a]) for key, (a, b) in self._ranges.items()}

    def axis(self, broker: str) -> Axis | None:
        """Of the broker's charts; None where it has no minute."""
        return self._axes.get(broker)

    def queue(self, broker: str, queue: str, live: int | None) -> Series | None:
        """`live`: how many are in it at the end, where that is known. None where it has no minute."""
        found = self._ranges.get((broker, queue))
        return None if found is None else self._series(broker, *found, live)

    def broker(self, broker: str, live: int | None) -> Series | None:
        """All queues of it together; None where it has no minute."""
        queues = self._by_broker().get(broker)
        # Sorted by broker first: its rows lie together.
        return None if not queues else self._series(broker, queues[0][1], queues[-1][2], live)

    def _by_broker(self) -> dict[str, list[tuple[str, int, int]]]:
        found: dict[str, list[tuple[str, int, int]]] = {}
        for (broker, queue), (a, b) in self._ranges.items():
            found.setdefault(broker, []).append((queue, a, b))
        return found

    def _series(self, broker: str, first: int, after: int, live: int | None) -> Series:
        axis = self._axes[broker]
        rows = slice(first, after)
        minute = self._minute[rows]
        place = axis.place(minute)
        columns = {name: column[rows] for name, column in self._columns.items()}
        counts = {name: _summed(columns[name], place, axis.count) for name in _SUMMED}
        depth, last = _depth(columns["depth_change"], minute, axis, live)
        return Series(
            axis=axis,
            totals={name: int(columns[name].sum()) for name in _SUMMED},
            counts=counts,
            entered=_added(counts, ENTERED),
            retired=_added(counts, RETIRED),
            depth=depth,
            depth_last=last,
            latency=self._latency.spread(first, after, place, axis.count),
            wait=self._wait.spread(first, after, place, axis.count),
        )


def drawable(minutes: pa.Table) -> pa.Table:
    """Without those of a clock gone wrong that no axis of dates can have."""
    times = minutes["minute"].cast(pa.int64())
    inside = pc.and_(pc.greater(times, DRAWN_US[0]), pc.less(times, DRAWN_US[1]))
    return minutes.filter(pc.fill_null(inside, False))


def _ranges(ordered: pa.Table) -> dict[tuple[str, str], tuple[int, int]]:
    """Which rows each broker's queue has, in the order of the table."""
    if not ordered.num_rows:
        return {}
    codes: list[npt.NDArray[Any]] = []
    for name in ("broker", "queue"):
        encoded = pc.dictionary_encode(pc.fill_null(ordered[name], "")).combine_chunks()
        codes.append(np.asarray(encoded.indices))
    changed = np.flatnonzero((np.diff(codes[0]) != 0) | (np.diff(codes[1]) != 0)) + 1
    bounds = [0, *changed.tolist(), ordered.num_rows]
    keys = ordered.select(["broker", "queue"]).take(pa.array(bounds[:-1]))
    names = zip(keys["broker"].to_pylist(), keys["queue"].to_pylist(), strict=True)
    return {
        (broker or "", queue or ""): (a, b)
        for (broker, queue), a, b in zip(names, bounds[:-1], bounds[1:], strict=True)
    }


def _summed(values: Longs, place: Longs, intervals: int) -> Longs:
    total = np.zeros(intervals, np.int64)
    np.add.at(total, place, values)
    return total


def _added(counts: Mapping[str, Longs], names: Iterable[str]) -> Longs:
    added: Longs = np.sum([counts[name] for name in names], axis=0, dtype=np.int64)
    return added


def _depth(change: Longs, minute: Longs, axis: Axis, live: int | None) -> tuple[Longs, int]:
    """The highest depth of each interval, and that at the end."""
    moments, which = np.unique(minute, return_inverse=True)
    after = np.cumsum(_summed(change, which, len(moments)))
    last = int(after[-1]) if live is None else live
    after += last - int(after[-1])
    before = after[0] - int(change[which == 0].sum())
    place = axis.place(moments)
    # At an interval's start the depth is what it was at the end of the one before.
    ends = np.full(axis.count, np.iinfo(np.int64).min)
    ends[place] = after  # the last minute of each interval wins: they are in order
    known = np.where(ends == np.iinfo(np.int64).min, -1, np.arange(axis.count))
    carried = np.maximum.accumulate(known)
    at_end = np.where(carried >= 0, ends[np.maximum(carried, 0)], before)
    highest = np.concatenate(([before], at_end[:-1]))
    np.maximum.at(highest, place, after)
    return highest, last
