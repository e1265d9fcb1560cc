"""The short way to JSON against the long one: of whatever bodies, both make the same values and refuse the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from unittest import mock

import pyarrow as pa
import pyarrow.json as pj
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.spark import json_columns
from acquit.spark.decoding import JsonDecoder
from acquit.spark.json_columns import JsonColumns
from tests.support.examples import examples

ANY = pa.struct(
    [
        pa.field("a", pa.int32(), metadata={"m": "1"}),
        ("b", pa.list_(pa.field("element", pa.float64(), metadata={"m": "2"}))),
        ("c", pa.float32()),
        ("d", pa.string()),
        ("é", pa.struct([("a", pa.bool_()), ("b", pa.list_(pa.struct([("", pa.int64()), ("d", pa.string())])))])),
        ("f", pa.float64()),
    ]
)
SCALARS = (pa.bool_(), pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.string())
NAMES = ("a", "b", "d", "", "é", "r", "v", "\0", "\u007f", '"')


def structs(members: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    named = st.dictionaries(st.sampled_from(NAMES), members, min_size=1, max_size=4)
    return named.map(lambda found: pa.struct(list(found.items())))


KINDS = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        st.builds(pa.list_, inner),
        st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=3).map(
            lambda d: pa.struct(list(d.items()))
        ),
    ),
    max_leaves=5,
)
STRUCTS = st.one_of(
    st.just(ANY), st.dictionaries(st.sampled_from(NAMES), KINDS, min_size=1).map(lambda d: pa.struct(list(d.items())))
)

WORDS = (
    b"null", b"true", b"false", b"nul", b"NaN", b"-NaN", b"Infinity", b"-Infinity", b"Inf", b"-Inf", b"inf",
    b"0", b"-0", b"-0.0", b"-0e5", b"0e999", b"5.0", b"5e0", b"1E5", b"01", b"+1", b"1.", b".5", b"-", b"1e",
    b"127", b"128", b"-128", b"-129", b"2147483648", b"16777217", b"9007199254740993", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775808", b"1e400", b"-1e400", b"1e-400", b"1e-99999999999999999999",
    b"1.7976931348623157e308", b"1.7976931348623159e308", b"3.4028235677973365e38", b"3.4028235677973366e38", b"1e39",
    b"1.00000005960464477540", b"1.000000059604644775390625", b"5e-324", b"2e-324", b"0.1", b"123456789.123456789e-7",
    b"9" * 300, b"9" * 400, b"1" * 700, b"-" + b"8" * 5_000, b"0." + b"3" * 700,
    b'""', b'"5"', b'"NaN"', b'"Information"', b'", NaN,"', b'"a\\"NaN, \\\\"', b'"\\u0000"', b'"\\u00e9"', b'"\\n\\/"',
    b'"\\ud83d\\ude00"', b'"\\ud83d"', b'"\\ude00"', b'"\\uDE00\\uD83D"', b'"\\x"', b'"\\u00g0"', b'"\\', b'"\n"',
    b'"\t"', b'"\x7f"', b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"\xc3"', "\"é😀\u2028\"".encode(), b"'a'",
    b"[]", b"{}", b"[null]", b"[1,]", b"[NaN]", b'{"a":1,"a":2}', b'{"a":NaN}', b"[" * 200 + b"]" * 200,
    b"[" * 300 + b"]" * 300, b'{"a":' * 900 + b"1" + b"}" * 900, b"[" * 5_000 + b"]" * 5_000,
    b"[" + b'"]",[' * 300 + b"]" * 301, b'"' + b"[" * 300 + b'"', b'"' + b"1" * 700 + b'"',
)  # fmt: skip
"""Values and what looks like some."""
SEAMS = (
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\n", b"\r", b"\t", b" ", b"\x0b", b"\x0c", b"\xa0", b"\0",
    b"\xef\xbb\xbf", "\u00a0\u2028".encode(), b"}\n{", b"{}{}", b"{}}\n{", b'{},"q":7', b'{"q":{}', b"}{", b'{"a":"',
    b'"}', b"/* */", b"//", b"\xff", b"NaN", b"-0", b"\\ud800", b'"a":1,', b'"\\u0061":1,', b'"z":NaN,', b"{}\0",
    b"{}{}{}\0",
)  # fmt: skip
"""What moves the bounds of values, rows and texts."""

SPACE = st.sampled_from((b"", b"", b"", b" ", b"\n", b"\r\n\t "))


def listed(parts: list[bytes], opening: bytes, closing: bytes) -> bytes:
    return opening + b",".join(parts) + closing


@st.composite
def texts(draw: st.DrawFn, kind: pa.DataType, wildness: int) -> bytes:
    """A value of that type as JSON; now and then something else."""
    if draw(st.integers(0, 99)) < wildness:
        return draw(st.sampled_from(WORDS))
    space = draw(SPACE)
    if pa.types.is_struct(kind):
        members = []
        for field in kind:
            if draw(st.integers(0, 9)):
                name = json.dumps(field.name, ensure_ascii=draw(st.booleans())).encode()
                members.append(space + name + space + b":" + draw(texts(field.type, wildness)) + space)
        if draw(st.integers(0, 4)) == 0:
            name = draw(st.sampled_from((b'"z"', b'"a"', b'"NaN"', b'"\\u0061"', b'"a\\u0000"', b'"\xff"')))
            members.insert(draw(st.integers(0, len(members))), name + b":" + draw(st.sampled_from(WORDS)))
        return listed(members, space + b"{", b"}" + space)
    if pa.types.is_list(kind):
        return listed(draw(st.lists(texts(kind.value_type, wildness), max_size=3)), b"[", b"]" + space)
    value: object
    if pa.types.is_string(kind):
        value = draw(st.text(st.characters(exclude_categories=["Cs"])))
    elif pa.types.is_boolean(kind):
        value = draw(st.booleans())
    elif pa.types.is_floating(kind):
        value = draw(st.floats(allow_nan=False, allow_infinity=False, width=kind.bit_width))
    else:
        high = (1 << (kind.bit_width - 1)) - 1
        value = draw(st.integers(-high - 1, high))
    written = json.dumps(value, ensure_ascii=draw(st.booleans())).encode()
    return written if draw(st.integers(0, 9)) else b"null"


@st.composite
def bodies_of(draw: st.DrawFn, kind: pa.DataType) -> bytes | None:
    """A good body, a bad one, or one with bytes exchanged."""
    body = draw(texts(kind, draw(st.sampled_from((0, 0, 0, 5, 30)))))
    form = draw(st.integers(0, 9))
    if form == 0:
        return draw(st.one_of(st.none(), st.sampled_from(WORDS + SEAMS), st.binary(max_size=6)))
    if form == 1:
        return b"\xef\xbb\xbf" + body
    for _ in range(max(0, form - 7)):
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(st.sampled_from(SEAMS)) + body[at + draw(st.integers(0, 2)) :]
    return body


def kept(kind: pa.DataType) -> Iterator[object]:
    """All of a type that == does not compare."""
    for number in range(kind.num_fields):
        field = kind.field(number)
        yield field.name, field.nullable, field.metadata
        yield from kept(field.type)


def held_alike(kind: pa.DataType, bodies: list[bytes | None]) -> None:
    """Both ways, with lots so small that there are many."""
    short, long = JsonDecoder(kind), JsonDecoder(kind)
    long._short = None
    array = pa.array(bodies, pa.binary())
    wanted = long.decode(array)
    for small, large in ((0, 0), (16, 128), (1 << 20, 1 << 20)):
        with mock.patch.multiple(json_columns, _LEAST_BYTES=0, _SMALL_LOT_BYTES=small, _LOT_BYTES=large):
            found = short.decode(array)
        assert list(found.failed.items()) == list(wanted.failed.items())
        # The text tells -0.0 from 0.0.
        assert repr(found.values.to_pylist()) == repr(wanted.values.to_pylist())
        assert found.values.equals(wanted.values)
        assert found.values.type == kind and list(kept(found.values.type)) == list(kept(kind))
        found.values.validate(full=True)


@examples(400)
@given(st.data())
def test_both_ways_read_the_same(data: st.DataObject) -> None:
    kind = data.draw(st.one_of(st.just(ANY), structs(KINDS)))
    held_alike(kind, data.draw(st.lists(bodies_of(kind), min_size=1, max_size=6)))


@pytest.mark.parametrize("name", ["a", "b", "c", "d", "é", "f", "passed over"])
def test_each_word_in_each_member(name: str) -> None:
    """Of one type, in an array, and passed over in an object that is passed over."""
    for word in WORDS:
        member = json.dumps(name, ensure_ascii=False).encode() + b":"
        forms = (word, b"[1," + word + b"]", b'{"a":' + word + b"}", word + b"," + member + word)
        held_alike(ANY, [b"{" + member + form + b"}" for form in forms])


def test_each_seam_around_a_body_and_in_it() -> None:
    for seam in SEAMS:
        held_alike(
            ANY, [seam + b"{}", b"{}" + seam, b"{" + seam + b"}", b'{"d":"' + seam + b'"}', b'{"z":' + seam + b"}"]
        )


@pytest.mark.parametrize(
    "bodies",
    [
        [b"{}{}", b'{"z":', b"{}}"],
        [b'{"z":', b"{}}", b"{}{}"],
        [b'{"a":1}{"a":2}', b'{"d":"', b'","a":3}'],
        [b"{}}\n{", b"{}", b'{"a":1}'],
        [b'{},"q":{}', b"{},{}", b"{}]{}"],
        [b"{}\0", b'{}{"a":1}{}\0{}', b"{}"],
        [b'{"z":{}', b',"a":3}', b"{}{}"],
        [b'{"z":[{}', b"{}]}", b"{}{}"],
        [b'{"z":[{},', b"{}]}", b"{}{}"],
        [b'{"z":"\xc3', b'\xa9"}', b"{}"],
    ],
)
def test_bodies_do_not_reach_into_each_other(bodies: list[bytes | None]) -> None:
    """As many documents as bodies, or a body that ends in another."""
    held_alike(ANY, bodies)
    held_alike(ANY, bodies[::-1])


NULLABLE = pa.field("v", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([]),
        pa.struct([NULLABLE]),
        pa.struct([("v", pa.struct([]))]),
        pa.struct([("v", pa.struct([NULLABLE]))]),
        pa.struct([("v", pa.list_(NULLABLE))]),
        pa.struct([("v", pa.int64()), ("v", pa.int64())]),
        *(
            pa.struct([("w", pa.int64()), ("v", kind)])
            for kind in (pa.map_(pa.string(), pa.int64()), pa.decimal128(9, 2), pa.date32(), pa.timestamp("us", "UTC"),
                         pa.timestamp("us"), pa.binary(), pa.float16(), pa.list_(pa.date32()))
        ),
    ],
)  # fmt: skip
def test_types_that_are_left_to_the_long_way(kind: pa.DataType) -> None:
    assert JsonColumns.of(kind) is None


GOOD = b'{"a": 1, "b": [0.5, null], "d": "x", "z": [1, {"a": 2}]}'
ROWS = 6_000


def long_way_rows(bodies: list[bytes | None], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many of them go the long way, and that they are all read right."""
    decoder = JsonDecoder(ANY)
    each = decoder._decode_each
    wanted = each(bodies)
    seen = mock.Mock(side_effect=each)
    monkeypatch.setattr(decoder, "_decode_each", seen)
    found = decoder.decode(pa.array(bodies, pa.binary()))
    assert found.values.equals(wanted.values) and found.failed == wanted.failed
    return sum(len(call.args[0]) for call in seen.call_args_list)


