"""Every AMQP type: written by python-qpid-proton and read by our client, and the other way round, over our broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import proton
import pytest
from proton.utils import BlockingConnection

import acquit
from acquit import AckMode, Message
from acquit.protocol import types
from tests.interop.conftest import Server

pytestmark = pytest.mark.interop

UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

# (as proton writes it, as we do)
VALUES: list[tuple[Any, Any]] = [
    (None, None),
    (True, True),
    (False, False),
    (proton.ubyte(255), types.UByte(255)),
    (proton.ushort(65535), types.UShort(65535)),
    (proton.uint(0), types.UInt(0)),
    (proton.uint(200), types.UInt(200)),
    (proton.uint(2**32 - 1), types.UInt(2**32 - 1)),
    (proton.ulong(0), types.ULong(0)),
    (proton.ulong(2**64 - 1), types.ULong(2**64 - 1)),
    (proton.byte(-128), types.Byte(-128)),
    (proton.short(-32768), types.Short(-32768)),
    (proton.int32(-1), types.Int(-1)),
    (proton.int32(2**31 - 1), types.Int(2**31 - 1)),
    (-1, -1),
    (-(2**63), -(2**63)),
    (proton.float32(0.5), types.Float(0.5)),
    (0.1, 0.1),
    (proton.char("€"), types.Char("€")),
    (proton.timestamp(1_700_000_000_123), types.Timestamp(1_700_000_000_123)),
    (UUID, UUID),
    ("", ""),
    ("ü" * 300, "ü" * 300),
    (proton.symbol("a:symbol"), types.Symbol("a:symbol")),
    ([], []),
    ([1, "two", None, [True]], [1, "two", None, [True]]),
    ({"k": {"n": [1, 2]}, "e": {}}, {"k": {"n": [1, 2]}, "e": {}}),
    ({proton.symbol("s"): proton.ulong(3)}, {types.Symbol("s"): types.ULong(3)}),
]


def name(pair: object) -> str:
    return f"{type(pair).__name__} {pair!r}"[:40]


@pytest.fixture(scope="module")
def theirs(server: Server) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(f"127.0.0.1:{server.port}", timeout=20)
    yield connection
    connection.close()


@pytest.mark.parametrize(("written", "read"), VALUES, ids=name)
def test_their_values_are_ours(
    theirs: BlockingConnection, ours: acquit.Connection, address: str, written: Any, read: Any
) -> None:
    sender = theirs.create_sender(address)
    sender.send(proton.Message(body=written, properties={"p": written} if not isinstance(written, list | dict) else {}))
    with ours.session(AckMode.AUTO) as session, session.receiver(address) as receiver:
        message = receiver.receive(timeout=10)
    assert message is not None
    assert message.body == read
    assert type(message.body) is type(read)
    sender.close()


@pytest.mark.parametrize(("read", "written"), VALUES, ids=name)
def test_our_values_are_theirs(
    theirs: BlockingConnection, ours: acquit.Connection, address: str, written: Any, read: Any
) -> None:
    with ours.session() as session, session.sender(address) as sender:
        sender.send(Message(body=written))
    receiver = theirs.create_receiver(address)
    message = receiver.receive(timeout=10)
    receiver.accept()
    receiver.close()
    assert message.body == read
    assert type(message.body) is type(read)


@pytest.mark.parametrize("identity", ["text", proton.ulong(7), UUID, b"bytes"], ids=str)
def test_properties_of_both_kinds_of_message(
    theirs: BlockingConnection, ours: acquit.Connection, address: str, identity: Any
) -> None:
    sender = theirs.create_sender(address)
    sender.send(
        proton.Message(
            id=identity,
            correlation_id=identity,
            user_id=b"someone",
            address="to",
            subject="subject",
            reply_to="back",
            content_type=proton.symbol("text/plain"),
            content_encoding=proton.symbol("none"),
            expiry_time=1_900_000_000.0,
            creation_time=1_700_000_000.0,
            group_id="group",
            group_sequence=3,
            reply_to_group_id="back group",
            priority=7,
            ttl=3600.0,
            annotations={proton.symbol("x-opt-a"): "b"},
            properties={"k": "v"},
            body=b"payload",
            inferred=True,
        )
    )
    sender.close()
    with ours.session(AckMode.AUTO) as session, session.receiver(address) as receiver:
        message = receiver.receive(timeout=10)
        assert message is not None
    assert message.annotations is not None
    assert (message.message_id, message.correlation_id) == (identity, identity)
    assert (message.user_id, message.to, message.subject, message.reply_to) == (b"someone", "to", "subject", "back")
    assert (message.content_type, message.content_encoding) == ("text/plain", "none")
    assert (message.absolute_expiry_time, message.creation_time) == (1_900_000_000_000, 1_700_000_000_000)
    assert (message.group_id, message.group_sequence, message.reply_to_group_id) == ("group", 3, "back group")
    assert (message.priority, message.annotations["x-opt-a"]) == (7, "b")
    assert 0 < (message.ttl_ms or 0) <= 3_600_000
    assert (message.application_properties, message.body) == ({"k": "v"}, b"payload")
