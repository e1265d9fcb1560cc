"""The codec under any value, any legal encoding of it, and any bytes at all."""

from __future__ import annotations

import struct
from dataclasses import fields
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.errors import DecodeError, FramingError
from acquit.protocol._schema import Field
from acquit.protocol.codec import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
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
    decode,
    encode,
    skip,
)
from acquit.protocol.composite import decode_composite, encode_composite
from acquit.protocol.definitions import (
    COMPOSITES,
    Accepted,
    Declared,
    Error,
    LifetimePolicy,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
)
from acquit.protocol.frames import FrameDecoder, encode_frame
from acquit.protocol.message import AmqpSequence, AmqpValue, Data, Message
from acquit.protocol.sections import MESSAGE_ANNOTATIONS, map_value, scan_sections, splice_annotations

# -- values -----------------------------------------------------------------------------------------------------------

TEXT = st.text(max_size=20)
SYMBOLS = st.text(st.characters(max_codepoint=127), max_size=20).map(Symbol)


def whole(kind: type[Any]) -> st.SearchStrategy[Any]:
    return st.integers(kind.MIN, kind.MAX).map(kind)


BY_TYPE: dict[type, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    bool: st.booleans(),
    UByte: whole(UByte),
    UShort: whole(UShort),
    UInt: whole(UInt),
    ULong: whole(ULong),
    Byte: whole(Byte),
    Short: whole(Short),
    Int: whole(Int),
    int: st.integers(-(2**63), 2**63 - 1),
    Float: st.floats(width=32, allow_nan=False).map(Float),
    float: st.floats(allow_nan=False),
    Decimal32: st.binary(min_size=4, max_size=4).map(Decimal32),
    Decimal64: st.binary(min_size=8, max_size=8).map(Decimal64),
    Decimal128: st.binary(min_size=16, max_size=16).map(Decimal128),
    Char: st.characters(exclude_categories=["Cs"]).map(Char),
    Timestamp: whole(Timestamp),
    UUID: st.uuids(),
    bytes: st.binary(max_size=20),
    str: TEXT,
    Symbol: SYMBOLS,
}
FLAT = st.one_of(*BY_TYPE.values())


def arrays_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Array]:
    elements: dict[type, st.SearchStrategy[Any]] = {
        **BY_TYPE,
        list: st.lists(inner, max_size=3),
        dict: maps_of(inner),
        Array: st.sampled_from(list(BY_TYPE)).flatmap(lambda kind: items_of(kind, BY_TYPE[kind])),
    }
    return st.sampled_from(list(elements)).flatmap(lambda kind: items_of(kind, elements[kind]))


def items_of(kind: type, items: st.SearchStrategy[Any]) -> st.SearchStrategy[Array]:
    descriptors = st.lists(st.one_of(SYMBOLS, whole(ULong)), max_size=2).map(tuple)
    return st.builds(Array, st.just(kind), st.lists(items, max_size=4).map(tuple), descriptors)


def maps_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[Any, Any]]:
    # Keys of one type each: 1, True and UInt(1) are one key to Python.
    return st.one_of(*(st.dictionaries(BY_TYPE[kind], inner, max_size=4) for kind in (str, Symbol, ULong, int, UUID)))


VALUES = st.recursive(
    FLAT,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        maps_of(inner),
        arrays_of(inner),
        st.builds(Described, st.one_of(SYMBOLS, whole(ULong)), inner),
    ),
    max_leaves=15,
)


def identical(left: object, right: object) -> bool:
    """Equal with equal types all through."""
    if type(left) is not type(right):
        return False
    match left, right:
        case Described(), Described():
            return identical(left.descriptor, right.descriptor) and identical(left.value, right.value)
        case Array(), Array():
            return left.element is right.element and all(map(identical, left.items, right.items)) and left == right
        case list(), list():
            return len(left) == len(right) and all(map(identical, left, right))
        case dict(), dict():
            return identical(list(left.items()), list(right.items()))
        case tuple(), tuple():
            return len(left) == len(right) and all(map(identical, left, right))
        case float(), float():
            return struct.pack(">d", left) == struct.pack(">d", right)
    return left == right


