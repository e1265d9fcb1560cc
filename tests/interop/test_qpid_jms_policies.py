"""Qpid JMS under the policies of addresses: see CONFIG in conftest for what `ring.#` and the others are."""

from __future__ import annotations

import pytest

from tests.interop.conftest import Look, Server
from tests.interop.qpid_jms import (
    INDIVIDUAL,
    ONE_AT_A_TIME,
    TRANSACTED,
    Connection,
    Jms,
    JmsError,
    Session,
    counts,
    texts,
)

pytestmark = pytest.mark.interop


@pytest.fixture
def connection(jms: Jms, server: Server) -> Connection:
    return jms.connect(server.url)


@pytest.fixture
def session(connection: Connection) -> Session:
    return connection.session()


@pytest.fixture
def other(jms: Jms, server: Server) -> Session:
    return jms.connect(server.url).session()


# ---- what fails, and what dies


def test_dead_letter_arrives_with_its_body_and_properties(
    connection: Connection, session: Session, address: str
) -> None:
    queue = f"queue:mortal.{address}"
    [sent] = session.send(queue, {"text": "poison", "properties": {"order": 7}}, ttl=600_000)
    failing = connection.session(TRANSACTED)
    consumer = failing.consumer(queue)
    for attempt in (1, 2):
        assert counts(consumer.take()) == {"poison": attempt}
        failing.rollback()
    [letter] = session.consumer("queue:graves").take()
    assert (letter.text, letter.properties["order"], letter["id"]) == ("poison", 7, sent["id"])
    assert (letter.count, letter["expiration"]) == (1, 0)


def test_expired_message_arrives_at_the_expiry_address(session: Session, address: str) -> None:
    consumer = session.consumer("queue:ashes")
    session.send(f"queue:mortal.{address}", {"text": "late", "properties": {"order": 8}}, ttl=50)
    [expired] = consumer.take()
    assert (expired.text, expired.properties["order"], expired["expiration"]) == ("late", 8, 0)


def test_redelivery_delay_lets_others_go_first(connection: Connection, session: Session, address: str) -> None:
    queue = f"queue:later.{address}"
    session.send(queue, "a", "b")
    failing = connection.session(TRANSACTED)
    consumer = failing.consumer(queue)
    assert texts(consumer.take()) == ["a"]
    failing.rollback()
    again = consumer.take(2)
    assert list(counts(again).items()) == [("b", 1), ("a", 2)]
    failing.commit()


def test_lock_that_runs_out_gives_the_message_to_another(
    jms: Jms, server: Server, session: Session, address: str, look: Look
) -> None:
    queue = f"locked.{address}"
    session.send(f"queue:{queue}", "a")
    slow = jms.connect(server.url, options=ONE_AT_A_TIME).session(INDIVIDUAL)
    [held] = slow.consumer(f"queue:{queue}").take()
    quick = session.consumer(f"queue:{queue}")
    assert counts(quick.take()) == {"a": 2}
    held.acknowledge()
    look.until(queue, depth=0, accepted=1)


# ---- what is kept


def test_ring_keeps_the_newest(session: Session, address: str, look: Look) -> None:
    session.send(f"queue:ring.{address}", *"abcde")
    assert texts(session.consumer(f"queue:ring.{address}").rest()) == ["c", "d", "e"]
    look.until(f"ring.{address}", depth=0, displaced=2)


def test_last_value_keeps_the_newest_of_each(session: Session, address: str) -> None:
    for key, text in (("x", "x1"), ("y", "y1"), ("x", "x2"), ("x", "x3")):
        session.send(f"queue:last.{address}", {"text": text, "properties": {"_AMQ_LVQ_NAME": key}})
    assert sorted(texts(session.consumer(f"queue:last.{address}").rest())) == ["x3", "y1"]


