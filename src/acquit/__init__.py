"""Message delivery with every message accounted for.

::

    import acquit

    with acquit.Broker() as broker, acquit.connect(broker.url) as connection:
        with connection.session(acquit.AckMode.INDIVIDUAL) as session:
            session.sender("orders").send("one coffee")
            message = session.receiver("orders").receive(timeout=5)
            message.accept()

`acquit.aio` is the same for asyncio. The exceptions are here, and as a tree in `acquit.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acquit import aio, errors, types
from acquit.client.blocking import (
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
from acquit.client.entries import DeliveryStore, EntryKind, LinkEntries, StoreEntry
from acquit.client.fates import TransactionFate
from acquit.client.identity import Identity, identify
from acquit.client.inbox import Inbox, InboxVerdict, SqlInbox
from acquit.client.modes import AckMode
from acquit.client.options import ConnectOptions, DeliveryMode
from acquit.client.receipts import ReceiptStatus
from acquit.client.reconnecting import ConnectionEvent, ConnectionEventKind, Reconnect
from acquit.client.requests_blocking import Requester, Responder
from acquit.client.stores import FileStore, MemoryStore, SqliteStore, SqlStore
from acquit.client.subscriptions import Subscription
from acquit.errors import (
    AcquitError,
    AlreadySettled,
    AuthenticationFailed,
    BodyError,
    ConfigurationError,
    ConnectionClosed,
    ConnectionFailed,
    ConnectionLost,
    ConnectTimeout,
    CreditExhausted,
    DecodeError,
    DeliveryInDoubt,
    EncodeError,
    EndpointError,
    InboxConflict,
    LimitReached,
    LinkDetached,
    LinkStolen,
    LocalProtocolError,
    MessageModified,
    MessageRejected,
    MessageReleased,
    MessageTooLarge,
    NotFound,
    NotSent,
    RemoteProtocolError,
    ReplyAddressLost,
    RequestFailed,
    RequestTimeout,
    ResourceDeleted,
    ResourceLocked,
    SendFailed,
    SessionEnded,
    SettlementError,
    TransactionFailed,
    TransactionInDoubt,
    TransactionRolledBack,
    Unauthorized,
    Unreliable,
)
from acquit.protocol.body import AmqpSequence, AmqpValue, Data, FileBody
from acquit.protocol.definitions import Accepted, Error, Modified, Rejected, Released
from acquit.protocol.jms import JmsKind
from acquit.protocol.message import Message

if TYPE_CHECKING:
    from acquit.embedded import Broker

    __version__: str

__all__ = [
    "Accepted",
    "AckMode",
    "AcquitError",
    "AlreadySettled",
    "AmqpSequence",
    "AmqpValue",
    "AuthenticationFailed",
    "BodyError",
    "Broker",
    "ConfigurationError",
    "ConnectOptions",
    "ConnectTimeout",
    "Connection",
    "ConnectionClosed",
    "ConnectionEvent",
    "ConnectionEventKind",
    "ConnectionFailed",
    "ConnectionLost",
    "CreditExhausted",
    "Data",
    "DecodeError",
    "DeliveryInDoubt",
    "DeliveryMode",
    "DeliveryStore",
    "EncodeError",
    "EndpointError",
    "EntryKind",
    "Error",
    "FileBody",
    "FileStore",
    "Identity",
    "Inbox",
    "InboxConflict",
    "InboxVerdict",
    "JmsKind",
    "LimitReached",
    "LinkDetached",
    "LinkEntries",
    "LinkStolen",
    "Listener",
    "LocalProtocolError",
    "MemoryStore",
    "Message",
    "MessageModified",
    "MessageRejected",
    "MessageReleased",
    "MessageTooLarge",
    "Modified",
    "NotFound",
    "NotSent",
    "Receipt",
    "ReceiptStatus",
    "ReceivedMessage",
    "Receiver",
    "Reconnect",
    "Rejected",
    "Released",
    "RemoteProtocolError",
    "ReplyAddressLost",
    "RequestFailed",
    "RequestTimeout",
    "Requester",
    "ResourceDeleted",
    "ResourceLocked",
    "Responder",
    "SendFailed",
    "SendReceipt",
    "Sender",
    "Session",
    "SessionEnded",
    "SettlementError",
    "SqlInbox",
    "SqlStore",
    "SqliteStore",
    "StoreEntry",
    "Subscription",
    "TransactionFailed",
    "TransactionFate",
    "TransactionInDoubt",
    "TransactionRolledBack",
    "Unauthorized",
    "Unreliable",
    "__version__",
    "aio",
    "connect",
    "errors",
    "identify",
    "types",
]


def __getattr__(name: str) -> object:
    # A worker imports acquit thousands of times and hardly ever has a broker: it loads when it is asked for.
    if name == "Broker":
        from acquit.embedded import Broker

        return Broker
    if name == "__version__":
        from acquit._version import version

        return version()
    raise AttributeError(f"module 'acquit' has no attribute {name!r}")
