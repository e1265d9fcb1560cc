"""What each record does to the state."""

from __future__ import annotations

import random

import pytest

from acquit.errors import StoreCorrupt, StoreError, StoreVersionUnsupported
from acquit.ledger.duplicates import LIMIT
from acquit.ledger.events import Event, EventFlag, EventKind, fingerprint, pack_event
from acquit.ledger.fold import _APPLIERS, ANOMALIES_MAX, ATTEMPTS, Fold, read_fold
from acquit.ledger.live import Notes
from acquit.ledger.live_messages import LiveMessages
from acquit.ledger.records import (
    Attempt,
    AttemptNote,
    Cause,
    Commit,
    Copied,
    Counters,
    EncodedRecord,
    Entry,
    Extra,
    Namespace,
    Posting,
    Queue,
    QueueDeleted,
    RecordKind,
    Rollback,
    Start,
    StateDeleted,
    Stop,
    Transaction,
    encode_attempts,
    encode_events,
)
from acquit.ledger.totals import QueueTotals, Summary, SummaryRow
from acquit.store.interface import SKIPPABLE, Position, Record, Replay
from acquit.store.reading import FolderReader, SegmentDeleted
from acquit.store.record import StoreKind
from acquit.store.recovery import RecoveryReport
from acquit.store.segment import DeletedSegment, encode_left
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.mini_broker import DATA, MiniBroker
from tests.support.raw_journal import run_of

MARK = fingerprint(b"payload")
DURABLE = int(EventFlag.DURABLE)


class Log:
    """Feeds a fold, record by record, each a batch of its own."""

    def __init__(self, first_segment: int = 1) -> None:
        self.fold = Fold()
        self.fold.segment(first_segment, Position(0))
        self.position = 64

    def record(self, encoded: EncodedRecord, version: int = 1, flags: int = 0) -> Position:
        position = Position(self.position)
        self.position += 1000
        record = Record(
            position,
            encoded.kind,
            version,
            encoded.flags | flags,
            encoded.event,
            encoded.meta,
            encoded.payload,
            len(encoded.payload),
            0,
        )
        self.fold.batch(iter([run_of(record)]), 0)
        return position

    def entry(self, entry: Entry) -> Position:
        return self.record(entry.encode())

    def post_plain(self, sequence: int) -> Position:
        """A posting of which a row says all."""
        event = Event(sequence, 0, 500 + sequence, MARK, 1, 0, EventKind.POSTED, DURABLE, 0, 0)
        return self.record(Posting(event, "address", None, 0, 0, 0, 6, ()).encode(b"payload"))

    def post(self, sequence: int, kind: EventKind = EventKind.POSTED, transaction: int = 0, queue: int = 1) -> Position:
        event = Event(sequence, 0, 500 + sequence, MARK, queue, 0, kind, DURABLE, 0, transaction)
        return self.record(Posting(event, "address", None, 90, 0, 0, 6, ()).encode(b"payload"))

    def events(self, *events: Event, kind: RecordKind = RecordKind.TRANSITIONS) -> Position:
        return self.record(encode_events(kind, b"".join(pack_event(*event) for event in events)))

    def event(self, kind: EventKind, sequence: int, **fields: int) -> Position:
        return self.events(event(kind, sequence, **fields))


def event(kind: EventKind, sequence: int, **fields: int) -> Event:
    whole = Event(sequence, 0, 900, MARK, 1, 0, kind, DURABLE, 0, 0)
    return whole._replace(**fields)


@pytest.fixture
def log() -> Log:
    return Log()


# -- the life of a message ---------------------------------------------------------------------------------------------
def test_every_kind_of_record_is_read_or_may_be_passed_over() -> None:
    """A broker that wrote another would not start again."""
    passed_over = {*RecordKind, *StoreKind} - {*_APPLIERS, RecordKind.POSTING}
    assert passed_over == {RecordKind.AUDIT, StoreKind.ERASED, StoreKind.TURNED}, "these are written as SKIPPABLE"


def test_posted(log: Log) -> None:
    position = log.post(7)
    message = log.fold.messages[7]
    assert (message.sequence, message.queue, message.position, message.fingerprint) == (7, 1, position, MARK)
    assert (message.posted_us, message.expires_at_ms, message.due_at_ms, message.priority) == (507, 90, 0, 6)
    assert (message.attempt, message.actor, message.notes, message.size_bytes) == (0, 0, None, 7)


