from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from acquit.client.receipts import Promise
from acquit.client.waiting import Deadline, Opening, Waiters, wait

SOON = 0.01


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


def test_a_promise_is_waited_for() -> None:
    async def main() -> None:
        promise = Promise()
        assert not await wait(promise, 0)
        assert not await wait(promise, SOON)
        assert promise._callbacks == []
        asyncio.get_running_loop().call_soon(promise.end)
        assert await wait(promise, None)
        assert await wait(promise, 0)

    run(main)


def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    async def main() -> None:
        promise = Promise()
        waiting = asyncio.create_task(wait(promise, 30))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert promise._callbacks == []
        promise.end()

    run(main)


def test_waiters_are_woken_in_order() -> None:
    async def main() -> None:
        waiters = Waiters()
        tasks = [asyncio.create_task(waiters.wait(None)) for _ in range(3)]
        await asyncio.sleep(0)
        waiters.wake(2)
        await asyncio.sleep(0)
        assert [task.done() for task in tasks] == [True, True, False]
        waiters.wake_all()
        assert await asyncio.gather(*tasks) == [True] * 3
        waiters.wake(5)

    run(main)


def test_waiters_time_out() -> None:
    async def main() -> None:
        waiters = Waiters()
        assert not await waiters.wait(0)
        assert not await waiters.wait(SOON)
        first = asyncio.create_task(waiters.wait(SOON))
        second = asyncio.create_task(waiters.wait(None))
        assert not await first
        waiters.wake(1)  # is for who still waits
        assert await second

    run(main)


def test_a_deadline() -> None:
    async def main() -> None:
        assert Deadline(None).left() is None
        left = Deadline(100).left()
        assert left is not None and 99 < left <= 100
        past = Deadline(-1).left()
        assert past is not None and past < 0

    run(main)


class Door:
    def __init__(self) -> None:
        self.closed = 0

    async def close(self, timeout: float | None = None) -> None:
        self.closed += 1


def test_an_opening_is_awaited_or_entered() -> None:
    async def main() -> None:
        door = Door()

        async def open_door() -> Door:
            return door

        assert await Opening(open_door, "open()") is door
        async with Opening(open_door, "open()") as opened:
            assert opened is door
            assert door.closed == 0
        assert door.closed == 1
        with pytest.raises(AttributeError, match=r"no 'knock': open\(\) must be awaited first, as in `x = "):
            Opening(open_door, "open()").knock()  # type: ignore[operator]

    run(main)


def test_an_opening_that_fails_has_nothing_to_close() -> None:
    async def main() -> None:
        async def fail() -> Door:
            raise ValueError("locked")

        with pytest.raises(ValueError, match="locked"):
            async with Opening(fail, "open()"):
                pass

    run(main)
