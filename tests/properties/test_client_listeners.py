"""Listeners started, stopped, failing and competing in any order: each message is with one of them, and has one
outcome."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from acquit import aio
from tests.support.examples import share
from tests.support.stepping import LONG, Accounted, numbers, turns

MODES = ["auto", "dups_ok", "pre_ack", "individual", "no_ack"]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(1, 4)),
        st.tuples(st.just("start"), st.integers(1, 3)),
        st.tuples(st.just("begin to stop"), st.integers(0, 3)),
        st.tuples(st.just("stop"), st.integers(0, 3)),
        st.tuples(st.just("let go"), st.integers(1, 3)),
        st.tuples(st.just("fail"), st.integers(1, 2)),
        st.tuples(st.just("receive"), st.just(0)),
        st.tuples(st.just("drain"), st.just(0)),
        st.tuples(st.just("run"), st.integers(1, 6)),
    ),
    min_size=5,
    max_size=30,
)


class Handlers:
    """Handlers that wait to be let go, or to fail; which listener had which message, and how that ended."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.begun: list[tuple[int, object]] = []
        self.returned: list[object] = []
        self.failed: list[object] = []
        self.waiting: list[asyncio.Future[bool]] = []

    def handler(self, listener: int) -> Callable[[aio.ReceivedMessage], Awaitable[None]]:
        async def handle(message: aio.ReceivedMessage) -> None:
            self.begun.append((listener, message.body))
            future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self.waiting.append(future)
            if not await future:
                self.failed.append(message.body)
                raise ValueError(f"{message.body} was to fail")
            self.returned.append(message.body)
            if self.mode == "individual":
                await message.accept()

        return handle

    def end(self, count: int, *, well: bool) -> None:
        for future in self.waiting[:count]:
            future.set_result(well)
        del self.waiting[:count]

    async def on_error(self, message: aio.ReceivedMessage, error: Exception) -> None:
        if self.mode == "individual":
            await message.modify(delivery_failed=True)


@settings(max_examples=share(200))
@given(st.sampled_from(MODES), st.sampled_from([0, 1, 3, 10]), steps)
def test_each_message_is_with_one_listener_and_has_one_outcome(
    mode: str, prefetch: int, schedule: list[tuple[str, int]]
) -> None:
    async def main() -> None:
        async with asyncio.timeout(LONG):
            await play(mode, prefetch, schedule)

    asyncio.run(main())


async def play(mode: str, prefetch: int, schedule: list[tuple[str, int]]) -> None:
    stage = Accounted(mode)
    receiver = await stage.session.receiver("q", prefetch=prefetch)
    handlers = Handlers(mode)
    listeners: list[aio.Listener] = []
    stopped: dict[int, int] = {}
    """How many calls there had been when each had stopped."""
    received: list[object] = []
    stops: list[asyncio.Task[bool]] = []
    offered = 0

    def calls(listener: int) -> int:
        return sum(number == listener for number, _ in handlers.begun)

    for name, how in [("offer", 3), ("start", 2), ("run", 4), *schedule]:
        match name:
            case "offer":
                stage.offer(how, first=offered)
                offered += how
            case "start":
                handle = handlers.handler(len(listeners))
                listeners.append(receiver.start_listener(handle, how, on_error=handlers.on_error))
            case "begin to stop" if listeners:
                stops.append(asyncio.create_task(listeners[how % len(listeners)].stop()))
            case "stop" if listeners:
                which = how % len(listeners)
                before = calls(which)
                if await listeners[which].stop(0):
                    stopped.setdefault(which, before)
            case "let go":
                handlers.end(how, well=True)
            case "fail":
                handlers.end(how, well=False)
            case "receive":
                message = await receiver.receive(0)
                if message is not None:
                    received.append(message.body)
                    await message.acknowledge()
            case "drain":
                await receiver.drain(LONG)
            case "run":
                await turns(how)
        for which, count in stopped.items():
            assert calls(which) == count
    stops += [asyncio.create_task(listener.stop()) for listener in listeners]
    await turns(2)
    begun = len(handlers.begun)
    while not all(stop.done() for stop in stops):
        handlers.end(len(handlers.waiting), well=True)
        await turns(1)
    assert len(handlers.begun) == begun  # nothing was handed out after all the stops had begun
    assert all([await stop for stop in stops])
    while sum(map(len, (received, handlers.returned, handlers.failed))) < offered:
        message = await receiver.receive(LONG)
        assert message is not None
        received.append(message.body)
        await message.acknowledge()
    await receiver.close()
    stage.rig.run()
    everybody = Counter(received) + Counter(handlers.returned) + Counter(handlers.failed)
    assert everybody == numbers(offered)
    fates = stage.fates()
    if mode == "no_ack":
        assert fates["held"] == numbers(offered)  # nothing is said
    else:
        lost = Counter(handlers.failed) if mode != "pre_ack" else Counter()
        assert fates == {"accepted": numbers(offered) - lost, "again": lost, "held": Counter()}
