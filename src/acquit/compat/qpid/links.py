"""Senders and receivers: links, on those of our blocking client.

A receiver whose messages are not all acknowledged yet stays attached without credit when it is closed: detached, they
would be redelivered, and in this API they are the session's to acknowledge.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from acquit.client import blocking as client
from acquit.client.options import DeliveryMode
from acquit.client.threads import wait
from acquit.compat.qpid import management
from acquit.compat.qpid.conversion import from_wire, to_wire
from acquit.compat.qpid.endpoint import ConnectionPart, SharedTimeout
from acquit.compat.qpid.failures import translated
from acquit.compat.qpid.messaging.address import quote
from acquit.compat.qpid.messaging.constants import UNLIMITED, Constant
from acquit.compat.qpid.messaging.exceptions import (
    AssertionFailed,
    Detached,
    Empty,
    FetchError,
    InsufficientCapacity,
    InvalidOption,
    LinkClosed,
    LinkError,
    MessagingError,
    NotFound,
    ReceiverError,
    SendError,
    Timeout,
)
from acquit.compat.qpid.messaging.message import Message
from acquit.compat.qpid.resolving import AttachPlan, plan
from acquit.errors import AcquitError, ConnectionFailed, DecodeError, SendFailed, SessionEnded
from acquit.protocol.constants import RELEASED
from acquit.protocol.definitions import Accepted

if TYPE_CHECKING:
    from acquit.client.failures import Failure
    from acquit.client.products import Product
    from acquit.client.receiving import ReceiverCore
    from acquit.compat.qpid.session import Session

_CAPACITY_MAX: Final = 0x7FFF_FFFF


class Link(ConnectionPart):
    """A sender or receiver."""

    def __init__(self, session: Session, address: str, options: dict[str, object]) -> None:
        super().__init__(session.connection)
        self.session = session
        self.options = options
        self.closing = False
        self._address = address
        self._plan: AttachPlan | None = None
        self._lock = session._lock

    @property
    def linked(self) -> bool:
        """True if the link is attached."""
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

    def _repeats_kind(self, peer: Product) -> bool:
        """Return True if the peer's answer to such a link repeats the kind of node that was asked for, whatever is
        there."""
        raise NotImplementedError

    def _usable(self) -> None:
        """Raise why it cannot be used."""
        self.check_closed()
        self.check_error()
        self.session.check_closed()
        self._connection.check_closed()

    def _prepare(self, found: AttachPlan) -> None:
        """Ask the broker, before the link is attached, what is asked apart from it. Raises Detached while the
        connection is not attached, InvalidOption, NotFound, ServerError where there is no answer, AssertionFailed, and
        what the client raises."""
        connection = self._connection._inner
        if connection is None:
            raise Detached(text="the connection is not attached")
        if not (found.deletes or found.asserted) or found.address is None:
            return
        kind = found.asserted.kind if found.asserted is not None else None
        if kind is not None and self._repeats_kind(connection._aio._core.peer):
            raise AssertionFailed(text=f"{found.address!r}: this broker does not say whether it is a {kind}")
        known = management.knows(connection)
        if found.deletes and not known:
            raise InvalidOption(text="delete: this broker deletes no nodes for its clients")
        if found.asserted is not None and known:
            self._assert(found, connection)
        elif found.asserted is not None and found.asserted.durable is not None:
            raise AssertionFailed(text=f"{found.address!r}: this broker does not say whether it is durable")

    def _assert(self, found: AttachPlan, connection: client.Connection) -> None:
        assert found.address is not None and found.asserted is not None
        node = management.read(connection, found.address)
        if node is None:
            if not found.creates and management.is_missing(connection, found.address):
                raise NotFound("amqp:not-found", f"there is no {found.asserted.kind or 'node'} {found.address!r}")
            return
        for wanted, is_so, what in (
            (found.asserted.kind, node.kind, "type"),
            (found.asserted.durable, node.durable, "durable"),
        ):
            if wanted not in (None, is_so):
                raise AssertionFailed(text=f"{found.address!r}: expected {what} {wanted}, found {is_so}")

    def _check_kind(self, found: AttachPlan, capabilities: Iterable[str]) -> None:
        """Raise AssertionFailed where the peer's terminus does not say that its node is of the asserted kind."""
        said = set(capabilities)
        if found.asserted is not None and found.asserted.kind is not None and found.asserted.kind not in said:
            what = " and ".join(sorted(said)) or "nothing"
            raise AssertionFailed(text=f"{found.address!r}: expected {found.asserted.kind}, and the peer says {what}")

    def _told(self, failure: Failure | None, kind: type[LinkError]) -> None:
        """The link is gone, if there is a failure (loop thread). What the whole connection's is, it tells by itself."""
        if failure is None or self.closing or self.session.closing or issubclass(failure.kind, ConnectionFailed):
            return
        self._failed(failure.error(), kind)

    def _failed(self, exc: AcquitError, link: type[LinkError] = LinkError) -> MessagingError:
        if isinstance(exc, SessionEnded):
            return self.session._failed(exc, link)
        return super()._failed(exc, link)

    def _delete(self) -> None:
        """Delete the node of a link that is closed, where the address says so. Raises ServerError."""
        if self._plan is not None and self._plan.deletes and self._plan.address is not None:
            connection = self._connection._inner
            if connection is not None:
                with suppress(ConnectionFailed):  # somebody else closes it
                    management.delete(connection, self._plan.address)


