"""Immutable snapshots of a broker, for people and tools: what is where, and who holds it.

A snapshot is taken in one turn of the broker's loop, so its numbers belong together; it is plain data, and may be read
on any thread. Counts are of messages. The totals of a queue are those of the ledger's balance, volatile messages
included::

    entered = live + accepted + consumed + dead_lettered + expired + dropped + displaced + moved_out + purged
              + lost_volatile
    live    = pending + available + acquired + scheduled + suspended
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """One queue."""

    name: str
    address: str
    kind: str = "queue"
    """``queue``, ``subscription`` (a queue that a topic feeds), ``topic`` (no queue, but counted with them), and the
    temporary ones, ``temporary queue`` and ``temporary topic``."""
    available: int = 0
    """Could be acquired now."""
    acquired: int = 0
    """Held by a consumer."""
    scheduled: int = 0
    """Waiting for its time."""
    suspended: int = 0
    """Held by a link that is away and may resume."""
    undeliverable: int = 0
    """Of those available, the ones that none of its present consumers may have: each called it undeliverable here, or
    takes only smaller ones (max-message-size)."""
    pending: int = 0
    """Posted and not yet synced: entered, but nobody was told."""
    consumers: int = 0
    """Links attached to it that receive, browsers included."""
    producers: int = 0
    """Links attached to it that send."""
    active_consumer: str = ""
    """Where one consumer is served at a time: its user, if it has logged in, container and link name."""
    body_bytes: int = 0
    """Of all live messages."""
    memory_bytes: int = 0
    """Of those whose bodies are in memory; the others are read back from the journal."""
    entered: int = 0
    accepted: int = 0
    consumed: int = 0
    dead_lettered: int = 0
    expired: int = 0
    dropped: int = 0
    displaced: int = 0
    moved_out: int = 0
    purged: int = 0
    lost_volatile: int = 0
    duplicates: int = 0
    """Postings that were no more than a repetition: answered, and never entered."""
    unrouted: int = 0
    """Of a topic: what was posted to it and no subscription took."""
    held: int = 0
    """Postings of transactions that have not ended: they are to enter it, or go through it, and have not."""
    rolled_back: int = 0
    """Such that never entered."""

    @property
    def links(self) -> int:
        """All links attached to it."""
        return self.consumers + self.producers

    @property
    def depth(self) -> int:
        """How many messages are in the queue, whatever their state: the balance's *live*."""
        return self.pending + self.available + self.acquired + self.scheduled + self.suspended


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSnapshot:
    """One connection."""

    peer: str
    """``host:port``."""
    container: str
    user: str | None
    sessions: int
    links: int
    unsettled: int
    """Deliveries to it that have no outcome yet."""
    writable: bool
    """False while the peer does not read: nothing is dispatched to it."""


class TerminusSnapshot(NamedTuple):
    """The terminus of a resumable link, which outlives it."""

    identity: str
    """32 hexadecimal digits."""
    role: str
    """``source``: a peer receives from it; ``target``: a peer sends to it."""
    node: str
    """The queue, or the address of a target."""
    container: str
    link: str
    user: str | None
    attached: bool
    """True while a link stands on it."""
    suspended_ms: int
    """Milliseconds since its link has gone; 0 while it is attached."""
    ends_in_ms: int
    """Milliseconds until it ends, if no link comes back; 0 while it is attached."""
    messages: int
    """Messages that a suspended source holds."""
    tags: int
    """Delivery-tags that it remembers: of a source, of deliveries that were taken from it; of a target, of postings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSnapshot:
    """The whole broker."""

    broker_id: str
    """The uuid of the data folder, which names this broker in identities and in the ledger."""
    last_sequence: int
    """The highest sequence given to a message so far; 0 for none."""
    accepting: bool
    """False while postings are refused because the disk is full."""
    warnings: tuple[str, ...] = ()
    """What somebody should see to, and why: that postings are refused, that a part of the journal cannot leave."""
    queues: tuple[QueueSnapshot, ...] = ()
    connections: tuple[ConnectionSnapshot, ...] = ()

    def queue(self, name: str) -> QueueSnapshot | None:
        """The queue of this name, if there is one."""
        return next((queue for queue in self.queues if queue.name == name), None)


QUEUE_COLUMNS: tuple[str, ...] = (
    "name",
    "address",
    "kind",
    "depth",
    *(field.name for field in fields(QueueSnapshot) if field.name not in ("name", "address", "kind")),
)
"""The attributes of a queue, in the order that tables show them."""

__all__ = ["QUEUE_COLUMNS", "BrokerSnapshot", "ConnectionSnapshot", "QueueSnapshot", "TerminusSnapshot"]
