"""The broker's state from what the journal said: queues, the messages in them, and what a restart does to them.

Bodies stay on the disk until their turn comes. A message that somebody had acquired when the last run ended comes back
as from a lost connection, which is recorded; volatile messages are gone, and what is known of them is recorded as lost.
Messages that the fold has as rows stay rows (`broker.parking`); each other is replaced by the broker's own as it is
taken over.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import chain, islice
from operator import lt
from typing import TYPE_CHECKING

from acquit.broker.message import COPY, DISPATCHED, DURABLE, Former, Message
from acquit.broker.nodes.node import Queue
from acquit.broker.nodes.subscription import Subscription
from acquit.broker.parking import KEPT_FLAGS
from acquit.broker.queue import NodeState
from acquit.ledger import records
from acquit.ledger.events import ENTERING, RETIRING, SUSPENDED, EventKind
from acquit.ledger.live import LiveMessage, Notes
from acquit.ledger.records import Counters, QueueFlag
from acquit.store.interface import Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acquit.broker.life import Life
    from acquit.broker.links.termini import Termini
    from acquit.broker.nodes.pausing import Pauses
    from acquit.broker.nodes.queues import Queues
    from acquit.broker.nodes.removal import Removal
    from acquit.broker.nodes.subscriptions import Subscriptions
    from acquit.broker.nodes.topics import Topic, Topics
    from acquit.broker.outcomes.settling import Settling
    from acquit.ledger.fold import Fold
    from acquit.ledger.live_messages import LiveMessages


def recover(
    fold: Fold,
    queues: Queues,
    topics: Topics,
    subscriptions: Subscriptions,
    removal: Removal,
    life: Life,
    settling: Settling,
    termini: Termini,
    pauses: Pauses,
) -> int:
    """Take over what the fold holds, which is emptied. How many messages there are.

    Raises StoreFull where the disk has no room to record what the restart means.
    """
    entries = [entry for _, entry in sorted(fold.table.queues.items())]
    nodes: dict[int, Queue | Topic] = {
        entry.number: topics.restore(entry) for entry in entries if entry.flags & QueueFlag.TOPIC
    }
    by_number = {entry.number: _restore_queue(entry, queues) for entry in entries if entry.number not in nodes}
    nodes |= by_number
    _restore_totals(fold, nodes, life)
    returned = _take_over(fold, by_number, life)
    sources = termini.restore()
    former: dict[int, Former] = {}
    for message, actor in returned:
        if message.state is NodeState.SUSPENDED:
            life.suspended(message)
        else:
            message.queue.acquired += 1
        terminus = sources.get(actor)
        if terminus is not None and terminus.node == message.queue.name:
            termini.recovered(terminus, message)
        else:
            message.holder = former.setdefault(actor, Former(actor))
            settling.restarted(message, actor)
    for entry in entries:
        _go_on(entry, nodes[entry.number], topics, subscriptions, removal)
    pauses.restore()
    for node in nodes.values():
        removal.let_go(node)  # its links ended with the last run, and nothing else may tell of that
    return len(life.objects) + len(life.parking.rows)


def _restore_queue(entry: records.Queue, queues: Queues) -> Queue:
    multicast = entry.flags & QueueFlag.DURABLE and entry.flags & QueueFlag.MULTICAST
    return queues.restore(
        entry,
        Subscription.decode(entry.properties) if multicast else None,
        durable=bool(entry.flags & QueueFlag.DURABLE),
    )


def _go_on(
    entry: records.Queue, node: Queue | Topic, topics: Topics, subscriptions: Subscriptions, removal: Removal
) -> None:
    """Do what a restart means for a node: it lives on, ends with the run that is over, or is still being deleted."""
    over = not entry.flags & QueueFlag.DURABLE or bool(entry.flags & QueueFlag.ENDING)
    if isinstance(node, Queue):
        if over:
            removal.remove(node, 0)
        elif node.subscription is not None:
            subscriptions.restore(node)
    elif over:
        topics.delete(node, 0)


def _restore_totals(fold: Fold, by_number: Mapping[int, Queue | Topic], life: Life) -> None:
    lost = []
    for number, totals in fold.totals().items():
        queue = by_number.get(number)
        if queue is None:
            continue
        for counts in (totals.counts, totals.volatile):
            for kind, count in counts.items():
                queue.counts[kind] += count
        entered = sum(count for kind, count in totals.volatile.items() if kind in ENTERING)
        gone = entered - sum(count for kind, count in totals.volatile.items() if kind in RETIRING)
        if gone > 0:
            lost.append((number, int(EventKind.LOST_VOLATILE), gone))
            queue.counts[EventKind.LOST_VOLATILE] += gone
    if lost:
        life.scribe.recorder.append(Counters(life.scribe.time_us, tuple(lost)))


def _take_over(fold: Fold, by_number: dict[int, Queue], life: Life) -> list[tuple[Message, int]]:
    """Make the broker's messages. Those that were acquired are returned, with who had them."""
    returned: list[tuple[Message, int]] = []
    scheduled: list[Message] = []
    waiting: dict[int, list[Message]] = {number: [] for number in by_number}
    certain = {number: fold.table.certain_from(number) for number in by_number}
    now_ms = life.scribe.time_us // 1000
    live, entered = life.objects, life.occupancy.entered
    enter = life.memory.enter
    live_bytes = 0
    places = _take_over_rows(fold.messages, by_number, certain, life)
    kept_messages = fold.messages.objects
    while kept_messages:
        sequence, kept = kept_messages.popitem()
        number = kept.queue
        queue = by_number[number]
        message = _message(kept, queue, now_ms)
        if sequence < certain[number]:
            message.flags |= DISPATCHED
        live[sequence] = message
        entered(message.position)
        size = message.fingerprint >> 32
        if not message.flags & COPY:
            live_bytes += size
        queue.bytes += size
        enter(message)
        if message.expires_at_ms:
            life.timers.add(message.expires_at_ms, message)
        if kept.notes is not None:
            for terminus in kept.notes.excluded:
                life.exclude(message, terminus)
        if kept.actor:
            returned.append((message, kept.actor))
        elif message.state is NodeState.SCHEDULED:
            scheduled.append(message)
        else:
            waiting[number].append(message)
    life.live_bytes += live_bytes
    for message in scheduled:
        if not message.came_back:
            message.need_extra().message_id = fold.delayed_ids.get(message.sequence, b"")
        life.schedule(message, message.due_at_ms)
        _shorten(message, now_ms, life)
    for number, messages in waiting.items():
        # The fold gives them in no order that could be relied on; sorting what is nearly sorted costs little.
        messages.sort(key=_by_sequence)
        alone = [message for message in messages if (number, message.priority) not in places]
        if alone:
            by_number[number].backlog.extend(alone)
    for (number, priority), parked in places.items():
        among = [message.sequence for message in waiting[number] if message.priority == priority]
        # A lot is in order, those of a queue are not; mostly all are, and there may be millions.
        if among or not all(map(lt, parked, islice(parked, 1, None))):
            parked = array("Q", sorted(chain(parked, among)))
        by_number[number].backlog.restore(priority, parked)
    returned.sort(key=lambda pair: pair[0].sequence)
    return returned


