"""The garbage collector of worker processes: what is spared, where, and how often."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from pyspark import TaskContext

from acquit.spark import collector
from acquit.spark.collector import collector_paused, spare_imports


@pytest.fixture
def freezes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[None]]:
    found: list[None] = []
    monkeypatch.setattr(gc, "freeze", lambda: found.append(None))
    collector._freeze.cache_clear()
    yield found
    collector._freeze.cache_clear()


def test_imports_are_spared_once_and_in_a_spark_task_alone(
    freezes: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    spare_imports()
    assert not freezes, "this process is somebody's program"
    monkeypatch.setattr(TaskContext, "get", object)
    for _ in range(3):
        spare_imports()
    assert len(freezes) == 1


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_paused_and_left_as_it_was(enabled: bool) -> None:
    if not enabled:
        gc.disable()
    try:
        with collector_paused():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
