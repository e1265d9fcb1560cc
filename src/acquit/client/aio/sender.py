"""The sender of the asyncio API."""

# ruff: noqa: ASYNC109 -- the time-outs are part of the API: they have an answer (None, False, UNKNOWN) of their own

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, overload

from acquit.client.aio.messages import SendReceipt
from acquit.client.closing import close, flush
from acquit.client.driver import Driver
from acquit.client.options import (
    DeliveryMode,
    check_timeout,
)
from acquit.client.sending import PreparedMessage, SenderCore
from acquit.client.waiting import Deadline, Waiters, wait
from acquit.client.with_closing import AsyncClosing
from acquit.errors import NotSent
from acquit.protocol.body import Content
from acquit.protocol.definitions import Accepted
from acquit.protocol.message import Message

if TYPE_CHECKING:
    from acquit.client.inbox import Cursor


class Sender(AsyncClosing):
    """Sends messages to one address."""

    __slots__ = ("__weakref__", "_core", "_driver", "_waiters")

    def __init__(self, core: SenderCore, driver: Driver) -> None:
        self._core = core
        self._driver = driver
        self._waiters = Waiters()
        core.notify = self._waiters.wake_all

    @property
    def address(self) -> str | None:
        """Address of the target; None for the anonymous terminus."""
        return self._core.address

    @property
    def remote_properties(self) -> Mapping[str, object]:
        """Properties of the peer's attach."""
        return self._core.remote_properties

    def prepare(
        self, message: Message | Content, cursor: Cursor, *, delivery_mode: DeliveryMode | None = None
    ) -> PreparedMessage:
        """Write a message to be sent in the transaction of `cursor` (PEP 249), with the user's own work: after the
        commit, `send` what this returns. A crash between the two is made good when the sender is attached again: it is
        sent then. Needs a sender whose `exactly_once` is a SqlStore of the same database; raises ConfigurationError for
        any other, EncodeError and MessageTooLarge for what cannot be sent."""
        return self._core.prepare(message, cursor, delivery_mode)

    @overload
    async def send(
        self,
        message: Message | Content,
        *,
        wait: Literal[True] = True,
        timeout: float | None = None,
        delivery_mode: DeliveryMode | None = None,
    ) -> Accepted | None: ...
    @overload
    async def send(
        self,
        message: Message | Content,
        *,
        wait: Literal[False],
        timeout: float | None = None,
        delivery_mode: DeliveryMode | None = None,
    ) -> SendReceipt: ...
    async def send(
        self,
        message: Message | Content,
        *,
        wait: bool = True,
        timeout: float | None = None,
        delivery_mode: DeliveryMode | None = None,
    ) -> Accepted | SendReceipt | None:
        """Send a message, and return the outcome *accepted*; with ``wait=False`` a receipt as soon as the outgoing
        buffer has taken it, so that many can be under way.

        A message that does not say durable is sent as the sender's delivery mode says; `delivery_mode` overrides both.
        `timeout` (seconds) defaults to the connection's send_timeout_ms. One that is given with ``wait=False`` ends the
        send all the same, connected or not: in NotSent or DeliveryInDoubt, which the receipt tells; without it, what is
        in the buffer waits for credit as long as the link lives. Raises MessageRejected, MessageReleased,
        MessageModified; DeliveryInDoubt where no outcome was heard in time or the peer was lost; NotSent where it
        never left; EncodeError and MessageTooLarge for what cannot be sent; TransactionRolledBack in a transaction
        that cannot be committed any more, until that is ended: call `Session.rollback`.
        """
        check_timeout(timeout)
        self._waiters.check_loop()
        core = self._core
        core.check()
        receipt = SendReceipt(core.encode(message, delivery_mode), wait or timeout is not None)
        if wait or not core.has_room:
            return await self._send_slowly(receipt, wait, timeout)
        core.enqueue(receipt)
        if timeout is not None:
            core.limit(receipt, timeout, timeout)
        return receipt

    async def _send_slowly(
        self, receipt: SendReceipt, wait_: bool, timeout: float | None
    ) -> Accepted | SendReceipt | None:
        core = self._core
        timeout_s = core.session.core.options.send_timeout_ms / 1000 if timeout is None else timeout
        deadline = Deadline(timeout_s)
        try:
            while not core.has_room:
                if not await self._waiters.wait(deadline.left()):
                    raise NotSent(f"the outgoing buffer of {core.spec.what} had no room within {timeout_s:g} s")
                core.check()
                core.check_size(receipt.payload)
        except BaseException as exc:
            core.give_up(receipt, exc)
            raise
        core.enqueue(receipt)
        if not wait_:
            if timeout is not None:
                core.limit(receipt, max(0.0, deadline.left() or 0.0), timeout)
            return receipt
        try:
            await wait(receipt, deadline.left())
        finally:
            if not receipt.done:
                core.withdraw(receipt, timeout_s)
        if not receipt.done:
            raise receipt.open_error(timeout_s)
        return receipt.value()

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every send so far has ended; then raise the error of the first that failed since the last flush,
        if nobody has asked its receipt. When the time-out passes first, NotSent
        where all that have not ended are still here, and DeliveryInDoubt where some are under way; it says how many of
        each, and the sends go on."""
        check_timeout(timeout)
        if (failed := await flush(self._core, timeout)) is not None:
            failed.value()

    async def close(self, timeout: float | None = None) -> None:
        """Wait for the outcomes of all sends, then detach. What has no outcome when the time is over ends in
        DeliveryInDoubt, or, if it never left, as LinkDetached: ask the receipts. The time-out defaults to the
        connection's close_timeout_ms."""
        await close(self._driver, self._driver.close_timeout_s(timeout), senders=[self._core])

    def __repr__(self) -> str:
        return f"<Sender to {self.address!r}>"
