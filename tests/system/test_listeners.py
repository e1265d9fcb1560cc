"""Listeners on threads that are started and stopped while thousands of messages pass: each is handled once."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter

import pytest

import acquit
from acquit import AckMode, aio
from tests.support.outages import LONG, drain, live, post

COUNT = 300


@pytest.mark.parametrize(("prefetch", "concurrency"), [(0, 4), (1, 4), (20, 1), (100, 8)])
@pytest.mark.parametrize("mode", [AckMode.AUTO, AckMode.DUPS_OK, AckMode.INDIVIDUAL, AckMode.PRE_ACK])
def test_each_message_is_handled_once_whoever_is_started_and_stopped(
    broker: acquit.Broker, address: str, mode: AckMode, prefetch: int, concurrency: int
) -> None:
    rng = random.Random(f"{mode} {prefetch}")
    count = COUNT if prefetch else COUNT // 3
    post(broker, address, *(str(number) for number in range(count)))
    lock = threading.Lock()
    handled: Counter[object] = Counter()
    busy: Counter[int] = Counter()
    """Handlers under way, by listener."""
    some = threading.Semaphore(0)

    with acquit.connect(broker.url) as connection:
        session = connection.session(mode)
        receivers = [session.receiver(address, prefetch=prefetch) for _ in range(2)]

        def start(number: int) -> acquit.Listener:
            def handle(message: acquit.ReceivedMessage) -> None:
                with lock:
                    busy[number] += 1
                    handled[message.body] += 1
                if mode is AckMode.INDIVIDUAL:
                    message.accept(sync=rng.random() < 0.1)
                with lock:
                    busy[number] -= 1
                some.release()

            return receivers[number % 2].start_listener(handle, concurrency)

        listeners = {number: start(number) for number in range(2)}
        following = len(listeners)
        while sum(handled.values()) < count:
            some.acquire(timeout=0.01)
            if rng.random() < 0.1:
                number = rng.choice(list(listeners))
                assert listeners.pop(number).stop(LONG)
                assert not busy[number]  # its threads have all returned
                # What it left in the buffer is there for whoever asks.
                message = receivers[number % 2].receive(0)
                if message is not None:
                    with lock:
                        handled[message.body] += 1
                    message.acknowledge()
                listeners[following] = start(following)
                following += 1
        for listener in listeners.values():
            assert listener.stop(LONG)
            assert listener.wait()
    assert handled == Counter(str(number) for number in range(count))
    assert live(broker, address) == 0
    assert drain(broker, address) == []


def test_a_transaction_for_each_message(broker: acquit.Broker, address: str) -> None:
    """A session for each worker: what each receives and sends is committed together."""
    post(broker, address, *(str(number) for number in range(100)))
    out = f"{address}.out"
    with acquit.connect(broker.url) as connection:

        def work(session: acquit.Session) -> acquit.Listener:
            sender = session.sender(out)
            tries: Counter[object] = Counter()

            def handle(message: acquit.ReceivedMessage) -> None:
                tries[message.body] += 1
                sender.send(str(message.body), wait=False)
                if str(message.body).endswith("7") and not message.redelivered:
                    session.rollback()
                else:
                    session.commit()

            return session.receiver(address, prefetch=5).start_listener(handle)

        listeners = [work(connection.session(AckMode.TRANSACTED)) for _ in range(4)]
        done = threading.Event()
        while live(broker, address) and not done.wait(0.005):
            assert not any(listener.done for listener in listeners)
        for listener in listeners:
            assert listener.stop(LONG)
    assert sorted(int(message.body) for message in drain(broker, out)) == list(range(100))


def test_tasks(broker: acquit.Broker, address: str) -> None:
    post(broker, address, *(str(number) for number in range(COUNT)))
    handled: Counter[object] = Counter()

    async def main() -> None:
        async with aio.connect(broker.url) as connection, connection.session() as session:
            receiver = await session.receiver(address, prefetch=50)
            over = asyncio.Event()

            async def handle(message: aio.ReceivedMessage) -> None:
                await asyncio.sleep(0)
                handled[message.body] += 1
                if len(handled) == COUNT:
                    over.set()

            while not over.is_set():
                async with receiver.start_listener(handle, concurrency=10):
                    for _ in range(50):
                        await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), LONG))
    assert handled == Counter(str(number) for number in range(COUNT))
    assert drain(broker, address) == []
