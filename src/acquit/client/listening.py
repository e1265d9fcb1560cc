"""Listeners: handlers that are called with messages, on threads or tasks that the client runs.

Theory of operation. A started listener is one `ListeningCore` and its *workers*, threads in `blocking`, tasks in `aio`.
Each worker does the same, until it is time to stop::

    take ─▶ a message ─▶ handler ─▶ the outcome that the mode says ─▶ take …
      └──▶ nothing there: wait for one, as `receive` does

Stopping. What a worker takes is handled to its end, and none takes anything once it has seen that it is to stop. No
lock is between the two, as the thread that takes may be interrupted there by a handler of a signal, which closes the
receiver and waits. What waits in the buffer stays there, for whoever receives next or for the close. The
last worker that ends posts the end of the listener to the loop side, behind the outcomes that were posted before: when
`ended` is done, these are said.

A listener ends by itself when its link does, and when a handler fails and nobody deals with that: the first error is
kept for `wait`, also that of a handler which was under way at a stop. Closing a receiver, a session or a connection
stops its listeners first.

A handler may stop its own listener, or close what it hangs on, but cannot wait for itself to return: `HANDLING` tells
who asks. It is a context variable, so it follows a call from a worker's thread to the loop thread.
"""

from __future__ import annotations

import inspect
import logging
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from acquit.client.locks import UserLock
from acquit.client.options import check_range
from acquit.client.receipts import Milestone
from acquit.client.received import MessageCore
from acquit.client.receiving import ReceiverCore
from acquit.client.waiting import Deadline, wait
from acquit.errors import ConfigurationError, EndpointError, LocalProtocolError

logger = logging.getLogger("acquit.client")

CONCURRENCY_MAX: Final = 10_000
"""Workers of one listener."""


def check_callable(name: str, function: object, *arguments: str) -> None:
    """Raise ConfigurationError unless `function` can be called with these `arguments`, by position. Found out with the
    first messages, it would send each of them to the dead letters."""
    if not callable(function):
        raise ConfigurationError(f"{name} must be callable, got {function!r}")
    if not arguments:
        return
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of C, which does not tell
        return
    try:
        signature.bind(*arguments)
    except TypeError as exc:
        raise ConfigurationError(
            f"{name} is called with {len(arguments)} argument{'s'[: len(arguments) - 1]} ({', '.join(arguments)}), "
            f"and {function!r} takes {signature}: {exc}"
        ) from None


def check_no_coroutine(name: str, function: object, *arguments: str) -> None:
    """`check_callable`, for what is called by a thread. The coroutine that a coroutine function returns would be thrown
    away there, and the message be accepted with nothing done."""
    check_callable(name, function, *arguments)
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        raise ConfigurationError(
            f"{name} must be a function, got the coroutine function {function!r}: that is for acquit.aio"
        )


class ListeningCore:
    """The state that the workers of one listener share. Any thread may call any of it."""

    def __init__(self, receiver: ReceiverCore, concurrency: int) -> None:
        check_range("concurrency", concurrency, 1, CONCURRENCY_MAX)
        receiver.check()
        self.receiver = receiver
        self.stopping = False
        self.ended = Milestone()
        """All workers have, and what they had to say is said."""
        self.error: BaseException | None = None
        """The first error that a worker ended with: a handler's, also of one that was under way at a stop, or that of
        a link whose end nobody asked for, while the listener was not to stop."""
        self.wake: Callable[[], None] = _nobody
        """Frees the workers that wait for a message."""
        self._lock = UserLock()
        self._workers = concurrency
        receiver.listeners.append(self)

    def take(self) -> MessageCore | None:
        """The next message, handed out; None when there is none, or none may be handed out any more."""
        return None if self.stopping else self.receiver.take_for_listener()

    def check_transaction(self) -> None:
        """Raise in the place of a handler what it would come to: its transaction cannot be committed any more."""
        if (refusal := self.receiver.refusal) is not None:
            raise refusal

    def begin_stop(self) -> None:
        """Hand out nothing more."""
        self.stopping = True
        self.wake()

    def nothing_more(self, error: EndpointError) -> None:
        """The link has ended: that is the end of the listener, and an error unless we wanted it, or know it already."""
        if self.receiver.closed_by_us or self.stopping:
            self.begin_stop()
        else:
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """A worker ends with this, and with it the listener."""
        with self._lock:
            first = self.error is None
            if first:
                self.error = error
            self.stopping = True
        if not isinstance(error, CancelledError):  # then all of the loop ends, or somebody knows what he does
            # Somebody may hear of the first by `wait`; of the others nobody will.
            told = "ends with it" if first else "was ending already"
            logger.error("the listener of %s failed, and %s: %r", self.receiver.spec.what, told, error, exc_info=error)
        self.wake()

    def worker_ended(self) -> None:
        """A worker has: it calls nobody any more."""
        with self._lock:
            self._workers -= 1
            last = not self._workers
        if last:
            self.receiver.session.core.post((self._end,))

    def _end(self) -> None:
        if self in self.receiver.listeners:
            self.receiver.listeners.remove(self)
        self.receiver.session.say_gathered()
        self.ended.succeed()

    @property
    def asked_from_inside(self) -> bool:
        """True if one of the listener's own handlers is asking."""
        return HANDLING.get() is self

    def check_outside(self) -> None:
        """Raise LocalProtocolError where waiting for the end would be waiting for oneself."""
        if self.asked_from_inside and not self.ended.done:
            raise LocalProtocolError("a handler cannot wait for the end of its own listener: `stop` it, and return")

    def check(self) -> None:
        """Raise what it failed of, if it did: see `error`."""
        if self.error is not None:
            raise self.error


HANDLING: Final[ContextVar[ListeningCore | None]] = ContextVar("acquit_handling", default=None)
"""The listener on whose behalf the code that looks is called."""


@contextmanager
def listening_here(receiver: ReceiverCore, wake: Callable[[], None]) -> Iterator[ListeningCore]:
    """A listener of one worker, which is the caller's own thread or task."""
    listening = ListeningCore(receiver, 1)
    listening.wake = wake
    before = HANDLING.set(listening)
    try:
        yield listening
    finally:
        HANDLING.reset(before)
        listening.worker_ended()


async def stop_listeners(receivers: Iterable[ReceiverCore], deadline: Deadline) -> None:
    """Stop the listeners of receivers that are about to be closed, and wait for the handlers under way."""
    listeners = [(receiver, listening) for receiver in receivers for listening in receiver.listeners]
    for _, listening in listeners:
        listening.begin_stop()
    for receiver, listening in listeners:
        if not listening.asked_from_inside and not await wait(listening.ended, deadline.left()):
            logger.warning(
                "a handler of %s did not return before the close was over; its message goes back, if the mode can say "
                "so, and will be handled again",
                receiver.spec.what,
            )


def _nobody() -> None:
    pass
