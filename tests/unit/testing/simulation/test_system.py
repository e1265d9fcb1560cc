"""`acquit.testing.Simulation`, as a user's test has it."""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from contextlib import suppress

import pytest

import acquit
from acquit import aio
from acquit.testing import Simulation
from acquit.testing.simulation.system import FAULTS

COUNT = 30


async def post(url: str, count: int = COUNT, pause_s: float = 0.1) -> int:
    """Post until each was accepted. Returns how many tries it took."""
    tries = 0
    async with aio.connect(url) as connection, connection.session() as session:
        sender = await session.sender("orders")
        for number in range(count):
            accepted = False
            while not accepted:
                tries += 1
                with suppress(acquit.DeliveryInDoubt, acquit.SendFailed):
                    await sender.send(acquit.Message(str(number), durable=True))
                    accepted = True
            await asyncio.sleep(pause_s)
    return tries


async def take(url: str, taken: list[str], count: int = COUNT) -> None:
    """Accept messages until there were so many different ones."""
    while len(set(taken)) < count:
        with suppress(acquit.AcquitError):
            async with aio.connect(url) as connection, connection.session("individual") as session:
                receiver = await session.receiver("orders")
                while len(set(taken)) < count:
                    message = await receiver.receive()
                    assert message is not None
                    taken.append(str(message.body))
                    await message.accept()
        await asyncio.sleep(0.1)


def transcript(seed: int) -> tuple[object, ...]:
    taken: list[str] = []
    with Simulation(seed) as world:
        world.trouble(5)
        world.start(take, world.url, taken)
        tries = world.run(post, world.url)
        world.wait()
        return tries, tuple(taken), world.now_s, dict(world.faults), random.random(), uuid.uuid4()


def test_the_same_seed_is_the_same_run() -> None:
    first = transcript(3)
    assert transcript(3) == first
    assert transcript(4) != first


def test_time_passes_at_once_and_for_everybody() -> None:
    async def wait() -> float:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with asyncio.timeout(10_000):
            await asyncio.sleep(3_000)
        return loop.time() - begun

    with Simulation() as world:
        assert world.run(wait) == pytest.approx(3_000, abs=1)
        before_s = world.now_s
        world.advance(100)
        assert world.now_s == pytest.approx(before_s + 100, abs=1)


@pytest.mark.parametrize("power", [False, True])
def test_a_broker_that_dies_comes_again_with_what_it_accepted(power: bool) -> None:
    for seed in range(5):
        taken: list[str] = []
        with Simulation(seed) as world:
            world.run(post, world.url)
            first = world.broker
            world.kill_broker(power=power)
            world.run(take, world.url, taken)
            assert world.broker is not first
        assert sorted(taken, key=int) == [str(number) for number in range(COUNT)]


def test_a_program_is_killed_and_begins_anew() -> None:
    taken: list[str] = []
    with Simulation(1) as world:
        taker = world.start(take, world.url, taken)
        poster = world.start(post, world.url)
        world.advance(1)
        taker.kill()
        assert taker.done
        with pytest.raises(RuntimeError, match="take was killed"):
            taker.result()
        world.wait(poster)
        assert len(set(taken)) < COUNT
        taker.start()
        world.wait()
        assert len(set(taken)) == COUNT


def test_a_connection_that_is_cut_is_made_again() -> None:
    with Simulation(1) as world:
        poster = world.start(post, world.url)
        world.advance(1)
        assert world.cut(poster) == 1
        assert not world.cut(poster)
        world.wait()
        assert poster.result() >= COUNT
        (queue,) = (queue for queue in world.inspect().queues if queue.address == "orders")
        assert queue.depth >= COUNT


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_alone_passes(fault: str) -> None:
    taken: list[str] = []
    with Simulation(5) as world:
        world.trouble(4, fault, every_s=0.3)
        world.start(take, world.url, taken)
        world.run(post, world.url)
        world.wait()
        world.advance(5)
        assert world.faults[fault]
        struck = world.faults.total()
        world.advance(30)
        assert world.faults.total() == struck
        assert world.up


def test_what_a_program_raises_names_the_seed() -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as raised, Simulation(77) as world:
        world.run(fail)
    assert any("Simulation(77) repeats it" in note for note in raised.value.__notes__)


def test_waiting_for_ever_ends_and_says_for_whom() -> None:
    async def wait_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    sentence = "after 50 s of virtual time these go on: wait_for_ever"
    with pytest.raises(TimeoutError, match=sentence), Simulation(within_s=50) as world:
        world.run(wait_for_ever)


def test_what_another_program_raises_ends_the_wait() -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError("no")

    with Simulation() as world:
        world.start(fail)
        with pytest.raises(ValueError, match="no"):
            world.run(post, world.url)
        assert world.now_s < COUNT * 0.1


def test_a_fault_that_is_none_is_named_with_those_that_are() -> None:
    with Simulation() as world, pytest.raises(KeyError, match="'fire' is no fault: kill, power"):
        world.trouble(1, "fire")


def test_it_runs_in_no_coroutine() -> None:
    async def test() -> None:
        with Simulation():
            pass

    with pytest.raises(RuntimeError, match="use it in a plain function"):
        asyncio.run(test())


def test_chance_is_chance_again_afterwards() -> None:
    random.seed(1)
    expected = random.random()
    random.seed(1)
    with Simulation():
        random.random()
    assert random.random() == expected
    assert os.urandom(8) != os.urandom(8)
    assert isinstance(random.Random(), random.Random)
