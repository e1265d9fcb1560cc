"""An `acquit serve` in a process of its own, as an operator would run it: configuration, log, resources, its end."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

STOP_TIMEOUT_S: Final = 60.0


class Served:
    """See the module. `descriptors`: its hard limit of open files; `memory_bytes`: of its address space. `prefix`
    stands in front of the command, and becomes it; `arguments` at its end; `data` is where its folder is, if not in
    `folder`."""

    def __init__(
        self,
        folder: Path,
        config: str = "",
        *,
        descriptors: int | None = None,
        memory_bytes: int | None = None,
        prefix: Sequence[str] = (),
        arguments: Sequence[str] = (),
        data: Path | None = None,
    ) -> None:
        self.data, self.config, self.log = data or folder / "data", folder / "acquit.toml", folder / "log"
        self.config.write_text(config)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *prefix,
                    *(sys.executable, "-m", "acquit", "serve", "--host", "127.0.0.1", "--port", "0"),
                    *("--data", str(self.data), "--config", str(self.config), "--log-format", "json"),
                    *arguments,
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=_limit(descriptors, memory_bytes),
            )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        found = re.search(r"amqps?://\S+:(\d+)", ready)
        assert found, (ready, self.log.read_text())
        self.url, self.port = found.group(), int(found.group(1))
        told = re.search(r"https?://\S+", ready)
        self.http_url = told.group() if told else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        if kind is None:
            assert status == 0, self.log.read_text()

    def rss_mib(self) -> int:
        """Memory that it has."""
        return self._status("VmRSS")

    def peak_mib(self) -> int:
        """The most that it ever had."""
        return self._status("VmHWM")

    def _status(self, key: str) -> int:
        found = re.search(rf"{key}:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found
        return int(found.group(1)) // 1024

    def lines(self, text: str = "") -> list[dict[str, object]]:
        """What it has logged with this in it."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if text in line]


@contextmanager
def standing_still(process: subprocess.Popen[str]) -> Iterator[None]:
    """Each of its threads has stopped before what is done meanwhile, which nothing of it can meet. A signal alone says
    nothing of when: a thread on another processor goes on for a while."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def _limit(descriptors: int | None, memory_bytes: int | None) -> Callable[[], None]:
    def limit() -> None:
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
        if memory_bytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))

    return limit


__all__ = ["Served", "standing_still"]
