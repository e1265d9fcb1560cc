"""What a later version wrote is refused with a sentence that says so, and is not touched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest

import acquit
from acquit.broker.configuration import load_options
from acquit.broker.intake import shaping
from acquit.broker.nodes import subscription
from acquit.errors import ConfigurationError, SpoolVersionUnsupported, StoreVersionUnsupported
from acquit.ledger import records, totals
from acquit.ledger.verify import verify
from acquit.spark.audit.reconciled import read_reconciliations, write_reconciliation
from acquit.spark.spool import FolderStore, Spool, entries, owner
from acquit.spark.spool.repair import RepairOptions, TakeOver, repair
from acquit.spark.spool.verify import verify as verify_spool
from acquit.store import folder as store_folder
from acquit.store import segment
from tests.support.audit_tables import reconciliation

pytestmark = pytest.mark.promise("formats")


def content(folder: Path) -> dict[str, str]:
    """What is in a folder, but for what each start removes or uses up."""
    passing = {".part", ".zeros", ""}
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in passing)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def spool_content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def use(data: Path) -> None:
    """A broker's folder with a little of everything."""
    with acquit.Broker(data) as broker, acquit.connect(broker.url, container_id="c") as connection:
        session = connection.session("individual")
        session.sender("orders").send(acquit.Message("one", application_properties={"_AMQ_DUPL_ID": "once"}))
        session.receiver("news", subscription=acquit.Subscription(name="reader")).close()


def stop_of_the_future(self: records.Stop) -> records.EncodedRecord:
    return records.EncodedRecord(99, bytes(48))


def state_of_the_future(self: records.Stop) -> records.EncodedRecord:
    return records.State(self.time_us, 99, b"key", b"value").encode()


def deletion_of_the_future(self: records.Stop) -> records.EncodedRecord:
    return records.StateDeleted(self.time_us, 99, b"key").encode()


def extras_of_the_future(extras: Iterable[tuple[int, bytes]]) -> bytes:
    return records.encode_extras([*extras, (99, b"of the future")])


@pytest.mark.parametrize(
    ("target", "name", "value", "said"),
    [
        (subscription, "VERSION", 9, "a subscription of version 9: written by a later version"),
        (totals, "VERSION", 9, "a seal's summary of version 9: written by a later version"),
        (segment, "FORMAT_VERSION", 9, "has format 9; this version of acquit reads format 1"),
        (store_folder, "FORMAT_VERSION", 9, "has format 9; this version of acquit reads and writes format 1"),
        (shaping, "encode_extras", extras_of_the_future, "a posting with extra field 99: written by a later version"),
        (records.Stop, "encode", state_of_the_future, "keyed state of namespace 99: written by a later version"),
        (records.Stop, "encode", deletion_of_the_future, "keyed state of namespace 99: written by a later version"),
        (records.Stop, "encode", stop_of_the_future, "record kind 99, version 1, at position .*: written by a later"),
    ],
)
def test_a_folder_of_a_broker(tmp_path: Path, target: object, name: str, value: object, said: str) -> None:
    data = tmp_path / "data"
    with patch.object(target, name, value):
        use(data)
    before = content(data)
    with pytest.raises(StoreVersionUnsupported, match=said):
        acquit.Broker(data)
    assert before.items() <= content(data).items()


def test_a_seal_is_not_called_damaged_by_who_verifies_it(tmp_path: Path) -> None:
    with patch.object(totals, "VERSION", 9):
        use(tmp_path / "data")
    with pytest.raises(StoreVersionUnsupported, match="a seal's summary of version 9"):
        verify(tmp_path / "data")


@pytest.mark.parametrize("encode", [state_of_the_future, stop_of_the_future])
def test_state_that_is_not_known_is_not_passed_over_by_who_verifies_it(
    tmp_path: Path, encode: Callable[[records.Stop], records.EncodedRecord]
) -> None:
    with patch.object(records.Stop, "encode", encode):
        use(tmp_path / "data")
    with pytest.raises(StoreVersionUnsupported, match=r"99.*: written by a later version of acquit"):
        verify(tmp_path / "data")


@pytest.mark.parametrize(
    "use_it",
    [
        lambda store: (Spool(store).claim("a query"), Spool(store).state()),
        verify_spool,
        lambda store: repair(store, RepairOptions(stopped=True)),
        lambda store: repair(store, RepairOptions(take_over=TakeOver.FINISH)),
    ],
    ids=["query", "look", "repair", "take over"],
)
@pytest.mark.parametrize("module", [owner, entries])
def test_a_spool(tmp_path: Path, module: ModuleType, use_it: Callable[[FolderStore], object]) -> None:
    store = FolderStore(str(tmp_path))
    with patch.object(module, "FORMAT", 9):
        spool = Spool(store)
        spool.claim("a query")
        spool.finish(1)
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data" / "of-the-future").touch()
    before = spool_content(tmp_path)
    with pytest.raises(SpoolVersionUnsupported, match="spool format 9; this version of acquit reads format"):
        use_it(store)
    assert spool_content(tmp_path) == before


def test_a_reconciliation(tmp_path: Path) -> None:
    path = write_reconciliation(tmp_path, reconciliation({}))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 9, "of_the_future": 1}))
    with pytest.raises(ConfigurationError, match="written by a later version of acquit"):
        read_reconciliations(tmp_path)


def test_a_configuration_and_a_file_of_users(tmp_path: Path) -> None:
    """They have no version: a key that is not known is named."""
    file = tmp_path / "acquit.toml"
    for text in ("of_the_future = 1\n", "[limits]\nof_the_future = 1\n", '[users.ada]\nof_the_future = "x"\n'):
        file.write_text(text)
        with pytest.raises(ConfigurationError, match="of_the_future"):
            load_options(file)
    users = tmp_path / "users.toml"
    users.write_text('[users.ada]\npassword = "x"\nof_the_future = 1\n')
    with pytest.raises(ConfigurationError, match="of_the_future"):
        acquit.Broker(tmp_path / "data", config=configured(file, users))


def configured(file: Path, users: Path) -> Path:
    file.write_text(f"[security]\nusers_file = {json.dumps(str(users))}\n")
    return file