def test_acquired_and_accepted(log: Log) -> None:
    log.post(7)
    log.event(EventKind.ACQUIRED, 7, actor=3)
    assert log.fold.messages[7].actor == 3
    assert log.fold.messages[7].flags & EventFlag.DISPATCHED
    log.event(EventKind.ACCEPTED, 7, actor=3)
    assert log.fold.messages == {}
    assert log.fold.totals()[1].counts == {EventKind.POSTED: 1, EventKind.ACQUIRED: 1, EventKind.ACCEPTED: 1}


def test_released_goes_back_with_its_count(log: Log) -> None:
    log.post(7)
    log.event(EventKind.ACQUIRED, 7, actor=3)
    log.event(EventKind.RELEASED, 7)
    message = log.fold.messages[7]
    assert (message.actor, message.attempt, message.notes) == (0, 0, Notes(returns=1))
    assert message.flags & EventFlag.DISPATCHED, "acquired once is acquired once"


def test_modified_counts_and_leaves_a_note(log: Log) -> None:
    log.post(7)
    log.event(EventKind.ACQUIRED, 7, actor=3)
    log.event(EventKind.MODIFIED, 7, attempt=1, actor=3, origin=12345, flags=DURABLE | EventFlag.CONNECTION_LOST)
    message = log.fold.messages[7]
    assert (message.attempt, message.due_at_ms) == (1, 12345)
    assert message.notes == Notes((AttemptNote(900, 3, EventKind.MODIFIED, Cause.CONNECTION_LOST, "", ""),))
    log.event(EventKind.DUE, 7)
    assert message.due_at_ms == 0


def test_what_came_back_uncounted_is_counted_apart(log: Log) -> None:
    log.post(7)
    for _ in range(3):
        log.event(EventKind.ACQUIRED, 7, actor=3)
        log.event(EventKind.RELEASED, 7)
    log.event(EventKind.MODIFIED, 7, actor=3)  # without delivery-failed
    log.event(EventKind.MODIFIED, 7, attempt=1, actor=3)
    notes = log.fold.messages[7].notes
    assert notes is not None
    assert (notes.returns, len(notes.attempts)) == (4, 2)


LEFT = DURABLE | EventFlag.LEFT_BEHIND


def test_what_a_link_left_behind_is_neither_a_failure_nor_a_release(log: Log) -> None:
    log.post(7)
    log.event(EventKind.RELEASED, 7, flags=LEFT)
    log.event(EventKind.MODIFIED, 7, actor=3, flags=LEFT)  # closed in order: no attempt
    log.event(EventKind.RELEASED, 7)
    log.event(EventKind.MODIFIED, 7, attempt=1, actor=3, flags=LEFT)  # the same, where the address counts it
    log.event(EventKind.MODIFIED, 7, attempt=2, actor=3, flags=LEFT | EventFlag.CONNECTION_LOST)
    log.event(EventKind.MODIFIED, 7, attempt=3, actor=3)
    message = log.fold.messages[7]
    notes = message.notes
    assert notes is not None
    assert (message.attempt, notes.left_counted) == (3, 2), "one failure"
    assert (notes.returns, notes.left_uncounted) == (3, 2), "one release"
    causes = [note.cause for note in notes.attempts]
    assert causes == [Cause.DETACHED, Cause.CONNECTION_LOST, Cause.MODIFIED]


def test_annotations_of_a_link_that_closed_in_order_are_kept_and_are_no_attempt(log: Log) -> None:
    log.post(7)
    log.event(EventKind.MODIFIED, 7, attempt=1, actor=3)
    modified = event(EventKind.MODIFIED, 7, attempt=1, actor=3, flags=LEFT)
    log.entry(Attempt(modified, Cause.DETACHED, "", "", "link@container", b"map"))
    notes = log.fold.messages[7].notes
    assert notes is not None
    assert [note.cause for note in notes.attempts] == [Cause.MODIFIED]
    assert (notes.excluded, notes.annotations) == (("link@container",), (b"map",))


def test_in_a_journal_that_does_not_tell_failures_apart_all_that_counts_is_one(log: Log) -> None:
    log.post(7)
    log.event(EventKind.MODIFIED, 7, attempt=1, actor=3)
    log.event(EventKind.MODIFIED, 7, attempt=2, actor=3, flags=DURABLE | EventFlag.CONNECTION_LOST)
    log.event(EventKind.RELEASED, 7, attempt=2, actor=3)
    message = log.fold.messages[7]
    assert message.notes is not None
    assert (message.attempt, message.notes.returns) == (2, 1)
    assert (message.notes.left_counted, message.notes.left_uncounted) == (0, 0)


