from __future__ import annotations

from pathlib import Path

import pytest

from acquit.ledger.events import EventKind
from acquit.spark.audit import quick
from acquit.spark.audit.quick import balance_by_seals
from acquit.spark.audit.results import AuditResults
from acquit.spark.ledger.chain import Segment
from acquit.spark.ledger.options import Verify
from acquit.spark.ledger.segments import Events, read_events
from tests.support.audited import audited, until
from tests.support.ledger_folder import grow
from tests.unit.spark.audit.test_anomalies import ORDERS, Writer


def test_the_seals_say_what_an_audit_finds_and_no_event_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [grow(tmp_path / "a"), grow(tmp_path / "b", seed=11)]
    closed = [until(folder.path, tmp_path / str(n), folder.newest - 1) for n, folder in enumerate(folders)]
    audited(closed, tmp_path / "into")
    rows = AuditResults(tmp_path / "into").balance().to_pylist()
    monkeypatch.setattr(quick, "read_events", None)
    found = balance_by_seals(folder.path for folder in folders)
    assert found.sound
    assert found.segments == sum(folder.newest - 1 for folder in folders)
    live = {(row["broker"], row["queue_number"]): (row["queue"], row["live"]) for row in rows}
    assert found.queues
    for queue in found.queues:
        assert live[queue.broker, queue.queue_number] == (queue.queue, queue.totals.live)


def test_a_seal_that_does_not_follow_names_its_segment_which_is_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded: list[int] = []

    def read(segment: Segment, verify: Verify) -> Events:
        folded.append(segment.number)
        return read_events(segment, verify)

    monkeypatch.setattr(quick, "read_events", read)
    writer = Writer(tmp_path / "data")
    writer.life()
    writer.next()
    writer.post()
    writer._opened.fold.digest.cumulated[ORDERS].counts[EventKind.ACCEPTED] += 1
    writer.stop()
    found = balance_by_seals([tmp_path / "data"])
    [(_, segment, text)] = found.differences
    assert segment == 2
    assert text == "queue 1: 1 ACCEPTED by the seal before and its own counts, 2 by its seal"
    assert folded == [2], "and its own counts are right"
    assert not found.sound


def test_a_gap_is_told_and_what_retention_deleted_is_not(tmp_path: Path) -> None:
    folder = grow(tmp_path / "a", archive_bytes_max=1, left=6)
    assert balance_by_seals([folder.path]).sound
    whole = grow(tmp_path / "b", left=6)
    whole.file(4).unlink()
    found = balance_by_seals([whole.path])
    assert [number for _, number in found.missing] == [4]
    assert not found.sound
    assert not found.differences
