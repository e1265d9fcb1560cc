"""The protocol's values: the codec, composites, frames, sections, whole messages, and what the broker reads of them."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from acquit.broker.intake.shaping import (
    Posting,
    check_cost,
    make_body,
    make_plain_body,
    merge_annotations,
    read_due_at,
    read_group,
    read_posting,
)
from acquit.broker.intake.templates import learn_template
from acquit.broker.refusal import Refused
from acquit.client.received import rejected
from acquit.errors import BodyError, DecodeError, EncodeError, FramingError
from acquit.protocol.codec import decode, encode, skip
from acquit.protocol.composite import decode_composite, encode_composite
from acquit.protocol.definitions import (
    Accepted,
    Attach,
    Begin,
    Close,
    Disposition,
    Error,
    Flow,
    Modified,
    Open,
    Role,
    SaslInit,
    SaslMechanisms,
    Source,
    TransactionalState,
    Transfer,
)
from acquit.protocol.definitions import (
    Target as Terminus,
)
from acquit.protocol.frames import AMQP_FRAME, SASL_FRAME, Frame, FrameDecoder, encode_frame
from acquit.protocol.message import AmqpSequence, AmqpValue, Data, Message
from acquit.protocol.numbered import place_section, take_place
from acquit.protocol.sections import Sections, map_value, scan_sections, splice_annotations, without_property
from acquit.protocol.types import Array, Decimal32, Described, Float, Symbol, Timestamp, UByte, UInt, ULong
from acquit.testing.frames import Splitter
from tests.fuzz.target import Target

AROUND = b"\x40" * 40
"""What stands before and behind a value that is only a part of the bytes: nothing of it may be read."""


def alike_within(data: bytes, decode: Callable[[bytes, int, int | None], tuple[object, int]]) -> tuple[object, int]:
    """Decode bytes that stand alone, and the same within others: both are taken, or both are refused."""
    outcomes: list[tuple[str, int] | None] = []
    for before, behind in ((b"", b""), (AROUND, AROUND)):
        start = len(before)
        try:
            decoded, end = decode(before + data + behind, start, start + len(data))
            outcomes.append((repr(decoded), end - start))
        except DecodeError:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]
    decoded, end = decode(data, 0, None)
    assert end <= len(data)
    return decoded, end


def value(data: bytes) -> None:
    decoded, end = alike_within(data, decode)
    assert skip(data, 0, len(data)) == end
    again, _ = decode(encode(decoded))
    assert repr(again) == repr(decoded)


def composite(data: bytes) -> None:
    decoded, _ = alike_within(data, decode_composite)
    again, _ = decode_composite(encode_composite(decoded))
    assert again == decoded or "nan" in repr(decoded)  # by value: string keys that others send become symbols


FRAME_BYTES_MAX = 512


def frames(data: bytes) -> None:
    """The first byte says where the rest is cut. In one piece or two, the same frames come out; what a proxy sees of
    them are the same bytes."""
    cut, stream = data[:1], data[1:]
    frame_type = SASL_FRAME if cut >= b"\x80" else AMQP_FRAME
    at = cut[0] % (len(stream) + 1) if cut else 0
    found: list[tuple[list[Frame], type[DecodeError | FramingError] | None]] = []
    for parts in ((stream,), (stream[:at], stream[at:])):
        decoder = FrameDecoder(FRAME_BYTES_MAX, frame_type)
        heard = []
        try:
            for part in parts:
                decoder.feed(part)
                for frame in decoder:
                    heard.append(frame)  # noqa: PERF402 -- those before a refusal count
                assert decoder.buffered <= FRAME_BYTES_MAX
        except (DecodeError, FramingError) as refused:
            found.append((heard, type(refused)))  # what it says may name a place, which depends on the cut
        else:
            found.append((heard, None))
    assert found[0] == found[1]
    heard, why = found[0]
    assert all(len(frame.payload) <= FRAME_BYTES_MAX for frame in heard)
    splitter = Splitter()
    split = [*splitter.feed(stream[:at]), *splitter.feed(stream[at:])]
    assert b"".join(split) + splitter.rest == stream
    if why is not None:
        raise why("as above")


PARTS = ("header", "delivery_annotations", "annotations", "properties", "application_properties", "body", "footer")


def tried(read: Callable[[], object]) -> bool:
    """Did it decode?"""
    try:
        read()
    except DecodeError:
        return False
    return True


def sections(data: bytes) -> None:
    found = scan_sections(data)
    assert b"".join(found.section(rank) for rank in range(7)) == data
    tried(found.decode_header)
    tried(found.decode_properties)
    tried(lambda: map_value(found.message_annotations, "x-opt-b"))
    tried(lambda: splice_annotations(found.message_annotations, {"x-opt-b": 1}, remove=["x-opt-a"]))
    if tried(found.decode_properties):
        # Picking some fields says what decoding them all says.
        properties = found.decode_properties()
        picked = found.property_values(*range(13))
        assert picked[0] == properties.message_id and picked[3] == properties.subject
        if found.section(3):
            scan_sections(without_property(found.section(3), 1))


def message(data: bytes) -> None:
    decoded = Message.decode(data)
    read = [tried(lambda name=name: getattr(decoded, name)) for name in PARTS]  # type: ignore[misc]
    for ask in (lambda: decoded.text, lambda: decoded.json, decoded.body_views):
        try:
            ask()
        except (BodyError, DecodeError):
            pass
    if all(read):
        try:
            again = Message.decode(decoded.encode())
        except EncodeError as exc:
            # Read, but not written: a list as application property (3.2.5), a string as key of an annotation (3.2.10).
            if "simple value" in str(exc) or "a symbol is ASCII" in str(exc):
                return
            raise
        assert again == decoded or "nan" in repr(decoded)


def posting(data: bytes) -> None:
    """What the broker reads of a posting: the short ways say what the long way says."""
    try:
        check_cost(data, 4, 4)
    except Refused:
        pass
    long = read_posting(data)
    found = scan_sections(data)
    template = learn_template(long)
    short = None if template is None else template.read(data)
    if short is not None:
        for name in (one for one in Posting.__slots__ if one != "sections"):
            assert getattr(short, name) == getattr(long, name), name
        for name in Sections.__slots__:
            assert getattr(short.sections, name) == getattr(long.sections, name), name
    elif template is not None:
        assert template.fits(data) and long.plain and long.user_id is None
        assert (template.durable, template.priority) == (long.durable, long.priority)
        assert (template.group_of(data), template.group_sequence) == (long.group, long.group_sequence)
        assert template.meta(b"q", data) == long.meta(b"q", data)
        assert template.body(data, 7, 1_000) == long.body(data, 7, 1_000)
    read_group(found)
    try:
        read_due_at(found, 1_000)
    except Refused:
        pass
    body = make_body(found, 7, 1_000)
    scan_sections(body)
    short = make_plain_body(data, 7, 1_000)
    assert short is None or short == body
    assert long.body(data, 7, 1_000) == body
    scan_sections(merge_annotations(body, encode({Symbol("x-opt-c"): "d"})))


PLACE = (3, 5, 8)


def place(data: bytes) -> None:
    """The short way and the long way to a place. The long way is forced by a section that the short one does not
    know."""
    found, rest = take_place(data)
    assert found == take_place(place_section(found) + rest)[0]
    slow = scan_sections(data)
    assert rest == slow.header + b"".join(slow.section(rank) for rank in range(2, 7))
    assert map_value(slow.delivery_annotations, "x-opt-acquit-place") is not None


def rejection(data: bytes) -> None:
    """A listener's exception of any text, as the outcome that goes to the broker."""
    text = data.decode("latin-1")
    outcome = rejected(ValueError(text), None)
    assert decode_composite(encode_composite(outcome))[0] == outcome
    rejected(text, None)


