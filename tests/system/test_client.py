"""The client against the broker: what either promises, seen from outside."""

from __future__ import annotations

import asyncio
import contextlib
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


@pytest.mark.promise("answered")
def test_the_broker_s_answers_are_durable(connection: acquit.Connection, address: str) -> None:
    with connection.session(AckMode.CLIENT) as session:
        session.sender(address).send("x")
        receiver = session.receiver(address)
        got(receiver)
        assert session.acknowledge().status is ReceiptStatus.APPLIED


@pytest.mark.promise("order")
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
        connection = acquit.connect(broker.url, options=acquit.ConnectOptions(reconnect=None))
        session = connection.session("individual")
        session.sender("q").send("x")
        receiver = session.receiver("q")
        message = got(receiver)
    with pytest.raises(acquit.ConnectionFailed):
        receiver.receive()
    assert message.accept().status is ReceiptStatus.STALE
    connection.close()


# -- transactions ------------------------------------------------------------------------------------------------------


def left_in(connection: acquit.Connection, address: str) -> list[object]:
    with connection.session() as session, session.receiver(address, browse=True) as browser:
        browser.drain(LONG)
        return [message.body for message in browser.receive_many(100, 0)]


def test_a_commit_takes_and_posts_at_once(connection: acquit.Connection, address: str) -> None:
    with connection.session() as plain:
        for number in range(3):
            plain.sender(address).send(str(number))
            plain.sender(f"{address}.2").send(f"other {number}")
    with connection.session("transacted") as session:
        first, second = session.receiver(address), session.receiver(f"{address}.2")
        to, elsewhere = session.sender(f"{address}.out"), session.sender(f"{address}.log")
        for _ in range(2):
            with session.transaction():
                one, other = got(first), got(second)
                receipts = [to.send(f"{one.body}+{other.body}", wait=False), elsewhere.send("seen", wait=False)]
                to.flush(LONG)
                assert receipts[0].provisional
            assert not any(receipt.provisional for receipt in receipts)
            assert [receipt.result() for receipt in receipts] == [acquit.Accepted()] * 2
        got(first)
        to.send("not committed")
        assert left_in(connection, f"{address}.out") == ["0+other 0", "1+other 1"]
        assert left_in(connection, f"{address}.log") == ["seen", "seen"]
    # The end of the session has rolled the last one back.
    assert left_in(connection, f"{address}.out") == ["0+other 0", "1+other 1"]
    with connection.session("client") as session:
        again = got(session.receiver(address))
        assert (again.body, again.delivery_count) == ("2", 1)
        assert got(session.receiver(f"{address}.2")).delivery_count == 0
        session.acknowledge()


def test_a_rollback_delivers_again_in_order(connection: acquit.Connection, address: str) -> None:
    with connection.session("transacted") as session:
        sender, receiver = session.sender(address), session.receiver(address, prefetch=3)
        with session.transaction():
            for number in range(5):
                sender.send(str(number))
        with contextlib.suppress(ZeroDivisionError), session.transaction():
            assert [got(receiver).body for _ in range(2)] == ["0", "1"]
            sender.send("never")
            raise ZeroDivisionError
        with session.transaction():
            again = [got(receiver) for _ in range(5)]
            assert [(message.body, message.delivery_count) for message in again] == [
                ("0", 1),
                ("1", 1),
                ("2", 0),
                ("3", 0),
                ("4", 0),
            ]
        assert receiver.receive(0.05) is None
    assert left_in(connection, address) == []


def test_outcomes_in_a_transaction_are_rolled_back_with_it(connection: acquit.Connection, address: str) -> None:
    with connection.session("transacted") as session:
        sender, receiver = session.sender(address), session.receiver(address)
        with session.transaction():
            sender.send("x")
        got(receiver).reject()
        session.rollback()
        again = got(receiver)
        assert (again.body, again.delivery_count) == ("x", 1)  # settled: the default-outcome speaks for it
        again.release()
        session.commit()
        once_more = got(receiver)
        assert once_more.delivery_count == 1
        session.commit()
    assert left_in(connection, address) == []


