"""The sender of the blocking API."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal, overload

from acquit.client import aio
from acquit.client.blocking.messages import SendReceipt
from acquit.client.closing import flush
from acquit.client.locks import UserLock
from acquit.client.options import DeliveryMode, check_timeout
from acquit.client.sending import PreparedMessage
from acquit.client.threads import Gate, LoopThread, wait
from acquit.client.with_closing import Closing
from acquit.errors import NotSent
from acquit.protocol.body import Content
from acquit.protocol.definitions import Accepted
from acquit.protocol.message import Message

if TYPE_CHECKING:
    from acquit.client.inbox import Cursor


class Sender(Closing):
    """Sends messages to one address."""

    __slots__ = ("__weakref__", "_aio", "_core", "_lock", "_loop", "_room")

    def __init__(self, sender: aio.Sender, loop: LoopThread) -> None:
        self._aio = sender
        self._loop = loop
        self._core = sender._core
        self._lock = UserLock()
        self._room = Gate()
        self._core.notify = self._room.open

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
    def send(
        self,
        message: Message | Content,
        *,
        wait: Literal[True] = True,
        timeout: float | None = None,
        delivery_mode: DeliveryMode | None = None,
    ) -> Accepted | None: ...
    @overload
    def send(
        self,
        message: Message | Content,
        *,
        wait: Literal[False],
        timeout: float | None = None,
        delivery_mode: DeliveryMode | None = None,
    ) -> SendReceipt: ...
    def send(
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
        if not wait:
            return self._begin_send(message, timeout, delivery_mode, limited=timeout is not None)
        core = self._core
        core.check()
        self._loop.check()
        receipt = SendReceipt(core.encode(message, delivery_mode), True)
        timeout_s = self._timeout_s(timeout)
        ends_at = time.monotonic() + timeout_s
        if not self._enqueue_at_once(receipt):
            self._enqueue_slowly(receipt, timeout_s)
        return self._outcome(receipt, timeout_s, ends_at)

    def _begin_send(
        self,
        message: Message | Content,
        timeout: float | None,
        delivery_mode: DeliveryMode | None,
        *,
        limited: bool = False,
    ) -> SendReceipt:
        """Put a message into the buffer, and wait for nothing but room. `limited`: the time-out is the send's own."""
        core = self._core
        core.check()
        receipt = SendReceipt(core.encode(message, delivery_mode), limited)
        left_s = timeout_s = self._timeout_s(timeout)
        if not self._enqueue_at_once(receipt):
            ends_at = time.monotonic() + timeout_s
            self._enqueue_slowly(receipt, timeout_s)
            left_s = max(0.0, ends_at - time.monotonic())
        if limited:
            core.limit(receipt, left_s, timeout_s)
        return receipt

    def _timeout_s(self, timeout: float | None) -> float:
        return self._core.session.core.options.send_timeout_ms / 1000 if timeout is None else timeout

    def _enqueue_at_once(self, receipt: SendReceipt) -> bool:
        """Put a send into the buffer. False, and it is not there, where that is full."""
        with self._lock:
            has_room = self._core.has_room
            if has_room:
                self._core.enqueue(receipt)
        return has_room

    def _enqueue_slowly(self, receipt: SendReceipt, timeout_s: float) -> None:
        core = self._core
        ends_at = time.monotonic() + timeout_s
        try:
            while True:
                if not self._room.wait(self._may_go_on, ends_at - time.monotonic()):
                    raise NotSent(f"the outgoing buffer of {core.spec.what} had no room within {timeout_s:g} s")
                core.check()
                core.check_size(receipt.payload)
                if self._enqueue_at_once(receipt):
                    return
        except BaseException as exc:
            core.give_up(receipt, exc)
            raise

    def _may_go_on(self) -> bool:
        core = self._core
        return core.has_room or core.failure is not None or core.closing

    def _outcome(self, receipt: SendReceipt, timeout_s: float, ends_at: float) -> Accepted | None:
        try:
            done = wait(receipt, ends_at - time.monotonic())
        except BaseException:
            # Asked for first, so that it happens though another interrupt ends the wait for it.
            self._loop.call(partial(self._core.withdraw, receipt))
            self._loop.catch_up()
            raise
        if not done:
            self._loop.run(self._withdraw(receipt, timeout_s))
            if not receipt.done:
                raise receipt.open_error(timeout_s)
        return receipt.value()

    async def _withdraw(self, receipt: SendReceipt, timeout_s: float) -> None:
        self._core.withdraw(receipt, timeout_s)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every send so far has ended; then raise the error of the first that failed since the last flush,
        if nobody has asked its receipt. When the time-out passes first, NotSent
        where all that have not ended are still here, and DeliveryInDoubt where some are under way; it says how many of
        each, and the sends go on."""
        check_timeout(timeout)
        if (failed := self._loop.run(flush(self._core, timeout))) is not None:
            failed.value()

    def close(self, timeout: float | None = None) -> None:
        """Wait for the outcomes of all sends, then detach. What has no outcome when the time is over ends in
        DeliveryInDoubt, or, if it never left, as LinkDetached: ask the receipts. The time-out defaults to the
        connection's close_timeout_ms."""
        if not self._core.detached.done:
            self._loop.close(self._aio.close(timeout))

    def __repr__(self) -> str:
        return repr(self._aio)
