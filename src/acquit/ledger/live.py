"""A live message: as the fold holds it, as the checkpoint copies it forward, and what events do to it.

The functions at the end are how the fold changes a message. A broker that keeps its messages in this form and changes
them by the same functions holds, by construction, what the fold of its journal will say.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from acquit.ledger.events import ATTEMPT_MAX, CONNECTION_LOST, DISPATCHED, LEFT_BEHIND, SUSPENDED, Event, EventKind
from acquit.ledger.fields import FieldReader
from acquit.ledger.records import (
    Attempt,
    AttemptNote,
    Cause,
    Copied,
    CopiedWith,
    Extra,
    Posting,
    RecordKind,
    decode_attempts,
    encode_attempts,
)
from acquit.store.interface import Position, Record

ATTEMPTS_KEPT_MAX: Final = 20
"""Latest attempts that are remembered of a message that is tried again and again; the count goes on."""


RETURNS_MAX: Final = 0xFFFF_FFFF
"""Highest count of uncounted returns, where it stays."""

_LEFT: Final = Struct("<II")


class Notes(NamedTuple):
    """Notes that few messages have: the story of their attempts."""

    attempts: tuple[AttemptNote, ...] = ()
    excluded: tuple[str, ...] = ()
    """Termini that said undeliverable-here."""
    annotations: tuple[bytes, ...] = ()
    """AMQP maps that *modified* outcomes want merged into the message annotations, oldest first."""
    returns: int = 0
    """Times that it came back uncounted: released, modified without delivery-failed, left behind in order."""
    last_value: bytes = b""
    """Value that a last-value queue goes by, as the posting's extra LAST_VALUE_KEY says it."""
    left_counted: int = 0
    """Times in the delivery-count that are no failures: a link ended over the message."""
    left_uncounted: int = 0
    """Times in `returns` that no consumer said."""


