"""What became of one message: every event of its life, and of the copies it came from and became.

A message is asked for by its sequence or its message id. From what is found, links are followed both ways: dead
letters, expired and moved messages name the copy they came from, their originals the copy they became; the copies of
a topic posting name the one that holds the body.

The journal has no index by message, and needs none: a sequence is eight known bytes, so whole batches are searched
for them with one fast `in`, and only a batch that has some is looked at record by record. Each newly found link costs
another pass, from the segment on where it can first stand; there are rarely more than two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final

from acquit.errors import StoreCorrupt
from acquit.ledger.events import ENTERING, RETIRING, Event, EventKind
from acquit.ledger.records import (
    Actor,
    Attempt,
    Cause,
    Copied,
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
from acquit.store.record import walk

_SEQUENCE: Final = Struct("<Q")
_NAMING_HEADS: Final = (bytes((RecordKind.QUEUE, 1, 0, 0)), bytes((RecordKind.ACTOR, 1, 0, 0)))
"""Kind, version and flags as they stand in the head of a record that names a queue or an actor."""
_COMMITTED: Final = frozenset((EventKind.UNROUTED, EventKind.PASSED))
"""How a held posting ends at its commit, where it enters no queue that is recorded."""
COPIES_MAX: Final = 1000
"""No more copies of one message are followed."""


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a message's life."""

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
    """Which run of the broker recorded it: counted from 1 over what was read."""
    segment: int
    position: Position
    """Of the record."""


@dataclass(slots=True)
class Life:
    """One copy of the message, in one queue."""

    sequence: int
    message_id: MessageId | None = None
    address: str = ""
    size_bytes: int = 0
    crc: int = 0
    entered_as: int = 0
    """Of one that a transaction held: the sequence under which it entered its queue, or the first of several."""
    steps: list[Step] = field(default_factory=list)
    """In order of the journal: of one batch, postings first."""

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
        """How it was retired; None: it is live, as far as the journal says, or a transaction's."""
        return next((step.kind for step in self.steps if step.kind in RETIRING), None)

    @property
    def standing(self) -> str:
        """How it ended, or else *live*. A posting that waits for its transaction is *held*, and then *committed* (as
        `entered_as`, if that is not 0) or *rolled-back*: it was in no queue under this sequence."""
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
    """What was found."""

    lives: tuple[Life, ...]
    """All copies that are linked with what was asked for, by sequence."""
    first_segment: int
    """The oldest segment read: what was before it is not known any more."""
    truncated: bool
    """There are more than `COPIES_MAX` copies."""


def history(
    path: Path,
    *,
    sequence: int | None = None,
    message_id: MessageId | None = None,
    disk: Disk | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> History:
    """The life of the message with this sequence, or of all with this message id; empty when there is none.

    Reads archive and journal, of a running broker or a stopped one. `progress` is called with segments read and to be
    read, which grows when another pass is needed. Raises as `FolderReader.replay`.
    """
    search = _Search(path, disk, progress)
    if sequence is not None:
        search.want(sequence)
    if message_id is not None:
        search.want_id(encode_id(message_id))
    return search.run()


class _Search:
    def __init__(self, path: Path, disk: Disk | None, progress: Callable[[int, int], None] | None) -> None:
        self._reader = FolderReader(path, disk)
        self._progress = progress
        self._wanted: set[int] = set()
        self._new: set[int] = set()
        self._id = b""
        self._lives: dict[int, Life] = {}
        self._queues: dict[int, str] = {}
        self._actors: dict[int, str] = {}
        self._run = 0
        self._truncated = False

    def want(self, sequence: int) -> None:
        """Look for this one too."""
        if not sequence or sequence in self._wanted:
            return
        if len(self._wanted) >= COPIES_MAX:
            self._truncated = True
            return
        self._wanted.add(sequence)
        self._new.add(sequence)

    def want_id(self, encoded: bytes) -> None:
        self._id = encoded

    def run(self) -> History:
        contents = self._reader.contents()
        numbers = [*contents.archive, *contents.journal]
        first = len(numbers) - 1
        while first > 0 and numbers[first - 1] == numbers[first] - 1:
            first -= 1
        numbers = numbers[first:]
        done, total = 0, 0
        searching = bool(self._id or self._new)
        while searching:
            # Everything about all that is wanted is read again in each pass: the order of steps is then the journal's.
            self._lives = {}
            self._new = set()
            self._run = 0
            total += len(numbers)
            for number in numbers:
                self._segment(number, newest=number == numbers[-1])
                done += 1
                if self._progress is not None:
                    self._progress(done, total)
            searching = bool(self._new)
        lives = tuple(life for _, life in sorted(self._lives.items()))
        for life in lives:
            source = self._lives.get(life.came_from)
            if source is not None and not life.address:  # it entered by an event alone: a copy, or at a commit
                life.message_id, life.address = source.message_id, source.address
            if source is not None and any(step.kind is EventKind.HELD for step in source.steps):
                source.entered_as = life.sequence
        return History(lives, numbers[0] if numbers else 0, self._truncated)

    def _segment(self, number: int, *, newest: bool) -> None:
        try:
            segment = self._reader.open(number)
        except KeyError:
            raise StoreCorrupt("gone while it was to be read", path=str(number), offset=0) from None
        with segment:
            try:
                first = True
                for head, data in segment.batches():
                    # A run begins in the first batch of a segment, if anywhere.
                    if first or self._found(data):
                        for record in walk(head, data):
                            self._record(record, number)
                    first = False
            except ValueError as error:
                raise segment.corrupt(str(error)) from error
            segment.check_end(newest=newest)

    def _found(self, data: bytes) -> bool:
        """May something of interest stand in this batch?"""
        return (
            any(_SEQUENCE.pack(sequence) in data for sequence in self._wanted)
            or bool(self._id and self._id in data)
            or any(head in data for head in _NAMING_HEADS)
        )

    def _record(self, record: Record, segment: int) -> None:
        if record.kind == RecordKind.QUEUE:
            queue = Queue.decode(record)
            self._queues[queue.number] = queue.name
        elif record.kind == RecordKind.ACTOR:
            actor = Actor.decode(record)
            parts = (actor.container, actor.link, actor.user)
            self._actors[actor.number] = " ".join(part for part in parts if part)
        elif record.kind == RecordKind.START:
            self._run += 1
        if record.flags & (EVENTFUL | ARRAY):
            self._events(record, segment)
        elif record.kind == RecordKind.COPIED:
            posting = Copied.decode(record).posting
            if self._is_wanted(posting):
                self._describe(posting)

    def _is_wanted(self, posting: Posting) -> bool:
        if posting.event.sequence in self._wanted:
            return True
        if self._id and posting.message_id is not None and encode_id(posting.message_id) == self._id:
            self.want(posting.event.sequence)
            return posting.event.sequence in self._wanted
        return False

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
                life.steps.append(self._step(event, attempt, record, segment))
                if event.kind in ENTERING or event.kind in RETIRING:
                    self.want(event.origin)
            elif event.origin in self._wanted and (event.kind in ENTERING or event.kind in RETIRING):
                self.want(event.sequence)

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


def _cause(cause: int) -> str:
    try:
        return Cause(cause).name
    except ValueError:
        return f"CAUSE_{cause}"
