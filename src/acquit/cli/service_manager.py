"""Messages of `acquit serve` to the service manager that started it, by the protocol of sd_notify(3).

systemd, and container runtimes that pass its socket on, set NOTIFY_SOCKET to an AF_UNIX datagram socket. Each message
is one datagram of ``NAME=value`` lines. With ``Type=notify`` units that depend on the broker start after READY=1, that
is when the journal is recovered and the ports listen. With ``WatchdogSec=`` the manager also sets WATCHDOG_USEC, and
kills and restarts a service that sends no WATCHDOG=1 for so long. The pings are timers of the broker's own event loop:
a loop that hangs sends none, whatever other threads do.

It is our own because it is a `sendto`. The packages for it either want libsystemd and a compiler, or have had no
release for years.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

logger = logging.getLogger("acquit.serve")

PINGS_PER_WATCHDOG: Final = 3
"""Pings in the time that the manager waits for one. The manual says two; a third forgives one that is late."""


_DIGITS_MAX: Final = 20
"""Digits of WATCHDOG_USEC, which has 64 bits."""


class ServiceManager:
    """The process that supervises this one, or nobody: then every method does nothing."""

    def __init__(self, address: str, watchdog_s: float = 0.0) -> None:
        """`address`: a path, or a name in Linux's abstract namespace after ``@``; empty: there is nobody to tell.
        `watchdog_s`: seconds without a ping after which the manager restarts the process; 0: it expects none.
        """
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self._ping: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> ServiceManager:
        """Return the manager that the environment names. WATCHDOG_PID, where it is set, says whom its watchdog is for;
        a value that cannot be is logged and taken for none."""
        address = environment.get("NOTIFY_SOCKET", "")
        if address and not address.startswith(("/", "@")):
            logger.warning("NOTIFY_SOCKET=%s is no AF_UNIX address: the service manager is told nothing", address)
            return cls("")
        pid = environment.get("WATCHDOG_PID", "")
        watchdog_us = environment.get("WATCHDOG_USEC", "0") if pid in ("", str(os.getpid())) else "0"
        if not watchdog_us.isdecimal() or len(watchdog_us) > _DIGITS_MAX:
            logger.warning("WATCHDOG_USEC=%s is no number: no pings are sent", watchdog_us)
            watchdog_us = "0"
        return cls(address, int(watchdog_us) / 1e6)

    def ready(self, status: str) -> None:
        """Say that peers may connect, and what to show in `systemctl status`; pings are sent from now on. To be called
        on the event loop that they stand for, and again after `reloading`."""
        self._notify("READY=1", f"STATUS={status}")
        if self._watchdog_s and self._ping is None:
            self._keep_alive(asyncio.get_running_loop())

    def reloading(self) -> None:
        """Say that the configuration is being read again; `ready` ends that."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=reading the configuration")

    def stopping(self) -> None:
        """Say that the process ends by itself. Pings go on as long as the loop does."""
        self._notify("STOPPING=1", "STATUS=stopping")

    def _keep_alive(self, loop: asyncio.AbstractEventLoop) -> None:
        self._notify("WATCHDOG=1")
        self._ping = loop.call_later(self._watchdog_s / PINGS_PER_WATCHDOG, self._keep_alive, loop)

    def _notify(self, *lines: str) -> None:
        """Send a datagram, or log why not: nobody's messages wait for a manager that does not read."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            logger.warning("the service manager could not be told %s: %s", lines[0], error)


__all__ = ["PINGS_PER_WATCHDOG", "ServiceManager"]
