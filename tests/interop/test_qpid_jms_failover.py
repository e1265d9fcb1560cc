"""Qpid JMS over kill -9 of the broker and its return on the same port, by a failover URI; and without one."""

from __future__ import annotations

import pytest

from acquit.cli.connecting import BrokerAt
from acquit.cli.management import management
from tests.interop.conftest import Look, MortalServer, wait_for
from tests.interop.qpid_jms import (
    AUTO,
    CLIENT,
    INDIVIDUAL,
    NON_PERSISTENT,
    Jms,
    JmsError,
    Session,
    counts,
    texts,
)

pytestmark = pytest.mark.interop

QUEUE = "queue:q"


def entered(mortal: MortalServer, at_least: int) -> None:
    """Wait until the queue was sent so many."""
    with management(BrokerAt((mortal.url,)), 10.0) as node:
        look = Look(node)
        wait_for(lambda: (found := look("q"), int(str(found["entered"])) >= at_least), f"{at_least} messages")


def on_the_disk(session: Session) -> None:
    """What this connection has said before is: the journal is in order, and so is a connection."""
    session.send("queue:barrier", "x")


@pytest.mark.promise("durable")
def test_sends_go_on_and_nothing_is_lost(jms: Jms, mortal: MortalServer) -> None:
    names = [f"m{number:04}" for number in range(600)]
    session = jms.connect(mortal.failover_url).session()
    sending = session.producer(QUEUE).begin_send(*names)
    entered(mortal, 100)
    mortal.kill()
    assert not sending.done, "it was all sent before the kill"
    mortal.restart()
    assert len(sending.result()) == len(names)
    arrived = texts(session.consumer(QUEUE).rest())
    # The one that was under way when the broker died may have been sent twice.
    assert list(dict.fromkeys(arrived)) == names
    assert len(arrived) <= len(names) + 1


@pytest.mark.promise("durable")
def test_asynchronous_sends_of_several_sessions_lose_nothing(jms: Jms, mortal: MortalServer) -> None:
    connection = jms.connect(mortal.failover_url)
    names = {f"{sender}.{number}" for sender in range(4) for number in range(200)}
    sending = [
        connection.session().producer(QUEUE).begin_send(*(f"{sender}.{number}" for number in range(200)))
        for sender in range(4)
    ]
    entered(mortal, 100)
    mortal.kill_and_restart()
    for pending in sending:
        pending.result()
    assert set(texts(connection.session().consumer(QUEUE).rest())) == names


@pytest.mark.promise("redelivered")
def test_consumer_resumes(jms: Jms, mortal: MortalServer) -> None:
    connection = jms.connect(mortal.failover_url)
    session = connection.session()
    consumer = session.consumer(QUEUE)
    session.send(QUEUE, "before")
    assert texts(consumer.take()) == ["before"]
    on_the_disk(session)
    waiting = consumer.begin_receive()
    mortal.kill_and_restart()
    connection.expect("interrupted")
    connection.expect("restored")
    session.send(QUEUE, "after")
    assert [message["text"] for message in waiting.result()] == ["after"]


@pytest.mark.promise("redelivered")
def test_listener_resumes_and_hears_every_message(jms: Jms, mortal: MortalServer) -> None:
    connection = jms.connect(mortal.failover_url_with("jms.prefetchPolicy.all=10"))
    names = [f"m{number}" for number in range(40)]
    connection.session().send(QUEUE, *names)
    consumer = connection.session(AUTO).consumer(QUEUE)
    consumer.listen()
    heard = [consumer.heard().text for _ in range(5)]
    mortal.kill_and_restart()
    while not set(names) <= set(heard):
        heard.append(consumer.heard().text)


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
def test_acknowledgement_after_the_broker_came_back_is_of_no_effect(jms: Jms, mortal: MortalServer, mode: int) -> None:
    connection = jms.connect(mortal.failover_url)
    session = connection.session(mode)
    session.send(QUEUE, "a", "b")
    consumer = session.consumer(QUEUE)
    received = consumer.take(2)
    mortal.kill_and_restart()
    connection.expect("restored")
    received[1].acknowledge()
    again = consumer.take(2)
    # Whether they count as tried depends on whether the disk heard of it before the kill.
    assert texts(again) == ["a", "b"]
    for message in again:
        message.acknowledge()
    assert consumer.rest() == []


@pytest.mark.promise("answered")
def test_what_was_acknowledged_stays_acknowledged(jms: Jms, mortal: MortalServer) -> None:
    session = jms.connect(mortal.failover_url_with("jms.prefetchPolicy.all=0")).session(INDIVIDUAL)
    session.send(QUEUE, "a", "b", "c")
    consumer = session.consumer(QUEUE)
    for message in consumer.take(2):
        message.acknowledge()
    on_the_disk(session)
    mortal.kill_and_restart()
    assert counts(consumer.take()) == {"c": 1}


def test_consumer_resumes_after_a_broker_that_stopped_in_order(jms: Jms, mortal: MortalServer) -> None:
    connection = jms.connect(mortal.failover_url)
    session = connection.session()
    waiting = session.consumer(QUEUE).begin_receive()
    mortal.stop()
    connection.expect("interrupted")
    mortal.restart()
    session.send(QUEUE, "after")
    assert [message["text"] for message in waiting.result()] == ["after"]


def test_non_persistent_messages_do_not_survive(jms: Jms, mortal: MortalServer) -> None:
    session = jms.connect(mortal.failover_url).session()
    session.send(QUEUE, "volatile", delivery_mode=NON_PERSISTENT)
    session.send(QUEUE, "durable")
    mortal.kill_and_restart()
    assert texts(session.consumer(QUEUE).rest()) == ["durable"]


def test_delayed_messages_survive_with_their_time(jms: Jms, mortal: MortalServer) -> None:
    session = jms.connect(mortal.failover_url).session()
    [sent] = session.send(QUEUE, "soon", delivery_delay=1500)
    session.send(QUEUE, "much later", delivery_delay=600_000)
    mortal.kill_and_restart()
    [arrived] = session.consumer(QUEUE).take()
    assert arrived.text == "soon"
    assert arrived["delivery_time"] == sent["delivery_time"]


def test_priorities_and_order_survive(jms: Jms, mortal: MortalServer) -> None:
    session = jms.connect(mortal.failover_url).session()
    session.send(QUEUE, "4a", "4b")
    session.send(QUEUE, "9a", priority=9)
    session.send(QUEUE, "4c")
    mortal.kill_and_restart()
    assert texts(session.consumer(QUEUE).take(4)) == ["9a", "4a", "4b", "4c"]


def test_first_of_two_hosts_is_away(jms: Jms, mortal: MortalServer) -> None:
    url = f"failover:(amqp://127.0.0.1:1,{mortal.url})?failover.maxReconnectAttempts=5"
    session = jms.connect(url).session()
    session.send(QUEUE, "a")
    assert texts(session.consumer(QUEUE).take()) == ["a"]


def test_without_failover_the_exception_listener_is_told(jms: Jms, mortal: MortalServer) -> None:
    connection = jms.connect(mortal.url)
    session = connection.session()
    consumer = session.consumer(QUEUE)
    waiting = consumer.begin_receive(timeout=60.0)
    mortal.kill()
    connection.expect("exception")
    # With which exception depends on who sees the end of the socket first.
    with pytest.raises(JmsError):
        waiting.result()
    with pytest.raises(JmsError):
        connection.session()
