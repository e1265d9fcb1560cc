"""The session of the asyncio API."""

# ruff: noqa: ASYNC109 -- the time-outs are part of the API: they have an answer (None, False, UNKNOWN) of their own

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from acquit.client.aio.messages import Receipt, ReceivedMessage, answered
from acquit.client.aio.receiver import Receiver
from acquit.client.aio.sender import Sender
from acquit.client.closing import TransactionEnd, close, end_transaction
from acquit.client.driver import Driver
from acquit.client.entries import DeliveryStore
from acquit.client.modes import AckMode
from acquit.client.options import (
    DeliveryMode,
    ReceiverSpec,
    SenderSpec,
    capabilities_of,
    check_timeout,
    link_name,
)
from acquit.client.receiving import ReceiverCore
from acquit.client.sending import SenderCore
from acquit.client.session import SessionCore
from acquit.client.transacting import SessionTransactions
from acquit.client.waiting import Opening, ready, wait
from acquit.client.with_closing import AsyncClosing
from acquit.errors import LinkDetached
from acquit.protocol.delivery import Outcome

if TYPE_CHECKING:
    from acquit.client.requests import Reply, Requester, Responder
    from acquit.client.subscriptions import Subscription


class Session(AsyncClosing):
    """A session: an acknowledgement mode, and the senders and receivers that share it."""

    __slots__ = ("__weakref__", "_core", "_driver")

    def __init__(self, core: SessionCore, driver: Driver) -> None:
        self._core = core
        self._driver = driver

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
    ) -> Opening[Sender]:
        """Attach a sender to `address`; None is the anonymous terminus, where each message's `to` says where it goes.

        `topic`: the address is a topic's; without it the peer decides what the address means. `unreliable`: messages
        are settled as they are sent (at most once), and `send` returns None as soon as one has left. `buffer_messages`
        and `buffer_bytes` bound what waits for credit here: beyond, `send` waits. `exactly_once`: a store (MemoryStore,
        FileStore, SqliteStore, SqlStore) by which the outcome of each send is heard in the end, and none is posted
        twice; it needs a `name` and a container_id where it outlives the process, and a broker that resumes deliveries.
        Raises NotFound, Unauthorized or another LinkDetached where the peer refuses, or does not resume.
        """
        return Opening(
            lambda: self._attach_sender(
                SenderSpec(
                    name=name or link_name(address),
                    address=address,
                    delivery_mode=delivery_mode,
                    topic=topic,
                    unreliable=unreliable,
                    capabilities=capabilities_of(capabilities),
                    properties=properties,
                    buffer_messages=buffer_messages,
                    buffer_bytes=buffer_bytes,
                    named=name is not None,
                    exactly_once=exactly_once,
                )
            ),
            "session.sender(...)",
        )

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
    ) -> Opening[Receiver]:
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
        return Opening(
            lambda: self._attach_receiver(
                ReceiverSpec(
                    name=name or link_name(address),
                    address=address,
                    prefetch=prefetch,
                    prefetch_bytes=prefetch_bytes,
                    browse=browse,
                    default_outcome=default_outcome,
                    filters=filters,
                    selector=selector,
                    no_local=no_local,
                    topic=topic,
                    subscription=subscription,
                    unreliable=unreliable,
                    target=target,
                    capabilities=capabilities_of(capabilities),
                    properties=properties,
                    named=name is not None or subscription is not None,
                    exactly_once=exactly_once,
                )
            ),
            "session.receiver(...)",
        )

    def requester(
        self,
        address: str | None,
        *,
        reply_to: str | None = None,
        delivery_mode: DeliveryMode = DeliveryMode.PERSISTENT,
        topic: bool = False,
    ) -> Opening[Requester]:
        """Send requests to `address` and wait for their replies: see `Requester.request`. None is the anonymous
        terminus, where each request's `to` says where it goes; `topic`: the address is a topic's.

        `reply_to` is the address for replies, which nobody else receives from; None asks the peer for a temporary
        node, which lives as long as the connection does. Raises ConfigurationError in a TRANSACTED session, NotFound,
        Unauthorized or another LinkDetached where the peer refuses.
        """
        from acquit.client.requests import open_requester

        return Opening(lambda: open_requester(self, address, reply_to, delivery_mode, topic), "session.requester(...)")

    def responder(
        self,
        address: str,
        handler: Callable[[ReceivedMessage], Reply | Awaitable[Reply]],
        *,
        concurrency: int = 1,
        prefetch: int = 100,
        delivery_mode: DeliveryMode = DeliveryMode.PERSISTENT,
    ) -> Opening[Responder]:
        """Answer the requests to `address`, from now on: `handler` is called with each, on `concurrency` tasks (see
        `Receiver.start_listener`), and what it returns goes back as the reply, a body or a Message; None is no reply.

        A request is accepted when its reply was, in a TRANSACTED session with it in one transaction; where the handler
        raised, it goes back as modified(delivery-failed) or with the rollback, and is logged. A handler may settle the
        request itself, such as reject it. In NO_ACK and PRE_ACK it is acknowledged before. Raises ConfigurationError
        for a concurrency that makes no sense, NotFound, Unauthorized or another LinkDetached where the peer refuses.
        """
        from acquit.client.requests import open_responder

        return Opening(
            lambda: open_responder(self, address, handler, concurrency, prefetch, delivery_mode),
            "session.responder(...)",
        )

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Delete a subscription of a topic, with what it holds. Raises NotFound where there is none, and
        ResourceLocked where somebody receives from it: close that first."""
        await self._ready()
        removal = self._core.remove_subscription(subscription)
        self._driver.act()
        timeout_s = self._core.core.options.answer_timeout_ms / 1000
        if not await wait(removal.done, timeout_s):
            raise LinkDetached(f"the peer did not delete {removal.what} within {timeout_s:g} s")
        removal.done.check()

    async def acknowledge(self, message: ReceivedMessage | None = None, *, sync: bool = True) -> Receipt:
        """Accept what was handed out: in CLIENT mode up to and including `message`, in INDIVIDUAL `message` alone,
        without one all of it. Without effect in the other modes, and for what is acknowledged already."""
        return await answered(self._core, self._core.acknowledge(message, whole_session=False), sync)

    async def settle(self, messages: Iterable[ReceivedMessage], outcome: Outcome, *, sync: bool = True) -> Receipt:
        """Give many messages of this session one outcome, at the price of one. Those that have an outcome already are
        passed over: `Receipt.count` tells how many were not."""
        return await answered(self._core, self._core.settle_all(messages, outcome), sync)

    async def recover(self) -> int:
        """Hand out again, in order and before anything else, what was handed out and not acknowledged; returns how
        many. Their `delivery_count` grows by one here; the broker hears only of the outcome they get in the end. Has
        nothing to do in AUTO and its kin and in NO_ACK; raises LocalProtocolError in TRANSACTED."""
        recovered = self._core.recover()
        self._driver.act()  # they are in the buffer when this returns
        return recovered

    async def commit(self, timeout: float | None = None) -> None:
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
        (await self._ended(timeout, commit=True)).tell()

    async def rollback(self, timeout: float | None = None) -> None:
        """Undo all that was sent and received in the session since the last end of a transaction (TRANSACTED): what
        was received comes again, with a raised `delivery_count`; what was prefetched goes back and comes again as well.
        Raises nothing when the connection is lost: that is a rollback, too."""
        (await self._ended(timeout, commit=False)).tell()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A block that ends with `commit`, or, when it raises, with `rollback`. What was sent and received in the
        session before is part of it. Raises LocalProtocolError inside another such block of this session."""
        with self._core.block():
            try:
                yield
            except BaseException:
                await self.rollback()
                raise
            await self.commit()

    async def _ended(self, timeout: float | None, *, commit: bool) -> TransactionEnd:
        return await end_transaction(self._driver, self._core, self._timeout_s(timeout), commit=commit)

    def _timeout_s(self, timeout: float | None) -> float:
        check_timeout(timeout)
        return timeout if timeout is not None else self._core.core.options.send_timeout_ms / 1000

    async def close(self, timeout: float | None = None) -> None:
        """Close its senders and receivers as they do by themselves, and end the session. An open transaction is rolled
        back."""
        await close(self._driver, self._driver.close_timeout_s(timeout), sessions=[self._core])

    def __repr__(self) -> str:
        return f"<Session in mode {self.mode} on {self._core.core.where}>"

    async def _ready(self) -> None:
        await ready(self._core.core, self._core.core.options.send_timeout_ms / 1000)

    async def _attach_sender(self, spec: SenderSpec) -> Sender:
        await self._ready()
        core = self._core.add_sender(spec)
        sender = Sender(core, self._driver)
        await self._attached(core)
        return sender

    async def _attach_receiver(self, spec: ReceiverSpec) -> Receiver:
        await self._ready()
        core = self._core.add_receiver(spec)
        receiver = Receiver(core, self._driver)
        await self._attached(core)
        return receiver

    async def _attach_control(self, transactions: SessionTransactions) -> None:
        control = transactions.open()
        self._driver.act()
        timeout_s = self._core.core.options.answer_timeout_ms / 1000
        try:
            if not await wait(control.attached, timeout_s):
                raise LinkDetached(f"the peer did not answer the attach of {control.what} within {timeout_s:g} s")
            control.attached.check()
        except BaseException:
            self._core.end()
            self._driver.act()
            raise

    async def _attached(self, link: SenderCore | ReceiverCore) -> None:
        self._driver.act()
        timeout_s = self._core.core.options.answer_timeout_ms / 1000
        try:
            if not await wait(link.attached, timeout_s):
                raise LinkDetached(f"the peer did not answer the attach of {link.spec.what} within {timeout_s:g} s")
        except BaseException:
            link.detach()
            self._driver.act()
            raise
        link.attached.check()


async def attach_in_runs(session: Session, spec: ReceiverSpec) -> Receiver:
    """Attach a receiver of which only payloads are taken (`spec.in_runs`). For sessions in mode INDIVIDUAL; a tracer of
    the connection hears nothing of it."""
    return await session._attach_receiver(spec)
