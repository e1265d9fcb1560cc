"""Looking at the messages of a queue, whatever their state, without changing anything about them.

An `Examination` has two parts, and takes as many turns as they need. First it finds the messages of the wanted states
with the lowest sequences above some sequence. A queue keeps them in several places: available ones in lanes, set aside,
or waiting for their time; acquired ones are known to the sessions of their consumers, suspended ones to their termini.
Some thousands of messages are passed in one turn. Then it reads them in the order of sequences, a few at a time. A body
that is not in memory is read back by the reader thread, and let go afterwards where memory is scarce.

Both parts are bounded: `LOOKED_AT_MAX` messages, `BYTES_MAX` bytes of bodies. Where a bound is met the page ends early,
and says where the next one begins. A message whose state changes meanwhile may be missing, or be shown as it is when it
is read. They take turns (`turns`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.dispatching.sending import current_header
from acquit.broker.links.peers import Actor
from acquit.broker.links.terminus import SourceTerminus
from acquit.broker.memory import tell_returns
from acquit.broker.message import Message
from acquit.broker.outcomes.letters import ACTUAL_EXPIRY, ORIG_QUEUE, describe_attempt
from acquit.broker.queue import NodeState
from acquit.broker.selector import fields_of
from acquit.broker.transact.retirement import Retirement
from acquit.errors import DecodeError
from acquit.protocol.extensions import ATTEMPTS, ORIGIN
from acquit.protocol.sections import MESSAGE_ANNOTATIONS, PROPERTIES, PropertyIndex, map_values, scan_sections
from acquit.protocol.types import ULong, Value

if TYPE_CHECKING:
    from acquit.broker.life import Life
    from acquit.broker.nodes.node import Queue
    from acquit.broker.selector import Selector
    from acquit.ledger.records import Actor as ActorRecord
    from acquit.ledger.records import MessageId

T = TypeVar("T")

STEP: Final = 5_000
"""Messages that are passed in one turn."""
LOOKED_AT_MAX: Final = 5_000
"""Messages that one request with a selector reads."""
READ_AT_ONCE: Final = 256
STEP_BYTES: Final = 4 << 20
"""Bytes of the bodies that are read at once, beyond which no further message is taken."""
BYTES_MAX: Final = 64 << 20
"""Bytes of bodies that one request reads, beyond which no further message is taken."""
EXAMINED_MAX: Final = 1_000
"""Messages of one answer."""
_TEXT_MAX: Final = 1_000

_HELD: Final = frozenset({NodeState.ACQUIRED, NodeState.SUSPENDED})
STATES: Final[Mapping[str, frozenset[NodeState]]] = {
    "scheduled": frozenset({NodeState.SCHEDULED}),
    "available": frozenset({NodeState.AVAILABLE}),
    "acquired": frozenset({NodeState.ACQUIRED}),
    "suspended": frozenset({NodeState.SUSPENDED}),
    "all": frozenset({NodeState.SCHEDULED, NodeState.AVAILABLE}) | _HELD,
}
"""The words for states in requests."""


class Examined(NamedTuple):
    """The row of a message, as a page shows it. Times are milliseconds since the epoch."""

    sequence: int
    state: str
    """``available``, ``acquired``, ``scheduled`` or ``suspended``"""
    message_id: MessageId | None
    size_bytes: int
    """The size of the payload, as it was posted."""
    priority: int
    delivery_count: int
    posted_at_ms: int
    due_at_ms: int
    """The time before which it is not offered; 0 for at once."""
    expires_at_ms: int
    """0 for never."""
    holder: str | None
    """The terminus that has it acquired: its user, if there is one, container and link."""
    reason: str | None
    """The cause for which it is a dead letter; None where it is none."""
    origin: int | None
    """The sequence that it had before it became a dead letter, or was moved."""
    origin_queue: str | None
    """The queue in which it became a dead letter."""


class MessagePage(NamedTuple, Generic[T]):
    """A page of messages of a queue, in the order of their sequences."""

    rows: list[T]
    next_after: int | None
    """The sequence after which the next page begins; None where there are no more."""


class Examination(Generic[T]):
    """A look at the messages of one queue that takes some turns."""

    def __init__(
        self,
        life: Life,
        queue: Queue,
        held_by_termini: Callable[[str], Iterator[Message]],
        held_in_transactions: Callable[[Queue], list[Message]],
        describe: Callable[[Message], T],
        *,
        states: frozenset[NodeState],
        after: int = 0,
        limit: int = EXAMINED_MAX,
        selector: Selector | None = None,
        among: Iterable[Message] | None = None,
    ) -> None:
        """`held_by_termini` gives what the termini of a queue hold, `held_in_transactions` what has an outcome there;
        `describe` makes a row of a message, whose body is in memory. `among`: no other messages than these."""
        self._life = life
        self._queue = queue
        self._held_by_termini = held_by_termini
        self._held_in_transactions = held_in_transactions
        self._describe = describe
        self._states = states
        self._after = after
        self._limit = limit
        self._selector = selector
        self._wanted = LOOKED_AT_MAX if selector is not None else limit
        self._more = False
        self._pool: dict[int, Message] = {}
        self._held = 0
        self._portions: Iterator[Iterable[Message]] | None = self._find() if among is None else iter([among])
        self._chosen: deque[Message] = deque()
        self._step: list[Message] = []
        self._unread: set[Message] = set()
        self._found: dict[int, T] = {}
        self._rows: list[T] = []
        self._bytes_left = BYTES_MAX
        self._reached = after
        self.result = Later[MessagePage[T]]()
        """The page, once it is there."""

    @property
    def ready(self) -> bool:
        """True if the next step can be taken; otherwise bodies are being read."""
        return not self._unread

    def run(self) -> bool:
        """Go on. True when it has ended."""
        if self._queue.removing:
            self.result.finish(RequestFailure(404, f"{self._queue.name!r} was deleted meanwhile"))
            return True
        if self._portions is not None:
            self._pass(self._portions)
            return False
        self._take_rows()
        if len(self._rows) == self._limit or not self._chosen or self._bytes_left <= 0:
            more = self._more or bool(self._chosen)
            self.result.finish(MessagePage(self._rows, self._reached if more else None))
            return True
        self._read()
        return False

    # -- finding ------------------------------------------------------------------------------------------------------

    def _pass(self, portions: Iterator[Iterable[Message]]) -> None:
        portion = next(portions, None)
        if portion is None:
            self._trim()
            self._chosen = deque(message for _, message in sorted(self._pool.items()))
            self._portions = None
            return
        pool, states, after, queue = self._pool, self._states, self._after, self._queue
        for message in portion:
            if message.state in states and message.queue is queue and message.sequence > after:
                pool[message.sequence] = message
        if len(pool) > 2 * self._wanted + STEP:
            self._trim()

    def _trim(self) -> None:
        if len(self._pool) > self._wanted:
            self._more = True
            self._pool = dict(nsmallest(self._wanted, self._pool.items()))

    def _find(self) -> Iterator[Iterable[Message]]:
        """Return where such messages may be: a portion for each turn, looked up when its turn comes."""
        queue, states = self._queue, self._states
        if NodeState.AVAILABLE in states:
            for messages in queue.backlog.lanes_above(self._after, self._wanted + 1):
                yield from _portions(messages)
            yield from _portions(list(queue.aside))
        if NodeState.SCHEDULED in states:
            yield from _portions(list(queue.scheduled.values()))
        if states & _HELD:
            for session in {consumer.link.session: None for consumer in queue.consumers}:
                for deliveries in _portions(list(session.outgoing.values())):
                    yield self._noted(_message_of(delivery.context) for delivery in deliveries)
            for consumer in list(queue.consumers):
                yield self._noted(list(consumer.unsent))
            for messages in _portions(list(self._held_by_termini(queue.name))):
                yield self._noted(messages)
            if self._held < queue.acquired + queue.suspended:
                # Their links have settled them in transactions, or have ended just now.
                yield from _portions(self._held_in_transactions(queue))
                yield from _portions(list(self._life.live.values()))

    def _noted(self, messages: Iterable[Message | None]) -> Iterator[Message]:
        """Count those that the queue has acquired or suspended."""
        for message in messages:
            if message is not None:
                self._held += message.queue is self._queue and message.state in _HELD
                yield message

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        size = 0
        while self._chosen and len(self._step) < READ_AT_ONCE and size <= STEP_BYTES:
            message = self._chosen.popleft()
            self._step.append(message)
            size += message.size_bytes
        self._bytes_left -= size
        missing = [one for one in self._step if one.body is None and one.state is not NodeState.ARCHIVED]
        self._unread = set(missing)
        for message in self._step:
            if message not in self._unread:
                self._look_at(message)
        for message in missing:
            self._life.memory.want(message, self._loaded)

    def _loaded(self, message: Message) -> None:
        self._unread.discard(message)
        self._look_at(message)
        if message.durable and self._life.memory.crowded(message.queue):
            self._life.memory.drop(message)

    def _look_at(self, message: Message) -> None:
        if message.state not in self._states or message.body is None:
            return  # it has left meanwhile
        if self._selector is None or self._selector.matches(fields_of(message)):
            self._found[message.sequence] = self._describe(message)

    def _take_rows(self) -> None:
        """Take over what the last step found, as far as there is room for it."""
        step, self._step = self._step, []
        found, self._found = self._found, {}
        for message in step:
            if len(self._rows) == self._limit:
                self._more = True
                return
            self._reached = message.sequence
            if message.sequence in found:
                self._rows.append(found[message.sequence])


def _portions(items: list[T]) -> Iterator[list[T]]:
    for at in range(0, len(items), STEP):
        yield items[at : at + STEP]


def _message_of(context: object) -> Message | None:
    """The message of a delivery, given its context."""
    if isinstance(context, Retirement):
        return context.message
    return context if isinstance(context, Message) else None


# -- descriptions ------------------------------------------------------------------------------------------------------


def examined(message: Message, actors: Mapping[int, ActorRecord]) -> Examined:
    """Return the row of a message whose body is in memory. `actors`: those that the journal names."""
    front = message.front()
    sections = scan_sections(front)
    (message_id,) = sections.property_values(PropertyIndex.MESSAGE_ID)
    start, end = sections.bounds[MESSAGE_ANNOTATIONS], sections.bounds[PROPERTIES]
    try:
        annotations = map_values(front[start:end], "x-opt-")
    except DecodeError:
        annotations = {}
    origin, queue = annotations.get(ORIGIN), annotations.get(ORIG_QUEUE)
    return Examined(
        message.sequence,
        message.state.name.lower(),
        message_id,  # type: ignore[arg-type]  # a posting with another is refused
        message.size_bytes,
        message.priority,
        message.attempt,
        message.posted_us // 1000,
        message.due_at_ms,
        message.expires_at_ms,
        _holder(message, actors),
        _reason(annotations),
        int(origin) if isinstance(origin, int) else None,
        str(queue)[:_TEXT_MAX] if isinstance(queue, str) else None,
    )


def in_full(message: Message, actors: Mapping[int, ActorRecord], now_ms: int, bytes_max: int) -> dict[Value, Value]:
    """Return what there is to know of a message whose body is in memory: its row, the history of its attempts, and the
    encoded message as it would be delivered now; None in place of one that has more than `bytes_max` bytes."""
    row = examined(message, actors)
    tell_returns(message)
    ttl_ms = max(0, message.expires_at_ms - now_ms) if message.expires_at_ms else None
    assert message.body is not None
    payload = current_header(message, ttl_ms) + message.body
    attempts = () if message.extra is None else message.extra.attempts
    return {
        **dict(zip(Examined._fields, row, strict=True)),
        "sequence": ULong(message.sequence),
        "returns": 0 if message.extra is None else message.extra.returns,
        "attempts": [describe_attempt(attempt, actors) for attempt in attempts],
        "message": bytes(payload) if len(payload) <= bytes_max else None,
    }


def _holder(message: Message, actors: Mapping[int, ActorRecord]) -> str | None:
    holder = message.holder
    if holder is None or message.state not in _HELD:
        return None
    if isinstance(holder, Actor):
        return holder.terminus
    if isinstance(holder, SourceTerminus):
        name = holder.name
        return f"{'' if name.user is None else name.user + ':'}{name.container}/{name.link}"
    known = actors.get(holder.number)
    return "" if known is None else f"{known.container}/{known.link}"


def _reason(annotations: Mapping[str, Value]) -> str | None:
    """Return why a message is a dead letter, by its annotations: the latest attempt, or that it expired."""
    if ACTUAL_EXPIRY in annotations:
        return "expired"
    attempts = annotations.get(ATTEMPTS)
    last = attempts[-1] if isinstance(attempts, list) and attempts else None
    if not isinstance(last, Mapping):
        return None
    parts = [last.get(name) for name in ("cause", "condition", "description")]
    return ": ".join(str(part) for part in parts if isinstance(part, str) and part)[:_TEXT_MAX]


__all__ = [
    "BYTES_MAX",
    "EXAMINED_MAX",
    "LOOKED_AT_MAX",
    "READ_AT_ONCE",
    "STATES",
    "STEP",
    "Examination",
    "Examined",
    "MessagePage",
    "examined",
    "in_full",
]
