"""Each encoding of each primitive type, both ways; and every way in which bytes can fail to be a value."""

from __future__ import annotations

import math
import struct
import tracemalloc
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest

from acquit.errors import DecodeError, EncodeError
from acquit.protocol import _decoder
from acquit.protocol.codec import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    EncodedList,
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
    encode_into,
    skip,
)

A_UUID = UUID("01234567-89ab-cdef-0123-456789abcdef")

# Hex of the encoding, the value; the preferred (smallest) encoding of a value is marked True.
VECTORS = [
    ("40", None, True),
    ("41", True, True),
    ("42", False, True),
    ("56 01", True, False),
    ("56 00", False, False),
    ("50 00", UByte(0), True),
    ("50 ff", UByte(255), True),
    ("60 0102", UShort(258), True),
    ("43", UInt(0), True),
    ("52 01", UInt(1), True),
    ("52 ff", UInt(255), True),
    ("70 00000100", UInt(256), True),
    ("70 ffffffff", UInt(2**32 - 1), True),
    ("70 00000000", UInt(0), False),
    ("44", ULong(0), True),
    ("53 ff", ULong(255), True),
    ("80 0000000000000100", ULong(256), True),
    ("80 ffffffffffffffff", ULong(2**64 - 1), True),
    ("80 0000000000000000", ULong(0), False),
    ("51 80", Byte(-128), True),
    ("51 7f", Byte(127), True),
    ("61 8000", Short(-(2**15)), True),
    ("54 ff", Int(-1), True),
    ("54 80", Int(-128), True),
    ("71 ffffff7f", Int(-129), True),
    ("71 00000080", Int(128), True),
    ("71 00000001", Int(1), False),
    ("55 00", 0, True),
    ("55 80", -128, True),
    ("81 ffffffffffffff7f", -129, True),
    ("81 0000000000000080", 128, True),
    ("81 7fffffffffffffff", 2**63 - 1, True),
    ("81 8000000000000000", -(2**63), True),
    ("72 3f800000", Float(1.0), True),
    ("72 80000000", Float(-0.0), True),
    ("82 3ff8000000000000", 1.5, True),
    ("82 7ff0000000000000", math.inf, True),
    ("74 01020304", Decimal32(b"\1\2\3\4"), True),
    ("84 0102030405060708", Decimal64(b"\1\2\3\4\5\6\7\x08"), True),
    ("94 000102030405060708090a0b0c0d0e0f", Decimal128(bytes(range(16))), True),
    ("73 00000041", Char("A"), True),
    ("73 0001f600", Char("\U0001f600"), True),
    ("83 0000018bcfe56800", Timestamp(1700000000000), True),
    ("83 ffffffffffffffff", Timestamp(-1), True),
    ("98 0123456789abcdef0123456789abcdef", A_UUID, True),
    ("a0 00", b"", True),
    ("a0 02 0001", b"\0\1", True),
    ("b0 00000001 ff", b"\xff", False),
    ("a1 03 e282ac", "€", True),
    ("b1 00000001 61", "a", False),
    ("a3 01 61", Symbol("a"), True),
    ("b3 00000001 61", Symbol("a"), False),
    ("45", [], True),
    ("c0 01 00", [], False),
    ("d0 00000004 00000000", [], False),
    ("c0 04 02 5501 40", [1, None], True),
    ("d0 00000007 00000002 5501 40", [1, None], False),
    ("c1 01 00", {}, True),
    ("d1 00000004 00000000", {}, False),
    ("c1 06 02 a10161 5501", {"a": 1}, True),
    ("c1 07 04 5501 41 5502 42", {1: True, 2: False}, True),
    ("00 a30178 5507", Described(Symbol("x"), 7), True),
    ("00 00 a30178 40 41", Described(Described(Symbol("x"), None), True), True),
    ("e0 02 00 70", Array(UInt), True),
    ("e0 0a 02 70 00000001 00000002", Array(UInt, (UInt(1), UInt(2))), True),
    ("e0 04 02 52 01 02", Array(UInt, (UInt(1), UInt(2))), False),
    ("e0 02 03 43", Array(UInt, (UInt(0),) * 3), False),
    ("f0 0000000d 00000002 70 00000001 00000002", Array(UInt, (UInt(1), UInt(2))), False),
    ("e0 02 02 40", Array(type(None), (None, None)), True),
    ("e0 04 02 56 01 00", Array(bool, (True, False)), True),
    ("e0 02 02 41", Array(bool, (True, True)), False),
    ("e0 06 02 a3 0161 0162", Array(Symbol, (Symbol("a"), Symbol("b"))), True),
    ("e0 07 01 00 a30178 a0 00", Array(bytes, (b"",), (Symbol("x"),)), True),
    (
        "e0 0b 02 e0 03 01 50 07 04 02 50 08 09",
        Array(Array, (Array(UByte, (UByte(7),)), Array(UByte, (UByte(8), UByte(9))))),
        False,
    ),
    ("e0 06 02 c0 01 00 01 00", Array(list, ([], [])), False),
    ("e0 02 02 45", Array(list, ([], [])), False),
]


