from __future__ import annotations

from rich.progress import Progress

from acquit.demo import stage
from acquit.demo.chaos import Tally


def test_the_table_is_full_when_it_has_all_that_is_not_dead_lettered() -> None:
    progress = Progress(disable=True)
    watched = stage._Watched(progress, files=3)
    tally = Tally()
    tally.posted, tally.stored = 3, 2
    tally.forwarded |= {"a", "b"}
    tally.rejected |= {"c"}
    watched.progress(tally)
    assert [(task.completed, task.total) for task in progress.tasks] == [(3, 3), (3, 3), (2, 2)]
