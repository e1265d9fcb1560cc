"""What a type checker knows of the client. `make check` reads this with mypy; nothing here is run."""

from __future__ import annotations

from typing import assert_type

import acquit
from acquit import aio, types


def receive(receiver: acquit.Receiver, timeout: float | None) -> None:
    """Without a time-out there is always a message."""
    assert_type(receiver.receive(), acquit.ReceivedMessage)
    assert_type(receiver.receive(None), acquit.ReceivedMessage)
    assert_type(receiver.receive(timeout=None), acquit.ReceivedMessage)
    assert_type(receiver.receive(5), acquit.ReceivedMessage | None)
    assert_type(receiver.receive(timeout=0.5), acquit.ReceivedMessage | None)
    assert_type(receiver.receive(timeout), acquit.ReceivedMessage | None)


async def receive_in_a_task(receiver: aio.Receiver, timeout: float | None) -> None:
    """Without a time-out there is always a message."""
    assert_type(await receiver.receive(), aio.ReceivedMessage)
    assert_type(await receiver.receive(None), aio.ReceivedMessage)
    assert_type(await receiver.receive(timeout=None), aio.ReceivedMessage)
    assert_type(await receiver.receive(5), aio.ReceivedMessage | None)
    assert_type(await receiver.receive(timeout=0.5), aio.ReceivedMessage | None)
    assert_type(await receiver.receive(timeout), aio.ReceivedMessage | None)


def version() -> None:
    """The version is a text, although it is looked up when it is asked for."""
    assert_type(acquit.__version__, str)


def price(request: acquit.ReceivedMessage) -> dict[str, int] | None:
    """A handler of requests that returns what programs have at hand, or nothing."""
    return {"lamp": 20} if request.text else None


async def price_in_a_task(request: aio.ReceivedMessage) -> dict[str, int] | None:
    """The same with asyncio."""
    return {"lamp": 20} if request.text else None


def send(sender: acquit.Sender, requester: acquit.Requester, session: acquit.Session) -> None:
    """All that is sent at run time is taken, whatever it is known to hold."""
    stock: dict[str, int] = {"lamp": 2}
    names: list[str] = ["lamp", "desk"]
    nested: dict[int, list[dict[str, float | None]]] = {7: [{"a": 1.5, "b": None}]}
    kinds: dict[str | int, tuple[str, ...]] = {"a": ("b",), 1: ("c", "d")}
    for body in (stock, names, nested, kinds, (1, "two"), bytearray(b"octets"), memoryview(b"octets")):
        sender.send(body)
        assert_type(sender.send(body, wait=False), acquit.SendReceipt)
        requester.request(body)
        acquit.Message(body, subject="stock")
    sender.send(stock)
    sender.send(names)
    acquit.Message(stock)
    acquit.Message(names)
    acquit.Message()
    acquit.Message(None)
    session.responder("prices", price)
    sender.send(None)  # type: ignore[call-overload]  # refused at run time, too
    requester.request(None)  # type: ignore[arg-type]  # refused at run time, too
    sender.send({1, 2})  # type: ignore[call-overload]  # AMQP has no sets
    sender.send({"at": object()})  # type: ignore[dict-item]  # nor whatever Python has


async def send_in_a_task(sender: aio.Sender, requester: aio.Requester, session: aio.Session) -> None:
    """All that is sent at run time is taken, whatever it is known to hold."""
    stock: dict[str, int] = {"lamp": 2}
    names: list[str] = ["lamp", "desk"]
    await sender.send(stock)
    receipt = await sender.send(names, wait=False)
    assert_type(await receipt.result(), acquit.Accepted | None)
    await requester.request(stock)
    await session.responder("prices", price_in_a_task)
    await sender.send(None)  # type: ignore[call-overload]  # refused at run time, too


def reply(request: acquit.ReceivedMessage, stock: dict[str, int], body: types.Encodable) -> list[acquit.Message]:
    """What is sent has a type by name, for functions that pass it on."""
    return [request.make_reply(stock), request.make_reply(), request.make_reply(body), acquit.Message(body)]
