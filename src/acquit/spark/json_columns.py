"""The short way to JSON: many bodies at once, by `pyarrow.json`.

`spark.decoding` says what a body is read as, by Python's parser and a converter for each value. Here are read only
those bodies of which `pyarrow.json` says just that: whatever it refuses, and whatever the two might see differently, is
left to the other way. So nothing fails here, and no reason is given here; a property test holds the two to the same.

Bodies are joined, one document behind the other, and must not reach into each other, whatever they hold. Each begins
with ``{`` and ends with ``}``. Between ``}`` and ``{`` is a line feed alone, which is refused within a string (a raw
control character) and within an object or array (no comma). So a document ends at each seam: each body is at least one,
and if there are as many rows as bodies, each is exactly one, in its row.

What else `pyarrow.json` takes and Python's parser does not, or reads differently:

- NaN and Inf, even in members that are passed over. Whole numbers of more digits than Python reads, and nesting deeper
  than it goes; these only such members can hold. `_is_plain` finds all three: a look at the bytes, and where that is
  not enough, one at what is outside of strings.
- Bytes that are not UTF-8, in names and in members that are passed over: decoded to see, which costs little.
- Half surrogates, which some builds let pass. The values are held to be UTF-8.
- Numbers out of range, as infinity; ``-0`` where a floating number is wanted, which Python reads as the integer 0.
- FLOAT: the long way rounds to a double first. So here, too.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
from numpy.typing import NDArray

FLOAT32_MAX: Final = 3.4028235677973366e38
"""The first number that is rounded to none of 32 bits."""
BOM: Final = b"\xef\xbb\xbf"
SPACE: Final = b" \t\r\n"

_LEAST_BYTES: Final = 16 << 10
"""Size of all bodies below which a call costs more than it saves."""
_SMALL_LOT_BYTES: Final = 16 << 10
_LOT_BYTES: Final = 1 << 20
"""Size at which a lot ends: with the body that reaches over it."""
_DEPTH_MAX: Final = 256
"""Depth that Python's parser reaches on any stack: before Python 3.12 the two share a limit of 1,000."""
_DIGITS_MAX: Final = 640
"""The least that Python's limit for integers (`sys.set_int_max_str_digits`) can be set to."""
_STRIDE: Final = 64

_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_STEPS: Final = bytes.maketrans(b"{[}]", b"\x01\x01\xff\xff")
_NO_BRACKET: Final = bytes(set(range(256)) - set(b"{[}]"))
_WHOLE_ZERO: Final = re.compile(rb"-0[\s,\]}]")


class Taken(NamedTuple):
    """Values of the bodies that were read, in pieces; their rows, ascending; and the rows of all others, ascending."""

    pieces: list[pa.Array]
    rows: list[int]
    left: list[int]


