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
    """State and totals of one queue or topic."""

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
    """Available messages that no present consumer may have: each called them undeliverable here, or takes only smaller
    ones (max-message-size)."""
    pending: int = 0
    """Posted and not yet synced: entered, but nobody was told."""
    consumers: int = 0
    """Links attached to it that receive, browsers included."""
    producers: int = 0
    """Links attached to it that send."""
    active_consumer: str = ""
    """Consumer that is served now, where one is at a time: its user, if it has logged in, container and link name."""
    body_bytes: int = 0
    """Bytes of the payloads of all live messages."""
    memory_bytes: int = 0
    """Bytes that the messages cost whose bodies are in memory; the others are read back from the journal."""
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
    """Postings to a topic that no subscription took."""
    held: int = 0
    """Postings of transactions that have not ended: they are to enter it, or go through it, and have not."""
    rolled_back: int = 0
    """Postings of transactions that were rolled back: they never entered."""
    paused: str = "none"
    """The links that an operator has paused it for: ``none``, ``producers``, ``consumers`` or ``both``."""
    oldest_age_ms: int = 0
    """Milliseconds since the oldest of the available messages was posted to this queue, or came to it; 0 for none. Of
    those that are available and not for any consumer that waits, only the first in the queue's order is looked at, so
    where these have several priorities, an older one of a lower priority does not count. Messages that are held, or
    wait for their time, never count: see the age of what connections hold."""

    @property
    def links(self) -> int:
        """All links attached to it."""
        return self.consumers + self.producers

    @property
    def depth(self) -> int:
        """Messages in the queue, whatever their state: the balance's *live*."""
        return self.pending + self.available + self.acquired + self.scheduled + self.suspended


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSnapshot:
    """State of one connection."""

    id: int
    """Number of the connection, unique in this run of the broker; 0 before the peer's open."""
    peer: str
    """``host:port``."""
    container: str
    user: str | None
    product: str
    """Name of the peer's library, as its open says it; empty where it says nothing."""
    version: str
    """Version of that library."""
    mechanism: str
    """SASL mechanism that it logged in with; empty without SASL."""
    tls: str
    """Version of TLS, as ``TLSv1.3``; empty where nothing is encrypted."""
    sessions: int
    links: int
    unsettled: int
    """Deliveries to it that have no outcome yet."""
    oldest_unsettled_ms: int
    """Age of the oldest of these, to about a second; 0 for none."""
    credit_starved: int
    """Links that receive and have no credit, while messages are available in their queue."""
    buffered_bytes: int
    """Output that is not written yet, here and in the buffer of its socket."""
    writable: bool
    """False while the peer does not read: nothing is dispatched to it."""
    since_ms: int
    """Milliseconds since its open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSnapshot:
    """A link."""

    id: str
    """Number of its connection, and its own number there, as in ``12.3``."""
    connection: int
    """Number of its connection."""
    name: str
    role: str
    """``sender``: the peer sends; ``receiver``: the peer receives."""
    node: str
    """The queue or topic; empty for the anonymous terminus, and for the coordinator of transactions."""
    user: str | None
    container: str
    credit: int
    """Messages that may still be sent on it now."""
    unsettled: int
    """Deliveries that have no outcome yet."""
    oldest_unsettled_ms: int | None
    """Age of the oldest delivery to a receiver that is unsettled, to about a second; None if that is not known."""
    delivered: int
    """Deliveries so far. They are counted anew after 268,435,456."""
    snd_settle_mode: str
    """``unsettled``, ``settled`` or ``mixed``."""
    rcv_settle_mode: str
    """``first`` or ``second``."""
    mode: str
    """``consume`` or ``browse`` for a receiver of a queue; empty for all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSnapshot:
    """A transaction that is open."""

    id: str
    """Txn-id, in hexadecimal digits."""
    connection: int
    """Number of its connection."""
    user: str | None
    container: str
    age_ms: int
    idle_ms: int
    """Milliseconds since anything was done in it."""
    postings: int
    """Messages that it would post."""
    outcomes: int
    """Outcomes of deliveries that it would apply."""
    failed: str
    """Reason why no commit of it can succeed; empty if it can."""


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


class MarkSnapshot(NamedTuple):
    """The mark of a sender whose postings are numbered."""

    id: str
    """The key by which the broker knows it, hexadecimal."""
    name: str
    user: str | None
    batch: int | None
    """The place of its highest posting; None where nothing was posted yet."""
    index_in_batch: int | None
    sequence: int
    """The sequence of that posting; of one to a topic, of its last copy."""
    links: int
    """Links that have it now."""
    moved_ms: int | None
    """Time of its last move, in milliseconds since the epoch; None if it never moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSnapshot:
    """The syncs of the journal in this run: how long the disk took, from the write of a batch until it was durable."""

    count: int = 0
    last_ms: float = 0.0
    p50_ms: float = 0.0
    """Median of the last 500."""
    p99_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSnapshot:
    """The process that a broker runs in, and its machine. All 0 where nobody looks after a broker's core."""

    uptime_ms: int = 0
    loop_lag_ms: float = 0.0
    """Longest that the event loop was late in the last 10 seconds or so."""
    free_bytes: int | None = None
    """Room on the disk of the data folder; None if that cannot be told."""
    sync: SyncSnapshot = SyncSnapshot()


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSnapshot:
    """The disk and the journal on it."""

    free_bytes: int | None
    """Room on the disk of the data folder; None if that cannot be told."""
    journal_bytes: int
    """Size of all segments that are there, prewritten ones not counted."""
    segments: int
    refusing: bool
    """True while postings are refused for want of room."""
    why: str
    """Reason why; empty while nothing is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The broker as a whole, in figures."""

    broker_id: str
    version: str
    uptime_ms: int
    last_sequence: int
    accepting: bool
    """False while postings are refused because the disk is full."""
    warnings: tuple[str, ...]
    connections: int
    """Connections that are open."""
    links: int
    queues: int
    """Queues, those of subscriptions included."""
    topics: int
    transactions: int
    """Transactions that are open."""
    unsettled: int
    """Messages that consumers have acquired."""
    memory_bytes: int
    """Cost of all messages in memory; `memory_bytes_max` is the option of that name."""
    memory_bytes_max: int
    disk: DiskSnapshot
    sync: SyncSnapshot
    loop_lag_ms: float


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
    """Warnings for operators, with the reason: that postings are refused, that a part of the journal cannot leave."""
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

MARK_COLUMNS: tuple[str, ...] = MarkSnapshot._fields
"""The attributes of a sender's mark."""

CONNECTION_COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(ConnectionSnapshot))
"""The attributes of a connection."""

LINK_COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(LinkSnapshot))
"""The attributes of a link."""

TRANSACTION_COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(TransactionSnapshot))
"""The attributes of a transaction."""

__all__ = [
    "CONNECTION_COLUMNS",
    "LINK_COLUMNS",
    "MARK_COLUMNS",
    "QUEUE_COLUMNS",
    "TRANSACTION_COLUMNS",
    "BrokerSnapshot",
    "ConnectionSnapshot",
    "DiskSnapshot",
    "LinkSnapshot",
    "MarkSnapshot",
    "Overview",
    "ProcessSnapshot",
    "QueueSnapshot",
    "SyncSnapshot",
    "TerminusSnapshot",
    "TransactionSnapshot",
]
