"""Copying a data folder, also while its broker is running, and saying that a folder is such a copy.

A journal is only ever appended to, so a copy of a prefix of it is what a crash at that moment would have left: that is
a backup. Closed segments do not change and are copied first, oldest first; the newest comes last, as far as its batches
are whole. A segment may leave for the archive while this goes on, and is then read there; one that is deleted there
before it was copied makes the copy begin again.

The archive, where it is asked for, is copied before the journal, newest first: retention deletes the oldest. What it
deletes meanwhile is taken by its stub, or by nothing where there is none. The journal is listed after that: a deletion
is on record before it is done, so all these records are in the copy.

**The mark.** A copy that is put to use is another history than its original's: the original may have gone on after the
copy was taken, given numbers to messages that the copy gives to others, and agreed with its peers on deliveries that
the copy has never heard of. So a copy is marked (``backup.json``), and whoever opens a marked folder begins a new
epoch: sequences go on far above all that the original can have used, and the broker gets another container-id, so that
a peer takes no link for one of the original. Then the mark is renamed to ``restored.json``.

**What is left behind.** A copy without the archive has only what recovery reads. The mark says up to which segment
that is so, and later copies of that copy say it, too: to verify a journal is to tell what was never taken along from
what somebody removed.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from acquit.errors import NOT_WHAT_WAS_WRITTEN, StoreCorrupt, StoreError
from acquit.store.disk import Disk, OpenMode, PosixDisk, folder_error, store_error, write_all
from acquit.store.folder import STUB, Folder, StoreIdentity
from acquit.store.reading import FolderContents, FolderReader
from acquit.store.record import BatchHead, StoreKind, walk
from acquit.store.recovery import Succession, missing
from acquit.store.scan import SegmentReader, unreadable
from acquit.store.segment import DeletedSegment, decode_left

MARK: Final = "backup.json"
USED_MARK: Final = "restored.json"
EPOCH_GAP: Final = 1 << 36
"""Sequences that a restored copy leaves out at least: more than its original can have used after the copy was taken."""
ATTEMPTS: Final = 5
"""Attempts at a copy: what is there of the archive stays, and all else is begun again when a segment is gone."""
_CHUNK: Final = 8 << 20
_MARK_BYTES_MAX: Final = 65536
_LEFT_HEAD: Final = bytes((StoreKind.LEFT, 1))
_DELETED_HEAD: Final = bytes((StoreKind.DELETED, 1))
"""Kind and version, as a record has them."""


@dataclass(frozen=True, slots=True)
class BackupReport:
    """Report of what a backup copied."""

    store: uuid.UUID
    segments: int
    archived: int
    """Segments and stubs of the archive."""
    copied_bytes: int
    newest: int
    """Number of the newest segment."""
    newest_bytes: int
    """Valid bytes of it."""
    left_behind: int
    """The last segment that the copy was made without, as those before it; 0 where it has all that its source has."""


def back_up(
    source: Path,
    target: Path,
    *,
    archive: bool = False,
    others: tuple[str, ...] = (),
    disk: Disk | None = None,
    target_disk: Disk | None = None,
    clock_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    progress: Callable[[int, int], None] | None = None,
) -> BackupReport:
    """Copy the data folder `source` to `target`, which must be empty or not there. On any thread; blocks.

    `archive`: with the segments that only the audit needs; `others`: names of further files to copy where they are
    there. `progress` is called with segments done and in all.

    Raises StoreMissing where `source` is no data folder, StoreError where `target` is not empty, or inside of `source`,
    StoreCorrupt for a segment of `source` that is damaged or missing, of the archive as of the journal, for one of the
    journal that is not the one of its place, and for any file that cannot be read; StoreFull, StoreFailed. What was
    begun in `target` is not marked, and no broker opens it.
    """
    disk = disk if disk is not None else PosixDisk()
    copy = _Copy(FolderReader(source, disk), Folder(target, target_disk if target_disk is not None else disk))
    try:
        if there := copy.target.disk.names(target):
            raise StoreError(_not_empty(copy.target, there))
        if copy.target.disk is disk:
            _check_outside(copy.reader.folder, target)
        copy.reader.contents()  # a source that is none leaves no folder behind
        copy.target.make()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                report = copy.run(archive=archive, progress=progress)
                break
            except KeyError as gone:
                copy.empty_journal()
                if attempt == ATTEMPTS:
                    raise StoreError(f"{source}: {gone.args[0]}, and again at each of {ATTEMPTS} attempts") from None
        for name in others:
            with contextlib.suppress(FileNotFoundError):
                copy.file(source / name, target / name)
        for folder in (copy.target.journal, copy.target.archive):
            copy.target.disk.sync_folder(folder)
        _write_mark(copy.target, report.store, report.newest, report.left_behind, clock_us())
        # The identity last: without it nobody takes the folder for a broker's. By then all else has its name for good.
        copy.target.write_identity(copy.reader.contents().identity)
    except OSError as error:
        raise folder_error(error, target) from error
    return report


def _not_empty(target: Folder, names: Collection[str]) -> str:
    """Return what is wrong with a target in which these names are."""
    said = f"{target.path} is not empty"
    if target.journal.name in names and target.identity_path.name not in names:
        return f"{said}: it looks like a backup that was not finished; remove it, or take another folder"
    return f"{said}: a backup is made into a folder of its own"


def _check_outside(source: Folder, target: Path) -> None:
    """Raise StoreError where `target` is inside of `source`, or of what its links lead to: the broker works there."""
    resolved = target.resolve()
    for path in (source.path, source.journal, source.archive):
        if resolved.is_relative_to(path.resolve()):
            raise StoreError(f"{target} is inside of {path}: a backup is made into a folder of its own")


@contextlib.contextmanager
def _reading(source: Path, offset: int = 0) -> Iterator[None]:
    """Make errors of the source those that `unreadable` says, so that they are not taken for the copy's."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(error, str(source), offset) from error


