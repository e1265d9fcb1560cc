"""Qpid JMS and topics: subscriptions of every kind, with and without a client id, and how they end."""

from __future__ import annotations

import pytest

from acquit.testing import Proxy
from tests.interop.conftest import MortalServer, Server
from tests.interop.qpid_jms import CLIENT, ONE_AT_A_TIME, TRANSACTED, Connection, Jms, JmsError, Session, counts, texts

pytestmark = pytest.mark.interop


@pytest.fixture
def topic(address: str) -> str:
    return f"topic:{address}"


@pytest.fixture
def name(address: str) -> str:
    """Of a subscription; global ones are seen by every test."""
    return f"sub-{address}"


@pytest.fixture
def client_id(address: str) -> str:
    return f"client-{address}"


@pytest.fixture
def session(jms: Jms, server: Server) -> Session:
    """Of a connection without a client id."""
    return jms.connect(server.url).session()


@pytest.fixture
def connection(jms: Jms, server: Server, client_id: str) -> Connection:
    """With a client id."""
    return jms.connect(server.url, client_id=client_id)


@pytest.fixture
def other(jms: Jms, server: Server) -> Session:
    """Who publishes."""
    return jms.connect(server.url).session()


def red_and_blue(other: Session, topic: str) -> None:
    other.send(topic, *({"text": colour, "properties": {"colour": colour}} for colour in ("red", "blue")))


# ---- plain consumers


def test_every_consumer_gets_every_message(session: Session, other: Session, topic: str) -> None:
    consumers = [session.consumer(topic) for _ in range(3)]
    sent = other.send(topic, "a", "b")
    for consumer in consumers:
        arrived = consumer.take(2)
        assert counts(arrived) == {"a": 1, "b": 1}
        assert [message["id"] for message in arrived] == [message["id"] for message in sent]
        assert arrived[0]["destination"] == topic


def test_consumer_gets_what_is_sent_while_it_is_there(session: Session, other: Session, topic: str) -> None:
    other.send(topic, "before")
    consumer = session.consumer(topic)
    other.send(topic, "meanwhile")
    assert texts(consumer.take()) == ["meanwhile"]
    consumer.close()
    other.send(topic, "after")
    assert session.consumer(topic).rest() == []


def test_consumer_with_selector(session: Session, other: Session, topic: str) -> None:
    all_of_them, blue = session.consumer(topic), session.consumer(topic, "colour = 'blue'")
    red_and_blue(other, topic)
    assert texts(all_of_them.take(2)) == ["red", "blue"]
    assert texts(blue.rest()) == ["blue"]


def test_no_local(session: Session, other: Session, topic: str) -> None:
    foreign, everything = session.consumer(topic, no_local=True), session.consumer(topic)
    session.send(topic, "own")
    other.send(topic, "foreign")
    assert texts(everything.take(2)) == ["own", "foreign"]
    assert texts(foreign.rest()) == ["foreign"]


def test_no_local_with_selector(session: Session, other: Session, topic: str) -> None:
    consumer = session.consumer(topic, "colour = 'red'", no_local=True)
    red_and_blue(session, topic)
    red_and_blue(other, topic)
    assert texts(consumer.rest()) == ["red"]


def test_wildcards(session: Session, other: Session, topic: str) -> None:
    one, many = session.consumer(f"{topic}.*.eu"), session.consumer(f"{topic}.#")
    for where in ("new.eu", "old.eu", "new.us", "new.eu.fr"):
        other.send(f"{topic}.{where}", where)
    assert texts(one.rest()) == ["new.eu", "old.eu"]
    assert texts(many.rest()) == ["new.eu", "old.eu", "new.us", "new.eu.fr"]


def test_each_consumer_acknowledges_its_own_copy(jms: Jms, server: Server, other: Session, topic: str) -> None:
    first, second = jms.connect(server.url).session(CLIENT), jms.connect(server.url).session(CLIENT)
    one, two = first.consumer(topic), second.consumer(topic)
    other.send(topic, "a")
    one.take()[0].acknowledge()
    two.take()
    second.recover()
    assert counts(two.take()) == {"a": 2}
    assert one.rest() == []


def test_transacted_publishing_and_consuming(jms: Jms, server: Server, session: Session, topic: str) -> None:
    transacted = jms.connect(server.url).session(TRANSACTED)
    consumer, mine = session.consumer(topic), transacted.consumer(topic)
    transacted.send(topic, "lost")
    transacted.rollback()
    transacted.send(topic, "kept")
    assert consumer.rest() == []
    transacted.commit()
    assert texts(consumer.take()) == ["kept"]
    assert counts(mine.take()) == {"kept": 1}
    transacted.rollback()
    assert counts(mine.take()) == {"kept": 2}
    transacted.commit()
    assert mine.rest() == []