def test_a_receiver_that_is_closed_leaves_its_part_to_the_transaction(
    connection: acquit.Connection, address: str
) -> None:
    with connection.session("transacted") as session:
        with session.transaction():
            for number in range(3):
                session.sender(address).send(str(number))
        for commit in (False, True):
            with session.receiver(address) as receiver:
                assert got(receiver).body == "0"
            with session.sender(f"{address}.out") as sender:
                sender.send("x", wait=False)
            session.commit() if commit else session.rollback()
    assert left_in(connection, address) == ["1", "2"]
    assert left_in(connection, f"{address}.out") == ["x"]


def test_a_deleted_queue_makes_the_commit_fail(connection: acquit.Connection, address: str) -> None:
    question = {"operation": "DELETE", "type": "acquit:queue", "name": f"{address}.out"}
    with connection.session("transacted") as session, connection.session() as other:
        sender, receiver = session.sender(address), session.receiver(address)
        with session.transaction():
            sender.send("x")
        got(receiver)
        with session.sender(f"{address}.out") as out:
            receipt = out.send("y", wait=False)
        answers = other.receiver("$management", target="me")
        other.sender("$management").send(
            Message(message_id="1", reply_to="me", application_properties=question | {"if-unused": False})
        )
        assert got(answers).application_properties["statusCode"] == 204
        with pytest.raises(acquit.TransactionRolledBack) as failed:
            session.commit()
        assert failed.value.condition == "amqp:transaction:rollback"
        with pytest.raises(acquit.TransactionRolledBack):
            receipt.result()
        assert got(receiver).delivery_count == 1


def test_a_broker_that_stops_rolls_the_transaction_back() -> None:
    with acquit.Broker() as broker:
        connection = acquit.connect(broker.url, options=acquit.ConnectOptions(reconnect=None))
        session = connection.session("transacted")
        receipt = session.sender("q").send("x", wait=False)
        receipt.result(LONG)
    with pytest.raises(acquit.TransactionRolledBack) as failed:
        session.commit()
    assert failed.value.txn_id is not None
    with pytest.raises(acquit.TransactionRolledBack):
        receipt.result()
    session.rollback()
    with pytest.raises(acquit.ConnectionFailed):
        session.commit()
    connection.close()


def test_commit_is_for_sessions_with_transactions(connection: acquit.Connection) -> None:
    with connection.session() as session, pytest.raises(acquit.LocalProtocolError, match="this one is in AUTO"):
        session.commit()


def test_transactions_of_tasks(broker: acquit.Broker, address: str) -> None:
    async def main() -> None:
        async with acquit.aio.connect(broker.url) as connection:

            async def work(number: int) -> None:
                async with connection.session("transacted") as session:
                    sender = await session.sender(address)
                    for batch in range(5):
                        async with session.transaction():
                            for _ in range(20):
                                await sender.send(f"{number}.{batch}", wait=False)

            await asyncio.gather(*(work(number) for number in range(4)))
            async with connection.session("transacted") as session:
                receiver = await session.receiver(address)
                seen: list[object] = []
                while len(seen) < 400:
                    async with session.transaction():
                        seen += [message.body for message in await receiver.receive_many(30, LONG)]
                assert all(seen.count(f"{n}.{batch}") == 20 for n in range(4) for batch in range(5))

    asyncio.run(main())


@pytest.mark.parametrize("mode", ["dups_ok", "pre_ack"])
def test_a_listener_in_advance_or_lazily(connection: acquit.Connection, address: str, mode: str) -> None:
    seen: list[tuple[object, int]] = []
    with connection.session(mode) as session:
        sender, receiver = session.sender(address), session.receiver(address)
        for number in range(5):
            sender.send(str(number))

        def handle(message: acquit.ReceivedMessage) -> None:
            seen.append((message.body, message.delivery_count))
            if message.body == "4":
                session.close() if mode == "pre_ack" else receiver.close()
            elif message.body == "1" and message.delivery_count == 0:
                raise ValueError("once")

        receiver.listen(handle)
    expected = [(str(number), 0) for number in range(5)]
    if mode == "pre_ack":
        assert seen == expected
        assert left_in(connection, address) == []
    else:
        assert [entry for entry in seen if entry != ("1", 1)] == expected
