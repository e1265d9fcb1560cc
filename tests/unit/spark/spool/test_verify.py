"""What is wrong with a spool is named, file by file; what is only left over is told apart from it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from acquit.spark.columns import MessageColumns
from acquit.spark.spool import FolderStore, RetentionOptions, Spool, attempt
from acquit.spark.spool.data import encode_batches
from acquit.spark.spool.owner import claim, claim_source, give_up
from acquit.spark.spool.verify import SpoolVerification, verify
from tests.support.queue_double import QueueDouble, part, posting

READER = MessageColumns("queue")


def play(spool: Spool, first: int, last: int) -> None:
    """Epochs of two messages each; the last one is published and not finished."""
    for epoch in range(first, last + 1):
        if epoch > 1:
            spool.finish(epoch - 1)
        spool.claim("query-1")
        spool.plan(epoch)
        spool.take(part(epoch), QueueDouble(posting(2 * epoch), posting(2 * epoch + 1)).attach, READER)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "spool"
    play(Spool(FolderStore(root), RetentionOptions(checkpoint_entries=4)), 1, 9)
    return root


def look(root: Path) -> SpoolVerification:
    return verify(FolderStore(root))


def test_a_spool_in_use_is_sound(root: Path) -> None:
    found = look(root)
    assert found.damage == found.leftovers == found.unpublished == ()
    assert (found.data_files, found.rows, found.identities) == (1, 2, 18)
    assert found.entries == len(list((root / "log").iterdir()))
    assert found.owner is not None and found.owner.query == "query-1"


def newest(folder: Path) -> Path:
    return max(folder.iterdir())


def altered(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def grown(path: Path) -> None:
    """The entry that names it has another number of rows."""
    other = path.parent.parent.parent / "other"
    queue = QueueDouble(*(posting(number) for number in range(1, 5)))
    result = Spool(FolderStore(other)).take(part(), queue.attach, READER)
    path.write_bytes((other / str(result.publication.data)).read_bytes())


@pytest.mark.parametrize(
    ("folder", "harm", "problem", "cost"),
    [
        ("log", altered, "the checksum does not fit", "no query can go on"),
        ("log", shortened, "the checksum does not fit", "no query can go on"),
        ("data", Path.unlink, "it is missing", "the 2 rows of epoch 9 part 0"),
        ("data", altered, "the checksum does not fit", "the 2 rows of epoch 9 part 0"),
        ("data", shortened, "the checksum does not fit", "the 2 rows of epoch 9 part 0"),
        ("data", grown, "the checksum does not fit", "unless the table has that epoch already"),
        ("identities", Path.unlink, "it is missing", "a message among them that comes again is not recognised"),
        ("identities", altered, "the checksum does not fit", "a message among them that comes again"),
        ("identities", shortened, "the checksum does not fit", "a message among them that comes again"),
    ],
)
def test_damage_is_named_with_what_it_costs(
    root: Path, folder: str, harm: Callable[[Path], None], problem: str, cost: str
) -> None:
    path = newest(root / folder)
    harm(path)
    (one,) = look(root).damage
    assert one.name == f"{folder}/{path.name}"
    assert problem in one.problem and cost in one.cost


@pytest.mark.parametrize(
    ("harm", "problem"), [(shortened, "it is no Arrow file"), (grown, "it has 4 rows, and the log says 2")]
)
def test_rows_whose_entry_has_no_checksum_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None], problem: str
) -> None:
    monkeypatch.setattr(attempt, "encode_batches", lambda batches: (encode_batches(batches).pieces, None))
    root = tmp_path / "spool"
    play(Spool(FolderStore(root)), 1, 9)
    assert look(root).damage == ()
    harm(newest(root / "data"))
    (one,) = look(root).damage
    assert problem in one.problem


def test_an_entry_that_is_missing_before_others_is_damage(root: Path) -> None:
    slots = sorted((root / "log").iterdir())
    slots[-2].unlink()
    (one,) = look(root).damage
    assert one.name == f"log/{slots[-2].name}" and one.problem == "it is missing"
    assert "1 later entries, which are not read" in one.cost


@pytest.mark.parametrize("rows", [True, False])
def test_an_entry_that_is_missing_at_the_end_is_damage_once_it_is_acknowledged(root: Path, rows: bool) -> None:
    newest(root / "log").unlink()
    (data,), (marker,) = (root / "data").iterdir(), (root / "acknowledged").iterdir()
    if not rows:
        data.unlink()
    found = look(root)
    (one,) = found.damage
    assert (
        one.name == f"acknowledged/{marker.name}" and "the entry of the log that it follows is missing" in one.problem
    )
    assert "epoch 9 part 0, which are acknowledged" in one.cost
    assert (f"(data/{data.name} has them)" if rows else "(no file has them)") in one.cost
    assert found.leftovers == found.unpublished == (), "wanted once the entry is restored"
    marker.unlink()
    found = look(root)
    assert found.damage == ()
    assert found.unpublished == ((f"data/{data.name}",) if rows else ()), "as if it had died before it published"


def test_an_entry_that_is_missing_is_seen_though_another_has_its_number(root: Path) -> None:
    newest(root / "log").unlink()
    (marker,) = (root / "acknowledged").iterdir()
    play(Spool(FolderStore(root)), 9, 9)
    assert [one.name for one in look(root).damage] == [f"acknowledged/{marker.name}"]


@pytest.mark.parametrize("name", ["9-0-abc.crc", "9-0-" + "a" * 32 + ".tmp-x", "9-0-" + "a" * 32 + ".tmp"])
def test_what_another_program_left_beside_acknowledgements_is_none(root: Path, name: str) -> None:
    (root / "acknowledged" / name).touch()
    assert look(root).damage == ()
    Spool(FolderStore(root)).refuse_lost_entries()


def test_what_later_entries_name_is_wanted_while_one_before_them_is_damaged(root: Path) -> None:
    altered(sorted((root / "log").iterdir())[-2])
    found = look(root)
    assert [one.is_entry for one in found.damage] == [True]
    assert found.unpublished == ()


def test_a_checkpoint_that_is_missing_is_damage(root: Path) -> None:
    name = newest(root / "checkpoints").name
    (root / "log" / name).unlink()
    assert [(one.name, one.problem) for one in look(root).damage] == [(f"log/{name}", "it is missing")]


def test_an_owner_that_is_not_ours_is_damage(root: Path) -> None:
    (root / "owner").write_text("{")
    (one,) = look(root).damage
    assert one.name == "owner" and "no query can use the spool" in one.cost


@pytest.mark.parametrize("name", ["owner", "source"])
@pytest.mark.parametrize("content", [None, b"", b"\x00" * 9], ids=["gone", "empty", "zeros"])
def test_whose_it_is_is_looked_at(root: Path, name: str, content: bytes | None) -> None:
    claim_source(FolderStore(root), 7)
    assert look(root).damage == ()
    (root / name).unlink()
    if content is not None:
        (root / name).write_bytes(content)
    found = [(one.name, one.cost) for one in look(root).damage]
    # A spool of an earlier version has no number of its source, until it is in use again.
    healed = (name, content) == ("source", None)
    assert found == ([] if healed else [(name, "no query can use the spool")])


@pytest.mark.parametrize("unreadable", ["owner", "the heir"])
def test_who_inherited_is_no_leftover_while_the_owner_cannot_be_read(root: Path, unreadable: str) -> None:
    store = FolderStore(root)
    free = give_up(store, 8)
    claim(store, "query-2")
    heir = root / f"owner-{free.spool}"
    (root / "owner" if unreadable == "owner" else heir).write_text("{")
    found = look(root)
    assert [one.name for one in found.damage] == ["owner"]
    assert heir.name not in found.leftovers, "restored, it says whose the spool is"


def test_who_inherited_is_no_leftover_while_the_owner_is_missing(root: Path) -> None:
    store = FolderStore(root)
    free = give_up(store, 8)
    claim(store, "query-2")
    (root / "owner").unlink()
    assert f"owner-{free.spool}" not in look(root).leftovers


LEFTOVERS = (
    "log/000000000000",
    "log/000000000001.abc.tmp",
    "data/3-0-abc.arrow",
    "data/3-0-abc.arrow.def.tmp",
    "plans/3-abc",
    "acknowledged/3-0-abc",
    "identities/000000000001-abc-0",
    "checkpoints/000000000001.abc.tmp",
    "owner-abc",
)
UNPUBLISHED = (
    "data/9-1-abc.arrow",
    "data/10-0-abc.arrow.def.tmp",
    "log/999999999999.abc.tmp",
    "identities/999999999999-abc-0",
    "probes/abc",
    "owner.abc.tmp",
)


def test_what_nobody_will_ask_for_is_told_apart_from_what_somebody_may(root: Path) -> None:
    (root / "probes").mkdir()
    for name in (*LEFTOVERS, *UNPUBLISHED):
        (root / name).write_bytes(b"")
    found = look(root)
    assert found.damage == ()
    assert sorted(found.leftovers) == sorted(LEFTOVERS)
    assert sorted(found.unpublished) == sorted(UNPUBLISHED)


def test_a_spool_that_a_query_is_busy_with_is_not_called_damaged(root: Path) -> None:
    started, stop = threading.Event(), threading.Event()

    def work() -> None:
        spool = Spool(FolderStore(root), RetentionOptions(checkpoint_entries=2))
        for epoch in range(10, 200):
            play(spool, epoch, epoch)
            started.set()
            if stop.is_set():
                return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert started.wait(30)
        for _ in range(3):
            assert look(root).damage == ()
    finally:
        stop.set()
        thread.join()
