"""The `acquit` command: parse, call, print.

Nothing is decided here. Each command is a module that reads its arguments, calls the library as any program would, and
prints; `app` finds the commands and turns what goes wrong into one readable line and an exit code (`exits`). Commands
are loaded when they are used, and Spark, the demo and the broker only by the command that needs them, so that
`acquit send` in a shell loop starts quickly.
"""

from __future__ import annotations

import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    from acquit.cli.app import run

    sys.exit(run(sys.argv[1:]))