@pytest.mark.parametrize(
    "good",
    [
        GOOD,
        json.dumps(json.loads(GOOD), indent=2).encode() + b"\r\n",
        b"\xef\xbb\xbf " + GOOD,
        b'{"d": "Information, NaN, -Infinity", "N": "I"}',
        b'{"d": "\\\\", "I": "NaN,\\"", "z": "Inf"}',
        b'{"d": "%s"}' % (b"7" * 900),
        b'{"d": "%s"}' % (b"[{" * 300),
        b'{"z": [%s[]]}' % (b'{"a": {}}, "]", ' * 300),
        b'{"z": %s1%s}' % (b"[" * 200, b"]" * 200),
        b'{"f": -0.0, "d": "2026-01-05"}',
        '{"d": "é😀", "é": {"a": true}}'.encode(),
        b'{"d": "\\u00e9\\ud83d\\ude00", "\\u0061": 1}',
        b"{}",
    ],
)
def test_good_bodies_go_the_short_way(good: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_columns, "_LEAST_BYTES", 0)
    assert long_way_rows([good] * 20, monkeypatch) == 0


@pytest.mark.parametrize("bad", [b'{"a": 1.0}', b"{", b'{"z": NaN}', b'{"d": "\xff"}', b"{}{}", b"", None])
def test_a_bad_body_takes_few_with_it(bad: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[bytes | None] = [GOOD] * ROWS
    bodies[5] = bodies[3_000] = bodies[-1] = bad
    assert long_way_rows(bodies, monkeypatch) <= 3 * (json_columns._SMALL_LOT_BYTES // len(GOOD) + 1)


@pytest.mark.parametrize("good_every", [ROWS, 20])
def test_attempts_are_few_where_bad_bodies_are_many(good_every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    read = JsonColumns._read

    def counted(self: JsonColumns, texts: list[bytes]) -> pa.Array | None:
        tried.append(len(texts))
        return read(self, texts)

    monkeypatch.setattr(JsonColumns, "_read", counted)
    bodies = [GOOD if row % good_every == 1 else b'{"a": 1.0}' for row in range(16 * ROWS)]
    assert long_way_rows(list(bodies), monkeypatch) == len(bodies)
    assert sum(tried) < len(bodies) / 6


def test_few_bodies_go_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    few = json_columns._LEAST_BYTES // len(GOOD)
    assert long_way_rows([GOOD] * few, monkeypatch) == few


def test_lots_grow_where_all_goes_well() -> None:
    short = JsonColumns.of(ANY)
    assert short is not None
    pieces, rows, left = short.take([GOOD] * ROWS)
    assert len(pieces) < 10 and rows == list(range(ROWS)) and not left


def test_a_body_may_be_larger_than_a_lot(monkeypatch: pytest.MonkeyPatch) -> None:
    large = b'{"z": "%s",\n"a": 1}' % (b"x" * 3 * json_columns._LOT_BYTES)
    assert long_way_rows([large, GOOD, large], monkeypatch) == 0


@pytest.mark.parametrize("error", [pa.ArrowCapacityError, pa.ArrowNotImplementedError, UnicodeError, OverflowError])
def test_what_cannot_be_read_the_short_way_goes_the_long_way(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pj, "read_json", mock.Mock(side_effect=error))
    assert long_way_rows([GOOD] * 200, monkeypatch) == 200


def test_columns_may_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    read_json = pj.read_json

    def in_pieces(*args: object) -> pa.Table:
        table = read_json(*args)
        return pa.concat_tables([table.slice(0, 7), table.slice(7, 0), table.slice(7)])

    monkeypatch.setattr(pj, "read_json", in_pieces)
    monkeypatch.setattr(json_columns, "_LEAST_BYTES", 0)
    assert long_way_rows([b'{"a": %d, "b": [%d]}' % (row, row) for row in range(20)], monkeypatch) == 0


def test_text_that_is_no_utf_8_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """As builds with an older parser would make it of half a surrogate pair."""
    half = pa.StringArray.from_buffers(1, pa.array([0, 3], pa.int32()).buffers()[1], pa.py_buffer(b"\xed\xb0\x80"))
    kind = pa.struct([("d", pa.string())])
    monkeypatch.setattr(pj, "read_json", lambda *_: pa.table({"d": half}))
    monkeypatch.setattr(json_columns, "_LEAST_BYTES", 0)
    values, failed = JsonDecoder(kind).decode(pa.array([b'{"d": "\\udc00"}']))
    assert list(failed) == [0] and values.to_pylist() == [None]
