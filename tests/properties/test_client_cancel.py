"""Cancelling loses nothing: tasks that receive are started, cancelled, timed out from outside and let run in any order,
while messages arrive; what they returned, and what is still there at the end, is every message once, in order."""

from __future__ import annotations

import asyncio
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from acquit import aio
from acquit.client.aio import KINDS
from acquit.client.driver import Driver
from tests.support.examples import share
from tests.support.server import Rig, RigDriver

steps = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(1, 3)),
        st.tuples(st.just("receive"), st.sampled_from([None, 0, 0.0001])),
        st.tuples(st.just("receive many"), st.integers(1, 3)),
        st.tuples(st.just("iterate"), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("run"), st.integers(1, 4)),
    ),
    max_size=40,
)


@settings(max_examples=share(150))
@given(
    st.sampled_from([0, 1, 2, 10]),
    st.sampled_from(["auto", "no_ack", "individual", "dups_ok", "pre_ack", "transacted"]),
    steps,
)
def test_every_message_is_returned_once_or_still_there(
    prefetch: int, mode: str, schedule: list[tuple[str, int | float | None]]
) -> None:
    asyncio.run(play(prefetch, mode, schedule))


async def play(prefetch: int, mode: str, schedule: list[tuple[str, int | float | None]]) -> None:
    rig = Rig()
    rig.core.kinds = KINDS
    driver = cast(Driver, RigDriver(rig))
    session = aio.Session(rig.session(mode), driver)
    receiver = await session.receiver("q", prefetch=prefetch)
    returned: list[object] = []
    tasks: list[asyncio.Task[None]] = []
    offered = 0

    async def note(message: aio.ReceivedMessage | None) -> None:
        if message is not None:
            returned.append(message.body)
            if mode == "individual":
                await message.accept(sync=False)

    # What a task returns is noted in the same step in which it got it, as a program would use it.
    async def receive(timeout: float | None) -> None:
        await note(await receiver.receive(timeout))

    async def receive_many(count: int) -> None:
        for message in await receiver.receive_many(count, 0.0001):
            await note(message)

    async def iterate() -> None:
        async for message in receiver:
            await note(message)
            return

    for name, how in schedule:
        match name:
            case "offer":
                rig.server.offer("q", *(str(offered + n) for n in range(int(how or 0))))
                offered += int(how or 0)
                rig.run()
            case "receive":
                tasks.append(asyncio.create_task(receive(how)))
            case "receive many":
                tasks.append(asyncio.create_task(receive_many(int(how or 1))))
            case "iterate":
                tasks.append(asyncio.create_task(iterate()))
            case "cancel" if tasks:
                tasks[int(how or 0) % len(tasks)].cancel()
            case "run":
                for _ in range(int(how or 0)):
                    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    rig.run()
    while len(returned) < offered and (message := await receiver.receive(5)) is not None:
        await note(message)
    assert returned == [str(number) for number in range(offered)]