@given(VALUES)
def test_decode_gives_back_what_encode_took(value: object) -> None:
    data = encode(value)
    decoded, end = decode(data)
    assert identical(decoded, value)
    assert end == len(data)
    assert encode(decoded) == data


@given(VALUES, st.binary(max_size=8), st.binary(max_size=8))
def test_a_value_ends_where_it_ends_whatever_stands_around_it(value: object, before: bytes, after: bytes) -> None:
    data = encode(value)
    around = before + data + after
    end = len(before) + len(data)
    assert identical(decode(around, len(before))[0], value)
    assert decode(around, len(before))[1] == skip(around, len(before), len(around)) == end


@given(VALUES, st.data())
def test_a_value_cut_short_is_refused(value: object, data: st.DataObject) -> None:
    octets = encode(value)
    end = data.draw(st.integers(0, len(octets) - 1))
    with pytest.raises(DecodeError):
        decode(octets[:end])
    with pytest.raises(DecodeError):
        skip(octets, 0, end)


# -- any legal encoding: an encoder of its own that may choose every form ---------------------------------------------


@st.composite
def encodings(draw: st.DrawFn, value: object) -> bytes:
    """Some legal encoding of `value`, by a second and independent reading of the specification's part 1."""
    wide = draw(st.booleans())

    def sized(code: int, body: bytes) -> bytes:
        if wide or len(body) > 255:
            return bytes([code | 0x10]) + len(body).to_bytes(4, "big") + body
        return bytes([code, len(body)]) + body

    def counted(code: int, items: list[object]) -> bytes:
        body = b"".join(draw(encodings(item)) for item in items)
        if wide or len(body) > 254 or len(items) > 255:
            return bytes([code | 0x10]) + struct.pack(">II", len(body) + 4, len(items)) + body
        return bytes([code, len(body) + 1, len(items)]) + body

    match value:
        case None:
            return b"\x40"
        case bool():
            return (b"\x56\x01" if wide else b"\x41") if value else (b"\x56\x00" if wide else b"\x42")
        case UInt():
            if value == 0 and not wide:
                return b"\x43"
            return bytes([0x52, value]) if value < 256 and draw(st.booleans()) else b"\x70" + value.to_bytes(4, "big")
        case ULong():
            if value == 0 and not wide:
                return b"\x44"
            return bytes([0x53, value]) if value < 256 and draw(st.booleans()) else b"\x80" + value.to_bytes(8, "big")
        case Int():
            if -128 <= value < 128 and not wide:
                return b"\x54" + value.to_bytes(1, "big", signed=True)
            return b"\x71" + value.to_bytes(4, "big", signed=True)
        case UByte() | UShort() | Byte() | Short() | Timestamp():
            code, width = {UByte: (0x50, 1), UShort: (0x60, 2), Byte: (0x51, 1), Short: (0x61, 2)}.get(
                type(value), (0x83, 8)
            )
            return bytes([code]) + value.to_bytes(width, "big", signed=not isinstance(value, UByte | UShort))
        case int():
            if -128 <= value < 128 and not wide:
                return b"\x55" + value.to_bytes(1, "big", signed=True)
            return b"\x81" + value.to_bytes(8, "big", signed=True)
        case Float():
            return b"\x72" + struct.pack(">f", value)
        case float():
            return b"\x82" + struct.pack(">d", value)
        case Decimal32() | Decimal64() | Decimal128():
            return bytes([{4: 0x74, 8: 0x84, 16: 0x94}[len(value)]]) + value
        case Char():
            return b"\x73" + value.encode("utf-32-be")
        case UUID():
            return b"\x98" + value.bytes
        case bytes():
            return sized(0xA0, value)
        case Symbol():
            return sized(0xA3, value.encode())
        case str():
            return sized(0xA1, value.encode())
        case list():
            return b"\x45" if not value and draw(st.booleans()) else counted(0xC0, value)
        case dict():
            return counted(0xC1, [part for pair in value.items() for part in pair])
        case Described():
            return b"\x00" + draw(encodings(value.descriptor)) + draw(encodings(value.value))
        case _:
            return encode(value)


