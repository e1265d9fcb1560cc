"""Limits of what a queue may hold, and what gives way: size limits, rings, last values.

**Size limits** (`bytes_max`, `messages_max`) count every live message, acquired ones included. What happens there is
the address's `full_policy`:

    page           the limit bounds memory alone: bodies beyond it stay in the journal until their turn comes. Volatile
                   messages have no other place than memory: for them it is as block, at memory_bytes_max
    block          senders get less credit as the limit comes near, none there (`crediting`); what overshoots is refused
    reject         senders get credit as ever; what is beyond the limit is refused, amqp:resource-limit-exceeded
    drop-oldest    every posting is taken, and the oldest messages that are available are displaced, but for the last;
                   where that is not enough, the oldest of that and those that wait for a time. The newest stays

A message that an empty queue would not take is refused for good, by its size: `check_size`.

**A ring** (`ring_size`) keeps the newest messages among those that wait: acquired ones do not count until they come
back. **A last-value queue** keeps, of the messages with one value of `last_value_key`, the newest.

**Displacing** is done once a turn, before anything is handed out, with what has become available by then. So an old
value is there until the new one is on the disk; and whatever the reason for which a message becomes available (it was
posted, its time came, a consumer gave it back, the broker started), a newer value displaces it at once. No
message that is acquired is displaced: who has it decides what becomes of it.

Copies that the broker makes (dead letters, expired messages, moves) are never refused for a limit of their queue: the
outcome they follow from has happened. What is displaced is displaced there as anywhere.

A queue that has none of this is `plain` as far as this module goes, and costs one look at an attribute in a turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from acquit.broker.dispatching.aside import BEYOND, FIRST, rank_of
from acquit.broker.message import OVERHEAD_BYTES
from acquit.broker.nodes.capacity import UNLIMITED
from acquit.broker.nodes.node import whole
from acquit.broker.queue import NodeEvent, NodeState
from acquit.broker.refusal import Refused
from acquit.ledger.records import Extra, encode_extras, encode_id
from acquit.protocol.definitions import AmqpCondition, LinkCondition
from acquit.protocol.sections import APPLICATION_PROPERTIES, BODY, map_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acquit.broker.intake.shaping import Posting
    from acquit.broker.life import Life
    from acquit.broker.memory import Memory
    from acquit.broker.message import Message, QueueBase
    from acquit.broker.nodes.capacity import Values
    from acquit.broker.nodes.node import Queue
    from acquit.broker.options import AddressPolicy

STEP: Final = 5_000
"""Messages that one turn displaces in one queue: a limit that is lowered by a million is two hundred turns."""
VALUE_BYTES_MAX: Final = 1_024
"""The longest value of a last-value key."""
_AVAILABLE = NodeState.AVAILABLE
_ARCHIVED = NodeState.ARCHIVED
_HELD: Final = frozenset({NodeState.ACQUIRED, NodeState.SUSPENDED})


class Pausable(Protocol):
    """A queue or topic, as far as it can be paused for producers."""

    producers_paused: bool

    @property
    def name(self) -> str: ...


class Room:
    """Room that one queue has left in this turn, if nothing is displaced: messages and bytes by its policy, and memory
    for those that are durable and those that are not."""

    __slots__ = ("bytes", "durable", "messages", "volatile")

    def __init__(self, queue: Queue, memory: Memory) -> None:
        policy = queue.policy
        self.messages = self.bytes = UNLIMITED
        if policy.full_policy in REFUSING:
            if policy.messages_max:
                self.messages = policy.messages_max - queue.live - queue.held
            if policy.bytes_max:
                self.bytes = policy.bytes_max - queue.bytes - queue.held_bytes
        self.durable = memory.room(queue, volatile=False)
        self.volatile = memory.room(queue, volatile=True)

    def fits(self, messages: int, payload_bytes: int, *, durable: bool) -> bool:
        """Return True if there is room for so many messages. The policy limits their bytes as they were posted; memory
        has to hold more than these."""
        if self.messages < messages or self.bytes < payload_bytes:
            return False
        return (self.durable if durable else self.volatile) >= payload_bytes + messages * OVERHEAD_BYTES

    def take(self, size_bytes: int, *, durable: bool) -> bool:
        """Take one message with a payload of so many bytes, if there is room for it."""
        if not self.fits(1, size_bytes, durable=durable):
            return False
        cost = size_bytes + OVERHEAD_BYTES
        self.messages -= 1
        self.bytes -= size_bytes
        self.durable -= cost
        self.volatile -= cost
        return True


REFUSING: Final = frozenset(("block", "reject"))
"""Full policies under which postings are refused."""


def admit(queue: Queue, memory: Memory, size_bytes: int, *, durable: bool) -> None:
    """Raise Refused unless the queue takes one more message, of so many bytes: it has room, and is not paused."""
    check_paused(queue)
    check_size(queue, memory, size_bytes, durable=durable)
    if not Room(queue, memory).fits(1, size_bytes, durable=durable):
        raise full(queue)


def check_size(queue: Queue, memory: Memory, size_bytes: int, *, durable: bool) -> None:
    """Raise Refused for a message that the queue would not take if it were empty: whoever tries again, tries for
    ever."""
    policy = queue.policy
    bytes_max = memory.most(queue, volatile=not durable) - OVERHEAD_BYTES
    if policy.bytes_max and policy.full_policy != "page":
        bytes_max = min(bytes_max, policy.bytes_max)
    if size_bytes > bytes_max:
        raise Refused(
            f"the message has {size_bytes:,} bytes: {queue.name:.200} takes at most {bytes_max:,}",
            condition=LinkCondition.MESSAGE_SIZE_EXCEEDED,
        )


def check_paused(node: Pausable) -> None:
    """Raise Refused where an operator has paused a node for producers."""
    if node.producers_paused:
        raise Refused(
            f"{node.name:.200} is paused for producers: try again later",
            condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED,
        )


def full(queue: Queue | None, *, disk: bool = False) -> Refused:
    """Return the error for a posting that finds no room."""
    what = "the broker's disk is full" if disk or queue is None else f"{queue.name:.200} has reached its limit"
    return Refused(f"{what}: try again later", condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED)


def note_value(policy: AddressPolicy, posting: Posting) -> None:
    """Take the value that a last-value queue goes by from a message's properties, into its journal fields as well."""
    if posting.last_value or not policy.last_value:
        return
    start, end = posting.sections.bounds[APPLICATION_PROPERTIES], posting.sections.bounds[BODY]
    payload = posting.sections.payload
    key = policy.last_value_key
    if start == end or payload.find(key.encode(), start, end) < 0:
        return
    value = map_value(payload[start:end], key)
    if value is None:
        return
    encoded = encode_id(value) if isinstance(value, str | bytes) else encode_id(str(value))
    if len(encoded) > VALUE_BYTES_MAX:
        raise Refused(f"a {key} of more than {VALUE_BYTES_MAX} bytes", condition=AmqpCondition.INVALID_FIELD)
    posting.last_value = encoded
    posting.extras += encode_extras([(Extra.LAST_VALUE_KEY, encoded)])


