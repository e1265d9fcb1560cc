"""Bodies of messages in memory: which are kept there, and how the others come back from the journal.

A durable message's body is in the journal anyway. While its queue holds more than `memory_bytes_max`, or the broker as
a whole is near its limit, bodies of durable messages are let go as soon as their records are synced, and are read back,
some ahead of dispatch, when their turn comes. Reading blocks, so it is done elsewhere: `take_reads` says what is
wanted, `loaded` brings it. A volatile body has no other place; its senders get less credit, and at last are refused.

A message whose body was let go is still an object with a place in its queue (`message.OBJECT_BYTES`), or is parked
(`broker.parking`): a queue that is deep enough fills the memory by that alone, and its senders are treated likewise.
Bodies get what that leaves.
Messages that have begun to arrive (`intake.assembly`) and those that transactions hold count as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from acquit.broker.dispatching.groups import CLOSING
from acquit.broker.intake.shaping import make_body, make_plain_body, merge_annotations, read_group
from acquit.broker.message import DURABLE, OBJECT_BYTES, OVERHEAD_BYTES, PARKED_BYTES, Message, QueueBase
from acquit.broker.nodes.capacity import UNLIMITED
from acquit.broker.queue import NodeState
from acquit.errors import DecodeError
from acquit.protocol.codec import encode
from acquit.protocol.extensions import ACQUIRED_COUNT
from acquit.protocol.rope import Rope
from acquit.protocol.sections import Sections, scan_sections
from acquit.protocol.types import Symbol, UInt
from acquit.store.interface import Position

if TYPE_CHECKING:
    from acquit.broker.dispatching.consumers import ServedQueue
    from acquit.broker.message_run import MessageRun
    from acquit.broker.options import BrokerLimits

_ARCHIVED: Final = NodeState.ARCHIVED

READ_AHEAD_MESSAGES: Final = 512
"""The most that is worth giving to `Memory.read_ahead`."""
READS_AT_ONCE: Final = 256
"""Wanted bodies that are read, restored and dispatched together; the next ones are read meanwhile."""
BODY_BYTES: Final = OVERHEAD_BYTES - OBJECT_BYTES
"""Bytes that a body in memory costs besides the payload that was posted."""
PAGED_AT_ONCE: Final = 20_000
SCANNED_AT_ONCE: Final = 100_000
"""Messages of one queue that are looked at to let go of their bodies, and (`PAGED_AT_ONCE`) bodies that go: each is
some milliseconds' work."""
BESIDE_BODY_BYTES: Final = 512
"""Bytes that a record mostly holds besides the message."""


class Reads(NamedTuple):
    """Bodies to be read: the payloads of the journal's records at `positions`."""

    messages: list[Message]
    positions: Sequence[Position]
    size_hints: Sequence[int]
    then: Callable[[Sequence[bytes | None]], None] | None = None
    """Called with the payloads where they are not of `messages`."""
    syncs: int = 0
    """Syncs before they were looked for, as `Memory` counts them."""


