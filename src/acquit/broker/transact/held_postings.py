"""The postings of transactions: recorded as HELD, in no queue, and in memory until their transaction ends.

A durable one is in the journal from the start, under a provisional sequence. At the commit it becomes a message in each
queue that its target stands for at that moment; the events that say so are part of the COMMIT record. What is not
durable is only counted, as everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.intake.entering import new_message, wanted_soon
from acquit.broker.message import COPY, DURABLE, OVERHEAD_BYTES, Message
from acquit.broker.nodes.node import Queue
from acquit.broker.queue import NodeEvent, NodeState, step
from acquit.broker.refusal import Refused
from acquit.broker.transact.transaction import Held, Transaction
from acquit.errors import StoreFull
from acquit.ledger import records
from acquit.ledger.events import Event, EventKind
from acquit.ledger.live import LiveMessage
from acquit.protocol.definitions import AmqpCondition

if TYPE_CHECKING:
    from acquit.broker.intake.arrival import Arrival
    from acquit.broker.intake.entering import Entering
    from acquit.broker.life import Life
    from acquit.broker.nodes.finding import Nodes
    from acquit.broker.options import TransactionLimits
    from acquit.protocol.delivery import Delivery

_COMMIT: Final = step(NodeState.HELD, NodeEvent.COMMIT)
_WHEN_COMMITTED: Final = _COMMIT.next
_POSTED: Final = int(_COMMIT.record)
_HELD: Final = int(EventKind.HELD)
_ROLLED_BACK: Final = int(EventKind.ROLLED_BACK)
_UNROUTED: Final = int(EventKind.UNROUTED)
_PASSED: Final = int(EventKind.PASSED)


class HeldPostings:
    """Those of all transactions."""

    def __init__(self, life: Life, entering: Entering, nodes: Nodes) -> None:
        self._life = life
        self._scribe = life.scribe
        self._entering = entering
        self._nodes = nodes
        self._numbers = 0
        self.durable: dict[int, Held] = {}
        """By provisional sequence."""
        self.durable_bytes = 0
        """Their payloads."""
        self.memory_bytes = 0
        """What all of them cost, durable or not."""
        self.committed: list[int] = []
        """Sequences under which durable ones are live since they were committed; whoever takes them begins it anew."""

    def record(self, transaction: Transaction) -> None:
        """Tell the journal of it, if it does not know. Raises StoreFull."""
        if not transaction.number:
            number = self._numbers + 1
            self._scribe.recorder.append(
                records.Transaction(self._scribe.time_us, number, transaction.txn_id, transaction.user)
            )
            self._numbers = transaction.number = number

    def hold(self, transaction: Transaction, arrival: Arrival, delivery: Delivery, limits: TransactionLimits) -> Held:
        """Record one more. Raises Refused for one too many, DecodeError or StoreFull; nothing is changed then."""
        scribe = self._scribe
        posting, payload, target = arrival.posting, arrival.payload, arrival.target
        full = len(transaction.postings) >= limits.postings_max
        if full or transaction.bytes + len(payload) > limits.bytes_max:
            most = f"{limits.postings_max} messages" if full else f"{limits.bytes_max} bytes"
            raise Refused(f"a transaction holds no more than {most}", condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED)
        if self._life.memory.left < len(payload) + OVERHEAD_BYTES:
            raise Refused(
                "the broker's memory is full: try again later", condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED
            )
        durable = posting.durable and not (isinstance(target, Queue) and not target.durable)
        flags = (DURABLE if durable else 0) | (0 if posting.identity is None else posting.identity.flags)
        sequence = scribe.sequences.take(scribe.time_us)
        held = Held(transaction, arrival, delivery, sequence, scribe.time_us, durable=durable, flags=flags)
        if durable:
            self.record(transaction)
            meta = arrival.meta()
            held.position, held.fingerprint = scribe.recorder.posted(
                held.sequence,
                target.number,
                payload,
                meta,
                scribe.time_us,
                actor=arrival.actor,
                kind=_HELD,
                flags=flags,
                transaction=transaction.number,
            )
            self.durable[held.sequence] = held
            self._life.occupancy.entered(held.position)
            self.durable_bytes += len(payload)
        else:
            scribe.count_volatile(target, _HELD, 1)
        target.counts[_HELD] += 1
        held.nodes = [target, *(queue for queue in arrival.queues if queue is not target)]
        for node in held.nodes:
            node.held += 1
            node.held_bytes += len(payload)
        transaction.postings.append(held)
        transaction.bytes += len(payload)
        self.memory_bytes += held.cost
        self._life.memory.bytes += held.cost
        return held

    def messages(self, held: Held) -> list[Message]:
        """What a posting becomes in each of its queues, which are those of this moment. Raises StoreFull."""
        arrival, scribe = held.arrival, self._scribe
        posting = arrival.posting
        time_us = scribe.time_us
        messages = []
        for queue in self._nodes.queues_of(arrival):
            sequence = scribe.sequences.take(time_us)
            in_memory = not (posting.durable and queue.durable) or wanted_soon(queue)
            body = posting.body(arrival.payload, sequence, time_us // 1000) if in_memory else None
            message = new_message(queue, sequence, body, posting, time_us, arrival.expires_at_ms, posting.due_at_ms)
            message.state = _WHEN_COMMITTED
            if message.flags & DURABLE:
                message.position, message.fingerprint = held.position, held.fingerprint
                message.flags |= held.flags
            else:
                message.fingerprint = len(arrival.payload) << 32
            messages.append(message)
        # The first one is the posting itself, and the others are copies of it: a durable one, if there is any.
        messages.sort(key=lambda message: not message.flags & DURABLE)
        for message in messages[1:]:
            if message.flags & DURABLE:
                message.flags |= COPY
        return messages

    def enter(self, held: Held, messages: list[Message]) -> None:
        """HELD, COMMIT: they are in their queues, and not yet visible."""
        scribe = self._scribe
        posting = held.arrival.posting
        if not messages:
            assert not isinstance(held.arrival.target, Queue)
            held.arrival.target.counts[_UNROUTED] += 1
            if not held.durable:
                scribe.count_volatile(held.arrival.target, _UNROUTED, 1)
        for message in messages:
            queue = message.queue
            if posting.due_at_ms:
                extra = message.need_extra()
                extra.due_at_ms, extra.message_id = posting.due_at_ms, posting.message_id
            self._life.enter(message)
            queue.pending += 1
            queue.counts[_POSTED] += 1
            if message.flags & DURABLE:
                self.committed.append(message.sequence)
                self._entering.mark(queue, message.sequence)
            else:
                scribe.count_volatile(queue, _POSTED, 1)

    def roll_back(self, held: Held) -> None:
        """HELD, ROLL_BACK: it never enters."""
        scribe = self._scribe
        self.let_go(held)
        target = held.arrival.target
        target.counts[_ROLLED_BACK] += 1
        if not held.durable:
            scribe.count_volatile(target, _ROLLED_BACK, 1)
            return
        try:
            scribe.recorder.transition(
                _ROLLED_BACK,
                held.sequence,
                target.number,
                held.fingerprint,
                scribe.time_us,
                held.arrival.actor,
                transaction=held.transaction.number,
            )
        except StoreFull:
            scribe.exhausted = True  # the recorder keeps the event

    def let_go(self, held: Held) -> None:
        """It is held no more."""
        for node in held.nodes:
            node.held -= 1
            node.held_bytes -= len(held.arrival.payload)
            if isinstance(node, Queue):
                self._life.wake(node)  # it may have been kept for this alone
        if held.durable:
            del self.durable[held.sequence]
            self._life.occupancy.left(held.position)
            self.durable_bytes -= len(held.arrival.payload)
        self.memory_bytes -= held.cost
        self._life.memory.bytes -= held.cost

    def live(self, sequence: int) -> LiveMessage | None:
        """One as the ledger sees it, for the checkpoint."""
        held = self.durable.get(sequence)
        return None if held is None else _to_live(held)


def append_entering(events: list[Event], held: Held, messages: list[Message], time_us: int) -> None:
    """The events by which a posting ends to be held and enters its queues, those that are recorded."""
    if not held.durable:
        return
    if not messages or not messages[0].flags & DURABLE:
        kind = _PASSED if messages else _UNROUTED
        events.append(_posting_event(held, held.sequence, 0, held.arrival.target.number, kind, held.flags, time_us))
        return
    first = messages[0]
    for message in messages:
        if message.flags & DURABLE:
            copied = message is not first
            origin = first.sequence if copied else held.sequence
            flags = held.flags | (COPY if copied else 0)
            events.append(_posting_event(held, message.sequence, origin, message.queue.number, _POSTED, flags, time_us))


def _posting_event(held: Held, sequence: int, origin: int, queue: int, kind: int, flags: int, time_us: int) -> Event:
    actor, number = held.arrival.actor, held.transaction.number
    return Event(sequence, origin, time_us, held.fingerprint, queue, actor, kind, flags, 0, number)


def _to_live(held: Held) -> LiveMessage:
    arrival = held.arrival
    posting = arrival.posting
    return LiveMessage(
        held.sequence,
        arrival.target.number,
        held.position,
        held.fingerprint,
        held.flags,
        0,
        held.posted_us,
        arrival.expires_at_ms,
        posting.due_at_ms,
        posting.priority,
        0,
        held.transaction.number,
    )


__all__ = ["HeldPostings", "append_entering"]
