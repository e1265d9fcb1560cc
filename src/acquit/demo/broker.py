"""The demo's broker: a real ``acquit serve`` in a process of its own, that can be killed and started again."""

from __future__ import annotations

import re
import time
from pathlib import Path

from acquit.demo.children import Child, Children
from acquit.demo.roles import publish_url, withdraw_url
from acquit.errors import AcquitError

_URL = re.compile(r"amqps?://[\w.\[\]:-]+:\d+")


class BrokerDidNotStart(AcquitError):
    """``acquit serve`` ended before it said that it was ready."""


class BrokerProcess:
    """Start, kill and stop ``acquit serve`` on one data folder; the present address is always in `endpoint`."""

    def __init__(self, children: Children, data: Path, endpoint: Path, *, config: Path | None = None) -> None:
        self._children = children
        self._data = data
        self._config = config
        self._child: Child | None = None
        self._starts = 0
        self.endpoint = endpoint
        self.url = ""
        self.ready_line = ""

    @property
    def pid(self) -> int:
        assert self._child is not None, "not started"
        return self._child.pid

    def arguments(self, port: int = 0) -> list[str]:
        """Return what follows ``python -m`` to start it on this port, or on a free one."""
        arguments = ["acquit", "serve", "--host", "127.0.0.1", "--port", str(port), "--data", str(self._data)]
        if self._config is not None:
            arguments += ["--config", str(self._config)]
        return arguments

    def start(self, port: int = 0) -> float:
        """Start it, on a free port or on this one, and return the seconds until it was ready. Raises BrokerDidNotStart
        with what it said."""
        self._starts += 1
        begun_s = time.monotonic()
        child = self._children.start(f"broker-{self._starts}", self.arguments(port), foreign=True)
        assert child.process.stdout is not None
        # It prints one line when it is ready; a broker that cannot start ends instead, which ends the stream.
        self.ready_line = child.process.stdout.readline().strip()
        found = _URL.search(self.ready_line)
        if found is None:
            status = child.terminate()
            raise BrokerDidNotStart(f"acquit serve ended with status {status}: {child.log_tail()}")
        self._child = child
        self.url = found.group()
        publish_url(self.endpoint, self.url)
        return time.monotonic() - begun_s

    def kill(self) -> None:
        """SIGKILL. What it had not synced is gone, as with a power cut, but for the disk's own cache."""
        assert self._child is not None, "not started"
        withdraw_url(self.endpoint)
        self._child.kill()

    def stop(self) -> int:
        """SIGTERM, and wait. Returns the exit status."""
        assert self._child is not None, "not started"
        withdraw_url(self.endpoint)
        return self._child.terminate()
