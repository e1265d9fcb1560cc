"""The client used wrongly: what is said, at once, where it would otherwise hang or quietly do nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

import acquit
from acquit import aio, errors
from tests.support.outages import LONG, live, post


async def nobody_awaits_me(message: object, error: object = None) -> None:
    raise AssertionError


class AwaitableHandler:
    """Called, it gives a coroutine."""

    async def __call__(self, message: object) -> None:
        raise AssertionError


@pytest.mark.parametrize("handler", [nobody_awaits_me, AwaitableHandler(), None, "handle"])
def test_a_handler_that_a_thread_cannot_call_is_refused_before_a_message_is_taken(
    broker: acquit.Broker, address: str, handler: Callable[..., object]
) -> None:
    post(broker, address, "one")
    with acquit.connect(broker.url) as connection, connection.session() as session:
        receiver = session.receiver(address)
        for use in (
            receiver.listen,
            receiver.start_listener,
            lambda handler: receiver.start_listener(print, on_error=handler or 5),
            lambda handler: session.responder(address, handler),
        ):
            with pytest.raises(errors.ConfigurationError, match="must be (callable|a function), got"):
                use(handler)
    assert live(broker, address) == 1


def test_a_handler_that_no_task_can_call_is_refused(broker: acquit.Broker, address: str) -> None:
    async def main() -> None:
        async with aio.connect(broker.url) as connection, connection.session() as session:
            receiver = await session.receiver(address)
            wrong: Callable[..., object] = "handle"  # type: ignore[assignment]
            with pytest.raises(errors.ConfigurationError, match="handler must be callable, got 'handle'"):
                receiver.start_listener(wrong)
            with pytest.raises(errors.ConfigurationError, match="handler must be callable, got 'handle'"):
                await receiver.listen(wrong)
            with pytest.raises(errors.ConfigurationError, match="handler must be callable, got 'handle'"):
                await session.responder(address, wrong)

    asyncio.run(main())


def test_another_event_loop_than_the_connection_s_is_an_error_and_no_hang(broker: acquit.Broker, address: str) -> None:
    async def main() -> None:
        connection = await aio.connect(broker.url)
        session = await connection.session("individual")
        sender, receiver = await session.sender(address), await session.receiver(address)
        await sender.send("one")
        message = await receiver.receive(LONG)
        assert message is not None
        heard: list[BaseException] = []

        async def elsewhere() -> None:
            for use in (
                sender.send("two"),
                receiver.receive(LONG),
                message.accept(),
                session.receiver(address),
                connection.session(),
                connection.close(),
            ):
                try:
                    await asyncio.wait_for(_awaited(use), LONG)
                except errors.LocalProtocolError as exc:
                    heard.append(exc)

        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        await asyncio.to_thread(thread.join)
        said = (
            "used on another event loop than that of its connection: acquit.aio connects once for each loop; "
            "threads share a connection of acquit.connect"
        )
        assert [str(exc) for exc in heard] == [said] * 6
        await sender.send("three")
        third = await receiver.receive(LONG)
        assert third is not None
        assert third.body == "three"
        await connection.close()

    asyncio.run(main())


async def _awaited(what: object) -> object:
    return await what  # type: ignore[misc]


def test_what_is_no_message_cannot_be_acknowledged_or_remembered(broker: acquit.Broker, address: str) -> None:
    post(broker, address, "one")
    nothing: acquit.ReceivedMessage = None  # type: ignore[assignment]  # as `receive` gives at its time-out
    with acquit.connect(broker.url) as connection, connection.session("individual") as session:
        assert session.receiver(address).receive(LONG) is not None
        with pytest.raises(errors.ConfigurationError, match="acknowledge takes a received message, got 5"):
            session.acknowledge(5)  # type: ignore[arg-type]
        with pytest.raises(errors.ConfigurationError, match="a received message is expected, got None"):
            acquit.Inbox().remember(nothing)
        assert session.acknowledge().count == 1


def test_a_name_alone_is_no_subscription(broker: acquit.Broker, address: str) -> None:
    name: acquit.Subscription = "audit"  # type: ignore[assignment]
    with acquit.connect(broker.url) as connection, connection.session() as session:
        for use in (lambda: session.receiver(address, subscription=name), lambda: session.unsubscribe(name)):
            with pytest.raises(errors.ConfigurationError, match=r"must be a Subscription\(name=...\), got 'audit'"):
                use()


def test_options_that_are_none_are_refused(broker: acquit.Broker) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"options must be a ConnectOptions, got \{'delay_ms': 5\}"):
        acquit.connect(broker.url, options={"delay_ms": 5})  # type: ignore[arg-type]


def test_things_say_what_they_are(broker: acquit.Broker, address: str) -> None:
    where = broker.url.removeprefix("amqp://")
    with acquit.connect(broker.url) as connection, connection.session("dups-ok") as session:
        assert repr(connection) == f"<Connection to {where}>"
        assert repr(session) == f"<Session in mode DUPS_OK on {where}>"
        assert repr(session.sender(address)) == f"<Sender to {address!r}>"
        receiver = session.receiver(address)
        assert repr(receiver) == f"<Receiver from {address!r}>"
        with receiver.start_listener(print) as listener:
            assert repr(listener) == f"<Listener from {address!r}>"
        assert repr(listener) == f"<Listener from {address!r}, done>"


def test_members_are_printed_by_their_names() -> None:
    assert f"{acquit.ReceiptStatus.APPLIED} {acquit.AckMode.PRE_ACK}" == "APPLIED PRE_ACK"
    assert str(acquit.InboxVerdict.NEW) == "NEW"
    assert str(acquit.TransactionFate.ROLLED_BACK) == "ROLLED_BACK"
    assert str(acquit.DeliveryMode.PERSISTENT) == "PERSISTENT"
    assert str(acquit.JmsKind.MAP) == "MAP"
