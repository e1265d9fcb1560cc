"""What the blocking API needs of threads: one loop thread for the process, and ways to wait for it.

The loop thread starts with the first connection and serves all of them. It goes on reading, answering and sending
heartbeats while user code computes. It is a daemon: a program that ends without closing its connections looks to the
broker like one that crashed, which is what it did.

A thread that waits for one answer at a time would pay for two hand-overs between threads, there and back. It is spared
them where the loop thread has nothing to do: then it may have a *turn* of its own (`LoopThread.attempt`), in which it
does what the loop thread would have done: it sends. Then it waits for the socket itself, which the loop thread does not
look at meanwhile, and reads the answer in another turn (`LoopThread.listen`). The loop thread gives the turn up only
while it waits in its selector, so at any time one thread has it; and what somebody else schedules in a turn of his
wakes it. Whoever has a turn must not wait for the loop thread, which waits for him. Code of the program's own can come
into a turn in two ways: as the handler of a signal, which runs in the main thread wherever that is, and may well want
to close a connection; so the main thread has no turns in a program that handles signals. And as a finalizer: there a
wait is refused. Between two turns of a thread that listens it is not: it gives the reading back to the loop thread.

A forked child (a Spark worker, a multiprocessing pool) has none of its parent's threads. There the loop thread is made
anew when it is needed, and the parent's connections are taken from the child: their sockets are replaced by the null
device, so that the broker notices when the parent goes, and whoever uses one hears that it does not survive a fork.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import selectors
import signal
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from queue import SimpleQueue
from typing import Final, TypeVar

from acquit.client.driver import Driver
from acquit.client.receipts import P, Promise, call_when_done
from acquit.errors import ConnectionLost, LocalProtocolError
from acquit.transport import Pump

logger = logging.getLogger("acquit.client")

T = TypeVar("T")

FORKED: Final = "this connection was opened before the process was forked: connect again in the child"


_LOOK_AGAIN_S: Final = 0.1
"""For so long it is believed that the program handles signals, or does not: to look costs as much as half a send. And
so long at most does a thread that listens not notice that what it waits for ended otherwise."""

_in_turn: Final[set[int]] = set()
"""The thread that has a turn, if one has."""

_listening: Final[dict[int, Callable[[], None]]] = {}
"""Threads that read for a connection, and what ends that."""


def _check_may_wait() -> None:
    me = threading.get_ident()
    if me in _listening:  # a handler of a signal, or a finalizer, while the thread listens: let the loop thread go on
        _listening[me]()
    if me in _in_turn:
        raise LocalProtocolError(
            "this thread is in the midst of a send: what interrupts it there, such as a finalizer or a handler of a "
            "signal, cannot wait for the connection; let it leave a note for the program instead"
        )


class _Selector(selectors.DefaultSelector):
    """Gives the turn up while it waits, and brings nothing that a turn meanwhile has made void: the loop would take a
    registration that was ended and made again for the old one, and end it."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = threading.Lock()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turn.release()
        try:
            ready = super().select(timeout)
        finally:
            self.turn.acquire()
        registered = self.get_map().get
        return [event for event in ready if registered(event[0].fileobj) is event[0]]


class _Loop(asyncio.SelectorEventLoop):
    """Notices when something is scheduled, which in another thread's turn it is not awake to see."""

    scheduled = False

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        self.scheduled = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self.scheduled = True
        return super().call_at(when, callback, *args, context=context)


