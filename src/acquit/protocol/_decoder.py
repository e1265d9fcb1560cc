"""Bytes to values: one small reader for each of AMQP's format codes (specification 1.2, 1.6).

Theory of operation. A *reader* takes the data, the offset after the format code and a `Scope`, and returns the value
with the offset behind it. `READERS` has one for each of the 256 codes; what is not a code has a reader that refuses.

Bounds. Readers of flat values do not compare with an end of their own: Python never reads outside of `bytes` (an index
raises, a slice comes out short), so the one check that matters is made once, by whoever encloses them: *the reader's
next offset must be exactly (list, map, array) or at most (top level) the end*. A value that was cut short moves the
offset past that end and is refused there. Python's own exceptions (`MALFORMED`) become `DecodeError` at the entrances.
Offsets only ever move forward, so time is linear in the bytes whatever the sizes claim.

Memory. Counts are compared with the bytes left before anything is allocated, as each item takes at least one byte.
The exception are arrays of items without width (null, true, uint0, list0...): 15 bytes can claim 2^32 of them, so these
draw on an allowance, `Scope.free_items_left`, that grows with the bytes and not with the claims. Nesting is bounded by
`Scope.depth_left`, and the time that a value takes by `Scope.items_left` where the caller says how many it may have.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar, cast
from uuid import UUID

from acquit.errors import DecodeError
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
    Value,
)

T = TypeVar("T")

DEPTH_MAX: Final = 32
"""Default bound on nesting of lists, maps, arrays and descriptions. A terminus with a filter takes 4."""

FREE_ITEMS: Final = 256
"""Zero-width array items that any value may have; a longer value may have one more for each of its bytes."""


class Scope:
    """Depth and items that one decoding may still use up, shared by all the values nested in it."""

    __slots__ = ("depth_left", "free_items_left", "items_left")

    def __init__(self, byte_count: int, depth_max: int = DEPTH_MAX, items_max: int | None = None) -> None:
        self.depth_left = depth_max
        self.free_items_left = FREE_ITEMS + byte_count
        self.items_left = sys.maxsize if items_max is None else items_max

    def enter(self) -> None:
        """Count one more level; `leave` takes it back. A failed decoding is thrown away with its scope."""
        self.depth_left -= 1
        if self.depth_left < 0:
            raise DecodeError("values are nested deeper than the limit")

    def leave(self) -> None:
        self.depth_left += 1

    def take(self, count: int) -> None:
        """Count items of a list, map or array, before they are decoded."""
        self.items_left -= count
        if self.items_left < 0:
            raise DecodeError("a value has more items than the limit")


FLAT: Final = Scope(0, depth_max=0)
"""Scope of values that nest nothing: refuses to be entered, and can be shared as nothing is ever taken from it."""

Reader: TypeAlias = Callable[[bytes, int, Scope], tuple[Value, int]]

_UINT16 = struct.Struct(">H").unpack_from
_UINT32 = struct.Struct(">I").unpack_from
_UINT64 = struct.Struct(">Q").unpack_from
_INT8 = struct.Struct(">b").unpack_from
_INT16 = struct.Struct(">h").unpack_from
_INT32 = struct.Struct(">i").unpack_from
_INT64 = struct.Struct(">q").unpack_from
_SINGLE = struct.Struct(">f").unpack_from
_DOUBLE = struct.Struct(">d").unpack_from
_TWO_UINT32 = struct.Struct(">II").unpack_from

_new_int = int.__new__  # past the range check of our int types: what came off the wire is in range by its width
_new_str = str.__new__
_new_bytes = bytes.__new__


MALFORMED = (IndexError, struct.error, ValueError, TypeError, RecursionError)
"""Exceptions of Python itself on bytes that are not AMQP: too short, not UTF-8, no code point, an unhashable key."""


def malformed(what: str, exc: Exception) -> DecodeError:
    if isinstance(exc, IndexError | struct.error):
        return DecodeError(f"{what}: the bytes end inside of a value")
    return DecodeError(f"{what}: {exc}")


def uint32_at(data: bytes, offset: int) -> int:
    """Four octets as a size or count."""
    return cast(int, _UINT32(data, offset)[0])


# -- flat values ----------------------------------------------------------------------------------------------------


def constant(value: Value) -> Reader:
    """A reader for a format code that is itself the value."""

    def read(data: bytes, offset: int, scope: Scope) -> tuple[Value, int]:
        return value, offset

    return read


def read_boolean(data: bytes, offset: int, scope: Scope) -> tuple[bool, int]:
    octet = data[offset]
    if octet > 1:
        raise DecodeError(f"boolean octet is 0x{octet:02x}, must be 0x00 or 0x01")
    return octet == 1, offset + 1


def read_uint8(data: bytes, offset: int, scope: Scope) -> tuple[int, int]:
    return data[offset], offset + 1


def read_uint16(data: bytes, offset: int, scope: Scope) -> tuple[int, int]:
    return _UINT16(data, offset)[0], offset + 2


def read_uint32(data: bytes, offset: int, scope: Scope) -> tuple[int, int]:
    return _UINT32(data, offset)[0], offset + 4


def read_uint64(data: bytes, offset: int, scope: Scope) -> tuple[int, int]:
    return _UINT64(data, offset)[0], offset + 8


def read_int8(data: bytes, offset: int, scope: Scope) -> tuple[int, int]:
    return _INT8(data, offset)[0], offset + 1


def read_int16(data: bytes, offset: int, scope: Scope) -> tuple[int, int]:
    return _INT16(data, offset)[0], offset + 2


def read_int32(data: bytes, offset: int, scope: Scope) -> tuple[int, int]:
    return _INT32(data, offset)[0], offset + 4


def read_int64(data: bytes, offset: int, scope: Scope) -> tuple[int, int]:
    return _INT64(data, offset)[0], offset + 8


def _typed(kind: type[int], read: Callable[[bytes, int, Scope], tuple[int, int]]) -> Reader:
    """The same reader, giving the subclass that remembers the wire type."""

    def read_typed(data: bytes, offset: int, scope: Scope) -> tuple[Value, int]:
        number, offset = read(data, offset, scope)
        return _new_int(kind, number), offset

    return read_typed


def read_float(data: bytes, offset: int, scope: Scope) -> tuple[Value, int]:
    return float.__new__(Float, _SINGLE(data, offset)[0]), offset + 4


def read_double(data: bytes, offset: int, scope: Scope) -> tuple[Value, int]:
    return _DOUBLE(data, offset)[0], offset + 8


def read_char(data: bytes, offset: int, scope: Scope) -> tuple[Value, int]:
    number = _UINT32(data, offset)[0]
    if 0xD800 <= number <= 0xDFFF or number > 0x10FFFF:
        raise DecodeError(f"char U+{number:04X} is not a Unicode scalar value")
    return _new_str(Char, chr(number)), offset + 4


def read_uuid(data: bytes, offset: int, scope: Scope) -> tuple[Value, int]:
    return UUID(bytes=data[offset : offset + 16]), offset + 16


def _decimal(kind: type[bytes], width: int) -> Reader:
    def read(data: bytes, offset: int, scope: Scope) -> tuple[Value, int]:
        end = offset + width
        return _new_bytes(kind, data[offset:end]), end

    return read


def read_binary8(data: bytes, offset: int, scope: Scope) -> tuple[bytes, int]:
    start = offset + 1
    end = start + data[offset]
    return data[start:end], end


def read_binary32(data: bytes, offset: int, scope: Scope) -> tuple[bytes, int]:
    start = offset + 4
    end: int = start + _UINT32(data, offset)[0]
    return data[start:end], end


def read_string8(data: bytes, offset: int, scope: Scope) -> tuple[str, int]:
    start = offset + 1
    end = start + data[offset]
    return data[start:end].decode(), end


def read_string32(data: bytes, offset: int, scope: Scope) -> tuple[str, int]:
    start = offset + 4
    end: int = start + _UINT32(data, offset)[0]
    return data[start:end].decode(), end


def read_symbol8(data: bytes, offset: int, scope: Scope) -> tuple[Symbol, int]:
    start = offset + 1
    end = start + data[offset]
    return _new_str(Symbol, data[start:end].decode("ascii")), end


def read_symbol32(data: bytes, offset: int, scope: Scope) -> tuple[Symbol, int]:
    start = offset + 4
    end: int = start + _UINT32(data, offset)[0]
    return _new_str(Symbol, data[start:end].decode("ascii")), end


# -- compound values ------------------------------------------------------------------------------------------------


def compound8(data: bytes, offset: int) -> tuple[int, int, int]:
    """Size and count octets -> (count, offset of the first item, end)."""
    count = data[offset + 1]
    end = offset + 1 + data[offset]
    start = offset + 2
    if end > len(data) or count > end - start:
        raise DecodeError(f"{count} items cannot be in the {min(end, len(data)) - start} bytes that are there")
    return count, start, end


def compound32(data: bytes, offset: int) -> tuple[int, int, int]:
    size, count = _TWO_UINT32(data, offset)
    end = offset + 4 + size
    start = offset + 8
    if end > len(data) or count > end - start:
        raise DecodeError(f"{count} items cannot be in the {min(end, len(data)) - start} bytes that are there")
    return count, start, end


def list_head(data: bytes, offset: int) -> tuple[int, int, int]:
    """The head of the list whose format code is at `offset` -> (count, offset of the first item, end)."""
    code = data[offset]
    if code == 0xC0:
        return compound8(data, offset + 1)
    if code == 0xD0:
        return compound32(data, offset + 1)
    if code == 0x45:
        return 0, offset + 1, offset + 1
    raise DecodeError(f"a list must come, not 0x{code:02x}")


def map_head(data: bytes, offset: int) -> tuple[int, int, int]:
    """The head of the map whose format code is at `offset` -> (count, offset of the first key, end)."""
    code = data[offset]
    if code == 0xC1:
        return compound8(data, offset + 1)
    if code == 0xD1:
        return compound32(data, offset + 1)
    raise DecodeError(f"a map must come, not 0x{code:02x}")


def _read_items(data: bytes, offset: int, count: int, end: int, scope: Scope) -> list[Value]:
    readers = READERS
    items: list[Value] = []
    append = items.append
    scope.enter()
    scope.take(count)
    for _ in range(count):
        item, offset = readers[data[offset]](data, offset + 1, scope)
        append(item)
    scope.leave()
    if offset != end:
        raise DecodeError(f"items end at offset {offset}, but the size given says {end}")
    return items


def read_list0(data: bytes, offset: int, scope: Scope) -> tuple[Value, int]:
    return [], offset  # a new one each time: callers may change what they decoded


def read_list8(data: bytes, offset: int, scope: Scope) -> tuple[Value, int]:
    count, offset, end = compound8(data, offset)
    return _read_items(data, offset, count, end, scope), end


def read_list32(data: bytes, offset: int, scope: Scope) -> tuple[Value, int]:
    count, offset, end = compound32(data, offset)
    return _read_items(data, offset, count, end, scope), end


def pair(items: list[T]) -> dict[T, T]:
    """Items in turn keys and values, as a dict. Raises DecodeError for an odd count and for a key that comes twice."""
    if len(items) & 1:
        raise DecodeError(f"a map has pairs, this one has {len(items)} items")
    pairs = dict(zip(items[::2], items[1::2], strict=True))
    if len(pairs) * 2 != len(items):
        raise DecodeError("a map has the same key twice")
    return pairs


def read_map8(data: bytes, offset: int, scope: Scope) -> tuple[dict[Value, Value], int]:
    count, offset, end = compound8(data, offset)
    return pair(_read_items(data, offset, count, end, scope)), end


def read_map32(data: bytes, offset: int, scope: Scope) -> tuple[dict[Value, Value], int]:
    count, offset, end = compound32(data, offset)
    return pair(_read_items(data, offset, count, end, scope)), end


def read_described(data: bytes, offset: int, scope: Scope) -> tuple[Value, int]:
    scope.enter()
    descriptor, offset = READERS[data[offset]](data, offset + 1, scope)
    value, offset = READERS[data[offset]](data, offset + 1, scope)
    scope.leave()
    return Described(descriptor, value), offset


def read_array8(data: bytes, offset: int, scope: Scope) -> tuple[Array, int]:
    end = offset + 1 + data[offset]
    return _read_array(data, offset + 2, data[offset + 1], end, scope), end


def read_array32(data: bytes, offset: int, scope: Scope) -> tuple[Array, int]:
    size, count = _TWO_UINT32(data, offset)
    end = offset + 4 + size
    return _read_array(data, offset + 8, count, end, scope), end


def _read_array(data: bytes, offset: int, count: int, end: int, scope: Scope) -> Array:
    if end > len(data):
        raise DecodeError(f"an array of {end - offset} bytes in {len(data) - offset} bytes")
    scope.enter()
    descriptors: list[Value] = []
    code = data[offset]
    offset += 1
    while code == 0x00:
        descriptor, offset = READERS[data[offset]](data, offset + 1, scope)
        descriptors.append(descriptor)
        code = data[offset]
        offset += 1
    element = ELEMENT_TYPES.get(code)
    if element is None:
        raise DecodeError(f"0x{code:02x} is not the constructor of an array")
    if code >> 4 == 0x4:
        scope.free_items_left -= count
        if scope.free_items_left < 0:
            raise DecodeError(f"an array claims {count} items that take no bytes, more than the limit")
    elif count * ITEM_BYTES_MIN[code >> 4] > end - offset:
        raise DecodeError(f"an array claims {count} items in {end - offset} bytes")
    scope.take(count)
    read = READERS[code]
    items: list[Value] = []
    append = items.append
    for _ in range(count):
        item, offset = read(data, offset, scope)
        append(item)
    if offset != end:
        raise DecodeError(f"array items end at offset {offset}, but the size given says {end}")
    scope.leave()
    return Array(element, tuple(items), tuple(descriptors))


# -- the tables -----------------------------------------------------------------------------------------------------

TYPED: Final[dict[int, tuple[type, Reader]]] = {
    0x40: (type(None), constant(None)),
    0x56: (bool, read_boolean),
    0x41: (bool, constant(True)),
    0x42: (bool, constant(False)),
    0x50: (UByte, _typed(UByte, read_uint8)),
    0x60: (UShort, _typed(UShort, read_uint16)),
    0x70: (UInt, _typed(UInt, read_uint32)),
    0x52: (UInt, _typed(UInt, read_uint8)),
    0x43: (UInt, constant(UInt(0))),
    0x80: (ULong, _typed(ULong, read_uint64)),
    0x53: (ULong, _typed(ULong, read_uint8)),
    0x44: (ULong, constant(ULong(0))),
    0x51: (Byte, _typed(Byte, read_int8)),
    0x61: (Short, _typed(Short, read_int16)),
    0x71: (Int, _typed(Int, read_int32)),
    0x54: (Int, _typed(Int, read_int8)),
    0x81: (int, read_int64),
    0x55: (int, read_int8),
    0x72: (Float, read_float),
    0x82: (float, read_double),
    0x74: (Decimal32, _decimal(Decimal32, 4)),
    0x84: (Decimal64, _decimal(Decimal64, 8)),
    0x94: (Decimal128, _decimal(Decimal128, 16)),
    0x73: (Char, read_char),
    0x83: (Timestamp, _typed(Timestamp, read_int64)),
    0x98: (UUID, read_uuid),
    0xA0: (bytes, read_binary8),
    0xB0: (bytes, read_binary32),
    0xA1: (str, read_string8),
    0xB1: (str, read_string32),
    0xA3: (Symbol, read_symbol8),
    0xB3: (Symbol, read_symbol32),
    0x45: (list, read_list0),
    0xC0: (list, read_list8),
    0xD0: (list, read_list32),
    0xC1: (dict, read_map8),
    0xD1: (dict, read_map32),
    0xE0: (Array, read_array8),
    0xF0: (Array, read_array32),
}
"""Format code -> (Python type, reader), in the order of the specification's section 1.6."""

