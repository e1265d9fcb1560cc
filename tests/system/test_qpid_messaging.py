"""Programs of the qpid.messaging API against the broker: what they were promised, seen from outside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import acquit
from acquit.compat.qpid.messaging import (
    REJECTED,
    RELEASED,
    Connection,
    Disposition,
    Empty,
    Message,
    Session,
)

LONG = 30.0


@pytest.fixture
def url(broker: acquit.Broker) -> str:
    return f"127.0.0.1:{broker.port}"


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    connection = Connection.establish(url, timeout=LONG)
    yield connection
    connection.close()


@pytest.fixture
def session(connection: Connection) -> Session:
    return connection.session()


def acquired(broker: acquit.Broker, address: str) -> int:
    queue = broker.inspect().queue(address)
    assert queue is not None
    return queue.acquired


def test_hello(session: Session, address: str) -> None:
    sender, receiver = session.sender(address), session.receiver(address)
    sender.send(Message("Hello world!"))
    message = receiver.fetch(LONG)
    assert message.content == "Hello world!"
    session.acknowledge()
    with pytest.raises(Empty):
        receiver.fetch(0)


def test_acknowledge_means_one_message_or_all(broker: acquit.Broker, session: Session, address: str) -> None:
    sender, receiver = session.sender(address), session.receiver(address)
    for number in range(4):
        sender.send(str(number))
    messages = [receiver.fetch(0) for _ in range(4)]
    assert acquired(broker, address) == 4
    session.acknowledge(messages[2])
    assert acquired(broker, address) == 3
    assert session.unacked == [messages[0], messages[1], messages[3]]
    session.acknowledge()
    assert acquired(broker, address) == 0 and session.unacked == []
    with pytest.raises(Empty):
        receiver.fetch(0)


def test_released_messages_come_again_and_rejected_ones_do_not(session: Session, address: str) -> None:
    sender, receiver = session.sender(address), session.receiver(address)
    sender.send("x")
    message = receiver.fetch(LONG)
    assert not message.redelivered
    session.acknowledge(message, Disposition(RELEASED))
    message = receiver.fetch(LONG)
    assert message.redelivered
    session.acknowledge(message, Disposition(REJECTED, code="orders:bad", text="no such customer"))
    with pytest.raises(Empty):
        receiver.fetch(0)
