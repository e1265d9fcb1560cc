"""Verification of a journal: every segment that is left, against itself and against what its successor says of it.

The chain: each header holds number, length and SHA-256 of the segment before. So a closed segment that was altered,
cut or replaced no longer matches, one that is missing leaves a gap, and a gap is told from a deletion by retention,
which is on record, and from what a backup was made without. That the copy's mark says, and the journal bears it out:
only what left the recovery set can be left behind. What the chain cannot show is the loss of its newest links, or a
rewrite of everything after some point by somebody who can write the folder: for that, keep the `head` elsewhere from
time to time and verify against it.

Beside the chain: that what recovery finds live is what the journal accounts for; every checksum; each seal's counts
against the segment's own events, and its cumulated totals against the seal before; the side files against their
segments. Side files are derived: a bad one is named, and can be deleted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Self
from uuid import UUID

from acquit.errors import ConfigurationError, StoreCorrupt, StoreError
from acquit.ledger.balance import balance
from acquit.ledger.digest import RunningDigest
from acquit.ledger.fold import read_fold
from acquit.ledger.totals import QueueTotals, RowFlag, Summary, SummaryRow
from acquit.store import backup
from acquit.store.disk import Disk, OpenMode
from acquit.store.folder import EVENTS, STUB
from acquit.store.interface import EVENT_BYTES
from acquit.store.reading import FolderReader
from acquit.store.record import StoreKind, check_records, split_events, walk
from acquit.store.scan import unreadable
from acquit.store.segment import (
    EVENTS_HEADER_BYTES,
    HEADER_BYTES,
    NO_HASH,
    DeletedSegment,
    ErasedSegment,
    EventsHeader,
    Seal,
    SegmentHeader,
    decode_left,
    decode_seal,
    decode_seal_head,
)


class SegmentPlace(Enum):
    """Places where a segment can be."""

    JOURNAL = "journal"
    ARCHIVE = "archive"
    STUB = "deleted by retention, header and seal kept"
    DELETED = "deleted by retention"
    LEFT_BEHIND = "left behind by a backup"
    GAP = "missing"


@dataclass(slots=True)
class ChainLink:
    """Segment as a link of the chain."""

    number: int
    place: SegmentPlace
    header: SegmentHeader | None = None
    seal: Seal | None = None
    valid_bytes: int = 0
    sha256: bytes = b""
    """Hash of the valid bytes, as its successor must name it; b"" where the segment is not there to be hashed."""
    events: int = 0
    erased: bool = False
    """Zeros stand for its bodies."""
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Head:
    """The newest link: to be kept somewhere else."""

    store: UUID
    number: int
    valid_bytes: int
    sha256: bytes

    def __str__(self) -> str:
        return f"{self.store}:{self.number}:{self.valid_bytes}:{self.sha256.hex()}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse what `str` gave. Raises ConfigurationError."""
        try:
            store, number, valid_bytes, digest = text.strip().split(":")
            sha256 = bytes.fromhex(digest)
            if len(sha256) != 32:
                raise ValueError(digest)
            return cls(UUID(store), int(number), int(valid_bytes), sha256)
        except ValueError as error:
            raise ConfigurationError(
                f"not the head of a journal: {text!r}; expected STORE:NUMBER:BYTES:SHA256"
            ) from error


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of verifying a journal."""

    store: UUID
    links: tuple[ChainLink, ...]
    """Oldest first; numbers follow without a gap (missing ones are links of their own)."""
    head: Head
    problems: tuple[str, ...]
    """All problems, those of the links included, each naming its segment."""

    @property
    def left_behind(self) -> list[int]:
        """Segments that are not here as the folder is a copy that was made without them."""
        return [link.number for link in self.links if link.place is SegmentPlace.LEFT_BEHIND]


@dataclass(slots=True)
class _OnRecord:
    """Facts about its segments that are on record in the journal itself."""

    deleted: dict[int, DeletedSegment] = field(default_factory=dict)
    erased: set[ErasedSegment] = field(default_factory=set)
    left_through: int = 0
    """The last segment that recovery does not need."""


def read_head(path: Path, *, disk: Disk | None = None) -> Head:
    """The head of the journal in a data folder, of a running broker or a stopped one.

    Of an open segment it covers what is known to be synced, so that no power loss can make it untrue: all but the last
    batch. Where that is nothing, the head is the segment before (number 0 in a journal that has just been made): a
    segment without a batch may be replaced by the next run. Raises StoreMissing when it is no data folder,
    StoreVersionUnsupported, StoreCorrupt, StoreFailed.
    """
    reader = FolderReader(path, disk)
    contents = reader.journal_contents()
    with reader.open(contents.journal[-1]) as segment:
        length = HEADER_BYTES
        for head, _ in segment.batches():
            length = HEADER_BYTES + max(0, head.synced_end - segment.header.base)
        header = segment.header
        if segment.seal is not None:
            length = segment.offset
        if length == HEADER_BYTES:
            return Head(header.store, header.previous_number, header.previous_length, header.previous_sha256)
        return Head(header.store, header.number, length, segment.hash_of(length))


def verify(
    path: Path,
    *,
    against: Iterable[Head] = (),
    disk: Disk | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Verify the journal and archive in a data folder, of a running broker or a stopped one.

    `against`: heads kept from earlier. `progress` is called with segments done and in all. Raises StoreMissing when it
    is no data folder, StoreVersionUnsupported, StoreFailed where the folder itself cannot be read; damage, and a file
    that cannot be read, is reported, not raised.
    """
    reader = FolderReader(path, disk)
    contents = reader.contents()
    places = dict.fromkeys(contents.stubs, SegmentPlace.STUB)
    places |= dict.fromkeys(contents.archive, SegmentPlace.ARCHIVE) | dict.fromkeys(
        contents.journal, SegmentPlace.JOURNAL
    )
    present = sorted(places)
    if not present:
        raise StoreCorrupt("no segment is there", path=str(path), offset=0)
    newest = present[-1]
    told = _OnRecord()
    links = []
    for done, number in enumerate(present, start=1):
        link = ChainLink(number, places[number])
        if link.place is SegmentPlace.STUB:
            _read_stub(reader, link)
        else:
            _read_segment(reader, link, told, newest=number == newest)
        links.append(link)
        if progress is not None:
            progress(done, len(present))
    problems, left_behind = [], 0
    try:
        left_behind = min(backup.left_behind(reader.folder), told.left_through)
    except StoreCorrupt as error:
        problems.append(str(error))
    links = _with_missing(links, max(told.deleted, default=0), left_behind)
    for before, link in zip([None, *links[:-1]], links, strict=True):
        _check_link(before, link, told.deleted, contents.identity.store)
        _check_erasure(link, told.erased)
    head = _head(path, links, contents.identity.store, disk)
    problems += [f"segment {link.number}: {problem}" for link in links for problem in link.problems]
    if not any(link.problems for link in links if link.place is SegmentPlace.JOURNAL):
        problems += _unbalanced(reader)
    problems += [problem for known in against for problem in _check_head(reader, contents.identity.store, links, known)]
    return Verification(contents.identity.store, tuple(links), head, tuple(problems))


