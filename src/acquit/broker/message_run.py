"""A run of messages: what came in one piece and stays together, until somebody looks at one of them.

Most messages are posted, handed out and accepted together with their neighbours, and of none of them is anything said
that is not said of all. Such a run is one object on all of its way: it has the sequences of the messages, and the rests
of their payloads, which are the octets that are transferred as they came; what is before them is the same in all. The
runs that a topic's queues get of what was posted share one list of rests. A run enters its queue, waits, is acquired
and leaves by a few additions, whatever its length. Parts are split off at its front, as a consumer has credit for
fewer, or accepts fewer.

Of durable messages the journal has a record each, and an event for each that is acquired or accepted: these are made a
column at a time, and the run knows where the records are (`Recorded`). `life` has all such runs, so that whoever asks
for a durable message by its sequence finds it. What was parked in the middle of a deep queue comes back from the
journal as a run as well (`dispatching.paging`); its messages were posted at times of their own. Of durable messages
that a consumer holds the rests may be let go: they are in the journal.

Nobody else need know of runs. A queue's `Backlog` lays out what waits in it as `Message` objects before it gives one to
anybody, and the engine (`protocol.delivery.SentRun`) what is acquired: each message is then the object that it would
have been, with the same sequence, state and holder (`MessageRun.each`). A run has its messages to itself until then, so
none of them is ever two things.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import rshift
from typing import TYPE_CHECKING, NamedTuple, Protocol

from acquit.broker.message import DISPATCHED, DURABLE, Holder, Message, QueueBase
from acquit.broker.queue import NodeEvent, NodeState, step
from acquit.protocol.costs import ACCEPTED_COST

if TYPE_CHECKING:
    from acquit.protocol.sender import Heads

_POSTED = step(NodeState.NEW, NodeEvent.POST_VOLATILE).next
_PENDING = step(NodeState.NEW, NodeEvent.POST_DURABLE).next
_SYNCED = step(_PENDING, NodeEvent.SYNCED).next
_ACQUIRED = step(_POSTED, NodeEvent.ACQUIRE).next


class Shape(Protocol):
    """Shape that the messages of a run have in common: `intake.shaping.Template`."""

    rest_at: int
    """Offset of the rest of each payload."""
    priority: int
    marked: bool
    """True if each is of a group."""

    def groups(self, rests: Sequence[bytes]) -> list[bytes]:
        """Return the encoded groups of messages that have one."""
        ...

    def properties(self, rests: Sequence[bytes]) -> list[bytes]:
        """Return the sections of application properties of messages; b"" where they have none."""
        ...

    def bodies(self, rests: Sequence[bytes], sequences: Sequence[int], times_ms: Iterable[int]) -> list[bytes]:
        """Return the bodies of messages with these sequences, which were posted at these times."""
        ...

    def heads(self, sequences: Sequence[int], posted_ms: int | Sequence[int]) -> Heads:
        """Return what is transferred of messages with these sequences, which were posted at one time or at these, to
        their first consumers, before the rests."""
        ...


class RunHolder(Holder, Protocol):
    """The consumer that has a run acquired."""

    def hold_singly(self, run: MessageRun, messages: Sequence[Message]) -> None:
        """Hold these messages in place of the run that they were."""

    def lay_out_sent(self) -> None:
        """Let what it was sent together be single deliveries, of single messages."""


class DurableRuns(Protocol):
    """The durable messages that are in runs: `life.Life`."""

    def keep_run(self, run: MessageRun) -> None:
        """Know these as well."""

    def run_laid_out(self, run: MessageRun, messages: Sequence[Message]) -> None:
        """Know them as single messages from now on."""


class Recorded(NamedTuple):
    """Records that the journal has of the durable messages of a run."""

    keeper: DurableRuns
    """The one who knows all such runs."""
    positions: Sequence[int]
    """Positions of their records."""
    fingerprints: Sequence[int]
    """`Message.fingerprint` of each."""


class MessageRun:
    """Messages of one queue that were posted together, in order. `holder` is the consumer that has acquired them; while
    there is none they are AVAILABLE, or PENDING."""

    __slots__ = (
        "count",
        "holder",
        "laid_out",
        "marked",
        "payload_bytes",
        "pending",
        "posted_us",
        "queue",
        "recorded",
        "rests",
        "sequences",
        "shape",
        "size_max",
        "times_us",
        "walked",
    )

    def __init__(
        self,
        queue: QueueBase,
        sequences: Sequence[int],
        shape: Shape,
        rests: Sequence[bytes],
        payload_bytes: int,
        size_max: int,
        posted_us: int,
        recorded: Recorded | None = None,
        times_us: Sequence[int] = (),
    ) -> None:
        self.queue = queue
        self.sequences = sequences
        self.count = len(sequences)
        """Number of messages: it is asked for ten times on the way of a message that comes alone."""
        self.shape = shape
        self.rests = rests
        """Rests of the payloads, in a list that other runs may share; none once they are laid out, when the messages
        have their bodies, or where these are in the journal alone: they were let go (`let_bodies_go`), or nobody waits
        for what a commit lets enter."""
        self.payload_bytes = payload_bytes
        self.size_max = size_max
        """No payload is larger."""
        self.posted_us = posted_us
        """Time when they were posted, or the first of them."""
        self.times_us = times_us
        """Times when each was posted; none: all at `posted_us`."""
        self.marked = shape.marked and queue.policy.message_groups
        """True if each is of a group, and its queue had such when it came."""
        self.recorded = recorded
        """Records that the journal has of durable messages; None: they are volatile."""
        self.pending = recorded is not None
        """True while their records wait for the disk."""
        self.walked = False
        """True if somebody goes through what waits and may come to it: it is laid out before any of it is taken."""
        self.holder: RunHolder | None = None
        self.laid_out: list[Message] | None = None
        """The messages as objects of their own, once somebody has looked at one; what is done to those is not done to
        the run any more."""

    @property
    def accepted_cost(self) -> int:
        """Units of a turn that it takes to accept them all: durable ones have their records."""
        return ACCEPTED_COST if self.recorded is None else ACCEPTED_COST * self.count

    @property
    def priority(self) -> int:
        """Priority of each."""
        return self.shape.priority

    @property
    def grouped(self) -> bool:
        """True if each is of a group, and its queue has such."""
        return self.marked and self.queue.policy.message_groups

    @property
    def in_memory(self) -> bool:
        """True if they have their bodies: these are not in the journal alone."""
        return bool(self.rests)

    def heads(self) -> Heads:
        """Return what is transferred of each before `rests`."""
        times_us = self.times_us
        posted_ms = [time_us // 1000 for time_us in times_us] if times_us else self.posted_us // 1000
        return self.shape.heads(self.sequences, posted_ms)

    def let_bodies_go(self) -> None:
        """Keep their bodies in the journal alone. For durable messages that were sent to their consumer, or parked."""
        assert self.recorded is not None
        self.rests = ()

    def split(self, count: int) -> MessageRun:
        """Return the first of them, so many, which are here no more."""
        recorded, rests = self.recorded, self.rests[:count]
        if rests or recorded is None:
            payload_bytes = self._payload_bytes(rests)
        else:
            payload_bytes = sum(map(rshift, recorded.fingerprints[:count], repeat(32)))
        front = self._some(self.sequences[:count], rests, payload_bytes)
        front.holder, front.pending = self.holder, self.pending
        if self.times_us:
            front.times_us, self.times_us = self.times_us[:count], self.times_us[count:]
            self.posted_us = self.times_us[0]
        if recorded is not None:
            keeper, positions, fingerprints = recorded
            front.recorded = Recorded(keeper, positions[:count], fingerprints[:count])
            self.recorded = Recorded(keeper, positions[count:], fingerprints[count:])
            keeper.keep_run(front)
        self.sequences = self.sequences[count:]
        self.count = len(self.sequences)
        self.rests = self.rests[count:]
        self.payload_bytes -= front.payload_bytes
        return front

    def singly(self) -> MessageRun | MessageGroup:
        """Return all of them as what is quickly split into few at a time. For those that a consumer holds."""
        if self.recorded is None:
            return self
        assert self.holder is not None
        return MessageGroup(self.holder, self.each())

    def part(self, places: Sequence[int]) -> MessageRun:
        """Return those at these places, in their order, which are the caller's; the others are still here, and the run
        is of no use once all of them were asked for. For volatile messages."""
        if len(places) == self.count:
            return self
        rests = [self.rests[place] for place in places]
        return self._some([self.sequences[place] for place in places], rests, self._payload_bytes(rests))

    def _payload_bytes(self, rests: Sequence[bytes]) -> int:
        """Return the size of the payloads with these rests."""
        return len(rests) * self.shape.rest_at + sum(map(len, rests))

    def _some(self, sequences: Sequence[int], rests: Sequence[bytes], payload_bytes: int) -> MessageRun:
        """Return a run of those with these sequences and rests."""
        run = MessageRun(self.queue, sequences, self.shape, rests, payload_bytes, self.size_max, self.posted_us)
        run.marked = self.marked
        return run

    def end(self) -> None:
        """Take notice that they are in their queue no more, and nobody holds them; or that they are parked there."""
        self.holder = None
        self.laid_out = []

    def each(self) -> list[Message]:
        """Return the messages, which are objects of their own from now on."""
        if self.laid_out is not None:
            return self.laid_out
        queue, holder, posted_us, recorded = self.queue, self.holder, self.posted_us, self.recorded
        shape, rests, rest_at = self.shape, self.rests, self.shape.rest_at
        priority, times_us = shape.priority, self.times_us or [posted_us] * self.count
        bodies: Sequence[bytes | None] = [None] * self.count
        if rests:
            bodies = shape.bodies(rests, self.sequences, [time_us // 1000 for time_us in times_us])
        state, flags = (_POSTED, 0) if holder is None else (_ACQUIRED, DISPATCHED)
        positions: Iterable[int] = repeat(0, self.count)
        fingerprints: Iterable[int] = [rest_at + len(rest) << 32 for rest in rests]
        if recorded is not None:
            positions, fingerprints = recorded.positions, recorded.fingerprints
            flags |= DURABLE
            if holder is None:
                state = _PENDING if self.pending else _SYNCED
        self.laid_out = messages = [
            Message(
                sequence,
                queue,
                state,
                body,
                fingerprint,
                flags,
                priority,
                time_us,
                0,
                position,
            )
            for sequence, body, fingerprint, time_us, position in zip(
                self.sequences, bodies, fingerprints, times_us, positions, strict=True
            )
        ]
        if self.marked:
            for message, group in zip(messages, shape.groups(rests), strict=True):
                message.need_extra().group = group.decode()
        self.rests = ()
        if recorded is not None:
            recorded.keeper.run_laid_out(self, messages)
        if holder is not None:
            for message in messages:
                message.holder = holder
            holder.hold_singly(self, messages)
        return messages


class MessageGroup:
    """Messages that one consumer was given together, each an object of its own: what the engine keeps of them in place
    of deliveries. Whoever takes one from its consumer looks for its delivery, and then there is no group any more."""

    __slots__ = ("consumer", "messages")

    def __init__(self, consumer: Holder, messages: Sequence[Message]) -> None:
        self.consumer = consumer
        self.messages = messages

    @property
    def accepted_cost(self) -> int:
        """Units of a turn that it takes to accept them all: each has its place, and may have its record."""
        return ACCEPTED_COST * len(self.messages)

    def each(self) -> Sequence[Message]:
        """Return the messages."""
        return self.messages

    def split(self, count: int) -> MessageGroup:
        """Return the first of them, so many, which are here no more."""
        front = MessageGroup(self.consumer, self.messages[:count])
        self.messages = self.messages[count:]
        return front

    def singly(self) -> MessageGroup:
        """Return all of them: they are single."""
        return self


__all__ = ["DurableRuns", "MessageGroup", "MessageRun", "Recorded", "RunHolder", "Shape"]
