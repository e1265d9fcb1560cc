"""AMQP values from and to bytes: the public face of the type system (specification part 1).

`decode`, `encode`, `encode_into` and `skip` work on any value, keeping its wire type by the Python types of
`acquit.protocol.types`. Composites (performatives, outcomes, sections) are in `acquit.protocol.composite`.
"""

from __future__ import annotations

from acquit.protocol._decoder import DEPTH_MAX, SKIP_WIDTHS, decode, skip
from acquit.protocol._encoder import EncodedList, encode, encode_into
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

__all__ = [
    "DEPTH_MAX",
    "SKIP_WIDTHS",
    "Array",
    "Byte",
    "Char",
    "Decimal32",
    "Decimal64",
    "Decimal128",
    "Described",
    "EncodedList",
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
    "decode",
    "encode",
    "encode_into",
    "skip",
]
