from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.errors import EncodeError
from acquit.protocol.composite import encode_composite
from acquit.protocol.definitions import (
    Accepted,
    Declared,
    Disposition,
    Error,
    Modified,
    Received,
    Rejected,
    Released,
    Role,
    TransactionalState,
)
from acquit.protocol.dispositions import FRAME_OVERHEAD, DispositionRuns, encode_state, ranges
from acquit.protocol.serial import MASK
from tests.support.wire import frames_in

STATES = [
    None,
    Accepted(),
    Released(),
    Rejected(Error("amqp:decode-error", "no")),
    Rejected(Error("amqp:decode-error", "no" * 102)),
    Rejected(Error("amqp:decode-error", "no" * 200)),
    Modified(True, False, {"x-opt-a": 1}),
    Received(1, 2),
    TransactionalState(b"txn", Accepted()),
]


@pytest.mark.parametrize("state", STATES, ids=repr)
@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("role", list(Role))
def test_a_frame_says_what_the_composite_would(
    role: Role, settled: bool, state: Accepted | Released | Rejected | None
) -> None:
    runs = DispositionRuns()
    runs.run(role, settled, encode_state(state)).extend([5, 6, 7])
    (frame,) = runs.take_frames(channel=9)
    assert frames_in(frame) == [(9, Disposition(role, 5, 7, settled, state), b"")]
    assert len(frame) <= FRAME_OVERHEAD + len(encode_state(state))


def test_states_with_nothing_to_say_are_encoded_once() -> None:
    assert encode_state(Accepted()) is encode_state(Accepted())
    assert encode_state(Accepted()) == encode_composite(Accepted())


@given(st.binary(max_size=32) | st.binary(min_size=16, max_size=16), st.sampled_from([None, Accepted(), Released()]))
def test_states_of_transactions_are_what_the_codec_makes_of_them(txn_id: bytes, outcome: Accepted | None) -> None:
    for state in (Declared(txn_id), TransactionalState(txn_id, outcome)):
        assert encode_state(state) == encode_composite(state)


@pytest.mark.parametrize(
    "state", ["accepted", Declared(cast("bytes", "x" * 16)), TransactionalState(cast("bytes", [0] * 16))], ids=repr
)
def test_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(EncodeError):
        encode_state(state)


def test_runs_keep_their_order_and_merge_while_they_say_the_same() -> None:
    runs = DispositionRuns()
    accepted, released = encode_state(Accepted()), encode_state(Released())
    for id_ in (3, 1, 2):
        runs.run(Role.RECEIVER, True, accepted).append(id_)
    runs.run(Role.RECEIVER, True, released).append(9)
    runs.run(Role.RECEIVER, True, accepted).append(4)
    assert runs
    said = [frame[0][1] for frame in map(frames_in, runs.take_frames(0))]
    assert said == [
        Disposition(Role.RECEIVER, 1, 3, True, Accepted()),
        Disposition(Role.RECEIVER, 9, 9, True, Released()),
        Disposition(Role.RECEIVER, 4, 4, True, Accepted()),
    ]
    assert not runs
    assert runs.take_frames(0) == []


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], []),
        ([4], [(4, 4)]),
        ([4, 4], [(4, 4)]),
        ([1, 2, 3], [(1, 3)]),
        ([3, 2, 1], [(1, 3)]),
        ([1, 2, 4, 5, 9], [(1, 2), (4, 5), (9, 9)]),
        ([1, 1, 3], [(1, 1), (3, 3)]),
        ([MASK - 1, MASK, 0, 1], [(MASK - 1, 1)]),
        ([1, MASK, 0], [(MASK, 1)]),
        ([5, MASK - 3], [(MASK - 3, MASK - 3), (5, 5)]),
    ],
)
def test_ranges(ids: list[int], expected: list[tuple[int, int]]) -> None:
    assert list(ranges(ids)) == expected


@given(st.integers(0, MASK), st.lists(st.integers(0, 200), max_size=60))
def test_ranges_cover_exactly_the_ids_given(base: int, offsets: list[int]) -> None:
    ids = [(base + offset) & MASK for offset in offsets]
    covered = []
    for first, last in ranges(list(ids)):
        covered += [(first + step) & MASK for step in range(((last - first) & MASK) + 1)]
    assert sorted(covered) == sorted(set(ids))
