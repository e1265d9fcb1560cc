"""Opening a data folder: what the journal says is replayed, its torn tail cut, and a new segment begun.

1. Make the folders, take the lock, read who the store is. A folder written in another format is refused before anything
   in it is touched.
2. Remove files that were being made (`.part`): nothing refers to them.
3. Read every segment of the recovery set, oldest first, each after the one before: numbers without a gap, each header
   naming its predecessor's length, each base where the predecessor ended. All batches go to the `Replay`. Damage in
   a segment that has a successor is StoreCorrupt.
4. The newest one may end without a seal: by a kill, a power loss. What stands behind its last whole batch is a torn
   tail or corruption (`acquit.store.scan` tells them apart). Its seal is written at the cut, and with it how much was
   cut.
5. Begin a new segment: every run has segments of its own, and what a dying kernel may yet write goes to none of them.
6. Finish what the last run had begun: archiving, deleting, side files.

All steps can be repeated: a crash in any of them leaves a folder that the next opening recovers in the same way.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from acquit.errors import StoreCorrupt, StoreError, StoreVersionUnsupported
from acquit.store.catalog import Catalog, RecordReader
from acquit.store.chores import read_header
from acquit.store.disk import Disk, OpenMode, PosixDisk, folder_error, store_error
from acquit.store.folder import EVENTS, SEGMENT, Folder, StoreIdentity
from acquit.store.housekeeper import Housekeeper
from acquit.store.interface import Digest, Erasing, Position, Record, RecordRun, Replay, SegmentInfo
from acquit.store.journal import SegmentedJournal
from acquit.store.options import JournalOptions
from acquit.store.record import StoreKind, records_of, runs
from acquit.store.reserve import Reserve
from acquit.store.scan import SegmentReader
from acquit.store.segment import DeletedSegment, decode_left
from acquit.store.writer import Sealed, SegmentWriter, Tail


@dataclass(slots=True)
class RecoveryReport:
    """Report of what reading the journal found."""

    segments: int = 0
    batches: int = 0
    records: int = 0
    valid_bytes: int = 0
    cut_bytes: int = 0
    """Bytes of a torn tail: written, never synced, dropped."""
    cut_path: str = ""
    cut_offset: int = 0
    cut_reason: str = ""
    sealed: bool = False
    """The newest segment was closed in order."""
    left_through: int = 0
    """Segments up to this one are not needed for recovery."""
    deleted_through: int = 0
    """Segments up to this one were deleted by retention."""


@dataclass(slots=True)
class Succession:
    """Places of segments that are read one after the other: each must be the one that follows the one before."""

    _before: tuple[int, Position, int] | None = None
    """Number, end and valid bytes of the segment before."""

    def check(self, segment: SegmentReader, number: int, store: uuid.UUID) -> None:
        """Check that this is that segment of the store, and the one of its place. Raises StoreCorrupt."""
        header = segment.header
        if header.number != number or header.store != store:
            raise segment.corrupt(f"segment {header.number} of store {header.store}", 0)
        if self._before is None:
            return
        before, end, valid_bytes = self._before
        if number != before + 1:
            raise missing(segment.path, before + 1)
        if header.previous_number != before or header.base != end:
            raise segment.corrupt(f"does not follow segment {before}, which ends at {end}", 0)
        if header.previous_length != valid_bytes:
            raise segment.corrupt(
                f"says that segment {before} had {header.previous_length} bytes; it has {valid_bytes}", 0
            )

    def passed(self, segment: SegmentReader) -> None:
        """Take note of a segment that was read to its end."""
        end = segment.seal.end if segment.seal is not None else segment.position
        self._before = segment.header.number, end, segment.offset


def missing(beside: Path, number: int) -> StoreCorrupt:
    """The error for a segment that is needed, and is not in the folder of another."""
    path = beside.with_name(f"{number:020}{SEGMENT}")
    return StoreCorrupt("this segment is needed and is not there", path=str(path), offset=0)


_LEFT: Final = int(StoreKind.LEFT)
"""The lowest of the store's own kinds."""


