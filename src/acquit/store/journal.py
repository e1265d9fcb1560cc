"""The journal on the event loop: gathers records, hands out batches, learns what is durable.

Appending costs a struct, a checksum and three list items; nothing here touches the disk. Where a record will stand is
simple arithmetic, because positions do not know segments: the pending batch begins where the batch in flight ends.

**Room.** As long as the disk gives prewritten segments, there is no limit. Once it does not (`Reserve.disk_full`), all
that can still be written is the rest of the open segment and what was prewritten. The loop then refuses in two steps:
`full` when only the reserve is left, for postings; StoreFull from `append` itself when that is used up, for everything.
Both end by themselves when prewriting succeeds again.
"""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, repeat
from operator import add
from typing import Final, cast
from zlib import crc32

from acquit.errors import StoreFailed, StoreFull
from acquit.store.catalog import Catalog, RecordReader
from acquit.store.chores import Erase, ReadDeletion
from acquit.store.housekeeper import Housekeeper
from acquit.store.interface import (
    EVENT_BYTES,
    EVENTFUL,
    SKIPPABLE,
    Batch,
    Chore,
    Position,
    Record,
    SegmentInfo,
)
from acquit.store.options import MIB, JournalOptions
from acquit.store.record import (
    BATCH_HEAD_BYTES,
    PIECE_BYTES,
    RECORD_HEAD_BYTES,
    StoreKind,
    pack_crc,
    pack_head,
    padding,
)
from acquit.store.reserve import Reserve, which
from acquit.store.segment import encode_left
from acquit.store.writer import SegmentWriter, WriteBatch

_PENDING_MAX: Final = 1024 * MIB
"""A batch's length is 32 bits; far beyond `congested`, this only bounds what a caller who ignores that can do."""
_NO_EVENT: Final = bytes(EVENT_BYTES)


