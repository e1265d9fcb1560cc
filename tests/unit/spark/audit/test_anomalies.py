"""Each anomaly is seen to be found: journals that say what cannot be, in one segment, over several, and over runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from acquit.errors import StoreCorrupt
from acquit.ledger.digest import RunningDigest
from acquit.ledger.events import Event, EventFlag, EventKind, fingerprint, pack_event
from acquit.ledger.records import Actor, Attempt, Cause, Queue, encode_id, encode_posting_meta
from acquit.ledger.recovery import OpenedJournal, close_journal, open_journal, write_now
from acquit.spark.audit import AuditSummary
from acquit.spark.audit.anomalies import Anomaly, told_of
from acquit.spark.audit.lives import LIFE
from acquit.spark.audit.results import AuditResults
from acquit.store.folder import SEGMENT
from acquit.store.options import JournalOptions
from tests.support.audited import all_of, audited, closed_of, open_of
from tests.support.ledger_folder import grow

OPTIONS = JournalOptions(segment_bytes=256 * 1024, reserve_segments=1, spare_segments=1)
K = EventKind
PAYLOAD = b"what the message says"
MARK = fingerprint(PAYLOAD)
ORDERS, OTHER = 1, 2
NOTE = "attempts-are-lower-bounds"


class Writer:
    """The real journal writer, made to write what no broker should."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.us = 1_700_000_000_000_000
        self.first = 0
        self._opened = self._open()
        self._opened.recorder.append(Queue(self.us, ORDERS, "orders", "orders"))
        self._opened.recorder.append(Queue(self.us, OTHER, "other", "other"))
        self._opened.recorder.append(Actor(self.us, 7, "container", "link", "user", "orders"))

    def _open(self) -> OpenedJournal:
        return open_journal(self.path, OPTIONS, clock_us=lambda: self.us)

    def take(self) -> int:
        self.us += 10
        return self._opened.sequences.take(self.us)

    def post(self, sequence: int = 0, queue: int = ORDERS) -> int:
        sequence = sequence or self.take()
        self.us += 10
        meta = encode_posting_meta(b"orders", encode_id(f"id-{sequence}"))
        self._opened.recorder.posted(sequence, queue, PAYLOAD, meta, self.us)
        return sequence

    def hold(self) -> None:
        """A posting in a transaction that does not end."""
        meta = encode_posting_meta(b"orders", encode_id("held"))
        self._opened.recorder.posted(self.take(), ORDERS, PAYLOAD, meta, self.us, kind=K.HELD, transaction=9)

    def event(self, kind: EventKind, sequence: int, *, queue: int = ORDERS, mark: int = MARK) -> None:
        self.us += 10
        self._opened.recorder.transition(kind, sequence, queue, mark, self.us, actor=7)

    def attempt(self, kind: EventKind, sequence: int, condition: str) -> None:
        self.event(kind, sequence)
        self._opened.recorder.flush()
        event = Event(sequence, 0, self.us, MARK, ORDERS, 7, kind, 1, 1, 0)
        self._opened.recorder.append(Attempt(event, Cause.REJECTED, condition, "why"))

    def life(self) -> int:
        sequence = self.post()
        self.event(K.ACQUIRED, sequence)
        self.event(K.ACCEPTED, sequence)
        return sequence

    def next(self, *, clean: bool = True, replay: bool = True) -> None:
        """Another segment: the broker is stopped, or killed, and starts again."""
        if clean:
            close_journal(self._opened.recorder, self.us)
        else:
            write_now(self._opened.recorder)
            self._opened.journal.close()
        if replay:
            self._opened = self._open()

    def stop(self) -> None:
        self.next(replay=False)

    def restart(self) -> None:
        """Start again, after `stop`, on a journal that recovery may find odd."""
        self._opened = self._open()


Mutation = Callable[[Writer, Callable[[], None]], int]


def _retired_twice(writer: Writer, cut: Callable[[], None]) -> int:
    sequence = writer.life()
    cut()
    writer.event(K.ACCEPTED, sequence)
    return sequence


