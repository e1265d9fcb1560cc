"""Requests to the management node of a whole broker."""

from __future__ import annotations

import json

from acquit.broker.admin.later import Later
from acquit.broker.admin.management import answer, reply_address
from acquit.errors import DecodeError
from acquit.http.content import content_of
from acquit.protocol.message import AmqpValue, Message
from tests.fuzz.target import Target
from tests.support.broker_world import World, durable


def management(data: bytes) -> None:
    """A request to a broker with a queue: whatever it says, it has an answer with a status."""
    world = World()
    client = world.client()
    client.post_all(client.sender("q"), durable("x", message_id="id-1"))
    world.settle()
    reply_address(data)
    found = answer(data, world.core.administration, None, client.peer.rights)
    if isinstance(found, Later):
        kept: list[object] = []
        found.when_finished(kept.append)
        world.settle()
        (encoded,) = kept
    else:
        encoded = found
    assert isinstance(encoded, bytes)
    said = Message.decode(encoded).application_properties
    assert isinstance(said["statusCode"], int) and isinstance(said["statusDescription"], str)
    world.settle()
    world.check()


def content(data: bytes) -> None:
    """Whatever a message is, what people are shown of it is JSON."""
    json.dumps(content_of(data))


def request(operation: str, kind: str, body: object = None, **properties: object) -> bytes:
    return Message(
        AmqpValue(body),  # type: ignore[arg-type]
        message_id=1,
        reply_to="r",
        application_properties={"operation": operation, "type": kind, **properties},
    ).encode()


REQUESTS = (
    request("QUERY", "acquit:queue", {"attributeNames": ["name", "messages"]}, count=5, offset=0),
    request("READ", "acquit:queue", None, name="q"),
    request("CREATE", "acquit:queue", {"kind": "topic"}, name="new"),
    request("DELETE", "acquit:queue", None, name="q"),
    request("PURGE", "acquit:queue", None, name="q"),
    request("MOVE", "acquit:queue", {"target": "p", "selector": "a = 1", "limit": 5}, name="q"),
    request("QUERY", "acquit:message", {"state": "all", "selector": "a = 1", "after": 1, "limit": 5}, name="q"),
    request("READ", "acquit:message", {"sequence": 1}, name="q"),
    request("READ", "acquit:history", {"message_id": 1}),
    request("READ", "acquit:broker"),
    request("READ", "acquit:transaction", None, name="00" * 16),
)
TARGETS = (
    Target(
        "management",
        management,
        ("broker.admin.management", "broker.admin.operations", "broker.admin.administration"),
        (DecodeError,),
        REQUESTS,
        steps=60_000,
        steps_per_byte=400,
        words=(b"operation", b"type", b"name", b"acquit:", b"QUERY", b"MOVE", b"attributeNames"),
        length_max=400,
    ),
    Target(
        "content",
        content,
        ("http.content",),
        (),
        (
            Message("text", durable=True, message_id="m", application_properties={"colour": "red"}).encode(),
            Message(b'{"a": [1, 2.5, null]}', annotations={"x-opt-here": 1}, footer={"x-opt-sum": 2}).encode(),
            Message(AmqpValue(b"\xff\x00A"), correlation_id=1).encode(),
        ),
        steps=60_000,
        steps_per_byte=400,
        words=(b"{", b"[", b'"'),
        length_max=400,
    ),
)
