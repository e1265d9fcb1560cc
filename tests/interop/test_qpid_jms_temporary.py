"""Qpid JMS and temporary queues and topics: request and reply, and how they go."""

from __future__ import annotations

import pytest

from acquit.testing import Proxy
from tests.interop.conftest import Look, MortalServer, Server, wait_for
from tests.interop.qpid_jms import Connection, Jms, JmsError, Session, texts

pytestmark = pytest.mark.interop


@pytest.fixture
def queue(address: str) -> str:
    return f"queue:{address}"


@pytest.fixture
def connection(jms: Jms, server: Server) -> Connection:
    return jms.connect(server.url)


@pytest.fixture
def session(connection: Connection) -> Session:
    return connection.session()


@pytest.fixture
def other(jms: Jms, server: Server) -> Session:
    return jms.connect(server.url).session()


def gone(look: Look, queue: str) -> None:
    wait_for(lambda: ({"names": look.names()}, not look.is_there(queue)), f"{queue} is gone")


def test_request_and_reply_over_a_temporary_queue(session: Session, other: Session, queue: str) -> None:
    replies = session.temporary_queue()
    waiting = session.consumer(replies)
    serving = other.consumer(queue)
    [sent] = session.send(queue, "ping", reply_to=replies)
    [request] = serving.take()
    assert request["reply_to"] == replies.name
    other.send(request.reply_to, {"text": "pong", "correlation_id": request["id"]})
    [reply] = waiting.take()
    assert (reply.text, reply["correlation_id"]) == ("pong", sent["id"])


def test_reply_by_an_anonymous_producer(session: Session, other: Session, queue: str) -> None:
    replies = session.temporary_queue()
    waiting = session.consumer(replies)
    serving, producer = other.consumer(queue), other.producer()
    for text in ("one", "two"):
        session.send(queue, text, reply_to=replies)
        [request] = serving.take()
        producer.send(f"re: {request.text}", to=request.reply_to)
        assert texts(waiting.take()) == [f"re: {text}"]


def test_request_and_reply_over_a_temporary_topic(session: Session, other: Session, queue: str) -> None:
    replies = session.temporary_topic()
    waiting = [session.consumer(replies), session.consumer(replies)]
    serving = other.consumer(queue)
    session.send(queue, "ping", reply_to=replies)
    [request] = serving.take()
    assert request["reply_to"] == replies.name
    other.send(request.reply_to, "pong")
    assert [texts(consumer.take()) for consumer in waiting] == [["pong"], ["pong"]]


def test_temporary_queues_have_names_of_their_own(session: Session, other: Session) -> None:
    names = [made.name for made in (session.temporary_queue(), session.temporary_queue(), other.temporary_queue())]
    assert len(set(names)) == 3


def test_temporary_queue_keeps_messages_until_it_is_consumed(session: Session) -> None:
    temporary = session.temporary_queue()
    session.send(temporary, "a", "b")
    assert texts(session.consumer(temporary).take(2)) == ["a", "b"]


def test_temporary_queue_can_be_browsed(session: Session) -> None:
    temporary = session.temporary_queue()
    session.send(temporary, "a", "b")
    assert texts(session.browse(temporary)) == ["a", "b"]


def test_any_session_of_the_connection_may_consume(connection: Connection, session: Session) -> None:
    temporary = session.temporary_queue()
    session.send(temporary, "a")
    assert texts(connection.session().consumer(temporary).take()) == ["a"]


def test_temporary_queue_outlives_its_session(connection: Connection, session: Session) -> None:
    temporary = session.temporary_queue()
    session.close()
    second = connection.session()
    second.send(temporary, "a")
    assert texts(second.consumer(temporary).take()) == ["a"]


def test_only_its_own_connection_may_consume(session: Session, other: Session, queue: str) -> None:
    temporary = session.temporary_queue()
    session.send(queue, "ping", reply_to=temporary)
    [request] = other.consumer(queue).take()
    with pytest.raises(JmsError, match="^InvalidDestinationException"):
        other.consumer(request.reply_to)


def test_deleted_temporary_queue_is_gone(session: Session, other: Session, look: Look) -> None:
    temporary = session.temporary_queue()
    other.send(f"queue:{temporary.address}", "a")
    assert look.is_there(temporary.address)
    temporary.delete()
    gone(look, temporary.address)
    with pytest.raises(JmsError):
        session.consumer(temporary)
    with pytest.raises(JmsError, match="^InvalidDestinationException"):
        other.send(temporary, "to nobody")


def test_temporary_queue_with_a_consumer_is_not_deleted(session: Session) -> None:
    temporary = session.temporary_queue()
    consumer = session.consumer(temporary)
    with pytest.raises(JmsError):
        temporary.delete()
    session.send(temporary, "a")
    assert texts(consumer.take()) == ["a"]
    consumer.close()
    temporary.delete()


def test_temporary_topic_can_be_deleted(session: Session, other: Session) -> None:
    temporary = session.temporary_topic()
    temporary.delete()
    with pytest.raises(JmsError):
        other.send(temporary, "to nobody")


def test_closed_connection_takes_its_temporary_queues_along(
    connection: Connection, session: Session, look: Look
) -> None:
    temporary = session.temporary_queue()
    session.send(temporary, "a")
    assert look.is_there(temporary.address)
    connection.close()
    gone(look, temporary.address)


def test_lost_connection_takes_its_temporary_queues_along(jms: Jms, proxy: Proxy, look: Look) -> None:
    connection = jms.connect(proxy.url)
    session = connection.session()
    temporary = session.temporary_queue()
    session.send(temporary, "a")
    assert look.is_there(temporary.address)
    proxy.cut()
    gone(look, temporary.address)


def test_reply_to_somebody_who_left_is_refused(
    connection: Connection, session: Session, other: Session, queue: str, look: Look
) -> None:
    replies = session.temporary_queue()
    session.send(queue, "ping", reply_to=replies)
    [request] = other.consumer(queue).take()
    connection.close()
    gone(look, replies.address)
    with pytest.raises(JmsError, match="^InvalidDestinationException"):
        other.send(request.reply_to, "pong")
    # An anonymous producer hears it of the one message, and lives on.
    producer = other.producer()
    with pytest.raises(JmsError):
        producer.send("pong", to=request.reply_to)
    producer.send("something else", to=queue)


def test_temporary_queue_is_there_again(jms: Jms, mortal: MortalServer) -> None:
    connection = jms.connect(mortal.failover_url)
    session = connection.session()
    temporary = session.temporary_queue()
    consumer = session.consumer(temporary)
    mortal.kill_and_restart()
    connection.expect("restored")
    session.send(temporary, "after")
    assert texts(consumer.take()) == ["after"]
