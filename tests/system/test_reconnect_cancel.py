"""What is cancelled in an outage, at every one of its awaits, leaves nothing behind that a restored connection would
bring to life: no link that takes messages for nobody, no wait, no outcome that nobody gave."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

import acquit
from acquit import AckMode, ReceiptStatus, aio
from acquit.testing import Proxy
from tests.support.outages import INTERRUPTED, LONG, RESTORED, Story, dead_letters, drain, fast, live, post
from tests.support.stepping import Cut, at_every_await

BODIES = ["m0", "m1", "m2"]


@dataclass(slots=True)
class Scene:
    """What an operation may be about."""

    connection: aio.Connection
    session: aio.Session
    receiver: aio.Receiver
    sender: aio.Sender
    old: list[aio.ReceivedMessage]
    """Received before the outage, and not acknowledged."""
    address: str


async def open_receiver(scene: Scene) -> None:
    async with scene.session.receiver(scene.address):
        pass


async def open_session(scene: Scene) -> None:
    async with scene.connection.session(AckMode.TRANSACTED):
        pass


async def listen(scene: Scene) -> None:
    async with scene.receiver.start_listener(lambda message: None):
        await asyncio.sleep(0.005)


async def receive(scene: Scene) -> None:
    await scene.receiver.receive(0.02)


OPERATIONS: dict[str, Callable[[Scene], Awaitable[object]]] = {
    "receive": receive,
    "drain": lambda scene: scene.receiver.drain(LONG),
    "acknowledge": lambda scene: scene.session.acknowledge(),
    "release": lambda scene: scene.old[0].release(),
    "renew": lambda scene: scene.old[0].renew_lock(),
    "listen": listen,
    "open a receiver": open_receiver,
    "open a session": open_session,
    "close the receiver": lambda scene: scene.receiver.close(0.5),
    "close the sender": lambda scene: scene.sender.close(0.5),
    "close the session": lambda scene: scene.session.close(0.5),
}


AT_ONCE = ("drain", "close the receiver", "close the sender", "close the session")
"""What waits for nothing in an outage: there is nobody to answer."""


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("prefetch", [0, 10])
def test_what_is_cancelled_in_an_outage_leaves_nothing_behind(
    broker: acquit.Broker, address: str, operation: str, prefetch: int
) -> None:
    addresses = (f"{address}.{number}" for number in itertools.count())

    async def scenario(cut: Cut) -> None:
        address = next(addresses)
        story = Story()
        post(broker, address, *BODIES)
        with Proxy(broker.url) as proxy:
            async with aio.connect(proxy.url, options=fast(), on_event=story) as connection:
                session = await connection.session(AckMode.INDIVIDUAL)
                receiver = await session.receiver(address, prefetch=prefetch)
                sender = await session.sender(address)
                first = await receiver.receive(LONG)
                assert first is not None
                proxy.refuse()
                proxy.cut()
                await told(story, INTERRUPTED)
                scene = Scene(connection, session, receiver, sender, [first], address)
                asyncio.get_running_loop().call_later(0.01, proxy.accept)
                with contextlib.suppress(acquit.EndpointError):  # what is not cancelled may end in the outage
                    await cut(OPERATIONS[operation](scene))
                await told(story, RESTORED)
                if operation not in ("listen", "receive"):
                    await receiver.close()
                # Whoever takes over gets all of it: nothing is held by what was cancelled.
                other = await connection.session(AckMode.INDIVIDUAL)
                async with other.receiver(address) as successor:
                    if operation in ("listen", "receive"):
                        await receiver.close()
                    while live(broker, address):
                        message = await successor.receive(LONG)
                        assert message is not None
                        assert (await message.accept()).status is ReceiptStatus.APPLIED
                assert story.kinds.count(INTERRUPTED) == 1
        assert drain(broker, address) == []
        assert dead_letters(broker, address) == []

    awaits = at_every_await(scenario)
    assert awaits >= 1 or operation in AT_ONCE


async def told(story: Story, kind: acquit.ConnectionEventKind) -> None:
    while kind not in story.kinds:
        await asyncio.sleep(0.001)
