"""Segments of a data folder: which it has, had, or should have, and what the hash chain says that each must be.

Each header names length and SHA-256 of the segment before. So a closed segment is what its successor says, and planning
a read costs one page of each segment; of the newest, which nothing names, planning reads the valid bytes once and
pins them: however the file grows, every task of this plan, tried again or not, reads the same.

A number that has no segment is a *deleted* one where header and seal were kept in a stub, or where a DELETED record
in a later segment says that retention deleted up to it; else it is a *gap*. Those records are looked for only where
a number is missing, newest segment first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from uuid import UUID

from acquit.errors import ConfigurationError, StoreCorrupt, StoreError
from acquit.ledger.totals import NEVER_US, Summary
from acquit.store.disk import DiskFile, OpenMode
from acquit.store.folder import SEGMENT, STUB
from acquit.store.reading import FolderReader
from acquit.store.record import StoreKind, records_of, runs
from acquit.store.scan import unreadable
from acquit.store.segment import (
    HEADER_BYTES,
    SEAL_HEAD_BYTES,
    DeletedSegment,
    Seal,
    SegmentHeader,
    decode_seal,
    decode_seal_head,
)


class SegmentState(StrEnum):
    """State of a segment."""

    OPEN = "open"
    """The newest: what is valid of it."""
    CLOSED = "closed"
    ARCHIVED = "archived"
    DELETED = "deleted"
    """Deleted by retention, which is on record."""
    MISSING = "missing"


READABLE = frozenset((SegmentState.OPEN, SegmentState.CLOSED, SegmentState.ARCHIVED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Segment of one broker, as planned."""

    folder: Path
    store: UUID
    number: int
    state: SegmentState
    length: int = 0
    """Length of its valid bytes; 0 where nothing says it: its successor is missing. Then it is read to its seal."""
    sha256: bytes = b""
    """SHA-256 of its valid bytes; b"" where nothing says it."""
    seal_at: int = 0
    """Offset of the seal, where it is closed."""
    header: SegmentHeader | None = None
    """None where nothing of it is left."""
    seal: Seal | None = None
    """Seal, as far as it was asked for, and is there."""
    summary: Summary | None = None

    @property
    def path(self) -> Path:
        """Path that it had when the read was planned."""
        part = "archive" if self.state in (SegmentState.ARCHIVED, SegmentState.DELETED) else "journal"
        return self.folder / part / f"{self.number:020}{STUB if self.state is SegmentState.DELETED else SEGMENT}"

    def corrupt(self, message: str, offset: int = 0) -> StoreCorrupt:
        """The error for damage in this segment."""
        return StoreCorrupt(f"segment {self.number}: {message}", path=str(self.path), offset=offset)

    def gone(self) -> StoreError:
        """The error for a segment that was there and is not."""
        return StoreError(f"segment {self.number} of {self.folder} was deleted since the read was planned: load again")

    def may_hold(self, since_us: int | None, until_us: int | None) -> bool:
        """True if there may be an event of this time in it, as far as its seal is known."""
        if self.summary is None:
            return True
        if self.summary.events == 0 or self.summary.first_us == NEVER_US:
            return False
        return (since_us is None or self.summary.last_us >= since_us) and (
            until_us is None or self.summary.first_us < until_us
        )


def plan(folders: Iterable[Path], *, seals: bool = False) -> list[Segment]:
    """The segments of all brokers, oldest first in each; gaps included. `seals`: with what their seals say.

    Raises ConfigurationError where two folders hold one broker's journal, StoreMissing where one is no data folder,
    StoreCorrupt for a header that is damaged or not of its place, and for damage in the newest segment that is no torn
    tail; StoreVersionUnsupported, StoreFailed.
    """
    found: list[Segment] = []
    owner: dict[UUID, Path] = {}
    for folder in dict.fromkeys(folders):  # who is named twice is read once
        segments = plan_folder(folder, seals=seals)
        other = owner.setdefault(segments[0].store, folder)
        if other != folder:
            raise ConfigurationError(
                f"option folders: {other} and {folder} hold the journal of one broker ({segments[0].store}); its "
                "events would be there twice"
            )
        found += segments
    return found


