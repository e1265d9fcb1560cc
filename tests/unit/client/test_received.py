from __future__ import annotations

import copy
import pickle
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, ValuesView

import pytest

from acquit import errors
from acquit.client.receipts import ReceiptStatus
from acquit.client.received import MessageCore, modified, rejected
from acquit.client.session import SessionCore
from acquit.protocol.definitions import Error, Modified, Rejected, Released
from acquit.protocol.message import Message
from acquit.protocol.sections import encode_header
from acquit.protocol.types import ULong
from tests.support.server import Rig, Server


def received(message: Message | bytes | str, mode: str = "individual", **properties: object) -> MessageCore:
    rig = Rig(Server(properties=dict(properties)))
    receiver = rig.receiver(rig.session(mode))
    rig.server.offer("q", message)
    rig.run()
    (taken,) = rig.take(receiver, 1)
    return taken


def test_it_has_all_that_the_message_has() -> None:
    identity = uuid.uuid4()
    message = received(
        Message(
            {"a": [1, 2]},
            durable=True,
            priority=7,
            ttl_ms=60_000,
            message_id=identity,
            subject="s",
            application_properties={"region": "north"},
            annotations={"x-opt-a": 1},
        )
    )
    assert message.body == {"a": [1, 2]}
    assert (message.durable, message.priority, message.ttl_ms) == (True, 7, 60_000)
    assert (message.message_id, message.subject) == (identity, "s")
    assert message.application_properties == {"region": "north"}
    assert message.annotations == {"x-opt-a": 1}


def test_the_payload_is_what_was_transferred() -> None:
    original = Message(b"x", durable=True, message_id="m")
    assert received(original).payload == original.encode()


def test_a_delivery_has_an_identity_a_message_has_none() -> None:
    one, other = received(b"x"), received(b"x")
    assert one == one
    assert one != other
    assert len({one, other, one}) == 2
    assert Message(b"x") == Message(b"x")


def test_the_sequence_is_our_broker_s_name_for_it() -> None:
    assert received(Message("x", annotations={"x-opt-acquit-sequence": ULong(17)})).sequence == 17
    assert received(Message("x", annotations={"x-opt-other": ULong(17)})).sequence is None
    assert received(Message("x", annotations={"x-opt-acquit-sequence": "17"})).sequence is None
    assert received("x").sequence is None


FIRST, NOT_FIRST = encode_header(first_acquirer=True), b"\x00\x53\x70\xc0\x05\x04\x40\x40\x40\x42"
NO_HEADER, SHORT_HEADER = b"", encode_header(durable=True)
COUNTED = encode_header(delivery_count=1)
BODY = b"\x00\x53\x75\xa0\x01x"


class Raw(Message):
    """A message that encodes to bytes of our choice."""

    raw = b""

    def encode(self) -> bytes:
        return self.raw


@pytest.mark.parametrize(
    ("header", "product", "version", "redelivered"),
    [
        (COUNTED, "ActiveMQ", "5", True),  # whatever the broker
        (COUNTED, "acquit", "1", True),
        (FIRST, "acquit", "1", False),
        (NOT_FIRST, "acquit", "1", True),
        (NOT_FIRST, "RabbitMQ", "4.1.0", True),
        (NOT_FIRST, "RabbitMQ", "3.13.1", False),  # before 4 it is not kept
        (NOT_FIRST, "RabbitMQ", "", False),
        (NOT_FIRST, "apache-activemq-artemis", "2.30.0", False),  # Artemis never keeps it
        (NO_HEADER, "acquit", "1", False),  # the default of the specification is false, and says nothing
        (SHORT_HEADER, "acquit", "1", False),
    ],
)
def test_redelivered_believes_those_who_know(header: bytes, product: str, version: str, redelivered: bool) -> None:
    message = Raw()
    message.raw = header + BODY
    assert received(message, product=product, version=version).redelivered is redelivered


@pytest.mark.parametrize("again", [lambda message: pickle.loads(pickle.dumps(message)), copy.copy, copy.deepcopy])
def test_a_copy_for_another_process_is_a_plain_message(again: Callable[[MessageCore], Message]) -> None:
    """It has no link, and nothing to acknowledge."""
    sent = Message({"a": [1]}, subject="s", annotations={"x-opt-a": 1}, application_properties={"b": 2})
    message = received(sent)
    assert message.subject == "s"  # some of it is decoded
    copied = again(message)
    assert type(copied) is Message
    assert (copied.body, copied.properties, copied.application_properties) == (
        sent.body,
        sent.properties,
        sent.application_properties,
    )
    assert copied.annotations["x-opt-a"] == 1


