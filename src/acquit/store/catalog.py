"""Catalog of the segments, shared by all threads; and reading a record back by its position.

The catalog changes rarely (a segment opened, sealed, archived, deleted) and is read all the time: it is a tuple that
is replaced whole, so that a reader on any thread sees it before or after a change and never in between. A segment's
file may be renamed into the archive, or deleted, while somebody is about to open it: readers look in both places, and
files that are open stay readable.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from acquit.errors import StoreCorrupt
from acquit.store.disk import DiskFile, OpenMode, store_error
from acquit.store.folder import Folder
from acquit.store.interface import ERASED, Position, Record, SegmentInfo
from acquit.store.record import (
    PIECE_BYTES,
    RECORD_HEAD_BYTES,
    RecordMalformed,
    decode_record,
    find_payload,
    record_bytes,
)
from acquit.store.segment import HEADER_BYTES, SEAL_HEAD_BYTES, Seal, decode_seal, decode_seal_head

START: Final = Position(0)


class Catalog:
    """The segments of one journal, oldest first.

    **Ages.** When a segment was closed is told by the clock of that moment, which may have been ahead. Where that is
    still to come, `age_us` takes the first segment behind it whose time can be right, for one that was closed before;
    else its age begins when it is first asked for. From then on such a segment ages by the clock that nobody sets, also
    where the other one is behind for a moment only; and when its own time has come, it is no younger than it was looked
    at for. So what goes by its age may go late, by that age, but goes.
    """

    def __init__(self, segments: tuple[SegmentInfo, ...] = (), end: Position = START) -> None:
        self._lock = threading.Lock()
        self.segments = segments
        self.end = end
        """Position below which everything was written and synced. Moved by the batch thread."""
        self._closed_at_s: dict[int, float] = {}
        """Times at which segments were closed, by the clock that nobody sets, where theirs was ahead. On the loop."""
        self._looked_at_s: dict[int, float] = {}
        """Times at which these were first looked at, by that clock: they were closed by then."""

    def _update(self, change: Callable[[tuple[SegmentInfo, ...]], tuple[SegmentInfo, ...]]) -> None:
        with self._lock:
            self.segments = change(self.segments)

    def opened(self, info: SegmentInfo) -> None:
        self._update(lambda segments: (*segments, info))

    def _replace(self, number: int, change: Callable[[SegmentInfo], SegmentInfo]) -> None:
        self._update(lambda all_: tuple(change(info) if info.number == number else info for info in all_))

    def sealed(self, number: int, *, end: Position, file_bytes: int, sealed_us: int) -> None:
        self._replace(
            number, lambda info: info._replace(sealed=True, end=end, file_bytes=file_bytes, sealed_us=sealed_us)
        )

    def archived(self, number: int) -> None:
        self._replace(number, lambda info: info._replace(archived=True))

    def erased(self, number: int) -> None:
        self._replace(number, lambda info: info._replace(erased=True))

    def deleted(self, number: int) -> None:
        self._update(lambda segments: tuple(info for info in segments if info.number != number))
        self._closed_at_s.pop(number, None)
        self._looked_at_s.pop(number, None)

    def age_us(self, info: SegmentInfo, now_us: int, now_s: float) -> int:
        """Return for how long a segment has been closed. On the loop. Costs a look at all segments where its time is
        still to come, but only once."""
        if info.sealed_us <= now_us:
            return max(now_us - info.sealed_us, int((now_s - self._looked_at_s.get(info.number, now_s)) * 1e6))
        if info.number not in self._closed_at_s:
            self._note_those_ahead(now_us, now_s)
        return int((now_s - self._closed_at_s[info.number]) * 1e6)

    def _note_those_ahead(self, now_us: int, now_s: float) -> None:
        """Take note of when those segments were closed, at the latest, whose own time is still to come: of all at once,
        for one is asked for after the other."""
        ahead: list[int] = []
        closed_us: dict[int, int] = {}
        latest_us = 0
        for info in self.segments:
            if info.sealed_us > now_us:
                ahead.append(info.number)
            elif info.sealed and info.sealed_us >= latest_us:
                latest_us = info.sealed_us
                closed_us |= dict.fromkeys(ahead, latest_us)
                ahead.clear()
        closed_us |= dict.fromkeys(ahead, now_us)
        for number, at_us in closed_us.items():
            self._closed_at_s.setdefault(number, now_s - (now_us - at_us) / 1e6)
            self._looked_at_s.setdefault(number, now_s)

    def find(self, position: Position) -> SegmentInfo:
        """Raises KeyError when no segment holds it."""
        segments = self.segments
        index = bisect_right(segments, position, key=lambda info: info.base) - 1
        if index < 0 or position >= self.end:
            raise KeyError(f"nothing was written at position {position}, or it was deleted")
        info = segments[index]
        if info.sealed and position >= info.end:
            raise KeyError(f"the segment of position {position} was deleted")
        return info


@dataclass(slots=True)
class _OpenFile:
    file: DiskFile
    users: int = 0
    evicted: bool = False


_GAP_BYTES_MAX: Final = 64 * 1024
"""Bytes between two records, at most, that are read with them: that costs less than another call."""
_RUN_BYTES_MAX: Final = 1 << 20


def _end_of_run(positions: Sequence[Position], size_hints: Sequence[int], at: int) -> int:
    """Return the index behind the records that are read together with that at `at`: neighbours, in file order."""
    first = before = positions[at]
    for index in range(at + 1, len(positions)):
        position = positions[index]
        gap_max = size_hints[index - 1] + _GAP_BYTES_MAX
        if not 0 < position - before <= gap_max or position - first > _RUN_BYTES_MAX:
            return index
        before = position
    return len(positions)


class RecordReader:
    """Reads records back, from any thread, over a few files kept open."""

    def __init__(self, folder: Folder, catalog: Catalog, open_files_max: int) -> None:
        self._folder = folder
        self._catalog = catalog
        self._open_files_max = open_files_max
        self._lock = threading.Lock()
        self._open: OrderedDict[int, _OpenFile] = OrderedDict()

    def _opened(self, number: int) -> DiskFile:
        # Twice: it may move between the two looks.
        for archived in (False, True, False, True):
            path = self._folder.segment(number, archived=archived)
            try:
                return self._folder.disk.open(path, OpenMode.READ)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise store_error(error, str(path)) from error
        raise KeyError(f"segment {number} was deleted")

    @contextmanager
    def _file(self, number: int) -> Iterator[DiskFile]:
        """The segment's file, kept from being closed while it is used here."""
        with self._lock:
            entry = self._open.get(number)
            if entry is None:
                entry = self._open[number] = _OpenFile(self._opened(number))
                while len(self._open) > self._open_files_max:
                    _, oldest = self._open.popitem(last=False)
                    self._evict(oldest)
            else:
                self._open.move_to_end(number)
            entry.users += 1
        try:
            yield entry.file
        finally:
            with self._lock:
                entry.users -= 1
                if entry.evicted and not entry.users:
                    entry.file.close()

    def read(self, position: Position, size_hint: int) -> Record:
        """See `Journal.read`."""
        info = self._catalog.find(position)
        offset = HEADER_BYTES + position - info.base
        path = str(self._folder.segment(info.number, archived=info.archived))
        with self._file(info.number) as file:
            try:
                # Of a large one the size comes first: what is read to its end by chance would be cut off by a copy.
                small = RECORD_HEAD_BYTES <= size_hint <= PIECE_BYTES
                data = file.read(size_hint if small else RECORD_HEAD_BYTES, offset)
                if len(data) < RECORD_HEAD_BYTES:
                    raise StoreCorrupt("the file ends before this record", path=path, offset=offset)
                size = record_bytes(data)
                if size > len(data):
                    # A lying length is bounded by what the segment can hold.
                    if size > info.file_bytes + self._catalog.end - info.base:
                        raise StoreCorrupt(f"a record of {size} bytes", path=path, offset=offset)
                    data = file.read(size, offset)
            except OSError as error:
                raise store_error(error, path) from error
        try:
            record = decode_record(data[:size], position)
        except RecordMalformed as error:
            raise StoreCorrupt(str(error), path=path, offset=offset) from error
        if record.flags & ERASED:
            # Asked again: what has been erased by now was archived before.
            if not self._catalog.find(position).archived:
                raise StoreCorrupt("a record of the journal that says it was erased", path=path, offset=offset)
            raise KeyError(f"the payload of the record at position {position} was erased")
        return record

    def read_payloads(self, positions: Sequence[Position], size_hints: Sequence[int]) -> list[bytes | None]:
        """See `Journal.read_payloads`."""
        found: list[bytes | None] = []
        at = 0
        while at < len(positions):
            stop = _end_of_run(positions, size_hints, at)
            start, last = positions[at], positions[stop - 1]
            data = self._span(start, Position(last + size_hints[stop - 1])) if stop - at > 1 else b""
            for index in range(at, stop):
                payload = find_payload(data, positions[index] - start)
                if payload is None:  # not there, not whole, or not right: read by itself it says why
                    payload = self._payload_or_none(positions[index], size_hints[index])
                found.append(payload)
            at = stop
        return found

    def _payload_or_none(self, position: Position, size_hint: int) -> bytes | None:
        try:
            return self.read(position, size_hint).payload
        except KeyError:
            return None

    def _span(self, start: Position, end: Position) -> bytes:
        """The bytes between, as far as they are synced and in one segment; none where it is gone."""
        try:
            info = self._catalog.find(start)
            end = min(end, info.end if info.sealed else self._catalog.end)
            with self._file(info.number) as file:
                return file.read(end - start, HEADER_BYTES + start - info.base)
        except KeyError:
            return b""
        except OSError as error:
            raise store_error(error, f"{self._folder.path}, position {start}") from error

    def read_seal(self, number: int) -> Seal:
        """The seal of a closed segment. Raises KeyError where there is none, StoreCorrupt where it is damaged."""
        info = next((info for info in self._catalog.segments if info.number == number and info.sealed), None)
        if info is None:
            raise KeyError(f"no closed segment {number}")
        offset = HEADER_BYTES + info.end - info.base
        path = str(self._folder.segment(number, archived=info.archived))
        with self._file(number) as file:
            try:
                head = decode_seal_head(file.read(SEAL_HEAD_BYTES, offset))
                seal = decode_seal(file.read(head.length, offset)) if head is not None else None
            except OSError as error:
                raise store_error(error, path) from error
        if seal is None:
            raise StoreCorrupt("the seal does not match its checksum", path=path, offset=offset)
        return seal

    def drop(self, number: int) -> None:
        """Close the file of a segment that was deleted or replaced, once nobody reads it: until then the disk keeps its
        room."""
        with self._lock:
            entry = self._open.pop(number, None)
            if entry is not None:
                self._evict(entry)

    def _evict(self, entry: _OpenFile) -> None:
        entry.evicted = True
        if not entry.users:
            entry.file.close()

    def close(self) -> None:
        """Close the files, with no reader at work."""
        with self._lock:
            for entry in self._open.values():
                entry.file.close()
            self._open.clear()
