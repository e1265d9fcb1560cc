"""Qpid JMS and transacted sessions: what commit makes, what rollback undoes, and what a lost connection does."""

from __future__ import annotations

import itertools

import pytest

from acquit.testing import Proxy
from tests.interop.conftest import Look, MortalServer, Server
from tests.interop.qpid_jms import (
    AUTO,
    NON_PERSISTENT,
    ONE_AT_A_TIME,
    TRANSACTED,
    Connection,
    Jms,
    JmsError,
    Received,
    Session,
    counts,
    texts,
)

pytestmark = pytest.mark.interop

QUEUE = "queue:q"
"""On a broker of the test's own."""


@pytest.fixture
def queue(address: str) -> str:
    return f"queue:{address}"


@pytest.fixture
def connection(jms: Jms, server: Server) -> Connection:
    return jms.connect(server.url)


@pytest.fixture
def session(connection: Connection) -> Session:
    """The transacted one."""
    return connection.session(TRANSACTED)


@pytest.fixture
def other(jms: Jms, server: Server) -> Session:
    """A session of another connection, without transactions."""
    return jms.connect(server.url).session(AUTO)


# ---- sends


@pytest.mark.promise("transactions")
def test_sends_are_seen_after_the_commit_only(
    session: Session, other: Session, queue: str, address: str, look: Look
) -> None:
    session.send(queue, "a", "b")
    consumer = other.consumer(queue)
    assert consumer.rest() == []
    session.commit()
    assert texts(consumer.take(2)) == ["a", "b"]
    look.until(address, depth=0, entered=2, accepted=2)


@pytest.mark.promise("transactions")
def test_rolled_back_sends_were_never_there(
    session: Session, other: Session, queue: str, address: str, look: Look
) -> None:
    session.send(queue, "a", "b")
    session.rollback()
    session.send(queue, "c")
    session.commit()
    assert texts(other.consumer(queue).rest()) == ["c"]
    look.until(address, depth=0, entered=1)


@pytest.mark.promise("transactions")
def test_sends_to_several_queues_appear_together(session: Session, other: Session, queue: str) -> None:
    producer = session.producer()
    consumers = [other.consumer(f"{queue}.{number}") for number in range(5)]
    for number in range(5):
        producer.send(f"m{number}", to=f"{queue}.{number}")
    assert [consumer.rest() for consumer in consumers] == [[]] * 5
    session.commit()
    assert [texts(consumer.take()) for consumer in consumers] == [[f"m{number}"] for number in range(5)]


def test_non_persistent_sends_obey_too(session: Session, other: Session, queue: str) -> None:
    consumer = other.consumer(queue)
    session.send(queue, "a", delivery_mode=NON_PERSISTENT)
    session.rollback()
    session.send(queue, "b", delivery_mode=NON_PERSISTENT)
    assert consumer.rest() == []
    session.commit()
    assert texts(consumer.take()) == ["b"]


def test_delivery_delay_runs_from_the_send(session: Session, other: Session, queue: str) -> None:
    [sent] = session.send(queue, "later", delivery_delay=300)
    session.commit()
    [arrived] = other.consumer(queue).take()
    assert arrived["delivery_time"] == sent["delivery_time"]


def test_transaction_of_a_thousand_sends(session: Session, other: Session, queue: str) -> None:
    names = [f"m{number:04}" for number in range(1000)]
    session.send(queue, *names)
    session.commit()
    assert texts(other.consumer(queue).rest()) == names


def test_commit_of_nothing(session: Session) -> None:
    session.commit()
    session.rollback()
    session.commit()


# ---- receives


def test_receives_are_final_after_the_commit(
    connection: Connection, session: Session, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, "a", "b", "c")
    consumer = session.consumer(queue)
    assert counts(consumer.take(2)) == {"a": 1, "b": 1}
    look.until(address, depth=3, accepted=0)
    session.commit()
    look.until(address, depth=1, accepted=2)
    connection.close()
    assert texts(other.consumer(queue).rest()) == ["c"]


@pytest.mark.promise("transactions")
def test_rolled_back_receives_come_again_in_order_with_their_count(
    session: Session, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, *"abcde")
    consumer = session.consumer(queue)
    assert counts(consumer.take(3)) == {"a": 1, "b": 1, "c": 1}
    session.rollback()
    again = counts(consumer.take(5))
    assert list(again) == list("abcde")
    assert {again[text] for text in "abc"} == {2}
    assert {again[text] for text in "de"} == {1}
    session.commit()
    look.until(address, depth=0, accepted=5)


def test_each_rollback_counts(session: Session, other: Session, queue: str) -> None:
    other.send(queue, "a")
    consumer = session.consumer(queue)
    for attempt in range(1, 5):
        assert counts(consumer.take()) == {"a": attempt}
        session.rollback()
    assert counts(consumer.take()) == {"a": 5}
    session.commit()
    assert consumer.rest() == []


