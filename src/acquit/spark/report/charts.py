"""The charts of a queue, or of a whole broker.

They are small, all of one size, and drawn for the width of a phone: a page with more room puts more of them side by
side and never makes text smaller than it can be read. What lines mean is said beside the picture, in text that wraps;
inside are only axes. Lines differ by dashes as well as by colour. Each says in one sentence what it shows, for who does
not see it and for who only skims.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Final

import matplotlib as mpl
import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from acquit.spark.report.formats import count_text, duration_text, rate_text, short_count, time_text
from acquit.spark.report.series import Axis, Series
from acquit.spark.report.svg import GRID, MUTED, SERIES, inline

BARS_MAX: Final = 48
_DURATIONS_S: Final = np.array(
    [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3_600, 36_000, *(86_400 * 10.0 ** np.arange(5))]
)
_STYLE: Final[dict[Any, Any]] = {
    "figure.figsize": (3.6, 1.95),
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.02,
    "figure.constrained_layout.h_pad": 0.02,
    "figure.facecolor": "none",
    "svg.fonttype": "none",
    "font.size": 9,
    "text.parse_math": False,
    "lines.linewidth": 1.4,
    "lines.solid_capstyle": "butt",
    "axes.prop_cycle": cycler(color=SERIES[:3], linestyle=["solid", "dashed", "dotted"]),
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "xtick.major.size": 0,
    "xtick.major.pad": 6,
    "ytick.color": MUTED,
    "ytick.major.size": 0,
}


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, ready for the page."""

    title: str
    unit: str
    """Quantity on the vertical axis."""
    summary: str
    picture: Markup | None = None
    """None where there is nothing to draw."""
    interval: str = ""
    """Interval that each value stands for."""
    names: tuple[str, ...] = ()
    """Names of its lines or areas, in the order of their colours."""
    areas: bool = False


def charts(series: Series, reasons: pd.DataFrame) -> list[Chart]:
    """Return those of a queue or a broker. `reasons`: dead letters by interval, a column for each reason."""
    return [_rates(series), _latency(series), _depth(series), _redeliveries(series), _dead_letters(series, reasons)]


def _rates(series: Series) -> Chart:
    axis, moved = series.axis, series.counts[["entered", "retired"]]
    total_in, total_out = moved.sum()
    if not total_in and not total_out:
        return Chart("Rate", "messages/s", "No message entered or left.")
    rates = (moved / (axis.step_us / 1e6)).rename(columns={"retired": "left"})
    at = int(rates["entered"].argmax())
    summary = (
        f"{count_text(total_in)} entered, {count_text(total_out)} left; most in {_interval(axis)}: "
        f"{rate_text(rates['entered'][at])} at {_moment(axis, at)}."
    )
    return _drawn("Rate", "messages/s", summary, axis, rates, _lines)


def _latency(series: Series) -> Chart:
    spread, wait = series.latency, series.wait
    if not spread.count:
        return Chart("Latency", "posting to leaving", "Nothing that was posted has left.")
    parts = ", ".join(f"{name} {duration_text(s)}" for name, s in zip(spread.by_interval, spread.overall, strict=True))
    summary = f"Over {count_text(spread.count)} messages: {parts}."
    if wait.count:
        p50, _, p99 = map(duration_text, wait.overall)
        summary += f" Until first acquired: p50 {p50}, p99 {p99}."
    return _drawn("Latency", "posting to leaving", summary, series.axis, spread.by_interval, _durations)


def _depth(series: Series) -> Chart:
    at = int(series.depth.argmax())
    peak, last = int(series.depth[at]), series.depth_last
    if not peak and not last:
        return Chart("Depth", "messages", "Empty at the end of every minute.")
    summary = f"At most {count_text(peak)} at {_moment(series.axis, at)}; {count_text(last)} at the end."
    return _drawn("Depth", "messages", summary, series.axis, pd.DataFrame({"": [*series.depth, last]}), _area)


