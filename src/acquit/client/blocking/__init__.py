"""The blocking API, for threads.

The names and arguments of the asyncio API, with methods that wait where those are awaited. It is a façade: connections
live on a loop thread, and what is frequent never waits for it. `receive` pops a buffer that the loop thread fills,
acknowledgements and sends are left for it to pick up, many at a time.

Objects may be used from several threads. Each message is settled once, whoever tries. Time-outs are in seconds; None
waits without one, except where an option of the connection says how long. Connections do not survive a fork: open them
in the child.
"""

from __future__ import annotations

from acquit.client.blocking.connection import Connection, connect
from acquit.client.blocking.messages import KINDS, Receipt, ReceivedMessage, SendReceipt
from acquit.client.blocking.receiver import Listener, Receiver
from acquit.client.blocking.sender import Sender
from acquit.client.blocking.session import Session

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
