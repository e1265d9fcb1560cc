"""History of one message: every event of its life, and of the copies it came from and became.

A message is asked for by its sequence, its message id or its duplicate id. From what is found, links are followed both
ways: dead letters, expired and moved messages name the copy they came from, their originals the copy they became; the
copies of a topic posting name the one that holds the body.

The journal has no index by message, and needs none: a sequence is eight known bytes, so whole batches are searched
for them with one fast `in`, and only a batch that has some is looked at record by record. An id is looked for in all
segments, the newest first. Sequences grow along the journal, so a pass for a sequence begins in the segment where it
was given, which is found by bisection. Each newly found link costs another pass. Names that were declared before that
segment are looked for backwards from it.

Beside a running broker what is read may be bounded (`Bounds`), and segments that retention deletes meanwhile are passed
over. The answer says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from struct import Struct
from typing import Final

from acquit.errors import StoreCorrupt, StoreError
from acquit.ledger.events import ENTERING, RETIRING, Event, EventKind
from acquit.ledger.records import (
    Actor,
    Attempt,
    Cause,
    Copied,
    Extra,
    MessageId,
    Posting,
    Queue,
    RecordKind,
    decode_events,
    encode_id,
)
from acquit.store.disk import Disk
from acquit.store.interface import ARRAY, EVENTFUL, Position, Record
from acquit.store.reading import FolderReader
from acquit.store.record import BatchHead, walk
from acquit.store.scan import SegmentReader

_SEQUENCE: Final = Struct("<Q")
_NAMING_HEADS: Final = (bytes((RecordKind.QUEUE, 1, 0, 0)), bytes((RecordKind.ACTOR, 1, 0, 0)))
"""Kind, version and flags as they stand in the head of a record that names a queue or an actor."""
_COMMITTED: Final = frozenset((EventKind.UNROUTED, EventKind.PASSED))
"""Ends of a held posting at its commit, where it enters no queue that is recorded."""
_OVER: Final = frozenset({"live", "held"})
"""The standings after which more may happen to a message."""
COPIES_MAX: Final = 1000
"""No more copies of one message are followed."""
FIRST_BYTES_MAX: Final = 4 << 20
"""Bytes of a segment that are read to learn the first sequence that was given in it."""


@dataclass(frozen=True, slots=True)
class Step:
    """Event in a message's life."""

    time_us: int
    kind: EventKind
    queue: int
    queue_name: str
    actor: int
    actor_name: str
    """Container, link and user, as far as the journal still says; "" for the broker itself."""
    attempt: int
    origin: int
    """See `acquit.ledger.events`."""
    flags: int
    cause: str
    condition: str
    description: str
    run: int
    """Run of the broker that recorded it: counted from 1 over what was read."""
    segment: int
    position: Position
    """Position of the record."""


@dataclass(slots=True)
class Life:
    """Copy of the message in one queue."""

    sequence: int
    message_id: MessageId | None = None
    address: str = ""
    size_bytes: int = 0
    crc: int = 0
    entered_as: int = 0
    """Sequence under which a held posting entered its queue, or the first of several."""
    steps: list[Step] = field(default_factory=list)
    """Events in order of the journal: of one batch, postings first."""

    @property
    def came_from(self) -> int:
        """The copy it came from, by sequence; 0: it was posted by a producer."""
        return next((step.origin for step in self.steps if step.kind in ENTERING), 0)

    @property
    def became(self) -> int:
        """The copy it became (a dead letter, an expired or moved message); 0: none."""
        return next((step.origin for step in self.steps if step.kind in RETIRING), 0)

    @property
    def end(self) -> EventKind | None:
        """Kind of the event that retired it; None: it is live, as far as the journal says, or a transaction's."""
        return next((step.kind for step in self.steps if step.kind in RETIRING), None)

    @property
    def standing(self) -> str:
        """Name of the event that retired it, or else *live*. A posting that waits for its transaction is *held*, then
        *committed* (as `entered_as`, if that is not 0) or *rolled-back*: it was in no queue under this sequence."""
        if self.end is not None:
            return self.end.name.lower().replace("_", "-")
        kinds = {step.kind for step in self.steps}
        if EventKind.HELD not in kinds:
            return "live"
        if EventKind.ROLLED_BACK in kinds:
            return "rolled-back"
        return "committed" if self.entered_as or kinds & _COMMITTED else "held"


