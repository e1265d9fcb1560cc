"""The summary of a segment, as it grows."""

from __future__ import annotations

from acquit.ledger.digest import RunningDigest
from acquit.ledger.events import Event, EventKind, pack_event
from acquit.ledger.records import Counters, EncodedRecord, QueueDeleted
from acquit.ledger.totals import QueueTotals, RowFlag, Summary
from acquit.store.interface import Position, Record


def events(kind: EventKind, *sequences: int, queue: int = 1) -> bytes:
    return b"".join(pack_event(n, 0, 100 + n, 7, queue, 0, kind, 1, 0, 0) for n in sequences)


def record(encoded: EncodedRecord) -> Record:
    return Record(Position(0), encoded.kind, 1, encoded.flags, encoded.event, encoded.meta, b"", 0, 0)


def test_each_segment_has_its_own_and_all_together() -> None:
    digest = RunningDigest()
    digest.add(events(EventKind.POSTED, 1, 2, 3), [])
    first = Summary.decode(digest.seal())
    digest.add(events(EventKind.ACCEPTED, 1), [record(Counters(1, ((1, EventKind.POSTED, 50),)).encode())])
    second = Summary.decode(digest.seal())
    assert first.rows[1].here == first.rows[1].cumulated
    assert first.rows[1].here.counts == {EventKind.POSTED: 3}
    assert (first.events, first.first_us, first.last_us) == (3, 101, 103)
    assert second.rows[1].here.counts == {EventKind.ACCEPTED: 1}
    assert second.rows[1].here.volatile == {EventKind.POSTED: 50}
    assert second.rows[1].cumulated.counts == {EventKind.POSTED: 3, EventKind.ACCEPTED: 1}
    assert second.rows[1].cumulated.live == 2
    assert second.events == 1


def test_a_deleted_queue_is_flagged_once_and_then_counted_with_the_others() -> None:
    digest = RunningDigest()
    digest.add(events(EventKind.POSTED, 1) + events(EventKind.POSTED, 2, queue=2), [])
    digest.seal()
    digest.add(events(EventKind.PURGED, 1), [record(QueueDeleted(1, 1).encode())])
    second = Summary.decode(digest.seal())
    assert second.rows[1].flags == RowFlag.DELETED
    assert second.rows[1].cumulated.live == 0
    third = Summary.decode(digest.seal())
    assert set(third.rows) == {0, 2}
    assert third.rows[0].cumulated == second.rows[1].cumulated
    assert third.rows[0].here == QueueTotals()


def test_room_is_kept_for_what_the_seal_will_be() -> None:
    digest = RunningDigest()
    for number in range(1, 30):
        for kind in (EventKind.POSTED, EventKind.ACQUIRED, EventKind.ACCEPTED)[: number % 4]:
            digest.add(events(kind, number, queue=number), [])
        if number % 7 == 0:
            digest.add(b"", [record(Counters(1, ((number, EventKind.POSTED, 1),)).encode())])
        if number % 5 == 0:
            room = digest.seal_bytes_max
            assert room >= len(digest.seal())
    assert digest.seal_bytes_max >= len(digest.seal())


def test_totals_are_copies() -> None:
    digest = RunningDigest()
    digest.add(events(EventKind.POSTED, 1), [])
    digest.seal()
    totals = digest.totals()
    totals[1].counts[EventKind.POSTED] = 99
    assert digest.totals()[1].counts == {EventKind.POSTED: 1}


def test_an_event_counts_once_over_the_segments() -> None:
    digest = RunningDigest()
    one = Event(1, 0, 5, 7, 1, 0, EventKind.POSTED, 1, 0, 0)
    digest.add(pack_event(*one), [])
    before = digest.totals()
    digest.seal()
    assert digest.totals() == before
