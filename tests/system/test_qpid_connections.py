"""Connections of the qpid.messaging API: their life, users, TLS, and a bad network."""

from __future__ import annotations

import random
import socket
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import acquit
from acquit.broker.options import BrokerOptions, Role, Security, Tls, User
from acquit.compat.qpid.messaging import (
    AuthenticationFailure,
    ConnectError,
    Connection,
    ConnectionClosed,
    Detached,
    Empty,
    InvalidOption,
    LinkClosed,
    SendError,
    Session,
    Timeout,
    TransactionAborted,
    exceptions,
)
from acquit.store.options import JournalOptions
from acquit.testing import Proxy
from tests.support.qpid import LONG, depth, drained, eventually, fill

TLS = Path(__file__).parents[1] / "support" / "tls"


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


# -- connections -------------------------------------------------------------------------------------------------------


def test_the_life_of_a_connection(url: str, address: str) -> None:
    connection = Connection(url)
    assert not connection.opened() and not connection.attached()
    session = connection.session("mine")
    assert connection.session("mine") is session and connection.session() is not connection.session()
    sender, receiver = session.sender(address), session.receiver(address)
    assert not sender.linked and not receiver.linked
    with pytest.raises(Detached):
        sender.send("x")
    with pytest.raises(ConnectionClosed):
        receiver.fetch(0)
    connection.open(LONG)
    assert connection.opened() and connection.attached() and sender.linked and receiver.linked
    with pytest.raises(exceptions.ConnectionError, match="open already"):
        connection.open()
    sender.send("x")
    assert receiver.fetch(LONG).content == "x"
    connection.detach()
    assert connection.opened() and not connection.attached() and not sender.linked
    connection.attach(LONG)
    session.acknowledge()  # of what came before: it has no effect, and comes again
    message = receiver.fetch(LONG)
    assert (message.content, message.redelivered) == ("x", True)
    session.acknowledge()
    connection.close()
    assert not connection.opened() and not connection.attached() and session.closed
    connection.open(LONG)
    assert drained(connection.session().receiver(address)) == []
    connection.close()


@pytest.mark.parametrize("attached", [True, False], ids=["attached-again", "detached"])
def test_a_send_that_a_detach_left_in_doubt_is_told(broker: acquit.Broker, address: str, attached: bool) -> None:
    with Proxy(broker.url) as proxy, closing(Connection.establish(proxy.url, timeout=LONG)) as connection:
        sender = connection.session().sender(address)
        sender.send("answered", sync=False)
        sender.sync(LONG)
        proxy.stall("broker")
        sender.send("not answered", sync=False)
        connection.detach(0.5)
        proxy.resume()
        if attached:
            connection.attach(LONG)
        assert sender.unsettled() == 0
        with pytest.raises(SendError, match="no outcome was heard"):
            sender.sync(LONG)
        sender.sync(LONG)  # told once


def test_a_detached_transaction_is_aborted(url: str, address: str) -> None:
    with closing(Connection.establish(url)) as connection:
        session = connection.session(transactional=True)
        session.sender(address).send("x")
        connection.detach()
        connection.attach(LONG)
        with pytest.raises(TransactionAborted):
            session.commit(LONG)


@pytest.mark.parametrize("ends", ["receiver", "session", "connection"])
@pytest.mark.parametrize("waiting", [True, False])
def test_fetch_ends_when_the_receiver_is_closed(url: str, address: str, ends: str, waiting: bool) -> None:
    connection = Connection.establish(url)
    session = connection.session()
    receiver = session.receiver(address)
    close = {"receiver": receiver, "session": session, "connection": connection}[ends].close
    if waiting:
        threading.Timer(0.1, close).start()
    else:
        close()
    with pytest.raises(LinkClosed):
        receiver.fetch(LONG)
    connection.close()
    connection.close()