@dataclass(frozen=True, slots=True)
class History:
    """Copies of a message that were found, and what was read for that."""

    lives: tuple[Life, ...]
    """All copies that are linked with what was asked for, by sequence."""
    first_segment: int
    """The oldest segment read: what was before it is not known any more."""
    truncated: bool
    """True if there are more than `COPIES_MAX` copies."""
    last_segment: int = 0
    """The newest segment read. Within bounds reading ends where all copies have ended; a repetition of one that was
    suppressed after that is not told then."""
    stopped: str = ""
    """The bound that ended the reading before its end: ``bytes``, ``time`` or ``cancelled``. "": all was read."""
    stopped_in: int = 0
    """The segment in which it was stopped; 0 where it was not."""
    gone: tuple[int, ...] = ()
    """Segments that retention deleted while they were to be read."""
    left_out: int = 0
    """Events that are not told, because there are more than `Bounds.steps_max`."""
    bytes_read: int = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that is read for one history."""

    bytes_max: int
    seconds_max: float
    steps_max: int
    """Events of all copies together; beyond it only entering and retiring ones are told."""
    clock_s: Callable[[], float]
    """A clock that is never set."""
    cancelled: Callable[[], bool]
    """True once nobody waits any more. Asked often."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The message that a history is asked of: one of the three is not None."""

    sequence: int | None = None
    message_id: MessageId | None = None
    duplicate_id: MessageId | None = None