def test_an_attempt_with_its_details(log: Log) -> None:
    log.post(7)
    modified = event(EventKind.MODIFIED, 7, attempt=1, actor=3)
    log.entry(Attempt(modified, Cause.MODIFIED, "app:busy", "later", "link@container", b"map"))
    log.entry(Attempt(modified._replace(attempt=2), Cause.REJECTED, "app:no", "", "link@container"))
    message = log.fold.messages[7]
    assert message.attempt == 2
    assert message.notes is not None
    assert [note.condition for note in message.notes.attempts] == ["app:busy", "app:no"]
    assert message.notes.excluded == ("link@container",)
    assert message.notes.annotations == (b"map",)


def test_a_terminus_that_is_destroyed_takes_its_undeliverable_here_along(log: Log) -> None:
    log.post(7)
    log.post(8)
    modified = event(EventKind.MODIFIED, 7, attempt=1, actor=3)
    log.entry(Attempt(modified, Cause.MODIFIED, "", "", "link@container"))
    log.entry(Attempt(modified._replace(sequence=8), Cause.MODIFIED, "", "", "other@container"))
    log.entry(StateDeleted(950, Namespace.TERMINUS, b"link@container"))
    one, other = (log.fold.messages[sequence].notes for sequence in (7, 8))
    assert one is not None
    assert other is not None
    assert (one.excluded, other.excluded) == ((), ("other@container",))


def test_only_the_latest_attempts_are_kept(log: Log) -> None:
    log.post(7)
    for attempt in range(1, 50):
        log.event(EventKind.MODIFIED, 7, attempt=attempt, time_us=attempt)
    message = log.fold.messages[7]
    assert message.attempt == 49
    assert message.notes is not None
    assert [note.time_us for note in message.notes.attempts] == list(range(30, 50))


def test_suspended_and_resumed(log: Log) -> None:
    log.post(7)
    log.event(EventKind.ACQUIRED, 7, actor=3)
    log.event(EventKind.SUSPENDED, 7)
    assert log.fold.messages[7].flags & EventFlag.SUSPENDED
    log.event(EventKind.RESUMED, 7, actor=4)
    assert not log.fold.messages[7].flags & EventFlag.SUSPENDED
    assert log.fold.messages[7].actor == 4


def test_a_dead_letter_and_its_original_in_one_batch(log: Log) -> None:
    log.post(7)
    log.post(8, EventKind.DEAD_LETTERED_IN, queue=2)
    log.entry(Attempt(event(EventKind.DEAD_LETTERED, 7, origin=8), Cause.REJECTED, "amqp:decode-error"))
    assert list(log.fold.messages) == [8]
    totals = log.fold.totals()
    assert (totals[1].live, totals[2].live) == (0, 1)
    assert log.fold.anomalies == []


def test_copies_share_the_body(log: Log) -> None:
    position = log.post(7)
    flags = DURABLE | EventFlag.COPY
    log.events(
        event(EventKind.POSTED, 8, origin=7, queue=2, flags=flags),
        event(EventKind.POSTED, 9, origin=7, queue=3, flags=flags),
        kind=RecordKind.COPIES,
    )
    log.event(EventKind.ACCEPTED, 7)
    assert [(m.sequence, m.queue, m.position, m.priority) for m in log.fold.messages.values()] == [
        (8, 2, position, 6),
        (9, 3, position, 6),
    ]


def copies_of_all_kinds() -> Fold:
    """What a fold says of copies of messages of which a row says all, and of others, that are such themselves or not,
    and some of which are there already."""
    log, flags = Log(), DURABLE | EventFlag.COPY
    for sequence in range(1, 6):
        log.post_plain(sequence)
    posting = Event(6, 0, 500, MARK, 1, 0, EventKind.POSTED, DURABLE, 0, 0)
    log.record(Posting(posting, "address", b"id", 90, 70_000, 80_000, 3, ()).encode(b"payload"))
    log.event(EventKind.RELEASED, 2)  # something special to say
    log.event(EventKind.ACQUIRED, 3, actor=7)
    log.event(EventKind.ACCEPTED, 4)
    log.events(
        *(event(EventKind.POSTED, 10 * origin, origin=origin, queue=2, flags=flags) for origin in range(1, 8)),
        event(EventKind.POSTED, 11, origin=1, queue=3, flags=flags, attempt=2),
        event(EventKind.POSTED, 12, origin=1, queue=3, flags=int(EventFlag.COPY), time_us=77),
        event(EventKind.POSTED, 2, origin=1, queue=3, flags=flags),
        event(EventKind.POSTED, 10, origin=3, queue=4, flags=flags),
        event(EventKind.POSTED, 13, origin=5, queue=3, flags=DURABLE),
        kind=RecordKind.COPIES,
    )
    return log.fold


