"""The client against the broker: what either promises, seen from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import acquit
from acquit import AckMode, DeliveryMode, Message, ReceiptStatus

LONG = 30.0


@pytest.fixture
def connection(broker: acquit.Broker) -> Iterator[acquit.Connection]:
    with acquit.connect(broker.url) as connection:
        yield connection


def got(receiver: acquit.Receiver, timeout: float = LONG) -> acquit.ReceivedMessage:
    message = receiver.receive(timeout)
    assert message is not None
    return message


def test_the_broker_s_answers_are_durable(connection: acquit.Connection, address: str) -> None:
    with connection.session(AckMode.CLIENT) as session:
        session.sender(address).send("x")
        receiver = session.receiver(address)
        got(receiver)
        assert session.acknowledge().status is ReceiptStatus.APPLIED


@pytest.mark.parametrize("mode", [AckMode.AUTO, AckMode.CLIENT, AckMode.INDIVIDUAL, AckMode.NO_ACK])
@pytest.mark.parametrize("delivery_mode", list(DeliveryMode))
def test_many_messages_arrive_once_and_in_order(
    connection: acquit.Connection, address: str, mode: AckMode, delivery_mode: DeliveryMode
) -> None:
    with connection.session(mode) as session:
        sender = session.sender(address, delivery_mode=delivery_mode)
        receipts = [sender.send(str(number), wait=False) for number in range(500)]
        sender.flush(LONG)
        assert all(receipt.outcome == acquit.Accepted() for receipt in receipts)
        receiver = session.receiver(address, prefetch=64)
        for number in range(500):
            message = got(receiver)
            assert message.body == str(number)
            assert message.durable is (delivery_mode is DeliveryMode.PERSISTENT)
            message.acknowledge(sync=False)
        assert receiver.receive(0.05) is None


def test_sequences_are_stable_over_redeliveries(connection: acquit.Connection, address: str) -> None:
    with connection.session("individual") as session:
        session.sender(address).send("x")
        receiver = session.receiver(address)
        first = got(receiver)
        assert (first.redelivered, first.delivery_count) == (False, 0)
        first.release()
        second = got(receiver)
        assert second.sequence == first.sequence is not None
        assert (second.redelivered, second.delivery_count) == (True, 0)
        second.modify(delivery_failed=True)
        third = got(receiver)
        assert (third.redelivered, third.delivery_count) == (True, 1)
        third.accept()


def test_closing_gives_back_in_order(connection: acquit.Connection, address: str) -> None:
    with connection.session("client") as session:
        sender = session.sender(address)
        for number in range(4):
            sender.send(str(number))
        receiver = session.receiver(address)
        assert [got(receiver).body for _ in range(2)] == ["0", "1"]
    with connection.session("client") as session:
        receiver = session.receiver(address)
        again = [got(receiver) for _ in range(4)]
        assert [(message.body, message.delivery_count) for message in again] == [("0", 1), ("1", 1), ("2", 0), ("3", 0)]
        session.acknowledge()


def test_a_rejected_message_is_dead_lettered_with_its_reason(connection: acquit.Connection, address: str) -> None:
    with connection.session("individual") as session:
        session.sender(address).send(Message("x", message_id=address))
        got(session.receiver(address)).reject("amqp:decode-error", "not a number")
        for message in session.receiver("DLQ", browse=True):
            if message.message_id == address:
                break
        assert message.annotations["x-opt-ORIG-QUEUE"] == address


def test_browsing_takes_nothing(connection: acquit.Connection, address: str) -> None:
    with connection.session("individual") as session:
        for number in range(3):
            session.sender(address).send(str(number))
        with session.receiver(address, browse=True) as browser:
            assert [message.body for message in browser.receive_many(9, LONG)][:1] == ["0"]
        with session.receiver(address, prefetch=0, browse=True) as asking:
            assert asking.refresh(LONG)
            assert asking.available == 3
        receiver = session.receiver(address)
        for number in range(3):
            message = got(receiver)
            assert message.body == str(number)
            message.accept()


def test_one_at_a_time(connection: acquit.Connection, address: str) -> None:
    with connection.session("individual") as session, connection.session("individual") as other:
        for number in range(3):
            session.sender(address).send(str(number))
        receiver, second = session.receiver(address, prefetch=0), other.receiver(address, prefetch=0)
        assert [got(r).body for r in (receiver, second, receiver)] == ["0", "1", "2"]
        assert receiver.receive(0) is None


def test_drain_finds_the_end_of_a_queue(connection: acquit.Connection, address: str) -> None:
    with connection.session("individual") as session:
        for number in range(3):
            session.sender(address).send(str(number))
        receiver = session.receiver(address, prefetch=10)
        assert receiver.drain(LONG)
        messages = receiver.receive_many(10, 0)
        assert [message.body for message in messages] == ["0", "1", "2"]
        assert session.settle(messages, acquit.Accepted()).status is ReceiptStatus.APPLIED


def test_a_large_message_arrives_whole(connection: acquit.Connection, address: str) -> None:
    body = bytes(range(256)) * 8_192
    with connection.session() as session:
        session.sender(address).send(body)
        assert got(session.receiver(address)).body == body


def test_several_receivers_share_a_queue(connection: acquit.Connection, address: str) -> None:
    with connection.session() as session:
        sender = session.sender(address)
        receivers = [session.receiver(address, prefetch=5) for _ in range(3)]
        for number in range(60):
            sender.send(str(number), wait=False)
        sender.flush(LONG)
        seen: list[object] = []
        while len(seen) < 60:
            for receiver in receivers:
                seen += [message.body for message in receiver.receive_many(5, 0.01)]
        assert sorted(seen, key=lambda text: int(str(text))) == [str(number) for number in range(60)]


def test_asyncio_and_threads_meet(broker: acquit.Broker, connection: acquit.Connection, address: str) -> None:
    async def answer() -> None:
        async with acquit.aio.connect(broker.url) as ours, ours.session("individual") as session:
            receiver = await session.receiver(address)
            sender = await session.sender(None)
            async for request in receiver:
                await sender.send(
                    Message(f"re: {request.body}", to=request.reply_to, correlation_id=request.message_id)
                )
                await request.accept()
                if request.body == "last":
                    return

    with connection.session() as session:
        sender, replies = session.sender(address), session.receiver(f"{address}.replies")
        for text in ("first", "last"):
            sender.send(Message(text, message_id=text, reply_to=f"{address}.replies"))
        asyncio.run(answer())
        assert [(got(replies).body, got(replies).correlation_id)] == [("re: first", "last")]


def test_a_broker_that_stops_ends_every_wait() -> None:
    with acquit.Broker() as broker:
        connection = acquit.connect(broker.url)
        session = connection.session("individual")
        session.sender("q").send("x")
        receiver = session.receiver("q")
        message = got(receiver)
    with pytest.raises(acquit.ConnectionFailed):
        receiver.receive()
    assert message.accept().status is ReceiptStatus.STALE
    connection.close()
