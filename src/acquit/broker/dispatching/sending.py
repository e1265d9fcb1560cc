"""Messages that dispatch has chosen leave: acquired and sent, or consumed and sent once that is recorded.

What a pre-settled link takes is gone (at most once): of a durable message the journal must know that durably before the
first byte leaves. So it is recorded as consumed first, and goes out, from the consumer's outbox, after the sync. What a
resumable link takes goes the same way, recorded as acquired: its peer may act on the message and be lost, and only a
broker that knows who has it can resume the delivery after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from acquit.broker.dispatching import tags
from acquit.broker.dispatching.consumers import Outgoing
from acquit.broker.intake.shaping import transfer_header
from acquit.broker.links.terminus import delivery_tag
from acquit.broker.message import DISPATCHED, DURABLE, TOLD_DURABLE, Message
from acquit.broker.message_run import MessageGroup
from acquit.broker.nodes.node import whole
from acquit.broker.queue import NodeEvent, NodeState, step
from acquit.protocol.sender import Heads
from acquit.protocol.serial import MASK as ID_MASK

if TYPE_CHECKING:
    from acquit.broker.dispatching.consumers import Consumer
    from acquit.broker.life import Life
    from acquit.broker.links.peers import Peer
    from acquit.broker.message_run import MessageRun
    from acquit.broker.nodes.node import Queue
    from acquit.broker.outcomes.locks import LockKeeper
    from acquit.protocol.delivery import Delivery
    from acquit.protocol.rope import Rope

_ACQUIRE: Final = step(NodeState.AVAILABLE, NodeEvent.ACQUIRE)
_CONSUME: Final = step(NodeState.AVAILABLE, NodeEvent.CONSUME)
_WHEN_ACQUIRED: Final = _ACQUIRE.next
_WHEN_CONSUMED: Final = _CONSUME.next
_ACQUIRED: Final = int(_ACQUIRE.record)
_CONSUMED: Final = int(_CONSUME.record)
_TAG: Final = tags.encode
_TAG_STEP: Final = tags.STEP
_TAG_MASK: Final = tags.MASK
_TOLD_FLAGS: Final = DURABLE | DISPATCHED | TOLD_DURABLE
_TAG_BYTES: Final = 4
_GROUP: Final = 2
"""Messages that are sent as a group, at the least; one is, where others were: they would be laid out before it."""
ADDED_BYTES_MAX: Final = 128
"""Octets of our header and our annotations, at most."""
_HEADERS_MAX: Final = 4_096
FRAME_HEAD_MAX: Final = 128
"""Octets of a transfer besides the body, at most: the frame's head, the performative, and the header we write."""


