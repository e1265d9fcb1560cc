from __future__ import annotations

import random

import numpy as np
import pytest

from acquit.ledger.events import EventKind
from acquit.ledger.totals import Summary
from acquit.spark.audit.clock import JUMP_US, went_back_us
from acquit.spark.ledger.segments import DTYPE, Events

K = EventKind
S = 1_000_000
ENTERING = (K.POSTED, K.MOVED_IN, K.HELD)


def events(*rows: tuple[EventKind, int, int]) -> Events:
    """Kind, sequence and seconds."""
    found = np.zeros(len(rows), DTYPE)
    for row, (kind, sequence, at_s) in zip(found, rows, strict=True):
        row["kind"], row["sequence"], row["time_us"] = kind, sequence, at_s * S
    return found


@pytest.mark.parametrize(
    ("rows", "back_s"),
    [
        ([], 0),
        ([(K.POSTED, 1, 5)], 0),
        ([(K.POSTED, 1, 1), (K.POSTED, 2, 60), (K.ACCEPTED, 1, 2)], 0),
        ([(K.HELD, 1, 60), (K.ACCEPTED, 7, 2), (K.RELEASED, 8, 3)], 0),
        ([(K.POSTED, 1, 60), (K.MOVED_IN, 2, 50)], 10),
        ([(K.ACCEPTED, 7, 60), (K.EXPIRED, 8, 50)], 10),
        ([(K.POSTED, 1, 60), (K.POSTED, 2, 61), (K.ACCEPTED, 1, 50)], 10),
        ([(K.POSTED, 1, 60), (K.POSTED, 2, 60), (K.ACCEPTED, 2, 55), (K.ACCEPTED, 8, 50)], 10),
        # Before it was posted: nothing is known of the one by the other.
        ([(K.ACCEPTED, 1, 50), (K.POSTED, 1, 60)], 0),
        ([(K.POSTED, 1, 60), (K.POSTED, 2, 59)], 0),
    ],
)
def test_what_was_certainly_earlier(rows: list[tuple[EventKind, int, int]], back_s: int) -> None:
    assert went_back_us(events(*rows), 0, None) == back_s * S


def test_segments_before_and_events_that_were_told_of() -> None:
    before = Summary(events=1, first_us=0, last_us=60 * S)
    told = events((K.ACCEPTED, 7, 20), (K.POSTED, 2, 70))
    assert went_back_us(told, 0, before) == 40 * S
    assert went_back_us(told, 1, before) == 0
    assert went_back_us(told, 0, Summary(events=0, first_us=0, last_us=60 * S)) == 0


@pytest.mark.parametrize("seed", range(20))
def test_as_by_looking_at_each_pair(seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        (rng.choice([*ENTERING, K.ACQUIRED, K.ACCEPTED]), rng.randrange(1, 9), rng.randrange(60)) for _ in range(30)
    ]

    def latest(place: int) -> int:
        """Of those before: the entries that stand before it, for an entry; the others, and what came before them."""
        kind, sequence, at_s = rows[place]
        entries = [other for other in range(place) if rows[other][0] in ENTERING]
        if kind in ENTERING:
            return max([at_s, *(rows[other][2] for other in entries)])
        own = next((other for other in entries if rows[other][1] == sequence), None)
        others = [other for other in range(place) if rows[other][0] not in ENTERING]
        return max([at_s, *(latest(other) for other in others[-1:]), *([latest(own)] if own is not None else [])])

    most = max(latest(place) - rows[place][2] for place in range(len(rows))) * S
    assert went_back_us(events(*rows), 0, None) == (most if most > JUMP_US else 0)
