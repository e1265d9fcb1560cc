from __future__ import annotations

from pathlib import Path

from acquit.ledger.totals import HASH_MODULUS, Summary
from acquit.spark.audit import seals
from acquit.spark.ledger.chain import plan_folder
from acquit.spark.ledger.options import Verify
from acquit.spark.ledger.segments import read_events
from tests.support.ledger_folder import grow


def test_totals_are_those_of_the_seals(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    segments = plan_folder(folder.path, seals=True)
    before: Summary | None = None
    for segment in segments[:-1]:
        assert segment.summary is not None
        found = seals.totals_of(read_events(segment, Verify.FULL))
        assert found == {queue: row.here for queue, row in segment.summary.rows.items() if row.here.counts} or any(
            row.here.volatile for row in segment.summary.rows.values()
        )
        assert seals.differences(found, segment.summary) == []
        assert seals.chain_differences(before, segment.summary) == []
        before = segment.summary


def test_what_differs_is_named(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    segments = plan_folder(folder.path, seals=True)
    events = read_events(segments[1], Verify.FULL)
    first, second = segments[0].summary, segments[1].summary
    assert first is not None
    assert second is not None
    queue = next(number for number, row in second.rows.items() if row.here.entered_sum)
    second.rows[queue].here.entered_sum = (second.rows[queue].here.entered_sum + 1) % HASH_MODULUS
    assert seals.differences(seals.totals_of(events), second) == [
        f"queue {queue}: its events and its seal disagree on which messages entered"
    ]
    second.rows[queue].cumulated.counts[1] += 2
    [count, entered] = seals.chain_differences(first, second)
    assert count.startswith(f"queue {queue}: ")
    assert "POSTED by the seal before and its own counts" in count
    assert "entered" in entered


def test_totals_as_json(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    found = seals.totals_of(read_events(plan_folder(folder.path)[0], Verify.FULL))
    assert seals.from_json(seals.to_json(found)) == found
