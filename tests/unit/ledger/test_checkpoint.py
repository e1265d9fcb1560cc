"""The oldest segment leaves, and what is live in it stays."""

from __future__ import annotations

import random
from copy import copy
from itertools import count

import pytest

from acquit.errors import StoreFull
from acquit.ledger.census import Census
from acquit.ledger.checkpoint import BodyRead, Checkpointer
from acquit.ledger.events import EventKind
from acquit.ledger.records import Copied, RecordKind
from acquit.store.interface import Position, Record
from acquit.store.options import JournalOptions
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.mini_broker import SMALL, Clock, History, MiniBroker, check_recovered, with_empty_segments
from tests.support.raw_journal import Raw


@pytest.fixture
def broker() -> MiniBroker:
    """Ten messages live in the first of several segments, one of them with a story; all else is settled."""
    broker = MiniBroker(FaultyDisk(), random.Random(1), clock=Clock())
    broker.declare(1)
    for number in range(10):
        broker.post(1, b"stays %d" % number)
    first = min(broker.messages.values(), key=lambda message: message.sequence)
    broker.transition(first, EventKind.ACQUIRED, actor=4)
    broker.modify(first)
    broker.sync()
    fill(broker)
    return broker


def fill(broker: MiniBroker, segments: int = 4) -> None:
    while len(broker.journal.segments) < segments:
        message = broker.post(1, bytes(5000))
        broker.sync()
        broker.retire(message, EventKind.ACCEPTED)
        broker.sync()


def checkpointer(broker: MiniBroker, **options: int) -> Checkpointer:
    given = {"recovery_bytes_max": 128 * 1024, "step_records": 3} | options
    return Checkpointer(broker.recorder, broker, **given)


def run(broker: MiniBroker, checkpoint: Checkpointer, steps: int = 1000) -> int:
    """Advance until the segment left; how many steps it took."""
    for step in range(steps):
        checkpoint.advance(broker.clock.wall_us())
        read = checkpoint.take_read()
        if read is not None:
            read.run()
            checkpoint.complete_read(read)
        if not checkpoint.active:
            return step
    raise AssertionError("it does not end")


def leave(broker: MiniBroker, checkpoint: Checkpointer) -> None:
    before = broker.journal.left_through
    run(broker, checkpoint)
    assert broker.journal.left_through == before + 1
    broker.sync()
    broker.chores()


def reopened(broker: MiniBroker) -> MiniBroker:
    assert isinstance(broker.disk, FaultyDisk)
    again = MiniBroker(broker.disk.after_kill(), random.Random(2), truth=broker.truth, clock=broker.clock)
    check_recovered(again)
    return again


def test_what_is_live_is_copied_with_its_story(broker: MiniBroker) -> None:
    end = broker.journal.segments[0].end
    assert all(message.position < end for message in broker.messages.values())
    leave(broker, checkpointer(broker))
    assert all(message.position >= end for message in broker.messages.values())
    assert next(info.number for info in broker.journal.segments if not info.archived) == 2
    again = reopened(broker)
    assert again.opened.report.segments == len(broker.journal.segments) - 1
    first = min(again.messages.values(), key=lambda message: message.sequence)
    assert first.notes is not None
    assert first.notes.attempts[0].condition == "app:busy"


def test_segment_after_segment(broker: MiniBroker) -> None:
    fill(broker, 8)
    checkpoint = checkpointer(broker, recovery_bytes_max=0)
    for left in range(1, 5):
        fill(broker, 8 + left)
        leave(broker, checkpoint)
        assert broker.journal.left_through == left
        reopened(broker)


def test_a_copy_names_the_first_record_also_when_copied_again(broker: MiniBroker) -> None:
    originals = {message.sequence: message.position for message in broker.messages.values()}
    checkpoint = checkpointer(broker, recovery_bytes_max=0)
    for _ in range(5):
        fill(broker, len(broker.journal.segments) + 2)
        leave(broker, checkpoint)
    for message in broker.messages.values():
        record = broker.journal.read(message.position)
        assert record.kind == RecordKind.COPIED
        assert Copied.decode(record).original_position == originals[message.sequence]


