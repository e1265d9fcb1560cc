"""Messages go out: what is available is handed to the links that have credit.

One pass for each wake-up, over the queues where something changed. The consumers of a queue that can be given something
take turns, each time for its share of what is there, and the turn is remembered: a slow one holds nobody up, and one
with a great credit does not starve the others. A consumer whose peer does not read is passed over, so that what it is
owed stays in the queue.

What a pre-settled link takes is gone (at most once): of a durable message the journal must know that durably before the
first byte leaves. So it is recorded as consumed first, and goes out, from the consumer's outbox, after the sync.

A durable message is handed out only where a synced mark says that it may have been (`ledger.sequences.DispatchMarks`).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from struct import Struct
from typing import TYPE_CHECKING, Final

from acquit.broker.endpoints import held_back
from acquit.broker.memory import READ_AHEAD_MESSAGES, tell_returns
from acquit.broker.message import DISPATCHED, DURABLE, TOLD_DURABLE, Message
from acquit.broker.queue import NodeState
from acquit.broker.shaping import transfer_header
from acquit.ledger.events import EventKind

if TYPE_CHECKING:
    from acquit.broker.browsing import Browser
    from acquit.broker.endpoints import Consumer, Peer
    from acquit.broker.expiry import Expiry
    from acquit.broker.life import Life
    from acquit.broker.locks import LockKeeper
    from acquit.broker.node import Queue

_ACQUIRED_STATE = NodeState.ACQUIRED
_ARCHIVED = NodeState.ARCHIVED
_ACQUIRED: Final = int(EventKind.ACQUIRED)
_CONSUMED: Final = int(EventKind.CONSUMED)
_TAG: Final = Struct(">I").pack
_TAG_MASK: Final = 0xFFFF_FFFF
_TOLD_FLAGS: Final = DURABLE | DISPATCHED | TOLD_DURABLE
_HEADERS_MAX: Final = 4_096
SHARE_MAX: Final = 64
"""Messages that a consumer gets in one turn."""


class Dispatch:
    """Hands messages out."""

    def __init__(self, life: Life, expiry: Expiry, locks: LockKeeper) -> None:
        self._life = life
        self._scribe = life.scribe
        self._memory = life.memory
        self._expiry = expiry
        self._locks = locks
        self._headers: dict[int, bytes] = {}
        self._sorted_out: dict[Queue, None] = {}
        """Queues where something was set aside in this turn: there may be more behind it."""

    def run(self) -> bool:
        """Serve every queue where something changed. True where more can be handed out in another turn, once what was
        produced for some peer is written."""
        life = self._life
        held: dict[Queue, None] = {}
        measured: set[Peer] = set()
        while life.dirty:
            dirty, life.dirty = life.dirty, {}
            for queue in dirty:
                for link in (*queue.consumers, *queue.browsers):
                    if link.peer not in measured:
                        measured.add(link.peer)
                        link.peer.measure()
                self._serve(queue)
                more = self._finish(queue)
                for browser in queue.browsers:
                    more = self._show(browser) or more
                if more:
                    held[queue] = None
        held.update(self._sorted_out)
        self._sorted_out.clear()
        life.dirty.update(held)
        return bool(held)

    def _serve(self, queue: Queue) -> None:
        while _has_work(queue):
            ready = [consumer for consumer in queue.consumers if consumer.open_to_more]
            if not ready or self._scribe.exhausted:
                return
            share = min(SHARE_MAX, max(1, -(-queue.available // len(ready))))
            turn = queue.rotation % len(ready)
            progress = False
            for consumer in ready[turn:] + ready[:turn]:
                if self._give(queue, consumer, share):
                    progress = True
                    queue.rotation += 1
                if not _has_work(queue):
                    break
            if not progress:
                return

    def _finish(self, queue: Queue) -> bool:
        """Tell consumers what is left, give back credit that drains. True if somebody could be given more later."""
        available = queue.available
        waiting = queue.backlog.count > 0 or queue.reading
        held = False
        for consumer in queue.consumers:
            link = consumer.link
            link.available = available
            owed = waiting or (bool(queue.aside) and consumer.looks_aside)
            if link.drain and link.credit and not consumer.reserved:
                full = 0 < queue.policy.prefetch_max <= consumer.held
                if not owed or full or self._scribe.exhausted:
                    link.drained()
                    self._life.touch(link.session.connection)
            if consumer.outbox:
                self.empty_outbox(consumer)
            if (consumer.outbox or (owed and not queue.held_up)) and consumer.held_back:
                held = True
        for browser in queue.browsers:
            browser.link.available = available
        return held

    def _give(self, queue: Queue, consumer: Consumer, share: int) -> int:
        """Hand the next messages to one consumer; how many."""
        limit = min(share, consumer.room)
        messages = self._take_aside(queue, consumer, limit) if queue.aside else []
        if len(messages) < limit and not queue.held_up:
            taken = queue.backlog.take(limit - len(messages))
            if queue.delayed:
                taken = _before_barrier(queue, taken)
            messages += self._usable(queue, consumer, taken)
        if not messages:
            return 0
        if consumer.presettled:
            self._consume(queue, consumer, messages)
        else:
            self._acquire(queue, consumer, messages)
        self._life.touch(consumer.link.session.connection)
        return len(messages)

    # -- which messages -----------------------------------------------------------------------------------------------

    def _usable(self, queue: Queue, consumer: Consumer, taken: list[Message]) -> list[Message]:
        """The first of `taken` that this consumer may have now. The rest goes back, or aside.

        Most have nothing about them that would be in the way: here they are only looked at for that.
        """
        last_durable = 0
        body_bytes_max = consumer.body_bytes_max
        for message in taken:
            body = message.body
            if body is None or message.extra is not None or message.expires_at_ms or len(body) > body_bytes_max:
                return self._usable_with_care(queue, consumer, taken)
            if message.flags & DURABLE and message.sequence > last_durable:
                last_durable = message.sequence
        if last_durable and not self._scribe.mark_ahead(queue, last_durable):
            return self._usable_with_care(queue, consumer, taken)
        return taken

    def _usable_with_care(self, queue: Queue, consumer: Consumer, taken: list[Message]) -> list[Message]:
        """The same, message by message."""
        usable: list[Message] = []
        for index, message in enumerate(taken):
            if self._must_wait(queue, message):
                queue.backlog.put_back(taken[index:])
                self._look_to(queue, message)
                break
            if consumer.may_have(message):
                if message.extra is not None and message.extra.returns:
                    tell_returns(message)
                usable.append(message)
            else:
                self._set_aside(queue, message)
        return usable

    def _set_aside(self, queue: Queue, message: Message) -> None:
        assert message.body is not None
        queue.aside_changes += 1
        extra = message.need_extra()
        extra.aside_number = queue.aside_changes
        extra.aside_bytes = len(message.body)
        queue.aside[message.sequence] = message
        if message.flags & DURABLE and self._memory.crowded(queue):
            self._memory.drop(message)
        self._sorted_out[queue] = None

    def _must_wait(self, queue: Queue, message: Message) -> bool:
        if message.expires_at_ms and message.expires_at_ms * 1000 <= self._scribe.time_us:
            return True
        if message.body is None:
            return True
        return bool(message.flags & DURABLE) and not self._scribe.mark_ahead(queue, message.sequence)

    def _look_to(self, queue: Queue, message: Message) -> None:
        """The message in front cannot go out as it is: see that this changes."""
        if message.expires_at_ms and message.expires_at_ms * 1000 <= self._scribe.time_us:
            self._expiry.expire(message)
            if message.state is NodeState.AVAILABLE:
                queue.reading = message.body is None
            else:
                self._life.dirty[queue] = None
        elif message.body is None:
            self._memory.read_ahead(queue, queue.backlog.next_messages(READ_AHEAD_MESSAGES))
        else:
            self._scribe.when_synced(self._life.wake, queue)

    def _take_aside(self, queue: Queue, consumer: Consumer, limit: int) -> list[Message]:
        """Messages that others could not have, and this one can."""
        ahead, aside = consumer.aside_ahead, queue.aside
        if consumer.aside_changes != queue.aside_changes:
            # Only what is new: a consumer looks at each message once, however many are set aside one after the other.
            for message in reversed(aside.values()):
                extra = message.extra
                if extra is None or extra.aside_number <= consumer.aside_changes:
                    break
                if consumer.may_have(message):
                    heappush(ahead, (message.sequence, message))
            consumer.aside_changes = queue.aside_changes
        taken: list[Message] = []
        while ahead and len(taken) < limit:
            message = ahead[0][1]
            if aside.get(message.sequence) is message:
                if self._must_wait(queue, message):
                    self._look_to_aside(queue, message, ahead)
                    break
                del aside[message.sequence]
                if message.extra is not None and message.extra.returns:
                    tell_returns(message)
                taken.append(message)
            heappop(ahead)
        return taken

    def _look_to_aside(self, queue: Queue, message: Message, ahead: list[tuple[int, Message]]) -> None:
        """The message, the first of those ahead, cannot go out as it is: see that this changes."""
        if message.body is not None:
            self._look_to(queue, message)
            return
        first = [heappop(ahead) for _ in range(min(len(ahead), SHARE_MAX))]
        self._memory.read_ahead(queue, [one for _, one in first if one.sequence in queue.aside])
        for entry in first:
            heappush(ahead, entry)

    # -- to consumers -------------------------------------------------------------------------------------------------

    def _payload(self, message: Message) -> bytes:
        """What is transferred: a header of this moment, and the rest."""
        body = message.body
        assert body is not None
        if not message.expires_at_ms:
            # All that the header says, in one number: few combinations come up.
            key = message.attempt << 16 | message.priority << 8 | message.flags & _TOLD_FLAGS
            header = self._headers.get(key)
            if header is None:
                if len(self._headers) >= _HEADERS_MAX:
                    self._headers.clear()
                header = self._headers[key] = self._header(message, None)
            return header + body
        ttl_ms = max(0, message.expires_at_ms - self._scribe.time_us // 1000)
        return self._header(message, ttl_ms) + body

    @staticmethod
    def _header(message: Message, ttl_ms: int | None) -> bytes:
        flags = message.flags
        return transfer_header(message.told_durable, message.priority, not flags & DISPATCHED, message.attempt, ttl_ms)

    def _acquire(self, queue: Queue, consumer: Consumer, messages: list[Message]) -> None:
        """ACQUIRE, for each: recorded, and sent."""
        scribe = self._scribe
        link, payload_of = consumer.link, self._payload
        send, tag = link.send, consumer.tag
        if queue.policy.lock_duration_ms:
            send = self._locks.noting(queue, send)
        durable = []
        produced = 0
        for at, message in enumerate(messages):
            if link.half_written is not None:  # one larger than a frame is on its way
                queue.backlog.put_back(messages[at:])
                del messages[at:]
                break
            tag = tag + 1 & _TAG_MASK
            payload = payload_of(message)
            send(_TAG(tag), payload, context=message)
            produced += len(payload)
            flags = message.flags
            if flags & DURABLE:
                durable.append(message)
            message.flags = flags | DISPATCHED
            message.state = _ACQUIRED_STATE
            message.holder = consumer
        consumer.tag = tag
        consumer.peer.unwritten_bytes += produced
        consumer.held += len(messages)
        queue.acquired += len(messages)
        if durable:
            scribe.events(_ACQUIRED, queue, durable, scribe.actor_number(consumer))
            if self._memory.crowded(queue):
                for message in durable:
                    self._memory.drop(message)
        if len(durable) < len(messages):
            queue.counts[_ACQUIRED] += len(messages) - len(durable)
            scribe.count_volatile(queue, _ACQUIRED, len(messages) - len(durable))

    def _consume(self, queue: Queue, consumer: Consumer, messages: list[Message]) -> None:
        """CONSUME, for each: recorded, and sent once that is synced."""
        scribe, life = self._scribe, self._life
        payloads = [self._payload(message) for message in messages]
        durable = [message for message in messages if message.flags & DURABLE]
        if durable:
            scribe.events(_CONSUMED, queue, durable, scribe.actor_number(consumer))
        if len(durable) < len(messages):
            queue.counts[_CONSUMED] += len(messages) - len(durable)
            scribe.count_volatile(queue, _CONSUMED, len(messages) - len(durable))
        for message in messages:
            message.state = _ARCHIVED
            life.retire(message)
        consumer.reserved += len(messages)
        consumer.reserved_bytes += sum(map(len, payloads))
        if durable:
            scribe.when_synced(self._consumed, consumer, payloads)
        else:
            self._consumed(consumer, payloads)

    def _consumed(self, consumer: Consumer, payloads: list[bytes]) -> None:
        """The journal knows: they may leave now."""
        consumer.outbox.extend(payloads)
        self.empty_outbox(consumer)
        self._life.wake(consumer.queue)

    def empty_outbox(self, consumer: Consumer) -> None:
        """Send what a pre-settled consumer has consumed already, as far as its credit reaches."""
        link = consumer.link
        while consumer.outbox and link.sendable:
            payload = consumer.outbox.popleft()
            consumer.tag = consumer.tag + 1 & _TAG_MASK
            link.send(_TAG(consumer.tag), payload, settled=True)
            consumer.peer.unwritten_bytes += len(payload)
            consumer.reserved -= 1
            consumer.reserved_bytes -= len(payload)
        self._life.touch(link.session.connection)

    # -- to browsers --------------------------------------------------------------------------------------------------

    def _show(self, browser: Browser) -> bool:
        """BROWSE, as far as its credit reaches. True if it could be shown more once what there is was written."""
        link = browser.link
        if not browser.started and link.credit:
            browser.start(held_by(browser.queue.consumers))
        while (message := browser.peek()) is not None and browser.open_to_more:
            if message.body is None:
                self._memory.want(message, self._wake_for)
                return False
            payload = self._payload(message)
            browser.seen()
            if not browser.size_max or len(payload) <= browser.size_max:
                browser.tag = browser.tag + 1 & _TAG_MASK
                link.send(_TAG(browser.tag), payload)
                browser.peer.unwritten_bytes += len(payload)
                self._life.touch(link.session.connection)
            if message.flags & DURABLE and self._memory.crowded(browser.queue):
                self._memory.drop(message)  # it was only looked at: whoever acquires it reads it again
        if message is not None:
            return held_back(browser.peer, link)
        if link.drain and link.credit:
            link.drained()
            self._life.touch(link.session.connection)
        return False

    def _wake_for(self, message: Message) -> None:
        self._life.dirty[message.queue] = None


def _has_work(queue: Queue) -> bool:
    return (queue.backlog.count > 0 or bool(queue.aside)) and not queue.held_up


def _before_barrier(queue: Queue, taken: list[Message]) -> list[Message]:
    """Those that no message which waits for another attempt holds up; the others are put back."""
    barrier = queue.barrier
    if barrier is None:
        return taken
    for at, message in enumerate(taken):
        if (-message.priority, message.sequence) > barrier:
            queue.backlog.put_back(taken[at:])
            return taken[:at]
    return taken


def held_by(consumers: Iterable[Consumer]) -> Iterable[Message]:
    """The messages that these consumers have acquired."""
    for consumer in consumers:
        for delivery in consumer.link.unsettled():
            if isinstance(delivery.context, Message) and delivery.context.holder is consumer:
                yield delivery.context


__all__ = ["SHARE_MAX", "Dispatch", "held_by"]
