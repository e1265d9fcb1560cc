"""Python's garbage collector in Spark's worker processes, where it costs more than it finds.

- PySpark's worker makes a full collection after each task. It looks at all that the process has ever imported, about a
  hundred thousand objects, and takes 55 ms, which was a tenth of a worker's time in a stream whose tasks drain 50,000
  messages each. What is imported stays for good, so it is taken out of all later collections (`spare_imports`).
- What a task drains stays alive until it is published. A collection meanwhile would look at all of it and find nothing
  (`collector_paused`).
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from functools import cache

from pyspark import TaskContext


def spare_imports() -> None:
    """Take all objects that there are now out of later collections, once in a process, if this is a Spark task. For the
    beginning of a task: what it needs is imported, and it has made nothing."""
    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    gc.freeze()


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic garbage collection for the time of one drain; that was half the time. What a part may hold is
    bounded."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
