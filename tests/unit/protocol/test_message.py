"""Messages: what is given comes back, what is not looked at goes on as it came."""

from __future__ import annotations

import copy
import inspect
import pickle
from datetime import UTC, datetime
from typing import get_type_hints
from uuid import UUID

import pytest

from acquit.errors import DecodeError, EncodeError
from acquit.protocol.codec import Array, Decimal32, Described, Symbol, UInt, ULong, Value, encode
from acquit.protocol.definitions import Header, Properties, SectionCode
from acquit.protocol.message import AmqpSequence, AmqpValue, Body, Data, Message, MessageFields
from acquit.protocol.sections import scan_sections


def full() -> Message:
    return Message(
        b"payload",
        durable=True,
        priority=9,
        ttl_ms=1000,
        first_acquirer=True,
        delivery_count=2,
        message_id="id",
        user_id=b"user",
        to="queue",
        subject="subject",
        reply_to="answers",
        correlation_id=UUID(int=7),
        content_type="text/plain",
        content_encoding="gzip",
        absolute_expiry_time=1700000000001,
        creation_time=1700000000000,
        group_id="group",
        group_sequence=5,
        reply_to_group_id="other",
        delivery_annotations={"x-opt-d": 1},
        annotations={"x-opt-a": UInt(1)},
        application_properties={"colour": "red", "size": 5, "exact": True, "nothing": None},
        footer={"x-opt-hash": b"\0"},
    )


def section(code: int, value: Value) -> bytes:
    return encode(Described(ULong(code), value))


def test_everything_comes_back() -> None:
    message = full()
    data = message.encode()
    decoded = Message.decode(data)
    assert decoded == message
    assert decoded.encode() == data
    assert Message.decode(data).encode() == data


def test_fields_are_those_of_the_sections() -> None:
    message = full()
    assert message.header == Header(True, 9, 1000, True, 2)
    assert message.ttl_ms == 1000
    assert message.properties.to == message.to == "queue"
    message.subject = "new"
    message.ttl_ms = None
    assert message.properties.subject == "new"
    assert message.header.ttl is None
    assert "3.2.1" in str(Message.header.__doc__)
    assert "about" in str(Message.subject.__doc__)


def test_defaults_take_no_bytes() -> None:
    assert Message(b"x").encode() == section(SectionCode.DATA, b"x")
    assert Message(b"x", annotations={}, application_properties={}).encode() == section(SectionCode.DATA, b"x")
    empty = Message()
    assert empty.encode() == section(SectionCode.AMQP_VALUE, None)
    assert empty.header == Header()
    assert empty.properties == Properties()
    assert empty.annotations == empty.delivery_annotations == empty.application_properties == empty.footer == {}


BODIES: list[tuple[Body, bytes]] = [
    (b"", section(SectionCode.DATA, b"")),
    (b"x" * 300, section(SectionCode.DATA, b"x" * 300)),
    (Data((b"a", b"b")), section(SectionCode.DATA, b"a") + section(SectionCode.DATA, b"b")),
    ("text", section(SectionCode.AMQP_VALUE, "text")),
    (None, section(SectionCode.AMQP_VALUE, None)),
    (7, section(SectionCode.AMQP_VALUE, 7)),
    ([1, ["a"]], section(SectionCode.AMQP_VALUE, [1, ["a"]])),
    ({"a": 1.5}, section(SectionCode.AMQP_VALUE, {"a": 1.5})),
    (Described(Symbol("a"), [1]), section(SectionCode.AMQP_VALUE, Described(Symbol("a"), [1]))),
    (Array(UInt, (UInt(1),)), section(SectionCode.AMQP_VALUE, Array(UInt, (UInt(1),)))),
    (AmqpValue(b"binary"), section(SectionCode.AMQP_VALUE, b"binary")),
    (Decimal32(b"abcd"), section(SectionCode.AMQP_VALUE, Decimal32(b"abcd"))),
    (AmqpSequence(([1, 2],)), section(SectionCode.AMQP_SEQUENCE, [1, 2])),
    (AmqpSequence(([], [1])), section(SectionCode.AMQP_SEQUENCE, []) + section(SectionCode.AMQP_SEQUENCE, [1])),
]


