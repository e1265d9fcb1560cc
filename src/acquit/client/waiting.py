"""Waiting on an event loop: for promises, for room or messages, for something to open; all with time-outs.

Time-outs here are callbacks that resolve a future, not cancellations: a wait ends by itself, with an answer, and the
code that waited goes on without an exception to catch.
"""

# ruff: noqa: ASYNC109 -- see above

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from acquit.client.core_base import CoreBase
from acquit.client.receipts import Promise
from acquit.errors import LocalProtocolError


class Deadline:
    """Seconds that are left, on the loop's clock; None for no limit."""

    __slots__ = ("_at", "_loop")

    def __init__(self, timeout_s: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._at = None if timeout_s is None else self._loop.time() + timeout_s

    def left(self) -> float | None:
        """The number of seconds that are left; 0 or less when it has passed."""
        return None if self._at is None else self._at - self._loop.time()


async def wait(promise: Promise, timeout_s: float | None) -> bool:
    """Wait for a promise of this loop. False when the time is over first; it may still end later."""
    if promise.done:
        return True
    if timeout_s is not None and timeout_s <= 0:
        return False
    loop = asyncio.get_running_loop()
    future: asyncio.Future[bool] = loop.create_future()

    def end() -> None:
        _resolve(future, True)

    timer = loop.call_later(timeout_s, _resolve, future, False) if timeout_s is not None else None
    promise.when_done(end)
    try:
        return await future
    finally:
        promise.forget(end)
        if timer is not None:
            timer.cancel()


async def ready(core: CoreBase, timeout_s: float | None) -> None:
    """Wait while the connection is interrupted. Raises ConnectionLost where it is not restored in time."""
    if core.interrupted and not await wait(core.restored, timeout_s) and core.interruption is not None:
        lost = core.interruption
        raise lost.told(f"{lost.message}, and not restored within {timeout_s:g} s so far").error()


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop on which the caller runs; None in a thread that has none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Raise LocalProtocolError unless the caller runs on `loop`."""
    if asyncio.get_running_loop() is not loop:
        raise LocalProtocolError(
            "used on another event loop than that of its connection: acquit.aio connects once for each loop; "
            "threads share a connection of acquit.connect"
        )


class Waiters:
    """Coroutines that wait to be woken, in order of arrival, on the loop on which this was made."""

    __slots__ = ("_futures", "_loop")

    def __init__(self) -> None:
        self._futures: deque[asyncio.Future[bool]] = deque()
        self._loop = asyncio.get_running_loop()

    async def wait(self, timeout_s: float | None) -> bool:
        """True when woken, False at the time-out. Who is cancelled may have been woken already, for something that
        nobody takes then: wake another."""
        self.check_loop()
        if timeout_s is not None and timeout_s <= 0:
            return False
        loop = self._loop
        future: asyncio.Future[bool] = loop.create_future()
        self._futures.append(future)
        timer = loop.call_later(timeout_s, _resolve, future, False) if timeout_s is not None else None
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()
            if future in self._futures:
                self._futures.remove(future)

    def check_loop(self) -> None:
        """Raise LocalProtocolError unless the caller runs on the loop of the connection."""
        check_loop(self._loop)

    def __len__(self) -> int:
        """The number of those who wait."""
        return len(self._futures)

    def wake(self, count: int) -> None:
        """Wake the first `count` of those that wait."""
        while count > 0 and self._futures:
            future = self._futures.popleft()
            if not future.done():
                future.set_result(True)
                count -= 1

    def wake_all(self) -> None:
        """Wake all that wait."""
        self.wake(len(self._futures))


def _resolve(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)


class Closable(Protocol):
    """An object that is opened, and closed again."""

    async def close(self, timeout: float | None = None) -> None:
        """Close it."""


T = TypeVar("T", bound=Closable)


class Opening(Generic[T]):
    """An object that is opened by ``await``, or by ``async with``, which also closes it."""

    def __init__(self, start: Callable[[], Coroutine[object, object, T]], what: str) -> None:
        self._start = start
        self._what = what
        self._opened: T | None = None

    def __await__(self) -> Generator[object, None, T]:
        return self._start().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()

    def __getattr__(self, name: str) -> object:
        what = self._what
        raise AttributeError(
            f"no {name!r}: {what} must be awaited first, as in `x = await {what}`, or entered with `async with`"
        )
