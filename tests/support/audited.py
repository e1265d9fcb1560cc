"""Audits without Spark, what they say, and journals as they were earlier."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from acquit.spark.audit import AuditOptions, AuditSummary, audit
from acquit.spark.audit.results import AuditResults
from acquit.store.folder import EVENTS, SEGMENT
from acquit.store.reading import FolderReader
from tests.support.plain_session import PlainSession


def audited(folders: Iterable[Path], into: Path, session: PlainSession | None = None, **options: Any) -> AuditSummary:
    """A run, in this process."""
    session = session if session is not None else PlainSession()
    return audit(AuditOptions(folders=list(folders), into=into, **options), spark=session.as_spark())


def until(source: Path, target: Path, segment: int, *, batches: int | None = None) -> Path:
    """A copy of a data folder as it was at the end of a segment; or when the segment, still open, had so many
    batches."""
    reader = FolderReader(source)
    contents = reader.contents()
    journal = target / "journal"
    journal.mkdir(parents=True)
    (target / "archive").mkdir()
    shutil.copy(source / "broker.json", target / "broker.json")
    for numbers, part in ((contents.archive, "archive"), (contents.journal, "journal")):
        for number in numbers:
            if number <= segment:
                shutil.copy(source / part / f"{number:020}{SEGMENT}", journal)
            if number < segment and (source / part / f"{number:020}{EVENTS}").exists():
                shutil.copy(source / part / f"{number:020}{EVENTS}", journal)
    if batches is not None:
        with FolderReader(target).open(segment) as opened:
            ends = [opened.offset + head.length for head, _ in opened.batches()]
        with (journal / f"{segment:020}{SEGMENT}").open("r+b") as file:
            file.truncate(ends[batches - 1])
    return target


def batches_of(source: Path, segment: int) -> int:
    """How many batches a segment has."""
    with FolderReader(source).open(segment) as opened:
        return sum(1 for _ in opened.batches())


def closed_of(into: Path, results: AuditResults | None = None) -> list[dict[str, Any]]:
    """Every row of `closed`, in order."""
    found = results if results is not None else AuditResults(into)
    return _rows(found.closed_files())


def open_of(into: Path) -> list[dict[str, Any]]:
    """Every row of `open`, in order."""
    return _rows(AuditResults(into).open_files())


def _rows(paths: Iterable[Path]) -> list[dict[str, Any]]:
    rows = [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]
    return sorted(rows, key=lambda row: (row["broker"], row["queue_number"], row["sequence"], str(row)))


def all_of(into: Path) -> dict[str, list[dict[str, Any]]]:
    """All that an audit says, as far as it does not tell how it was made."""
    results = AuditResults(into)
    tables: dict[str, pa.Table] = {
        name: getattr(results, name)() for name in ("minutes", "balance", "anomalies", "dead_letters", "queues")
    }
    found = {name: sorted(table.to_pylist(), key=str) for name, table in tables.items()}
    found["coverage"] = results.coverage().drop_columns(["folder"]).to_pylist()
    return found | {"closed": closed_of(into), "open": open_of(into)}
