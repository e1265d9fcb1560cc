"""Qpid JMS and acknowledgement: what each session mode settles, and what comes again after close, recover and loss.

JMSXDeliveryCount of a first delivery is 1. Qpid JMS asks for the default outcome modified(delivery-failed): whatever it
was sent and did not settle has been attempted once more when its link ends.
"""

from __future__ import annotations

import pytest

from acquit.testing import Proxy
from tests.interop.conftest import Look, Server
from tests.interop.qpid_jms import (
    ACCEPTED,
    AUTO,
    CLIENT,
    DUPS_OK,
    FAILED,
    INDIVIDUAL,
    NO_ACK,
    ONE_AT_A_TIME,
    PRE_ACK,
    REJECTED,
    RELEASED,
    UNDELIVERABLE,
    Connection,
    Jms,
    Session,
    counts,
    texts,
)

pytestmark = pytest.mark.interop


@pytest.fixture
def queue(address: str) -> str:
    return f"queue:{address}"


@pytest.fixture
def other(jms: Jms, server: Server) -> Session:
    """A session of another connection, that posts before and looks after."""
    return jms.connect(server.url).session()


def left(other: Session, queue: str, count: int) -> dict[str, int]:
    """What another consumer is given: text and delivery count of each, in order."""
    return counts(other.consumer(queue).take(count))


# ---- AUTO


def test_auto_acknowledges_what_receive_returned(
    jms: Jms, server: Server, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, "a", "b", "c")
    session = jms.connect(server.url, options=ONE_AT_A_TIME).session(AUTO)
    assert texts(session.consumer(queue).take(2)) == ["a", "b"]
    session.close()
    look.until(address, depth=1, accepted=2)
    assert left(other, queue, 1) == {"c": 1}


def test_auto_leaves_nothing_to_a_lost_connection(
    jms: Jms, proxy: Proxy, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, "a", "b")
    connection = jms.connect(proxy.url, options=ONE_AT_A_TIME)
    connection.session(AUTO).consumer(queue).take(2)
    look.until(address, accepted=2)
    proxy.cut()
    connection.expect("exception")
    look.until(address, depth=0)


def test_auto_listener_that_fails_gets_the_message_again(
    jms: Jms, server: Server, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, "a")
    consumer = jms.connect(server.url).session(AUTO).consumer(queue)
    consumer.listen(failures=2)
    # Qpid JMS releases the message of a listener that failed, which is no attempt (3.4.4).
    assert [(heard.text, heard.count) for heard in (consumer.heard(), consumer.heard(), consumer.heard())] == [
        ("a", 1)
    ] * 3
    look.until(address, depth=0, accepted=1)


# ---- CLIENT


def test_client_acknowledges_all_that_the_session_was_given(
    jms: Jms, server: Server, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, "a", "b", "c")
    other.send(f"{queue}.2", "x")
    session = jms.connect(server.url).session(CLIENT)
    second = session.consumer(f"{queue}.2").take()
    first = session.consumer(queue).take(3)
    first[1].acknowledge()
    assert texts(second + first) == ["x", "a", "b", "c"]
    look.until(address, depth=0, accepted=3)
    look.until(f"{address}.2", depth=0, accepted=1)


@pytest.mark.parametrize("end", ["session", "connection"])
def test_client_close_without_acknowledging_gives_it_back_with_its_count(
    jms: Jms, server: Server, other: Session, queue: str, end: str
) -> None:
    other.send(queue, "a", "b", "c")
    connection = jms.connect(server.url, options=ONE_AT_A_TIME)
    session = connection.session(CLIENT)
    session.consumer(queue).take(2)
    (session if end == "session" else connection).close()
    assert left(other, queue, 3) == {"a": 2, "b": 2, "c": 1}


@pytest.mark.promise("attempts")
def test_client_lost_connection_gives_it_back_with_its_count(
    jms: Jms, proxy: Proxy, other: Session, queue: str
) -> None:
    other.send(queue, "a", "b", "c")
    connection = jms.connect(proxy.url, options=ONE_AT_A_TIME)
    consumer = connection.session(CLIENT).consumer(queue)
    consumer.take(1)[0].acknowledge()
    consumer.take(1)
    proxy.cut()
    connection.expect("exception")
    assert left(other, queue, 2) == {"b": 2, "c": 1}


def test_client_recover_delivers_again_in_order(
    jms: Jms, server: Server, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, "a", "b", "c")
    session = jms.connect(server.url).session(CLIENT)
    consumer = session.consumer(queue)
    assert counts(consumer.take(2)) == {"a": 1, "b": 1}
    session.recover()
    again = consumer.take(3)
    assert counts(again) == {"a": 2, "b": 2, "c": 1}
    session.recover()
    again = consumer.take(3)
    assert counts(again) == {"a": 3, "b": 3, "c": 2}
    again[-1].acknowledge()
    look.until(address, depth=0, accepted=3)