def test_rolled_back_too_often_is_dead_lettered(session: Session, other: Session, address: str, look: Look) -> None:
    tried = f"tries.{address}"
    other.send(f"queue:{tried}", "poison", "good")
    consumer = session.consumer(f"queue:{tried}")
    for attempt in (1, 2, 3):
        assert counts(consumer.take()) == {"poison": attempt}
        session.rollback()
    assert counts(consumer.take()) == {"good": 1}
    session.commit()
    look.until(tried, depth=0, dead_lettered=1, accepted=1)


def test_received_in_a_transaction_is_seen_by_nobody_else(session: Session, other: Session, queue: str) -> None:
    other.send(queue, "a")
    consumer = session.consumer(queue)
    consumer.take()
    looking = other.consumer(queue)
    assert looking.rest() == []
    consumer.close()
    session.rollback()
    assert counts(looking.take()) == {"a": 2}


def test_transacted_listener_commits_what_it_heard(
    session: Session, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, "a", "b")
    consumer = session.consumer(queue)
    consumer.listen()
    assert [consumer.heard().text, consumer.heard().text] == ["a", "b"]
    session.commit()
    look.until(address, depth=0, accepted=2)


def test_consumer_closed_before_the_commit(
    session: Session, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, "a", "b")
    consumer = session.consumer(queue)
    consumer.take()
    consumer.close()
    session.commit()
    look.until(address, depth=1, accepted=1)
    assert texts(other.consumer(queue).take()) == ["b"]


def test_consumer_closed_before_the_rollback(session: Session, other: Session, queue: str) -> None:
    other.send(queue, "a", "b")
    consumer = session.consumer(queue)
    consumer.take()
    consumer.close()
    session.rollback()
    again = other.consumer(queue).take(2)
    assert texts(again) == ["a", "b"]
    assert again[0].count == 2


# ---- both


def test_forwarding_is_all_or_nothing(session: Session, other: Session, queue: str, address: str, look: Look) -> None:
    other.send(queue, "a", "b")
    consumer = session.consumer(queue)
    producer = session.producer(f"{queue}.out")
    for received in consumer.take(2):
        producer.send(f"{received.text}!")
    session.rollback()
    for received in consumer.take(2):
        assert received.count == 2
        producer.send(f"{received.text}?")
    session.commit()
    assert texts(other.consumer(f"{queue}.out").rest()) == ["a?", "b?"]
    look.until(address, depth=0, accepted=2)


def test_one_transaction_over_several_queues_both_ways(
    session: Session, other: Session, queue: str, address: str, look: Look
) -> None:
    consumers = []
    for number in range(3):
        other.send(f"{queue}.in{number}", f"m{number}")
        consumers.append(session.consumer(f"{queue}.in{number}"))
    producer = session.producer()
    for number, consumer in enumerate(consumers):
        producer.send(*texts(consumer.take()), to=f"{queue}.out{number}")
    session.commit()
    for number in range(3):
        look.until(f"{address}.in{number}", depth=0, accepted=1)
        look.until(f"{address}.out{number}", depth=1, entered=1)


def test_two_transactions_of_one_connection_do_not_touch(
    connection: Connection, session: Session, other: Session, queue: str
) -> None:
    second = connection.session(TRANSACTED)
    session.send(queue, "first")
    second.send(queue, "second")
    session.rollback()
    second.commit()
    assert texts(other.consumer(queue).rest()) == ["second"]


def test_many_transactions_after_another(
    session: Session, other: Session, queue: str, address: str, look: Look
) -> None:
    consumer = session.consumer(queue)
    for number in range(50):
        session.send(f"{queue}", f"m{number}")
        session.commit()
        assert texts(consumer.take()) == [f"m{number}"]
        session.commit()
    look.until(address, depth=0, accepted=50)


# ---- ends without a commit


@pytest.mark.parametrize("end", ["session", "connection"])
def test_closing_rolls_back(jms: Jms, server: Server, other: Session, queue: str, end: str) -> None:
    connection = jms.connect(server.url, options=ONE_AT_A_TIME)
    session = connection.session(TRANSACTED)
    other.send(queue, "a", "b")
    session.consumer(queue).take()
    session.send(f"{queue}.out", "x")
    (session if end == "session" else connection).close()
    again = other.consumer(queue).take(2)
    assert texts(again) == ["a", "b"]
    assert again[0].count == 2
    assert other.consumer(f"{queue}.out").rest() == []


