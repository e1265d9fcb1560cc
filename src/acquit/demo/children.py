"""Processes that the demo starts, kills, and is certain to leave none of.

Every child is ended by its process id, by the one who started it, on every way out of the ``with`` block: normal,
exception, Ctrl-C. Should the parent itself be killed with -9, the demo's own children notice the end of their standard
input (`roles.obey_parent`); other programs (`foreign`) are told by the kernel, where it can (Linux: PR_SET_PDEATHSIG).

A child's reports (lines of JSON) arrive on one queue for all children; its standard error goes to a file of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

END_TIMEOUT_S = 10.0
_DIE_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL; it survives the exec below
if os.getppid() != int(sys.argv[1]):
    os._exit(3)  # the parent was quicker to die
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


@dataclass(frozen=True, slots=True)
class Report:
    """A line of a child; `ended` is the exit status when this is its last line."""

    child: str
    what: Mapping[str, object]
    ended: int | None = None


@dataclass(slots=True)
class Child:
    """A running or ended child process."""

    name: str
    process: subprocess.Popen[str]
    log: Path
    group: bool
    reader: threading.Thread | None = field(default=None)

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """End it with SIGKILL (and its whole process group, where it has one of its own), and wait until it is gone."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                if self.group:
                    os.killpg(self.pid, signal.SIGKILL)
                else:
                    self.process.kill()
        self.process.wait()

    def tell(self, line: str) -> None:
        """Write a line to its standard input; a child that is gone does not hear it."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ValueError):
                self.process.stdin.write(line + "\n")
                self.process.stdin.flush()

    def terminate(self) -> int:
        """Ask it to end (SIGTERM), wait `END_TIMEOUT_S`, then insist. Returns the exit status."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.wait()

    def log_tail(self, lines: int = 5) -> str:
        """The last lines of its standard error."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


class Children:
    """A context manager that owns child processes. What they say arrives in `reports`, in order for each child."""

    def __init__(self, logs: Path) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = logs
        self._all: list[Child] = []
        self.reports: queue.Queue[Report] = queue.Queue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, where: TracebackType | None
    ) -> None:
        for child in self._all:
            child.kill()
        for child in self._all:
            for stream in (child.process.stdin, child.process.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        foreign: bool = False,
        group: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Start ``python -m`` with these arguments.

        `foreign`: not one of the demo's own roles: the caller reads its `process.stdout`; a role reports to the queue.
        `group`: give it a process group, so that a kill takes what it started as well.
        """
        log = self._logs / f"{name}.log"
        command = ["-m", *arguments]
        if foreign and sys.platform == "linux":
            command = ["-c", _DIE_WITH_PARENT, str(os.getpid()), *command]
        with log.open("a", encoding="utf-8") as stderr:
            process = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, **(environment or {})},
                start_new_session=group,
            )
        child = Child(name, process, log, group)
        self._all.append(child)
        if not foreign:
            assert process.stdout is not None
            child.reader = threading.Thread(
                target=self._read, args=(child, process.stdout), name=f"{name}-reports", daemon=True
            )
            child.reader.start()
        return child

    def _read(self, child: Child, stdout: IO[str]) -> None:
        with contextlib.suppress(ValueError):  # closed under us when the block is left
            for line in stdout:
                with contextlib.suppress(json.JSONDecodeError):  # a line cut by a kill says nothing
                    self.reports.put(Report(child.name, json.loads(line)))
        self.reports.put(Report(child.name, {}, ended=child.process.wait()))
