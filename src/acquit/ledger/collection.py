"""Python's garbage collector, held off while much is made that stays, and nothing of it is garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Make objects and no cycle, as many as are bounded elsewhere: to look for cycles among them again and again took a
    third of the time of a recovery, and half of that of a Spark task."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
