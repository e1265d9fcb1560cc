"""The broker's pen."""

from __future__ import annotations

from typing import Any

import pytest

from acquit.errors import StoreFull
from acquit.ledger.events import EVENT, Event, EventKind, fingerprint, pack_event, pack_events
from acquit.ledger.recorder import _MANY as MANY
from acquit.ledger.recorder import Recorder
from acquit.ledger.records import (
    Attempt,
    Cause,
    Posting,
    Queue,
    RecordKind,
    decode_events,
    encode_id,
    encode_posting_meta,
)
from acquit.ledger.table import StateTable
from acquit.store.interface import Position
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.raw_journal import Raw

META = encode_posting_meta(b"orders", encode_id("id"))


def recorded(raw: Written) -> list[tuple[int, list[int]]]:
    """Kinds of record on the disk, with the sequences of their events."""
    records = Raw(raw.disk.after_kill()).replay.records
    return [(record.kind, [event.sequence for event in decode_events(record)]) for record in records]


class Written(Raw):
    """A journal whose disk the test can get at."""

    def __init__(self) -> None:
        self.disk = FaultyDisk()
        super().__init__(self.disk)


@pytest.fixture
def raw() -> Written:
    return Written()


@pytest.fixture
def recorder(raw: Written) -> Recorder:
    return Recorder(raw.journal, StateTable())


def flush(recorder: Recorder) -> None:
    batch = recorder.take_batch()
    assert batch is not None
    batch.write_and_sync()
    recorder.journal.complete(batch)


def test_a_posting_is_where_it_says(raw: Written, recorder: Recorder) -> None:
    position, mark = recorder.posted(7, 1, b"payload", META, 500, actor=3, origin=2, kind=EventKind.MOVED_IN)
    assert mark == fingerprint(b"payload")
    flush(recorder)
    record = raw.journal.read(position)
    posting = Posting.decode(record)
    assert record.payload == b"payload"
    assert (posting.address, posting.message_id) == ("orders", "id")
    assert posting.event == (7, 2, 500, mark, 1, 3, EventKind.MOVED_IN, 1, 0, 0)


@pytest.mark.parametrize("count", [1, 3, MANY - 1, MANY, MANY + 5])
def test_postings_together_are_those_one_by_one(raw: Written, recorder: Recorder, count: int) -> None:
    payloads = [b"x" * (at % 3) for at in range(count)]
    metas = [META if at % 2 else encode_posting_meta(b"other", b"") for at in range(count)]
    single = Written()
    apart = Recorder(single.journal, StateTable())
    expected = [
        apart.posted(7 + at, 1, payload, meta, 500, actor=3, kind=EventKind.HELD, transaction=9)
        for at, (payload, meta) in enumerate(zip(payloads, metas, strict=True))
    ]
    positions, marks = recorder.posted_together(
        range(7, 7 + count), 1, payloads, metas, 500, 3, kind=EventKind.HELD, transaction=9
    )
    assert list(zip(positions, marks, strict=True)) == expected
    flush(apart)
    flush(recorder)
    for position, _ in expected:
        assert raw.journal.read(position) == single.journal.read(position)


