from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.protocol.serial import MASK, add, before, distance

serials = st.integers(0, MASK)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 0, 0),
        (0, 1, 1),
        (1, 0, -1),
        (MASK, 0, 1),
        (0, MASK, -1),
        (MASK, 5, 6),
        (0, (1 << 31) - 1, (1 << 31) - 1),
        (0, 1 << 31, -(1 << 31)),  # half-way round: RFC 1982 leaves it undefined
    ],
)
def test_distance_wraps_around(start: int, end: int, expected: int) -> None:
    assert distance(start, end) == expected


def test_before() -> None:
    assert before(MASK, 0)
    assert not before(0, MASK)
    assert not before(7, 7)
    assert not before(0, 1 << 31)
    assert not before(1 << 31, 0)


@given(serials, st.integers(-(1 << 31), (1 << 31) - 1))
def test_distance_undoes_add(start: int, step: int) -> None:
    assert distance(start, add(start, step)) == step


@given(serials, serials)
def test_of_two_at_most_one_is_before_the_other(a: int, b: int) -> None:
    assert not (before(a, b) and before(b, a))
    assert before(a, b) == (distance(a, b) > 0)