def test_full_queue_that_rejects(session: Session, address: str) -> None:
    producer = session.producer(f"queue:reject.{address}")
    producer.send("a", "b", "c")
    with pytest.raises(JmsError, match="^ResourceAllocationException"):
        producer.send("d")
    consumer = session.consumer(f"queue:reject.{address}")
    assert texts(consumer.take(3)) == ["a", "b", "c"]
    producer.send("e")
    assert texts(consumer.take()) == ["e"]


def test_refused_asynchronous_send_is_told_to_its_listener(jms: Jms, session: Session, address: str) -> None:
    producer = session.producer(f"queue:reject.{address}")
    sent = producer.send("a", "b", "c", "d", listen=True)
    assert jms.expect("refused", producer=producer.handle)["id"] == sent[3]["id"]


def test_full_queue_that_blocks(session: Session, other: Session, address: str, look: Look) -> None:
    names = [f"m{number:02}" for number in range(40)]
    sending = session.producer(f"queue:block.{address}").begin_send(*names)
    look.until(f"block.{address}", depth=10)
    assert not sending.done
    assert texts(other.consumer(f"queue:block.{address}").take(40)) == names
    sending.result()


def test_non_destructive_queue_is_read_by_everybody(session: Session, other: Session, address: str, look: Look) -> None:
    session.send(f"queue:kept.{address}", "a", "b")
    for reader in (session, other, session):
        assert texts(reader.consumer(f"queue:kept.{address}").rest()) == ["a", "b"]
    look.until(f"kept.{address}", depth=2)


def test_same_duplicate_id_posts_once(session: Session, address: str, look: Look) -> None:
    message = {"text": "a", "properties": {"_AMQ_DUPL_ID": "order-1"}}
    for _ in range(3):
        session.send(f"queue:{address}", message)
    session.send(f"queue:{address}", {"text": "b", "properties": {"_AMQ_DUPL_ID": "order-2"}})
    assert texts(session.consumer(f"queue:{address}").rest()) == ["a", "b"]
    look.until(address, entered=2)


# ---- who is served


def test_each_group_goes_to_one_consumer(connection: Connection, other: Session, address: str) -> None:
    consumers = [connection.session().consumer(f"queue:{address}") for _ in range(3)]
    for number in range(10):
        for group in "pqrs":
            message = {"text": f"{group}{number}", "properties": {"JMSXGroupID": group}}
            other.send(f"queue:{address}", message)
    seen: dict[str, list[str]] = {}
    for at, consumer in enumerate(consumers):
        for text in texts(consumer.rest()):
            seen.setdefault(f"{text[0]} at {at}", []).append(text)
    assert sorted(key[0] for key in seen) == list("pqrs")
    assert all(texts == [f"{key[0]}{number}" for number in range(10)] for key, texts in seen.items())


def test_exclusive_queue_refuses_a_second_consumer(session: Session, other: Session, address: str) -> None:
    first = session.consumer(f"queue:exclusive.{address}")
    with pytest.raises(JmsError, match="resource-locked"):
        other.consumer(f"queue:exclusive.{address}")
    first.close()
    other.consumer(f"queue:exclusive.{address}")


def test_single_active_consumer_is_followed_by_the_next(session: Session, other: Session, address: str) -> None:
    queue = f"queue:active.{address}"
    active, waiting = session.consumer(queue), other.consumer(queue)
    session.send(queue, "a", "b")
    assert waiting.rest() == []
    assert texts(active.take(2)) == ["a", "b"]
    active.close()
    session.send(queue, "c")
    assert texts(waiting.take()) == ["c"]


def test_topic_message_that_nobody_wants_is_released_where_the_address_says_so(session: Session, address: str) -> None:
    with pytest.raises(JmsError, match="released"):
        session.send(f"topic:routed.{address}", "a")
    consumer = session.consumer(f"topic:routed.{address}")
    session.send(f"topic:routed.{address}", "b")
    assert texts(consumer.take()) == ["b"]