def test_malformed_sections_are_found_when_they_are_looked_at() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("individual"))
    link = rig.peer.sending
    link.send(b"tag", b"this is no message")
    rig.run()
    (message,) = rig.take(receiver, 1)
    with pytest.raises(errors.DecodeError):
        message.body  # noqa: B018 -- reading is what raises
    assert "malformed" in repr(message)
    assert message.payload == b"this is no message"
    message.decide(rejected("amqp:decode-error", "no message"))
    rig.run()
    assert rig.server.outcomes()[0][1] == Rejected(Error("amqp:decode-error", "no message"))


def test_delivery_tags_and_formats() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session())
    rig.peer.sending.send(b"the tag", BODY, message_format=7)
    rig.run()
    (message,) = rig.take(receiver, 1)
    assert (message.delivery_tag, message.message_format) == (b"the tag", 7)


def test_what_was_lost_with_its_link_has_no_outcome_by_that() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("individual"))
    rig.peer.sending.send(b"tag", BODY)
    rig.run()
    (message,) = rig.take(receiver, 1)
    rig.peer.sending.detach(closed=True)
    rig.run()
    assert message.delivery.over
    assert not message.settled
    receipt = message.decide(Modified())
    rig.run()
    assert receipt.status is ReceiptStatus.STALE, "nobody can be told"


def test_what_it_looks_like() -> None:
    message = received(Message(b"x", message_id="m"))
    assert repr(message) == "<MessageCore(b'x', message_id='m') tag=00000001>"
    message.decide(Modified())
    assert repr(message).endswith("tag=00000001 settled>")


@pytest.mark.parametrize(
    ("error", "description", "outcome"),
    [
        (None, None, Rejected()),
        ("amqp:decode-error", None, Rejected(Error("amqp:decode-error"))),
        ("amqp:decode-error", "no", Rejected(Error("amqp:decode-error", "no"))),
        (None, "no", Rejected(Error("acquit:rejected", "no"))),
        (Error("a:b", "c", {"d": 1}), None, Rejected(Error("a:b", "c", {"d": 1}))),
    ],
)
def test_the_outcome_of_reject(error: Error | str | None, description: str | None, outcome: Rejected) -> None:
    assert rejected(error, description) == outcome


def test_the_outcome_of_modify_says_only_what_was_asked_for() -> None:
    assert modified(False, False, None) == Modified()
    assert modified(True, True, {"x-opt-a": 1}) == Modified(True, True, {"x-opt-a": 1})


# -- acknowledged up to a message --------------------------------------------------------------------------------------


class CountedMessages(OrderedDict[int, MessageCore]):
    """Messages that were handed out, with how many of them were looked at."""

    looked_at = 0

    def values(self) -> ValuesView[MessageCore]:  # type: ignore[override]
        def counted() -> Iterator[MessageCore]:
            for one in OrderedDict.values(self):
                self.looked_at += 1
                yield one

        return counted()  # type: ignore[return-value]


def held_in_client_mode(count: int) -> tuple[Rig, SessionCore, list[MessageCore]]:
    rig = Rig()
    session = rig.session("client")
    receiver = rig.receiver(session, prefetch=count)
    rig.server.offer("q", *(b"%d" % number for number in range(count)))
    rig.run()
    return rig, session, rig.take(receiver, count)


def test_one_by_one_looks_at_what_it_acknowledges_and_not_at_all_that_is_held() -> None:
    _rig, session, messages = held_in_client_mode(400)
    session.handed_out = counted = CountedMessages(session.handed_out)
    for message in messages:
        assert session.acknowledge(message, whole_session=False).count == 1
    assert counted.looked_at == 400
    assert not session.handed_out


def test_up_to_a_message_leaves_what_was_settled_before_and_what_came_after() -> None:
    rig, session, messages = held_in_client_mode(40)
    session.settle_all([messages[3], messages[7]], Released())
    assert session.acknowledge(messages[20], whole_session=False).count == 19
    assert session.acknowledge(messages[20], whole_session=False).count == 0, "it is acknowledged already"
    assert session.acknowledge(messages[3], whole_session=False).count == 0, "nor does it take along what is left"
    assert list(session.handed_out.values()) == messages[21:]
    assert session.acknowledge(messages[39], whole_session=False).count == 19
    rig.run()
    assert [str(message.outcome) for message in messages if message.outcome != messages[0].outcome] == [
        str(Released()),
        str(Released()),
    ]
