"""Who stands where is found once, a few at a time, and is told for each segment."""

from __future__ import annotations

import random
from copy import copy

import pytest

from acquit.ledger.census import Census
from acquit.store.interface import SegmentInfo
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.mini_broker import Clock, MiniBroker, with_empty_segments


@pytest.fixture
def broker() -> MiniBroker:
    """Messages in each of several segments."""
    broker = MiniBroker(FaultyDisk(), random.Random(1), clock=Clock())
    broker.declare(1)
    while len(broker.journal.segments) < 5:
        broker.post(1, bytes(5_000))
        broker.sync()
    return broker


def census(broker: MiniBroker) -> Census:
    return Census(broker.journal.segments, broker.journal.end, broker.sequences(), broker.positions)


def standing(broker: MiniBroker, segment: SegmentInfo) -> set[int]:
    return {sequence for sequence, message in broker.messages.items() if segment.base <= message.position < segment.end}


def test_it_tells_who_stands_in_each_segment_once(broker: MiniBroker) -> None:
    found = census(broker)
    while not found.ask(3):
        pass
    closed = [segment for segment in broker.journal.segments if segment.sealed]
    assert len(closed) > 3
    for segment in closed:
        assert found.covers(segment)
        assert set(found.take(segment)) == standing(broker, segment) != set()
        assert not found.take(segment)


def test_it_knows_nothing_of_segments_that_came_later(broker: MiniBroker) -> None:
    found = census(broker)
    last = broker.journal.segments[-1]
    while broker.journal.segments[-2].base != last.base:
        broker.post(1, bytes(5_000))
        broker.sync()
    assert found.ask(1_000)
    assert not found.covers(broker.journal.segments[-2]), "what was written there later was not asked"
    assert not found.covers(broker.journal.segments[-1])


def test_who_left_or_moved_before_he_was_asked_is_not_told(broker: MiniBroker) -> None:
    found = census(broker)
    first = broker.journal.segments[0]
    gone, moved, *stay = sorted(standing(broker, first))
    del broker.messages[gone]
    broker.moved(moved, broker.journal.end)
    assert found.ask(1_000)
    assert sorted(found.take(first)) == stay


def test_what_was_appended_before_it_began_may_stand_in_a_segment_that_came_later(broker: MiniBroker) -> None:
    """A batch in flight, and one gathered meanwhile: each goes to a segment of its own."""
    broker.post(1, bytes(60_000))
    in_flight = broker.recorder.take_batch()
    assert in_flight is not None
    late = broker.post(1, bytes(60_000))
    found = census(broker)
    assert found.ask(1_000)
    in_flight.write_and_sync()
    broker.journal.complete(in_flight)
    broker.sync()
    segment = next(info for info in broker.journal.segments if info.base == in_flight.end)
    assert segment.base <= late.position
    assert not found.covers(segment)


@pytest.mark.parametrize("row", [1, 3])
@pytest.mark.parametrize("place", ["first", "in the middle", "last"])
def test_a_segment_without_a_batch_takes_nobody_from_its_successor(place: str, row: int) -> None:
    disk = FaultyDisk()
    for part in ("first", "in the middle", "last"):
        if part == place:
            disk = with_empty_segments(disk, row)
        broker = MiniBroker(disk, random.Random(1), clock=Clock())
        if part == "last":
            break
        for _ in range(3):
            broker.post(broker.declare(), bytes(5_000))
            broker.sync()
        disk = disk.after_kill()
    found = census(broker)
    assert found.ask(1_000)
    closed = [segment for segment in broker.journal.segments if segment.sealed]
    empty = [segment for segment in closed if segment.base == segment.end]
    assert len(empty) == row
    for segment in closed:
        assert set(found.take(segment)) == standing(broker, segment)
    assert sum(len(standing(broker, segment)) for segment in closed) == 6


def test_who_is_asked_in_no_order_is_told_of_the_right_segment(broker: MiniBroker) -> None:
    """The segment of the one before is tried first."""
    found = census(broker)
    closed = [segment for segment in broker.journal.segments if segment.sealed]
    for segment in closed:
        found.take(segment)
    mixed = list(broker.messages)
    random.Random(7).shuffle(mixed)
    found.add(mixed)
    for segment in closed:
        assert set(found.take(segment)) == standing(broker, segment) != set()


def test_what_comes_to_stand_there_is_added(broker: MiniBroker) -> None:
    found = census(broker)
    first, second, *_ = broker.journal.segments
    assert found.ask(1_000)
    found.take(first)
    held = broker.messages[min(standing(broker, first))]
    broker.messages[10_001], broker.messages[10_002] = copy(held), copy(held)
    broker.moved(10_002, broker.journal.end)
    found.add([10_001, 10_002, 10_003])
    assert list(found.take(first)) == [10_001]
    assert 10_002 not in found.take(second)
