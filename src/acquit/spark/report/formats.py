"""Numbers, durations and times as people read them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Final

_SCALES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_DURATIONS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_SPACE: Final = "\N{NO-BREAK SPACE}"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def count_text(count: int | None) -> str:
    """A count in full, thousands set apart; a dash for an unknown one."""
    return "–" if count is None else f"{count:,}".replace("-", "−")


def short_count(value: float) -> str:
    """For an axis: three digits and a scale."""
    for scale, letter in _SCALES:
        if abs(value) >= scale:
            return f"{value / scale:.3g}{letter}"
    return f"{value:.3g}"


def rate_text(per_s: float) -> str:
    """Of messages."""
    return f"{per_s:,.0f}/s" if per_s >= 10 else f"{per_s:.2g}/s"


def duration_text(seconds: float | None) -> str:
    """With three digits, in the unit in which it is at least 1; a dash for none."""
    if seconds is None or math.isnan(seconds):
        return "–"
    for unit_s, name in _DURATIONS:
        if seconds >= unit_s * 0.9995:
            value = seconds / unit_s
            return f"{value:,.0f}{_SPACE}{name}" if value >= 100 else f"{value:.3g}{_SPACE}{name}"
    return f"0{_SPACE}s" if seconds <= 0 else f"<1{_SPACE}µs"


def time_text(time_us: int | None, *, exact: bool = False) -> str:
    """In UTC, to the minute or `exact` to the millisecond; microseconds where no calendar has it; a dash for none."""
    if time_us is None:
        return "–"
    try:
        moment = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return f"{time_us} µs"
    if exact:
        return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}"
    return f"{moment:%Y-%m-%d %H:%M}"


def name_of(column: str) -> str:
    """A column of counts, or a kind of event, as people call it."""
    return column.lower().replace("dead_lettered", "dead-lettered").replace("_", " ")


def plural(count: int, one: str, many: str) -> str:
    """A count with its noun."""
    return f"{count_text(count)} {one if count == 1 else many}"
