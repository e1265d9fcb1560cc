"""Housekeeping that is due: decided on the loop, from what it knows, in this order.

1. prewrite segments, until spare and reserve are there in the size that is due (after a full disk: again every
   `retry_ms`);
2. finish the side files of closed segments;
3. archive segments that left the recovery set, once the record saying so is synced;
4. delete archived segments beyond the bounds, oldest first: read what the record of the deletion must keep, append that
   record, and once it is synced remove the segment, leaving its stub. A full disk is a bound, too;
5. erase the bodies in archived segments that are old enough, oldest first, where that is asked for: write the segment
   again without them, append the record that says so, and once it is synced replace the segment. One in `retry_ms`: it
   reads and writes a whole segment.

It is asked at the end of every turn, and there may be thousands of segments: they are looked through once they change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from acquit.store.archive import ArchiveReader
from acquit.store.catalog import Catalog, RecordReader
from acquit.store.chores import Archive, Delete, Erase, FinishEvents, Prewrite, ReadDeletion, Replace
from acquit.store.folder import Folder
from acquit.store.interface import Chore, Erasing, Position, SegmentInfo
from acquit.store.options import JournalOptions
from acquit.store.reserve import Reserve
from acquit.store.writer import Sealed

_ROOM_S: Final = 60.0
"""The time that erasing waits after it found no room: each try writes up to a segment in vain."""


class Housekeeper:
    """The queue of chores. On the loop."""

    def __init__(
        self,
        folder: Folder,
        options: JournalOptions,
        store: UUID,
        catalog: Catalog,
        reader: RecordReader,
        reserve: Reserve,
        finished: deque[Sealed],
        erasing: Erasing,
    ) -> None:
        self._folder = folder
        self._options = options
        self._store = store
        self._catalog = catalog
        self._reader = reader
        self._reserve = reserve
        self._finished = finished
        self._erasing = erasing
        self._archive = ArchiveReader(folder)
        self._leaving: deque[tuple[int, Position]] = deque()
        self._deleting: deque[tuple[int, Position]] = deque()
        self._replacing: deque[tuple[int, Position]] = deque()
        self._damaged: set[int] = set()
        """Archived segments whose bodies cannot be erased."""
        self._counted: Sequence[SegmentInfo] = ()
        """The segments of which the next three are true."""
        self._oldest: SegmentInfo | None = None
        """The oldest of them that is archived."""
        self._unerased: SegmentInfo | None = None
        """The oldest of them whose bodies can be erased."""
        self._archived_bytes = 0
        self._prewrite_at_s = 0.0
        self._erase_at_s = 0.0
        self._retry_at_s = 0.0
        """Time for another try at a chore that a full disk left undone; apart, as room may come from the others."""

    def leaving(self, number: int, recorded: Position) -> None:
        """The segment may be archived once its record at `recorded` is synced."""
        self._leaving.append((number, recorded))

    def deleting(self, number: int, recorded: Position) -> None:
        """The segment may be deleted once its record at `recorded` is synced."""
        self._deleting.append((number, recorded))

    def erased(self, number: int, recorded: Position) -> None:
        """The segment may be replaced once its record at `recorded` is synced."""
        self._replacing.append((number, recorded))

    def next(self, synced: Position, now_s: float, now_us: int) -> Chore | None:
        options = self._options
        if now_s >= self._prewrite_at_s:
            count, size_bytes = options.reserve_segments + options.spare_segments, options.prewritten_bytes(synced)
            if not self._reserve.has(count, size_bytes):
                return Prewrite(self._folder, self._reserve, size_bytes, count)
        if now_s < self._retry_at_s:
            return None
        while self._finished:
            sealed = self._finished.popleft()
            info = self._find(sealed.number)
            if info is not None:
                return FinishEvents(self._folder, self._archive, self._store, info, sealed)
        if self._leaving and self._leaving[0][1] < synced:
            return Archive(self._folder, self._leaving.popleft()[0])
        if self._deleting:
            number, recorded = self._deleting[0]
            if recorded >= synced:
                return None
            self._deleting.popleft()
            info = self._find(number)
            return Delete(self._folder, self._archive, info, options.stubs_max) if info is not None else None
        if self._replacing and self._replacing[0][1] < synced:
            number, _ = self._replacing.popleft()
            if self._find(number) is not None:
                return Replace(self._folder, number)
        self._count()
        return self._deletion(now_s, now_us) or self._erasure(now_s, now_us)

    def _find(self, number: int) -> SegmentInfo | None:
        return next((info for info in self._catalog.segments if info.number == number), None)

    def _count(self) -> None:
        segments = self._catalog.segments
        if segments is not self._counted:
            archived = [info for info in segments if info.archived]
            self._counted = segments
            self._oldest = archived[0] if archived else None
            self._unerased = next((one for one in archived if not one.erased and one.number not in self._damaged), None)
            self._archived_bytes = sum(info.file_bytes for info in archived)

    def _erasure(self, now_s: float, now_us: int) -> Chore | None:
        """The oldest archived segment that has its bodies, if it is old enough and no other is being replaced."""
        info, age_us = self._unerased, self._options.leave_after_us
        if info is None or age_us is None or self._replacing or self._reserve.disk_full or now_s < self._erase_at_s:
            return None
        if self._catalog.age_us(info, now_us, now_s) < age_us:
            return None
        return Erase(self._folder, self._archive, info, self._erasing)

    def _deletion(self, now_s: float, now_us: int) -> Chore | None:
        """The oldest archived segment, if the archive holds too much, or it is too old, or room is needed."""
        segments, oldest = self._catalog.segments, self._oldest
        if oldest is None or len(segments) < 2:
            return None
        too_much = self._archived_bytes > self._options.archive_bytes_max
        too_old = self._catalog.age_us(oldest, now_us, now_s) > self._options.archive_age_max_s * 1_000_000
        in_the_way = self._reserve.disk_full and self._options.archive_yields
        if not (too_much or too_old or in_the_way):
            return None
        return ReadDeletion(self._folder, self._archive, oldest, segments[1])

    def done(self, chore: Chore, now_s: float) -> None:
        """Take note of a chore that ran. (What `ReadDeletion` and `Erase` found is the journal's to record.)"""
        retry_at_s = now_s + self._options.retry_ms / 1000
        match chore:
            case Prewrite():
                if self._reserve.missing:
                    self._prewrite_at_s = retry_at_s
            case FinishEvents(complete=False, sealed=sealed):
                self._finished.append(Sealed(sealed.number, sealed.sha256, -1))
                self._retry_at_s = retry_at_s
            case Archive(complete=True, number=number):
                self._catalog.archived(number)
            case Archive(number=number):
                self._leaving.appendleft((number, Position(-1)))
                self._retry_at_s = retry_at_s
            case ReadDeletion(deleted=None):
                self._retry_at_s = retry_at_s
            case Delete(complete=True, number=number):
                self._catalog.deleted(number)
                self._reader.drop(number)
                self._archive.forget(number)
            case Delete(number=number):
                self._deleting.appendleft((number, Position(-1)))
                self._retry_at_s = retry_at_s
            case Erase(erased=erased, damaged=damaged, number=number):
                self._erase_at_s = retry_at_s
                if erased is None and not damaged:  # there was no room for a segment: postings come first
                    self._erase_at_s += _ROOM_S
                if damaged:
                    self._damaged.add(number)
                    self._counted = ()
            case Replace(complete=True, number=number):
                self._catalog.erased(number)
                self._reader.drop(number)
            case _:
                pass
