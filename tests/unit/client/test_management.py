"""A conversation with a management node: answers, and what its status codes are here."""

from __future__ import annotations

import pytest

import acquit
from acquit import errors
from acquit.broker.options import BrokerLimits, BrokerOptions, Role, Security, User
from acquit.client.management import BadRequest, Management, ManagementFailed, converse
from acquit.protocol.extensions import MANAGEMENT_NODE, QUEUE
from acquit.protocol.message import Message
from acquit.store.options import JournalOptions

LONG_S = 20.0


def test_each_answer_is_that_of_its_request_or_the_error_that_it_is() -> None:
    with acquit.Broker() as broker, acquit.connect(broker.url) as connection:
        connection.session().sender("orders").send(b"x", timeout=LONG_S)
        with converse(connection, LONG_S) as node:
            found = node.request("READ", QUEUE, name="orders")
            assert isinstance(found, dict) and found["name"] == "orders"
            for operation, name, kind, status in (
                ("READ", "absent", ManagementFailed, 404),
                ("MOVE", "orders", BadRequest, 400),
                ("JUGGLE", "orders", ManagementFailed, 501),
            ):
                with pytest.raises(kind) as caught:
                    node.ask(operation, QUEUE, name=name)
                assert caught.value.status == status
                assert not isinstance(caught.value, errors.EndpointError), "no link has ended"
            again = node.request("READ", QUEUE, name="orders")
            assert isinstance(again, dict) and again | {"oldest_age_ms": 0} == found | {"oldest_age_ms": 0}


def test_what_a_role_does_not_give_is_told_as_such() -> None:
    security = Security(users={"eve": User(password="x", roles=("sender",))}, roles={"sender": Role(send=("#",))})
    with (
        acquit.Broker(config=BrokerOptions(security=security, journal=JournalOptions.small())) as broker,
        acquit.connect(broker.url, username="eve", password="x") as connection,
        converse(connection, LONG_S) as node,
    ):
        with pytest.raises(ManagementFailed, match="'eve' may not manage at orders") as caught:
            node.ask("PURGE", QUEUE, name="orders")
        assert caught.value.status == 403
        assert not isinstance(caught.value, errors.EndpointError)


def test_a_request_that_finds_too_many_answers_waiting_is_rejected() -> None:
    config = BrokerOptions(journal=JournalOptions.small(), limits=BrokerLimits(requests_max=1))
    with (
        acquit.Broker(config=config) as broker,
        acquit.connect(broker.url) as connection,
        connection.session() as session,
        session.receiver(MANAGEMENT_NODE, target="here", prefetch=0) as answers,
        session.sender(MANAGEMENT_NODE) as requests,
    ):
        node = Management(requests, answers, "here", LONG_S)
        requests.send(Message(reply_to="here"), timeout=LONG_S)
        with pytest.raises(errors.MessageRejected, match="too many answers wait"):
            node.ask("READ", QUEUE, name="orders")


def test_no_answer_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    with acquit.Broker() as broker, acquit.connect(broker.url) as connection, converse(connection, LONG_S) as node:
        monkeypatch.setattr("acquit.client.blocking.Receiver.receive", lambda *_, **__: None)
        with pytest.raises(errors.ConnectTimeout, match=r"^READ: no answer from \$management within 20 s$"):
            node.ask("READ", QUEUE, name="orders")
