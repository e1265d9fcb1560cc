from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acquit.protocol.allocation import LowestFree


@given(st.lists(st.integers(0, 5), max_size=60))
def test_it_is_always_the_lowest_free_number(script: list[int]) -> None:
    numbers = LowestFree()
    taken: set[int] = set()
    for step in script:
        if step < 3 or not taken:
            lowest = next(number for number in range(100) if number not in taken)
            assert numbers.peek() == lowest
            assert numbers.take() == lowest
            taken.add(lowest)
        else:
            number = sorted(taken)[step % len(taken)]
            numbers.free(number)
            taken.remove(number)


def test_a_number_that_rests_is_the_last_choice() -> None:
    numbers = LowestFree()
    assert [numbers.take() for _ in range(3)] == [0, 1, 2]
    numbers.rest(0)
    numbers.free(1)
    assert [numbers.take() for _ in range(2)] == [1, 3]
    numbers.rest(2)
    numbers.wake()
    assert [numbers.take() for _ in range(3)] == [0, 2, 4]
