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

pytestmark = pytest.mark.promise("once-in-a-table")

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
    run = pipeline.start_last()
    run.wait()
    assert run.status == 0, run.said
    assert [point for point in ENDINGS if passed(pipeline.work, point) is None] == []
    removed = [event for event in events(tmp_path / "events") if event["Event"] == "SparkListenerExecutorRemoved"]
    assert len(removed) >= list(ENDINGS.values()).count("executor")
    pipeline.check()


def test_a_stopped_worker_is_overtaken_by_a_speculative_copy_and_goes_on_two_batches_later(
    queue_at: Callable[[str], Queue], tmp_path: Path, cluster: StandaloneCluster
) -> None:
    pipeline = Pipeline(queue_at("acquit"), tmp_path, kind="delta", streaming=True, **on(cluster, tmp_path))
    run = pipeline.start_last()
    stopped: list[psutil.Process] = []
    try:
        for point in ("drained", "data-written"):
            arm(pipeline.work, point, "stop")
            pipeline.post(5 * BATCH)
            run.wait_until(lambda point=point: passed(pipeline.work, point) is not None)  # type: ignore[misc]
            pid = passed(pipeline.work, point)
            assert pid is not None
            stopped.append(psutil.Process(pid))
            before = pipeline.batches
            # Its own batch, which the copy brings to an end, and two more.
            run.wait_until(lambda before=before: pipeline.batches >= before + 3)  # type: ignore[misc]
            assert not continued(pipeline.work, point)
            wake(pid).wait(60)
            assert continued(pipeline.work, point)
            run.wait_until(lambda: pipeline.account.holds)
    finally:
        (pipeline.work / "stop").touch()
        run.wait()
        for process in stopped:
            if process.is_running():
                process.kill()
    assert run.status == 0, run.said
    started = [
        event["Task Info"] for event in events(tmp_path / "events") if event["Event"] == "SparkListenerTaskStart"
    ]
    speculative = [info for info in started if info["Speculative"]]  # type: ignore[index]
    assert len(speculative) >= len(stopped), "there was no speculative attempt"
    pipeline.check()
