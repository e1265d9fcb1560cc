"""A standalone cluster with two hosts: workers and executors are killed with -9 while they read and write, and stopped
while Spark runs a second copy of what they do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.sparkcrash.pipelines import BATCH, Pipeline, Queue, wake
from tests.support.cluster import APPLICATION, StandaloneCluster, event_log, events
from tests.support.crashing import PYTHONPATH, arm, continued, passed

ENDINGS = {
    # While the part is read:
    "drained": "executor",
    "data-written": "worker",
    "publishing": "executor",
    "published": "worker",
    "settled": "executor",
    # While the sink writes it:
    "yielded": "executor",
}


def on(cluster: StandaloneCluster, folder: Path) -> dict[str, Any]:
    """A job on it."""
    # A stopped Python worker is left alone for the time of the test.
    patience = {"spark.python.task.killTimeout": "600s", "spark.executorEnv.PYTHONPATH": PYTHONPATH}
    settings = {**APPLICATION, **patience, **event_log(folder / "events")}
    return {"master": cluster.url, "settings": settings}


@pytest.mark.parametrize(("place", "kind"), [("acquit", "delta"), ("artemis", "parquet")])
def test_executors_and_workers_are_killed(
    place: str, kind: str, queue_at: Callable[[str], Queue], tmp_path: Path, cluster: StandaloneCluster
) -> None:
    pipeline = Pipeline(queue_at(place), tmp_path, kind=kind, streaming=False, **on(cluster, tmp_path))
    for epoch, (point, ending) in enumerate(ENDINGS.items(), 1):
        arm(pipeline.work, point, ending, epoch=epoch)
    pipeline.post((len(ENDINGS) + 1) * BATCH)
    run = pipeline.run()
    assert run.status == 0, run.said
    assert [point for point in ENDINGS if passed(pipeline.work, point) is None] == []
    removed = [event for event in events(tmp_path / "events") if event["Event"] == "SparkListenerExecutorRemoved"]
    assert len(removed) >= list(ENDINGS.values()).count("executor")
    pipeline.check()


@pytest.mark.parametrize("point", ["drained", "data-written"])
def test_a_stopped_worker_is_overtaken_by_a_speculative_copy_and_goes_on_two_batches_later(
    point: str, queue_at: Callable[[str], Queue], tmp_path: Path, cluster: StandaloneCluster
) -> None:
    pipeline = Pipeline(queue_at("acquit"), tmp_path, kind="delta", streaming=True, **on(cluster, tmp_path))
    pipeline.post(5 * BATCH)
    arm(pipeline.work, point, "stop", epoch=2)
    run = pipeline.start()
    stopped: psutil.Process | None = None
    try:
        run.wait_until(lambda: passed(pipeline.work, point) is not None)
        before = pipeline.batches
        # Its own batch, which the copy brings to an end, and two more.
        run.wait_until(lambda: pipeline.batches >= before + 3)
        assert not continued(pipeline.work, point)
        pid = passed(pipeline.work, point)
        assert pid is not None
        stopped = wake(pid)
        stopped.wait(60)
        assert continued(pipeline.work, point)
        pipeline.post(BATCH)
        run.wait_until(lambda: pipeline.account.holds)
    finally:
        (pipeline.work / "stop").touch()
        run.wait()
        if stopped is not None and stopped.is_running():
            stopped.kill()
    assert run.status == 0, run.said
    started = [
        event["Task Info"] for event in events(tmp_path / "events") if event["Event"] == "SparkListenerTaskStart"
    ]
    assert any(info["Speculative"] for info in started), "there was no speculative attempt"  # type: ignore[index]
    (pipeline.work / "stop").unlink()
    pipeline.finish()