class JsonColumns:
    """Reads bodies as structs of an Arrow type, for `spark.decoding`."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._options = pj.ParseOptions(
            explicit_schema=pa.schema(list(_parsed(kind))),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        )

    @classmethod
    def of(cls, kind: pa.DataType) -> JsonColumns | None:
        """Return the short way to values of the struct `kind`, or None if there is none that is known to agree."""
        return cls(kind) if _agrees(kind) else None

    def take(self, bodies: Sequence[bytes | None]) -> Taken:
        """Read what can be read here. Raises nothing."""
        taken = Taken([], [], [])
        rows, texts = [], []
        for row, body in enumerate(bodies):
            if body is not None and _is_plain(text := body.removeprefix(BOM).strip(SPACE)):
                rows.append(row)
                texts.append(text)
        ends = list(accumulate(map(len, texts), initial=0))
        # Small lots around a body that is refused, and larger ones as long as all goes well. Where small ones are
        # refused, too, ever fewer are tried, so that the attempts cost little beside the other way.
        at = 0 if ends[-1] >= _LEAST_BYTES else len(rows)
        size = passed = _SMALL_LOT_BYTES
        while at < len(rows):
            end = bisect_right(ends, ends[at] + size)
            piece = self._read(texts[at:end])
            if piece is not None:
                taken.pieces.append(piece)
                taken.rows.extend(rows[at:end])
                at, size, passed = end, min(2 * size, _LOT_BYTES), _SMALL_LOT_BYTES
            elif size > _SMALL_LOT_BYTES:
                size = _SMALL_LOT_BYTES
            else:
                at, passed = bisect_right(ends, ends[at] + passed), min(2 * passed, _LOT_BYTES)
        here = set(taken.rows)
        taken.left.extend(row for row in range(len(bodies)) if row not in here)
        return taken

    def _read(self, texts: list[bytes]) -> pa.Array | None:
        """Return the values of all of these, or None."""
        data = b"\n".join(texts) + b"\n"
        try:
            data.decode()
            table = pj.read_json(
                pa.BufferReader(data), pj.ReadOptions(use_threads=False, block_size=len(data)), self._options
            )
            if table.num_rows != len(texts):
                return None
            columns = [column.combine_chunks() for column in table.columns]
            found = pa.StructArray.from_arrays(columns, names=table.column_names)
            found.validate(full=True)
        except (pa.ArrowException, ValueError, OverflowError):
            return None
        for floats, largest in _floats(found, self._kind):
            if (np.abs(floats) >= largest).any():
                return None
            if (np.signbit(floats) & (floats == 0)).any() and _WHOLE_ZERO.search(data):
                return None
        return found.cast(self._kind)


def _is_plain(text: bytes) -> bool:
    """Return whether `text` may be left to `pyarrow.json`, provided that this takes it for one document."""
    if text[:1] != b"{" or text[-1:] != b"}":
        return False
    if (
        not (b"N" in text and b"NaN" in text)
        and not (b"I" in text and b"Inf" in text)
        # The stride hits a number of so many digits so often.
        and b"0" * (_DIGITS_MAX // _STRIDE) not in text[::_STRIDE].translate(_ZEROS)
        and (len(text) <= 2 * _DEPTH_MAX or text.count(b"{") + text.count(b"[") <= _DEPTH_MAX)
    ):
        return True
    outside = b'"'.join(text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    steps = np.frombuffer(outside.translate(_STEPS, _NO_BRACKET), np.int8)
    return (
        b"N" not in outside
        and b"I" not in outside
        and b"0" * _DIGITS_MAX not in outside.translate(_ZEROS)
        and int(steps.cumsum().max(initial=0)) <= _DEPTH_MAX
    )


def _agrees(kind: pa.DataType) -> bool:
    """Return whether all that `pyarrow.json` takes for a value of `kind` is just that in `spark.decoding`."""
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        return 0 < len(set(names)) == len(names) and all(field.nullable and _agrees(field.type) for field in kind)
    if pa.types.is_list(kind):
        return bool(kind.value_field.nullable) and _agrees(kind.value_type)
    return (
        pa.types.is_string(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_signed_integer(kind)
        or kind in (pa.float32(), pa.float64())
    )


def _parsed(kind: pa.DataType) -> pa.DataType:
    """The same with 64 bits for each floating number."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_parsed(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_parsed(kind.value_type)))
    return pa.float64() if kind == pa.float32() else kind


def _floats(values: pa.Array, kind: pa.DataType) -> Iterator[tuple[NDArray[np.float64], float]]:
    """All floating numbers of `values`, NaN for null, and what each must be less than to be one of `kind`."""
    if pa.types.is_struct(kind):
        for number, field in enumerate(kind):
            yield from _floats(values.field(number), field.type)
    elif pa.types.is_list(kind):
        yield from _floats(values.flatten(), kind.value_type)
    elif pa.types.is_floating(kind):
        yield values.to_numpy(zero_copy_only=False), FLOAT32_MAX if kind == pa.float32() else math.inf
