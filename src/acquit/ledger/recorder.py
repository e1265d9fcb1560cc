"""The broker's pen: writes what happens into the journal, cheaply.

Transitions are gathered and leave as one TRANSITIONS record: just before any other kind of record but a posting, and
when the batch is taken. So within one batch postings may come before transitions that were made earlier. That is
harmless, because a batch is all there or not at all, and it lets a wake-up that posts, acquires and accepts in turns
still write a single array.
"""

from __future__ import annotations

from acquit.ledger.records import Encoded
from acquit.store.interface import Batch, Journal, Position


class Recorder:
    """All appends of one broker go through here. On the loop.

    Every method raises StoreFull when even the reserve is used up, and StoreFailed after an I/O error.
    """

    def __init__(self, journal: Journal, *, events_max: int = 4096) -> None:
        """`events_max`: a TRANSITIONS record is cut at this many events."""
        ...

    def posted(
        self,
        sequence: int,
        queue: int,
        payload: bytes,
        meta: bytes,
        *,
        time_us: int,
        actor: int = 0,
        origin: int = 0,
        kind: int = 1,
        flags: int = 1,
        transaction: int = 0,
        essential: bool = False,
    ) -> tuple[Position, int]:
        """A message enters (or is HELD): its position and the CRC-32 of its payload.

        `meta` as `records.encode_posting_meta` gives it. Raises StoreFull while the journal is full, unless `essential`: a
        dead letter or an expired copy is the consequence of an outcome, and is written from the reserve.
        """
        ...

    def transition(
        self,
        kind: int,
        sequence: int,
        queue: int,
        crc: int,
        size: int,
        time_us: int,
        actor: int = 0,
        attempt: int = 0,
        origin: int = 0,
        flags: int = 1,
        transaction: int = 0,
    ) -> None:
        """One event, packed with its neighbours. It is durable when the batch taken next is."""
        ...

    def append(self, record: Encoded) -> Position:
        """Any other record: ``recorder.append(Queue(...).encode())``."""
        ...

    @property
    def pending(self) -> bool: ...

    def take_batch(self) -> Batch | None:
        """Use this in place of `Journal.take_batch`: it flushes the gathered transitions first."""
        ...
