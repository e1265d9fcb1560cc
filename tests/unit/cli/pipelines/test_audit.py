"""`acquit pipeline audit`, over audits that ran without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acquit.cli.exits import Exit
from acquit.spark import audit as module
from acquit.spark.audit import AuditOptions, AuditSummary, audit
from acquit.spark.ledger.options import Verify
from tests.support.ledger_folder import LedgerFolder, grow
from tests.support.plain_session import PlainSession
from tests.support.shell import Shell


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[AuditOptions]:
    found: list[AuditOptions] = []

    def plainly(options: AuditOptions, *, on_progress: Any) -> AuditSummary:
        found.append(options)
        return audit(options, spark=PlainSession().as_spark(), on_progress=on_progress)

    monkeypatch.setattr(module, "audit", plainly)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> LedgerFolder:
    return grow(tmp_path / "data")


def test_what_was_found_and_then_nothing_new(
    shell: Shell, given: list[AuditOptions], folder: LedgerFolder, tmp_path: Path
) -> None:
    into = tmp_path / "into"
    ran = shell("pipeline", "audit", folder.path, "--into", into)
    assert (ran.code, ran.err) == (Exit.OK, "")
    lines = ran.out.splitlines()
    events = sum(len(folder.events(number)) for number in range(1, folder.newest + 1))
    assert lines[0].startswith(
        f"{events} events in {folder.newest} segments of 1 broker folded into {into} (entry 1), "
    )
    assert lines[1].startswith("messages: ")
    assert lines[2].endswith(" balanced")
    again = shell("pipeline", "audit", folder.path, "--into", into)
    assert again.code == Exit.OK
    assert again.out.startswith(f"nothing new since entry 1 in {into}; ")
    assert {options.verify for options in given} == {Verify.FULL}


def test_for_machines(shell: Shell, given: list[AuditOptions], folder: LedgerFolder, tmp_path: Path) -> None:
    where = ("--into", tmp_path / "into", "--quick", "--histories", 5, "--master", "local[3]", "--memory", 2048)
    ran = shell("pipeline", "audit", folder.path, *where, "--json")
    [document] = ran.documents
    assert (document["entry"], document["changed"], document["sound"]) == (1, True, True)
    assert document["segments"] == folder.newest
    assert json.loads(json.dumps(document)) == document
    [options] = given
    assert (options.verify, options.histories, options.master, options.memory_mb) == (Verify.QUICK, 5, "local[3]", 2048)


def test_what_does_not_add_up_ends_with_4(
    shell: Shell, given: list[AuditOptions], folder: LedgerFolder, tmp_path: Path
) -> None:
    folder.file(2).unlink()
    ran = shell("pipeline", "audit", folder.path, "--into", tmp_path / "into")
    assert ran.code == Exit.UNSOUND
    assert "gap: 1" in ran.out.splitlines()
    assert ran.err.startswith("not sound: ")
    again = shell("pipeline", "audit", folder.path, "--into", tmp_path / "into")
    assert again.code == Exit.UNSOUND
    assert again.out.splitlines()[-1] == "gap: 1, found by earlier runs"
    assert again.err == ran.err


def test_what_is_no_journal(shell: Shell, given: list[AuditOptions], folder: LedgerFolder, tmp_path: Path) -> None:
    ran = shell("pipeline", "audit", tmp_path / "nowhere", "--into", tmp_path / "into")
    assert ran.code == Exit.USAGE
    assert "nowhere' does not exist" in ran.err
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    ran = shell("pipeline", "audit", tmp_path / "table", "--into", tmp_path / "into")
    assert (ran.code, len(ran.err.splitlines())) == (Exit.USAGE, 1)
    assert "is not a data folder of acquit" in ran.err
    ran = shell("pipeline", "audit", folder.path, "--into", tmp_path / "table")
    assert (ran.code, len(ran.err.splitlines())) == (Exit.USAGE, 1)
    assert "expected the folder of an audit, or nothing yet; found other files, such as _delta_log" in ran.err
    assert [path.name for path in (tmp_path / "table").iterdir()] == ["_delta_log"]
    folder.flip(2, 4096 + 100)
    ran = shell("pipeline", "audit", folder.path, "--into", tmp_path / "into")
    assert ran.code == Exit.UNSOUND
    assert "segment 2: altered" in ran.err


def test_the_seals_alone(shell: Shell, folder: LedgerFolder, tmp_path: Path) -> None:
    ran = shell("pipeline", "audit", folder.path, "--seals")
    assert (ran.code, ran.err) == (Exit.OK, "")
    lines = ran.out.splitlines()
    assert lines[0].startswith(f"{folder.newest - 1} seals count ")
    assert lines[0].endswith("what came after the newest seal is in no balance yet")
    assert any(line.startswith("  queue-") and line.endswith(" live") for line in lines[1:])
    [document] = shell("pipeline", "audit", folder.path, "--seals", "--json").documents
    assert len(document["queues"]) == len(lines) - 1
    assert document["sound"] is True
    folder.file(2).unlink()
    ran = shell("pipeline", "audit", folder.path, "--seals")
    assert ran.code == Exit.UNSOUND
    assert "segment 2 of " in ran.err
    ran = shell("pipeline", "audit", folder.path)
    assert ran.code == Exit.USAGE
    assert "expected either --into DIR" in ran.err
