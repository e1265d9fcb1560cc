"""Unsettled maps that no frame holds, searched: random sets of what each end has, and of how long its frames are.

Client and broker are the real ones, in `acquit.testing.Simulation`. What each has from an earlier life is put there by
hand: sends in the store of the program, outcomes in the terminus of the broker, and some that only one of them has. In
some runs the connection is lost, the program killed, or its link closed while the maps are told.
"""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import TypeVar

import pytest

import acquit
from acquit import aio
from acquit.broker.links.terminus import SourceTerminus, TargetTerminus
from acquit.broker.options import BrokerOptions, ConnectionLimits
from acquit.client.entries import EntryKind, StoreEntry
from acquit.client.receipts import ReceiptStatus
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import ACCEPTED
from acquit.testing import Simulation
from acquit.testing.simulation.system import Program
from tests.properties.test_resumption import LATE_S, LateStore, _has_done
from tests.support.examples import share

pytestmark = pytest.mark.promise("exactly-once")

FRAMES = (4_096, 4_500, 6_000)
"""Longest frames of the broker: room for 80, 90 and 150 tags of ours."""
ANSWERS = (1_024, 2_048, 8_192)
"""Longest frames of the program: room for so many tags in the broker's answer, and fewer."""
SIZES = (0, 1, 20, 100, 300)
OVER_S = 600.0
"""Virtual seconds within which everything is over."""

T = TypeVar("T", SourceTerminus, TargetTerminus)


def world_of(rng: Random, seed: int) -> Simulation:
    return Simulation(seed, options=BrokerOptions(connection=ConnectionLimits(max_frame_size=rng.choice(FRAMES))))


def options_of(rng: Random) -> acquit.ConnectOptions:
    reconnect = acquit.Reconnect(delay_ms=5, delay_max_ms=50)
    return acquit.ConnectOptions(ack_timeout_ms=600_000, max_frame_size=rng.choice(ANSWERS), reconnect=reconnect)


def tags_of(rng: Random) -> set[bytes]:
    return {b"%024x" % rng.getrandbits(96) for _ in range(rng.choice(SIZES))}


def terminus_of(world: Simulation, kind: type[T]) -> T:
    (found,) = world.server._core._termini._by_name.values()
    assert isinstance(found, kind)
    return found


def strike(world: Simulation, rng: Random, program: Program[None]) -> None:
    """Strike the program now and then, and see it come to its end."""
    for _ in range(rng.choice((0, 0, 1, 3))):
        world.scheduler.run_until(partial(_has_done, world, world.scheduler.turns + rng.randrange(60)), OVER_S)
        if program.done or rng.random() < 0.5:
            world.cut(program)
        else:
            program.kill()
            world.scheduler.run_until(lambda: False, 0.02)
            program.start()
    assert world.scheduler.run_until(lambda: program.done or world._raised(), OVER_S), "it hangs"
    world._raise()


async def attach_sender(url: str, options: acquit.ConnectOptions, store: LateStore, close_s: float, new: int) -> None:
    """Send what is stored, and something new, after closing the link once, so many seconds after it was attached."""
    while True:
        try:
            async with aio.connect(url, container_id="app", options=options) as connection:
                session = await connection.session()
                if close_s:
                    sender = await session.sender("q", name="out", exactly_once=store)
                    await asyncio.sleep(close_s)
                    await sender.close(0.0)
                    await asyncio.sleep(1.0)
                sender = await session.sender("q", name="out", exactly_once=store)
                for number in range(new):
                    _ = await sender.send(f"new {number}", wait=False)
                await sender.flush()
                await asyncio.sleep(2 * LATE_S)
                while store.left:
                    await asyncio.sleep(0.05)
            return
        except acquit.AcquitError:
            new = 0  # they are in the store, or were not taken
            await asyncio.sleep(0.01)


def search_sends(seed: int) -> None:
    rng = Random(seed)
    store, options = LateStore(), options_of(rng)
    with world_of(rng, seed) as world:
        world.run(attach_sender, world.url, options, store, 0.0, 0)
        lacking, answered, forgotten = tags_of(rng), tags_of(rng), tags_of(rng)
        for tag in lacking | answered:
            store.links["out"].sends[tag] = acquit.Message(tag.decode()).encode()
        terminus_of(world, TargetTerminus).answered.update(dict.fromkeys(answered | forgotten, ACCEPTED))
        close_s = rng.choice((0.0, 0.0, 0.001, 0.01, 0.03))
        strike(world, rng, world.start(attach_sender, world.url, options, store, close_s, 0))
        world.run(attach_sender, world.url, options, store, 0.0, 2)
        assert sorted(world.run(take_all, world.url)) == [*sorted(tag.decode() for tag in lacking), "new 0", "new 1"]
        world.run(attach_sender, world.url, options, store, 0.0, 0)
        assert not terminus_of(world, TargetTerminus).answered


async def take_all(url: str) -> list[object]:
    async with aio.connect(url) as connection:
        session = await connection.session("individual")
        receiver = await session.receiver("q")
        taken = []
        while (message := await receiver.receive(timeout=1.0)) is not None:
            taken.append(message.body)
            await message.accept()
        return taken


async def post(url: str, bodies: list[str]) -> None:
    async with aio.connect(url) as connection:
        session = await connection.session()
        sender = await session.sender("q")
        for body in bodies:
            _ = await sender.send(body, wait=False)
        await sender.flush()


