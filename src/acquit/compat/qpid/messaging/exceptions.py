"""The exceptions of the API, as one tree.

::

    Timeout                             what was waited for did not happen in time (no MessagingError, as ever)
    MessagingError                      `code` (a condition of AMQP 1.0), `text`, `info`
    ├── InternalError
    ├── ConnectionError
    │   ├── ConnectError                no connection came about
    │   │   ├── VersionError
    │   │   └── AuthenticationFailure
    │   ├── ConnectionClosed
    │   └── HeartbeatTimeout
    ├── SessionError
    │   ├── Detached                    not possible while the connection is not attached
    │   ├── NontransactionalSession
    │   ├── TransactionError
    │   │   ├── TransactionAborted      nothing of the transaction has happened, or will
    │   │   └── TransactionUnknown      the commit was sent and not answered
    │   ├── UnauthorizedAccess
    │   ├── ServerError
    │   └── SessionClosed
    ├── LinkError
    │   ├── InsufficientCapacity
    │   ├── AddressError
    │   │   ├── MalformedAddress
    │   │   ├── InvalidOption
    │   │   └── ResolutionError
    │   │       ├── AssertionFailed
    │   │       └── NotFound
    │   ├── LinkClosed
    │   ├── SenderError
    │   │   └── SendError
    │   │       └── TargetCapacityExceeded
    │   └── ReceiverError
    │       └── FetchError
    │           └── Empty
    └── ContentError                    raised once, and in nobody's way after that
        ├── EncodeError
        └── DecodeError
"""

from __future__ import annotations


class Timeout(Exception):
    """A wait was over before what it waited for had happened."""


class MessagingError(Exception):
    """Base of the others.

    `code` is the peer's condition (``amqp:not-found``) where it gave one, `text` says more, `info` is what else is
    known by name.
    """

    def __init__(self, code: object = None, text: str | None = None, **info: object) -> None:
        self.code = code
        self.text = text
        self.info = info
        line = f"{text}" if code is None else f"{text}({code})"
        if info:
            line += " " + ", ".join(f"{name}={value!r}" for name, value in info.items())
        super().__init__(line)


class InternalError(MessagingError):
    """An error that should not happen."""


class ConnectionError(MessagingError):
    """The connection: it cannot be had, or is gone."""


class ConnectError(ConnectionError):
    """No connection came about."""


class VersionError(ConnectError):
    """A version of AMQP was asked for that is not spoken here."""


class AuthenticationFailure(ConnectError):
    """The peer refused who we say we are."""


class ConnectionClosed(ConnectionError):
    """The connection was closed by us."""


class HeartbeatTimeout(ConnectionError):
    """The peer fell silent."""


class SessionError(MessagingError):
    """The session: it cannot do that, or is gone."""


class Detached(SessionError):
    """The connection is not attached."""


class NontransactionalSession(SessionError):
    """The session was not made to be transactional."""


class TransactionError(SessionError):
    """A transaction was not committed, or we cannot know."""


class TransactionAborted(TransactionError):
    """The transaction was rolled back: nothing of it has happened, or will."""


class TransactionUnknown(TransactionError):
    """The commit was sent and not answered: all of the transaction has happened, or nothing of it."""


class UnauthorizedAccess(SessionError):
    """The user may not do this."""


class ServerError(SessionError):
    """The peer failed."""


class SessionClosed(SessionError):
    """The session was closed by us."""


class LinkError(MessagingError):
    """A sender or receiver: it cannot be had, or is gone."""


class InsufficientCapacity(LinkError):
    """The capacity has no room for one more."""


class AddressError(LinkError):
    """The address is no good."""


class MalformedAddress(AddressError):
    """The address cannot be read."""


class InvalidOption(AddressError):
    """An option of the address that is not known, has no such value, or no meaning in AMQP 1.0."""


class ResolutionError(AddressError):
    """The address leads nowhere."""


class AssertionFailed(ResolutionError):
    """The node is not as the address asserts."""


class NotFound(ResolutionError):
    """The node does not exist."""


class LinkClosed(LinkError):
    """The sender or receiver was closed by us."""


class SenderError(LinkError):
    """A sender."""


class SendError(SenderError):
    """A message was not taken."""


class TargetCapacityExceeded(SendError):
    """A message was not taken: there is no room for it, or there never is for one that large."""


class ReceiverError(LinkError):
    """A receiver."""


class FetchError(ReceiverError):
    """No message can be fetched."""


class Empty(FetchError):
    """No message came in time."""


class ContentError(MessagingError):
    """The content of one message."""


class EncodeError(ContentError):
    """The message has a value that AMQP cannot hold. It was not sent."""


class DecodeError(ContentError):
    """A message came that cannot be read. It was rejected."""


__all__ = [
    "AddressError",
    "AssertionFailed",
    "AuthenticationFailure",
    "ConnectError",
    "ConnectionClosed",
    "ConnectionError",
    "ContentError",
    "DecodeError",
    "Detached",
    "Empty",
    "EncodeError",
    "FetchError",
    "HeartbeatTimeout",
    "InsufficientCapacity",
    "InternalError",
    "InvalidOption",
    "LinkClosed",
    "LinkError",
    "MalformedAddress",
    "MessagingError",
    "NontransactionalSession",
    "NotFound",
    "ReceiverError",
    "ResolutionError",
    "SendError",
    "SenderError",
    "ServerError",
    "SessionClosed",
    "SessionError",
    "TargetCapacityExceeded",
    "Timeout",
    "TransactionAborted",
    "TransactionError",
    "TransactionUnknown",
    "UnauthorizedAccess",
    "VersionError",
]