class Sending:
    """Sends messages to links."""

    def __init__(self, life: Life, locks: LockKeeper) -> None:
        self._life = life
        self._locks = locks
        self._scribe = life.scribe
        self._memory = life.memory
        self._headers: dict[int, bytes] = {}
        self.turn = 0
        """Turns of dispatch so far: what is not written is measured once in each, for those peers that come up."""
        self.stamp = 0
        """Grows with each message that is placed: who was given something longest ago has the lowest."""

    def measure(self, peer: Peer) -> None:
        """Learn what is not written yet, unless it is known."""
        if peer.measured != self.turn:
            peer.measured = self.turn
            peer.measure()

    def payload(self, message: Message) -> bytes | Rope:
        """Return what is transferred: a header of this moment, and the rest."""
        body = message.body
        assert body is not None
        if not message.expires_at_ms:
            # All that the header says, in one number: few combinations come up.
            key = message.attempt << 16 | message.priority << 8 | message.flags & _TOLD_FLAGS
            header = self._headers.get(key)
            if header is None:
                if len(self._headers) >= _HEADERS_MAX:
                    self._headers.clear()
                header = self._headers[key] = current_header(message, None)
            return header + body
        ttl_ms = max(0, message.expires_at_ms - self._scribe.time_us // 1000)
        return current_header(message, ttl_ms) + body

    def _payloads(self, messages: Sequence[Message], bytes_max: int) -> list[bytes | Rope]:
        """Return what is transferred of each, up to the first with a body of more than `bytes_max`: after one of
        several frames none can be sent, and most are copies. As `payload`, with what most of them need of it here."""
        headers, payload_of = self._headers, self.payload
        payloads: list[bytes | Rope] = []
        for message in messages:
            body = message.body
            header = headers.get(message.attempt << 16 | message.priority << 8 | message.flags & _TOLD_FLAGS)
            if header is None or body is None or message.expires_at_ms:
                payloads.append(payload_of(message))
            else:
                payloads.append(header + body)
            if body is not None and len(body) > bytes_max:
                break
        return payloads

    def hand(self, queue: Queue, consumer: Consumer, messages: list[Message]) -> None:
        """Give a consumer these, out of the backlog already, for which it has room, and record that. What its session
        has no room for after all is put back: nothing that comes after it may have been handed to anybody yet."""
        sent = self.give(queue, consumer, messages)
        if sent < len(messages):
            queue.backlog.put_back(messages[sent:])
            del messages[sent:]
        self.record(queue, consumer, messages)

    def give(self, queue: Queue, consumer: Consumer, messages: Sequence[Message]) -> int:
        """ACQUIRE and send, as many of these as its link and session take, or reserve, if its link is pre-settled.
        Return how many; `record` is to follow in the same turn."""
        if consumer.presettled:
            consumer.reserved += len(messages)
            return len(messages)
        if consumer.resumable is not None:
            return self._acquire_unsent(queue, consumer, messages)
        # What several links of a session were promised is the session's: the first ones may have used it up.
        room = consumer.link.room
        if len(messages) > room:
            messages = messages[:room]
        sent = len(messages)
        if queue.policy.lock_duration_ms or not self._send_group(consumer, messages):
            sent = self._send_singly(queue, consumer, messages)
            if sent < len(messages):  # one has several frames, and those behind it wait
                messages = messages[:sent]
        again = 0
        for message in messages:
            again += message.flags & DISPATCHED
            message.flags |= DISPATCHED
            message.state = _WHEN_ACQUIRED
            message.holder = consumer
        consumer.held += sent
        queue.acquired += sent
        queue.tally.redelivered += again // DISPATCHED
        return sent

    def _send_singly(self, queue: Queue, consumer: Consumer, messages: Sequence[Message]) -> int:
        """Send these as deliveries of their own; how many, for behind one of several frames nothing is sent."""
        link = consumer.link
        session = link.session
        payloads = self._payloads(messages, session.connection.frame_size_max - FRAME_HEAD_MAX)
        first_id = session.next_delivery_id
        encoded = tags.following(consumer.tag, len(payloads))
        sent = link.send_all(encoded, payloads, messages)
        if sent:
            consumer.tag = tags.number(encoded[sent - 1])
            consumer.peer.unwritten_bytes += sum([len(payload) for payload in payloads[:sent]])
            if queue.policy.lock_duration_ms:
                outgoing = session.outgoing
                self._locks.acquired(queue, [outgoing[first_id + at & ID_MASK] for at in range(sent)])
        return sent

    def _send_group(self, consumer: Consumer, messages: Sequence[Message]) -> bool:
        """Send several together. False, and nothing is sent, where a closer look at one of them is needed."""
        if len(messages) < _GROUP and not consumer.link.session.sent_together:
            return False
        headers = self._headers
        heads: list[bytes] = []
        bodies: list[bytes | Rope] = []
        for message in messages:
            body = message.body
            head = headers.get(message.attempt << 16 | message.priority << 8 | message.flags & _TOLD_FLAGS)
            if head is None or body is None or message.expires_at_ms:
                return False
            heads.append(head)
            bodies.append(body)
        head_bytes, count = len(heads[0]), len(messages)
        sizes = list(map(len, bodies))
        if any(len(head) != head_bytes for head in set(heads)):
            return False
        if not consumer.link.may_send_together(count, _TAG_BYTES, head_bytes + max(sizes)):
            return False
        encoded = tags.following(consumer.tag, count)
        consumer.tag = tags.number(encoded[-1])
        consumer.link.send_together(
            encoded,
            Heads(f"{head_bytes}s", (heads,), head_bytes),
            bodies,  # type: ignore[arg-type]  # a rope is too long to be sent together
            MessageGroup(consumer, messages),
        )
        consumer.peer.unwritten_bytes += count * head_bytes + sum(sizes)
        return True

    @staticmethod
    def may_take_runs(consumer: Consumer) -> bool:
        """Return True if messages may be sent to a consumer together: nothing is done with one of them before."""
        queue = consumer.queue
        return not (consumer.presettled or consumer.resumable is not None or queue.policy.lock_duration_ms)

    def takes_run(self, consumer: Consumer, run: MessageRun, count: int) -> bool:
        """Return True if so many of the next messages, which came together, can be sent to a consumer together."""
        return self.may_take_runs(consumer) and consumer.link.may_send_together(
            count, _TAG_BYTES, run.size_max + ADDED_BYTES_MAX
        )

    def hand_run(self, queue: Queue, consumer: Consumer, run: MessageRun) -> int:
        """`hand` for messages that came together, and can be sent together; how many."""
        count = run.count
        run.holder = consumer
        heads = run.heads()
        encoded = tags.following(consumer.tag, count)
        consumer.tag = tags.number(encoded[-1])
        consumer.link.send_together(encoded, heads, run.rests, run)
        consumer.peer.unwritten_bytes += run.payload_bytes + count * (heads.head_bytes - run.shape.rest_at)
        consumer.held += count
        queue.acquired += count
        time_us = self._scribe.time_us
        queue.tally.in_queue.add((time_us - run.posted_us) / 1e6, count)
        consumer.acquired(run, time_us)
        if run.recorded is None:
            self._scribe.volatile_events(_ACQUIRED, queue, count)
        else:
            self._scribe.run_events(_ACQUIRED, run, self._scribe.actor_number(consumer))
            if self._memory.crowded(queue):
                self._memory.drop_run(run)
        self._life.touch(consumer.link.session.connection)
        return count

    def record(self, queue: Queue, consumer: Consumer, messages: list[Message]) -> None:
        """Record what this consumer was given; if its link is pre-settled, it is sent once that is synced."""
        if messages:
            time_us = self._scribe.time_us
            queue.tally.in_queue.add((time_us - messages[0].posted_us) / 1e6, len(messages))
            if not consumer.presettled:
                consumer.acquired(messages, time_us)
        if consumer.presettled:
            self._consume(queue, consumer, messages)
        elif consumer.resumable is not None:
            self._send_synced(queue, consumer, messages)
        else:
            durable = self._record(_ACQUIRED, queue, consumer, messages)
            if durable and self._memory.crowded(queue):
                for message in durable:
                    self._memory.drop(message)
        self._life.touch(consumer.link.session.connection)

    def _record(self, event: int, queue: Queue, consumer: Consumer, messages: list[Message]) -> list[Message]:
        """Record what happened to these; the durable ones."""
        scribe = self._scribe
        durable = [message for message in messages if message.flags & DURABLE]
        if durable:
            scribe.events(event, queue, durable, scribe.actor_number(consumer))
        if len(durable) < len(messages):
            scribe.volatile_events(event, queue, len(messages) - len(durable))
        return durable

    def _consume(self, queue: Queue, consumer: Consumer, messages: list[Message]) -> None:
        """CONSUME, for each: recorded, and sent once that is synced."""
        outgoing = [Outgoing(self.payload(message)) for message in messages]
        queue.tally.redelivered += sum([message.flags & DISPATCHED for message in messages]) // DISPATCHED
        durable = self._record(_CONSUMED, queue, consumer, messages)
        for message in messages:
            message.state = _WHEN_CONSUMED
            self._life.retire(message)
        self._leave_synced(consumer, outgoing, bool(durable))

    def _acquire_unsent(self, queue: Queue, consumer: Consumer, messages: Sequence[Message]) -> int:
        """ACQUIRE for a resumable link, from which they are sent once that is synced."""
        for message in messages:
            message.state = _WHEN_ACQUIRED
            message.holder = consumer
            consumer.unsent[message] = None
        count = len(messages)
        consumer.reserved += count
        consumer.held += count
        queue.acquired += count
        return count

    def _send_synced(self, queue: Queue, consumer: Consumer, messages: list[Message]) -> None:
        outgoing = [Outgoing(self.payload(message), message, delivery_tag(message)) for message in messages]
        queue.tally.redelivered += sum([message.flags & DISPATCHED for message in messages]) // DISPATCHED
        for message in messages:
            message.flags |= DISPATCHED  # for whoever gets it after this
        durable = self._record(_ACQUIRED, queue, consumer, messages)
        self._leave_synced(consumer, outgoing, bool(durable))
        if durable and self._memory.crowded(queue):
            for message in durable:
                self._memory.drop(message)

    def _leave_synced(self, consumer: Consumer, outgoing: list[Outgoing], durable: bool) -> None:
        consumer.reserved_bytes += sum([len(one.payload) for one in outgoing])
        # What was recorded before and is not synced yet leaves before.
        if durable or consumer.reserved > len(consumer.outbox) + len(outgoing):
            self._scribe.hand_out_when_synced(self._recorded, consumer, outgoing)
        else:
            self._recorded(consumer, outgoing)

    def _recorded(self, consumer: Consumer, outgoing: list[Outgoing]) -> None:
        """The journal knows: they may leave now."""
        if consumer.link.context is not consumer:
            return  # its link has ended meanwhile: what was consumed is gone, what was acquired is suspended
        consumer.outbox.extend(outgoing)
        self.empty_outbox(consumer)
        consumer.stand_in_line()
        self._life.wake(consumer.queue)

    def send_acquired(
        self, consumer: Consumer, message: Message, tag: bytes, payload: bytes | Rope, *, resume: bool
    ) -> Delivery:
        """Send a message that a resumable link holds, or resume its delivery. Its lock begins now."""
        delivery = consumer.link.send(tag, payload, resume=resume, context=message)
        if message.queue.policy.lock_duration_ms:
            self._locks.acquired(whole(message.queue), (delivery,))
        return delivery

    def empty_outbox(self, consumer: Consumer) -> None:
        """Send what is recorded already, as far as the consumer's credit reaches."""
        link = consumer.link
        while consumer.outbox and link.sendable:
            payload, message, tag = consumer.outbox.popleft()
            consumer.reserved -= 1
            consumer.reserved_bytes -= len(payload)
            if message is None:
                consumer.tag = consumer.tag + _TAG_STEP & _TAG_MASK
                link.send(_TAG(consumer.tag), payload, settled=True)
            else:
                del consumer.unsent[message]
                self.send_acquired(consumer, message, tag, payload, resume=False)
            consumer.peer.unwritten_bytes += len(payload)
        if consumer.outbox:
            consumer.queue.emptying[consumer] = None
        else:
            consumer.queue.emptying.pop(consumer, None)
        self._life.touch(link.session.connection)


def current_header(message: Message, ttl_ms: int | None) -> bytes:
    """Return the header of a message as it is transferred now."""
    flags = message.flags
    return transfer_header(message.told_durable, message.priority, not flags & DISPATCHED, message.attempt, ttl_ms)


__all__ = ["ADDED_BYTES_MAX", "FRAME_HEAD_MAX", "Sending", "current_header"]
