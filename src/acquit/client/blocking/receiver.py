"""The receiver of the blocking API, and listeners that run beside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar, overload

from acquit.client import aio
from acquit.client.blocking.messages import Receipt, ReceivedMessage, answered
from acquit.client.listening import HANDLING, ListeningCore, check_no_coroutine, listening_here
from acquit.client.options import check_max_messages, check_timeout
from acquit.client.run_receiving import RunReceiverCore
from acquit.client.threads import Gate, LoopThread, wait
from acquit.client.with_closing import Closing
from acquit.errors import EndpointError
from acquit.protocol.constants import Outcome

T = TypeVar("T")


class Receiver(Closing, Iterator[ReceivedMessage]):
    """Receives messages from one address. Iterate over it, ask `receive`, or let it call a listener.

    Iteration ends only when we close the receiver, its session or the connection; whatever else ends it is raised.
    """

    __slots__ = ("__weakref__", "_aio", "_core", "_gate", "_loop")

    def __init__(self, receiver: aio.Receiver, loop: LoopThread) -> None:
        self._aio = receiver
        self._loop = loop
        self._core = receiver._core
        self._gate = Gate()
        self._core.notify = self._on_ready
        self._core.has_waiters = self._has_waiters

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
    def receive(self, timeout: None = None) -> ReceivedMessage: ...
    @overload
    def receive(self, timeout: float) -> ReceivedMessage | None: ...
    @overload
    def receive(self, timeout: float | None) -> ReceivedMessage | None: ...
    def receive(self, timeout: float | None = None) -> ReceivedMessage | None:
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
        message = self._core.take()
        if message is not None:
            return message  # type: ignore[return-value]  # of our KINDS
        return self._receive_slowly(self._core.take, timeout)  # type: ignore[return-value]  # of our KINDS

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
        check_no_coroutine("handler", handler, "message")
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
                    listening.check_transaction()
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
            self._loop.close(self._aio.close(timeout))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        message = self._core.take()
        try:
            while message is None:
                message = self._receive_slowly(self._core.take, None)
        except EndpointError:
            if self._core.closed_by_us:
                raise StopIteration from None
            raise
        return message  # type: ignore[return-value]  # of our KINDS

    def __repr__(self) -> str:
        return repr(self._aio)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _said(self) -> None:
        """Say now what was posted before."""
        self._aio._driver.act()

    def _receive_slowly(self, take: Callable[[], T | None], timeout: float | None) -> T | None:
        """Wait until `take` takes something. None at the time-out; raises why nothing will come."""
        core = self._core
        ends_at = None if timeout is None else time.monotonic() + timeout
        while self._arrived(None if ends_at is None else ends_at - time.monotonic()):
            taken = take()
            if taken is not None:
                return taken
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
        arrived = self._gate.wait(
            lambda: self._may_go_on() or core.waits_for_credit or core.refusal is not None, timeout
        )
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


class RunReceiver(Receiver):
    """Receives payloads, many at a time, and settles them by their numbers: they are numbered from 0 as they are handed
    out. It gives no messages (`run_receiving`)."""

    __slots__ = ("_runs",)

    def __init__(self, receiver: aio.Receiver, loop: LoopThread) -> None:
        super().__init__(receiver, loop)
        core = self._core
        assert isinstance(core, RunReceiverCore)  # `blocking.session.receive_in_runs`
        self._runs = core

    @property
    def where(self) -> str:
        """The ``host:port`` of the peer."""
        return self._core.session.core.where

    def pause(self) -> None:
        """Take back what credit is left, and grant none until somebody waits for a message again."""
        self._core.session.core.post((self._core.pause,))

    def receive_payloads(self, max_messages: int, timeout: float | None = None) -> list[bytes]:
        """Wait for a message as `receive` does, and take what else has arrived, up to `max_messages`. [] at the
        time-out."""
        check_max_messages(max_messages)
        check_timeout(timeout)
        take = self._runs.take_payloads
        found = take(max_messages) or self._receive_slowly(lambda: take(max_messages), timeout)
        payloads: list[bytes] = []
        while found:
            payloads += found
            found = take(max_messages - len(payloads)) if len(payloads) < max_messages else None
        return payloads

    def settle_numbers(self, ranges: Sequence[tuple[int, int]], outcome: Outcome) -> Receipt:
        """Give messages their outcome: those with numbers from the first of each pair up to, and without, the second.
        Returns at once; the receipt ends as that of `Session.settle`, and is STALE where one has an outcome already."""
        return answered(self._runs.session, self._runs.settle_numbers(ranges, outcome), sync=False)


class Listener:
    """A started listener: a handler that is called with the messages of a receiver, on threads of its own. Made by
    `Receiver.start_listener`. As a block it is stopped at the end, and raises what it failed of.

    The threads are daemons: a program that ends without stopping its listeners ends, in the midst of their handlers.
    """

    __slots__ = ("__weakref__", "_core", "_handler", "_loop", "_on_error", "_receiver")

    def __init__(
        self,
        receiver: Receiver,
        handler: Callable[[ReceivedMessage], object],
        concurrency: int,
        on_error: Callable[[ReceivedMessage, Exception], object] | None,
    ) -> None:
        check_no_coroutine("handler", handler, "message")
        if on_error is not None:
            check_no_coroutine("on_error", on_error, "message", "error")
        self._receiver = receiver
        self._handler = handler
        self._on_error = on_error
        self._loop = receiver._loop
        self._loop.check()  # a thread that is started as the interpreter ends never runs
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
        """True if the listener has ended: no handler is running, and none will be called."""
        return self._core.ended.done

    def stop(self, timeout: float | None = None) -> bool:
        """Hand out no message any more, and wait for the handlers under way. True when the last has returned and the
        outcome of its message is said; False at the time-out: handlers go on, and still have their say.

        What is in the buffer of the receiver stays there. Called by a handler of this listener it does not wait. Raises
        nothing: what a listener failed of is for `wait`.
        """
        check_timeout(timeout)
        self._core.begin_stop()
        if self._core.asked_from_inside or self._loop.gone is not None or self._loop.is_here:
            return self.done
        done = wait(self._core.ended, timeout)
        self._loop.run(self._receiver._said())
        return done

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended. True then, False at the time-out. Raises what it failed of: the error of a handler,
        also of one that was under way at a `stop`, or of a link whose end nobody asked for. Raises LocalProtocolError
        in a handler of this listener."""
        check_timeout(timeout)
        self._core.check_outside()
        self._loop.check()  # the threads of a listener are its parent's, too
        if not wait(self._core.ended, timeout):
            return False
        self._core.check()
        return True

    def __repr__(self) -> str:
        return f"<Listener from {self._receiver.address!r}{', done' if self.done else ''}>"

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
                self._core.check_transaction()
                self._handler(message)
            except Exception as exc:
                if self._on_error is None:
                    raise
                self._on_error(message, exc)
                listening.dealt_with = exc
