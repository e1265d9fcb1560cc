"""The broker's pen: writes what happens into the journal, cheaply.

Transitions are gathered and leave as one TRANSITIONS record: just before any other record that is not a posting, and
when the batch is taken. So within one batch postings may come before transitions that were made earlier. That is
harmless, because a batch is all there or not at all, and it lets a wake-up that posts, acquires and accepts in turns
still write one array.

The recorder also keeps the `StateTable` in step with what it writes, so that the checkpoint can write any of it again
without asking the broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from acquit.errors import StoreFull
from acquit.ledger.events import ATTEMPT_MAX, DURABLE, EVENT, EventKind, pack_event, pack_events
from acquit.ledger.records import Entry, RecordKind, encode_events
from acquit.ledger.table import StateTable
from acquit.store.interface import Batch, Journal, Position

RECORD_BYTES: Final = 128
"""No record takes more beside its names, its events and its payload."""

_MANY: Final = 16
"""Postings that are appended together for less than one by one."""
_POSTING = int(RecordKind.POSTING)
_POSTED = int(EventKind.POSTED)


NOTHING_SUMMED: Final = (b"", 0)
"""No payload whose CRC-32 is known: it is that of no octets."""


class Recorder:
    """All appends of one broker go through here. On the loop.

    Every method that writes raises StoreFull when even the reserve is used up.
    """

    def __init__(self, journal: Journal, table: StateTable, *, events_max: int = 4096) -> None:
        """`events_max`: a TRANSITIONS record is cut at this many events, so that no record grows without bound."""
        self.journal = journal
        self.table = table
        self.summed: tuple[bytes, int] = NOTHING_SUMMED
        """A payload whose CRC-32 is known before it is recorded, and that. Whoever sets it takes it back."""
        self._events_bytes_max = events_max * EVENT.size
        self._events = bytearray()
        """Packed events that are to be a record, or several."""
        self._behind: deque[Entry | tuple[RecordKind, bytearray]] = deque()
        """Entries and packed events that go before the transitions: what found no room, in order, with the transitions
        before it."""

    def posted(
        self,
        sequence: int,
        queue: int,
        payload: bytes,
        meta: bytes,
        time_us: int,
        *,
        actor: int = 0,
        origin: int = 0,
        kind: int = _POSTED,
        flags: int = DURABLE,
        transaction: int = 0,
        essential: bool = False,
    ) -> tuple[Position, int]:
        """A message enters a queue (or is HELD): its position, and its fingerprint for later transitions.

        `meta` as `records.encode_posting_meta` gives it. Raises StoreFull while the journal is full, unless
        `essential`: a dead letter or an expired copy is the consequence of an outcome, and written from the reserve.
        """
        journal = self.journal
        if journal.full and not essential:
            raise StoreFull("the disk is full: no postings until there is room")
        summed, crc = self.summed
        if payload is not summed:
            crc = crc32(payload)
        fingerprint = len(payload) << 32 | crc
        event = pack_event(sequence, origin, time_us, fingerprint, queue, actor, kind, flags, 0, transaction)
        return journal.append(_POSTING, event, meta, payload, crc), fingerprint

    def posted_together(
        self,
        sequences: Sequence[int],
        queue: int,
        payloads: Sequence[bytes],
        metas: Sequence[bytes],
        time_us: int,
        actor: int,
        *,
        kind: int = _POSTED,
        transaction: int = 0,
    ) -> tuple[list[Position], list[int]]:
        """`posted` of durable messages that enter one queue together (or are HELD), up to the first for which there is
        no room: their positions, and their fingerprints."""
        if self.journal.full:
            return [], []
        if len(payloads) < _MANY:  # few come where nobody is in a hurry, and each would bear more of what is done once
            positions, fingerprints = [], []
            for sequence, payload, meta in zip(sequences, payloads, metas, strict=True):
                try:
                    position, fingerprint = self.posted(
                        sequence, queue, payload, meta, time_us, actor=actor, kind=kind, transaction=transaction
                    )
                except StoreFull:
                    break
                positions.append(position)
                fingerprints.append(fingerprint)
            return positions, fingerprints
        crcs = list(map(crc32, payloads))
        fingerprints = [len(payload) << 32 | crc for payload, crc in zip(payloads, crcs, strict=True)]
        packed = pack_events(
            sequences, fingerprints, time_us, queue, actor, kind, flags=DURABLE, transaction=transaction
        )
        events = [packed[place : place + EVENT.size] for place in range(0, len(packed), EVENT.size)]
        positions = self.journal.append_together(_POSTING, events, metas, payloads, crcs)
        return positions, fingerprints[: len(positions)]

    def copies(self, events: bytes) -> None:
        """More queues that messages posted in this turn entered: packed POSTED events flagged COPY, whose `origin` is
        the message with the payload. Kept, as transitions are, where there is no room: the batch with their posting
        is not taken without them."""
        self._set_behind()
        self._behind.append((RecordKind.COPIES, bytearray(events)))
        self.flush()

    def transition(
        self,
        kind: int,
        sequence: int,
        queue: int,
        fingerprint: int,
        time_us: int,
        actor: int = 0,
        attempt: int = 0,
        origin: int = 0,
        flags: int = DURABLE,
        transaction: int = 0,
    ) -> None:
        """Record one event, packed with its neighbours. It is durable when the batch taken next is."""
        if attempt > ATTEMPT_MAX:
            attempt = ATTEMPT_MAX
        self.transitions(
            pack_event(sequence, origin, time_us, fingerprint, queue, actor, kind, flags, attempt, transaction)
        )

    def transitions(self, events: bytes) -> None:
        """`transition` for many: packed events."""
        self._events += events
        if len(self._events) >= self._events_bytes_max:
            self.flush()

    def append(self, entry: Entry) -> Position:
        """Any other record."""
        self.flush()
        position = self.journal.append(*entry.encode())
        self.table.apply(entry, position)
        return position

    def keep(self, entry: Entry) -> None:
        """Append what must be told of a message: where there is no room it is kept, in its place among the transitions,
        as those are. Raises StoreFull then all the same."""
        try:
            self.append(entry)
        except StoreFull:
            self._set_behind()
            self._behind.append(entry)
            raise

    def _set_behind(self) -> None:
        """The transitions, for something that goes behind them and before those that are still to come."""
        if self._events:
            self._behind.append((RecordKind.TRANSITIONS, self._events))
            self._events = bytearray()

    def flush(self) -> None:
        """Write the gathered transitions and copies into the pending batch."""
        while self._behind:
            first = self._behind[0]
            if isinstance(first, tuple):
                kind, events = first
                self._write(kind, events)
            else:
                self.table.apply(first, self.journal.append(*first.encode()))
            self._behind.popleft()
        self._write(RecordKind.TRANSITIONS, self._events)

    def _write(self, kind: RecordKind, events: bytearray) -> None:
        """Move packed events into the pending batch, as records of bounded size. They are forgotten only once they are
        in: a journal without room keeps its caller's events."""
        while events:
            self.journal.append(*encode_events(kind, bytes(events[: self._events_bytes_max])))
            del events[: self._events_bytes_max]

    @property
    def pending(self) -> bool:
        """True if there is something for a batch."""
        return bool(self._events or self._behind) or self.journal.pending

    @property
    def pending_bytes(self) -> int:
        return len(self._events) + self.journal.pending_bytes

    @property
    def room_bytes(self) -> int:
        """Bytes that the pending batch may still take, beside what has been gathered for it."""
        if self._behind:
            return 0
        return max(0, self.journal.room_bytes - len(self._events) - 2 * RECORD_BYTES)

    def has_room(self, metas: Sequence[bytes], payloads_bytes: int) -> bool:
        """Return whether `posted_together` would append all of these."""
        needed = len(metas) * RECORD_BYTES + sum(map(len, metas)) + payloads_bytes
        return not self.journal.full and needed <= self.room_bytes

    def take_batch(self) -> Batch | None:
        """Take a batch as `Journal.take_batch` does, with the gathered transitions in it. Take batches only here."""
        if self.journal.in_flight:
            return None
        self.flush()
        return self.journal.take_batch()