@pytest.mark.pure
def test_copies_that_are_rows_are_what_they_are_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = copies_of_all_kinds()
    monkeypatch.setattr(LiveMessages, "add_copy", lambda *_: False)
    single = copies_of_all_kinds()
    assert dict(rows.messages) == dict(single.messages)
    assert set(rows.messages) == {1, 2, 3, 6, 10, 11, 12, 13, 20, 30, 50, 60}
    assert rows.anomalies == single.anomalies
    assert len(rows.anomalies) == 2, "of what is gone, or never was"
    assert rows.delayed_ids == single.delayed_ids
    assert set(rows.delayed_ids) == {6, 60}
    assert rows.totals() == single.totals()


@pytest.mark.pure
@pytest.mark.parametrize("flags", [DURABLE, DURABLE | EventFlag.ID_REUSED, 0])
def test_a_copy_that_is_a_row_stays_one(log: Log, flags: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Fold, "_enter")
    log.post_plain(7)
    log.events(event(EventKind.POSTED, 8, origin=7, queue=2, flags=flags | EventFlag.COPY), kind=RecordKind.COPIES)
    assert (len(log.fold.messages.rows), len(log.fold.messages.objects)) == (2, 0)


def test_a_copy_is_of_its_origin(log: Log) -> None:
    """And of no neighbour, also where it stands in another chunk of rows."""
    origins = {1: (5 << 32, 3), 2: (6 << 32, 9), 4_097: (7 << 32, 0)}
    positions = {}
    for sequence, (mark, priority) in origins.items():
        posted = event(EventKind.POSTED, sequence, fingerprint=mark)
        positions[sequence] = log.record(Posting(posted, "a", None, 0, 0, 0, priority, ()).encode(bytes(mark >> 32)))
    flags = DURABLE | EventFlag.COPY
    copies = {8_000 + origin: origin for origin in origins} | {100: 4_097}
    log.events(*(event(EventKind.POSTED, one, origin=origin, flags=flags) for one, origin in copies.items()))
    for one, origin in copies.items():
        copy = log.fold.messages[one]
        assert (copy.position, copy.fingerprint, copy.priority) == (positions[origin], *origins[origin])


@pytest.mark.parametrize("kind", [EventKind.UNROUTED, EventKind.PASSED, EventKind.RELEASED, EventKind.DUE])
def test_no_other_event_that_is_flagged_as_a_copy_enters(log: Log, kind: EventKind) -> None:
    log.post_plain(7)
    log.post_plain(9)
    log.event(kind, 8, origin=7, flags=DURABLE | EventFlag.COPY)
    assert sorted(log.fold.messages) == [7, 9]


@pytest.mark.parametrize(
    "kind", [EventKind.UNROUTED, EventKind.DUPLICATE, EventKind.ROLLED_BACK, EventKind.COPIED_FORWARD]
)
def test_events_that_change_no_message(log: Log, kind: EventKind) -> None:
    log.post(7)
    log.event(kind, 99)
    assert list(log.fold.messages) == [7]
    assert log.fold.anomalies == []
    assert log.fold.totals()[1].counts[kind] == 1


# -- transactions ------------------------------------------------------------------------------------------------------
def test_what_a_transaction_posts_enters_at_the_commit(log: Log) -> None:
    log.entry(Transaction(1, 5, bytes(16), "user"))
    position = log.post(7, EventKind.HELD, transaction=5)
    log.post(8)
    assert log.fold.messages[7].transaction == 5
    assert log.fold.totals()[1].live == 1
    entering = event(EventKind.POSTED, 20, origin=7, transaction=5)
    retiring = event(EventKind.ACCEPTED, 8, transaction=5)
    log.entry(Commit(2, 5, pack_event(*entering) + pack_event(*retiring)))
    assert list(log.fold.messages) == [20]
    message = log.fold.messages[20]
    assert (message.position, message.transaction, message.fingerprint) == (position, 0, MARK)
    assert log.fold.totals()[1].live == 1
    assert log.fold.held == {}
    assert log.fold.table.transactions == {}
    assert log.fold.anomalies == []


