"""Says whether an input that a search came upon breaks its target, and by what.

A search measures time by the clock, and a machine that stands still for ten seconds (a virtual one may) makes any input
look slow. So what it found to be slow is run once more, by the time that a processor gives it.
"""

from __future__ import annotations

import os
import resource
import traceback
from pathlib import Path
from typing import Final

from tests.fuzz.target import Target, TooLaborious, check

SLOW_S: Final = 10
"""Of a processor, for one input: as many as libFuzzer asks for by the clock (``-report_slow_units``)."""
BY_THE_CLOCK: Final = ("slow-unit-", "timeout-")
"""Kinds of finds, as libFuzzer names their files, that depend on what else the machine did."""


def fault(target: Target, data: bytes) -> str | None:
    """What is wrong with how a target takes an input: the kind of it and the place, for comparing; None: nothing is."""
    try:
        check(target, data)
    except (Exception, TooLaborious) as error:
        place = traceback.extract_tb(error.__traceback__)[-1] if not isinstance(error, TooLaborious) else None
        return f"{type(error).__name__}{f' in {Path(place.filename).name}:{place.name}' if place else ''}"
    return None


def is_slow(target: Target, data: bytes, slow_s: int = SLOW_S) -> bool:
    """Whether an input takes so many seconds of a processor, in a process that can be ended in the midst of it."""
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (slow_s, slow_s))
        try:
            fault(target, data)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def verdict(target: Target, data: bytes, kind: str) -> str | None:
    """What is wrong with an input that a search left in a file of this kind; None: nothing, the machine was slow."""
    if kind.startswith(BY_THE_CLOCK):
        return f"takes more than {SLOW_S} s" if is_slow(target, data) else fault(target, data)
    return fault(target, data) or f"{kind.partition('-')[0]}, in the search alone"
