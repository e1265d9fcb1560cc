"""Prewritten files."""

from __future__ import annotations

from pathlib import Path

import pytest

from acquit.store.folder import Folder
from acquit.store.reserve import Reserve
from acquit.testing.simulation.disk import FaultyDisk


def reserve(disk: FaultyDisk, size: int = 3 << 20) -> Reserve:
    return Reserve(Folder(Path("/data"), disk), size)


def test_files_are_zeros_of_the_whole_size() -> None:
    disk = FaultyDisk()
    made = reserve(disk)
    made.prewrite()
    made.prewrite()
    assert (len(made), made.room_bytes) == (2, 6 << 20)
    path = made.take()
    assert path is not None
    assert disk.content(path) == bytes(3 << 20)
    assert made.take() is not None
    assert made.take() is None


def test_a_full_disk_leaves_nothing_behind() -> None:
    disk = FaultyDisk(capacity_bytes=4 << 20)
    made = reserve(disk)
    made.prewrite()
    assert not made.disk_full
    with pytest.raises(OSError, match="No space"):
        made.prewrite()
    assert made.disk_full
    assert len(disk.paths()) == 1
    disk.capacity_bytes = None
    made.prewrite()
    assert not made.disk_full


def test_what_an_earlier_process_made_is_used_if_it_fits() -> None:
    disk = FaultyDisk()
    reserve(disk).prewrite()
    reserve(disk, 1 << 20).prewrite()
    again = reserve(disk)
    again.adopt()
    assert len(again) == 1
    assert len(disk.paths()) == 1
