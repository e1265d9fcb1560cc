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
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from acquit.errors import AcquitError

END_TIMEOUT_S = 10.0
_DIE_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL; it survives the exec below
if os.getppid() != int(sys.argv[1]):
    os._exit(3)  # the parent was quicker to die
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


class DemoStuck(AcquitError):
    """A process of the demo ended that should not have, or nothing happened for a time."""


class Child(subprocess.Popen[str]):
    """A child process with a process group of its own. Its standard error goes to the end of `log`."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path) -> None:
        self.name, self.log = name, log
        pipe = subprocess.PIPE
        with log.open("a", encoding="utf-8") as stderr:
            command = [sys.executable, *arguments]
            super().__init__(command, stdin=pipe, stdout=pipe, stderr=stderr, text=True, start_new_session=True)

    def kill(self) -> None:
        """End it, and what it has started, with SIGKILL, and wait until it is gone."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """Ask it to end (SIGTERM), wait `END_TIMEOUT_S`, then insist. Returns the exit status."""
        self.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(END_TIMEOUT_S)
        self.kill()
        return self.wait()

    def stuck(self) -> DemoStuck:
        """Return the error that says how it ended, with its last words."""
        return DemoStuck(f"{self.name} ended with status {self.wait()}: {self.log_tail()}")

    def log_tail(self) -> str:
        """Return the last lines of its standard error."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:])


class Children(contextlib.ExitStack):
    """A context manager that owns child processes. What they say arrives in `reports`, in order for each child."""

    def __init__(self, logs: Path) -> None:
        super().__init__()
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = logs
        self.reports: queue.Queue[tuple[str, Mapping[str, int | list[str]]]] = queue.Queue()
        """Name of the child, and what it said; its last word is ``ended``."""

    def start(self, name: str, arguments: Sequence[str], *, foreign: bool = False) -> Child:
        """Start ``python -m`` with these arguments.

        `foreign`: not one of the demo's own roles: the caller reads its `stdout`; a role reports to the queue.
        """
        command = ["-m", *arguments]
        if foreign and sys.platform == "linux":
            command = ["-c", _DIE_WITH_PARENT, str(os.getpid()), *command]
        child = self.enter_context(Child(name, command, self._logs / f"{name}.log"))  # which closes its pipes, at last
        self.callback(child.kill)
        if not foreign:
            threading.Thread(target=self._read, args=(child,), name=f"{name}-reports", daemon=True).start()
        return child

    def _read(self, child: Child) -> None:
        with contextlib.suppress(ValueError):  # closed under us when the block is left
            for line in child.stdout or ():
                with contextlib.suppress(json.JSONDecodeError):  # a line cut by a kill says nothing
                    self.reports.put((child.name, json.loads(line)))
        self.reports.put((child.name, {"ended": True}))


class BrokerProcess:
    """A real ``acquit serve`` on one data folder, in a process of its own, that can be killed and started again."""

    child: Child
    """The process that was started last; `url` and `port` are its own."""

    def __init__(self, children: Children, data: Path, *options: str) -> None:
        self._children = children
        self._options = ("--data", str(data), *options)
        self._starts = 0
        self.url, self.port = "", 0

    def arguments(self, port: int = 0) -> list[str]:
        """Return what follows ``python -m`` to start it on this port, or on a free one."""
        return ["acquit", "serve", "--host", "127.0.0.1", "--port", str(port), *self._options]

    def start(self, port: int = 0) -> float:
        """Start it, on a free port or on this one, and return the seconds until it was ready. Raises DemoStuck with
        what it said."""
        self._starts += 1
        begun_s = time.monotonic()
        child = self._children.start(f"broker-{self._starts}", self.arguments(port), foreign=True)
        # It prints one line when it is ready; a broker that cannot start ends instead, which ends the stream.
        found = re.search(r"amqps?://[\w.\[\]:-]+:(\d+)", child.stdout.readline() if child.stdout else "")
        if found is None:
            raise child.stuck()
        self.child, self.url, self.port = child, found[0], int(found[1])
        return time.monotonic() - begun_s

    def kill(self) -> None:
        """SIGKILL. What it had not synced is gone, as with a power cut, but for the disk's own cache."""
        self.child.kill()

    def stop(self) -> int:
        """SIGTERM, and wait. Returns the exit status."""
        return self.child.stop()
