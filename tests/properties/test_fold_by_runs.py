"""Postings that a fold takes together against the same postings one by one, whatever stands beside them in a batch."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any, Final, NamedTuple
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.errors import StoreVersionUnsupported
from acquit.ledger import duplicates
from acquit.ledger.duplicates import remember
from acquit.ledger.events import Event, EventKind, pack_event, unpack_event
from acquit.ledger.fold import Fold
from acquit.ledger.live import LiveMessage, notes_of
from acquit.ledger.records import (
    POSTING_META,
    EncodedRecord,
    Extra,
    Posting,
    RecordKind,
    encode_events,
    extra_tags,
)
from acquit.store.interface import ARRAY, ERASED, SKIPPABLE, Position, Record, RecordRun
from acquit.store.record import (
    BATCH_HEAD_BYTES,
    BatchHead,
    decode_batch_head,
    encode_batch_head,
    encode_record,
    records_of,
    runs,
    walk,
)
from tests.support.examples import share

EVENTS: Final = {"retire": EventKind.ACCEPTED, "acquire": EventKind.ACQUIRED, "release": EventKind.RELEASED}
EXTRAS: Final[tuple[tuple[tuple[int, bytes], ...], ...]] = (
    (),
    ((Extra.GROUP_ID, b"group"),),
    ((Extra.DUPLICATE_ID, b"\x03id"), (Extra.GROUP_ID, b"")),
    ((Extra.DUPLICATE_ID, b"\x03id"), (Extra.BODY_FINGERPRINT, bytes(8))),
    ((Extra.GROUP_ID, b"group"), (Extra.LAST_VALUE_KEY, b"key")),
    ((Extra.LAST_VALUE_KEY, b"k"),),
    ((Extra.DUPLICATE_ID, b"\x03other"), (Extra.BODY_FINGERPRINT, b"\1" * 8)),
    ((Extra.DUPLICATE_ID, b""), (Extra.BODY_FINGERPRINT, bytes(8))),
    ((Extra.BODY_FINGERPRINT, bytes(8)), (Extra.DUPLICATE_ID, b"\x03id")),
    ((Extra.DUPLICATE_ID, b"\x03id"), (Extra.BODY_FINGERPRINT, bytes(8)), (Extra.GROUP_ID, b"group")),
    ((Extra.DUPLICATE_ID, b"\x03" * 300), (Extra.BODY_FINGERPRINT, bytes(8))),
    ((Extra.DUPLICATE_ID, b"\x03id"), (Extra.BODY_FINGERPRINT, bytes(8)), (Extra.LAST_VALUE_KEY, b"k")),
    ((Extra.DUPLICATE_ID, b"\x03id"), (Extra.GROUP_ID, b"8 octets")),
    ((Extra.DUPLICATE_ID, b"\x03id"), (Extra.LAST_VALUE_KEY, b"8 octets")),
    ((Extra.GROUP_ID, b"group"), (Extra.BODY_FINGERPRINT, bytes(8))),
    ((Extra.BODY_FINGERPRINT, bytes(8)),),
    ((Extra.DUPLICATE_ID, b"\x03" * 12),),
)
WITH_ID: Final = 3
"""Index of extras that are an id to detect duplicates by, and the fingerprint of the body."""
PLAIN: Final = {"extras": 0, "cut": 0, "expires_at_ms": 0, "due_at_ms": 0, "attempt": 0, "kind": EventKind.POSTED}


class Step(NamedTuple):
    """Some records that are alike, but for their messages."""

    name: str
    sequence: int
    count: int
    queue: int
    payload_bytes: int
    id_bytes: int
    unusual: dict[str, int]
    """What is not as in `PLAIN`."""
    flags: int
    version: int


unusual = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"extras": st.integers(0, len(EXTRAS) - 1)}),
    st.fixed_dictionaries(
        {},
        optional={
            "extras": st.integers(0, len(EXTRAS) - 1),
            "cut": st.integers(0, 6),
            "expires_at_ms": st.just(90),
            "due_at_ms": st.just(80),
            "attempt": st.integers(1, 2),
            "kind": st.sampled_from([EventKind.HELD, EventKind.DEAD_LETTERED_IN, EventKind.ACQUIRED, 200]),
        },
    ),
)
steps = st.builds(
    Step,
    st.sampled_from(["post", "post on", "post on", "post on", "retire", "acquire", "release"]),
    st.one_of(st.integers(1, 12), st.integers(4_090, 4_100)),
    st.integers(1, 5),
    st.integers(1, 2),
    st.sampled_from([0, 0, 7, 8, 300]),
    st.sampled_from([0, 4, 5]),
    unusual,
    st.sampled_from([0, 0, 0, ERASED, ARRAY, SKIPPABLE]),
    st.sampled_from([1] * 30 + [2]),
)


class OneByOne(Fold):
    """The fold as it takes each posting alone, of its record."""

    def _postings(self, run: RecordRun) -> None:
        for record in records_of(run):
            self.post(record, unpack_event(record.event))

    def post(self, record: Record, event: Event) -> None:
        expires_at_ms, due_at_ms, _, address_bytes, id_bytes, priority = POSTING_META.unpack_from(record.meta)
        id_at = POSTING_META.size + address_bytes
        notes = None
        if not extra_tags(record.meta, id_at + id_bytes, len(record.meta)) <= {Extra.DUPLICATE_ID, Extra.GROUP_ID}:
            posting = Posting.decode(record)
            notes = notes_of(posting)
            if event.kind == EventKind.POSTED:
                remember(self.table.windows, posting, record.position)
        sequence, position = event.sequence, record.position
        if sequence in self.messages:
            self._anomaly(position, f"message {sequence} is posted, which is live")
        plain = sequence, event.queue, position, event.fingerprint, event.flags, event.attempt, event.time_us
        message = LiveMessage(*plain, expires_at_ms, due_at_ms, priority, notes=notes)
        if event.kind != EventKind.POSTED:
            self._posted_as(event.kind, message, event.transaction)
        self.messages[sequence] = message
        self.digest.here.add_events(record.event)
        if due_at_ms:
            self._keep_id(sequence, record.meta[id_at : id_at + id_bytes])


def encoded(step: Step, sequence: int) -> EncodedRecord:
    said: dict[str, Any] = PLAIN | step.unusual
    fingerprint = step.payload_bytes << 32 | sequence
    event = Event(sequence, 0, 500 + sequence, fingerprint, step.queue, 0, said["kind"], 1, said["attempt"], 3)
    if not step.name.startswith("post"):
        return encode_events(RecordKind.TRANSITIONS, pack_event(*event._replace(kind=EVENTS[step.name], actor=2)))
    id_ = "i" * step.id_bytes or None
    times = said["expires_at_ms"], said["due_at_ms"]
    address = "address" if step.queue == 1 else "anöther one"
    posting = Posting(event, address, id_, *times, 0, sequence % 10, EXTRAS[said["extras"]])
    record = posting.encode(bytes(step.payload_bytes))
    # What is cut off may be of the last extra, or of the id.
    return record._replace(meta=record.meta[: len(record.meta) - said["cut"]])


def batch_of(story: list[Step]) -> tuple[BatchHead, bytes]:
    records, last = [], 20_000
    for step in story:
        for sequence in range(step.sequence, step.sequence + step.count):
            if step.name == "post on":  # in order, as a broker posts
                last = sequence = last + 1
            one = encoded(step, sequence)
            flags = one.flags | (step.flags if step.name.startswith("post") else 0)
            crc, head = encode_record(
                one.kind, one.event, one.meta, one.payload, crc32(one.payload), flags, step.version
            )
            records.append(crc + head + one.payload)
    body = b"".join(records)
    head = encode_batch_head(
        length=BATCH_HEAD_BYTES + len(body),
        records=len(records),
        epoch=1,
        position=8_192,
        synced_end=0,
        time_us=1,
        body_bytes=len(body),
        body_crc=crc32(body),
    )
    decoded = decode_batch_head(head)
    assert decoded is not None
    return decoded, head + body


def told_at(fold: Fold) -> dict[str, list[int]]:
    """Where the oldest record stands that tells of each block of ids, by address: by that they are written again."""
    windows = fold.table.windows.by_address
    return {address: [block.position for block in window._blocks] for address, window in windows.items()}


def folded(fold: Fold, head: BatchHead, batch: bytes) -> tuple[Fold, str]:
    """The fold after a batch, and what it raised."""
    fold.segment(1, Position(0))
    try:
        fold.batch(runs(head, batch), head.time_us)
    except (ValueError, StoreVersionUnsupported) as error:
        return fold, f"{type(error).__name__}: {error}"
    return fold, ""


@settings(max_examples=share(500))
@given(st.lists(steps, max_size=25))
def test_a_batch_says_what_its_records_say_one_by_one(story: list[Step]) -> None:
    together, refused = folded(Fold(), *batch_of(story))
    single, refused_single = folded(OneByOne(), *batch_of(story))
    assert refused == refused_single
    if refused:
        return
    assert {one.sequence: one for one in together.messages.copies()} == {
        one.sequence: one for one in single.messages.copies()
    }
    for name in ("anomalies", "anomaly_count", "held", "delayed_ids"):
        assert getattr(together, name) == getattr(single, name)
    assert together.table.windows == single.table.windows
    assert told_at(together) == told_at(single)
    assert together.totals() == single.totals()
    for name in ("first_us", "last_us", "events"):
        assert getattr(together.digest.here, name) == getattr(single.digest.here, name)


@settings(max_examples=share(100))
@given(st.lists(steps, max_size=10))
def test_runs_are_the_records_of_a_batch(story: list[Step]) -> None:
    head, batch = batch_of(story)
    found = list(runs(head, batch))
    records = list(chain.from_iterable(map(records_of, found)))
    assert records == list(walk(head, batch))
    assert [position for run in found for position in run.positions] == [record.position for record in records]
    assert sum(map(len, (record.meta + record.payload for record in records))) == head.body_bytes - 64 * len(records)
    kinds = [(run.kind, run.version, run.flags) for run in found]
    assert all(one != following for one, following in pairwise(kinds)), "as long as they can be"
    assert [kind for run, kind in zip(found, kinds, strict=True) for _ in run.events] == [
        (record.kind, record.version, record.flags) for record in records
    ]
    for run in found:
        assert [*records_of(run, range(1, len(run.events), 2))] == [*records_of(run)][1::2]


def test_rows_are_made_of_plain_postings_alone() -> None:
    """What is special stands as an object; all others are rows, also those between."""
    story = [
        Step("post on", 0, 4, 1, 7, 4, {}, 0, 1),
        Step("post on", 0, 1, 1, 9, 4, {"expires_at_ms": 90}, 0, 1),
        Step("post on", 0, 3, 1, 9, 5, {"extras": 1}, 0, 1),
        Step("post on", 0, 1, 1, 9, 5, {"extras": WITH_ID}, 0, 1),
    ]
    fold, _ = folded(Fold(), *batch_of(story))
    assert [*fold.messages.rows.sequences()] == [20_001, 20_002, 20_003, 20_004, 20_006, 20_007, 20_008, 20_009]
    assert [*fold.messages.objects] == [20_005]


@pytest.mark.pure
def test_ids_of_what_is_taken_together_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside others, at two addresses, and of one posting that is special. Each block is of one id."""
    monkeypatch.setattr(duplicates, "BLOCK_IDS", 1)
    story = [
        Step("post on", 0, 1, queue, 9, 4, {"extras": extras} | special, 0, 1)
        for queue in (1, 2)
        for extras, special in ((WITH_ID, {}), (0, {}), (6, {}), (10, {"expires_at_ms": 90}), (1, {}), (4, {}))
    ]
    (together, _), (single, _) = folded(Fold(), *batch_of(story)), folded(OneByOne(), *batch_of(story))
    assert together.table.windows == single.table.windows
    assert told_at(together) == told_at(single)
    assert together.table.windows.ids == 6
    assert len(together.messages.rows) == 8


@pytest.mark.pure
def test_postings_with_ids_are_not_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Fold, "_posting")
    fold, _ = folded(Fold(), *batch_of([Step("post on", 0, 3, 1, 9, 4, {"extras": WITH_ID}, 0, 1)]))
    assert (len(fold.messages.rows), fold.table.windows.ids) == (3, 1)
