"""Standard input and output, where they were closed before the start.

Python has None for a stream that was closed (``<&-``, ``>&-``): then `click.echo` says nothing to nobody, and what
reads fails with a traceback.
"""

from __future__ import annotations

import io
import sys
from typing import Any, Final

from acquit.errors import AcquitError, ConfigurationError

SILENT: Final = frozenset({"serve"})
"""Commands without a result. What a broker prints is for a script that waits for it to be ready, and here none does."""


class ClosedInput(io.RawIOBase):
    """Standard input that was closed before the start. Who reads from it hears so, in a ConfigurationError."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        raise ConfigurationError("standard input is closed: there is nothing to read, and nobody to ask")


def prepare() -> None:
    """Make of standard input, if there is none, one that says so to who reads from it."""
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(ClosedInput()))


def check_output(command: str | None) -> None:
    """Raise AcquitError where `command` could tell its result to nobody."""
    if sys.stdout is None and command not in SILENT:
        raise AcquitError("standard output is closed: nobody would see the result; > /dev/null is for who needs none")
