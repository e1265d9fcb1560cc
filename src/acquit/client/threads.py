"""The threads of the blocking API: one loop thread for the process, and ways to wait for it.

The loop thread starts with the first connection and serves all of them. It goes on reading, answering and sending
heartbeats while user code computes. It is a daemon: a program that ends without closing its connections looks to the
broker like one that crashed, which is what it did. While the interpreter is finalized the thread stands still already,
and nothing may wait for it: a finalizer that closes something closes nothing, and whoever wants more hears why. Just
before, while it still runs, what was sent without waiting gets a few seconds for its outcome, lest it vanish silently.

The garbage collector runs finalizers on whatever thread it happens to run on, the loop thread among them, which cannot
wait for itself. What a finalizer closes there begins to close, and whatever else would wait there is refused.

A forked child (a Spark worker, a multiprocessing pool) has none of its parent's threads. There the loop thread is made
anew when it is needed, and the parent's connections are taken from the child: their sockets are replaced by the null
device, so that the broker notices when the parent goes, and whoever uses one hears that it does not survive a fork.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

from acquit import forks
from acquit.client.closing import flush_at_exit
from acquit.client.driver import Driver
from acquit.client.locks import UserLock
from acquit.client.receipts import P, Promise, call_when_done
from acquit.client.with_closing import BlockingClosable
from acquit.errors import AcquitError, ConnectionLost, LocalProtocolError

logger = logging.getLogger("acquit.client")

T = TypeVar("T")
C = TypeVar("C", bound=BlockingClosable)

FORKED: Final = "this connection was opened before the process was forked: connect again in the child"
EXITING: Final = "the interpreter ends, and stops the thread that serves its connections"
ON_ITSELF: Final = (
    "called on the thread that serves all connections, which cannot wait for itself: perhaps in a finalizer (__del__, "
    "the end of a generator), which the garbage collector runs on any thread"
)


class _Call(Generic[T]):
    """A coroutine that runs on an event loop, and the thread that waits for it.

    It has no lock that both of them take, as a future of `concurrent` does: a handler of a signal may interrupt the
    thread anywhere, and have something else done by the loop, which would wait for that lock for ever.
    """

    __slots__ = ("_coroutine", "_loop", "_over", "_task")

    def __init__(self, coroutine: Coroutine[object, object, T], loop: asyncio.AbstractEventLoop) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._over = threading.Lock()
        self._over.acquire()
        self._task: asyncio.Task[T] | None = None

    def start(self) -> None:
        """Let it run."""
        self._loop.call_soon_threadsafe(self._start)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for its end, once. False at the time-out."""
        return self._over.acquire(timeout=-1 if timeout_s is None else timeout_s)

    def result(self) -> T:
        """Return what the coroutine returned, or raise what it raised. Only at its end."""
        assert self._task is not None
        try:
            return self._task.result()
        finally:
            del self  # the traceback of what is raised knows this frame

    def cancel(self, undo: Callable[[T], object] | None = None) -> None:
        """Cancel it; where it has ended already, call `undo` there with what it returned."""
        self._loop.call_soon_threadsafe(self._cancel, undo)

    def _start(self) -> None:
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._end)

    def _cancel(self, undo: Callable[[T], object] | None) -> None:
        task = self._task
        if task is None:  # the thread was interrupted before it let it run
            self._coroutine.close()
        elif not task.cancel() and undo is not None and not task.cancelled() and task.exception() is None:
            undo(task.result())

    def _end(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # seen, though nobody may ask: the thread was interrupted
        self._over.release()


class LoopThread:
    """An event loop on a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="acquit", daemon=True)
        self._thread.start()
        self.forked = False
        """True if this is a child process, and the thread is the parent's."""

    @property
    def is_here(self) -> bool:
        """True if the caller runs on the thread itself, which must not wait for what only it can bring about."""
        return threading.get_ident() == self._thread.ident

    @property
    def gone(self) -> str | None:
        """The reason why the thread does nothing any more; None while it runs. To close what it serves is of no use
        then."""
        return FORKED if self.forked else _exiting()

    def check(self) -> None:
        """Raise ConnectionLost where the thread does nothing any more, and LocalProtocolError on the thread itself."""
        if (gone := self.gone) is not None:
            raise ConnectionLost(gone)
        if self.is_here:
            raise LocalProtocolError(ON_ITSELF)

    def run(self, coroutine: Coroutine[object, object, T], undo: Callable[[T], object] | None = None) -> T:
        """Run a coroutine there and wait for its result. An interrupt of this thread cancels it; one that comes as it
        has just ended has `undo` called there with the result, which nobody gets. Raises ConnectionLost in a forked
        child, and in a finalizer at the end of the interpreter; LocalProtocolError on the thread itself."""
        try:
            self.check()
        except AcquitError:
            coroutine.close()
            raise
        call = _Call(coroutine, self._loop)
        try:
            call.start()
            call.wait(None)
            return call.result()
        except BaseException:
            call.cancel(undo)
            raise

    def open(self, coroutine: Coroutine[object, object, C]) -> C:
        """`run` a coroutine that opens something. An interrupt that comes as it is open closes it: nobody else would,
        and what the peer sends to it would stay there."""
        return self.run(coroutine, _close)

    def close(self, coroutine: Coroutine[object, object, None]) -> None:
        """`run` a coroutine that ends something. Where the thread does nothing any more, neither does this; on the
        thread itself the coroutine begins, and nobody waits for it."""
        if self.gone is not None:
            coroutine.close()
        elif self.is_here:
            _Call(coroutine, self._loop).start()
        else:
            self.run(coroutine)

    def catch_up(self) -> None:
        """Wait until all that was asked for before has been looked at there."""

        async def nothing() -> None:
            """Do nothing: its turn is all that matters."""

        self.run(nothing())

    def run_for(self, coroutine: Coroutine[object, object, object], timeout_s: float) -> bool:
        """Run a coroutine there, for no longer than this. False where the time is over: then it is cancelled."""
        call = _Call(coroutine, self._loop)
        try:
            call.start()
            if not call.wait(timeout_s):
                return False
        finally:
            call.cancel()
        call.result()
        return True

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the loop thread, soon."""
        self._loop.call_soon_threadsafe(function)


def _close(opened: BlockingClosable) -> None:
    opened.close()


_starting = UserLock()
_loop_thread: LoopThread | None = None
_drivers: Final[weakref.WeakSet[Driver]] = weakref.WeakSet()


def _exiting() -> str | None:
    return EXITING if sys.is_finalizing() else None


def _endless() -> AcquitError | None:
    """Return why a wait in this thread would be for ever; None where it can be over."""
    if (exiting := _exiting()) is not None:
        return ConnectionLost(exiting)
    return LocalProtocolError(ON_ITSELF) if _loop_thread is not None and _loop_thread.is_here else None


def loop_thread() -> LoopThread:
    """The loop thread of this process, started when it is first asked for. Raises ConnectionLost where the interpreter
    ends, and starts none."""
    global _loop_thread  # noqa: PLW0603 -- one for the process is the point
    if _loop_thread is None:
        if (exiting := _exiting()) is not None:
            raise ConnectionLost(exiting)
        with _starting:
            if _loop_thread is None:
                _loop_thread = LoopThread()
    return _loop_thread


def watch(driver: Driver) -> None:
    """Remember that this connection is the present process's, and no child's, for forks and for the end."""
    _drivers.add(driver)
    flush_first()


def flush_first() -> None:
    """See to it that sends are waited for, at the end of the program, before all that `atexit` has to call so far: what
    is registered last is called first."""
    atexit.unregister(_flush_at_exit)
    atexit.register(_flush_at_exit)


EXIT_S: Final = 3.0
"""Seconds that a program which ends without closing its connections waits for the outcomes of what it sent."""
_ANSWERS_S: Final = 1.0


def _flush_at_exit() -> None:
    """Wait for what has no outcome, as the interpreter is about to end. Other threads have ended, or are daemons."""
    loop, drivers = _loop_thread, list(_drivers)
    if loop is None or not drivers or loop.gone is not None:
        return
    if not loop.run_for(flush_at_exit(drivers, EXIT_S), EXIT_S + _ANSWERS_S):
        logger.warning("the program ends, and the thread that sends does not answer: sends may have no outcome")


def _after_fork_in_child() -> None:
    global _loop_thread, _callback_thread, _starting, _leaving  # noqa: PLW0603 -- held for ever
    loop_of_parent, _loop_thread = _loop_thread, None
    _callback_thread = None
    _starting = UserLock()
    _leaving = UserLock()
    drivers = list(_drivers)
    _drivers.clear()
    if loop_of_parent is not None:
        loop_of_parent.forked = True
    forks.let_go([descriptor for driver in drivers for descriptor in driver.filenos])
    for driver in drivers:
        # Those who wait for a link are threads of the parent, and one may have held their lock in this moment.
        for session in driver.core.sessions:
            for sender in session.senders:
                sender.notify = _nobody
            for receiver in session.receivers:
                receiver.notify = _nobody
        driver.core.abandon(FORKED)


def _nobody() -> None:
    pass


forks.in_children(_after_fork_in_child)


class Gate:
    """A place where threads wait for something that the loop thread brings about.

    The loop thread takes no lock to open it: who waits may be interrupted anywhere, by a handler of a signal that waits
    for the loop thread in its turn.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[threading.Lock] = []
        """Locks of those who wait, one for each; it is released to wake him."""

    def wait(self, ready: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until `ready`, looking again at each `open`. False at the time-out. Raises ConnectionLost where that
        would be for ever, as the interpreter ends, and LocalProtocolError on the loop thread."""
        if (timeout_s is None or timeout_s > 0) and (endless := _endless()) is not None and not ready():
            raise endless
        ends_at = None if timeout_s is None else time.monotonic() + timeout_s
        opened = threading.Lock()
        opened.acquire()
        try:
            self._waiting.append(opened)  # before looking: who brings it about does that before he opens
            while not ready():
                left_s = -1.0 if ends_at is None else ends_at - time.monotonic()
                if ends_at is not None and left_s <= 0:
                    return False
                opened.acquire(timeout=min(left_s, threading.TIMEOUT_MAX))
            return True
        finally:
            if opened in self._waiting:
                self._waiting.remove(opened)

    @property
    def has_waiters(self) -> bool:
        """True if a thread waits, or is about to."""
        return bool(self._waiting)

    def open(self) -> None:
        """Wake who waits (loop thread). Free while nobody does: who is about to has still to look at `ready`."""
        for opened in tuple(self._waiting):
            _release(opened)


def _release(lock: threading.Lock) -> None:
    with contextlib.suppress(RuntimeError):  # it is released already
        lock.release()


class CallbackThread:
    """A thread that calls what users left with receipts and connections, in order: they may wait there, which on the
    loop thread would be for ever."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="acquit callbacks", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], None]) -> None:
        """Call a function on the callback thread, soon. It must not raise."""
        self._calls.put(function)

    def catch_up(self, timeout_s: float) -> None:
        """Wait, for no longer than this, until all that is due has been called. Not at all on the thread itself."""
        if threading.current_thread() is not self._thread:
            caught_up = threading.Lock()
            caught_up.acquire()
            self.call(caught_up.release)
            caught_up.acquire(timeout=timeout_s)

    def _run(self) -> None:
        while True:
            self._calls.get()()


_callback_thread: CallbackThread | None = None


def callback_thread() -> CallbackThread:
    """The callback thread of this process, started when it is first asked for."""
    global _callback_thread  # noqa: PLW0603 -- one for the process is the point
    if _callback_thread is None:
        with _starting:
            if _callback_thread is None:
                _callback_thread = CallbackThread()
    return _callback_thread


def in_order(function: Callable[[T], object]) -> Callable[[T], None]:
    """`function`, called on the callback thread, where it may use what the loop thread serves. What it raises is
    logged."""

    def tell(value: T) -> None:
        def call() -> None:
            try:
                function(value)
            except Exception:
                logger.exception("%r failed", function)

        callback_thread().call(call)

    return tell


_leaving = UserLock()


def when_done(promise: P, callback: Callable[[P], object]) -> None:
    """Call a user's callback on the callback thread when a promise ends, once."""
    end = call_when_done(promise, callback, callback_thread().call)
    with _leaving:
        promise.when_done(end)


def wait(promise: Promise, timeout_s: float | None) -> bool:
    """Wait in this thread for a promise of the loop thread. False when the time is over first, or the interpreter
    ends, and on the loop thread itself."""
    if promise.done:
        return True
    if (timeout_s is not None and timeout_s <= 0) or _endless() is not None:
        return False
    ended = threading.Lock()
    ended.acquire()

    end = partial(_release, ended)
    with _leaving:
        promise.when_done(end)
    try:
        ended.acquire(timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))
    finally:
        with _leaving:
            promise.forget(end)
    return promise.done