class Memory:
    """The bodies of one broker."""

    def __init__(self, limits: BrokerLimits) -> None:
        self.bytes = 0
        """Bytes that all messages cost."""
        self.object_bytes = 0
        """Bytes of that which messages cost without their bodies."""
        self.apply(limits)
        self.wanted: list[Message] = []
        """Messages whose bodies are to be read; see `take_reads`."""
        self.wanted_together: list[Reads] = []
        """Reads that are asked for together; see `take_reads`."""
        self._continuations: dict[Message, list[Callable[[Message], None]]] = {}
        """Calls that wait for a body which is being read, by message; none where it is read ahead."""
        self._syncs = 0
        """Calls of `retry`."""
        self._retry: list[Message] = []

    @property
    def read_ahead_bytes(self) -> int:
        """Bytes of bodies that are good to read at once."""
        return self._limits.read_ahead_bytes

    @property
    def bytes_max(self) -> int:
        """Bytes that all messages may cost."""
        return self._limits.memory_bytes_max

    def apply(self, limits: BrokerLimits) -> None:
        """Keep to these limits from now on."""
        self._limits = limits
        self._paging_from = limits.memory_bytes_max * 3 // 4
        self._shrinking_from = limits.memory_bytes_max // 2

    # -- accounts -----------------------------------------------------------------------------------------------------

    def enter(self, message: Message) -> None:
        """Count a message that is in a queue from now on."""
        self.bytes += OBJECT_BYTES
        self.object_bytes += OBJECT_BYTES
        if message.body is not None:
            self.hold(message)

    def enter_all(self, queue: QueueBase, messages: int, payload_bytes: int, *, bodies: bool) -> None:
        """The same for so many messages, all of which have their bodies, or none."""
        objects_bytes = messages * OBJECT_BYTES
        self.object_bytes += objects_bytes
        if bodies:
            cost = payload_bytes + messages * OVERHEAD_BYTES
            queue.memory_bytes += cost
            self.bytes += cost
        else:
            self.bytes += objects_bytes

    def enter_parked(self, messages: int) -> None:
        """Count messages that are in queues from now on, and are parked (`broker.parking`)."""
        self.bytes += messages * PARKED_BYTES
        self.object_bytes += messages * PARKED_BYTES

    def park(self, messages: int) -> None:
        """Count so many messages, which have no bodies in memory, as having no objects any more."""
        self.bytes -= messages * (OBJECT_BYTES - PARKED_BYTES)
        self.object_bytes -= messages * (OBJECT_BYTES - PARKED_BYTES)

    def unpark(self, messages: int) -> None:
        """Count so many messages that were parked as having objects again."""
        self.bytes += messages * (OBJECT_BYTES - PARKED_BYTES)
        self.object_bytes += messages * (OBJECT_BYTES - PARKED_BYTES)

    def leave(self, message: Message) -> None:
        """Drop the body of a message that is in no queue any more, and count the message no more."""
        self.drop(message)
        self.bytes -= OBJECT_BYTES
        self.object_bytes -= OBJECT_BYTES

    def leave_all(self, queue: QueueBase, messages: int, bodies: int, bodies_bytes: int) -> None:
        """The same for so many messages, of which so many have bodies, and cost `bodies_bytes` with these."""
        queue.memory_bytes -= bodies_bytes
        self.bytes -= bodies_bytes + (messages - bodies) * OBJECT_BYTES
        self.object_bytes -= messages * OBJECT_BYTES

    def hold(self, message: Message) -> None:
        """Count the body of a message, which is in memory from now on."""
        size = message.fingerprint >> 32
        message.queue.memory_bytes += size + OVERHEAD_BYTES
        self.bytes += size + BODY_BYTES

    def hold_run(self, run: MessageRun) -> None:
        """Count the bodies of a run, which are in memory from now on."""
        run.queue.memory_bytes += run.payload_bytes + run.count * OVERHEAD_BYTES
        self.bytes += run.payload_bytes + run.count * BODY_BYTES

    def drop_run(self, run: MessageRun) -> None:
        """Let go of the bodies of durable messages that were sent together, or are parked, if they are in memory."""
        if run.in_memory:
            run.let_bodies_go()
            run.queue.memory_bytes -= run.payload_bytes + run.count * OVERHEAD_BYTES
            self.bytes -= run.payload_bytes + run.count * BODY_BYTES

    def leave_run(self, run: MessageRun) -> None:
        """Count the messages of a run no more."""
        bodies_bytes = run.payload_bytes + run.count * OVERHEAD_BYTES if run.in_memory else 0
        self.leave_all(run.queue, run.count, run.count if run.in_memory else 0, bodies_bytes)

    def drop(self, message: Message) -> None:
        """Let go of its body, if it is in memory."""
        if message.body is not None:
            message.body = None
            size = message.fingerprint >> 32
            message.queue.memory_bytes -= size + OVERHEAD_BYTES
            self.bytes -= size + BODY_BYTES

    def crowded(self, queue: QueueBase) -> bool:
        """Should durable bodies of this queue rather be read back later?"""
        if queue.memory_bytes > queue.memory_bytes_max or self.bytes > self._paging_from + self.object_bytes // 4:
            return True  # bodies have more than three quarters of what is left for them
        return queue.memory_messages_max < UNLIMITED and queue.live > queue.memory_messages_max

    def page_out(self, queues: Iterable[ServedQueue]) -> None:
        """Let go of more bodies, now and then: of the queue that has the most, those behind what is handed out next.
        They came when there was room for them, and what came since has taken it."""
        wanted = self.bytes - self._paging_from - self.object_bytes // 4
        if wanted <= 0:
            return
        queue = max(queues, key=lambda queue: queue.memory_bytes)
        wanted += self._limits.memory_bytes_max // 16
        left = PAGED_AT_ONCE
        for message in islice(queue.backlog.objects(), READ_AHEAD_MESSAGES, SCANNED_AT_ONCE):
            if message is not None and message.body is not None and message.flags & DURABLE:
                wanted -= message.size_bytes + BODY_BYTES
                self.drop(message)
                left -= 1
                if wanted <= 0 or not left:
                    break
        queue.backlog.park_more()

    def room(self, queue: QueueBase, *, volatile: bool) -> int:
        """Return how many bytes may be posted to the queue; not above 0: none."""
        room = self._limits.memory_bytes_max - self.bytes
        if volatile:
            room = min(room, queue.policy.memory_bytes_max - queue.memory_bytes)
        return room

    def most(self, queue: QueueBase, *, volatile: bool) -> int:
        """Return what `room` is for a queue that is empty, while nothing else is in memory."""
        most = self._limits.memory_bytes_max
        return min(most, queue.policy.memory_bytes_max) if volatile else most

    @property
    def left(self) -> int:
        """Bytes that may still be held in memory, in all."""
        return self._limits.memory_bytes_max - self.bytes

    @property
    def scarce(self) -> bool:
        """Should senders get less credit?"""
        return self.bytes > self._shrinking_from

    @property
    def share_left(self) -> float:
        """Share that is left of the memory above where `scarce` begins: 1 below it, 0 when memory is full."""
        left = self._limits.memory_bytes_max - self.bytes
        return max(0.0, min(1.0, left / (self._limits.memory_bytes_max - self._shrinking_from)))

    # -- reading back -------------------------------------------------------------------------------------------------

    def want(self, message: Message, then: Callable[[Message], None]) -> None:
        """Read its body, and then go on. Several may want it, each for its own reason, and one may let it leave: `then`
        looks for itself."""
        waiting = self._continuations.get(message)
        if waiting is None:
            self.wanted.append(message)
            self._continuations[message] = [then]
        elif then not in waiting:
            waiting.append(then)

    def read_ahead(self, queue: QueueBase, messages: Iterable[Message]) -> None:
        """The first of these messages, which is the next of the queue, is not in memory: read it, and the others."""
        if queue.reading:
            return
        size = 0
        for message in messages:
            if message.body is None and message not in self._continuations:
                self._continuations[message] = []
                self.wanted.append(message)
                size += message.size_bytes
                if size > self._limits.read_ahead_bytes:
                    break
        queue.reading = True  # also where all of it was asked for before: dispatch waits for it in the same way

    def want_together(self, reads: Reads) -> None:
        """Read bodies that are asked for together."""
        self.wanted_together.append(reads)

    def take_reads(self) -> list[Reads]:
        """Return the reads of what is wanted since the last time."""
        wanted, self.wanted = self.wanted, []
        reads, self.wanted_together = self.wanted_together, []
        parts = [wanted[at : at + READS_AT_ONCE] for at in range(0, len(wanted), READS_AT_ONCE)]
        return reads + [_where(part, self._syncs) for part in parts]

    def loaded(self, reads: Reads, payloads: Sequence[bytes | None]) -> set[QueueBase]:
        """Bodies were read, and queues may go on; None: one was not where it was looked for, because its record was
        just moved, or the message has left and its segment is gone.

        What was moved is read again after the next sync, or at once if there was one since it was looked for: after
        that there may be no other.
        """
        missed = self._retry if reads.syncs == self._syncs else self.wanted
        queues = set()
        take_waiting = self._continuations.pop
        for message, payload in zip(reads.messages, payloads, strict=True):
            gone = message.state is _ARCHIVED
            if payload is None and not gone:
                missed.append(message)
                continue
            queue = message.queue
            if queue not in queues:
                queues.add(queue)
                queue.reading = False
            waiting = take_waiting(message, None)
            if message.body is None and payload is not None and not gone:
                message.body = restore_body(message, payload)
                self.hold(message)
            if waiting:
                for then in waiting:
                    then(message)
        return queues

    def retry(self) -> None:
        """A batch was synced: moved records can be read where they are now."""
        self._syncs += 1
        if self._retry:
            self.wanted += self._retry
            self._retry = []


