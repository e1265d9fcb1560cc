"""What a reconciliation refuses before it reads a row."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from acquit.errors import ConfigurationError, StoreError
from acquit.spark.audit.log import BrokerState
from acquit.spark.audit.reconcile import journals_of
from acquit.store.reading import FolderReader
from tests.support.ledger_folder import grow


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
