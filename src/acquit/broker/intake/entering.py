"""Messages enter queues: the one way in, for what clients post, what a commit posts, and what the broker itself does.

A volatile message is available at once. A durable one is recorded, and is PENDING until the batch with its record is
synced. What goes into several queues is one record with the payload, and an event for each further copy.

Whoever is above decides what may enter and where, and answers for it; nothing here knows of links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.dispatching.groups import CLOSING
from acquit.broker.intake.limits import admit, note_value
from acquit.broker.intake.shaping import expiry, read_posting
from acquit.broker.message import DURABLE, OVERHEAD_BYTES, TOLD_DURABLE, Message, QueueBase
from acquit.broker.message_run import MessageRun
from acquit.broker.nodes.node import whole
from acquit.broker.queue import NodeEvent, NodeState, step
from acquit.broker.refusal import Refused
from acquit.ledger.events import EventKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acquit.broker.intake.arrival import Arrival
    from acquit.broker.intake.duplicates import Duplicates
    from acquit.broker.intake.shaping import Posting
    from acquit.broker.life import Life
    from acquit.broker.nodes.node import Queue
    from acquit.protocol.rope import Rope

_PENDING = NodeState.PENDING
_WHEN_SYNCED: Final = step(_PENDING, NodeEvent.SYNCED).next
_POSTED: Final = int(EventKind.POSTED)
_SHALLOW: Final = 1_024
"""A queue with no more than this available is near its head: what is posted may be handed out at once."""


class Entering:
    """Puts messages into queues."""

    def __init__(self, life: Life, duplicates: Duplicates) -> None:
        self._life = life
        self._scribe = life.scribe
        self._memory = life.memory
        self._duplicates = duplicates

    # -- one message --------------------------------------------------------------------------------------------------

    def post(self, queue: Queue, payload: bytes) -> None:
        """Post a volatile message of the broker's own, as a client would. Raises Refused or StoreFull, with nothing
        changed."""
        now_ms = self._scribe.time_us // 1000
        posting = read_posting(payload)
        admit(queue, self._memory, len(payload), durable=False)
        expires_at_ms = expiry(posting, queue.policy, now_ms)
        self.enter(queue, payload, posting, address=queue.address, expires_at_ms=expires_at_ms)

    def enter(
        self,
        queue: Queue,
        payload: bytes,
        posting: Posting,
        *,
        actor: int = 0,
        expires_at_ms: int = 0,
        due_at_ms: int = 0,
        address: str,
        kind: EventKind = EventKind.POSTED,
        origin: int = 0,
        essential: bool = False,
        flags: int = 0,
    ) -> Message:
        """Put a message into a queue. Raises StoreFull or DecodeError, with nothing changed.

        `essential`: it is the consequence of an outcome, and written although the disk is full.
        """
        scribe = self._scribe
        try:
            note_value(queue.policy, posting)
        except Refused:
            if kind is EventKind.POSTED:
                raise
            # A copy is never refused: without a value it stands beside the others.
        time_us = scribe.time_us
        sequence = scribe.sequences.take(time_us)
        body = posting.body(payload, sequence, time_us // 1000)
        message = new_message(queue, sequence, body, posting, time_us, expires_at_ms, due_at_ms)
        message.flags |= flags
        meta = posting.meta(address.encode(), payload, expires_at_ms=expires_at_ms, due_at_ms=due_at_ms)
        scribe.posted(message, payload, meta, kind=kind, actor=actor, origin=origin, essential=essential)
        self._life.enter(message)
        if due_at_ms:
            extra = message.need_extra()
            extra.due_at_ms, extra.message_id = due_at_ms, posting.message_id
        if message.flags & DURABLE:
            queue.pending += 1
            scribe.when_synced(self._available, message)
        elif due_at_ms:
            self._life.schedule(message, due_at_ms)
        else:
            self._offer(queue, [message])
        return message

    def enter_all(self, arrival: Arrival) -> bool:
        """Put a message into its queues, once into each. True if any of it is recorded, so that its sender must wait.

        Raises StoreFull or DecodeError, with nothing changed.
        """
        posting, queues = arrival.posting, arrival.queues
        if len(queues) == 1:
            message = self.enter(
                queues[0],
                arrival.payload,
                posting,
                actor=arrival.actor,
                expires_at_ms=arrival.expires_at_ms,
                due_at_ms=posting.due_at_ms,
                address=arrival.target.address,
                flags=0 if posting.identity is None else posting.identity.flags,
            )
            if posting.identity is not None:
                self._duplicates.entered(posting.identity, message)
            if message.flags & DURABLE:
                self.mark(queues[0], message.sequence)
            return message.durable
        messages = self._fan_out(arrival)
        if posting.identity is not None:
            recorded = next((message for message in messages if message.durable), messages[0])
            self._duplicates.entered(posting.identity, recorded)
        pending = []
        for message in messages:
            self._life.enter(message)
            message.queue.counts[_POSTED] += 1
            if posting.due_at_ms:
                extra = message.need_extra()
                extra.due_at_ms, extra.message_id = posting.due_at_ms, posting.message_id
            if message.flags & DURABLE:
                message.queue.pending += 1
                self.mark(message.queue, message.sequence)
                pending.append(message)
                continue
            self._scribe.count_volatile(message.queue, _POSTED, 1)
            if posting.due_at_ms:
                self._life.schedule(message, posting.due_at_ms)
            else:
                self._offer(message.queue, [message])
        if pending:
            self._scribe.when_synced(self.available, pending)
        return bool(pending)

    def _fan_out(self, arrival: Arrival) -> list[Message]:
        """A copy for each queue, recorded. The first durable one's record has the payload, the others name it.

        A thousand copies are not a thousand bodies in memory: those that nobody waits for are read back when somebody
        does.
        """
        posting, payload = arrival.posting, arrival.payload
        scribe = self._scribe
        time_us = scribe.time_us
        cost = len(payload) + OVERHEAD_BYTES
        room = self._memory.room(arrival.queues[0], volatile=False)
        messages = []
        for queue in arrival.queues:
            sequence = scribe.sequences.take(time_us)
            body = None
            if not (posting.durable and queue.durable) or (room >= cost and wanted_soon(queue)):
                body = posting.body(payload, sequence, time_us // 1000)
                room -= cost
            message = new_message(queue, sequence, body, posting, time_us, arrival.expires_at_ms, posting.due_at_ms)
            message.fingerprint = len(payload) << 32
            messages.append(message)
        durable = [message for message in messages if message.flags & DURABLE]
        if durable:
            flags = 0 if posting.identity is None else posting.identity.flags
            durable[0].flags |= flags
            scribe.fanned_out(durable, payload, arrival.meta(), arrival.actor, flags)
        return messages

    # -- a group ------------------------------------------------------------------------------------------------------

    def enter_group(self, queue: Queue, messages: list[Message], payload_bytes: int) -> None:
        """Put messages without times, made and recorded by the caller, that are alike, into a queue: all of them have
        their bodies or none, and are durable or not. Those that wait for a sync are available once `group_synced` or
        `available` is called, the others at once."""
        first = messages[0]
        queue.counts[_POSTED] += len(messages)
        queue.bytes += payload_bytes
        self._memory.enter_all(queue, len(messages), payload_bytes, bodies=first.body is not None)
        if first.flags & DURABLE:
            self.mark(queue, messages[-1].sequence)
        else:
            self._scribe.count_volatile(queue, _POSTED, len(messages))
        if first.state is _PENDING:
            queue.pending += len(messages)
        else:
            self._offer(queue, messages)

    def enter_run(self, run: MessageRun) -> None:
        """Put messages that came together into their queue, where nobody browses. Durable ones, which the caller has
        recorded, are available once `run_synced` is called."""
        queue, count = whole(run.queue), run.count
        queue.bytes += run.payload_bytes
        self._memory.enter_all(queue, count, run.payload_bytes, bodies=run.in_memory)
        if run.recorded is None:
            self._scribe.volatile_events(_POSTED, queue, count)
            self._offer_run(queue, run)
        else:
            queue.counts[_POSTED] += count
            self._life.enter_run(run, run.recorded)
            self.mark(queue, run.sequences[-1])
            queue.pending += count

    def run_synced(self, run: MessageRun) -> None:
        """Make durable messages that came together available: their records are on the disk. They are single ones from
        now on where they wait, or are to wait, in the journal rather than in memory, or where somebody looks at
        each."""
        queue = whole(run.queue)
        if run.laid_out is not None:
            self.group_synced(queue, run.laid_out)
            return
        looked_at, crowded = queue.browsers or queue.values is not None, self._memory.crowded(queue)
        queue.pending -= run.count
        run.pending = False
        if not looked_at and self._is_to_wait(queue) and queue.backlog.park_run(run):
            self._life.run_parked(run)
            self._life.dirty[queue] = None
        elif looked_at or crowded or not run.in_memory or queue.backlog.count > _SHALLOW:
            self._offer(queue, run.each())
        else:
            self._offer_run(queue, run)

    def _offer_run(self, queue: Queue, run: MessageRun) -> None:
        queue.backlog.extend_run(run)
        self._life.dirty[queue] = None

    def group_synced(self, queue: Queue, messages: list[Message]) -> None:
        """Make a durable group available: its records are on the disk."""
        gone = 0
        for message in messages:
            if message.state is _PENDING:
                message.state = _WHEN_SYNCED
            else:
                gone += 1  # purged meanwhile
        queue.pending -= len(messages) - gone
        self._offer(queue, [message for message in messages if message.state is _WHEN_SYNCED] if gone else messages)

    # -- after the sync -----------------------------------------------------------------------------------------------

    def committed(self, entered: Iterable[list[Message] | MessageRun]) -> None:
        """Make available what a commit let enter, in order. Runs of volatile messages are so already."""
        for messages in entered:
            if not isinstance(messages, MessageRun):
                self.available(messages)
            elif messages.recorded is not None:
                self.run_synced(messages)

    def available(self, messages: list[Message]) -> None:
        """Make messages available whose record is on the disk: of a commit, or of one posting in several queues."""
        ready: dict[QueueBase, list[Message]] = {}
        for message in messages:
            if message.state is _PENDING and not (message.due_at_ms or message.expires_at_ms):
                message.state = _WHEN_SYNCED
                message.queue.pending -= 1
                ready.setdefault(message.queue, []).append(message)
            else:
                self._available(message)
        for queue, group in ready.items():
            self._offer(queue, group)

    def _available(self, message: Message) -> None:
        """Make a durable message, which is on the disk now, available at once or at its delivery time."""
        if message.state is not _PENDING:
            return
        later = message.due_at_ms * 1000 > self._scribe.time_us
        message.state = step(_PENDING, NodeEvent.SYNCED_LATER if later else NodeEvent.SYNCED).next
        message.queue.pending -= 1
        if later:
            self._life.schedule(message, message.due_at_ms)
        else:
            self._offer(message.queue, [message])
            self._life.look_at_time(message)

    # -- its own ------------------------------------------------------------------------------------------------------

    def _offer(self, entered: QueueBase, messages: list[Message]) -> None:
        if not messages:
            return
        queue = whole(entered)
        queue.backlog.extend(messages)
        if queue.values is not None:
            queue.values.arrived.extend(messages)
        for browser in queue.browsers:
            for message in messages:
                browser.offered(message)
        self._life.dirty[queue] = None
        if self._is_to_wait(queue):
            for message in messages:
                if message.flags & DURABLE:
                    self._memory.drop(message)

    def _is_to_wait(self, queue: Queue) -> bool:
        """Return whether what is posted waits for its turn in the journal rather than in memory."""
        if not self._memory.crowded(queue):
            return False
        going_out = sum(consumer.room for consumer in queue.consumers if consumer.in_line and consumer.open_to_more)
        return queue.backlog.count > going_out

    def mark(self, entered: QueueBase, sequence: int) -> None:
        """A consumer that waits shall not wait for a second sync, only to learn that it may have the message."""
        queue = whole(entered)
        if queue.consumers and wanted_soon(queue):
            self._scribe.mark_ahead(queue, sequence)


def wanted_soon(queue: Queue) -> bool:
    """Return True if a link takes from this queue, and its backlog is short enough that it soon gets what is posted."""
    return bool(queue.consumers or queue.browsers) and queue.backlog.count <= _SHALLOW


def new_message(
    queue: Queue,
    sequence: int,
    body: bytes | Rope | None,
    posting: Posting,
    time_us: int,
    expires_at_ms: int,
    due_at_ms: int,
) -> Message:
    """A message that is about to enter a queue; without a body where that is to be read back."""
    durable = posting.durable and queue.durable
    event = NodeEvent.POST_DURABLE if durable else NodeEvent.POST_VOLATILE
    if due_at_ms and not durable:
        event = NodeEvent.POST_VOLATILE_LATER
    flags = DURABLE if durable else TOLD_DURABLE if posting.durable else 0
    state = step(NodeState.NEW, event).next
    message = Message(sequence, queue, state, body, 0, flags, posting.priority, time_us, expires_at_ms, 0)
    if posting.last_value:
        message.need_extra().last_value = posting.last_value
    note_group(message, posting.group, posting.group_sequence)
    if queue.asks_poster:
        message.need_extra().poster = posting.poster
    return message


def note_group(message: Message, group: str | None, group_sequence: int | None) -> None:
    """Note its group, if it has one and its queue has such."""
    if group is not None and message.queue.policy.message_groups:
        extra = message.need_extra()
        extra.group, extra.closes_group = group, group_sequence == CLOSING


__all__ = ["Entering", "new_message", "note_group", "wanted_soon"]
