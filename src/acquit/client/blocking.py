"""The blocking API, for threads.

The names and arguments of the asyncio API, with methods that wait where those are awaited. It is a façade: connections
live on a loop thread, and what is frequent never waits for it. `receive` pops a buffer that the loop thread fills,
acknowledgements and sends are left for it to pick up, many at a time.

Objects may be used from several threads. Each message is settled once, whoever tries. Time-outs are in seconds; None
waits without one, except where an option of the connection says how long. Connections do not survive a fork: open them
in the child.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Literal, Self, cast, overload

from acquit.client import aio
from acquit.client.closing import still_in_doubt
from acquit.client.core import Kinds
from acquit.client.driver import Driver, open_driver
from acquit.client.fates import TransactionFate
from acquit.client.listening import HANDLING, ListeningCore, listening_here
from acquit.client.modes import AckMode
from acquit.client.options import ConnectOptions, DeliveryMode, check_max_messages
from acquit.client.receipts import ReceiptStatus, SendPromise, SettlementReceipt
from acquit.client.received import MessageCore, modified, rejected
from acquit.client.reconnecting import ConnectionEvent
from acquit.client.requests import Reply
from acquit.client.requests_blocking import Requester, Responder, open_responder
from acquit.client.session import SessionCore
from acquit.client.subscriptions import Subscription
from acquit.client.threads import FORKED, Gate, LoopThread, in_order, loop_thread, wait, watch_forks, when_done
from acquit.errors import ConnectionLost, EndpointError, NotSent
from acquit.protocol._definitions import Accepted, Error
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.delivery import Outcome
from acquit.protocol.message import Message


class Receipt(SettlementReceipt):
    """What became of an acknowledgement: ask `result`.

    `status` is the worst that became of any of the deliveries, None while answers are awaited; `reason` says more
    about STALE and UNKNOWN; `count` is the number of deliveries. It always ends, after the connection's ack_timeout_ms
    at the latest.
    """

    __slots__ = ()

    def result(self, timeout: float | None = None) -> ReceiptStatus:
        """Wait for the status. UNKNOWN when the time-out passes first; the receipt may still learn better."""
        wait(self, timeout)
        status = self.status
        return status if status is not None else ReceiptStatus.UNKNOWN

    def add_done_callback(self, callback: Callable[[Receipt], object]) -> None:
        """Have `callback` called with this receipt when its status is known: once, on a thread that calls the callbacks
        of all receipts, one after the other, never from within this call. It may use the client; what it raises is
        logged."""
        when_done(self, callback)


class SendReceipt(SendPromise):
    """What became of a send: ask `result`. `outcome` is the peer's, None before and without one."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> Accepted | None:
        """Wait for the outcome.

        Raises MessageRejected, MessageReleased or MessageModified where the peer did not accept; DeliveryInDoubt where
        no outcome was heard (after a time-out it may still come: ask again); ConnectionLost and its kin where the
        message had not left.
        """
        if not wait(self, timeout):
            raise still_in_doubt(timeout)
        return self._value()

    def add_done_callback(self, callback: Callable[[SendReceipt], object]) -> None:
        """Have `callback` called with this receipt when the send has ended, well or not: once, on a thread that calls
        the callbacks of all receipts, one after the other, never from within this call. It may use the client; what it
        raises is logged."""
        when_done(self, callback)