@pytest.mark.pure
def test_few_postings_together_end_where_there_is_no_room(
    raw: Written, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = raw.journal.append

    def twice(*arguments: Any) -> Position:
        if len(noted) == 2:
            raise StoreFull("no room")
        noted.append(append(*arguments))
        return noted[-1]

    noted: list[Position] = []
    monkeypatch.setattr(raw.journal, "append", twice)
    positions, marks = recorder.posted_together(range(3), 1, [b"x", b"yy", b"z"], [META] * 3, 500, 0)
    assert positions == noted
    assert marks == [fingerprint(b"x"), fingerprint(b"yy")]


@pytest.mark.pure
def test_many_postings_together_end_where_there_is_no_room(
    raw: Written, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = raw.journal.append_together

    def first_two(
        kind: int, events: list[bytes], metas: list[bytes], payloads: list[bytes], crcs: list[int]
    ) -> list[Position]:
        return together(kind, events, metas[:2], payloads[:2], crcs)

    monkeypatch.setattr(raw.journal, "append_together", first_two)
    payloads = [b"x", b"yy", *[b"z"] * MANY]
    positions, marks = recorder.posted_together(range(len(payloads)), 1, payloads, [META] * len(payloads), 500, 0)
    assert marks == [fingerprint(b"x"), fingerprint(b"yy")]
    flush(recorder)
    assert [raw.journal.read(position).payload for position in positions] == [b"x", b"yy"]


def test_what_is_said_to_have_room_has_it() -> None:
    said = []
    for room_bytes in range(0, 1_200, 3):
        raw = Written()
        recorder = Recorder(raw.journal, StateTable())
        raw.journal._limit = raw.journal._next + room_bytes
        said.append(recorder.has_room([META] * 4, 8))
        positions, _ = recorder.posted_together(range(4), 1, [b"xx"] * 4, [META] * 4, 500, 0)
        assert len(positions) == 4 or not said[-1]
    assert said == sorted(said) and said[-1]


def test_transitions_of_a_turn_are_one_record_behind_the_postings(raw: Written, recorder: Recorder) -> None:
    for sequence in (1, 2, 3):
        recorder.posted(sequence, 1, b"x", META, 500)
        recorder.transition(EventKind.ACQUIRED, sequence, 1, 9, 500)
        recorder.transition(EventKind.ACCEPTED, sequence, 1, 9, 500)
    assert recorder.pending
    flush(recorder)
    assert not recorder.pending
    posting = int(RecordKind.POSTING)
    assert recorded(raw) == [
        (posting, [1]),
        (posting, [2]),
        (posting, [3]),
        (RecordKind.TRANSITIONS, [1, 1, 2, 2, 3, 3]),
    ]


def test_any_other_record_comes_after_the_transitions_before_it(raw: Written, recorder: Recorder) -> None:
    recorder.transition(EventKind.PURGED, 1, 1, 9, 500)
    recorder.append(Queue(1, 2, "name", "address"))
    recorder.transition(EventKind.PURGED, 2, 1, 9, 500)
    recorder.copies(pack_event(3, 1, 0, 9, 2, 0, EventKind.POSTED, 3, 0, 0))
    flush(recorder)
    assert recorded(raw) == [
        (RecordKind.TRANSITIONS, [1]),
        (RecordKind.QUEUE, []),
        (RecordKind.TRANSITIONS, [2]),
        (RecordKind.COPIES, [3]),
    ]


def test_a_record_of_transitions_is_bounded(raw: Written) -> None:
    recorder = Recorder(raw.journal, StateTable(), events_max=4)
    for sequence in range(1, 11):
        recorder.transition(EventKind.ACQUIRED, sequence, 1, 9, 500)
    assert recorder.pending_bytes > 10 * 48
    flush(recorder)
    assert [sequences for _, sequences in recorded(raw)] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]


@pytest.mark.pure
def test_a_record_of_many_transitions_is_bounded(raw: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(raw.journal, StateTable(), events_max=4)
    packed = pack_events(range(1, 11), [9] * 10, 500, 1, 0, EventKind.ACQUIRED, flags=1)

    def refuse(*_: object) -> None:
        raise StoreFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(raw.journal, "append", refuse)
        with pytest.raises(StoreFull):
            recorder.transitions(packed[: 7 * EVENT.size])
    recorder.transitions(packed[7 * EVENT.size :])
    flush(recorder)
    assert [sequences for _, sequences in recorded(raw)] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]


def test_the_count_stays_where_its_field_ends(raw: Written, recorder: Recorder) -> None:
    recorder.transition(EventKind.MODIFIED, 1, 1, 9, 500, attempt=70_000)
    event = Event(2, 0, 500, 9, 1, 0, EventKind.MODIFIED, 1, 70_000, 0)
    recorder.append(Attempt(event, Cause.MODIFIED))
    flush(recorder)
    records = Raw(raw.disk.after_kill()).replay.records
    assert [event.attempt for record in records for event in decode_events(record)] == [65535, 65535]


def test_the_table_is_kept_in_step(recorder: Recorder) -> None:
    entry = Queue(1, 2, "name", "address")
    position = recorder.append(entry)
    assert recorder.table.queues == {2: entry}
    assert recorder.table.stale(position) == []
    assert recorder.table.stale(position + 1) == [("queue", 2)]  # type: ignore[arg-type]


def test_nothing_is_flushed_while_a_batch_is_in_flight(recorder: Recorder) -> None:
    recorder.transition(EventKind.ACQUIRED, 1, 1, 9, 500)
    batch = recorder.take_batch()
    assert batch is not None
    recorder.transition(EventKind.ACQUIRED, 2, 1, 9, 500)
    assert recorder.take_batch() is None
    assert not recorder.journal.pending, "what comes yet in this turn shall still join that record"
    batch.write_and_sync()
    recorder.journal.complete(batch)
    flush(recorder)


def test_when_the_disk_is_full_only_what_is_essential_is_posted(raw: Written) -> None:
    raw.chores()
    raw.disk.capacity_bytes = raw.disk.used_bytes
    while not raw.journal.full:
        raw.put(bytes(900))
        raw.chores()
    recorder = Recorder(raw.journal, StateTable())
    with pytest.raises(StoreFull, match="no postings until there is room"):
        recorder.posted(1, 1, b"x", META, 500)
    assert recorder.posted_together([1], 1, [b"x"], [META], 500, 0) == ([], [])
    recorder.posted(2, 1, b"x", META, 500, essential=True)
    recorder.transition(EventKind.DEAD_LETTERED, 1, 1, 9, 500, origin=2)
    flush(recorder)


@pytest.mark.pure
def test_transitions_are_not_lost_when_there_is_no_room_for_them(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.transition(EventKind.ACCEPTED, 1, 1, 9, 500)

    def refuse(*_: object) -> None:
        raise StoreFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(recorder.journal, "append", refuse)
        with pytest.raises(StoreFull):
            recorder.take_batch()
    assert recorder.pending
    flush(recorder)


@pytest.mark.pure
def test_what_is_kept_without_room_keeps_its_place(
    raw: Written, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(recorder.journal, "append", refuse)
        recorder.transition(EventKind.ACQUIRED, 1, 1, 9, 500)
        attempt = Attempt(Event(1, 0, 500, 9, 1, 0, EventKind.MODIFIED, 1, 1, 0), Cause.LOCK_EXPIRED)
        with pytest.raises(StoreFull):
            recorder.keep(attempt)
        recorder.transition(EventKind.ACCEPTED, 1, 1, 9, 500)
    assert recorder.pending
    flush(recorder)
    kinds = [RecordKind(kind) for kind, _ in recorded(raw)][-3:]
    assert kinds == [RecordKind.TRANSITIONS, RecordKind.ATTEMPT, RecordKind.TRANSITIONS]


@pytest.mark.pure
def test_copies_that_found_no_room_stand_before_what_happens_to_them(
    raw: Written, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = raw.journal.append

    def no_room(*given: object) -> object:
        raise StoreFull("no room")

    recorder.posted(1, 1, b"payload", META, 500)
    recorder.transition(EventKind.ACQUIRED, 9, 1, 0, 500)
    monkeypatch.setattr(raw.journal, "append", no_room)
    with pytest.raises(StoreFull):
        recorder.copies(pack_event(2, 1, 500, 0, 2, 0, EventKind.POSTED, 3, 0, 0))
    recorder.transition(EventKind.PURGED, 2, 2, 0, 501)
    monkeypatch.setattr(raw.journal, "append", append)
    flush(recorder)
    assert recorded(raw) == [
        (RecordKind.POSTING, [1]),
        (RecordKind.TRANSITIONS, [9]),
        (RecordKind.COPIES, [2]),
        (RecordKind.TRANSITIONS, [2]),
    ]