class _Needed:
    """The segments that recovery reads, as they are copied: a copy that lacks one of them is of no use."""

    def __init__(self, contents: FolderContents) -> None:
        self._store = contents.identity.store
        self._first = contents.journal[0]
        self._left_through = 0
        self._places = Succession()

    def check(self, segment: SegmentReader, number: int) -> None:
        """Raise StoreCorrupt where the next one is not that which follows the one before."""
        self._places.check(segment, number, self._store)

    def note(self, head: BatchHead, data: bytes) -> None:
        """Take note of what a batch says of segments that are not needed any more."""
        if _LEFT_HEAD in data:
            for record in walk(head, data):
                if record.kind == StoreKind.LEFT:
                    self._left_through = max(self._left_through, decode_left(record.meta))

    def passed(self, segment: SegmentReader) -> None:
        """Take note that it was read to its end."""
        self._places.passed(segment)

    def check_first(self, folder: Folder) -> None:
        """Raise StoreCorrupt where the one before the first is needed, too."""
        if self._first > max(1, self._left_through + 1):
            raise missing(folder.segment(self._first), self._first - 1)


class _Copy:
    """Copy of a data folder while it is made."""

    def __init__(self, reader: FolderReader, target: Folder) -> None:
        self.reader = reader
        self.target = target
        self._aside: dict[int, int] = {}
        """Bytes of each segment and stub of the archive that was copied."""
        self._deleted_through = 0
        """The last segment that retention deleted, as those before it, by what was copied."""

    def run(self, *, archive: bool, progress: Callable[[int, int], None] | None) -> BackupReport:
        """Copy what is not copied yet. Raises KeyError where a segment is gone."""
        contents = self.reader.journal_contents()
        if archive:
            aside = {*contents.stubs, *contents.archive} - self._aside.keys()
            steps = len(self._aside) + len(aside) + len(contents.journal)
            for number in sorted(aside, reverse=True):
                self._set_aside(number)
                if progress is not None:
                    progress(len(self._aside), steps)
            contents = self.reader.journal_contents()
            for number in contents.archive:
                if number not in self._aside:
                    self._aside[number] = self._segment(number, archived=True)
            for number in contents.stubs:
                if number not in self._aside:
                    self._set_aside(number)
        steps = len(self._aside) + len(contents.journal)
        newest, journal_bytes, newest_bytes = contents.journal[-1], 0, 0
        needed = _Needed(contents)
        for done, number in enumerate(contents.journal, start=len(self._aside) + 1):
            newest_bytes = self._segment(number, newest=number == newest, needed=needed)
            journal_bytes += newest_bytes
            if progress is not None:
                progress(done, steps)
        needed.check_first(self.reader.folder)
        if archive:
            self._check_archive(contents.journal[0])
        return BackupReport(
            contents.identity.store,
            len(contents.journal),
            len(self._aside),
            sum(self._aside.values()) + journal_bytes,
            newest,
            newest_bytes,
            _left(self.reader.folder, {*self._aside, *contents.journal}) if archive else contents.journal[0] - 1,
        )

    def _check_archive(self, end: int) -> None:
        """Raise StoreCorrupt where a segment before `end` was not there, and neither retention nor the copy that the
        source is says why. The records of deletions are in the journal, which was copied after the archive. Where the
        source's mark is damaged nobody knows: `ledger verify` says what is missing then."""
        folder = self.reader.folder
        try:
            left = left_behind(folder)
        except StoreCorrupt:
            return
        for number in range(max(self._deleted_through, left) + 1, end):
            if number not in self._aside:
                path = folder.segment(number, archived=True)
                raise StoreCorrupt("missing, and no record says that retention deleted it", path=str(path), offset=0)

    def _note_deleted(self, head: BatchHead, data: bytes) -> None:
        if _DELETED_HEAD in data:
            for record in walk(head, data):
                if record.kind == StoreKind.DELETED:
                    self._deleted_through = max(self._deleted_through, DeletedSegment.decode(record.meta).number)

    def _set_aside(self, number: int) -> None:
        """Copy a segment of the archive, or else its stub, if there is one."""
        try:
            self._aside[number] = self._segment(number, archived=True)
        except KeyError:
            path, copy = (one.segment(number, archived=True, suffix=STUB) for one in (self.reader.folder, self.target))
            with contextlib.suppress(FileNotFoundError):
                self._aside[number] = self.file(path, copy)

    def _segment(
        self, number: int, *, newest: bool = False, archived: bool = False, needed: _Needed | None = None
    ) -> int:
        """Copy what is valid of a segment, wherever it is by now, to the copy's journal or archive; how many bytes.

        Raises StoreCorrupt where it is damaged, or one of those that are `needed` and not the one of its place. Bodies
        that were erased are no damage: their checksums are those of the zeros in their place.
        """
        with self.reader.open(number) as segment:
            if needed is not None:
                needed.check(segment, number)
            for head, data in segment.batches():
                self._note_deleted(head, data)
                if needed is not None:
                    needed.note(head, data)
            segment.check_end(newest=newest)
            if needed is not None:
                needed.passed(segment)
            self._bytes(segment, self.target.segment(number, archived=archived))
            return segment.offset

    def _bytes(self, segment: SegmentReader, path: Path) -> None:
        file = self.target.disk.open(path, OpenMode.WRITE)
        try:
            for offset in range(0, segment.offset, _CHUNK):
                length = min(_CHUNK, segment.offset - offset)
                write_all(file, segment.raw(offset, length), offset)
            file.sync()
        finally:
            file.close()

    def file(self, source: Path, target: Path) -> int:
        """Copy any other file, and return its size. Raises FileNotFoundError; StoreCorrupt where it cannot be read."""
        disk = self.reader.folder.disk
        with _reading(source):
            found = disk.open(source, OpenMode.READ)
        try:
            with _reading(source):
                size = found.size()
            file = self.target.disk.open(target, OpenMode.WRITE)
            try:
                for offset in range(0, size, _CHUNK):
                    with _reading(source, offset):
                        chunk = found.read(min(_CHUNK, size - offset), offset)
                    write_all(file, chunk, offset)
                file.sync()
            finally:
                file.close()
        finally:
            found.close()
        return size

    def empty_journal(self) -> None:
        """Begin again with what changes."""
        disk = self.target.disk
        for name in disk.names(self.target.journal):
            disk.remove(self.target.journal / name)


