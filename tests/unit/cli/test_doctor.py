from __future__ import annotations

import os
from pathlib import Path

import pytest

from acquit.cli.exits import Exit
from acquit.doctor import folder
from tests.support.shell import Shell

SUBJECTS = {"python", "event loop", "open files", "memory", "clock", "configuration", "file system", "disk", "sync"}


@pytest.fixture(autouse=True)
def on_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary folders may be in memory."""
    monkeypatch.setattr(folder, "mounts", lambda: "1 1 8:1 / / rw - ext4 /dev/sda1 rw")


def test_each_finding_is_a_line(shell: Shell, tmp_path: Path) -> None:
    ran = shell("doctor", "--data", tmp_path / "data")
    assert (ran.code, ran.err) == (Exit.OK, "")
    assert {line[:8].strip() for line in ran.out.splitlines()} <= {"ok", "warning"}
    assert {line[9:].partition(":")[0] for line in ran.out.splitlines()} >= SUBJECTS


def test_documents_for_machines(shell: Shell, tmp_path: Path) -> None:
    found = shell("doctor", "--data", tmp_path / "data", "--json").documents
    assert {one["subject"] for one in found} >= SUBJECTS
    assert all((one["advice"] == "") == (one["severity"] == "ok") for one in found)


def test_a_problem_is_a_failure(shell: Shell, tmp_path: Path) -> None:
    config = tmp_path / "acquit.toml"
    config.write_text("[limits]\nmemory = 5")
    ran = shell("doctor", "--data", tmp_path / "data", "--config", config)
    assert ran.code == Exit.FAILED
    (line,) = [line for line in ran.out.splitlines() if line.startswith("problem")]
    assert "limits.memory" in line and "would not start" in line


def test_a_folder_that_this_user_may_not_read_is_a_finding(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a backup by root leaves it. Tests may be root, who may read everything."""
    (data := tmp_path / "data").mkdir(0o700)
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **how: Path(path) != data and may(path, mode, **how))
    ran = shell("doctor", "--data", data)
    assert (ran.code, ran.err) == (Exit.FAILED, "")
    assert f"problem  folder: {data} cannot be written by this user; run as the broker's user, or chown it\n" in ran.out
    ran = shell("ledger", "head", "--data", data)
    assert (ran.code, ran.err) == (
        Exit.USAGE,
        f"acquit: {data} is not a data folder of acquit: it has no broker.json\n",
    ), "nor is it a mistake in the command line"
