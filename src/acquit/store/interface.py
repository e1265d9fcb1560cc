"""Interface of the journal, and who uses what of it: the types that the ledger, the broker and the tests code against.

The journal is one endless sequence of *records*. A record is appended on the event loop, gathered with others into a
*batch*, written and synced as a whole by a worker thread, and only then may anybody be told that what it says is so.
Several threads meet here, and each may use only its own verbs::

    event loop      append  append_together  take_batch  complete  leave  take_chore  complete_chore  (never block)
    batch thread    batch.write_and_sync()                                             (one at a time, in order)
    chore thread    chore.run()                                                        (one at a time; may be slow)
    any thread      read                                                               (blocks on the disk)

A batch is atomic: after a crash all of its records are there or none is. So whatever belongs together (a dead letter
and the retirement of its original, a commit and what it commits) is appended without a `take_batch` in between, which
on an event loop means: in one turn.

**Positions** are addresses in one endless log: bytes, counted over all segments, without segment headers and seals. A
record's position is therefore known the moment it is appended, however the batch is later laid into segments; it fits
one int; and comparing positions compares ages. What was appended at `p` is durable exactly when ``p < journal.synced``.
(What other systems call a log sequence number is, here as in PostgreSQL, this address.)

**Records.** `kind`, `version` and `flags` say how to read the rest; `event` is always 48 bytes, laid out by the
ledger and opaque to the store; `meta` are the record's plain fields; `payload` is the bulk (a message as it came),
kept apart so that it is checksummed once and handed on without copying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, NewType, Protocol

Position = NewType("Position", int)
"""A byte address in the endless log. Ordered by age; never reused for anything that was ever durable."""

EVENT_BYTES = 48

SKIPPABLE = 0x8000
"""Record flag: a reader that does not know the kind may pass over the record (it changes no message's fate)."""
ARRAY = 0x4000
"""Record flag: `meta` is an array of further events."""
EVENTFUL = 0x2000
"""Record flag: the event tells of a message (else it only says when, and to which key, the record applies)."""
ERASED = 0x1000
"""Record flag: zeros stand for the payload, which was erased. The record's checksum is that of the original."""


class Record(NamedTuple):
    """A record as read back, verified."""

    position: Position
    kind: int
    version: int
    flags: int
    event: bytes
    """Exactly `EVENT_BYTES`."""
    meta: bytes
    payload: bytes
    """The bulk; b"" where the reader asked for none, in which case `payload_bytes` still tells its length."""
    payload_bytes: int
    crc: int
    """CRC-32 of the whole record: with the position, its identity for the audit."""


class RecordRun(NamedTuple):
    """Records as they stand side by side in a batch, verified: alike in kind, version and flags, of whatever sizes.

    For who reads millions: what all have at the same place behind their events is unpacked from all at once.
    `acquit.store.record.records_of` gives the records one by one.
    """

    kind: int
    version: int
    flags: int
    shift: int
    """Difference of a record's position and the place of its event."""
    data: bytes
    """The batch that they stand in."""
    events: list[int]
    """Place in `data` of the event of each; its meta follows it, and then its payload."""
    meta_bytes: list[int]
    """Length of the meta of each."""

    @property
    def positions(self) -> list[int]:
        shift = self.shift
        return [shift + at for at in self.events]


class Batch(Protocol):
    """Records on their way to the disk."""

    @property
    def end(self) -> Position:
        """Position below which everything lies that was appended before the batch was taken."""
        ...

    @property
    def size_bytes(self) -> int: ...

    def write_and_sync(self, announce: Callable[[], None] | None = None) -> None:
        """Write and sync; on the batch thread. `announce` is called there as soon as the batch is durable (typically
        a ``loop.call_soon_threadsafe`` of `Journal.complete`); then some digesting is done before this returns, so
        the next batch must be given to the same thread.

        Raises StoreFull when the disk has no room: nothing is lost or half counted, call it again later (it writes
        from the same offset). Raises StoreFailed on an I/O error: the journal is finished, what this batch says is
        unknown until recovery, and nothing later is accepted.
        """
        ...


class Chore(Protocol):
    """A piece of slow housekeeping: prewriting a segment, finishing a sealed one, archiving, deleting."""

    def run(self) -> None:
        """Do it, on the chore thread. A full disk is no error here: the journal hears of it by `complete_chore`.
        Raises StoreFailed on an I/O error."""
        ...


class Digest(Protocol):
    """Summary that is computed along a segment, for its seal. The ledger's; opaque to the store.

    On the batch thread, a batch at a time, after the batch was announced.
    """

    def add(self, events: bytes, others: Sequence[Record]) -> None:
        """The next batch's events as one array, and its records without EVENTFUL, payloads left out."""
        ...

    def seal(self) -> bytes:
        """The summary of the segment that ends here. What follows belongs to the next one."""
        ...

    @property
    def seal_bytes_max(self) -> int:
        """No less than what `seal` would give now: room is kept for it in the prewritten segment."""
        ...


class Replay(Protocol):
    """Receiver of what the journal says, oldest first, when it is opened or read (the ledger's fold)."""

    def segment(self, number: int, base: Position) -> None:
        """Take note that what follows stands in this segment."""
        ...

    def batch(self, runs: Iterator[RecordRun], time_us: int) -> None:
        """All records of one batch, which was begun to be written at `time_us`. To be consumed before returning.

        May raise ValueError for a record that makes no sense, which becomes StoreCorrupt, naming file and offset; and
        StoreVersionUnsupported for one that only a later version of acquit understands.
        """
        ...

    def sealed(self, summary: bytes) -> None:
        """The segment was closed, with this summary in its seal. May raise ValueError, as `batch`."""
        ...


class SegmentInfo(NamedTuple):
    """A segment as the running journal knows it."""

    number: int
    base: Position
    """Position of its first batch."""
    end: Position
    """Position after its last batch; of the open segment, the end of the last batch written."""
    file_bytes: int
    sealed: bool
    archived: bool
    sealed_us: int
    """Microseconds since the epoch when it was sealed, by the clock of then; 0 while open. See `Journal.age_us`."""
    erased: bool = False
    """The payloads in it were erased."""


Erasing = Callable[[Record], bytes | None]
"""Tells what is left of a record when bodies are erased: its meta, of the same length, while its payload becomes zeros;
None for a record that stays as it is. The ledger's."""


class Journal(Protocol):
    """The journal as the broker and the ledger see it."""

    @property
    def synced(self) -> Position:
        """Position below which everything is durable."""
        ...

    @property
    def end(self) -> Position:
        """The position the next record gets, if no batch is taken before."""
        ...

    @property
    def pending(self) -> bool:
        """True if something was appended since the last batch was taken."""
        ...

    @property
    def pending_bytes(self) -> int:
        """Appended and not yet taken. The caller keeps it bounded: see `congested`."""
        ...

    @property
    def in_flight(self) -> bool:
        """A batch was taken and is not complete."""
        ...

    @property
    def eventful_batches(self) -> int:
        """Batches, the pending one included, that had more in them than the journal's own records of segments that
        leave or are deleted."""
        ...

    @property
    def congested(self) -> bool:
        """More than `batch_bytes_max` is waiting: ask for no more postings until a batch completes."""
        ...

    @property
    def full(self) -> bool:
        """The disk has no room for ordinary work: refuse postings (StoreFull); outcomes go on from the reserve."""
        ...

    @property
    def room_bytes(self) -> int:
        """Bytes that the pending batch may still take, with all that each record costs beside its fields."""
        ...

    @property
    def left_through(self) -> int:
        """Segments up to this number have left the recovery set, whether or not they are archived yet."""
        ...

    @property
    def segments(self) -> Sequence[SegmentInfo]:
        """Oldest first, archived ones included, the open one last."""
        ...

    def age_us(self, segment: SegmentInfo, time_us: int) -> int:
        """Return for how long a segment has been closed, also where the clock was ahead when it was. On the loop."""
        ...

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
        """Add a record to the pending batch. Never blocks, never touches the disk.

        `payload_crc` must be ``zlib.crc32(payload)`` (0 for an empty one); it is not computed again here.
        Raises StoreFull when even the reserve is used up. After an I/O error it takes everything, and nothing of it is
        ever written: whoever writes the next batch hears of that, and this side is never stopped halfway.
        """
        ...

    def append_together(
        self,
        kind: int,
        events: Iterable[bytes],
        metas: Sequence[bytes],
        payloads: Sequence[bytes],
        payload_crcs: Iterable[int],
    ) -> list[Position]:
        """`append` for many, which are EVENTFUL and of version 1, up to the first for which there is no room: the
        positions of those that were added. Raises ValueError, with nothing changed, where one of them lacks a part."""
        ...

    def take_batch(self) -> Batch | None:
        """Take everything pending as one batch, joined and checksummed; None when nothing is pending or a batch is
        still in flight (at most one is: the next is gathered meanwhile)."""
        ...

    def complete(self, batch: Batch) -> Position:
        """The batch is durable: `synced` moves to its end, which is returned. On the loop."""
        ...

    def leave(self, number: int, summary: bytes) -> None:
        """The oldest segment that has not left, `number`, need not be read by recovery any more: everything live in it
        was appended again before this call. Once this is synced, it is archived. `summary` is its seal's
        (`read_seal`). Raises as `append`, and ValueError for any other segment."""
        ...

    def turn(self) -> None:
        """Close the open segment, and begin the next, with the next batch. Raises as `append`, and StoreFull while the
        disk is full."""
        ...

    def take_chore(self) -> Chore | None:
        """Housekeeping that is due, or None; at most one is out at a time. Ask after each completion and each tick."""
        ...

    def complete_chore(self, chore: Chore) -> None:
        """The chore ran: take note of what it did. On the loop."""
        ...

    def read(self, position: Position, size_hint: int = 4096) -> Record:
        """The record at `position`, verified. From any thread; blocks on the disk.

        `size_hint` is the caller's guess of the record's size in bytes, to make it one read. Raises KeyError when the
        position was never written, is not yet synced, or its segment was deleted by retention or its bodies erased;
        StoreCorrupt when the
        bytes there are not a whole record; StoreFailed on an I/O error; StoreFull where the system has nothing left to
        open the file with, now.
        """
        ...

    def read_payloads(self, positions: Sequence[Position], size_hints: Sequence[int]) -> list[bytes | None]:
        """The payloads of the records at these positions, each with a guess of the record's size, in their order; None
        where `read` would raise KeyError. Neighbours are read from the disk together. From any thread. Other errors as
        `read`."""
        ...

    def read_seal(self, number: int) -> bytes:
        """The summary in the seal of a closed segment. From any thread; blocks. Errors as `read`."""
        ...

    def close(self) -> None:
        """Seal the open segment, close files, give up the lock. What is pending or in flight is not written: take,
        write and complete the last batch first. With no thread in any other verb. Does not raise for a full or
        failed disk: recovery does the rest."""
        ...