@dataclass(slots=True)
class Replayer:
    """Hands segments to a `Replay`, and keeps what the store itself wants to know of them."""

    replay: Replay
    report: RecoveryReport = field(default_factory=RecoveryReport)
    _places: Succession = field(default_factory=Succession)

    def segment(self, segment: SegmentReader, number: int, store: uuid.UUID) -> None:
        """Replay all whole batches of the next segment, which must be this one of this store and follow the one before.

        Raises StoreCorrupt where it does not, and for records that make no sense; StoreVersionUnsupported for what a
        later version of acquit wrote. Whether the segment may end where it
        does is for `SegmentReader.check_end` to say.
        """
        self._places.check(segment, number, store)
        report, replay = self.report, self.replay
        report.segments += 1
        replay.segment(segment.header.number, segment.header.base)
        try:
            for head, data in segment.batches():
                replay.batch(self._noting(runs(head, data)), head.time_us)
                report.batches += 1
                report.records += head.records
            if segment.seal is not None:
                replay.sealed(segment.seal.summary)
        except ValueError as error:
            raise segment.corrupt(str(error)) from error
        except StoreVersionUnsupported as error:
            raise StoreVersionUnsupported(f"{segment.path}, offset {segment.offset}: {error}") from error
        report.valid_bytes += segment.offset
        report.sealed = segment.seal is not None
        self._places.passed(segment)

    def _noting(self, found: Iterator[RecordRun]) -> Iterator[RecordRun]:
        for run in found:
            if run.kind >= _LEFT:
                for record in records_of(run):
                    self._note(record)
            yield run

    def _note(self, record: Record) -> None:
        report = self.report
        if record.kind == StoreKind.LEFT:
            report.left_through = max(report.left_through, decode_left(record.meta))
        elif record.kind == StoreKind.DELETED:
            report.deleted_through = max(report.deleted_through, DeletedSegment.decode(record.meta).number)


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """A journal ready for appending."""

    journal: SegmentedJournal
    identity: StoreIdentity
    report: RecoveryReport
    created: bool
    """The folder was new."""


def _stays(record: Record) -> None:
    """The `Erasing` that erases nothing."""


def open_store(
    path: Path,
    options: JournalOptions,
    replay: Replay,
    digest: Digest,
    *,
    replayed: Callable[[RecoveryReport], None],
    erasing: Erasing = _stays,
    container_id: str = "",
    disk: Disk | None = None,
    clock_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    clock_s: Callable[[], float] = time.monotonic,
) -> OpenedStore:
    """Open, or make, the journal in a data folder. Blocks while it reads.

    `replay` hears everything, then `replayed` is called once, and may raise; only then is anything changed. `digest`
    must by then have seen what the newest segment holds, if that is not sealed: its seal is asked of it first of all.
    `erasing` says what goes of a record when bodies are erased (nothing, unless told). `container_id` names a new
    store; an existing one keeps its own.

    Raises StoreLocked, StoreVersionUnsupported, StoreCorrupt, StoreFull (no room to begin a segment), StoreFailed, or
    StoreError where the folder cannot be used at all. On any error the folder is as it was, or recovers as before.
    """
    disk = disk if disk is not None else PosixDisk()
    folder = Folder(path.absolute(), disk)  # a program may go to another folder meanwhile
    folder.make()
    with contextlib.ExitStack() as stack:
        try:
            folder.disk = stack.enter_context(folder.lock())
            identity = folder.read_identity()
            folder.remove_parts()
            reserve = Reserve(folder, options.segment_bytes)
            reserve.adopt()
        except OSError as error:
            raise folder_error(error, path) from error
        created = identity is None
        if identity is None:
            _refuse_nameless(folder)
            store = uuid.uuid4()
            identity = StoreIdentity(store, container_id or f"acquit-{store}")
        replayer = Replayer(replay)
        catalog = Catalog()
        tail = None if created else _replay_all(folder, identity, replayer, catalog)
        replayed(replayer.report)
        writer = SegmentWriter(folder, options, identity.store, digest, catalog, reserve, clock_us, clock_s)
        stack.callback(writer.close)
        writer.begin(tail)
        if created:
            folder.write_identity(identity)
        reader = RecordReader(folder, catalog, options.open_files_max)
        housekeeper = Housekeeper(folder, options, identity.store, catalog, reader, reserve, writer.finished, erasing)
        _resume_chores(folder, catalog, housekeeper, writer, replayer.report)
        journal = SegmentedJournal(
            options=options,
            writer=writer,
            catalog=catalog,
            reader=reader,
            reserve=reserve,
            housekeeper=housekeeper,
            lock=stack.pop_all(),
            left_through=_left_through(catalog, replayer.report),
            clock_us=clock_us,
            clock_s=clock_s,
        )
    return OpenedStore(journal, identity, replayer.report, created)


def _left_through(catalog: Catalog, report: RecoveryReport) -> int:
    """A segment in the archive has left, whatever else is known."""
    return max([report.left_through, *(info.number for info in catalog.segments if info.archived)])


