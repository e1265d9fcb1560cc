"""Every exception acquit raises, as one tree.

::

    AcquitError
    ├── ConfigurationError            a setting or argument is wrong; names the key and what was expected
    ├── LocalProtocolError            the calling code asked for something the protocol forbids; nothing was sent
    │   ├── FrameTooLarge             what is to be said does not fit the frames that the peer takes
    │   └── EncodeError               a Python value that has no AMQP encoding, or not the one its field demands
    ├── RemoteProtocolError           the peer broke the protocol; `condition` is what we close its scope with
    │   ├── DecodeError               bytes that are not an AMQP value of the expected type
    │   ├── FramingError              bytes that are not a frame
    │   ├── ResourceLimitExceeded     more than an option allows (depth, count, size, links, sessions)
    │   └── SelectorError             a filter that cannot be applied; says where, what is there, what was expected
    ├── EndpointError                 an endpoint is gone; `error` is the peer's reason, `remote` says who ended it
    │   ├── ConnectionFailed          never opened, or opened and now gone
    │   │   ├── ConnectionLost        the socket ended, or fell silent, without a close
    │   │   ├── ConnectionClosed      the peer, or we, closed it
    │   │   ├── ConnectTimeout        no open within the connect timeout
    │   │   └── AuthenticationFailed  SASL refused us
    │   ├── SessionEnded              the session ended
    │   └── LinkDetached              the link was detached
    │       ├── NotFound              amqp:not-found: no such address, or creation is forbidden
    │       ├── Unauthorized          amqp:unauthorized-access
    │       ├── LimitReached          amqp:resource-limit-exceeded
    │       ├── ResourceDeleted       amqp:resource-deleted: the address was deleted
    │       ├── ResourceLocked        amqp:resource-locked: somebody has it exclusively
    │       ├── MessageTooLarge       amqp:link:message-size-exceeded, or a send of more than the peer takes
    │       └── LinkStolen            amqp:link:stolen
    ├── SendFailed                    the message of a send was not taken, and we know it
    │   ├── MessageRejected           the message is invalid and will not be taken; `error` says why
    │   ├── MessageReleased           the message was not and will not be processed there
    │   ├── MessageModified           as released, and the attempt may count as failed
    │   └── NotSent                   the message never left: no credit within the time-out
    ├── DeliveryInDoubt               no outcome was heard: the message may or may not have been taken
    ├── RequestFailed                 a request has no reply, and will have none; `accepted` says what became of it
    │   ├── RequestTimeout            no reply came in time
    │   └── ReplyAddressLost          the temporary node for the reply went with the connection
    ├── TransactionFailed             a transaction was not committed, or we cannot know
    │   ├── TransactionRolledBack     nothing of it has happened, or will
    │   └── TransactionInDoubt        the commit was sent and not answered
    ├── SettlementError               an acknowledgement that cannot be made
    │   ├── AlreadySettled            this delivery has its outcome
    │   ├── Unreliable                the link is pre-settled: there is nothing to acknowledge
    │   └── CreditExhausted           nothing more comes until messages are acknowledged
    ├── BodyError                     the body of a message is not what was asked for; says what it is
    ├── InboxConflict                 somebody else has, or works on, the same message at the same time
    ├── StoreError                    the journal
    │   ├── StoreMissing              the folder is none of acquit
    │   ├── StoreLocked               another process has the folder open
    │   ├── StoreVersionUnsupported   written by a version this one cannot read
    │   ├── StoreCorrupt              damage before the last synced batch: `path` and `offset` say where
    │   ├── StoreFull                 no room for this record now; nothing was lost
    │   └── StoreFailed               the disk reported an I/O error: nothing later is accepted
    ├── SpoolError                    the Spark spool
    │   ├── SpoolNotShared            a worker does not see the folder the driver sees
    │   ├── SpoolOwned                another query owns this spool
    │   ├── SpoolFenced               the epoch is at or below the floor
    │   ├── SpoolUnfit                the store does not refuse a second write of one name
    │   ├── SpoolVersionUnsupported   written by a version this one cannot read
    │   └── SpoolDamaged              a file of the spool is missing or altered
    ├── MessageUnusable               a message has no identity, or cannot be parsed, and the options say to stop
    ├── RowRejected                   a row of a Spark sink cannot be posted, and the options say to stop
    ├── RowsChanged                   rows that a Spark sink posted before came otherwise when they were made again
    └── PipelineFailed                a Spark query ended with an error; the message is its reason in one line

Who is to blame is in the class: ``Local…`` is the caller, ``Remote…`` the peer (after h11's split). Classes that
travel on the wire know their condition (specification sections 2.8.15-2.8.18).
"""

from __future__ import annotations

from typing import ClassVar, Final


class AcquitError(Exception):
    """Base of everything acquit raises on purpose."""


class ConfigurationError(AcquitError, ValueError):
    """A setting, option or argument is wrong. The message names the key, what was found and what was expected."""


class LocalProtocolError(AcquitError):
    """The calling code asked for something AMQP forbids in the present state. Nothing was sent, nothing changed."""