def identical(left: object, right: object) -> bool:
    """Equal and of the same types all through: 1 is not True, and Symbol is not str."""
    if type(left) is not type(right):
        return False
    match left, right:
        case Described(), Described():
            return identical(left.descriptor, right.descriptor) and identical(left.value, right.value)
        case Array(), Array():
            return (
                left.element is right.element
                and identical(list(left.items), list(right.items))
                and identical(list(left.descriptors), list(right.descriptors))
            )
        case list(), list():
            return len(left) == len(right) and all(map(identical, left, right))
        case dict(), dict():
            return identical(list(left), list(right)) and identical(list(left.values()), list(right.values()))
        case float(), float():
            return struct.pack(">d", left) == struct.pack(">d", right)
    return left == right


def octets(text: str) -> bytes:
    return bytes.fromhex(text)


@pytest.mark.parametrize(("text", "value", "preferred"), VECTORS)
def test_every_encoding_decodes(text: str, value: object, preferred: bool) -> None:
    data = octets(text)
    decoded, end = decode(data)
    assert identical(decoded, value), decoded
    assert end == len(data)
    assert identical(decode(b"\x40" + data + b"\x40", 1, 1 + len(data))[0], value)
    assert skip(b"\x40" + data + b"\x40", 1, 1 + len(data)) == 1 + len(data)


@pytest.mark.parametrize(("text", "value", "preferred"), [row for row in VECTORS if row[2]])
def test_the_smallest_encoding_is_written(text: str, value: object, preferred: bool) -> None:
    assert encode(value).hex() == octets(text).hex()


def test_the_vectors_have_every_format_code() -> None:
    assert {octets(text)[0] for text, _, _ in VECTORS} == {0x00, *_decoder.TYPED}


@pytest.mark.parametrize(("text", "value", "preferred"), VECTORS)
def test_every_value_cut_short_is_refused(text: str, value: object, preferred: bool) -> None:
    data = octets(text)
    for end in range(len(data)):
        with pytest.raises(DecodeError):
            decode(data[:end])
        with pytest.raises(DecodeError):
            decode(data, 0, end)
        with pytest.raises(DecodeError):
            skip(data, 0, end)


@pytest.mark.parametrize("code", sorted(set(range(256)) - {0x00, *_decoder.TYPED}))
def test_what_is_no_format_code_is_refused(code: int) -> None:
    data = bytes([code]) + bytes(32)
    with pytest.raises(DecodeError, match=f"0x{code:02x}"):
        decode(data)
    with pytest.raises(DecodeError, match=f"0x{code:02x}"):
        skip(data, 0, len(data))


@pytest.mark.parametrize("length", [255, 256, 70_000])
def test_long_values_take_the_wide_encoding(length: int) -> None:
    values: list[object] = ["x" * length, b"x" * length, Symbol("x" * length), [None] * length]
    values += [dict.fromkeys(range(length)), Array(str, ("x" * length,)), Array(UInt, (1,) * length)]
    for value in values:
        data = encode(value)
        assert identical(decode(data)[0], value) or type(value) is Array
        assert decode(data)[0] == value
        assert skip(data, 0, len(data)) == len(data)