# -- the mark ---------------------------------------------------------------------------------------------------------


def is_marked(folder: Folder) -> bool:
    """Return True if the folder is a copy that nobody has used yet."""
    return MARK in folder.disk.names(folder.path)


def mark(path: Path, *, disk: Disk | None = None, clock_us: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
    """Mark a folder that was copied by other means. No broker may have it open: raises StoreLocked; StoreMissing where
    it is no data folder, StoreCorrupt where it has no journal."""
    folder = Folder(path, disk if disk is not None else PosixDisk())
    contents = FolderReader(path, folder.disk).journal_contents()
    try:
        with folder.lock():
            left = _left(folder, {*contents.stubs, *contents.archive, *contents.journal})
            _write_mark(folder, contents.identity.store, max(contents.journal), left, clock_us())
    except OSError as error:
        raise folder_error(error, path / MARK) from error


def left_behind(folder: Folder) -> int:
    """Return the last segment that the copy which this folder is, or was, was made without, as those before it; 0 where
    it is no copy, or was made with all. Raises StoreCorrupt where its mark is not what was written."""
    through = 0
    for name in (MARK, USED_MARK):  # the one becomes the other, perhaps at this moment
        path = folder.path / name
        try:
            file = folder.disk.open(path, OpenMode.READ)
            try:
                told = json.loads(file.read(_MARK_BYTES_MAX, 0)).get("left_behind", 0)
            finally:
                file.close()
            if type(told) is not int:
                raise ValueError(f"left_behind is {told!r}")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unreadable(error, str(path)) from error
        except NOT_WHAT_WAS_WRITTEN as error:
            raise StoreCorrupt(f"not the mark of a copy ({error})", path=str(path), offset=0) from error
        through = max(through, told)
    return through


def _left(folder: Folder, there: Collection[int]) -> int:
    """Return the same, for another mark, of a folder that has these segments and stubs: some may have been brought
    since. Where the mark is damaged, nothing: `ledger verify` says what is missing then."""
    try:
        before = left_behind(folder)
    except StoreCorrupt:
        return 0
    return next((number for number in range(before, 0, -1) if number not in there), 0)


def begin_epoch(folder: Folder, identity: StoreIdentity) -> StoreIdentity:
    """Give the copy an identity of its own, and use its mark up. Called once its first sequence is reserved."""
    renamed = replace(identity, container_id=f"acquit-{uuid.uuid4()}")
    folder.write_identity(renamed)
    try:
        folder.disk.rename(folder.path / MARK, folder.path / USED_MARK)
        folder.disk.sync_folder(folder.path)
    except OSError as error:
        raise store_error(error, str(folder.path / MARK)) from error
    return renamed


def _write_mark(folder: Folder, store: uuid.UUID, newest: int, left: int, taken_us: int) -> None:
    told = {"store": str(store), "taken_us": taken_us, "newest": newest, "left_behind": left}
    folder.write_whole(folder.path / MARK, json.dumps(told).encode() + b"\n")


__all__ = [
    "EPOCH_GAP",
    "MARK",
    "USED_MARK",
    "BackupReport",
    "back_up",
    "begin_epoch",
    "is_marked",
    "left_behind",
    "mark",
]
