"""Peers that nearly keep to the protocol, and then do not: the engine answers, does not raise, and does not grow.

Bytes that are no talk at all, and what it does with them in any other state, are the target `engine`.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.protocol.frames import encode_frame
from tests.fuzz.targets.engine import OPTIONS, feed
from tests.support.hostile import Talk, talked_to


def misbehave(seed: int, wildness: float) -> None:
    data = b"".join(Talk(seed, wildness).frames(60))
    chance = random.Random(seed)
    chunks = []
    while data:
        cut = chance.choice((5, 100, 2_000))
        chunks.append(data[:cut])
        data = data[cut:]
    feed(talked_to(OPTIONS, 50, messages=5).engine, chunks)


@settings(max_examples=200)
@given(st.integers(0, 1 << 32), st.sampled_from([0.01, 0.1, 0.5]))
def test_a_peer_that_misbehaves(seed: int, wildness: float) -> None:
    misbehave(seed, wildness)


@pytest.mark.slow
def test_very_many_that_do(rng: random.Random, soak_rounds: int) -> None:
    for _ in range(200 * soak_rounds):
        misbehave(rng.randrange(1 << 32), rng.choice((0.01, 0.1, 0.5)))


def test_a_frame_that_never_ends_takes_no_more_than_its_size() -> None:
    engine = talked_to(OPTIONS, 50).engine
    begin = encode_frame(0, bytes(4_000))[:-1]
    assert engine.receive_data(begin, 0.0) == []
    assert engine.receive_data(b"\x00" * 10_000, 0.0) != [], "the frame ends, is looked at, and refused"
    assert engine.closed
