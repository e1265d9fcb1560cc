"""What worker processes have imported is spared: where, and when."""

from __future__ import annotations

import gc
import itertools

import pytest
from pyspark import TaskContext

from acquit.spark import collector
from acquit.spark.collector import spare_imports


def test_imports_are_spared_in_the_second_spark_task_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(collector, "_tasks", itertools.count(1))
    for task in range(1, 5):
        monkeypatch.setattr(gc, "freeze", lambda task=task: frozen.append(task))
        spare_imports()
        with monkeypatch.context() as patch:
            patch.setattr(TaskContext, "get", object)
            spare_imports()
    assert frozen == [2], "outside of tasks nothing is counted or done"
