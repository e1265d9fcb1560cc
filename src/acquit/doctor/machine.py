"""Checks of the machine: Python, event loop, open files, memory, clock."""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from acquit.broker.options import BrokerOptions
from acquit.doctor.findings import Diagnosis, ok, problem, size_text, warning
from acquit.transport import descriptors

PYTHON_MIN: Final = (3, 11)
SLOW_SELECTORS: Final = ("SelectSelector", "PollSelector")
"""Selectors that look at every connection to find the one that has something to say."""
BUILT_S: Final = 1_735_689_600
"""The beginning of 2025: a clock before it was never set."""
UNSYNCHRONISED: Final = 5
"""The state TIME_ERROR of adjtimex(2): no daemon keeps the clock right."""
CGROUP: Final = Path("/sys/fs/cgroup/memory.max")
MEMORY_SHARE: Final = 0.8
"""Part of the memory that a broker may be told to fill: the rest is for the interpreter and the page cache."""


def examine(options: BrokerOptions) -> Iterator[Diagnosis]:
    """Yield what is found of this machine, as the broker of these options would need it."""
    yield python(sys.version_info[:3], platform.python_implementation())
    yield event_loop(selector_name())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield open_files(soft, hard, options)
    yield memory(memory_bytes(), options)
    yield clock(time.time(), clock_state())


def python(version: tuple[int, ...], implementation: str) -> Diagnosis:
    """Judge the interpreter."""
    found = f"{implementation} {'.'.join(map(str, version))}"
    if version < PYTHON_MIN:
        return problem("python", found, f"take {'.'.join(map(str, PYTHON_MIN))} or newer")
    if implementation != "CPython":
        return warning("python", found, "take CPython: acquit is tested on no other")
    return ok("python", found)


def selector_name() -> str:
    """Return the class of the selector that a new event loop waits with; that of the loop where it has none."""
    loop = asyncio.new_event_loop()
    try:
        return type(getattr(loop, "_selector", loop)).__name__
    finally:
        loop.close()


def event_loop(selector: str) -> Diagnosis:
    """Judge how the event loop waits."""
    if selector in SLOW_SELECTORS:
        return warning("event loop", f"asyncio with {selector}", "run on a system with epoll or kqueue")
    return ok("event loop", f"asyncio with {selector}")


def open_files(soft: int, hard: int, options: BrokerOptions) -> Diagnosis:
    """Judge the limit of open files. The broker raises the soft one to the hard one by itself."""
    limits = options.limits
    sockets = limits.connections_max + limits.unauthenticated_max
    if options.http is not None:  # it has no more than a quarter of all
        sockets += min(options.http.connections_max, -(-sockets // 3))
    needed = descriptors.needed(sockets, options.journal.open_files_max, len(options.listen) or 1)
    if hard in (-1, resource.RLIM_INFINITY):
        return ok("open files", f"{soft:,}, and no hard limit; {needed:,} are needed")
    if hard < needed:
        return warning(
            "open files",
            f"the hard limit is {hard:,}; limits.connections_max = {limits.connections_max:,} and "
            f"unauthenticated_max = {limits.unauthenticated_max:,} need {needed:,}",
            f"set LimitNOFILE={needed} in the unit (ulimit -Hn elsewhere), or lower limits.connections_max",
        )
    return ok("open files", f"the hard limit is {hard:,}; {needed:,} are needed")


def memory_bytes() -> int:
    """Return how much memory this process may have: that of the machine, or the limit of its control group."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        text = CGROUP.read_text(encoding="ascii").strip()
    except OSError:
        return whole
    return min(whole, int(text)) if text.isdigit() else whole


def memory(there_bytes: int, options: BrokerOptions) -> Diagnosis:
    """Judge limits.memory_bytes_max by the memory that is there."""
    wanted_bytes = options.limits.memory_bytes_max
    found = f"{size_text(there_bytes)}; limits.memory_bytes_max is {size_text(wanted_bytes)}"
    if wanted_bytes > there_bytes * MEMORY_SHARE:
        advice = f"set limits.memory_bytes_max = {int(there_bytes * MEMORY_SHARE / 2)}, or give it more memory"
        return warning("memory", found, advice)
    return ok("memory", found)


def clock_state() -> int | None:
    """Return the state of the kernel's clock (adjtimex(2)); None on systems that do not tell."""
    if sys.platform != "linux":
        return None
    # struct timex is 208 bytes on every Linux; all zero, it asks and sets nothing.
    asked = ctypes.create_string_buffer(512)
    try:
        state: int = ctypes.CDLL(None).adjtimex(asked)
    except (OSError, AttributeError):
        return None
    return state if state >= 0 else None


def clock(now_s: float, state: int | None) -> Diagnosis:
    """Judge the wall clock, by which messages expire and are delivered later."""
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s))
    if now_s < BUILT_S:
        return problem("clock", f"it says {shown}", "set it: messages expire, and are scheduled, by it")
    if state is None:
        return ok("clock", f"{shown}; this system does not tell whether it is synchronised")
    if state == UNSYNCHRONISED:
        advice = "run chrony or systemd-timesyncd (in a container: on its host)"
        return warning("clock", f"{shown}, not synchronised", advice)
    return ok("clock", f"{shown}, synchronised")
