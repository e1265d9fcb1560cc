"""Requests and their replies: many at once, over one link for the replies.

Theory of operation. A request says where its reply goes (*reply-to*) and by what it is told from others: the
*correlation-id*. Whoever replies repeats the request's correlation-id or, as JMS programs do, makes it of the message
id; so a requester that is free to choose gives both the same value, and every kind of responder is understood.

`Requester` has one sender, one receiver for the replies, and a table of those who wait, by correlation-id::

    request ─▶ table ─▶ sender ─ outcome ─▶ accepted: go on waiting
                 │                    └───▶ anything else: raised at once, no reply will come
                 └◀─ receiver ─ reply ─▶ resolves its wait, or is dropped and counted

The reply address is a temporary node, which the peer makes for the receiver's link and which goes with it, or a fixed
one. That decides what a lost connection means. With a temporary node, replies on their way are gone and those to come
have nowhere to go, so every wait ends with ReplyAddressLost, and what had not left yet is taken back, because it names
an address that is no more. The link comes back with another node, which later requests name. With a fixed address
nothing ends: requests are sent again where their outcome was not heard, replies wait in the queue.

Replies from a temporary node are taken pre-settled; from a fixed address they are accepted as they come, whether
anybody waits for them or not, since a reply that nobody waits for any more is of no use to anybody.

`Responder` is the other side: a listener whose handler returns the body of the reply, and a sender to the anonymous
terminus. A request is accepted after its reply was, so that a responder that dies in between is asked again.
"""

# ruff: noqa: ASYNC109 -- see `aio`

from __future__ import annotations

import asyncio
import copy
import logging
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Final, Protocol, TypeAlias

from acquit.client.aio.messages import ReceivedMessage
from acquit.client.aio.receiver import Listener, Receiver
from acquit.client.aio.sender import Sender
from acquit.client.identity import typed
from acquit.client.listening import check_callable
from acquit.client.modes import AckMode
from acquit.client.options import DeliveryMode, ReceiverSpec, SenderSpec, check_timeout, link_name
from acquit.client.receipts import SendPromise
from acquit.client.received import MessageCore, modified
from acquit.client.sending import message_of
from acquit.client.waiting import Deadline, Opening, Waiters
from acquit.client.with_closing import AsyncClosing
from acquit.errors import (
    AcquitError,
    ConfigurationError,
    DecodeError,
    LinkDetached,
    LocalProtocolError,
    ReplyAddressLost,
    RequestTimeout,
    SendFailed,
)
from acquit.protocol.body import Content
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import MessageId
from acquit.protocol.message import Message
from acquit.protocol.types import Byte

logger = logging.getLogger("acquit.client")

JMS_REPLY_TO: Final = "x-opt-jms-reply-to"
QUEUE: Final = Byte(0)
TEMPORARY_QUEUE: Final = Byte(2)
"""The kind of the reply address, which a JMS responder is told; without it some take the address for a topic."""

PREFETCH: Final = 100
BUFFER_MESSAGES: Final = 1_000
BUFFER_BYTES: Final = 16 * 1024 * 1024
ENDED_MAX: Final = 10_000
"""Requests that have ended, the latest, of which a reply counts as late and not as unknown."""

Reply: TypeAlias = Message | Content | None
"""The result of a handler of requests: None for no reply."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request that waits for its reply."""

    reply: asyncio.Future[ReceivedMessage]
    promise: SendPromise
    correlation_id: MessageId

    def fail(self, error: AcquitError) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)

    @property
    def accepted(self) -> bool | None:
        """True if the request was accepted, False if it never left, None if its outcome was not heard."""
        promise = self.promise
        if promise.done:
            return True if promise.error() is None else None if promise.transferred else False
        return None if promise.transferred else False


_FATES: Final = {True: "the request was accepted", False: "the request never left", None: "its outcome was not heard"}


