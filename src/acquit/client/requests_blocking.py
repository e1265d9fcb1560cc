"""Requests and their replies, for threads: the names and arguments of `requests`, which does the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from acquit.client import requests
from acquit.client.blocking.messages import ReceivedMessage
from acquit.client.blocking.receiver import Listener, Receiver
from acquit.client.blocking.sender import Sender
from acquit.client.listening import check_no_coroutine
from acquit.client.modes import AckMode
from acquit.client.options import DeliveryMode
from acquit.client.requests import Reply, ResponderBase, check_concurrency, wants_outcome
from acquit.client.threads import LoopThread
from acquit.client.with_closing import Closing
from acquit.errors import SendFailed
from acquit.protocol.body import Content
from acquit.protocol.message import Message


class Requester(Closing):
    """Sends requests to one address and waits for their replies, from as many threads at once as there are. Made by
    `Session.requester`."""

    __slots__ = ("__weakref__", "_aio", "_loop")

    def __init__(self, requester: requests.Requester, loop: LoopThread) -> None:
        self._aio = requester
        self._loop = loop

    @property
    def address(self) -> str | None:
        """Address of the requests; None for the anonymous terminus, where each request's `to` says it."""
        return self._aio.address

    @property
    def reply_to(self) -> str:
        """Address that replies come to at present. A temporary node has another name after each loss of the connection,
        and none ("") until it is restored."""
        return self._aio.reply_to

    @property
    def pending(self) -> int:
        """Number of requests that wait for their reply."""
        return self._aio.pending

    @property
    def late_replies(self) -> int:
        """Number of replies that came when nobody waited for them any more, or a second time. They were dropped."""
        return self._aio.late_replies

    @property
    def unknown_replies(self) -> int:
        """Number of messages that came to the reply address and were no reply to a request from here: their correlation
        id is missing, malformed, or of none of the latest 10,000 requests. They were dropped."""
        return self._aio.unknown_replies

    def request(self, message: Message | Content, *, timeout: float | None = None) -> ReceivedMessage:
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
        return self._loop.run(self._aio.request(message, timeout=timeout))  # type: ignore[return-value]  # of our KINDS

    def close(self, timeout: float | None = None) -> None:
        """Detach both links. Requests that wait end in LinkDetached. The time-out defaults to the connection's
        close_timeout_ms."""
        self._loop.close(self._aio.close(timeout))


Handler: TypeAlias = Callable[[ReceivedMessage], Reply]


class Responder(ResponderBase, Closing):
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

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended. True then, False at the time-out. Raises as `Listener.wait`."""
        return self._listener.wait(timeout)

    def close(self, timeout: float | None = None) -> None:
        """Take no more requests, wait for the handlers under way and their replies, and detach. The time-out defaults
        to the connection's close_timeout_ms."""
        self._listener.stop(self._receiver._aio._driver.close_timeout_s(timeout))
        self._sender.close(timeout)
        self._receiver.close(timeout)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _answer(self, request: ReceivedMessage) -> None:
        reply = self._replies.make(request, self._handler(request))
        if reply is not None:
            try:
                self._sender.send(reply)
            except SendFailed as exc:
                self._replies.refused(request, exc)
            else:
                self._replies.answered += 1
        if self._session.mode is AckMode.TRANSACTED:
            self._session.commit()
        elif wants_outcome(request):
            request.accept(sync=False)

    def _failed(self, request: ReceivedMessage, error: Exception) -> None:
        self._replies.failed(request, error, self._session.mode)
        if self._session.mode is AckMode.TRANSACTED:
            self._session.rollback()


class LinkSession(Protocol):
    """A session, to those who answer requests on it."""

    @property
    def mode(self) -> AckMode:
        """Acknowledgement mode of the session."""

    def receiver(self, address: str | None, *, prefetch: int) -> Receiver:
        """Attach a receiver."""

    def sender(self, address: str | None, *, delivery_mode: DeliveryMode) -> Sender:
        """Attach a sender."""

    def commit(self) -> None:
        """End the transaction."""

    def rollback(self) -> None:
        """Undo the transaction."""


def open_responder(
    session: LinkSession, address: str, handler: Handler, concurrency: int, prefetch: int, delivery_mode: DeliveryMode
) -> Responder:
    """Attach the two links of a responder, and let it begin."""
    check_no_coroutine("handler", handler, "request")
    check_concurrency(session.mode, concurrency)
    receiver = session.receiver(address, prefetch=prefetch)
    try:
        sender = session.sender(None, delivery_mode=delivery_mode)
        return Responder(session, receiver, sender, handler, concurrency)
    except BaseException:
        receiver.close()
        raise
