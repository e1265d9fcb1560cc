"""Archived segments as the broker's own chores read them: what fails there costs the audit, and not the broker.

The broker needs nothing that is in `archive/`. So whatever a chore reads there it reads with an `ArchiveReader`, inside
a block of `sparing`: where the segment is damaged, the disk does not give it, or somebody removed it, the block ends,
the log says so once, and the chore goes on with what it has. `ledger verify` names the place.

What a chore writes, renames or syncs there raises OSError, as everywhere, and passes: a disk that does not take what
it is given is no place for a journal either. So do the errors that say nothing of the file: see
`acquit.store.scan.unreadable`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from acquit.errors import StoreCorrupt, StoreVersionUnsupported
from acquit.store.disk import OpenMode
from acquit.store.folder import Folder
from acquit.store.interface import SegmentInfo
from acquit.store.record import RecordMalformed
from acquit.store.scan import SegmentReader, unreadable
from acquit.store.segment import HEADER_BYTES, SEAL_HEAD_BYTES, Seal, SegmentHeader, decode_seal, decode_seal_head

logger = logging.getLogger("acquit.broker.journal")

_DAMAGE: Final = (StoreCorrupt, StoreVersionUnsupported, RecordMalformed)


class ArchiveReader:
    """Reads archived segments, on the chore thread. Its methods raise StoreCorrupt for what is damaged, unreadable or
    gone, and StoreVersionUnsupported: to be called inside `sparing`."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._reported: set[int] = set()

    @contextlib.contextmanager
    def sparing(self, number: int) -> Iterator[None]:
        """End the block where segment `number` proves damaged, and log it, once for each segment."""
        try:
            yield
        except _DAMAGE as error:
            if number not in self._reported:
                self._reported.add(number)
                logger.warning(
                    "a segment of the archive is damaged: the broker goes on without it",
                    extra={"segment": number, "reason": str(error)},
                )

    def forget(self, number: int) -> None:
        """Take note that the segment was deleted."""
        self._reported.discard(number)

    def segment(self, number: int) -> SegmentReader:
        """Open the whole segment, hashing."""
        path = self._folder.segment(number, archived=True)
        try:
            return SegmentReader(self._folder.disk, path, hashing=True, unreadable_is_damage=True)
        except FileNotFoundError:
            raise _gone(path) from None

    def header(self, number: int) -> SegmentHeader:
        """Read its header."""
        path = self._folder.segment(number, archived=True)
        return SegmentHeader.decode(self._read(path, 0, HEADER_BYTES), str(path))

    def seal(self, info: SegmentInfo) -> Seal:
        """Read its seal."""
        path = self._folder.segment(info.number, archived=True)
        offset = HEADER_BYTES + info.end - info.base
        seal = decode_seal(self._seal_bytes(path, offset))
        if seal is None:
            raise StoreCorrupt("the seal does not match its checksum", path=str(path), offset=offset)
        return seal

    def ends(self, info: SegmentInfo) -> bytes:
        """Read its first page and its seal, as they are."""
        path = self._folder.segment(info.number, archived=True)
        return self._read(path, 0, HEADER_BYTES) + self._seal_bytes(path, HEADER_BYTES + info.end - info.base)

    def _seal_bytes(self, path: Path, offset: int) -> bytes:
        """The seal that begins there; nothing where none does."""
        head = decode_seal_head(self._read(path, offset, SEAL_HEAD_BYTES))
        return self._read(path, offset, head.length) if head is not None else b""

    def _read(self, path: Path, offset: int, length: int) -> bytes:
        try:
            file = self._folder.disk.open(path, OpenMode.READ)
            try:
                return file.read(length, offset)
            finally:
                file.close()
        except FileNotFoundError:
            raise _gone(path) from None
        except OSError as error:
            raise unreadable(error, str(path), offset) from error


def _gone(path: Path) -> StoreCorrupt:
    return StoreCorrupt("somebody removed it", path=str(path), offset=0)


__all__ = ["ArchiveReader"]