class Limits:
    """Displaces what has to give way."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._over: dict[Queue, None] = {}
        """Queues where a turn did not come to an end."""

    def run(self) -> bool:
        """Look at the queues where something has become available. True if there is more to do."""
        queues = [whole(queue) for queue in self._life.dirty if queue.displaces]
        if self._over:
            queues += [queue for queue in self._over if queue not in self._life.dirty]
            self._over.clear()
        for queue in queues:
            left = self._keep_newest_values(queue, STEP) if queue.values is not None else STEP
            over = self._keep_size(queue, left)
            if over or (queue.values is not None and queue.values.arrived):
                self._over[queue] = None
                self._life.wake(queue)
        return bool(self._over)

    def policies_changed(self, queues: Iterable[Queue]) -> None:
        """Keep to the policies of queues that have others now, or were just recovered, from the next turn on."""
        by_value: dict[QueueBase, Values] = {}
        for queue in queues:
            if queue.values is not None:
                by_value[queue] = queue.values
                queue.backlog.lay_out()
                waiting = (*queue.backlog.objects(), *queue.aside)  # of what is parked nobody has asked for the value
                queue.values.arrived = sorted(
                    (message for message in waiting if message is not None), key=lambda message: message.sequence
                )
                for message in queue.scheduled.values():
                    if message.came_back:
                        queue.values.note(message)
            if queue.displaces:
                self._life.wake(queue)
        if by_value:
            for message in self._life.objects.values():
                if message.state in _HELD and message.queue in by_value:
                    by_value[message.queue].note(message)

    def _keep_newest_values(self, queue: Queue, limit: int) -> int:
        """Displace older values; how many more messages this turn may displace."""
        values = queue.values
        assert values is not None
        arrived, values.arrived = values.arrived, []
        for at, message in enumerate(arrived):
            if not limit:
                values.arrived = arrived[at:] + values.arrived
                break
            older = values.note(message) if message.state is _AVAILABLE else None
            if older is not None and older.state is _AVAILABLE:
                self._displace(older)
                limit -= 1
        newest = values.newest
        if len(newest) > 1_000 and len(newest) > 2 * queue.live:
            values.newest = {value: message for value, message in newest.items() if message.state is not _ARCHIVED}
        return limit

    def _keep_size(self, queue: Queue, limit: int) -> bool:
        """Displace the oldest while there is too much. True if there still is."""
        policy = queue.policy
        ring_size = policy.ring_size or UNLIMITED
        messages_max = bytes_max = UNLIMITED
        if policy.full_policy == "drop-oldest":
            messages_max, bytes_max = policy.messages_max or UNLIMITED, policy.bytes_max or UNLIMITED
        while (available := queue.available) > ring_size or (
            available > 1 and (queue.bytes > bytes_max or queue.live > messages_max)
        ):
            if not limit:
                return True
            self._displace(_oldest(queue))
            limit -= 1
        while queue.scheduled and (queue.bytes > bytes_max or queue.live > messages_max):
            if queue.available + len(queue.scheduled) == 1:
                break  # the newest stays
            if not limit:
                return True
            oldest = queue.oldest_scheduled()
            if queue.available and _oldest(queue).sequence < oldest.sequence:
                oldest = _oldest(queue)
            self._displace(oldest)
            limit -= 1
        return False

    def _displace(self, message: Message) -> None:
        self._life.apply(message, NodeEvent.DISPLACE)


def _oldest(queue: Queue) -> Message:
    """The available message with the lowest sequence; there is one."""
    first = queue.backlog.oldest()
    aside = queue.aside
    place = aside.first_rank(FIRST) if aside else BEYOND
    while place < BEYOND:  # one look for each priority that is aside
        (message,) = aside.since(place, 1)
        if first is None or message.sequence < first.sequence:
            first = message
        place = aside.first_rank(rank_of(message.priority - 1, 0)) if message.priority else BEYOND
    assert first is not None
    return first


__all__ = [
    "REFUSING",
    "STEP",
    "Limits",
    "Room",
    "admit",
    "check_size",
    "full",
    "note_value",
]
