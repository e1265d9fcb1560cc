"""The frame of every child process of the demo: how it finds the broker, how it reports, when it ends.

* **The broker's address** is in a small file, rewritten whenever the broker has started. Each start takes a new
  ephemeral port: knocking at the old one would find a closed door, another program, or (because it lies in the range
  outgoing connections take theirs from) by chance one's own socket.
* **Reports** are lines of JSON on standard output, read by the parent.
* **The end**: the line ``finish`` on standard input means "stop when nothing is left to do"; the end of the input means
  that the parent is gone, and then the process goes at once, so that no run leaves children behind.

`keep_working` is the reconnect loop. The first version of the client ends every wait with a typed error when its
connection is lost and leaves the coming back to the program; this is the program.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import acquit
from acquit.errors import AcquitError, AuthenticationFailed, ConnectionFailed, DeliveryInDoubt, EndpointError

PAUSE_S_MIN = 0.05
PAUSE_S_MAX = 0.5
DOWN_S_MAX = 30.0
"""Seconds that a process waits for a broker that does not come back."""
PARENT_GONE = 3


def report(**what: object) -> None:
    """Print a line for the parent, at once."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def obey_parent() -> threading.Event:
    """Start listening to standard input. The event is set by the line ``finish``."""
    finish = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            if line.strip() == "finish":
                finish.set()
        os._exit(PARENT_GONE)  # no clean-up: what this process held must go back to the broker, not be closed in order

    threading.Thread(target=listen, name="parent", daemon=True).start()
    return finish


def publish_url(endpoint: Path, url: str) -> None:
    """Write the broker's address: readers see the old one or the new one, never half of it."""
    scratch = endpoint.with_suffix(".part")
    scratch.write_text(url, encoding="utf-8")
    os.replace(scratch, endpoint)


def withdraw_url(endpoint: Path) -> None:
    """Say that there is no broker for the moment."""
    endpoint.unlink(missing_ok=True)


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
