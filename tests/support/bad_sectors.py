"""Sectors of a file on the real disk that cannot be read any more."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from acquit.store.disk import PosixFile


def lose_sectors(patched: pytest.MonkeyPatch, path: Path, start: int = 0, stop: int = sys.maxsize) -> None:
    """Let this process fail with EIO where it reads these bytes of a file, all of them unless told."""
    lost, read_whole = path.stat(), PosixFile.read

    def read(file: PosixFile, length: int, offset: int) -> bytes:
        if offset < stop and start < offset + length and os.path.samestat(os.fstat(file._fd), lost):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read_whole(file, length, offset)

    patched.setattr(PosixFile, "read", read)