def test_client_consumer_close_keeps_what_was_received_for_the_session(
    jms: Jms, server: Server, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, "a", "b")
    session = jms.connect(server.url, options=ONE_AT_A_TIME).session(CLIENT)
    consumer = session.consumer(queue)
    [received] = consumer.take()
    consumer.close()
    look.until(address, depth=2, acquired=1)
    received.acknowledge()
    look.until(address, depth=1, accepted=1)
    assert left(other, queue, 1) == {"b": 1}


@pytest.mark.promise("one-holder")
def test_client_messages_in_hand_are_seen_by_nobody_else(
    jms: Jms, server: Server, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, "a")
    session = jms.connect(server.url).session(CLIENT)
    [received] = session.consumer(queue).take()
    assert other.consumer(queue).rest() == []
    look.until(address, depth=1, acquired=1)
    received.acknowledge()
    look.until(address, depth=0)


def test_client_redelivery_policy_rejects_what_was_recovered_too_often(
    jms: Jms, server: Server, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, "poison", "good")
    options = "jms.redeliveryPolicy.maxRedeliveries=1&jms.redeliveryPolicy.outcome=2"
    session = jms.connect(server.url, options=options).session(CLIENT)
    consumer = session.consumer(queue)
    assert counts(consumer.take()) == {"poison": 1}
    session.recover()
    assert counts(consumer.take()) == {"poison": 2}
    session.recover()
    assert counts(consumer.take()) == {"good": 1}
    look.until(address, depth=1, dead_lettered=1)


@pytest.mark.promise("attempts")
def test_message_that_fails_too_often_is_dead_lettered(
    jms: Jms, server: Server, other: Session, address: str, look: Look
) -> None:
    tried = f"tries.{address}"
    other.send(f"queue:{tried}", "poison")
    session = jms.connect(server.url).session(INDIVIDUAL)
    consumer = session.consumer(f"queue:{tried}")
    for attempt in (1, 2, 3):
        [received] = consumer.take()
        assert received.count == attempt
        received.acknowledge(FAILED)
    look.until(tried, depth=0, dead_lettered=1)


# ---- DUPS_OK


def test_dups_ok_acknowledges_at_the_latest_when_it_closes(
    jms: Jms, server: Server, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, *"abcde")
    session = jms.connect(server.url).session(DUPS_OK)
    session.consumer(queue).take(5)
    session.close()
    look.until(address, depth=0, accepted=5)


def test_dups_ok_messages_lost_with_the_connection_come_again_or_not_at_all(
    jms: Jms, proxy: Proxy, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, *"abcde")
    connection = jms.connect(proxy.url)
    connection.session(DUPS_OK).consumer(queue).take(5)
    proxy.cut()
    connection.expect("exception")
    look.until(address, acquired=0)
    again = counts(other.consumer(queue).rest())
    # What was not acknowledged in time comes again, marked as such; nothing comes as if for the first time.
    assert set(again.values()) <= {2}


# ---- 100 and 257


@pytest.mark.parametrize("mode", [PRE_ACK, NO_ACK])
def test_presettled_modes_give_nothing_back(
    jms: Jms, server: Server, other: Session, queue: str, address: str, mode: int, look: Look
) -> None:
    other.send(queue, "a", "b")
    session = jms.connect(server.url).session(mode)
    assert counts(session.consumer(queue).take(2)) == {"a": 1, "b": 1}
    look.until(address, depth=0, consumed=2, accepted=0)
    session.close()
    assert other.consumer(queue).rest() == []


@pytest.mark.parametrize("mode", [PRE_ACK, NO_ACK])
def test_presettled_modes_consume_what_is_sent_ahead(
    jms: Jms, server: Server, other: Session, queue: str, address: str, mode: int, look: Look
) -> None:
    other.send(queue, "a", "b", "c", "d")
    session = jms.connect(server.url, options="jms.prefetchPolicy.all=2").session(mode)
    session.consumer(queue)
    look.until(address, depth=2, consumed=2)
    session.close()
    assert left(other, queue, 2) == {"c": 1, "d": 1}


@pytest.mark.parametrize("mode", [PRE_ACK, NO_ACK])
def test_presettled_modes_lose_nothing_more_with_the_connection(
    jms: Jms, proxy: Proxy, other: Session, queue: str, address: str, mode: int, look: Look
) -> None:
    other.send(queue, "a", "b")
    connection = jms.connect(proxy.url, options=ONE_AT_A_TIME)
    assert texts(connection.session(mode).consumer(queue).take(1)) == ["a"]
    proxy.cut()
    connection.expect("exception")
    assert left(other, queue, 1) == {"b": 1}
    look.until(address, depth=0, consumed=1)


