"""What the broker is asked besides links: each question has its own answer, or what becomes of it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import acquit
from acquit.broker.options import BrokerOptions, Role, Security, User
from acquit.client import blocking
from acquit.client.management import Management
from acquit.compat.qpid import management
from acquit.compat.qpid.messaging import Connection, exceptions
from acquit.compat.qpid.messaging.exceptions import ServerError
from acquit.errors import ConnectionLost, DeliveryInDoubt, MessageRejected
from acquit.store.options import JournalOptions
from tests.support.qpid import LONG


@pytest.fixture
def connection(broker: acquit.Broker) -> Iterator[Connection]:
    with closing(Connection.establish(f"127.0.0.1:{broker.port}", timeout=LONG)) as connection:
        yield connection


def test_two_that_ask_at_once_take_no_answers_of_each_other(
    connection: Connection, broker: acquit.Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = connection.session()
    one, other = (session.sender(f"{address}.{name}; {{create: always, delete: always}}") for name in "ab")
    real = blocking.Sender.send

    def send(sender: blocking.Sender, *args: Any, **more: Any) -> object:
        sent = real(sender, *args, **more)
        monkeypatch.setattr(blocking.Sender, "send", real)
        between = threading.Thread(target=other.close)
        between.start()
        between.join(LONG)
        return sent

    monkeypatch.setattr(blocking.Sender, "send", send)
    one.close()
    assert broker.inspect().queue(f"{address}.a") is broker.inspect().queue(f"{address}.b") is None


def test_what_may_not_be_deleted_or_is_not_there() -> None:
    security = Security(
        anonymous="never",
        users={"eve": User(password="x", roles=("sender",))},
        roles={"sender": Role(send=("#",), create=("#",), browse=("own",))},
    )
    with (
        acquit.Broker(config=BrokerOptions(security=security, journal=JournalOptions.small())) as broker,
        acquit.connect(broker.url, username="eve", password="x") as connection,
    ):
        connection.session().sender("own")
        with pytest.raises(ServerError, match="'own' was not deleted: 'eve' may not manage at own") as caught:
            management.delete(connection, "own")
        assert caught.value.code == 403
        assert management.read(connection, "own") == management.ManagedNode(kind="queue", durable=True)
        assert management.read(connection, "other") is None
        assert not management.is_missing(connection, "other"), "she may not know"


def test_what_is_not_there_is_deleted(broker: acquit.Broker, address: str) -> None:
    with acquit.connect(broker.url) as connection:
        assert management.is_missing(connection, address)
        management.delete(connection, address)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (MessageRejected("too many answers wait"), ServerError),
        (DeliveryInDoubt("no outcome"), ServerError),
        (ConnectionLost("the connection is gone"), exceptions.ConnectionError),
    ],
)
def test_a_link_that_cannot_be_asked_about_is_not_made(
    connection: Connection,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
    expected: type[Exception],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(Management, "ask", fail)
    session = connection.session()
    for made in (session.sender, session.receiver):
        with pytest.raises(expected):
            made(f"{address}; {{assert: always, node: {{durable: True}}}}")
