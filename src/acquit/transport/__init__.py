"""The only asyncio socket, TLS and timer code: pumps bytes between a socket and a `protocol.Connection`."""

from __future__ import annotations

from acquit.transport.pump import Handler, Pump, PumpOptions
from acquit.transport.sockets import connect

__all__ = ["Handler", "Pump", "PumpOptions", "connect"]
