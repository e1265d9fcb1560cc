"""A message between where it came from and its queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acquit.broker.intake.shaping import Posting
    from acquit.broker.nodes.node import Queue
    from acquit.broker.nodes.topics import Topic


@dataclass(slots=True)
class Arrival:
    """A message on its way into queues, and what is known of it so far."""

    payload: bytes
    """The message, byte for byte."""
    container: str
    """The container-id of the peer that it came from, for subscriptions that want nothing of their own."""
    posting: Posting
    target: Queue | Topic
    """Node that it was sent to. Its policy holds for the message, those of the queues for the room in them."""
    queues: list[Queue]
    """Queues that it goes to: several for a topic, perhaps none."""
    actor: int
    expires_at_ms: int

    def meta(self) -> bytes:
        """The plain fields of its record."""
        return self.posting.meta(
            self.target.address.encode(),
            self.payload,
            expires_at_ms=self.expires_at_ms,
            due_at_ms=self.posting.due_at_ms,
        )


__all__ = ["Arrival"]
