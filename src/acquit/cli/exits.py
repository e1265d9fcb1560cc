"""Exit codes that scripts can use, and which failure gets which.

======  ==============================================================================================================
0       done: everything that was asked for happened
1       it did not, or not all of it: a message was not accepted, fewer came than were asked for, access was refused
2       the command line, the configuration or the input is wrong: trying again will not help
3       no broker answered, or it was lost: trying again may help
4       the journal or a spool is damaged, or a balance does not hold
5       the broker answers, and refuses messages for want of room (`acquit health`)
130     interrupted (Ctrl-C, SIGTERM or SIGHUP)
======  ==============================================================================================================
"""

from __future__ import annotations

import os
from enum import IntEnum
from typing import Final

from acquit import errors


class Exit(IntEnum):
    """The exit codes of commands; see the module's table."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    UNSOUND = 4
    REFUSING = 5
    INTERRUPTED = 130


# The first class that fits decides, so the special stands before the general.
TABLE: tuple[tuple[type[Exception], Exit], ...] = (
    (errors.ConfigurationError, Exit.USAGE),
    (errors.EncodeError, Exit.USAGE),
    (errors.StoreMissing, Exit.USAGE),
    (errors.AuthenticationFailed, Exit.FAILED),
    (errors.ConnectionFailed, Exit.UNREACHABLE),
    (errors.StoreCorrupt, Exit.UNSOUND),
    (errors.StoreUnbalanced, Exit.UNSOUND),
    (errors.SpoolDamaged, Exit.UNSOUND),
    (errors.AcquitError, Exit.FAILED),
    (ConnectionError, Exit.UNREACHABLE),
    (OSError, Exit.FAILED),
)


NO_THREAD: Final = "can't start new thread"
"""Text of the RuntimeError that says so and nothing else."""


def _spent(error: Exception) -> str:
    """Return what the machine, or a limit of it, had no more of, as people read it; empty for another failure."""
    if isinstance(error, MemoryError):
        return "out of memory: the machine, its container or ulimit -v lends no more"
    if isinstance(error, RuntimeError) and str(error) == NO_THREAD:
        return "no more threads: raise the limit of processes (ulimit -u, TasksMax=, --pids-limit) or of memory"
    return ""


def exit_of(error: Exception) -> Exit | None:
    """The exit code of a failure; None for one that is a defect of ours and deserves its traceback.

    A pipeline that failed has the code of what made it fail, where that is known."""
    if _spent(error):
        return Exit.FAILED
    if isinstance(error, errors.PipelineFailed) and isinstance(error.__cause__, errors.AcquitError):
        return exit_of(error.__cause__)
    for kind, code in TABLE:
        if isinstance(error, kind):
            return code
    return None


def _of_file(error: Exception) -> str:
    """Return what the system says of a file, without its number for that; empty for another failure."""
    if not isinstance(error, OSError) or not isinstance(error.filename, str | bytes):
        return ""
    files = [os.fsdecode(name) for name in (error.filename, error.filename2) if name is not None]
    return f"{' to '.join(files)}: {error.strerror}"


def one_line(error: Exception) -> str:
    """The failure as one readable line, with the peer's condition where it gave one that the text lacks."""
    text = " ".join((_spent(error) or _of_file(error) or str(error)).split()) or type(error).__name__
    condition = getattr(error, "condition", None)
    if condition and condition not in text:
        text = f"{text} ({condition})"
    return text
