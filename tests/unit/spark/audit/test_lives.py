"""Pieces give the same lives however they are grouped; and what is no part of a life is set apart."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest

from acquit.ledger.events import Event, EventKind, pack_event
from acquit.spark.audit.lives import (
    LIFE,
    LifeFlag,
    Lives,
    bucket_of,
    complete,
    concatenate,
    flagged,
    merge,
    of_events,
)
from acquit.spark.ledger.segments import DTYPE, Events

K = EventKind


def events_of(*events: Event) -> Events:
    return np.frombuffer(b"".join(pack_event(*event) for event in events), DTYPE)


def event(kind: EventKind, sequence: int = 7, time: int = 0, **fields: int) -> Event:
    size = fields.get("size", 3)
    return Event(sequence, fields.get("origin", 0), time, size << 32 | 9, fields.get("queue", 1), 0, kind, 1, 0, 0)


def lives_of(*events: Event, segment: int = 1) -> Lives:
    return of_events(events_of(*events), segment, 1)


def random_history(rng: random.Random) -> list[Event]:
    """Of some messages in two queues, some not sound."""
    events = []
    for sequence in range(1, 12):
        kinds = [K.POSTED, K.ACQUIRED, K.RELEASED, K.ACQUIRED, K.MODIFIED, K.ACCEPTED][: rng.randrange(1, 7)]
        for _ in range(rng.choice((0, 0, 1, 2))):
            kinds.insert(rng.randrange(len(kinds) + 1), rng.choice(list(K)))
        events += [(sequence, kind) for kind in kinds]
    keyed = sorted(events, key=lambda one: (rng.random(), one))
    # In any order among messages, in theirs within each.
    by_message = {sequence: [kind for other, kind in events if other == sequence] for sequence, _ in events}
    time = 0
    found = []
    for sequence, _ in keyed:
        time += rng.randrange(-2, 100)
        kind = by_message[sequence].pop(0)
        found.append(
            event(kind, sequence, time, queue=sequence % 2 + 1, origin=sequence + 100, size=rng.choice((3,) * 9 + (4,)))
        )
    return found


def grouped(pieces: Lives, rng: random.Random) -> Lives:
    """The same pieces, put together in parts, in any grouping that keeps the journal's order."""
    cuts = sorted(rng.sample(range(len(pieces) + 1), min(3, len(pieces))))
    parts = [part for part in np.split(pieces, cuts) if len(part)]
    if rng.random() < 0.5:
        return concatenate([merge(part).lives for part in parts])
    left = parts[0]
    for part in parts[1:]:
        left = merge(concatenate([left, part])).lives
    return left


@pytest.mark.parametrize("seed", range(60))
def test_any_grouping_gives_the_same_lives(seed: int) -> None:
    rng = random.Random(seed)
    pieces = lives_of(*random_history(rng))
    whole = merge(pieces)
    if len(whole.extras):
        # What is said twice depends on what it meets first; so do first things, and only they, not.
        pieces = pieces[[not any(piece == extra for extra in whole.extras) for piece in pieces]]
        whole = merge(pieces)
        assert not len(whole.extras)
    for _ in range(5):
        assert merge(grouped(pieces, rng)).lives.tolist() == whole.lives.tolist()


def test_a_life() -> None:
    pieces = lives_of(
        event(K.POSTED, time=10, origin=3),
        event(K.ACQUIRED, time=20),
        event(K.RELEASED, time=30, origin=99),
        event(K.ACQUIRED, time=40),
        event(K.DEAD_LETTERED, time=50, origin=8),
        event(K.READ, time=60),
        event(K.DUPLICATE, time=60),
    )
    [life] = merge(pieces).lives
    told = dict(zip(LIFE.names or (), life.tolist(), strict=True))
    assert told == {
        "sequence": 7,
        "queue": 1,
        "broker": 1,
        "entered": K.POSTED,
        "entered_us": 10,
        "origin": 3,
        "acquired": 2,
        "acquired_us": 20,
        "returned": 1,
        "retired": K.DEAD_LETTERED,
        "retired_us": 50,
        "became": 8,
        "first_us": 10,
        "last_us": 50,
        "last": K.DEAD_LETTERED,
        "attempt": 0,
        "size": 3,
        "crc": 9,
        "first_segment": 1,
        "last_segment": 1,
        "flags": 0,
    }


@pytest.mark.parametrize(
    ("kinds", "extras"),
    [
        ([K.POSTED, K.ACCEPTED], []),
        ([K.POSTED, K.ACCEPTED, K.ACCEPTED], [K.ACCEPTED]),
        ([K.POSTED, K.POSTED, K.ACCEPTED], [K.POSTED]),
        ([K.POSTED, K.CONSUMED, K.ACQUIRED, K.RELEASED], [K.ACQUIRED, K.RELEASED]),
        ([K.ACCEPTED, K.POSTED], [K.POSTED]),
    ],
)
def test_what_is_no_part_of_a_life(kinds: Iterable[EventKind], extras: list[EventKind]) -> None:
    merged = merge(lives_of(*(event(kind, time=time) for time, kind in enumerate(kinds))))
    assert len(merged.lives) == 1
    assert merged.extras["last"].tolist() == extras


@pytest.mark.parametrize(
    ("events", "flag"),
    [
        ([event(K.POSTED, time=10), event(K.ACQUIRED, time=9)], LifeFlag.BACKWARD),
        ([event(K.POSTED), event(K.ACQUIRED, size=4)], LifeFlag.ALTERED),
        ([event(K.ACQUIRED), event(K.POSTED)], LifeFlag.EARLY),
    ],
)
def test_what_is_wrong_is_flagged_also_over_segments(events: list[Event], flag: LifeFlag) -> None:
    other = event(K.POSTED, 8)
    first, second = lives_of(events[0], other), lives_of(events[1], segment=2)
    for lives in (merge(lives_of(*events, other)).lives, merge(concatenate([first, second])).lives):
        assert lives["flags"].tolist() == [flag, 0]
        assert flagged(lives, flag).tolist() == [True, False]


def test_one_queue_is_not_another_and_one_broker_not_another() -> None:
    pieces = lives_of(event(K.POSTED), event(K.ACCEPTED, queue=2))
    theirs = of_events(events_of(event(K.ACCEPTED)), 1, 2)
    assert not complete(merge(concatenate([pieces, theirs])).lives).any()


def test_pieces_of_a_message_meet_and_others_spread() -> None:
    lives = np.zeros(100_000, LIFE)
    lives["sequence"] = np.arange(100_000, dtype=np.uint64) << np.uint64(16)
    found = bucket_of(lives, 32)
    assert len(set(found.tolist())) == 32
    slices = found.reshape(-1, 16)
    assert (slices == slices[:, :1]).all(), "neighbours are together"
    lives["attempt"] = 5
    assert (bucket_of(lives, 32) == found).all()
