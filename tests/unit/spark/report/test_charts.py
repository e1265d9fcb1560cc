from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from acquit.spark.report import charts
from acquit.spark.report.series import Axis, Minutes, Series
from tests.support.audit_tables import BROKER, minute, table

AXIS = Axis(0, 60_000_000, 3)


def series(*rows: dict[str, object], live: int = 0) -> Series:
    found = Minutes(table("minutes", rows)).queue(BROKER, "orders", live)
    assert found is not None
    return found


def test_a_queue_that_was_emptied_in_the_last_interval_is_drawn_empty_at_the_end() -> None:
    axes = Figure().add_subplot()
    charts._area(axes, AXIS, charts._Drawn(("depth",), (np.array([0, 9, 9]),)), last=2)
    (end,) = axes.lines
    assert list(end.get_ydata()) == [9, 2]  # type: ignore[arg-type]
    assert len(set(end.get_xdata())) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("modified", "said"),
    [
        (0, "3 released, 0 modified; 3 handed out again."),
        (2, "3 released, 2 modified (most of these after a failed attempt); 3 handed out again."),
    ],
)
def test_failed_attempts_are_spoken_of_where_there_may_be_some(modified: int, said: str) -> None:
    chart = charts._redeliveries(series(minute(0, released=3, modified=modified, redelivered=3)), "again")
    assert chart.summary == said
