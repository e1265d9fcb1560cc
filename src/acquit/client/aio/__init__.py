"""The asyncio API.

Every method that may wait is a coroutine; the names and arguments are those of the blocking API. `connect`, `session`,
`sender` and `receiver` can be awaited, or entered with ``async with``, which closes what it opened::

    async with acquit.aio.connect("amqp://localhost") as connection:
        async with connection.session() as session:
            sender = await session.sender("orders")
            await sender.send(b"...")

Cancelling is safe anywhere. A message is taken from the buffer and returned with no await in between, so a cancelled or
timed out `receive` has not taken one. A cancelled `send` is taken back if it has not left yet.

All objects belong to the event loop they were made on. Time-outs are in seconds; None waits without one, except where
an option of the connection says how long.
"""

from __future__ import annotations

from acquit.client.aio.connection import Connection, connect
from acquit.client.aio.messages import KINDS, Receipt, ReceivedMessage, SendReceipt
from acquit.client.aio.receiver import Listener, Receiver
from acquit.client.aio.sender import Sender
from acquit.client.aio.session import Session

__all__ = [
    "KINDS",
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