def test_what_a_transaction_posts_never_enters_at_a_rollback(log: Log) -> None:
    log.entry(Transaction(1, 5, bytes(16), "user"))
    log.post(7, EventKind.HELD, transaction=5)
    log.entry(Rollback(2, 5))
    assert log.fold.messages == {}
    assert log.fold.totals()[1].live == 0


def test_a_new_run_rolls_back_what_was_open(log: Log) -> None:
    log.entry(Transaction(1, 5, bytes(16), "user"))
    log.post(7, EventKind.HELD, transaction=5)
    log.post(8)
    log.entry(Start(3, 1, False, "acquit"))
    assert list(log.fold.messages) == [8]
    assert log.fold.table.transactions == {}


# -- runs --------------------------------------------------------------------------------------------------------------
def test_a_stop_is_clean_until_something_follows(log: Log) -> None:
    assert not log.fold.clean
    log.entry(Stop(1))
    assert log.fold.clean
    log.entry(Start(2, 77, True, "acquit"))
    assert not log.fold.clean
    assert log.fold.start is not None
    assert log.fold.start.run == 77


# -- what does not fit -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [EventKind.ACCEPTED, EventKind.ACQUIRED, EventKind.RELEASED, EventKind.MODIFIED])
def test_an_event_of_no_live_message_is_told(log: Log, kind: EventKind) -> None:
    position = log.event(kind, 99)
    assert log.fold.anomalies == [f"position {position}: {kind.name} of message 99, which is not live"]
    log.entry(Attempt(event(kind, 98), Cause.MODIFIED))
    assert log.fold.anomaly_count == 2


def test_posted_twice(log: Log) -> None:
    log.post(7)
    log.post(7)
    assert "message 7 is posted, which is live" in log.fold.anomalies[0]


def test_a_posting_that_does_not_enter(log: Log) -> None:
    log.post(7, EventKind.ACCEPTED)
    assert "posted by ACCEPTED" in log.fold.anomalies[0]


def test_copies_of_nothing(log: Log) -> None:
    log.events(event(EventKind.POSTED, 8, origin=7, flags=EventFlag.COPY), kind=RecordKind.COPIES)
    assert "message 8 enters as 7, which is not there" in log.fold.anomalies[0]
    assert log.fold.messages == {}


def test_transactions_that_are_not_open(log: Log) -> None:
    log.post(7, EventKind.HELD, transaction=5)
    log.entry(Commit(1, 6, b""))
    log.entry(Rollback(1, 7))
    assert [text.split(": ")[1] for text in log.fold.anomalies] == [
        "message 7 is held by transaction 5, which is not open",
        "transaction 6 commits, which is not open",
        "transaction 7 is rolled back, which is not open",
    ]


def test_a_commit_that_forgets_something(log: Log) -> None:
    log.entry(Transaction(1, 5, bytes(16), "user"))
    log.post(7, EventKind.HELD, transaction=5)
    log.entry(Commit(1, 5, b""))
    assert "without all that it held" in log.fold.anomalies[0]


def test_anomalies_are_bounded_and_counted(log: Log) -> None:
    for _ in range(ANOMALIES_MAX + 5):
        log.event(EventKind.ACCEPTED, 99)
    assert len(log.fold.anomalies) == ANOMALIES_MAX
    assert log.fold.anomaly_count == ANOMALIES_MAX + 5


# -- what cannot be read -----------------------------------------------------------------------------------------------
def test_a_record_of_the_future_is_refused_by_name(log: Log) -> None:
    with pytest.raises(StoreVersionUnsupported, match="record kind 99, version 1, at position 64: written"):
        log.record(EncodedRecord(99, bytes(48)))
    with pytest.raises(StoreVersionUnsupported, match="record kind 2, version 2"):
        log.record(Stop(1).encode(), version=2)


def test_a_record_of_the_future_that_may_be_passed_over(log: Log) -> None:
    log.record(EncodedRecord(99, bytes(48)), flags=SKIPPABLE)
    log.record(Stop(1).encode(), version=2, flags=SKIPPABLE)
    assert not log.fold.clean


