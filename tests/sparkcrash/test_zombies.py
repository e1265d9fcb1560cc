"""A machine that hangs while it holds messages, and comes back when others have long done its work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import acquit
from acquit.broker.options import BrokerOptions, ConnectionLimits
from acquit.spark.spool import FolderStore, Spool
from tests.sparkcrash.pipelines import BATCH, Pipeline, Queue, wake
from tests.support.crashing import arm, continued, passed

pytestmark = pytest.mark.promise("once-in-a-table")


def hang_and_come_back(pipeline: Pipeline, point: str, mutant: str = "") -> None:
    """A worker is stopped at `point` and its JVM killed; another run does its part, and two batches more; then the
    worker goes on, to its end."""
    pipeline.post(4 * BATCH)
    arm(pipeline.work, point, "zombie")
    run = pipeline.run(mutant=mutant)
    pid = passed(pipeline.work, point)
    assert pid and run.status != 0, run.said
    try:
        # It still holds messages, until the broker finds it silent.
        run = pipeline.run(mutant=mutant)
        assert run.status == 0, run.said
        commits = pipeline.work / "checkpoint" / "commits"
        assert len([path for path in commits.iterdir() if path.name.isdecimal()]) >= 3, "its part, and two batches more"
        assert not continued(pipeline.work, point)
    finally:
        wake(pid).wait(60)
    assert continued(pipeline.work, point)


def test_what_it_does_then_changes_nothing(
    zombie: tuple[str, str], queue_at: Callable[[str], Queue], tmp_path: Path
) -> None:
    point, kind = zombie
    pipeline = Pipeline(queue_at("acquit"), tmp_path, kind=kind, streaming=False)
    hang_and_come_back(pipeline, point)
    pipeline.finish()
    assert Spool(FolderStore(pipeline.work / "spool")).status().totals.rows == pipeline.posted


def test_without_the_fence_messages_would_be_lost(tmp_path: Path) -> None:
    """The worker keeps its messages, because neither end finds the other silent: others do its part with others."""
    patient = BrokerOptions(connection=ConnectionLimits(idle_timeout_ms=3_600_000))
    with acquit.Broker(config=patient) as broker:
        pipeline = Pipeline(Queue(url=broker.url, address="orders"), tmp_path, kind="delta", streaming=False)
        hang_and_come_back(pipeline, "publishing", "is not fenced")
        # They are settled, and in nobody's table.
        assert pipeline.account.lost and pipeline.queue.left() == []
