"""Where a segment ends, and whether what follows was torn or destroyed."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from acquit.errors import StoreCorrupt, StoreError, StoreFailed
from acquit.store.disk import DiskFile
from acquit.store.scan import SegmentReader
from acquit.store.segment import HEADER_BYTES
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.raw_journal import DATA, OPTIONS, Raw

PATH = DATA / "journal" / f"{1:020}.seg"


@pytest.fixture
def disk() -> FaultyDisk:
    """One open segment of four batches, of 512 bytes each."""
    disk = FaultyDisk()
    raw = Raw(disk)
    for number in range(4):
        raw.put(b"batch %d" % number)
    return disk.after_kill()


def read(disk: FaultyDisk) -> SegmentReader:
    segment = SegmentReader(disk, PATH, hashing=True)
    heads = [head for head, _ in segment.batches()]
    assert [head.position for head in heads] == [512 * number for number in range(len(heads))]
    return segment


def batch(number: int) -> slice:
    start = HEADER_BYTES + number * 512
    return slice(start, start + 512)


def test_an_open_segment_ends_in_zeros(disk: FaultyDisk) -> None:
    segment = read(disk)
    assert segment.stop is not None
    assert (segment.stop.offset, segment.stop.reason) == (HEADER_BYTES + 4 * 512, "")
    assert segment.cut_bytes() == 0
    assert segment.position == 4 * 512


def test_a_closed_segment_ends_with_its_seal(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    raw.journal.close()
    segment = read(disk)
    assert segment.seal is not None
    assert segment.stop is None
    assert segment.seal.end == 4 * 512
    assert segment.offset == len(disk.content(PATH))
    assert segment.sha256 is not None
    assert segment.sha256.digest() == segment.hash_of(segment.offset)


@pytest.mark.parametrize("spoiled", [0, 20, 63, 64, 100, 511])
def test_the_last_batch_spoiled_is_a_torn_tail(disk: FaultyDisk, spoiled: int) -> None:
    disk.content(PATH)[batch(3).start + spoiled] ^= 0x10
    segment = read(disk)
    assert segment.offset == batch(3).start
    assert segment.cut_bytes() > 0


@pytest.mark.parametrize("spoiled", [0, 20, 63, 64, 100, 511])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_earlier_batch_spoiled_is_corruption(disk: FaultyDisk, number: int, spoiled: int) -> None:
    disk.content(PATH)[batch(number).start + spoiled] ^= 0x10
    segment = read(disk)
    with pytest.raises(StoreCorrupt, match=f"offset {batch(number).start}: destroyed after it was synced"):
        segment.cut_bytes()


def test_a_hole_of_zeros_is_corruption(disk: FaultyDisk) -> None:
    disk.content(PATH)[batch(1)] = bytes(512)
    segment = read(disk)
    assert segment.stop is not None
    assert segment.stop.reason == ""
    with pytest.raises(StoreCorrupt):
        segment.cut_bytes()


def test_a_seal_proves_that_what_is_before_was_synced(disk: FaultyDisk) -> None:
    Raw(disk).journal.close()
    disk.content(PATH)[batch(3).start + 100] ^= 1
    with pytest.raises(StoreCorrupt, match="destroyed"):
        read(disk).cut_bytes()


def test_a_spoiled_seal_is_a_torn_tail(disk: FaultyDisk) -> None:
    Raw(disk).journal.close()
    disk.content(PATH)[batch(4).start + 300] ^= 1
    segment = read(disk)
    assert segment.offset == batch(4).start
    assert segment.cut_bytes() > 0


def test_a_batch_of_this_segment_sent_as_a_message_proves_nothing(disk: FaultyDisk) -> None:
    """A journal file can travel through the broker whose journal it is."""
    content = disk.content(PATH)
    stolen = bytes(content[batch(2)])
    torn = bytes(content[batch(3)])[:100] + bytes(412)
    content[batch(3)] = torn
    content[batch(4)] = stolen
    content[batch(6)] = stolen
    segment = read(disk)
    assert segment.cut_bytes() == 3 * 512 + len(stolen.rstrip(b"\0"))


def test_what_an_earlier_life_of_the_blocks_left_is_not_ours(disk: FaultyDisk) -> None:
    """The same bytes at the same place, of a segment with another epoch."""
    other = FaultyDisk()
    raw = Raw(other)
    for number in range(8):
        raw.put(b"other %d" % number)
    disk.content(PATH)[batch(4).start : batch(8).start] = other.content(PATH)[batch(4).start : batch(8).start]
    segment = read(disk)
    assert segment.offset == batch(4).start
    assert segment.stop is not None
    assert "another place or time" in segment.stop.reason
    segment.cut_bytes()


def test_a_length_beyond_the_file(disk: FaultyDisk) -> None:
    del disk.content(PATH)[batch(3).start + 300 :]
    segment = read(disk)
    assert segment.offset == batch(3).start
    assert segment.cut_bytes() == len(bytes(disk.content(PATH)[batch(3).start :]).rstrip(b"\0"))


def test_a_batch_that_was_half_written_when_it_was_read(disk: FaultyDisk) -> None:
    """Beside a running broker: a moment later it is whole, and the next one proves that it is synced."""
    content = disk.content(PATH)
    second, third = bytes(content[batch(2)]), bytes(content[batch(3)])
    content[batch(2)] = second[:90] + bytes(512 - 90)
    content[batch(3)] = bytes(512)
    segment = read(disk)
    assert segment.offset == batch(2).start
    content[batch(2)], content[batch(3)] = second, third
    assert segment.cut_bytes() == 0


class Unreadable:
    """A file whose sectors are gone."""

    def __init__(self, file: DiskFile) -> None:
        self.file = file

    def read(self, length: int, offset: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)


def test_an_unreadable_disk(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = disk.open
    monkeypatch.setattr(disk, "open", lambda path, mode: Unreadable(whole(path, mode)))
    with pytest.raises(StoreFailed, match="Input/output error"):
        SegmentReader(disk, PATH)


def batches(path: Path, disk: FaultyDisk) -> list[int]:
    """Offsets of the batches in a segment."""
    with SegmentReader(disk, path) as segment:
        return [HEADER_BYTES + head.position - segment.header.base for head, _ in segment.batches()]


def test_who_can_do_without_a_file_hears_where_it_cannot_be_read() -> None:
    """Reading is in large pieces, and still all before the place is read."""
    disk = FaultyDisk()
    raw = Raw(disk, options=replace(OPTIONS, segment_bytes=8 << 20))
    for _ in range(300):
        raw.put(bytes(9_000))
    path = next(path for path in disk.paths() if path.suffix == ".seg" and len(disk.content(path)) > 2 << 20)
    before = batches(path, disk)
    bad = before[200]
    disk.lose(path, bad + 4096, bad + 8192)
    with SegmentReader(disk, path, unreadable_is_damage=True) as segment:
        found = segment.batches()
        assert [HEADER_BYTES + next(found)[0].position for _ in range(200)] == before[:200]
        with pytest.raises(StoreCorrupt, match=f"offset {bad}: cannot be read: Input/output error"):
            next(found)


@pytest.mark.parametrize(
    ("code", "expected"), [(errno.EIO, StoreCorrupt), (errno.EACCES, StoreCorrupt), (errno.EMFILE, StoreFailed)]
)
def test_a_file_that_cannot_be_opened(disk: FaultyDisk, code: int, expected: type[StoreError]) -> None:
    disk.refused[PATH] = code
    with pytest.raises(expected, match="seg"):
        SegmentReader(disk, PATH, unreadable_is_damage=True)
    with pytest.raises(StoreFailed, match="seg"):
        SegmentReader(disk, PATH)
    disk.refused.clear()
    disk.delete(PATH)
    with pytest.raises(FileNotFoundError):
        SegmentReader(disk, PATH, unreadable_is_damage=True)