class ReceivedMessage(MessageCore):
    """A received message: its attributes, and the verbs that settle its delivery.

    `accept`, `reject`, `release` and `modify` mean this delivery in every mode, and raise AlreadySettled when it has
    its outcome, Unreliable in NO_ACK. With `sync` they wait for the peer's answer where it grants one; the receipt
    says what is known.
    """

    __slots__ = ()

    def acknowledge(self, *, sync: bool = True) -> Receipt:
        """Accept: in INDIVIDUAL this message, in CLIENT all that were handed out in the session. Without effect in the
        other modes, and for what is acknowledged already."""
        session = self._receiver.session
        return _answered(session, session.acknowledge(self, whole_session=True), sync)

    def accept(self, *, sync: bool = True) -> Receipt:
        """Processed: the broker may forget it."""
        return _answered(self._receiver.session, self._settle(ACCEPTED), sync)

    def reject(self, error: Error | str | None = None, description: str | None = None, *, sync: bool = True) -> Receipt:
        """Invalid: the broker dead-letters it. `error` is a condition such as ``amqp:decode-error``, kept with it."""
        return _answered(self._receiver.session, self._settle(rejected(error, description)), sync)

    def release(self, *, sync: bool = True) -> Receipt:
        """Not processed, and nobody's fault: the broker delivers it again without counting an attempt."""
        return _answered(self._receiver.session, self._settle(RELEASED), sync)

    def modify(
        self,
        *,
        delivery_failed: bool = False,
        undeliverable_here: bool = False,
        annotations: Mapping[str, object] | None = None,
        sync: bool = True,
    ) -> Receipt:
        """Not processed: the broker delivers it again, counts the attempt (`delivery_failed`), not to this receiver
        any more (`undeliverable_here`), with these message annotations merged in."""
        outcome = modified(delivery_failed, undeliverable_here, annotations)
        return _answered(self._receiver.session, self._settle(outcome), sync)

    def renew_lock(self, *, sync: bool = True) -> Receipt:
        """Say that the message is still being worked on: a disposition of state *received* (3.4.1). A broker that
        locks messages for a time (`Receiver.lock_duration_ms`) begins that time again; others ignore it.

        The receipt says SENT, or STALE where the message is not ours any more: its lock ran out, or its link is gone.
        There is no answer to a renewal: one that crosses the end of the lock is heard of as STALE by the receipt of the
        outcome. Raises AlreadySettled where the message has its outcome (as in AUTO mode when `receive` has returned
        it), Unreliable in NO_ACK.
        """
        return _answered(self._receiver.session, self._renew(), sync)


KINDS = Kinds(message=ReceivedMessage, receipt=Receipt)


def _answered(session: SessionCore, receipt: SettlementReceipt, sync: bool) -> Receipt:
    if sync:
        wait(receipt, None)
    elif not receipt.done and session.unanswered.add(receipt):
        while (oldest := session.unanswered.in_the_way()) is not None:
            if not wait(oldest, session.unanswered.timeout_s):
                session.unanswered.give_up(oldest)
    return cast(Receipt, receipt)


