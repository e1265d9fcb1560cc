"""One entry for each run, or none: runs that are killed at every step, and runs that race."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from acquit.errors import ConfigurationError, PipelineFailed, StoreCorrupt
from acquit.spark.audit.log import AuditLog
from acquit.spark.audit.results import AuditResults
from tests.support.audited import all_of, audited, until
from tests.support.ledger_folder import LedgerFolder, grow
from tests.support.plain_session import Frame, PlainSession

ROOT = Path(__file__).resolve().parents[4]
KILLED = """
import os, signal, sys
from pathlib import Path
from tests.support.audited import audited
left = int(sys.argv[3])
real = os.fsync
def fsync(descriptor):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    real(descriptor)
os.fsync = fsync
audited([Path(sys.argv[1])], Path(sys.argv[2]))
"""


class Killed(BaseException):
    """Not an Exception: nothing may handle it."""


class Steps:
    """Every change of names and every sync is a step; the one with this number is the process's last."""

    def __init__(self, patch: pytest.MonkeyPatch, last: int) -> None:
        self.last = last
        self.taken = 0
        for module, name in ((os, "fsync"), (os, "link"), (os, "unlink"), (os, "rmdir"), (os, "mkdir")):
            patch.setattr(module, name, self._counted(getattr(module, name)))

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **options: Any) -> Any:
            self.taken += 1
            if self.taken > self.last:
                raise Killed
            return real(*args, **options)

        return step


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> LedgerFolder:
    return grow(tmp_path_factory.mktemp("ledger") / "data")