class FrameTooLarge(LocalProtocolError):
    """A frame does not fit the largest one that the peer takes (2.7.1). Nothing was sent."""


class EncodeError(LocalProtocolError, ValueError):
    """A Python value that has no AMQP encoding, or not the one its field demands. Nothing was encoded."""


class RemoteProtocolError(AcquitError):
    """The peer broke the protocol.

    `condition` is the AMQP error condition that the offended scope is closed with.
    """

    condition: str
    default_condition: ClassVar[str] = "amqp:not-allowed"

    def __init__(self, description: str, *, condition: str | None = None) -> None:
        super().__init__(description)
        self.description = description
        self.condition = condition if condition is not None else self.default_condition


class DecodeError(RemoteProtocolError):
    """Bytes that are not an AMQP value, or not one of the expected type (amqp:decode-error)."""

    default_condition = "amqp:decode-error"


class FramingError(RemoteProtocolError):
    """Bytes that are not a frame, or a frame that may not come now (amqp:connection:framing-error)."""

    default_condition = "amqp:connection:framing-error"


class ResourceLimitExceeded(RemoteProtocolError):
    """The peer asked for more than an option allows (amqp:resource-limit-exceeded)."""

    default_condition = "amqp:resource-limit-exceeded"


class SelectorError(RemoteProtocolError, ValueError):
    """A message selector, or another filter of a source, that cannot be applied (amqp:invalid-field).

    `position` is the index of the character where the selector stops to make sense; None where there is no such place.
    """

    default_condition = "amqp:invalid-field"

    def __init__(self, description: str, *, position: int | None = None) -> None:
        super().__init__(description)
        self.position = position


class EndpointError(AcquitError):
    """A connection, session or link is gone.

    `condition` and `description` are the AMQP error given with it, or None where there was none; `remote` is True
    when the peer ended it.
    """

    def __init__(
        self,
        message: str,
        *,
        condition: str | None = None,
        description: str | None = None,
        remote: bool = False,
    ) -> None:
        super().__init__(message)
        self.condition = condition
        self.description = description
        self.remote = remote


class ConnectionFailed(EndpointError):
    """The connection never opened, or opened and is now gone."""


class ConnectionLost(ConnectionFailed):
    """The socket ended, or fell silent past the idle time-out, without a close: what was in flight is in doubt."""


class ConnectionClosed(ConnectionFailed):
    """The connection was closed in order, by the peer (`remote`) or by us."""


class ConnectTimeout(ConnectionFailed):
    """No open from the peer within the connect timeout."""


class AuthenticationFailed(ConnectionFailed):
    """SASL refused us. Trying again with the same credentials will not help."""


class SessionEnded(EndpointError):
    """The session ended, and every link on it."""


class LinkDetached(EndpointError):
    """The link was detached."""


class NotFound(LinkDetached):
    """No such address, or its creation is forbidden (amqp:not-found)."""


class Unauthorized(LinkDetached):
    """The user may not do this at this address (amqp:unauthorized-access)."""


class LimitReached(LinkDetached):
    """The peer has no room for this link, or for what came over it (amqp:resource-limit-exceeded)."""


class ResourceDeleted(LinkDetached):
    """The address was deleted while the link was attached (amqp:resource-deleted)."""


class ResourceLocked(LinkDetached):
    """Exclusive use of the address by another connection or consumer (amqp:resource-locked)."""


class MessageTooLarge(LinkDetached):
    """A message is larger than the receiving end takes (max-message-size, 2.7.3).

    Where a send raises it, nothing was sent, and the link goes on; `remote` is True where the peer ended the link over
    it (amqp:link:message-size-exceeded).
    """


class LinkStolen(LinkDetached):
    """The same link name was attached elsewhere (amqp:link:stolen)."""


class SendFailed(AcquitError):
    """The message of a send was not taken, and we know it: the peer said so, or it never left.

    `condition` and `description` are the peer's reason where it gave one.
    """

    def __init__(self, message: str, *, condition: str | None = None, description: str | None = None) -> None:
        super().__init__(message)
        self.condition = condition
        self.description = description


class MessageRejected(SendFailed):
    """The peer finds the message invalid (outcome *rejected*). Sending the same message again will not help."""


class MessageReleased(SendFailed):
    """The peer did not and will not process the message (outcome *released*). It may be sent again."""


class MessageModified(SendFailed):
    """The peer did not take the message (outcome *modified*)."""


class NotSent(SendFailed):
    """The message was certainly not taken: it never left this process within the time-out, as the error says why (no
    credit, no connection, no transaction, a store that is busy), or was rolled back with its connection. It may be sent
    again.

    Where the time-out was that of a wait (`SendReceipt.result`, `Sender.flush`) and not of the send, it has not left so
    far, and still waits to: the receipt is not `done`.
    """


class DeliveryInDoubt(AcquitError):
    """No outcome was heard before the time-out or the loss of the peer: the message may or may not have been taken."""


