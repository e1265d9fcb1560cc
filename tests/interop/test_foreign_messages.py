"""Messages of every kind through brokers that we did not write: what goes in comes out.

Both ends are our client (what others make of our encoding, `test_values` and `test_our_client` say); in between is a
broker that stores the message and may take it apart. What one changes is in its `Capabilities.altered`, by name.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from acquit import AckMode, AmqpSequence, AmqpValue, Data, Message
from acquit.errors import ConnectionFailed, DeliveryInDoubt, EndpointError, MessageRejected
from acquit.protocol import types
from tests.interop.foreign import ForeignBroker
from tests.interop.observations import Observer

pytestmark = pytest.mark.interop

UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

BODIES: dict[str, Any] = {
    "no octets": b"",
    "octets": bytes(range(256)),
    "data sections": Data((b"one", b"", b"three")),
    "sequence": AmqpSequence(([1, "two", None],)),
    "sequences": AmqpSequence(([1], [], ["three", [4]])),
    "binary value": AmqpValue(b"octets"),
    "null": None,
    "true": True,
    "text": "ünï",
    "long text": "ü" * 70_000,
    "ubyte": types.UByte(255),
    "ushort": types.UShort(65535),
    "uint": types.UInt(2**32 - 1),
    "ulong": types.ULong(2**64 - 1),
    "byte": types.Byte(-128),
    "short": types.Short(-32768),
    "int": types.Int(-(2**31)),
    "long": -(2**63),
    "float": types.Float(0.5),
    "double": 0.1,
    "char": types.Char("€"),
    "timestamp": types.Timestamp(1_700_000_000_123),
    "uuid": UUID,
    "symbol": types.Symbol("a:symbol"),
    "list": [1, "two", None, [True]],
    "map": {"k": {"n": [1, 2]}, "e": {}},
    "array": types.Array(types.Int, (types.Int(1), types.Int(2))),
    "described": types.Described(types.Symbol("test:thing"), ["a", 1]),
    "decimal": types.Decimal64(bytes(range(8))),
}
COMPOUNDS = Data | AmqpSequence | AmqpValue | list | dict | types.Array | types.Described
SCALARS = [name for name, body in BODIES.items() if not isinstance(body, COMPOUNDS)]

IDS: dict[str, Any] = {"text": "text", "ulong": types.ULong(7), "uuid": UUID, "octets": b"octets"}


def same(one: object, other: object) -> bool:
    """Of one type, too: 1 is not True, and no text is a symbol."""
    return type(one) is type(other) and one == other


class Way:
    """From our client to our client through the broker, again and again; by a new connection and a new queue where a
    message was too much for it."""

    def __init__(self, foreign: ForeignBroker, name: str) -> None:
        self._foreign = foreign
        self._names = (f"{name}.{number}" for number in itertools.count())
        self._open()

    def _open(self) -> None:
        queue = self._foreign.queue(next(self._names))
        self._connection = self._foreign.connect()
        session = self._connection.session(AckMode.AUTO)
        self._sender, self._receiver = session.sender(queue), session.receiver(queue)

    def through(self, message: Message) -> Message | None:
        """What becomes of a message; None where the broker cannot take it, or cannot hand it out."""
        try:
            self._sender.send(message)
            received = self._receiver.receive(timeout=20)
        except (MessageRejected, DeliveryInDoubt, EndpointError, ConnectionFailed):
            self.close()
            self._open()
            return None
        assert received is not None
        return received

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def way(foreign: ForeignBroker, address: str) -> Iterator[Way]:
    way = Way(foreign, address)
    yield way
    way.close()


def test_every_kind_of_body_and_property(way: Way, observe: Observer) -> None:
    altered = []
    for name, body in BODIES.items():
        received = way.through(Message(body=body))
        if received is None or not same(received.body, body):
            altered.append(f"body {name}" if received is not None else f"body {name} (refused)")
    for name in SCALARS:
        value = BODIES[name]
        received = way.through(Message(body=b"", application_properties={"p": value}))
        if received is None or not same(received.application_properties.get("p", ...), value):
            altered.append(f"property {name}" if received is not None else f"property {name} (refused)")
        received = way.through(Message(body=b"", annotations={"x-opt-p": value}))
        if received is None or not same(received.annotations.get("x-opt-p", ...), value):
            altered.append(f"annotation {name}" if received is not None else f"annotation {name} (refused)")
    observe("altered", ", ".join(altered))
