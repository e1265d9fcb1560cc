"""Runs of the audit that meet what they did not expect: each ends with the right tables, or one readable line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from acquit.errors import PipelineFailed, StoreCorrupt
from acquit.spark.audit.log import AuditLog
from acquit.spark.audit.quick import balance_by_seals
from acquit.spark.audit.results import AuditResults
from acquit.spark.audit.told import Told
from tests.support.audited import all_of, audited, until
from tests.support.ledger_folder import LedgerFolder, grow
from tests.support.plain_session import Frame, PlainSession


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> LedgerFolder:
    return grow(tmp_path_factory.mktemp("ledger") / "data")


@pytest.fixture(scope="module")
def begun(folder: LedgerFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit of the first two segments."""
    root = tmp_path_factory.mktemp("begun")
    audited([until(folder.path, root / "first", 2)], root / "into")
    return root / "into"


def test_a_folder_that_is_named_twice_is_read_once(folder: LedgerFolder, tmp_path: Path) -> None:
    audited([folder.path], tmp_path / "once")
    assert audited([folder.path, folder.path], tmp_path / "twice").sound
    assert all_of(tmp_path / "twice") == all_of(tmp_path / "once")
    assert balance_by_seals([folder.path, folder.path]) == balance_by_seals([folder.path])


GROUP = {"spark.jobGroup.id": "nightly", "spark.job.description": "nights", "spark.job.interruptOnCancel": "true"}


@pytest.mark.parametrize("given", [{}, GROUP])
@pytest.mark.parametrize("failure", [None, PySparkException("of a task")])
def test_what_somebody_said_of_his_jobs_holds_after_it(
    folder: LedgerFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    failure: PySparkException | None,
) -> None:
    session = PlainSession()
    session.properties |= given
    seen: list[dict[str, str]] = []
    real = Told.of

    def of(results: pa.Table) -> Told:
        seen.append(dict(session.properties))
        if failure is not None:
            raise failure
        return real(results)

    monkeypatch.setattr(Told, "of", of)
    with nullcontext() if failure is None else pytest.raises(PipelineFailed, match="of a task"):
        audited([folder.path], tmp_path / "into", session)
    assert session.properties == given
    assert len(seen) == 1 and seen[0] != given, "its own, while it folds"


def run_again(folder: Path, into: Path) -> None:
    audited([folder], into)


def read_minutes(folder: Path, into: Path) -> None:
    AuditResults(into).minutes()


def read_balance(folder: Path, into: Path) -> None:
    AuditResults(into).balance()


@pytest.mark.parametrize("content", [None, b"", b"garbage" * 9], ids=["gone", "empty", "garbage"])
@pytest.mark.parametrize(
    ("table", "read"),
    [
        ("queues", run_again),
        ("queues", read_minutes),
        ("totals", run_again),
        ("open", run_again),
        ("balance", read_balance),
        ("counters", read_minutes),
    ],
)
def test_a_file_of_the_audit_that_is_gone_or_damaged_is_named(
    folder: LedgerFolder,
    begun: Path,
    tmp_path: Path,
    table: str,
    read: Callable[[Path, Path], None],
    content: bytes | None,
) -> None:
    into = shutil.copytree(begun, tmp_path / "into")
    entry = AuditLog(into).read(1)
    files = {file.table: file.path for file in entry.added} | entry.state
    path = into / files[table]
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match="not the file that the audit wrote|names is not there") as caught:
        read(folder.path, into)
    assert caught.value.path == str(path)
    assert "\n" not in str(caught.value)
    assert AuditLog(into).numbers() == [1]


def test_a_jvm_that_is_gone_is_said(folder: LedgerFolder, tmp_path: Path) -> None:
    class Gone(PlainSession):
        def range(self, start: int, end: int, step: int, partitions: int) -> Frame:
            raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(PipelineFailed, match="the JVM of the Spark driver has ended"):
        audited([folder.path], tmp_path / "into", Gone())
    assert audited([folder.path], tmp_path / "into").changed


def test_damage_that_a_task_finds_is_damage(folder: LedgerFolder, tmp_path: Path) -> None:
    class Failing(PlainSession):
        """Tells of a task as Spark does."""

        def range(self, start: int, end: int, step: int, partitions: int) -> Frame:
            raise PySparkException("no\n acquit.errors.StoreCorrupt: /data/3.seg, offset 17: segment 3: altered\n at")

    with pytest.raises(StoreCorrupt, match="segment 3: altered") as caught:
        audited([folder.path], tmp_path / "into", Failing())
    assert (caught.value.path, caught.value.offset) == ("/data/3.seg", 17)