def test_a_receiver_that_is_closed_in_an_outage_takes_nothing_when_that_is_over(
    broker: acquit.Broker, address: str
) -> None:
    """What was fetched from it is not acknowledged, so its link comes back."""
    with (
        Proxy(broker.url) as proxy,
        closing(Connection.establish(proxy.url, reconnect=True, reconnect_interval=0.01, reconnect_log=False)) as there,
        closing(Connection.establish(broker.url)) as here,
    ):
        session = there.session()
        receiver = session.receiver(address, capacity=5)
        fill(here.session(), address, 1)
        message = receiver.fetch(LONG)
        proxy.refuse()
        proxy.cut()
        eventually(lambda: not there._inner.connected)  # type: ignore[union-attr]
        receiver.close()
        proxy.accept()
        eventually(lambda: there._inner.connected)  # type: ignore[union-attr]
        contents = fill(here.session(), address, 3)
        assert drained(here.session().receiver(address)) == ["0", *contents]
        session.acknowledge(message)


def test_errors_at_the_opening_are_the_links(url: str) -> None:
    connection = Connection(url)
    sender = connection.session().sender("q; {x: y}")
    told: list[object] = []
    sender.set_async_exception_notify_handler(lambda link, error: told.append((link, error)))
    with closing(connection):
        connection.open(LONG)
        with pytest.raises(InvalidOption):
            sender.send("x")
        assert told == [(sender, sender.error)] and connection.get_error() is None


def test_nobody_there() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{unheard.getsockname()[1]}"
        connection = Connection(url)
        told: list[object] = []
        connection.set_async_exception_notify_handler(lambda _, error: told.append(error))
        with pytest.raises(ConnectError) as caught:
            connection.open()
        assert connection.get_error() is caught.value is told[0] and not connection.opened()
        with pytest.raises(ConnectError):
            Connection.establish(url, reconnect=True, reconnect_interval=0.001, reconnect_limit=2)
        with pytest.raises((ConnectError, Timeout)):
            Connection.establish(url, reconnect=True, reconnect_interval=0.01, timeout=0.2)


def test_users_and_tls(address: str) -> None:
    options = BrokerOptions(
        journal=JournalOptions.small(),
        security=Security(anonymous="never", plain="never", users={"ada": User(password="s3cret")}, refusal_delay_ms=1),
        tls=Tls(certificate_file=str(TLS / "certificate.pem"), key_file=str(TLS / "key.pem")),
    )
    trusted: dict[str, Any] = {"transport": "ssl", "ssl_trustfile": str(TLS / "certificate.pem")}
    with acquit.Broker(config=options, host="127.0.0.1") as broker:
        where = f"localhost:{broker.port}"
        with closing(Connection.establish(f"ada/s3cret@{where}", timeout=LONG, **trusted)) as connection:
            fill(connection.session(), address, 1)
        with pytest.raises(AuthenticationFailure):
            Connection.establish(where, username="ada", password="wrong", **trusted)
        with pytest.raises(ConnectError, match="CERTIFICATE_VERIFY_FAILED|certificate"):
            Connection.establish(f"ada/s3cret@{where}", transport="ssl")


def test_a_user_who_may_not(address: str) -> None:
    security = Security(users={"ada": User(password="s3cret", roles=("guest",))}, roles={"guest": Role()})
    with (
        acquit.Broker(config=BrokerOptions(journal=JournalOptions.small(), security=security)) as broker,
        closing(Connection.establish(f"ada/s3cret@127.0.0.1:{broker.port}")) as connection,
    ):
        for made in (connection.session().sender, connection.session().receiver):
            with pytest.raises(exceptions.UnauthorizedAccess) as caught:
                made(address)
            assert caught.value.code == "amqp:unauthorized-access"


# -- a bad network -----------------------------------------------------------------------------------------------------


