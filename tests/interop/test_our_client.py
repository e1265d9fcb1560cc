"""Our client against containers of python-qpid-proton and rhea: every test runs with both.

The container does only what the test tells it to, so each side of an exchange is visible: what our client put on the
wire as the other library understood it, and what our client made of the answer.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import acquit
from acquit import AckMode, Message
from acquit.errors import (
    AuthenticationFailed,
    ConnectionClosed,
    ConnectionLost,
    DeliveryInDoubt,
    EndpointError,
    LinkDetached,
    MessageModified,
    MessageRejected,
    MessageReleased,
    NotFound,
    SessionEnded,
    Unauthorized,
)
from tests.interop.peer import Peer

pytestmark = pytest.mark.interop

ONCE = acquit.ConnectOptions(reconnect=None)
"""What becomes of a connection that is lost and not restored; how one is restored is in `tests/system`."""
SENDER_SETTLES = 1
RECEIVER_SECOND = 1


@contextmanager
def connected(peer: Peer, **listen: object) -> Iterator[acquit.Connection]:
    """The peer listens, our client connects to it, once."""
    port = peer.listen(**listen)
    with acquit.connect(f"amqp://127.0.0.1:{port}", options=ONCE) as connection:
        yield connection


def opened(peer: Peer, address: str) -> str:
    """The name of the link that our client opened at this address."""
    event = peer.expect("link_open")
    assert address in (event["source"], event["target"])
    return str(event["link"])


def texts(*names: str) -> list[dict[str, object]]:
    return [{"id": name, "body": {"value": f"body of {name}"}} for name in names]


def test_a_send_returns_when_it_was_accepted(peer: Peer) -> None:
    with connected(peer) as connection, connection.session() as session, session.sender("q") as sender:
        link = opened(peer, "q")
        peer.do("credit", link=link, credit=10)
        receipt = sender.send(Message(message_id="a", body="text", durable=True, subject="s"), wait=False)
        message = peer.expect("message")
        assert (message["id"], message["body"], message["durable"]) == ("a", {"value": "text"}, True)
        assert not receipt.done
        peer.settle(link, 0)
        receipt.result(10)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"outcome": "rejected", "condition": "test:unfit", "description": "for a reason"}, MessageRejected),
        ({"outcome": "rejected"}, MessageRejected),
        ({"outcome": "released"}, MessageReleased),
        ({"outcome": "modified", "failed": True}, MessageModified),
    ],
    ids=lambda value: value["outcome"] if isinstance(value, dict) else "",
)
def test_a_send_that_was_not_accepted_says_so(peer: Peer, answer: dict[str, object], error: type[Exception]) -> None:
    with connected(peer) as connection, connection.session() as session, session.sender("q") as sender:
        link = opened(peer, "q")
        peer.do("credit", link=link, credit=1)
        receipt = sender.send(b"bytes", wait=False)
        assert peer.expect("message")["body"] == {"data": "Ynl0ZXM="}
        peer.do("settle", link=link, deliveries=[0], **answer)
        with pytest.raises(error) as caught:
            receipt.result(10)
        if "condition" in answer:
            assert isinstance(caught.value, MessageRejected)
            assert (caught.value.condition, caught.value.description) == ("test:unfit", "for a reason")


def test_answers_as_a_range_and_out_of_order_find_their_sends(peer: Peer) -> None:
    with connected(peer) as connection, connection.session() as session, session.sender("q") as sender:
        link = opened(peer, "q")
        peer.do("credit", link=link, credit=30)
        receipts = [sender.send(str(number), wait=False) for number in range(30)]
        peer.expect_many(30, "message")
        peer.settle(link, *range(20, 30))
        peer.settle(link, 19, outcome="released")
        peer.settle(link, *range(19))
        for number in (*range(20, 30), *range(19)):
            receipts[number].result(10)
        with pytest.raises(MessageReleased):
            receipts[19].result(10)


def test_sends_wait_for_credit(peer: Peer) -> None:
    with connected(peer) as connection, connection.session() as session, session.sender("q") as sender:
        link = opened(peer, "q")
        receipts = [sender.send(str(number), wait=False) for number in range(3)]
        peer.do("credit", link=link, credit=2)
        peer.expect_many(2, "message")
        peer.settle(link, 0, 1)
        receipts[1].result(10)
        assert peer.seen("message") == []
        assert not receipts[2].done
        peer.do("credit", link=link, credit=1)
        peer.expect("message")
        peer.settle(link, 2)
        receipts[2].result(10)


def test_large_messages_cross_in_many_frames(peer: Peer) -> None:
    body = os.urandom(1024) * 1500
    with connected(peer, max_frame_size=4096) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        sender = session.sender("q")
        link = opened(peer, "q")
        peer.do("credit", link=link, credit=1)
        receipt = sender.send(body, wait=False)
        assert peer.expect("message")["body"] == {
            "data_bytes": len(body),
            "sha256": hashlib.sha256(body).hexdigest(),
        }
        peer.settle(link, 0)
        receipt.result(10)
        receiver = session.receiver("r")
        link = opened(peer, "r")
        peer.expect("credit", link=link)
        peer.send(link, {"id": "large", "body": {"value": "ü" * 600_000}})
        message = receiver.receive(timeout=20)
        assert message is not None
        assert message.body == "ü" * 600_000
        message.accept(sync=False)
        peer.do("confirm", link=link, deliveries=[0])


def test_a_pre_settled_sender_does_not_wait(peer: Peer) -> None:
    with connected(peer) as connection, connection.session(AckMode.NO_ACK) as session:
        receiver = session.receiver("r")
        event = peer.expect("link_open")
        assert event["snd_settle_mode"] == SENDER_SETTLES
        peer.expect("credit", link=event["link"])
        peer.send(event["link"], *texts("a", "b"))
        assert [message.message_id for message in (receiver.receive(10), receiver.receive(10)) if message] == ["a", "b"]
        receiver.close()
        peer.expect("link_close", link=event["link"])
        assert peer.seen("outcome") == []


def test_auto_mode_accepts_as_receive_returns(peer: Peer) -> None:
    with connected(peer) as connection, connection.session() as session, session.receiver("r") as receiver:
        link = opened(peer, "r")
        peer.expect("credit", link=link)
        peer.send(link, *texts("a", "b"))
        for number, name in enumerate(("a", "b")):
            message = receiver.receive(timeout=10)
            assert message is not None
            assert message.message_id == name
            peer.expect("outcome", delivery=number, outcome="accepted", settled=True)


def test_each_outcome_arrives_as_itself(peer: Peer) -> None:
    with connected(peer) as connection, connection.session(AckMode.AUTO) as _:
        session = connection.session(AckMode.INDIVIDUAL)
        receiver = session.receiver("r")
        link = opened(peer, "r")
        peer.expect("credit", link=link)
        peer.send(link, *texts("a", "b", "c", "d", "e"))
        a, b, c, d, e = (receiver.receive(timeout=10) for _ in range(5))
        assert a and b and c and d and e
        receipts = [
            a.accept(sync=False),
            b.reject("test:unfit", "for a reason", sync=False),
            c.release(sync=False),
            d.modify(delivery_failed=True, sync=False),
            e.modify(undeliverable_here=True, annotations={"x-opt-note": "seen"}, sync=False),
        ]
        peer.expect("outcome", delivery=0, outcome="accepted")
        rejected = peer.expect("outcome", delivery=1, outcome="rejected")
        assert (rejected["condition"], rejected["description"]) == ("test:unfit", "for a reason")
        peer.expect("outcome", delivery=2, outcome="released")
        peer.expect("outcome", delivery=3, outcome="modified", failed=True, undeliverable=False)
        peer.expect("outcome", delivery=4, outcome="modified", undeliverable=True, annotations={"x-opt-note": "seen"})
        peer.do("confirm", link=link, deliveries=[0, 1, 2, 3, 4])
        statuses = {receipt.result(10) for receipt in receipts}
        assert statuses == {acquit.ReceiptStatus.ANSWERED}, "settled by a peer that does not promise durability"


def test_an_acknowledgement_without_an_answer_is_unknown(peer: Peer) -> None:
    with connected(peer) as connection:
        session = connection.session(AckMode.CLIENT)
        receiver = session.receiver("r")
        link = opened(peer, "r")
        peer.expect("credit", link=link)
        peer.send(link, *texts("a"))
        message = receiver.receive(timeout=10)
        assert message is not None
        receipt = message.accept(sync=False)
        peer.expect("outcome", delivery=0, outcome="accepted", settled=False)
        peer.kill()
        assert receipt.result(10) is acquit.ReceiptStatus.UNKNOWN


def test_browsing_asks_for_copies(peer: Peer) -> None:
    with connected(peer) as connection, connection.session() as session:
        session.receiver("r", browse=True)
        assert peer.expect("link_open")["distribution_mode"] == "copy"


def test_a_receive_without_prefetch_drains_at_its_timeout(peer: Peer) -> None:
    with connected(peer) as connection, connection.session() as session:
        receiver = session.receiver("r", prefetch=0)
        link = opened(peer, "r")
        assert receiver.receive(timeout=0.2) is None
        peer.expect("credit", link=link, credit=1, drain=False)
        peer.expect("credit", link=link, drain=True)


def test_prefetch_is_the_credit_and_is_topped_up(peer: Peer) -> None:
    with connected(peer) as connection, connection.session() as session:
        receiver = session.receiver("r", prefetch=10)
        link = opened(peer, "r")
        assert peer.expect("credit", link=link)["credit"] == 10
        peer.send(link, *texts(*(f"m{number}" for number in range(10))))
        for _ in range(10):
            assert receiver.receive(timeout=10) is not None
        peer.expect("credit", link=link, credit=10)


@pytest.mark.parametrize(
    ("condition", "error"),
    [
        ("amqp:not-found", NotFound),
        ("amqp:unauthorized-access", Unauthorized),
        ("test:closed", LinkDetached),
    ],
)
@pytest.mark.parametrize("role", ["sender", "receiver"])
def test_a_refused_link_says_why(peer: Peer, role: str, condition: str, error: type[LinkDetached]) -> None:
    with connected(peer, refuse={"q": condition}) as connection, connection.session() as session:
        with pytest.raises(error) as caught:
            session.sender("q") if role == "sender" else session.receiver("q")
        assert (caught.value.condition, caught.value.remote) == (condition, True)
        session.sender("another")


def test_a_link_that_is_detached_ends_its_waits(peer: Peer) -> None:
    with connected(peer) as connection, connection.session() as session:
        sender, receiver = session.sender("q"), session.receiver("r")
        out, into = opened(peer, "q"), opened(peer, "r")
        peer.do("credit", link=out, credit=1)
        receipt = sender.send("x", wait=False)
        peer.expect("message")
        peer.do("detach", link=out, condition="amqp:resource-deleted", description="gone")
        with pytest.raises((DeliveryInDoubt, LinkDetached)):
            receipt.result(10)
        peer.do("detach", link=into, condition="amqp:resource-deleted", description="gone")
        with pytest.raises(LinkDetached) as caught:
            receiver.receive(timeout=10)
        assert (caught.value.condition, caught.value.description) == ("amqp:resource-deleted", "gone")


def test_a_session_that_is_ended_ends_its_waits_only(peer: Peer) -> None:
    with connected(peer) as connection:
        session = connection.session()
        receiver = session.receiver("r")
        opened(peer, "r")
        peer.do("end", condition="amqp:internal-error", description="over")
        with pytest.raises((SessionEnded, LinkDetached)) as caught:
            receiver.receive(timeout=10)
        assert caught.value.condition == "amqp:internal-error"
        connection.session().receiver("again")


def test_a_connection_that_is_closed_ends_every_wait(peer: Peer) -> None:
    with connected(peer) as connection:
        session = connection.session()
        receiver = session.receiver("r")
        opened(peer, "r")
        peer.do("close", condition="amqp:connection:forced", description="maintenance")
        with pytest.raises(ConnectionClosed) as caught:
            receiver.receive(timeout=10)
        assert (caught.value.condition, caught.value.remote) == ("amqp:connection:forced", True)


def test_a_peer_that_dies_leaves_sends_in_doubt_and_ends_receives(peer: Peer) -> None:
    with connected(peer) as connection:
        session = connection.session()
        sender, receiver = session.sender("q"), session.receiver("r")
        link = opened(peer, "q")
        opened(peer, "r")
        peer.do("credit", link=link, credit=1)
        receipt = sender.send("x", wait=False)
        peer.expect("message")
        peer.kill()
        with pytest.raises(DeliveryInDoubt):
            receipt.result(10)
        with pytest.raises(ConnectionLost):
            receiver.receive(timeout=10)


def test_heartbeats_keep_an_idle_connection(peer: Peer) -> None:
    with connected(peer, idle_time_out=400) as connection:
        # Longer than the time-out twice over: nothing but the silence of the peer shows that no heartbeat is missed.
        time.sleep(2)
        assert peer.seen("disconnected") == []
        with connection.session() as session, session.sender("q") as sender:
            link = opened(peer, "q")
            peer.do("credit", link=link, credit=1)
            receipt = sender.send("x", wait=False)
            peer.expect("message")
            peer.settle(link, 0)
            receipt.result(10)


def test_a_peer_that_falls_silent_is_noticed(peer: Peer) -> None:
    port = peer.listen()
    connection = acquit.connect(f"amqp://127.0.0.1:{port}", options=dataclasses.replace(ONCE, idle_timeout_ms=1000))
    receiver = connection.session().receiver("r")
    opened(peer, "r")
    os.kill(peer.pid, signal.SIGSTOP)
    try:
        with pytest.raises(ConnectionLost):
            receiver.receive(timeout=20)
    finally:
        os.kill(peer.pid, signal.SIGCONT)


def test_the_right_password_opens_and_the_wrong_one_does_not() -> None:
    # proton's server side knows no PLAIN without a SASL library of the system.
    with Peer("rhea") as peer:
        port = peer.listen(user="ann", password="correct horse")
        with acquit.connect(f"amqp://ann:correct%20horse@127.0.0.1:{port}") as connection:
            connection.session()
        with pytest.raises(AuthenticationFailed):
            acquit.connect(f"amqp://ann:wrong@127.0.0.1:{port}")
        with pytest.raises((AuthenticationFailed, EndpointError)):
            acquit.connect(f"amqp://127.0.0.1:{port}")