ELEMENT_TYPES: Final = {code: kind for code, (kind, _) in TYPED.items()}

ITEM_BYTES_MIN: Final = (0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 1, 4, 2, 8, 3, 9)
"""Least bytes that an item takes, by the high nibble of its format code (1.6, figure of categories)."""


def _refuse(data: bytes, offset: int, scope: Scope) -> tuple[Value, int]:
    raise DecodeError(f"0x{data[offset - 1]:02x} at offset {offset - 1} is not an AMQP format code")


READERS: Final[list[Reader]] = [_refuse] * 256
READERS[0x00] = read_described
for _code, (_, _reader) in TYPED.items():
    READERS[_code] = _reader


def decode(
    data: bytes,
    offset: int = 0,
    end: int | None = None,
    *,
    depth_max: int = DEPTH_MAX,
    items_max: int | None = None,
) -> tuple[Value, int]:
    """Decode the value at `offset`; return it with the offset behind it.

    Values keep their wire type (see `acquit.protocol.types`). Raises DecodeError for anything that is not a complete
    AMQP value before `end`, is nested deeper than `depth_max`, has more than `items_max` items in all its lists, maps
    and arrays, or claims more items than its bytes can hold.
    """
    if end is None:
        end = len(data)
    try:
        value, next_offset = READERS[data[offset]](data, offset + 1, Scope(end - offset, depth_max, items_max))
    except MALFORMED as exc:
        raise malformed("value", exc) from exc
    if next_offset > end:
        raise DecodeError(f"a value ends at offset {next_offset}, past the end at {end}")
    return value, next_offset