def test_an_event_of_the_future(log: Log) -> None:
    log.post(7)
    for kind in (15, 31, 47, 255):
        with pytest.raises(StoreVersionUnsupported, match=f"event kind {kind}: written"):
            log.events(event(EventKind.POSTED, 7)._replace(kind=kind))
    with pytest.raises(StoreVersionUnsupported, match="event kind 14: written"):
        log.post(9, 14)  # type: ignore[arg-type]


def test_half_a_record(log: Log) -> None:
    posting = Posting(event(EventKind.POSTED, 9), "a", None, 0, 0, 0, 4, ()).encode(b"payload")
    with pytest.raises(ValueError, match="plain fields"):
        log.record(posting._replace(meta=b"short"))
    array = encode_events(RecordKind.TRANSITIONS, bytes(96))
    with pytest.raises(ValueError, match="event array of 95 bytes"):
        log.record(array._replace(meta=bytes(47)))


# -- beginning in the middle -------------------------------------------------------------------------------------------
def copied(sequence: int, **fields: int) -> Copied:
    copy = event(EventKind.COPIED_FORWARD, sequence, **fields)
    return Copied(Posting(copy, "address", None, 90, 5, 0, 6, ()), 10, 20, EventKind.POSTED, b"payload")


BASE = Summary(
    {
        1: SummaryRow(QueueTotals(), QueueTotals({EventKind.POSTED: 10, EventKind.ACCEPTED: 9})),
        4: SummaryRow(QueueTotals(), QueueTotals({EventKind.POSTED: 2, EventKind.PURGED: 2}), 1),
    }
)


def left(log: Log, number: int) -> Position:
    return log.record(EncodedRecord(StoreKind.LEFT, bytes(48), encode_left(number), BASE.encode()))


def test_what_is_not_known_is_passed_over_until_the_segment_before_has_left() -> None:
    log = Log(first_segment=8)
    assert log.fold.incomplete
    log.event(EventKind.ACCEPTED, 3)
    log.event(EventKind.ACQUIRED, 4, actor=1)
    log.entry(Commit(1, 5, pack_event(*event(EventKind.POSTED, 20, origin=7))))
    log.entry(Rollback(1, 6))
    position = log.entry(copied(4, actor=1, attempt=2))
    left(log, 7)
    assert not log.fold.incomplete
    assert log.fold.anomalies == []
    log.fold.settle()
    message = log.fold.messages[4]
    assert (message.position, message.actor, message.attempt, message.due_at_ms) == (position, 1, 2, 5)
    log.event(EventKind.ACCEPTED, 3)
    assert log.fold.anomaly_count == 1


def test_windows_of_duplicates_have_their_limits_once_the_segment_before_has_left() -> None:
    log = Log(first_segment=8)
    identified = (Extra.BODY_FINGERPRINT, bytes(8)), (Extra.DUPLICATE_ID, b"id")
    posted = Posting(event(EventKind.POSTED, 50), "address", None, 0, 0, 0, 4, identified)
    log.record(posted.encode(b"payload"))
    window = log.fold.table.windows.by_address["address"]
    assert (window.limit, len(window)) == (None, 1), "an earlier segment may have set it"
    left(log, 7)
    assert (window.limit, len(window)) == (LIMIT, 1)


def test_totals_begin_where_the_segment_before_ended() -> None:
    log = Log(first_segment=8)
    log.post(50)
    left(log, 7)
    totals = log.fold.totals()
    assert totals[1].counts == {EventKind.POSTED: 11, EventKind.ACCEPTED: 9}
    assert totals[0].counts == {EventKind.POSTED: 2, EventKind.PURGED: 2}


def test_a_queue_deleted_before_its_base_is_known() -> None:
    log = Log(first_segment=8)
    log.entry(Queue(1, 1, "name", "address"))
    log.entry(QueueDeleted(1, 1))
    log.fold.digest.end_segment()
    log.fold.segment(9, Position(0))
    left(log, 7)
    assert 1 not in log.fold.totals()
    assert log.fold.totals()[0].entered == 12


def test_other_segments_leaving_say_nothing_of_the_beginning() -> None:
    log = Log(first_segment=8)
    left(log, 8)
    left(log, 6)
    assert log.fold.left_through == 8
    with pytest.raises(StoreCorrupt, match="begins with segment 8, and nothing says what was live before"):
        log.fold.settle()