def test_lost_connection_rolls_back(jms: Jms, proxy: Proxy, other: Session, queue: str) -> None:
    other.send(queue, "a", "b")
    connection = jms.connect(proxy.url)
    session = connection.session(TRANSACTED)
    session.consumer(queue).take()
    session.send(f"{queue}.out", "x")
    proxy.cut()
    connection.expect("exception")
    again = other.consumer(queue).take(2)
    assert texts(again) == ["a", "b"]
    assert again[0].count == 2
    assert other.consumer(f"{queue}.out").rest() == []


def test_connection_lost_over_a_transaction_and_back_fails_the_commit(
    jms: Jms, proxy: Proxy, other: Session, queue: str
) -> None:
    url = f"failover:({proxy.url})?failover.initialReconnectDelay=0&failover.reconnectDelay=20"
    connection = jms.connect(url)
    session = connection.session(TRANSACTED)
    session.send(queue, "x")
    proxy.cut()
    connection.expect("restored")
    with pytest.raises(JmsError, match="^TransactionRolledBackException"):
        session.commit()
    session.send(queue, "y")
    session.commit()
    assert texts(other.consumer(queue).rest()) == ["y"]


def test_session_close_after_a_commit_loses_nothing(session: Session, other: Session, queue: str) -> None:
    session.send(queue, "a")
    session.commit()
    session.send(queue, "b")
    session.close()
    assert texts(other.consumer(queue).rest()) == ["a"]


def test_refused_send_of_a_transaction_is_told_to_the_exception_listener(
    connection: Connection, session: Session
) -> None:
    # Qpid JMS does not wait for what it sends in a transaction.
    session.producer().send("x", to="queue:closed.here")
    assert "closed.here" in connection.expect("exception")["text"]


# ---- over kill -9 of the broker


def test_transaction_that_the_broker_forgot_is_rolled_back(jms: Jms, mortal: MortalServer) -> None:
    connection = jms.connect(mortal.failover_url)
    session = connection.session(TRANSACTED)
    connection.session().send(QUEUE, "a", "b")
    consumer = session.consumer(QUEUE)
    assert counts(consumer.take(2)) == {"a": 1, "b": 1}
    session.send("queue:out", "x")
    mortal.kill_and_restart()
    connection.expect("restored")
    with pytest.raises(JmsError, match="^TransactionRolledBackException"):
        session.commit()
    assert texts(consumer.take(2)) == ["a", "b"]
    session.send("queue:out", "y")
    session.commit()
    assert texts(connection.session().consumer("queue:out").rest()) == ["y"]
    assert consumer.rest() == []


def test_committed_transaction_survives(jms: Jms, mortal: MortalServer) -> None:
    connection = jms.connect(mortal.failover_url)
    connection.session().send(QUEUE, "a")
    session = connection.session(TRANSACTED)
    session.consumer(QUEUE).take()
    session.send("queue:out", "x", "y")
    session.commit()
    mortal.kill_and_restart()
    looking = connection.session()
    assert texts(looking.consumer("queue:out").rest()) == ["x", "y"]
    assert looking.consumer(QUEUE).rest() == []


def test_forwarding_over_kills_neither_loses_nor_doubles(jms: Jms, mortal: MortalServer) -> None:
    # With messages sent ahead Qpid JMS doubles some itself: when it rolls back what a lost connection left in doubt, it
    # releases those it has not handed out, and hands them out all the same.
    connection = jms.connect(mortal.failover_url_with(ONE_AT_A_TIME))
    names = [f"m{number:03}" for number in range(100)]
    connection.session().send(QUEUE, *names)
    session = connection.session(TRANSACTED)
    consumer, producer = session.consumer(QUEUE), session.producer("queue:out")
    failed = 0
    for turn in itertools.count():
        taken = texts([Received(jms, message) for message in consumer.begin_receive(10, 0.2).result()])
        if turn == 2:
            mortal.kill_and_restart()
        sending = producer.begin_send(*taken)
        if turn == 4:
            mortal.kill_and_restart()
        sending.result()
        committing = jms.begin("commit", session=session.handle)
        if turn in (6, 8, 10):
            mortal.kill_and_restart()
        try:
            committing.result()
        except JmsError:
            failed += 1
        else:
            if not taken:
                break
    assert failed >= 2, "a kill over an open transaction was not noticed"
    assert sorted(texts(connection.session().consumer("queue:out").rest())) == names


def test_commit_while_the_broker_is_away_fails(jms: Jms, mortal: MortalServer) -> None:
    connection = jms.connect(mortal.failover_url)
    session = connection.session(TRANSACTED)
    session.send(QUEUE, "x")
    mortal.kill()
    connection.expect("interrupted")
    committing = jms.begin("commit", session=session.handle)
    mortal.restart()
    with pytest.raises(JmsError, match="^TransactionRolledBackException"):
        committing.result()
    session.send(QUEUE, "y")
    session.commit()
    assert texts(connection.session().consumer(QUEUE).rest()) == ["y"]