class Sender(Link):
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
        if self._connection._inner is None or self.session.closing:
            raise Detached(text="the connection is not attached, or the session is closed")
        self._usable()
        self._raise_refused()
        inner = self._inner
        assert inner is not None and self._plan is not None
        message = object if isinstance(object, Message) else Message(object)
        if message.durable is None and self.durable is not None:
            message.durable = bool(self.durable)
        deadline = SharedTimeout(timeout)
        self._await_room(deadline)
        try:
            receipt = inner._begin_send(
                to_wire(message, self._plan.subject),
                deadline.left(),
                DeliveryMode.PERSISTENT if message.durable else DeliveryMode.NON_PERSISTENT,
            )
        except SendFailed as exc:
            raise InsufficientCapacity(text=str(exc)) from exc
        except AcquitError as exc:
            raise self._failed(exc, SendError) from exc
        self._pending.append(receipt)
        if sync:
            self.sync(deadline.left())

    def unsettled(self) -> int:
        """Return how many sends have no answer yet."""
        return sum(not receipt.done for receipt in list(self._pending))

    def available(self) -> int | Constant:
        """Return how many sends the capacity has room for."""
        return self.capacity - self.unsettled() if isinstance(self.capacity, int) else self.capacity

    def sync(self, timeout: float | None = None) -> None:
        """Wait until all sends have their answer. Raises Timeout, and SendError for the first that was not taken."""
        self.check_error()
        deadline = SharedTimeout(timeout)
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
        try:
            self._prepare(found)
            sender = inner.sender(
                found.address,
                name=found.name,
                topic=found.topic,
                capabilities=found.capabilities,
                unreliable=found.unreliable,
            )
        except AcquitError as exc:
            raise self._failed(exc, LinkError) from exc
        core = sender._core
        try:
            self._check_kind(found, getattr(core.link.target, "capabilities", ()))
        except AssertionFailed:
            sender.close()
            raise
        self._plan = found
        self._inner = sender
        wake = core.notify

        def notify() -> None:
            wake()
            self._told(core.failure, SendError)

        core.notify = notify

    def _unlink(self) -> None:
        self._inner = None
        if self.get_error() is not None:  # which says of all of them that they have no answer
            self._pending.clear()

    def _is_linked(self) -> bool:
        return self._inner is not None

    def _repeats_kind(self, peer: Product) -> bool:
        return peer.repeats_target

    def _await_room(self, deadline: SharedTimeout) -> None:
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


