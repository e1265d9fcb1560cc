"""A transaction: what it is, and what it holds. `transactions` does the rest."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from acquit.broker.message import DURABLE
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Error, TransactionalState
from acquit.store.interface import Position

if TYPE_CHECKING:
    from acquit.broker.dispatching.browsing import Browser
    from acquit.broker.intake.arrival import Arrival
    from acquit.broker.intake.shaping import Posting
    from acquit.broker.intake.templates import Template
    from acquit.broker.links.peers import Peer
    from acquit.broker.nodes.node import Queue
    from acquit.broker.nodes.topics import Topic
    from acquit.broker.transact.retirement import RetiredRun, Retirement
    from acquit.protocol.delivery import Delivery, DeliveryState


class Phasing(IntEnum):
    """The phase that a transaction is in."""

    OPEN = 0
    COMMITTING = 1
    """Phase after its commit was asked for, which waits for bodies that must be read first."""
    ENDED = 2


class Held:
    """A posting that waits for its transaction."""

    __slots__ = (
        "actor",
        "arrival",
        "delivery",
        "fingerprint",
        "flags",
        "known",
        "payload",
        "position",
        "posted_us",
        "sequence",
        "target",
        "transaction",
    )

    def __init__(
        self,
        transaction: Transaction,
        delivery: Delivery,
        known: Posting | Template,
        target: Queue | Topic,
        actor: int,
        sequence: int,
        posted_us: int,
        flags: int,
        arrival: Arrival | None = None,
    ) -> None:
        self.transaction = transaction
        self.delivery = delivery
        self.payload = payload = delivery.payload
        self.known = known
        """Fields of the message that matter."""
        self.target = target
        self.actor = actor
        self.sequence = sequence
        """Provisional."""
        self.posted_us = posted_us
        self.flags = flags
        """EventFlag."""
        self.arrival = arrival
        """Arrival by which its queues are found at the commit; None: it is plain, and goes to its target, a queue."""
        self.fingerprint = len(payload) << 32
        self.position = Position(0)

    @property
    def durable(self) -> bool:
        """True if it is recorded."""
        return bool(self.flags & DURABLE)

    @property
    def nodes(self) -> list[Queue | Topic]:
        """Return the nodes that are kept in existence by it."""
        queues = () if self.arrival is None else self.arrival.queues
        return [self.target, *(queue for queue in queues if queue is not self.target)]

    @property
    def size_bytes(self) -> int:
        """Return the size of its payload."""
        return self.fingerprint >> 32


class Read(NamedTuple):
    """Outcome from a reader of a non-destructive queue: nothing is held for it, and it is recorded at the commit."""

    browser: Browser
    deliveries: list[Delivery]
    outcome: DeliveryState
    settled: bool


class Transaction:
    """A transaction from its declaration to its end, with what it holds."""

    __slots__ = (
        "accepted",
        "bytes",
        "declared_us",
        "failed",
        "number",
        "owner",
        "peer",
        "phase",
        "posted",
        "postings",
        "reads",
        "repeated",
        "repeats",
        "retirements",
        "runs",
        "txn_id",
        "used_us",
    )

    def __init__(self, txn_id: bytes, peer: Peer, owner: object, time_us: int) -> None:
        self.txn_id = txn_id
        self.peer = peer
        self.owner = owner
        """The control link that declared it."""
        self.number = 0
        """Number that names it in the journal, within this run; 0 until it is recorded."""
        self.phase = Phasing.OPEN
        self.failed: Error | None = None
        """Reason why no commit of it can succeed; None while one can."""
        self.postings: list[Held | HeldTogether] = []
        """Holders of what it will post, in order."""
        self.posted = 0
        """Number of its postings."""
        self.repeated: list[Delivery] = []
        """Duplicates, which post nothing, whose senders settle second: they hear their outcome at the end as well."""
        self.repeats = False
        """True if there was a duplicate of a message that the disk may not have yet: its commit promises that one."""
        self.retirements: list[Retirement] = []
        self.runs: list[RetiredRun] = []
        """Messages that were accepted as the runs that they are, and settled."""
        self.reads: list[Read] = []
        self.bytes = 0
        """Bytes of the postings' payloads, in memory."""
        self.declared_us = time_us
        self.used_us = time_us
        """Time at which anything was last done in it."""
        self.accepted = TransactionalState(txn_id, ACCEPTED)
        """The provisional outcome of its postings."""

    @property
    def outcomes(self) -> int:
        """Number of outcomes it holds, of messages that are acquired and of those that were only read."""
        return self.retired + sum(len(read.deliveries) for read in self.reads)

    @property
    def retired(self) -> int:
        """Number of outcomes it holds of messages that are acquired."""
        return len(self.retirements) + sum(run.messages.count for run in self.runs)

    @property
    def empty(self) -> bool:
        """True if there is nothing in it that a commit would do."""
        return not (self.postings or self.repeated or self.retirements or self.runs or self.reads)

    @property
    def lasting(self) -> bool:
        """True if its commit must be on the disk first: it changes something that outlives the broker's process, or
        may, as a copy of what is not accepted can go to another queue."""
        return (
            bool(self.number or self.reads)
            or any(not one.accepted or one.message.flags & DURABLE for one in self.retirements)
            or any(run.messages.recorded is not None for run in self.runs)
        )

    @property
    def user(self) -> str:
        """User whose it is; "" for an anonymous peer."""
        return self.peer.user or ""

    def fail(self, condition: str, description: str) -> None:
        """No commit of it can succeed. The first reason stays."""
        if self.failed is None:
            self.failed = Error(condition, description)


class HeldRecords(NamedTuple):
    """Records of durable postings that are held together."""

    transaction: Transaction
    sequences: range
    """Provisional."""
    positions: list[Position]
    fingerprints: list[int]
    posted_us: int
    actor: int


class HeldTogether:
    """Postings in a row to one queue that are alike, plain, and answered for good: what is kept of them until their
    transaction ends are their payloads and, of durable ones, which came in one read, their records."""

    __slots__ = ("payload_bytes", "payloads", "recorded", "target", "template")

    def __init__(self, template: Template, target: Queue, recorded: HeldRecords | None = None) -> None:
        self.template = template
        self.target = target
        self.payloads: list[bytes] = []
        self.payload_bytes = 0
        self.recorded = recorded
        """Records of durable ones; None: they are volatile, and others may come behind them."""


__all__ = ["Held", "HeldRecords", "HeldTogether", "Phasing", "Read", "Transaction"]
