"""Prewritten files, waiting to become segments.

Writing into blocks that hold zeros already is a third faster to sync than growing a file, because only data changes
and no metadata; and it cannot run out of room. So segments are prewritten ahead of time on the chore thread, and some
more of them are kept as the reserve from which outcomes and checkpoints live when the disk is full.

Whoever prewrites shares the disk with the batches, which wait for it meanwhile. As long as files are there to go on
with, it leaves the disk to them between its steps.

They grow with the journal (`JournalOptions.prewritten_bytes`): a file of the size that is due is made first, and one
that has become too small removed then, so that on a disk without room for the larger the smaller stay.

(On file systems that write elsewhere on every change, btrfs and zfs among them, prewriting reserves nothing: there a
full disk shows on the batch itself, which then waits.)
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import threading
from bisect import bisect_left, insort
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from acquit.store.disk import NotOpened, OpenMode, write_all
from acquit.store.folder import PART, ZEROS, Folder

STEP_BYTES: Final = 1 << 20
"""Bytes that are written before they are synced: all of a file at once would hold up the batches of that time, by a
tenth of a second."""
PAUSE_S: Final = 0.003
"""Seconds between two steps. A fast disk takes a third of that for a step: three of four batches meet none."""


def which(sizes: Sequence[int], needed_bytes: int) -> int:
    """Return the index of the file that is used for so much: the smallest that has room, or else the largest.

    `sizes` ascend, and there is at least one.
    """
    return min(bisect_left(sizes, needed_bytes), len(sizes) - 1)


class Reserve:
    """The prewritten files of one journal. Filled by the chore thread, used by the batch thread."""

    def __init__(self, folder: Folder, size_bytes_max: int) -> None:
        self._folder = folder
        self._size_bytes_max = size_bytes_max
        self._lock = threading.Lock()
        self._files: list[tuple[int, Path]] = []
        """Smallest first. Under the lock."""
        self.disk_full = False
        """The last attempt to get room failed. Read by the loop."""
        self.missing = False
        """The last attempt to make a file failed, for want of room or of what opening one takes. Read by the loop."""

    @property
    def sizes(self) -> list[int]:
        """Bytes of each file, ascending. Of any thread."""
        with self._lock:
            return [size for size, _ in self._files]

    def has(self, count: int, size_bytes: int) -> bool:
        """Return True if there are so many files of no less than this size. On any thread."""
        return sum(size >= size_bytes for size in self.sizes) >= count

    def adopt(self) -> None:
        """Take over what an earlier process prewrote. Files larger than a segment are removed. Raises OSError."""
        folder = self._folder
        for name in folder.disk.names(folder.journal):
            if name.endswith(ZEROS):
                path = folder.journal / name
                file = folder.disk.open(path, OpenMode.READ)
                size = file.size()
                file.close()
                if size <= self._size_bytes_max:
                    self._add(size, path)
                else:
                    folder.disk.remove(path)

    def _add(self, size_bytes: int, path: Path) -> None:
        with self._lock:
            insort(self._files, (size_bytes, path))

    def take(self, needed_bytes: int = 0) -> Path | None:
        """Return the file for so much, as `which` says, or None when there is none."""
        with self._lock:
            if not self._files:
                return None
            return self._files.pop(which([size for size, _ in self._files], needed_bytes))[1]

    def give_way(self) -> bool:
        """Remove one file, the smallest, for what needs its room now. False when there is none. Raises OSError."""
        path = self.take()
        if path is None:
            return False
        self._folder.disk.remove(path)
        return True

    def prewrite(self, size_bytes: int, count: int) -> None:
        """Make one more, and remove the smallest if it is smaller and that makes more than so many.

        It takes its time where no more than one is missing. Raises OSError, leaving nothing behind; `disk_full` says
        how it went.
        """
        self._add(size_bytes, self.make(size_bytes, pause_s=PAUSE_S if len(self.sizes) >= count - 1 else 0.0))
        sizes = self.sizes
        if len(sizes) > count and sizes[0] < size_bytes:
            self.give_way()

    def make(self, size_bytes: int, *, pause_s: float = 0.0) -> Path:
        """Prewrite a file and give it to the caller, with so many seconds between two steps. Raises OSError as
        `prewrite`."""
        folder = self._folder
        path = folder.journal / f"{secrets.token_hex(4)}{ZEROS}"
        part = path.with_suffix(PART)
        try:
            free = folder.disk.free_bytes(folder.journal)
            if free is not None and free < size_bytes:  # to find out by writing would fill the disk for all others
                full = os.strerror(errno.ENOSPC)
                raise OSError(errno.ENOSPC, f"{full} for a segment of {size_bytes:,} bytes: {free:,} are free")
            file = folder.disk.open(part, OpenMode.WRITE)
            try:
                for offset in range(0, size_bytes, STEP_BYTES):
                    if offset and pause_s:
                        folder.disk.pause(pause_s)
                    write_all(file, bytes(min(STEP_BYTES, size_bytes - offset)), offset)
                    file.sync()
            finally:
                file.close()
            folder.disk.rename(part, path)
            folder.disk.sync_folder(folder.journal)
        except OSError as error:
            self.missing = True
            self.disk_full = self.disk_full or not isinstance(error, NotOpened)
            for left in (part, path):
                with contextlib.suppress(OSError):
                    folder.disk.remove(left)
            raise
        self.disk_full = self.missing = False
        return path
