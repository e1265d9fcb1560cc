"""Records that the core writes to the journal, and calls that wait to hear that these are synced.

Theory of operation. All of the core's records pass through here, so that a queue's accounts and the journal change
together: a durable message's event is recorded, a volatile one's is only counted, and the counts are recorded from time
to time. What must not be said before the disk has it is registered as *waiting*; `take_batch` seals the list of those
who wait together with the records they wait for, and `synced` releases them. So nobody compares positions.

When even the journal's reserve is used up, events of messages stay here until there is room (`exhausted`): nothing that
waits for them is said, nothing durable is handed out, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from acquit.broker.links.peers import Actor
from acquit.broker.message import COPY, DURABLE, Message
from acquit.errors import StoreFull
from acquit.ledger import records
from acquit.ledger.events import EVENT, ID_REUSED, Event, EventKind, fingerprint, pack_event, pack_events
from acquit.ledger.records import Counters
from acquit.ledger.sequences import DispatchMarks, Sequences

if TYPE_CHECKING:
    from acquit.broker.message_run import MessageRun
    from acquit.ledger.recorder import Recorder
    from acquit.store.interface import Batch, Journal, Position

MARK_BLOCK: Final = 4_096
"""Messages ahead of dispatch that are marked as possibly acquired: no more are wrongly called redelivered after a
crash, and a record is written for each half of them."""

ACTORS_KEPT_MAX: Final = 4_096
"""Links whose number is remembered after they are gone: one that comes back under the same names gets it again."""

FULL: Final = "the disk is full: postings are refused until there is room"
"""Warning while the journal takes no postings."""

ActorKey = tuple[str, str, str | None, str]
_WORTH_TRYING_BYTES: Final = 16_384
_POSTED: Final = int(EventKind.POSTED)


class JournaledNode(Protocol):
    """A queue or a topic, as the journal knows it."""

    number: int
    counts: list[int]


class Scribe:
    """The core's pen. `time_us` is the wall clock of the present turn."""

    def __init__(self, recorder: Recorder, sequences: Sequences) -> None:
        self.recorder = recorder
        self.journal: Journal = recorder.journal
        self.sequences = sequences
        self.marks = DispatchMarks(recorder, block=MARK_BLOCK)
        self.time_us = 0
        self.exhausted = False
        """The reserve is used up: nothing durable may happen."""
        self.hands_out_late = False
        """Since the last sync a consumer waits for the next one (`hand_out_when_synced`)."""
        self._waiting: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self._in_flight: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self._uncounted: dict[int, dict[int, int]] = {}
        """Events of volatile messages that the journal has not been told of yet: how many, by node and kind."""
        self._actors: dict[ActorKey, int] = {}

    # -- records ------------------------------------------------------------------------------------------------------

    def posted(
        self, message: Message, payload: bytes, meta: bytes, *, kind: int, actor: int, origin: int, essential: bool
    ) -> None:
        """A message enters its queue. Raises StoreFull, with nothing changed, for a durable one without room."""
        queue = message.queue
        if message.flags & DURABLE:
            message.position, message.fingerprint = self.recorder.posted(
                message.sequence,
                queue.number,
                payload,
                meta,
                self.time_us,
                actor=actor,
                origin=origin,
                kind=kind,
                flags=DURABLE | (message.flags & ID_REUSED),
                essential=essential,
            )
        else:
            message.fingerprint = len(payload) << 32
            self.count_volatile(queue, kind, 1)
        queue.counts[kind] += 1

    def fanned_out(self, messages: list[Message], payload: bytes, meta: bytes, actor: int, flags: int = 0) -> None:
        """A posting enters several queues, as these durable messages, which are the caller's to count. The record of
        the first one has the payload, the others name it. Raises StoreFull, with nothing changed."""
        time_us = self.time_us
        first, *others = messages
        first.position, first.fingerprint = position, fingerprint = self.recorder.posted(
            first.sequence, first.queue.number, payload, meta, time_us, actor=actor, flags=DURABLE | flags
        )
        if not others:
            return
        origin = first.sequence
        events = []
        for message in others:
            message.flags |= COPY
            message.position, message.fingerprint = position, fingerprint
            events.append(
                pack_event(
                    message.sequence,
                    origin,
                    time_us,
                    fingerprint,
                    message.queue.number,
                    actor,
                    _POSTED,
                    DURABLE | COPY,
                    0,
                    0,
                )
            )
        try:
            self.recorder.copies(b"".join(events))
        except StoreFull:
            self.exhausted = True  # the recorder keeps them, and no batch is taken without them

    def unrouted(self, topic: JournaledNode, payload: bytes, actor: int, *, durable: bool) -> None:
        """A message found no subscription. Raises StoreFull for a durable one without room."""
        if not durable:
            self.count_volatile(topic, EventKind.UNROUTED, 1)
        elif self.journal.full:
            raise StoreFull("the disk is full: no postings until there is room")
        else:
            sequence = self.sequences.take(self.time_us)
            try:
                self.recorder.transition(
                    EventKind.UNROUTED, sequence, topic.number, fingerprint(payload), self.time_us, actor
                )
            except StoreFull:
                self.exhausted = True  # the recorder keeps the event
        topic.counts[EventKind.UNROUTED] += 1

    def event(self, kind: int, message: Message, *, actor: int = 0, origin: int = 0, flags: int = 0) -> None:
        """Record what happened to a message, or count it if that is volatile; its `attempt` is the count after it."""
        queue = message.queue
        queue.counts[kind] += 1
        if message.flags & DURABLE:
            try:
                self.recorder.transition(
                    kind,
                    message.sequence,
                    queue.number,
                    message.fingerprint,
                    self.time_us,
                    actor,
                    message.attempt,
                    origin,
                    DURABLE | flags,
                )
            except StoreFull:
                self.exhausted = True  # the recorder keeps the event
        else:
            self.count_volatile(queue, kind, 1)

    def events(self, kind: int, queue: JournaledNode, messages: list[Message], actor: int) -> None:
        """The same for many durable messages of one queue."""
        number, time_us = queue.number, self.time_us
        events = [
            pack_event(
                message.sequence,
                0,
                time_us,
                message.fingerprint,
                number,
                actor,
                kind,
                DURABLE,
                message.attempt,
                0,
            )
            for message in messages
        ]
        self._record(kind, queue, b"".join(events))

    def run_events(self, kind: int, run: MessageRun, actor: int) -> None:
        """The same for the durable messages of a run, of which nobody has had one before."""
        self._record(kind, run.queue, self.events_of_run(kind, run, actor))

    def events_of_run(self, kind: int, run: MessageRun, actor: int, transaction: int = 0) -> bytes:
        """Return these events, packed."""
        assert run.recorded is not None
        fingerprints, number = run.recorded.fingerprints, run.queue.number
        return pack_events(
            run.sequences, fingerprints, self.time_us, number, actor, kind, flags=DURABLE, transaction=transaction
        )

    def _record(self, kind: int, queue: JournaledNode, events: bytes) -> None:
        queue.counts[kind] += len(events) // EVENT.size
        try:
            self.recorder.transitions(events)
        except StoreFull:
            self.exhausted = True

    def volatile_events(self, kind: int, queue: JournaledNode, count: int) -> None:
        """The same for so many volatile messages of one queue."""
        queue.counts[kind] += count
        self.count_volatile(queue, kind, count)

    def attempt(
        self,
        kind: int,
        message: Message,
        *,
        actor: int,
        origin: int,
        flags: int,
        cause: int,
        condition: str,
        description: str,
        excluded: str,
        annotations: bytes,
    ) -> None:
        """Record what happened to a message, as `event` does, with what the consumer said about it."""
        if not message.flags & DURABLE:
            self.event(kind, message, actor=actor, origin=origin, flags=flags)
            return
        event = Event(
            message.sequence,
            origin,
            self.time_us,
            message.fingerprint,
            message.queue.number,
            actor,
            kind,
            DURABLE | flags,
            message.attempt,
            0,
        )
        try:
            self.recorder.keep(records.Attempt(event, cause, condition, description, excluded, annotations))
        except StoreFull:
            self.exhausted = True  # the recorder keeps it, and no batch is taken without it
        message.queue.counts[kind] += 1

    def count_volatile(self, queue: JournaledNode, kind: int, count: int) -> None:
        """Count an event of `count` volatile messages of the queue; `queue.counts` is the caller's."""
        number = queue.number
        counts = self._uncounted.get(number)
        if counts is None:
            self._uncounted[number] = {kind: count}
        else:
            counts[kind] = counts.get(kind, 0) + count

    @property
    def uncounted(self) -> int:
        """Number of queues and topics with events that are counted and not recorded."""
        return len(self._uncounted)

    def write_counters(self, nodes_max: int | None = None) -> None:
        """Record what happened to volatile messages since the last time: of so many queues and topics, those first that
        have waited longest; None: of all. Nothing is lost where there is no room."""
        self._write_counters(list(islice(self._uncounted, nodes_max)))

    def write_counters_of(self, number: int) -> None:
        """Record the same of one queue or topic, by its number."""
        if number in self._uncounted:
            self._write_counters([number])

    def _write_counters(self, numbers: list[int]) -> None:
        uncounted = self._uncounted
        counts = tuple((number, kind, count) for number in numbers for kind, count in uncounted[number].items())
        if not counts:
            return
        try:
            self.recorder.append(Counters(self.time_us, counts))
        except StoreFull:
            self.exhausted = True
            return
        for number in numbers:
            del uncounted[number]

    def actor_number(self, actor: Actor) -> int:
        """The number of a link in the journal, declared there when it is first needed. 0 where there is no room."""
        if not actor.number:
            actor.number = self.declare(actor.peer.container, actor.link_name, actor.peer.user, actor.address)
        return actor.number

    def declare(self, container: str, link: str, user: str | None, address: str) -> int:
        """The number of who does something, by all that names it. 0 where there is no room."""
        container, link, address = _short(container), _short(link), _short(address)
        key = container, link, user, address
        known = self._actors.pop(key, 0)
        if not known:
            number = self.recorder.table.actor_max + 1
            try:
                self.recorder.append(records.Actor(self.time_us, number, container, link, user or "", address))
            except StoreFull:
                self.exhausted = True
                return 0
            known = number
            if len(self._actors) >= ACTORS_KEPT_MAX:
                oldest = next(iter(self._actors))
                self.recorder.table.forget_actor(self._actors.pop(oldest))
        self._actors[key] = known
        return known

    # -- batches ------------------------------------------------------------------------------------------------------

    def when_synced(self, call: Callable[..., None], *arguments: object) -> None:
        """Call it once everything recorded so far is durable."""
        if self.journal.in_flight and not self.recorder.pending:
            # All of it is in the batch that is being synced, and there may be no other after that one.
            self._in_flight.append((call, arguments))
        else:
            self._waiting.append((call, arguments))

    def hand_out_when_synced(self, call: Callable[..., None], *arguments: object) -> None:
        """Call it as `when_synced` does. A consumer waits for what a turn records: the next batch is to have that."""
        self.hands_out_late = True
        self.when_synced(call, *arguments)

    def with_next(self, call: Callable[..., None], *arguments: object) -> None:
        """Call it once the next batch is durable, in which something of this turn is, or will be before it ends."""
        self._waiting.append((call, arguments))

    def once_durable(self, call: Callable[..., None], *arguments: object) -> None:
        """Call it as `when_synced` does, but at once where all is durable: no batch may come for a long time."""
        if self.recorder.pending or self.journal.in_flight:
            self.when_synced(call, *arguments)
        else:
            call(*arguments)

    @property
    def pending(self) -> bool:
        """True if there is something for a batch. A call that waits (`when_synced`) makes none by itself."""
        return self.recorder.pending

    @property
    def pending_bytes(self) -> int:
        """Bytes for the next batch."""
        return self.recorder.pending_bytes

    @property
    def has_waiters(self) -> bool:
        """True if somebody waits until the next batch is synced."""
        return bool(self._waiting)

    def take_batch(self) -> Batch | None:
        """All that is recorded, for `broker.committer`; None while a batch is in flight, or without room."""
        try:
            batch = self.recorder.take_batch()
        except StoreFull:
            self.exhausted = True
            return None
        if batch is not None:
            self.exhausted = False
            self._in_flight, self._waiting = self._waiting, []
        return batch

    def look_for_room(self) -> None:
        """Clear `exhausted` if the journal has room again. What found no room may have been something that is not kept,
        a mark or a name: then no batch is going to say that there is room."""
        if not self.recorder.pending and self.recorder.room_bytes > _WORTH_TRYING_BYTES:
            self.exhausted = False

    def synced(self, position: Position) -> None:
        """The batch in flight is durable: release those who waited for it."""
        self.hands_out_late = False
        released, self._in_flight = self._in_flight, []
        self._release(iter(released))

    def _release(self, waiting: Iterator[tuple[Callable[..., None], tuple[object, ...]]]) -> None:
        try:
            for call, arguments in waiting:
                call(*arguments)
        except BaseException:
            self._release(waiting)  # those behind it wait for answers of their own
            raise

    def mark_ahead(self, queue: JournaledNode, sequence: int) -> bool:
        """True if messages up to `sequence` may be handed out. If not, the next sync brings the mark."""
        with suppress(StoreFull):
            return self.marks.covered(queue.number, sequence, self.time_us)
        self.exhausted = True
        return False


def _short(text: str) -> str:
    """Names that peers give can be long; the journal's are bounded."""
    return text if len(text) <= 1_024 else text[:1_024]


__all__ = ["FULL", "MARK_BLOCK", "EventKind", "Scribe"]
