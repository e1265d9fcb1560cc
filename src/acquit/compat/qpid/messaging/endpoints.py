"""Connections, sessions, senders and receivers, on our blocking client.

Theory of operation. Each endpoint of the API has at most one of the client behind it, `_inner`, and none while its
connection is not attached: sessions and links may be made before `Connection.open`, and come back with `attach` after a
`detach`. When a connection that is to reconnect is lost, the client brings its endpoints back by itself.

A session acknowledges each message by itself (INDIVIDUAL), or is TRANSACTED. Unlike there, credit comes back as a
message is fetched: `Receiver.capacity` bounds what waits here to be fetched, not what the program holds. And a commit
takes along only what was acknowledged: what was not is still this session's, and may be acknowledged in the next
transaction.

A receiver whose messages are not all acknowledged yet stays attached without credit when it is closed: detached, they
would be redelivered, and in this API they are the session's to acknowledge.

Errors. What happens to one endpoint is its `error`, and raised by whatever needs it from then on; a message that was
refused is raised once, by the next call that concerns its sender. Calls from several threads are as safe as the
client's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from acquit.client import blocking as client
from acquit.client.modes import AckMode, CreditReturn
from acquit.client.options import DeliveryMode
from acquit.client.receipts import ReceiptStatus
from acquit.client.reconnecting import ConnectionEvent, ConnectionEventKind
from acquit.client.threads import Gate
from acquit.compat.qpid import connecting, management
from acquit.compat.qpid.conversion import from_wire, to_wire
from acquit.compat.qpid.failures import translated
from acquit.compat.qpid.messaging.address import quote
from acquit.compat.qpid.messaging.constants import REJECTED, RELEASED, UNLIMITED, Constant
from acquit.compat.qpid.messaging.exceptions import (
    AssertionFailed,
    AuthenticationFailure,
    ConnectError,
    ConnectionClosed,
    ConnectionError,
    Detached,
    Empty,
    FetchError,
    InsufficientCapacity,
    InvalidOption,
    LinkClosed,
    LinkError,
    MessagingError,
    NontransactionalSession,
    NotFound,
    ReceiverError,
    SendError,
    SessionClosed,
    SessionError,
    Timeout,
)
from acquit.compat.qpid.messaging.message import Disposition, Message
from acquit.compat.qpid.resolving import Plan, plan
from acquit.errors import AcquitError, ConnectionFailed, ConnectTimeout, DecodeError, EndpointError, SendFailed
from acquit.protocol._definitions import Accepted, Error, Modified, Rejected
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.constants import RELEASED as RELEASED_OUTCOME

if TYPE_CHECKING:
    from acquit.client.receiving import ReceiverCore
    from acquit.compat.qpid.util import URL
    from acquit.protocol.delivery import Outcome

logger = logging.getLogger("qpid.messaging")

E = TypeVar("E", bound=MessagingError)

_CAPACITY_MAX: Final = 0x7FFF_FFFF
_FAILED: Final = Modified(delivery_failed=True)


class _Deadline:
    """A time-out that several waits share, in seconds; None: no limit."""

    __slots__ = ("_ends_at",)

    def __init__(self, timeout: float | None) -> None:
        self._ends_at = None if timeout is None else time.monotonic() + timeout

    def left(self) -> float | None:
        return None if self._ends_at is None else max(0.0, self._ends_at - time.monotonic())


class Endpoint:
    """What connections, sessions, senders and receivers have in common: an `error`, and who is told of it."""

    def __init__(self) -> None:
        self._error: MessagingError | None = None
        self._handler: Callable[[Endpoint, Exception], object] | None = None

    @property
    def error(self) -> MessagingError | None:
        """Why the endpoint is gone; None while it is not."""
        return self._error

    @error.setter
    def error(self, error: MessagingError | None) -> None:
        self._error = error
        if error is not None and self._handler is not None:
            self._handler(self, error)

    def set_async_exception_notify_handler(self, handler: Callable[[Endpoint, Exception], object] | None) -> None:
        """Have `handler` called with the endpoint and its error when there is one. It may be called in a thread of the
        client's and must not wait for anything."""
        self._handler = handler