class LoopThread:
    """An event loop on a daemon thread."""

    def __init__(self) -> None:
        selector = _Selector()
        self._turn = selector.turn
        self._loop = _Loop(selector)
        self._thread = threading.Thread(target=self._run, name="acquit", daemon=True)
        self._thread.start()
        self.forked = False
        """This is a child, and the thread is the parent's."""
        self._handles_signals = False
        self._looks_again_at = 0.0

    def _run(self) -> None:
        with self._turn:
            self._loop.run_forever()

    def attempt(self, function: Callable[[], object]) -> bool:
        """Call a function in this thread, as if it were the loop thread, if that one waits for something to happen.
        False, and it is not called, where that one is at work. It must not wait for anything, nor run a coroutine."""
        loop = self._loop
        if self.forked or self._turn.locked() or loop.get_debug():  # in debug mode asyncio insists on its thread
            return False
        if threading.current_thread() is threading.main_thread() and self._signals_are_handled():
            return False
        self._take_turn(function)
        return True

    def listen(self, pump: Pump, promise: Promise, timeout_s: float) -> None:
        """Wait in this thread for a promise that what the peer says will end, and read that here. For whoever had a
        turn just now, and asked the peer. Returns, with the promise done or not, when it is, when the time is over,
        and where the loop thread must read: then the promise is still to be waited for."""
        until = time.monotonic() + timeout_s
        descriptor: int | None = None

        def begin() -> None:
            nonlocal descriptor
            if not promise.done:
                descriptor = pump.lend()

        def read() -> None:
            try:
                pump.read_lent()
            except Exception as error:  # noqa: BLE001 -- told as the loop would
                # The pump has cut the connection off, which the promise will hear of.
                self._loop.call_exception_handler({"message": "reading an answer failed", "exception": error})
            if promise.done:
                pump.take_back()

        me = threading.get_ident()
        try:
            self._take_turn(begin)
            if descriptor is None:
                return
            _listening[me] = partial(self.call, pump.take_back)
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            while pump.lent and not promise.done and (left_s := until - time.monotonic()) > 0:
                # The promise can end, or the socket, without a byte to read, by what another thread does.
                if poll.poll(min(left_s, _LOOK_AGAIN_S) * 1000):
                    self._take_turn(read)
            if pump.lent:
                self._take_turn(pump.take_back)
        except BaseException:  # an interrupt, perhaps within a turn
            self.call(pump.take_back)
            raise
        finally:
            if descriptor is not None:  # else it is another's, further out in this thread
                _listening.pop(me, None)

    def _take_turn(self, function: Callable[[], object]) -> None:
        """Call a function as if this were the loop thread, when that waits for something to happen."""
        loop = self._loop
        with self._turn:  # not `acquire`, behind which an interrupt could come, and the turn would be nobody's for ever
            loop.scheduled = False
            me = threading.get_ident()
            outer = asyncio._get_running_loop()
            try:
                _in_turn.add(me)
                asyncio._set_running_loop(loop)
                function()
            finally:
                asyncio._set_running_loop(outer)
                _in_turn.discard(me)
                if loop.scheduled:
                    loop.call_soon_threadsafe(_nothing)

    def _signals_are_handled(self) -> bool:
        now = self._loop.time()
        if now >= self._looks_again_at:
            self._looks_again_at = now + _LOOK_AGAIN_S
            handlers = map(signal.getsignal, signal.valid_signals())
            # The one that there is for SIGINT only raises, which a turn can bear.
            self._handles_signals = any(callable(h) and h is not signal.default_int_handler for h in handlers)
        return self._handles_signals

    def run(self, coroutine: Coroutine[object, object, T]) -> T:
        """Run a coroutine there and wait for its result. An interrupt of this thread cancels it. Raises
        ConnectionLost in a forked child."""
        if self.forked:
            coroutine.close()
            raise ConnectionLost(FORKED)
        try:
            _check_may_wait()
        except LocalProtocolError:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], object]) -> None:
        """Have a function called there, soon."""
        self._loop.call_soon_threadsafe(function)


def _nothing() -> None:
    """To be woken for."""


_starting = threading.Lock()
_loop_thread: LoopThread | None = None
_drivers: Final[weakref.WeakSet[Driver]] = weakref.WeakSet()


def loop_thread() -> LoopThread:
    """The loop thread of this process, started when it is first asked for."""
    global _loop_thread  # noqa: PLW0603 -- one for the process is the point
    if _loop_thread is None:
        with _starting:
            if _loop_thread is None:
                _loop_thread = LoopThread()
    return _loop_thread


