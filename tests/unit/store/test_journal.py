"""The journal on the loop: positions, batches, room."""

from __future__ import annotations

import errno
import random
from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from acquit.errors import StoreFailed, StoreFull
from acquit.store import writer
from acquit.store.disk import DiskFile, OpenMode
from acquit.store.folder import EVENTS, PART
from acquit.store.interface import EVENT_BYTES, EVENTFUL
from acquit.store.options import JournalOptions
from acquit.store.record import BATCH_HEAD_BYTES, PIECE_BYTES, gathered
from acquit.store.reserve import STEP_BYTES
from acquit.testing.simulation.disk import FaultyDisk, FaultyFile, none_survives
from tests.support.raw_journal import DATA, EVENT, OPTIONS, Raw


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


# -- positions and batches ---------------------------------------------------------------------------------------------
def test_a_position_is_known_when_appended(disk: FaultyDisk) -> None:
    journal = Raw(disk).journal
    assert journal.end == BATCH_HEAD_BYTES
    first = journal.append(5, EVENT, b"meta")
    second = journal.append(5, EVENT)
    assert (first, second, journal.end) == (64, 64 + 64 + 4, 64 + 64 + 4 + 64)
    assert journal.pending
    assert journal.pending_bytes == 132


def test_one_batch_is_in_flight_and_the_next_is_gathered_meanwhile(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    journal = raw.journal
    assert journal.take_batch() is None
    raw.append(b"one")
    batch = journal.take_batch()
    assert batch is not None
    assert journal.in_flight
    assert not journal.pending
    second = raw.append(b"two")
    assert second == batch.end + BATCH_HEAD_BYTES
    assert journal.take_batch() is None
    batch.write_and_sync()
    assert journal.synced == 0
    assert journal.complete(batch) == batch.end == journal.synced
    raw.sync()
    assert second < journal.synced
    assert journal.read(second).payload == b"two"


@pytest.mark.pure
def test_the_thread_that_writes_a_batch_puts_it_together(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces where a record is large: nobody else may run while one is copied."""
    in_pieces: list[bool] = []

    def put_together(parts: list[bytes], pieces: bool) -> tuple[BytesIO, int]:
        in_pieces.append(pieces)
        return gathered(parts, pieces)

    monkeypatch.setattr(writer, "gathered", put_together)
    raw = Raw(disk)
    large = random.Random(5).randbytes(3 * PIECE_BYTES + 1)
    positions = []
    for payload, pieces in ((b"small", False), (large, True), (b"small again", False)):
        positions.append(raw.append(payload))
        batch = raw.journal.take_batch()
        assert batch is not None
        assert not in_pieces
        batch.write_and_sync()
        raw.journal.complete(batch)
        assert in_pieces == [pieces]
        in_pieces.clear()
    for hint in (64, 4096, 2 * len(large)):
        assert [raw.journal.read(place, hint).payload for place in positions] == [b"small", large, b"small again"]
    raw.journal.close()
    again = Raw(disk)
    assert [again.journal.read(place).payload for place in positions] == [b"small", large, b"small again"]


def test_records_appended_together_are_those_one_by_one(disk: FaultyDisk) -> None:
    raw, single = Raw(disk), Raw(FaultyDisk()).journal
    journal = raw.journal
    assert journal.append_together(5, [], [], [], []) == []
    assert not journal.pending
    payloads, metas = [b"one", b"", b"three"], [b"meta", b"", b"more meta"]
    events = [bytes([at]) * EVENT_BYTES for at in range(3)]
    expected = [
        single.append(7, event, meta, payload, crc32(payload))
        for event, meta, payload in zip(events, metas, payloads, strict=True)
    ]
    assert journal.append_together(7, events, metas, payloads, map(crc32, payloads)) == expected
    assert (journal.end, journal.pending_bytes) == (single.end, single.pending_bytes)
    behind = raw.append(b"behind")
    raw.sync()
    found = [journal.read(position) for position in [*expected, behind]]
    assert [(one.kind, one.version, one.flags) for one in found[:3]] == [(7, 1, EVENTFUL)] * 3
    assert [(one.event, one.meta, one.payload) for one in found[:3]] == list(zip(events, metas, payloads, strict=True))
    assert found[3].payload == b"behind"


@pytest.mark.parametrize("lacking", range(4))
def test_records_that_lack_a_part_are_not_appended(disk: FaultyDisk, lacking: int) -> None:
    raw = Raw(disk)
    parts: list[list[Any]] = [[EVENT] * 2, [b""] * 2, [b""] * 2, [0] * 2]
    parts[lacking].pop()
    with pytest.raises(ValueError, match="argument"):
        raw.journal.append_together(5, parts[0], parts[1], parts[2], parts[3])
    assert (raw.journal.end, raw.journal.pending) == (BATCH_HEAD_BYTES, False)
    raw.put(b"whole")
    assert Raw(disk.after_kill()).replay.payloads == [b"whole"]


def test_a_batch_is_announced_before_it_is_digested(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    raw.append(b"one")
    batch = raw.journal.take_batch()
    assert batch is not None
    seen: list[int] = []
    batch.write_and_sync(lambda: seen.append(raw.digest.events))
    assert seen == [0]
    assert raw.digest.events == 1


def test_the_side_file_is_synced_a_step_at_a_time(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it at the segment's end would hold up the batches of that time."""
    unsynced = [0]
    most = [0]

    class Noting(FaultyFile):
        def write(self, data: bytes, offset: int) -> int:
            unsynced[0] += len(data)
            most[0] = max(most[0], unsynced[0])
            return super().write(data, offset)

        def sync(self) -> None:
            unsynced[0] = 0
            super().sync()

    opened = disk.open

    def open_noting(path: Path, mode: OpenMode) -> DiskFile:
        file = opened(path, mode)
        if path.name.endswith(EVENTS + PART):
            file.__class__ = Noting
        return file

    monkeypatch.setattr(disk, "open", open_noting)
    raw = Raw(disk, options=replace(OPTIONS, segment_bytes=16 << 20))
    for _ in range(60):
        raw.put(*[b""] * 1_000)
    assert 60_000 * EVENT_BYTES > 2 * STEP_BYTES
    assert STEP_BYTES <= most[0] <= STEP_BYTES + 1_000 * EVENT_BYTES


def test_only_the_batch_in_flight_can_be_completed(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    raw.append(b"one")
    batch = raw.journal.take_batch()
    assert batch is not None
    batch.write_and_sync()
    raw.journal.complete(batch)
    with pytest.raises(ValueError, match="not in flight"):
        raw.journal.complete(batch)


def test_congestion_is_said_and_passes(disk: FaultyDisk) -> None:
    raw = Raw(disk, options=replace(OPTIONS, batch_bytes_max=1000))
    raw.append(bytes(500))
    assert not raw.journal.congested
    raw.append(bytes(500))
    assert raw.journal.congested
    raw.sync()
    assert not raw.journal.congested


def test_nothing_that_waits_is_no_congestion_however_little_may_wait(disk: FaultyDisk) -> None:
    raw = Raw(disk, options=replace(OPTIONS, batch_bytes_max=512))
    assert not raw.journal.congested
    raw.put(b"x")
    assert not raw.journal.congested


# -- segments ----------------------------------------------------------------------------------------------------------
def test_positions_go_on_over_segments(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    positions = [raw.put(b"%d" % number * 100)[0] for number in range(60)]
    assert len(raw.journal.segments) > 2
    assert positions == sorted(positions)
    for number, position in enumerate(positions):
        assert raw.journal.read(position).payload == b"%d" % number * 100
    bases = [(info.base, info.end) for info in raw.journal.segments if info.sealed]
    assert all(end == base for (_, end), (base, _) in pairwise(bases))


@pytest.mark.parametrize("hint", [16, 200, 5_000])
@pytest.mark.parametrize("seed", range(4))
def test_many_records_are_read_as_each_by_itself(disk: FaultyDisk, seed: int, hint: int) -> None:
    raw = Raw(disk)
    positions = [raw.put(b"%d" % number * 100)[0] for number in range(60)]
    assert len(raw.journal.segments) > 2
    positions += [positions[0] + 1_000_000, positions[-1]]  # nothing was written there; and one again
    random.Random(seed).shuffle(positions) if seed else None
    found = raw.journal.read_payloads(positions, [hint] * len(positions))
    for position, payload in zip(positions, found, strict=True):
        try:
            assert payload == raw.journal.read(position).payload
        except KeyError:
            assert payload is None


def test_neighbours_are_read_together(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = Raw(disk)
    positions = raw.put(*(b"%d" % number * 10 for number in range(50)))
    reads = []
    opened = type(disk.open(disk.paths()[0], OpenMode.READ))
    read = opened.read
    monkeypatch.setattr(opened, "read", lambda *asked: reads.append(asked) or read(*asked))
    found = raw.journal.read_payloads(positions, [100] * len(positions))
    assert found == [b"%d" % number * 10 for number in range(50)]
    assert len(reads) == 1


def test_a_batch_larger_than_a_segment_gets_a_larger_segment(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    raw.put(b"small")
    huge = random.Random(1).randbytes(100_000)
    (position,) = raw.put(huge)
    raw.put(b"small again")
    assert raw.journal.read(position).payload == huge
    assert Raw(disk.after_kill()).replay.payloads == [b"small", huge, b"small again"]


def test_segments_follow_one_another_also_without_prewritten_ones(disk: FaultyDisk) -> None:
    """Nobody runs chores here: the batch thread makes its own files."""
    raw = Raw(disk)
    for number in range(40):
        raw.put(b"%d" % number * 200)
    assert len(raw.journal.segments) > 2
    assert len(Raw(disk.after_kill()).replay.payloads) == 40


def test_closing_seals(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    raw.put(b"x", b"y")
    raw.journal.close()
    again = Raw(disk)
    assert again.opened.report.sealed
    assert again.replay.summaries == [b"2 events"]
    assert [info.sealed for info in again.journal.segments] == [True, False]


def test_a_closed_segment_ends_behind_its_seal_also_after_a_loss_of_power(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    while len(raw.journal.segments) < 2:
        raw.put(bytes(3000))
    path = DATA / "journal" / f"{1:020}.seg"
    valid = raw.journal.segments[0].file_bytes
    assert len(disk.after_power_loss(none_survives).content(path)) == valid


def test_closing_a_journal_that_nothing_was_written_to(disk: FaultyDisk) -> None:
    Raw(disk).journal.close()
    assert Raw(disk).replay.payloads == []


# -- errors ------------------------------------------------------------------------------------------------------------
def fail_next_write(disk: FaultyDisk, code: int) -> None:
    disk.errors[disk.steps] = code


def test_a_full_disk_and_the_batch_is_written_again_from_the_same_offset(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    raw.put(b"before")
    position = raw.append(b"waits" * 100)
    batch = raw.journal.take_batch()
    assert batch is not None
    announced: list[bool] = []
    for _ in range(3):
        fail_next_write(disk, errno.ENOSPC)
        with pytest.raises(StoreFull):
            batch.write_and_sync(lambda: announced.append(True))
    assert announced == []
    batch.write_and_sync(lambda: announced.append(True))
    raw.journal.complete(batch)
    assert announced == [True]
    assert raw.journal.read(position).payload == b"waits" * 100
    again = Raw(disk.after_kill())
    assert again.replay.payloads == [b"before", b"waits" * 100]
    assert again.opened.report.cut_bytes == 0


STEPS_OF_MOVING_ON = ["seal", "truncate", "sync of the seal", "header", "rename", "sync", "side file", "batch"]


@pytest.mark.parametrize("step", STEPS_OF_MOVING_ON)
def test_a_full_disk_in_every_step_of_moving_on(disk: FaultyDisk, step: str) -> None:
    raw = Raw(disk)
    raw.chores()
    raw.put(bytes(11_000))
    raw.append(bytes(5_000))
    batch = raw.journal.take_batch()
    assert batch is not None
    disk.errors[disk.steps + STEPS_OF_MOVING_ON.index(step)] = errno.ENOSPC
    before = len(raw.journal.segments)
    if step != "side file":  # which is derived, and made again later
        with pytest.raises(StoreFull):
            batch.write_and_sync()
    batch.write_and_sync()
    raw.journal.complete(batch)
    assert len(raw.journal.segments) == before + 1
    raw.put(b"after")
    again = Raw(disk.after_kill())
    assert again.replay.payloads == [bytes(11_000), bytes(5_000), b"after"]
    assert len(again.replay.summaries) == 1


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("prewritten", [True, False])
@pytest.mark.parametrize("meets", ["file", "folder"])
def test_a_batch_waits_while_no_file_can_be_opened(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch, code: int, prewritten: bool, meets: str
) -> None:
    """The next segment, or the folder that its name is in: nothing was written there yet."""
    raw = Raw(disk)
    if prewritten:
        raw.chores()
    raw.put(bytes(11_000))
    raw.append(bytes(5_000))
    batch = raw.journal.take_batch()
    assert batch is not None
    rename = disk.rename

    def renamed(old: Path, new: Path) -> None:
        rename(old, new)
        disk.unopened = code

    if meets == "file":
        disk.unopened = code
    else:
        monkeypatch.setattr(disk, "rename", renamed)
    for _ in range(3):
        with pytest.raises(StoreFull) as caught:
            batch.write_and_sync()
        assert caught.value.limit != StoreFull.limit
    assert not raw.journal.full and not raw.journal._reserve.disk_full, "the archive need not give way, for one"
    monkeypatch.undo()
    disk.unopened = None
    batch.write_and_sync()
    raw.journal.complete(batch)
    assert raw.journal.failure is None
    raw.put(b"after")
    unused = sum(path.suffix == ".zeros" for path in disk.paths())
    assert unused == len(raw.journal._reserve.sizes), "none is forgotten"
    assert Raw(disk.after_kill()).replay.payloads == [bytes(11_000), bytes(5_000), b"after"]


def test_after_an_io_error_nothing_is_accepted(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    raw.put(b"before")
    raw.append(b"lost")
    batch = raw.journal.take_batch()
    assert batch is not None
    fail_next_write(disk, errno.EIO)
    with pytest.raises(StoreFailed, match="Input/output error"):
        batch.write_and_sync()
    with pytest.raises(StoreFailed):
        batch.write_and_sync()
    assert isinstance(raw.journal.failure, StoreFailed)
    assert raw.journal.take_chore() is None
    raw.journal.close()
    assert Raw(disk.after_kill()).replay.payloads == [b"before"]


def test_what_is_appended_after_an_io_error_is_taken_and_never_written(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    raw.append(b"lost")
    batch = raw.journal.take_batch()
    assert batch is not None
    fail_next_write(disk, errno.EIO)
    with pytest.raises(StoreFailed):
        batch.write_and_sync()
    raw.append(b"more")  # its caller is in the midst of something, and does not know yet
    raw.journal.close()
    assert Raw(disk.after_kill()).replay.payloads == []


# -- a full disk, over time --------------------------------------------------------------------------------------------
def crowded() -> tuple[FaultyDisk, Raw]:
    """One open segment, one spare and one in reserve, and no room for more."""
    disk = FaultyDisk()
    raw = Raw(disk, options=replace(OPTIONS, archive_bytes_max=0))
    raw.chores()
    disk.capacity_bytes = disk.used_bytes + 2000
    return disk, raw


def use_up(raw: Raw) -> int:
    """How many outcomes, one in each batch, the reserve has room for."""
    for outcomes in range(1000):
        try:
            raw.append(b"outcome")
        except StoreFull:
            return outcomes
        raw.sync()
        raw.chores()
        raw.clock.us += 2_000_000
    raise AssertionError("it has no end")


def test_postings_are_refused_before_the_reserve_is_used_and_outcomes_go_on() -> None:
    disk, raw = crowded()
    posted = 0
    while not raw.journal.full:
        raw.put(bytes(900))
        raw.chores()
        posted += 1
        assert posted < 200
    assert posted > 10
    # What is small and must be said still can be, for as long as the reserve lasts.
    outcomes = use_up(raw)
    with pytest.raises(StoreFull, match="reserve is used up"):
        raw.append(b"outcome")
    assert outcomes > 20
    payloads = Raw(FaultyDiskWithRoom.of(disk)).replay.payloads
    assert len(payloads) == posted + outcomes


class FaultyDiskWithRoom:
    """The same disk after somebody made room."""

    @staticmethod
    def of(disk: FaultyDisk) -> FaultyDisk:
        after = disk.after_kill()
        after.capacity_bytes = None
        return after


def test_nothing_is_appended_together_where_not_even_a_batch_has_room() -> None:
    _, raw = crowded()
    while not raw.journal.full:
        raw.put(bytes(900))
        raw.chores()
    use_up(raw)
    end = raw.journal.end
    with pytest.raises(StoreFull):
        raw.append(b"")
    assert raw.journal.append_together(5, [EVENT] * 2, [b""] * 2, [b""] * 2, [0] * 2) == []
    assert (raw.journal.end, raw.journal.pending) == (end, False)


def test_service_resumes_when_there_is_room() -> None:
    disk, raw = crowded()
    while not raw.journal.full:
        raw.put(bytes(900))
        raw.chores()
    raw.append(b"an outcome")
    disk.capacity_bytes = None
    assert raw.chores() == [], "the disk is not asked again at once"
    raw.clock.us += 2_000_000
    assert "Prewrite" in raw.chores()
    assert not raw.journal.full
    raw.put(bytes(900))


def test_a_batch_that_waits_for_room_is_written_when_there_is_some() -> None:
    disk, raw = crowded()
    huge = bytes(40_000)
    raw.append(huge)
    batch = raw.journal.take_batch()
    assert batch is not None
    for _ in range(3):
        with pytest.raises(StoreFull):
            batch.write_and_sync()
    disk.capacity_bytes = None
    batch.write_and_sync()
    raw.journal.complete(batch)
    assert Raw(disk.after_kill()).replay.payloads == [huge]


# -- a new journal is small --------------------------------------------------------------------------------------------
GROWING = replace(OPTIONS, first_segment_bytes=8 * 1024, segment_bytes=64 * 1024)


def zeros(disk: FaultyDisk) -> list[int]:
    return sorted(len(disk.content(path)) for path in disk.paths() if path.suffix == ".zeros")


def test_a_journal_begins_small_and_its_reserve_grows_before_it_is_needed(disk: FaultyDisk) -> None:
    raw = Raw(disk, options=GROWING)
    raw.chores()
    assert disk.used_bytes < 3 * 8 * 1024 + 1024
    while raw.journal.synced < 64 * 1024:
        raw.put(bytes(900))
        raw.chores()
        due = GROWING.prewritten_bytes(raw.journal.synced)
        assert len(zeros(disk)) == 2 and min(zeros(disk)) >= due, "as soon as it is due, and no file too many"
        assert not raw.journal.full
    assert zeros(disk) == [64 * 1024] * 2
    again = Raw(disk.after_kill(), options=GROWING)
    assert set(again.replay.payloads) == {bytes(900)}
    assert again.chores() == ["Prewrite", "FinishEvents"], "in place of the one that is open now"
    assert zeros(disk) == [64 * 1024] * 2


@pytest.mark.parametrize("written", [0, 3_000, 30_000])
def test_a_disk_that_gets_full_while_the_journal_is_small_leaves_outcomes_their_room(written: int) -> None:
    """As `test_postings_are_refused_...`, from any point of its growth on: what is kept is twice what was written."""
    disk = FaultyDisk()
    raw = Raw(disk, options=replace(GROWING, archive_bytes_max=0, reserve_segments=2))
    raw.chores()
    while raw.journal.synced < written:
        raw.put(bytes(900))
        raw.chores()
    disk.capacity_bytes = disk.used_bytes + 2000
    while not raw.journal.full:
        raw.put(bytes(900))
        raw.chores()
    posted = raw.journal.synced
    outcomes = use_up(raw)
    assert raw.journal.synced - posted >= max(8 * 1024, min(2 * written, 64 * 1024))
    again = Raw(FaultyDiskWithRoom.of(disk), options=GROWING)
    assert again.replay.payloads.count(b"outcome") == outcomes


def test_a_batch_that_outgrows_the_first_segments_gets_their_room_when_the_disk_is_full(disk: FaultyDisk) -> None:
    """A segment of full size would have held it, so it must not wait."""
    raw = Raw(disk, options=GROWING)
    raw.chores()
    disk.capacity_bytes = disk.used_bytes + 2000
    raw.put(bytes(20_000))
    assert raw.journal.full, "for others there is nothing left"
    assert Raw(disk.after_kill(), options=GROWING).replay.payloads == [bytes(20_000)]


def test_a_batch_larger_than_any_segment_leaves_the_reserve_alone(disk: FaultyDisk) -> None:
    raw = Raw(disk, options=GROWING)
    raw.chores()
    disk.capacity_bytes = disk.used_bytes + 2000
    before = zeros(disk)
    raw.append(bytes(70_000))
    batch = raw.journal.take_batch()
    assert batch is not None
    with pytest.raises(StoreFull):
        batch.write_and_sync()
    assert zeros(disk) == before


def test_a_batch_takes_the_file_that_has_room_for_it_and_that_is_counted_no_more(disk: FaultyDisk) -> None:
    raw = Raw(disk, options=GROWING)
    raw.chores()
    raw.put(bytes(3_000))
    raw.chores(1)
    assert zeros(disk) == [8 * 1024, 16 * 1024]
    disk.capacity_bytes = disk.used_bytes
    raw.chores()  # finds out that there is no more
    raw.append(bytes(10_000))
    batch = raw.journal.take_batch()
    assert batch is not None
    assert raw.journal.room_bytes < 8 * 1024, "while it is in flight: the larger one is its"
    batch.write_and_sync()
    raw.journal.complete(batch)
    assert zeros(disk) == [8 * 1024]


# -- leaving -----------------------------------------------------------------------------------------------------------
def test_only_the_oldest_closed_segment_can_leave(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    while len(raw.journal.segments) < 4:
        raw.put(bytes(3000))
    for number in (2, 3, 4, 5):
        with pytest.raises(ValueError, match="not the oldest"):
            raw.journal.leave(number, b"")
    raw.journal.leave(1, raw.journal.read_seal(1))
    with pytest.raises(ValueError, match="not the oldest"):
        raw.journal.leave(1, b"")
    # The next may leave while the first is still on its way to the archive.
    raw.journal.leave(2, raw.journal.read_seal(2))
    assert raw.journal.left_through == 2


def test_chores_are_given_back_as_they_were_taken(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    chore = raw.journal.take_chore()
    assert chore is not None
    assert raw.journal.take_chore() is None
    chore.run()
    raw.journal.complete_chore(chore)
    with pytest.raises(ValueError, match="not out"):
        raw.journal.complete_chore(chore)


def test_on_a_real_disk(tmp_path: Path) -> None:
    from acquit.store.disk import PosixDisk

    options = JournalOptions(segment_bytes=64 * 1024, reserve_segments=1, spare_segments=0)
    raw = Raw(PosixDisk(), path=tmp_path / "data", options=options)
    for number in range(30):
        raw.put(b"%d" % number * 1000)
        raw.chores(1)
    raw.journal.close()
    again = Raw(PosixDisk(), path=tmp_path / "data", options=options)
    assert again.replay.payloads == [b"%d" % number * 1000 for number in range(30)]
    again.journal.close()


def on_a_folder_that_is_moved(tmp_path: Path) -> tuple[Raw, Path]:
    from acquit.store.disk import PosixDisk

    data = tmp_path / "data"
    raw = Raw(PosixDisk(), path=data)
    raw.put(b"before")
    data.rename(tmp_path / "moved")
    return raw, data


def assert_whole(data: Path, *payloads: bytes) -> None:
    from acquit.store.disk import PosixDisk

    again = Raw(PosixDisk(), path=data)
    assert again.replay.payloads == list(payloads)
    again.journal.close()


def test_a_folder_that_is_moved_ends_the_journal_within_a_second(tmp_path: Path) -> None:
    raw, data = on_a_folder_that_is_moved(tmp_path)
    raw.put(b"at once")
    raw.clock.us += 1_000_000
    raw.append(b"later")
    with pytest.raises(StoreFailed, match=f"{data} is not the folder any more .* moved or removed$"):
        raw.sync()
    assert raw.journal.failure is not None
    assert raw.journal.take_chore() is None
    raw.journal.close()
    assert not data.exists()
    assert_whole(tmp_path / "moved", b"before", b"at once")


def test_a_program_may_go_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from acquit.store.disk import PosixDisk

    monkeypatch.chdir(tmp_path)
    raw = Raw(PosixDisk(), path=Path("data"))
    raw.put(b"here")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    raw.clock.us += 1_000_000
    large = bytes(raw.journal.segments[-1].file_bytes)
    raw.put(large)
    raw.put(b"there")
    raw.journal.close()
    assert not list((tmp_path / "elsewhere").iterdir())
    assert_whole(tmp_path / "data", b"here", large, b"there")


def test_no_segment_is_begun_in_the_folder_that_took_its_place(tmp_path: Path) -> None:
    raw, data = on_a_folder_that_is_moved(tmp_path)
    assert_whole(data)  # somebody else's, now
    before = sorted(data.rglob("*"))
    raw.append(bytes(raw.journal.segments[-1].file_bytes))
    with pytest.raises(StoreFailed, match="moved or removed"):
        raw.sync()
    raw.journal.close()
    assert sorted(data.rglob("*")) == before
    assert_whole(data)
    assert_whole(tmp_path / "moved", b"before")


def test_no_chore_works_in_the_folder_that_took_its_place(tmp_path: Path) -> None:
    raw, data = on_a_folder_that_is_moved(tmp_path)
    assert_whole(data)
    before = sorted(data.rglob("*"))
    with pytest.raises(StoreFailed, match="moved or removed"):
        raw.chores()
    raw.journal.close()
    assert sorted(data.rglob("*")) == before
