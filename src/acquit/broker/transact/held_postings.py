"""The postings of transactions: recorded as HELD, in no queue, and in memory until their transaction ends.

A durable one is in the journal from the start, under a provisional sequence. At the commit it becomes a message in each
queue that its target stands for at that moment; the events that say so are part of the COMMIT record. What is not
durable is only counted, as everywhere.

Most of them are plain, as `intake.posting` has it, and come in a row to one queue: a `HeldRun` takes those, and at the
commit those that are alike enter together, as groups of postings do. Everything else is held, and enters, by itself.

Of those that one `Template` predicts, only the payloads are held, and where their records stand. They enter as the runs
that they would have been without the transaction; volatile ones where nothing that it does must be on the disk first.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from acquit.broker.intake.entering import new_message, note_group, wanted_soon
from acquit.broker.intake.limits import Room
from acquit.broker.intake.templates import Template
from acquit.broker.message import COPY, DURABLE, OVERHEAD_BYTES, Message
from acquit.broker.message_run import MessageRun, Recorded
from acquit.broker.nodes.node import Queue
from acquit.broker.queue import NodeEvent, NodeState, step
from acquit.broker.refusal import Refused
from acquit.broker.transact.transaction import Held, HeldRecords, HeldTogether, Transaction
from acquit.errors import StoreFull
from acquit.ledger import records
from acquit.ledger.events import EventKind, pack_event, pack_events
from acquit.ledger.live import LiveMessage
from acquit.protocol.definitions import AmqpCondition, RcvSettleMode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acquit.broker.intake.arrival import Arrival
    from acquit.broker.intake.duplicates import Duplicates
    from acquit.broker.intake.entering import Entering
    from acquit.broker.intake.shaping import Posting
    from acquit.broker.life import Life
    from acquit.broker.links.endpoints import Producer
    from acquit.broker.nodes.finding import Nodes
    from acquit.broker.nodes.topics import Topic
    from acquit.broker.options import TransactionLimits
    from acquit.protocol.delivery import Delivery
    from acquit.store.interface import Position

_COMMIT: Final = step(NodeState.HELD, NodeEvent.COMMIT)
_WHEN_COMMITTED: Final = _COMMIT.next
_POSTED: Final = int(_COMMIT.record)
_HELD: Final = int(EventKind.HELD)
_ROLLED_BACK: Final = int(EventKind.ROLLED_BACK)
_UNROUTED: Final = int(EventKind.UNROUTED)
_PASSED: Final = int(EventKind.PASSED)


class HeldLot(NamedTuple):
    """Postings that enter together: one, or several plain ones that are alike."""

    held: list[Held] | HeldTogether
    messages: list[Message] | MessageRun
    """Messages that they become: for each of several its own."""


class HeldPostings:
    """Holds the postings of all transactions."""

    def __init__(self, life: Life, entering: Entering, nodes: Nodes) -> None:
        self._life = life
        self._scribe = life.scribe
        self._entering = entering
        self._nodes = nodes
        self._numbers = 0
        self.durable: dict[int, Held | HeldTogether] = {}
        """Holders of postings that are durable, by provisional sequence."""
        self.durable_bytes = 0
        """Bytes of their payloads."""
        self.memory_bytes = 0
        """Bytes of memory that all held postings cost, durable or not."""
        self.committed: list[int] = []
        """Sequences under which durable ones are live since they were committed; whoever takes them begins it anew."""

    def record(self, transaction: Transaction) -> None:
        """Tell the journal of it, if it does not know. Raises StoreFull."""
        if not transaction.number:
            number = self._numbers + 1
            entry = records.Transaction(self._scribe.time_us, number, transaction.txn_id, transaction.user)
            self._scribe.recorder.append(entry)
            transaction.number = self._numbers = number

    # -- held ---------------------------------------------------------------------------------------------------------

    def hold(self, transaction: Transaction, arrival: Arrival, delivery: Delivery, limits: TransactionLimits) -> Held:
        """Record one more. Raises Refused for one too many, DecodeError or StoreFull; nothing is changed then."""
        scribe = self._scribe
        posting, size, target = arrival.posting, len(arrival.payload), arrival.target
        full = transaction.posted >= limits.postings_max
        if full or transaction.bytes + size > limits.bytes_max:
            most = f"{limits.postings_max} messages" if full else f"{limits.bytes_max} bytes"
            raise Refused(f"a transaction holds no more than {most}", condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED)
        if self._life.memory.left < size + OVERHEAD_BYTES:
            raise Refused(
                "the broker's memory is full: try again later", condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED
            )
        durable = posting.durable and not (isinstance(target, Queue) and not target.durable)
        flags = (DURABLE if durable else 0) | (0 if posting.identity is None else posting.identity.flags)
        sequence = scribe.sequences.take(scribe.time_us)
        held = Held(transaction, delivery, posting, target, arrival.actor, sequence, scribe.time_us, flags, arrival)
        if durable:
            self.record_one(held, arrival.meta())
        self.count(transaction, held.nodes, [held], 1, size, 0 if durable else 1, 0 if durable else size)
        return held

    def record_one(self, held: Held, meta: bytes) -> None:
        """Record a durable one. Raises StoreFull."""
        self.record(held.transaction)
        held.position, held.fingerprint = self._scribe.recorder.posted(
            held.sequence,
            held.target.number,
            held.payload,
            meta,
            held.posted_us,
            actor=held.actor,
            kind=_HELD,
            flags=held.flags,
            transaction=held.transaction.number,
        )
        self.durable[held.sequence] = held
        self._life.occupancy.entered(held.position)

    def record_together(self, held: HeldTogether, metas: Sequence[bytes]) -> None:
        """Record durable ones of a transaction that the journal knows of, and for which there is room."""
        assert held.recorded is not None
        transaction, sequences, positions, fingerprints, posted_us, actor = held.recorded
        found = self._scribe.recorder.posted_together(
            sequences,
            held.target.number,
            held.payloads,
            metas,
            posted_us,
            actor,
            kind=_HELD,
            transaction=transaction.number,
        )
        positions += found[0]
        fingerprints += found[1]
        assert len(positions) == len(sequences), "the caller has seen that there is room"
        self.durable.update(dict.fromkeys(sequences, held))
        self._life.occupancy.entered_together(positions)

    def count(
        self,
        transaction: Transaction,
        nodes: list[Queue | Topic],
        group: Sequence[Held | HeldTogether],
        count: int,
        payload_bytes: int,
        volatile: int,
        volatile_bytes: int,
    ) -> None:
        """Count so many more postings of a transaction to the same nodes, their target first. The durable ones are
        recorded. `group`: what holds them, as far as the transaction has not had it before."""
        target = nodes[0]
        transaction.used_us = self._scribe.time_us
        target.counts[_HELD] += count
        if volatile:
            self._scribe.count_volatile(target, _HELD, volatile)
        self.durable_bytes += payload_bytes - volatile_bytes
        for node in nodes:
            node.held += count
            node.held_bytes += payload_bytes
        transaction.postings += group
        transaction.posted += count
        transaction.bytes += payload_bytes
        cost = payload_bytes + count * OVERHEAD_BYTES
        self.memory_bytes += cost
        self._life.memory.bytes += cost

    def _let_go(self, held: list[Held] | HeldTogether) -> int:
        """Hold these no more. Return the bytes of their payloads."""
        life = self._life
        if isinstance(held, HeldTogether):
            count, payload_bytes = len(held.payloads), held.payload_bytes
            nodes: list[Queue | Topic] = [held.target]
            if held.recorded is not None:
                for sequence in held.recorded.sequences:
                    del self.durable[sequence]
                life.occupancy.left_together(held.recorded.positions)
                self.durable_bytes -= payload_bytes
        else:
            count, payload_bytes = len(held), sum([len(one.payload) for one in held])
            nodes = held[0].nodes
            if held[0].durable:
                for one in held:
                    del self.durable[one.sequence]
                    life.occupancy.left(one.position)
                self.durable_bytes -= payload_bytes
        for node in nodes:
            node.held -= count
            node.held_bytes -= payload_bytes
            if isinstance(node, Queue):
                life.wake(node)  # it may have been kept for this alone
        cost = payload_bytes + count * OVERHEAD_BYTES
        self.memory_bytes -= cost
        life.memory.bytes -= cost
        return payload_bytes

    # -- committed ----------------------------------------------------------------------------------------------------

    def lots(self, transaction: Transaction, *, at_once: bool) -> list[HeldLot]:
        """Make the messages that its postings become, in order. `at_once`: they are available when they enter. Raises
        StoreFull."""
        lots = []
        for group in _alike(transaction):
            if isinstance(group, HeldTogether):
                lots.append(HeldLot(group, self._together(group, transaction.peer.container, at_once=at_once)))
            else:
                arrival = group[0].arrival
                messages = self._plain_messages(group) if arrival is None else self._messages(group[0], arrival)
                lots.append(HeldLot(group, messages))
        return lots

    def _together(self, held: HeldTogether, poster: str, *, at_once: bool) -> list[Message] | MessageRun:
        """Make the messages of those of which only the payloads are held. Raises StoreFull."""
        queue, payloads, time_us = held.target, held.payloads, self._scribe.time_us
        first = self._scribe.sequences.take_all(len(payloads), time_us)
        sequences = range(first, first + len(payloads))
        size_max, recorded = max(map(len, payloads)), None
        if held.recorded is not None:
            recorded = Recorded(self._life, held.recorded.positions, held.recorded.fingerprints)
        rests = held.template.rests(payloads) if recorded is None or wanted_soon(queue) else ()
        run = MessageRun(queue, sequences, held.template, rests, held.payload_bytes, size_max, time_us, recorded)
        if recorded is not None or (at_once and queue.plain and not queue.browsers):
            return run
        messages = run.each()
        for message in messages:
            message.state = _WHEN_COMMITTED
            if queue.asks_poster:
                message.need_extra().poster = poster
        return messages

    def _messages(self, held: Held, arrival: Arrival) -> list[Message]:
        """Make what a posting becomes in each of its queues, which are those of this moment. Raises StoreFull."""
        scribe, posting = self._scribe, arrival.posting
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

    def _plain_messages(self, group: list[Held]) -> list[Message]:
        """Make the messages of plain ones that are alike. Raises StoreFull."""
        first, time_us = group[0], self._scribe.time_us
        now_ms, take_sequence = time_us // 1000, self._scribe.sequences.take
        queue, flags = first.target, first.flags
        assert isinstance(queue, Queue)
        in_memory = not flags or wanted_soon(queue)
        poster = first.transaction.peer.container if queue.asks_poster else None
        messages = []
        for held in group:
            known, sequence = held.known, take_sequence(time_us)
            body = known.body(held.payload, sequence, now_ms) if in_memory else None
            message = Message(
                sequence,
                queue,
                _WHEN_COMMITTED,
                body,
                held.fingerprint,
                flags,
                known.priority,
                time_us,
                0,
                held.position,
            )
            if known.marked:
                note_group(message, known.group_of(held.payload), known.group_sequence)
            if poster is not None:
                message.need_extra().poster = poster
            messages.append(message)
        return messages

    def enter(self, lot: HeldLot) -> None:
        """HELD, COMMIT: they are in their queues, and not yet visible."""
        held, messages = lot
        payload_bytes = self._let_go(held)
        if isinstance(messages, MessageRun):
            self._entering.enter_run(messages)
            if messages.recorded is not None:
                self.committed += messages.sequences
                if messages.queue.asks_poster:
                    self._note_poster(lot)
            return
        if isinstance(held, HeldTogether):
            self._entering.enter_group(held.target, messages, payload_bytes)
            return
        first, life = held[0], self._life
        if first.arrival is not None:
            self._enter_one(first, first.arrival, messages)
            return
        queue = first.target
        assert isinstance(queue, Queue)
        if first.durable:
            life.live_bytes += payload_bytes
            live, entered, committed = life.objects, life.occupancy.entered, self.committed
            for message in messages:
                live[message.sequence] = message
                entered(message.position)
                committed.append(message.sequence)
        self._entering.enter_group(queue, messages, payload_bytes)

    @staticmethod
    def _note_poster(lot: HeldLot) -> None:
        """Note on each message of a run whose it is."""
        assert isinstance(lot.held, HeldTogether) and lot.held.recorded is not None
        assert isinstance(lot.messages, MessageRun)
        poster = lot.held.recorded.transaction.peer.container
        for message in lot.messages.each():
            message.need_extra().poster = poster

    def _enter_one(self, held: Held, arrival: Arrival, messages: list[Message]) -> None:
        scribe, posting, target = self._scribe, arrival.posting, arrival.target
        if not messages:
            assert not isinstance(target, Queue)
            target.counts[_UNROUTED] += 1
            if not held.durable:
                scribe.count_volatile(target, _UNROUTED, 1)
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

    # -- rolled back --------------------------------------------------------------------------------------------------

    def roll_back(self, transaction: Transaction) -> None:
        """HELD, ROLL_BACK: they never enter."""
        scribe = self._scribe
        target: Queue | Topic
        for group in _alike(transaction):
            self._let_go(group)
            if isinstance(group, HeldTogether):
                target, count, durable = group.target, len(group.payloads), group.recorded is not None
            else:
                target, count, durable = group[0].target, len(group), group[0].durable
            target.counts[_ROLLED_BACK] += count
            if not durable:
                scribe.count_volatile(target, _ROLLED_BACK, count)
                continue
            try:
                scribe.recorder.transitions(_leaving_events(group, scribe.time_us))
            except StoreFull:
                scribe.exhausted = True  # the recorder keeps the events

    # -- for the checkpoint -------------------------------------------------------------------------------------------

    def live(self, sequence: int) -> LiveMessage | None:
        """Return one as the ledger sees it."""
        held = self.durable.get(sequence)
        if held is None:
            return None
        return _to_live(held) if isinstance(held, Held) else _to_live_of_many(held, sequence)

    def position(self, sequence: int) -> int:
        """Return where the record of one stands; 0 where none of that sequence is held."""
        held = self.durable.get(sequence)
        if held is None or isinstance(held, Held):
            return 0 if held is None else held.position
        assert held.recorded is not None
        return held.recorded.positions[held.recorded.sequences.index(sequence)]

    def move(self, sequence: int, position: Position) -> Position:
        """Take notice that the record of one stands there now. Return where it stood."""
        held = self.durable[sequence]
        if isinstance(held, Held):
            before, held.position = held.position, position
        else:
            assert held.recorded is not None
            at = held.recorded.sequences.index(sequence)
            before, held.recorded.positions[at] = held.recorded.positions[at], position
        return before


class HeldRun:
    """Takes plain postings of one transaction in a row, of one link to one plain queue: what is the same for all is
    done once. They count when it is closed."""

    def __init__(
        self,
        life: Life,
        postings: HeldPostings,
        duplicates: Duplicates,
        limits: TransactionLimits,
        transaction: Transaction,
        producer: Producer,
        queue: Queue,
    ) -> None:
        self._scribe = life.scribe
        self._postings = postings
        self._duplicates = duplicates
        self._transaction = transaction
        self._producer = producer
        self.queue = queue
        self._address = queue.address.encode()
        # What sees its settlement by the commit is held by itself.
        self._single = producer.link.rcv_settle_mode is RcvSettleMode.SECOND
        self._group: list[Held | HeldTogether] = []
        self._together = _last_together(transaction)
        self._volatile_count = self._volatile_bytes = 0
        self._limits = limits
        self._room = Room(queue, life.memory)
        self._messages_left = limits.postings_max - transaction.posted
        self._bytes_left = limits.bytes_max - transaction.bytes

    def take(self, delivery: Delivery, known: Posting | Template) -> bool:
        """Hold one more. False for one that may have to be refused, which somebody must look at more closely: nothing
        is changed then."""
        scribe, payload, durable = self._scribe, delivery.payload, known.durable
        size = len(payload)
        if self._messages_left < 1 or self._bytes_left < size or not self._room.take(size, durable=durable):
            return False
        time_us, actor = scribe.time_us, scribe.actor_number(self._producer)
        try:
            sequence = scribe.sequences.take(time_us)
            if not (durable or self._single) and isinstance(known, Template) and _holds_together(known):
                self._hold_together(known, [payload], size)
                return True
            held = Held(
                self._transaction, delivery, known, self.queue, actor, sequence, time_us, DURABLE if durable else 0
            )
            if durable:
                self._postings.record_one(held, known.meta(self._address, payload))
        except StoreFull:
            return False
        if known.identity is not None:
            self._duplicates.held(known.identity, self._transaction, sequence)
        self._together = None
        self._group.append(held)
        self._messages_left -= 1
        self._bytes_left -= size
        if not durable:
            self._volatile_count += 1
            self._volatile_bytes += size
        return True

    def take_all(self, payloads: Sequence[bytes]) -> bool:
        """Hold all of these, which came together. False where one of them must be looked at by itself: nothing is
        changed then."""
        template = self._producer.templates.latest
        if template is None or not self.predicted or not template.fits_all(payloads):
            return False
        count, size = len(payloads), sum(map(len, payloads))
        if self._messages_left < count or self._bytes_left < size:
            return False
        if not self._room.fits(count, size, durable=template.durable):
            return False
        scribe, actor = self._scribe, 0
        metas = template.metas(self._address, payloads) if template.durable else []
        try:
            if template.durable:
                self._postings.record(self._transaction)
                actor = scribe.actor_number(self._producer)  # which may have to be recorded, and takes room then
                if not scribe.recorder.has_room(metas, size):
                    return False
            first = scribe.sequences.take_all(count, scribe.time_us)
        except StoreFull:
            return False
        if template.durable:
            self._record_together(template, payloads, metas, range(first, first + count), size, actor)
        else:
            self._hold_together(template, payloads, size)
        return True

    def _record_together(
        self,
        template: Template,
        payloads: Sequence[bytes],
        metas: Sequence[bytes],
        sequences: range,
        payload_bytes: int,
        actor: int,
    ) -> None:
        """Hold durable ones that fit a template, for which there is room."""
        recorded = HeldRecords(self._transaction, sequences, [], [], self._scribe.time_us, actor)
        together = HeldTogether(template, self.queue, recorded)
        self._group.append(together)
        self._add(together, payloads, payload_bytes)
        self._postings.record_together(together, metas)

    def _hold_together(self, template: Template, payloads: Sequence[bytes], payload_bytes: int) -> None:
        """Hold volatile ones that fit a template, for which there is room."""
        together = self._together
        if together is None or together.template is not template:
            together = self._together = HeldTogether(template, self.queue)
            self._group.append(together)
        self._add(together, payloads, payload_bytes)
        self._volatile_count += len(payloads)
        self._volatile_bytes += payload_bytes

    def _add(self, together: HeldTogether, payloads: Sequence[bytes], payload_bytes: int) -> None:
        together.payloads += payloads
        together.payload_bytes += payload_bytes
        self._messages_left -= len(payloads)
        self._bytes_left -= payload_bytes

    @property
    def predicted(self) -> bool:
        """True if the next postings may be such that `take_all` takes them."""
        template = self._producer.templates.latest
        return template is not None and _holds_together(template) and not self._single

    def close(self) -> None:
        """Count what was held: limits are looked at with all that is there."""
        transaction, producer = self._transaction, self._producer
        count = self._limits.postings_max - transaction.posted - self._messages_left
        payload_bytes = self._limits.bytes_max - transaction.bytes - self._bytes_left
        if count:
            volatile = self._volatile_count, self._volatile_bytes
            self._postings.count(transaction, [self.queue], self._group, count, payload_bytes, *volatile)
            producer.average_bytes += (payload_bytes // count - producer.average_bytes) // 4


def _alike(transaction: Transaction) -> Iterator[list[Held] | HeldTogether]:
    """Group its postings, in order: plain ones in a row to one queue together, all of them durable or none."""
    for _, group in groupby(transaction.postings, _kind):
        together: list[Held] = []
        for held in group:
            if isinstance(held, HeldTogether):
                yield held
            else:
                together.append(held)
        if together:
            yield together


def _holds_together(template: Template) -> bool:
    """Return whether there is nothing to be held of a message that fits but its payload, and where its record is."""
    return not template.marked


def _last_together(transaction: Transaction) -> HeldTogether | None:
    """Return what holds the last postings of a transaction, if others that fit its template may be behind these: a
    template is of one link, and so they are for one queue."""
    last = transaction.postings[-1] if transaction.postings else None
    return last if isinstance(last, HeldTogether) else None


def _kind(held: Held | HeldTogether) -> object:
    return held if isinstance(held, HeldTogether) or held.arrival is not None else (held.target, held.flags)


def entering_events(lot: HeldLot, time_us: int) -> bytes:
    """Return the events by which postings end to be held and enter their queues, those that are recorded, packed."""
    group, messages = lot
    if isinstance(group, HeldTogether):
        if group.recorded is None:
            return b""
        assert isinstance(messages, MessageRun)  # the durable ones are that
        return _events_of_many(group, _POSTED, time_us, messages.sequences, origins=group.recorded.sequences)
    held = group[0]
    assert not isinstance(messages, MessageRun)
    if not held.durable:
        return b""
    if held.arrival is None:
        events = [
            _posting_event(one, message.sequence, one.sequence, one.target.number, _POSTED, one.flags, time_us)
            for one, message in zip(group, messages, strict=True)
        ]
        return b"".join(events)
    if not messages or not messages[0].flags & DURABLE:
        kind = _PASSED if messages else _UNROUTED
        return _posting_event(held, held.sequence, 0, held.target.number, kind, held.flags, time_us)
    first, events = messages[0], []
    for message in messages:
        if message.flags & DURABLE:
            copied = message is not first
            origin = first.sequence if copied else held.sequence
            flags = held.flags | (COPY if copied else 0)
            events.append(_posting_event(held, message.sequence, origin, message.queue.number, _POSTED, flags, time_us))
    return b"".join(events)


def _leaving_events(group: list[Held] | HeldTogether, time_us: int) -> bytes:
    """Return the events by which postings that are recorded end to be held, and enter nothing."""
    if isinstance(group, HeldTogether):
        assert group.recorded is not None
        return _events_of_many(group, _ROLLED_BACK, time_us, group.recorded.sequences)
    events = [
        _posting_event(one, one.sequence, 0, one.target.number, _ROLLED_BACK, DURABLE, time_us)  # it names no id
        for one in group
    ]
    return b"".join(events)


def _events_of_many(
    held: HeldTogether, kind: int, time_us: int, sequences: Sequence[int], origins: Sequence[int] | None = None
) -> bytes:
    assert held.recorded is not None
    return pack_events(
        sequences,
        held.recorded.fingerprints,
        time_us,
        held.target.number,
        held.recorded.actor,
        kind,
        flags=DURABLE,
        transaction=held.recorded.transaction.number,
        origins=origins,
    )


def _posting_event(held: Held, sequence: int, origin: int, queue: int, kind: int, flags: int, time_us: int) -> bytes:
    number = held.transaction.number
    return pack_event(sequence, origin, time_us, held.fingerprint, queue, held.actor, kind, flags, 0, number)


def _to_live(held: Held) -> LiveMessage:
    arrival = held.arrival
    return LiveMessage(
        held.sequence,
        held.target.number,
        held.position,
        held.fingerprint,
        held.flags,
        0,
        held.posted_us,
        0 if arrival is None else arrival.expires_at_ms,
        0 if arrival is None else arrival.posting.due_at_ms,
        held.known.priority,
        0,
        held.transaction.number,
    )


def _to_live_of_many(held: HeldTogether, sequence: int) -> LiveMessage:
    assert held.recorded is not None
    transaction, sequences, positions, fingerprints, posted_us, _ = held.recorded
    at = sequences.index(sequence)
    return LiveMessage(
        sequence,
        held.target.number,
        positions[at],
        fingerprints[at],
        DURABLE,
        0,
        posted_us,
        0,
        0,
        held.template.priority,
        0,
        transaction.number,
    )


__all__ = ["HeldLot", "HeldPostings", "HeldRun", "entering_events"]