@pytest.mark.parametrize(("body", "data"), BODIES, ids=lambda value: repr(value)[:30])
def test_the_body_says_its_section(body: Body, data: bytes) -> None:
    assert Message(body).encode() == data
    decoded = Message.decode(data).body
    assert decoded == body
    assert type(decoded) is type(body)


def test_bodies_that_mean_the_same() -> None:
    one = section(SectionCode.DATA, b"x")
    assert Message(Data([b"x"])).encode() == one  # type: ignore[arg-type]  # any iterable will do
    assert Message(bytearray(b"x")).encode() == Message(memoryview(b"x")).encode() == one  # type: ignore[arg-type]
    assert Message(AmqpValue("x")).encode() == Message("x").encode()
    assert bytes(Data((b"a", b"b"))) == b"ab"


@pytest.mark.parametrize("form", ["a0 01 78", "b0 00000001 78"])
@pytest.mark.parametrize("descriptor", ["53 75", "80 0000000000000075", "a3 10 616d71703a646174613a62696e617279"])
def test_one_data_section_is_bytes_in_any_encoding(descriptor: str, form: str) -> None:
    assert Message.decode(bytes.fromhex("00" + descriptor + form)).body == b"x"


def test_a_message_without_a_body_has_none() -> None:
    assert Message.decode(b"").body is None
    assert Message.decode(b"").encode() == b""


@pytest.mark.parametrize("body", [Data(()), AmqpSequence(())])
def test_a_body_is_at_least_one_section(body: Body) -> None:
    with pytest.raises(EncodeError, match="at least one section"):
        Message(body).encode()


def test_what_was_not_looked_at_is_sent_on_as_it_came() -> None:
    """Odd but legal encodings, and sections that are malformed inside, pass: only what changed is new."""
    header = bytes.fromhex("005370 d0 00000005 00000001 41")
    annotations = bytes.fromhex("005372 c1 03 02 a1ff")  # a key cut short
    properties = bytes.fromhex("005373 d0 00000007 00000001 a1 01 78")
    application = bytes.fromhex("005374 d1 00000004 00000000")
    message = Message.decode(header + annotations + properties + application + section(SectionCode.DATA, b"x"))
    message.body = "other"
    message.delivery_annotations["x-opt-d"] = 1
    added = section(SectionCode.DELIVERY_ANNOTATIONS, {Symbol("x-opt-d"): 1})
    assert message.encode() == header + added + annotations + properties + application + Message("other").encode()


def test_a_change_after_decoding_counts() -> None:
    message = Message.decode(full().encode())
    message.subject = "changed"
    message.application_properties["colour"] = "blue"
    message.durable = False
    again = Message.decode(message.encode())
    assert (again.subject, again.to, again.durable, again.priority) == ("changed", "queue", False, 9)
    assert again.application_properties == {"colour": "blue", "size": 5, "exact": True, "nothing": None}
    assert again != full()


def test_what_is_malformed_shows_where_it_is_read() -> None:
    data = bytes.fromhex("005373 c0 03 01 a1ff") + bytes.fromhex("005374 c1 02 01 40") + bytes.fromhex("005377 a101ff")
    message = Message.decode(data)
    for name in ("message_id", "application_properties", "body"):
        with pytest.raises(DecodeError):
            getattr(message, name)
    assert message.encode() == data
    with pytest.raises(DecodeError):
        Message.decode(data[:-1])


@pytest.mark.parametrize(
    "text", ["005376 c0 02 01 a1", "005376 c0 03 02 4057", "005377 c0 01 01", "005375 a00161 005375 b0ffffffff"]
)
def test_malformed_bodies_are_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        _ = Message.decode(bytes.fromhex(text)).body


def test_many_small_sequences_share_one_allowance() -> None:
    """Each section alone would be within bounds; a thousand of them claim what no thousand times 15 bytes hold."""
    claims = bytes.fromhex("005376 c0 0b 01 f0 00000005 00000100 41")
    assert len(Message.decode(claims).body.lists[0][0]) == 256  # type: ignore[union-attr, arg-type]
    with pytest.raises(DecodeError, match="take no bytes"):
        _ = Message.decode(claims * 1000).body