class RequestFailed(AcquitError):
    """A request has no reply, and will have none.

    `accepted` is what became of the request: True where the peer has accepted it, so that somebody works on it, or did;
    False where it never left; None where no outcome was heard. `correlation_id` is what a late reply would say.
    """

    def __init__(self, message: str, *, accepted: bool | None, correlation_id: object) -> None:
        super().__init__(message)
        self.accepted = accepted
        self.correlation_id = correlation_id


class RequestTimeout(RequestFailed):
    """No reply came in time. One that comes later is dropped and counted."""


class ReplyAddressLost(RequestFailed):
    """The connection was lost, and with it the temporary node that the reply was to come to. A fixed reply address
    would have outlived it."""


class TransactionFailed(AcquitError):
    """A transaction was not committed, as far as we know.

    `txn_id` is the broker's name for it (None: it was never declared), by which ours tells its fate for an hour (see
    docs/transactions.md); `condition` and `description` are the peer's reason where it gave one.
    """

    def __init__(
        self,
        message: str,
        *,
        txn_id: bytes | None = None,
        condition: str | None = None,
        description: str | None = None,
    ) -> None:
        super().__init__(message)
        self.txn_id = txn_id
        self.condition = condition
        self.description = description


class TransactionRolledBack(TransactionFailed):
    """Rolled back: nothing of the transaction has happened, or will. Messages sent in it are gone, messages received in
    it come again.

    Raised by `commit`, it tells of the end: the next transaction has begun. `__cause__` is then the error of an earlier
    commit that nobody waited for, if that is why. Raised by a `send` or `receive`, it tells of a transaction that
    cannot be committed any more, in which they all raise it until that is ended: call `rollback`, as the end of a
    `Session.transaction` block does.
    """


class TransactionInDoubt(TransactionFailed):
    """The commit was sent and no answer heard: all of the transaction has happened, or nothing of it."""


class SettlementError(AcquitError):
    """An acknowledgement that cannot be made."""


class AlreadySettled(SettlementError):
    """The delivery already has its outcome; the first one stands."""


class Unreliable(SettlementError):
    """The link is pre-settled: the acknowledgement was implicit and nothing can be released or rejected."""


class CreditExhausted(SettlementError):
    """The prefetch limit is reached and nothing more comes until messages are acknowledged."""


class BodyError(AcquitError, ValueError):
    """The body of a message is not what was asked for: no text, no JSON, no data. Says what it is instead."""


class InboxConflict(AcquitError):
    """The same message was remembered by another transaction at the same time, which has committed, or is worked on in
    another block of `Inbox.once`. Roll back, and release the message: when it comes again it is a duplicate, or new."""


class StoreError(AcquitError):
    """The journal cannot do what was asked."""


class StoreMissing(StoreError):
    """The folder is no data folder: it does not exist, or has no broker.json."""


class StoreLocked(StoreError):
    """The data folder is open in another process."""


class StoreVersionUnsupported(StoreError):
    """The data folder was written by a version of acquit that this one cannot read."""


class StoreCorrupt(StoreError):
    """Damage before the end of the last synced batch. `path` and `offset` (bytes) say where."""

    def __init__(self, message: str, *, path: str, offset: int) -> None:
        super().__init__(f"{path}, offset {offset}: {message}")
        self.path = path
        self.offset = offset


class StoreUnbalanced(StoreError):
    """The journal holds fewer messages, or others, than its own accounts say. Nothing was changed."""


class StoreFull(StoreError):
    """No room is left for this record now. Nothing was lost; service resumes when there is room.

    `limit` says what there is not enough of, which may be something else that a file takes: descriptors, or memory."""

    limit: str = "the disk is full"


class StoreFailed(StoreError):
    """The disk reported an I/O error on write or sync: what was not yet answered is unknown, nothing later is taken."""


class SpoolError(AcquitError):
    """The Spark spool cannot do what was asked."""


class SpoolNotShared(SpoolError):
    """A worker does not see the spool folder that the driver sees."""


class SpoolOwned(SpoolError):
    """The spool is owned by another query."""


class SpoolFenced(SpoolError):
    """The epoch is at or below the spool's floor: its data may be gone, so it is never drained again."""


class SpoolUnfit(SpoolError):
    """The store does not refuse a second write of one name, so nothing can be decided with it."""


class SpoolVersionUnsupported(SpoolError):
    """The spool was written by a version of acquit that this one cannot read."""


class SpoolDamaged(SpoolError):
    """A file of the spool is missing or altered."""


class MessageUnusable(AcquitError):
    """A message has no identity, or cannot be parsed, and the options say to stop. It is still in the queue."""


class RowRejected(AcquitError):
    """A row cannot be posted by the Spark sink, and the options say to stop. Says which row, and why."""


class RowsChanged(AcquitError):
    """Rows that the Spark sink was to post again are not those that it posted before, or come in another order: going
    on would lose some and double others."""


class PipelineFailed(AcquitError):
    """A Spark query ended with an error. The message is the reason in one line; the original is chained."""


NOT_WHAT_WAS_WRITTEN: Final = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
"""Exceptions of Python where a JSON file is not what was written, however it was changed: other types than expected, an
infinite number, nested beyond measure. Readers make of it the error that names the file."""
