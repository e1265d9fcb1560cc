"""AMQP's primitive types as Python values (specification part 1.6).

Most AMQP types have an obvious Python type. Where Python has fewer types than AMQP, a subclass keeps the wire type::

    null       None          ubyte     UByte       timestamp   Timestamp (ms since the Unix epoch)
    boolean    bool          ushort    UShort      char        Char
    string     str           uint      UInt        symbol      Symbol
    binary     bytes         ulong     ULong       float       Float (a plain float is a double)
    long       int           byte      Byte        decimal32   Decimal32 (raw bytes, big-endian)
    double     float         short     Short       decimal64   Decimal64
    uuid       uuid.UUID     int       Int         decimal128  Decimal128
    list       list          array     Array       described   Described
    map        dict

A subclass compares equal to the plain value (``Symbol("x") == "x"``, ``UInt(1) == 1``), so a reader need not care.
The price: keys of a map that differ only in their AMQP type cannot live in one dict; the decoder refuses such a map.

Constructors check the range, and raise `EncodeError` (a ValueError): a value that exists can be encoded.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, Union

from acquit.errors import EncodeError


class _RangedInt(int):
    """An int that remembers its wire type."""

    __slots__ = ()
    MIN: ClassVar[int]
    MAX: ClassVar[int]

    def __new__(cls, value: int) -> Self:
        number = int.__new__(cls, value)
        if not cls.MIN <= number <= cls.MAX:
            raise EncodeError(f"{cls.__name__.lower()} must be in {cls.MIN}..{cls.MAX}, got {int(number)}")
        return number

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    __str__ = int.__repr__


class UByte(_RangedInt):
    """8 bits, unsigned (1.6.3)."""

    __slots__ = ()
    MIN = 0
    MAX = 0xFF


class UShort(_RangedInt):
    """16 bits, unsigned (1.6.4)."""

    __slots__ = ()
    MIN = 0
    MAX = 0xFFFF


class UInt(_RangedInt):
    """32 bits, unsigned (1.6.5)."""

    __slots__ = ()
    MIN = 0
    MAX = 0xFFFF_FFFF


class ULong(_RangedInt):
    """64 bits, unsigned (1.6.6)."""

    __slots__ = ()
    MIN = 0
    MAX = 0xFFFF_FFFF_FFFF_FFFF


class Byte(_RangedInt):
    """8 bits, signed (1.6.7)."""

    __slots__ = ()
    MIN = -0x80
    MAX = 0x7F


class Short(_RangedInt):
    """16 bits, signed (1.6.8)."""

    __slots__ = ()
    MIN = -0x8000
    MAX = 0x7FFF


class Int(_RangedInt):
    """32 bits, signed (1.6.9). A plain Python int is a long (1.6.10)."""

    __slots__ = ()
    MIN = -0x8000_0000
    MAX = 0x7FFF_FFFF


class Timestamp(_RangedInt):
    """Milliseconds since the Unix epoch, UTC, leap seconds not counted (1.6.17)."""

    __slots__ = ()
    MIN = -0x8000_0000_0000_0000
    MAX = 0x7FFF_FFFF_FFFF_FFFF

    @classmethod
    def of(cls, when: datetime) -> Self:
        """The timestamp of a datetime, rounded down to milliseconds. Raises EncodeError for one without a time zone,
        which is another time in each place."""
        if when.utcoffset() is None:
            raise EncodeError(f"{when!r} has no time zone: write datetime.now(UTC), or when.astimezone()")
        return cls((when - _EPOCH) // _MILLISECOND)

    def datetime(self) -> datetime:
        """Return the time as a datetime in UTC. Raises OverflowError outside of the years 1 to 9999."""
        return _EPOCH + int(self) * _MILLISECOND


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


_SINGLE = struct.Struct(">f")


class Float(float):
    """A single-precision number (1.6.11), rounded to 32 bits at once so that it equals what the peer will read."""

    __slots__ = ()

    def __new__(cls, value: float) -> Self:
        try:
            rounded: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
        except (OverflowError, struct.error) as exc:
            raise EncodeError(f"{value!r} does not fit a single-precision float") from exc
        return float.__new__(cls, rounded)

    def __repr__(self) -> str:
        return f"Float({float(self)!r})"


class Char(str):
    """A single Unicode scalar value (1.6.16)."""

    __slots__ = ()

    def __new__(cls, value: str) -> Self:
        if len(value) != 1 or "\ud800" <= value <= "\udfff":
            raise EncodeError(f"a char is exactly one Unicode character and no surrogate, got {value!r}")
        return str.__new__(cls, value)

    def __repr__(self) -> str:
        return f"Char({str.__repr__(self)})"


class Symbol(str):
    """A symbolic value from a constrained domain, ASCII (1.6.21)."""

    __slots__ = ()

    def __new__(cls, value: str) -> Self:
        if not value.isascii():
            raise EncodeError(f"a symbol is ASCII, got {value!r}")
        return str.__new__(cls, value)

    def __repr__(self) -> str:
        return f"Symbol({str.__repr__(self)})"


class _Decimal(bytes):
    """The raw big-endian bits of an IEEE 754-2008 decimal: kept, passed on and compared, never computed with."""

    __slots__ = ()
    WIDTH: ClassVar[int]

    def __new__(cls, value: bytes) -> Self:
        if len(value) != cls.WIDTH:
            raise EncodeError(f"{cls.__name__.lower()} takes {cls.WIDTH} bytes, got {len(value)}")
        return bytes.__new__(cls, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({bytes.__repr__(self)})"


class Decimal32(_Decimal):
    """IEEE 754-2008 decimal32, 4 raw bytes (1.6.13)."""

    __slots__ = ()
    WIDTH = 4


class Decimal64(_Decimal):
    """IEEE 754-2008 decimal64, 8 raw bytes (1.6.14)."""

    __slots__ = ()
    WIDTH = 8


class Decimal128(_Decimal):
    """IEEE 754-2008 decimal128, 16 raw bytes (1.6.15)."""

    __slots__ = ()
    WIDTH = 16


def whole_number(value: object) -> int | None:
    """The whole number that `value` is, of whatever numeric type but decimal; None where it is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else None


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor that gives it a meaning beyond its type (1.2)."""

    descriptor: Value
    value: Value


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one type, encoded with one constructor (1.6.24).

    `element` is the Python type from the table above (``Symbol``, ``UInt``, ``type(None)``, ``Array``...), so an empty
    array keeps its type. `items` may be any iterable. An array of described values names the descriptors once, in
    `descriptors`, outermost first, and its items are the bare values.
    """

    element: type
    items: tuple[Value, ...] = ()
    descriptors: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        if type(self.items) is not tuple:
            object.__setattr__(self, "items", tuple(self.items))

    def __len__(self) -> int:
        return len(self.items)


