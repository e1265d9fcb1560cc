"""Counts and sums."""

from __future__ import annotations

import random
from struct import Struct, error

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acquit.errors import StoreVersionUnsupported
from acquit.ledger.events import ENTERING, RETIRING, Event, EventKind, pack_event
from acquit.ledger.totals import HASH_MODULUS, NEVER_US, QueueTotals, RowFlag, Summary, SummaryRow, Totals, message_hash

U64 = st.integers(0, 2**64 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
KINDS = st.sampled_from(list(EventKind))


def event(kind: EventKind, sequence: int, mark: int = 77, queue: int = 1, time_us: int = 5) -> Event:
    return Event(sequence, 0, time_us, mark, queue, 0, kind, 0, 0, 0)


@given(st.lists(st.tuples(KINDS, U64, U64, st.integers(0, 5), st.integers(0, 99)), max_size=30))
def test_an_array_counts_as_its_events_do(rows: list[tuple[EventKind, int, int, int, int]]) -> None:
    events = [event(kind, sequence, mark, queue, when) for kind, sequence, mark, queue, when in rows]
    together, single = Totals(), Totals()
    together.add_events(b"".join(pack_event(*one) for one in events))
    for one in events:
        single.add_event(one.kind, one.queue, one.sequence, one.fingerprint, one.time_us)
    assert together.queues() == single.queues()
    assert (together.events, together.first_us, together.last_us) == (single.events, single.first_us, single.last_us)
    for queue, totals in together.queues().items():
        mine = [one for one in events if one.queue == queue]
        assert totals.entered == sum(one.kind in ENTERING for one in mine)
        assert totals.retired == sum(one.kind in RETIRING for one in mine)
        entered = sum(message_hash(one.sequence, one.fingerprint) for one in mine if one.kind in ENTERING)
        assert totals.entered_sum == entered % HASH_MODULUS
        retired = sum(message_hash(one.sequence, one.fingerprint) for one in mine if one.kind in RETIRING)
        assert totals.retired_sum == retired % HASH_MODULUS


SIDE_BY_SIDE = st.tuples(KINDS, st.sampled_from([0, 1, 257, 2**32 - 1]), st.integers(1, 60), U64, U64, I64)
"""Kind and queue of so many events, and from where their numbers count."""


@given(st.lists(SIDE_BY_SIDE, max_size=8))
@example([(EventKind.POSTED, 1, 31, 5, 7, 5)])
@example([(EventKind.POSTED, 1, 32, 2**64 - 32, 2**64 - 32, 5), (EventKind.ACCEPTED, 1, 2, 5, 7, -1)])
@example([(EventKind.POSTED, 10, 40, 5, 7, -5), (EventKind.POSTED, 10, 40, 5, 7, -(2**63))])
@example([(EventKind.POSTED, 1, 1, 5, 7, 9), (EventKind.ACQUIRED, 1, 1, 5, 7, 8)] * 20)
def test_events_side_by_side_count_as_each_does(runs: list[tuple[EventKind, int, int, int, int, int]]) -> None:
    events = [
        event(kind, (sequence + at) % 2**64, (mark + at * 3) % 2**64, queue, max(when - at, -(2**63)))
        for kind, queue, count, sequence, mark, when in runs
        for at in range(count)
    ]
    together, single = Totals(), Totals()
    for totals in (together, single):  # they count to what was there
        totals.add_event(EventKind.POSTED, 1, 9, 9, 0)
    together.add_events(b"".join(pack_event(*one) for one in events))
    for one in events:
        single.add_event(one.kind, one.queue, one.sequence, one.fingerprint, one.time_us)
    assert together.queues() == single.queues()
    assert (together.events, together.first_us, together.last_us) == (single.events, single.first_us, single.last_us)


@pytest.mark.pure
@pytest.mark.parametrize("alike", [1, 7, 8, 40])
def test_only_events_that_stand_side_by_side_are_counted_by_columns(
    monkeypatch: pytest.MonkeyPatch, alike: int
) -> None:
    one_by_one: list[bytes] = []
    monkeypatch.setattr(Totals, "_add_each", lambda _, events: one_by_one.append(events))
    kinds = [EventKind.POSTED, EventKind.ACQUIRED] * 16
    events = b"".join(pack_event(*event(kind, 1)) * alike for kind in kinds)
    Totals().add_events(events)
    assert bool(one_by_one) is (alike < 8)


@pytest.mark.parametrize("whole", [0, 2, 50])
def test_half_an_event(whole: int) -> None:
    totals = Totals()
    with pytest.raises(error):
        totals.add_events(bytes(48) * whole + bytes(40))
    assert totals.events == 0


@given(st.sampled_from([*ENTERING]), st.lists(st.tuples(U64, U64, st.integers(0, 99)), min_size=1, max_size=30))
def test_a_run_counts_as_its_events_do(kind: EventKind, rows: list[tuple[int, int, int]]) -> None:
    together, single = Totals(), Totals()
    for totals in (together, single):
        totals.add_event(kind, 3, 1, 2, 50)
    together.add_run(kind, 3, *zip(*rows, strict=True))
    for sequence, mark, when in rows:
        single.add_event(kind, 3, sequence, mark, when)
    assert together.queues() == single.queues()
    assert (together.events, together.first_us, together.last_us) == (single.events, single.first_us, single.last_us)


def test_times_are_those_of_the_first_and_the_last() -> None:
    totals = Totals()
    assert (totals.first_us, totals.last_us) == (NEVER_US, -NEVER_US)
    for when in (50, 20, 90):
        totals.add_events(pack_event(*event(EventKind.POSTED, 1, time_us=when)))
    assert (totals.first_us, totals.last_us) == (20, 90)


def test_the_sums_tell_one_message_from_another() -> None:
    """Where counts would not: the wrong message retired, or the right one with another body."""
    totals = QueueTotals({EventKind.POSTED: 2, EventKind.ACCEPTED: 1}, {}, 0, 0)
    totals.entered_sum = (message_hash(1, 10) + message_hash(2, 20)) % HASH_MODULUS
    for sequence, mark, right in ((1, 10, True), (2, 20, False), (1, 20, False), (3, 10, False)):
        totals.retired_sum = message_hash(sequence, mark)
        assert (totals.live_sum == message_hash(2, 20)) == right


def test_numpy_finds_the_same_sums() -> None:
    """As the audit does: 32 bits at a time, because numpy has no wider product."""
    numpy = pytest.importorskip("numpy")
    rng = random.Random(1)
    pairs = [(rng.getrandbits(64), rng.getrandbits(64)) for _ in range(500)]
    sequences = numpy.array([sequence for sequence, _ in pairs], dtype="u8")
    marks = numpy.array([mark for _, mark in pairs], dtype="u8")
    low = numpy.uint64(0xFFFFFFFF)
    total = 0
    for left, left_shift in ((sequences & low, 0), (sequences >> numpy.uint64(32), 32)):
        total += int((left & low).astype(object).sum()) << (64 + left_shift)
        for right, right_shift in ((marks & low, 0), (marks >> numpy.uint64(32), 32)):
            product = left * right
            halves = int((product >> numpy.uint64(32)).sum()) << 32, int((product & low).sum())
            total += sum(halves) << (left_shift + right_shift)
    assert total % HASH_MODULUS == sum(message_hash(*pair) for pair in pairs) % HASH_MODULUS


def some_totals(draw: st.DrawFn) -> QueueTotals:
    counts = st.dictionaries(st.integers(1, 60), st.integers(1, 2**40), max_size=5)
    wide = st.integers(0, HASH_MODULUS - 1)
    return QueueTotals(draw(counts), draw(counts), draw(wide), draw(wide))


@st.composite
def summaries(draw: st.DrawFn) -> Summary:
    rows = {}
    for queue in draw(st.sets(st.integers(0, 2**32 - 1), max_size=4)):
        here, before = some_totals(draw), some_totals(draw)
        cumulated = before.copy()
        cumulated.add(here)
        rows[queue] = SummaryRow(here, cumulated, draw(st.sampled_from([0, int(RowFlag.DELETED)])))
    return Summary(rows, draw(st.integers(0, 2**40)), draw(st.integers(0, 99)), draw(st.integers(100, 200)))


@given(summaries())
def test_a_summary_comes_back(summary: Summary) -> None:
    assert Summary.decode(summary.encode()) == summary


def test_a_summary_that_contradicts_itself() -> None:
    totals = QueueTotals({EventKind.POSTED: 3})
    data = bytearray(Summary({1: SummaryRow(totals, totals)}).encode())
    live = 32 + 8
    assert Struct("<q").unpack_from(data, live) == (3,)
    data[live] = 4
    with pytest.raises(ValueError, match="queue 1: 4 live, but its counts leave 3"):
        Summary.decode(bytes(data))


def test_a_summary_with_more_in_its_segment_than_up_to_its_end() -> None:
    summary = Summary({1: SummaryRow(QueueTotals({EventKind.POSTED: 3}), QueueTotals({EventKind.POSTED: 2}))})
    with pytest.raises(ValueError, match="queue 1: 3 of kind 1 in the segment, 2 up to its end"):
        Summary.decode(summary.encode())


@pytest.mark.parametrize("cut", [0, 10, 33, 60, 130])
def test_half_a_summary(cut: int) -> None:
    totals = QueueTotals({EventKind.POSTED: 3})
    with pytest.raises(ValueError, match="field of"):
        Summary.decode(Summary({1: SummaryRow(totals, totals)}).encode()[:cut])


def test_a_summary_of_the_future() -> None:
    data = bytearray(Summary().encode())
    data[0] = 2
    with pytest.raises(StoreVersionUnsupported, match="version 2"):
        Summary.decode(bytes(data))
