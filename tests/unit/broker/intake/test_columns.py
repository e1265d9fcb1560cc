"""Columns say of many records what a look at each of them says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.broker.intake.columns import agreeing, all_ascii

counts = st.integers(1, 90)
"""Enough that some octets are compared as columns, and some as slices."""


@given(counts, st.integers(0, 5), st.integers(1, 40), st.integers(0, 3), st.data())
def test_agreeing_counts_to_the_first_that_differs(
    count: int, before: int, width: int, after: int, data: st.DataObject
) -> None:
    octets = bytes(range(7, 7 + width))
    record = b"\xff" * before + octets + b"\xfe" * after
    block = bytearray(record * count)
    wrong = data.draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, width - 1)), max_size=3))
    for number, at in wrong:
        block[number * len(record) + before + at] ^= 0x80
    expected = min((number for number, _ in wrong), default=count)
    for led in (b"", b"led by something"):
        assert agreeing(led + bytes(block), len(led) + before, len(record), count, octets) == expected


@given(counts, st.integers(0, 2), st.integers(0, 40), st.integers(0, 2), st.data())
def test_text_is_ascii_where_each_octet_is(
    count: int, before: int, width: int, after: int, data: st.DataObject
) -> None:
    size = before + width + after
    block = bytearray((b"\xff" * before + b"x" * width + b"\xff" * after) * count)
    if good := not (width and data.draw(st.booleans())):
        assert all_ascii(bytes(block), before, size, count, width)
    else:
        block[data.draw(st.integers(0, count - 1)) * size + before + data.draw(st.integers(0, width - 1))] |= 0x80
    assert all_ascii(bytes(block), before, size, count, width) is good


@pytest.mark.parametrize("count", [0, 70])
def test_nothing_is_compared_of_nothing(count: int) -> None:
    assert agreeing(b"", 0, 5, 0, b"abc") == 0
    assert agreeing(b"x" * 5 * count, 0, 5, count, b"") == count