Value: TypeAlias = Union[
    bool, int, float, str, bytes, uuid.UUID, Array, Described, "list[Value]", "dict[Value, Value]", None
]
"""Values that decoding gives. Encoding takes `object` and checks at run time: invariant containers hinder callers."""

if TYPE_CHECKING:
    _Item: TypeAlias = "Encodable | None"
else:
    _Item = object  # a name in quotes would be looked up wherever `Encodable` is used, by typing.get_type_hints

Encodable: TypeAlias = (
    bool
    | int
    | float
    | str
    | bytes
    | bytearray
    | memoryview
    | uuid.UUID
    | Array
    | Described
    | Sequence[_Item]
    | Mapping[Any, _Item]
)
"""Values that programs may send, but for None: any `Value`, and lists and dicts of whatever these are known to hold, as
`Sequence` and `Mapping` are covariant. A mapping is not so in its keys, whence the `Any`: which keys AMQP holds is told
at run time, and so is that a sequence is a list or a tuple there, and a mapping a dict."""

__all__ = [
    "Array",
    "Byte",
    "Char",
    "Decimal32",
    "Decimal64",
    "Decimal128",
    "Described",
    "Encodable",
    "Float",
    "Int",
    "Short",
    "Symbol",
    "Timestamp",
    "UByte",
    "UInt",
    "ULong",
    "UShort",
    "Value",
    "whole_number",
]
