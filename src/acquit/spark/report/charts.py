"""The charts of a queue, or of a whole broker.

They are small, all of one size, and drawn for the width of a phone: a page with more room puts more of them side by
side and never makes text smaller than it can be read. What lines mean is said beside the picture, in text that wraps;
inside are only axes. Lines differ by dashes as well as by colour. Each says in one sentence what it shows, for who does
not see it and for who only skims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from acquit.spark.report.formats import count_text, duration_text, rate_text, short_count, time_text
from acquit.spark.report.series import QUANTILES, Axis, Doubles, Longs, Series
from acquit.spark.report.svg import GRID, INK, MUTED, SERIES, inline

_SIZE_IN: Final = (3.6, 1.95)
BARS_MAX: Final = 48
_DASHES: Final = ("solid", "dashed", "dotted", "dashdot", "solid", "dashed")
_DURATIONS_S: Final = (
    *(1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 36_000.0),
    *(86_400.0, 864_000.0, 8_640_000.0, 86_400_000.0, 864_000_000.0),
)
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "acquit",
    "text.parse_math": False,
    "font.size": 9,
    "axes.linewidth": 0.8,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


@dataclass(frozen=True, slots=True)
class Key:
    """What a line or an area of a chart is: its name, the number of its colour (from 1), its dashes (or ``area``)."""

    name: str
    colour: int
    dashes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart, ready for the page."""

    title: str
    unit: str
    """What the vertical axis counts."""
    keys: tuple[Key, ...]
    picture: Markup | None
    """None where there is nothing to draw."""
    summary: str


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What goes into one chart: named values of each interval."""

    names: Sequence[str]
    values: Sequence[Doubles | Longs]


def charts(series: Series, name: str, reasons: Sequence[tuple[str, Longs]]) -> list[Chart]:
    """Those of a queue or a broker. `name` is unique in the page; `reasons`: dead letters by reason and interval."""
    return [
        _rates(series, f"{name}-rate"),
        _latency(series, f"{name}-latency"),
        _depth(series, f"{name}-depth"),
        _redeliveries(series, f"{name}-again"),
        _dead_letters(series, f"{name}-dead", reasons),
    ]


def _rates(series: Series, name: str) -> Chart:
    axis = series.axis
    entered, retired = series.entered / axis.seconds, series.retired / axis.seconds
    total_in, total_out = int(series.entered.sum()), int(series.retired.sum())
    if not total_in and not total_out:
        return _empty("Rate", "messages/s", "No message entered or left.")
    at = int(entered.argmax())
    summary = (
        f"{count_text(total_in)} entered, {count_text(total_out)} left; most in {_interval(axis)}: "
        f"{rate_text(float(entered[at]))} at {_moment(axis, at)}."
    )
    drawn = _Drawn(("entered", "left"), (entered, retired))
    return _chart("Rate", "messages/s", name, axis, drawn, summary, _lines)


def _latency(series: Series, name: str) -> Chart:
    spread = series.latency
    if not spread.count:
        return _empty("Latency", "posting to leaving", "Nothing that was posted has left.")
    parts = [f"p{q * 100:g} {duration_text(s)}" for q, s in zip(QUANTILES, spread.overall, strict=True)]
    waited = series.wait
    wait = f" Until first acquired: p50 {duration_text(waited.overall[0])}, p99 {duration_text(waited.overall[-1])}."
    summary = f"Over {count_text(spread.count)} messages: {', '.join(parts)}.{wait if waited.count else ''}"
    drawn = _Drawn([f"p{q * 100:g}" for q in QUANTILES], list(spread.by_interval))
    return _chart("Latency", "posting to leaving", name, series.axis, drawn, summary, _durations)


def _depth(series: Series, name: str) -> Chart:
    at = int(series.depth.argmax())
    peak = int(series.depth[at])
    if not peak and not series.depth_last:
        return _empty("Depth", "messages", "Empty at the end of every minute.")
    summary = f"At most {count_text(peak)} at {_moment(series.axis, at)}; {count_text(series.depth_last)} at the end."
    draw = partial(_area, last=series.depth_last)
    return _chart("Depth", "messages", name, series.axis, _Drawn(("depth",), (series.depth,)), summary, draw)


def _redeliveries(series: Series, name: str) -> Chart:
    released, modified, again = (series.totals[kind] for kind in ("released", "modified", "redelivered"))
    if not released and not modified and not again:
        return _empty("Redeliveries", "messages given back", "No message was given back or handed out again.")
    summary = (
        f"{count_text(released)} released, {count_text(modified)} modified"
        f"{' (most of these after a failed attempt)' if modified else ''}; {count_text(again)} handed out again."
    )
    kinds = [kind for kind in ("released", "modified") if series.totals[kind]]
    if not kinds:
        return _empty("Redeliveries", "messages given back", summary)
    drawn = _Drawn(kinds, [series.counts[kind] for kind in kinds])
    return _bars("Redeliveries", "messages given back", name, series.axis, drawn, summary)


def _dead_letters(series: Series, name: str, reasons: Sequence[tuple[str, Longs]]) -> Chart:
    total = sum(int(values.sum()) for _, values in reasons)
    if not total:
        return _empty("Dead letters", "messages", "None.")
    first, values = max(reasons, key=lambda reason: int(reason[1].sum()))
    summary = f"{count_text(total)}; the most frequent reason, {first}: {count_text(int(values.sum()))}."
    drawn = _Drawn(
        [f"{text} ({count_text(int(counts.sum()))})" for text, counts in reasons], [counts for _, counts in reasons]
    )
    return _bars("Dead letters", "messages", name, series.axis, drawn, summary)


def _empty(title: str, unit: str, summary: str) -> Chart:
    return Chart(title=title, unit=unit, keys=(), picture=None, summary=summary)


def _bars(title: str, unit: str, name: str, axis: Axis, drawn: _Drawn, summary: str) -> Chart:
    """Counts that are mostly 0: stacked, and over longer intervals, since one pixel's bar is not seen."""
    wide, values = axis.widened(BARS_MAX, drawn.values)
    return _chart(title, unit, name, wide, _Drawn(drawn.names, values), summary, _stack, area=True)


