"""Records the system calls of a real process from outside, with strace, and makes them fail where a test asks.

A trace is a list of moments: a call begins, or a call ends with a result. Threads overlap, so other moments may lie
between the two. What a call was given is known when it begins; what it did is certain only when it has ended.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import pytest

FILES: Final = (
    *("openat", "write", "pwrite64", "writev", "pwritev", "pwritev2", "fsync", "fdatasync", "sync_file_range"),
    *("ftruncate", "truncate", "fallocate", "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "mkdir"),
    *("mkdirat", "link", "linkat", "symlink", "symlinkat", "copy_file_range", "sendfile", "mmap", "open", "creat"),
)
"""Every call that can change a file or a name."""
SOCKETS: Final = ("sendto", "recvfrom")
"""What carries the bytes of a connection: an event loop of Python has no other."""
_STRING_BYTES_MAX: Final = 8 << 20
END_TIMEOUT_S: Final = 60.0

_LINE = re.compile(r"(\d+) +(.*)")
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>(.*)")
_NUMBER = re.compile(r"-?\d+")
_UNFINISHED: Final = "<unfinished ...>"


@dataclass(eq=False, slots=True)
class Call:
    """One system call of one thread."""

    name: str
    arguments: str
    """As strace prints them, with all strings in hexadecimal; complete once the call has ended."""
    result: int | None = None
    """None while it has not ended, and for one whose process was killed in it."""

    def strings(self) -> list[bytes]:
        """The strings among the arguments: paths, and data."""
        return [unhex(found) for found in re.findall(r'"((?:\\x[0-9a-f]{2})*)"', self.arguments)]

    def numbers(self) -> list[int]:
        """The arguments that are plain numbers, in order."""
        plain = re.sub(r'"[^"]*"|<[^>]*>|\)', "", self.arguments)
        return [int(part) for part in plain.split(",") if part.strip().lstrip("-").isdigit()]

    @property
    def descriptor(self) -> int:
        """The first argument, of a call that has a descriptor there."""
        found = re.match(r"\d+", self.arguments)
        assert found, self.arguments[:100]
        return int(found.group())

    @property
    def of(self) -> str:
        """What the first argument, or the result of an open, is a descriptor of: a path, or `TCP:[...]`."""
        found = re.match(r"\d+<(TCP:\[[^\]]*\]|[^>]*)>", self.arguments)
        if found is None:
            return ""
        return os.fsdecode(unhex(found.group(1))) if found.group(1).startswith("\\x") else found.group(1)


@dataclass(frozen=True, slots=True)
class Moment:
    """A call begins or ends."""

    call: Call
    ends: bool


def unhex(text: str) -> bytes:
    """The bytes that strace wrote as \\xNN each."""
    return bytes.fromhex(text.replace("\\x", ""))


def moments(trace: Path) -> Iterator[Moment]:
    """What strace has written, in the order in which it happened."""
    begun: dict[str, Call] = {}
    with trace.open(encoding="ascii") as lines:
        for line in lines:
            found = _LINE.match(line.rstrip())
            assert found, line[:200]
            thread, text = found.groups()
            if text.startswith(("+++", "---")):
                continue
            if (resumed := _RESUMED.match(text)) is not None:
                call = begun.pop(thread)
                rest, _, result = resumed.group(2).rpartition(" = ")
                call.arguments += rest
            else:
                name, _, arguments = text.partition("(")
                call = Call(name, arguments.removesuffix(_UNFINISHED))
                result = ""
                if arguments.endswith(_UNFINISHED):
                    begun[thread] = call
                else:
                    call.arguments, _, result = arguments.rpartition(" = ")
                yield Moment(call, ends=False)
            if (number := _NUMBER.match(result)) is not None:
                call.result = int(number.group())
                yield Moment(call, ends=True)


def lacking(what: str) -> NoReturn:
    """The machine lacks this: the test is skipped where a developer works, and fails in CI."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is not installed")
    pytest.skip(f"{what} is not installed")


def require(program: str) -> str:
    """The path of a program of the system; see `lacking`."""
    return shutil.which(program) or lacking(program)


def recorded(trace: Path) -> list[str]:
    """What stands in front of a command, so that what it does with files and sockets is written to `trace`."""
    calls = ",".join((*FILES, *SOCKETS))
    return [
        *(require("strace"), "-f", "--seccomp-bpf", "-yy", "-xx", "-s", str(_STRING_BYTES_MAX), "-qq"),
        *("-e", f"trace={calls}", "-e", "signal=none", "-o", str(trace)),
    ]


def spoiled(log: Path, *injections: str) -> list[str]:
    """What stands in front of a command whose calls are to fail as strace's `inject=` describes; those go to `log`."""
    calls = sorted({name for one in injections for name in one.partition(":")[0].split(",")})
    return [
        *(require("strace"), "-f", "--seccomp-bpf", "-y", "-s", "0", "-qq", "-o", str(log)),
        *("-e", f"trace={','.join(calls)}", "-e", "signal=none"),
        *(part for one in injections for part in ("-e", f"inject={one}")),
    ]


class Traced:
    """A process below strace, or without a prefix by itself. Signals are for the process; the end is that of both."""

    def __init__(self, prefix: Sequence[str], arguments: Sequence[str], log: Path) -> None:
        with log.open("ab") as stderr:
            self._strace = subprocess.Popen(
                [*prefix, sys.executable, *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True
            )
        self._below = bool(prefix)
        assert self._strace.stdout is not None
        self.stdout = self._strace.stdout

    @property
    def pid(self) -> int:
        """Of the process itself."""
        if not self._below:
            return self._strace.pid
        children = Path(f"/proc/{self._strace.pid}/task/{self._strace.pid}/children")
        while self._strace.poll() is None:
            if found := children.read_text().split():
                return int(found[0])
            time.sleep(0.001)
        raise ProcessLookupError(self._strace.pid)

    def signal(self, number: int) -> None:
        """Send it to the process; one that has ended takes none."""
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(self.pid, number)

    def wait(self, timeout_s: float = END_TIMEOUT_S) -> int:
        """Until it has ended and all is written down. Returns the exit status of the process."""
        status = self._strace.wait(timeout_s)
        self.stdout.close()
        return status

    def end(self) -> None:
        """Kill it, if it is still there."""
        if self._strace.poll() is None:
            self.signal(9)
            with suppress(subprocess.TimeoutExpired):
                self._strace.wait(END_TIMEOUT_S)
            self._strace.kill()
        self._strace.wait()
        self.stdout.close()


__all__ = ["Call", "Moment", "Traced", "lacking", "moments", "recorded", "require", "spoiled"]
