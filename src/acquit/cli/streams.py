"""Standard input and output, where they were closed before the start, what is read is no text, or what is printed has
characters that the encoding lacks.

Python has None for a stream that was closed (``<&-``, ``>&-``): then `click.echo` says nothing to nobody, and what
reads fails with a traceback. Whether octets that are no text fail as they are read depends on the locale. Here they
never do, and stand in the text as halves of surrogate pairs, so that who looks for them can say in which line they are.
What the encoding of the output lacks is written out (``\\u20ac``): a message that cannot be printed could not be taken.

An error of standard output (its disk is full) names no file, as it was not we who opened one. All results are written
by click and rich, so it is known by where it was raised. What could not be written stays in Python's buffer, which
would try again at its exit, with lines and an exit code of its own.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from typing import Any, Final

from acquit.errors import AcquitError, ConfigurationError

WRITERS: Final = frozenset({"click", "rich"})
"""Packages that write the results of commands, and no other file."""
SILENT: Final = frozenset({"serve"})
"""Commands without a result. What a broker prints is for a script that waits for it to be ready, and here none does."""


class ClosedInput(io.RawIOBase):
    """Standard input that was closed before the start. Who reads from it hears so, in a ConfigurationError."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        raise ConfigurationError("standard input is closed: there is nothing to read, and nobody to ask")


def prepare() -> None:
    """Make the standard streams such that nothing fails for its characters; of standard input, if there is none, one
    that says so to who reads from it. A terminal that the environment gives no columns has a size that is not known:
    rich would print nothing."""
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(ClosedInput()))
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")
    if os.environ.get("COLUMNS", "").strip("0") == "":
        os.environ.pop("COLUMNS", None)


def input_text(*, hint: str = "") -> str:
    """Return all of standard input. Raises ConfigurationError, with `hint` behind it, for what is no text."""
    return _checked(sys.stdin.read(), "standard input", hint)


def input_lines(*, hint: str = "") -> Iterator[str]:
    """Yield the lines of standard input. Raises ConfigurationError, with `hint` behind it, at one that is no text."""
    for number, line in enumerate(sys.stdin, 1):
        yield _checked(line, f"line {number} of standard input", hint)


def _checked(text: str, what: str, hint: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{what} is not text in {sys.stdin.encoding}{hint}") from None
    return text


def of_output(error: Exception) -> bool:
    """True if the error was raised as results were written."""
    at = error.__traceback__
    if not isinstance(error, OSError) or error.filename is not None or at is None:
        return False
    while at.tb_next is not None:
        at = at.tb_next
    return str(at.tb_frame.f_globals.get("__name__")).partition(".")[0] in WRITERS


def discard_output() -> None:
    """Throw away what cannot be written any more, as the process is about to end."""
    for output in (sys.stdout, sys.stderr):
        if output is not None:
            try:
                output.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())


def check_output(command: str | None) -> None:
    """Raise AcquitError where `command` could tell its result to nobody."""
    if sys.stdout is None and command not in SILENT:
        raise AcquitError("standard output is closed: nobody would see the result; > /dev/null is for who needs none")
