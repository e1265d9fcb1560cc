"""Signals that come at each place where Python looks for them."""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Callable
from types import FrameType


def signalled_at_each_call(work: Callable[[], object], action: Callable[[], object]) -> None:
    """Do `work` again and again, and have a handler of a signal do `action` meanwhile, each time one call later: as a
    function begins and behind a call of C, where Python looks for signals. (Before a call of C it does not: a lock that
    ``with`` is about to release would stay taken for ever, if the handler raised.)"""
    before = signal.signal(signal.SIGUSR1, lambda *_: action())
    try:
        for number in itertools.count():
            calls = 0

            def trace(frame: FrameType, event: str, argument: object, last: int = number) -> None:
                nonlocal calls
                calls += event in ("call", "c_return")
                if event in ("call", "c_return") and calls == last:
                    signal.raise_signal(signal.SIGUSR1)

            sys.setprofile(trace)
            try:
                work()
            finally:
                sys.setprofile(None)
            if calls < number:
                assert number > 10
                return
    finally:
        signal.signal(signal.SIGUSR1, before)


def interrupted_at_each_call(work: Callable[[], object], after: Callable[[], object]) -> None:
    """Do `work` again and again, interrupted one call later each time, and `after` behind it, which nothing
    interrupts."""
    working = False

    def interrupt() -> None:
        if working:
            raise KeyboardInterrupt

    def work_and_look() -> None:
        nonlocal working
        try:
            working = True
            work()
            working = False
        except KeyboardInterrupt:
            working = False
        after()

    signalled_at_each_call(work_and_look, interrupt)
