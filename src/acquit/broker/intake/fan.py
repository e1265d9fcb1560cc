"""Copies of plain messages to a topic: those of a run of postings enter the queue of each subscription as a group.

A `Fan` takes one posting after the other, into all of its queues or into none, and records each at once, as
`entering.Entering.enter_all` does. What it cannot take with certainty it leaves to that, which looks more closely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.intake.entering import note_group, wanted_soon
from acquit.broker.intake.limits import Room
from acquit.broker.message import DURABLE, OVERHEAD_BYTES, TOLD_DURABLE, Message
from acquit.broker.queue import NodeEvent, NodeState, step
from acquit.errors import StoreFull

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from acquit.broker.intake.entering import Entering
    from acquit.broker.intake.shaping import Posting
    from acquit.broker.intake.templates import Template
    from acquit.broker.life import Life
    from acquit.broker.nodes.node import Queue
    from acquit.protocol.delivery import Delivery

_PENDING: Final = step(NodeState.NEW, NodeEvent.POST_DURABLE).next
_AVAILABLE: Final = step(NodeState.NEW, NodeEvent.POST_VOLATILE).next


class _Branch:
    """Queue of a subscription, and what is to enter it."""

    __slots__ = ("flags", "has_bodies", "messages", "queue", "state")

    def __init__(self, queue: Queue, *, told_durable: bool, alone: bool) -> None:
        durable = told_durable and queue.durable
        self.queue = queue
        self.messages: list[Message] = []
        self.state = _PENDING if durable else _AVAILABLE
        self.flags = DURABLE if durable else TOLD_DURABLE if told_durable else 0
        self.has_bodies = alone or not durable or wanted_soon(queue)
        """False if nobody waits for them: they are read back when somebody does."""


class Fan:
    """Plain postings to one topic, all of them durable or none."""

    def __init__(
        self, life: Life, entering: Entering, address: str, queues: Sequence[Queue], actor: int, *, durable: bool
    ) -> None:
        self.durable = durable
        self.deliveries: list[Delivery] = []
        """Deliveries that it has taken."""
        self.payload_bytes = 0
        self._life = life
        self._scribe = life.scribe
        self._entering = entering
        self._address = address.encode()
        self._actor = actor
        self._branches = {queue: _Branch(queue, told_durable=durable, alone=len(queues) == 1) for queue in queues}
        rooms = [(Room(queue, life.memory), durable and queue.durable) for queue in queues]
        self._messages_left = min(room.messages for room, _ in rooms)
        self._bytes_left = min(room.bytes for room, _ in rooms)
        self._room_left = min(room.durable if recorded else room.volatile for room, recorded in rooms)
        """Bytes of memory of the queue that has the least room."""
        self._memory_left = life.memory.left

    def add(self, delivery: Delivery, known: Template | Posting, queues: Iterable[Queue]) -> Message | None:
        """Take a posting into some of the queues: its first copy that is recorded, if any is, or else the first. None,
        with nothing changed, where that may not fit."""
        branches = [self._branches[queue] for queue in queues]
        payload = delivery.payload
        size = len(payload)
        cost = size + OVERHEAD_BYTES
        if self._messages_left < 1 or self._bytes_left < size or self._room_left < cost:
            return None
        if self._memory_left < cost * len(branches):
            return None
        scribe = self._scribe
        time_us, priority, body_of = scribe.time_us, known.priority, known.body
        now_ms = time_us // 1000
        messages = []
        try:
            sequence = scribe.sequences.take_all(len(branches), time_us)
            for branch in branches:
                body = body_of(payload, sequence, now_ms) if branch.has_bodies else None
                messages.append(
                    Message(
                        sequence, branch.queue, branch.state, body, size << 32, branch.flags, priority, time_us, 0, 0
                    )
                )
                sequence += 1
            recorded = [message for message in messages if message.flags & DURABLE] if self.durable else []
            if recorded:
                scribe.fanned_out(recorded, payload, known.meta(self._address, payload), self._actor)
        except StoreFull:
            return None
        for branch, message in zip(branches, messages, strict=True):
            branch.messages.append(message)
        if recorded:
            live, entered = self._life.objects, self._life.occupancy.entered
            for message in recorded:
                live[message.sequence] = message
                entered(message.position)
            self._life.live_bytes += size
        if known.marked:
            group = known.group_of(payload)
            for message in messages:
                note_group(message, group, known.group_sequence)
        self._messages_left -= 1
        self._bytes_left -= size
        self._room_left -= cost
        self._memory_left -= cost * len(branches)
        self.payload_bytes += size
        self.deliveries.append(delivery)
        return recorded[0] if recorded else messages[0]

    def enter(self) -> list[tuple[Queue, list[Message]]]:
        """Put all that was taken into its queues: what of it waits for the disk, by queue."""
        pending = []
        for queue, branch in self._branches.items():
            messages = branch.messages
            if messages:
                payload_bytes = sum([message.fingerprint >> 32 for message in messages])
                self._entering.enter_group(queue, messages, payload_bytes)
                if branch.state is _PENDING:
                    pending.append((queue, messages))
        return pending


__all__ = ["Fan"]