def _redeliveries(series: Series) -> Chart:
    kinds = series.counts[["released", "modified"]]
    released, modified, again = (int(series.counts[kind].sum()) for kind in ("released", "modified", "redelivered"))
    summary = "No message was given back or handed out again."
    if released or modified or again:
        failed = " (most of these after a failed attempt)" if modified else ""
        summary = f"{released:,} released, {modified:,} modified{failed}; {again:,} handed out again."
    return _bars("Redeliveries", "messages given back", summary, series.axis, kinds.loc[:, kinds.any()])


def _dead_letters(series: Series, reasons: pd.DataFrame) -> Chart:
    totals = reasons.sum()
    if not totals.any():
        return Chart("Dead letters", "messages", "None.")
    summary = f"{totals.sum():,}; the most frequent reason, {totals.idxmax()}: {totals.max():,}."
    named = reasons.set_axis([f"{text} ({total:,})" for text, total in totals.items()], axis=1)
    return _bars("Dead letters", "messages", summary, series.axis, named)


def _bars(title: str, unit: str, summary: str, axis: Axis, values: pd.DataFrame) -> Chart:
    """Return counts that are mostly 0: stacked, and over longer intervals, since one pixel's bar is not seen."""
    if values.empty:
        return Chart(title, unit, summary)
    return _drawn(title, unit, summary, *axis.widened(BARS_MAX, values), _stack, areas=True)


_Draw = Callable[[Axes, Any, pd.DataFrame], None]


def _drawn(
    title: str, unit: str, summary: str, axis: Axis, values: pd.DataFrame, draw: _Draw, *, areas: bool = False
) -> Chart:
    with mpl.rc_context(_STYLE):
        figure = Figure()
        axes = figure.add_subplot()
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True, min_n_ticks=1))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
        edges = axis.edges
        draw(axes, edges, values)
        axes.set_xlim(edges[0], edges[-1])
        locator = AutoDateLocator(tz=UTC, minticks=2, maxticks=5)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
        picture = inline(figure)
    names = tuple(values) if areas or len(values.columns) > 1 else ()
    return Chart(title, unit, summary, picture, _interval(axis), names, areas)


def _steps(axes: Axes, edges: Any, values: pd.DataFrame) -> None:
    """Draw lines; one value more than there are intervals is where they end."""
    axes.step(edges, np.vstack([values, values.iloc[-1:]])[: len(edges)], where="post")


def _lines(axes: Axes, edges: Any, values: pd.DataFrame) -> None:
    _steps(axes, edges, values)
    _from_zero(axes, float(values.max(axis=None)))


def _area(axes: Axes, edges: Any, values: pd.DataFrame) -> None:
    # The highest of the last interval is not where it ended.
    axes.stairs(values.iloc[:-1, 0], edges, fill=True, color=SERIES[0], alpha=0.25, linewidth=0)
    _lines(axes, edges, values)


def _stack(axes: Axes, edges: Any, values: pd.DataFrame) -> None:
    tops = values.cumsum(axis=1).to_numpy(float).T
    for top, below, colour in zip(tops, [np.zeros(len(values)), *tops], SERIES, strict=False):
        axes.stairs(top, edges, baseline=below, fill=True, color=colour, linewidth=0)
    _from_zero(axes, float(tops.max()))


def _durations(axes: Axes, edges: Any, values: pd.DataFrame) -> None:
    _steps(axes, edges, values)
    low, high = values.min(axis=None), values.max(axis=None)
    first, after = np.searchsorted(_DURATIONS_S, low, "right") - 1, np.searchsorted(_DURATIONS_S, high) + 1
    ticks = _DURATIONS_S[max(0, first) : after]
    axes.set_yscale("log")
    axes.set_ylim(min(ticks[0], low), max(ticks[-1], high))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(FixedLocator(ticks[:: -(-len(ticks) // 6)].tolist()))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration_text(value)))


def _from_zero(axes: Axes, highest: float) -> None:
    axes.set_ylim(0, highest * 1.08 or 1)
    if highest < 2:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=3))


def _moment(axis: Axis, at: int) -> str:
    return time_text(axis.start_us + at * axis.step_us)


def _interval(axis: Axis) -> str:
    return "a minute" if axis.step_us == 60_000_000 else duration_text(axis.step_us / 1e6)
