from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from acquit.errors import StoreCorrupt
from acquit.spark.audit.reconciled import (
    ANSWERS,
    MEANING,
    Against,
    Example,
    Finding,
    read_reconciliations,
    replace_reconciliation,
    write_reconciliation,
)
from tests.support.audit_tables import reconciliation

FOUND = reconciliation(
    {"missing": 1},
    made_at_us=5,
    examples=(Example(finding=Finding.MISSING, broker="b", identity="7", ledger="accepted", other=""),),
    findings="reconciliations/findings-1",
)


def test_what_is_kept_comes_back_newest_first(tmp_path: Path) -> None:
    assert read_reconciliations(tmp_path) == []
    later = replace(FOUND, place="/lake/other", made_at_us=6)
    for found in (FOUND, later):
        write_reconciliation(tmp_path, found)
    assert read_reconciliations(tmp_path) == [later, FOUND]


def test_the_same_comparison_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    write_reconciliation(tmp_path, FOUND)
    again = replace(FOUND, made_at_us=9, counts={}, examples=(), findings="")
    write_reconciliation(tmp_path, again)
    assert read_reconciliations(tmp_path) == [again]
    others = (
        replace(FOUND, queue="payments"),
        replace(FOUND, broker="b"),
        replace(FOUND, against=Against.RECEIPTS),
        replace(FOUND, place="/lake/b"),
    )
    assert len({each.name for each in (FOUND, *others)}) == 5


def test_rows_of_what_was_replaced_or_killed_go(tmp_path: Path) -> None:
    other = replace(FOUND, queue="payments", findings="reconciliations/findings-2")
    for found in (FOUND, other):
        write_reconciliation(tmp_path, found)
    places = {name: tmp_path / f"reconciliations/findings-{name}" for name in ("1", "2", "3", "killed", "running")}
    for name, place in places.items():
        place.mkdir()
        (place / "part-0.parquet").touch()
        age_s = 0 if name == "running" else 2 * 86_400
        os.utime(place, (time.time() - age_s,) * 2)
    replace_reconciliation(tmp_path, replace(FOUND, findings="reconciliations/findings-3"))
    assert {name for name, place in places.items() if place.exists()} == {"2", "3", "running"}


@pytest.mark.parametrize("finding", Finding)
def test_every_finding_but_an_answer_is_a_difference(finding: Finding) -> None:
    assert replace(FOUND, counts={finding: 1}).equal is (finding in ANSWERS)
    assert replace(FOUND, counts={finding: 0}).equal
    assert MEANING[finding]


def test_what_cannot_be_matched_is_neither_equal_nor_different() -> None:
    open_ = replace(FOUND, counts={Finding.UNMATCHED: 1, Finding.LATER: 3})
    assert not open_.equal and not open_.differs
    both = replace(FOUND, counts={Finding.UNMATCHED: 1, Finding.MISSING: 1})
    assert not both.equal and both.differs
    assert not replace(FOUND, counts={Finding.LATER: 1, Finding.MISSING: 0}).differs


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"against": "table", "counts": {"other": 1}}'])
def test_damage_is_said(tmp_path: Path, text: str) -> None:
    path = write_reconciliation(tmp_path, FOUND)
    path.write_text(text)
    with pytest.raises(StoreCorrupt, match="not a reconciliation"):
        read_reconciliations(tmp_path)