def test_integers_beyond_a_long_become_a_ulong_and_then_nothing() -> None:
    assert encode(2**63) == encode(ULong(2**63))
    for outside in (2**64, -(2**63) - 1):
        with pytest.raises(EncodeError):
            encode(outside)


def test_nan_keeps_being_nan() -> None:
    for value in (math.nan, Float(math.nan)):
        decoded = decode(encode(value))[0]
        assert type(decoded) is type(value)
        assert isinstance(decoded, float)
        assert math.isnan(decoded)


class Colour(IntEnum):
    RED = 1


class Shade(StrEnum):
    DARK = "dark"


def test_python_types_that_are_like_others_are_written_as_those() -> None:
    assert encode((1, 2)) == encode([1, 2])
    assert encode(bytearray(b"x")) == encode(memoryview(b"x")) == encode(b"x")
    assert encode(Colour.RED) == encode(1)
    assert encode(Shade.DARK) == encode("dark")


ALL_ELEMENTS = [
    Array(type(None), (None,) * 3),
    Array(bool, (True, False)),
    Array(UByte, (0, 255)),
    Array(UShort, (0, 65535)),
    Array(UInt, (0, 2**32 - 1)),
    Array(ULong, (0, 2**64 - 1)),
    Array(Byte, (-128, 127)),
    Array(Short, (-32768, 32767)),
    Array(Int, (-(2**31), 2**31 - 1)),
    Array(int, (-(2**63), 2**63 - 1)),
    Array(Float, (Float(0.1), Float(-0.0))),
    Array(float, (0.1, -0.0)),
    Array(Decimal32, (Decimal32(b"abcd"),)),
    Array(Decimal64, (Decimal64(b"abcdefgh"),)),
    Array(Decimal128, (Decimal128(b"abcdefghijklmnop"),)),
    Array(Char, (Char("a"), Char("\U0001f600"))),
    Array(Timestamp, (-1, 1700000000000)),
    Array(UUID, (A_UUID,)),
    Array(bytes, (b"", b"x" * 300)),
    Array(str, ("", "€")),
    Array(Symbol, ("a", "b" * 300)),
    Array(list, ([], [1, "a"], [None] * 300)),
    Array(dict, ({}, {"a": 1}, dict.fromkeys(range(300)))),
    Array(Array, (Array(UInt, (1,)), Array(str), Array(Array, (Array(UInt, (1,)),)))),
]