PERFORMATIVES = (
    Open("c", "host", 512, 3, 1_000, properties={"product": "x"}),
    Begin(None, 5, 100, 100, 7),
    Attach("link", 1, Role.RECEIVER, source=Source("q"), target=Terminus("t"), unsettled={b"1": Accepted()}),
    Flow(0, 2_000, 0, 2_000, 1, 0, 10, drain=True),
    Transfer(1, 5, b"tag", 0, False, True, state=TransactionalState(b"txn", Accepted())),
    Disposition(Role.RECEIVER, 5, 9, True, Modified(True, False, {"x-opt-a": 1})),
    Close(Error("amqp:internal-error", "why")),
    SaslInit("PLAIN", b"\0u\0p"),
    SaslMechanisms(("PLAIN", "EXTERNAL")),
)
VALUES = (
    [None, True, UByte(3), -1, ULong(5), 1.5, Float(2.5), "text", Symbol("symbol"), b"binary", Timestamp(1)],
    {"k": [1, [2, {"deep": UInt(3)}]], Symbol("s"): UUID(int=5)},
    Array(Symbol, (Symbol("a"), Symbol("b"))),
    Array(list, ([1], [2, 3])),
    Described(ULong(0x77), Described(Symbol("d"), Decimal32(b"\0\0\0\1"))),
)
MESSAGES = (
    Message(b"body", durable=True, message_id="id-1"),
    Message("text", message_id=5, subject="s", to="q", user_id=b"u", group_id="g", group_sequence=1),
    Message(
        AmqpValue(b"x"),
        priority=7,
        ttl_ms=1_000,
        annotations={"x-opt-a": 1, "x-opt-delivery-delay": 5},
        delivery_annotations={"x-opt-d": 1},
        application_properties={"a": 1, "_AMQ_DUPL_ID": "d"},
        footer={"x-opt-f": 1},
    ),
    Message(Data((b"a", b"b")), content_type="text/plain; charset=latin-1", creation_time=5),
    Message(AmqpSequence(([1, 2], ["x"])), absolute_expiry_time=Timestamp(1 << 40)),
    Message(b'{"a": [1, 2.5]}', content_type="application/json"),
    Message(b"x", message_id="id-1", user_id=b"u"),
    Message("x", ttl_ms=5),
)
ENCODED = tuple(one.encode() for one in MESSAGES)
ENCODED_FLOW = encode_composite(PERFORMATIVES[3])
MANY = (
    *(section * 500 for section in (b"\0\x53\x75\xa0\0", b"\0\x53\x76\x45")),
    Message(None, application_properties={f"key{place}": place for place in range(500)}).encode(),
    Message(None, annotations={f"x-opt-{place}": "x" for place in range(500)}).encode(),
)
"""Messages of many sections, and of many entries."""
CODES = (
    *(bytes((code,)) for code in (*range(0x40, 0x46), 0x50, 0x52, 0x53, 0x60, 0x70, 0x80, 0x98)),
    *(bytes((code,)) for code in (0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xC0, 0xC1)),
    b"\xd0\0\0\0\x04\0\0\0\0",
    b"\xe0\x02\0\x40",
    b"\xf0\0\0\0\x05\0\0\0\0\x40",
    b"\xff\xff\xff\xff",
    b"\0\x53\x77",
)


