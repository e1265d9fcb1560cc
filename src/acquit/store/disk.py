"""The few things a journal asks of a file system, as a protocol, and the real one.

Everything the store does to a disk goes through here, so that tests can put a disk beneath it that forgets what was not
synced (`src/acquit/testing/simulation/disk.py`), and memory can stand in for it (`acquit.store.memory`).

What is taken for granted of the real one, and nothing more: after `sync` (or a write to a file opened for synced
writes) a file's bytes survive power loss; after `sync_folder` so do the names in it; a rename is atomic; a write that
was not synced may be lost in any part and in any order; it does not damage bytes in other sectors. Segments are
written at multiples of `alignment_bytes` (4096 unless told), so that no sector ever holds bytes of two batches.

Errors are plain OSError here; the callers turn them into StoreFull and StoreFailed by `store_error`. One is told from
the others: NotOpened, where the system could not lend what it takes to open anything. Nothing was done then.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

from acquit.errors import StoreError, StoreFailed, StoreFull, StoreLocked
from acquit.forks import keep_here
from acquit.store.ownership import make_file, make_folder


class OpenMode(Enum):
    """Ways to open a file."""

    READ = "read"
    WRITE = "write"
    """Created where it does not exist; `sync` makes what was written durable."""
    SYNCED = "synced"
    """WRITE with every write durable when it returns: one system call instead of two."""


class DiskFile(Protocol):
    """File that a disk has opened."""

    def read(self, length: int, offset: int) -> bytes:
        """Fewer bytes than asked for only at the end of the file."""
        ...

    def write(self, data: bytes, offset: int) -> int:
        """Write data and return how many bytes were taken: fewer than given where the disk ran full on the way."""
        ...

    def sync(self) -> None: ...
    def truncate(self, size_bytes: int) -> None: ...
    def size(self) -> int: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """A file system."""

    def open(self, path: Path, mode: OpenMode) -> DiskFile:
        """Raises NotOpened, as `names` and `sync_folder` do."""
        ...

    def names(self, folder: Path) -> list[str]:
        """The names in a folder, sorted; none where it does not exist."""
        ...

    def make_folder(self, folder: Path) -> None:
        """Make a folder, with its parents, readable by its owner alone; nothing where it exists."""
        ...

    def rename(self, old: Path, new: Path) -> None: ...
    def remove(self, path: Path) -> None:
        """Remove a file; nothing where it does not exist."""
        ...

    def sync_folder(self, folder: Path) -> None: ...
    def free_bytes(self, folder: Path) -> int | None:
        """Room for this user on the disk that a folder is on; None if that cannot be told."""
        ...

    def pause(self, seconds: float) -> None:
        """Leave the disk to others for so long."""
        ...

    def lock(self, path: Path, text: str) -> contextlib.AbstractContextManager[Disk]:
        """Held until left: the file, and the folder that it is in. Raises StoreLocked, naming what the holder wrote,
        when another process has one of them. Gives a disk for what it does there: see `check_place`."""
        ...

    def check_place(self) -> None:
        """Raise StoreFailed where folder or file that this disk was locked with are not at their path any more. Such a
        disk does so before it opens, renames or removes anything: that may be in the folder of somebody else."""
        ...


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
NOT_LENT: Final = {
    errno.EMFILE: "the process has no file descriptor left",
    errno.ENFILE: "the system has no file descriptor left",
    errno.ENOMEM: "the system has no memory left",
}
"""Errors that say nothing of the file, with what there is not enough of."""


class NotOpened(OSError):
    """Error of an open for which the system had no descriptor or memory: nothing was done, the next may succeed. The
    same number from a write or a sync tells nothing of the kind."""


@contextlib.contextmanager
def opening() -> Iterator[None]:
    """Tell NotOpened from other errors, where nothing but an open is done."""
    try:
        yield
    except OSError as error:
        if error.errno in NOT_LENT:
            raise NotOpened(error.errno, error.strerror, error.filename) from error
        raise


def store_error(error: OSError, what: str) -> StoreError:
    """The store's own error for one of the operating system's: StoreFull where there is no room, or nothing to open a
    file with, else StoreFailed."""
    text = f"{what}: {error.strerror or error}"
    if isinstance(error, NotOpened):
        found = StoreFull(text)
        found.limit = NOT_LENT[error.errno or 0]
        return found
    return StoreFull(text) if error.errno in _NO_ROOM else StoreFailed(text)


def folder_error(error: OSError, folder: Path) -> StoreError:
    """The same where any of a folder's files may be meant: of the one that the system names, if it does."""
    return store_error(error, str(error.filename or folder))


def write_all(file: DiskFile, data: bytes, offset: int) -> None:
    """Write the whole of `data`. A short write is continued, so that the disk says why it was short (OSError)."""
    done = file.write(data, offset)
    while done < len(data):
        step = file.write(data[done:], offset + done)
        if step <= 0:
            raise OSError(errno.ENOSPC, "the disk takes no more")
        done += step


class PosixFile:
    """A file descriptor."""

    __slots__ = ("__weakref__", "_fd")

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read(self, length: int, offset: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        # A single read gives at most 2 GiB and may be cut by a signal.
        while len(data) < length:
            more = os.pread(self._fd, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def write(self, data: bytes, offset: int) -> int:
        return os.pwrite(self._fd, data, offset)

    def sync(self) -> None:
        _data_sync(self._fd)

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._fd, size_bytes)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def fileno(self) -> int:
        """Return the descriptor; a negative number once it is closed."""
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)


# macOS has no fdatasync, and there only F_FULLFSYNC reaches the platter (its O_DSYNC does not).
_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
_SYNCED_FLAG: Final = os.O_DSYNC if _FULL_SYNC is None else 0