# ---- INDIVIDUAL


def test_individual_acknowledges_one_message_alone(
    jms: Jms, server: Server, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, "a", "b", "c")
    connection = jms.connect(server.url)
    received = connection.session(INDIVIDUAL).consumer(queue).take(3)
    received[1].acknowledge()
    look.until(address, depth=2, accepted=1)
    connection.close()
    # In this mode it settles nothing as it closes: what was handed out looks to the broker as what was only prefetched.
    assert left(other, queue, 2) == {"a": 1, "c": 1}


def test_individual_lost_connection_gives_back_what_was_not_acknowledged(
    jms: Jms, proxy: Proxy, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, "a", "b", "c")
    connection = jms.connect(proxy.url)
    received = connection.session(INDIVIDUAL).consumer(queue).take(3)
    received[2].acknowledge()
    look.until(address, accepted=1)
    proxy.cut()
    connection.expect("exception")
    assert left(other, queue, 2) == {"a": 2, "b": 2}


def test_individual_recover_delivers_again_what_is_open(
    jms: Jms, server: Server, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, "a", "b", "c")
    session = jms.connect(server.url).session(INDIVIDUAL)
    consumer = session.consumer(queue)
    consumer.take(3)[1].acknowledge()
    session.recover()
    again = consumer.take(2)
    assert counts(again) == {"a": 2, "c": 2}
    for message in again:
        message.acknowledge()
    look.until(address, depth=0, accepted=3)


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
@pytest.mark.parametrize(
    ("outcome", "becomes", "again"),
    [
        (ACCEPTED, {"depth": 0, "accepted": 1}, []),
        (REJECTED, {"depth": 0, "dead_lettered": 1}, []),
        (RELEASED, {"depth": 1}, [1]),
        (FAILED, {"depth": 1}, [2]),
        (UNDELIVERABLE, {"depth": 1}, [2]),
    ],
    ids=["accepted", "rejected", "released", "failed", "undeliverable"],
)
def test_every_outcome_by_its_message_property(
    jms: Jms,
    server: Server,
    other: Session,
    queue: str,
    address: str,
    look: Look,
    mode: int,
    outcome: int,
    becomes: dict[str, object],
    again: list[int],
) -> None:
    other.send(queue, "a")
    session = jms.connect(server.url, options=ONE_AT_A_TIME).session(mode)
    [received] = session.consumer(queue).take()
    received.acknowledge(outcome)
    look.until(address, acquired=0, **becomes)
    assert [message.count for message in other.consumer(queue).rest()] == again


def test_undeliverable_here_never_comes_back_to_this_consumer(
    jms: Jms, server: Server, other: Session, queue: str, address: str, look: Look
) -> None:
    other.send(queue, "a", "b")
    consumer = jms.connect(server.url, options=ONE_AT_A_TIME).session(INDIVIDUAL).consumer(queue)
    [received] = consumer.take()
    received.acknowledge(UNDELIVERABLE)
    assert texts(consumer.rest()) == ["b"]
    assert left(other, queue, 1) == {"a": 2}


# ---- what was sent ahead and never looked at


@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL])
def test_closing_a_consumer_again_and_again_dead_letters_nothing(
    jms: Jms, server: Server, other: Session, queue: str, address: str, mode: int, look: Look
) -> None:
    names = [f"m{number}" for number in range(20)]
    other.send(queue, *names)
    session = jms.connect(server.url).session(mode)
    for _ in range(12):
        consumer = session.consumer(queue)
        look.until(address, acquired=20)
        consumer.close()
    look.until(address, depth=20, acquired=0, dead_lettered=0)
    assert texts(other.consumer(queue).take(20)) == names


def test_two_consumers_share_a_queue(jms: Jms, server: Server, other: Session, queue: str) -> None:
    session = jms.connect(server.url, options="jms.prefetchPolicy.all=1").session()
    one, two = session.consumer(queue), session.consumer(queue)
    other.send(queue, "a", "b")
    assert sorted(texts(one.take() + two.take())) == ["a", "b"]


def test_connection_used_by_two_sessions_of_different_modes(
    jms: Jms, server: Server, other: Session, queue: str
) -> None:
    connection: Connection = jms.connect(server.url, options=ONE_AT_A_TIME)
    other.send(queue, "a", "b")
    connection.session(CLIENT).consumer(queue).take()
    auto = connection.session(AUTO)
    assert texts(auto.consumer(queue).take()) == ["b"]
    connection.close()
    assert left(other, queue, 1) == {"a": 2}
