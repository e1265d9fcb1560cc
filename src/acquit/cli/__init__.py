"""The `acquit` command: parse, call, print.

Nothing is decided here. Each command is a module that reads its arguments, calls the library as any program would, and
prints; `app` finds the commands and turns what goes wrong into one readable line and an exit code (`exits`). Commands
are loaded when they are used, and Spark, the demo and the broker only by the command that needs them, so that
`acquit send` in a shell loop starts quickly.

Signals interrupt a command as Ctrl-C does: by KeyboardInterrupt, wherever Python is at that moment. In a finalizer, or
while a class is made, nobody hears of that. So `acquit serve`, which is to end when it is told to, looks at those that
came before it had handlers of its own (`early_signals`). SIGHUP, which means no end to it but that its configuration is
read again, is noted only.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Final, NoReturn

__all__ = ["STOPS", "early_signals", "main", "see_to_signals"]

STOPS: Final = (signal.SIGTERM, signal.SIGINT)
early_signals: Final[set[int]] = set()
"""Signals that have come to a broker while it was none yet."""

_YOUNG_MAX: Final = 50_000
"""Objects that are made before the garbage collector looks at them, as in the broker. With Python's own 700 it goes
through what is being imported a hundred times, for a tenth of the time of `acquit queues`."""

_INTERRUPTED: Final = 130
"""`exits.Exit.INTERRUPTED`, which an interrupted import may lack."""


def main() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    see_to_signals(sys.argv[1:])
    gc.set_threshold(_YOUNG_MAX)
    try:
        from acquit.cli.app import run
        from acquit.cli.streams import discard_output

        code = run(sys.argv[1:])
        discard_output()
    except BaseException as error:  # before `run` could hear of it: nothing was begun
        if KeyboardInterrupt not in (type(error), type(error.__cause__)):  # of which 3.11 makes others: see `run`
            raise
        code = _INTERRUPTED
    gc.freeze()  # Python goes through all that there is three times as it exits, for another tenth
    sys.exit(code)


def see_to_signals(arguments: Sequence[str]) -> None:
    """Let what asks a process to end interrupt the command of these arguments as Ctrl-C does, so that it ends in order,
    unless it is ignored, as by ``nohup``, or a SIGHUP to a broker."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    if next((one for one in arguments if not one.startswith("-")), "") == "serve":
        for number in (*STOPS, signal.SIGHUP):
            if signal.getsignal(number) is signal.default_int_handler:
                signal.signal(number, _note if number == signal.SIGHUP else _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    early_signals.add(number)
    raise KeyboardInterrupt


def _note(number: int, frame: FrameType | None) -> None:
    early_signals.add(number)
