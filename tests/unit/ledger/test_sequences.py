"""Numbers that are never used twice."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from acquit.errors import StoreFull
from acquit.ledger.recovery import OpenedJournal, open_journal, write_now
from acquit.ledger.sequences import EXACT_MAX, DispatchMarks, Sequences, first_of_copy
from acquit.store.backup import EPOCH_GAP
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.mini_broker import DATA, SMALL


def opened(disk: FaultyDisk) -> OpenedJournal:
    return open_journal(DATA, SMALL, disk=disk, sequence_block=10)


def test_sequences_go_on_from_block_to_block() -> None:
    journal = opened(FaultyDisk())
    taken = []
    for _ in range(10):
        taken += [journal.sequences.take(1) for _ in range(4)]
        write_now(journal.recorder)
    assert taken == list(range(1, 41))
    assert journal.sequences.last == 40


def test_nobody_waits_while_a_block_is_on_its_way() -> None:
    journal = opened(FaultyDisk())
    before = journal.recorder.table.reserved_up_to
    for _ in range(6):
        journal.sequences.take(1)
    assert journal.recorder.table.reserved_up_to > before
    for _ in range(4):
        journal.sequences.take(1)
    with pytest.raises(StoreFull, match="wait for the next sync"):
        journal.sequences.take(1)
    write_now(journal.recorder)
    assert journal.sequences.take(1) == 11


def test_several_at_a_time_are_all_of_them_reserved() -> None:
    journal = opened(FaultyDisk())
    sequences = journal.sequences
    assert (sequences.take_all(4, 1), sequences.last) == (1, 4)
    assert (sequences.take_all(4, 1), sequences.last) == (5, 8)
    with pytest.raises(StoreFull, match="wait for the next sync"):
        sequences.take_all(3, 1)
    write_now(journal.recorder)
    first = sequences.take_all(3, 1)
    assert first > 8
    assert sequences.take(1) == first + 3


@pytest.mark.parametrize("used", [0, 1, 5, 6, 10])
def test_no_number_is_used_again_after_a_crash(used: int) -> None:
    disk = FaultyDisk()
    journal = opened(disk)
    for _ in range(used):
        journal.sequences.take(1)
    again = opened(disk.after_power_loss(lambda: False))
    assert again.sequences.take(1) > used


def test_a_reservation_that_was_not_synced_is_not_used() -> None:
    journal = opened(FaultyDisk())
    sequences = Sequences(journal.recorder, 11, 10, block=10)
    with pytest.raises(StoreFull):
        sequences.take(1)
    write_now(journal.recorder)
    assert sequences.take(1) == 11


def test_a_message_is_handed_out_once_its_mark_is_synced() -> None:
    journal = opened(FaultyDisk())
    marks = DispatchMarks(journal.recorder, block=10)
    assert not marks.covered(1, 1, 0)
    assert not marks.covered(1, 2, 0)
    write_now(journal.recorder)
    assert all(marks.covered(1, sequence, 0) for sequence in range(1, 12))
    assert not marks.covered(1, 13, 0)
    write_now(journal.recorder)
    assert marks.covered(1, 13, 0)
    assert not marks.covered(2, 1, 0), "each queue has its own"


def test_after_a_crash_what_was_covered_is_doubtful_and_no_more() -> None:
    disk = FaultyDisk()
    journal = opened(disk)
    marks = DispatchMarks(journal.recorder, block=10)
    marks.covered(1, 1, 0)
    write_now(journal.recorder)
    assert marks.covered(1, 5, 0)
    table = opened(disk.after_power_loss(lambda: False)).fold.table
    assert table.certain_from(1) > 5
    assert table.certain_from(1) <= 12
    assert table.certain_from(2) <= 5


def test_a_far_sequence_is_covered_at_once() -> None:
    journal = opened(FaultyDisk())
    marks = DispatchMarks(journal.recorder, block=10)
    marks.covered(1, 1000, 0)
    write_now(journal.recorder)
    assert marks.covered(1, 1000, 0)
    marks.forget(1)
    assert not marks.covered(1, 1000, 0)
    marks.forget(99)


def test_a_copy_begins_where_is_drawn_behind_what_its_original_can_have_used() -> None:
    spans: list[int] = []

    def least(span: int) -> int:
        spans.append(span)
        return 0

    assert first_of_copy(0, least) == EPOCH_GAP + 1
    assert first_of_copy(1_000, least) == 1_000 + EPOCH_GAP + 1
    assert first_of_copy(0, lambda span: span - 1) == EPOCH_GAP + spans[0]
    assert spans[0] == 1 << 49


def test_copies_of_copies_have_numbers_that_a_double_tells_apart() -> None:
    """Two hundred, each made from the one before; and then it goes on, with no more drawn than the gap is long."""
    rng = Random(1)
    firsts = [0]
    for _ in range(201):
        firsts.append(first_of_copy(firsts[-1], rng.randrange))
    assert firsts[-1] < EXACT_MAX
    assert float(firsts[-1]) != float(firsts[-1] + 1)
    assert all(after - before > EPOCH_GAP for before, after in pairwise(firsts))
    for behind in (EXACT_MAX - 1, EXACT_MAX, EXACT_MAX + EPOCH_GAP):
        assert first_of_copy(behind, lambda span: span - 1) == behind + 2 * EPOCH_GAP
