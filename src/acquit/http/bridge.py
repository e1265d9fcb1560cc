"""The way to the broker's loop and back: one call there for each request, and its result by a future.

What waits there is bounded, and so is the time for which somebody waits here. A request that the broker has not begun
with when that time is over is not begun at all; one that it has goes on, and its asker is told so.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from acquit.broker.admin.later import Later, RequestFailure

if TYPE_CHECKING:
    from acquit.broker.admin.operations import Operation
    from acquit.broker.admin.requests import Deleted
    from acquit.broker.server import Server
    from acquit.protocol.types import Value

T = TypeVar("T")

_BUSY: Final = "the broker has enough requests for now: try again"
_LATE: Final = "the broker did not come to it in time: nothing was done"
_GOES_ON: Final = "this takes longer: the broker goes on with it, and its end is in the journal"


class _Beginning:
    """The right to begin with a request: taken by the broker, or by its asker who gives up, and once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False

    def take(self) -> bool:
        """Return True to the first who calls."""
        with self._lock:
            taken, self._taken = self._taken, True
        return not taken


class Bridge:
    """The way to one broker. All methods belong to the loop of the HTTP interface."""

    def __init__(self, server: Server, *, requests_max: int, timeout_s: float) -> None:
        self.server = server
        self.timeout_s = timeout_s
        self.lag = server.lags
        """Times until the broker's loop came to something, here to a request."""
        self._requests_max = requests_max
        self._under_way = 0
        self._loop = asyncio.get_running_loop()

    async def ask(
        self, begin: Callable[[Callable[[T | BaseException], None]], None], *, timeout_s: float | None = None
    ) -> T:
        """Run `begin` on the broker's loop, and return what it, or what it has begun, gives to its argument. Raises
        what it raises or gives, and RequestFailure: 503 where the broker has too much to do, 504 where it goes on."""
        if self._under_way >= self._requests_max:
            raise RequestFailure(503, _BUSY)
        future: asyncio.Future[T] = self._loop.create_future()
        claim, asked = _Beginning(), time.monotonic()

        def settle(result: T | BaseException) -> None:
            self._under_way -= 1
            if not future.done():
                if isinstance(result, BaseException):
                    future.set_exception(result)
                else:
                    future.set_result(result)

        def give(result: T | BaseException) -> None:  # on the broker's thread
            with suppress(RuntimeError):  # this loop has ended
                self._loop.call_soon_threadsafe(settle, result)

        def run() -> None:  # on the broker's thread
            self.lag.add(time.monotonic() - asked)
            if not claim.take():
                give(RequestFailure(503, _LATE))
                return
            try:
                begin(give)
            except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
                give(error)

        try:
            self.server.loop.call_soon_threadsafe(run)
        except RuntimeError:  # that loop has ended
            raise RequestFailure(503, "the broker has stopped") from None
        self._under_way += 1
        try:
            async with asyncio.timeout(self.timeout_s if timeout_s is None else timeout_s):
                return await asyncio.shield(future)
        except TimeoutError:
            future.cancel()
            raise (RequestFailure(503, _LATE) if claim.take() else RequestFailure(504, _GOES_ON)) from None

    async def manage(
        self, wanted: Operation, user: str | None, name: str | None, body: object, peer: str
    ) -> Value | Deleted:
        """Perform an operation for a user, who asks from the address `peer`. Raises RequestFailure."""

        def begin(give: Callable[[Value | Deleted | BaseException], None]) -> None:
            result = self.server.manage(wanted, user, name, body, peer)
            if isinstance(result, Later):
                result.when_finished(give)
            else:
                give(result)

        return await self.ask(begin)


__all__ = ["Bridge"]
