"""The same with asyncio: in `acquit.aio`, what waits is awaited."""

from __future__ import annotations

import asyncio

import acquit
from acquit import aio


async def main(url: str) -> None:
    """Send one message and receive it."""
    async with aio.connect(url) as connection, connection.session() as session:
        sender = await session.sender("greetings")
        await sender.send("hello")

        receiver = await session.receiver("greetings")
        message = await receiver.receive(timeout=5)
        assert message is not None
        print(message.body)


with acquit.Broker() as broker:
    asyncio.run(main(broker.url))