class LiveMessage:
    """Message in one queue, without its body. Slotted and mutable: there may be a million of them."""

    __slots__ = (
        "actor",
        "attempt",
        "due_at_ms",
        "expires_at_ms",
        "fingerprint",
        "flags",
        "notes",
        "position",
        "posted_us",
        "priority",
        "queue",
        "sequence",
        "transaction",
    )

    def __init__(
        self,
        sequence: int,
        queue: int,
        position: Position,
        fingerprint: int,
        flags: int = 1,
        attempt: int = 0,
        posted_us: int = 0,
        expires_at_ms: int = 0,
        due_at_ms: int = 0,
        priority: int = 4,
        actor: int = 0,
        transaction: int = 0,
        notes: Notes | None = None,
    ) -> None:
        self.sequence = sequence
        self.queue = queue
        self.position = position
        """Position of the record that holds its payload: POSTING, or COPIED once it was copied forward."""
        self.fingerprint = fingerprint
        """Size and CRC-32 of the payload, as `events.fingerprint` gives it."""
        self.flags = flags
        """EventFlag: DURABLE, COPY, ID_REUSED, DISPATCHED (acquired at least once), SUSPENDED."""
        self.attempt = attempt
        """delivery-count"""
        self.posted_us = posted_us
        self.expires_at_ms = expires_at_ms
        """0: never."""
        self.due_at_ms = due_at_ms
        """Milliseconds since the epoch before which it is not offered; 0: at once."""
        self.priority = priority
        self.actor = actor
        """Actor that has it acquired; 0: nobody."""
        self.transaction = transaction
        """Held by this transaction, not in the queue yet; 0: in the queue."""
        self.notes = notes

    @property
    def size_bytes(self) -> int:
        """Size of the payload."""
        return self.fingerprint >> 32

    def _fields(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, LiveMessage) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LiveMessage({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


def _acquired(message: LiveMessage, event: Event) -> None:
    message.actor = event.actor
    message.flags |= DISPATCHED


def _released(message: LiveMessage, event: Event) -> None:
    message.actor = 0
    message.flags &= ~SUSPENDED
    message.due_at_ms = event.origin
    left = 1 if event.flags & LEFT_BEHIND else 0
    if event.attempt == message.attempt:
        notes = message.notes or Notes()
        message.notes = notes._replace(returns=notes.returns + 1, left_uncounted=notes.left_uncounted + left)
    elif left:
        notes = message.notes or Notes()
        message.notes = notes._replace(left_counted=notes.left_counted + 1)
    message.attempt = event.attempt


def _modified(message: LiveMessage, event: Event) -> None:
    """Change the message as a release does, and note the attempt, if it was one."""
    noted = is_attempt(message, event)
    _released(message, event)
    if not noted:
        return
    if event.flags & CONNECTION_LOST:
        cause = Cause.CONNECTION_LOST
    elif event.flags & LEFT_BEHIND:
        cause = Cause.DETACHED
    else:
        cause = Cause.MODIFIED
    _note(message, AttemptNote(event.time_us, event.actor, event.kind, cause, "", ""))


def _due(message: LiveMessage, event: Event) -> None:
    message.due_at_ms = 0


def _suspended(message: LiveMessage, event: Event) -> None:
    message.flags |= SUSPENDED


def _resumed(message: LiveMessage, event: Event) -> None:
    message.flags &= ~SUSPENDED
    message.actor = event.actor


CHANGES: Final[dict[int, Callable[[LiveMessage, Event], None]]] = {
    EventKind.ACQUIRED: _acquired,
    EventKind.RELEASED: _released,
    EventKind.MODIFIED: _modified,
    EventKind.DUE: _due,
    EventKind.SUSPENDED: _suspended,
    EventKind.RESUMED: _resumed,
}
"""Changes to a message by the events that neither enter nor retire it."""


def is_attempt(message: LiveMessage, event: Event) -> bool:
    """Return True if a MODIFIED event, which has not changed the message yet, belongs into the history of its attempts:
    not if a link was closed over a message that nobody may have seen."""
    return not event.flags & LEFT_BEHIND or event.attempt > message.attempt


def _note(message: LiveMessage, note: AttemptNote) -> None:
    notes = message.notes or Notes()
    message.notes = notes._replace(attempts=(*notes.attempts, note)[-ATTEMPTS_KEPT_MAX:])


def note_attempt(message: LiveMessage, attempt: Attempt, *, noted: bool = True) -> None:
    """An ATTEMPT record, whose event has changed the message already: keep what it says beyond that. `noted`: what
    `is_attempt` said before."""
    event = attempt.event
    notes = message.notes or Notes()
    attempts = notes.attempts
    if noted:
        # A MODIFIED event has left a bare note: this one says more.
        before = attempts[:-1] if event.kind == EventKind.MODIFIED else attempts
        note = AttemptNote(
            event.time_us, event.actor, event.kind, attempt.cause, attempt.condition, attempt.description
        )
        attempts = (*before, note)[-ATTEMPTS_KEPT_MAX:]
    excluded, annotations = notes.excluded, notes.annotations
    if attempt.excluded and attempt.excluded not in excluded:
        excluded = (*excluded, attempt.excluded)
    if attempt.annotations:
        annotations = (*annotations, attempt.annotations)
    message.notes = notes._replace(attempts=attempts, excluded=excluded, annotations=annotations)


def let_see_again(message: LiveMessage, terminus: str) -> None:
    """The terminus that said undeliverable-here was destroyed."""
    notes = message.notes
    if notes is not None:
        left = notes._replace(excluded=tuple(one for one in notes.excluded if one != terminus))
        message.notes = left if any(left) else None


def enters_with(notes: Notes | None) -> Notes | None:
    """Return the notes of a message that enters with the payload of another, whose notes these are."""
    return Notes(last_value=notes.last_value) if notes is not None and notes.last_value else None


_NOTE_EXTRAS: Final = frozenset({Extra.ATTEMPTS, Extra.EXCLUDED, Extra.ANNOTATIONS, Extra.RETURNS, Extra.LEFT_BEHIND})


def notes_of(posting: Posting) -> Notes | None:
    """The notes that a copied posting carries."""
    attempts: tuple[AttemptNote, ...] = ()
    excluded: tuple[str, ...] = ()
    annotations: tuple[bytes, ...] = ()
    returns = 0
    last_value = b""
    left = 0, 0
    for tag, value in posting.extras:
        if tag == Extra.ATTEMPTS:
            attempts += decode_attempts(value)
        elif tag == Extra.EXCLUDED:
            excluded += (value.decode(),)
        elif tag == Extra.ANNOTATIONS:
            annotations += (value,)
        elif tag == Extra.RETURNS:
            returns = int.from_bytes(value, "little")
        elif tag == Extra.LAST_VALUE_KEY:
            last_value = value
        elif tag == Extra.LEFT_BEHIND:
            counted, uncounted = FieldReader(value).struct(_LEFT)
            left = counted, uncounted
    notes = Notes(attempts, excluded, annotations, returns, last_value, *left)
    return notes if any(notes) else None


def copied_with(message: LiveMessage, base: LiveMessage) -> CopiedWith | None:
    """The record that copies a message forward beside `base`, which was copied from the same record; None where it has
    something of its own to tell."""
    if message.notes is not None or message.due_at_ms or base.due_at_ms:
        return None
    return CopiedWith(_forwarded(message)._replace(origin=base.sequence))


def _forwarded(message: LiveMessage) -> Event:
    return Event(
        message.sequence,
        0,
        message.posted_us,
        message.fingerprint,
        message.queue,
        message.actor,
        EventKind.COPIED_FORWARD,
        message.flags,
        min(message.attempt, ATTEMPT_MAX),
        message.transaction,
    )


def copied(message: LiveMessage, record: Record) -> Copied:
    """The record that copies a live message forward; `record` is the one at its position, POSTING or COPIED."""
    original = Copied.decode(record) if record.kind == RecordKind.COPIED else None
    posting = original.posting if original is not None else Posting.decode(record)
    notes = message.notes or Notes()
    extras = [extra for extra in posting.extras if extra[0] not in _NOTE_EXTRAS]
    # One extra holds 64 KiB at most, so each note is its own.
    extras += [(Extra.ATTEMPTS, encode_attempts([note])) for note in notes.attempts]
    extras += [(Extra.EXCLUDED, terminus.encode()) for terminus in notes.excluded]
    extras += [(Extra.ANNOTATIONS, annotations) for annotations in notes.annotations]
    if notes.returns:
        extras.append((Extra.RETURNS, min(notes.returns, RETURNS_MAX).to_bytes(4, "little")))
    if notes.left_counted or notes.left_uncounted:
        left = min(notes.left_counted, RETURNS_MAX), min(notes.left_uncounted, RETURNS_MAX)
        extras.append((Extra.LEFT_BEHIND, _LEFT.pack(*left)))
    event = _forwarded(message)
    return Copied(
        Posting(
            event,
            posting.address,
            posting.message_id,
            message.expires_at_ms,
            message.due_at_ms,
            posting.message_format,
            message.priority,
            tuple(extras),
        ),
        original.original_position if original is not None else record.position,
        original.original_crc if original is not None else record.crc,
        original.entered if original is not None else posting.event.kind,
        record.payload,
    )