def test_a_lost_connection_is_an_error_without_reconnect(broker: acquit.Broker, address: str) -> None:
    with Proxy(broker.url) as proxy:
        connection = Connection.establish(proxy.url)
        session = connection.session()
        fill(session, address, 1)
        receiver = session.receiver(address)
        message = receiver.fetch(LONG)
        told: list[object] = []
        connection.set_async_exception_notify_handler(lambda _, error: told.append(error))
        threading.Timer(0.1, proxy.cut).start()
        with pytest.raises(exceptions.ConnectionError):
            receiver.fetch(LONG)
        eventually(lambda: told)
        for call in (lambda: session.acknowledge(message), lambda: receiver.fetch(0), lambda: session.sender("x")):
            with pytest.raises(exceptions.ConnectionError):
                call()
        connection.close()
        connection.open(LONG)
        assert connection.session().receiver(address).fetch(LONG).redelivered
        connection.close()


def test_a_lost_connection_comes_back_with_reconnect(broker: acquit.Broker, address: str) -> None:
    with Proxy(broker.url) as proxy:
        connection = Connection.establish(proxy.url, reconnect=True, reconnect_interval=0.01, reconnect_log=False)
        session = connection.session()
        sender, receiver = session.sender(address, durable=True), session.receiver(address)
        replies = session.receiver("#", capacity=5)
        sender.send("one")
        message = receiver.fetch(LONG)
        proxy.cut()
        session.acknowledge(message)  # of no effect, whenever the client learns of the loss
        again = receiver.fetch(LONG)
        assert (again.content, again.redelivered) == ("one", True)
        with ThreadPoolExecutor(1) as waiting:
            fetching = waiting.submit(session.receiver(f"{address}.other").fetch, LONG)
            proxy.cut()
            session.sender(f"{address}.other").send("two")
            assert fetching.result(LONG).content == "two"
        assert receiver.fetch(LONG).content == "one"
        session.acknowledge()
        eventually(lambda: replies.linked)
        session.sender(replies.source).send("an answer")
        assert replies.fetch(LONG).content == "an answer"
        connection.close()


def test_a_transaction_in_which_the_connection_was_lost_is_aborted(broker: acquit.Broker, address: str) -> None:
    with (
        Proxy(broker.url) as proxy,
        closing(Connection.establish(proxy.url, reconnect=True, reconnect_interval=0.01)) as connection,
    ):
        session = connection.session(transactional=True)
        sender = session.sender(address)
        sender.send("one")
        proxy.cut()
        with pytest.raises(TransactionAborted):
            session.commit(LONG)
        sender.send("two")
        session.commit(LONG)
        assert drained(connection.session().receiver(address)) == ["two"]


def test_another_host_takes_over(address: str, tmp_path: Path) -> None:
    first = acquit.Broker()
    with acquit.Broker() as second:
        connection = Connection.establish(
            f"127.0.0.1:{first.port}",
            reconnect=True,
            reconnect_interval=0.01,
            reconnect_urls=[f"127.0.0.1:{second.port}"],
        )
        session = connection.session()
        sender = session.sender(address)
        sender.send("one")
        first.close()
        sender.send("two")
        assert session.receiver(address).fetch(LONG).content == "two"
        connection.close()


def test_each_session_has_a_name() -> None:
    connection = Connection("localhost")
    assert connection.session("a").name == f"{connection.id}:a" and uuid.UUID(connection.id)
    assert repr(connection.session("a")) == f"<Session {connection.id}:a>"
    assert (connection.host, connection.port, connection.transport, connection.reconnect) == (
        "localhost",
        5672,
        "tcp",
        False,
    )
    with pytest.raises(AttributeError, match="has no attribute 'recconect'"):
        _ = connection.recconect


@pytest.mark.parametrize("capacity", [0, 5])
def test_an_outage_is_no_empty_queue(broker: acquit.Broker, address: str, capacity: int) -> None:
    """`fetch` says Empty only where the broker could be asked, also without waiting."""
    with (
        Proxy(broker.url) as proxy,
        ThreadPoolExecutor(1) as other,
        closing(Connection.establish(proxy.url, reconnect=True, reconnect_interval=0.01)) as connection,
    ):
        session = connection.session()
        receiver = session.receiver(address, capacity=capacity)
        for number in range(10):
            proxy.refuse()
            if number % 2:
                fetching = other.submit(receiver.fetch, 0.05)
                proxy.cut()
            else:
                proxy.cut()
                fetching = other.submit(receiver.fetch, 0)
            with acquit.connect(broker.url) as straight:
                straight.session().sender(address).send(str(number))
            eventually(lambda: connection._inner is not None and not connection._inner.connected)
            assert not fetching.done()
            proxy.accept()
            message = fetching.result(LONG)
            assert message.content == str(number)
            session.acknowledge(message)


