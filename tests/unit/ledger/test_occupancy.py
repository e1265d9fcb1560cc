"""How many live messages have their record in each segment."""

from __future__ import annotations

import random

import pytest

from acquit.ledger.occupancy import LOT, Occupancy
from acquit.store.interface import Position, SegmentInfo


def segments(*ends: int) -> list[SegmentInfo]:
    """Closed ones that end there, and an open one."""
    bases = [0, *ends]
    closed = [
        SegmentInfo(number, Position(base), Position(end), 4096, True, False, 1)
        for number, (base, end) in enumerate(zip(bases, ends, strict=False), start=1)
    ]
    last = Position(bases[-1])
    return [*closed, SegmentInfo(len(bases), last, last, 4096, False, False, 0)]


def test_who_entered_and_has_not_left_is_counted() -> None:
    account = Occupancy()
    for position in (10, 20, 150, 250):
        account.entered(position)
    account.left(20)
    assert [account.occupants(segments(100, 200), number) for number in (1, 2)] == [1, 2]
    account.left(150)
    account.left(10)
    assert [account.occupants(segments(100, 200), number) for number in (1, 2)] == [0, 0]


def test_several_enter_and_leave_together() -> None:
    account = Occupancy()
    account.entered_together([10, 20, 150])
    account.left_together([20, 150])
    assert [account.occupants(segments(100, 200), number) for number in (1, 2)] == [1, 1]
    account.left_together([10])
    assert account.occupants(segments(100, 200), 2) == 0


def test_the_open_segment_is_counted_once_it_is_closed() -> None:
    account = Occupancy()
    account.entered(150)
    account.entered(250)
    account.left(250)
    assert account.occupants(segments(100), 1) == 0
    assert account.occupants(segments(100, 200), 2) == 1
    assert account.occupants(segments(100, 200, 300), 3) == 1


def test_segments_without_a_batch_hold_nobody() -> None:
    account = Occupancy()
    account.entered(100)
    there = segments(100, 100, 100, 200, 200)
    assert [account.occupants(there, number) for number in (1, 2, 3, 4, 5)] == [0, 0, 0, 1, 1]


@pytest.mark.promise("missing")
def test_one_who_left_twice_does_not_cover_for_one_who_stayed() -> None:
    account = Occupancy()
    account.entered(10)
    account.entered(20)
    account.left(10)
    account.left(10)
    assert account.occupants(segments(100), 1) == -1


def test_one_from_before_the_oldest_segment_shows() -> None:
    account = Occupancy()
    account.entered(10)
    there = segments(100, 200)[1:]
    assert account.occupants(there, 2) == 1


@pytest.mark.parametrize("seed", range(5))
def test_at_random_as_counted_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    account, live = Occupancy(), []
    ends: list[int] = []
    end = 0
    for _ in range(60):
        for _ in range(rng.randrange(LOT // 8)):
            end += rng.randrange(3)
            live.append(end)
            account.entered(end)
        for _ in range(rng.randrange(len(live) + 1)):
            at = rng.randrange(len(live))
            account.left(live[at])
            live[at] = live[-1]
            live.pop()
        if rng.random() < 0.5:
            end += 1
            ends.append(end)
        there = segments(*ends)
        account.collect(there)
        if ends and rng.random() < 0.3:
            number = rng.randrange(len(ends)) + 1
            assert account.occupants(there, number) == sum(position < ends[number - 1] for position in live)
