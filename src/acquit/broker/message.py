"""A message in a queue, as the broker holds it, flat, because there may be a million; and what it sees of its queue.

What every message has is in `Message`; what few have (a history of failed attempts, a time before which it is not
offered, consumers that cannot take it) is in its `MessageExtra`, made when the first such thing happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from acquit.broker.queue import NodeState
from acquit.broker.tally import QueueTally
from acquit.ledger.events import COPY, DISPATCHED, DURABLE
from acquit.ledger.live import ATTEMPTS_KEPT_MAX
from acquit.ledger.records import AttemptNote
from acquit.ledger.rows import ROW_BYTES
from acquit.protocol.rope import ROPE_MIN, Rope
from acquit.protocol.sections import BODY, scan_sections

if TYPE_CHECKING:
    from acquit.broker.nodes.lifetime import Temporary
    from acquit.broker.options import AddressPolicy

KINDS: Final = 64
"""Room for every EventKind."""
TOLD_DURABLE: Final = 0x80
"""Flag in memory, never in the journal: the sender said durable, but the queue is not, so memory alone has it."""
ASIDE: Final = 0x100
"""Flag in memory, never in the journal: the message is among those that its queue has set aside."""

OBJECT_BYTES: Final = 400
"""Bytes that each message costs in memory, also one whose body is only in the journal. Measured with tracemalloc: 136
for the object, 32 for each of its four numbers, 8 in its queue's backlog, 66 in the table of live messages just before
that grows, which then takes half as much again and, while it is copied, twice."""
OVERHEAD_BYTES: Final = OBJECT_BYTES + 112
"""Bytes that a message with its body in memory costs besides the payload that was posted: `OBJECT_BYTES`, and about 100
for the object that is its body and for what we add to it."""
PARKED_BYTES: Final = ROW_BYTES + 8
"""Bytes that a message costs in memory while it is parked (`broker.parking`): its row, and its place in the backlog."""


class Holder(Protocol):
    """The consumer that has a message acquired, as far as the message's life concerns it."""

    number: int
    """Number of the consumer in the journal."""

    def stand_in_line(self) -> None:
        """Wait for more, where it may have more."""

    def let_go(self, message: Message, time_us: int) -> None:
        """Hold this message no more."""


