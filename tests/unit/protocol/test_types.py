"""The Python types that keep a wire type: what they take, what they refuse, how they print and compare."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest

from acquit.errors import AcquitError, EncodeError
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

RANGES = [
    (UByte, 0, 2**8 - 1),
    (UShort, 0, 2**16 - 1),
    (UInt, 0, 2**32 - 1),
    (ULong, 0, 2**64 - 1),
    (Byte, -(2**7), 2**7 - 1),
    (Short, -(2**15), 2**15 - 1),
    (Int, -(2**31), 2**31 - 1),
    (Timestamp, -(2**63), 2**63 - 1),
]


@pytest.mark.parametrize(("kind", "low", "high"), RANGES)
def test_integers_take_their_range_and_no_more(kind: type[UByte], low: int, high: int) -> None:
    assert kind(low) == low
    assert kind(high) == high
    for outside in (low - 1, high + 1):
        with pytest.raises(EncodeError, match=kind.__name__.lower()):
            kind(outside)


def test_a_value_that_cannot_be_is_a_value_error_too() -> None:
    with pytest.raises(ValueError, match=r"ubyte must be in 0\.\.255, got 256"):
        UByte(256)
    assert issubclass(EncodeError, AcquitError)


def test_integers_print_their_type_and_format_as_numbers() -> None:
    assert repr(UInt(7)) == "UInt(7)"
    assert f"{UInt(7)}" == "7"
    assert repr([Symbol("a"), Char("b"), Float(0.5), Decimal32(b"abcd")]) == (
        "[Symbol('a'), Char('b'), Float(0.5), Decimal32(b'abcd')]"
    )


def test_a_typed_value_equals_the_plain_one() -> None:
    assert Symbol("x") == "x"
    assert {"x": 1}[Symbol("x")] == 1
    assert ULong(5) == 5


def test_float_is_rounded_to_single_precision_at_once() -> None:
    assert Float(0.1) != 0.1
    assert math.isclose(Float(0.1), 0.1, rel_tol=1e-7)
    assert math.isnan(Float(math.nan))
    assert math.isinf(Float(math.inf))
    with pytest.raises(EncodeError, match="single-precision"):
        Float(1e300)


@pytest.mark.parametrize("text", ["", "ab", "\ud800"])
def test_a_char_is_one_scalar_value(text: str) -> None:
    with pytest.raises(EncodeError):
        Char(text)
    assert Char("\U0010ffff") == "\U0010ffff"


def test_a_symbol_is_ascii() -> None:
    with pytest.raises(EncodeError, match="ASCII"):
        Symbol("naïve")


@pytest.mark.parametrize(("kind", "width"), [(Decimal32, 4), (Decimal64, 8), (Decimal128, 16)])
def test_decimals_have_their_width(kind: type[Decimal32], width: int) -> None:
    assert kind(bytes(width)) == bytes(width)
    for wrong in (width - 1, width + 1):
        with pytest.raises(EncodeError, match=f"takes {width} bytes"):
            kind(bytes(wrong))


def test_arrays_compare_by_element_type_as_well() -> None:
    assert Array(UInt, [1, 2]) == Array(UInt, (1, 2))  # type: ignore[arg-type]  # any iterable will do
    assert Array(UInt) != Array(ULong)
    assert Array(UInt, (), (Symbol("a"),)) != Array(UInt)
    assert len(Array(str, ("a", "b"))) == 2


def test_described_values_can_be_keys() -> None:
    assert {Described(Symbol("a"), 1): "x"}[Described("a", 1)] == "x"


def test_timestamps_are_datetimes_of_milliseconds() -> None:
    when = datetime(2024, 2, 29, 12, 30, 15, 123_999, tzinfo=timezone(timedelta(hours=2)))
    stamp = Timestamp.of(when)
    assert type(stamp) is Timestamp
    assert stamp == 1_709_202_615_123
    assert stamp.datetime() == datetime(2024, 2, 29, 10, 30, 15, 123_000, tzinfo=UTC)
    assert Timestamp.of(datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC)) == -1
    assert Timestamp(-1).datetime() == datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    with pytest.raises(OverflowError):
        Timestamp(Timestamp.MAX).datetime()


def test_a_datetime_without_a_time_zone_is_refused() -> None:
    with pytest.raises(EncodeError, match="no time zone"):
        Timestamp.of(datetime(2024, 1, 1))  # noqa: DTZ001 -- that is the point
