"""Files for spark-submit."""

from __future__ import annotations

import runpy
import sys

import pytest

from acquit.cli.exits import Exit
from acquit.cli.jobs import job_file
from acquit.cli.pipelines import JOBS, PIPELINES
from tests.support.shell import Shell


@pytest.mark.parametrize("name", JOBS)
def test_each_is_the_command(shell: Shell, name: str, monkeypatch: pytest.MonkeyPatch, capsys: object) -> None:
    told = shell("pipeline", "--job", name)
    assert (told.code, told.out) == (Exit.OK, f"{job_file(name)}\n")
    assert name in PIPELINES
    monkeypatch.setattr(sys, "argv", [str(job_file(name)), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(job_file(name)), run_name="__main__")
    assert ended.value.code == 0
    assert f"acquit pipeline {name}" in capsys.readouterr().out  # type: ignore[attr-defined]


def test_there_is_one_for_each() -> None:
    files = {path.stem for path in job_file("ingest").parent.glob("*.py")} - {"__init__"}
    assert files == set(JOBS)