class Sender:
    """Sends messages to one address."""

    def __init__(self, sender: aio.Sender, loop: LoopThread) -> None:
        self._aio = sender
        self._loop = loop
        self._core = sender._core
        self._lock = threading.Lock()
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
        receipt = SendReceipt(core.encode(message, delivery_mode))
        with self._lock:
            queued = core.has_room
            if queued and not (wait and core.is_idle and self._send_now(receipt)):
                core.enqueue(receipt)
        if queued and not wait:
            return receipt
        timeout_s = core.session.core.options.send_timeout_ms / 1000 if timeout is None else timeout
        ends_at = time.monotonic() + timeout_s
        if not queued:
            self._enqueue_slowly(receipt, timeout_s)
            if not wait:
                return receipt
        return self._outcome(receipt, timeout_s, ends_at)

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

    def _outcome(self, receipt: SendReceipt, timeout_s: float, ends_at: float) -> Accepted | None:
        try:
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Receiver(Iterator[ReceivedMessage]):
    """Receives messages from one address. Iterate over it, ask `receive`, or let it call a listener.

    Iteration ends only when we close the receiver, its session or the connection; whatever else ends it is raised.
    """

    def __init__(self, receiver: aio.Receiver, loop: LoopThread) -> None:
        self._aio = receiver
        self._loop = loop
        self._core = receiver._core
        self._gate = Gate()
        self._core.notify = self._on_ready
        self._core.has_waiters = self._has_waiters

    @property
    def address(self) -> str:
        """Where from: what the peer says, which for a dynamic node is the name it chose."""
        return self._core.address

    @property
    def lock_duration_ms(self) -> int | None:
        """How long the peer lets us hold a message without an outcome, counted from when it sent the message or from
        `renew_lock`; None where it does not say so, as only acquit brokers do."""
        return self._core.lock_duration_ms

    @property
    def available(self) -> int | None:
        """How many messages wait at the peer, as its last flow said (2.6.7); see `refresh`. None when detached."""
        return self._core.available

    @property
    def remote_properties(self) -> Mapping[str, object]:
        """Properties of the peer's attach."""
        return self._core.remote_properties

    def receive(self, timeout: float | None = None) -> ReceivedMessage | None:
        """The next message, or None at the time-out.

        In AUTO mode it is accepted as it is returned. Raises CreditExhausted at the time-out when nothing could come
        because the limit is reached and nothing was acknowledged (modes CLIENT, INDIVIDUAL, TRANSACTED), LinkDetached
        and its kin, SessionEnded or ConnectionLost when nothing will come any more.
        """
        message = self._core.take()
        if message is not None:
            return message  # type: ignore[return-value]  # of our KINDS
        return self._receive_slowly(timeout)

    def receive_many(self, max_messages: int, timeout: float | None = None) -> list[ReceivedMessage]:
        """Wait for one message as `receive` does, and take what else has arrived, up to `max_messages`. [] at the
        time-out."""
        check_max_messages(max_messages)
        first = self.receive(timeout)
        if first is None:
            return []
        messages = [first]
        while len(messages) < max_messages and (message := self._core.take()) is not None:
            messages.append(message)  # type: ignore[arg-type]  # of our KINDS
        return messages

    def listen(self, handler: Callable[[ReceivedMessage], object]) -> None:
        """Call `handler` with each message, one at a time, in this thread. Returns when the receiver is closed (by
        another thread, or by the handler), raises what ends it otherwise.

        In AUTO mode a message is accepted after its handler has returned; when it raised, the message goes back as
        modified(delivery-failed), the exception is logged, and the next message is handled. An outcome that the
        handler gave by itself stands, and is needed where the handler closes the receiver: a message that has none by
        then was not acknowledged. DUPS_OK does the same, lazily; in PRE_ACK a message is accepted before its handler is
        called. In the other modes an exception of the handler ends the listening. A close from elsewhere waits for the
        handler under way.
        """
        if self._core.closed_by_us:
            return
        core = self._core
        before = core.mode.listener_called is not None
        with listening_here(core, self._gate.open) as listening:
            while not listening.stopping:
                message = listening.take()
                if message is None:
                    try:
                        self._wait_for_listener(listening)
                    except EndpointError:
                        if core.closed_by_us:
                            return
                        raise
                    continue
                if before:
                    self._loop.run(self._said())
                with core.listening(message):
                    handler(message)  # type: ignore[arg-type]  # of our KINDS

    def start_listener(
        self,
        handler: Callable[[ReceivedMessage], object],
        concurrency: int = 1,
        on_error: Callable[[ReceivedMessage, Exception], object] | None = None,
    ) -> Listener:
        """Call `handler` with each message, on threads of its own: `concurrency` of them, each with one message at a
        time. Returns at once; the listener goes on until it is stopped, its link ends, or a handler fails in a mode
        where that ends the listening.

        With a concurrency of 1 the messages of this receiver are handled in their order. What a mode does with a
        message when its handler has returned or raised is as for `listen`. `on_error(message, error)` is called
        on that thread where a handler raised, before the message gets the outcome of a failure: it may give it
        another, and what it raises counts as raised by the handler. Where there is an `on_error`, the listening goes on
        in every mode; without it a failure is logged in AUTO, DUPS_OK and PRE_ACK, and in the other modes ends the
        listener, whose `wait` raises it.

        Closing the receiver, its session or its connection stops the listener first. Raises LinkDetached and its kin
        where the link has ended, ConfigurationError for a concurrency that makes no sense.
        """
        return Listener(self, handler, concurrency, on_error)

    def drain(self, timeout: float | None = None) -> bool:
        """Ask the peer to send what it has for our credit now, and give the rest back (2.6.7). True when it has done
        so: all that was available is in the buffer. Credit is granted again when somebody waits for a message."""
        return self._loop.run(self._aio.drain(timeout))

    def refresh(self, timeout: float | None = None) -> bool:
        """Ask the peer for the state of the link, so that `available` is fresh. True once it has answered; many
        brokers never do (the specification does not ask them to)."""
        return self._loop.run(self._aio.refresh(timeout))

    def close(self, timeout: float | None = None) -> None:
        """Detach. Messages that were handed out and not acknowledged go back as modified(delivery-failed), those still
        in the buffer as released; a `default_outcome` replaces both. In NO_ACK the latter are lost. The time-out
        defaults to the connection's close_timeout_ms."""
        if not self._core.detached.done:
            self._loop.run(self._aio.close(timeout))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        message = self._core.take()
        try:
            while message is None:
                message = self._receive_slowly(None)
        except EndpointError:
            if self._core.closed_by_us:
                raise StopIteration from None
            raise
        return message  # type: ignore[return-value]  # of our KINDS

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _said(self) -> None:
        """What was posted before is said now."""
        self._aio._driver.act()

    def _receive_slowly(self, timeout: float | None) -> ReceivedMessage | None:
        core = self._core
        ends_at = None if timeout is None else time.monotonic() + timeout
        while self._arrived(None if ends_at is None else ends_at - time.monotonic()):
            message = core.take()
            if message is not None:
                return message  # type: ignore[return-value]  # of our KINDS
        if core.exhausted:
            raise core.exhaustion()
        return None

    def _arrived(self, timeout: float | None) -> bool:
        """Wait until the buffer has something. False at the time-out; raises why nothing will come."""
        core = self._core
        core.check()
        if core.waits_for_credit:
            # Credit is asked for and taken back on the loop thread, the message is taken here: an interrupt of this
            # thread finds it in the buffer.
            return self._loop.run(self._aio._arrived(timeout))
        core.before_waiting()
        # Credit may have been drained since we looked: whoever does not wait yet has to look again.
        arrived = self._gate.wait(lambda: self._may_go_on() or core.waits_for_credit, timeout)
        core.check()
        return arrived

    def _wait_for_listener(self, listening: ListeningCore) -> None:
        """Wait until the buffer has something or the listener is to stop; raises why nothing will come. Whatever
        becomes of the credit meanwhile, there is some as long as somebody waits like this."""
        core = self._core
        core.check()
        core.before_waiting()
        core.begin_wait()
        try:
            self._gate.wait(lambda: listening.stopping or self._may_go_on(), None)
        finally:
            core.end_wait()

    def _may_go_on(self) -> bool:
        core = self._core
        return bool(core.buffer) or core.failure is not None or core.closing

    def _on_ready(self) -> None:
        self._gate.open()
        self._aio._on_ready()

    def _has_waiters(self) -> bool:
        return self._gate.has_waiters or self._aio._has_waiters()


