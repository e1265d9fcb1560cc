"""Bodies as text and JSON: what fits which type, what does not, and that nothing in a body raises."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.errors import ConfigurationError
from acquit.spark.decoding import JsonDecoder, TextDecoder

TEXT, TIME = pa.string(), pa.timestamp("us", "UTC")


def decode(kind: pa.DataType, text: str) -> object:
    """What a member `v` of that type is made of; the reason, without what is always in it, where it does not fit."""
    decoder = JsonDecoder(pa.struct([("v", kind)]))
    values, failed = decoder.decode(pa.array([f'{{"v": {text}}}'.encode()]))
    assert (values[0].as_py() is None) == bool(failed)
    return failed[0].removeprefix("the body does not fit bodySchema: ") if failed else values[0].as_py()["v"]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.bool_(), "true", True),
        (pa.int8(), "-128", -128),
        (pa.int64(), "9223372036854775807", (1 << 63) - 1),
        (pa.float64(), "1", 1.0),
        (pa.float64(), "1.5e300", 1.5e300),
        (pa.float32(), "0.5", 0.5),
        (pa.decimal128(10, 2), "12.34", Decimal("12.34")),
        (pa.decimal128(38, 18), "0.123456789012345678", Decimal("0.123456789012345678")),
        (pa.decimal128(10, 2), '"5"', Decimal("5.00")),
        (pa.decimal128(10, 2), '"-1.25e1"', Decimal("-12.50")),
        (pa.decimal128(10, 2), '"+.5"', Decimal("0.50")),
        (TEXT, '"text"', "text"),
        (TEXT, "1.5", "1.5"),
        (TEXT, '{"a": [1, null]}', '{"a": [1, null]}'),
        (TEXT, r'"\u00e9\ud83d\ude00"', "é😀"),
        (pa.binary(), '"aGk="', b"hi"),
        (pa.date32(), '"2026-01-31"', date(2026, 1, 31)),
        (TIME, '"2026-01-31T12:00:00Z"', datetime(2026, 1, 31, 12, tzinfo=UTC)),
        (TIME, '"2026-01-31T12:00:00.123456+01:00"', datetime(2026, 1, 31, 11, 0, 0, 123456, tzinfo=UTC)),
        (TIME, '"2026-01-31T12:00:00"', datetime(2026, 1, 31, 12, tzinfo=UTC)),
        (pa.timestamp("us"), '"2026-01-31 12:00"', datetime(2026, 1, 31, 12)),  # noqa: DTZ001
        (pa.list_(pa.int32()), "[1, null]", [1, None]),
        (pa.map_(TEXT, pa.int32()), '{"a": 1}', [("a", 1)]),
        (pa.struct([("a", TEXT), ("b", TEXT)]), '{"a": "x", "c": 1}', {"a": "x", "b": None}),
        (pa.int64(), "null", None),
    ],
)
def test_what_fits(kind: pa.DataType, text: str, value: object) -> None:
    assert decode(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (pa.bool_(), "1", "v is neither true nor false"),
        (pa.int8(), "128", "v is no whole number of 8 bits"),
        (pa.int64(), "true", "v is no whole number of 64 bits"),
        (pa.int64(), "1.0", "v is no whole number of 64 bits"),
        (pa.int64(), '"1"', "v is no whole number of 64 bits"),
        (pa.float64(), "1e999", "v is no number that can be held"),
        (pa.float32(), "1e39", "v is no number that can be held"),
        (pa.float64(), "1" + 400 * "0", "v is no number that can be held"),
        (pa.float64(), "NaN", "the body is not JSON: ValueError"),
        (pa.decimal128(4, 2), "123.45", "v is no decimal number of 4 digits with 2 of them behind the point"),
        (pa.decimal128(4, 2), "1.234", "v is no decimal number of 4 digits with 2 of them behind the point"),
        (pa.decimal128(4, 2), '"NaN"', "v is no decimal number of 4 digits with 2 of them behind the point"),
        (
            pa.decimal128(4, 2),
            "1e99999999999999999999",
            "v is no decimal number of 4 digits with 2 of them behind the point",
        ),
        (
            pa.decimal128(4, 2),
            "1e-99999999999999999999",
            "v is no decimal number of 4 digits with 2 of them behind the point",
        ),
        (TEXT, r'"\ud800"', "v is no text: half of a surrogate pair"),
        (TEXT, "[1e999]", "v has a number that cannot be held"),
        (pa.map_(TEXT, TEXT), r'{"\ud800": ""}', "v.[] is no text: half of a surrogate pair"),
        (pa.binary(), '"a"', "v is no text in base 64"),
        *(
            (
                pa.decimal128(10, 2),
                json.dumps(text),
                "v is no decimal number of 10 digits with 2 of them behind the point",
            )
            for text in ("1_0.5", " 5 ", "5\n", "\u0665", "\uff15", "", ".", "1e", "0x5", "1,5", "Infinity", "sNaN")
        ),
        (pa.date32(), '"31.1.2026"', "v is no date as 2026-01-31"),
        *(
            (pa.date32(), json.dumps(text), "v is no date as 2026-01-31")
            for text in ("20260131", "2026-W05-6", "2026W056", " 2026-01-31", "2026-01-31\n", "2026-01-31T12:00")
        ),
        *(
            (kind, json.dumps(text), f"v is no time as 2026-01-31T12:00:00{end}")
            for kind, end in ((TIME, "Z"), (pa.timestamp("us"), ", without an offset"))
            for text in (
                "2026-W05-6",
                "2026-W05-6T12:00:00",
                "20260131T120000",
                "20260131",
                "2026-01-31x12:00:00",
                "2026-01-31T12:00:00 ",
                "2026-01-31T120000",
                "2026-01-31T12",
                "\u0662026-01-31T12:00:00",
            )
        ),
        (TIME, "1769860800", "v is no time as 2026-01-31T12:00:00Z"),
        (TIME, '"0001-01-01T00:00:00+01:00"', "v is no time as 2026-01-31T12:00:00Z"),
        (pa.timestamp("us"), '"2026-01-31T12:00Z"', "v is no time as 2026-01-31T12:00:00, without an offset"),
        (pa.list_(pa.struct([("n", pa.int8())])), '[{"n": 1}, {"n": "x"}]', "v.[].n is no whole number of 8 bits"),
        (pa.list_(TEXT), "{}", "v is no array"),
        (pa.map_(TEXT, TEXT), "[]", "v is no object"),
        (pa.struct([pa.field("a", TEXT, nullable=False)]), "{}", "v.a is null or missing"),
    ],
)
def test_what_does_not_fit_is_named_and_not_repeated(kind: pa.DataType, text: str, reason: str) -> None:
    assert decode(kind, text) == reason


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"7", b"\xff{}", b"{}{}", b"[" * 100_000, b"9" * 5_000, '{"v": 1}'.encode("utf-16")]
)
def test_what_is_no_object(body: bytes) -> None:
    values, failed = JsonDecoder(pa.struct([("v", TEXT)])).decode(pa.array([body, b'{"v": "good"}']))
    assert list(failed) == [0] and values.to_pylist() == [None, {"v": "good"}]


@pytest.mark.parametrize("text", ["1.5", "-0.25", '{"a": [1.5, null]}', "1.5e+300"])
def test_text_of_a_number_is_the_same_beside_a_decimal(text: str) -> None:
    with_decimal = JsonDecoder(pa.struct([("v", TEXT), ("d", pa.decimal128(4, 2))]))
    values, failed = with_decimal.decode(pa.array([f'{{"v": {text}, "d": 1.25}}'.encode()]))
    assert not failed and values.to_pylist() == [{"v": text, "d": Decimal("1.25")}] and decode(TEXT, text) == text


def test_no_number_of_a_member_that_is_passed_over_is_too_large() -> None:
    body = b'{"other": [1e99999999999999999999, -1e-99999999999999999999], "v": 1.25}'
    values, failed = JsonDecoder(pa.struct([("v", pa.decimal128(4, 2))])).decode(pa.array([body]))
    assert not failed and values.to_pylist() == [{"v": Decimal("1.25")}]


def test_null_a_missing_body_and_a_mark_at_the_beginning_are_no_errors() -> None:
    decoder = JsonDecoder(pa.struct([("v", TEXT)]))
    values, failed = decoder.decode(pa.array([b"null", None, b"\xef\xbb\xbf{}"]))
    assert not failed and values.to_pylist() == [None, None, {"v": None}]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (pa.duration("us"), "json.v is duration"),
        (pa.map_(pa.int64(), TEXT), "json.v is a map whose keys are int64"),
        (
            pa.struct([pa.field("value", pa.binary(), metadata={b"variant": b"true"})]),
            "json.v is VARIANT",
        ),
    ],
)
def test_types_that_json_has_no_values_of(kind: pa.DataType, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=f"schema: {reason}"):
        JsonDecoder.of(pa.struct([("v", kind)]))


def test_text_is_utf_8() -> None:
    values, failed = TextDecoder().decode(pa.array(["té".encode(), b"\xff", None, b""]))
    assert values.to_pylist() == ["té", None, None, ""] and list(failed) == [1]
    assert TextDecoder().decode(pa.array([b"a", None])).values.to_pylist() == ["a", None]


def test_a_decoder_travels_to_its_task() -> None:
    decoder = JsonDecoder(pa.struct([("v", pa.decimal128(4, 2))]))
    again = pickle.loads(pickle.dumps(decoder))
    assert again.stored == decoder.stored
    assert again.decode(pa.array([b'{"v": 1.25}'])).values.to_pylist() == [{"v": Decimal("1.25")}]


def test_what_names_a_way_of_decoding_tells_types_apart() -> None:
    kinds = [
        pa.struct([("v", TEXT)]),
        pa.struct([("w", TEXT)]),
        pa.struct([pa.field("v", TEXT, nullable=False)]),
        pa.struct([("v", pa.decimal128(4, 2))]),
        pa.struct([("v", pa.decimal128(4, 1))]),
    ]
    assert len({JsonDecoder(kind).stored for kind in kinds}) == len(kinds)


SCALARS = st.sampled_from(
    [
        pa.bool_(), pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(6, 2), TEXT,
        pa.binary(), pa.date32(), TIME, pa.timestamp("us"),
    ]
)  # fmt: skip
KINDS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(pa.list_, inner),
        st.builds(lambda kind: pa.map_(TEXT, kind), inner),
        st.builds(
            lambda kind, null: pa.struct([pa.field("a", kind, nullable=null), ("b", TEXT)]), inner, st.booleans()
        ),
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters()),
        st.dates().map(str),
        st.datetimes().map(str),
        st.just("aGk="),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("ab\ud800"), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(KINDS, st.lists(st.one_of(VALUES.map(lambda v: json.dumps({"v": v}).encode()), st.binary()), max_size=4))
def test_nothing_in_a_body_raises_and_each_row_stays_in_its_place(kind: pa.DataType, bodies: list[bytes]) -> None:
    decoder = JsonDecoder(pa.struct([("v", kind)]))
    values, failed = decoder.decode(pa.array(bodies, pa.binary()))
    assert len(values) == len(bodies) and values.type == pa.struct([("v", kind)])
    values.validate(full=True)
    for row, body in enumerate(bodies):
        alone = decoder.decode(pa.array([body], pa.binary()))
        assert values.slice(row, 1).equals(alone.values) and (row in failed) == bool(alone.failed)


@given(KINDS, st.data())
def test_what_arrow_holds_is_read_back_from_its_json(kind: pa.DataType, data: st.DataObject) -> None:
    """Whatever fits, written as JSON again, fits again and is the same."""
    decoder = JsonDecoder(pa.struct([("v", kind)]))
    values, failed = decoder.decode(pa.array([json.dumps({"v": data.draw(VALUES)}).encode()], pa.binary()))
    if failed:
        return
    again, none = decoder.decode(pa.array([json.dumps(plain(values[0])).encode()], pa.binary()))
    assert not none and again.equals(values)


def plain(value: pa.Scalar) -> object:
    """As a producer would write it."""
    if not value.is_valid:
        return None
    if pa.types.is_map(value.type):
        return {str(key): plain(pa.scalar(item, value.type.item_type)) for key, item in value.as_py()}
    if pa.types.is_struct(value.type):
        return {name: plain(value[name]) for name in value.type.names}
    if pa.types.is_list(value.type):
        return [plain(item) for item in value.values]
    found = value.as_py()
    if isinstance(found, bytes):
        import base64

        return base64.b64encode(found).decode()
    return str(found) if isinstance(found, Decimal | date) else found
