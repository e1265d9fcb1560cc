"""A run of messages: what came in one piece and stays together, until somebody looks at one of them.

Most volatile messages are posted, handed out and accepted together with their neighbours, and of none of them is
anything said that is not said of all. Such a run is one object on all of its way: it has the payloads as they came, and
their sequences. It enters its queue, waits, is acquired and leaves by a few additions, whatever its length.
Parts are split off at its front, as a consumer has credit for fewer, or accepts fewer.

Nobody else need know of runs. A queue's `Backlog` lays out what waits in it as `Message` objects before it gives one to
anybody, and the engine (`protocol.delivery.SentRun`) what is acquired: each message is then the object that it would
have been, with the same sequence, state and holder (`MessageRun.each`). A run has its messages to itself until then, so
none of them is ever two things.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from acquit.broker.message import DISPATCHED, Holder, Message, QueueBase
from acquit.broker.queue import NodeEvent, NodeState, step
from acquit.protocol.costs import ACCEPTED_COST

_POSTED = step(NodeState.NEW, NodeEvent.POST_VOLATILE).next
_ACQUIRED = step(_POSTED, NodeEvent.ACQUIRE).next


class Shape(Protocol):
    """Shape that the messages of a run have in common: `intake.shaping.Template`."""

    rest_at: int
    """Offset of what is transferred of a payload as it is."""
    priority: int
    marked: bool
    """True if each is of a group."""

    def group_of(self, payload: bytes) -> str | None:
        """Return the group of a message, of which this is the payload."""
        ...

    def groups(self, payloads: Sequence[bytes]) -> list[bytes]:
        """Return the encoded groups of messages that have one."""
        ...

    def properties(self, payloads: Sequence[bytes]) -> list[bytes]:
        """Return the sections of application properties of messages; b"" where they have none."""
        ...

    def bodies(self, payloads: Sequence[bytes], sequences: Sequence[int], posted_ms: int) -> list[bytes]:
        """Return the bodies of messages with these payloads and sequences."""
        ...

    def heads(self, sequences: Sequence[int], posted_ms: int) -> list[bytes]:
        """Return what is transferred of messages with these sequences to their first consumers, before that rest."""
        ...


class RunHolder(Holder, Protocol):
    """The consumer that has a run acquired."""

    def hold_singly(self, run: MessageRun, messages: Sequence[Message]) -> None:
        """Hold these messages in place of the run that they were."""


class MessageRun:
    """Volatile messages of one queue that were posted together, in order. `holder` is the consumer that has acquired
    them; they are AVAILABLE while there is none."""

    __slots__ = (
        "holder",
        "laid_out",
        "marked",
        "payload_bytes",
        "payloads",
        "posted_us",
        "queue",
        "sequences",
        "shape",
        "size_max",
    )

    def __init__(
        self,
        queue: QueueBase,
        sequences: Sequence[int],
        shape: Shape,
        payloads: Sequence[bytes],
        payload_bytes: int,
        size_max: int,
        posted_us: int,
    ) -> None:
        self.queue = queue
        self.sequences = sequences
        self.shape = shape
        self.payloads = payloads
        """Payloads as they were posted; none once they are laid out, when the messages have their bodies."""
        self.payload_bytes = payload_bytes
        self.size_max = size_max
        """No payload is larger."""
        self.posted_us = posted_us
        self.marked = shape.marked and queue.policy.message_groups
        """True if each is of a group, and its queue had such when it came."""
        self.holder: RunHolder | None = None
        self.laid_out: list[Message] | None = None
        """The messages as objects of their own, once somebody has looked at one; what is done to those is not done to
        the run any more."""

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.sequences)

    @property
    def accepted_cost(self) -> int:
        """Units of a turn that it takes to accept them all."""
        return ACCEPTED_COST

    @property
    def priority(self) -> int:
        """Priority of each."""
        return self.shape.priority

    @property
    def grouped(self) -> bool:
        """True if each is of a group, and its queue has such."""
        return self.marked and self.queue.policy.message_groups

    def heads(self) -> list[bytes]:
        """Return what is transferred of each before `rests`."""
        return self.shape.heads(self.sequences, self.posted_us // 1000)

    def rests(self) -> list[bytes]:
        """Return what is transferred of each as it was posted."""
        rest_at = self.shape.rest_at
        return [payload[rest_at:] for payload in self.payloads]

    def split(self, count: int) -> MessageRun:
        """Return the first of them, so many, which are here no more."""
        payloads = self.payloads[:count]
        payload_bytes = sum(map(len, payloads))
        front = MessageRun(
            self.queue, self.sequences[:count], self.shape, payloads, payload_bytes, self.size_max, self.posted_us
        )
        front.holder, front.marked = self.holder, self.marked
        self.sequences = self.sequences[count:]
        self.payloads = self.payloads[count:]
        self.payload_bytes -= payload_bytes
        return front

    def part(self, places: Sequence[int]) -> MessageRun:
        """Return those at these places, in their order, which are the caller's; the others are still here, and the run
        is of no use once all of them were asked for."""
        if len(places) == self.count:
            return self
        payloads = [self.payloads[place] for place in places]
        sequences = [self.sequences[place] for place in places]
        payload_bytes = sum(map(len, payloads))
        part = MessageRun(self.queue, sequences, self.shape, payloads, payload_bytes, self.size_max, self.posted_us)
        part.marked = self.marked
        return part

    def end(self) -> None:
        """Take notice that they are in their queue no more, and nobody holds them."""
        self.holder = None
        self.laid_out = []

    def each(self) -> list[Message]:
        """Return the messages, which are objects of their own from now on."""
        if self.laid_out is not None:
            return self.laid_out
        queue, holder, posted_us = self.queue, self.holder, self.posted_us
        state, flags = (_POSTED, 0) if holder is None else (_ACQUIRED, DISPATCHED)
        bodies, priority = self.shape.bodies(self.payloads, self.sequences, posted_us // 1000), self.shape.priority
        self.laid_out = messages = [
            Message(
                sequence,
                queue,
                state,
                body,
                len(payload) << 32,
                flags,
                priority,
                posted_us,
                0,
                0,
            )
            for sequence, payload, body in zip(self.sequences, self.payloads, bodies, strict=True)
        ]
        if self.marked:
            for message, payload in zip(messages, self.payloads, strict=True):
                message.need_extra().group = self.shape.group_of(payload)
        self.payloads = ()
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


__all__ = ["MessageGroup", "MessageRun", "RunHolder", "Shape"]