def test_delayed_message_reaches_who_is_subscribed(session: Session, other: Session, topic: str) -> None:
    consumer = session.consumer(topic)
    other.send(topic, "later", delivery_delay=200)
    other.send(topic, "now")
    assert texts(consumer.take(2)) == ["now", "later"]


# ---- durable, of one consumer


@pytest.mark.promise("topics")
def test_durable_subscription_keeps_what_is_sent_meanwhile(
    jms: Jms, server: Server, connection: Connection, other: Session, client_id: str, topic: str
) -> None:
    session = connection.session()
    consumer = session.durable(topic, "sub")
    other.send(topic, "a")
    assert texts(consumer.take()) == ["a"]
    consumer.close()
    other.send(topic, "b")
    connection.close()
    other.send(topic, "c")
    again = jms.connect(server.url, client_id=client_id).session()
    assert counts(again.durable(topic, "sub").rest()) == {"b": 1, "c": 1}


def test_durable_subscription_needs_a_client_id(session: Session, topic: str) -> None:
    with pytest.raises(JmsError, match="^IllegalStateException"):
        session.durable(topic, "sub")


def test_durable_subscriptions_of_other_clients_are_others(
    jms: Jms, server: Server, connection: Connection, other: Session, client_id: str, topic: str
) -> None:
    one = connection.session().durable(topic, "sub")
    two = jms.connect(server.url, client_id=f"{client_id}-2").session().durable(topic, "sub")
    other.send(topic, "a")
    assert texts(one.rest()) == texts(two.rest()) == ["a"]


def test_durable_subscription_unacknowledged_messages_come_again(
    jms: Jms, server: Server, other: Session, client_id: str, topic: str
) -> None:
    connection = jms.connect(server.url, options=ONE_AT_A_TIME, client_id=client_id)
    session = connection.session(CLIENT)
    consumer = session.durable(topic, "sub")
    other.send(topic, "a", "b")
    consumer.take(2)
    session.close()
    assert counts(connection.session().durable(topic, "sub").rest()) == {"a": 2, "b": 2}


@pytest.mark.promise("topics")
def test_durable_subscription_outlives_a_lost_connection(
    jms: Jms, server: Server, proxy: Proxy, other: Session, client_id: str, topic: str
) -> None:
    connection = jms.connect(proxy.url, client_id=client_id)
    connection.session(CLIENT).durable(topic, "sub")
    other.send(topic, "a")
    proxy.cut()
    connection.expect("exception")
    other.send(topic, "b")
    again = jms.connect(server.url, client_id=client_id).session()
    assert texts(again.durable(topic, "sub").take(2)) == ["a", "b"]


def test_durable_subscription_has_one_consumer(
    jms: Jms, server: Server, connection: Connection, other: Session, client_id: str, topic: str
) -> None:
    consumer = connection.session().durable(topic, "sub")
    with pytest.raises(JmsError, match="already active"):
        connection.session().durable(topic, "sub")
    other.send(topic, "a")
    assert texts(consumer.take()) == ["a"]


def test_unsubscribed_durable_is_gone(connection: Connection, other: Session, topic: str) -> None:
    session = connection.session()
    session.durable(topic, "sub").close()
    other.send(topic, "a")
    session.unsubscribe("sub")
    other.send(topic, "b")
    consumer = session.durable(topic, "sub")
    other.send(topic, "c")
    assert texts(consumer.rest()) == ["c"]


def test_unsubscribe_of_an_active_durable_is_an_error(
    jms: Jms, server: Server, connection: Connection, other: Session, client_id: str, topic: str
) -> None:
    session = connection.session()
    consumer = session.durable(topic, "sub")
    with pytest.raises(JmsError, match="active"):
        session.unsubscribe("sub")
    # The client itself knows of its own consumers only.
    with pytest.raises(JmsError):
        jms.connect(server.url, client_id=client_id).session().unsubscribe("sub")
    other.send(topic, "a")
    assert texts(consumer.take()) == ["a"]
    consumer.close()
    session.unsubscribe("sub")


def test_unsubscribe_of_what_is_not_there(connection: Connection) -> None:
    session = connection.session()
    with pytest.raises(JmsError, match="^InvalidDestinationException"):
        session.unsubscribe("never-there")


