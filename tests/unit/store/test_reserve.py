"""Prewritten files."""

from __future__ import annotations

from pathlib import Path

import pytest

from acquit.store.folder import Folder
from acquit.store.reserve import Reserve
from acquit.testing.simulation.disk import FaultyDisk

MIB = 1 << 20


def reserve(disk: FaultyDisk, most: int = 3 * MIB) -> Reserve:
    return Reserve(Folder(Path("/data"), disk), most)


def test_files_are_zeros_of_the_whole_size() -> None:
    disk = FaultyDisk()
    made = reserve(disk)
    made.prewrite(3 * MIB, 2)
    made.prewrite(3 * MIB, 2)
    assert made.sizes == [3 * MIB] * 2
    path = made.take()
    assert path is not None
    assert disk.content(path) == bytes(3 << 20)
    assert made.take() is not None
    assert made.take() is None


def test_a_full_disk_leaves_nothing_behind() -> None:
    disk = FaultyDisk(capacity_bytes=4 << 20)
    made = reserve(disk)
    made.prewrite(3 * MIB, 2)
    assert not made.disk_full
    with pytest.raises(OSError, match="No space"):
        made.prewrite(3 * MIB, 2)
    assert made.disk_full
    assert len(disk.paths()) == 1
    disk.capacity_bytes = None
    made.prewrite(3 * MIB, 2)
    assert not made.disk_full


def test_what_has_no_room_is_refused_before_a_byte_is_written() -> None:
    class Counted(FaultyDisk):
        def free_bytes(self, folder: Path) -> int | None:
            return MIB

    disk = Counted()
    made = reserve(disk)
    with pytest.raises(OSError, match="No space left on device for a segment of 3,145,728 bytes: 1,048,576 are free"):
        made.make(3 * MIB)
    assert made.disk_full and made.missing
    assert not disk.used_bytes and not disk.paths()
    made.make(MIB)
    assert not made.disk_full


def test_what_an_earlier_process_made_is_used_if_it_fits() -> None:
    disk = FaultyDisk()
    for size in (3 * MIB, MIB, 4 * MIB):
        reserve(disk).prewrite(size, 3)
    again = reserve(disk)
    again.adopt()
    assert again.sizes == [MIB, 3 * MIB]
    assert len(disk.paths()) == 2


def test_the_smallest_that_has_room_is_taken_or_else_the_largest() -> None:
    disk = FaultyDisk()
    made = reserve(disk)
    for size in (3 * MIB, MIB, 2 * MIB):
        made.prewrite(size, 3)

    def taken(needed: int) -> int:
        path = made.take(needed)
        assert path is not None
        return len(disk.content(path))

    assert [taken(2 * MIB), taken(9 * MIB), taken(0)] == [2 * MIB, 3 * MIB, MIB]


def test_a_larger_one_takes_the_place_of_the_smallest_once_it_is_there() -> None:
    disk = FaultyDisk()
    made = reserve(disk)
    for size in (MIB, MIB, 2 * MIB):
        assert not made.has(2, size)
        made.prewrite(size, 2)
    assert made.sizes == [MIB, 2 * MIB]
    assert made.has(2, MIB) and made.has(1, 2 * MIB) and not made.has(2, 2 * MIB)
    disk.capacity_bytes = disk.used_bytes + MIB
    with pytest.raises(OSError, match="No space"):
        made.prewrite(2 * MIB, 2)
    assert made.sizes == [MIB, 2 * MIB]
    assert disk.used_bytes == 3 * MIB


def test_it_leaves_the_disk_to_batches_while_there_are_files_to_go_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyDisk()
    pauses: list[float] = []
    monkeypatch.setattr(disk, "pause", pauses.append)
    made = reserve(disk)

    def prewritten() -> int:
        pauses.clear()
        made.prewrite(3 * MIB, 3)
        return len(pauses)

    assert [prewritten(), prewritten(), prewritten()] == [0, 0, 2]
    made.take()
    made.take()
    assert [prewritten(), prewritten()] == [0, 2]
    pauses.clear()
    made.make(3 * MIB)
    assert not pauses


def test_what_needs_the_room_gets_it_from_the_smallest() -> None:
    disk = FaultyDisk()
    made = reserve(disk)
    made.prewrite(MIB, 2)
    made.prewrite(2 * MIB, 2)
    assert made.give_way()
    assert made.sizes == [2 * MIB]
    assert made.give_way()
    assert not made.give_way()
    assert disk.used_bytes == 0
