"""Writing batches into segments: everything that happens on the batch thread.

The event loop hands over batches that know their position but not their segment; which one they go to is decided here,
when they are written. A batch goes to the open segment if it fits, with room left for the seal; else that one is sealed
and the next begun from a prewritten file.

Moving on takes these steps, each durable before the next, so that recovery finds one of few pictures::

    1  the seal is written behind the last batch                 newest segment, sealed: begin the next
    2  the header is written into a prewritten file              nothing changed yet: it is not a segment by name
    3  the file is renamed to its number, the folder synced      newest segment, empty
    4  the first batch is written

A run that ends between 3 and 4 leaves a *vacant* segment. The next run puts its own in that place, under the same
number: it is renamed over the vacant one, so that a crash leaves the one or the other, and both are empty. A broker
that is killed as it starts, again and again, thus leaves one segment and not one for each start. Nobody but its
number remembers the vacant one: no header names it, and no head of the journal is taken of it.

A full disk may stop any step (StoreFull), and so may a system that has no descriptor left for a file or folder. Each
step that was done is remembered, so that calling again goes on where it stopped; a batch that was written in part is
written again from its first byte. After an I/O error nothing is tried again: what the kernel dropped from its cache
cannot be asked for a second time.

After a batch was announced it is *digested*: added to the segment's SHA-256, its events counted by the ledger's
`Digest` and written to the side file. All of that costs nobody's waiting but the next batch's.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from acquit.errors import StoreError, StoreFailed, StoreFull
from acquit.store.catalog import Catalog
from acquit.store.disk import DiskFile, NotOpened, OpenMode, store_error, write_all
from acquit.store.folder import EVENTS, PART, Folder
from acquit.store.interface import EVENT_BYTES, Digest, Position, SegmentInfo
from acquit.store.options import JournalOptions
from acquit.store.record import encode_batch_head, gathered, padding, split_events
from acquit.store.reserve import STEP_BYTES, Reserve
from acquit.store.segment import EVENTS_HEADER_BYTES, HEADER_BYTES, NO_HASH, SEAL_HEAD_BYTES, Seal, SegmentHeader

if TYPE_CHECKING:
    from hashlib import _Hash

CHECK_S: Final = 1.0
"""Seconds for which batches are written to the open segment without a look at whether its folder is still there."""


class WriteBatch:
    """A batch that was taken. Written once; see `interface.Batch`."""

    __slots__ = (
        "_bytes",
        "_crc",
        "_in_pieces",
        "_parts",
        "_writer",
        "body_bytes",
        "end",
        "records",
        "start",
        "synced_end",
        "time_us",
        "turning",
    )

    def __init__(
        self,
        writer: SegmentWriter,
        *,
        start: Position,
        end: Position,
        records: int,
        parts: list[bytes],
        in_pieces: bool,
        body_bytes: int,
        synced_end: Position,
        time_us: int,
        turning: bool = False,
    ) -> None:
        """`parts`: the records and the padding, which nobody else may have; `in_pieces`: some are large; `turning`: the
        batch begins a segment."""
        self._writer = writer
        self._parts = parts
        self._in_pieces = in_pieces
        self._bytes: BytesIO | None = None
        self._crc = 0
        self.start = start
        self.end = end
        self.records = records
        self.body_bytes = body_bytes
        self.synced_end = synced_end
        self.time_us = time_us
        self.turning = turning

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    def write_and_sync(self, announce: Callable[[], None] | None = None) -> None:
        data = self._writer.write(self)
        if announce is not None:
            announce()
        self._writer.digest(data, self.records)

    def encode(self, epoch: int) -> bytes:
        """All bytes of the batch, as it stands in a segment of this epoch."""
        if self._bytes is None:
            self._bytes, self._crc = gathered(self._parts, self._in_pieces)
            self._parts = []
        head = encode_batch_head(
            length=self.end - self.start,
            records=self.records,
            epoch=epoch,
            position=self.start,
            synced_end=self.synced_end,
            time_us=self.time_us,
            body_bytes=self.body_bytes,
            body_crc=self._crc,
        )
        self._bytes.seek(0)
        self._bytes.write(head)
        return self._bytes.getvalue()


@dataclass(slots=True)
class Tail:
    """End of the newest segment, as recovery found it."""

    header: SegmentHeader
    path: Path
    end: Position
    valid_bytes: int
    """Seal included, if there is one."""
    sha256: _Hash
    """Hash of the valid bytes."""
    sealed: bool
    cut: int
    """Bytes of a torn tail after the valid ones."""

    @property
    def vacant(self) -> bool:
        """True for a segment that says nothing: its run ended before its first batch, and nothing was cut from it."""
        return not self.sealed and not self.cut and self.valid_bytes == HEADER_BYTES


@dataclass(frozen=True, slots=True)
class Sealed:
    """A segment that was closed: what the chores need to finish its side file."""

    number: int
    sha256: bytes
    events: int
    """Events in the side file's unfinished part; -1 where there is none that can be used."""


