from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.protocol.rope import ROPE_MIN, Rope, behind, spliced


@given(st.binary(max_size=9), st.binary(max_size=30), st.data())
def test_a_rope_is_as_the_bytes_that_it_stands_for(head: bytes, payload: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(payload)))
    rope, copy = Rope(head, payload, start), head + payload[start:]
    assert bytes(rope) == copy
    assert len(rope) == len(copy)
    begin, end = data.draw(st.integers(0, 40)), data.draw(st.integers(0, 40))
    assert rope[begin:end] == copy[begin:end]
    assert rope[begin:] == copy[begin:]
    assert rope[:end] == copy[:end]
    front = data.draw(st.binary(max_size=5))
    longer = front + rope
    assert isinstance(longer, Rope)
    assert bytes(longer) == front + copy
    assert longer.payload is payload
    begin = min(begin, len(copy))
    rest = behind(rope, begin)
    assert isinstance(rest, Rope)
    assert bytes(rest) == behind(copy, begin) == copy[begin:]
    assert rest.payload is payload


@pytest.mark.parametrize(("rest", "kind"), [(ROPE_MIN - 1, bytes), (ROPE_MIN, Rope)])
def test_only_much_is_not_copied(rest: int, kind: type) -> None:
    """What is behind the head counts: no rope has fewer octets than `ROPE_MIN`, whatever was before."""
    made = spliced(b"head", bytes(100) + bytes(rest), 100)
    assert type(made) is kind
    assert bytes(made) == b"head" + bytes(rest)


@pytest.mark.parametrize(("front", "kind"), [(ROPE_MIN, Rope), (ROPE_MIN + 1, bytes)])
def test_no_rope_keeps_much_that_is_not_counted(front: int, kind: type) -> None:
    """The annotations of a message are in its head, and where they came in as well."""
    made = spliced(b"head", bytes(front) + bytes(8 * ROPE_MIN), front)
    assert type(made) is kind
    assert len(made) == 4 + 8 * ROPE_MIN
