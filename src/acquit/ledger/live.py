"""A live message, as the fold holds it after recovery and as the checkpoint copies it forward."""

from __future__ import annotations

from acquit.ledger.records import AttemptNote
from acquit.store.interface import Position


class LiveMessage:
    """One message in one queue, without its body. Slotted and mutable: there may be a million."""

    __slots__ = (
        "actor",
        "annotations",
        "attempt",
        "attempts",
        "crc",
        "due_at_ms",
        "excluded",
        "expires_at_ms",
        "flags",
        "position",
        "posted_us",
        "priority",
        "queue",
        "sequence",
        "size",
        "suspended",
        "transaction",
    )

    sequence: int
    queue: int
    position: Position
    """Of the record that holds its payload: POSTING, or COPIED once it was copied forward."""
    crc: int
    size: int
    flags: int
    """EventFlag: DURABLE, COPY, ID_REUSED, DISPATCHED (was acquired at least once)."""
    attempt: int
    """delivery-count"""
    actor: int
    """Who has it acquired; 0: nobody."""
    suspended: bool
    posted_us: int
    expires_at_ms: int
    due_at_ms: int
    """Not offered before; 0: at once."""
    priority: int
    transaction: int
    """Held by this transaction (not in the queue yet); 0: in the queue."""
    attempts: tuple[AttemptNote, ...]
    excluded: tuple[str, ...]
    annotations: tuple[bytes, ...]
    """AMQP maps that modified outcomes want merged into the message annotations, oldest first."""