class SegmentWriter:
    """The open segment. Used by the batch thread alone, but for the attributes said to be read by others."""

    def __init__(
        self,
        folder: Folder,
        options: JournalOptions,
        store: UUID,
        digest: Digest,
        catalog: Catalog,
        reserve: Reserve,
        clock_us: Callable[[], int],
        clock_s: Callable[[], float],
    ) -> None:
        self._folder = folder
        self._options = options
        self._store = store
        self._digest = digest
        self._catalog = catalog
        self._reserve = reserve
        self._clock_us = clock_us
        self._clock_s = clock_s
        self._check_at_s = 0.0
        self._file: DiskFile | None = None
        self._header: SegmentHeader | None = None
        self._sealed = True
        self._closing: tuple[Seal, bytes] | None = None
        """The seal being written: the summary is asked for once, the write may be repeated."""
        self._cut = 0
        self._sha256 = hashlib.sha256()
        self._offset = 0
        self._capacity = 0
        self._taken: Path | None = None
        """The prewritten file of the next segment, until it is open."""
        self._next: tuple[Path, DiskFile, SegmentHeader] | None = None
        self._events: DiskFile | None = None
        self._events_count = 0
        self._events_synced = 0
        """Count of those that were synced, a step at a time. All of them at once, when the segment is closed, would
        hold up the batches of that time."""
        self.failure: StoreFailed | None = None
        """Read by the loop: the I/O error that ended the journal."""
        self.finished: deque[Sealed] = deque()
        """Taken by the loop for its chores."""

    @property
    def room_bytes(self) -> int:
        """Bytes that the open segment still takes; read by the loop, a moment old."""
        return max(0, self._capacity - self._offset - self._seal_room())

    @property
    def overhead_bytes(self) -> int:
        """Bytes of a segment beside its batches; read by the loop."""
        return HEADER_BYTES + self._seal_room()

    def _seal_room(self) -> int:
        used = SEAL_HEAD_BYTES + self._digest.seal_bytes_max
        return used + padding(used, self._options.alignment_bytes)

    # -- beginning and end ------------------------------------------------------------------------------------------

    def begin(self, tail: Tail | None) -> None:
        """Close what an earlier process left open, as recovery found it, and begin a segment of our own."""
        if tail is not None and tail.vacant:
            self._catalog.end = tail.end
            with self._errors():
                self._replace(tail.header)
            return
        if tail is not None:
            self._header = tail.header
            self._offset = tail.valid_bytes
            self._sha256 = tail.sha256
            self._sealed = tail.sealed
            self._cut = tail.cut
            self._catalog.end = tail.end
            try:
                self._file = self._folder.disk.open(tail.path, OpenMode.SYNCED)
                if tail.sealed:
                    self._cut_off(tail.valid_bytes)
            except OSError as error:
                raise store_error(error, str(tail.path)) from error
        with self._errors():
            self._move_on()

    def _replace(self, vacant: SegmentHeader) -> None:
        """Begin a segment in the place of a vacant one. Called in the step of `begin`."""
        self._catalog.deleted(vacant.number)
        self._prepare(
            replace(
                vacant, epoch=secrets.randbits(64), created_us=self._clock_us(), alignment=self._options.alignment_bytes
            )
        )
        self._open_next()

    def close(self) -> None:
        """Seal the open segment, if the disk lets us; else recovery will. One without a batch stays as it is: the next
        run puts its own in that place."""
        with contextlib.suppress(StoreError), self._errors():
            if self.failure is None and self._file is not None and not self._sealed and self._offset > HEADER_BYTES:
                self._seal()
        for file in (self._file, self._events, self._next[1] if self._next is not None else None):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()
        self._file = self._events = self._next = None

    # -- batches ----------------------------------------------------------------------------------------------------

    def write(self, batch: WriteBatch) -> bytes:
        """Write a batch and sync it: its bytes, for `digest`. See `Batch.write_and_sync` for what is raised."""
        if self.failure is not None:
            raise StoreFailed(str(self.failure))
        with self._errors():
            if self._clock_s() >= self._check_at_s:
                self.check_place()
            occupied = self._offset > HEADER_BYTES
            over = self._offset + batch.size_bytes + self._seal_room() > self._capacity
            if self._sealed or (occupied and (over or batch.turning)):
                self._move_on(self.overhead_bytes + batch.size_bytes)
            assert self._header is not None
            data = batch.encode(self._header.epoch)
            self._put(data)
        self._offset += len(data)
        self._catalog.end = batch.end
        return data

    def check_place(self) -> None:
        """Raise StoreFailed where the folder is not at its path any more: writing to open files would not tell."""
        self._folder.disk.check_place()
        self._check_at_s = self._clock_s() + CHECK_S

    def _put(self, data: bytes) -> None:
        """Write behind what was written. What would fit into a segment of full size, and is more than the first ones
        of a journal hold, gets the room of the prewritten files when the disk has no other."""
        assert self._file is not None
        while True:
            try:
                return write_all(self._file, data, self._offset)
            except OSError as error:
                size = self._offset + len(data) + self._seal_room()
                outgrown = self._capacity < size <= self._options.segment_bytes
                if not (outgrown and isinstance(store_error(error, ""), StoreFull) and self._reserve.give_way()):
                    raise
                self._reserve.disk_full = True

    def digest(self, data: bytes, records: int) -> None:
        """Take a written batch into hash, summary and side file."""
        self._sha256.update(data)
        events, others = split_events(data, records)
        self._digest.add(events, others)
        if self._events is not None and events:
            try:
                write_all(self._events, events, EVENTS_HEADER_BYTES + self._events_count * EVENT_BYTES)
                self._events_count += len(events) // EVENT_BYTES
                if (self._events_count - self._events_synced) * EVENT_BYTES >= STEP_BYTES:
                    self._events.sync()
                    self._events_synced = self._events_count
            except OSError:
                # Derived data: built again from the segment once it is closed.
                self._drop_events()

    def _drop_events(self) -> None:
        if self._events is not None:
            with contextlib.suppress(OSError):
                self._events.close()
            self._events = None

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the operating system's errors into ours, and remember the one after which nothing is accepted."""
        try:
            yield
        except StoreFailed as error:
            self.failure = error
            raise
        except OSError as error:
            ours = store_error(error, str(self._folder.journal))
            if isinstance(ours, StoreFull):
                self._reserve.disk_full = self._reserve.disk_full or not isinstance(error, NotOpened)
            elif isinstance(ours, StoreFailed):
                self.failure = ours
            raise ours from error

    # -- from one segment to the next -------------------------------------------------------------------------------

    def _move_on(self, needed_bytes: int = 0) -> None:
        if not self._sealed:
            self._seal()
        self._open_next(needed_bytes)

    def _seal(self) -> None:
        """Close the open segment. Can be called again after a full disk."""
        assert self._file is not None and self._header is not None
        header = self._header
        if self._closing is None:
            seal = Seal(
                epoch=header.epoch,
                number=header.number,
                end=Position(header.base + self._offset - HEADER_BYTES),
                sealed_us=self._clock_us(),
                cut=self._cut,
                summary=self._digest.seal(),
            )
            self._closing = seal, seal.encode(header.alignment)
        seal, data = self._closing
        write_all(self._file, data, self._offset)
        self._cut_off(self._offset + len(data))
        self._sha256.update(data)
        self._offset += len(data)
        self._sealed, self._closing = True, None
        self._catalog.sealed(header.number, end=seal.end, file_bytes=self._offset, sealed_us=seal.sealed_us)
        self.finished.append(Sealed(header.number, self._sha256.digest(), self._close_events()))

    def _cut_off(self, size_bytes: int) -> None:
        """End the file behind its seal. Synced: a stub keeps whatever follows the seal, and after a power loss that
        must not be the zeros of a prewritten file."""
        assert self._file is not None
        self._file.truncate(size_bytes)
        self._file.sync()

    def _close_events(self) -> int:
        """Close the side file of the segment just sealed. Returns its number of events; -1: none is to be finished."""
        if self._events is None:
            return -1
        self._drop_events()
        return self._events_count

    def _following(self) -> SegmentHeader:
        """The header of the segment after the one just sealed."""
        previous = self._header
        return SegmentHeader(
            store=self._store,
            number=previous.number + 1 if previous is not None else 1,
            epoch=secrets.randbits(64),
            base=self._catalog.end,
            created_us=self._clock_us(),
            alignment=self._options.alignment_bytes,
            previous_number=previous.number if previous is not None else 0,
            previous_length=self._offset if previous is not None else 0,
            previous_sha256=self._sha256.digest() if previous is not None else NO_HASH,
            previous_cut=self._cut,
        )

    def _prepare(self, header: SegmentHeader, needed_bytes: int = 0) -> tuple[Path, DiskFile, SegmentHeader]:
        """Take a prewritten file for it; remembered until it is open."""
        if self._taken is None:
            size_bytes = self._options.prewritten_bytes(self._catalog.end)
            self._taken = self._reserve.take(needed_bytes) or self._reserve.make(size_bytes)
        path = self._taken
        self._next = (path, self._folder.disk.open(path, OpenMode.SYNCED), header)
        self._taken = None
        return self._next

    def _open_next(self, needed_bytes: int = 0) -> None:
        folder = self._folder
        path, file, header = self._next or self._prepare(self._following(), needed_bytes)
        page = header.encode()
        write_all(file, page, 0)
        # Should the sync fail for want of room, the next try finds the file under its new name.
        folder.disk.rename(path, folder.segment(header.number))
        self._next = (folder.segment(header.number), file, header)
        folder.disk.sync_folder(folder.journal)
        capacity = file.size()
        self._catalog.opened(SegmentInfo(header.number, header.base, header.base, capacity, False, False, 0))
        if self._file is not None:
            self._file.close()
        self._file, self._header, self._next = file, header, None
        self._offset, self._capacity, self._cut, self._sealed = HEADER_BYTES, capacity, 0, False
        self._sha256 = hashlib.sha256(page)
        self._events_count = self._events_synced = 0
        try:
            self._events = folder.disk.open(folder.segment(header.number, suffix=EVENTS + PART), OpenMode.WRITE)
        except OSError:
            self._events = None
