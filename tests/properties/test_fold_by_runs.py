"""Postings that a fold takes together against the same postings one by one: one batch, or each record its own."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.ledger.events import Event, EventKind, pack_event
from acquit.ledger.fold import Fold
from acquit.ledger.records import EncodedRecord, Posting, RecordKind, encode_events
from acquit.store.interface import Position, Record

steps = st.lists(
    st.tuples(
        st.sampled_from(["post", "post", "post", "post on", "retire", "acquire", "release"]),
        st.one_of(st.integers(1, 12), st.integers(4_090, 4_100)),
        st.integers(1, 2),
        st.sampled_from([0, 0, 0, 90]),
    ),
    max_size=40,
)
EVENTS = {"retire": EventKind.ACCEPTED, "acquire": EventKind.ACQUIRED, "release": EventKind.RELEASED}


def encoded(kind: str, sequence: int, queue: int, expires_at_ms: int) -> EncodedRecord:
    event = Event(sequence, 0, 500 + sequence, sequence << 32 | 7, queue, 0, EventKind.POSTED, 1, 0, 0)
    if kind.startswith("post"):
        return Posting(event, "address", None, expires_at_ms, 0, 0, sequence % 10, ()).encode(b"payload")
    return encode_events(RecordKind.TRANSITIONS, [pack_event(*event._replace(kind=EVENTS[kind], actor=queue))])


def records(story: list[tuple[str, int, int, int]]) -> list[Record]:
    found, last = [], 20_000
    for at, (kind, sequence, queue, expires_at_ms) in enumerate(story):
        if kind == "post on":  # in order, as a broker posts
            last = sequence = last + 1
        one = encoded(kind, sequence, queue, expires_at_ms)
        position = Position(1_000 * (at + 1))
        found.append(Record(position, one.kind, 1, one.flags, one.event, one.meta, one.payload, len(one.payload), 0))
    return found


@settings(max_examples=300)
@given(steps)
def test_a_batch_says_what_its_records_say_one_by_one(story: list[tuple[str, int, int, int]]) -> None:
    together, single = Fold(), Fold()
    for fold in (together, single):
        fold.segment(1, Position(0))
    together.batch(iter(records(story)), 1)
    for record in records(story):
        single.batch(iter([record]), 1)
    assert {one.sequence: one for one in together.messages.copies()} == dict(single.messages)
    assert together.anomalies == single.anomalies
    assert together.totals() == single.totals()
    assert (together.digest.here.first_us, together.digest.here.last_us) == (
        single.digest.here.first_us,
        single.digest.here.last_us,
    )
