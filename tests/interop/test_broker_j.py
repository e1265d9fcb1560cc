"""Our client on Qpid Broker-J: what is its alone. What all brokers have in common is in `test_foreign_*`."""

from __future__ import annotations

import asyncio

import pytest

import acquit
from acquit import ConnectOptions
from acquit.errors import ConnectionClosed, LinkDetached
from tests.interop.foreign import ForeignBroker

pytestmark = [pytest.mark.interop, pytest.mark.parametrize("foreign", ["broker-j"], indirect=True, scope="session")]

ELSEWHERE = ConnectOptions(hostname="elsewhere.example")


def test_a_host_that_it_does_not_serve_is_refused_with_the_reason(foreign: ForeignBroker) -> None:
    with pytest.raises(ConnectionClosed) as caught:
        foreign.connect(options=ELSEWHERE)
    assert (caught.value.condition, caught.value.remote) == ("amqp:not-found", True)
    assert "elsewhere.example" in str(caught.value)
    with pytest.raises(ConnectionClosed, match="elsewhere.example"):
        asyncio.run(foreign.aconnect(options=ELSEWHERE))


def test_a_queue_that_is_not_there_is_named(foreign: ForeignBroker) -> None:
    with foreign.connect() as connection, connection.session() as session:
        for attach in (session.sender, session.receiver):
            with pytest.raises(LinkDetached) as caught:
                attach("no such queue")
            assert isinstance(caught.value, acquit.NotFound)