class Connection(Endpoint):
    """A connection to a broker, once it is opened; `establish` makes one that is.

    `url` is ``[amqp://|amqps://][user[/password]@]host[:port]``. Options, of which the URL's parts win: host, port,
    transport (tcp, ssl, tcp+tls), username, password, sasl_mechanisms (names with spaces between them), heartbeat
    (seconds), reconnect, reconnect_timeout, reconnect_interval, reconnect_interval_min, reconnect_interval_max
    (seconds), reconnect_limit (rounds), reconnect_urls, ssl_keyfile, ssl_certfile, ssl_trustfile,
    ssl_skip_hostname_check, client_properties, and container_id, which is new. Raises ConnectionError for another.
    """

    @staticmethod
    def establish(url: str | URL | None = None, timeout: float | None = None, **options: object) -> Connection:
        """A connection that is open. Raises what `open` raises."""
        connection = Connection(url, **options)
        connection.open(timeout)
        return connection

    def __init__(self, url: str | URL | None = None, **options: object) -> None:
        super().__init__()
        self.options = options
        self._options = connecting.read_options(url, options)
        self.id = str(uuid4())
        self.sessions: dict[str, Session] = {}
        self.session_counter = 0
        self._lock = threading.RLock()
        self._open = False
        self._inner: client.Connection | None = None
        self._management: management.Management | None = None

    def __getattr__(self, name: str) -> object:
        # The options are attributes, as ever; what was set on the connection itself was found before.
        if name != "_options" and name in self._options:
            return self._options[name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def session(self, name: str | None = None, transactional: bool = False) -> Session:
        """The session of this name, made where there is none; without a name, a new one."""
        with self._lock:
            if name is None:
                name = str(self.session_counter)
                self.session_counter += 1
            full_name = f"{self.id}:{name}"
            found = self.sessions.get(full_name)
            if found is not None:
                return found
            session = Session(self, full_name, transactional)
            if self._inner is not None:
                session._link()
            self.sessions[full_name] = session
            return session

    def open(self, timeout: float | None = None) -> None:
        """Connect, and attach what was made before.

        With `reconnect` it is tried again until `timeout` or `reconnect_timeout` (seconds), or `reconnect_limit`.
        Raises ConnectError, AuthenticationFailure, Timeout; ConnectionError when it is open.
        """
        with self._lock:
            if self._open:
                raise ConnectionError(text="the connection is open already")
            reconnect_timeout = self._options["reconnect_timeout"]
            if self.reconnect and isinstance(reconnect_timeout, int | float) and reconnect_timeout > 0:
                timeout = reconnect_timeout
            self.attach(timeout)
            self._open = True

    def opened(self) -> bool:
        """Whether `open` was called, and `close` was not."""
        return self._open

    def attach(self, timeout: float | None = None) -> None:
        """Connect, if it is not, and attach all sessions and links. Raises as `open`."""
        with self._lock:
            if self._inner is not None:
                return
            self.error = None
            settings = connecting.settings({**self._options, **self._set()}, timeout)
            try:
                self._inner = settings.connect(self._on_event, timeout)
            except ConnectTimeout as exc:
                if timeout is not None:
                    raise Timeout(f"the connection was not opened within {timeout:g} s: {exc}") from exc
                raise self._failed_to_connect(exc) from exc
            except AcquitError as exc:
                raise self._failed_to_connect(exc) from exc
            for session in list(self.sessions.values()):
                session._link()

    def _set(self) -> dict[str, object]:
        """Options that were changed on the connection."""
        return {name: self.__dict__[name] for name in connecting.OPTIONS if name in self.__dict__}

    def _failed_to_connect(self, exc: AcquitError) -> MessagingError:
        error = translated(exc)
        if not isinstance(error, AuthenticationFailure):
            error = ConnectError(error.code, error.text)
        self.error = error
        return error

    def attached(self) -> bool:
        """Whether it is connected, or will be again by itself."""
        return self._inner is not None

    def detach(self, timeout: float | None = None) -> None:
        """Disconnect. Sessions and links stay, to be attached again; what was not acknowledged is redelivered."""
        with self._lock:
            inner, self._inner, self._management = self._inner, None, None
        if inner is not None:
            for session in list(self.sessions.values()):
                session._unlink()
            inner.close(timeout)

    def close(self, timeout: float | None = None) -> None:
        """Close all sessions, then the connection."""
        try:
            for session in list(self.sessions.values()):
                session.close(timeout)
        finally:
            self.detach(timeout)
            self._open = False

    def check_error(self) -> None:
        """Raise the error, if there is one."""
        if self.error is not None:
            raise self.error

    def get_error(self) -> MessagingError | None:
        """The error, if there is one."""
        return self.error

    def check_closed(self) -> None:
        """Raise ConnectionClosed unless it is attached."""
        if self._inner is None:
            raise ConnectionClosed(text="the connection is closed")

    # -- inside --------------------------------------------------------------------------------------------------------

    def _on_event(self, event: ConnectionEvent) -> None:
        if self.reconnect_log and event.kind in (ConnectionEventKind.INTERRUPTED, ConnectionEventKind.RESTORED):
            logger.warning(
                "the connection to %s is %s%s",
                event.where,
                event.kind.value,
                f": {event.reason}" if event.reason else "",
            )
        if event.kind is ConnectionEventKind.FAILED and self.error is None and self._inner is not None:
            self.error = ConnectionError(text=f"the connection to {event.where} is lost: {event.reason}")
            for session in list(self.sessions.values()):
                session._gate.open()

    def _ask(self) -> management.Management:
        """Whom to ask about nodes. Call `management.knows` first."""
        assert self._inner is not None
        if self._management is None:
            self._management = management.Management(self._inner)
        return self._management


class _Part(Endpoint):
    """An endpoint within a connection."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self.closed = False

    def check_error(self) -> None:
        """Raise the error of this endpoint, or of what it is part of."""
        error = self.get_error()
        if error is not None:
            raise error

    def get_error(self) -> MessagingError | None:
        """The error of this endpoint, or of what it is part of."""
        return self._connection.error or self.error

    def _failed(self, exc: AcquitError, link: type[LinkError] = LinkError) -> MessagingError:
        """What to raise for an error of the client's, which becomes this endpoint's where it is the end of it."""
        error = translated(exc, link)
        if isinstance(exc, ConnectionFailed):
            if self._connection._inner is None:
                return ConnectionClosed(text="the connection is closed")
            if self._connection.error is None:
                self._connection.error = error
            return self._connection.error
        if isinstance(exc, EndpointError) and self.error is None:
            self.error = error
        return error


class Session(_Part):
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
        self._gate = Gate()
        self._counted = 0
        self._on_received: Callable[[Session], object] | None = None

    def __repr__(self) -> str:
        return f"<Session {self.name}>"

    @property
    def unacked(self) -> list[Message]:
        """What was fetched and not acknowledged, in order."""
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

    def _add(self, links: list[_L], link: _L) -> None:
        self._usable()
        with self._lock:
            links.append(link)
        if self._inner is not None:
            try:
                link._link(self._inner)
            except BaseException:
                links.remove(link)
                raise

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
        has answered. A message that came before the connection was lost has no effect: it comes again. On an
        unreliable link messages are acknowledged as they are sent: to acknowledge one has no effect, to release or
        reject it raises ReceiverError. Raises ValueError for what is acknowledged already.
        """
        self._usable()
        outcome = _outcome(disposition)
        messages = self._claim(message, outcome)
        if self.ack_capacity is not UNLIMITED:
            messages = self._within_capacity(messages)
        receipt = self._settle(messages, outcome)
        if not sync or receipt is None:
            return
        if receipt.result() is ReceiptStatus.UNKNOWN:
            self._usable()
            raise SessionError(text=f"the acknowledgement was not answered: {receipt.reason}")

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

    def _within_capacity(self, messages: list[Message]) -> list[Message]:
        """Acknowledge all but the last message one by one, as there is room; there is room for the last then."""
        capacity = self.ack_capacity
        assert isinstance(capacity, int)
        if messages and capacity <= 0:
            with self._lock:
                self._unacked = {**{id(message): message for message in messages}, **self._unacked}
            raise InsufficientCapacity(text=f"ack_capacity = {capacity}")
        for message in messages[:-1]:
            self._await_room(capacity)
            self._settle([message], ACCEPTED)
        if messages:
            self._await_room(capacity)
        return messages[-1:]

    def _await_room(self, capacity: int) -> None:
        while sum(len(receivers) for _, receivers in self._unanswered()) >= capacity:
            self._answers[0][0].result()

    def _unanswered(self) -> deque[tuple[client.Receipt, list[Receiver]]]:
        answers = self._answers
        while answers and answers[0][0].status is not None:
            answers.popleft()
        return answers

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
        self._unanswered().append((receipt, receivers))
        for receiver in {id(receiver): receiver for receiver in receivers}.values():
            receiver._settled(sum(other is receiver for other in receivers))
        return receipt

    def commit(self, timeout: float | None = None) -> None:
        """Make all that was sent and acknowledged since the last end of a transaction happen.

        Raises NontransactionalSession; TransactionAborted where nothing of it has happened, or will;
        TransactionUnknown where the commit was sent and not answered.
        """
        inner = self._transacted()
        core = inner._core
        # What was not acknowledged is no part of the transaction, which would take along all that was handed out.
        held = [m._delivery for m in self.unacked if m._delivery is not None and core.claim(m._delivery)]
        try:
            inner.commit(timeout)
        except AcquitError as exc:
            raise self._failed(exc) from exc
        finally:
            core.handed_out.update((message._number, message) for message in held)
            for sender in self.senders:
                sender._forget()

    def rollback(self, timeout: float | None = None) -> None:
        """Undo all that was sent and fetched since the last end of a transaction; what was fetched comes again. Raises
        NontransactionalSession."""
        inner = self._transacted()
        with self._lock:
            for message in self._unacked.values():
                message._delivery = None
            self._unacked.clear()
        try:
            inner.rollback(timeout)
        except AcquitError as exc:
            raise self._failed(exc) from exc
        finally:
            for sender in self.senders:
                sender._forget()

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
        deadline = _Deadline(timeout)
        for sender in list(self.senders):
            sender.sync(deadline.left())
        while self._unanswered():
            self._answers[0][0].result(deadline.left())
            if self._answers[0][0].status is None:
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
            links: list[Sender | Receiver] = [*self.senders, *self.receivers]
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
            self.senders.clear()
            self.receivers.clear()

    def set_message_received_notify_handler(self, handler: Callable[[Session], object] | None) -> None:
        """Have `handler` called with the session for each message that waits to be fetched. It is called in a thread
        of the client's and must not wait for anything."""
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
        inner._core.mode = replace(inner._core.mode, credit=CreditReturn.ON_HANDOVER)
        self._inner = inner
        self._counted = 0
        for link in [*self.senders, *self.receivers]:
            link._link(inner)

    def _unlink(self) -> None:
        """The connection is gone: what was fetched will be redelivered."""
        with self._lock:
            self._inner = None
            for message in self._unacked.values():
                message._delivery = None
            for link in [*self.senders, *self.receivers]:
                link._unlink()
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


class _Link(_Part):
    """A sender or receiver."""

    def __init__(self, session: Session, address: str, options: dict[str, object]) -> None:
        super().__init__(session.connection)
        self.session = session
        self.options = options
        self.closing = False
        self._address = address
        self._plan: Plan | None = None
        self._lock = session._lock

    @property
    def linked(self) -> bool:
        """Whether it is attached."""
        return self._is_linked()

    def get_error(self) -> MessagingError | None:
        """The error of this link, of its session, or of its connection."""
        return self.session.get_error() or self.error

    def check_closed(self) -> None:
        """Raise LinkClosed if it is closed."""
        if self.closed:
            raise LinkClosed(text="the link is closed")

    def _link(self, inner: client.Session) -> None:
        raise NotImplementedError

    def _unlink(self) -> None:
        raise NotImplementedError

    def _is_linked(self) -> bool:
        raise NotImplementedError

    def _usable(self) -> None:
        """Raise why it cannot be used."""
        self.check_error()
        self._connection.check_closed()
        self.session.check_closed()
        self.check_closed()

    def _prepare(self, found: Plan) -> None:
        """Before it is attached: what the broker is asked apart from it. Raises InvalidOption, NotFound."""
        connection = self._connection
        assert connection._inner is not None
        if not (found.deletes or found.asserted) or found.address is None:
            return
        known = management.knows(connection._inner)
        if found.deletes and not known:
            raise InvalidOption(text="delete: this broker deletes no nodes for its clients")
        if found.asserted is not None and known:
            self._assert(found, connection._ask())

    def _assert(self, found: Plan, broker: management.Management) -> None:
        assert found.address is not None and found.asserted is not None
        node = broker.read(found.address)
        if node is None:
            if not found.creates and broker.is_missing(found.address):
                raise NotFound("amqp:not-found", f"there is no {found.asserted.kind or 'node'} {found.address!r}")
            return
        for name, wanted in (("kind", found.asserted.kind), ("durable", found.asserted.durable)):
            if wanted is not None and name in node and _plain(node[name]) != wanted:
                raise AssertionFailed(text=f"{found.address!r}: expected {name} {wanted}, found {_plain(node[name])}")

    def _check_kind(self, found: Plan, capabilities: Iterable[str]) -> None:
        """What the peer's terminus says of its node. Raises AssertionFailed."""
        said = set(capabilities)
        if found.asserted is not None and found.asserted.kind is not None and found.asserted.kind not in said:
            what = " and ".join(sorted(said)) or "nothing"
            raise AssertionFailed(text=f"{found.address!r}: expected {found.asserted.kind}, and the peer says {what}")

    def _delete(self) -> None:
        """It is closed: delete its node, where the address says so. Raises ServerError."""
        if self._plan is not None and self._plan.deletes and self._plan.address is not None:
            inner = self._connection._inner
            if inner is not None and not inner.closed:
                self._connection._ask().delete(self._plan.address)


_L = TypeVar("_L", bound=_Link)


class Sender(_Link):
    """Sends messages to one address. Made by `Session.sender`.

    `capacity`: how many sends may have no answer yet, UNLIMITED by default; `durable`: for messages that do not say it.
    """

    def __init__(self, session: Session, target: str, options: dict[str, object]) -> None:
        super().__init__(session, target, options)
        self.target = target
        self.capacity: int | Constant = options.get("capacity", UNLIMITED)  # type: ignore[assignment]
        self.durable = options.get("durable")
        self.threshold = 0.5
        self._inner: client.Sender | None = None
        self._pending: deque[client.SendReceipt] = deque()

    def send(
        self,
        object: Message | str | bytes | list[object] | dict[str, object],
        sync: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Send a message, or a content. With `sync` it returns when the broker has taken it, and raises SendError or
        TargetCapacityExceeded where it did not; otherwise a later call of this sender does.

        `timeout` (seconds) limits the wait for room within the capacity (InsufficientCapacity), and for the broker
        (Timeout: it may still take the message). Raises Detached while the connection is not attached, EncodeError.
        """
        self.check_error()
        if self._connection._inner is None or self.session.closing:
            raise Detached(text="the connection is not attached, or the session is closed")
        self._usable()
        self._raise_refused()
        inner = self._inner
        assert inner is not None and self._plan is not None
        message = object if isinstance(object, Message) else Message(object)
        if message.durable is None and self.durable is not None:
            message.durable = bool(self.durable)
        deadline = _Deadline(timeout)
        self._await_room(deadline)
        try:
            receipt = inner.send(
                to_wire(message, self._plan.subject),
                wait=False,
                timeout=deadline.left(),
                delivery_mode=DeliveryMode.PERSISTENT if message.durable else DeliveryMode.NON_PERSISTENT,
            )
        except SendFailed as exc:
            raise InsufficientCapacity(text=str(exc)) from exc
        except AcquitError as exc:
            raise self._failed(exc, SendError) from exc
        if receipt is not None:
            self._pending.append(receipt)
        if sync:
            self.sync(deadline.left())

    def unsettled(self) -> int:
        """How many sends have no answer yet."""
        return sum(not receipt.done for receipt in list(self._pending))

    def available(self) -> int | Constant:
        """How many sends the capacity has room for."""
        return self.capacity - self.unsettled() if isinstance(self.capacity, int) else self.capacity

    def sync(self, timeout: float | None = None) -> None:
        """Wait until all sends have their answer. Raises Timeout, and SendError for the first that was not taken."""
        self.check_error()
        deadline = _Deadline(timeout)
        refused: AcquitError | None = None
        while True:
            try:
                receipt = self._pending[0]
            except IndexError:
                break
            try:
                receipt.result(deadline.left())
            except AcquitError as exc:
                if not receipt.done:
                    raise Timeout("the sends were not answered in time") from exc
                refused = refused or exc
            self._drop(receipt)
        if refused is not None:
            raise self._failed(refused, SendError) from refused

    def close(self, timeout: float | None = None) -> None:
        """Wait until all sends have their answer, and detach."""
        if self.closed:
            return
        self.closing = True
        try:
            if self.get_error() is None:
                self.sync(timeout)
        finally:
            self.closed = True
            with self._lock:
                if self in self.session.senders:
                    self.session.senders.remove(self)
            if self._inner is not None:
                self._inner.close(timeout)
                self._delete()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _link(self, inner: client.Session) -> None:
        found = plan(self._address, "sender", named=self._connection._options["container_id"] is not None)
        self._prepare(found)
        try:
            self._inner = inner.sender(
                found.address,
                name=found.name,
                topic=found.topic,
                capabilities=found.capabilities,
                unreliable=found.unreliable,
            )
        except AcquitError as exc:
            raise self._failed(exc, LinkError) from exc
        self._plan = found
        target = self._inner._core.link.target
        try:
            self._check_kind(found, getattr(target, "capabilities", ()))
        except AssertionFailed:
            self._inner.close()
            raise

    def _unlink(self) -> None:
        self._inner = None
        self._pending.clear()

    def _is_linked(self) -> bool:
        return self._inner is not None

    def _await_room(self, deadline: _Deadline) -> None:
        capacity = self.capacity
        if not isinstance(capacity, int):
            return
        while self.unsettled() >= capacity:
            oldest = next((receipt for receipt in list(self._pending) if not receipt.done), None)
            try:
                if oldest is not None and capacity > 0:
                    oldest.result(deadline.left())
            except AcquitError:
                pass  # what became of it is raised below, or by who asks next
            if capacity <= 0 or (oldest is not None and not oldest.done):
                raise InsufficientCapacity(text=f"no room within the capacity of {capacity}")
            self._raise_refused()

    def _raise_refused(self) -> None:
        """Forget the sends that were taken; raise what became of the first that was not."""
        while self._pending and self._pending[0].done:
            receipt = self._pending[0]
            if not isinstance(receipt.outcome, Accepted):
                self._drop(receipt)
                try:
                    receipt.result()
                except AcquitError as exc:
                    raise self._failed(exc, SendError) from exc
            self._drop(receipt)

    def _drop(self, receipt: client.SendReceipt) -> None:
        try:
            self._pending.remove(receipt)
        except ValueError:
            pass  # by another thread

    def _forget(self) -> None:
        """A transaction has ended, and with it its sends."""
        for receipt in [receipt for receipt in list(self._pending) if receipt.done]:
            self._drop(receipt)


class Receiver(_Link):
    """Receives messages from one address, by `fetch`. Made by `Session.receiver`."""

    def __init__(self, session: Session, source: str, options: dict[str, object]) -> None:
        super().__init__(session, source, options)
        self.threshold = 0.5
        self._capacity = _counted(options.get("capacity", 0))
        self._inner: client.Receiver | None = None
        self._lingering: client.Receiver | None = None
        self._unreliable = False
        self._held = 0

    @property
    def source(self) -> str:
        """The address; of a node that the broker made, the one that it has there."""
        inner = self._inner
        if inner is not None and self._plan is not None and self._plan.address is None:
            return quote(inner.address)
        return self._address

    @property
    def capacity(self) -> int | Constant:
        """How many messages may wait here to be fetched; 0: they are asked for one by one."""
        return UNLIMITED if self._capacity == _CAPACITY_MAX else self._capacity

    @capacity.setter
    def capacity(self, capacity: int | Constant) -> None:
        self._capacity = _counted(capacity)
        inner = self._inner
        if inner is not None:
            core = inner._core
            core.session.core.post((_set_prefetch, core, self._capacity))

    def unsettled(self) -> int:
        """How many acknowledgements have no answer yet."""
        with self._lock:
            return sum(receivers.count(self) for receipt, receivers in self.session._answers if receipt.status is None)

    def available(self) -> int:
        """How many messages wait here to be fetched."""
        return len(self._inner._core.buffer) if self._inner is not None else 0

    def fetch(self, timeout: float | None = None) -> Message:
        """The next message. Without a time-out it waits until there is one; at the time-out (seconds) the broker has
        said that it has none.

        Raises Empty, FetchError and its kin, LinkClosed, SessionClosed, ConnectionClosed, ConnectionError; DecodeError
        for a message that cannot be read, which is rejected.
        """
        self._usable()
        inner = self._inner
        if inner is None:
            raise Detached(text="the connection is not attached")
        try:
            received = inner.receive(timeout)
            if received is None and self._capacity:
                received = self._last(inner)
        except AcquitError as exc:
            self._usable()
            raise self._failed(exc, FetchError) from exc
        if received is None:
            self._usable()
            raise Empty(text="no message came in time")
        return self._read(received)

    def _last(self, inner: client.Receiver) -> client.ReceivedMessage | None:
        """Nothing came in time; what the broker has may be on its way."""
        core = inner._core
        inner.drain(core.session.core.options.answer_timeout_ms / 1000)
        received = core.take()
        core.session.core.post((_set_prefetch, core, self._capacity))
        assert received is None or isinstance(received, client.ReceivedMessage)
        return received

    def _read(self, received: client.ReceivedMessage) -> Message:
        try:
            message = from_wire(received)
        except DecodeError as exc:
            if not self._unreliable:
                received.reject(exc.condition, str(exc), sync=False)
            raise translated(exc) from exc
        message._receiver = self
        if not self._unreliable:
            message._delivery = received
            with self._lock:
                self._held += 1
                self.session._unacked[id(message)] = message
        return message

    def close(self, timeout: float | None = None) -> None:
        """Detach. Messages that were not fetched go back; those that were can still be acknowledged."""
        if self.closed:
            return
        self.closing = self.closed = True
        with self._lock:
            if self in self.session.receivers:
                self.session.receivers.remove(self)
            inner, self._inner = self._inner, None
            if inner is not None and self._held:
                self._lingering = inner
        self.session._gate.open()
        if inner is None:
            return
        if self._lingering is None:
            inner.close(timeout)
            self._delete()
        else:
            self._give_back(inner, timeout)

    def _give_back(self, inner: client.Receiver, timeout: float | None) -> None:
        """Nothing more is wanted, and what was fetched is not settled yet."""
        core = inner._core
        try:
            inner.drain(timeout if timeout is not None else core.session.core.options.close_timeout_ms / 1000)
        except AcquitError:
            return  # it is gone
        core.session.core.post((_set_returning, core))
        while (message := core.take()) is not None:
            assert isinstance(message, client.ReceivedMessage)
            message.release(sync=False)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _first(self) -> int | None:
        """The number, within the session, of the message that would be fetched now."""
        inner = self._inner
        try:
            return None if inner is None else inner._core.buffer[0]._number
        except IndexError:
            return None

    def _settled(self, count: int) -> None:
        """So many of its messages have been acknowledged."""
        with self._lock:
            self._held -= count
            done = self._held <= 0 and self._lingering is not None
            inner, self._lingering = (self._lingering, None) if done else (None, self._lingering)
        if inner is not None:
            try:
                inner.close()
                self._delete()
            except AcquitError as exc:
                raise self._failed(exc) from exc

    def _link(self, inner: client.Session) -> None:
        found = plan(self._address, "receiver", named=self._connection._options["container_id"] is not None)
        self._prepare(found)
        try:
            receiver = inner.receiver(
                found.address,
                prefetch=self._capacity,
                browse=found.browse,
                name=found.name,
                filters=found.filters,
                selector=found.selector,
                topic=found.topic,
                subscription=found.subscription,
                capabilities=found.capabilities,
                unreliable=found.unreliable,
            )
        except AcquitError as exc:
            raise self._failed(exc, ReceiverError) from exc
        self._plan = found
        self._unreliable = found.unreliable
        core = receiver._core
        try:
            self._check_kind(found, core.link.source.capabilities if core.link.source is not None else ())
        except AssertionFailed:
            receiver.close()
            raise
        wake = core.notify

        def notify() -> None:
            wake()
            self.session._arrived(core)

        core.notify = notify
        self._inner = receiver
        if core.buffer:  # came before we were listening
            self.session._arrived(core)

    def _unlink(self) -> None:
        self._inner = self._lingering = None
        self._held = 0

    def _is_linked(self) -> bool:
        return self._inner is not None


def _counted(capacity: object) -> int:
    """A capacity as a number."""
    if capacity is UNLIMITED:
        return _CAPACITY_MAX
    if not isinstance(capacity, int) or capacity < 0:
        raise InsufficientCapacity(text=f"a capacity is a number from 0, or UNLIMITED, got {capacity!r}")
    return min(capacity, _CAPACITY_MAX)


def _plain(said: object) -> object:
    """What the broker says of a node, as addresses say it: a kind may be ``temporary queue``."""
    return said.rpartition(" ")[2] if isinstance(said, str) else said


def _outcome(disposition: Disposition | None) -> Outcome:
    """What a disposition is in AMQP 1.0 (3.4)."""
    if disposition is None or disposition.type is None:
        return ACCEPTED
    options = disposition.options
    if disposition.type is RELEASED:
        return _FAILED if options.get("set_redelivered") else RELEASED_OUTCOME
    if disposition.type is not REJECTED:
        raise SessionError(text=f"a disposition is RELEASED or REJECTED, got {disposition!r}")
    code, text = options.get("code"), options.get("text")
    if code is None and text is None:
        return Rejected()
    condition = code if isinstance(code, str) else "qpid:rejected" if code is None else f"qpid:{code}"
    return Rejected(Error(condition, None if text is None else str(text)))


def _set_prefetch(core: ReceiverCore, capacity: int) -> None:
    """Another capacity (loop side): the credit follows it. What is on its way still comes."""
    core.spec = replace(core.spec, prefetch=capacity)
    if core.failure is not None or core.closing:
        return
    core._paused = False
    if capacity:
        core.top_up()
    elif core.link.credit and not core._pulling:
        core.drain()


def _set_returning(core: ReceiverCore) -> None:
    """What still arrives goes back (loop side)."""
    core.returning = True


__all__ = ["Connection", "Endpoint", "Receiver", "Sender", "Session"]