@pytest.mark.parametrize("array", ALL_ELEMENTS, ids=lambda array: array.element.__name__)
def test_arrays_of_every_type(array: Array) -> None:
    assert {one.element for one in ALL_ELEMENTS} == {kind for kind, _ in _decoder.TYPED.values()}
    for descriptors in ((), (Symbol("a"),), (ULong(1), Symbol("b"))):
        described = Array(array.element, array.items, descriptors)
        data = encode(described)
        decoded, end = decode(data)
        assert decoded == described
        assert end == len(data)
        assert isinstance(decoded, Array)
        assert all(type(item) is array.element for item in decoded.items)
        empty = Array(array.element, (), descriptors)
        assert decode(encode(empty))[0] == empty


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the bytes end"),
        ("56 02", "boolean octet is 0x02"),
        ("73 0000d800", "U\\+D800"),
        ("73 00110000", "U\\+110000"),
        ("73 ffffffff", "U\\+FFFFFFFF"),
        ("a1 01 ff", "utf-8"),
        ("a1 02 c080", "utf-8"),
        ("a1 03 eda080", "utf-8"),
        ("a3 01 80", "ascii"),
        ("a0 05 00", "past the end"),
        ("b0 ffffffff 00", "past the end"),
        ("98 0123", "16-char"),
        ("c0 00 00", "0 items"),
        ("c0 01 01", "1 items cannot"),
        ("c0 02 02 40", "2 items cannot"),
        ("c0 03 01 40 40", "items end at offset 4, but the size given says 5"),
        ("c0 03 02 5501", "the bytes end|items end"),
        ("c0 05 01 40", "1 items cannot"),
        ("d0 00000003 00000000", "0 items cannot"),
        ("d0 00000005 ffffffff 40", "4294967295 items cannot"),
        ("d0 ffffffff 00000001 40", "1 items cannot"),
        ("c1 02 01 40", "pairs"),
        ("c1 05 04 40 40 40 40", "same key twice"),
        ("c1 09 04 a10161 40 a30161 40", "same key twice"),
        ("c1 03 02 45 40", "unhashable"),
        ("00", "the bytes end"),
        ("00 40", "the bytes end"),
        ("e0 02 01 00", "the bytes end"),
        ("e0 02 00 57", "0x57 is not the constructor"),
        ("e0 00 00 40", "ends at|claims|items end"),
        ("e0 03 02 50 00", "2 items in 1 bytes"),
        ("e0 04 01 50 00 00", "array items end"),
        ("f0 00000005 ffffffff 50", "4294967295 items in"),
        ("f0 00000005 ffffffff 40", "items that take no bytes"),
        ("f0 00000005 ffffffff 45", "items that take no bytes"),
        ("f0 ffffffff 00000000 50", "an array of"),
        ("e0 ff 00 50", "an array of"),
    ],
)
def test_malformed_bytes_are_refused(text: str, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        decode(octets(text))


def test_keys_that_differ_in_type_only_are_refused_as_one() -> None:
    """Python takes 1, UInt(1) and True for the same key: such a map cannot be held, and half of it must not be."""
    with pytest.raises(DecodeError, match="same key twice"):
        decode(octets("c1 06 04 5501 40 41 40"))


def nested(depth: int, start: str, end: bytes = b"\x40") -> bytes:
    """`depth` values, one in the other."""
    data = end
    for _ in range(depth):
        match start:
            case "list":
                data = b"\xd0" + struct.pack(">II", len(data) + 4, 1) + data
            case "map":
                data = b"\xd1" + struct.pack(">II", len(data) + 5, 2) + b"\x40" + data
            case "described":
                data = b"\x00\x40" + data
            case "descriptor":
                data = b"\x00" + data + b"\x40"
            case "array":
                data = b"\xf0" + struct.pack(">II", len(data) + 4, 1) + data
    return data


@pytest.mark.parametrize("kind", ["list", "map", "described", "descriptor", "array"])
def test_nesting_is_bounded(kind: str) -> None:
    decode(nested(32, kind))
    with pytest.raises(DecodeError, match="nested deeper"):
        decode(nested(33, kind))
    with pytest.raises(DecodeError, match="nested deeper"):
        decode(nested(2, kind), depth_max=1)
    with pytest.raises(DecodeError, match="nested deeper"):
        decode(nested(2_000, kind))
    deep = nested(2_000, kind)
    assert skip(deep, 0, len(deep)) == len(deep)


def test_a_leading_run_of_descriptions_ends() -> None:
    data = bytes(100_000)
    with pytest.raises(DecodeError):
        decode(data)
    with pytest.raises(DecodeError):
        skip(data, 0, len(data))


BOMBS = {
    "zero-width arrays in a list": b"\xd0"
    + struct.pack(">II", 8 + 10 * 6_500 - 4, 6_500)
    + (b"\xf0" + struct.pack(">II", 5, 60_000) + b"\x40") * 6_500,
    "zero-width arrays in an array": b"\xf0"
    + struct.pack(">II", 5 + 3 * 20_000, 20_000)
    + b"\xe0"
    + b"\x02\xff\x45" * 20_000,
    "a list that claims much": b"\xd0" + struct.pack(">II", 60_000, 0xFFFF_FFFF) + bytes(60_000),
    "an array that claims much": b"\xf0" + struct.pack(">II", 60_000, 0xFFFF_FFFF) + b"\x50" + bytes(60_000),
}


@pytest.mark.parametrize("name", BOMBS)
def test_memory_grows_with_the_bytes_and_not_with_the_claims(name: str) -> None:
    data = BOMBS[name]
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(data)


def test_an_array_of_booleans_as_long_as_its_bytes_is_no_bomb() -> None:
    array = Array(type(None), (None,) * 250)
    assert decode(encode(array))[0] == array
    alone = b"\xf0" + struct.pack(">II", 5, 256) + b"\x41"
    assert decode(alone)[0] == Array(bool, (True,) * 256)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "object has no AMQP type"),
        ({"a": {1, 2}}, "set has no AMQP type"),
        (1j, "complex has no AMQP type"),
        ("\ud800", "surrogates"),
        (Array(object, ()), "element type"),
        (Array(UByte, (256,)), "Array"),
        (Array(UInt, ("a",)), "Array"),
        (Array(Decimal32, (b"x",)), "takes 4 bytes"),
        (Array(Char, ("ab",)), "exactly one"),
        (Array(Symbol, ("é",)), "ascii"),
        (Array(Array, (1,)), "Array"),
        (Array(list, (None,)), "Array"),
        ({(1, 2): "x"}, "a tuple as a key"),
        ([{"a": {(): "x"}}], "a tuple as a key"),
        ({Described(Symbol("a"), (1,)): "x"}, "a tuple as a key, or in one"),
        ({Array(list, ((1,),)): "x"}, "a tuple as a key, or in one"),
        (Array(dict, ({(1, 2): "x"},)), "a tuple as a key"),
    ],
)
def test_values_without_an_encoding_are_refused(value: object, why: str) -> None:
    buffer = bytearray(b"before")
    with pytest.raises(EncodeError, match=why):
        encode_into(buffer, value)
    assert buffer == b"before"


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"a",
        2.5,
        Symbol("a"),
        Described(Symbol("a"), Described(ULong(1), "x")),
        Array(UInt, (1, 2)),
        Array(list, ()),
        Array(Array, (Array(str, ("a",)),)),
    ],
)
def test_a_key_that_has_a_hash_is_read_as_it_was_written(key: Any) -> None:
    for value in ({key: 1}, Array(dict, ({key: 1},))):
        assert decode(encode(value))[0] == value


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(EncodeError, match="nested deeper"):
        encode(endless)


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {1: v}, lambda v: Described(Symbol("a"), v)])
def test_writing_is_bounded_as_reading_is(wrap: object) -> None:
    assert callable(wrap)
    value: object = None
    for _ in range(32):
        value = wrap(value)
    assert decode(encode(value))[0] == value
    with pytest.raises(EncodeError, match="nested deeper"):
        encode(wrap(value))


