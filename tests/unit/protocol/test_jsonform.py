from __future__ import annotations

import json
import math
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.errors import ConfigurationError
from acquit.protocol.jsonform import NESTED_MAX, from_json, to_json
from acquit.protocol.types import Array, Decimal32, Decimal64, Described, Float, Symbol, Timestamp, UByte, UInt

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.uuids()
    | st.integers(0, 2**40).map(Timestamp)
    | st.binary(min_size=4, max_size=4).map(Decimal32)
)
keys = st.text() | st.integers(0, 9) | st.sampled_from(["base64", "uuid", "map", "double"])
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4) | st.builds(Described, inner, inner)
    ),
    max_leaves=12,
)


@given(values)
def test_what_is_printed_is_read_back(value: object) -> None:
    through = from_json(json.loads(json.dumps(to_json(value), allow_nan=False)))
    assert through == value
    assert type(through) is type(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\x00\x01\x02", {"base64": "AAEC"}),
        (Timestamp(5), {"timestamp_ms": 5}),
        (UUID(int=7), {"uuid": "00000000-0000-0000-0000-000000000007"}),
        (Decimal64(bytes(8)), {"decimal": "0000000000000000"}),
        (UByte(3), 3),
        (Symbol("a"), "a"),
        (Float(0.5), 0.5),
        (Array(UInt, (UInt(1), UInt(2))), [1, 2]),
        ({1: "a"}, {"map": [[1, "a"]]}),
        ({"base64": "no"}, {"map": [["base64", "no"]]}),
        ({"base64": "no", "b": 1}, {"base64": "no", "b": 1}),
        (math.inf, {"double": "Infinity"}),
        (-math.inf, {"double": "-Infinity"}),
    ],
)
def test_the_form_of_each_type(value: object, expected: object) -> None:
    form = to_json(value)
    assert form == expected
    assert "Symbol" not in json.dumps(form) and "UByte" not in json.dumps(form)


def test_nan_is_a_double() -> None:
    assert to_json(math.nan) == {"double": "NaN"}
    assert math.isnan(from_json({"double": "NaN"}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "form",
    [
        {"base64": "not base64!"},
        {"base64": 5},
        {"uuid": "x"},
        {"timestamp_ms": "now"},
        {"timestamp_ms": True},
        {"timestamp_ms": 2**80},
        {"decimal": "00"},
        {"double": "many"},
        {"map": [1]},
        {"map": [[1]]},
        {"map": [[[], 1]]},
        {"described": [1]},
    ],
)
def test_a_typed_object_that_is_not_what_it_says_is_refused(form: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(form))):
        from_json(form)  # type: ignore[arg-type]


def test_something_that_is_no_amqp_value() -> None:
    with pytest.raises(TypeError, match="object"):
        to_json(object())


@pytest.mark.parametrize(
    ("head", "tail"),
    [
        ("[", "]"),
        ('{"a": ', "}"),
        ('{"map": [[1, ', "]]}"),
        ('{"described": ["d", ', "]}"),
        ('{"described": [', ', "v"]}'),
    ],
)
def test_what_is_nested_too_deeply_is_refused(head: str, tail: str) -> None:
    from_json(json.loads(head * NESTED_MAX + "1" + tail * NESTED_MAX))
    for depth in (NESTED_MAX + 1, 300):
        with pytest.raises(ConfigurationError, match="nested too deeply") as caught:
            from_json(json.loads(head * depth + "1" + tail * depth))
        assert len(str(caught.value)) < 100


@pytest.mark.parametrize("name", ["base64", "uuid", "timestamp_ms", "decimal", "double", "map", "described"])
@pytest.mark.parametrize(("head", "tail"), [("[", "]"), ('{"a": ', "}")])
def test_what_no_typed_object_holds_is_not_repeated_in_the_error(name: str, head: str, tail: str) -> None:
    deep = json.loads(f'{{"{name}": {head * 800}1{tail * 800}}}')
    with pytest.raises(ConfigurationError, match=f"does not hold a {name}: ") as caught:
        from_json(deep)
    assert len(str(caught.value)) < 200