def _head(path: Path, links: list[ChainLink], store: UUID, disk: Disk | None) -> Head:
    """The head; where the newest segment cannot be read, that of what is whole before it."""
    try:
        return read_head(path, disk=disk)
    except StoreCorrupt as error:
        if not links[-1].problems:
            links[-1].problems.append(str(error))
    for link in reversed(links):
        if link.seal is not None and link.sha256 and not link.problems:
            return Head(store, link.number, link.valid_bytes, link.sha256)
    return Head(store, 0, 0, NO_HASH)


def _unbalanced(reader: FolderReader) -> list[str]:
    """Queues that hold other messages than the journal accounts for."""
    try:
        fold = read_fold(reader)
    except StoreCorrupt as error:
        return [str(error)]
    return [row.complaint for row in balance(fold).queues if row.mismatch]


def _read_segment(
    reader: FolderReader,
    link: ChainLink,
    told: _OnRecord,
    *,
    newest: bool,
) -> None:
    digest = RunningDigest()
    events = hashlib.sha256()
    try:
        with reader.open(link.number, hashing=True) as segment:
            link.header = segment.header
            for head, data in segment.batches():
                check_records(head, data)
                for record in walk(head, data):
                    if record.kind == StoreKind.DELETED:
                        gone = DeletedSegment.decode(record.meta)
                        told.deleted[gone.number] = gone
                    elif record.kind == StoreKind.ERASED:
                        told.erased.add(ErasedSegment.decode(record.meta))
                    elif record.kind == StoreKind.LEFT:
                        told.left_through = max(told.left_through, decode_left(record.meta))
                array, others = split_events(data, head.records)
                digest.add(array, others)
                events.update(array)
            link.seal, link.valid_bytes = segment.seal, segment.offset
            link.sha256, link.erased = segment.chained_sha256, segment.header.erased
            link.events = digest.here.events
            segment.check_end(newest=newest)
    except KeyError as error:
        if reader.was_deleted(link.number):  # by retention, since it was listed
            link.place = SegmentPlace.DELETED
        else:
            link.problems.append(str(error.args[0]))
        return
    except (StoreCorrupt, ValueError) as error:
        link.problems.append(str(error))
        return
    if link.seal is not None:
        own = digest.end_segment()
        stated = _summary(link)
        for queue in sorted(own.rows.keys() | stated.rows.keys()):
            theirs, ours = stated.rows.get(queue, SummaryRow()).here, own.rows.get(queue, SummaryRow()).here
            if theirs != ours:
                link.problems.append(f"its seal counts queue {queue} as {theirs}, its events as {ours}")
        _check_side_file(reader, link, events.digest())


