"""Fingerprints as columns: look-ups and merges answer as a dictionary would."""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.spark.spool.identities import BYTES_EACH, NONE, UNKNOWN, Identities, Outcome, join, merge


class Fingerprint(NamedTuple):
    identity: bytes
    match: bytes


# Few values, so that equal identities, and equal identities with other content, are common.
_eight = st.integers(0, 3).map(lambda n: n.to_bytes(8, "little"))
_named = st.tuples(
    st.builds(Fingerprint, _eight, st.builds(lambda a, b: a + b, _eight, _eight)), st.sampled_from(list(Outcome))
)


def collect(named: list[tuple[Fingerprint, Outcome]]) -> Identities:
    match = np.frombuffer(b"".join(found.match for found, _ in named), "<u8")
    identity = np.frombuffer(b"".join(found.identity for found, _ in named), "<u8")
    return Identities(identity, match[0::2], match[1::2], np.array([outcome for _, outcome in named], np.uint8))


def test_what_a_fingerprint_is() -> None:
    found = Identities.of([b"id", b""], [b"content", memoryview(b"")])
    assert found.outcome.tolist() == [Outcome.ACCEPTED] * 2
    for row, (key, bare) in enumerate([(b"id", b"content"), (b"", b"")]):
        assert found.identity[row].tobytes() == sha256(key).digest()[:8]
        match = found.match_low[row].tobytes() + found.match_high[row].tobytes()
        assert match == sha256(key + sha256(bare).digest()).digest()[:16]


def test_the_time_of_a_posting_is_its_content() -> None:
    for time in (1_700_000_000_000, 0, -1):
        found = Identities.of([b"id", b"other"], [time, b"content"])
        digest = sha256(b"id").digest()
        assert (found.identity[0].tobytes(), found.match_low[0].tobytes()) == (digest[:8], digest[8:16])
        assert found.match_high[0] == int.from_bytes(digest[16:24], "little") ^ (time & (1 << 64) - 1)
        assert found.take(np.array([1])).encode() == Identities.of([b"other"], [b"content"]).encode()


_brokers = st.sampled_from([UUID(int=1), UUID(int=2), UUID(int=1 << 127)])
_sequences = st.integers(1, 5) | st.sampled_from([(1 << 62), (1 << 63) - 1])
_times = st.integers(-2, 2) | st.sampled_from([-(1 << 63), (1 << 63) - 1, 1_700_000_000_000])


@given(st.lists(st.tuples(_brokers, _sequences, _times), min_size=1))
def test_a_posting_is_its_broker_its_sequence_and_its_time(postings: list[tuple[UUID, int, int]]) -> None:
    """Each has a match of its own, and each sequence of a broker an identity."""
    blocks = [
        Identities.of_postings(broker, np.array([sequence]), np.array([time])) for broker, sequence, time in postings
    ]
    whole = join(blocks)
    matches = list(zip(whole.match_low.tolist(), whole.match_high.tolist(), strict=True))
    identities = whole.identity.tolist()
    for one, match, identity in zip(postings, matches, identities, strict=True):
        for other, match_of, identity_of in zip(postings, matches, identities, strict=True):
            assert (match == match_of) == (one == other)
            assert (identity == identity_of) == (one[:2] == other[:2])
    assert whole.outcome.tolist() == [Outcome.ACCEPTED] * len(postings)


def test_postings_are_written_so() -> None:
    """What is in logs must not change."""
    found = Identities.of_postings(UUID(int=7), np.array([1, (1 << 63) - 1]), np.array([1_700_000_000_000, -1]))
    drawn = sha256(b"acquit posting" + UUID(int=7).bytes).digest()
    identity, low, high = (int.from_bytes(drawn[at : at + 8], "little") for at in (0, 8, 16))
    assert found.identity.tolist() == [(identity + number) % (1 << 64) for number in (1, (1 << 63) - 1)]
    assert found.match_low.tolist() == [low ^ number for number in (1, (1 << 63) - 1)]
    assert found.match_high.tolist() == [high ^ number for number in (1_700_000_000_000, (1 << 64) - 1)]