class Requester(AsyncClosing):
    """Sends requests to one address and waits for their replies, from as many tasks at once as there are. Made by
    `Session.requester`."""

    __slots__ = (
        "__weakref__",
        "_attached",
        "_core",
        "_ended",
        "_ids",
        "_late",
        "_receiver",
        "_sender",
        "_temporary",
        "_unknown",
        "_waiting",
    )

    def __init__(self, sender: Sender, receiver: Receiver) -> None:
        self._sender = sender
        self._receiver = receiver
        self._core = receiver._core
        self._core.notify = self._on_replies
        self._temporary = receiver._core.spec.address is None
        self._waiting: dict[str, _Waiting] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._attached = Waiters()
        self._ids = (f"{prefix}-{number}" for prefix in (uuid.uuid4().hex[:16],) for number in count(1))
        self._late = 0
        self._unknown = 0

    @property
    def address(self) -> str | None:
        """Address of the requests; None for the anonymous terminus, where each request's `to` says it."""
        return self._sender.address

    @property
    def reply_to(self) -> str:
        """Address that replies come to at present. A temporary node has another name after each loss of the connection,
        and none ("") until it is restored."""
        return "" if self._temporary and self._core.session.core.interrupted else self._receiver.address

    @property
    def pending(self) -> int:
        """Number of requests that wait for their reply."""
        return len(self._waiting)

    @property
    def late_replies(self) -> int:
        """Number of replies that came when nobody waited for them any more, or a second time. They were dropped."""
        return self._late

    @property
    def unknown_replies(self) -> int:
        """Number of messages that came to the reply address and were no reply to a request from here: their correlation
        id is missing, malformed, or of none of the latest 10,000 requests. They were dropped."""
        return self._unknown

    async def request(self, message: Message | Content, *, timeout: float | None = None) -> ReceivedMessage:
        """Send a request, and return its reply, which needs no acknowledgement.

        The message is not changed: a copy of it says the reply address, and gets a correlation id and a message id
        where it has none. A correlation id of its own must be of no other request that waits. The time-out defaults to
        the connection's send_timeout_ms; a request that should not be worked on afterwards has a `ttl_ms`.

        Raises RequestTimeout when no reply came in time, and ReplyAddressLost when the connection was lost and the
        reply address with it; both say whether the request was accepted. Raises MessageRejected, MessageReleased or
        MessageModified at once where it was not, DeliveryInDoubt where that was not heard, ConnectionLost, LinkDetached
        and their kin where there is no hope, EncodeError, MessageTooLarge and LocalProtocolError for what cannot be
        sent.
        """
        check_timeout(timeout)
        core = self._sender._core
        timeout_s = core.session.core.options.send_timeout_ms / 1000 if timeout is None else timeout
        deadline = Deadline(timeout_s)
        request = _copy(message)
        while True:
            reply_to = await self._reply_address(request, deadline, timeout_s)
            await self._room(request, deadline, timeout_s)
            if reply_to == self.reply_to:  # it may have gone while there was no room
                break
        request.reply_to = reply_to
        request.annotations.setdefault(JMS_REPLY_TO, TEMPORARY_QUEUE if self._temporary else QUEUE)
        key = self._name(request)
        correlation_id = request.correlation_id
        assert correlation_id is not None
        waiting = _Waiting(
            asyncio.get_running_loop().create_future(),
            SendPromise(core.encode(request, None), awaited=True),
            correlation_id,
        )
        core.enqueue(waiting.promise)
        self._waiting[key] = waiting
        try:
            waiting.promise.when_done(lambda: self._on_outcome(waiting))
            async with asyncio.timeout(deadline.left()):
                return await waiting.reply
        except TimeoutError:
            raise self._too_late(waiting.accepted, correlation_id, timeout_s) from None
        finally:
            if not waiting.reply.cancel() and not waiting.reply.cancelled():
                waiting.reply.exception()  # seen, also where this task was cancelled before
            del self._waiting[key]
            self._ended[key] = None
            if len(self._ended) > ENDED_MAX:
                self._ended.popitem(last=False)
            waiting.promise.asked = True  # what it failed of was raised here, or is of no interest any more
            if not waiting.promise.done:
                core.withdraw(waiting.promise)

    async def close(self, timeout: float | None = None) -> None:
        """Detach both links. Requests that wait end in LinkDetached. The time-out defaults to the connection's
        close_timeout_ms."""
        check_timeout(timeout)
        self._fail_all(self._closed)
        await self._sender.close(timeout)
        await self._receiver.close(timeout)

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _what(self) -> str:
        return f"the requester of {self.address!r}"

    def _name(self, request: Message) -> str:
        """Give a request the ids that it lacks, and return the key that its reply will have."""
        if request.correlation_id is None:
            request.correlation_id = request.message_id if request.message_id is not None else next(self._ids)
        if request.message_id is None:
            request.message_id = request.correlation_id
        key = typed(request.correlation_id)
        if key in self._waiting:
            raise LocalProtocolError(f"a request with the correlation id {request.correlation_id!r} waits already")
        return key

    async def _reply_address(self, request: Message, deadline: Deadline, timeout_s: float) -> str:
        """The address for a reply, as soon as there is one: after a loss the link has to be attached again."""
        while True:
            self._core.check()
            address = self.reply_to
            if address:
                return address
            if not await self._attached.wait(deadline.left()):
                raise self._too_late(False, request.correlation_id, timeout_s)

    async def _room(self, request: Message, deadline: Deadline, timeout_s: float) -> None:
        core = self._sender._core
        core.check()
        while not core.has_room:
            if not await self._sender._waiters.wait(deadline.left()):
                raise self._too_late(False, request.correlation_id, timeout_s)
            core.check()

    def _too_late(self, accepted: bool | None, correlation_id: object, timeout_s: float) -> RequestTimeout:
        return RequestTimeout(
            f"no reply from {self.address!r} within {timeout_s:g} s: {_FATES[accepted]}",
            accepted=accepted,
            correlation_id=correlation_id,
        )

    def _on_outcome(self, waiting: _Waiting) -> None:
        error = waiting.promise.error()
        if error is not None:
            waiting.fail(error)

    def _on_replies(self) -> None:
        core = self._core
        while (message := core.take()) is not None:
            if wants_outcome(message):
                message.decide(ACCEPTED)
            self._on_reply(message)
        if core.failure is not None:
            self._fail_all(lambda waiting: core.failure.error())  # type: ignore[union-attr]  # it stays
        elif core.closing:
            self._fail_all(self._closed)
        elif self._temporary and core.session.core.interrupted:
            self._fail_all(self._address_lost)
        self._attached.wake_all()

    def _on_reply(self, message: MessageCore) -> None:
        try:
            correlation_id = message.correlation_id
        except DecodeError as exc:
            logger.warning("%s dropped a reply that cannot be read: %s", self._what, exc)
            correlation_id = None
        key = typed(correlation_id) if correlation_id is not None else ""
        waiting = self._waiting.get(key)
        if waiting is not None and not waiting.reply.done():
            waiting.reply.set_result(message)  # type: ignore[arg-type]  # of our KINDS
        elif waiting is not None or key in self._ended:
            self._late += 1
        else:
            self._unknown += 1
            logger.warning("%s dropped a message with correlation id %r: no request of it", self._what, correlation_id)

    def _fail_all(self, error: Callable[[_Waiting], AcquitError]) -> None:
        for waiting in tuple(self._waiting.values()):
            waiting.fail(error(waiting))

    def _closed(self, waiting: _Waiting) -> LinkDetached:
        return LinkDetached(f"{self._what} was closed by us: {_FATES[waiting.accepted]}")

    def _address_lost(self, waiting: _Waiting) -> ReplyAddressLost:
        return ReplyAddressLost(
            f"the connection was lost, and with it the temporary node for the reply from {self.address!r}: "
            f"{_FATES[waiting.accepted]}",
            accepted=waiting.accepted,
            correlation_id=waiting.correlation_id,
        )