def test_keys_become_what_the_section_demands() -> None:
    message = Message(annotations={"x-opt-a": 1}, application_properties={Symbol("k"): 1})
    sections = scan_sections(message.encode())
    assert [type(key) for key in sections.decode_map(2)] == [Symbol]
    assert [type(key) for key in sections.decode_map(4)] == [str]
    reserved = Message(annotations={ULong(5): 1})  # type: ignore[dict-item]
    assert list(Message.decode(reserved.encode()).annotations) == [ULong(5)]


@pytest.mark.parametrize(("code", "name"), [(0x71, "delivery_annotations"), (0x72, "annotations"), (0x78, "footer")])
def test_keys_of_annotations_that_came_in(code: int, name: str) -> None:
    taken: dict[Value, Value] = {Symbol("a"): 1, "b": 2, ULong(5): 3}
    assert getattr(Message.decode(section(code, taken)), name) == taken
    for key in (5, b"a", None, UInt(5)):
        with pytest.raises(DecodeError, match="may not be a key"):
            getattr(Message.decode(section(code, {key: 1})), name)


@pytest.mark.parametrize("key", [5, b"a", ULong(1), None])
def test_keys_of_application_properties_that_came_in(key: Value) -> None:
    assert Message.decode(section(0x74, {Symbol("a"): [1]})).application_properties == {"a": [1]}
    with pytest.raises(DecodeError, match="may not be a key"):
        _ = Message.decode(section(0x74, {key: 1})).application_properties


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"application_properties": {"a": [1]}}, r"application_properties\['a'\].*simple"),
        ({"application_properties": {"a": {}}}, "simple"),
        ({"application_properties": {"a": Array(str)}}, "simple"),
        ({"application_properties": {1: "a"}}, "a string"),
        ({"application_properties": {"a": object()}}, "no AMQP type"),
        ({"application_properties": {"a": 2**64}}, r"application_properties\['a'\]"),
        ({"annotations": {1: "a"}}, r"annotations\[1\].*symbol"),
        ({"annotations": {"ä": 1}}, "ASCII"),
        ({"footer": {b"a": 1}}, "symbol"),
        ({"delivery_annotations": {"a": {1}}}, r"delivery_annotations\['a'\]: a Python set"),
        ({"priority": 256}, "priority must be"),
        ({"ttl_ms": -1}, "ttl_ms must be"),
        ({"message_id": 1.5}, "must be a text, a UUID"),
        ({"subject": b"bytes"}, "subject must be"),
        ({"body": object()}, "no AMQP type"),
    ],
)
def test_what_amqp_cannot_hold_is_refused(arguments: dict[str, object], why: str) -> None:
    with pytest.raises(EncodeError, match=why):
        Message(**arguments).encode()  # type: ignore[arg-type]


def test_equality() -> None:
    assert full() == full()
    assert Message(b"x") != Message(b"y")
    assert Message(b"x") != b"x"
    assert Message(b"x", to="a") != Message(b"x", to="b")
    with pytest.raises(TypeError, match="unhashable"):
        hash(Message())


def test_messages_can_be_copied_and_pickled() -> None:
    message = Message.decode(full().encode())
    assert pickle.loads(pickle.dumps(message)) == copy.deepcopy(message) == full()


def test_repr_says_what_was_set() -> None:
    assert repr(Message(b"x", to="queue", durable=True, annotations={"x-opt-a": 1})) == (
        "Message(b'x', durable=True, to='queue', annotations={'x-opt-a': 1})"
    )


def test_times_are_datetimes_as_well() -> None:
    message = Message("x", creation_time=1_700_000_000_123)
    assert message.created_at == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert message.expires_at is None
    message.created_at = None
    message.expires_at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    sent = Message.decode(message.encode())
    assert (sent.creation_time, sent.absolute_expiry_time) == (None, 1_700_000_000_000)
    assert sent.expires_at == message.expires_at
    message.expires_at = None
    assert message.absolute_expiry_time is None


def test_the_fields_of_a_message_are_its_keyword_arguments() -> None:
    """`from_json` and `from_file` take them all, typed."""
    keywords = {
        p.name for p in inspect.signature(Message).parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert MessageFields.__annotations__.keys() == keywords
    assert get_type_hints(MessageFields) == {
        name: hint for name, hint in get_type_hints(Message.__init__).items() if name in keywords
    }
