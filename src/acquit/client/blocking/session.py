"""The session of the blocking API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from acquit.client import aio
from acquit.client.aio.session import attach_in_runs
from acquit.client.blocking.messages import Receipt, ReceivedMessage, answered
from acquit.client.blocking.receiver import Receiver, RunReceiver
from acquit.client.blocking.sender import Sender
from acquit.client.entries import DeliveryStore
from acquit.client.modes import AckMode
from acquit.client.options import DeliveryMode, ReceiverSpec
from acquit.client.threads import LoopThread
from acquit.client.with_closing import Closing
from acquit.protocol.delivery import Outcome

if TYPE_CHECKING:
    from acquit.client.requests import Reply
    from acquit.client.requests_blocking import Requester, Responder
    from acquit.client.subscriptions import Subscription


class Session(Closing):
    """A session: an acknowledgement mode, and the senders and receivers that share it."""

    __slots__ = ("__weakref__", "_aio", "_core", "_ended", "_loop")

    def __init__(self, session: aio.Session, loop: LoopThread) -> None:
        self._aio = session
        self._loop = loop
        self._core = session._core
        self._ended = session._ended

    @property
    def mode(self) -> AckMode:
        """The acknowledgement mode."""
        return self._core.mode.name

    def sender(
        self,
        address: str | None,
        *,
        delivery_mode: DeliveryMode = DeliveryMode.PERSISTENT,
        name: str | None = None,
        topic: bool = False,
        unreliable: bool = False,
        capabilities: Iterable[str] = (),
        properties: Mapping[str, object] | None = None,
        buffer_messages: int = 1_000,
        buffer_bytes: int = 16 * 1024 * 1024,
        exactly_once: DeliveryStore | None = None,
    ) -> Sender:
        """Attach a sender to `address`; None is the anonymous terminus, where each message's `to` says where it goes.

        `topic`: the address is a topic's; without it the peer decides what the address means. `unreliable`: messages
        are settled as they are sent (at most once), and `send` returns None as soon as one has left. `buffer_messages`
        and `buffer_bytes` bound what waits for credit here: beyond, `send` waits. `exactly_once`: a store (MemoryStore,
        FileStore, SqliteStore, SqlStore) by which the outcome of each send is heard in the end, and none is posted
        twice; it needs a `name` and a container_id where it outlives the process, and a broker that resumes deliveries.
        Raises NotFound, Unauthorized or another LinkDetached where the peer refuses, or does not resume.
        """

        async def attach() -> Sender:
            sender = await self._aio.sender(
                address,
                delivery_mode=delivery_mode,
                name=name,
                topic=topic,
                unreliable=unreliable,
                capabilities=capabilities,
                properties=properties,
                buffer_messages=buffer_messages,
                buffer_bytes=buffer_bytes,
                exactly_once=exactly_once,
            )
            return Sender(sender, self._loop)

        return self._loop.open(attach())

    def receiver(
        self,
        address: str | None,
        *,
        prefetch: int = 100,
        prefetch_bytes: int = 16 * 1024 * 1024,
        browse: bool = False,
        default_outcome: Outcome | None = None,
        name: str | None = None,
        filters: Mapping[str, object] | None = None,
        selector: str | None = None,
        no_local: bool = False,
        topic: bool = False,
        subscription: Subscription | None = None,
        unreliable: bool = False,
        target: str | None = None,
        capabilities: Iterable[str] = (),
        properties: Mapping[str, object] | None = None,
        exactly_once: DeliveryStore | None = None,
    ) -> Receiver:
        """Attach a receiver to `address`; None asks for a temporary node, whose name is the receiver's `address` and
        which lives as long as the receiver.

        Up to `prefetch` messages, about `prefetch_bytes`, are sent ahead; in CLIENT and INDIVIDUAL mode those that are
        handed out and not acknowledged count. 0: one message for each `receive`. `browse` looks at messages without
        taking them. `default_outcome` is what becomes of messages that are not acknowledged when the link ends
        (3.5.3). `selector` is a JMS selector, `no_local` passes over what this connection posted; these and `filters`
        must all be applied by the peer. `topic`: the address is a topic's, and what is posted from now on comes here;
        `subscription` gives that a name, so that it can be kept or shared (then `name` is not used). `unreliable`: the
        peer settles messages as it sends them, as in mode NO_ACK, whatever the session's is. `target` names our
        own end for brokers that address replies to it. `exactly_once`: a store (MemoryStore, FileStore, SqliteStore,
        SqlStore) by which deliveries outlive their connection, and, with a `name` and a container_id, the process; in
        CLIENT and INDIVIDUAL mode. Raises NotFound, Unauthorized or another LinkDetached where the peer refuses, or
        does not resume deliveries.
        """

        async def attach() -> Receiver:
            receiver = await self._aio.receiver(
                address,
                prefetch=prefetch,
                prefetch_bytes=prefetch_bytes,
                browse=browse,
                default_outcome=default_outcome,
                name=name,
                filters=filters,
                selector=selector,
                no_local=no_local,
                topic=topic,
                subscription=subscription,
                unreliable=unreliable,
                target=target,
                capabilities=capabilities,
                properties=properties,
                exactly_once=exactly_once,
            )
            return Receiver(receiver, self._loop)

        return self._loop.open(attach())

    def requester(
        self,
        address: str | None,
        *,
        reply_to: str | None = None,
        delivery_mode: DeliveryMode = DeliveryMode.PERSISTENT,
        topic: bool = False,
    ) -> Requester:
        """Send requests to `address` and wait for their replies: see `Requester.request`. None is the anonymous
        terminus, where each request's `to` says where it goes; `topic`: the address is a topic's.

        `reply_to` is the address for replies, which nobody else receives from; None asks the peer for a temporary
        node, which lives as long as the connection does. Raises ConfigurationError in a TRANSACTED session, NotFound,
        Unauthorized or another LinkDetached where the peer refuses.
        """

        from acquit.client.requests_blocking import Requester

        async def attach() -> Requester:
            requester = await self._aio.requester(address, reply_to=reply_to, delivery_mode=delivery_mode, topic=topic)
            return Requester(requester, self._loop)

        return self._loop.open(attach())

    def responder(
        self,
        address: str,
        handler: Callable[[ReceivedMessage], Reply],
        *,
        concurrency: int = 1,
        prefetch: int = 100,
        delivery_mode: DeliveryMode = DeliveryMode.PERSISTENT,
    ) -> Responder:
        """Answer the requests to `address`, from now on: `handler` is called with each, on `concurrency` threads (see
        `Receiver.start_listener`), and what it returns goes back as the reply, a body or a Message; None is no reply.

        A request is accepted when its reply was, in a TRANSACTED session with it in one transaction; where the handler
        raised, it goes back as modified(delivery-failed) or with the rollback, and is logged. A handler may settle the
        request itself, such as reject it. In NO_ACK and PRE_ACK it is acknowledged before. Raises ConfigurationError
        for a concurrency that makes no sense, NotFound, Unauthorized or another LinkDetached where the peer refuses.
        """
        from acquit.client.requests_blocking import open_responder

        return open_responder(self, address, handler, concurrency, prefetch, delivery_mode)

    def unsubscribe(self, subscription: Subscription) -> None:
        """Delete a subscription of a topic, with what it holds. Raises NotFound where there is none, and
        ResourceLocked where somebody receives from it: close that first."""
        self._loop.run(self._aio.unsubscribe(subscription))

    def acknowledge(self, message: ReceivedMessage | None = None, *, sync: bool = True) -> Receipt:
        """Accept what was handed out: in CLIENT mode up to and including `message`, in INDIVIDUAL `message` alone,
        without one all of it. Without effect in the other modes, and for what is acknowledged already."""
        return answered(self._core, self._core.acknowledge(message, whole_session=False), sync)

    def settle(self, messages: Iterable[ReceivedMessage], outcome: Outcome, *, sync: bool = True) -> Receipt:
        """Give many messages of this session one outcome, at the price of one. Those that have an outcome already are
        passed over: `Receipt.count` tells how many were not."""
        return answered(self._core, self._core.settle_all(messages, outcome), sync)

    def recover(self) -> int:
        """Hand out again, in order and before anything else, what was handed out and not acknowledged; returns how
        many. Their `delivery_count` grows by one here; the broker hears only of the outcome they get in the end. Has
        nothing to do in AUTO and its kin and in NO_ACK; raises LocalProtocolError in TRANSACTED."""
        return self._loop.run(self._aio.recover())

    def commit(self, timeout: float | None = None) -> None:
        """Make all that was sent and received in the session since the last end of a transaction happen (TRANSACTED).

        Waits for the outcomes of all sends first. Raises TransactionRolledBack where nothing of it has happened: the
        peer refused, or the connection was lost before, or a send in it failed that nobody has heard of, or a message
        received in it was taken back. Raises TransactionInDoubt where no answer to the commit was heard before the
        time-out (by default the connection's send_timeout_ms) or the loss of the connection.

        A commit that is cancelled goes on, and `rollback` stops it if it was not sent yet. The next `commit` waits for
        it. If it did not succeed, that one does not either: it raises TransactionRolledBack for what was done since,
        and the error of the earlier one is its `__cause__`. Where nothing was done since, that error itself is raised.
        After a `rollback`, also that of a block, it is not told; and a commit that is cancelled while it waits for an
        earlier one is rolled back.
        """
        self._loop.run(self._ended(timeout, commit=True)).tell()

    def rollback(self, timeout: float | None = None) -> None:
        """Undo all that was sent and received in the session since the last end of a transaction (TRANSACTED): what
        was received comes again, with a raised `delivery_count`; what was prefetched goes back and comes again as well.
        Raises nothing when the connection is lost: that is a rollback, too."""
        self._loop.close(self._aio.rollback(timeout))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A block that ends with `commit`, or, when it raises, with `rollback`. What was sent and received in the
        session before is part of it. Raises LocalProtocolError inside another such block of this session."""
        with self._core.block():
            try:
                yield
            except BaseException:
                self.rollback()
                raise
            self.commit()

    def close(self, timeout: float | None = None) -> None:
        """Close its senders and receivers as they do by themselves, and end the session. An open transaction is rolled
        back."""
        if not self._core.ended.done:
            self._loop.close(self._aio.close(timeout))

    def __repr__(self) -> str:
        return repr(self._aio)


def receive_in_runs(session: Session, spec: ReceiverSpec) -> RunReceiver:
    """Attach a receiver that hands out payloads: see `aio.session.attach_in_runs`."""

    async def attach() -> RunReceiver:
        return RunReceiver(await attach_in_runs(session._aio, spec), session._loop)

    return session._loop.open(attach())
