"""Prewritten files, waiting to become segments.

Writing into blocks that hold zeros already is a third faster to sync than growing a file, because only data changes
and no metadata; and it cannot run out of room. So segments are prewritten ahead of time on the chore thread, and some
more of them are kept as the reserve from which outcomes and checkpoints live when the disk is full.

(On file systems that write elsewhere on every change, btrfs and zfs among them, prewriting reserves nothing: there a
full disk shows on the batch itself, which then waits.)
"""

from __future__ import annotations

import contextlib
import secrets
from collections import deque
from pathlib import Path
from typing import Final

from acquit.store.disk import Mode, write_all
from acquit.store.folder import PART, ZEROS, Folder

_STEP_BYTES: Final = 1 << 20


class Reserve:
    """The prewritten files of one journal. Filled by the chore thread, used by the batch thread."""

    def __init__(self, folder: Folder, segment_bytes: int) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._files: deque[Path] = deque()
        self.disk_full = False
        """The last attempt to get room failed. Read by the loop."""

    def __len__(self) -> int:
        return len(self._files)

    @property
    def room_bytes(self) -> int:
        return len(self._files) * self._segment_bytes

    def adopt(self) -> None:
        """Take over what an earlier process prewrote. Files of another size are removed. Raises OSError."""
        folder = self._folder
        for name in folder.disk.names(folder.journal):
            if name.endswith(ZEROS):
                path = folder.journal / name
                file = folder.disk.open(path, Mode.READ)
                size = file.size()
                file.close()
                if size == self._segment_bytes:
                    self._files.append(path)
                else:
                    folder.disk.remove(path)

    def take(self) -> Path | None:
        """One file, or None when there is none."""
        try:
            return self._files.popleft()
        except IndexError:
            return None

    def prewrite(self) -> None:
        """Make one more. Raises OSError, leaving nothing behind; `disk_full` says how it went."""
        self._files.append(self.make())

    def make(self) -> Path:
        """Prewrite a file and give it to the caller. Raises OSError as `prewrite`."""
        folder = self._folder
        path = folder.journal / f"{secrets.token_hex(4)}{ZEROS}"
        part = path.with_suffix(PART)
        try:
            file = folder.disk.open(part, Mode.WRITE)
            try:
                for offset in range(0, self._segment_bytes, _STEP_BYTES):
                    write_all(file, bytes(min(_STEP_BYTES, self._segment_bytes - offset)), offset)
                file.sync()
            finally:
                file.close()
            folder.disk.rename(part, path)
            folder.disk.sync_folder(folder.journal)
        except OSError:
            self.disk_full = True
            with contextlib.suppress(OSError):
                folder.disk.remove(part)
            raise
        self.disk_full = False
        return path