def test_other_selector_makes_the_durable_anew(connection: Connection, other: Session, topic: str) -> None:
    session = connection.session()
    session.durable(topic, "sub", "colour = 'red'").close()
    red_and_blue(other, topic)
    consumer = session.durable(topic, "sub", "colour = 'blue'")
    assert consumer.rest() == []
    red_and_blue(other, topic)
    assert texts(consumer.rest()) == ["blue"]


def test_same_selector_keeps_the_durable(connection: Connection, other: Session, topic: str) -> None:
    session = connection.session()
    session.durable(topic, "sub", "colour = 'red'").close()
    red_and_blue(other, topic)
    assert texts(session.durable(topic, "sub", "colour = 'red'").rest()) == ["red"]


def test_other_topic_makes_the_durable_anew(connection: Connection, other: Session, topic: str) -> None:
    session = connection.session()
    session.durable(topic, "sub").close()
    other.send(topic, "old")
    consumer = session.durable(f"{topic}.2", "sub")
    other.send(topic, "old")
    other.send(f"{topic}.2", "new")
    assert texts(consumer.rest()) == ["new"]


def test_durable_with_no_local(connection: Connection, other: Session, topic: str) -> None:
    session = connection.session()
    consumer = session.durable(topic, "sub", no_local=True)
    session.send(topic, "own")
    other.send(topic, "foreign")
    assert texts(consumer.rest()) == ["foreign"]


def test_durable_subscription_in_a_transaction(
    jms: Jms, server: Server, other: Session, client_id: str, topic: str
) -> None:
    connection = jms.connect(server.url, options=ONE_AT_A_TIME, client_id=client_id)
    session = connection.session(TRANSACTED)
    consumer = session.durable(topic, "sub")
    other.send(topic, "a", "b")
    consumer.take()
    session.commit()
    consumer.take()
    session.rollback()
    session.close()
    assert counts(connection.session().durable(topic, "sub").rest()) == {"b": 2}


# ---- shared


def test_consumers_of_a_shared_subscription_divide_its_messages(
    session: Session, other: Session, topic: str, name: str
) -> None:
    consumers = [session.shared(topic, name) for _ in range(2)]
    alone = session.shared(topic, f"{name}-2")
    names = [f"m{number}" for number in range(20)]
    other.send(topic, *names)
    assert texts(alone.take(20)) == names
    divided = [texts(consumer.rest()) for consumer in consumers]
    assert all(divided)
    assert sorted(text for part in divided for text in part) == sorted(names)


def test_connections_without_client_id_share(
    jms: Jms, server: Server, session: Session, other: Session, topic: str, name: str
) -> None:
    one = session.shared(topic, name)
    two = jms.connect(server.url).session().shared(topic, name)
    names = {f"m{number}" for number in range(10)}
    other.send(topic, *names)
    first, second = texts(one.rest()), texts(two.rest())
    assert first
    assert second
    assert set(first) | set(second) == names
    assert len(first) + len(second) == 10


def test_shared_subscriptions_of_client_ids_are_their_own(
    jms: Jms, server: Server, connection: Connection, session: Session, other: Session, topic: str, name: str
) -> None:
    consumers = [
        connection.session().shared(topic, name),
        jms.connect(server.url, client_id=f"other-{name}").session().shared(topic, name),
        session.shared(topic, name),
    ]
    other.send(topic, "a")
    assert [texts(consumer.rest()) for consumer in consumers] == [["a"]] * 3


def test_shared_subscription_goes_with_its_last_consumer(
    session: Session, other: Session, topic: str, name: str
) -> None:
    one, two = session.shared(topic, name), session.shared(topic, name)
    one.close()
    other.send(topic, "a")
    assert texts(two.take()) == ["a"]
    two.close()
    other.send(topic, "b")
    assert session.shared(topic, name).rest() == []


def test_what_a_shared_consumer_held_goes_to_the_others(
    jms: Jms, server: Server, session: Session, other: Session, topic: str, name: str
) -> None:
    leaving = jms.connect(server.url, options=ONE_AT_A_TIME).session(CLIENT)
    consumer = leaving.shared(topic, name)
    other.send(topic, "a", "b")
    consumer.take()
    staying = session.shared(topic, name)
    leaving.close()
    assert sorted(counts(staying.take(2)).items()) == [("a", 2), ("b", 1)]


@pytest.mark.parametrize("durable", [False, True], ids=["volatile", "durable"])
def test_another_selector_for_an_active_shared_subscription_is_an_error(
    jms: Jms, server: Server, session: Session, other: Session, topic: str, name: str, durable: bool
) -> None:
    def subscribe(session: Session, topic: str, selector: str) -> object:
        return (session.shared_durable if durable else session.shared)(topic, name, selector)

    subscribe(session, topic, "colour = 'red'")
    elsewhere = jms.connect(server.url).session()
    with pytest.raises(JmsError):
        subscribe(elsewhere, topic, "colour = 'blue'")
    with pytest.raises(JmsError):
        subscribe(elsewhere, f"{topic}.2", "colour = 'red'")
    subscribe(elsewhere, topic, "colour = 'red'")