async def hold(url: str, options: acquit.ConnectOptions, store: LateStore, count: int) -> None:
    """Receive so many messages, and decide on none, until the program is killed."""
    async with aio.connect(url, container_id="app", options=options) as connection:
        session = await connection.session("individual")
        receiver = await session.receiver("q", name="in", prefetch=count + 1, exactly_once=store)
        for _ in range(count):
            assert await receiver.receive(timeout=60) is not None
        await asyncio.sleep(2 * LATE_S)
        store.links["held"] = store.load("held")
        await asyncio.sleep(3_600)


async def work(
    url: str, options: acquit.ConnectOptions, store: LateStore, seed: int, prefetch: int, done: set[str], count: int
) -> None:
    """Receive and accept until so many are done, with a few in hand of which any may be next."""
    rng = Random(seed)
    while True:
        try:
            async with aio.connect(url, container_id="app", options=options) as connection:
                session = await connection.session("individual")
                receiver = await session.receiver("q", name="in", prefetch=prefetch, exactly_once=store)
                held: list[aio.ReceivedMessage] = []
                receipts = []
                while len(done) < count:
                    message = await receiver.receive(timeout=1.0)
                    if message is not None:
                        held.append(message)
                    if not held or (message is not None and len(held) < min(prefetch, 8)):
                        continue
                    chosen = held.pop(rng.randrange(len(held)))
                    assert chosen.body not in done, "it came twice"
                    done.add(str(chosen.body))
                    tag = chosen.delivery_tag
                    store.write_within(None, StoreEntry(EntryKind.OUTCOME, "in", tag, encode_composite(ACCEPTED)))
                    receipts.append(await chosen.accept(sync=False))
                statuses = {await receipt.result() for receipt in receipts}
                assert statuses <= {ReceiptStatus.APPLIED, ReceiptStatus.UNKNOWN}
                for _ in range(100):
                    if not store.left:
                        return
                    await asyncio.sleep(0.05)
        except acquit.AcquitError:
            await asyncio.sleep(0.01)


def search_receives(seed: int) -> None:
    rng = Random(seed)
    store, options = LateStore(), options_of(rng)
    with world_of(rng, seed) as world:
        bodies = [str(number) for number in range(rng.choice(SIZES))]
        world.run(post, world.url, bodies)
        holder = world.start(hold, world.url, options, store, len(bodies))
        assert world.scheduler.run_until(lambda: "held" in store.links, 60.0)
        holder.kill()
        world.scheduler.run_until(lambda: not world.inspect().connections, 60.0)
        terminus = terminus_of(world, SourceTerminus)
        decided = {tag: message for tag, message in terminus.messages.items() if rng.random() < rng.choice((0, 0.5, 1))}
        store.links["in"].outcomes.update(dict.fromkeys(decided, ACCEPTED))
        store.links["in"].outcomes.update(dict.fromkeys(tags_of(rng), ACCEPTED))
        left = len(bodies) - len(decided)
        done: set[str] = set()
        prefetch = rng.choice((1, 10, 400))
        strike(world, rng, world.start(work, world.url, options, store, seed, prefetch, done, left))
        world.run(post, world.url, ["new"])
        world.run(work, world.url, options, store, seed, prefetch, done, left + 1)
        queue = world.inspect().queue("q")
        assert queue is not None
        assert (queue.depth, queue.acquired) == (0, 0)


async def keep(url: str, options: acquit.ConnectOptions, store: LateStore, seed: int, count: int) -> None:
    """Receive so many, decide on them in any order, as the connection was lost, then on a new one."""
    rng = Random(seed)
    async with aio.connect(url, container_id="app", options=options) as connection:
        session = await connection.session("individual")
        receiver = await session.receiver("q", name="in", prefetch=count + 1, exactly_once=store)
        messages = [await receiver.receive() for _ in range(count)]
        store.links["held"] = store.load("held")
        await asyncio.sleep(1.0)
        rng.shuffle(messages)
        receipts = []
        for message in messages:
            assert message is not None
            receipts.append(await message.accept(sync=False))
            if rng.random() < 0.1:
                assert await receipts[-1].result() is ReceiptStatus.APPLIED
        assert {await receipt.result() for receipt in receipts} <= {ReceiptStatus.APPLIED}
        message = await receiver.receive(timeout=60)
        assert message is not None
        assert message.body == "new"
        assert await (await message.accept(sync=False)).result() is ReceiptStatus.APPLIED


def search_kept(seed: int) -> None:
    rng = Random(seed)
    store, options = LateStore(), options_of(rng)
    with world_of(rng, seed) as world:
        count = rng.choice(SIZES)
        world.run(post, world.url, [str(number) for number in range(count)])
        program = world.start(keep, world.url, options, store, seed, count)
        assert world.scheduler.run_until(lambda: "held" in store.links, 60.0)
        world.cut(program)
        world.run(post, world.url, ["new"])
        for _ in range(rng.choice((0, 0, 2))):
            world.scheduler.run_until(lambda: program.done, rng.random() * 2)
            world.cut(program)
        assert world.scheduler.run_until(lambda: program.done or world._raised(), OVER_S), "it hangs"
        world._raise()
        queue = world.inspect().queue("q")
        assert queue is not None
        assert (queue.depth, queue.acquired) == (0, 0)


SEARCHES = {"sends": search_sends, "receives": search_receives, "kept": search_kept}
SEEDS = 12


@pytest.mark.parametrize("seed", range(share(SEEDS)))
@pytest.mark.parametrize("what", SEARCHES)
def test_each_happens_once_whatever_the_parts_are(what: str, seed: int) -> None:
    SEARCHES[what](seed)


@pytest.mark.slow
@pytest.mark.parametrize("what", SEARCHES)
def test_each_happens_once_whatever_many_parts_are(what: str, soak_rounds: int) -> None:
    for seed in range(SEEDS, SEEDS * (1 + soak_rounds)):
        SEARCHES[what](seed)
