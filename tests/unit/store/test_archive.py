"""Reading archived segments: what is damaged there ends no more than the reading."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from acquit.errors import StoreCorrupt, StoreFailed, StoreVersionUnsupported
from acquit.store.archive import ArchiveReader
from acquit.store.folder import Folder
from acquit.store.interface import SegmentInfo
from acquit.store.record import RecordMalformed
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.raw_journal import DATA, Raw

PATH = DATA / "archive" / f"{1:020}.seg"


@pytest.fixture
def disk() -> FaultyDisk:
    """One archived segment."""
    disk = FaultyDisk()
    raw = Raw(disk)
    while len(raw.journal.segments) < 3:
        raw.put(bytes(3000))
    raw.journal.leave(1, b"")
    raw.sync()
    raw.chores()
    assert PATH in disk.paths()
    return disk


def opened(disk: FaultyDisk) -> tuple[ArchiveReader, SegmentInfo]:
    return ArchiveReader(Folder(DATA, disk)), Raw(disk.after_kill()).journal.segments[0]


def whole(archive: ArchiveReader, info: SegmentInfo) -> None:
    with archive.segment(1) as segment:
        for _ in segment.batches():
            pass
        segment.check_end(newest=False)


READS: dict[str, Callable[[ArchiveReader, SegmentInfo], object]] = {
    "segment": whole,
    "header": lambda archive, info: archive.header(1),
    "seal": lambda archive, info: archive.seal(info),
    "ends": lambda archive, info: archive.ends(info),
}


@pytest.mark.parametrize("read", READS)
def test_what_is_whole_is_read(disk: FaultyDisk, read: str) -> None:
    READS[read](*opened(disk))


@pytest.mark.parametrize("read", READS)
def test_what_cannot_be_read_is_damage(disk: FaultyDisk, read: str) -> None:
    archive, info = opened(disk)
    disk.lose(PATH)
    with pytest.raises(StoreCorrupt, match=r"seg, offset \d+: cannot be read: Input/output error"):
        READS[read](archive, info)
    disk.refused[PATH] = errno.EACCES
    with pytest.raises(StoreCorrupt, match=r"seg, offset 0: cannot be read: Permission denied"):
        READS["header"](archive, info)
    disk.refused.clear()
    disk.delete(PATH)
    with pytest.raises(StoreCorrupt, match=r"seg, offset 0: somebody removed it"):
        READS[read](archive, info)


@pytest.mark.parametrize("read", READS)
def test_a_process_that_can_open_no_more_files_says_nothing_of_one(disk: FaultyDisk, read: str) -> None:
    archive, info = opened(disk)
    disk.refused[PATH] = errno.EMFILE
    with pytest.raises(StoreFailed, match="Too many open files"):
        READS[read](archive, info)


@pytest.mark.parametrize(
    "error",
    [StoreCorrupt("x", path="y", offset=1), StoreVersionUnsupported("z"), RecordMalformed("w")],
    ids=lambda error: type(error).__name__,
)
def test_damage_ends_the_block_and_is_logged_once(caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    archive = ArchiveReader(Folder(DATA, FaultyDisk()))
    for number in (1, 1, 2):
        with archive.sparing(number):
            raise error
    assert [record.__dict__["segment"] for record in caplog.records] == [1, 2]
    assert caplog.records[0].__dict__["reason"] == str(error)
    archive.forget(1)
    with archive.sparing(1):
        raise error
    assert len(caplog.records) == 3


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), StoreFailed("moved or removed")])
def test_other_errors_pass(error: Exception) -> None:
    archive = ArchiveReader(Folder(Path("/data"), FaultyDisk()))
    with pytest.raises(type(error)), archive.sparing(1):
        raise error
