"""acquit for asyncio: the names of `acquit`, with methods to be awaited. See `connect`."""

from __future__ import annotations

from acquit.client.aio import (
    Connection,
    Listener,
    Receipt,
    ReceivedMessage,
    Receiver,
    Sender,
    SendReceipt,
    Session,
    connect,
)

__all__ = [
    "Connection",
    "Listener",
    "Receipt",
    "ReceivedMessage",
    "Receiver",
    "SendReceipt",
    "Sender",
    "Session",
    "connect",
]