def test_fingerprints_are_put_into_rows() -> None:
    whole = Identities.of_postings(UUID(int=7), np.arange(1, 5), np.arange(4))
    before = whole.encode()
    others = Identities.of([b"a", b"b"], [b"1", b"2"])
    found = whole.put(np.array([3, 1]), others)
    assert whole.encode() == before
    assert found.take(np.array([3, 1])).encode() == others.encode()
    assert found.take(np.array([0, 2])).encode() == whole.take(np.array([0, 2])).encode()


@pytest.mark.promise("epochs")
def test_content_and_identity_both_count() -> None:
    known = Identities.of([b"id"], [b"content"]).sort()
    wanted = Identities.of([b"id", b"id", b"other"], [b"content", b"other", b"content"])
    found, conflict = known.outcomes(wanted)
    assert found.tolist() == [Outcome.ACCEPTED, UNKNOWN, UNKNOWN]
    assert conflict.tolist() == [False, True, False]


@given(st.lists(_named), st.lists(_named))
def test_look_ups_answer_as_a_dictionary_would(
    known: list[tuple[Fingerprint, Outcome]], wanted: list[tuple[Fingerprint, Outcome]]
) -> None:
    found, conflict = merge([collect([one]) for one in known]).outcomes(collect(wanted))
    for (want, _), outcome, other in zip(wanted, found.tolist(), conflict.tolist(), strict=True):
        same = {result for one, result in known if one == want}
        assert outcome in same if same else outcome == UNKNOWN
        assert other == (not same and any(one.identity == want.identity for one, _ in known))


@given(st.lists(st.lists(_named, max_size=5), max_size=4))
def test_a_merge_keeps_each_match_and_of_neighbours_the_newest(
    blocks: list[list[tuple[Fingerprint, Outcome]]],
) -> None:
    merged = merge([collect(block).sort() for block in blocks])
    rows = list(zip(merged.identity.tolist(), merged.match_low.tolist(), merged.match_high.tolist(), strict=True))
    wanted = {tuple(np.frombuffer(one.identity + one.match, "<u8").tolist()) for block in blocks for one, _ in block}
    assert set(rows) == wanted
    assert merged.identity.tolist() == sorted(merged.identity.tolist())
    assert all(one != other for one, other in pairwise(rows))


@given(st.lists(_named))
def test_what_repeats_is_told_with_the_first_one(named: list[tuple[Fingerprint, Outcome]]) -> None:
    matches = [one.match for one, _ in named]
    found = join([collect([one]) for one in named]).repeats()
    assert found == {row: first for row, match in enumerate(matches) if (first := matches.index(match)) != row}


@pytest.mark.promise("epochs")
@given(st.lists(_named))
def test_a_conflict_has_the_identity_of_an_earlier_row_and_a_content_of_its_own(
    named: list[tuple[Fingerprint, Outcome]],
) -> None:
    matches = [one.match for one, _ in named]
    identities = [one.identity for one, _ in named]
    found = join([collect([one]) for one in named]).conflicts()
    assert found.tolist() == [
        one.identity in identities[:row] and one.match not in matches[:row] for row, (one, _) in enumerate(named)
    ]


def test_the_newest_outcome_wins() -> None:
    one = Fingerprint(b"identity", b"matchmatchmatch.")
    old, new = collect([(one, Outcome.REJECTED)]), collect([(one, Outcome.ACCEPTED)])
    assert merge([old, new]).outcome.tolist() == [Outcome.ACCEPTED]


@given(st.lists(_named))
def test_columns_round_trip(named: list[tuple[Fingerprint, Outcome]]) -> None:
    block = collect(named)
    data = block.encode()
    assert len(data) == len(named) * BYTES_EACH
    again = Identities.decode(data, len(named))
    for name in ("identity", "match_low", "match_high", "outcome"):
        assert getattr(again, name).tolist() == getattr(block, name).tolist()


def test_a_wrong_count_is_refused() -> None:
    with pytest.raises(ValueError, match="26 bytes cannot be 1 identities of 25 bytes"):
        Identities.decode(b"x" * 26, 1)
    assert merge([]) is NONE
