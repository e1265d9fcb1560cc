"""Whose a spool is, and how it gets another owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from acquit.errors import SpoolDamaged, SpoolOwned
from acquit.spark.columns import MessageColumns
from acquit.spark.spool import FolderStore, Spool, StoreDoubt
from acquit.spark.spool.owner import SpoolOwner, claim, claim_source, give_up, read_owner, refuse_other_source
from tests.support.queue_double import QueueDouble, part, posting


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "spool")


def test_nobody_owns_what_nobody_came_to(store: FolderStore) -> None:
    assert read_owner(store) is None


def test_a_spool_that_was_given_up_goes_to_who_comes_first_and_not_back(store: FolderStore) -> None:
    first = claim(store, "query-1")
    free = give_up(store, 12)
    assert free == SpoolOwner(query=None, spool=free.spool, begins_after=12, previous=("query-1",))
    assert read_owner(store) == free and free.spool != first.spool
    with pytest.raises(SpoolOwned, match="was taken from the query query-1 with `acquit spool repair --take-over`"):
        claim(store, "query-1")
    heir = claim(store, "query-2")
    assert (heir.query, heir.spool, heir.begins_after) == ("query-2", free.spool, 12)
    assert claim(store, "query-2") == heir
    with pytest.raises(SpoolOwned, match="belongs to the query query-2, this is query-3"):
        claim(store, "query-3")


def let_claim_first(monkeypatch: pytest.MonkeyPatch, store: FolderStore, query: str) -> None:
    """Another query claims the spool just before `store` writes."""
    other, real = FolderStore(store.place), store.put_if_absent

    def beaten(name: str, data: bytes) -> bool:
        claim(other, query)
        return real(name, data)

    monkeypatch.setattr(store, "put_if_absent", beaten)


@pytest.mark.promise("one-spool")
def test_two_that_come_to_it_at_once_cannot_both_get_it(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    give_up(store, 0)
    let_claim_first(monkeypatch, store, "query-2")
    with pytest.raises(SpoolOwned, match="belongs to the query query-2, this is query-1"):
        claim(store, "query-1")


def test_it_can_be_given_up_again_and_remembers_whose_it_was(store: FolderStore) -> None:
    claim(store, "query-1")
    give_up(store, 1)
    claim(store, "query-2")
    assert give_up(store, 5).previous == ("query-1", "query-2")
    assert store.names("") == ["owner"], "the claim of the second is gone with it"
    assert claim(store, "query-3").begins_after == 5


def test_a_spool_that_is_claimed_while_it_is_given_up_is_not_said_to_be_free(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(store, "query-1")
    give_up(store, 1)
    claim(store, "query-2")
    let_claim_first(monkeypatch, store, "query-3")
    with pytest.raises(SpoolOwned, match="the query query-3 took it while it was given up: stop it, and do this again"):
        give_up(store, 5)


def test_who_comes_as_soon_as_it_is_given_up_keeps_it(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a service does that is started again and again until it is not refused."""
    claim(store, "query-1")
    give_up(store, 1)
    claim(store, "query-2")
    other, real = FolderStore(store.place), store.names

    def listed(folder: str) -> list[str]:
        claim(other, "query-3")
        return real(folder)

    monkeypatch.setattr(store, "names", listed)
    give_up(store, 5)
    with pytest.raises(SpoolOwned, match="belongs to the query query-3, this is query-4"):
        claim(store, "query-4")
    assert len(real("")) == 2, "the claim of the second is gone with it"


def test_giving_up_again_what_exists_by_an_own_first_try_is_done(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(store, "query-1")
    real = store.put_if_absent
    monkeypatch.setattr(store, "put_if_absent", lambda name, data: real(name, data) and real(name, data))
    free = give_up(store, 5)
    assert read_owner(store) == free


def test_a_claim_whose_answer_is_lost_is_read_back(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    give_up(store, 3)
    real = store.put_if_absent

    def doubtful(name: str, data: bytes) -> bool:
        real(name, data)
        raise StoreDoubt("no answer")

    monkeypatch.setattr(store, "put_if_absent", doubtful)
    assert claim(store, "query-2").query == "query-2"


@pytest.mark.promise("one-spool")
def test_a_spool_serves_one_source_until_it_is_given_up(store: FolderStore) -> None:
    claim_source(store, 7)
    claim_source(store, 7)
    with pytest.raises(SpoolOwned, match="was begun by another source"):
        claim_source(store, 8)
    claim(store, "query-1")
    with pytest.raises(SpoolOwned, match="belongs to the query query-1"):
        claim_source(store, 8)
    give_up(store, 0)
    claim_source(store, 8)


def test_a_source_whose_answer_is_lost_is_read_back(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = store.put_if_absent

    def doubtful(name: str, data: bytes) -> bool:
        real(name, data)
        raise StoreDoubt("no answer")

    monkeypatch.setattr(store, "put_if_absent", doubtful)
    claim_source(store, 7)
    assert store.get("source") == b"7\n"


QUERY = "5d0c5c1e-2f5e-4c43-8f3a-0a8f5f1d9f3b"


@pytest.mark.parametrize(
    ("was", "harm"),
    [
        (b'"spool": "', b'"spool": "x'),
        (b'"acquit": "spool"', b'"acquit": "spoon"'),
        (b'"5d0c', b'"5d0s'),
        (b'"5d0c5c1e-', b'"5d0c5c1em'),
        (b'"before"', b"null"),
        (b'"before"', b'""'),
        (b'["before"]', b"3"),
        (b'"begins_after": 0', b'"begins_after": "x"'),
        (b'"query"', b'"quern"'),
    ],
)
def test_an_owner_that_was_altered_is_damage_and_not_another_query(store: FolderStore, was: bytes, harm: bytes) -> None:
    claim(store, "before")
    give_up(store, 0)
    heir = f"owner-{claim(store, QUERY).spool}"
    written = store.get(heir)
    assert written is not None and was in written
    store.remove(heir)
    store.put(heir, written.replace(was, harm, 1))
    with pytest.raises(SpoolDamaged, match=f"the file `{heir}` is not ours"):
        claim(store, QUERY)


@pytest.mark.parametrize("content", [b"", b"7", b"-7\n", b"7\x00\n", b"w\n", b"\xff\xfe", b"07\n"])
def test_a_source_that_was_altered_is_damage_and_not_another_source(store: FolderStore, content: bytes) -> None:
    claim(store, QUERY)
    store.put("source", content)
    for attempt in (lambda: claim_source(store, 7), lambda: refuse_other_source(store, None)):
        with pytest.raises(SpoolDamaged, match="the file `source` is not ours.* remove it") as caught:
            attempt()
        assert "\n" not in str(caught.value)
    store.remove("source")
    claim_source(store, 7)


def test_a_spool_that_has_lost_its_owner_is_given_to_nobody(store: FolderStore) -> None:
    spool = Spool(store)
    spool.finish(1)  # of a batch that nobody read
    claim(store, QUERY)
    spool.take(part(2), QueueDouble(posting(1)).attach, MessageColumns("queue"))
    store.remove("owner")
    for attempt in (lambda: claim(store, QUERY), lambda: claim(store, "another"), spool.begins_after):
        with pytest.raises(SpoolDamaged, match="the file `owner` is missing"):
            attempt()
    spool.finish(2)
    with pytest.raises(SpoolDamaged, match="the file `owner` is missing"):
        claim(store, "another")
    give_up(store, 2)
    assert claim(store, "another").begins_after == 2
