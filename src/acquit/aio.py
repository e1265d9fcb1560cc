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
from acquit.client.requests import Requester, Responder

__all__ = [
    "Connection",
    "Listener",
    "Receipt",
    "ReceivedMessage",
    "Receiver",
    "Requester",
    "Responder",
    "SendReceipt",
    "Sender",
    "Session",
    "connect",
]