def _take_over_rows(
    messages: LiveMessages, by_number: dict[int, Queue], certain: dict[int, int], life: Life
) -> dict[tuple[int, int], array[int]]:
    """Take over the messages of which there is nothing special to say: they are parked, as they are. Return their
    sequences, by number of the queue and priority. Those that were acquired become objects of the fold."""
    rows = messages.rows
    places: dict[tuple[int, int], array[int]] = {}
    acquired: list[int] = []
    maybe: list[int] = []
    for lot in rows.lots():
        if lot.actor:
            acquired += lot.sequences
            continue
        queue, size = by_number[lot.queue], lot.size_bytes
        queue.bytes += size
        if not lot.flags & COPY:
            life.live_bytes += size
        places.setdefault((lot.queue, lot.priority), array("Q")).extend(array("Q", lot.sequences))
        maybe += lot.sequences[: bisect_left(lot.sequences, certain[lot.queue])]
        life.occupancy.all_entered(lot.positions, life.scribe.journal.segments)
    for sequence in acquired:
        messages.get(sequence)  # an object from now on
    for sequence in maybe:
        rows.mark(sequence, DISPATCHED)
    life.parking.take_over(rows, [(by_number[number], len(parked)) for (number, _), parked in places.items()])
    return places


def _shorten(message: Message, now_ms: int, life: Life) -> None:
    """See to it that a message waits no longer for another attempt than its address lets any wait. The clock may have
    been set back while the broker was down, and it would wait until the time that was."""
    extra = message.extra
    if extra is None or not message.came_back:
        return
    policy = message.queue.policy
    longest_ms = max(policy.redelivery_delay(message.failures, 1.0), policy.release_delay_ms_max)
    beyond_ms = extra.due_at_ms - now_ms - longest_ms
    if beyond_ms > 0:
        extra.due_shift_ms = -beyond_ms
        life.timers.add(extra.due_at_ms - beyond_ms, message)


def _by_sequence(message: Message) -> int:
    return message.sequence


def _message(kept: LiveMessage, queue: Queue, now_ms: int) -> Message:
    if kept.actor:
        state = NodeState.SUSPENDED if kept.flags & SUSPENDED else NodeState.ACQUIRED
    else:
        state = NodeState.SCHEDULED if kept.due_at_ms > now_ms else NodeState.AVAILABLE
    message = Message(
        kept.sequence,
        queue,
        state,
        None,
        kept.fingerprint,
        DURABLE | kept.flags & KEPT_FLAGS,
        kept.priority,
        kept.posted_us,
        kept.expires_at_ms,
        kept.position,
    )
    message.attempt = kept.attempt
    if kept.due_at_ms or kept.notes is not None:
        extra = message.need_extra()
        extra.due_at_ms = kept.due_at_ms
        if kept.notes is not None:
            extra.attempts = kept.notes.attempts
            extra.annotations = kept.notes.annotations
            extra.returns = kept.notes.returns
            extra.last_value = kept.notes.last_value
            extra.left_counted = kept.notes.left_counted
            extra.left_uncounted = kept.notes.left_uncounted
    return message


def to_live(message: Message) -> LiveMessage:
    """The message as the ledger's checkpoint copies it forward."""
    extra = message.extra
    notes = None
    if extra is not None:
        said = Notes(
            extra.attempts,
            tuple(sorted(extra.excluded)),
            extra.annotations,
            extra.returns,
            extra.last_value,
            extra.left_counted,
            extra.left_uncounted,
        )
        notes = said if any(said) else None
    return LiveMessage(
        message.sequence,
        message.queue.number,
        Position(message.position),
        message.fingerprint,
        DURABLE | message.flags & KEPT_FLAGS | (SUSPENDED if message.state is NodeState.SUSPENDED else 0),
        message.attempt,
        message.posted_us,
        message.expires_at_ms,
        message.due_at_ms,
        message.priority,
        0 if message.holder is None else message.holder.number,
        0,
        notes,
    )


__all__ = ["recover", "to_live"]
