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

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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
    from acquit.embedded import Broker
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

_MODULES: Final = frozenset({"aio", "errors", "types"})
_HOMES: Final[dict[str, str]] = {
    name: module
    for module, names in {
        "acquit.client.blocking": """
            Connection Listener Receipt ReceivedMessage Receiver Sender SendReceipt Session connect
        """,
        "acquit.client.entries": "DeliveryStore EntryKind LinkEntries StoreEntry",
        "acquit.client.fates": "TransactionFate",
        "acquit.client.identity": "Identity identify",
        "acquit.client.inbox": "Inbox InboxVerdict SqlInbox",
        "acquit.client.modes": "AckMode",
        "acquit.client.options": "ConnectOptions DeliveryMode",
        "acquit.client.receipts": "ReceiptStatus",
        "acquit.client.reconnecting": "ConnectionEvent ConnectionEventKind Reconnect",
        "acquit.client.requests_blocking": "Requester Responder",
        "acquit.client.stores": "FileStore MemoryStore SqliteStore SqlStore",
        "acquit.client.subscriptions": "Subscription",
        "acquit.errors": """
            AcquitError AlreadySettled AuthenticationFailed BodyError ConfigurationError ConnectionClosed
            ConnectionFailed ConnectionLost ConnectTimeout CreditExhausted DecodeError DeliveryInDoubt
            EncodeError EndpointError InboxConflict LimitReached LinkDetached LinkStolen LocalProtocolError
            MessageModified MessageRejected MessageReleased MessageTooLarge NotFound NotSent RemoteProtocolError
            ReplyAddressLost RequestFailed RequestTimeout ResourceDeleted ResourceLocked SendFailed SessionEnded
            SettlementError TransactionFailed TransactionInDoubt TransactionRolledBack Unauthorized Unreliable
        """,
        "acquit.protocol.body": "AmqpSequence AmqpValue Data FileBody",
        "acquit.protocol.definitions": "Accepted Error Modified Rejected Released",
        "acquit.protocol.jms": "JmsKind",
        "acquit.protocol.message": "Message",
        "acquit.embedded": "Broker",
    }.items()
    for name in names.split()
}
"""Names of the front door, and the modules that have them. The imports above say the same to type checkers."""


def __getattr__(name: str) -> object:
    # A script that only names the package, and a command that talks to nobody, load neither client nor broker: what is
    # asked for loads once, and is an ordinary attribute from then on.
    if name in _MODULES:
        value: object = import_module(f"acquit.{name}")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name == "__version__":
        from acquit._version import version

        value = version()
    else:
        raise AttributeError(f"module 'acquit' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