class Former:
    """A consumer that had messages acquired when the last run ended. Nobody holds them any more, but what becomes of
    them may have to wait until their bodies are read: until then a copy of the message says who had it, so that another
    restart knows as well."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def stand_in_line(self) -> None:
        """Do nothing: it is gone."""

    def let_go(self, message: Message, time_us: int) -> None:
        """Do nothing: it counts none."""


class MessageExtra:
    """Fields of a message that few messages need."""

    __slots__ = (
        "annotations",
        "attempts",
        "blocks",
        "closes_group",
        "due_at_ms",
        "due_shift_ms",
        "excluded",
        "group",
        "last_value",
        "left_counted",
        "left_uncounted",
        "message_id",
        "poster",
        "returned_ms",
        "returns",
        "returns_told",
    )

    def __init__(self) -> None:
        self.due_at_ms = 0
        """Time before which it is not offered, in milliseconds since the epoch; 0: at once."""
        self.due_shift_ms = 0
        """Milliseconds that the clock has been set forward since, or (negative) back: the delay before another attempt
        is a duration."""
        self.blocks = False
        """True if its group waits with it, while it waits for another attempt or is SUSPENDED."""
        self.message_id = b""
        """Message-id as the ledger encodes it, while the message waits for its delivery time."""
        self.returns = 0
        """Number of times it came back uncounted: released, modified without delivery-failed, left behind in order."""
        self.left_counted = 0
        """Part of its delivery-count that is no failure: a link ended over it."""
        self.left_uncounted = 0
        """Part of `returns` that no consumer said: a link ended over it."""
        self.returned_ms = 0
        """Time when it came or comes back after its last release, in ms since the epoch; 0: never in this run."""
        self.returns_told = 0
        """Value of `returns` that its body tells, if that is in memory."""
        self.attempts: tuple[AttemptNote, ...] = ()
        """The latest attempts that failed, or that a lost connection ended."""
        self.excluded: frozenset[str] = frozenset()
        """Termini that said undeliverable-here (3.4.5), while they live."""
        self.annotations: tuple[bytes, ...] = ()
        """Maps that *modified* outcomes merged into the message annotations; they are in the body already."""
        self.group: str | None = None
        """The message group that it belongs to, where those are kept together."""
        self.closes_group = False
        """True if it is the last of its group."""
        self.last_value = b""
        """Value of its last-value key, as the ledger encodes ids, in a last-value queue."""
        self.poster: str | None = None
        """The container that posted it, where somebody asked for none of its own."""

    def is_due(self, now_ms: int) -> bool:
        """True if the time has come that it waits for."""
        return self.due_at_ms + self.due_shift_ms <= now_ms


class QueueBase:
    """A queue, as its messages see it: its name, its policy and its accounts. `nodes.node.Queue` is the whole of it."""

    __slots__ = (
        "acquired",
        "address",
        "asks_poster",
        "auto_created",
        "blocked_groups",
        "bytes",
        "consumers_paused",
        "counts",
        "displaces",
        "durable",
        "held",
        "held_bytes",
        "learning",
        "leaving",
        "memory_bytes",
        "memory_bytes_max",
        "memory_messages_max",
        "name",
        "number",
        "pending",
        "plain",
        "policy",
        "producers_paused",
        "purging",
        "reading",
        "removing",
        "suspended",
        "tally",
        "temporary",
    )

    def __init__(
        self,
        number: int,
        name: str,
        address: str,
        policy: AddressPolicy,
        *,
        auto_created: bool,
        durable: bool,
        temporary: Temporary | None,
    ) -> None:
        self.number = number
        """Number of the queue in the journal; never reused."""
        self.name = name
        self.address = address
        self.policy = policy
        self.auto_created = auto_created
        self.durable = durable
        """True if it outlives a restart. All that is in one that does not is kept as volatile messages are."""
        self.temporary = temporary
        """Lifetime of the queue, if a client had it made for itself; else None."""
        self.plain = False
        """True if every posting that says nothing special is treated alike here, so that they can enter in groups. See
        `posting` and `look_at_policy`."""
        self.asks_poster = False
        """True if a consumer or browser asked for no messages of its own: the poster is remembered with each."""
        self.displaces = False
        """Do older messages give way to newer ones? See `limits`."""
        self.memory_bytes_max = 0
        """Bodies in memory, by the policy; beyond it they are read back from the journal."""
        self.memory_messages_max = 0
        """The same in messages, of all that are live."""
        self.removing = False
        """True while it is being deleted: nothing is posted to it any more, and what is in it goes."""
        self.pending = 0
        """Posted; the record waits for the disk."""
        self.held = 0
        """Postings of transactions that are to enter it, which are not in it."""
        self.held_bytes = 0
        """Bytes of the payloads of these postings."""
        self.acquired = 0
        self.suspended = 0
        """Messages held by termini whose link has gone and may come back (`links.termini`)."""
        self.leaving = 0
        """Consumers that have left, and have not given back all that they held (`outcomes.leaving`)."""
        self.learning = 0
        """Messages that wait for another attempt, and are being read back to see which group they hold up."""
        self.blocked_groups: dict[str, int] = {}
        """Groups that messages which wait for another attempt hold up, and how many of them there are."""
        self.bytes = 0
        """Payloads of all live messages, as they were posted."""
        self.memory_bytes = 0
        """Bytes that the messages cost whose bodies are in memory."""
        self.reading = False
        """Bodies are being read back for it, and dispatch waits for them."""
        self.producers_paused = False
        """An operator wants nothing to be posted."""
        self.consumers_paused = False
        """An operator wants nothing to be handed out."""
        self.purging = 0
        """Purges that have not ended, and dispatch waits for them."""
        self.counts = [0] * KINDS
        """Number of events since the beginning of the journal, by EventKind."""
        self.tally = QueueTally()
        """The counts of this run that operators want beside those."""

    @property
    def live(self) -> int:
        """Messages in the queue, whatever their state."""
        raise NotImplementedError

    def offer(self, message: Message) -> None:
        """Put an AVAILABLE message in its place."""
        raise NotImplementedError

    def withdraw(self, message: Message) -> None:
        """Take a message out of its place: it is not AVAILABLE any more."""
        raise NotImplementedError

    def schedule(self, message: Message) -> None:
        """Keep a SCHEDULED message until its time."""
        raise NotImplementedError

    def unschedule(self, message: Message) -> bool:
        """Let go of a message that was SCHEDULED. True where others may be handed out for that."""
        raise NotImplementedError

    def release(self, group: str) -> None:
        """Let go what is parked of a group: no message of it waits for another attempt any more."""
        raise NotImplementedError


class Message:
    """A message in one queue."""

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
        queue: QueueBase,
        state: NodeState,
        body: bytes | Rope | None,
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
        """EventFlag: DURABLE, DISPATCHED, COPY; and TOLD_DURABLE."""
        self.priority = priority
        self.posted_us = posted_us
        self.expires_at_ms = expires_at_ms
        """0: never."""
        self.position = position
        """Position of the journal's record that has its payload; 0 for a volatile message."""
        self.attempt = 0
        """delivery-count"""
        self.holder: Holder | None = None
        """Consumer that has acquired it, if one has."""
        self.extra: MessageExtra | None = None

    @property
    def durable(self) -> bool:
        """True if it is in the journal."""
        return bool(self.flags & DURABLE)

    def front(self) -> bytes:
        """Return its body, which is in memory, at the least up to what the application's body is: whoever looks at no
        more has no need of a copy of the rest."""
        body = self.body
        if not isinstance(body, Rope):
            return self.whole_body()
        end = scan_sections(body.payload).bounds[BODY]
        if end - body.start >= ROPE_MIN:  # that much is copied once, and not for each who looks
            return self.whole_body()
        return body.head + body.payload[body.start : end]

    def whole_body(self) -> bytes:
        """Return its body, which is in memory, in one piece, and keep it so."""
        assert self.body is not None
        body = self.body = bytes(self.body)
        return body

    @property
    def told_durable(self) -> bool:
        """True if its sender said durable, as its header then says wherever it goes."""
        return bool(self.flags & (DURABLE | TOLD_DURABLE))

    @property
    def size_bytes(self) -> int:
        """Bytes of the payload as it was posted."""
        return self.fingerprint >> 32

    @property
    def due_at_ms(self) -> int:
        """Time before which it is not offered, in milliseconds since the epoch; 0: at once."""
        return 0 if self.extra is None else self.extra.due_at_ms

    @property
    def came_back(self) -> bool:
        """True if it was acquired and given back. If it is SCHEDULED then, it waits for another attempt."""
        return self.attempt > 0 or (self.extra is not None and self.extra.returns > 0)

    @property
    def failures(self) -> int:
        """Number of attempts that failed: what `max_delivery_attempts` goes by."""
        return self.attempt if self.extra is None else self.attempt - self.extra.left_counted

    @property
    def releases(self) -> int:
        """Number of times a consumer gave it back uncounted: what `max_releases` and the pace of releases go by."""
        return 0 if self.extra is None else self.extra.returns - self.extra.left_uncounted

    def need_extra(self) -> MessageExtra:
        """Return its `MessageExtra`, made now if it had none."""
        if self.extra is None:
            self.extra = MessageExtra()
        return self.extra

    def note(self, attempt: AttemptNote) -> None:
        """Remember a failed attempt; of many, the latest."""
        extra = self.need_extra()
        extra.attempts = (*extra.attempts, attempt)[-ATTEMPTS_KEPT_MAX:]

    def __repr__(self) -> str:
        return f"<Message {self.sequence} {self.state.name} in {self.queue.name!r}>"


__all__ = [
    "ASIDE",
    "COPY",
    "DISPATCHED",
    "DURABLE",
    "KINDS",
    "OBJECT_BYTES",
    "OVERHEAD_BYTES",
    "PARKED_BYTES",
    "TOLD_DURABLE",
    "Former",
    "Holder",
    "Message",
    "MessageExtra",
    "QueueBase",
]