def _chart(
    title: str,
    unit: str,
    name: str,
    axis: Axis,
    drawn: _Drawn,
    summary: str,
    draw: Callable[[Axes, Axis, _Drawn], None],
    *,
    area: bool = False,
) -> Chart:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE_IN, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02)  # type: ignore[union-attr, call-arg]
        axes = figure.add_subplot()
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True, min_n_ticks=1))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
        draw(axes, axis, drawn)
        _frame(axes, axis)
        picture = inline(figure, name, title, f"{summary} Times are UTC; one value for each {_interval(axis)}.")
    keys = tuple(
        Key(text, at % len(SERIES) + 1, "area" if area else _DASHES[at % len(_DASHES)])
        for at, text in enumerate(drawn.names)
    )
    return Chart(title=title, unit=unit, keys=keys if area or len(keys) > 1 else (), picture=picture, summary=summary)


def _frame(axes: Axes, axis: Axis) -> None:
    edges = date2num(axis.edges)
    axes.set_xlim(edges[0], edges[-1])
    locator = AutoDateLocator(tz=UTC, minticks=2, maxticks=5)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.tick_params(axis="x", pad=6)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _stairs(axes: Axes, axis: Axis, values: Doubles | Longs, at: int) -> None:
    colour, dashes = SERIES[at % len(SERIES)], _DASHES[at % len(_DASHES)]
    axes.stairs(values, date2num(axis.edges), baseline=None, color=colour, linewidth=1.4, linestyle=dashes)


def _lines(axes: Axes, axis: Axis, drawn: _Drawn) -> None:
    for at, values in enumerate(drawn.values):
        _stairs(axes, axis, values, at)
    _from_zero(axes, max(float(values.max()) for values in drawn.values))


def _area(axes: Axes, axis: Axis, drawn: _Drawn, *, last: int) -> None:
    edges = date2num(axis.edges)
    axes.stairs(drawn.values[0], edges, baseline=0, fill=True, color=SERIES[0], alpha=0.25, linewidth=0)
    _stairs(axes, axis, drawn.values[0], 0)
    # The highest of the last interval is not where it ended.
    axes.plot([edges[-1]] * 2, [float(drawn.values[0][-1]), last], color=SERIES[0], linewidth=1.4, clip_on=False)
    _from_zero(axes, float(drawn.values[0].max()))


def _stack(axes: Axes, axis: Axis, drawn: _Drawn) -> None:
    edges = date2num(axis.edges)
    below = np.zeros(axis.count)
    for at, values in enumerate(drawn.values):
        above = below + values
        axes.stairs(above, edges, baseline=below, fill=True, color=SERIES[at % len(SERIES)], linewidth=0)
        below = above
    _from_zero(axes, float(below.max()))


def _durations(axes: Axes, axis: Axis, drawn: _Drawn) -> None:
    for at, values in enumerate(drawn.values):
        _stairs(axes, axis, values, at)
    known = np.concatenate([values[np.isfinite(values)] for values in drawn.values])
    low, high = float(known.min()), float(known.max())
    ticks = [
        second
        for second, before, after in zip(
            _DURATIONS_S, (0.0, *_DURATIONS_S[:-1]), (*_DURATIONS_S[1:], np.inf), strict=True
        )
        if after > low and before < high
    ]
    axes.set_yscale("log")
    axes.set_ylim(min(ticks[0], low), max(ticks[-1], high))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(FixedLocator(ticks[:: -(-len(ticks) // 6)]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration_text(value)))


def _from_zero(axes: Axes, highest: float) -> None:
    axes.set_ylim(0, highest * 1.08 or 1)
    if highest < 2:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=3))


def _moment(axis: Axis, at: int) -> str:
    return time_text(axis.start_us + at * axis.step_us)


def _interval(axis: Axis) -> str:
    return "a minute" if axis.step_us == 60_000_000 else duration_text(axis.seconds)