def _copy(message: Message | Content) -> Message:
    """A message of our own, whose properties and annotations can be added to."""
    if isinstance(message, MessageCore):  # received, and passed on
        request = Message.decode(message.encode())
        request.delivery_annotations = {}
    else:
        request = copy.copy(message_of(message))
    request.properties = copy.copy(request.properties)
    request.annotations = dict(request.annotations)
    return request


class LinkSession(Protocol):
    """A session, to those who send requests or answer them on it."""

    @property
    def mode(self) -> AckMode:
        """Acknowledgement mode of the session."""

    def receiver(self, address: str | None, *, prefetch: int) -> Opening[Receiver]:
        """Attach a receiver."""

    async def commit(self) -> None:
        """End the transaction."""

    async def rollback(self) -> None:
        """Undo the transaction."""

    async def _attach_receiver(self, spec: ReceiverSpec) -> Receiver: ...

    async def _attach_sender(self, spec: SenderSpec) -> Sender: ...


async def open_requester(
    session: LinkSession, address: str | None, reply_to: str | None, delivery_mode: DeliveryMode, topic: bool
) -> Requester:
    """Attach the two links of a requester."""
    if session.mode is AckMode.TRANSACTED:
        raise ConfigurationError(
            "a requester in a TRANSACTED session would wait for the reply to a request that leaves with the commit: "
            "use a session of another mode"
        )
    receiver = await session._attach_receiver(
        ReceiverSpec(
            name=link_name(reply_to),
            address=reply_to,
            prefetch=PREFETCH,
            prefetch_bytes=BUFFER_BYTES,
            unreliable=reply_to is None,
        )
    )
    try:
        sender = await session._attach_sender(_sender_spec(address, delivery_mode, topic))
    except BaseException:
        await receiver.close()
        raise
    return Requester(sender, receiver)


def _sender_spec(address: str | None, delivery_mode: DeliveryMode, topic: bool = False) -> SenderSpec:
    return SenderSpec(
        name=link_name(address),
        address=address,
        delivery_mode=delivery_mode,
        topic=topic,
        unreliable=False,
        capabilities=(),
        properties=None,
        buffer_messages=BUFFER_MESSAGES,
        buffer_bytes=BUFFER_BYTES,
    )


# -- the other side ---------------------------------------------------------------------------------------------------