TARGETS = (
    Target(
        "value",
        value,
        ("protocol.codec", "protocol._decoder", "protocol.types"),
        (DecodeError,),
        tuple(map(encode, VALUES)),
        words=CODES,
        long=(encode([1] * 2_000), encode(dict.fromkeys(range(1_000))), b"\0\x40" * 2_000, b"\xc0\xff\1" * 700),
    ),
    Target(
        "composite",
        composite,
        ("protocol.composite", "protocol.definitions"),
        (DecodeError,),
        tuple(map(encode_composite, PERFORMATIVES)),
        words=(*CODES, *(b"\0\x53" + bytes((code,)) for code in (*range(0x10, 0x19), *range(0x23, 0x2C)))),
    ),
    Target(
        "frames",
        frames,
        ("protocol.frames", "testing.frames"),
        (DecodeError, FramingError),
        (
            b"\x09" + b"".join(encode_frame(one, encode_composite(item)) for one, item in enumerate(PERFORMATIVES[:3])),
            b"\x85" + encode_frame(0, encode_composite(PERFORMATIVES[-1]), SASL_FRAME),
            b"\0" + encode_frame(0, b""),
        ),
        words=(b"\0\0\0\x08\x02\0\0\0", b"\0\0\0\x07\x02", b"\0\0\x02\x01\x02\0", b"AMQP\0\1\0\0"),
        long=(b"\x7f" + encode_frame(0, b"") * 600, b"\x7f" + encode_frame(0, ENCODED_FLOW) * 200),
    ),
    Target(
        "sections",
        sections,
        ("protocol.sections",),
        (DecodeError,),
        ENCODED,
        words=tuple(b"\0\x53" + bytes((code,)) for code in range(0x70, 0x79)),
        long=MANY,
    ),
    Target(
        "message",
        message,
        ("protocol.message", "protocol.body"),
        (DecodeError,),
        ENCODED,
        words=(b"charset=", b"utf-16", b"idna", b"punycode", b"application/json", b"\0\x53\x75\xa0\x02[]"),
        long=MANY,
    ),
    Target(
        "posting",
        posting,
        ("broker.intake.shaping", "broker.intake.templates", "broker.intake.entering"),
        (DecodeError,),
        ENCODED,
        words=(b"_AMQ_DUPL_ID", b"x-opt-delivery-time", b"x-opt-acquit-sequence"),
        long=MANY,
    ),
    Target(
        "place",
        place,
        ("protocol.numbered",),
        (DecodeError,),
        (
            place_section(PLACE) + b"\0\x53\x75\xa0\1x",
            encode_composite(MESSAGES[2].header) + place_section(PLACE) + b"\0\x53\x77\x40",
        ),
        words=(place_section(PLACE), b"\0\x53\x70\xc0", b"\0\x53\x71\xd1"),
    ),
    Target("rejection", rejection, ("client.received",), (), (b"amqp:decode-error", b"it failed", b"")),
)
