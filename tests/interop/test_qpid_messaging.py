"""Programs of the qpid.messaging API on brokers that we did not write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from acquit.compat.qpid.messaging import (
    RELEASED,
    Connection,
    Disposition,
    Empty,
    InvalidOption,
    LinkError,
    Message,
    Session,
    SessionError,
)
from acquit.compat.qpid.messaging.address import quote
from tests.interop.foreign import ForeignBroker

pytestmark = pytest.mark.interop

LONG = 30.0


@pytest.fixture
def connection(foreign: ForeignBroker) -> Iterator[Connection]:
    with closing(
        Connection.establish(foreign.url, username=foreign.username, password=foreign.password, timeout=LONG)
    ) as connection:
        yield connection


@pytest.mark.parametrize("capacity", [0, 10])
def test_what_is_fetched_is_acknowledged_message_by_message(
    foreign: ForeignBroker, connection: Connection, address: str, capacity: int
) -> None:
    queue = quote(foreign.queue(address))
    session = connection.session()
    sender, receiver = session.sender(queue, durable=True), session.receiver(queue, capacity=capacity)
    for number in range(3):
        sender.send(Message({"number": number}, subject="s", properties={"number": number}))
    messages = [receiver.fetch(LONG) for _ in range(3)]
    assert [message.content for message in messages] == [{"number": number} for number in range(3)]
    assert [(message.subject, message.properties["number"]) for message in messages] == [("s", n) for n in range(3)]
    session.acknowledge(messages[1])
    session.acknowledge(messages[2], Disposition(RELEASED))
    again = receiver.fetch(LONG)
    assert again.content == {"number": 2}
    session.acknowledge(again)
    session.close()  # and one is not acknowledged
    session = connection.session()
    receiver = session.receiver(queue)
    last = receiver.fetch(LONG)
    assert last.content == {"number": 0}
    session.acknowledge()
    with pytest.raises(Empty):
        receiver.fetch(0.2)


def test_requests_and_responses(foreign: ForeignBroker, connection: Connection, address: str) -> None:
    session = connection.session()
    if not foreign.can.temporary_node:
        with pytest.raises((LinkError, SessionError)):
            session.receiver("#")
        return
    queue = quote(foreign.queue(address))
    replies = session.receiver("#")
    session.sender(queue).send(Message("how many?", reply_to=replies.source, correlation_id="1"))
    request = session.receiver(queue).fetch(LONG)
    assert request.content == "how many?" and request.reply_to is not None
    session.sender(request.reply_to).send(Message("three", correlation_id=request.correlation_id))
    answer = replies.fetch(LONG)
    assert (answer.content, answer.correlation_id) == ("three", "1")
    session.acknowledge()


def test_transactions(foreign: ForeignBroker, connection: Connection, address: str) -> None:
    if not foreign.can.transactions:
        with pytest.raises((SessionError, LinkError)):
            connection.session(transactional=True)
        return
    queue, copy = quote(foreign.queue(address)), quote(foreign.queue(f"{address}.copy"))
    plain = connection.session()
    plain.sender(queue, durable=True).send("x")
    session = connection.session(transactional=True)
    receiver, sender = session.receiver(queue), session.sender(copy, durable=True)
    for ends in (session.rollback, session.commit):
        message = receiver.fetch(LONG)
        sender.send(message)
        session.acknowledge(message)
        ends(LONG)
    assert plain.receiver(copy).fetch(LONG).content == "x"
    plain.acknowledge()
    with pytest.raises(Empty):
        receiver.fetch(0.2)


def test_unreliable_links(foreign: ForeignBroker, connection: Connection, address: str) -> None:
    unreliable = quote(foreign.queue(address)) + "; {link: {reliability: unreliable}}"
    session = connection.session()
    sender, receiver = session.sender(unreliable), session.receiver(unreliable)
    sender.send("x")
    assert receiver.fetch(LONG).content == "x"
    session.acknowledge()
    receiver.close()
    with pytest.raises(Empty):
        session.receiver(quote(foreign.queue(address))).fetch(0.2)


def test_only_our_broker_deletes_nodes(foreign: ForeignBroker, connection: Connection, address: str) -> None:
    queue = quote(foreign.queue(address)) + "; {create: always, delete: always}"
    session = connection.session()
    if foreign.name == "acquit":
        session.sender(queue).close()
        return
    with pytest.raises(InvalidOption, match="this broker deletes no nodes"):
        session.sender(queue)


def test_no_queue_is_asserted_to_be_a_topic(foreign: ForeignBroker, connection: Connection, address: str) -> None:
    """Neither by brokers that know it, nor by those that repeat what they are asked for."""
    queue = quote(foreign.queue(address))
    connection.session().sender(queue).send("work")
    # In this order: to Artemis a sender to a topic makes one there, beside the queue.
    for made in (Session.receiver, Session.sender):
        with pytest.raises(LinkError):
            made(connection.session(), f"{queue}; {{assert: always, node: {{type: topic}}}}", capacity=10)
    assert connection.session().receiver(queue).fetch(LONG).content == "work"


def test_topics(foreign: ForeignBroker, connection: Connection, address: str) -> None:
    if not foreign.can.topic:
        return
    topic = quote(foreign.topic(address)) + "; {node: {type: topic}}"
    session = connection.session()
    receivers = [session.receiver(topic), session.receiver(topic, capacity=5)]
    session.sender(topic).send("to all")
    assert [receiver.fetch(LONG).content for receiver in receivers] == ["to all", "to all"]
    assert session.unacked == []  # unreliable, as ever


def test_durable_subscriptions(foreign: ForeignBroker, connection: Connection, address: str) -> None:
    if not (foreign.can.topic and foreign.can.shared_subscription):
        return
    name = quote(foreign.topic(address))
    source = f"{name}; {{node: {{type: topic}}, link: {{name: '{address}', durable: True}}}}"
    connection.session().receiver(source).close()
    session = connection.session()
    session.sender(f"{name}; {{node: {{type: topic}}}}", durable=True).send("while nobody received")
    assert session.receiver(source).fetch(LONG).content == "while nobody received"
    session.acknowledge()
