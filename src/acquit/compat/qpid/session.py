"""Sessions, on those of our blocking client.

A session acknowledges each message by itself (INDIVIDUAL), or is TRANSACTED. Unlike there, credit comes back as a
message is fetched: `Receiver.capacity` bounds what waits here to be fetched, not what the program holds. And a commit
takes along only what was acknowledged: what was not is still this session's, and may be acknowledged in the next
transaction.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from acquit.client import blocking as client
from acquit.client.modes import FAILED, AckMode, CreditReturn
from acquit.client.receipts import ReceiptStatus
from acquit.client.threads import Gate
from acquit.compat.qpid.endpoint import ConnectionPart, SharedTimeout
from acquit.compat.qpid.links import Link, Receiver, Sender
from acquit.compat.qpid.messaging.constants import REJECTED, RELEASED, UNLIMITED, Constant
from acquit.compat.qpid.messaging.exceptions import (
    Detached,
    Empty,
    InsufficientCapacity,
    MessagingError,
    NontransactionalSession,
    ReceiverError,
    SessionClosed,
    SessionError,
    Timeout,
    TransactionAborted,
)
from acquit.compat.qpid.messaging.message import Disposition, Message
from acquit.errors import AcquitError
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.constants import RELEASED as RELEASED_OUTCOME
from acquit.protocol.definitions import Error, Rejected

if TYPE_CHECKING:
    from acquit.client.receiving import ReceiverCore
    from acquit.compat.qpid.connection import Connection
    from acquit.protocol.delivery import Outcome

logger = logging.getLogger("qpid.messaging")

L = TypeVar("L", bound=Link)


class Session(ConnectionPart):
    """A session: senders and receivers, and what is acknowledged, committed and rolled back with them.

    Made by `Connection.session`. What `acknowledge` waits for may be limited by `ack_capacity`.
    """

    def __init__(self, connection: Connection, name: str, transactional: bool) -> None:
        super().__init__(connection)
        self.connection = connection
        self.name = name
        self.transactional = transactional
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []
        self.ack_capacity: int | Constant = UNLIMITED
        self.closing = False
        self._inner: client.Session | None = None
        self._lock = connection._lock
        self._unacked: dict[int, Message] = {}
        self._answers: deque[tuple[client.Receipt, list[Receiver]]] = deque()
        self._lingering: list[Receiver] = []
        """Receivers that are closed, and have messages that are not acknowledged yet."""
        self._gate = Gate()
        self._counted = 0
        self._on_received: Callable[[Session], object] | None = None

    def __repr__(self) -> str:
        return f"<Session {self.name}>"

    @property
    def unacked(self) -> list[Message]:
        """Messages that were fetched and not acknowledged, in order."""
        return list(self._unacked.values())

    def check_closed(self) -> None:
        """Raise SessionClosed if it is."""
        if self.closed:
            raise SessionClosed(text="the session is closed")

    def sender(self, target: str, **options: object) -> Sender:
        """A sender to the address `target`. Options: `capacity`, how many sends may have no answer yet (UNLIMITED);
        `durable`, for messages that do not say it. Raises AddressError and its kin, UnauthorizedAccess."""
        sender = Sender(self, target, options)
        self._add(self.senders, sender)
        return sender

    def receiver(self, source: str, **options: object) -> Receiver:
        """A receiver from the address `source`; ``#`` has the broker make a node, whose address is the receiver's
        `source` then. Option: `capacity`, how many messages may wait to be fetched (0: they are asked for one by one).
        Raises AddressError and its kin, UnauthorizedAccess."""
        receiver = Receiver(self, source, options)
        self._add(self.receivers, receiver)
        return receiver

    def _add(self, links: list[L], link: L) -> None:
        self.check_error()
        with self.connection._opening:
            if self._inner is not None:
                link._link(self._inner)
            links.append(link)

    def next_receiver(self, timeout: float | None = None) -> Receiver:
        """The receiver that has the message which came first. Only those with a capacity can have one. Raises Empty."""
        found: list[Receiver] = []

        def ready() -> bool:
            found[:] = self._ready()
            return bool(found) or self.closed or self.get_error() is not None or self._inner is None

        arrived = self._gate.wait(ready, timeout)
        if found:
            return found[0]
        self._usable()
        if arrived:
            self._connection.check_closed()
        raise Empty(text="no message came in time")

    def _ready(self) -> list[Receiver]:
        waiting = [(number, receiver) for receiver in self.receivers if (number := receiver._first()) is not None]
        return [min(waiting, key=lambda entry: entry[0])[1]] if waiting else []

    def acknowledge(
        self, message: Message | None = None, disposition: Disposition | None = None, sync: bool = True
    ) -> None:
        """Acknowledge `message` alone, or, without one, all that was fetched in the session and was not acknowledged.

        `disposition` says something else than *accepted*: RELEASED or REJECTED. With `sync` it returns when the broker
        has answered; where the connection is lost meanwhile, and restored, nobody knows whether it was heard, and the
        message may come again, as one does that came before. On an unreliable link messages are acknowledged as they
        are sent: to acknowledge one has no effect, to release or reject it raises ReceiverError. Raises ValueError for
        what is acknowledged already, EncodeError and LinkError for a code or text that cannot be told.
        """
        self._usable()
        outcome = _outcome(disposition)
        self._check_outcome(outcome)
        messages = self._claim(message, outcome)
        if self.ack_capacity is not UNLIMITED:
            messages = self._within_capacity(messages, outcome)
        receipt = self._settle(messages, outcome)
        if not sync or receipt is None:
            return
        if receipt.result() is ReceiptStatus.UNKNOWN:
            self._usable()
            if not self.connection.reconnect:
                raise SessionError(text=f"the acknowledgement was not answered: {receipt.reason}")
            logger.warning("an acknowledgement was not answered, what it was about may come again: %s", receipt.reason)

    def _check_outcome(self, outcome: Outcome) -> None:
        """Raise why `outcome` cannot be told, before a message is taken to be acknowledged."""
        inner = self._inner
        if inner is not None:
            try:
                inner._core.core.check_outcome(outcome)
            except AcquitError as exc:
                raise self._failed(exc) from exc

    def _claim(self, message: Message | None, outcome: Outcome) -> list[Message]:
        with self._lock:
            if message is None:
                messages = list(self._unacked.values())
                self._unacked.clear()
                return messages
            receiver = message._receiver
            if receiver is not None and receiver.session is self and receiver._unreliable:
                if outcome is not ACCEPTED:
                    raise ReceiverError(
                        text=f"the link from {receiver.source!r} is unreliable: what it sends is settled"
                    )
                return []
            if self._unacked.pop(id(message), None) is None:
                raise ValueError("not a message of this session that is to be acknowledged")
            return [message]

    def _within_capacity(self, messages: list[Message], outcome: Outcome) -> list[Message]:
        """Settle all but the last message one by one, as there is room; there is room for the last then."""
        capacity = self.ack_capacity
        assert isinstance(capacity, int)
        if messages and capacity <= 0:
            with self._lock:
                self._unacked = {**{id(message): message for message in messages}, **self._unacked}
            raise InsufficientCapacity(text=f"ack_capacity = {capacity}")
        for message in messages[:-1]:
            self._await_room(capacity)
            self._settle([message], outcome)
        if messages:
            self._await_room(capacity)
        return messages[-1:]

    def _await_room(self, capacity: int) -> None:
        waiting = self._unanswered()
        while sum(len(receivers) for _, receivers in waiting) >= capacity:
            waiting[0][0].result()
            waiting = self._unanswered()

    def _unanswered(self) -> list[tuple[client.Receipt, list[Receiver]]]:
        """Acknowledgements that have no answer yet, with the receivers of their messages."""
        with self._lock:
            return [answer for answer in self._answers if answer[0].status is None]

    def _settle(self, messages: Iterable[Message], outcome: Outcome) -> client.Receipt | None:
        """Say what became of messages, which were claimed before; of those that came in this connection's life."""
        inner = self._inner
        ours = [message for message in messages if message._delivery is not None and message._receiver is not None]
        if inner is None or not ours:
            return None
        try:
            deliveries = [message._delivery for message in ours if message._delivery is not None]
            receipt = inner.settle(deliveries, outcome, sync=False)
        except AcquitError as exc:
            raise self._failed(exc) from exc
        receivers = [message._receiver for message in ours if message._receiver is not None]
        with self._lock:
            while self._answers and self._answers[0][0].status is not None:
                self._answers.popleft()
            self._answers.append((receipt, receivers))
        for receiver in {id(receiver): receiver for receiver in receivers}.values():
            receiver._settled(sum(other is receiver for other in receivers))
        return receipt

    def commit(self, timeout: float | None = None) -> None:
        """Make all that was sent and acknowledged since the last end of a transaction happen.

        Raises NontransactionalSession; TransactionAborted where nothing of it has happened, or will;
        TransactionUnknown where the commit was sent and not answered.
        """
        inner = self._transacted()
        try:
            inner.commit(timeout)
        except AcquitError as exc:
            raise self._failed(exc) from exc
        finally:
            for sender in self.senders:
                sender._forget()

    def rollback(self, timeout: float | None = None) -> None:
        """Undo all that was sent and fetched since the last end of a transaction; what was fetched comes again. Raises
        NontransactionalSession."""
        inner = self._transacted()
        with self._lock:
            undone = list(self._unacked.values())
            self._unacked.clear()
        try:
            inner.rollback(timeout)
        except AcquitError as exc:
            raise self._failed(exc) from exc
        finally:
            for sender in self.senders:
                sender._forget()
            for message in undone:
                message._delivery = None
                if message._receiver is not None:
                    message._receiver._settled(1)

    def _transacted(self) -> client.Session:
        self._usable()
        if not self.transactional:
            raise NontransactionalSession(text="the session is not transactional")
        if self._inner is None:
            raise Detached(text="the connection is not attached")
        return self._inner

    def sync(self, timeout: float | None = None) -> None:
        """Wait until all that was sent and acknowledged is answered. Raises Timeout, and what became of a send."""
        self._usable()
        deadline = SharedTimeout(timeout)
        for sender in list(self.senders):
            if sender.error is None or sender._pending:
                sender.sync(deadline.left())
        for receipt, _ in self._unanswered():
            receipt.result(deadline.left())
            if receipt.status is None:
                raise Timeout("the session was not in sync in time")

    def close(self, timeout: float | None = None) -> None:
        """Wait until all is answered, close all links, and end the session. What was not acknowledged is redelivered,
        an open transaction is rolled back."""
        if self.closed:
            return
        self.closing = True
        inner = self._inner
        try:
            if inner is not None and self.get_error() is None:
                self.sync(timeout)
        finally:
            links: list[Sender | Receiver] = [*self.senders, *self.receivers, *self._lingering]
            with self._lock:
                self.connection.sessions.pop(self.name, None)
                self.closed = True
            for link in links:
                link.closing = link.closed = True
            if inner is not None:
                inner.close(timeout)
            self._gate.open()
            for link in links:
                link._delete()
            self._inner = None
            for part in (self.senders, self.receivers, self._lingering):
                part.clear()

    def set_message_received_notify_handler(self, handler: Callable[[Session], object] | None) -> None:
        """Call `handler` with the session for each message that waits to be fetched. It is called in a thread of the
        client's and must not wait for anything."""
        self._on_received = handler

    set_message_received_handler = set_message_received_notify_handler

    # -- inside --------------------------------------------------------------------------------------------------------

    def _usable(self) -> None:
        self.check_error()
        self.check_closed()

    def _link(self) -> None:
        """Begin the session at the peer, and attach its links."""
        assert self.connection._inner is not None
        try:
            inner = self.connection._inner.session(AckMode.TRANSACTED if self.transactional else AckMode.INDIVIDUAL)
        except AcquitError as exc:
            raise self._failed(exc) from exc
        inner._core.mode = replace(inner._core.mode, credit=CreditReturn.ON_HANDOVER, commits_all=False)
        self._inner = inner
        self._counted = 0
        for link in [*self.senders, *self.receivers]:
            try:
                link._link(inner)
            except MessagingError as exc:  # raised by whoever uses it
                if link.error is None:
                    link.error = exc

    def _unlink(self) -> None:
        """The connection is gone: what was fetched will be redelivered."""
        with self._lock:
            if self.transactional and not self.closed and self.error is None:
                # What was done in it is rolled back: to go on as if nothing were would be to commit a part of it.
                self.error = TransactionAborted(text="the connection was detached")
            self._inner = None
            for message in self._unacked.values():
                message._delivery = None
            for link in [*self.senders, *self.receivers, *self._lingering]:
                link._unlink()
            self._lingering.clear()
        self._gate.open()

    def _arrived(self, core: ReceiverCore) -> None:
        """Messages came, or nothing will come any more (loop thread)."""
        self._gate.open()
        number = core.session.number
        new, self._counted = number - self._counted, number
        if self._on_received is not None:
            for _ in range(new):
                try:
                    self._on_received(self)
                except Exception:
                    logger.exception("the message-received handler of %r failed", self)


def _outcome(disposition: Disposition | None) -> Outcome:
    """Return the outcome that a disposition is in AMQP 1.0 (3.4)."""
    if disposition is None or disposition.type is None:
        return ACCEPTED
    options = disposition.options
    if disposition.type is RELEASED:
        return FAILED if options.get("set_redelivered") else RELEASED_OUTCOME
    if disposition.type is not REJECTED:
        raise SessionError(text=f"a disposition is RELEASED or REJECTED, got {disposition!r}")
    code, text = options.get("code"), options.get("text")
    if code is None and text is None:
        return Rejected()
    condition = code if isinstance(code, str) else "qpid:rejected" if code is None else f"qpid:{code}"
    return Rejected(Error(condition, None if text is None else str(text)))


__all__ = ["Session"]
