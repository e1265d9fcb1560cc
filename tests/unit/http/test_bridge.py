"""The way to the broker's loop: bounds in number and time, and what was not begun is not done."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from acquit.broker.admin.later import RequestFailure
from acquit.broker.durations import Durations
from acquit.http.bridge import Bridge
from acquit.http.health import REASONS, Health


class BrokerLoop:
    """A broker's loop whose calls wait until they are let go."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.arrived = threading.Event()

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def bridge_to(loop: BrokerLoop, **given: Any) -> Bridge:
    server: Any = SimpleNamespace(loop=loop, failure=None, stopping=False, accepting=True, lags=Durations())
    return Bridge(server, **{"requests_max": 2, "timeout_s": 30.0, **given})


def test_a_result_and_an_error_come_back() -> None:
    async def run() -> None:
        loop = BrokerLoop()
        bridge = bridge_to(loop)
        asked = [asyncio.create_task(bridge.ask(lambda give: give(7))), asyncio.create_task(bridge.ask(failing))]
        await asyncio.sleep(0)
        loop.run()
        assert await asked[0] == 7
        with pytest.raises(RequestFailure, match="no"):
            await asked[1]
        assert sum(bridge.lag.counts) == 2

    asyncio.run(run())


def failing(give: Callable[[object], None]) -> None:
    raise RequestFailure(418, "no")


def test_one_too_many_is_told_so_at_once() -> None:
    async def run() -> None:
        loop = BrokerLoop()
        bridge = bridge_to(loop, requests_max=1)
        first = asyncio.create_task(bridge.ask(lambda give: give(1)))
        await asyncio.sleep(0)
        with pytest.raises(RequestFailure, match="enough requests") as caught:
            await bridge.ask(lambda give: give(2))
        assert caught.value.status == 503
        loop.run()
        assert await first == 1
        second = asyncio.create_task(bridge.ask(lambda give: give(3)))
        await asyncio.sleep(0)
        loop.run()
        assert await second == 3

    asyncio.run(run())


def test_what_was_not_begun_in_time_is_not_done_later() -> None:
    async def run() -> None:
        loop, done = BrokerLoop(), []
        bridge = bridge_to(loop)
        with pytest.raises(RequestFailure, match="nothing was done") as caught:
            await bridge.ask(lambda give: (done.append(1), give(1))[1], timeout_s=0)
        assert caught.value.status == 503
        loop.run()
        assert done == []

    asyncio.run(run())


def test_what_was_begun_goes_on_and_is_counted_until_it_ends() -> None:
    async def run() -> None:
        loop, gives = BrokerLoop(), []
        bridge = bridge_to(loop, requests_max=1, timeout_s=0.05)
        task = asyncio.create_task(bridge.ask(gives.append))
        await asyncio.sleep(0)
        loop.run()
        with pytest.raises(RequestFailure, match="goes on") as caught:
            await task
        assert caught.value.status == 504
        with pytest.raises(RequestFailure, match="enough requests"):
            await bridge.ask(gives.append)
        gives[0](None)
        await asyncio.sleep(0)
        again = asyncio.create_task(bridge.ask(lambda give: give(1)))
        await asyncio.sleep(0)
        loop.run()
        assert await again == 1

    asyncio.run(run())


def test_reasons_why_a_broker_is_not_ready() -> None:
    async def reasons(loop: BrokerLoop, **state: object) -> list[str]:
        bridge = bridge_to(loop, requests_max=1)
        for name, value in state.items():
            setattr(bridge.server, name, value)
        task = asyncio.create_task(Health(bridge).reasons())
        for _ in range(3):
            await asyncio.sleep(0)
            loop.run()
        return await task

    async def run() -> None:
        assert await reasons(BrokerLoop()) == []
        assert await reasons(BrokerLoop(), accepting=False) == ["the disk is full"]
        assert await reasons(BrokerLoop(), failure=OSError()) == ["the journal failed"]
        assert await reasons(BrokerLoop(), stopping=True) == ["the broker is stopping"]

    asyncio.run(run())


def test_a_loop_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acquit.http.health.ANSWERS_WITHIN_S", 0.01)
    found = asyncio.run(_ask_health(BrokerLoop()))
    assert found == [REASONS["loop_late"]]


async def _ask_health(loop: BrokerLoop) -> list[str]:
    return await Health(bridge_to(loop)).reasons()