def _summary(link: ChainLink) -> Summary:
    """The seal's summary; an unreadable one is a problem and counts as empty."""
    if link.seal is None:
        return Summary()
    try:
        return Summary.decode(link.seal.summary)
    except ValueError as error:
        link.problems.append(f"its summary: {error}")
        return Summary()


def _check_side_file(reader: FolderReader, link: ChainLink, events_sha256: bytes) -> None:
    folder = reader.folder
    for archived in (False, True):
        path = folder.segment(link.number, archived=archived, suffix=EVENTS)
        try:
            file = folder.disk.open(path, OpenMode.READ)
            try:
                header = EventsHeader.decode(file.read(EVENTS_HEADER_BYTES, 0))
                if header is None or header.sha256 != link.sha256 or header.events != link.events:
                    link.problems.append(f"{path.name} is not of this segment; it is derived, delete it")
                    continue
                array = file.read(header.events * EVENT_BYTES, EVENTS_HEADER_BYTES)
            finally:
                file.close()
        except FileNotFoundError:
            continue
        except OSError as error:
            link.problems.append(f"{unreadable(error, str(path))}; it is derived, delete it")
            continue
        if hashlib.sha256(array).digest() != events_sha256:
            link.problems.append(f"{path.name} has other events than the segment; it is derived, delete it")


def _read_stub(reader: FolderReader, link: ChainLink) -> None:
    path = reader.folder.segment(link.number, archived=True, suffix=STUB)
    try:
        file = reader.folder.disk.open(path, OpenMode.READ)
        try:
            data = file.read(file.size(), 0)
        finally:
            file.close()
        link.header = SegmentHeader.decode(data[:HEADER_BYTES], str(path))
    except FileNotFoundError:
        link.place = SegmentPlace.DELETED  # retention keeps so many stubs, and no more
        return
    except OSError as error:
        link.problems.append(str(unreadable(error, str(path))))
        return
    except StoreError as error:
        link.problems.append(str(error))
        return
    head = decode_seal_head(data[HEADER_BYTES:])
    link.seal = decode_seal(data[HEADER_BYTES : HEADER_BYTES + head.length]) if head is not None else None
    if link.seal is None:
        link.problems.append("the seal in its stub does not match its checksum")


