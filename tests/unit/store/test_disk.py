"""The real disk, and what the operating system's errors become."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from acquit.errors import StoreFailed, StoreFull, StoreLocked
from acquit.store.disk import NOT_HERE, NotOpened, OpenMode, PosixDisk, PosixFile, store_error, write_all
from tests.support.forking import FORKING, child_that_lives, fork_unnoticed, in_child


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


# -- who has a folder --------------------------------------------------------------------------------------------------


@FORKING
def test_a_lock_is_given_back_though_a_forked_child_lives_on(tmp_path: Path, disk: PosixDisk) -> None:
    """Whether Python has forked it, or a library that tells nobody."""
    for fork in (os.fork, fork_unnoticed):
        with contextlib.ExitStack() as children:
            with disk.lock(tmp_path / "lock", "me"):
                children.enter_context(child_that_lives(fork))
            with disk.lock(tmp_path / "lock", "you"):
                pass


@FORKING
@pytest.mark.parametrize("fork", [os.fork, fork_unnoticed])
def test_a_forked_child_takes_no_lock_from_its_parent(tmp_path: Path, disk: PosixDisk, fork: Callable[[], int]) -> None:
    lock = disk.lock(tmp_path / "lock", "me")
    with lock:
        in_child(lambda: lock.__exit__(None, None, None), fork)
        with pytest.raises(StoreLocked, match="in use by me"), disk.lock(tmp_path / "lock", "you"):
            pass


@FORKING
def test_a_forked_child_has_no_file_that_its_parent_opened_in_a_locked_folder(tmp_path: Path, disk: PosixDisk) -> None:
    """The room of a segment that is removed would stay taken for as long as it lives."""
    with disk.lock(tmp_path / "lock", "me") as held:
        file = held.open(tmp_path / "segment", OpenMode.WRITE)
        write_all(file, b"of the parent", 0)
        assert isinstance(file, PosixFile)
        descriptor = file.fileno()

        def check() -> None:
            write_all(file, b"of the child!", 0)
            assert os.fstat(descriptor).st_rdev == os.stat(os.devnull).st_rdev

        in_child(check)
        assert file.read(100, 0) == b"of the parent"
        file.close()
        assert file.fileno() < 0


def test_a_program_that_is_started_holds_no_lock(tmp_path: Path, disk: PosixDisk) -> None:
    """Not even where it inherits all that may be inherited."""
    code = "import sys; print('here', flush=True); sys.stdin.read()"
    with contextlib.ExitStack() as programs:
        with disk.lock(tmp_path / "lock", "me"):
            program = programs.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False
                )
            )
            assert program.stdout is not None and program.stdout.readline() == b"here\n"
            held = {os.path.realpath(f"/proc/{program.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{program.pid}/fd")}
            assert held.isdisjoint({str(tmp_path), str(tmp_path / "lock")})
        with disk.lock(tmp_path / "lock", "you"):
            pass


def test_who_holds_a_lock_and_is_not_there_is_not_said_to_run(tmp_path: Path, disk: PosixDisk) -> None:
    """As with a broker that has ended, and left behind a child that holds the lock."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    path = tmp_path / "lock"
    for holder, said in (
        (
            f"process {ended.pid}\n",
            f"{tmp_path} is in use by process {ended.pid}, {NOT_HERE} (fuser {path} names it)",
        ),
        (f"process {os.getpid()}\n", f"{tmp_path} is in use by process {os.getpid()}"),
        ("process 1\n", f"{tmp_path} is in use by process 1"),
        ("process 99999999999999999999\n", f"{tmp_path} is in use by process 99999999999999999999"),
    ):
        with disk.lock(path, holder), pytest.raises(StoreLocked) as caught, disk.lock(path, "you"):
            pass
        assert str(caught.value) == said


def test_a_folder_stays_locked_without_its_file(tmp_path: Path, disk: PosixDisk) -> None:
    path = tmp_path / "lock"
    with disk.lock(path, "me"):
        path.unlink()
        with pytest.raises(StoreLocked, match="in use by another process"), disk.lock(path, "you"):
            pass
        assert not path.exists()
        path.write_text("process 4711")
        with pytest.raises(StoreLocked, match="in use by process 4711"), disk.lock(path, "you"):
            pass
    with disk.lock(path, "you"):
        assert path.read_text() == "you"


