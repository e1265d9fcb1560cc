"""Where the values of a selector's names come from, and that no bytes make reading them fail."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from acquit.broker.selector import Fields, compile_selector, fields_of, fields_of_posting, fields_of_properties
from acquit.broker.selector.fields import OPAQUE, is_application_property, stands_in_body
from acquit.protocol.codec import encode
from acquit.protocol.definitions import SectionCode
from acquit.protocol.message import Message
from acquit.protocol.sections import APPLICATION_PROPERTIES, scan_sections, splice_annotations
from acquit.protocol.types import (
    Array,
    Byte,
    Char,
    Decimal64,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

ID = UUID("12345678-9abc-def0-1234-56789abcdef0")


def fields(payload: bytes, **facts: Any) -> Fields:
    known: dict[str, Any] = {"durable": True, "priority": 4, "expires_at_ms": 0, "size_bytes": len(payload)}
    return fields_of_posting(payload, "orders", **(known | facts))


def of(**properties: Any) -> Fields:
    return fields(Message(b"body", **properties).encode())


@pytest.mark.parametrize(
    ("names", "properties", "value"),
    [
        (["JMSType", "amqp.subject"], {"subject": "new"}, "new"),
        (["JMSReplyTo", "amqp.reply_to"], {"reply_to": "answers"}, "answers"),
        (["JMSDestination", "amqp.to"], {"to": "elsewhere"}, "elsewhere"),
        (["JMSTimestamp", "AMQTimestamp", "amqp.creation_time"], {"creation_time": 12345}, 12345),
        (["amqp.absolute_expiry_time"], {"absolute_expiry_time": 6789}, 6789),
        (["JMSXGroupID", "AMQGroupID", "amqp.group_id"], {"group_id": "g"}, "g"),
        (["JMSXGroupSeq", "amqp.group_sequence"], {"group_sequence": 7}, 7),
        (["amqp.reply_to_group_id"], {"reply_to_group_id": "r"}, "r"),
        (["JMSXUserID", "amqp.user_id"], {"user_id": b"guest"}, "guest"),
        (["JMSXUserID", "amqp.user_id"], {"user_id": b"\xff\xfe"}, "FFFE"),
        (["amqp.content_type"], {"content_type": "text/plain"}, "text/plain"),
        (["amqp.content_encoding"], {"content_encoding": "gzip"}, "gzip"),
        # ids, as Qpid JMS shows them and plain
        (["JMSMessageID", "AMQUserID", "AMQMessageID"], {"message_id": "ID:1"}, "ID:1"),
        (["JMSMessageID"], {"message_id": "1"}, "ID:AMQP_NO_PREFIX:1"),
        (["JMSMessageID"], {"message_id": "ID:AMQP_UUID:1"}, "ID:AMQP_STRING:ID:AMQP_UUID:1"),
        (["JMSMessageID"], {"message_id": ID}, f"ID:AMQP_UUID:{ID}"),
        (["JMSMessageID"], {"message_id": ULong(42)}, "ID:AMQP_ULONG:42"),
        (["JMSMessageID"], {"message_id": b"\x0a\xff"}, "ID:AMQP_BINARY:0AFF"),
        (["amqp.message_id"], {"message_id": "ID:1"}, "ID:1"),
        (["amqp.message_id"], {"message_id": ID}, str(ID)),
        (["amqp.message_id"], {"message_id": ULong(42)}, "42"),
        (["amqp.message_id"], {"message_id": b"\x0a\xff"}, "0AFF"),
        (["JMSCorrelationID", "amqp.correlation_id"], {"correlation_id": "c"}, "c"),
        (["JMSCorrelationID", "amqp.correlation_id"], {"correlation_id": "ID:c"}, "ID:c"),
        (["JMSCorrelationID"], {"correlation_id": "ID:AMQP_NO_PREFIX:c"}, "ID:AMQP_STRING:ID:AMQP_NO_PREFIX:c"),
        (["JMSCorrelationID"], {"correlation_id": ID}, f"ID:AMQP_UUID:{ID}"),
        (["JMSCorrelationID"], {"correlation_id": ULong(42)}, "ID:AMQP_ULONG:42"),
        (["JMSCorrelationID"], {"correlation_id": b"\x0a"}, "ID:AMQP_BINARY:0A"),
        (["amqp.correlation_id"], {"correlation_id": ID}, str(ID)),
    ],
)
def test_properties(names: list[str], properties: dict[str, Any], value: object) -> None:
    for name in names:
        assert of(**properties)[name] == value
        assert type(of(**properties)[name]) is type(value)
        assert stands_in_body(name)


@pytest.mark.parametrize("payload", [b"", Message(b"body").encode(), Message(b"body", group_sequence=1).encode()])
def test_properties_that_are_not_there(payload: bytes) -> None:
    absent = fields(payload)
    for name in ("JMSType", "JMSMessageID", "JMSCorrelationID", "JMSXGroupID", "amqp.creation_time", "amqp.user_id"):
        assert absent[name] is None
    assert absent["JMSTimestamp"] == absent["AMQTimestamp"] == 0  # as a JMS client sees it
    assert absent["JMSDestination"] == "orders"
    assert absent["amqp.to"] is None


@pytest.mark.pure
def test_facts_of_the_place_in_the_queue() -> None:
    message = SimpleNamespace(
        durable=False, priority=9, attempt=2, expires_at_ms=777, size_bytes=1234, body=None, queue=None
    )
    message.queue = SimpleNamespace(address="orders")
    found = fields_of(message)  # type: ignore[arg-type]
    expected = {
        "JMSDeliveryMode": "NON_PERSISTENT",
        "AMQDurable": "NON_DURABLE",
        "amqp.delivery_mode": "NON_PERSISTENT",
        "amqp.durable": False,
        "JMSPriority": 9,
        "AMQPriority": 9,
        "amqp.priority": 9,
        "JMSRedelivered": True,
        "amqp.redelivered": True,
        "JMSXDeliveryCount": 3,
        "amqp.delivery_count": 2,
        "JMSExpiration": 777,
        "AMQExpiration": 777,
        "AMQSize": 1234,
        "AMQAddress": "orders",
    }
    for name, value in expected.items():
        assert found[name] == value
        assert not stands_in_body(name), name
    with pytest.raises(AssertionError, match="in memory"):
        found["colour"]


def test_facts_of_a_posting() -> None:
    found = fields(b"", priority=7, expires_at_ms=5)
    assert [found[name] for name in ("JMSPriority", "JMSExpiration", "JMSDeliveryMode", "AMQDurable")] == [
        7,
        5,
        "PERSISTENT",
        "DURABLE",
    ]
    assert found["JMSRedelivered"] is False and found["JMSXDeliveryCount"] == 1


@pytest.mark.parametrize(
    ("sent", "value"),
    [
        ("red", "red"),
        ("r" * 300, "r" * 300),
        (Symbol("red"), "red"),
        (Char("r"), "r"),
        (True, True),
        (False, False),
        (0, 0),
        (-5, -5),
        (2**40, 2**40),
        (UByte(200), 200),
        (UShort(50_000), 50_000),
        (UInt(0), 0),
        (UInt(2**31), 2**31),
        (ULong(2**64 - 1), 2**64 - 1),
        (Byte(-1), -1),
        (Short(-300), -300),
        (Int(-70_000), -70_000),
        (1.25, 1.25),
        (Float(1.25), 1.25),
        (Timestamp(99), 99),
        (ID, str(ID)),
        (None, None),
        (b"octets", OPAQUE),
        (Decimal64(b"12345678"), OPAQUE),
        ([1], OPAQUE),
        ([], OPAQUE),
        ({"a": 1}, OPAQUE),
        (Array(int, (1, 2)), OPAQUE),
        (Described(Symbol("x"), 1), OPAQUE),
    ],
)
def test_types_of_application_properties(sent: object, value: object) -> None:
    section = b"\x00\x53\x74" + encode({"before": "x", "it": sent, "behind": 3})
    found = fields(section)
    assert found["it"] == value
    assert type(found["it"]) is type(value)
    assert (found["before"], found["behind"], found["it"], found["absent"]) == ("x", 3, value, None)


def test_names_of_application_properties_are_found_in_any_order_and_once() -> None:
    properties = {f"key-{number}": number for number in range(20)} | {"value": "key-99", "key" * 100: 1}
    names = [*properties, "key", "key-99", "lue", ""]
    for seed in range(20):
        random.Random(seed).shuffle(names)
        found = fields(Message(b"", application_properties=properties).encode())
        for name in names:
            assert found[name] == properties.get(name)
        assert found == {name: properties.get(name) for name in names}


def test_a_header_name_is_not_looked_for_among_the_application_properties() -> None:
    found = fields(Message(b"", subject="real", application_properties={"JMSType": "forged", "JMSFoo": 1}).encode())
    assert (found["JMSType"], found["JMSFoo"], found["JMSBar"]) == ("real", 1, None)


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("n > 1 AND colour LIKE 'r%'", True),
        ("JMSCustom IS NULL", True),
        ("n > 1 AND JMSPriority = 4", False),
        ("amqp.subject = 's'", False),
        ("m.x-opt-level = 1", False),
        ("JMSType = 'n'", False),
    ],
)
def test_selectors_that_look_at_application_properties_alone(text: str, alone: bool) -> None:
    selector = compile_selector(text)
    assert selector.by_properties is alone
    assert all(map(is_application_property, selector.identifiers)) is alone
    for properties in ({}, {"n": 2, "colour": "red"}, {"n": 1, "colour": "red"}, {"m.x-opt-level": 1, "JMSType": "n"}):
        payload = Message(b"x", application_properties=properties).encode()
        section = scan_sections(payload).section(APPLICATION_PROPERTIES)
        if alone:
            assert selector.matches(fields_of_properties(section)) is selector.matches(fields(payload))


@pytest.mark.parametrize("form", [0xC0, 0xC1, 0xD0, 0xD1, 0xA0, 0xA1, 0xB1, 0x00, 0x81])
def test_a_value_that_the_map_cuts_off_is_none(form: int) -> None:
    """Whatever stands behind the map: it is not read for what the map lacks."""
    section = b"\x00\x53\x74\xc1\x06\x04\xa1\x02kk" + bytes((form,))
    for text in ("kk IS NULL", "kk = 5 OR kk IS NULL"):
        selector = compile_selector(text)
        assert selector.matches(fields_of_properties(section))
        for behind in (b"\x00\x53\x75\xa0\x01x", b"\x00\x53\x75\xa0\x09" + bytes(9)):
            assert selector.matches(fields(section + behind))


def test_annotations() -> None:
    body = splice_annotations(b"", {"x-opt-level": 5}) + Message(b"", application_properties={"m.x": 1}).encode()
    found = fields(body)
    assert (found["m.x-opt-level"], found["m.x"], found["m."], found["x-opt-level"]) == (5, None, None, None)
    assert compile_selector("m.x-opt-level = 5").matches(fields(body))
    assert compile_selector('"m.x-opt-level" = 5').matches(fields(body))


def test_sections_with_the_longer_descriptors() -> None:
    sections = scan_sections(
        splice_annotations(b"", {"x-opt-a": 1})
        + Message(b"body", subject="s", application_properties={"k": "v"}).encode()
    )
    names = {
        0x72: encode(Symbol("amqp:message-annotations:map")),
        0x73: b"\x80" + (0x73).to_bytes(8, "big"),
        0x74: encode(Symbol("amqp:application-properties:map")),
    }
    payload = b""
    for code, section in (
        (0x72, sections.message_annotations),
        (0x73, sections.section(3)),
        (0x74, sections.section(4)),
    ):
        payload += b"\x00" + names[code] + section[3:]
    found = fields(payload + b"\x00\x53\x75\xa0\x00")
    assert (found["m.x-opt-a"], found["JMSType"], found["k"]) == (1, "s", "v")


def test_a_header_before_the_sections_is_passed_over() -> None:
    posted = Message(b"body", durable=True, priority=9, subject="s", application_properties={"k": 1})
    found = fields(posted.encode(), priority=4)
    assert (found["JMSPriority"], found["JMSType"], found["k"]) == (4, "s", 1)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00",
        b"\x00\x53",
        b"\x00\x53\x74",
        b"\x00\x53\x74\xc1",
        b"\x00\x53\x74\xc1\xff\xff",
        b"\x00\x53\x74\xd1\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x00\x53\x74\xc1\x04\x02\xa1\x01k",
        b"\x00\x53\x74\xc1\x05\x02\xa1\xffkk",
        b"\x00\x53\x74\xc1\x06\x02\xa1\x01k\xa1\xff",
        b"\x00\x53\x74\xc1\x06\x02\xa1\x01k\x99\xff",
        b"\x00\x53\x74\xc0\x05\x02\xa1\x01k\x41",
        b"\x00\x53\x73\xc0\x03\x04\x40\x40\x40",
        b"\x00\x53\x73\xc0\x04\x04\x40\x40\x40\x54\x01",
        b"\x00\xa3\x05wrong\x45",
        b"nonsense",
    ],
)
def test_what_makes_no_sense_is_null(payload: bytes) -> None:
    found = fields(payload)
    for name in ("k", "JMSType", "JMSMessageID", "m.x", "amqp.to", "JMSReplyTo"):
        assert found[name] is None


def test_mutated_sections_never_raise() -> None:
    whole = (
        splice_annotations(b"", {"x-opt-a": 1, "x-opt-b": "two"})
        + Message(
            b"body",
            subject="s",
            message_id=ID,
            user_id=b"u",
            correlation_id=ULong(1),
            application_properties={"k": "v", "n": 1, "l": b"x"},
        ).encode()
    )
    names = "m.x-opt-b k n l absent JMSType JMSMessageID JMSXUserID JMSCorrelationID JMSDestination".split()
    rng = random.Random(1)
    for _ in range(5_000):
        payload = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            payload[rng.randrange(len(payload))] = rng.choice((0, 1, 0x40, 0x53, 0x80, 0xA1, 0xC1, 0xD1, 0xFF, 7))
        found = fields(bytes(payload[: rng.randint(1, len(payload))]))
        rng.shuffle(names)
        for name in names:
            assert type(found[name]) in (str, int, float, bool, type(None), type(OPAQUE))


@pytest.mark.parametrize(
    ("text", "message_id", "expected"),
    [
        ("JMSMessageID = 'ID:1'", "ID:1", True),
        ("JMSMessageID = '1'", "1", True),
        ("'1' = JMSMessageID", "1", True),
        ("JMSMessageID = 'ID:AMQP_NO_PREFIX:1'", "1", True),
        ("JMSMessageID = 'ID:1'", "1", False),
        ("JMSMessageID = '1'", "ID:1", False),
        ("JMSMessageID <> '1'", "1", False),
        ("JMSMessageID IN ('0', '1')", "1", True),
        ("AMQUserID IN ('ID:0', 'ID:1')", "ID:1", True),
        (f"JMSMessageID = 'ID:AMQP_UUID:{ID}'", ID, True),
        (f"amqp.message_id = '{ID}'", ID, True),
        ("JMSMessageID LIKE 'ID:AMQP!_ULONG:4_' ESCAPE '!'", ULong(42), True),
        ("JMSCorrelationID = '1'", None, False),
        ("JMSMessageID IS NULL", None, True),
    ],
)
def test_message_ids_as_clients_write_them(text: str, message_id: object, expected: bool) -> None:
    assert compile_selector(text).matches(of(message_id=message_id, correlation_id="ID:2")) is expected


def test_the_empty_list_as_properties() -> None:
    assert fields(b"\x00\x53\x73\x45" + Message(b"", application_properties={"k": 1}).encode())["k"] == 1
    assert SectionCode.PROPERTIES == 0x73