def _data_sync(fd: int) -> None:
    if _FULL_SYNC is None:
        os.fdatasync(fd)
    else:
        fcntl.fcntl(fd, _FULL_SYNC)


class _SyncingFile(PosixFile):
    """File for systems where O_DSYNC does not exist, or does not mean it: syncs after every write."""

    def write(self, data: bytes, offset: int) -> int:
        done = super().write(data, offset)
        self.sync()
        return done


class PosixDisk:
    """The real one. Files are 0600, folders 0700: messages are nobody else's business. What root makes belongs to the
    owner of the folder it is in."""

    def open(self, path: Path, mode: OpenMode) -> PosixFile:
        self.check_place()
        flags = os.O_CLOEXEC | (os.O_RDONLY if mode is OpenMode.READ else os.O_RDWR | os.O_CREAT)
        synced = mode is OpenMode.SYNCED
        with opening():
            fd = make_file(path, flags | _SYNCED_FLAG if synced else flags)
        return _SyncingFile(fd) if synced and not _SYNCED_FLAG else PosixFile(fd)

    def names(self, folder: Path) -> list[str]:
        try:
            with opening():
                return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def make_folder(self, folder: Path) -> None:
        missing = [level for level in (folder, *folder.parents) if not level.exists()]
        for level in reversed(missing):
            make_folder(level)
            self.sync_folder(level.parent)

    def rename(self, old: Path, new: Path) -> None:
        self.check_place()
        old.rename(new)

    def remove(self, path: Path) -> None:
        self.check_place()
        path.unlink(missing_ok=True)

    def sync_folder(self, folder: Path) -> None:
        self.check_place()
        with opening():
            fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, folder: Path) -> int | None:
        try:
            found = os.statvfs(folder)
        except OSError:
            return None
        free = found.f_bavail if os.geteuid() else found.f_bfree  # root may take what is kept for it
        return free * found.f_frsize if found.f_blocks else None  # some file systems have no figures

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def lock(self, path: Path, text: str) -> contextlib.AbstractContextManager[Disk]:
        return _LockedDisk(path, text)

    def check_place(self) -> None:
        """Do nothing: no folder is locked."""


class _Lock(PosixFile):
    """Descriptor that is locked by flock. Of the process that opened it alone: children get none of it."""

    __slots__ = ("_process",)

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._process = os.getpid()
        keep_here(self)

    def take(self) -> None:
        """Lock it. Raises BlockingIOError where another has done so."""
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        # A copy that a child has all the same would hold the lock if it were only closed. But the lock is one for all
        # copies: a child that gave it back would take it from its parent.
        if os.getpid() == self._process:
            with contextlib.suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        super().close()


class _LockedDisk(PosixDisk):
    """Disk of whoever locked a folder, by flock: given up by the kernel when the process dies, however it dies, and
    with it the last copy of the descriptor. Forked children have none (`forks`), nor of any other file opened here.

    Locked are the file, which names the process, and the folder itself, for somebody may remove the file.
    """

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._text = text
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Disk:
        parent = self._path.parent
        with contextlib.ExitStack() as held:
            folder = _Lock(os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            held.callback(folder.close)
            at = folder.fileno()
            try:
                self._lock_folder(folder)
                file = _Lock(make_file(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, folder=at))
                held.callback(file.close)
                file.take()
            except BlockingIOError:
                raise StoreLocked(f"{parent} is in use by {self._holder(at)}") from None
            self._folder_stat, self._file_stat = os.fstat(at), os.fstat(file.fileno())
            self.check_place()  # somebody may have moved it meanwhile
            file.truncate(0)
            file.write(self._text.encode(), 0)
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def open(self, path: Path, mode: OpenMode) -> PosixFile:
        return keep_here(super().open(path, mode))

    def _lock_folder(self, folder: _Lock) -> None:
        try:
            folder.take()
        except BlockingIOError:
            raise
        except OSError:
            pass  # NFS, among others, locks no folders: there the file alone counts

    def _holder(self, folder: int) -> str:
        try:
            file = make_file(self._path, os.O_RDONLY | os.O_CLOEXEC, folder=folder)
        except OSError:  # it was removed
            return _SOMEBODY
        try:
            holder, absent = read_holder(file)
            return holder if not absent else f"{holder}, {NOT_HERE} (fuser {self._path} names it)"
        finally:
            os.close(file)

    def check_place(self) -> None:
        parent = self._path.parent
        if _is_there(self._path, self._file_stat):
            return
        if _is_there(parent, self._folder_stat):
            raise StoreFailed(f"{self._path} is not the lock of this broker any more: it was removed or replaced")
        raise StoreFailed(f"{parent} is not the folder any more in which this broker began: it was moved or removed")


_SOMEBODY: Final = "another process"
_HOLDER_BYTES_MAX: Final = 200
_PROCESS: Final = re.compile(r"process (\d{1,9})")
NOT_HERE: Final = (
    "which is not running here: it is in another container or on another machine, or has ended, and a process that it "
    "started holds the lock"
)


def read_holder(fd: int) -> tuple[str, bool]:
    """Return what the file of a lock says of who has it, and True if no such process is running here."""
    holder = os.pread(fd, _HOLDER_BYTES_MAX, 0).decode(errors="replace").strip()
    named = _PROCESS.fullmatch(holder)
    if named is not None:
        try:
            os.kill(int(named[1]), 0)
        except ProcessLookupError:
            return holder, True
        except OSError:
            pass  # it is there, and somebody else's
    return holder or _SOMEBODY, False


def _is_there(path: Path, known: os.stat_result) -> bool:
    """Return False where another file, or none, has this path. What the system does not tell is no proof of that."""
    try:
        return os.path.samestat(path.stat(), known)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