def _refuse_nameless(folder: Folder) -> None:
    """A folder without an identity must hold no data; a crash while it was made leaves an empty first segment."""
    numbers = folder.numbers()
    if numbers == [1]:
        path = folder.segment(1)
        with SegmentReader(folder.disk, path) as segment:
            if next(segment.batches(), None) is None:
                folder.disk.remove(path)
                return
    if numbers or folder.numbers(archived=True):
        raise StoreCorrupt("the folder holds segments, but not whose", path=str(folder.identity_path), offset=0)


def _replay_all(folder: Folder, identity: StoreIdentity, replayer: Replayer, catalog: Catalog) -> Tail:
    """Step 3: every segment of the recovery set, in order; what is known of the archive besides. Returns the newest."""
    numbers = folder.numbers()
    if not numbers:
        raise StoreCorrupt("no segment is there; this folder had some", path=str(folder.journal), offset=0)
    infos: list[SegmentInfo] = []
    tail: Tail | None = None
    for number in numbers:
        path = folder.segment(number)
        newest = number == numbers[-1]
        try:
            segment = SegmentReader(folder.disk, path, hashing=newest)
        except OSError as error:
            raise store_error(error, str(path)) from error
        with segment:
            header = segment.header
            replayer.segment(segment, number, identity.store)
            cut = segment.seal.cut if segment.seal is not None else segment.check_end(newest=newest)
            if segment.stop is not None:
                report = replayer.report
                report.cut_bytes, report.cut_reason = cut, segment.stop.reason
                report.cut_path, report.cut_offset = str(path), segment.offset
            end = segment.seal.end if segment.seal is not None else segment.position
            sealed_us = segment.seal.sealed_us if segment.seal is not None else 0
            sealed = segment.seal is not None
            infos.append(SegmentInfo(number, header.base, end, segment.offset, sealed, False, sealed_us))
            sha256 = segment.sha256 if segment.sha256 is not None else _NO_SHA256
            tail = Tail(header, path, end, segment.offset, sha256.copy(), sealed, cut)
    assert tail is not None
    if numbers[0] > max(1, replayer.report.left_through + 1):
        raise missing(folder.segment(numbers[0]), numbers[0] - 1)
    catalog.segments = (*_archived(folder, infos[0]), *infos)
    catalog.end = tail.end
    return tail


_NO_SHA256 = hashlib.sha256()


def _archived(folder: Folder, first: SegmentInfo) -> Iterator[SegmentInfo]:
    """Return what retention must know of the archive. Unreadable files are left for `ledger verify` to report."""
    infos: list[SegmentInfo] = []
    following, sealed_us = first, read_header(folder, folder.segment(first.number)).created_us
    for number in reversed(folder.numbers(archived=True)):
        if number >= first.number:
            # In a backup of a running broker a segment may be in both places: the journal's is the one that counts.
            continue
        path = folder.segment(number, archived=True)
        with contextlib.suppress(StoreError, OSError):
            header = read_header(folder, path)
            file = folder.disk.open(path, OpenMode.READ)
            size = file.size()
            file.close()
            # A segment ends where its successor begins, in place and (nearly) in time.
            end = following.base if following.number == number + 1 else _end(folder, path, header.base + size)
            following = SegmentInfo(number, header.base, end, size, True, True, sealed_us, header.erased)
            sealed_us = header.created_us
            infos.append(following)
    return reversed(infos)


def _end(folder: Folder, path: Path, most: int) -> Position:
    """Return where a segment ends whose successor is not there: by its seal, which its stub is made of."""
    with contextlib.suppress(StoreError, OSError), SegmentReader(folder.disk, path) as segment:
        for _ in segment.batches():
            pass
        if segment.seal is not None:
            return segment.seal.end
    return Position(most)


def _resume_chores(
    folder: Folder, catalog: Catalog, housekeeper: Housekeeper, writer: SegmentWriter, report: RecoveryReport
) -> None:
    """Step 6."""
    finished = {sealed.number for sealed in writer.finished}
    there = {archived: set(folder.numbers(archived=archived, suffix=EVENTS)) for archived in (False, True)}
    for info in catalog.segments:
        if info.sealed and info.number not in finished and info.number not in there[info.archived]:
            writer.finished.append(Sealed(info.number, b"", -1))
        if info.sealed and not info.archived and info.number <= report.left_through:
            housekeeper.leaving(info.number, Position(-1))
        if info.archived and info.number <= report.deleted_through:
            housekeeper.deleting(info.number, Position(-1))
    for number in there[False] - {info.number for info in catalog.segments if not info.archived}:
        # Derived from a segment that was archived without it: it will be built again there.
        folder.disk.remove(folder.segment(number, suffix=EVENTS))
