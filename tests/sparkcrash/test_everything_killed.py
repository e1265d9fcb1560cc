"""Whole programs, killed with -9 at one point after the other, on one checkpoint: the session, or everything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sparkcrash.pipelines import BATCH, Chain, Pipeline, Queue
from tests.support.crashing import CLEANING, TABLE, TASK, arm, passed

pytestmark = pytest.mark.promise("once-in-a-table")


def points_of(chain: Chain) -> list[str]:
    """All; but the Parquet sink commits in the JVM, and the last that can be seen before it is that a part gave all its
    rows. How the clean-up dies has nothing to do with the broker: each chain of a round has half of that."""
    sink = [point for point in TABLE if chain.kind == "delta" or point != "table-committing"]
    return [*TASK, *sink, *CLEANING[(chain.kind == "delta") :: 2]]


def test_every_point(chain: Chain, queue_at: Callable[[str], Queue], tmp_path: Path) -> None:
    pipeline = Pipeline(queue_at(chain.broker), tmp_path, kind=chain.kind, streaming=False)
    for place, point in enumerate(points_of(chain)):
        pipeline.post(3 * BATCH)
        # Without its JVM the program must come to an end by itself. By pairs, for the trigger changes each time.
        ending = ("executor", "everything")[(place // 2 + chain.number) % 2]
        pipeline.killed_at(point, ending, streaming=place % 2 == chain.streaming_at)
    pipeline.finish()


@pytest.mark.parametrize(
    ("mutant", "point", "ending", "what"),
    [
        ("settles first", "publishing", "worker", "lost"),
        ("forgets", "published", "worker", "doubled"),
        ("does not ask the table", "table-committed", "everything", "doubled"),
    ],
)
def test_a_protection_that_is_missing_is_missed(
    mutant: str, point: str, ending: str, what: str, queue_at: Callable[[str], Queue], tmp_path: Path
) -> None:
    pipeline = Pipeline(queue_at("acquit"), tmp_path, kind="delta", streaming=False)
    pipeline.post(2 * BATCH)
    arm(pipeline.work, point, ending)
    run = pipeline.run(mutant=mutant)
    assert passed(pipeline.work, point)
    if ending == "everything":
        assert run.status != 0
        run = pipeline.run(mutant=mutant)
    assert run.status == 0, run.said
    assert getattr(pipeline.account, what), f"a pipeline that {mutant} is not told from one that is right"