@given(VALUES.flatmap(lambda value: st.tuples(st.just(value), encodings(value))))
def test_every_legal_encoding_decodes(pair: tuple[object, bytes]) -> None:
    value, data = pair
    decoded, end = decode(data)
    assert identical(decoded, value)
    assert end == len(data) == skip(data, 0, len(data))


# -- bytes that mean nothing ------------------------------------------------------------------------------------------


@given(st.binary(max_size=64))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    try:
        value, end = decode(data)
    except DecodeError:
        return
    assert 0 < end <= len(data)
    assert skip(data, 0, len(data)) == end
    assert identical(decode(encode(value))[0], value) or "nan" in repr(value)


# -- composites -------------------------------------------------------------------------------------------------------

STATES: st.SearchStrategy[Any] = st.deferred(
    lambda: st.one_of(
        st.builds(Received, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)),
        st.just(Accepted()),
        st.just(Released()),
        st.builds(Rejected, st.none() | ERRORS),
        st.builds(Modified, st.none() | st.booleans(), st.none() | st.booleans(), st.none() | NAMED),
        st.builds(Declared, st.binary(max_size=8)),
        st.builds(TransactionalState, st.binary(max_size=8), st.none() | st.just(Accepted())),
    )
)
NAMED = st.dictionaries(SYMBOLS, VALUES, max_size=3)
ERRORS = st.builds(Error, SYMBOLS, st.none() | TEXT, st.none() | NAMED)
EXTENSIONS = st.builds(Described, st.builds(ULong, st.integers(2**32, 2**64 - 1)), st.lists(FLAT, max_size=3))

BY_WIRE: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "ubyte": st.integers(0, 2**8 - 1),
    "ushort": st.integers(0, 2**16 - 1),
    "uint": st.integers(0, 2**32 - 1),
    "ulong": st.integers(0, 2**64 - 1),
    "timestamp": st.integers(-(2**63), 2**63 - 1),
    "binary": st.binary(max_size=300),
    "string": st.text(max_size=100),
    "symbol": SYMBOLS,
    "fields": NAMED,
    "error": ERRORS,
}
BY_REQUIREMENT: dict[str, st.SearchStrategy[Any]] = {
    "address": TEXT,
    "txn-id": st.binary(max_size=8),
    "message-id": st.one_of(TEXT, st.binary(max_size=8), st.uuids(), whole(ULong)),
    "global-tx-id": VALUES,
    "delivery-state": st.one_of(STATES, EXTENSIONS),
    "outcome": st.one_of(st.just(Accepted()), st.builds(Rejected, ERRORS), EXTENSIONS),
    "source": EXTENSIONS,
    "target": EXTENSIONS,
}


def field_values(field: Field) -> st.SearchStrategy[Any]:
    if field.multiple:
        return st.lists(SYMBOLS, max_size=3).map(tuple)
    if field.wire == "map":
        values = st.dictionaries(st.binary(max_size=8), st.none() | STATES, max_size=3)
    elif field.wire == "fields" and field.requires:
        policies = st.sampled_from([policy() for policy in LifetimePolicy.__args__])
        values = st.dictionaries(SYMBOLS, policies | FLAT, max_size=3)
    elif field.choices is not None:
        values = st.sampled_from(list(field.choices))
    else:
        values = BY_REQUIREMENT[field.requires] if field.wire == "*" else BY_WIRE[field.wire]
    return values if field.mandatory else st.just(field.default) | values


ANY_COMPOSITE = st.sampled_from(COMPOSITES).flatmap(
    lambda kind: st.builds(kind, *(field_values(field) for field in kind.FIELDS))
)


