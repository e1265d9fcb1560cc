"""A queue: its messages, who uses it, and its accounts.

The queue itself decides nothing; it is what posting, dispatch and settlement work on. Its accounts hold at every moment
(ledger promise P3)::

    entered - retired  ==  live  ==  pending + available + acquired + scheduled
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.backlog import Backlog
from acquit.ledger.events import ENTERING, RETIRING

if TYPE_CHECKING:
    from acquit.broker.browsing import Browser
    from acquit.broker.endpoints import Consumer, Producer
    from acquit.broker.message import Message
    from acquit.broker.options import AddressPolicy

KINDS: Final = 64
"""Room for every EventKind."""
_ENTERING: Final = tuple(map(int, ENTERING))
_RETIRING: Final = tuple(map(int, RETIRING))


class Queue:
    """One queue. Made by `queues.Queues`."""

    __slots__ = (
        "acquired",
        "address",
        "aside",
        "aside_changes",
        "auto_created",
        "backlog",
        "browsers",
        "bytes",
        "consumers",
        "counts",
        "memory_bytes",
        "name",
        "number",
        "pending",
        "policy",
        "producers",
        "purging",
        "reading",
        "rotation",
        "scheduled",
        "volatile",
    )

    def __init__(self, number: int, name: str, address: str, policy: AddressPolicy, *, auto_created: bool) -> None:
        self.number = number
        """Its name in the journal; never reused."""
        self.name = name
        self.address = address
        self.policy = policy
        self.auto_created = auto_created
        self.backlog = Backlog()
        self.pending = 0
        """Posted; the record waits for the disk."""
        self.acquired = 0
        self.scheduled: dict[int, Message] = {}
        """By sequence."""
        self.aside: dict[int, Message] = {}
        """Available, by sequence, but some consumer may not have them, so they are out of the line: undeliverable-here,
        or larger than it takes. The last that was set aside is the last in it."""
        self.aside_changes = 0
        """Grows with each message that is set aside."""
        self.consumers: list[Consumer] = []
        """Links that acquire."""
        self.browsers: list[Browser] = []
        self.producers: dict[Producer, None] = {}
        self.rotation = 0
        """Whose turn it is among the consumers."""
        self.bytes = 0
        """Payloads of all live messages, as they were posted."""
        self.memory_bytes = 0
        """What those whose bodies are in memory cost."""
        self.reading = False
        """Bodies are being read back for it, and dispatch waits for them."""
        self.purging = 0
        """Purges that have not ended, and dispatch waits for them."""
        self.counts = [0] * KINDS
        """By EventKind, since the beginning of the journal."""
        self.volatile = [0] * KINDS
        """Of volatile messages, what the journal has not been told yet."""

    @property
    def available(self) -> int:
        """Messages that could be acquired now."""
        return self.backlog.count + len(self.aside)

    @property
    def live(self) -> int:
        """Messages in the queue, whatever their state."""
        return self.pending + self.available + self.acquired + len(self.scheduled)

    @property
    def entered(self) -> int:
        """Messages that ever entered."""
        counts = self.counts
        return sum(counts[kind] for kind in _ENTERING)

    @property
    def retired(self) -> int:
        """Messages that left for good."""
        counts = self.counts
        return sum(counts[kind] for kind in _RETIRING)

    @property
    def held_up(self) -> bool:
        """Nothing is handed out for now: bodies are being read back, or a purge has not ended."""
        return self.reading or self.purging > 0

    @property
    def in_use(self) -> bool:
        """Has it messages or links?"""
        return bool(self.consumers or self.browsers or self.producers or self.live)

    def __repr__(self) -> str:
        return f"<Queue {self.number} {self.name!r} live={self.live}>"


__all__ = ["KINDS", "Queue"]
