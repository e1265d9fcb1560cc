"""Forked children of a test: real ones, which are gone when it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import traceback
from collections.abc import Callable, Iterator
from typing import Final

import pytest

FORKING: Final = pytest.mark.filterwarnings(
    # Python warns of forking with threads about; that it is done safely here is what is tested.
    "ignore:.*use of fork.*:DeprecationWarning"
)


PATIENCE_S: Final = 60.0
"""Seconds after which a child that hangs is ended."""


def fork_unnoticed() -> int:
    """Fork as a library does that is not Python's: nothing that was registered for it is called."""
    fork: Callable[[], int] = ctypes.PyDLL(None).fork  # which keeps the interpreter's lock
    return fork()


def in_child(check: Callable[[], object], fork: Callable[[], int] = os.fork) -> None:
    """Run `check` in a forked child and pass on what it raises, as text."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        try:
            os.close(reading)
            check()
            os.write(writing, b"fine")
        except BaseException:
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        if not select.select([pipe], [], [], PATIENCE_S)[0]:
            os.kill(child, signal.SIGKILL)
        said = pipe.read().decode()
    os.waitpid(child, 0)
    assert said == "fine", said


@contextlib.contextmanager
def child_that_lives(fork: Callable[[], int] = os.fork) -> Iterator[None]:
    """Have a forked child, which does nothing, to the end of the block."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        try:
            os.close(writing)
            os.read(reading, 1)  # until the test ends, however that ends
        finally:
            os._exit(0)
    os.close(reading)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(writing)
