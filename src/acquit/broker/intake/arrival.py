"""What is known of a message between its delivery and its queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acquit.broker.intake.duplicates import Identity
    from acquit.broker.intake.shaping import Posting
    from acquit.broker.links.endpoints import Producer
    from acquit.broker.nodes.node import Queue
    from acquit.broker.nodes.topics import Topic
    from acquit.protocol.delivery import Delivery


@dataclass(slots=True)
class Arrival:
    """One delivery on its way into queues: what is known of it so far."""

    producer: Producer
    delivery: Delivery
    posting: Posting
    target: Queue | Topic
    """Where it was sent. Its policy holds for the message, those of the queues for the room in them."""
    queues: list[Queue]
    """Where it goes: several for a topic, perhaps none."""
    actor: int
    expires_at_ms: int
    identity: Identity | None = None
    """The id that tells duplicates, and what is known of it; None: it has none that counts."""

    @property
    def payload(self) -> bytes:
        """The message, byte for byte."""
        return self.delivery.payload


__all__ = ["Arrival"]
