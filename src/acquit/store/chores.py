"""Housekeeping: the slow work beside the batches, one piece at a time on the chore thread.

The loop decides what is due (`acquit.store.housekeeper`, from what it knows), a chore does it on its thread, and the
loop takes note of what the chore's attributes then say. Everything here can be done again after a crash: a file is
prewritten whole or removed, a segment is in one folder or the other, a side file is complete or absent. A full disk
leaves a chore undone (`complete` stays False) and is no error.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from acquit.errors import StoreCorrupt, StoreError, StoreFull
from acquit.store.archive import ArchiveReader
from acquit.store.disk import NotOpened, OpenMode, store_error, write_all
from acquit.store.folder import EVENTS, PART, SEGMENT, STUB, Folder
from acquit.store.interface import EVENT_BYTES, Erasing, SegmentInfo
from acquit.store.record import RecordMalformed, erase_payloads, split_events
from acquit.store.reserve import STEP_BYTES, Reserve
from acquit.store.scan import SegmentReader
from acquit.store.segment import (
    EVENTS_HEADER_BYTES,
    HEADER_BYTES,
    NO_HASH,
    DeletedSegment,
    ErasedSegment,
    EventsHeader,
    SegmentHeader,
)
from acquit.store.writer import Sealed


@contextlib.contextmanager
def _room_permitting(path: Path) -> Iterator[None]:
    """Ends the block at a full disk; raises StoreFailed for other errors of the operating system."""
    try:
        yield
    except StoreFull:
        pass
    except OSError as error:
        ours = store_error(error, str(path))
        if not isinstance(ours, StoreFull):
            raise ours from error


class Prewrite:
    """Chore that prewrites one more file, of so many; how it went is in `Reserve.disk_full`."""

    def __init__(self, folder: Folder, reserve: Reserve, size_bytes: int, count: int) -> None:
        self._folder = folder
        self._reserve = reserve
        self._size_bytes = size_bytes
        self._count = count

    def run(self) -> None:
        with _room_permitting(self._folder.journal):
            self._reserve.prewrite(self._size_bytes, self._count)


class Archive:
    """Move a segment that left the recovery set, and its side file, to the archive."""

    def __init__(self, folder: Folder, number: int) -> None:
        self._folder = folder
        self.number = number
        self.complete = False

    def run(self) -> None:
        folder = self._folder
        with _room_permitting(folder.archive):
            there = set(folder.disk.names(folder.journal))
            # The segment last: while it is in the journal, this is done again.
            for source in (folder.segment(self.number, suffix=EVENTS), folder.segment(self.number)):
                if source.name in there:
                    folder.disk.rename(source, folder.archive / source.name)
            # The new names first: no crash may leave neither.
            folder.disk.sync_folder(folder.archive)
            folder.disk.sync_folder(folder.journal)
            self.complete = True


class FinishEvents:
    """Complete the side file of a closed segment: the writer's own part, or built again from the segment.

    One of the archive that is damaged goes without.
    """

    def __init__(self, folder: Folder, archive: ArchiveReader, store: UUID, info: SegmentInfo, sealed: Sealed) -> None:
        self._folder = folder
        self._archive = archive
        self._store = store
        self._info = info
        self.sealed = sealed
        self.complete = False

    def run(self) -> None:
        info = self._info
        target = self._folder.segment(info.number, archived=info.archived, suffix=EVENTS)
        part = self._folder.segment(info.number, archived=info.archived, suffix=EVENTS + PART)
        with _room_permitting(target):
            with self._archive.sparing(info.number) if info.archived else contextlib.nullcontext():
                try:
                    self._write(part)
                    self._folder.disk.rename(part, target)
                    self._folder.disk.sync_folder(target.parent)
                except (OSError, StoreError, RecordMalformed):
                    with contextlib.suppress(OSError):
                        self._folder.disk.remove(part)
                    raise
            self.complete = True

    def _write(self, part: Path) -> None:
        file = self._folder.disk.open(part, OpenMode.WRITE)
        try:
            count, sha256 = self.sealed.events, self.sealed.sha256
            if count < 0:
                events, sha256 = self._read_events()
                count = len(events) // EVENT_BYTES
                file.truncate(0)
                write_all(file, events, EVENTS_HEADER_BYTES)
            header = EventsHeader(self._store, self._info.number, count, sha256, self._info.base)
            write_all(file, header.encode(), 0)
            file.sync()
        finally:
            file.close()

    def _read_events(self) -> tuple[bytes, bytes]:
        """All events of the segment, and the SHA-256 of its valid bytes."""
        with self._segment() as segment:
            parts = [split_events(data, head.records)[0] for head, data in segment.batches()]
            if segment.seal is None or segment.sha256 is None:
                raise segment.corrupt("a closed segment without its seal")
            return b"".join(parts), segment.chained_sha256

    def _segment(self) -> SegmentReader:
        number = self._info.number
        if self._info.archived:
            return self._archive.segment(number)
        return SegmentReader(self._folder.disk, self._folder.segment(number), hashing=True)


class Erase:
    """Write an archived segment again without its bodies, beside it; what the record of that says is in `erased`.

    None where the segment is `damaged` or gone, which is for `ledger verify` to report, or where the disk is full.
    """

    def __init__(self, folder: Folder, archive: ArchiveReader, info: SegmentInfo, erasing: Erasing) -> None:
        self._disk = folder.disk
        self._archive = archive
        self._part = folder.segment(info.number, archived=True, suffix=SEGMENT + PART)
        self._erasing = erasing
        self.number = info.number
        self.erased: ErasedSegment | None = None
        self.damaged = False

    def run(self) -> None:
        with _room_permitting(self._part):
            try:
                with self._archive.sparing(self.number):
                    self.erased = self._write()
            finally:
                if self.erased is None:
                    with contextlib.suppress(OSError):
                        self._disk.remove(self._part)
            self.damaged = self.erased is None

    def _write(self) -> ErasedSegment:
        content = hashlib.sha256()
        with self._archive.segment(self.number) as segment:
            file = self._disk.open(self._part, OpenMode.WRITE)
            try:
                end = synced = HEADER_BYTES
                for head, data in segment.batches():
                    kept = erase_payloads(head, data, self._erasing)
                    content.update(kept)
                    write_all(file, kept, end)
                    end += head.length
                    if end - synced >= STEP_BYTES:
                        file.sync()
                        synced = end
                if segment.seal is None:
                    raise segment.corrupt("a closed segment without its seal")
                seal = segment.raw(end, segment.offset - end)
                content.update(seal)
                write_all(file, seal, end)
                hashes = segment.chained_sha256, content.digest()
                header = replace(segment.header, original_sha256=hashes[0], content_sha256=hashes[1])
                write_all(file, header.encode(), 0)
                file.sync()
            finally:
                file.close()
        return ErasedSegment(self.number, *hashes)


class Replace:
    """Put the segment without its bodies, whose erasure is on record, in the place of the one that has them.

    Where that cannot be done (`complete` stays False), all of it is done again, from `Erase` on.
    """

    def __init__(self, folder: Folder, number: int) -> None:
        self._folder = folder
        self.number = number
        self.complete = False

    def run(self) -> None:
        folder = self._folder
        with _room_permitting(folder.archive), contextlib.suppress(FileNotFoundError):
            part = folder.segment(self.number, archived=True, suffix=SEGMENT + PART)
            folder.disk.rename(part, folder.segment(self.number, archived=True))
            folder.disk.sync_folder(folder.archive)
            self.complete = True


class ReadDeletion:
    """Read what the record of a deletion keeps of the oldest archived segment, as far as it can be read."""

    def __init__(self, folder: Folder, archive: ArchiveReader, info: SegmentInfo, successor: SegmentInfo) -> None:
        self._folder = folder
        self._archive = archive
        self._info = info
        self._successor = successor
        self.number = info.number
        self.deleted: DeletedSegment | None = None
        self.summary = b""

    def run(self) -> None:
        valid_bytes, sha256, created_us = self._info.file_bytes, NO_HASH, 0
        # A damaged or incomplete archive is for `ledger verify` to report; here it is only cleared away.
        with self._archive.sparing(self.number):
            created_us = self._archive.header(self.number).created_us
        chain = self._chain()
        if chain is not None and chain.previous_number == self.number:
            valid_bytes, sha256 = chain.previous_length, chain.previous_sha256
        with self._archive.sparing(self.number):
            self.summary = self._archive.seal(self._info).summary
        self.deleted = DeletedSegment(self.number, valid_bytes, sha256, created_us, self._info.sealed_us)

    def _chain(self) -> SegmentHeader | None:
        """The successor's header. None where it is damaged; one of `journal/` that cannot be read raises StoreFailed,
        as the broker needs it."""
        after = self._successor
        if after.archived:
            with self._archive.sparing(after.number):
                return self._archive.header(after.number)
        else:
            with contextlib.suppress(StoreCorrupt):
                return read_header(self._folder, self._folder.segment(after.number))
        return None


class Delete:
    """Remove an archived segment whose deletion is on record; header and seal stay as a stub, if they can be read."""

    def __init__(self, folder: Folder, archive: ArchiveReader, info: SegmentInfo, stubs_max: int) -> None:
        self._folder = folder
        self._archive = archive
        self._info = info
        self._stubs_max = stubs_max
        self.number = info.number
        self.complete = False

    def run(self) -> None:
        folder, number = self._folder, self.number
        disk = folder.disk
        with _room_permitting(folder.archive), self._archive.sparing(number):
            # On a full disk there is no stub: number, hash and totals are in the record of the deletion.
            try:
                self._leave_stub(folder.segment(number, archived=True, suffix=STUB))
            except (NotOpened, StoreFull):
                return  # there will be a descriptor
        with _room_permitting(folder.archive):
            for suffix in (EVENTS, SEGMENT + PART, SEGMENT):
                disk.remove(folder.segment(number, archived=True, suffix=suffix))
            stubs = folder.numbers(archived=True, suffix=STUB)
            for old in stubs[: max(0, len(stubs) - self._stubs_max)]:
                disk.remove(folder.segment(old, archived=True, suffix=STUB))
            disk.sync_folder(folder.archive)
            self.complete = True

    def _leave_stub(self, stub: Path) -> None:
        disk = self._folder.disk
        names = disk.names(stub.parent)
        if stub.name in names or stub.with_suffix(SEGMENT).name not in names:
            return  # an earlier try has left it, or left none and removed the segment
        ends = self._archive.ends(self._info)
        part = stub.with_suffix(STUB + PART)
        try:
            file = disk.open(part, OpenMode.WRITE)
            try:
                write_all(file, ends, 0)
                file.sync()
            finally:
                file.close()
            disk.rename(part, stub)
            disk.sync_folder(stub.parent)
        except OSError:
            with contextlib.suppress(OSError):
                disk.remove(part)
            raise


def read_header(folder: Folder, path: Path) -> SegmentHeader:
    """The header of one segment. Raises StoreCorrupt, StoreVersionUnsupported, StoreFailed."""
    try:
        file = folder.disk.open(path, OpenMode.READ)
        try:
            return SegmentHeader.decode(file.read(HEADER_BYTES, 0), str(path))
        finally:
            file.close()
    except OSError as error:
        raise store_error(error, str(path)) from error
