"""Requests, replies and kinds of bodies, between our client and Qpid JMS and python-qpid-proton, over our broker."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from proton import Message as ProtonMessage
from proton.utils import BlockingConnection, SyncRequestResponse

import acquit
from acquit import AmqpSequence, AmqpValue, Data, JmsKind, Message
from acquit.protocol.body import Body
from acquit.types import Int, ULong
from tests.interop.conftest import Server
from tests.interop.qpid_jms import Jms, Session

pytestmark = pytest.mark.interop

LONG = 20.0


@pytest.fixture
def ours(server: Server) -> Iterator[acquit.Session]:
    with acquit.connect(server.url) as connection, connection.session() as session:
        yield session


@pytest.fixture
def theirs(jms: Jms, server: Server) -> Session:
    return jms.connect(server.url).session()


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named_by", ["message id", "correlation id"])
@pytest.mark.parametrize("fixed", [False, True])
def test_a_jms_responder_answers_our_requester(
    ours: acquit.Session, theirs: Session, address: str, named_by: str, fixed: bool
) -> None:
    """It sees a queue, for all that we say nothing of topics, and makes its correlation id of either id."""
    serving, producer = theirs.consumer(f"queue:{address}"), theirs.producer()
    requester = ours.requester(address, reply_to=f"{address}.replies" if fixed else None)
    with ThreadPoolExecutor(3) as threads:
        waiting = {text: threads.submit(requester.request, text, timeout=LONG) for text in ("one", "two", "three")}
        for request in reversed(serving.take(3)):
            assert request.reply_to.name == f"queue:{requester.reply_to}"
            identity = request["id"] if named_by == "message id" else request["correlation_id"]
            producer.send({"text": f"re: {request.text}", "correlation_id": identity}, to=request.reply_to)
        assert {text: reply.result(LONG).text for text, reply in waiting.items()} == {
            text: f"re: {text}" for text in waiting
        }


@pytest.mark.parametrize("correlation_id", [None, "mine"])
def test_our_responder_answers_a_jms_requestor(
    ours: acquit.Session, theirs: Session, address: str, correlation_id: str | None
) -> None:
    replies = theirs.temporary_queue()
    waiting = theirs.consumer(replies)
    with ours.responder(address, lambda request: request.text.upper()):
        message = {"text": "ping"} if correlation_id is None else {"text": "ping", "correlation_id": correlation_id}
        [sent] = theirs.send(f"queue:{address}", message, reply_to=replies)
        [reply] = waiting.take()
    assert reply.text == "PING"
    assert reply["correlation_id"] == (correlation_id or sent["id"])


def test_our_responder_answers_proton(ours: acquit.Session, server: Server, address: str) -> None:
    with ours.responder(address, lambda request: request.text.upper()):
        connection = BlockingConnection(server.url, timeout=LONG)
        client = SyncRequestResponse(connection, address)
        assert [client.call(ProtonMessage(body=text)).body for text in ("one", "two")] == ["ONE", "TWO"]
        connection.close()


def test_proton_answers_our_requester(ours: acquit.Session, server: Server, address: str) -> None:
    connection = BlockingConnection(server.url, timeout=LONG)
    receiver, sender = connection.create_receiver(address), connection.create_sender(None)

    def serve() -> None:
        request = receiver.receive(timeout=LONG)
        receiver.accept()
        sender.send(
            ProtonMessage(body=request.body.upper(), address=request.reply_to, correlation_id=request.correlation_id)
        )

    thread = threading.Thread(target=serve)
    thread.start()
    assert ours.requester(address).request("ping", timeout=LONG).text == "PING"
    thread.join(LONG)
    connection.close()


# -- bodies ------------------------------------------------------------------------------------------------------------


def marked(body: Body, kind: JmsKind) -> Message:
    message = Message(body)
    message.jms_kind = kind
    return message


@pytest.mark.parametrize(
    ("message", "seen"),
    [
        (Message("naïve"), {"text": "naïve"}),
        (Message(None), {"text": None}),
        (Message(b"data"), {"bytes": "data"}),
        # It reads one data section, the last.
        (Message(Data((b"da", b"ta"))), {"bytes": "ta"}),
        (Message(AmqpValue(b"data")), {"bytes": "data"}),
        (Message("naïve".encode(), content_type="text/plain; charset=utf-8"), {"text": "naïve"}),
        (Message.from_json({"a": [1, "ü"]}), {"text": '{"a":[1,"ü"]}'}),
        (Message(b"{}", content_type="application/problem+json"), {"text": "{}"}),
        (marked({"a": 1, "b": Int(2), "c": "x"}, JmsKind.MAP), {"map": {"a": 1, "b": 2, "c": "x"}}),
        (marked([1, "two", True], JmsKind.STREAM), {"stream": [1, "two", True]}),
        (marked(AmqpSequence(([1, "two"],)), JmsKind.STREAM), {"stream": [1, "two"]}),
        (marked(None, JmsKind.MESSAGE), {}),
        (Message({"a": 1}), {"object": "{a=1}"}),
        (Message([1, "two"]), {"object": "[1, two]"}),
        (Message(ULong(17)), {"object": 17}),
    ],
    ids=repr,
)
def test_jms_sees_the_kind_that_we_say(
    ours: acquit.Session, theirs: Session, address: str, message: Message, seen: dict[str, object]
) -> None:
    ours.sender(address).send(message)
    [received] = theirs.consumer(f"queue:{address}").take()
    found = {
        kind: plain(kind, received[kind])
        for kind in ("text", "bytes", "map", "stream", "object")
        if kind in received.fields
    }
    assert found == seen
    (kind,) = found or ("message",)
    assert message.jms_kind is JmsKind[kind.upper()]


def plain(kind: str, value: object) -> object:
    """Without the types that the peer tells."""
    match value:
        case {"type": _, "value": inner}:
            return plain("", inner)
        case dict():
            return {name: plain("", inner) for name, inner in value.items()}
        case list():
            return [plain("", inner) for inner in value]
        case str() if kind == "bytes":
            return base64.b64decode(value).decode()
    return value


@pytest.mark.parametrize(
    ("sent", "kind", "body"),
    [
        ({"text": "naïve"}, JmsKind.TEXT, "naïve"),
        ({"bytes": base64.b64encode(b"data").decode()}, JmsKind.BYTES, b"data"),
        ({"map": {"a": {"type": "string", "value": "x"}}}, JmsKind.MAP, {"a": "x"}),
        ({"stream": [{"type": "string", "value": "x"}]}, JmsKind.STREAM, AmqpSequence((["x"],))),
        ({}, JmsKind.MESSAGE, None),
    ],
    ids=repr,
)
def test_we_see_the_kind_that_jms_says(
    ours: acquit.Session, theirs: Session, address: str, sent: dict[str, object], kind: JmsKind, body: Body
) -> None:
    theirs.send(f"queue:{address}", sent)
    received = ours.receiver(address).receive(LONG)
    assert received is not None
    assert (received.jms_kind, received.body) == (kind, body)
