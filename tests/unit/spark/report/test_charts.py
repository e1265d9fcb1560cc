from __future__ import annotations

import re

import pandas as pd
import pytest
from matplotlib.figure import Figure

from acquit.spark.report import charts
from acquit.spark.report.series import Axis, Minutes
from tests.support.audit_tables import BROKER, minute, table


def test_a_queue_that_was_emptied_in_the_last_interval_is_drawn_empty_at_the_end() -> None:
    axes = Figure().add_subplot()
    charts._area(axes, Axis(0, 60_000_000, 3).edges, pd.DataFrame([0, 9, 9, 2]))
    (line,) = axes.lines
    assert list(line.get_ydata()) == [0, 9, 9, 2]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("modified", "said"),
    [
        (0, "3 released, 0 modified; 3 handed out again."),
        (2, "3 released, 2 modified (most of these after a failed attempt); 3 handed out again."),
    ],
)
def test_failed_attempts_are_spoken_of_where_there_may_be_some(modified: int, said: str) -> None:
    rows = [minute(0, released=3, modified=modified, redelivered=3)]
    series = Minutes(table("minutes", rows)).series((BROKER, "orders"), 0)
    assert series is not None
    assert charts._redeliveries(series).summary == said


def test_what_an_axis_says_is_not_shortened_as_its_coordinates_are() -> None:
    series = Minutes(table("minutes", [minute(0, posted=3), minute(9, posted=1)])).series((BROKER, "orders"), 0)
    assert series is not None
    picture = charts._rates(series).picture
    assert picture is not None
    assert ">0.02</text>" in picture
    assert not re.search(r'[ "(]-?\d+\.\d{2}', picture)