class Receiver(Link):
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
        """Number of messages that may wait here to be fetched; 0: they are asked for one by one."""
        return UNLIMITED if self._capacity == _CAPACITY_MAX else self._capacity

    @capacity.setter
    def capacity(self, capacity: int | Constant) -> None:
        before, self._capacity = self._capacity, _counted(capacity)
        inner = self._inner
        if inner is None:
            return
        core = inner._core
        if self._capacity < before:
            self._drain(inner)
        core.session.core.post((_set_prefetch, core, self._capacity))

    def unsettled(self) -> int:
        """Return how many acknowledgements have no answer yet."""
        with self._lock:
            return sum(receivers.count(self) for _, receivers in self.session._unanswered())

    def available(self) -> int:
        """Return how many messages wait here to be fetched."""
        return len(self._inner._core.buffer) if self._inner is not None else 0

    def fetch(self, timeout: float | None = None) -> Message:
        """The next message. Without a time-out it waits until there is one; at the time-out (seconds) the broker has
        said that it has none; while a lost connection is being restored, that is waited for.

        Raises Empty, FetchError and its kin, LinkClosed, SessionClosed, ConnectionClosed, ConnectionError;
        TransactionAborted until `rollback`, where the transaction cannot be committed any more; DecodeError for a
        message that cannot be read, which is rejected.
        """
        self._usable()
        inner = self._inner
        if inner is None:
            raise Detached(text="the connection is not attached")
        connection = inner._core.session.core
        while True:
            lost = connection.interruption
            try:
                received = inner.receive(timeout)
                if received is None and self._capacity:
                    received = self._last(inner)
            except AcquitError as exc:
                self._usable()
                raise self._failed(exc, FetchError) from exc
            if received is not None:
                return self._read(received)
            self._usable()
            if connection.interruption is lost and not connection.interrupted:
                raise Empty(text="no message came in time")
            # The broker could not be asked: what it has is only known when it can.
            wait(connection.restored, None)
            timeout = 0.0

    def _last(self, inner: client.Receiver) -> client.ReceivedMessage | None:
        """Drain the link, as nothing came in time, and return a message that was on its way; None if there is none."""
        core = inner._core
        self._drain(inner)
        received = core.take()
        core.session.core.post((_set_prefetch, core, self._capacity))
        assert received is None or isinstance(received, client.ReceivedMessage)
        return received

    def _drain(self, inner: client.Receiver) -> None:
        """Take the credit back, or what is there for it. Where the connection is lost, it is gone by itself."""
        connection = inner._core.session.core
        try:
            inner.drain(connection.options.answer_timeout_ms / 1000)
        except AcquitError as exc:
            if isinstance(exc, ConnectionFailed) and connection.failure is None:
                return
            self._usable()
            raise self._failed(exc, FetchError) from exc

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
                self.session._lingering.append(self)
        self.session._gate.open()
        if inner is None:
            return
        if self._lingering is None:
            inner.close(timeout)
            self._delete()
        else:
            self._give_back(inner, timeout)

    def _give_back(self, inner: client.Receiver, timeout: float | None) -> None:
        """Give back what was not fetched, as nothing more is wanted; what was fetched is not settled yet."""
        core = inner._core
        with suppress(AcquitError):  # it is gone, for good or until the connection is restored
            inner.drain(timeout if timeout is not None else core.session.core.options.close_timeout_ms / 1000)
        core.session.core.post((_return_all, core))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _first(self) -> int | None:
        """The number, within the session, of the message that would be fetched now."""
        inner = self._inner
        try:
            return None if inner is None else inner._core.buffer[0].number
        except IndexError:
            return None

    def _settled(self, count: int) -> None:
        """Note that `count` of its messages are acknowledged; after the last a closed receiver is detached."""
        with self._lock:
            self._held -= count
            done = self._held <= 0 and self._lingering is not None
            inner, self._lingering = (self._lingering, None) if done else (None, self._lingering)
            if done and self in self.session._lingering:
                self.session._lingering.remove(self)
        if inner is not None:
            try:
                inner.close()
                self._delete()
            except AcquitError as exc:
                raise self._failed(exc) from exc

    def _link(self, inner: client.Session) -> None:
        found = plan(self._address, "receiver", named=self._connection._options["container_id"] is not None)
        try:
            self._prepare(found)
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
        core = receiver._core
        try:
            self._check_kind(found, core.link.source.capabilities if core.link.source is not None else ())
        except AssertionFailed:
            receiver.close()
            raise
        self._plan = found
        self._unreliable = found.unreliable
        self._inner = receiver
        wake = core.notify

        def notify() -> None:
            wake()
            self.session._arrived(core)
            self._told(core.failure, FetchError)

        core.notify = notify
        core.session.core.post((notify,))  # of what came before we were listening

    def _unlink(self) -> None:
        self._inner = self._lingering = None
        self._held = 0

    def _is_linked(self) -> bool:
        return self._inner is not None

    def _repeats_kind(self, peer: Product) -> bool:
        return peer.repeats_source


def _counted(capacity: object) -> int:
    """A capacity as a number."""
    if capacity is UNLIMITED:
        return _CAPACITY_MAX
    if not isinstance(capacity, int) or capacity < 0:
        raise InsufficientCapacity(text=f"a capacity is a number from 0, or UNLIMITED, got {capacity!r}")
    return min(capacity, _CAPACITY_MAX)


def _set_prefetch(core: ReceiverCore, capacity: int) -> None:
    """Set another capacity, and grant credit for it (loop side)."""
    core.spec = replace(core.spec, prefetch=capacity)
    core._paused = False
    core.top_up()


def _return_all(core: ReceiverCore) -> None:
    """Give back, outside of any transaction, what was not handed out and what still arrives: nothing is wanted any
    more, and whoever still waits for it hears so (loop side)."""
    core.begin_close()
    left = core.empty_buffer()
    for message in left:
        core.give_back(message)
    if left and core.failure is None:
        core.session.engine.settle_all([message.delivery for message in left], RELEASED)


__all__ = ["Link", "Receiver", "Sender"]
