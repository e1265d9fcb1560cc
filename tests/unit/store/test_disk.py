"""The real disk, and what the operating system's errors become."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from acquit.errors import StoreFailed, StoreFull, StoreLocked
from acquit.store.disk import OpenMode, PosixDisk, store_error, write_all


@pytest.fixture
def disk() -> PosixDisk:
    return PosixDisk()


def test_files_and_folders_are_the_owners_alone(tmp_path: Path, disk: PosixDisk) -> None:
    before = os.umask(0)
    try:
        disk.make_folder(tmp_path / "a" / "b")
        for mode in (OpenMode.WRITE, OpenMode.SYNCED):
            disk.open(tmp_path / "a" / mode.value, mode).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "write").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "a" / "synced").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [OpenMode.WRITE, OpenMode.SYNCED])
def test_write_and_read_back(tmp_path: Path, disk: PosixDisk, mode: OpenMode) -> None:
    path = tmp_path / "file"
    file = disk.open(path, mode)
    write_all(file, b"hello", 3)
    file.sync()
    assert file.read(100, 0) == b"\0\0\0hello"
    assert file.read(2, 4) == b"el"
    assert file.size() == 8
    file.truncate(4)
    file.close()
    again = disk.open(path, OpenMode.READ)
    assert again.read(100, 0) == b"\0\0\0h"
    again.close()


def test_names_and_moves(tmp_path: Path, disk: PosixDisk) -> None:
    assert disk.names(tmp_path / "none") == []
    disk.open(tmp_path / "b", OpenMode.WRITE).close()
    disk.open(tmp_path / "a", OpenMode.WRITE).close()
    assert disk.names(tmp_path) == ["a", "b"]
    disk.rename(tmp_path / "a", tmp_path / "c")
    disk.remove(tmp_path / "b")
    disk.remove(tmp_path / "b")
    disk.sync_folder(tmp_path)
    assert disk.names(tmp_path) == ["c"]
    with pytest.raises(FileNotFoundError):
        disk.open(tmp_path / "a", OpenMode.READ)


def test_what_holds_the_lock_is_named(tmp_path: Path, disk: PosixDisk) -> None:
    code = (
        "import sys, pathlib\n"
        "from acquit.store.disk import PosixDisk\n"
        "with PosixDisk().lock(pathlib.Path(sys.argv[1]), 'process 4711'):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreLocked, match="in use by process 4711"), disk.lock(path, "me"):
            pass
        holder.kill()
    # A lock dies with its holder, however that died.
    with disk.lock(path, "me"):
        assert path.read_text() == "me"


def test_a_lock_is_given_back(tmp_path: Path, disk: PosixDisk) -> None:
    for _ in range(2):
        with disk.lock(tmp_path / "lock", "me"):
            pass


@pytest.mark.parametrize(
    ("code", "expected"),
    [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreFailed), (errno.EROFS, StoreFailed)],
)
def test_errors(code: int, expected: type[Exception]) -> None:
    error = store_error(OSError(code, os.strerror(code)), "journal")
    assert type(error) is expected
    assert os.strerror(code) in str(error)


class Miser:
    """Takes a few bytes at a time, then none."""

    def __init__(self, takes: list[int]) -> None:
        self.takes = takes
        self.written = bytearray()

    def write(self, data: bytes, offset: int) -> int:
        assert offset == len(self.written)
        taken = self.takes.pop(0)
        self.written += data[:taken]
        return min(taken, len(data))

    def read(self, length: int, offset: int) -> bytes:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def truncate(self, size_bytes: int) -> None:
        raise NotImplementedError

    def size(self) -> int:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def test_short_writes_are_continued() -> None:
    file = Miser([2, 3, 10])
    write_all(file, b"hello world", 0)
    assert file.written == b"hello world"


def test_a_disk_that_takes_nothing_is_full() -> None:
    with pytest.raises(OSError, match="takes no more") as caught:
        write_all(Miser([2, 0]), b"hello", 0)
    assert caught.value.errno == errno.ENOSPC
