"""A live message and its copy."""

from __future__ import annotations

from acquit.ledger.events import Event, EventKind, fingerprint
from acquit.ledger.live import LiveMessage, Notes, copied, notes_of
from acquit.ledger.records import AttemptNote, Cause, Copied, EncodedRecord, Extra, Posting, RecordKind
from acquit.store.interface import Position, Record

MARK = fingerprint(b"payload")
NOTE = AttemptNote(1, 2, EventKind.MODIFIED, Cause.REJECTED, "condition", "text")


def record(encoded: EncodedRecord, position: int) -> Record:
    kind, event, meta, payload, _, flags = encoded
    return Record(Position(position), kind, 1, flags, event, meta, payload, len(payload), 0xCAFE)


def posting() -> Record:
    event = Event(7, 3, 500, MARK, 1, 9, EventKind.MOVED_IN, 1, 0, 0)
    return record(Posting(event, "orders", "id", 90, 40, 1, 6, ((Extra.GROUP_ID, b"g"),)).encode(b"payload"), 64)


def test_a_copy_has_the_body_the_fields_and_the_present_state() -> None:
    notes = Notes((NOTE,), ("link@container",), (b"map",), 9, b"", 1, 7)
    message = LiveMessage(7, 1, Position(64), MARK, 0x21, 2, 500, 90, 0, 6, 4, 0, notes)
    copy = copied(message, posting())
    assert (copy.original_position, copy.original_crc, copy.entered) == (64, 0xCAFE, EventKind.MOVED_IN)
    assert copy.payload == b"payload"
    event = copy.posting.event
    assert (event.kind, event.actor, event.attempt, event.flags, event.time_us) == (
        EventKind.COPIED_FORWARD,
        4,
        2,
        0x21,
        500,
    )
    assert (copy.posting.address, copy.posting.message_id, copy.posting.message_format) == ("orders", "id", 1)
    assert (copy.posting.due_at_ms, copy.posting.expires_at_ms) == (0, 90)
    assert copy.posting.extras[0] == (Extra.GROUP_ID, b"g")
    assert notes_of(copy.posting) == notes


def test_a_copy_of_a_copy_names_the_first_record_and_only_the_latest_state() -> None:
    message = LiveMessage(7, 1, Position(64), MARK, notes=Notes((NOTE,)))
    first = copied(message, posting())
    assert RecordKind(first.encode().kind) is RecordKind.COPIED
    message.position = Position(5000)
    message.attempt = 3
    message.notes = Notes((NOTE, NOTE._replace(time_us=2)))
    second = copied(message, record(first.encode(), 5000))
    assert isinstance(second, Copied)
    assert (second.original_position, second.original_crc, second.entered) == (64, 0xCAFE, EventKind.MOVED_IN)
    assert second.posting.event.attempt == 3
    assert notes_of(second.posting) == message.notes
    assert second.posting.extras.count((Extra.GROUP_ID, b"g")) == 1
    message.notes = message.notes._replace(left_counted=2)
    third = copied(message, record(second.encode(), 9000))
    message.notes = message.notes._replace(left_counted=3)
    fourth = copied(message, record(third.encode(), 12_000))
    assert (Extra.LEFT_BEHIND, bytes((3, 0, 0, 0, 0, 0, 0, 0))) in fourth.posting.extras
    assert notes_of(fourth.posting) == message.notes, "the latest only"


def test_no_notes() -> None:
    message = LiveMessage(7, 1, Position(64), MARK)
    assert notes_of(copied(message, posting()).posting) is None


def test_messages_are_equal_by_all_their_fields() -> None:
    one, other = LiveMessage(7, 1, Position(64), MARK), LiveMessage(7, 1, Position(64), MARK)
    assert one == other
    assert one != "a message"
    assert "sequence=7" in repr(one)
    for name in LiveMessage.__slots__:
        changed = LiveMessage(7, 1, Position(64), MARK)
        setattr(changed, name, Notes((NOTE,)) if name == "notes" else 99)
        assert changed != one, name