def test_arrays_in_arrays_are_bounded_when_written() -> None:
    value = Array(Array)
    for _ in range(40):
        value = Array(Array, (value,))
    with pytest.raises(EncodeError, match="nested deeper"):
        encode(value)


def test_encode_into_appends() -> None:
    buffer = bytearray(b"\x40")
    encode_into(buffer, "a")
    assert buffer == b"\x40\xa1\x01a"


@pytest.mark.parametrize("data", [b"\xa0", b"\xb0\0\0", b"\xc0", b"\xd0\0"])
def test_an_end_beyond_the_bytes_lends_none(data: bytes) -> None:
    with pytest.raises(DecodeError, match="the bytes end"):
        skip(data, 0, len(data) + 8)


def test_heads_are_those_of_their_type() -> None:
    for head, other in ((_decoder.list_head, "c10100"), (_decoder.map_head, "45")):
        with pytest.raises(DecodeError, match="must come"):
            head(octets(other), 0)


@pytest.mark.parametrize("count", [0, 1, 3, 300])
def test_a_list_that_is_encoded_as_it_grows_is_the_same_bytes(count: int) -> None:
    items: list[object] = [[number, "text", None, [number]] for number in range(count)]
    growing = EncodedList()
    for at in range(0, count, 7):
        growing.add(items[at : at + 7])
    assert growing == items
    assert encode(growing) == encode(items)
    assert encode({"results": growing}) == encode({"results": items})
    with pytest.raises(EncodeError):
        growing.add([object()])
    assert growing == items and encode(growing) == encode(items)
