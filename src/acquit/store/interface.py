"""What the journal offers, and to whom: the types that the broker, the ledger and the tests code against.

The journal is one endless sequence of *records*. A record is appended on the event loop, gathered with others into a
*batch*, written and synced as a whole by a worker thread, and only then may anybody be told that what it says is so.
Three threads of work meet here, and each may touch only its own verbs::

    event loop      append  take_batch  complete        take_chore  complete_chore     (never block)
    batch thread    batch.write_and_sync()                                             (one at a time, in order)
    chore thread    chore.run()                                                        (one at a time; may be slow)
    any thread      read

A batch is atomic: after a crash all of its records are there or none is. So whatever belongs together (a dead letter
and the retirement of its original, a commit and what it commits) is appended without a `take_batch` in between, which
on an event loop means: in one turn.

**Positions** are addresses in one endless log: bytes, counted over all segments, without segment headers and seals. A
record's position is therefore known the moment it is appended, however the batch is later laid into segments, it fits
one int, and comparing positions compares ages. What was appended at `p` is durable exactly when ``p < journal.synced``.

**Records.** `kind`, `version` and `flags` say how to read the rest; `event` is always 48 bytes, laid out by
`acquit.ledger.records` (the store treats it as opaque); `meta` are the record's plain fields; `payload` is the bulk
(a message as it came), kept apart so that it is checksummed once and can be handed on without copying.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NewType, Protocol

Position = NewType("Position", int)
"""A byte address in the endless log; see above. Ordered by age, never reused within what is durable."""

EVENT_BYTES = 48

SKIPPABLE = 0x8000
"""Record flag: a reader that does not know the kind may pass over the record (it changes no message's fate)."""


class Record(NamedTuple):
    """One record as read back, verified."""

    position: Position
    lsn: int
    """Its ordinal in the journal, from 0, without holes over all segments."""
    kind: int
    version: int
    flags: int
    event: bytes
    """Exactly `EVENT_BYTES`."""
    meta: bytes
    payload: bytes
    """The bulk; b"" when it was scanned without payloads, in which case `payload_bytes` still tells its length."""
    payload_bytes: int
    payload_crc: int
    """CRC-32 of the payload: what `append` was given as `payload_crc`."""
    crc: int
    """CRC-32 of the whole record (payload first): with position and lsn, its identity for the audit."""


class Batch(Protocol):
    """Records on their way to the disk."""

    @property
    def end(self) -> Position:
        """Everything appended before the batch was taken lies below this position."""
        ...

    @property
    def size_bytes(self) -> int: ...

    def write_and_sync(self, announce: Callable[[], None] | None = None) -> None:
        """Write and sync; on the batch thread. `announce` is called there as soon as the batch is durable (typically
        a ``loop.call_soon_threadsafe`` of `Journal.complete`); afterwards some digesting work is done before this
        returns, so the next batch must be given to the same thread.

        Raises StoreFull when the disk has no room: nothing is lost or half counted, call it again later (it writes
        from the same offset). Raises StoreFailed on an I/O error: the journal is finished, what this batch says is
        unknown until recovery, and nothing later is accepted.
        """
        ...


class Chore(Protocol):
    """A piece of slow housekeeping: prewriting a segment, finishing a sealed one, archiving, deleting."""

    def run(self) -> None:
        """Do it, on the chore thread. Never raises for a full disk (the journal learns it by `complete_chore`)."""
        ...


class Journal(Protocol):
    """The journal as the broker sees it."""

    @property
    def synced(self) -> Position:
        """Everything below is durable."""
        ...

    @property
    def end(self) -> Position:
        """Where the next record would go, if it is appended before the next `take_batch`."""
        ...

    @property
    def pending(self) -> bool:
        """Something was appended since the last batch was taken."""
        ...

    @property
    def pending_bytes(self) -> int:
        """Appended and not yet taken. The caller keeps it bounded: see `congested`."""
        ...

    @property
    def congested(self) -> bool:
        """More than `batch_bytes_max` is waiting: take no more postings until a batch completes."""
        ...

    @property
    def full(self) -> bool:
        """The disk has no room for ordinary work: refuse postings (StoreFull), go on with outcomes from the reserve."""
        ...

    def append(
        self,
        kind: int,
        event: bytes,
        meta: bytes = b"",
        payload: bytes = b"",
        payload_crc: int = 0,
        flags: int = 0,
        version: int = 1,
    ) -> Position:
        """Add a record to the pending batch. Never blocks, never touches the disk.

        `payload_crc` must be ``zlib.crc32(payload)`` (0 for an empty one); it is not computed again here.
        Raises StoreFull when even the reserve is used up, and StoreFailed after an I/O error.
        """
        ...

    def take_batch(self) -> Batch | None:
        """Everything pending as one batch, joined and checksummed; None when nothing is pending or a batch is still
        in flight (at most one is: the next is gathered meanwhile)."""
        ...

    def complete(self, batch: Batch) -> Position:
        """The batch is durable: `synced` moves to its end, which is returned. On the loop."""
        ...

    def take_chore(self) -> Chore | None:
        """Housekeeping that is due, or None; at most one is out at a time. Ask after each completion and each tick."""
        ...

    def complete_chore(self, chore: Chore) -> None:
        """The chore ran: take note of what it did (a segment more, no room, a segment archived). On the loop."""
        ...

    def read(self, position: Position, size_hint: int = 4096) -> Record:
        """The record at `position`, verified. From any thread; it does block on the disk.

        `size_hint` is the caller's guess of the record's size in bytes, to make it one read. The position must be
        below `synced`. Raises StoreCorrupt when the bytes are not the record that was written, StoreFailed on an I/O
        error, KeyError when the segment was deleted by retention or the position was never written.
        """
        ...

    def close(self) -> None:
        """Close files and give up the lock. What is pending is not written: take and write the last batch first.
        With no thread in any other verb."""
        ...
