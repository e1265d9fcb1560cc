"""What housekeeping is due: decided on the loop, from what it knows, in this order.

1. prewrite segments, until spare and reserve are there in the size that is due (after a full disk: again every
   `retry_ms`);
2. finish the side files of closed segments;
3. archive segments that left the recovery set, once the record saying so is synced;
4. delete archived segments beyond the bounds, oldest first: read what the record of the deletion must keep, append that
   record, and once it is synced remove the segment, leaving its stub. A full disk is a bound, too.

It is asked at the end of every turn, and there may be thousands of segments: they are looked through once they change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from uuid import UUID

from acquit.store.catalog import Catalog, RecordReader
from acquit.store.chores import Archive, Delete, FinishEvents, Prewrite, ReadDeletion
from acquit.store.folder import Folder
from acquit.store.interface import Chore, Position, SegmentInfo
from acquit.store.options import JournalOptions
from acquit.store.reserve import Reserve
from acquit.store.writer import Sealed


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
    ) -> None:
        self._folder = folder
        self._options = options
        self._store = store
        self._catalog = catalog
        self._reader = reader
        self._reserve = reserve
        self._finished = finished
        self._leaving: deque[tuple[int, Position]] = deque()
        self._deleting: deque[tuple[int, Position]] = deque()
        self._counted: Sequence[SegmentInfo] = ()
        """The segments of which `_oldest` and `_archived_bytes` are true."""
        self._oldest: SegmentInfo | None = None
        """Of those that are archived."""
        self._archived_bytes = 0
        self._prewrite_at_s = 0.0
        self._retry_at_s = 0.0
        """When a chore that a full disk left undone is tried again; apart, because room may come from the others."""

    def leaving(self, number: int, recorded: Position) -> None:
        """The segment may be archived once its record at `recorded` is synced."""
        self._leaving.append((number, recorded))

    def deleting(self, number: int, recorded: Position) -> None:
        """The segment may be deleted once its record at `recorded` is synced."""
        self._deleting.append((number, recorded))

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
                return FinishEvents(self._folder, self._store, info, sealed)
        if self._leaving and self._leaving[0][1] < synced:
            return Archive(self._folder, self._leaving.popleft()[0])
        if self._deleting:
            number, recorded = self._deleting[0]
            if recorded >= synced:
                return None
            self._deleting.popleft()
            info = self._find(number)
            return Delete(self._folder, info, options.stubs_max) if info is not None else None
        return self._deletion(now_us)

    def _find(self, number: int) -> SegmentInfo | None:
        return next((info for info in self._catalog.segments if info.number == number), None)

    def _deletion(self, now_us: int) -> Chore | None:
        """The oldest archived segment, if the archive holds too much, or it is too old, or room is needed."""
        segments = self._catalog.segments
        if segments is not self._counted:
            archived = [info for info in segments if info.archived]
            self._counted = segments
            self._oldest = archived[0] if archived else None
            self._archived_bytes = sum(info.file_bytes for info in archived)
        oldest = self._oldest
        if oldest is None or len(segments) < 2:
            return None
        too_much = self._archived_bytes > self._options.archive_bytes_max
        too_old = oldest.sealed_us < now_us - self._options.archive_age_max_s * 1_000_000
        in_the_way = self._reserve.disk_full and self._options.archive_yields
        if not (too_much or too_old or in_the_way):
            return None
        return ReadDeletion(self._folder, self._reader, oldest, segments[1])

    def done(self, chore: Chore, now_s: float) -> None:
        """Take note of a chore that ran. (What `ReadDeletion` found is the journal's to record.)"""
        retry_at_s = now_s + self._options.retry_ms / 1000
        match chore:
            case Prewrite():
                if self._reserve.disk_full:
                    self._prewrite_at_s = retry_at_s
            case FinishEvents(complete=False, sealed=sealed):
                self._finished.append(Sealed(sealed.number, sealed.sha256, -1))
                self._retry_at_s = retry_at_s
            case Archive(complete=True, number=number):
                self._catalog.archived(number)
            case Archive(number=number):
                self._leaving.appendleft((number, Position(-1)))
                self._retry_at_s = retry_at_s
            case Delete(complete=True, number=number):
                self._catalog.deleted(number)
                self._reader.drop(number)
            case Delete(number=number):
                self._deleting.appendleft((number, Position(-1)))
                self._retry_at_s = retry_at_s
            case _:
                pass
