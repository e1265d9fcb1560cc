"""The `acquit` command: parse, call, print.

Nothing is decided here. Each command is a module that reads its arguments, calls the library as any program would, and
prints; `app` finds the commands and turns what goes wrong into one readable line and an exit code (`exits`). Commands
are loaded when they are used, and Spark, the demo and the broker only by the command that needs them, so that
`acquit send` in a shell loop starts quickly.
"""

from __future__ import annotations

import gc
import signal
import sys
from typing import Final, NoReturn

__all__ = ["main"]

_YOUNG_MAX: Final = 50_000
"""Objects that are made before the garbage collector looks at them, as in the broker. With Python's own 700 it goes
through what is being imported a hundred times, for a tenth of the time of `acquit queues`."""

_INTERRUPTED: Final = 130
"""`exits.Exit.INTERRUPTED`, which an interrupted import may lack."""


def main() -> NoReturn:
    """Run the command line of this process and exit with its code. What asks a process to end interrupts the command as
    Ctrl-C does, so that it ends in order, unless it is ignored, as by ``nohup``."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    gc.set_threshold(_YOUNG_MAX)
    try:
        from acquit.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before `run` could hear of it: nothing was begun
        code = _INTERRUPTED
    gc.freeze()  # Python goes through all that there is three times as it exits, for another tenth
    sys.exit(code)
