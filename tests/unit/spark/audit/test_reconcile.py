"""What a reconciliation knows, and refuses, before it reads a row."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from acquit.errors import ConfigurationError, StoreError
from acquit.spark.audit.log import BrokerState
from acquit.spark.audit.reconcile import ReconcileOptions, _TableComparison, ids_known_since_us, journals_of
from acquit.spark.audit.results import AuditResults
from acquit.spark.ledger.chain import SegmentState, plan_folder
from acquit.store.reading import FolderReader
from tests.support.audited import audited
from tests.support.ledger_folder import grow


def test_from_when_on_all_ids_are_known(tmp_path: Path) -> None:
    def begun_us(folder: Path, number: int) -> int:
        header = plan_folder(folder)[number - 1].header
        assert header is not None
        return header.created_us

    whole, some = grow(tmp_path / "whole"), grow(tmp_path / "some", archive_bytes_max=1, seed=11)
    assert ids_known_since_us([str(whole.path)]) == 0
    deleted = [segment.number for segment in plan_folder(some.path) if segment.state is SegmentState.DELETED]
    assert deleted == list(range(1, len(deleted) + 1)) != []
    since_us = begun_us(some.path, len(deleted) + 1)
    assert ids_known_since_us([str(some.path), str(whole.path)]) == since_us
    since_us = max(since_us, begun_us(whole.path, whole.newest))
    whole.file(whole.newest - 1).unlink()
    assert ids_known_since_us([str(some.path), str(whole.path)]) == since_us


def test_what_the_ledger_has_not_is_judged_where_all_ids_are_known(tmp_path: Path) -> None:
    folder = grow(tmp_path / "data")
    audited([folder.path], tmp_path / "audit")
    results = AuditResults(tmp_path / "audit")

    def known(since_us: int | None = None) -> bool:
        options = ReconcileOptions(
            audit=tmp_path / "audit",
            queue="any",
            table=tmp_path,
            since=None if since_us is None else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=since_us),
        )
        return _TableComparison(cast(Any, None), results, options, [results.brokers[1].store], print)._ids_known()

    assert known()
    folder.file(1).unlink()
    known_since_us = ids_known_since_us([str(folder.path)])
    assert not known()
    assert not known(known_since_us - 1)
    assert known(known_since_us)


def test_ids_are_read_from_the_journal_that_was_audited(tmp_path: Path) -> None:
    folder = grow(tmp_path / "data").path
    store = str(FolderReader(folder).contents().identity.store)
    broker = BrokerState(store=store, number=1, folder=str(folder))
    assert journals_of([broker]) == [str(folder)]
    with pytest.raises(ConfigurationError, match=f"the journal of broker {store}; when it was audited, that of x"):
        journals_of([broker, BrokerState(store="x", number=2, folder=str(folder))])
    odd = shutil.copytree(folder, tmp_path / "a, b")
    with pytest.raises(ConfigurationError, match="a, b: message ids cannot be read from a folder with a comma"):
        journals_of([BrokerState(store=store, number=1, folder=str(odd))])
    shutil.rmtree(folder)
    with pytest.raises(StoreError, match="not a data folder"):
        journals_of([broker])
