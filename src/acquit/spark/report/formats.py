"""Numbers, durations and times as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np

_SCALES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (0.0, ""))
_DURATIONS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_SPACE: Final = "\N{NO-BREAK SPACE}"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RANGES_MAX: Final = 8


def count_text(count: int | None) -> str:
    """Return a count in full, thousands set apart; a dash for an unknown one."""
    return "–" if count is None else f"{count:,}".replace("-", "−")


def short_count(value: float) -> str:
    """Return a count for an axis: three digits and a scale."""
    scale, letter = next(each for each in _SCALES if abs(value) >= each[0])
    return f"{value / (scale or 1):.3g}{letter}"


def rate_text(per_s: float) -> str:
    """Return a rate of messages."""
    return f"{per_s:,.0f}/s" if per_s >= 10 else f"{per_s:.2g}/s"


def duration_text(seconds: float | None) -> str:
    """Return a duration with three digits, in the unit in which it is at least 1; a dash for none."""
    if seconds is None or math.isnan(seconds):
        return "–"
    for unit_s, name in _DURATIONS:
        if seconds >= unit_s * 0.9995:
            value = seconds / unit_s
            return f"{value:,.0f}{_SPACE}{name}" if value >= 100 else f"{value:.3g}{_SPACE}{name}"
    return f"0{_SPACE}s" if seconds <= 0 else f"<1{_SPACE}µs"


def time_text(time_us: int | None, *, exact: bool = False) -> str:
    """Return a time in UTC, to the minute or `exact` to the millisecond; microseconds where no calendar has it; a dash
    for none."""
    if time_us is None:
        return "–"
    try:
        moment = (_EPOCH + timedelta(microseconds=time_us)).replace(tzinfo=None)
    except OverflowError:
        return f"{time_us} µs"
    return moment.isoformat(" ", "milliseconds" if exact else "minutes")


def ranges_text(numbers: Sequence[int] | None) -> str:
    """Return numbers as ranges, at most eight of them; "" for none."""
    ordered = np.sort(np.array(numbers or [], np.int64))
    runs = np.split(ordered, np.flatnonzero(np.diff(ordered) != 1) + 1) if len(ordered) else []
    shown = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs[:_RANGES_MAX])
    return f"{shown} and {len(runs) - _RANGES_MAX} more ranges" if len(runs) > _RANGES_MAX else shown


def name_of(column: str) -> str:
    """Return a column of counts, or a kind of event, as people call it."""
    return column.lower().replace("dead_lettered", "dead-lettered").replace("_", " ")


def plural(count: int, one: str, many: str) -> str:
    """Return a count with its noun."""
    return f"{count_text(count)} {one if count == 1 else many}"