def test_where_folders_cannot_be_locked_the_file_is(
    tmp_path: Path, disk: PosixDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(fd: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(fd, operation)

    real = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", flock)
    path = tmp_path / "lock"
    with disk.lock(path, "me"), pytest.raises(StoreLocked, match="in use by me"), disk.lock(path, "you"):
        pass


def move(folder: Path) -> None:
    folder.rename(folder.with_suffix(".old"))


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def replace(folder: Path) -> None:
    move(folder)
    shutil.copytree(folder.with_suffix(".old"), folder)


def remove_lock(folder: Path) -> None:
    (folder / "lock").unlink()


def replace_lock(folder: Path) -> None:
    (folder / "lock").rename(folder / "other")
    (folder / "lock").write_text("process 4711")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (move, "data is not the folder any more"),
        (remove, "data is not the folder any more"),
        (replace, "data is not the folder any more"),
        (remove_lock, "lock is not the lock"),
        (replace_lock, "lock is not the lock"),
    ],
)
def test_nothing_is_done_in_a_folder_that_is_not_the_one_locked(
    tmp_path: Path, disk: PosixDisk, spoil: Callable[[Path], None], said: str
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "kept").touch()
    with disk.lock(folder / "lock", "me") as held:
        held.rename(folder / "kept", folder / "kept")
        spoil(folder)
        before = sorted(tmp_path.rglob("*"))
        for act in (
            held.check_place,
            lambda: held.open(folder / "new", OpenMode.WRITE),
            lambda: held.open(folder / "kept", OpenMode.READ),
            lambda: held.rename(folder / "kept", folder / "new"),
            lambda: held.remove(folder / "kept"),
            lambda: held.sync_folder(folder),
        ):
            with pytest.raises(StoreFailed, match=said):
                act()
        assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_a_link_leads_to_is_the_same(tmp_path: Path, disk: PosixDisk) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    with disk.lock(folder / "lock", "me") as held:
        move(folder)
        folder.symlink_to(tmp_path / "data.old")
        held.open(folder / "new", OpenMode.WRITE).close()


def test_what_cannot_be_told_is_no_proof(tmp_path: Path, disk: PosixDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with disk.lock(tmp_path / "lock", "me") as held, monkeypatch.context() as patched:
        patched.setattr(Path, "stat", refuse)
        held.check_place()


@pytest.mark.parametrize("when", [1, 2])
def test_a_folder_that_is_moved_while_it_is_locked(
    tmp_path: Path, disk: PosixDisk, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    """Before the file in it is locked, and after."""
    folder = tmp_path / "data"
    folder.mkdir()
    calls = 0

    def flock(fd: int, operation: int) -> None:
        nonlocal calls
        calls += 1
        if calls == when:
            move(folder)
            folder.mkdir()
        real(fd, operation)

    real = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StoreFailed, match="moved or removed"), disk.lock(folder / "lock", "me"):
        pass
    assert list(folder.iterdir()) == []
    for each in (folder, tmp_path / "data.old"):
        with disk.lock(each / "lock", "me"):
            pass


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize(
    "call",
    [lambda disk, path: disk.open(path, OpenMode.SYNCED), PosixDisk.names, PosixDisk.sync_folder],
    ids=["open", "names", "sync_folder"],
)
def test_what_the_system_cannot_open_now_is_no_failure(
    tmp_path: Path,
    disk: PosixDisk,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    call: Callable[[PosixDisk, Path], object],
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        for name in ("open", "listdir"):
            patched.setattr(os, name, refuse)
        with pytest.raises(NotOpened) as caught:
            call(disk, tmp_path)
    error = store_error(caught.value, "here")
    assert isinstance(error, StoreFull)
    assert error.limit != StoreFull.limit
    assert str(error) == f"here: {os.strerror(code)}"


def test_without_memory_for_a_sync_it_is_not_known_what_was_written() -> None:
    assert isinstance(store_error(OSError(errno.ENOMEM, "no memory"), "here"), StoreFailed)


def test_one_that_is_not_there_is_not_one_for_which_there_is_no_descriptor(tmp_path: Path, disk: PosixDisk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(tmp_path / "none", OpenMode.READ)
    assert disk.names(tmp_path / "none") == []


def test_the_room_of_a_disk(tmp_path: Path, disk: PosixDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    free = disk.free_bytes(tmp_path)
    assert free is not None and free > 0
    assert disk.free_bytes(tmp_path / "none") is None
    found = SimpleNamespace(f_frsize=4096, f_blocks=100, f_bfree=20, f_bavail=15)
    monkeypatch.setattr(os, "statvfs", lambda path: found)
    for user, blocks in ((0, 20), (1000, 15)):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert disk.free_bytes(tmp_path) == blocks * 4096, "some of it is kept for root"
    found.f_blocks = 0
    assert disk.free_bytes(tmp_path) is None, "a file system that has no figures is not full"