def plan_folder(folder: Path, *, seals: bool = False) -> list[Segment]:
    """Return the segments of one folder, as `plan` does of several."""
    reader = FolderReader(folder)
    contents = reader.contents()
    store = contents.identity.store
    if not contents.journal:
        raise StoreCorrupt("no segment is there", path=str(folder), offset=0)
    newest = contents.journal[-1]
    states = dict.fromkeys(contents.stubs, SegmentState.DELETED) | dict.fromkeys(
        contents.archive, SegmentState.ARCHIVED
    )
    states |= dict.fromkeys(contents.journal, SegmentState.CLOSED) | {newest: SegmentState.OPEN}
    deleted_through = 0
    if len(states) < newest:
        highest = next(number for number in range(newest - 1, 0, -1) if number not in states)
        deleted_through = _deleted_through(reader, [number for number in states if number > highest])
    segments = []
    for number in range(1, newest + 1):
        state = states.get(number)
        if state is None:
            state = SegmentState.DELETED if number <= deleted_through else SegmentState.MISSING
        segment = Segment(folder=folder, store=store, number=number, state=state)
        segments.append(replace(segment, header=_header(reader, segment)) if number in states else segment)
    followed = zip(segments, [*segments[1:], None], strict=True)
    return [_pinned(reader, segment, after.header if after else None, seals=seals) for segment, after in followed]


def _pinned(reader: FolderReader, segment: Segment, successor: SegmentHeader | None, *, seals: bool) -> Segment:
    """The segment with what is known of its bytes."""
    header = segment.header
    if segment.state is SegmentState.OPEN:
        return _newest(reader, segment)
    if successor is None:
        return segment
    seal_at = HEADER_BYTES + successor.base - header.base if header is not None else 0
    pinned = replace(segment, length=successor.previous_length, sha256=successor.previous_sha256, seal_at=seal_at)
    return _with_seal(pinned, read_seal(reader, pinned)) if seals and header is not None else pinned


def _with_seal(segment: Segment, seal: Seal | None) -> Segment:
    if seal is None:
        return segment
    try:
        return replace(segment, seal=seal, summary=Summary.decode(seal.summary))
    except ValueError as error:
        raise segment.corrupt(f"its summary: {error}", segment.seal_at) from error


def _newest(reader: FolderReader, segment: Segment) -> Segment:
    """Pin its valid bytes as they now are: up to the last whole batch, or the seal of a clean stop."""
    try:
        opened = reader.open(segment.number, hashing=True)
    except KeyError:
        raise segment.gone() from None
    with opened:
        for _ in opened.batches():
            pass
        if opened.seal is None:
            opened.cut_bytes()
        assert opened.sha256 is not None
        pinned = replace(segment, length=opened.offset, sha256=opened.sha256.digest())
        return _with_seal(pinned, opened.seal)


def read_seal(reader: FolderReader, segment: Segment) -> Seal:
    """The seal of a closed segment, or of a stub. Raises StoreCorrupt."""
    stub = segment.state is SegmentState.DELETED
    offset = HEADER_BYTES if stub else segment.seal_at
    file = open_file(reader, segment.number, STUB if stub else SEGMENT)
    if file is None:
        raise segment.gone()
    try:
        head = decode_seal_head(file.read(SEAL_HEAD_BYTES, offset))
        seal = None if head is None else decode_seal(file.read(head.length, offset))
    except OSError as error:
        raise unreadable(error, str(segment.path), offset) from error
    finally:
        file.close()
    if seal is None or seal.number != segment.number:
        raise segment.corrupt("no whole seal where it must end", offset)
    return seal


def open_file(reader: FolderReader, number: int, suffix: str) -> DiskFile | None:
    """A file of a segment, wherever it now is: it may move to the archive at any time. None where it is not. Raises
    StoreCorrupt where it cannot be opened."""
    folder = reader.folder
    for archived in (False, True, False, True):
        path = folder.segment(number, archived=archived, suffix=suffix)
        with contextlib.suppress(FileNotFoundError):
            try:
                return folder.disk.open(path, OpenMode.READ)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise unreadable(error, str(path)) from error
    return None


def _header(reader: FolderReader, segment: Segment) -> SegmentHeader:
    for suffix in (SEGMENT, STUB):
        file = open_file(reader, segment.number, suffix)
        if file is None:
            continue
        try:
            header = SegmentHeader.decode(file.read(HEADER_BYTES, 0), str(segment.path))
        except OSError as error:
            raise unreadable(error, str(segment.path)) from error
        finally:
            file.close()
        if header.number != segment.number:
            raise segment.corrupt(f"its header is that of segment {header.number}")
        if header.store != segment.store:
            raise segment.corrupt(f"it belongs to store {header.store}, its folder to {segment.store}")
        return header
    raise segment.gone()


def _deleted_through(reader: FolderReader, numbers: Iterable[int]) -> int:
    """Return the last segment that retention deleted, by the newest record of a deletion in these segments; 0: none."""
    for number in sorted(numbers, reverse=True):
        last = 0
        with contextlib.suppress(KeyError), reader.open(number) as segment:
            for head, data in segment.batches():
                for run in runs(head, data):
                    if run.kind == StoreKind.DELETED:
                        *_, newest = records_of(run)
                        last = DeletedSegment.decode(newest.meta).number
        if last:
            return last
    return 0
