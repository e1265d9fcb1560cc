"""A disk in memory is a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from acquit.store.disk import OpenMode
from acquit.store.memory import MemoryDisk
from tests.support.raw_journal import Raw


def test_files() -> None:
    disk = MemoryDisk()
    path = Path("/folder/file")
    file = disk.open(path, OpenMode.SYNCED)
    assert file.write(b"abc", 2) == 3
    file.sync()
    assert (file.read(10, 0), file.size()) == (b"\0\0abc", 5)
    file.truncate(3)
    file.truncate(4)
    file.close()
    assert disk.open(path, OpenMode.READ).read(10, 0) == b"\0\0a\0"
    disk.rename(path, path.with_name("other"))
    assert disk.names(path.parent) == ["other"]
    disk.remove(path.with_name("other"))
    disk.remove(path.with_name("other"))
    with pytest.raises(FileNotFoundError):
        disk.open(path, OpenMode.READ)
    with pytest.raises(FileNotFoundError):
        disk.rename(path, path)


def test_a_journal_on_it() -> None:
    disk = MemoryDisk()
    raw = Raw(disk)
    (position,) = raw.put(b"hello")
    assert raw.journal.read(position).payload == b"hello"
    raw.journal.close()
    assert Raw(disk).replay.payloads == [b"hello"]