class _Stopped(Exception):
    """A bound is met."""


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names that a running broker knows. Nothing is called on them but ``get``, on any thread."""

    queues: Mapping[int, Queue]
    actors: Mapping[int, Actor]


def history(
    path: Path,
    *,
    sequence: int | None = None,
    message_id: MessageId | None = None,
    duplicate_id: MessageId | None = None,
    disk: Disk | None = None,
    progress: Callable[[int, int], None] | None = None,
    bounds: Bounds | None = None,
    names: KnownNames | None = None,
) -> History:
    """Return the life of the message with this sequence, or of all with this message id, or of all with this id of
    duplicate detection; empty when there is none.

    Reads archive and journal, of a running broker or a stopped one. `progress` is called with segments read and to be
    read, which grows when another pass is needed. Raises as `FolderReader.replay`.
    """
    search = _Search(path, disk, progress, bounds, names)
    if sequence is not None:
        search.want(sequence)
    if message_id is not None:
        search.message_id = encode_id(message_id)
    if duplicate_id is not None:
        search.duplicate_id = encode_id(duplicate_id)
    return search.run()


class _Search:
    def __init__(
        self,
        path: Path,
        disk: Disk | None,
        progress: Callable[[int, int], None] | None,
        bounds: Bounds | None,
        names: KnownNames | None,
    ) -> None:
        self._reader = FolderReader(path, disk)
        self._progress = progress
        self._bounds = bounds
        self._known = names
        self.message_id = b""
        """The id that is looked for, as the ledger encodes it; b"" for none."""
        self.duplicate_id = b""
        self._wanted: set[int] = set()
        self._new: set[int] = set()
        self._lives: dict[int, Life] = {}
        self._queues: dict[int, str] = {}
        self._actors: dict[int, str] = {}
        self._numbers: Sequence[int] = ()
        self._firsts: dict[int, int | None] = {}
        self._gone: set[int] = set()
        self._run = 0
        self._truncated = False
        self._done = self._total = 0
        self._began_s = 0.0 if bounds is None else bounds.clock_s()
        self._bytes = 0
        self._steps = self._left_out = 0
        self._at = self._last = 0

    def want(self, sequence: int) -> None:
        """Look for this one too."""
        if not sequence or sequence in self._wanted:
            return
        if len(self._wanted) >= COPIES_MAX:
            self._truncated = True
            return
        self._wanted.add(sequence)
        self._new.add(sequence)

    def run(self) -> History:
        contents = self._reader.journal_contents()
        numbers = [*contents.archive, *contents.journal]
        first = len(numbers) - 1
        while first > 0 and numbers[first - 1] == numbers[first] - 1:
            first -= 1
        self._numbers = numbers = numbers[first:]
        stopped, stopped_in, begin = "", 0, 0
        whole: dict[int, Life] = {}
        """The lives that the last pass found which came to its end."""
        try:
            if self.message_id or self.duplicate_id:
                self._locate()
            while self._new:
                # Everything about all that is wanted is read again in each pass: the order of steps is the journal's.
                begin = self._begin(min(self._wanted))
                self._pass(numbers[begin:])
                whole = self._lives
        except _Stopped as stop:
            stopped, stopped_in = str(stop), self._at
        self._lives = {**self._lives, **whole}
        self._name_all(numbers[:begin])
        lives = tuple(life for _, life in sorted(self._lives.items()))
        for life in lives:
            source = self._lives.get(life.came_from)
            if source is not None and not life.address:  # it entered by an event alone: a copy, or at a commit
                life.message_id, life.address = source.message_id, source.address
            if source is not None and any(step.kind is EventKind.HELD for step in source.steps):
                source.entered_as = life.sequence
        return History(
            lives,
            next((number for number in numbers if number not in self._gone), 0),
            self._truncated,
            self._last,
            stopped,
            stopped_in,
            tuple(sorted(self._gone)),
            self._left_out,
            self._bytes,
        )

    # -- where to read ------------------------------------------------------------------------------------------------

    def _locate(self) -> None:
        """Look for all postings of the ids, in the newest segments first."""
        ids = [one for one in (self.message_id, self.duplicate_id) if one]
        self._total += len(self._numbers)
        for number in reversed(self._numbers):
            for head, data in self._batches(number):
                if any(one in data for one in ids):
                    for record in walk(head, data):
                        posting = _posting(record)
                        if posting is not None and self._matches(posting):
                            self.want(posting.event.sequence)
            self._count()

    def _matches(self, posting: Posting) -> bool:
        encoded = b"" if posting.message_id is None else encode_id(posting.message_id)
        if self.message_id:
            return encoded == self.message_id
        extras = dict(posting.extras)
        if Extra.DUPLICATE_ID in extras:
            return extras[Extra.DUPLICATE_ID] == self.duplicate_id
        return Extra.BODY_FINGERPRINT in extras and encoded == self.duplicate_id

    def _begin(self, sequence: int) -> int:
        """Return the index of the segment in which this sequence was given, or of one before it."""
        low, high = 0, len(self._numbers) - 1
        while low < high:
            middle = (low + high + 1) // 2
            first = self._first(self._numbers[middle])
            if first is not None and first <= sequence:
                low = middle
            else:
                high = middle - 1
        return max(low, 0)

    def _first(self, number: int) -> int | None:
        """Return the first sequence that was given in a segment; None where that is not to be seen at once."""
        if number not in self._firsts:
            try:
                self._firsts[number] = next(self._given(number), None)
            except StoreError:
                self._firsts[number] = None  # the pass tells, if it comes there
        return self._firsts[number]

    def _given(self, number: int) -> Iterator[int]:
        size = 0
        for head, data in self._batches(number, to_end=False):
            for record in walk(head, data):
                if record.flags & (EVENTFUL | ARRAY):
                    for event in decode_events(record):
                        if event.kind in ENTERING or event.kind == EventKind.HELD:
                            yield event.sequence
            size += head.length
            if size > FIRST_BYTES_MAX:
                return

    # -- reading ------------------------------------------------------------------------------------------------------

    def _pass(self, numbers: Sequence[int]) -> None:
        self._lives, self._new = {}, set()
        self._run = self._steps = self._left_out = 0
        self._total = self._done + len(numbers)
        for number in numbers:
            first = True
            for head, data in self._batches(number):
                # A run begins in the first batch of a segment, if anywhere.
                if first or self._found(data):
                    for record in walk(head, data):
                        self._record(record, number)
                first = False
            self._last = max(self._last, number)
            self._count()
            if self._new or (self._bounds is not None and self._over()):
                return

    def _over(self) -> bool:
        """Return whether nothing can happen any more to what is wanted."""
        return self._lives.keys() == self._wanted and not any(life.standing in _OVER for life in self._lives.values())

    def _batches(self, number: int, *, to_end: bool = True) -> Iterator[tuple[BatchHead, bytes]]:
        """The batches of a segment, as far as the bounds allow. `to_end`: it must end as a segment does."""
        segment = self._open(number)
        if segment is None:
            return
        self._at = number
        with segment:
            try:
                for head, data in segment.batches():
                    self._spend(head.length)
                    yield head, data
            except ValueError as error:
                raise segment.corrupt(str(error)) from error
            newest = number == self._numbers[-1]
            if to_end and not (newest and self._bounds is not None):  # which a running broker is writing
                segment.check_end(newest=newest)

    def _open(self, number: int) -> SegmentReader | None:
        try:
            return self._reader.open(number)
        except KeyError:
            if not self._reader.was_deleted(number):
                raise StoreCorrupt("gone while it was to be read", path=str(number), offset=0) from None
            self._gone.add(number)
            return None

    def _spend(self, size: int) -> None:
        self._bytes += size
        bounds = self._bounds
        if bounds is None:
            return
        if bounds.cancelled():
            raise _Stopped("cancelled")
        if self._bytes > bounds.bytes_max:
            raise _Stopped("bytes")
        if bounds.clock_s() - self._began_s > bounds.seconds_max:
            raise _Stopped("time")

    def _count(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, max(self._total, self._done))

    def _found(self, data: bytes) -> bool:
        """Return whether something of interest may stand in this batch."""
        return any(_SEQUENCE.pack(sequence) in data for sequence in self._wanted) or _names_something(data)

    def _record(self, record: Record, segment: int) -> None:
        self._name(record)
        if record.kind == RecordKind.START:
            self._run += 1
        if record.flags & (EVENTFUL | ARRAY):
            self._events(record, segment)
        elif record.kind == RecordKind.COPIED:
            posting = Copied.decode(record).posting
            if self._is_wanted(posting):
                self._describe(posting)

    # -- names --------------------------------------------------------------------------------------------------------

    def _name(self, record: Record) -> None:
        if record.kind == RecordKind.QUEUE:
            queue = Queue.decode(record)
            self._queues[queue.number] = queue.name
        elif record.kind == RecordKind.ACTOR:
            actor = Actor.decode(record)
            self._actors[actor.number] = _actor_name(actor)

    def _name_all(self, before: Sequence[int]) -> None:
        """Give names to those that have none yet: as the running broker knows them, or as the segments before where the
        last pass began have them."""
        steps = [step for life in self._lives.values() for step in life.steps]
        if self._known is not None:
            for step in steps:
                if step.queue not in self._queues and (queue := self._known.queues.get(step.queue)) is not None:
                    self._queues[step.queue] = queue.name
                if step.actor not in self._actors and (actor := self._known.actors.get(step.actor)) is not None:
                    self._actors[step.actor] = _actor_name(actor)
        queues = {step.queue for step in steps} - self._queues.keys() - {0}
        actors = {step.actor for step in steps} - self._actors.keys() - {0}
        try:
            for number in reversed(before):
                if queues <= self._queues.keys() and actors <= self._actors.keys():
                    break
                for head, data in self._batches(number):
                    if _names_something(data):
                        for record in walk(head, data):
                            self._name(record)
        except _Stopped:
            pass  # without the names, then
        for life in self._lives.values():
            life.steps = [
                step
                if step.queue_name and step.actor_name
                else replace(
                    step,
                    queue_name=self._queues.get(step.queue, ""),
                    actor_name=self._actors.get(step.actor, ""),
                )
                for step in life.steps
            ]

    # -- lives --------------------------------------------------------------------------------------------------------

    def _is_wanted(self, posting: Posting) -> bool:
        return posting.event.sequence in self._wanted

    def _describe(self, posting: Posting) -> Life:
        life = self._lives.setdefault(posting.event.sequence, Life(posting.event.sequence))
        life.message_id, life.address = posting.message_id, posting.address
        life.size_bytes, life.crc = posting.event.size, posting.event.crc
        return life

    def _events(self, record: Record, segment: int) -> None:
        attempt = Attempt.decode(record) if record.kind == RecordKind.ATTEMPT else None
        if record.kind == RecordKind.POSTING:
            posting = Posting.decode(record)
            if self._is_wanted(posting):
                self._describe(posting)
        for event in decode_events(record):
            if event.sequence in self._wanted:
                life = self._lives.setdefault(event.sequence, Life(event.sequence))
                if event.kind != EventKind.DUPLICATE:  # whose fingerprint is that of the posting that came again
                    life.size_bytes, life.crc = event.size, event.crc
                self._add(life, event, attempt, record, segment)
                if event.kind in ENTERING or event.kind in RETIRING:
                    self.want(event.origin)
            elif event.origin in self._wanted and (event.kind in ENTERING or event.kind in RETIRING):
                self.want(event.sequence)

    def _add(self, life: Life, event: Event, attempt: Attempt | None, record: Record, segment: int) -> None:
        turning = event.kind in ENTERING or event.kind in RETIRING
        if self._bounds is not None and self._steps >= self._bounds.steps_max and not turning:
            self._left_out += 1
            return
        self._steps += 1
        life.steps.append(self._step(event, attempt, record, segment))

    def _step(self, event: Event, attempt: Attempt | None, record: Record, segment: int) -> Step:
        return Step(
            event.time_us,
            EventKind(event.kind),
            event.queue,
            self._queues.get(event.queue, ""),
            event.actor,
            self._actors.get(event.actor, ""),
            event.attempt,
            event.origin,
            event.flags,
            _cause(attempt.cause) if attempt is not None else "",
            attempt.condition if attempt is not None else "",
            attempt.description if attempt is not None else "",
            self._run,
            segment,
            record.position,
        )


def _posting(record: Record) -> Posting | None:
    """The posting that a record has, or is a copy of; None for other records."""
    if record.kind == RecordKind.POSTING:
        return Posting.decode(record)
    return Copied.decode(record).posting if record.kind == RecordKind.COPIED else None


def _names_something(data: bytes) -> bool:
    """Return whether a queue or an actor may be named in this batch."""
    return any(head in data for head in _NAMING_HEADS)


def _actor_name(actor: Actor) -> str:
    return " ".join(part for part in (actor.container, actor.link, actor.user) if part)


def _cause(cause: int) -> str:
    try:
        return Cause(cause).name
    except ValueError:
        return f"CAUSE_{cause}"
