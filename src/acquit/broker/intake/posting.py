"""Messages come in: what was delivered to a producer's link becomes messages in a queue.

A volatile message is available at once, and answered at once. A durable one is recorded; it is PENDING, and its sender
hears nothing, until the batch with its record is synced. What cannot be taken is refused by its own delivery: rejected
with the reason where the sender waits for an answer, the link detached with it where it does not.

`receive` is the hot path: deliveries to one queue come in groups, most of them are plain (`shaping.Template`,
`shaping.read_plain`), and everything that is the same for a group is done once. Every other message is read as an
`Arrival`, and takes these steps: where does it go, is there room in all of these queues, and then into each of them.
What is posted to a topic is one record with the payload, and an event for each further copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from acquit.broker.denials import Denials
from acquit.broker.dispatching.groups import CLOSING
from acquit.broker.intake.limits import Room, admit, full, note_value
from acquit.broker.intake.shaping import (
    SharedBody,
    check_cost,
    expiry,
    learn_template,
    make_body,
    own_annotations,
    read_due_at,
    read_plain,
    read_posting,
)
from acquit.broker.links.endpoints import takes_rejected
from acquit.broker.message import COPY, DURABLE, OBJECT_BYTES, OVERHEAD_BYTES, TOLD_DURABLE, Message
from acquit.broker.nodes.node import Queue
from acquit.broker.queue import NodeEvent, NodeState, step
from acquit.broker.refusal import Refused
from acquit.errors import DecodeError, RemoteProtocolError, StoreFull
from acquit.ledger.events import EventKind
from acquit.ledger.recorder import RECORD_BYTES
from acquit.ledger.records import encode_posting_meta
from acquit.protocol._definitions import (
    AmqpCondition,
    Error,
    RcvSettleMode,
    Rejected,
    Released,
    TransactionalState,
    TransactionCondition,
)
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.numbered import take_place
from acquit.protocol.sections import MESSAGE_ANNOTATIONS, PROPERTIES, map_value, scan_sections

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from acquit.broker.intake.duplicates import Duplicates, Identity
    from acquit.broker.intake.marks import Claim, Mark, Marks
    from acquit.broker.intake.shaping import Posting
    from acquit.broker.life import Life
    from acquit.broker.links.endpoints import Producer
    from acquit.broker.nodes.finding import Nodes
    from acquit.broker.nodes.topics import Topic
    from acquit.broker.options.limits import ConnectionLimits
    from acquit.broker.transact.transaction import Transaction
    from acquit.broker.transact.transactions import Transactions
    from acquit.protocol.delivery import Delivery, Outcome
    from acquit.protocol.numbered import Place
    from acquit.protocol.session import Session

_PENDING = NodeState.PENDING
_AVAILABLE = NodeState.AVAILABLE
_SCHEDULED = NodeState.SCHEDULED
_POSTED: Final = int(EventKind.POSTED)
_SHALLOW: Final = 1_024
"""A queue with no more than this available is near its head: what is posted may be handed out at once."""
JMS_DESTINATION: Final = "x-opt-jms-dest"
"""Message annotation of JMS clients: what their destination is. 0: a queue, 1: a topic, 2 and 3: the temporary ones."""
_JMS_KINDS: Final[dict[object, bool]] = {0: False, 1: True, 2: False, 3: True}
"""Is it a topic?"""


@dataclass(slots=True)
class Arrival:
    """One delivery on its way into queues: what is known of it so far."""

    producer: Producer
    delivery: Delivery
    posting: Posting
    target: Queue | Topic
    """Where it was sent. Its policy holds for the message, those of the queues for the room in them."""
    queues: list[Queue]
    """Where it goes: several for a topic, perhaps none."""
    actor: int
    expires_at_ms: int
    identity: Identity | None = None
    """The id that tells duplicates, and what is known of it; None: it has none that counts."""

    @property
    def payload(self) -> bytes:
        """The message, byte for byte."""
        return self.delivery.payload


class Poster:
    """Takes postings."""

    def __init__(
        self,
        life: Life,
        nodes: Nodes,
        duplicates: Duplicates,
        marks: Marks,
        limits: ConnectionLimits,
        denials: Denials,
    ) -> None:
        """`nodes` are asked for addresses that a message (not a link) names, and for what a topic goes to."""
        self.limits = limits
        """What a message may cost."""
        self._life = life
        self._scribe = life.scribe
        self._memory = life.memory
        self._nodes = nodes
        self._duplicates = duplicates
        self._marks = marks
        self._denials = denials
        self.transactions: Transactions
        """Set by the core: they need us as well."""

    # -- from links ---------------------------------------------------------------------------------------------------

    def receive(self, producer: Producer, deliveries: Iterable[Delivery]) -> None:
        """Deliveries of one link, in order."""
        queue = producer.queue
        refused: list[Delivery] = []
        if producer.mark is not None:
            deliveries = self._unrepeated(producer, producer.mark, deliveries, refused)
        elif producer.link.stateful:
            self._receive_stateful(producer, deliveries)
            return
        if queue is None or not queue.plain:
            for delivery in deliveries:
                self._receive_one(producer, delivery)
            return
        scribe = self._scribe
        time_us = scribe.time_us
        now_ms = time_us // 1000
        room = Room(queue, self._memory)
        take_sequence, record = scribe.sequences.take, scribe.recorder.posted
        number, address, live, metas = queue.number, queue.address.encode(), self._life.live, producer.metas
        pack_meta = encode_posting_meta
        entered = self._life.occupancy.entered
        actor = scribe.actor_number(producer)
        offered: list[Message] = []
        answered: list[Delivery] = []
        pending: list[Message] = []
        waiting: list[Delivery] = []
        volatile_bytes = durable_bytes = 0
        for delivery in deliveries:
            payload = delivery.payload
            size = len(payload)
            template = producer.template
            if template is not None and template.fits(payload) and not delivery.message_format:
                durable, priority, body_at = template.durable, template.priority, template.body_at
                message_id = template.message_id(payload) if durable else b""  # only the journal wants it
            else:
                plain = self._read_plain(producer, delivery)
                if plain is None:
                    # What came before it counts first: each limit is looked at with all that is there.
                    self._enter_group(producer, queue, offered, answered, volatile_bytes)
                    self._enter_group(producer, queue, pending, waiting, durable_bytes)
                    self._receive_one(producer, delivery)
                    offered, answered, pending, waiting = [], [], [], []
                    volatile_bytes = durable_bytes = 0
                    room = Room(queue, self._memory)
                    continue
                durable, priority, message_id, body_at = plain
            room.messages -= 1
            try:
                sequence = take_sequence(time_us)
                if durable:
                    room.durable -= size + OVERHEAD_BYTES
                    if room.durable < 0 or room.messages < 0:
                        refused.append(delivery)
                        continue
                    meta = metas.get(priority) if not message_id else pack_meta(address, message_id, priority=priority)
                    if meta is None:
                        meta = metas[priority] = pack_meta(address, b"", priority=priority)
                    position, fingerprint = record(sequence, number, payload, meta, time_us, actor=actor)
                    body = own_annotations(sequence, now_ms) + payload[body_at:]
                    message = Message(
                        sequence, queue, _PENDING, body, fingerprint, DURABLE, priority, time_us, 0, position
                    )
                    live[sequence] = message
                    entered(position)
                    pending.append(message)
                    waiting.append(delivery)
                    durable_bytes += size
                else:
                    room.volatile -= size + OVERHEAD_BYTES
                    if room.volatile < 0 or room.messages < 0:
                        refused.append(delivery)
                        continue
                    body = own_annotations(sequence, now_ms) + payload[body_at:]
                    offered.append(Message(sequence, queue, _AVAILABLE, body, size << 32, 0, priority, time_us, 0, 0))
                    answered.append(delivery)
                    volatile_bytes += size
            except StoreFull:
                refused.append(delivery)
        self._enter_group(producer, queue, offered, answered, volatile_bytes)
        self._enter_group(producer, queue, pending, waiting, durable_bytes)
        if refused:
            self._refuse(producer, refused, full(queue, disk=scribe.journal.full))

    def _enter_group(
        self, producer: Producer, queue: Queue, messages: list[Message], deliveries: list[Delivery], payload_bytes: int
    ) -> None:
        """Count plain messages, all of them durable or none, and answer them: the durable ones once they are synced."""
        if not messages:
            return
        self._count(queue, len(messages), payload_bytes)
        durable = messages[0].state is _PENDING
        if durable:
            self._life.live_bytes += payload_bytes
            queue.pending += len(messages)
            self.mark(queue, messages[-1].sequence)
            self._scribe.when_synced(self._synced, queue, messages, producer.link.session, deliveries)
        else:
            self._scribe.count_volatile(queue, _POSTED, len(messages))
            self._offer(queue, messages)
            producer.link.session.settle_all(deliveries, ACCEPTED)
        producer.volatile = not durable
        producer.average_bytes += (payload_bytes // len(messages) - producer.average_bytes) // 4

    def _check_cost(self, delivery: Delivery) -> None:
        """Raises Refused, or DecodeError, for what is too laborious to deal with."""
        check_cost(delivery.payload, self.limits.message_entries_max, self.limits.message_sections_max)

    def _read_plain(self, producer: Producer, delivery: Delivery) -> tuple[bool, int, bytes, int] | None:
        """Durable, priority, message id, and where the header ends, of a message that says nothing else that matters;
        None for any other, and for one that makes no sense."""
        if delivery.message_format or not delivery.payload:
            return None
        try:
            self._check_cost(delivery)
            sections = scan_sections(delivery.payload)
            plain = read_plain(sections)
            if plain is None:
                return None
            producer.template = learn_template(sections)
        except (DecodeError, Refused):
            return None
        return *plain, sections.bounds[1]

    def _receive_one(self, producer: Producer, delivery: Delivery) -> None:
        """One delivery, whatever it is."""
        try:
            arrival = self._read(producer, delivery)
            arrival.identity = identity = self._duplicates.check(arrival.target, arrival.posting)
            if identity is not None and identity.first:
                self._accept(delivery, durable=self._duplicates.suppress(identity, arrival.target, arrival.actor))
                return
            if not arrival.queues:
                self._unroutable(arrival)
                self._nodes.posted(arrival)
                return
            self._admit(arrival)
            durable = self.enter_all(arrival)
            self._nodes.posted(arrival)
        except StoreFull:
            self._refuse(producer, [delivery], full(producer.queue, disk=self._scribe.journal.full))
        except (DecodeError, Refused) as exc:
            self._refuse(producer, [delivery], exc)
        else:
            producer.average_bytes += (len(delivery.payload) - producer.average_bytes) // 4
            producer.volatile = not durable
            self._accept(delivery, durable=durable)

    def _receive_stateful(self, producer: Producer, deliveries: Iterable[Delivery]) -> None:
        """Deliveries of a link that has sent some in transactions."""
        held: dict[Transaction, list[Delivery]] = {}
        for delivery in deliveries:
            if isinstance(delivery.remote_state, TransactionalState):
                transaction = self._receive_held(producer, delivery, delivery.remote_state)
                if transaction is not None:
                    held.setdefault(transaction, []).append(delivery)
            else:
                self._receive_one(producer, delivery)
        for transaction, group in held.items():
            self.transactions.answer_postings(transaction, group, ACCEPTED)

    def _fit(self, producer: Producer, deliveries: Iterable[Delivery]) -> tuple[bool, bool]:
        """Is there room for all of them, so that none of a group is refused for want of it: if they are durable, and if
        they are not?"""
        queue, scribe = producer.queue, self._scribe
        if queue is None or not queue.plain or scribe.journal.full:
            return False, False
        sizes = [len(delivery.payload) for delivery in deliveries]
        cost = sum(sizes) + len(sizes) * OVERHEAD_BYTES
        room = Room(queue, self._memory)
        # An id is in the message and beside it.
        record_bytes = 2 * sum(sizes) + (len(sizes) + 8) * (RECORD_BYTES + len(queue.address) * 4)
        if room.messages < len(sizes) or room.durable < cost or scribe.recorder.room_bytes <= record_bytes:
            return False, False
        return True, room.volatile >= cost

    def _unrepeated(
        self, producer: Producer, claim: Claim, deliveries: Iterable[Delivery], refused: Sequence[Delivery]
    ) -> Iterator[Delivery]:
        """Those of a link with a mark that were not posted before (`intake.marks`), as far as they may be dealt with as
        a group, of which none is refused for want of room; the others are dealt with here, so that what is behind a
        refused one is refused. `refused`: those of the group that were all the same, as when sequence numbers have run
        out until the next sync. At the end the mark is recorded."""
        mark, scribe = claim.mark, self._scribe
        durable_fit, volatile_fit = self._fit(producer, deliveries)
        moved = False
        for delivery in deliveries:
            state = delivery.remote_state
            if isinstance(state, TransactionalState):
                self.transactions.fail(producer.peer, state.txn_id)
                self._refuse(producer, [delivery], claim.in_transaction())
                continue
            if claim.refused:
                self._refuse(producer, [delivery], claim.why())
                continue
            try:
                self._check_cost(delivery)
                place, delivery.payload = take_place(delivery.payload)
                if place[:2] <= mark.at:
                    if place[:2] == mark.at and place[2] != mark.digest:
                        self._refuse(producer, [delivery], claim.other())
                    else:
                        self._repeated(producer, mark, place, delivery)
                    continue
            except (DecodeError, Refused) as exc:
                self._refuse(producer, [delivery], exc)
                continue
            if volatile_fit or (durable_fit and _says_durable(delivery.payload)):
                yield delivery
            else:
                self._receive_one(producer, delivery)
            if refused:
                claim.refused = True
            if not claim.refused:
                mark.at, mark.digest, mark.sequence = place[:2], place[2], scribe.sequences.last
                moved = True
        if moved:
            self._marks.moved(mark)

    def _repeated(self, producer: Producer, mark: Mark, place: Place, delivery: Delivery) -> None:
        """It was posted before."""
        target: Queue | Topic | None = producer.queue or producer.topic
        if target is None:
            try:
                posting = read_posting(delivery.payload)
                target = self._nodes.known(*self._destination(producer, posting))
            except (DecodeError, Refused):
                target = None  # posted it was, wherever that is gone to
        self._marks.suppress(mark, place, delivery.payload, target, self._scribe.actor_number(producer))
        self._accept(delivery, durable=True)

    def _receive_held(self, producer: Producer, delivery: Delivery, state: TransactionalState) -> Transaction | None:
        """One delivery of a transaction: all but that it enters its queues, which is the commit's to do. Gives the
        transaction if it will, so that its sender is to hear *accepted*."""
        transactions = self.transactions
        try:
            transaction = transactions.find(producer.peer, state.txn_id)
        except Refused as exc:
            self._refuse(producer, [delivery], exc)
            return None
        try:
            arrival = self._read(producer, delivery)
            arrival.identity = identity = self._duplicates.check(arrival.target, arrival.posting, transaction)
            if identity is not None and identity.first:
                self._duplicates.suppress(identity, arrival.target, arrival.actor)
                if delivery.link.rcv_settle_mode is RcvSettleMode.SECOND and not delivery.settled:
                    transaction.repeated.append(delivery)
            elif not arrival.queues and arrival.target.policy.unroutable == "release" and not delivery.settled:
                transactions.answer_postings(transaction, [delivery], Released())
                return None
            else:
                self._admit(arrival)
                transactions.hold(transaction, arrival)
        except StoreFull:
            self._refuse(producer, [delivery], full(producer.queue, disk=self._scribe.journal.full), transaction)
        except (DecodeError, Refused) as exc:
            self._refuse(producer, [delivery], exc, transaction)
        else:
            producer.average_bytes += (len(delivery.payload) - producer.average_bytes) // 4
            return transaction
        return None

    def _read(self, producer: Producer, delivery: Delivery) -> Arrival:
        """What the message says, and where it goes. Raises DecodeError or Refused."""
        if delivery.message_format:
            raise Refused(
                f"message-format {delivery.message_format}: only 0 is known here (2.7.5)",
                condition=AmqpCondition.NOT_IMPLEMENTED,
            )
        if not delivery.payload:
            # A message without a body is none either (3.2), but clients send such; one without anything is a mistake.
            raise DecodeError("a message of 0 bytes: it must have a section (3.2)")
        self._check_cost(delivery)
        now_ms = self._scribe.time_us // 1000
        posting = read_posting(delivery.payload)
        posting.due_at_ms = read_due_at(posting.sections, now_ms)
        posting.poster = producer.peer.container
        if posting.user_id is not None:
            producer.peer.rights.check_user_id(posting.user_id)
        target = producer.queue or producer.topic or self._route(producer, posting)
        arrival = Arrival(
            producer,
            delivery,
            posting,
            target,
            [],
            self._scribe.actor_number(producer),
            expiry(posting, target.policy, now_ms),
        )
        arrival.queues = self._nodes.queues_of(arrival)
        return arrival

    def _route(self, producer: Producer, posting: Posting) -> Queue | Topic:
        """Where a message on the anonymous terminus goes."""
        return self._nodes.to_send_to(producer.peer, *self._destination(producer, posting))

    @staticmethod
    def _destination(producer: Producer, posting: Posting) -> tuple[str, bool | None]:
        """Its *to*, and whether JMS says that this is a topic."""
        if posting.to is None:
            raise Refused("the message says no 'to', and neither does the link", condition=AmqpCondition.NOT_FOUND)
        start, end = posting.sections.bounds[MESSAGE_ANNOTATIONS], posting.sections.bounds[PROPERTIES]
        said = map_value(posting.sections.payload[start:end], JMS_DESTINATION) if start != end else None
        if said is not None and said not in _JMS_KINDS:
            raise Refused(
                f"the annotation {JMS_DESTINATION} must be a byte from 0 to 3, not {said!r:.80}",
                condition=AmqpCondition.INVALID_FIELD,
            )
        topic = None if said is None else _JMS_KINDS[said]
        producer.peer.rights.check("send", posting.to)
        return posting.to, topic

    def _admit(self, arrival: Arrival) -> None:
        """Raise Refused unless every queue has room: a message goes to all of them, or to none."""
        cost = len(arrival.payload) + OVERHEAD_BYTES
        memory = self._memory
        note_value(arrival.target.policy, arrival.posting)  # it may find its queues later, when it is committed
        for queue in arrival.queues:
            admit(queue, memory, cost, durable=arrival.posting.durable and queue.durable)
            note_value(queue.policy, arrival.posting)
        if len(arrival.queues) == 1:
            return
        volatile = sum(not (arrival.posting.durable and queue.durable) for queue in arrival.queues)
        if memory.left < cost * volatile + OBJECT_BYTES * (len(arrival.queues) - volatile):
            raise Refused(
                f"no memory for {len(arrival.queues)} copies: try again later",
                condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED,
            )

    def _unroutable(self, arrival: Arrival) -> None:
        """No subscription takes it."""
        delivery, topic = arrival.delivery, arrival.target
        assert not isinstance(topic, Queue)
        if topic.policy.unroutable == "release" and not delivery.settled:
            if arrival.producer.mark is not None:
                arrival.producer.mark.refused = True
            delivery.link.session.settle_all([delivery], Released())
            return
        durable = arrival.posting.durable
        self._scribe.unrouted(topic, arrival.payload, arrival.actor, durable=durable)
        self._accept(delivery, durable=durable)

    def _accept(self, delivery: Delivery, *, durable: bool) -> None:
        """Answer *accepted*; where something of it was recorded, after the sync."""
        if durable:
            self._scribe.when_synced(self._answer, delivery)
        else:
            delivery.link.session.settle_all([delivery], ACCEPTED)

    def _refuse(
        self,
        producer: Producer,
        deliveries: list[Delivery],
        why: RemoteProtocolError,
        transaction: Transaction | None = None,
    ) -> None:
        """Reject deliveries, in their transaction if they have one. What cannot be rejected, because its sender has
        settled it or does not take that outcome, ends the link, and its transaction cannot be committed (4.4.4).

        On the anonymous terminus the error names the delivery, so that its sender learns which message it was.
        """
        error = Error(why.condition, why.description)
        self._denials.postings(producer, len(deliveries), why)
        if producer.mark is not None:
            producer.mark.refused = True
        told = takes_rejected(producer.link)
        rejected = [delivery for delivery in deliveries if told and not delivery.settled]
        unanswered = [delivery for delivery in deliveries if not told or delivery.settled]
        if producer.queue is None and producer.topic is None:
            for delivery in rejected:
                self._answer_all([delivery], Rejected(_naming(error, delivery)), transaction)
        elif rejected:
            self._answer_all(rejected, Rejected(error), transaction)
        if unanswered:
            if transaction is not None:
                transaction.fail(
                    TransactionCondition.TRANSACTION_ROLLBACK,
                    f"a message was refused that could not be rejected: {error.description}",
                )
            producer.link.detach(_naming(error, unanswered[0]))

    def _answer_all(self, deliveries: list[Delivery], outcome: Outcome, transaction: Transaction | None) -> None:
        if transaction is None:
            deliveries[0].link.session.settle_all(deliveries, outcome)
        else:
            self.transactions.answer_postings(transaction, deliveries, outcome)

    # -- from anywhere ------------------------------------------------------------------------------------------------

    def post(self, queue: Queue, payload: bytes) -> None:
        """Post a volatile message of the broker's own, as a client would. Raises Refused or StoreFull, with nothing
        changed."""
        now_ms = self._scribe.time_us // 1000
        posting = read_posting(payload)
        admit(queue, self._memory, len(payload) + OVERHEAD_BYTES, durable=False)
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
        body = make_body(posting.sections, sequence, time_us // 1000)
        message = new_message(queue, sequence, body, posting, time_us, expires_at_ms, due_at_ms)
        message.flags |= flags
        meta = posting_meta(address, posting, expires_at_ms, due_at_ms)
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
                flags=0 if arrival.identity is None else arrival.identity.flags,
            )
            if arrival.identity is not None:
                self._duplicates.entered(arrival.identity, message)
            if message.flags & DURABLE:
                self.mark(queues[0], message.sequence)
            return message.durable
        messages = self._fan_out(arrival)
        if arrival.identity is not None:
            recorded = (message for message in messages if message.durable)
            self._duplicates.entered(arrival.identity, next(recorded, messages[0]))
        pending = []
        for message in messages:
            self._life.enter(message)
            if posting.due_at_ms:
                extra = message.need_extra()
                extra.due_at_ms, extra.message_id = posting.due_at_ms, posting.message_id
            if message.flags & DURABLE:
                message.queue.pending += 1
                self.mark(message.queue, message.sequence)
                pending.append(message)
            elif posting.due_at_ms:
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
        shared = SharedBody(posting.sections, time_us // 1000)
        cost = len(payload) + OVERHEAD_BYTES
        room = self._memory.room(arrival.queues[0], volatile=False)
        messages = []
        for queue in arrival.queues:
            sequence = scribe.sequences.take(time_us)
            body = None
            if not (posting.durable and queue.durable) or (room >= cost and wanted_soon(queue)):
                body = shared.of(sequence)
                room -= cost
            messages.append(
                new_message(queue, sequence, body, posting, time_us, arrival.expires_at_ms, posting.due_at_ms)
            )
        durable = [message for message in messages if message.flags & DURABLE]
        if durable:
            first, *others = durable
            if arrival.identity is not None:
                first.flags |= arrival.identity.flags
            meta = posting_meta(arrival.target.address, posting, arrival.expires_at_ms, posting.due_at_ms)
            scribe.posted(first, payload, meta, kind=_POSTED, actor=arrival.actor, origin=0, essential=False)
            for message in others:
                message.flags |= COPY
                message.position, message.fingerprint = first.position, first.fingerprint
            scribe.copies(first, others, arrival.actor)
        for message in messages:
            if not message.flags & DURABLE:
                message.fingerprint = len(payload) << 32
                message.queue.counts[_POSTED] += 1
                scribe.count_volatile(message.queue, _POSTED, 1)
        return messages

    # -- after the sync -----------------------------------------------------------------------------------------------

    def _synced(self, queue: Queue, messages: list[Message], session: Session, deliveries: list[Delivery]) -> None:
        """A group of durable postings without times is on the disk: senders hear so, consumers may have them."""
        session.settle_all(deliveries, ACCEPTED)
        self._life.touch(session.connection)
        gone = 0
        for message in messages:
            if message.state is _PENDING:
                message.state = _AVAILABLE
            else:
                gone += 1  # purged meanwhile
        queue.pending -= len(messages) - gone
        self._offer(queue, [message for message in messages if message.state is _AVAILABLE] if gone else messages)

    def _answer(self, delivery: Delivery) -> None:
        session = delivery.link.session
        session.settle_all([delivery], ACCEPTED)
        self._life.touch(session.connection)

    def available(self, messages: list[Message]) -> None:
        """What these entered by is on the disk: a commit, or one posting in several queues."""
        ready: dict[Queue, list[Message]] = {}
        for message in messages:
            if message.state is _PENDING and not (message.due_at_ms or message.expires_at_ms):
                message.state = _AVAILABLE
                message.queue.pending -= 1
                ready.setdefault(message.queue, []).append(message)
            else:
                self._available(message)
        for queue, group in ready.items():
            self._offer(queue, group)

    def _available(self, message: Message) -> None:
        """One durable posting is on the disk."""
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

    def _count(self, queue: Queue, messages: int, payload_bytes: int) -> None:
        """A group without times has entered."""
        queue.counts[_POSTED] += messages
        queue.bytes += payload_bytes
        self._memory.enter_all(queue, messages, payload_bytes)

    def _offer(self, queue: Queue, messages: list[Message]) -> None:
        if not messages:
            return
        queue.backlog.extend(messages)
        if queue.values is not None:
            queue.values.arrived.extend(messages)
        for browser in queue.browsers:
            for message in messages:
                browser.offered(message)
        self._life.dirty[queue] = None
        memory = self._memory
        if memory.crowded(queue):
            going_out = sum(consumer.room for consumer in queue.consumers if consumer.in_line and consumer.open_to_more)
            if queue.backlog.count > going_out:  # they will wait here: not in memory, then
                for message in messages:
                    if message.flags & DURABLE:
                        memory.drop(message)

    def mark(self, queue: Queue, sequence: int) -> None:
        """A consumer that waits shall not wait for a second sync, only to learn that it may have the message."""
        if queue.consumers and wanted_soon(queue):
            self._scribe.mark_ahead(queue, sequence)


def wanted_soon(queue: Queue) -> bool:
    """Does somebody wait for what is posted to this queue?"""
    return bool(queue.consumers or queue.browsers) and queue.backlog.count <= _SHALLOW


def new_message(
    queue: Queue,
    sequence: int,
    body: bytes | None,
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
    if posting.group is not None and queue.policy.message_groups:
        extra = message.need_extra()
        extra.group, extra.closes_group = posting.group, posting.group_sequence == CLOSING
    if queue.asks_poster:
        message.need_extra().poster = posting.poster
    return message


def posting_meta(address: str, posting: Posting, expires_at_ms: int, due_at_ms: int) -> bytes:
    """The plain fields of its record."""
    return encode_posting_meta(
        address.encode(),
        posting.message_id,
        expires_at_ms=expires_at_ms,
        due_at_ms=due_at_ms,
        priority=posting.priority,
        extras=posting.extras,
    )


def _naming(error: Error, delivery: Delivery) -> Error:
    """`error`, saying which delivery it is about."""
    return Error(error.condition, error.description, {"delivery-tag": delivery.tag})


def _says_durable(payload: bytes) -> bool:
    """Surely a durable message: one look at its header, as most senders write it."""
    return payload.startswith(b"\x00\x53\x70\xc0") and payload[6:7] == b"\x41"


__all__ = ["Poster", "Refused"]
