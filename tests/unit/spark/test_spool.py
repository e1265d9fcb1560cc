"""The spool as a driver and a task see it: whose it is, who shares it, and what its store can do."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from acquit.errors import SpoolDamaged, SpoolNotShared, SpoolOwned, SpoolUnfit
from acquit.spark.spool import FolderStore, Spool, StoreDoubt


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(FolderStore(tmp_path / "spool"))


def test_the_first_query_owns_it(spool: Spool) -> None:
    identity = spool.claim("query-1")
    assert spool.claim("query-1") == identity
    with pytest.raises(SpoolOwned, match=r"belongs to the query query-1, this is query-2.*spool repair --take-over"):
        spool.claim("query-2")
    assert spool.status().query == "query-1"


def test_a_claim_whose_answer_is_lost_is_read_back(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(spool.place)

    def doubtful(name: str, data: bytes) -> bool:
        store.put_if_absent(name, data)
        raise StoreDoubt("no answer")

    monkeypatch.setattr(spool._store, "put_if_absent", doubtful)
    assert spool.claim("query-1") == Spool(store).claim("query-1")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "is not ours"),
        (b"{}", "ours"),
    ],
)
def test_an_owner_file_that_is_not_ours(spool: Spool, content: bytes, reason: str) -> None:
    Path(spool.place).mkdir()
    (Path(spool.place) / "owner").write_bytes(content)
    with pytest.raises(SpoolDamaged, match=reason):
        spool.claim("query-1")


def test_tasks_must_see_what_the_driver_left(spool: Spool, tmp_path: Path) -> None:
    nonce = spool.plan(7)
    spool.check_plan(7, nonce)
    elsewhere = Spool(FolderStore(tmp_path / "other"))
    with pytest.raises(SpoolNotShared, match=f"{tmp_path}/other on host {socket.gethostname()}.*all workers share"):
        elsewhere.check_plan(7, nonce)
    assert not (tmp_path / "other").exists(), "asked, and wrote nothing"


def test_a_store_proves_itself_once_and_leaves_nothing(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    spool.prove()
    assert list((Path(spool.place) / "probes").iterdir()) == []
    monkeypatch.setattr(spool._store, "put_if_absent", None)
    spool.prove()


def test_a_store_that_replaces_is_refused(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(name: str, data: bytes) -> bool:
        spool._store.put(name, data)
        return True

    monkeypatch.setattr(spool._store, "put_if_absent", replace)
    with pytest.raises(SpoolUnfit, match="lets one name be written twice"):
        spool.prove()