def test_a_silent_peer_is_a_heartbeat_timeout(broker: acquit.Broker, address: str) -> None:
    with Proxy(broker.url) as proxy:
        connection = Connection.establish(proxy.url, heartbeat=0.2)
        receiver = connection.session().receiver(address)
        proxy.stall()
        with pytest.raises(exceptions.HeartbeatTimeout):
            receiver.fetch(LONG)
        connection.close()


def test_an_opening_that_takes_for_ever_can_be_given_up() -> None:
    with socket.socket() as unheard, ThreadPoolExecutor(1) as other:
        unheard.bind(("127.0.0.1", 0))
        connection = Connection(f"127.0.0.1:{unheard.getsockname()[1]}", reconnect=True, reconnect_interval=60)
        opening = other.submit(connection.open)

        def given_up() -> bool:
            connection.close()  # there may be nothing to give up yet
            return opening.done()

        eventually(given_up)
        with pytest.raises(ConnectError):
            opening.result(LONG)


@pytest.mark.parametrize("capacity", [0, 10])
def test_nothing_is_lost_on_a_bad_network(
    broker: acquit.Broker, address: str, rng: random.Random, capacity: int
) -> None:
    """What was acknowledged and answered never comes again; all else comes until it is."""
    sent = [str(number) for number in range(60)]
    with (
        Proxy(broker.url) as proxy,
        closing(
            Connection.establish(proxy.url, reconnect=True, reconnect_interval=0.001, reconnect_log=False)
        ) as connection,
    ):
        session = connection.session()
        sender, receiver = session.sender(address, durable=True), session.receiver(address, capacity=capacity)
        for content in sent:
            if rng.random() < 0.2:
                proxy.after(rng.choice(["transfer", "disposition"]), 1).cut()
            sender.send(content)
        fetched: list[object] = []
        while depth(broker, address) != (0, 0):
            if rng.random() < 0.3:
                proxy.after(rng.choice(["flow", "transfer", "disposition"]), rng.randint(1, 3)).cut()
            try:
                message = receiver.fetch(0.05)
            except Empty:
                continue
            fetched.append(message.content)
            session.acknowledge(message)
        assert set(fetched) == set(sent)


def test_a_transactional_mover_moves_each_message_once_on_a_bad_network(
    broker: acquit.Broker, address: str, rng: random.Random
) -> None:
    """Our broker knows the fate of a commit whose answer was lost, so no transaction is in doubt."""
    with closing(Connection.establish(broker.url)) as straight:
        sent = fill(straight.session(), address, 40)
    with (
        Proxy(broker.url) as proxy,
        closing(
            Connection.establish(proxy.url, reconnect=True, reconnect_interval=0.001, reconnect_log=False)
        ) as connection,
    ):
        session = connection.session(transactional=True)
        receiver, sender = session.receiver(address, capacity=5), session.sender(f"{address}.moved", durable=True)
        aborted = 0
        while depth(broker, address) != (0, 0):
            if rng.random() < 0.5:
                proxy.after(rng.choice(["flow", "transfer", "disposition"]), rng.randint(1, 6)).cut()
            try:
                for _ in range(rng.randint(1, 4)):
                    sender.send(receiver.fetch(0.05), sync=rng.random() < 0.5)
            except (Empty, TransactionAborted):
                pass
            session.acknowledge()
            try:
                session.commit(LONG)
            except TransactionAborted:
                aborted += 1
        assert aborted
    with closing(Connection.establish(broker.url)) as straight:
        assert sorted(map(str, drained(straight.session().receiver(f"{address}.moved")))) == sorted(sent)
