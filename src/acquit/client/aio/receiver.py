"""The receiver of the asyncio API, and listeners that run beside it."""

# ruff: noqa: ASYNC109 -- the time-outs are part of the API: they have an answer (None, False, UNKNOWN) of their own

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self, overload

from acquit.client.aio.messages import ReceivedMessage
from acquit.client.closing import close
from acquit.client.driver import Driver
from acquit.client.listening import HANDLING, ListeningCore, check_callable, listening_here
from acquit.client.options import (
    check_max_messages,
    check_timeout,
)
from acquit.client.receiving import ReceiverCore
from acquit.client.waiting import Deadline, Waiters, wait
from acquit.client.with_closing import AsyncClosing
from acquit.errors import EndpointError


class Receiver(AsyncClosing, AsyncIterator[ReceivedMessage]):
    """Receives messages from one address. Iterate over it, ask `receive`, or let it call a listener.

    Iteration ends only when we close the receiver, its session or the connection; whatever else ends it is raised.
    """

    __slots__ = ("__weakref__", "_core", "_driver", "_waiters")

    def __init__(self, core: ReceiverCore, driver: Driver) -> None:
        self._core = core
        self._driver = driver
        self._waiters = Waiters()
        core.notify = self._on_ready
        core.has_waiters = self._has_waiters

    @property
    def address(self) -> str:
        """Address of the source, as the peer says it: for a dynamic node the name that the peer chose."""
        return self._core.address

    @property
    def lock_duration_ms(self) -> int | None:
        """Milliseconds that the peer lets us hold a message without an outcome, counted from when it sent the message
        or from `renew_lock`; None where it does not say so, as only acquit brokers do."""
        return self._core.lock_duration_ms

    @property
    def available(self) -> int | None:
        """Number of messages at the peer, as its last flow said (2.6.7); see `refresh`. None when detached."""
        return self._core.available

    @property
    def remote_properties(self) -> Mapping[str, object]:
        """Properties of the peer's attach."""
        return self._core.remote_properties

    @overload
    async def receive(self, timeout: None = None) -> ReceivedMessage: ...
    @overload
    async def receive(self, timeout: float) -> ReceivedMessage | None: ...
    @overload
    async def receive(self, timeout: float | None) -> ReceivedMessage | None: ...
    async def receive(self, timeout: float | None = None) -> ReceivedMessage | None:
        """The next message; with a time-out, in seconds, None when it passes first.

        In AUTO mode it is accepted as it is returned. Raises CreditExhausted at the time-out when nothing could come
        because the limit is reached and nothing was acknowledged (modes CLIENT, INDIVIDUAL, TRANSACTED), LinkDetached
        and its kin, SessionEnded or ConnectionLost when nothing will come any more; TransactionRolledBack at once in a
        transaction that cannot be committed any more, until that is ended: call `Session.rollback`.

        With prefetch 0 the credit is asked back at the time-out, so that a message that is on its way is not lost: from
        a peer that does not answer, as before the loss of a connection is noticed, that may take the connection's
        answer_timeout_ms longer.
        """
        check_timeout(timeout)
        self._waiters.check_loop()
        message = self._core.take()
        if message is not None:
            return message  # type: ignore[return-value]  # of our KINDS
        return await self._receive_slowly(timeout)

    async def receive_many(self, max_messages: int, timeout: float | None = None) -> list[ReceivedMessage]:
        """Wait for one message as `receive` does, and take what else has arrived, up to `max_messages`. [] at the
        time-out."""
        check_max_messages(max_messages)
        first = await self.receive(timeout)
        if first is None:
            return []
        messages = [first]
        while len(messages) < max_messages and (message := self._core.take()) is not None:
            messages.append(message)  # type: ignore[arg-type]  # of our KINDS
        return messages

    async def listen(self, handler: Callable[[ReceivedMessage], object | Awaitable[object]]) -> None:
        """Call `handler` with each message, one at a time, awaiting it if it is a coroutine function. Returns when the
        receiver is closed, raises what ends it otherwise.

        In AUTO mode a message is accepted after its handler has returned; when it raised, the message goes back as
        modified(delivery-failed), the exception is logged, and the next message is handled. An outcome that the
        handler gave by itself stands, and is needed where the handler closes the receiver: a message that has none by
        then was not acknowledged. DUPS_OK does the same, lazily; in PRE_ACK a message is accepted before its handler is
        called. In the other modes an exception of the handler ends the listening. A close from elsewhere waits for the
        handler under way.
        """
        check_callable("handler", handler, "message")
        self._waiters.check_loop()
        if self._core.closed_by_us:
            return
        core = self._core
        before = core.mode.listener_called is not None
        with listening_here(core, self._waiters.wake_all) as listening:
            while not listening.stopping:
                message = listening.take()
                if message is None:
                    try:
                        await self._wait_for_listener(listening)
                    except EndpointError:
                        if core.closed_by_us:
                            return
                        raise
                    continue
                if before:
                    self._driver.act()
                with core.listening(message):
                    listening.check_transaction()
                    await _finished(handler(message))  # type: ignore[arg-type]  # of our KINDS

    def start_listener(
        self,
        handler: Callable[[ReceivedMessage], object | Awaitable[object]],
        concurrency: int = 1,
        on_error: Callable[[ReceivedMessage, Exception], object | Awaitable[object]] | None = None,
    ) -> Listener:
        """Call `handler` with each message, on tasks of its own: `concurrency` of them, each with one message at a
        time. Returns at once; the listener goes on until it is stopped, its link ends, or a handler fails in a mode
        where that ends the listening.

        With a concurrency of 1 the messages of this receiver are handled in their order. What a mode does with a
        message when its handler has returned or raised is as for `listen`. `on_error(message, error)` is called
        and awaited where a handler raised, before the message gets the outcome of a failure: it may give it
        another, and what it raises counts as raised by the handler. Where there is an `on_error`, the listening goes on
        in every mode; without it a failure is logged in AUTO, DUPS_OK and PRE_ACK, and in the other modes ends the
        listener, whose `wait` raises it.

        Closing the receiver, its session or its connection stops the listener first. Raises LinkDetached and its kin
        where the link has ended, ConfigurationError for a concurrency that makes no sense.
        """
        return Listener(self, handler, concurrency, on_error)

    async def drain(self, timeout: float | None = None) -> bool:
        """Ask the peer to send what it has for our credit now, and give the rest back (2.6.7). True when it has done
        so: all that was available is in the buffer. Credit is granted again when somebody waits for a message."""
        check_timeout(timeout)
        self._driver.act()
        drained = self._core.drain()
        self._driver.act()
        done = await wait(drained, timeout)
        drained.check()
        return done

    async def refresh(self, timeout: float | None = None) -> bool:
        """Ask the peer for the state of the link, so that `available` is fresh. True once it has answered; many
        brokers never do (the specification does not ask them to)."""
        check_timeout(timeout)
        query = self._core.query()
        self._driver.act()
        done = await wait(query, timeout)
        query.check()
        return done

    async def close(self, timeout: float | None = None) -> None:
        """Detach. Messages that were handed out and not acknowledged go back as modified(delivery-failed), those still
        in the buffer as released; a `default_outcome` replaces both. In NO_ACK the latter are lost. The time-out
        defaults to the connection's close_timeout_ms."""
        await close(self._driver, self._driver.close_timeout_s(timeout), receivers=[self._core])

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        self._waiters.check_loop()
        message = self._core.take()
        try:
            while message is None:
                message = await self._receive_slowly(None)
        except EndpointError:
            if self._core.closed_by_us:
                raise StopAsyncIteration from None
            raise
        return message  # type: ignore[return-value]  # of our KINDS

    def __repr__(self) -> str:
        return f"<Receiver from {self.address!r}>"

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _receive_slowly(self, timeout: float | None) -> ReceivedMessage | None:
        core = self._core
        deadline = Deadline(timeout)
        while await self._arrived(deadline.left()):
            # From here to the return there is no await: nothing can come between a message and its receiver.
            message = core.take()
            if message is not None:
                return message  # type: ignore[return-value]  # of our KINDS
        if core.exhausted:
            raise core.exhaustion()
        return None

    async def _arrived(self, timeout: float | None) -> bool:
        """Wait until the buffer has something. False at the time-out; raises why nothing will come."""
        core = self._core
        core.check()
        core.before_waiting()
        if not core.waits_for_credit:
            return await self._ready(timeout)
        core.begin_wait()
        try:
            self._driver.act()
            arrived = await self._ready(timeout)
        finally:
            core.end_wait()
        if not arrived and core.spec.prefetch == 0:
            # The end of the wait took its credit back. Look once more when that is done: a message may have been on
            # its way.
            self._driver.act()
            if core.drained is not None:
                await wait(core.drained, core.session.core.options.answer_timeout_ms / 1000)
        return arrived or bool(core.buffer)

    async def _ready(self, timeout: float | None, listening: ListeningCore | None = None) -> bool:
        core = self._core
        deadline = Deadline(timeout)
        while not core.buffer:
            if listening is not None and listening.stopping:
                return False
            if listening is None and core.refusal is not None:
                return True  # which `take` raises
            try:
                if not await self._waiters.wait(deadline.left()):
                    return bool(core.buffer)
            except asyncio.CancelledError:
                self._on_ready()  # the wake-up may have been for us: pass it on
                raise
            core.check()
        return True

    async def _wait_for_listener(self, listening: ListeningCore) -> None:
        """Wait until the buffer has something or the listener is to stop; raises why nothing will come. Whatever
        becomes of the credit meanwhile, there is some as long as somebody waits like this."""
        core = self._core
        core.check()
        core.before_waiting()
        core.begin_wait()
        try:
            await self._ready(None, listening)
        finally:
            core.end_wait()

    def _on_ready(self) -> None:
        core = self._core
        if core.failure is not None or core.closing or core.refusal is not None:
            self._waiters.wake_all()
        else:
            self._waiters.wake(len(core.buffer))

    def _has_waiters(self) -> bool:
        return bool(self._waiters)


