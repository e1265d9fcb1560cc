"""Whole programs, killed with -9 at one point after the other, on one checkpoint: the session, or everything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sparkcrash.pipelines import BATCH, Chain, Pipeline, Queue
from tests.support.crashing import POINTS, arm, passed


def points_of(kind: str) -> list[str]:
    """The Parquet sink commits in the JVM; the last that can be seen before it is that a part gave all its rows."""
    return [point for point in POINTS if kind == "delta" or point != "table-committing"]


def test_every_point(chain: Chain, queue_at: Callable[[str], Queue], tmp_path: Path) -> None:
    pipeline = Pipeline(queue_at(chain.broker), tmp_path, kind=chain.kind, streaming=False)
    for place, point in enumerate(points_of(chain.kind)):
        pipeline.post(3 * BATCH)
        # Without its JVM the program must come to an end by itself. By pairs, for the trigger changes each time.
        ending = ("executor", "everything")[(place // 2 + chain.number) % 2]
        pipeline.killed_at(point, ending, streaming=place % 2 == chain.streaming_at)
    pipeline.finish()


@pytest.mark.parametrize(
    ("mutant", "point", "what"),
    [
        ("settles first", "publishing", "lost"),
        ("forgets", "published", "doubled"),
        ("does not ask the table", "table-committed", "doubled"),
    ],
)
def test_a_protection_that_is_missing_is_missed(
    mutant: str, point: str, what: str, queue_at: Callable[[str], Queue], tmp_path: Path
) -> None:
    pipeline = Pipeline(queue_at("acquit"), tmp_path, kind="delta", streaming=False)
    pipeline.post(2 * BATCH)
    arm(pipeline.work, point, "everything")
    pipeline.run(mutant=mutant)
    assert passed(pipeline.work, point)
    run = pipeline.run(mutant=mutant)
    assert run.status == 0, run.said
    assert getattr(pipeline.account, what), f"a pipeline that {mutant} is not told from one that is right"