def watch_forks(driver: Driver) -> None:
    """This connection is the present process's, and no child's."""
    _drivers.add(driver)


def _after_fork_in_child() -> None:
    global _loop_thread, _callback_thread, _starting, _leaving  # noqa: PLW0603 -- held for ever
    loop_of_parent, _loop_thread = _loop_thread, None
    _callback_thread = None
    _starting = threading.Lock()
    _leaving = threading.RLock()
    _in_turn.clear()
    _listening.clear()
    drivers = list(_drivers)
    _drivers.clear()
    if loop_of_parent is not None:
        loop_of_parent.forked = True
    if not drivers:
        return
    null = os.open(os.devnull, os.O_RDWR)
    for driver in drivers:
        # dup2 and not close: the number stays taken, so that the old socket object, whenever it is collected, closes
        # nothing that belongs to somebody else.
        for descriptor in driver.filenos:
            os.dup2(null, descriptor)
        # Those who wait for a link are threads of the parent, and one may have held their lock in this moment.
        for session in driver.core.sessions:
            for sender in session.senders:
                sender.notify = _nobody
            for receiver in session.receivers:
                receiver.notify = _nobody
        driver.core.abandon(FORKED)
    os.close(null)


def _nobody() -> None:
    pass


os.register_at_fork(after_in_child=_after_fork_in_child)


class Gate:
    """Where threads wait for something that the loop thread brings about."""

    __slots__ = ("_condition", "_waiting")

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiting = 0

    def wait(self, ready: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until `ready`, looking again at each `open`. False at the time-out."""
        _check_may_wait()
        with self._condition:
            self._waiting += 1
            try:
                return self._condition.wait_for(ready, timeout_s)
            finally:
                self._waiting -= 1

    @property
    def has_waiters(self) -> bool:
        """Whether a thread waits, or is about to."""
        return self._waiting > 0

    def open(self) -> None:
        """Something changed (loop thread). Free while nobody waits: who is about to has still to look at `ready`."""
        if self._waiting:
            with self._condition:
                self._condition.notify_all()


class CallbackThread:
    """A thread that calls what users left with receipts and connections, in order: they may wait there, which on the
    loop thread would be for ever."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="acquit callbacks", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], None]) -> None:
        """Have a function called there, soon. It must not raise."""
        self._calls.put(function)

    def catch_up(self, timeout_s: float) -> None:
        """Wait, for no longer than this, until all that is due has been called. Not at all on the thread itself."""
        if threading.current_thread() is not self._thread:
            caught_up = threading.Event()
            self.call(caught_up.set)
            caught_up.wait(timeout_s)

    def _run(self) -> None:
        while True:
            self._calls.get()()


_callback_thread: CallbackThread | None = None


def callback_thread() -> CallbackThread:
    """The callback thread of this process, started when it is first asked for."""
    global _callback_thread  # noqa: PLW0603 -- one for the process is the point
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


_leaving = threading.RLock()  # a handler of a signal may wait while its thread is about to


def when_done(promise: P, callback: Callable[[P], object]) -> None:
    """Have a user's callback called on the callback thread when a promise ends, once."""
    end = call_when_done(promise, callback, callback_thread().call)
    with _leaving:
        promise._when_done(end)


def wait(promise: Promise, timeout_s: float | None) -> bool:
    """Wait in this thread for a promise of the loop thread. False when the time is over first."""
    if promise.done:
        return True
    if timeout_s is not None and timeout_s <= 0:
        return False
    _check_may_wait()
    ended = threading.Lock()
    ended.acquire()

    def end() -> None:
        try:
            ended.release()
        except RuntimeError:
            pass  # the second call

    with _leaving:
        promise._when_done(end)
    try:
        ended.acquire(timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))
    finally:
        with _leaving:
            promise._forget(end)
    return promise.done