class Listener:
    """A started listener: a handler that is called with the messages of a receiver, on tasks of its own. Made by
    `Receiver.start_listener`. As a block it is stopped at the end, and raises what it failed of."""

    __slots__ = ("__weakref__", "_core", "_handler", "_on_error", "_receiver", "_tasks")

    def __init__(
        self,
        receiver: Receiver,
        handler: Callable[[ReceivedMessage], object | Awaitable[object]],
        concurrency: int,
        on_error: Callable[[ReceivedMessage, Exception], object | Awaitable[object]] | None,
    ) -> None:
        check_callable("handler", handler, "message")
        if on_error is not None:
            check_callable("on_error", on_error, "message", "error")
        receiver._waiters.check_loop()
        self._receiver = receiver
        self._handler = handler
        self._on_error = on_error
        self._core = ListeningCore(receiver._core, concurrency)
        self._core.wake = self._wake  # which keeps us, and with us the tasks: the event loop does not
        self._tasks = [asyncio.create_task(self._work(), name=f"acquit {number}") for number in range(concurrency)]
        for task in self._tasks:
            task.add_done_callback(self._on_task_ended)

    @property
    def done(self) -> bool:
        """True if the listener has ended: no handler is running, and none will be called."""
        return self._core.ended.done

    async def stop(self, timeout: float | None = None) -> bool:
        """Hand out no message any more, and wait for the handlers under way. True when the last has returned and the
        outcome of its message is said; False at the time-out: handlers go on, and still have their say.

        What is in the buffer of the receiver stays there. Called by a handler of this listener, or a task that it
        started, it does not wait. Raises nothing: what a listener failed of is for `wait`.
        """
        check_timeout(timeout)
        self._core.begin_stop()
        if self._core.asked_from_inside:
            return self.done
        done = await wait(self._core.ended, timeout)
        self._receiver._driver.act()
        return done

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended. True then, False at the time-out. Raises what it failed of: the error of a handler,
        also of one that was under way at a `stop`, or of a link whose end nobody asked for. Raises LocalProtocolError
        in a handler of this listener."""
        check_timeout(timeout)
        self._core.check_outside()
        if not await wait(self._core.ended, timeout):
            return False
        self._core.check()
        return True

    def __repr__(self) -> str:
        return f"<Listener from {self._receiver.address!r}{', done' if self.done else ''}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()
        if exc is None:
            self._core.check()

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        HANDLING.set(self._core)
        try:
            while not self._core.stopping:
                message = self._core.take()
                if message is None:
                    await self._wait()
                else:
                    await self._handle(message)  # type: ignore[arg-type]  # of our KINDS
        except BaseException as exc:
            self._core.failed(exc)
            if not isinstance(exc, Exception):
                raise

    async def _wait(self) -> None:
        try:
            await self._receiver._wait_for_listener(self._core)
        except EndpointError as exc:
            self._core.nothing_more(exc)

    async def _handle(self, message: ReceivedMessage) -> None:
        if self._core.receiver.mode.listener_called is not None:
            self._receiver._driver.act()
        with self._core.receiver.listening(message) as listening:
            try:
                self._core.check_transaction()
                await _finished(self._handler(message))
            except Exception as exc:
                if self._on_error is None:
                    raise
                await _finished(self._on_error(message, exc))
                listening.dealt_with = exc

    def _wake(self) -> None:
        self._receiver._waiters.wake_all()

    def _on_task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # `wait` raises it
        elif not self._core.stopping:  # before it began
            self._core.failed(asyncio.CancelledError())
        self._core.worker_ended()


async def _finished(result: object) -> None:
    if inspect.isawaitable(result):
        await result
