"""Addresses of the qpid.messaging API against the broker: nodes made, deleted, asserted; topics; replies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

import acquit
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.client import core
from acquit.client.products import Product
from acquit.compat.qpid.messaging import (
    AssertionFailed,
    Connection,
    InvalidOption,
    MalformedAddress,
    Message,
    NotFound,
    Session,
)
from acquit.store.options import JournalOptions
from tests.support.qpid import LONG, drained, eventually, fill


@pytest.fixture
def url(broker: acquit.Broker) -> str:
    return f"127.0.0.1:{broker.port}"


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with closing(Connection.establish(url, timeout=LONG)) as connection:
        yield connection


@pytest.fixture
def session(connection: Connection) -> Session:
    return connection.session()


@pytest.mark.parametrize("bad", ["", "q; {", "q; {create: maybe}", "q; {x: y}", None])
def test_addresses_that_are_none(session: Session, bad: str) -> None:
    for make in (session.sender, session.receiver):
        with pytest.raises((MalformedAddress, InvalidOption)):
            make(bad)
    assert session.senders == session.receivers == []


def test_a_dynamic_node_answers(connection: Connection, address: str) -> None:
    """The shape of every request and response: a server, and a client with a node of its own."""
    with closing(connection.session()) as serving, closing(connection.session()) as asking:
        requests = serving.receiver(address)
        replies = asking.receiver("#; {create: always, delete: always, node: {x-declare: {auto-delete: True}}}")
        assert replies.source.startswith("temporary.queue.")
        asking.sender(address).send(Message("how many?", reply_to=replies.source, correlation_id="1"))
        request = requests.fetch(LONG)
        answers = serving.sender(request.reply_to or "")
        answers.send(Message("three", correlation_id=request.correlation_id))
        answers.close()
        serving.acknowledge()
        reply = replies.fetch(LONG)
        assert (reply.content, reply.correlation_id) == ("three", "1")


def test_delete_deletes_the_node(broker: acquit.Broker, session: Session, address: str) -> None:
    def there(name: str) -> bool:
        return broker.inspect().queue(name) is not None

    for policy, by_sender, by_receiver in (
        ("never", False, False),
        ("sender", True, False),
        ("receiver", False, True),
        ("always", True, True),
    ):
        for made, deletes in ((session.sender, by_sender), (session.receiver, by_receiver)):
            name = f"{address}.{policy}.{made.__name__}"
            link = made(f"{name}; {{create: always, delete: {policy}}}")
            assert there(name)
            link.close()
            assert there(name) is not deletes, (policy, made)


def test_delete_waits_for_what_is_not_acknowledged(broker: acquit.Broker, session: Session, address: str) -> None:
    fill(session, address, 2)
    receiver = session.receiver(f"{address}; {{delete: always}}")
    message = receiver.fetch(LONG)
    receiver.close()
    assert broker.inspect().queue(address) is not None
    session.acknowledge(message)
    assert broker.inspect().queue(address) is None


def test_delete_with_the_session_and_with_the_connection(broker: acquit.Broker, url: str, address: str) -> None:
    connection = Connection.establish(url)
    session = connection.session()
    session.sender(f"{address}.a; {{create: always, delete: always}}")
    receiver = session.receiver(f"{address}.b; {{create: always, delete: always}}")
    fill(session, f"{address}.b", 1)
    receiver.fetch(LONG)
    receiver.close()
    other = connection.session()
    other.sender(f"{address}.c; {{create: always, delete: always}}")
    session.close()
    assert broker.inspect().queue(f"{address}.a") is broker.inspect().queue(f"{address}.b") is None
    connection.close()
    assert broker.inspect().queue(f"{address}.c") is None


def test_assertions(session: Session, address: str) -> None:
    for made in (session.sender, session.receiver):
        with pytest.raises(NotFound, match=f"there is no node '{address}.none'"):
            made(f"{address}.none; {{assert: always}}")
    session.sender(address)
    session.sender(f"{address}.topic; {{node: {{type: topic}}}}")
    for made in (session.sender, session.receiver):
        made(f"{address}; {{assert: always, node: {{type: queue, durable: True}}}}")
        made(f"{address}; {{assert: never, node: {{durable: False}}}}")
        made(f"{address}.topic; {{assert: always, node: {{type: topic}}}}")
        for asserted, found in (("type: topic", "expected type topic"), ("durable: False", "expected durable False")):
            with pytest.raises(AssertionFailed, match=found):
                made(f"{address}; {{assert: always, node: {{{asserted}}}}}")


def test_a_kind_that_the_peer_only_repeats_is_not_asserted(
    url: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "product_of", lambda _: Product(repeats_source=True, repeats_target=True))
    with closing(Connection.establish(url)) as connection:
        session = connection.session()
        fill(session, address, 5)
        asserting = f"{address}; {{assert: always, node: {{type: queue}}, link: {{reliability: unreliable}}}}"
        for made in (session.sender, session.receiver):
            with pytest.raises(AssertionFailed, match="this broker does not say whether it is a queue"):
                made(asserting, capacity=10)
        assert len(drained(session.receiver(address))) == 5, "nothing was sent to a receiver that was refused"


def test_who_may_not_make_a_queue_does_not_find_it() -> None:
    options = BrokerOptions(journal=JournalOptions.small(), address=(AddressRule("closed", {"create": False}),))
    with acquit.Broker(config=options) as broker, closing(Connection.establish(f"127.0.0.1:{broker.port}")) as own:
        session = own.session()
        for made in (session.sender, session.receiver):
            with pytest.raises(NotFound) as caught:
                made("closed")
            assert caught.value.code == "amqp:not-found"
        session.sender("open").send("x")  # and the session goes on


def test_topics(session: Session, address: str) -> None:
    topic = f"{address}; {{node: {{type: topic}}}}"
    everything = session.receiver(topic)
    some = session.receiver(f"{address}/sport.#; {{node: {{type: topic}}}}")
    sender = session.sender(topic)
    sender.send(Message("1", subject="sport.chess"))
    sender.send(Message("2", subject="weather"))
    assert drained(everything) == ["1", "2"] and drained(some) == ["1"]
    assert session.unacked == []  # topics are unreliable where nothing else is said
    late = session.receiver(topic)
    assert drained(late) == []


def test_a_durable_subscription_is_kept(url: str, address: str) -> None:
    source = f"{address}; {{node: {{type: topic}}, link: {{name: '{address}', durable: True}}}}"
    with closing(Connection.establish(url)) as connection:
        session = connection.session()
        session.receiver(source).close()
        sender = session.sender(f"{address}; {{node: {{type: topic}}}}", durable=True)
        sender.send("while nobody received")
    with closing(Connection.establish(url)) as connection:
        session = connection.session()
        receiver = session.receiver(source)
        message = receiver.fetch(LONG)
        assert message.content == "while nobody received" and session.unacked == [message]
        session.acknowledge()
        assert drained(receiver) == []


def test_a_container_has_durable_subscriptions_of_its_own(url: str, address: str) -> None:
    source = f"{address}; {{node: {{type: topic}}, link: {{name: mine, durable: True}}}}"
    with (
        closing(Connection.establish(url, container_id=f"{address}.a")) as one,
        closing(Connection.establish(url, container_id=f"{address}.b")) as two,
    ):
        receivers = [one.session().receiver(source), two.session().receiver(source)]
        one.session().sender(f"{address}; {{node: {{type: topic}}}}").send("to both")
        assert [receiver.fetch(LONG).content for receiver in receivers] == ["to both"] * 2


def test_who_is_told_that_a_node_was_deleted(connection: Connection, broker: acquit.Broker, address: str) -> None:
    session = connection.session()
    sender, receiver = session.sender(address), session.receiver(address, capacity=1)
    told: list[tuple[object, object]] = []
    for endpoint in (connection, session, sender, receiver):
        endpoint.set_async_exception_notify_handler(lambda link, error: told.append((link, type(error))))
    session.receiver(f"{address}; {{delete: always}}").close()
    eventually(lambda: len(told) == 2)
    assert dict(told) == {sender: NotFound, receiver: NotFound}
    with pytest.raises(NotFound):
        sender.send("x")
    with pytest.raises(NotFound):
        receiver.fetch(0)
    fill(session, address, 1)  # the session goes on, and the node is made again


def test_a_handler_that_fails_ends_nothing(
    connection: Connection, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is called in the midst of what the client does."""
    session = connection.session()
    receiver, sender = session.receiver(address, capacity=1), session.sender(f"{address}.other")

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    receiver.set_async_exception_notify_handler(fail)
    session.receiver(f"{address}; {{delete: always}}").close()
    eventually(lambda: "the exception handler of" in caplog.text)
    with pytest.raises(NotFound):
        receiver.fetch(0)
    sender.send("x", timeout=LONG)