def _with_missing(links: list[ChainLink], deleted_through: int, left_behind: int) -> list[ChainLink]:
    """The same, with a link for every number that is not there."""

    def place(number: int) -> SegmentPlace:
        if number <= deleted_through:
            return SegmentPlace.DELETED
        return SegmentPlace.LEFT_BEHIND if number <= left_behind else SegmentPlace.GAP

    first = min(links[0].number, deleted_through + 1)
    by_number = {link.number: link for link in links}
    return [
        by_number.get(number) or ChainLink(number, place(number))
        for number in range(first if first > 1 and deleted_through else 1, links[-1].number + 1)
    ]


def _check_link(before: ChainLink | None, link: ChainLink, deleted: dict[int, DeletedSegment], store: UUID) -> None:
    """Check what a link says of itself and of the one before."""
    if link.place is SegmentPlace.GAP:
        link.problems.append("missing, and no record says that retention deleted it")
    header = link.header
    if header is None:
        return
    if header.number != link.number:
        link.problems.append(f"its header is that of segment {header.number}")
    if header.store != store:
        link.problems.append(f"it belongs to store {header.store}")
    if before is None:
        return
    stated = header.previous_length, header.previous_sha256
    recorded = deleted.get(before.number)
    if before.sha256:
        if stated != (before.valid_bytes, before.sha256):
            before.problems.append("altered: not what its successor says of it")
    elif recorded is not None and stated != (recorded.valid_bytes, recorded.sha256):
        link.problems.append("the record of its predecessor's deletion names another one than its header")
    if before.seal is None:
        return
    if header.base != before.seal.end:
        link.problems.append(f"begins at {header.base}, its predecessor ends at {before.seal.end}")
    if header.previous_cut != before.seal.cut:
        link.problems.append(f"says that {header.previous_cut} bytes were cut before it, the seal {before.seal.cut}")
    if link.seal is not None:
        _check_totals(_summary(before), _summary(link), link)


def _check_erasure(link: ChainLink, erased: set[ErasedSegment]) -> None:
    """A segment without bodies must be the one that a record says was written in place of the original."""
    header = link.header
    if header is None or not link.erased:
        return
    if ErasedSegment(link.number, header.original_sha256, header.content_sha256) not in erased:
        link.problems.append("its bodies were erased, and no record says so")


def _check_totals(before: Summary, after: Summary, link: ChainLink) -> None:
    """Cumulated totals must be those of the segment before and what this one adds."""
    expected: dict[int, QueueTotals] = {}
    for queue, row in before.rows.items():
        key = 0 if row.flags & RowFlag.DELETED else queue
        expected.setdefault(key, QueueTotals()).add(row.cumulated)
    for queue, row in after.rows.items():
        totals = expected.setdefault(queue, QueueTotals())
        totals.add(row.here)
        if totals != row.cumulated:
            link.problems.append(f"its totals of queue {queue} do not follow from those of the segment before")
    lost = expected.keys() - after.rows.keys()
    if lost:
        link.problems.append(f"its totals leave out queues {sorted(lost)}")


def _check_head(reader: FolderReader, store: UUID, links: list[ChainLink], known: Head) -> list[str]:
    """Check that the journal is still the one that this head was taken of."""
    if known.store != store:
        return [f"the head {known} is of another store"]
    link = next((link for link in links if link.number == known.number), None)
    if link is None:
        if known.number > links[-1].number:
            return [f"segment {known.number}, of which the head {known} was taken, is not there: the newest are lost"]
        return []
    if link.place is SegmentPlace.LEFT_BEHIND:
        return [
            f"segment {known.number}, of which the head {known} was taken, was left behind by a backup: not verified"
        ]
    if not link.sha256:
        return []
    if link.erased and known.valid_bytes < link.valid_bytes:
        return []  # the bytes that this head was taken of are not there any more
    if link.erased:
        same = (link.valid_bytes, link.sha256) == (known.valid_bytes, known.sha256)
        return [] if same else [f"segment {known.number} is not what it was when the head {known} was taken"]
    try:
        with reader.open(known.number) as segment:
            same = segment.hash_of(known.valid_bytes) == known.sha256
    except KeyError:
        return [] if reader.was_deleted(known.number) else [f"segment {known.number} went away while it was read"]
    except StoreCorrupt as error:
        return [f"segment {known.number}: {error}"]
    return [] if same else [f"segment {known.number} is not what it was when the head {known} was taken"]
