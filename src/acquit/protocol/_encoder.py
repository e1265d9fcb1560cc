"""Values to bytes: one small writer for each Python type (specification 1.6), always in the smallest encoding.

Theory of operation. A *writer* appends a value with its format code to a buffer. `WRITERS` finds it by the exact type
of the value; a subclass that we do not know (an IntEnum, a StrEnum, a named tuple) is written as the nearest base that
we do, and remembered. Lists and maps are written into a buffer of their own first, as their size stands before them.

Arrays have one constructor for all items, so their items are written without it: fixed-width types in full width
(some peers read no other), variable ones in the narrowest that fits the longest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias
from uuid import UUID

from acquit.errors import EncodeError
from acquit.protocol._decoder import DEPTH_MAX
from acquit.protocol.types import (
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
)

Writer: TypeAlias = Callable[[bytearray, Any, int], None]  # buffer, value of the type it is listed under, levels left

ItemsWriter: TypeAlias = Callable[[tuple[Any, ...], int], tuple[int, bytes]]  # items, levels left -> code, bytes

NULL: Final = b"\x40"
TRUE: Final = b"\x41"
FALSE: Final = b"\x42"

_UINT32 = struct.Struct(">I").pack
_INT64 = struct.Struct(">q").pack
_UINT64 = struct.Struct(">Q").pack
_CODE_UINT32 = struct.Struct(">BI").pack
_CODE_INT32 = struct.Struct(">Bi").pack
_CODE_UINT64 = struct.Struct(">BQ").pack
_CODE_INT64 = struct.Struct(">Bq").pack
_CODE_SIZE_COUNT8 = struct.Struct(">BBB").pack
_CODE_SIZE_COUNT32 = struct.Struct(">BII").pack

_SMALL_UINTS: Final = [b"\x43", *(bytes((0x52, number)) for number in range(1, 256))]
_SMALL_ULONGS: Final = [b"\x44", *(bytes((0x53, number)) for number in range(1, 256))]


# -- the bytes of flat values, used for performative fields as well ---------------------------------------------------


def boolean_bytes(value: bool) -> bytes:
    return TRUE if value else FALSE


def ubyte_bytes(value: int) -> bytes:
    return b"\x50" + value.to_bytes(1, "big")


def ushort_bytes(value: int) -> bytes:
    return b"\x60" + value.to_bytes(2, "big")


def uint_bytes(value: int) -> bytes:
    if 0 <= value < 256:
        return _SMALL_UINTS[value]
    return _CODE_UINT32(0x70, value)


def ulong_bytes(value: int) -> bytes:
    if 0 <= value < 256:
        return _SMALL_ULONGS[value]
    return _CODE_UINT64(0x80, value)


def int_bytes(value: int) -> bytes:
    if -128 <= value < 128:
        return b"\x54" + value.to_bytes(1, "big", signed=True)
    return _CODE_INT32(0x71, value)


def long_bytes(value: int) -> bytes:
    if -128 <= value < 128:
        return b"\x55" + value.to_bytes(1, "big", signed=True)
    return _CODE_INT64(0x81, value)


def integer_bytes(value: int) -> bytes:
    """A plain Python int: a long, or a ulong where only that has room for it."""
    if value > 0x7FFF_FFFF_FFFF_FFFF:
        return _CODE_UINT64(0x80, value)
    return long_bytes(value)


def timestamp_bytes(value: int) -> bytes:
    return _CODE_INT64(0x83, value)


def binary_bytes(value: bytes) -> bytes:
    length = len(value)
    if length < 256:
        return b"\xa0%c%b" % (length, value)
    return b"\xb0%b%b" % (_UINT32(length), value)


def string_bytes(value: str) -> bytes:
    octets = value.encode()
    length = len(octets)
    if length < 256:
        return b"\xa1%c%b" % (length, octets)
    return b"\xb1%b%b" % (_UINT32(length), octets)


def symbol_bytes(value: str) -> bytes:
    octets = value.encode("ascii")
    length = len(octets)
    if length < 256:
        return b"\xa3%c%b" % (length, octets)
    return b"\xb3%b%b" % (_UINT32(length), octets)


def float_bytes(value: float) -> bytes:
    return struct.pack(">Bf", 0x72, value)


def double_bytes(value: float) -> bytes:
    return struct.pack(">Bd", 0x82, value)


def char_bytes(value: str) -> bytes:
    return _CODE_UINT32(0x73, ord(value))


def compound_bytes(kind: int, count: int, items: bytes | bytearray) -> bytes:
    """A list (`kind` 0) or map (`kind` 1) of items that are encoded already."""
    length = len(items)
    if length < 255 and count < 256:
        return _CODE_SIZE_COUNT8(0xC0 | kind, length + 1, count) + items
    return _CODE_SIZE_COUNT32(0xD0 | kind, length + 4, count) + items


# -- values of any type -----------------------------------------------------------------------------------------------


def _flat(to_bytes: Callable[[Any], bytes]) -> Writer:
    def write(buffer: bytearray, value: object, depth_left: int) -> None:
        buffer += to_bytes(value)

    return write


def _inside(depth_left: int) -> int:
    if depth_left <= 0:
        raise EncodeError("values are nested deeper than the limit, or contain themselves")
    return depth_left - 1


def write_list(buffer: bytearray, value: list[object], depth_left: int) -> None:
    if not value:
        buffer.append(0x45)
        return
    buffer += compound_bytes(0, len(value), items_bytes(value, _inside(depth_left)))


def write_map(buffer: bytearray, value: dict[object, object], depth_left: int) -> None:
    buffer += compound_bytes(1, 2 * len(value), _pairs_bytes(value, _inside(depth_left)))


def _pairs_bytes(value: dict[object, object], depth_left: int) -> bytearray:
    items = bytearray()
    for key, item in value.items():
        write_value(items, key, depth_left)
        if type(key) not in _FLAT_TYPES:
            _check_key(key)
        write_value(items, item, depth_left)
    return items


def write_key(buffer: bytearray, key: object, depth_left: int) -> None:
    """Append the key of a map. Raises EncodeError for one that its reader would have no hash of."""
    write_value(buffer, key, depth_left)
    _check_key(key)


def _check_key(key: object) -> None:
    """Called with what was written, so that it is known not to be nested beyond the limit."""
    if isinstance(key, list | tuple | dict):
        raise EncodeError(f"a map cannot have a {type(key).__name__} as a key, or in one: nobody could read it")
    if isinstance(key, Described):
        _check_key(key.descriptor)
        _check_key(key.value)
    elif isinstance(key, Array):
        for part in (*key.items, *key.descriptors):
            _check_key(part)


def items_bytes(values: Iterable[object], depth_left: int) -> bytearray:
    items = bytearray()
    for value in values:
        write_value(items, value, depth_left)
    return items


def write_described(buffer: bytearray, value: Described, depth_left: int) -> None:
    depth_left = _inside(depth_left)
    buffer.append(0x00)
    write_value(buffer, value.descriptor, depth_left)
    write_value(buffer, value.value, depth_left)


def write_array(buffer: bytearray, value: Array, depth_left: int) -> None:
    depth_left = _inside(depth_left)
    body = bytearray()
    for descriptor in value.descriptors:
        body.append(0x00)
        write_value(body, descriptor, depth_left)
    code, items = _array_items(value.element, value.items, depth_left)
    body.append(code)
    body += items
    count, length = len(value.items), len(body)
    if length < 255 and count < 256:
        buffer += _CODE_SIZE_COUNT8(0xE0, length + 1, count)
    else:
        buffer += _CODE_SIZE_COUNT32(0xF0, length + 4, count)
    buffer += body


def write_value(buffer: bytearray, value: object, depth_left: int) -> None:
    writer = WRITERS.get(type(value))
    if writer is None:
        writer = _writer_of_base(type(value))
    writer(buffer, value, depth_left)


def _writer_of_base(kind: type) -> Writer:
    for base in kind.__mro__:
        writer = WRITERS.get(base)
        if writer is not None:
            return writer
    raise EncodeError(f"a Python {kind.__name__} has no AMQP type")


class EncodedList(list[object]):
    """A list whose items are encoded as they are added (`add`), a few at a time, and not when the list is."""

    def __init__(self) -> None:
        super().__init__()
        self._octets = bytearray()

    def add(self, items: list[object]) -> None:
        """Add items at the end. Raises EncodeError for what has no encoding."""
        self._octets += items_bytes(items, _inside(DEPTH_MAX))
        self += items

    def write(self, buffer: bytearray, depth_left: int) -> None:
        """Append the encoded list."""
        buffer += compound_bytes(0, len(self), self._octets) if self else b"\x45"


WRITERS: Final[dict[type, Writer]] = {
    type(None): _flat(lambda value: NULL),
    bool: _flat(boolean_bytes),
    UByte: _flat(ubyte_bytes),
    UShort: _flat(ushort_bytes),
    UInt: _flat(uint_bytes),
    ULong: _flat(ulong_bytes),
    Byte: _flat(lambda value: b"\x51" + value.to_bytes(1, "big", signed=True)),
    Short: _flat(lambda value: b"\x61" + value.to_bytes(2, "big", signed=True)),
    Int: _flat(int_bytes),
    int: _flat(integer_bytes),
    Float: _flat(float_bytes),
    float: _flat(double_bytes),
    Decimal32: _flat(lambda value: b"\x74" + value),
    Decimal64: _flat(lambda value: b"\x84" + value),
    Decimal128: _flat(lambda value: b"\x94" + value),
    Char: _flat(char_bytes),
    Timestamp: _flat(timestamp_bytes),
    UUID: _flat(lambda value: b"\x98" + value.bytes),
    bytes: _flat(binary_bytes),
    bytearray: _flat(binary_bytes),
    memoryview: _flat(lambda value: binary_bytes(bytes(value))),
    str: _flat(string_bytes),
    Symbol: _flat(symbol_bytes),
    list: write_list,
    EncodedList: lambda buffer, value, depth_left: value.write(buffer, depth_left),
    tuple: write_list,
    dict: write_map,
    Array: write_array,
    Described: write_described,
}

_FLAT_TYPES: Final = frozenset(WRITERS) - {list, EncodedList, tuple, dict, Array, Described}


# -- array items: the constructor is written once, so these are the bytes without it -----------------------------------


def _fixed_items(code: int, to_bytes: Callable[[Any], bytes]) -> ItemsWriter:
    def write(items: tuple[Any, ...], depth_left: int) -> tuple[int, bytes]:
        return code, b"".join(map(to_bytes, items))

    return write


def _struct_items(code: int, form: str) -> ItemsWriter:
    def write(items: tuple[Any, ...], depth_left: int) -> tuple[int, bytes]:
        return code, struct.pack(f">{len(items)}{form}", *items)

    return write


def _variable_items(code: int, to_octets: Callable[[Any], bytes]) -> ItemsWriter:
    def write(items: tuple[Any, ...], depth_left: int) -> tuple[int, bytes]:
        octets = [to_octets(item) for item in items]
        if all(len(item) < 256 for item in octets):
            return code, b"".join(b"%c%b" % (len(item), item) for item in octets)
        return code | 0x10, b"".join(_UINT32(len(item)) + item for item in octets)

    return write


def _list_items(items: tuple[Any, ...], depth_left: int) -> tuple[int, bytes]:
    written = bytearray()
    depth_left = _inside(depth_left)
    for item in items:
        body = items_bytes(item, depth_left)
        written += _CODE_SIZE_COUNT32(0xD0, len(body) + 4, len(item))[1:] + body
    return 0xD0, bytes(written)


def _map_items(items: tuple[Any, ...], depth_left: int) -> tuple[int, bytes]:
    written = bytearray()
    depth_left = _inside(depth_left)
    for item in items:
        body = _pairs_bytes(item, depth_left)
        written += _CODE_SIZE_COUNT32(0xD1, len(body) + 4, 2 * len(item))[1:] + body
    return 0xD1, bytes(written)


def _nested_array_items(items: tuple[Any, ...], depth_left: int) -> tuple[int, bytes]:
    written = bytearray()
    for item in items:
        one = bytearray()
        write_array(one, item, depth_left)
        if one[0] == 0xE0:
            one[:3] = _CODE_SIZE_COUNT32(0xF0, one[1] + 3, one[2])
        written += one[1:]
    return 0xF0, bytes(written)


_ARRAY_ITEMS: Final[dict[type, ItemsWriter]] = {
    type(None): lambda items, depth_left: (0x40, b""),
    bool: _struct_items(0x56, "?"),
    UByte: _struct_items(0x50, "B"),
    UShort: _struct_items(0x60, "H"),
    UInt: _struct_items(0x70, "I"),
    ULong: _struct_items(0x80, "Q"),
    Byte: _struct_items(0x51, "b"),
    Short: _struct_items(0x61, "h"),
    Int: _struct_items(0x71, "i"),
    int: _struct_items(0x81, "q"),
    Float: _struct_items(0x72, "f"),
    float: _struct_items(0x82, "d"),
    Decimal32: _fixed_items(0x74, Decimal32),
    Decimal64: _fixed_items(0x84, Decimal64),
    Decimal128: _fixed_items(0x94, Decimal128),
    Char: _fixed_items(0x73, lambda item: _UINT32(ord(Char(item)))),
    Timestamp: _struct_items(0x83, "q"),
    UUID: _fixed_items(0x98, lambda item: item.bytes),
    bytes: _variable_items(0xA0, bytes),
    str: _variable_items(0xA1, str.encode),
    Symbol: _variable_items(0xA3, lambda item: item.encode("ascii")),
    list: _list_items,
    dict: _map_items,
    Array: _nested_array_items,
}


def _array_items(element: type, items: tuple[object, ...], depth_left: int) -> tuple[int, bytes]:
    """The constructor and the bytes of the items."""
    write = _ARRAY_ITEMS.get(element)
    if write is None:
        raise EncodeError(f"a Python {element.__name__} cannot be the element type of an array")
    return write(items, depth_left)


UNENCODABLE = (struct.error, OverflowError, ValueError, TypeError, AttributeError)
"""Exceptions of Python on values out of range or of another type than promised; callers get EncodeError instead."""


def encode_into(buffer: bytearray, value: object, *, depth_max: int = DEPTH_MAX) -> None:
    """Append the encoding of `value` to `buffer`, which is left as it was when this raises.

    A plain int is a long, one beyond 63 bits a ulong; a plain float is a double; a tuple is a list. Raises EncodeError
    for a Python type without AMQP type, a number out of range, a lone surrogate, a list or map in the key of a map, or
    nesting beyond `depth_max`.
    """
    start = len(buffer)
    try:
        write_value(buffer, value, depth_max)
    except EncodeError:
        del buffer[start:]
        raise
    except UNENCODABLE as exc:
        del buffer[start:]
        raise EncodeError(f"a {type(value).__name__} that AMQP cannot hold: {exc}") from exc


def encode(value: object, *, depth_max: int = DEPTH_MAX) -> bytes:
    """The encoding of `value`; see `encode_into`."""
    buffer = bytearray()
    encode_into(buffer, value, depth_max=depth_max)
    return bytes(buffer)