class SegmentedJournal:
    """See `acquit.store.interface.Journal`. Made by `acquit.store.recovery.open_store`."""

    def __init__(
        self,
        *,
        options: JournalOptions,
        writer: SegmentWriter,
        catalog: Catalog,
        reader: RecordReader,
        reserve: Reserve,
        housekeeper: Housekeeper,
        lock: contextlib.ExitStack,
        left_through: int,
        clock_us: Callable[[], int],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._writer = writer
        self._catalog = catalog
        self._reader = reader
        self._reserve = reserve
        self._housekeeper = housekeeper
        self._lock = lock
        self._left_through = left_through
        self._clock_us = clock_us
        self._clock_s = clock_s
        self._parts: list[bytes] = []
        self._records = 0
        self._upkeep = 0
        """Number of these records that are the journal's own."""
        self._eventful_batches = 0
        self._turning = False
        """The pending batch begins a segment."""
        self._in_pieces = False
        """The pending batch has a record that is copied in pieces."""
        self._in_flight: WriteBatch | None = None
        self._chore: Chore | None = None
        self._synced = catalog.end
        self._start = catalog.end
        self._next = Position(self._start + BATCH_HEAD_BYTES)
        self._limit = 0
        self._full = False
        self._measure_room()

    # -- the loop: records and batches ------------------------------------------------------------------------------

    def append(
        self,
        kind: int,
        event: bytes,
        meta: bytes = b"",
        payload: bytes = b"",
        payload_crc: int = 0,
        flags: int = EVENTFUL,
        version: int = 1,
    ) -> Position:
        position = self._next
        head = pack_head(len(payload), len(meta), kind, version, flags, event) + meta
        following = position + 4 + len(head) + len(payload)
        if following > self._limit:
            raise StoreFull("no room for this record: the disk is full and the reserve is used up")
        if following - position > PIECE_BYTES:
            self._in_pieces = True
        self._parts += (pack_crc(crc32(head, payload_crc)), head, payload)
        self._next = Position(following)
        self._records += 1
        return position

    def append_together(
        self,
        kind: int,
        events: Iterable[bytes],
        metas: Sequence[bytes],
        payloads: Sequence[bytes],
        payload_crcs: Iterable[int],
    ) -> list[Position]:
        """Append a column at a time: what would be a dozen steps for each record are a dozen for all."""
        metas_bytes, payloads_bytes = list(map(len, metas)), list(map(len, payloads))
        sizes = [RECORD_HEAD_BYTES + meta + payload for meta, payload in zip(metas_bytes, payloads_bytes, strict=True)]
        positions = list(accumulate(sizes, initial=int(self._next)))
        count = bisect_right(positions, self._limit, 1) - 1  # as many as end within the room: the first is never behind
        packed = map(pack_head, payloads_bytes[:count], metas_bytes, repeat(kind), repeat(1), repeat(EVENTFUL), events)
        heads = list(map(add, packed, metas))
        crcs = map(pack_crc, map(crc32, heads, payload_crcs))
        parts = list(chain.from_iterable(zip(crcs, heads, payloads[:count], strict=True)))
        self._parts += parts
        self._next = Position(positions[count])
        self._records += count
        return cast("list[Position]", positions[:count])

    @property
    def synced(self) -> Position:
        return self._synced

    @property
    def end(self) -> Position:
        return self._next

    @property
    def pending(self) -> bool:
        return self._records > 0

    @property
    def pending_bytes(self) -> int:
        return self._next - self._start - BATCH_HEAD_BYTES

    @property
    def in_flight(self) -> bool:
        return self._in_flight is not None

    @property
    def eventful_batches(self) -> int:
        return self._eventful_batches + (self._records > self._upkeep)

    @property
    def congested(self) -> bool:
        return self._next - self._start > self._options.batch_bytes_max

    @property
    def full(self) -> bool:
        return self._full

    @property
    def room_bytes(self) -> int:
        return max(0, self._limit - self._next)

    @property
    def failure(self) -> StoreFailed | None:
        """The I/O error that ended the journal."""
        return self._writer.failure

    def take_batch(self) -> Batch | None:
        if not self._records or self._in_flight is not None:
            return None
        start = self._start
        body_bytes = self._next - start - BATCH_HEAD_BYTES
        self._eventful_batches = self.eventful_batches
        self._upkeep = 0
        filling = padding(BATCH_HEAD_BYTES + body_bytes, self._options.alignment_bytes)
        self._parts.append(bytes(filling))
        end = Position(start + BATCH_HEAD_BYTES + body_bytes + filling)
        batch = WriteBatch(
            self._writer,
            start=start,
            end=end,
            records=self._records,
            parts=self._parts,
            in_pieces=self._in_pieces,
            body_bytes=body_bytes,
            synced_end=self._synced,
            time_us=self._clock_us(),
            turning=self._turning,
        )
        self._in_flight = batch
        self._turning = self._in_pieces = False
        self._parts = []
        self._records = 0
        self._start = end
        self._next = Position(end + BATCH_HEAD_BYTES)
        self._measure_room()
        return batch

    def complete(self, batch: Batch) -> Position:
        if batch is not self._in_flight:
            raise ValueError("this batch is not in flight")
        self._in_flight = None
        self._synced = batch.end
        self._measure_room()
        return self._synced

    def _measure_room(self) -> None:
        """Measure how far the pending batch may grow, and whether postings are welcome.

        A batch goes whole into one place: the rest of the open segment, or a prewritten one. The batch in flight is
        counted as not yet written, which may be a moment too careful.
        """
        limit = self._start + _PENDING_MAX
        self._full = False
        if self._reserve.disk_full:
            options, sizes = self._options, self._reserve.sizes
            whole = options.prewritten_bytes(self._synced)
            overhead = self._writer.overhead_bytes
            room = self._writer.room_bytes
            flight = self._start - self._synced
            if flight > room:
                room = max(0, (sizes.pop(which(sizes, overhead + flight)) if sizes else whole) - overhead)
            room -= flight
            limit = min(limit, self._start + max(0, room, sizes[-1] - overhead if sizes else 0))
            margin = min(whole // 8, options.batch_bytes_max)
            left, kept = sum(sizes), options.reserve_segments * whole
            self._full = left < kept or (room < margin and (not sizes or left - sizes[0] < kept))
        self._limit = limit

    # -- the loop: segments -----------------------------------------------------------------------------------------

    @property
    def segments(self) -> Sequence[SegmentInfo]:
        return self._catalog.segments

    def age_us(self, segment: SegmentInfo, time_us: int) -> int:
        return self._catalog.age_us(segment, time_us, self._clock_s())

    def leave(self, number: int, summary: bytes) -> None:
        left = self._left_through
        oldest = next((info for info in self._catalog.segments if info.sealed and info.number > left), None)
        if oldest is None or oldest.number != number:
            raise ValueError(f"segment {number} is not the oldest closed one that has not left")
        position = self._note(StoreKind.LEFT, encode_left(number), summary)
        self._left_through = number
        self._housekeeper.leaving(number, position)

    @property
    def left_through(self) -> int:
        return self._left_through

    def turn(self) -> None:
        if self._reserve.disk_full:
            raise StoreFull("no segment is begun before its time while the disk is full")
        if not self._turning:
            self._note(StoreKind.TURNED, flags=SKIPPABLE)
            self._turning = True

    def take_chore(self) -> Chore | None:
        if self._chore is not None or self._writer.failure is not None:
            return None
        self._chore = self._housekeeper.next(self._synced, self._clock_s(), self._clock_us())
        return self._chore

    def complete_chore(self, chore: Chore) -> None:
        if chore is not self._chore:
            raise ValueError("this chore is not out")
        self._chore = None
        self._housekeeper.done(chore, self._clock_s())
        self._measure_room()
        with contextlib.suppress(StoreFull):
            if isinstance(chore, ReadDeletion) and chore.deleted is not None:
                position = self._note(StoreKind.DELETED, chore.deleted.encode(), chore.summary)
                self._housekeeper.deleting(chore.number, position)
            elif isinstance(chore, Erase) and chore.erased is not None:
                position = self._note(StoreKind.ERASED, chore.erased.encode(), flags=SKIPPABLE)
                self._housekeeper.erased(chore.number, position)

    def _note(self, kind: StoreKind, meta: bytes = b"", payload: bytes = b"", flags: int = 0) -> Position:
        """Append a record of the journal's own."""
        position = self.append(kind, _NO_EVENT, meta, payload, crc32(payload), flags)
        self._upkeep += 1
        return position

    # -- any thread -------------------------------------------------------------------------------------------------

    def read(self, position: Position, size_hint: int = 4096) -> Record:
        return self._reader.read(position, size_hint)

    def read_payloads(self, positions: Sequence[Position], size_hints: Sequence[int]) -> list[bytes | None]:
        return self._reader.read_payloads(positions, size_hints)

    def read_seal(self, number: int) -> bytes:
        return self._reader.read_seal(number).summary

    def check_place(self) -> None:
        """Raise StoreFailed where the folder is not at its path any more. No batch may be in flight."""
        self._writer.check_place()

    def close(self) -> None:
        self._writer.close()
        self._reader.close()
        self._lock.close()
