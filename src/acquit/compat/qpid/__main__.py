"""Run a program that was written for ``qpid.messaging``: ``python -m acquit.compat.qpid program.py arguments``."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from acquit.compat.qpid.installing import install
from acquit.errors import ConfigurationError

USAGE = "usage: python -m acquit.compat.qpid PROGRAM [ARGUMENTS...]"


def main(arguments: list[str]) -> str | int:
    """Run the program that `arguments` begins with. Returns what to exit with where it cannot be run."""
    if not arguments or arguments[0] in ("-h", "--help"):
        return USAGE
    try:
        install()
    except ConfigurationError as exc:
        return f"error: {exc}"
    program = Path(arguments[0])
    if not program.is_file():
        return f"error: there is no program {arguments[0]!r}; {USAGE}"
    sys.argv = arguments
    sys.path[0] = str(program.resolve().parent)
    runpy.run_path(str(program), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