def _retired_twice_over_three(writer: Writer, cut: Callable[[], None]) -> int:
    sequence = writer.post()
    cut()
    writer.event(K.ACCEPTED, sequence)
    cut()
    writer.event(K.EXPIRED, sequence)
    return sequence


def _posted_twice(writer: Writer, cut: Callable[[], None]) -> int:
    sequence = writer.life()
    cut()
    writer.post(sequence)
    return sequence


def _lived_twice(writer: Writer, cut: Callable[[], None]) -> int:
    sequence = writer.life()
    cut()
    writer.post(sequence)
    writer.event(K.ACCEPTED, sequence)
    return sequence


def _posted_twice_while_open(writer: Writer, cut: Callable[[], None]) -> int:
    sequence = writer.post()
    cut()
    writer.post(sequence)
    return sequence


def _without_posting(writer: Writer, cut: Callable[[], None]) -> int:
    sequence = writer.take()
    writer.life()
    cut()
    writer.event(K.ACCEPTED, sequence)
    return sequence


def _acquired_without_posting(writer: Writer, cut: Callable[[], None]) -> int:
    sequence = writer.take()
    writer.life()
    cut()
    writer.event(K.ACQUIRED, sequence)
    return sequence


def _after_retirement(writer: Writer, cut: Callable[[], None]) -> int:
    sequence = writer.life()
    cut()
    writer.event(K.ACQUIRED, sequence)
    return sequence


def _wrong_queue(writer: Writer, cut: Callable[[], None]) -> int:
    sequence = writer.post()
    cut()
    writer.event(K.ACCEPTED, sequence, queue=OTHER)
    return sequence


def _altered(writer: Writer, cut: Callable[[], None]) -> int:
    sequence = writer.post()
    cut()
    writer.event(K.ACCEPTED, sequence, mark=MARK + 1)
    return sequence


MUTATIONS: list[tuple[Mutation, str, bool]] = [
    (_retired_twice, "retired-twice", False),
    (_retired_twice_over_three, "retired-twice", False),
    (_posted_twice, "posted-twice", False),
    (_lived_twice, "posted-twice", True),
    (_posted_twice_while_open, "posted-twice", False),
    (_without_posting, "retired-without-posting", False),
    (_acquired_without_posting, "acquired-without-posting", True),
    (_after_retirement, "acquired-after-retirement", True),
    (_wrong_queue, "retired-without-posting", False),
    (_altered, "fingerprint-differs", False),
]
"""What is done, what it is called, and whether the balance holds all the same."""


@pytest.mark.parametrize("how", ["in one segment", "over segments", "over runs"])
@pytest.mark.parametrize(
    ("mutation", "kind", "balances"), MUTATIONS, ids=lambda value: getattr(value, "__name__", None)
)
def test_what_cannot_be_is_found(tmp_path: Path, mutation: Mutation, kind: str, balances: bool, how: str) -> None:
    writer = Writer(tmp_path / "data")
    counts: Counter[str] = Counter()
    summary: AuditSummary | None = None

    def audit_now() -> None:
        nonlocal summary
        summary = audited([tmp_path / "data"], tmp_path / "into")
        counts.update(summary.anomalies)

    def cut() -> None:
        if how != "in one segment":
            writer.stop()
            if how == "over runs":
                audit_now()
            writer.restart()

    for _ in range(3):
        writer.life()
    sequence = mutation(writer, cut)
    writer.stop()
    audit_now()
    # In one segment all is in order: the second retirement is seen to be one, too.
    more = {"retired-twice": 1} if (mutation, how) == (_lived_twice, "in one segment") else {}
    assert counts == {kind: 1} | more
    assert summary is not None
    assert not summary.sound
    # A second posting that is open counts in the seals as it counts here, unless it is seen to be the same message's.
    balances |= mutation is _posted_twice and how != "in one segment"
    assert (summary.balance.keys() == {"balanced"}) == balances, summary
    results = AuditResults(tmp_path / "into")
    [row] = [row for row in results.anomalies().to_pylist() if row["kind"] == kind]
    assert row["sequence"] == sequence
    assert row["queue"] == ("other" if mutation is _wrong_queue else "orders")
    nothing_new = audited([tmp_path / "data"], tmp_path / "into")
    assert (nothing_new.changed, nothing_new.sound) == (False, False)
    assert (nothing_new.anomalies, nothing_new.anomalies_before) == ({}, counts)
    steps = results.histories().to_pylist()
    assert {step["sequence"] for step in steps} == {sequence}
    assert steps[-1]["segment"] == row["segment"]
    assert row["time"] in {step["time"] for step in steps}


