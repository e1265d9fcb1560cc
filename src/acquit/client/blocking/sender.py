"""The sender of the blocking API."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Literal, Self, overload

from acquit.client import aio
from acquit.client.blocking.messages import SendReceipt
from acquit.client.closing import still_in_doubt
from acquit.client.options import DeliveryMode
from acquit.client.threads import Gate, LoopThread, wait
from acquit.errors import NotSent
from acquit.protocol._definitions import Accepted
from acquit.protocol.message import Message


class Sender:
    """Sends messages to one address."""

    def __init__(self, sender: aio.Sender, loop: LoopThread) -> None:
        self._aio = sender
        self._loop = loop
        self._core = sender._core
        self._lock = threading.RLock()  # a handler of a signal may send while its thread does
        self._room = Gate()
        self._core.notify = self._room.open

    @property
    def address(self) -> str | None:
        """Where to; None for the anonymous terminus."""
        return self._core.address

    @property
    def remote_properties(self) -> Mapping[str, object]:
        """Properties of the peer's attach."""
        return self._core.remote_properties

    @overload
    def send(
        self,
        message: Message | bytes | str,
        *,
        wait: Literal[True] = True,
        timeout: float | None = None,
        delivery_mode: DeliveryMode | None = None,
    ) -> Accepted | None: ...
    @overload
    def send(
        self,
        message: Message | bytes | str,
        *,
        wait: Literal[False],
        timeout: float | None = None,
        delivery_mode: DeliveryMode | None = None,
    ) -> SendReceipt: ...
    def send(
        self,
        message: Message | bytes | str,
        *,
        wait: bool = True,
        timeout: float | None = None,
        delivery_mode: DeliveryMode | None = None,
    ) -> Accepted | SendReceipt | None:
        """Send a message, and return the outcome *accepted*; with ``wait=False`` a receipt as soon as the outgoing
        buffer has taken it, so that many can be under way.

        A message that does not say durable is sent as the sender's delivery mode says; `delivery_mode` overrides both.
        `timeout` defaults to the connection's send_timeout_ms. Raises MessageRejected, MessageReleased,
        MessageModified; DeliveryInDoubt where no outcome was heard in time or the peer was lost; NotSent where it
        never left; EncodeError and LocalProtocolError for what cannot be sent.
        """
        core = self._core
        core.check()
        receipt = SendReceipt(core.encode(message, delivery_mode), wait)
        with self._lock:
            queued = core.has_room
            sent = queued and wait and core.is_idle and self._send_now(receipt)
            if queued and not sent:
                core.enqueue(receipt)
        if queued and not wait:
            return receipt
        timeout_s = core.session.core.options.send_timeout_ms / 1000 if timeout is None else timeout
        ends_at = time.monotonic() + timeout_s
        if not queued:
            self._enqueue_slowly(receipt, timeout_s)
            if not wait:
                return receipt
        return self._outcome(receipt, timeout_s, ends_at, listen=sent)

    def _send_now(self, receipt: SendReceipt) -> bool:
        """Send in this thread, if the loop thread has nothing to do. Whoever waits for one outcome after the other is
        spared a hand-over between threads for each."""
        try:
            return self._loop.attempt(partial(self._aio._driver.send, self._core, receipt))
        except BaseException:
            self._loop.call(partial(self._core.withdraw, receipt))
            raise

    def _enqueue_slowly(self, receipt: SendReceipt, timeout_s: float) -> None:
        core = self._core
        ends_at = time.monotonic() + timeout_s
        while True:
            if not self._room.wait(self._may_go_on, ends_at - time.monotonic()):
                raise NotSent(f"the outgoing buffer of {core.spec.what} had no room within {timeout_s:g} s")
            core.check()
            with self._lock:
                if core.has_room:
                    core.enqueue(receipt)
                    return

    def _may_go_on(self) -> bool:
        core = self._core
        return core.has_room or core.failure is not None or core.closing

    def _outcome(self, receipt: SendReceipt, timeout_s: float, ends_at: float, *, listen: bool) -> Accepted | None:
        try:
            if listen:
                self._loop.listen(self._aio._driver.pump, receipt, timeout_s)
            done = wait(receipt, ends_at - time.monotonic())
        except BaseException:
            self._loop.call(partial(self._core.withdraw, receipt))
            raise
        if not done:
            self._loop.run(self._withdraw(receipt))
            if not receipt.done:
                raise still_in_doubt(timeout_s)
        return receipt._value()

    async def _withdraw(self, receipt: SendReceipt) -> None:
        self._core.withdraw(receipt)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every send so far has ended; then raise the error of the first that failed since the last flush,
        if nobody has asked its receipt. DeliveryInDoubt when the time-out passes first."""
        self._loop.run(self._aio.flush(timeout))

    def close(self, timeout: float | None = None) -> None:
        """Wait for the outcomes of all sends, then detach. What has no outcome when the time is over ends in
        DeliveryInDoubt, or, if it never left, as LinkDetached: ask the receipts. The time-out defaults to the
        connection's close_timeout_ms."""
        if not self._core.detached.done:
            self._loop.run(self._aio.close(timeout))

    def __repr__(self) -> str:
        return repr(self._aio)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
