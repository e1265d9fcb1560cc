"""Messages come in: what was delivered to a producer's link becomes messages in a queue.

A volatile message is available at once, and answered at once. A durable one is recorded; it is PENDING, and its sender
hears nothing, until the batch with its record is synced. What cannot be taken is refused by its own delivery: rejected
with the reason where the sender waits for an answer, the link detached with it where it does not.

`receive` is the hot path: deliveries come in groups, most of them are plain (`shaping.Template`, `shaping.read_plain`),
and everything that is the same for a group is done once. Every other message goes through `enter`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.message import DURABLE, OVERHEAD_BYTES, Message
from acquit.broker.queue import NodeEvent, NodeState, step
from acquit.broker.shaping import learn_template, make_body, own_annotations, read_plain, read_posting
from acquit.errors import DecodeError, RemoteProtocolError, StoreFull
from acquit.ledger.events import EventKind
from acquit.ledger.records import encode_posting_meta
from acquit.protocol._definitions import AmqpCondition, Error, Rejected
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.sections import scan_sections

if TYPE_CHECKING:
    from collections.abc import Callable

    from acquit.broker.endpoints import Peer, Producer
    from acquit.broker.life import Life
    from acquit.broker.memory import Memory
    from acquit.broker.node import Queue
    from acquit.broker.shaping import Posting
    from acquit.protocol.delivery import Delivery
    from acquit.protocol.session import Session

_PENDING = NodeState.PENDING
_AVAILABLE = NodeState.AVAILABLE
_SCHEDULED = NodeState.SCHEDULED
_POSTED: Final = int(EventKind.POSTED)
_UNLIMITED: Final = 1 << 62
_SHALLOW: Final = 1_024
"""A queue with no more than this available is near its head: what is posted may be handed out at once."""


class Refused(RemoteProtocolError):
    """A posting that is not taken; nothing of it is left."""


class Room:
    """What one queue may still take in this turn."""

    __slots__ = ("durable", "messages", "volatile")

    def __init__(self, queue: Queue, memory: Memory) -> None:
        policy = queue.policy
        self.messages = policy.messages_max - queue.live if policy.messages_max else _UNLIMITED
        whole = policy.bytes_max - queue.bytes if policy.bytes_max else _UNLIMITED
        self.durable = min(whole, memory.room(queue, volatile=False))
        self.volatile = min(whole, memory.room(queue, volatile=True))


class Poster:
    """Takes postings."""

    def __init__(self, life: Life, find_queue: Callable[[Peer, str], Queue]) -> None:
        """`find_queue`: the queue of an address that a message (not a link) names; raises Refused."""
        self._life = life
        self._scribe = life.scribe
        self._memory = life.memory
        self._find_queue = find_queue

    # -- from links ---------------------------------------------------------------------------------------------------

    def receive(self, producer: Producer, deliveries: list[Delivery]) -> None:
        """Deliveries of one link, in order."""
        queue = producer.queue
        if queue is None or queue.policy.default_ttl_ms:
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
        actor = scribe.actor_number(producer)
        offered: list[Message] = []
        answered: list[Delivery] = []
        pending: list[Message] = []
        waiting: list[Delivery] = []
        refused: list[Delivery] = []
        volatile_bytes = durable_bytes = 0
        for delivery in deliveries:
            payload = delivery.payload
            size = len(payload)
            template = producer.template
            if template is not None and template.fits(payload) and not delivery.message_format:
                durable, priority, body_at, message_id = template.durable, template.priority, template.body_at, b""
            else:
                plain = self._read_plain(producer, delivery)
                if plain is None:
                    self._receive_one(producer, delivery)
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
        session = producer.link.session
        if offered:
            self._count(queue, len(offered), volatile_bytes)
            scribe.count_volatile(queue, _POSTED, len(offered))
            self._offer(queue, offered)
            session.settle_all(answered, ACCEPTED)
        if pending:
            self._count(queue, len(pending), durable_bytes)
            self._life.live_bytes += durable_bytes
            queue.pending += len(pending)
            self._mark(queue, pending[-1].sequence)
            scribe.when_synced(self._synced, queue, pending, session, waiting)
        if refused:
            self._refuse(producer, refused, _full(queue, disk=scribe.journal.full))
        count = len(offered) + len(pending)
        if count:
            producer.volatile = len(offered) > len(pending)
            producer.average_bytes += ((volatile_bytes + durable_bytes) // count - producer.average_bytes) // 4

    @staticmethod
    def _read_plain(producer: Producer, delivery: Delivery) -> tuple[bool, int, bytes, int] | None:
        """Durable, priority, message id, and where the header ends, of a message that says nothing else that matters;
        None for any other, and for one that makes no sense."""
        if delivery.message_format:
            return None
        try:
            sections = scan_sections(delivery.payload)
            plain = read_plain(sections)
            if plain is None:
                return None
            producer.template = learn_template(sections)
        except DecodeError:
            return None
        return *plain, sections.bounds[1]

    def _receive_one(self, producer: Producer, delivery: Delivery) -> None:
        """One delivery, whatever it is."""
        payload = delivery.payload
        now_ms = self._scribe.time_us // 1000
        try:
            if delivery.message_format:
                raise Refused(
                    f"message-format {delivery.message_format}: only 0 is known here (2.7.5)",
                    condition=AmqpCondition.NOT_IMPLEMENTED,
                )
            posting = read_posting(payload, now_ms)
            queue = producer.queue if producer.queue is not None else self._route(producer, posting)
            room = Room(queue, self._memory)
            bytes_left = room.durable if posting.durable else room.volatile
            if room.messages < 1 or bytes_left < len(payload) + OVERHEAD_BYTES:
                raise _full(queue)
            message = self.enter(
                queue,
                payload,
                posting,
                actor=self._scribe.actor_number(producer),
                expires_at_ms=_expiry(queue, posting, now_ms),
                due_at_ms=posting.due_at_ms,
                address=queue.address,
            )
        except StoreFull:
            self._refuse(producer, [delivery], _full(producer.queue, disk=self._scribe.journal.full))
        except (DecodeError, Refused) as exc:
            self._refuse(producer, [delivery], exc)
        else:
            producer.average_bytes += (len(payload) - producer.average_bytes) // 4
            producer.volatile = not posting.durable
            if posting.durable:
                self._mark(queue, message.sequence)
                self._scribe.when_synced(self._answer, delivery)
            else:
                delivery.link.session.settle_all([delivery], ACCEPTED)

    def _route(self, producer: Producer, posting: Posting) -> Queue:
        """Where a message on the anonymous terminus goes."""
        if posting.to is None:
            raise Refused("the message says no 'to', and neither does the link", condition=AmqpCondition.NOT_FOUND)
        return self._find_queue(producer.peer, posting.to)

    def _refuse(self, producer: Producer, deliveries: list[Delivery], why: RemoteProtocolError) -> None:
        error = Error(why.condition, why.description)
        unanswered = [delivery for delivery in deliveries if not delivery.settled]
        producer.link.session.settle_all(unanswered, Rejected(error))
        if len(unanswered) < len(deliveries):
            # Nobody waits for these answers: the link is the only one to tell.
            producer.link.detach(error)

    # -- from anywhere ------------------------------------------------------------------------------------------------

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
    ) -> Message:
        """Put a message into a queue. Raises StoreFull or DecodeError, with nothing changed.

        `essential`: it is the consequence of an outcome, and written although the disk is full.
        """
        scribe = self._scribe
        time_us = scribe.time_us
        sequence = scribe.sequences.take(time_us)
        event = NodeEvent.POST_DURABLE if posting.durable else NodeEvent.POST_VOLATILE
        if due_at_ms and not posting.durable:
            event = NodeEvent.POST_VOLATILE_LATER
        message = Message(
            sequence,
            queue,
            step(NodeState.NEW, event).next,
            make_body(posting.sections, sequence, time_us // 1000),
            0,
            DURABLE if posting.durable else 0,
            posting.priority,
            time_us,
            expires_at_ms,
            0,
        )
        meta = encode_posting_meta(
            address.encode(),
            posting.message_id,
            expires_at_ms=expires_at_ms,
            due_at_ms=due_at_ms,
            priority=posting.priority,
            extras=posting.extras,
        )
        scribe.posted(message, payload, meta, kind=kind, actor=actor, origin=origin, essential=essential)
        self._life.enter(message)
        if due_at_ms:
            message.need_extra().due_at_ms = due_at_ms
        if posting.durable:
            queue.pending += 1
            scribe.when_synced(self._available, message)
        elif due_at_ms:
            self._schedule(message)
        else:
            self._offer(queue, [message])
        return message

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

    def _available(self, message: Message) -> None:
        """One durable posting is on the disk."""
        if message.state is not _PENDING:
            return
        later = message.due_at_ms * 1000 > self._scribe.time_us
        message.state = step(_PENDING, NodeEvent.SYNCED_LATER if later else NodeEvent.SYNCED).next
        message.queue.pending -= 1
        if later:
            self._schedule(message)
        else:
            self._offer(message.queue, [message])

    # -- its own ------------------------------------------------------------------------------------------------------

    def _count(self, queue: Queue, messages: int, payload_bytes: int) -> None:
        """A group without times has entered."""
        cost = payload_bytes + messages * OVERHEAD_BYTES
        queue.counts[_POSTED] += messages
        queue.bytes += payload_bytes
        queue.memory_bytes += cost
        self._memory.bytes += cost

    def _schedule(self, message: Message) -> None:
        message.queue.scheduled[message.sequence] = message
        self._life.timers.add(message.due_at_ms, message)

    def _offer(self, queue: Queue, messages: list[Message]) -> None:
        if not messages:
            return
        queue.backlog.extend(messages)
        for browser in queue.browsers:
            for message in messages:
                browser.offered(message)
        self._life.dirty[queue] = None
        memory = self._memory
        if memory.crowded(queue):
            going_out = sum(consumer.room for consumer in queue.consumers if consumer.open_to_more)
            if queue.backlog.count > going_out:  # they will wait here: not in memory, then
                for message in messages:
                    if message.flags & DURABLE:
                        memory.drop(message)

    def _mark(self, queue: Queue, sequence: int) -> None:
        """A consumer that waits shall not wait for a second sync, only to learn that it may have the message."""
        if queue.consumers and queue.backlog.count <= _SHALLOW:
            self._scribe.mark_ahead(queue, sequence)


def _full(queue: Queue | None, *, disk: bool = False) -> Refused:
    what = "the broker's disk is full" if disk or queue is None else f"{queue.name:.200} has reached its limit"
    return Refused(f"{what}: try again later", condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED)


def _expiry(queue: Queue, posting: Posting, now_ms: int) -> int:
    """When the message expires: by its header, its properties and the policy, the earliest of them. 0: never."""
    policy = queue.policy
    ttl_ms = posting.ttl_ms
    if ttl_ms is None and posting.absolute_expiry_ms is None and policy.default_ttl_ms:
        ttl_ms = policy.default_ttl_ms
    expiries = [] if ttl_ms is None else [now_ms + ttl_ms]
    if posting.absolute_expiry_ms:
        expiries.append(max(1, posting.absolute_expiry_ms))
    if policy.ttl_ms_max:
        expiries.append(now_ms + policy.ttl_ms_max)
    return min(expiries, default=0)


__all__ = ["Poster", "Refused", "Room"]