def test_sound_journals_have_none(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    for _ in range(3):
        writer.life()
        writer.next()
    writer.stop()
    summary = audited([tmp_path / "data"], tmp_path / "into")
    assert summary.sound
    assert summary.anomalies == {}
    assert summary.balance == {"balanced": 2} or summary.balance == {"balanced": 1}


def test_attempts_are_lower_bounds_after_an_unclean_stop(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    writer.life()
    writer.next(clean=False)
    writer.life()
    writer.next()
    writer.stop()
    summary = audited([tmp_path / "data"], tmp_path / "into")
    assert summary.anomalies == {NOTE: 1}
    assert summary.sound, "a note, not a fault"
    [row] = AuditResults(tmp_path / "into").anomalies().to_pylist()
    assert (row["kind"], row["segment"]) == (NOTE, 2)
    assert AuditResults(tmp_path / "into").coverage()["unclean_stops"].to_pylist() == [1]


@pytest.mark.parametrize("spread", [False, True])
def test_a_clock_that_went_back(tmp_path: Path, spread: bool) -> None:
    writer = Writer(tmp_path / "data")
    sequence = writer.post()
    writer.us -= 90_000_000
    if spread:
        writer.next()
    writer.event(K.ACQUIRED, sequence)
    writer.event(K.ACCEPTED, sequence)
    writer.stop()
    summary = audited([tmp_path / "data"], tmp_path / "into")
    assert summary.anomalies == {"backward-clock": 1}
    assert summary.sound
    [row] = AuditResults(tmp_path / "into").anomalies().to_pylist()
    assert row["segment"] == 1 + spread
    assert "went back by 90.0" in row["detail"]
    assert "1 messages" in row["detail"]
    [_, minute] = sorted(AuditResults(tmp_path / "into").minutes().to_pylist(), key=lambda row: row["minute"])
    assert minute["latency"] == [], "no duration is made of it"


@pytest.mark.parametrize("how", ["posted", "held"])
def test_outcomes_that_gather_while_others_post_are_no_clock_that_went_back(tmp_path: Path, how: str) -> None:
    """On a slow disk a batch has minutes of both: all that was posted, and then what became of messages."""
    writer = Writer(tmp_path / "data")
    sequences = [writer.post() for _ in range(3)]
    for sequence in sequences:
        writer.us += 60_000_000
        writer.event(K.ACQUIRED, sequence)
        writer.event(K.ACCEPTED, sequence)
        writer.us += 60_000_000
        if how == "held":
            writer.hold()
        else:
            writer.post()
    writer.next()
    writer.life()
    writer.stop()
    assert audited([tmp_path / "data"], tmp_path / "into").anomalies == {}


@pytest.mark.parametrize("what", ["what entered", "what became of it", "over segments"])
def test_a_clock_that_went_back_between_two_messages(tmp_path: Path, what: str) -> None:
    writer = Writer(tmp_path / "data")
    first = writer.post()
    if what == "what became of it":
        second = writer.post()
        writer.us += 200_000_000
        writer.event(K.ACCEPTED, first)
        writer.us -= 90_000_000
        writer.event(K.ACCEPTED, second)
    elif what == "over segments":
        second = writer.post()
        writer.us += 200_000_000
        writer.event(K.ACCEPTED, first)
        writer.next()
        writer.us -= 90_000_000
        writer.event(K.ACCEPTED, second)
    else:
        writer.us -= 90_000_000
        writer.post()
    writer.stop()
    summary = audited([tmp_path / "data"], tmp_path / "into")
    assert summary.anomalies == {"backward-clock": 1}
    [row] = AuditResults(tmp_path / "into").anomalies().to_pylist()
    assert "went back by 90.0" in row["detail"] or "went back by 89.9" in row["detail"]
    assert "messages" not in row["detail"]


def test_events_before_the_posting(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    sequence = writer.take()
    writer.event(K.ACQUIRED, sequence)
    writer._opened.recorder.flush()
    writer.post(sequence)
    writer.stop()
    assert audited([tmp_path / "data"], tmp_path / "into").anomalies == {"event-before-posting": 1}


def test_a_seal_that_does_not_say_what_its_events_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add = RunningDigest.add
    writer = Writer(tmp_path / "data")
    writer.life()
    writer.next()
    monkeypatch.setattr(RunningDigest, "add", lambda self, events, others: add(self, events[48:], others))
    writer.post()
    writer.stop()
    monkeypatch.undo()
    summary = audited([tmp_path / "data"], tmp_path / "into")
    assert not summary.sound
    rows = AuditResults(tmp_path / "into").anomalies().to_pylist()
    assert {row["kind"] for row in rows} == {"unbalanced-segment"}
    assert {row["segment"] for row in rows} == {2}
    assert "queue 1: 1 POSTED by its events, 0 by its seal" in {row["detail"] for row in rows}
    assert summary.differing[0].startswith("orders: ")


def test_a_seal_that_does_not_follow_from_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path / "data")
    writer.life()
    writer.next()
    writer.post()
    writer._opened.fold.digest.cumulated[ORDERS].counts[K.ACCEPTED] += 1
    writer.stop()
    summary = audited([tmp_path / "data"], tmp_path / "into")
    [row] = AuditResults(tmp_path / "into").anomalies().to_pylist()
    assert (row["kind"], row["segment"]) == ("unbalanced-segment", 2)
    assert row["detail"] == "queue 1: 1 ACCEPTED by the seal before and its own counts, 2 by its seal"
    assert not summary.sound


def test_deleted_by_retention_is_no_gap(tmp_path: Path) -> None:
    folder = grow(tmp_path / "data", archive_bytes_max=1, left=6)
    summary = audited([folder.path], tmp_path / "into")
    rows = AuditResults(tmp_path / "into").anomalies().to_pylist()
    [deleted] = [row for row in rows if row["kind"] == "deleted-by-retention"]
    assert summary.sound, summary
    assert "gap" not in summary.anomalies
    assert summary.balance.keys() <= {"balanced", "incomplete"}, summary
    [broker] = AuditResults(tmp_path / "into").coverage().to_pylist()
    assert broker["deleted"] == list(range(1, broker["first_segment"]))
    assert deleted["segment"] == 1
    assert broker["missing"] == []
    unseen = [row for row in closed_of(tmp_path / "into") if row["posted_at"] is None]
    assert unseen, "retired here, posted in what is gone"


def test_what_was_audited_before_it_was_deleted_is_no_hole(tmp_path: Path) -> None:
    whole = grow(tmp_path / "whole", left=6)
    audited([whole.path], tmp_path / "into")
    before = all_of(tmp_path / "into")
    for number in (1, 2, 3):
        whole.file(number).unlink()
    assert not audited([whole.path], tmp_path / "into").changed
    assert all_of(tmp_path / "into") == before


def test_what_earlier_runs_found_stands(tmp_path: Path) -> None:
    """A segment was missing: neither that it comes back nor what is folded later makes the audit sound."""
    writer = Writer(tmp_path / "data")
    writer.life()
    for _ in range(2):
        writer.next()
        writer.life()
    writer.stop()
    missing = tmp_path / "data/journal/00000000000000000002.seg"
    missing.rename(tmp_path / "elsewhere")
    found = {"gap": 1}
    first = audited([tmp_path / "data"], tmp_path / "into")
    (tmp_path / "elsewhere").rename(missing)
    assert (first.anomalies, first.anomalies_before, first.sound) == (found, {}, False)
    for _ in range(2):
        writer.restart()
        writer.life()
        writer.stop()
        later = audited([tmp_path / "data"], tmp_path / "into")
        assert (later.changed, later.sound) == (True, False)
        assert (later.anomalies, later.anomalies_before) == ({}, found)


def test_notes_of_earlier_runs_are_no_faults(tmp_path: Path) -> None:
    folder = grow(tmp_path / "data", archive_bytes_max=1, left=6)
    notes = audited([folder.path], tmp_path / "into").anomalies
    again = audited([folder.path], tmp_path / "into")
    assert notes and (again.anomalies_before, again.sound) == (notes, True)


@pytest.mark.parametrize("number", [1, 4])
def test_a_gap(tmp_path: Path, number: int) -> None:
    folder = grow(tmp_path / "data", left=6)
    folder.file(number).unlink()
    summary = audited([folder.path], tmp_path / "into")
    assert summary.anomalies == {"gap": 1}
    assert not summary.sound
    assert summary.balance.keys() <= {"balanced", "incomplete"}, summary.differing
    [broker] = AuditResults(tmp_path / "into").coverage().to_pylist()
    assert broker["missing"] == [number]
    [row] = AuditResults(tmp_path / "into").anomalies().to_pylist()
    assert (row["kind"], row["segment"]) == ("gap", number)


@pytest.mark.parametrize("seed", [9, 10, 11])
def test_every_queue_has_a_name_beside_what_retention_deleted(tmp_path: Path, seed: int) -> None:
    folder = grow(tmp_path / "data", seed=seed, left=8, archive_bytes_max=20_000)
    audited([folder.path], tmp_path / "into")
    results = AuditResults(tmp_path / "into")
    assert all(broker["deleted"] for broker in results.coverage().to_pylist())
    assert None not in results.balance()["queue"].to_pylist() + results.minutes()["queue"].to_pylist()


def test_an_altered_segment_fails_the_run_and_the_one_before_stands(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    writer.life()
    writer.next()
    audited([tmp_path / "data"], tmp_path / "into")
    before = all_of(tmp_path / "into")
    writer.life()
    writer.next()
    writer.stop()
    [path] = (tmp_path / "data").rglob(f"*02{SEGMENT}")
    content = bytearray(path.read_bytes())
    content[4096 + 200] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match="segment 2: altered"):
        audited([tmp_path / "data"], tmp_path / "into")
    assert all_of(tmp_path / "into") == before


def test_dead_letters_by_reason(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    for condition in ("app:no-stock", "app:no-stock", ""):
        sequence = writer.post()
        event = K.DEAD_LETTERED
        if condition:
            writer.us += 10
            told = Event(sequence, 0, writer.us, MARK, ORDERS, 7, event, 1, 1, 0)
            writer._opened.recorder.append(Attempt(told, Cause.REJECTED, condition, "why"))
        else:
            writer.event(event, sequence)
    # As older brokers wrote one whose last consumer was lost.
    lost = Event(writer.post(), 0, writer.us, MARK, ORDERS, 7, K.DEAD_LETTERED, EventFlag.CONNECTION_LOST, 1, 0)
    writer._opened.recorder.transitions(pack_event(*lost))
    writer.stop()
    audited([tmp_path / "data"], tmp_path / "into")
    found = {
        (row["queue"], row["cause"], row["condition"]): row["count"]
        for row in AuditResults(tmp_path / "into").dead_letters().to_pylist()
    }
    assert found == {
        ("orders", "REJECTED", "app:no-stock"): 2,
        ("orders", "CONNECTION_LOST", None): 1,
        ("orders", None, None): 1,
    }


def test_the_bound_on_rows_is_no_bound_on_counts(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    for _ in range(20):
        writer.event(K.ACCEPTED, writer.life())
    writer.stop()
    summary = audited([tmp_path / "data"], tmp_path / "into", anomalies=5, histories=2)
    assert summary.anomalies == {"retired-twice": 20}
    results = AuditResults(tmp_path / "into")
    assert results.anomalies().num_rows == 5
    assert len(set(results.histories()["sequence"].to_pylist())) == 2
    assert open_of(tmp_path / "into") == []


def test_rows_are_bounded_and_counts_are_not() -> None:
    lives = np.zeros(3, LIFE)
    rows, counts = told_of([(lives, Anomaly.ALTERED, lambda life: "so", "last_us")], 2)
    assert (len(rows), counts) == (2, {Anomaly.ALTERED: 3})
    assert told_of([(lives[:0], Anomaly.ALTERED, lambda life: "so", "last_us")], 2) == ([], {})
