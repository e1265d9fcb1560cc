"""A message in a queue, as the broker holds it: flat, because there may be a million.

What every message has is in `Message`; what few have (a history of failed attempts, a time before which it is not
offered, consumers that cannot take it) is in its `Extra`, made when the first such thing happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.queue import NodeState
from acquit.ledger.events import EventFlag
from acquit.ledger.live import ATTEMPTS_KEPT_MAX
from acquit.ledger.records import AttemptNote

if TYPE_CHECKING:
    from acquit.broker.endpoints import Consumer
    from acquit.broker.node import Queue

DURABLE: Final = int(EventFlag.DURABLE)
DISPATCHED: Final = int(EventFlag.DISPATCHED)

OVERHEAD_BYTES: Final = 400
"""What a message costs in memory besides its body: the object, its numbers, its place in line. Measured, rounded up."""


class Extra:
    """What few messages have."""

    __slots__ = ("annotations", "aside_bytes", "aside_number", "attempts", "due_at_ms", "excluded")

    def __init__(self) -> None:
        self.due_at_ms = 0
        """Not offered before; 0: at once."""
        self.attempts: tuple[AttemptNote, ...] = ()
        """The latest failed attempts."""
        self.excluded: set[str] = set()
        """Termini that said undeliverable-here (3.4.5), while they live."""
        self.annotations: tuple[bytes, ...] = ()
        """Maps that *modified* outcomes merged into the message annotations; they are in the body already."""
        self.aside_number = 0
        """When it was set aside last: what `node.Queue.aside_changes` was then."""
        self.aside_bytes = 0
        """How large its body was then, which need not be in memory any more."""


class Message:
    """One message in one queue."""

    __slots__ = (
        "attempt",
        "body",
        "expires_at_ms",
        "extra",
        "fingerprint",
        "flags",
        "holder",
        "position",
        "posted_us",
        "priority",
        "queue",
        "sequence",
        "state",
    )

    def __init__(
        self,
        sequence: int,
        queue: Queue,
        state: NodeState,
        body: bytes | None,
        fingerprint: int,
        flags: int,
        priority: int,
        posted_us: int,
        expires_at_ms: int,
        position: int,
    ) -> None:
        self.sequence = sequence
        """Unique in the broker, and the message's place: messages of one priority are offered in its order."""
        self.queue = queue
        self.state = state
        self.body = body
        """All sections behind the header, with our annotations; None while it is only in the journal."""
        self.fingerprint = fingerprint
        """Size and CRC-32 of the payload as it was posted (`ledger.events`); of a volatile message the size alone."""
        self.flags = flags
        """EventFlag: DURABLE, DISPATCHED."""
        self.priority = priority
        self.posted_us = posted_us
        self.expires_at_ms = expires_at_ms
        """0: never."""
        self.position = position
        """Of the journal's record that has its payload; of a volatile message 0."""
        self.attempt = 0
        """delivery-count"""
        self.holder: Consumer | None = None
        """Who has it acquired."""
        self.extra: Extra | None = None

    @property
    def durable(self) -> bool:
        """Is it in the journal?"""
        return bool(self.flags & DURABLE)

    @property
    def size_bytes(self) -> int:
        """Of the payload as it was posted."""
        return self.fingerprint >> 32

    @property
    def due_at_ms(self) -> int:
        """Not offered before; 0: at once."""
        return 0 if self.extra is None else self.extra.due_at_ms

    def need_extra(self) -> Extra:
        """Its `Extra`, made now if it had none."""
        if self.extra is None:
            self.extra = Extra()
        return self.extra

    def note(self, attempt: AttemptNote) -> None:
        """Remember a failed attempt; of many, the latest."""
        extra = self.need_extra()
        extra.attempts = (*extra.attempts, attempt)[-ATTEMPTS_KEPT_MAX:]

    def __repr__(self) -> str:
        return f"<Message {self.sequence} {self.state.name} in {self.queue.name!r}>"


__all__ = ["DISPATCHED", "DURABLE", "OVERHEAD_BYTES", "Extra", "Message"]
