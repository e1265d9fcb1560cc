"""Our client on Qpid Broker-J: what is its alone. What all brokers have in common is in `test_foreign_*`."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path

import pytest

import acquit
from acquit import ConnectOptions
from acquit.client import resuming
from acquit.errors import ConnectionClosed, LinkDetached
from acquit.protocol.definitions import Attach
from acquit.testing import Proxy
from tests.interop.foreign import ForeignBroker
from tests.interop.foreign_looks import take

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


@pytest.mark.parametrize("durable", [False, True], ids=["no map", "an empty map"])
def test_a_terminus_keeps_nothing_that_was_unsettled(
    foreign: ForeignBroker, address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, durable: bool
) -> None:
    """A link that comes back with nothing to resume is granted, and the message is a new delivery on it. What the
    broker says to a map with something in it is in `test_foreign_resumption`."""
    monkeypatch.setattr(resuming, "refusal", lambda link: None)
    queue = foreign.queue(address)
    with foreign.connect() as connection, connection.session() as session, session.sender(queue) as sender:
        sender.send("a")
    counts = []
    with Proxy(foreign.url) as proxy:
        for number in range(2):
            # Each is a client that has forgotten what it had; only a store that lasts begins with a map.
            kept = acquit.FileStore(tmp_path / str(number)) if durable else nullcontext(acquit.MemoryStore())
            with kept as store:
                connection = foreign.connect(url=proxy.url, container_id=address)
                receiver = connection.session("individual").receiver(queue, name="kept", exactly_once=store)
                counts.append(take(receiver).delivery_count)
                proxy.cut()
                connection.close()
        asked, answers = (
            [frame.performative for frame in proxy.passed("attach", by=side)] for side in ("client", "broker")
        )
    assert counts == [0, 1]
    assert [attach.unsettled for attach in asked if isinstance(attach, Attach)] == [{} if durable else None] * 2
    assert [attach.unsettled for attach in answers if isinstance(attach, Attach)] == [{}, {}]
