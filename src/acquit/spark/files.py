"""Files on a disk or on what is mounted: whole or not at all, and durable under their names.

A name is data of its folder: a file that was synced can be gone after a power cut until its folder was synced too. A
file that others read is written beside its place and then put there, so that nobody sees half of it; what is written
beside bears a nonce, because two hosts may have the same process id, and two threads do.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from uuid import uuid4


def sync(path: Path) -> None:
    """Make a file durable, or the names in a folder. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: Path) -> None:
    """`mkdir -p` that leaves every new name durable in its parent. Raises OSError, NotADirectoryError where a file is
    in the way."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync(path.parent)


def write_whole(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Put a file with `data` in the place of the one that is there, or leave that. Killed, or without power, it leaves
    one or the other, and may leave a hidden file beside it. `mode` is what the process's umask is taken from. Raises
    OSError."""
    beside = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