def test_a_copy_stands_for_its_original(log: Log) -> None:
    log.post(7)
    original = log.fold.messages[7]
    copy = Copied(
        Posting(event(EventKind.COPIED_FORWARD, 7, time_us=507), "address", None, 90, 0, 0, 6, ()),
        64,
        0,
        EventKind.POSTED,
        b"payload",
    )
    position = log.entry(copy)
    assert log.fold.messages[7].position == position
    original.position = position
    assert log.fold.messages[7] == original
    assert log.fold.anomalies == []
    assert log.fold.totals()[1].counts == {EventKind.POSTED: 1}, "copying forward is no event"


def test_a_copy_that_is_not_like_its_original_is_told(log: Log) -> None:
    log.post(7)
    log.entry(copied(7, attempt=3))
    assert "message 7 is copied forward as" in log.fold.anomalies[0]
    log.entry(copied(8))
    assert "message 8 is copied forward, which is not live" in log.fold.anomalies[1]
    assert 8 not in log.fold.messages


def test_a_copy_carries_the_notes() -> None:
    log = Log(first_segment=8)
    note = AttemptNote(1, 2, EventKind.MODIFIED, Cause.MODIFIED, "app:busy", "later")
    extras = (
        (Extra.ATTEMPTS, encode_attempts([note])),
        (Extra.EXCLUDED, b"link@container"),
        (Extra.ANNOTATIONS, b"map"),
    )
    posting = Posting(event(EventKind.COPIED_FORWARD, 7), "address", None, 0, 0, 0, 4, extras)
    log.entry(Copied(posting, 10, 20, EventKind.POSTED, b"payload"))
    assert log.fold.messages[7].notes == Notes((note,), ("link@container",), (b"map",))


# -- seals and volatile messages ---------------------------------------------------------------------------------------
def test_a_seal_that_says_what_was_counted(log: Log) -> None:
    log.post(7)
    other = Log()
    other.post(7)
    log.fold.sealed(other.fold.digest.seal())
    assert log.fold.anomalies == []


def test_a_seal_that_says_something_else(log: Log) -> None:
    log.post(7)
    other = Log()
    other.post(8)
    log.fold.sealed(other.fold.digest.seal())
    assert "the seal of segment 1 counts queue 1 as" in log.fold.anomalies[0]


def test_volatile_messages_are_counted_apart(log: Log) -> None:
    log.entry(Counters(1, ((1, EventKind.POSTED, 1000), (1, EventKind.CONSUMED, 990))))
    log.entry(Counters(2, ((1, EventKind.CONSUMED, 10),)))
    totals = log.fold.totals()[1]
    assert totals.volatile == {EventKind.POSTED: 1000, EventKind.CONSUMED: 1000}
    assert totals.counts == {}


def test_a_deletion_is_remembered(log: Log) -> None:
    gone = DeletedSegment(3, 100, bytes(32), 1, 2)
    log.record(EncodedRecord(StoreKind.DELETED, bytes(48), gone.encode()))
    assert log.fold.deleted == gone


# -- beside a running broker -------------------------------------------------------------------------------------------


class Deleted(FolderReader):
    """Folder in which retention deletes what is to be read, so many times."""

    times = 0
    error: KeyError = SegmentDeleted(1)

    def replay(self, replay: Replay, *, archive: bool = False) -> RecoveryReport:
        if self.times:
            self.times -= 1
            replay.segment(1, Position(0))
            raise self.error
        return super().replay(replay, archive=archive)


def test_a_folder_is_read_again_where_retention_deletes_what_is_to_be_read() -> None:
    disk = FaultyDisk()
    broker = MiniBroker(disk, random.Random(1))
    broker.post(broker.declare(), b"body")
    broker.sync()
    reader = Deleted(DATA, disk)
    reader.times = ATTEMPTS - 1
    assert len(read_fold(reader).messages) == 1
    reader.times = ATTEMPTS
    with pytest.raises(StoreError, match="retention deleted what was to be read, at each of 5 attempts"):
        read_fold(reader)


def test_a_mistake_of_the_fold_is_not_taken_for_a_deletion() -> None:
    disk = FaultyDisk()
    MiniBroker(disk, random.Random(1)).sync()
    reader = Deleted(DATA, disk)
    reader.times, reader.error = 1, KeyError("a mistake")
    with pytest.raises(KeyError, match="a mistake"):
        read_fold(reader)
