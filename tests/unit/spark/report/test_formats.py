from __future__ import annotations

from collections.abc import Sequence

import pytest

from acquit.spark.report.formats import count_text, duration_text, ranges_text, rate_text, short_count, time_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0.0, "0 s"),
        (5e-7, "<1 µs"),
        (1.5e-6, "1.5 µs"),
        (0.0123456, "12.3 ms"),
        (0.9999999, "1 s"),
        (59.0, "59 s"),
        (90.0, "1.5 min"),
        (7_200.0, "2 h"),
        (86_400.0 * 1234, "1,234 d"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration_text(seconds).replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (950, "950"), (1_500, "1.5k"), (2e6, "2M"), (-3e9, "-3G")])
def test_short_counts(value: float, text: str) -> None:
    assert short_count(value) == text


def test_counts_and_rates() -> None:
    assert [count_text(count) for count in (None, 0, 1_234_567, -17)] == ["–", "0", "1,234,567", "−17"]
    assert [rate_text(rate) for rate in (0.123, 12.3, 40_000.0)] == ["0.12/s", "12/s", "40,000/s"]


def test_times_that_no_calendar_has() -> None:
    assert time_text(None) == "–"
    assert time_text(1_772_604_000_000_000) == "2026-03-04 06:00"
    assert time_text(1_772_604_000_123_456, exact=True) == "2026-03-04 06:00:00.123"
    assert time_text(1 << 62) == f"{1 << 62} µs"


@pytest.mark.parametrize(
    ("numbers", "text"),
    [(None, ""), ([7, 4, 5], "4–5, 7"), (range(0, 20, 2), "0, 2, 4, 6, 8, 10, 12, 14 and 2 more ranges")],
)
def test_ranges(numbers: Sequence[int] | None, text: str) -> None:
    assert ranges_text(numbers) == text