class Listener:
    """A started listener: a handler that is called with the messages of a receiver, on threads of its own. Made by
    `Receiver.start_listener`. As a block it is stopped at the end, and raises what ended it before.

    The threads are daemons: a program that ends without stopping its listeners ends, in the midst of their handlers.
    """

    def __init__(
        self,
        receiver: Receiver,
        handler: Callable[[ReceivedMessage], object],
        concurrency: int,
        on_error: Callable[[ReceivedMessage, Exception], object] | None,
    ) -> None:
        self._receiver = receiver
        self._handler = handler
        self._on_error = on_error
        self._loop = receiver._loop
        self._core = ListeningCore(receiver._core, concurrency)
        self._core.wake = receiver._gate.open
        for number in range(concurrency):
            try:
                threading.Thread(target=self._work, name=f"acquit listener {number}", daemon=True).start()
            except RuntimeError:  # the system has no more threads
                self._core.begin_stop()
                for _ in range(number, concurrency):
                    self._core.worker_ended()
                raise

    @property
    def done(self) -> bool:
        """Whether it has ended: no handler is running, and none will be called."""
        return self._core.ended.done

    def stop(self, timeout: float | None = None) -> bool:
        """Hand out no message any more, and wait for the handlers under way. True when the last has returned and the
        outcome of its message is said; False at the time-out: handlers go on, and still have their say.

        What is in the buffer of the receiver stays there. Called by a handler of this listener it does not wait. Raises
        nothing: what a listener failed of is for `wait`.
        """
        self._core.begin_stop()
        if self._core.asked_from_inside or self._loop.forked:
            return self.done
        done = wait(self._core.ended, timeout)
        self._loop.run(self._receiver._said())
        return done

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended. True then, False at the time-out. Raises what ended it, if nobody asked for that: an
        error of the link, or of a handler. Raises LocalProtocolError in a handler of this listener."""
        self._core.check_outside()
        if self._loop.forked:  # the threads are the parent's
            raise ConnectionLost(FORKED)
        if not wait(self._core.ended, timeout):
            return False
        self._core.check()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        if exc is None:
            self._core.check()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        HANDLING.set(self._core)
        try:
            while not self._core.stopping:
                message = self._core.take()
                if message is None:
                    self._wait()
                else:
                    self._handle(message)  # type: ignore[arg-type]  # of our KINDS
        except BaseException as exc:  # noqa: BLE001 -- `wait` raises it
            self._core.failed(exc)
        finally:
            self._core.worker_ended()

    def _wait(self) -> None:
        try:
            self._receiver._wait_for_listener(self._core)
        except EndpointError as exc:
            self._core.nothing_more(exc)

    def _handle(self, message: ReceivedMessage) -> None:
        if self._core.receiver.mode.listener_called is not None:
            self._loop.run(self._receiver._said())
        with self._core.receiver.listening(message) as listening:
            try:
                self._handler(message)
            except Exception as exc:
                if self._on_error is None:
                    raise
                self._on_error(message, exc)
                listening.dealt_with = True


class Session:
    """A session: an acknowledgement mode, and the senders and receivers that share it."""

    def __init__(self, session: aio.Session, loop: LoopThread) -> None:
        self._aio = session
        self._loop = loop
        self._core = session._core

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
    ) -> Sender:
        """Attach a sender to `address`; None is the anonymous terminus, where each message's `to` says where it goes.

        `topic`: the address is a topic's; without it the peer decides what the address means. `unreliable`: messages
        are settled as they are sent (at most once), and `send` returns None as soon as one has left. `buffer_messages`
        and `buffer_bytes` bound what waits for credit here: beyond, `send` waits. Raises NotFound, Unauthorized or
        another LinkDetached where the peer refuses.
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
            )
            return Sender(sender, self._loop)

        return self._loop.run(attach())

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
        own end for brokers that address replies to it. Raises NotFound, Unauthorized or another LinkDetached where the
        peer refuses.
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
            )
            return Receiver(receiver, self._loop)

        return self._loop.run(attach())

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

        async def attach() -> Requester:
            requester = await self._aio.requester(address, reply_to=reply_to, delivery_mode=delivery_mode, topic=topic)
            return Requester(requester, self._loop)

        return self._loop.run(attach())

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
        return open_responder(self, address, handler, concurrency, prefetch, delivery_mode)

    def unsubscribe(self, subscription: Subscription) -> None:
        """Delete a subscription of a topic, with what it holds. Raises NotFound where there is none, and LinkDetached
        where somebody receives from it."""
        self._loop.run(self._aio.unsubscribe(subscription))

    def acknowledge(self, message: ReceivedMessage | None = None, *, sync: bool = True) -> Receipt:
        """Accept what was handed out: in CLIENT mode up to and including `message`, in INDIVIDUAL `message` alone,
        without one all of it. Without effect in the other modes, and for what is acknowledged already."""
        return _answered(self._core, self._core.acknowledge(message, whole_session=False), sync)

    def settle(self, messages: Iterable[ReceivedMessage], outcome: Outcome, *, sync: bool = True) -> Receipt:
        """Give many messages of this session one outcome, at the price of one. Those that have an outcome already are
        passed over: `Receipt.count` tells how many were not."""
        return _answered(self._core, self._core.settle_all(messages, outcome), sync)

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
        time-out (by default the connection's send_timeout_ms) or the loss of the connection. A commit that is cancelled
        goes on; the next `commit` raises what became of it, and `rollback` stops it if it was not sent yet.
        """
        self._loop.run(self._aio.commit(timeout))

    def rollback(self, timeout: float | None = None) -> None:
        """Undo all that was sent and received in the session since the last end of a transaction (TRANSACTED): what
        was received comes again, with a raised `delivery_count`; what was prefetched goes back and comes again as well.
        Raises nothing when the connection is lost: that is a rollback, too."""
        self._loop.run(self._aio.rollback(timeout))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A block that ends with `commit`, or, when it raises, with `rollback`. What was sent and received in the
        session before is part of it."""
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
            self._loop.run(self._aio.close(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Connection:
    """One connection to a broker. Made by `connect`."""

    def __init__(self, driver: Driver, loop: LoopThread) -> None:
        self._aio = aio.Connection(driver)
        self._loop = loop

    @property
    def closed(self) -> bool:
        """Whether it is closed, or lost for good."""
        return self._aio.closed

    @property
    def connected(self) -> bool:
        """Whether there is a connection now; False while it is interrupted, and when it is closed."""
        return self._aio.connected

    @property
    def container_id(self) -> str:
        """Who we are to the peer (2.7.1)."""
        return self._aio.container_id

    @property
    def remote_container_id(self) -> str:
        """Who the peer is."""
        return self._aio.remote_container_id

    @property
    def remote_properties(self) -> Mapping[str, object]:
        """What the peer says about itself: product, version, and so on."""
        return self._aio.remote_properties

    @property
    def remote_capabilities(self) -> tuple[str, ...]:
        """What the peer offers."""
        return self._aio.remote_capabilities

    def session(self, mode: AckMode | str | int = AckMode.AUTO) -> Session:
        """Begin a session in an acknowledgement mode, given as AckMode, by name, or by its JMS value.

        A TRANSACTED one attaches its control link, and raises LinkDetached or its kin where the peer has no
        transactions. Raises ConfigurationError for a mode that is not there.
        """

        async def begin() -> Session:
            return Session(await self._aio.session(mode), self._loop)

        return self._loop.run(begin())

    def transaction_fate(self, txn_id: bytes, timeout: float | None = None) -> TransactionFate:
        """Ask the broker what became of a transaction (`TransactionInDoubt.txn_id`), of any connection of this user.

        A transaction that is live is rolled back by the question, and its connection closed, so that the answer is
        final; one whose commit is on the way to the disk is waited for. UNKNOWN where the peer cannot tell, or does
        not within the time-out (by default the connection's answer_timeout_ms). Only acquit brokers can, for an hour
        unless configured otherwise. Raises ConnectionLost or its kin where the connection ends first.
        """
        return self._loop.run(self._aio.transaction_fate(txn_id, timeout))

    def close(self, timeout: float | None = None) -> None:
        """Close sessions, senders and receivers as they do by themselves, then the connection. When the time is over
        (by default after close_timeout_ms for each of the two), the connection is cut off."""
        if not self._aio._driver.core.closed.done:
            self._loop.run(self._aio.close(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def connect(
    url: str | Sequence[str],
    *,
    container_id: str | None = None,
    username: str | None = None,
    password: str | None = None,
    ssl_context: ssl.SSLContext | None = None,
    options: ConnectOptions | None = None,
    on_event: Callable[[ConnectionEvent], object] | None = None,
) -> Connection:
    """Connect to a broker: ``amqp://user:password@host:port``, or ``amqps://`` for TLS. Of several hosts, given as a
    list of URLs or as ``failover:(amqp://one,amqp://two)``, the first that opens is taken.

    A connection that is lost is restored as `ConnectOptions.reconnect` says; `on_event` is called with a
    `ConnectionEvent` when it opens, is interrupted, restored, or lost for good, on
    the thread that calls back receipts, too, one event after the other.

    `username` and `password` replace those of the URLs; without any, SASL ANONYMOUS is used. `container_id` names us to
    the broker; by default it is another one for each connection. Raises ConnectTimeout, AuthenticationFailed or
    another ConnectionFailed; ConfigurationError for a URL or option that makes no sense.
    """
    loop = loop_thread()
    driver = loop.run(
        open_driver(
            url,
            container_id,
            username,
            password,
            ssl_context,
            options,
            KINDS,
            threads=True,
            on_event=on_event and in_order(on_event),
        )
    )
    watch_forks(driver)
    return Connection(driver, loop)
