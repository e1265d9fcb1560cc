"""Received messages and receipts of the asyncio API."""

# ruff: noqa: ASYNC109 -- the time-outs are part of the API: they have an answer (None, False, UNKNOWN) of their own

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping

from acquit.client.listening import check_no_coroutine
from acquit.client.options import check_timeout
from acquit.client.receipts import ReceiptStatus, SendPromise, SettlementReceipt, call_when_done
from acquit.client.received import Kinds, MessageCore, SessionCoreBase, modified, rejected
from acquit.client.waiting import wait
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Accepted, Error


class Receipt(SettlementReceipt):
    """The receipt of an acknowledgement: ask `result`, or await it.

    `status` is the worst that became of any of the deliveries, None while answers are awaited; `reason` says more
    about STALE and UNKNOWN; `count` is the number of deliveries. It always ends, after the connection's ack_timeout_ms
    at the latest.
    """

    __slots__ = ()

    async def result(self, timeout: float | None = None) -> ReceiptStatus:
        """Wait for the status. UNKNOWN when the time-out passes first; the receipt may still learn better."""
        check_timeout(timeout)
        await wait(self, timeout)
        status = self.status
        return status if status is not None else ReceiptStatus.UNKNOWN

    def add_done_callback(self, callback: Callable[[Receipt], object]) -> None:
        """Call `callback` with this receipt when its status is known: once, by the event loop, never from within this
        call. What it raises is logged."""
        check_no_coroutine("callback", callback)
        self.when_done(call_when_done(self, callback, asyncio.get_running_loop().call_soon))

    def __await__(self) -> Generator[object, None, ReceiptStatus]:
        return self.result().__await__()


class SendReceipt(SendPromise):
    """The receipt of a send: ask `result`, or await it. `outcome` is the peer's, None before and without one."""

    __slots__ = ()

    async def result(self, timeout: float | None = None) -> Accepted | None:
        """Wait for the outcome.

        Raises MessageRejected, MessageReleased or MessageModified where the peer did not accept; DeliveryInDoubt where
        no outcome was heard; NotSent, ConnectionLost and its kin where the message had not left. A `timeout` of this
        call ends the wait and not the send: it raises DeliveryInDoubt where the message is under way, and NotSent where
        it is still here, and `done` is False. Ask again, or give the `send` a time-out of its own.
        """
        check_timeout(timeout)
        if not await wait(self, timeout):
            if not self.transferred:
                await asyncio.sleep(0)  # it may only wait for the loop, which is to look at it once
            if not self.done:
                raise self.open_error(timeout)
        return self.value()

    def add_done_callback(self, callback: Callable[[SendReceipt], object]) -> None:
        """Call `callback` with this receipt when the send has ended, well or not: once, by the event loop, never from
        within this call. What it raises is logged."""
        check_no_coroutine("callback", callback)
        self.when_done(call_when_done(self, callback, asyncio.get_running_loop().call_soon))

    def __await__(self) -> Generator[object, None, Accepted | None]:
        return self.result().__await__()


class ReceivedMessage(MessageCore):
    """A received message: its attributes, and the verbs that settle its delivery.

    `accept`, `reject`, `release` and `modify` mean this delivery in every mode, and raise AlreadySettled when it has
    its outcome, Unreliable in NO_ACK. With `sync` they wait for the peer's answer where it grants one; the receipt
    says what is known.
    """

    __slots__ = ()

    async def acknowledge(self, *, sync: bool = True) -> Receipt:
        """Accept: in INDIVIDUAL this message, in CLIENT all that were handed out in the session. Without effect in the
        other modes, and for what is acknowledged already."""
        session = self.receiver.session
        return await answered(session, session.acknowledge(self, whole_session=True), sync)

    async def accept(self, *, sync: bool = True) -> Receipt:
        """Processed: the broker may forget it."""
        return await answered(self.receiver.session, self.decide(ACCEPTED), sync)

    async def reject(
        self, error: Error | BaseException | str | None = None, description: str | None = None, *, sync: bool = True
    ) -> Receipt:
        """Invalid: the broker dead-letters it, and keeps the error with it.

        `error` is a condition, a symbol with a domain such as ``amqp:decode-error`` or ``orders:no-customer``, which
        `description` says more about; or a text, which then is the description; or an exception, whose text it is
        (with the exception's own `condition`, else ``amqp:internal-error``); or an `Error`.
        """
        return await answered(self.receiver.session, self.decide(rejected(error, description)), sync)

    async def release(self, *, sync: bool = True) -> Receipt:
        """Give back a message that was not processed: the broker delivers it again without counting an attempt."""
        return await answered(self.receiver.session, self.decide(RELEASED), sync)

    async def modify(
        self,
        *,
        delivery_failed: bool = False,
        undeliverable_here: bool = False,
        annotations: Mapping[str, object] | None = None,
        sync: bool = True,
    ) -> Receipt:
        """Give the message back unprocessed: the broker delivers it again, counts the attempt (`delivery_failed`),
        leaves this receiver out (`undeliverable_here`), and merges in these message annotations."""
        outcome = modified(delivery_failed, undeliverable_here, annotations)
        return await answered(self.receiver.session, self.decide(outcome), sync)

    async def renew_lock(self, *, sync: bool = True) -> Receipt:
        """Say that the message is still being worked on: a disposition of state *received* (3.4.1). A broker that
        locks messages for a time (`Receiver.lock_duration_ms`) begins that time again; others ignore it.

        The receipt says SENT, or STALE where the message is not ours any more: its lock ran out, or its link is gone.
        There is no answer to a renewal: one that crosses the end of the lock is heard of as STALE by the receipt of the
        outcome. Raises AlreadySettled where the message has its outcome (as in AUTO mode when `receive` has returned
        it), Unreliable in NO_ACK.
        """
        return await answered(self.receiver.session, self.renew(), sync)


KINDS = Kinds(message=ReceivedMessage, receipt=Receipt)


async def answered(session: SessionCoreBase, receipt: SettlementReceipt, sync: bool) -> Receipt:
    """The receipt: with `sync` as soon as it is known, else as soon as there is room for one more of its kind."""
    assert isinstance(receipt, Receipt)
    if sync:
        await wait(receipt, None)
    elif not receipt.done and session.unanswered.add(receipt):
        while (oldest := session.unanswered.in_the_way()) is not None:
            if not await wait(oldest, session.unanswered.timeout_s):
                session.unanswered.give_up(oldest)
    return receipt