def test_a_run_that_is_killed_at_any_step(folder: LedgerFolder, tmp_path: Path) -> None:
    first = until(folder.path, tmp_path / "first", 2)
    base = tmp_path / "base"
    audited([first], base, buckets=2)
    before = all_of(base)
    shutil.copytree(base, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        steps = Steps(patch, sys.maxsize)
        audited([folder.path], tmp_path / "whole")
    after = all_of(tmp_path / "whole")
    assert before["closed"] != after["closed"]
    stood: list[bool] = []
    # Files that are written one like the other need not all be tried.
    for last in sorted({*range(4), *range(4, steps.taken, 7), *range(steps.taken - 12, steps.taken)}):
        into = shutil.copytree(base, tmp_path / "into")
        with pytest.MonkeyPatch.context() as patch:
            Steps(patch, last)
            with pytest.raises(Killed):
                audited([folder.path], into)
        found = all_of(into)
        assert found in (before, after), last
        stood.append(found == before)
        assert audited([folder.path], into).changed == stood[-1]
        assert all_of(into) == after
        runs = {entry.run for entry in AuditLog(into).entries()}
        assert {f"runs/{path.name}" for path in (into / "runs").iterdir()} == runs, "orphans are gone"
        shutil.rmtree(into)
    assert stood == sorted(stood, reverse=True)
    assert stood[0]
    assert not stood[-1], "killed behind its entry in the log, it is committed"


@pytest.mark.parametrize("step", [3, 12])
def test_a_process_that_is_killed(folder: LedgerFolder, tmp_path: Path, step: int) -> None:
    into = tmp_path / "into"
    audited([until(folder.path, tmp_path / "first", 2)], into)
    before = all_of(into)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-c", KILLED, str(folder.path), str(into), str(step)]
    assert subprocess.run(command, env=environment, check=False, capture_output=True).returncode == -9
    assert all_of(into) == before
    assert len(list((into / "runs").iterdir())) == 2
    audited([folder.path], into)
    assert len(list((into / "runs").iterdir())) == 2


def test_of_two_runs_one_is_committed(folder: LedgerFolder, tmp_path: Path) -> None:
    into = tmp_path / "into"

    class Slow(PlainSession):
        """Another run begins after this one, and ends before it."""

        def setJobGroup(self, group: str, description: str) -> None:  # noqa: N802
            audited([folder.path], into)

    with pytest.raises(
        PipelineFailed, match=r"another run of the audit in .* was committed while this one ran \(entry 1\)"
    ):
        audited([folder.path], into, Slow())
    whole = audited([folder.path], tmp_path / "whole")
    assert whole.changed
    assert all_of(into) == all_of(tmp_path / "whole")
    assert not audited([folder.path], into).changed


def test_a_run_that_others_overtake_twice(folder: LedgerFolder, tmp_path: Path) -> None:
    """What it goes on from is deleted then, which is no damage."""
    into = tmp_path / "into"
    parts = [until(folder.path, tmp_path / str(number), number) for number in (2, 3, 4)]
    audited([parts[0]], into)

    class Slow(PlainSession):
        def setJobGroup(self, group: str, description: str) -> None:  # noqa: N802
            for part in parts[1:]:
                audited([part], into)

    with pytest.raises(PipelineFailed, match=r"another run of the audit in .* was committed while this one ran"):
        audited([folder.path], into, Slow())
    assert AuditLog(into).numbers() == [1, 2, 3]


def test_an_interrupt_is_one_although_spark_fails_on_the_way_out(folder: LedgerFolder, tmp_path: Path) -> None:
    class Interrupted(PlainSession):
        def range(self, start: int, end: int, step: int, partitions: int) -> Frame:
            try:
                raise KeyboardInterrupt
            finally:
                raise PySparkException("[SPARK_JOB_CANCELLED]")

    with pytest.raises(KeyboardInterrupt):
        audited([folder.path], tmp_path / "into", Interrupted())
    assert audited([folder.path], tmp_path / "into").changed


def test_a_link_that_was_made_and_reported_as_there(
    folder: LedgerFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def link(source: Any, target: Any) -> None:
        real(source, target)
        raise FileExistsError(target)

    monkeypatch.setattr(os, "link", link)
    assert audited([folder.path], tmp_path / "into").changed
    assert AuditLog(tmp_path / "into").numbers() == [1]


def test_what_a_run_replaced_is_there_for_readers_until_the_next(folder: LedgerFolder, tmp_path: Path) -> None:
    into = tmp_path / "into"
    audited([until(folder.path, tmp_path / "first", 2)], into)
    reader = AuditResults(into)
    paths = {*reader.open_files(), *(into / path for path in reader.entry.state.values())}
    audited([until(folder.path, tmp_path / "second", 3)], into)
    assert all(path.exists() for path in paths)
    assert reader.balance().num_rows
    audited([folder.path], into)
    replaced = {into / path for path in AuditLog(into).read(2).superseded}
    assert replaced
    assert not any(path.exists() for path in replaced)


def test_what_a_killed_run_did_not_delete_the_next_one_does(folder: LedgerFolder, tmp_path: Path) -> None:
    into = tmp_path / "into"
    for number in (2, 3):
        audited([until(folder.path, tmp_path / str(number), number)], into)

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "unlink", killed)
        with pytest.raises(Killed):
            audited([folder.path], into)
    replaced = [into / path for path in AuditLog(into).read(2).superseded]
    assert AuditLog(into).numbers() == [1, 2, 3]
    assert all(path.exists() for path in replaced) and replaced
    assert not audited([folder.path], into).changed
    assert not any(path.exists() for path in replaced)


def test_entries_that_are_damaged_missing_or_of_a_later_version(folder: LedgerFolder, tmp_path: Path) -> None:
    into = tmp_path / "into"
    with pytest.raises(ConfigurationError, match="has no audit: its log has no entry"):
        AuditResults(into)
    for number in (2, 3):
        audited([until(folder.path, tmp_path / str(number), number)], into)
    log = AuditLog(into)
    path = into / "log" / "00000001.json"
    content = path.read_text()
    path.write_text(content + " ")
    with pytest.raises(StoreCorrupt, match="the entry before it is not the one that it follows"):
        log.entries()
    path.write_text(content[:100])
    with pytest.raises(StoreCorrupt, match="no entry of an audit's log"):
        log.read(1)
    path.write_text(content.replace('"format": 1', '"format": 2'))
    with pytest.raises(ConfigurationError, match="written by a later version"):
        log.read(1)
    path.unlink()
    with pytest.raises(StoreCorrupt, match="an entry of the audit's log is missing"):
        log.last()


def test_another_history_under_the_same_name_is_refused(folder: LedgerFolder, tmp_path: Path) -> None:
    into = tmp_path / "into"
    audited([folder.path], into)
    other = grow(tmp_path / "other", seed=77)
    shutil.copy(folder.path / "broker.json", other.path)
    with pytest.raises(StoreCorrupt):
        audited([other.path], into)
    shorter = until(folder.path, tmp_path / "shorter", 3)
    with pytest.raises(StoreCorrupt, match="is not the one that earlier runs of this audit have read"):
        audited([shorter], into)
