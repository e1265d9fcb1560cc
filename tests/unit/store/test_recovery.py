"""Opening a data folder."""

from __future__ import annotations

import errno
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

import pytest

from acquit.errors import StoreCorrupt, StoreError, StoreFailed, StoreFull, StoreLocked, StoreVersionUnsupported
from acquit.store.disk import OpenMode, PosixDisk
from acquit.store.folder import EVENTS
from acquit.store.recovery import open_store
from acquit.store.segment import HEADER_BYTES, SegmentHeader
from acquit.testing.simulation.disk import FaultyDisk, PowerLoss, all_survives, none_survives
from tests.support.raw_journal import DATA, OPTIONS, Counting, Gathered, Raw


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def segment(number: int, folder: str = "journal", suffix: str = ".seg") -> str:
    return str(DATA / folder / f"{number:020}{suffix}")


def three_segments(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    while len(raw.journal.segments) < 3:
        raw.put(bytes(3000))
    raw.journal.close()


def test_a_new_folder(disk: FaultyDisk) -> None:
    raw = Raw(disk, container_id="me")
    assert raw.opened.created
    assert raw.opened.identity.container_id == "me"
    assert raw.journal.synced == 0
    assert [info.number for info in raw.journal.segments] == [1]


def test_a_store_keeps_who_it_is(disk: FaultyDisk) -> None:
    first = Raw(disk, container_id="me").opened.identity
    again = Raw(disk.after_kill(), container_id="another").opened
    assert not again.created
    assert again.identity == first


def test_each_run_begins_a_segment_of_its_own(disk: FaultyDisk) -> None:
    for run in range(1, 4):
        raw = Raw(disk)
        assert raw.replay.payloads == [b"run %d" % n for n in range(1, run)]
        assert raw.journal.segments[-1].number == run
        raw.put(b"run %d" % run)
        disk = disk.after_kill()


def test_runs_that_end_before_their_first_batch_leave_one_segment(disk: FaultyDisk) -> None:
    Raw(disk).put(b"kept")
    for _ in range(5):
        disk = disk.after_kill()
        raw = Raw(disk)
        assert [info.number for info in raw.journal.segments] == [1, 2]
        assert raw.replay.payloads == [b"kept"]
    raw.journal.close()
    raw = Raw(disk)
    assert [info.number for info in raw.journal.segments] == [1, 2], "a stop before the first batch leaves none either"
    [position] = raw.put(b"after")
    assert raw.journal.read(position).payload == b"after"
    assert Raw(disk.after_kill()).replay.payloads == [b"kept", b"after"]


def test_a_segment_that_takes_a_vacant_place_is_another(disk: FaultyDisk) -> None:
    """What a dying kernel may still write to the vacant one goes nowhere, and matches nothing."""
    Raw(disk).put(b"kept")
    headers = []
    for _ in range(2):
        disk = disk.after_kill()
        Raw(disk)
        headers.append(SegmentHeader.decode(bytes(disk.content(DATA / "journal" / f"{2:020}.seg")), ""))
    first, second = headers
    assert first.epoch != second.epoch
    chain = attrgetter("number", "base", "previous_number", "previous_length", "previous_sha256", "previous_cut")
    assert chain(first) == chain(second)


def test_what_was_cut_from_a_first_batch_stays_on_record(disk: FaultyDisk) -> None:
    Raw(disk).put(b"torn" * 100)
    disk = disk.after_kill()
    disk.content(DATA / "journal" / f"{1:020}.seg")[HEADER_BYTES + 200] ^= 1
    raw = Raw(disk)
    assert raw.opened.report.cut_bytes
    assert [info.number for info in raw.journal.segments] == [1, 2], "its seal says what was cut from it"
    assert Raw(disk.after_kill()).replay.payloads == []


@pytest.mark.parametrize("survives", [none_survives, all_survives])
def test_power_lost_in_each_step_of_taking_a_vacant_place(disk: FaultyDisk, survives: Callable[[], bool]) -> None:
    Raw(disk).put(b"kept")
    disk = disk.after_kill()
    Raw(disk)
    step = 0
    while True:
        trial = disk.after_kill()
        trial.power_loss_at = step
        try:
            Raw(trial)
        except PowerLoss:
            step += 1
        else:
            break
        raw = Raw(trial.after_power_loss(survives))
        assert raw.replay.payloads == [b"kept"]
        assert [info.number for info in raw.journal.segments] == [1, 2]
        raw.put(b"after")
    assert step >= 3


def test_a_torn_tail_is_cut_and_told(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    raw.put(b"kept")
    raw.put(b"torn" * 100)
    disk = disk.after_kill()
    content = disk.content(DATA / "journal" / f"{1:020}.seg")
    content[HEADER_BYTES + 512 + 200] ^= 1
    raw = Raw(disk)
    report = raw.opened.report
    assert raw.replay.payloads == [b"kept"]
    assert report.cut_bytes == 64 + 64 + 4 + 400
    assert (report.cut_path, report.cut_offset) == (segment(1), HEADER_BYTES + 512)
    assert "checksum" in report.cut_reason
    # The same place is written again by the next run, and the story is in the chain.
    raw.put(b"after")
    again = Raw(disk.after_kill())
    assert again.replay.payloads == [b"kept", b"after"]
    assert again.opened.report.cut_bytes == 0


def test_damage_before_the_last_synced_batch_names_file_and_offset(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    for number in range(3):
        raw.put(b"batch %d" % number)
    disk = disk.after_kill()
    disk.content(DATA / "journal" / f"{1:020}.seg")[HEADER_BYTES + 100] ^= 1
    with pytest.raises(StoreCorrupt, match="destroyed after it was synced") as caught:
        Raw(disk)
    assert (caught.value.path, caught.value.offset) == (segment(1), HEADER_BYTES)
    assert not disk.locked


@pytest.mark.parametrize("number", [1, 2])
def test_damage_in_a_closed_segment(disk: FaultyDisk, number: int) -> None:
    three_segments(disk)
    disk.content(DATA / "journal" / f"{number:020}.seg")[-600] ^= 1
    with pytest.raises(StoreCorrupt, match=f"{number:020}"):
        Raw(disk)


@pytest.mark.parametrize(
    ("missing", "said"),
    [(1, f"{1:020}.seg, offset 0: this segment is needed"), (2, f"{2:020}.seg, offset 0: this segment")],
)
def test_a_missing_segment_is_named(disk: FaultyDisk, missing: int, said: str) -> None:
    three_segments(disk)
    disk.delete(DATA / "journal" / f"{missing:020}.seg")
    with pytest.raises(StoreCorrupt, match=said):
        Raw(disk)


def test_no_segment_at_all(disk: FaultyDisk) -> None:
    three_segments(disk)
    for number in (1, 2, 3):
        disk.delete(DATA / "journal" / f"{number:020}.seg")
    with pytest.raises(StoreCorrupt, match="no segment is there"):
        Raw(disk)


def test_segments_without_their_identity(disk: FaultyDisk) -> None:
    three_segments(disk)
    disk.delete(DATA / "broker.json")
    with pytest.raises(StoreCorrupt, match="but not whose"):
        Raw(disk)


def test_a_folder_whose_making_was_cut_short_is_made_again(disk: FaultyDisk) -> None:
    Raw(disk)
    disk = disk.after_kill()
    disk.delete(DATA / "broker.json")
    raw = Raw(disk)
    assert raw.opened.created
    raw.put(b"x")
    assert Raw(disk.after_kill()).replay.payloads == [b"x"]


def test_a_segment_of_another_store(disk: FaultyDisk) -> None:
    three_segments(disk)
    other = FaultyDisk()
    three_segments(other)
    path = DATA / "journal" / f"{2:020}.seg"
    disk.content(path)[:] = other.content(path)
    with pytest.raises(StoreCorrupt, match=f"{2:020}.seg, offset 0: segment 2 of store"):
        Raw(disk)


def test_a_segment_under_another_number(disk: FaultyDisk) -> None:
    three_segments(disk)
    journal = DATA / "journal"
    disk.content(journal / f"{2:020}.seg")[:] = disk.content(journal / f"{1:020}.seg")
    with pytest.raises(StoreCorrupt, match="segment 1 of store"):
        Raw(disk)


def test_a_closed_segment_that_was_cut_at_a_batch(disk: FaultyDisk) -> None:
    """Whole batches, a good seal even; but not what its successor follows."""
    raw = Raw(disk)
    raw.put(b"one")
    early = disk.after_kill()
    Raw(early).journal.close()  # seals segment 1 after one batch
    raw.put(b"two")
    raw.journal.close()
    again = Raw(disk)
    again.journal.close()
    path = DATA / "journal" / f"{1:020}.seg"
    disk.content(path)[:] = early.content(path)
    with pytest.raises(StoreCorrupt, match="does not follow segment 1"):
        Raw(disk)


def test_another_format_is_refused_before_anything_is_touched(disk: FaultyDisk) -> None:
    three_segments(disk)
    identity = disk.content(DATA / "broker.json")
    identity[:] = bytes(identity).replace(b'"format": 1', b'"format": 2')
    before = {path: bytes(disk.content(path)) for path in disk.paths()}
    with pytest.raises(StoreVersionUnsupported, match="format 2"):
        Raw(disk)
    assert {path: bytes(disk.content(path)) for path in disk.paths()} == before


def test_two_at_once(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    with pytest.raises(StoreLocked):
        Raw(disk)
    raw.journal.close()
    Raw(disk)


@pytest.mark.parametrize(("code", "expected"), [(errno.ENOSPC, StoreFull), (errno.EIO, StoreFailed)])
def test_errors_while_opening_leave_a_folder_that_opens(
    disk: FaultyDisk, code: int, expected: type[StoreError]
) -> None:
    raw = Raw(disk)
    raw.put(b"kept")
    disk = disk.after_kill()
    seen = 0
    for step in range(40):
        trial = disk.after_kill()
        trial.errors[step] = code
        try:
            Raw(trial)
        except expected:
            seen += 1
            assert not trial.locked
        assert Raw(trial.after_kill()).replay.payloads == [b"kept"]
    assert seen >= 4


def test_who_is_told_may_refuse_before_anything_changes(disk: FaultyDisk) -> None:
    Raw(disk).put(b"x")
    disk = disk.after_kill()
    before = {path: bytes(disk.content(path)) for path in disk.paths() if path.suffix != ".part"}

    def refuse(report: object) -> None:
        raise StoreError("not like this")

    with pytest.raises(StoreError, match="not like this"):
        open_store(DATA, OPTIONS, Gathered(), Counting(), replayed=refuse, disk=disk)
    assert {path: bytes(disk.content(path)) for path in disk.paths()} == before
    assert not disk.locked


def test_records_that_make_no_sense_name_their_segment(disk: FaultyDisk) -> None:
    Raw(disk).put(b"x")

    class Confused(Gathered):
        def batch(self, records: object, time_us: int) -> None:
            raise ValueError("kind 5 is from the future")

    with pytest.raises(StoreCorrupt, match=f"{1:020}.seg, offset {HEADER_BYTES}: kind 5"):
        open_store(DATA, OPTIONS, Confused(), Counting(), replayed=lambda report: None, disk=disk.after_kill())


def test_a_side_file_left_behind_by_archiving_is_made_anew(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    while len(raw.journal.segments) < 3:
        raw.put(bytes(3000))
    raw.chores()
    raw.journal.leave(1, raw.journal.read_seal(1))
    raw.sync()
    raw.chores()
    disk = disk.after_kill()
    disk.rename(DATA / "archive" / f"{1:020}{EVENTS}", DATA / "journal" / f"{1:020}{EVENTS}")
    again = Raw(disk)
    again.chores()
    assert DATA / "journal" / f"{1:020}{EVENTS}" not in disk.paths()
    assert DATA / "archive" / f"{1:020}{EVENTS}" in disk.paths()


def test_a_backup_may_have_a_segment_in_both_places(disk: FaultyDisk) -> None:
    """It was copied, left, and was copied again."""
    raw = Raw(disk)
    while len(raw.journal.segments) < 3:
        raw.put(bytes(3000))
    raw.chores()
    backup = disk.after_kill()
    raw.journal.leave(1, raw.journal.read_seal(1))
    raw.sync()
    raw.chores()
    for suffix in (".seg", EVENTS):
        source = disk.content(DATA / "archive" / f"{1:020}{suffix}")
        backup.rename(DATA / "journal" / f"{1:020}{suffix}", DATA / "archive" / f"{1:020}{suffix}")
        backup.open(DATA / "journal" / f"{1:020}{suffix}", OpenMode.WRITE).write(bytes(source), 0)
    again = Raw(backup)
    assert [info.number for info in again.journal.segments] == [1, 2, 3, 4]
    assert again.journal.left_through == 0
    again.journal.leave(1, again.journal.read_seal(1))
    again.sync()
    again.chores()
    assert [info.archived for info in again.journal.segments] == [True, False, False, False]
    assert DATA / "journal" / f"{1:020}.seg" not in backup.paths()


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """By its path, and not by the folder, nor by its name alone. (Which file may not be opened is nothing to root.)"""
    for name in ("lock", "broker.json"):
        data = tmp_path / name.replace(".", "-")
        (data / name).mkdir(parents=True)
        with pytest.raises(StoreFailed, match=f"^{data / name}: Is a directory$"):
            Raw(PosixDisk(), path=data)


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot use"):
        Raw(PosixDisk(), path=tmp_path / "file" / "data")
