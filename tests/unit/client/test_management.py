"""A conversation with a management node: answers, and what its status codes are here."""

from __future__ import annotations

import pytest

import acquit
from acquit import errors
from acquit.client.management import QUEUE, BadRequest, ManagementFailed, converse

LONG_S = 20.0


def test_each_answer_is_that_of_its_request_or_the_error_that_it_is() -> None:
    with acquit.Broker() as broker, acquit.connect(broker.url) as connection:
        connection.session().sender("orders").send(b"x", timeout=LONG_S)
        with converse(connection, LONG_S) as node:
            found = node.request("READ", QUEUE, name="orders")
            assert isinstance(found, dict) and found["name"] == "orders"
            with pytest.raises(errors.NotFound):
                node.ask("READ", QUEUE, name="absent")
            with pytest.raises(BadRequest):
                node.ask("MOVE", QUEUE, name="orders")
            with pytest.raises(ManagementFailed):
                node.ask("JUGGLE", QUEUE, name="orders")
            assert node.request("READ", QUEUE, name="orders") == found


def test_no_answer_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    with acquit.Broker() as broker, acquit.connect(broker.url) as connection, converse(connection, LONG_S) as node:
        monkeypatch.setattr("acquit.client.blocking.Receiver.receive", lambda *_, **__: None)
        with pytest.raises(errors.ConnectTimeout, match=r"^READ: no answer from \$management within 20 s$"):
            node.ask("READ", QUEUE, name="orders")
