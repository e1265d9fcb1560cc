"""Reading a folder beside its owner."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from acquit.errors import StoreCorrupt, StoreMissing
from acquit.ledger.audit_lines import read_audit
from acquit.ledger.history import history
from acquit.store.backup import back_up, mark
from acquit.store.reading import FolderReader, SegmentDeleted
from acquit.store.scan import SegmentReader
from acquit.store.segment import HEADER_BYTES
from acquit.testing.simulation.disk import FaultyDisk, PowerLoss
from tests.support.raw_journal import DATA, Gathered, Raw


def grown() -> tuple[FaultyDisk, Raw]:
    """Five segments, of which two are archived; the broker runs."""
    disk = FaultyDisk()
    raw = Raw(disk)
    number = 0
    while len(raw.journal.segments) < 5:
        raw.put(b"%d" % number * 1000)
        number += 1
    for leaving in (1, 2):
        raw.journal.leave(leaving, raw.journal.read_seal(leaving))
    raw.sync()
    raw.chores()
    return disk, raw


def test_what_is_there() -> None:
    disk, raw = grown()
    contents = FolderReader(DATA, disk).contents()
    assert contents.identity == raw.opened.identity
    assert (contents.archive, contents.journal, contents.stubs) == ((1, 2), (3, 4, 5), ())


def test_with_the_archive_and_without() -> None:
    disk, _ = grown()
    part, whole = Gathered(), Gathered()
    FolderReader(DATA, disk).replay(part)
    FolderReader(DATA, disk).replay(whole, archive=True)
    assert [number for number, _ in part.segments] == [3, 4, 5]
    assert [number for number, _ in whole.segments] == [1, 2, 3, 4, 5]
    assert whole.payloads[-len(part.payloads) :] == part.payloads
    assert [int(payload[:1]) for payload in whole.payloads[:10]] == list(range(10))


def replay(path: Path, disk: FaultyDisk) -> object:
    return FolderReader(path, disk).replay(Gathered())


def show(path: Path, disk: FaultyDisk) -> object:
    return history(path, sequence=1, disk=disk)


def audit(path: Path, disk: FaultyDisk) -> object:
    return list(read_audit(FolderReader(path, disk)))


def copy(path: Path, disk: FaultyDisk) -> object:
    return back_up(path, Path("/copy"), disk=disk)


@pytest.mark.parametrize("read", [replay, show, copy])
def test_every_reader_refuses_what_recovery_refuses(read: Callable[[Path, FaultyDisk], object]) -> None:
    """A batch of the newest segment is destroyed, and what stands behind it proves that it had been synced."""
    disk = FaultyDisk()
    raw = Raw(disk)
    for _ in range(3):
        raw.put(b"newest" * 10)
    disk = disk.after_kill()
    disk.content(DATA / "journal" / f"{1:020}.seg")[HEADER_BYTES + 100] ^= 1
    with pytest.raises(StoreCorrupt, match="destroyed after it was synced"):
        read(DATA, disk)
    with pytest.raises(StoreCorrupt, match="destroyed after it was synced"):
        Raw(disk)


def test_a_segment_that_is_not_the_one_of_its_place() -> None:
    disk, _ = grown()
    other, _ = grown()
    path = DATA / "journal" / f"{4:020}.seg"
    disk.content(path)[:] = other.content(path)
    with pytest.raises(StoreCorrupt, match="segment 4 of store"):
        FolderReader(DATA, disk).replay(Gathered())


@pytest.mark.parametrize("number", [3, 4])
def test_a_journal_that_lacks_a_segment_is_not_copied(number: int) -> None:
    """Nobody could start a broker on the copy."""
    disk, _ = grown()
    needed = DATA / "journal" / f"{number:020}.seg"
    disk.delete(needed)
    with pytest.raises(StoreCorrupt, match=rf"{needed}, offset 0: this segment is needed and is not there"):
        copy(DATA, disk)
    with pytest.raises(StoreCorrupt, match=rf"{needed}, offset 0: this segment is needed and is not there"):
        Raw(disk.after_kill())


def test_only_as_far_back_as_there_is_no_gap() -> None:
    disk, _ = grown()
    disk.delete(DATA / "archive" / f"{2:020}.seg")
    whole = Gathered()
    FolderReader(DATA, disk).replay(whole, archive=True)
    assert [number for number, _ in whole.segments] == [3, 4, 5]


def test_a_batch_that_is_being_written_is_not_there_yet() -> None:
    disk, raw = grown()
    raw.append(b"half" * 300)
    batch = raw.journal.take_batch()
    assert batch is not None
    before = Gathered()
    FolderReader(DATA, disk).replay(before)
    disk.power_loss_at = disk.steps
    with pytest.raises(PowerLoss):
        batch.write_and_sync()
    halves = iter([True, False] * 10)
    after = Gathered()
    FolderReader(DATA, disk.after_power_loss(lambda: next(halves))).replay(after)
    assert after.payloads == before.payloads


def test_damage_in_a_closed_segment() -> None:
    disk, _ = grown()
    disk.content(DATA / "journal" / f"{3:020}.seg")[5000] ^= 1
    with pytest.raises(StoreCorrupt, match=f"{3:020}"):
        FolderReader(DATA, disk).replay(Gathered())


@pytest.mark.parametrize("read", [replay, audit])
@pytest.mark.parametrize("opens", [True, False])
def test_a_place_that_cannot_be_read_is_damage_for_every_reader(
    read: Callable[[Path, FaultyDisk], object], opens: bool
) -> None:
    disk, _ = grown()
    path = DATA / "journal" / f"{3:020}.seg"
    if opens:
        disk.lose(path, 5000, 5512)
    else:
        disk.refused[path] = errno.EIO
    with pytest.raises(StoreCorrupt, match=rf"{3:020}.seg, offset \d+: cannot be read: Input/output error"):
        read(DATA, disk)


def test_a_segment_that_is_gone_when_it_is_opened() -> None:
    disk, _ = grown()
    reader = FolderReader(DATA, disk)
    with pytest.raises(KeyError):
        reader.open(99)


@pytest.mark.parametrize("read", [replay, show, audit, copy, lambda path, disk: mark(path, disk=disk)])
def test_a_folder_whose_journal_is_gone_is_damaged_for_every_reader(
    read: Callable[[Path, FaultyDisk], object],
) -> None:
    disk, _ = grown()
    for number in (3, 4, 5):
        disk.delete(DATA / "journal" / f"{number:020}.seg")
    for number in (1, 2):
        disk.delete(DATA / "archive" / f"{number:020}.seg")
    with pytest.raises(StoreCorrupt, match=r"/data/journal, offset 0: no segment is there"):
        read(DATA, disk.after_kill())


class BesideRetention(FolderReader):
    """Reads a folder in which retention deletes the second segment, and what is before it, once the first is open."""

    def open(self, number: int, *, hashing: bool = False) -> SegmentReader:
        segment = super().open(number, hashing=hashing)
        if number == 1:
            assert isinstance(self.folder.disk, FaultyDisk)
            for gone in (1, 2):
                self.folder.disk.delete(self.folder.segment(gone, archived=True))
        return segment


def test_what_retention_deletes_before_it_is_read_is_no_damage() -> None:
    disk, _ = grown()
    with pytest.raises(SegmentDeleted):
        BesideRetention(DATA, disk).replay(Gathered(), archive=True)
    disk, _ = grown()
    assert list(read_audit(BesideRetention(DATA, disk))) == []


def test_no_data_folder() -> None:
    with pytest.raises(StoreMissing, match=r"not a data folder of acquit: it has no broker\.json"):
        FolderReader(DATA, FaultyDisk()).contents()
