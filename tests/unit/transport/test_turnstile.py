"""Calls pass a few in each round of the loop, in order."""

from __future__ import annotations

import asyncio

from acquit.transport.turnstile import Turnstile, in_turns


def test_few_pass_at_once_and_of_many_so_many_in_each_round() -> None:
    async def main() -> None:
        turnstile = Turnstile(asyncio.get_running_loop(), 3)
        passed: list[int] = []
        turnstile.enter(lambda: passed.append(0))
        assert passed == [0]
        for number in range(1, 10):
            turnstile.enter(lambda number=number: passed.append(number))
        counts = [len(passed)]
        while len(passed) < 10:
            await asyncio.sleep(0)
            counts.append(len(passed))
        assert counts == [3, 6, 9, 10]
        assert passed == list(range(10))

    asyncio.run(main())


def test_who_comes_later_waits_behind_those_who_wait() -> None:
    async def main() -> None:
        turnstile = Turnstile(asyncio.get_running_loop(), 1)
        passed: list[str] = []

        def again() -> None:
            passed.append("first")
            turnstile.enter(lambda: passed.append("last"))

        turnstile.enter(lambda: None)
        turnstile.enter(again)
        turnstile.enter(lambda: passed.append("second"))
        while len(passed) < 3:
            await asyncio.sleep(0)
        assert passed == ["first", "second", "last"]

    asyncio.run(main())


def test_many_things_are_done_a_few_in_each_round() -> None:
    async def story() -> None:
        done: list[int] = []
        seen: list[int] = []
        task = asyncio.create_task(in_turns(done.append, range(7), 3))
        while not task.done():
            await asyncio.sleep(0)
            seen.append(len(done))
        assert done == list(range(7))
        assert [now for now, before in zip(seen, [0, *seen], strict=False) if now != before] == [3, 6, 7]

    asyncio.run(story())
