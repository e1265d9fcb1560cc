from __future__ import annotations

import uuid

import pytest

from acquit.client.identity import NAME_MAX, Identity, identify
from acquit.client.received import MessageCore
from acquit.client.subscriptions import Subscription
from acquit.errors import DecodeError
from acquit.protocol.message import Message
from acquit.protocol.types import ULong
from tests.support.server import Rig, Server

SEQUENCE = "x-opt-acquit-sequence"


def received(*messages: Message, address: str = "q", server: Server | None = None, **spec: object) -> list[MessageCore]:
    rig = Rig(server or Server(properties={"acquit:broker-id": "ledger-1"}))
    receiver = rig.receiver(rig.session("individual"), address, **spec)
    rig.server.offer(address, *messages)
    rig.run()
    return rig.take(receiver, len(messages))


def name_of(message: Message, **spec: object) -> Identity | None:
    (taken,) = received(message, **spec)
    return identify(taken)


def test_a_message_id_is_of_an_address() -> None:
    one = name_of(Message("x", message_id="order-17"))
    assert one is not None
    assert (one.scope, one.name, len(one.digest)) == ("q", "string:order-17", 32)
    assert name_of(Message("x", message_id="order-17"), address="other") != one


def test_delivered_again_and_sent_again_have_one_identity() -> None:
    """The broker counts the attempt in the header; who sends again makes another posting, with its own sequence."""
    one, again, sent_again = received(
        Message("x", message_id="m", annotations={SEQUENCE: ULong(1)}),
        Message("x", message_id="m", annotations={SEQUENCE: ULong(1)}, delivery_count=1),
        Message("x", message_id="m", annotations={SEQUENCE: ULong(2)}, creation_time=7),
    )
    assert identify(one) == identify(again) == identify(sent_again)


@pytest.mark.parametrize(
    ("message_id", "name"),
    [
        ("1", "string:1"),
        (ULong(1), "ulong:1"),
        (b"1", "binary:31"),
        (uuid.UUID(int=1), "uuid:00000000-0000-0000-0000-000000000001"),
        (uuid.UUID(int=1).bytes, "binary:00000000000000000000000000000001"),
    ],
)
def test_the_types_of_ids_are_told_apart(message_id: object, name: str) -> None:
    identity = name_of(Message("x", message_id=message_id))  # type: ignore[arg-type]
    assert identity is not None
    assert identity.name == name


def test_without_an_id_it_is_the_sequence_in_the_broker() -> None:
    annotated = Message("x", annotations={SEQUENCE: ULong(7)})
    here = name_of(annotated)
    assert here is not None
    assert (here.scope, here.name) == ("acquit:ledger-1", "sequence:7")
    assert name_of(annotated, address="other") == here
    elsewhere = name_of(annotated, server=Server(properties={"acquit:broker-id": "ledger-2"}))
    assert elsewhere is not None
    assert elsewhere.scope == "acquit:ledger-2"
    unnamed = name_of(annotated, server=Server())
    assert unnamed is not None
    assert unnamed.scope == "acquit:server"  # its container-id


def test_a_message_without_either_has_none() -> None:
    assert name_of(Message("x", correlation_id="c")) is None


def test_the_body_counts_and_its_kind_and_nothing_else() -> None:
    plain, other, binary, dressed = received(
        Message("x", message_id="m"),
        Message("y", message_id="m"),
        Message(b"x", message_id="m"),
        Message("x", message_id="m", subject="s", application_properties={"a": 1}, footer={"f": 1}),
    )
    assert identify(plain) == identify(dressed)
    assert len({identify(plain), identify(other), identify(binary)}) == 3


def test_an_id_and_a_scope_of_the_user_s_own_take_their_place() -> None:
    (message,) = received(Message("x", message_id="m", application_properties={"order": 17}))
    identity = identify(message, id=str(message.application_properties["order"]), scope="orders")
    assert identity is not None
    assert (identity.scope, identity.name) == ("orders", "string:17")


def test_each_subscription_of_a_topic_has_its_own() -> None:
    one = name_of(Message("x", message_id="m"), subscription=Subscription(name="audit", shared=True))
    assert one is not None
    assert one.scope == "q::audit"
    first, second = (name_of(Message("x", message_id="m"), topic=True, name=name) for name in ("a", "b"))
    assert first is not None
    assert second is not None
    assert (first.scope, second.scope) == ("q::a", "q::b")


@pytest.mark.parametrize("message_id", ["x" * 500, "with\x00zero", "two\nlines"])
def test_names_that_a_database_might_not_keep_are_replaced(message_id: str) -> None:
    identity = name_of(Message("x", message_id=message_id))
    assert identity is not None
    assert identity.name.startswith("string#")
    assert len(identity.name) <= NAME_MAX
    assert identity.name.isprintable()
    assert name_of(Message("x", message_id=message_id + "y")) != identity


def test_a_message_that_cannot_be_read_says_so() -> None:
    server = Server()
    rig = Rig(server)
    receiver = rig.receiver(rig.session("individual"))
    server.queues["q"].append(b"\x00\x53\x73\xc0\x03\x01\x50\x01")  # its id is a ubyte
    server.offer("q")
    rig.run()
    (message,) = rig.take(receiver, 1)
    with pytest.raises(DecodeError):
        identify(message)