@given(ANY_COMPOSITE)
def test_composites_come_back(value: object) -> None:
    data = encode_composite(value)
    decoded, end = decode_composite(data)
    assert type(decoded) is type(value)
    for field in fields(value):  # type: ignore[arg-type]
        assert getattr(decoded, field.name) == getattr(value, field.name)
    assert end == len(data) == skip(data, 0, len(data))


@given(ANY_COMPOSITE, st.data())
def test_composites_cut_short_are_refused(value: object, data: st.DataObject) -> None:
    octets = encode_composite(value)
    with pytest.raises(DecodeError):
        decode_composite(octets[: data.draw(st.integers(0, len(octets) - 1))])


@given(ANY_COMPOSITE)
def test_the_composite_is_the_described_list_that_the_specification_says(value: Any) -> None:
    """The fast way through the field tables and the general decoder read the same."""
    described = decode(encode_composite(value))[0]
    assert isinstance(described, Described)
    assert described.descriptor == value.DESCRIPTOR
    assert isinstance(described.value, list)
    again = encode(Described(Symbol(value.SYMBOL), described.value))
    assert decode_composite(again)[0] == value


# -- frames, sections, messages ---------------------------------------------------------------------------------------

MESSAGES = st.builds(
    Message,
    st.one_of(
        st.binary(max_size=300),
        st.lists(st.binary(max_size=5), min_size=2, max_size=3).map(lambda parts: Data(tuple(parts))),
        st.lists(st.lists(FLAT, max_size=3), min_size=1, max_size=3).map(lambda lists: AmqpSequence(tuple(lists))),
        VALUES.map(lambda value: AmqpValue(value) if type(value) is bytes else value),
    ),
    durable=st.booleans(),
    priority=st.integers(0, 255),
    ttl_ms=st.none() | st.integers(0, 2**32 - 1),
    message_id=st.none() | BY_REQUIREMENT["message-id"],
    to=st.none() | TEXT,
    creation_time=st.none() | st.integers(0, 2**62),
    delivery_annotations=st.none() | NAMED,
    annotations=st.none() | NAMED,
    application_properties=st.none() | st.dictionaries(TEXT, FLAT, max_size=3),
    footer=st.none() | NAMED,
)


@given(MESSAGES)
def test_messages_come_back(message: Message) -> None:
    data = message.encode()
    assert Message.decode(data) == message
    assert Message.decode(data).encode() == data
    sections = scan_sections(data)
    assert b"".join(sections.section(rank) for rank in range(7)) == data


@given(NAMED, st.dictionaries(SYMBOLS, FLAT, max_size=3), st.sets(SYMBOLS, max_size=2))
def test_splicing_is_what_it_would_be_on_dicts(old: dict[str, Any], new: dict[str, Any], gone: set[str]) -> None:
    before = splice_annotations(b"", old)
    after = splice_annotations(before, new, remove=gone)
    expected = {key: value for key, value in old.items() if key not in gone} | new
    decoded = scan_sections(after).decode_map(MESSAGE_ANNOTATIONS)
    assert decoded == expected
    assert all(map_value(after, key) == value for key, value in expected.items())


@given(st.lists(st.tuples(ANY_COMPOSITE, st.binary(max_size=20)), max_size=4), st.data())
def test_frames_do_not_depend_on_how_they_arrive(bodies: list[tuple[Any, bytes]], data: st.DataObject) -> None:
    """The same frames, or the same refusal, from the stream as one piece and in any pieces."""
    stream = b"".join(encode_frame(0, encode_composite(value) + payload) for value, payload in bodies)
    stream += data.draw(st.binary(max_size=12))

    def read(pieces: list[bytes]) -> list[object]:
        decoder = FrameDecoder(2048)
        seen: list[object] = []
        try:
            for piece in pieces:
                decoder.feed(piece)
                seen.extend(decoder)
        except (FramingError, DecodeError) as exc:
            # Which of two faults of a header is seen first depends on how much of it is there; the scope does not.
            seen.append(type(exc))
        return seen

    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(pieces) == read([stream]) == read([bytes([octet]) for octet in stream])