class Replies:
    """The replies of a responder, blocking or not, and their counts. Methods may be called from any thread."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.answered = 0
        self.dropped = 0

    def make(self, request: MessageCore, result: Reply) -> Message | None:
        """The reply to send, None where there is none, or nowhere to send it."""
        if result is None:
            return None
        if request.reply_to is None:
            self.dropped += 1
            logger.warning("a request to %r does not say where its reply goes: dropped", self.address)
            return None
        return request.make_reply(result)

    def refused(self, request: MessageCore, error: SendFailed) -> None:
        """The peer did not take a reply. Who asked is gone; the work is done, and is not done again for that."""
        self.dropped += 1
        logger.warning("the reply to %r was not taken: %s", request.reply_to, error)

    def failed(self, request: MessageCore, error: Exception, mode: AckMode) -> None:
        """A handler raised, or its reply did not get away: the request goes back, in a transaction by the rollback."""
        logger.error("a request to %r failed: %r", self.address, error, exc_info=error)
        if mode is not AckMode.TRANSACTED and wants_outcome(request):
            request.decide(modified(True, False, None))


class ResponderBase:
    """The counts of a responder, blocking or not."""

    __slots__ = ("_replies",)

    def __init__(self, address: str) -> None:
        self._replies = Replies(address)

    @property
    def address(self) -> str:
        """Address that requests come to."""
        return self._replies.address

    @property
    def answered(self) -> int:
        """Number of replies that were accepted."""
        return self._replies.answered

    @property
    def dropped(self) -> int:
        """Number of replies that were dropped: the request did not say where to send them, or they were not taken
        there, because that address is gone or full, or for another reason."""
        return self._replies.dropped


Handler: TypeAlias = Callable[[ReceivedMessage], Reply | Awaitable[Reply]]


class Responder(ResponderBase, AsyncClosing):
    """Answers the requests to one address with what a handler returns. Made by `Session.responder`."""

    __slots__ = ("__weakref__", "_handler", "_listener", "_receiver", "_sender", "_session")

    def __init__(
        self, session: LinkSession, receiver: Receiver, sender: Sender, handler: Handler, concurrency: int
    ) -> None:
        self._session = session
        self._receiver = receiver
        self._sender = sender
        self._handler = handler
        super().__init__(receiver.address)
        self._listener: Listener = receiver.start_listener(self._answer, concurrency, self._failed)

    @property
    def done(self) -> bool:
        """True if the responder has ended: no handler is running, and none will be called."""
        return self._listener.done

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended. True then, False at the time-out. Raises as `Listener.wait`."""
        return await self._listener.wait(timeout)

    async def close(self, timeout: float | None = None) -> None:
        """Take no more requests, wait for the handlers under way and their replies, and detach. The time-out defaults
        to the connection's close_timeout_ms."""
        await self._listener.stop(self._receiver._driver.close_timeout_s(timeout))
        await self._sender.close(timeout)
        await self._receiver.close(timeout)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _answer(self, request: ReceivedMessage) -> None:
        result = self._handler(request)
        if isinstance(result, Awaitable):
            result = await result
        reply = self._replies.make(request, result)
        if reply is not None:
            try:
                await self._sender.send(reply)
            except SendFailed as exc:
                self._replies.refused(request, exc)
            else:
                self._replies.answered += 1
        if self._session.mode is AckMode.TRANSACTED:
            await self._session.commit()
        elif wants_outcome(request):
            _ = await request.accept(sync=False)

    async def _failed(self, request: ReceivedMessage, error: Exception) -> None:
        self._replies.failed(request, error, self._session.mode)
        if self._session.mode is AckMode.TRANSACTED:
            await self._session.rollback()


def wants_outcome(message: MessageCore) -> bool:
    """Return True if a message has no outcome, and its peer can still be told one."""
    return message.outcome is None and not message.delivery.over


def check_concurrency(mode: AckMode, concurrency: int) -> None:
    """Raise ConfigurationError where requests would share a transaction."""
    if mode is AckMode.TRANSACTED and concurrency != 1:
        raise ConfigurationError(
            f"concurrency must be 1 in a TRANSACTED session, whose requests share one transaction, got {concurrency!r}"
        )


async def open_responder(
    session: LinkSession, address: str, handler: Handler, concurrency: int, prefetch: int, delivery_mode: DeliveryMode
) -> Responder:
    """Attach the two links of a responder, and let it begin."""
    check_callable("handler", handler, "request")
    check_concurrency(session.mode, concurrency)
    receiver = await session.receiver(address, prefetch=prefetch)
    try:
        sender = await session._attach_sender(_sender_spec(None, delivery_mode))
        return Responder(session, receiver, sender, handler, concurrency)
    except BaseException:
        await receiver.close()
        raise