@pytest.mark.promise("missing")
@pytest.mark.parametrize("row", [1, 3])
@pytest.mark.parametrize("place", range(4))
def test_nobody_is_left_behind_beside_segments_without_a_batch(place: int, row: int) -> None:
    """Messages live long in three segments; earlier versions were killed as they started, before, between, or after."""
    disk, truth, clock = FaultyDisk(), History(), Clock()
    for part in range(4):
        if part == place:
            disk = with_empty_segments(disk, row)
        broker = MiniBroker(disk, random.Random(part), truth=truth, clock=clock)
        broker.post(broker.declare(), b"stays %d" % part)
        broker.sync()
        disk = disk.after_kill()
    broker = MiniBroker(disk, random.Random(5), truth=truth, clock=clock)
    checkpoint = checkpointer(broker, recovery_bytes_max=0)
    for _ in range(len(broker.journal.segments) - 1):
        fill(broker, len(broker.journal.segments) + 1)
        leave(broker, checkpoint)
    assert broker.journal.left_through >= 4 + row
    assert len(reopened(broker).messages) == 4


def test_a_segment_stays_while_somebody_in_it_was_overlooked(
    broker: MiniBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever made him be overlooked: nothing is lost, and the next census finds him."""
    take = Census.take
    monkeypatch.setattr(Census, "take", lambda census, segment: take(census, segment)[1:])
    checkpoint = checkpointer(broker, recovery_bytes_max=0)
    run(broker, checkpoint)
    assert broker.staying == [(1, 1)]
    assert broker.journal.left_through == 0
    assert checkpoint.look_at == broker.journal.end + broker.journal.segments[0].file_bytes, "it is not tried at once"
    broker.sync()
    broker.chores()
    assert len(reopened(broker).messages) == 10
    monkeypatch.setattr(Census, "take", take)
    while broker.journal.end < checkpoint.look_at:
        fill(broker, len(broker.journal.segments) + 1)
    leave(broker, checkpoint)
    assert broker.staying == [(1, 1), (1, 0)]
    assert len(reopened(broker).messages) == 10


def first_read(broker: MiniBroker, checkpoint: Checkpointer) -> BodyRead:
    """What is read first of the segment that leaves."""
    while True:
        checkpoint.advance(broker.clock.wall_us())
        read = checkpoint.take_read()
        if read is not None:
            return read


def test_steps_are_bounded(broker: MiniBroker) -> None:
    checkpoint = checkpointer(broker, step_records=2)
    while True:
        before = broker.journal.pending_bytes
        checkpoint.advance(broker.clock.wall_us())
        read = checkpoint.take_read()
        if read is not None:
            read.run()
            assert len(read.records) <= 2
            checkpoint.complete_read(read)
        assert broker.journal.pending_bytes - before < 2 * 500 + 700
        if not checkpoint.active:
            break
        broker.sync()


@pytest.mark.pure  # the native build's methods cannot be replaced
def test_a_read_that_met_a_lack_of_descriptors_is_run_again(
    broker: MiniBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = first_read(broker, checkpointer(broker, step_records=4))
    found = broker.journal.read
    times = count(1)

    def read_record(position: Position, size_hint: int) -> Record:
        if next(times) == 2:
            raise StoreFull("Too many open files")
        return found(position, size_hint)

    monkeypatch.setattr(broker.journal, "read", read_record)
    with pytest.raises(StoreFull):
        read.run()
    read.run()
    sequences = [sequence for sequence, _ in read.records]
    assert len(sequences) == len(set(sequences)) > 1


def test_what_is_settled_meanwhile_is_not_copied(broker: MiniBroker) -> None:
    checkpoint = checkpointer(broker, step_records=100)
    read = first_read(broker, checkpoint)
    assert checkpoint.take_read() is None
    checkpoint.advance(broker.clock.wall_us())
    assert checkpoint.take_read() is None, "one at a time"
    read.run()
    for message in list(broker.messages.values())[:4]:
        broker.retire(message, EventKind.ACCEPTED)
    checkpoint.complete_read(read)
    run(broker, checkpoint)
    broker.sync()
    broker.chores()
    assert len(reopened(broker).messages) == 6


def test_what_became_of_messages_stands_before_the_record_that_their_segment_leaves(broker: MiniBroker) -> None:
    """A fold that begins behind the segment knows nothing of them once it has read that."""
    checkpoint = checkpointer(broker, step_records=100)
    read = first_read(broker, checkpoint)
    read.run()
    for message in list(broker.messages.values()):
        broker.retire(message, EventKind.ACCEPTED)
    checkpoint.complete_read(read)
    assert not checkpoint.active
    broker.sync()
    broker.chores()
    assert not reopened(broker).messages


def test_it_is_known_when_a_look_is_worth_it(broker: MiniBroker) -> None:
    checkpoint = checkpointer(broker, recovery_bytes_max=400_000)
    assert checkpoint.look_at <= broker.journal.end
    checkpoint.advance(1)
    assert not checkpoint.active
    assert checkpoint.look_at == broker.journal.segments[0].base + 400_001
    for _ in range(3):
        looks = 0
        while not checkpoint.active:
            while broker.journal.end < checkpoint.look_at:
                fill(broker, len(broker.journal.segments) + 1)
            checkpoint.advance(1)
            looks += 1
        # One because what was copied is matched by as much that is new, one because there is too much.
        assert looks <= 2
        assert checkpoint.look_at > broker.journal.end + (1 << 40)
        leave(broker, checkpoint)
        assert checkpoint.look_at <= broker.journal.end + 20_000


def test_not_before_there_is_too_much(broker: MiniBroker) -> None:
    checkpoint = checkpointer(broker, recovery_bytes_max=1 << 30)
    checkpoint.advance(1)
    assert not checkpoint.active


def test_not_while_most_of_it_is_live(broker: MiniBroker) -> None:
    for _ in range(20):
        broker.post(1, bytes(20_000))
        broker.sync()
    checkpoint = checkpointer(broker)
    checkpoint.advance(1)
    assert not checkpoint.active


def test_copying_is_matched_by_new_records_first(broker: MiniBroker) -> None:
    large = broker.post(1, bytes(8000))
    fill(broker, 8)
    checkpoint = checkpointer(broker, recovery_bytes_max=0)
    position = large.position
    while large.position == position:
        leave(broker, checkpoint)
    assert broker.journal.end < checkpoint.look_at < broker.journal.end + 12_000
    checkpoint.advance(1)
    assert not checkpoint.active
    fill(broker, len(broker.journal.segments) + 1)
    checkpoint.advance(1)
    assert checkpoint.active


def test_segments_that_cost_little_leave_while_nothing_new_comes(broker: MiniBroker) -> None:
    fill(broker, 16)
    checkpoint = checkpointer(broker)
    written = broker.journal.end
    for _ in range(100):
        broker.sync()
        run(broker, checkpoint)
    journal = broker.journal
    recovered = journal.end - next(one.base for one in journal.segments if one.number > journal.left_through)
    assert recovered <= 128 * 1024, "so much may be left"
    assert journal.end - written < (journal.segments[-2].base - Position(0)) // 16
    end = journal.end
    for _ in range(10):
        broker.sync()
        run(broker, checkpoint)
    assert journal.end == end, "and then nothing is written"
    assert len(reopened(broker).messages) == 10


def test_it_comes_to_rest_where_a_segment_that_leaves_costs_as_much_as_it_frees() -> None:
    tiny = JournalOptions(
        segment_bytes=8 * 1024,
        alignment_bytes=512,
        reserve_segments=1,
        spare_segments=0,
        recovery_bytes_max=16 * 1024,
        archive_bytes_max=0,
    )
    broker = MiniBroker(FaultyDisk(), random.Random(1), options=tiny, clock=Clock())
    for queue in range(1, 10):
        broker.declare(queue)
    for number in range(60):  # each summary speaks of all queues
        broker.retire(broker.post(number % 9 + 1, bytes(200)), EventKind.ACCEPTED)
        broker.sync()

    def settle() -> bool:
        """Go on while anything is written; False where that has no end."""
        for _ in range(200):
            before = broker.journal.end
            broker.checkpoint(5)
            broker.chores()
            broker.sync()
            if broker.journal.end == before:
                return True
        return False

    assert settle()
    left = broker.journal.left_through
    for _ in range(20):
        broker.retire(broker.post(1, bytes(200)), EventKind.ACCEPTED)
        broker.sync()
    assert settle()
    assert broker.journal.left_through > left


def test_not_the_open_segment() -> None:
    broker = MiniBroker(FaultyDisk(), random.Random(1))
    broker.declare(1)
    broker.sync()
    checkpoint = checkpointer(broker, recovery_bytes_max=0)
    checkpoint.advance(1)
    assert not checkpoint.active


def test_only_a_read_that_is_out_is_taken_back(broker: MiniBroker) -> None:
    checkpoint = checkpointer(broker)
    read = first_read(broker, checkpoint)
    read.run()
    checkpoint.complete_read(read)
    with pytest.raises(ValueError, match="not out"):
        checkpoint.complete_read(read)


@pytest.mark.pure
def test_no_room_in_any_step_loses_nothing(broker: MiniBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every append and every leaving is refused once before it is let through."""
    refused = 0
    let_through = False

    def reluctant(call: object) -> object:
        def refusing(*arguments: object) -> object:
            nonlocal let_through, refused
            let_through = not let_through
            if let_through:
                refused += 1
                raise StoreFull("no room")
            return call(*arguments)  # type: ignore[operator]

        return refusing

    journal = broker.journal
    monkeypatch.setattr(journal, "append", reluctant(journal.append))
    checkpoint = checkpointer(broker)
    for _ in range(500):
        try:
            checkpoint.advance(broker.clock.wall_us())
            read = checkpoint.take_read()
            if read is not None:
                read.run()
                checkpoint.complete_read(read)
        except StoreFull:
            continue
        if journal.left_through:
            break
    assert journal.left_through == 1
    assert refused > 10
    monkeypatch.undo()
    broker.sync()
    broker.chores()
    assert len(reopened(broker).messages) == 10


def test_a_full_disk_lets_segments_go_sooner_if_little_is_live(
    broker: MiniBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(broker.journal), "full", property(lambda journal: True))
    checkpoint = checkpointer(broker, recovery_bytes_max=1 << 40)
    checkpoint.advance(1)
    assert checkpoint.active


def test_on_a_full_disk_the_reserve_is_not_spent_on_a_backlog(
    broker: MiniBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.post(1, bytes(17_000))
    monkeypatch.setattr(type(broker.journal), "full", property(lambda journal: True))
    checkpoint = checkpointer(broker, recovery_bytes_max=0)
    checkpoint.advance(1)
    assert not checkpoint.active


def test_recovery_reads_no_more_than_what_is_left(broker: MiniBroker) -> None:
    leave(broker, checkpointer(broker))
    assert isinstance(broker.disk, FaultyDisk)
    raw = Raw(broker.disk.after_kill(), options=SMALL)
    assert raw.replay.segments[0][0] == 2
    assert raw.replay.segments[0][1] > Position(0)


# -- age ---------------------------------------------------------------------------------------------------------------
def aged(broker: MiniBroker) -> Checkpointer:
    """One by whose bounds nothing leaves for its size, and everything after ten seconds."""
    return Checkpointer(broker.recorder, broker, recovery_bytes_max=1 << 40, leave_after_us=10_000_000, step_records=3)


def pass_time(broker: MiniBroker, checkpoint: Checkpointer, seconds: int) -> None:
    for _ in range(seconds):
        broker.clock.us += 1_000_000
        run(broker, checkpoint)
        if broker.journal.pending:
            broker.sync()
        broker.chores()


def test_segments_leave_for_their_age_when_there_is_little_to_do(broker: MiniBroker) -> None:
    """The open one is closed first; what is live goes on as before."""
    checkpoint = aged(broker)
    newest = broker.journal.segments[-1].number
    pass_time(broker, checkpoint, 8)
    assert broker.journal.left_through == 0
    pass_time(broker, checkpoint, 40)
    assert broker.journal.left_through >= newest
    assert all(message.position >= broker.journal.segments[-2].base for message in broker.messages.values())
    assert not broker.staying
    reopened(broker)


@pytest.mark.parametrize("ahead_s", [0, 3_600, 30 * 86_400])
def test_segments_leave_for_their_age_also_where_the_clock_was_ahead(broker: MiniBroker, ahead_s: int) -> None:
    """The open one is closed as well that was first seen by such a clock."""
    checkpoint = aged(broker)
    broker.clock.ahead_us = ahead_s * 1_000_000
    fill(broker, 7)
    pass_time(broker, checkpoint, 2)
    newest = broker.journal.segments[-1].number
    broker.clock.ahead_us = 0
    pass_time(broker, checkpoint, 60)
    assert broker.journal.left_through >= newest
    assert not broker.staying
    reopened(broker)


def test_who_does_nothing_writes_nothing(broker: MiniBroker) -> None:
    """A backlog that nobody touches is not copied round and round, nor are empty segments made."""
    checkpoint = aged(broker)
    pass_time(broker, checkpoint, 100)
    end, segments = broker.journal.end, len(broker.journal.segments)
    pass_time(broker, checkpoint, 100)
    assert (broker.journal.end, len(broker.journal.segments)) == (end, segments)
    message = broker.post(1, b"settled at once")
    broker.sync()
    broker.retire(message, EventKind.ACCEPTED)
    number = broker.journal.segments[-1].number
    pass_time(broker, checkpoint, 40)
    assert broker.journal.left_through >= number, "the body of what was settled between two looks"


def test_no_segment_is_closed_before_its_time_on_a_full_disk(broker: MiniBroker) -> None:
    checkpoint = aged(broker)
    assert isinstance(broker.disk, FaultyDisk)
    broker.disk.capacity_bytes = broker.disk.used_bytes
    broker.journal._reserve.disk_full = True
    number = broker.journal.segments[-1].number
    broker.clock.us += 11_000_000
    checkpoint.advance(broker.clock.wall_us())
    broker.clock.us += 11_000_000
    checkpoint.advance(broker.clock.wall_us())
    assert broker.journal.segments[-1].number == number and not broker.journal._turning


def test_a_segment_is_asked_to_close_once(broker: MiniBroker) -> None:
    checkpoint = aged(broker)
    checkpoint.advance(broker.clock.wall_us())
    broker.clock.us += 11_000_000
    checkpoint.advance(broker.clock.wall_us())
    batch = broker.recorder.take_batch()
    assert batch is not None
    checkpoint.advance(broker.clock.wall_us())
    assert not broker.journal.pending
    batch.write_and_sync()
    broker.journal.complete(batch)


def test_a_closed_segment_in_which_nothing_was_settled_stays(broker: MiniBroker) -> None:
    checkpoint = aged(broker)
    pass_time(broker, checkpoint, 100)
    left = broker.journal.left_through
    broker.journal.turn()
    broker.sync()
    pass_time(broker, checkpoint, 100)
    assert broker.journal.left_through == left


# -- steps of the gathering -------------------------------------------------------------------------------------------


def first_known(broker: MiniBroker, **options: int) -> Checkpointer:
    """One that knows who stands in the oldest segment, and has yet to look at the first of them."""
    checkpoint = checkpointer(broker, **options)
    checkpoint.advance(broker.clock.wall_us())
    assert checkpoint.active and checkpoint.take_read() is None, "the queue's key is set again first"
    return checkpoint


def looks(broker: MiniBroker, checkpoint: Checkpointer) -> list[list[int]]:
    """Let the segment leave; which messages each step reads, in order. [] for one that reads nothing, or the seal."""
    seen: list[list[int]] = []
    while checkpoint.active:
        assert len(seen) < 100, "it does not end"
        broker.sync()
        checkpoint.advance(broker.clock.wall_us())
        read = checkpoint.take_read()
        seen.append([])
        if read is not None:
            read.run()
            assert read.records or read.summary is not None, "it reads something"
            seen[-1] = [sequence for sequence, _ in read.records]
            checkpoint.complete_read(read)
    assert not broker.staying
    return seen


def test_no_step_reads_more_records_where_some_have_gone_or_moved(broker: MiniBroker) -> None:
    checkpoint = first_known(broker, step_records=3)
    numbers = sorted(broker.messages)
    del broker.messages[numbers[0]], broker.messages[numbers[6]]
    broker.moved(numbers[1], broker.journal.end)
    left = [one for one in numbers[2:] if one in broker.messages]
    assert looks(broker, checkpoint) == [left[:3], left[3:6], left[6:]]


def test_no_step_reads_more_bytes(broker: MiniBroker) -> None:
    """Seven each."""
    checkpoint = first_known(broker, step_records=100, step_bytes=14)
    numbers = sorted(broker.messages)
    assert looks(broker, checkpoint) == [*(numbers[at : at + 2] for at in range(0, 10, 2)), []]


def test_a_payload_that_several_share_is_read_once(broker: MiniBroker) -> None:
    number, last = max(broker.messages.items())
    for sequence in range(10_001, 10_006):
        broker.messages[sequence] = copied = copy(last)
        copied.sequence = sequence
    checkpoint = first_known(broker, step_records=100, step_bytes=14)
    assert looks(broker, checkpoint)[-2:] == [[number - 1, number], [*range(10_001, 10_006)]]


def test_no_step_looks_at_more_candidates(broker: MiniBroker) -> None:
    checkpoint = first_known(broker, step_records=3, step_candidates=4)
    numbers = sorted(broker.messages)
    while not checkpoint._census or len(checkpoint._candidates or ()) < 10:  # a census takes steps of four as well
        checkpoint.advance(broker.clock.wall_us())
    for gone in numbers[:6]:
        del broker.messages[gone]
    assert looks(broker, checkpoint) == [[], numbers[6:8], numbers[8:]]


def test_what_is_committed_there_at_the_end_is_copied_as_well(broker: MiniBroker) -> None:
    """All others have been looked at by then."""
    checkpoint = checkpointer(broker, step_records=100)
    read = first_read(broker, checkpoint)
    read.run()
    assert read.summary is not None
    number, held = min(broker.messages.items())
    broker.messages[10_001] = committed = copy(held)
    del broker.messages[number]
    committed.sequence = 10_001
    broker.committed.append(10_001)
    checkpoint.complete_read(read)
    assert checkpoint.active
    end = broker.journal.segments[0].end
    run(broker, checkpoint)
    assert broker.journal.left_through == 1 and not broker.staying
    assert committed.position >= end
