"""Programs that find a killed broker again by a small file, rewritten whenever it has started.

Each start takes a new ephemeral port: knocking at the old one would find a closed door, another program, or (because it
lies in the range outgoing connections take theirs from) by chance one's own socket.

`keep_working` is a reconnect loop for programs whose client ends every wait with a typed error when its connection is
lost, and leaves the coming back to them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import acquit
from acquit.demo import children as demo
from acquit.demo.children import Children
from acquit.errors import AcquitError, AuthenticationFailed, ConnectionFailed, DeliveryInDoubt, EndpointError

PAUSE_S_MIN = 0.05
PAUSE_S_MAX = 0.5
DOWN_S_MAX = 30.0
"""Seconds that a program waits for a broker that does not come back."""


def publish_url(endpoint: Path, url: str) -> None:
    """Write the broker's address: readers see the old one or the new one, never half of it."""
    scratch = endpoint.with_suffix(".part")
    scratch.write_text(url, encoding="utf-8")
    os.replace(scratch, endpoint)


def withdraw_url(endpoint: Path) -> None:
    """Say that there is no broker for the moment."""
    endpoint.unlink(missing_ok=True)


class BrokerProcess(demo.BrokerProcess):
    """A broker that can be killed and started again. Its address is in the file `endpoint` while it runs."""

    def __init__(self, children: Children, data: Path, endpoint: Path, *, config: Path | None = None) -> None:
        super().__init__(children, data, *([] if config is None else ["--config", str(config)]))
        self.endpoint = endpoint

    def start(self, port: int = 0) -> float:
        ready_s = super().start(port)
        publish_url(self.endpoint, self.url)
        return ready_s

    def kill(self) -> None:
        withdraw_url(self.endpoint)
        super().kill()

    def stop(self) -> int:
        withdraw_url(self.endpoint)
        return super().stop()


def keep_working(
    endpoint: Path,
    *,
    container_id: str,
    work: Callable[[acquit.Connection], None],
    lost: Callable[[AcquitError], None],
) -> None:
    """Call `work` with a connection; when that is lost under it, call `lost`, and `work` again with a fresh one.

    Returns when `work` returns. Raises ConnectionFailed when no broker could be reached for `DOWN_S_MAX` seconds, and
    at once what trying again cannot mend (AuthenticationFailed, and every error that is not about a lost peer).
    """
    pause_s = PAUSE_S_MIN
    down_since = time.monotonic()
    while True:
        try:
            connection = acquit.connect(
                endpoint.read_text(encoding="utf-8"),
                container_id=container_id,
                # A broker that comes back has another port: the endpoint is read again.
                options=acquit.ConnectOptions(reconnect=None),
            )
        except AuthenticationFailed:
            raise
        except (FileNotFoundError, ConnectionFailed) as why:
            if time.monotonic() - down_since > DOWN_S_MAX:
                raise ConnectionFailed(f"no broker for {DOWN_S_MAX:.0f} s: {why}") from why
            time.sleep(pause_s)
            pause_s = min(PAUSE_S_MAX, pause_s * 2)
            continue
        try:
            work(connection)
            return
        except (EndpointError, DeliveryInDoubt) as why:
            lost(why)
        finally:
            with contextlib.suppress(AcquitError):
                connection.close()
        pause_s = PAUSE_S_MIN
        down_since = time.monotonic()
