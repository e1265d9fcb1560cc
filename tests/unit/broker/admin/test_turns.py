"""However many operations are asked for, a turn takes one step of one of them."""

from __future__ import annotations

import pytest

from acquit.broker.admin.later import RequestFailure
from acquit.broker.admin.turns import GOING_MAX, WAITING_MAX, InTurns


class Steps:
    """An operation of so many steps, which notes each of them."""

    def __init__(self, name: int, count: int, taken: list[int]) -> None:
        self.name = name
        self.left = count
        self.taken = taken
        self.ready = True

    def run(self) -> bool:
        self.taken.append(self.name)
        self.left -= 1
        return not self.left


def test_the_first_step_is_taken_at_once_where_nobody_else_goes_on() -> None:
    taken: list[int] = []
    turns = InTurns()
    turns.begin(Steps(1, 1, taken))
    turns.begin(Steps(2, 2, taken))
    turns.begin(Steps(3, 1, taken))
    assert taken == [1, 2]
    assert turns.run()
    assert not turns.run()
    assert taken == [1, 2, 2, 3]
    assert not turns.run()


def test_a_short_one_does_not_wait_for_a_long_one() -> None:
    taken: list[int] = []
    turns = InTurns()
    turns.begin(Steps(1, 100, taken))
    turns.begin(Steps(2, 2, taken))
    for _ in range(5):
        turns.run()
    assert taken == [1, 1, 2, 1, 2, 1]


def test_what_reads_bodies_lets_others_go_on() -> None:
    taken: list[int] = []
    turns = InTurns()
    reads = Steps(1, 3, taken)
    turns.begin(reads)
    turns.begin(Steps(2, 2, taken))
    reads.ready = False
    assert turns.run() and not turns.run()
    assert not turns.run(), "only that one is left, and it cannot go on"
    reads.ready = True
    assert turns.run()
    assert taken == [1, 2, 2, 1]


def test_so_many_go_on_together_the_next_wait_and_more_are_refused() -> None:
    taken: list[int] = []
    turns = InTurns()
    for name in range(GOING_MAX + WAITING_MAX):
        turns.begin(Steps(name, 2, taken))
    with pytest.raises(RequestFailure, match="ask again later") as refused:
        turns.begin(Steps(-1, 1, taken))
    assert refused.value.status == 503
    while turns.run():
        pass
    assert taken[: GOING_MAX + 1] == [0, *range(GOING_MAX)], "the others know nothing of their queues yet"
    assert sorted(taken) == sorted(2 * list(range(GOING_MAX + WAITING_MAX)))