def test_shared_subscription_with_selector(session: Session, other: Session, topic: str, name: str) -> None:
    one, two = (session.shared(topic, name, "colour = 'red'") for _ in range(2))
    red_and_blue(other, topic)
    red_and_blue(other, topic)
    assert texts(one.rest() + two.rest()) == ["red", "red"]


# ---- shared and durable


@pytest.mark.parametrize("with_client_id", [False, True], ids=["global", "client"])
def test_shared_durable_subscription_keeps_what_is_sent_meanwhile(
    jms: Jms, server: Server, other: Session, client_id: str, topic: str, name: str, with_client_id: bool
) -> None:
    identity = client_id if with_client_id else None
    connection = jms.connect(server.url, client_id=identity)
    session = connection.session()
    one, two = session.shared_durable(topic, name), session.shared_durable(topic, name)
    names = [f"m{number}" for number in range(10)]
    other.send(topic, *names)
    first, second = texts(one.rest()), texts(two.rest())
    assert first
    assert second
    assert sorted(first + second) == names
    one.close()
    two.close()
    other.send(topic, "meanwhile")
    connection.close()
    other.send(topic, "later")
    session = jms.connect(server.url, client_id=identity).session()
    consumer = session.shared_durable(topic, name)
    assert counts(consumer.rest()) == {"meanwhile": 1, "later": 1}
    consumer.close()
    session.unsubscribe(name)
    with pytest.raises(JmsError, match="^InvalidDestinationException"):
        session.unsubscribe(name)


def test_unsubscribe_of_an_active_shared_durable_is_an_error(
    jms: Jms, server: Server, session: Session, other: Session, topic: str, name: str
) -> None:
    consumer = session.shared_durable(topic, name)
    with pytest.raises(JmsError, match="active"):
        session.unsubscribe(name)
    elsewhere = jms.connect(server.url).session()
    with pytest.raises(JmsError):
        elsewhere.unsubscribe(name)
    other.send(topic, "a")
    assert texts(consumer.take()) == ["a"]
    consumer.close()
    elsewhere.unsubscribe(name)


def test_other_selector_makes_the_shared_durable_anew(session: Session, other: Session, topic: str, name: str) -> None:
    session.shared_durable(topic, name, "colour = 'red'").close()
    red_and_blue(other, topic)
    consumer = session.shared_durable(topic, name, "colour = 'blue'")
    assert consumer.rest() == []
    red_and_blue(other, topic)
    assert texts(consumer.rest()) == ["blue"]
    consumer.close()
    session.unsubscribe(name)


def test_shared_durable_and_shared_volatile_of_one_name_are_two(
    session: Session, other: Session, topic: str, name: str
) -> None:
    durable, volatile = session.shared_durable(topic, name), session.shared(topic, name)
    other.send(topic, "a")
    assert texts(durable.rest()) == texts(volatile.rest()) == ["a"]
    durable.close()
    session.unsubscribe(name)


# ---- over kill -9 of the broker


def test_durable_subscription_survives(jms: Jms, mortal: MortalServer) -> None:
    connection = jms.connect(mortal.failover_url, client_id="client")
    session = connection.session()
    consumer = session.durable("topic:t", "sub")
    session.send("topic:t", "before")
    mortal.kill_and_restart()
    session.send("topic:t", "after")
    assert texts(consumer.take(2)) == ["before", "after"]


def test_shared_durable_subscription_survives(jms: Jms, mortal: MortalServer) -> None:
    connection = jms.connect(mortal.failover_url)
    session = connection.session()
    consumers = [session.shared_durable("topic:t", "sub") for _ in range(2)]
    session.send("topic:t", "before")
    mortal.kill_and_restart()
    session.send("topic:t", "after")
    arrived = [text for consumer in consumers for text in texts(consumer.rest())]
    assert sorted(arrived) == ["after", "before"]


# ---- client ids


def test_a_client_id_has_one_connection(jms: Jms, server: Server, client_id: str) -> None:
    first = jms.connect(server.url, client_id=client_id)
    with pytest.raises(JmsError, match="InvalidClientIDException"):
        jms.connect(server.url, client_id=client_id)
    first.close()
    jms.connect(server.url, client_id=client_id).close()
