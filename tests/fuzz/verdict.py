"""Says whether an input that a search came upon breaks its target, and by what.

A search measures time by the clock, and a machine that stands still for ten seconds (a virtual one may) makes any input
look slow. So what it found to be slow is run once more, by the time that a processor gives it.
"""

from __future__ import annotations

import os
import resource
import signal
import traceback
from pathlib import Path
from typing import Final

from tests.fuzz.target import Target, TooLaborious, check

SLOW_S: Final = 10
"""Of a processor, for one input: as many as libFuzzer asks for by the clock (``-report_slow_units``)."""
BLOCKED_FACTOR: Final = 60
"""Times as long by the clock, an input that takes no processor waits for something that does not come."""
GOES_ON: Final = "slow-unit-"
"""Kind of find after which the search goes on."""
BY_THE_CLOCK: Final = (GOES_ON, "timeout-")
"""Kinds of finds, as libFuzzer names their files, that depend on what else the machine did."""


def fault(target: Target, data: bytes) -> str | None:
    """What is wrong with how a target takes an input: the kind of it and the place, for comparing; None: nothing is."""
    try:
        check(target, data)
    except (Exception, TooLaborious) as error:
        place = traceback.extract_tb(error.__traceback__)[-1] if not isinstance(error, TooLaborious) else None
        return f"{type(error).__name__}{f' in {Path(place.filename).name}:{place.name}' if place else ''}"
    return None


def slowness(target: Target, data: bytes, slow_s: int = SLOW_S) -> str | None:
    """What is wrong with how long an input takes, by a processor's time, in a process that can be ended in the midst of
    it; None: nothing."""
    child = os.fork()
    if not child:
        for number in (signal.SIGXCPU, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (slow_s, slow_s + 1))
        signal.alarm(BLOCKED_FACTOR * slow_s)
        try:
            fault(target, data)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        return None
    by = signal.Signals(os.WTERMSIG(status))
    if by is signal.SIGXCPU:
        return f"takes more than {slow_s} s"
    return "waits for something" if by is signal.SIGALRM else f"ends its process by {by.name}"


def verdict(target: Target, data: bytes, kind: str) -> str | None:
    """What is wrong with an input that a search left in a file of this kind; None: nothing, the machine was slow."""
    if kind.startswith(BY_THE_CLOCK):
        return slowness(target, data) or fault(target, data)
    return fault(target, data) or f"{kind.partition('-')[0]}, in the search alone"