# -- stepping over --------------------------------------------------------------------------------------------------

_FIXED_WIDTH: Final = (0, 0, 0, 0, 0, 1, 2, 4, 8, 16)

SKIP_WIDTHS: Final[list[int]] = [-1] * 256
"""Width by format code: 0..16 if it is fixed, 32 + width of the size octets for the others, -1 for what is no code."""
for _code in TYPED:
    _category = _code >> 4
    SKIP_WIDTHS[_code] = _FIXED_WIDTH[_category] if _category <= 9 else 33 if _category in (0xA, 0xC, 0xE) else 36


SKIPPED_DESCRIPTIONS_MAX: Final = 4_096
"""Descriptions of descriptions that `skip` steps through: each takes it a step, where all else takes one."""


def skip(data: bytes, offset: int, end: int) -> int:
    """The offset behind the value at `offset`, which must end by `end`. What is inside of a list, map or array is
    stepped over unseen, so the bytes may still turn out malformed when they are decoded. Raises DecodeError, for more
    than `SKIPPED_DESCRIPTIONS_MAX` descriptions of descriptions, too."""
    pending = 1
    descriptions_left = SKIPPED_DESCRIPTIONS_MAX
    try:
        while pending:
            if offset >= end:
                raise DecodeError(f"the bytes end at {end}, inside of a value")
            code = data[offset]
            width = SKIP_WIDTHS[code]
            if width < 0:
                if code:
                    raise DecodeError(f"0x{code:02x} at offset {offset} is not an AMQP format code")
                pending += 1  # a description is two values: the descriptor and the described
                offset += 1
                descriptions_left -= 1
                if descriptions_left < 0:
                    raise DecodeError("values are nested deeper than the limit")
                continue
            if width < 32:
                offset += 1 + width
            elif width == 33:
                offset += 2 + data[offset + 1]
            else:
                offset += 5 + _UINT32(data, offset + 1)[0]
            pending -= 1
    except (IndexError, struct.error) as exc:
        raise malformed("value", exc) from exc
    if offset > end:
        raise DecodeError(f"a value ends at offset {offset}, past the end at {end}")
    return offset