def _where(messages: list[Message], syncs: int) -> Reads:
    """Return the reads of these messages, from where their records are now."""
    positions = [Position(message.position) for message in messages]
    return Reads(messages, positions, [message.size_bytes + BESIDE_BODY_BYTES for message in messages], syncs=syncs)


def tell_returns(message: Message) -> None:
    """Let its body say how often it was acquired before, which the delivery-count does not: it came back uncounted."""
    extra = message.extra
    if extra is not None and extra.returns != extra.returns_told and message.body is not None:
        extra.returns_told = extra.returns
        count = encode({Symbol(ACQUIRED_COUNT): UInt(message.attempt + extra.returns)})
        message.body = merge_annotations(message.body, count)


def restore_body(message: Message, payload: bytes) -> bytes | Rope:
    """The body as it was before it was let go: as posted, and with what outcomes merged into it since."""
    if message.extra is None:
        plain = make_plain_body(payload, message.sequence, message.posted_us // 1000)
        if plain is not None:
            return plain
    sections = scan_sections(payload)
    body = make_body(sections, message.sequence, message.posted_us // 1000)
    _learn_group(message, sections)  # after a restart, nobody has looked at it yet
    if message.extra is not None:
        message.extra.returns_told = 0
        for annotations in message.extra.annotations:
            body = merge_annotations(body, annotations)
    return body


def learn_group(message: Message) -> None:
    """Note the group of a message that entered while its queue had none, if its body is in memory: others are looked at
    as they are read."""
    if message.body is not None:
        _learn_group(message, scan_sections(message.front()))


def _learn_group(message: Message, sections: Sections) -> None:
    if not message.queue.policy.message_groups or (message.extra is not None and message.extra.group is not None):
        return
    try:
        group, group_sequence = read_group(sections)
    except DecodeError:  # whatever was let in, it must not stop a queue
        return
    if group is not None:
        extra = message.need_extra()
        extra.group, extra.closes_group = group, group_sequence == CLOSING


__all__ = [
    "BESIDE_BODY_BYTES",
    "READS_AT_ONCE",
    "READ_AHEAD_MESSAGES",
    "Memory",
    "Reads",
    "learn_group",
    "restore_body",
    "tell_returns",
]
