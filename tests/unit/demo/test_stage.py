from __future__ import annotations

from rich.progress import Progress

from acquit.demo import stage
from acquit.demo.chaos import Tally


def test_the_table_is_full_when_it_has_all_that_is_not_dead_lettered() -> None:
    progress = Progress(disable=True)
    watch = stage.watch_with(progress, 3)
    tally = Tally()
    tally.add({"posted": 3, "forwarded": ["a"], "rejected": ["c"]})
    tally.add({"stored": 2, "forwarded": ["a", "b"]})
    watch(tally, None)
    assert [(task.completed, task.total) for task in progress.tasks] == [(3, 3), (3, 3), (2, 2)]
