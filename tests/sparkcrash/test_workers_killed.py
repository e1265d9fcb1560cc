"""Workers alone, killed with -9 at each point that a task passes, in one session for all of them.

Spark tries the task again: `local[2,4]`, for `local[2]` never does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.sparkcrash.pipelines import BATCH, Pipeline, Queue, Way
from tests.support.crashing import PYTHONPATH, TASK, arm, passed
from tests.support.spark_program import QUICK, run

pytestmark = pytest.mark.promise("once-in-a-table")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from acquit.spark.session import start_session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PYTHONPATH)
        patch.setenv("JDK_JAVA_OPTIONS", QUICK)
        session = start_session(master="local[2,4]", memory_mb=512, log_level="OFF")
        yield session
        session.stop()


def test_every_point_of_a_task(way: Way, queue_at: Callable[[str], Queue], spark: SparkSession, tmp_path: Path) -> None:
    broker, kind, streaming = way
    pipeline = Pipeline(queue_at(broker), tmp_path, kind=kind, streaming=streaming)
    for epoch, point in enumerate(TASK, 1):
        arm(pipeline.work, point, "worker", epoch=epoch)
    pipeline.post((len(TASK) + 1) * BATCH)
    done = threading.Event()
    watcher = threading.Thread(target=_stop_when_complete, args=(pipeline, done))
    watcher.start()
    try:
        run(pipeline.last, spark)
    finally:
        done.set()
        watcher.join()
    assert [point for point in TASK if passed(pipeline.work, point) is None] == []
    killed = {passed(pipeline.work, point) for point in TASK}
    assert len(killed) == len(TASK) and os.getpid() not in killed
    if streaming:
        # What came again at the end may not have been set aside yet.
        (pipeline.work / "stop").unlink()
        run(pipeline.unhurried, spark)
    pipeline.check()


def _stop_when_complete(pipeline: Pipeline, done: threading.Event) -> None:
    """A run with a trigger does not end by itself."""
    while not done.wait(0.2):
        if pipeline.account.holds:
            (pipeline.work / "stop").touch()
            return
