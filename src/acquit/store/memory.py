"""A disk in memory: the journal's own code over it is a journal that forgets everything with the process.

For tests, and for whoever wants a broker without a folder. Paths are only names; there is one process, so the lock is
always granted.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from acquit.store.disk import Disk, DiskFile, OpenMode


class MemoryFile:
    """Open file of a disk in memory; all that are open on one path share its content."""

    def __init__(self, content: bytearray) -> None:
        self.content = content

    def read(self, length: int, offset: int) -> bytes:
        return bytes(self.content[offset : offset + length])

    def write(self, data: bytes, offset: int) -> int:
        if offset > len(self.content):
            self.content.extend(bytes(offset - len(self.content)))
        self.content[offset : offset + len(data)] = data
        return len(data)

    def sync(self) -> None:
        """Do nothing: the content is as durable as it will ever be."""

    def truncate(self, size_bytes: int) -> None:
        missing = size_bytes - len(self.content)
        if missing > 0:
            self.content.extend(bytes(missing))
        else:
            del self.content[size_bytes:]

    def size(self) -> int:
        return len(self.content)

    def close(self) -> None:
        """Do nothing: a file has nothing to give back."""


class MemoryDisk:
    """See `acquit.store.disk.Disk`."""

    def __init__(self) -> None:
        self.files: dict[Path, bytearray] = {}

    def open(self, path: Path, mode: OpenMode) -> DiskFile:
        content = self.files.get(path)
        if content is None:
            if mode is OpenMode.READ:
                raise FileNotFoundError(2, "No such file", str(path))
            content = self.files[path] = bytearray()
        return MemoryFile(content)

    def names(self, folder: Path) -> list[str]:
        return sorted(path.name for path in self.files if path.parent == folder)

    def make_folder(self, folder: Path) -> None:
        """Folders need not exist."""

    def rename(self, old: Path, new: Path) -> None:
        if old not in self.files:
            raise FileNotFoundError(2, "No such file", str(old))
        self.files[new] = self.files.pop(old)

    def remove(self, path: Path) -> None:
        self.files.pop(path, None)

    def sync_folder(self, folder: Path) -> None:
        """Names are as durable as they will ever be."""

    def free_bytes(self, folder: Path) -> int | None:
        """Return None: how much memory there is shows when it is taken."""
        return None

    def pause(self, seconds: float) -> None:
        """Do nothing: nobody else waits for memory."""

    def lock(self, path: Path, text: str) -> contextlib.AbstractContextManager[Disk]:
        return contextlib.nullcontext(self)

    def check_place(self) -> None:
        """Do nothing: nobody can move it."""
