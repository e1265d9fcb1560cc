"""Repairs: what they do, what they cost, and that a dry run does nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from acquit.errors import SpoolDamaged, SpoolError, SpoolFenced
from acquit.spark.columns import MessageColumns
from acquit.spark.spool import FolderStore, RetentionOptions, Spool
from acquit.spark.spool.owner import read_owner
from acquit.spark.spool.repair import Repair, RepairOptions, TakeOver, repair
from acquit.spark.spool.verify import verify
from tests.support.queue_double import QueueDouble, bodies, part, posting

READER = MessageColumns("queue")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Nine epochs of one message each, the last one published and not finished."""
    spool = Spool(FolderStore(tmp_path), RetentionOptions(checkpoint_entries=4))
    spool.claim("query-1")
    for epoch in range(1, 10):
        spool.finish(epoch - 1)
        spool.plan(epoch)
        spool.take(part(epoch), QueueDouble(posting(epoch)).attach, READER)
    return tmp_path


def mend(root: Path, *, dry_run: bool = False, **options: object) -> Repair:
    return repair(FolderStore(root), RepairOptions(**options), dry_run=dry_run)  # type: ignore[arg-type]


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def litter(root: Path) -> None:
    (root / "data" / "3-0-abc.arrow").write_bytes(b"")
    (root / "data" / "9-1-abc.arrow").write_bytes(b"")


def test_a_sound_spool_needs_nothing(root: Path) -> None:
    before = files(root)
    assert mend(root).actions == ()
    assert files(root) == before


@pytest.mark.parametrize(
    "options", [{}, {"stopped": True}, {"forget": True}, {"take_over": TakeOver.FINISH}, {"take_over": TakeOver.REPLAY}]
)
def test_a_dry_run_says_what_would_be_done_and_does_nothing(root: Path, options: dict[str, object]) -> None:
    litter(root)
    min((root / "identities").iterdir()).write_bytes(b"")
    before = files(root)
    if "take_over" in options:
        options = options | {"forget": True}
    planned = mend(root, dry_run=True, **options)
    assert files(root) == before and not planned.done
    carried_out = mend(root, **options)
    assert carried_out.done and carried_out.actions == planned.actions and carried_out.left == planned.left
    assert files(root) != before


def test_only_a_stopped_query_gives_up_what_it_has_not_published(root: Path) -> None:
    litter(root)
    assert [one.name for one in mend(root).actions] == ["data/3-0-abc.arrow"]
    assert (root / "data" / "9-1-abc.arrow").exists()
    assert [one.name for one in mend(root, stopped=True).actions] == ["data/9-1-abc.arrow"]
    assert verify(FolderStore(root)).unpublished == ()


def test_damaged_identities_are_forgotten_when_that_is_wanted(root: Path) -> None:
    oldest = min((root / "identities").iterdir())
    oldest.write_bytes(b"damaged")
    with pytest.raises(SpoolDamaged):
        Spool(FolderStore(root)).state()
    refused = mend(root)
    assert [one.name for one in refused.left] == [f"identities/{oldest.name}"] and refused.actions == ()
    done = mend(root, forget=True)
    assert done.left == () and done.actions[0].what == "forget" and "identities" in done.actions[0].cost
    assert verify(FolderStore(root)).damage == ()
    status = Spool(FolderStore(root)).status()
    assert status.forgotten.count > 0 and status.remembered + status.forgotten.count == 9
    queue = QueueDouble(posting(1), posting(9), posting(10))
    result = Spool(FolderStore(root)).take(part(10), queue.attach, READER)
    assert bodies(result) == [b"m1", b"m10"], "1 was forgotten, 9 was not"


class Busy(FolderStore):
    """A running query, which knows what the damaged run held, is faster to the next numbers of the log."""

    def __init__(self, root: Path, rival: Spool, entries: int) -> None:
        super().__init__(root)
        self.rival = rival
        self.epochs = iter(range(9, 9 + entries))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if name.startswith("log/") and (epoch := next(self.epochs, None)) is not None:
            self.rival.finish(epoch)
        return super().put_if_absent(name, data)


@pytest.mark.parametrize("checkpoint_entries", [1, 100])
def test_identities_are_forgotten_though_a_query_is_faster_to_the_log(root: Path, checkpoint_entries: int) -> None:
    rival = Spool(FolderStore(root), RetentionOptions(checkpoint_entries=checkpoint_entries))
    rival.state()
    oldest = min((root / "identities").iterdir())
    oldest.write_bytes(b"damaged")
    store = Busy(root, rival, entries=3)
    done = repair(store, RepairOptions(forget=True))
    assert done.left == () and next(store.epochs, None) is None
    assert verify(FolderStore(root)).damage == ()
    assert Spool(FolderStore(root)).state().floor == 11


def test_a_query_that_is_always_faster_to_the_log_has_to_be_stopped(root: Path) -> None:
    rival = Spool(FolderStore(root), RetentionOptions(checkpoint_entries=1_000_000))
    rival.state()
    min((root / "identities").iterdir()).write_bytes(b"damaged")
    with pytest.raises(SpoolError, match="a query is busy with it: stop it, or try again"):
        repair(Busy(root, rival, entries=1_000), RepairOptions(forget=True))


@pytest.mark.parametrize(("take_over", "replayed"), [(TakeOver.REPLAY, [b"m9"]), (TakeOver.FINISH, None)])
def test_the_next_query_goes_on_where_the_lost_one_stood(
    root: Path, take_over: TakeOver, replayed: list[bytes] | None
) -> None:
    (action,) = mend(root, take_over=take_over).actions
    assert "1 rows of epochs 9 to 9" in action.cost and "from query-1" in action.cost
    spool = Spool(FolderStore(root))
    owner = read_owner(FolderStore(root))
    assert owner is not None and owner.query is None
    begins_after = spool.begins_after()
    assert begins_after == (8 if replayed else 9)
    spool.claim("query-2")
    assert spool.begins_after() == begins_after
    queue = QueueDouble(*(posting(number) for number in range(1, 11)))
    if replayed:
        assert bodies(spool.take(part(9), queue.attach, READER)) == replayed and queue.attached == 0
    else:
        with pytest.raises(SpoolFenced):
            spool.take(part(9), queue.attach, READER)
    result = spool.take(part(10), queue.attach, READER)
    assert bodies(result) == [b"m10"] and result.publication.totals.set_aside == 9


def test_rows_that_are_damaged_can_only_be_finished(root: Path) -> None:
    next((root / "data").iterdir()).unlink()
    assert len(mend(root).left) == 1
    assert len(mend(root, take_over=TakeOver.REPLAY, dry_run=True).left) == 1
    assert mend(root, take_over=TakeOver.FINISH).left == ()
    assert verify(FolderStore(root)).damage == ()


@pytest.mark.parametrize("name", ["owner", "source"])
def test_a_damaged_owner_or_source_is_replaced_by_a_take_over(root: Path, name: str) -> None:
    (root / name).write_bytes(b"")
    assert [one.name for one in mend(root).left] == [name]
    planned = mend(root, take_over=TakeOver.REPLAY, dry_run=True)
    done = mend(root, take_over=TakeOver.REPLAY)
    assert done.left == () and done.actions == planned.actions
    assert verify(FolderStore(root)).damage == ()
    assert Spool(FolderStore(root)).claim("query-2")


def test_a_log_that_cannot_be_read_is_not_given_to_anybody(root: Path) -> None:
    entry = max((root / "log").iterdir())
    entry.write_bytes(b"")
    before = files(root)
    with pytest.raises(SpoolDamaged, match=f"log/{entry.name}: .*no query can take it over as it is"):
        mend(root, take_over=TakeOver.FINISH)
    assert files(root) == before
    assert [one.name for one in mend(root).left] == [f"log/{entry.name}"]


@pytest.mark.parametrize("back", [1, 2])
def test_what_a_lost_entry_may_have_named_is_kept(root: Path, back: int) -> None:
    sorted((root / "log").iterdir())[-back].unlink()
    before = files(root)
    for options in ({}, {"stopped": True}, {"forget": True}):
        done = mend(root, **options)
        assert [one.is_entry for one in done.left] == [True] and done.actions == ()
    for take_over in TakeOver:
        with pytest.raises(SpoolDamaged, match="no query can take it over as it is"):
            mend(root, take_over=take_over)
    assert files(root) == before


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"damaged")], ids=["lost", "damaged"])
def test_entries_before_a_checkpoint_are_kept_while_that_is_lost(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """They are there where it was killed before it removed them, or may not: they say what the checkpoint said."""

    class Keeping(FolderStore):
        def remove(self, name: str) -> None:
            if name.startswith("log/"):
                raise SpoolError(f"cannot remove {name}")
            super().remove(name)

    spool = Spool(Keeping(tmp_path), RetentionOptions(checkpoint_entries=4))
    spool.claim("query-1")
    for epoch in range(1, 6):
        spool.take(part(epoch), QueueDouble(posting(epoch)).attach, READER)
        spool.finish(epoch)
    assert len(verify(FolderStore(tmp_path)).leftovers) > 3
    harm(tmp_path / "log" / max((tmp_path / "checkpoints").iterdir()).name)
    before = files(tmp_path)
    for options in ({}, {"stopped": True}, {"forget": True}):
        assert mend(tmp_path, **options).actions == ()
    assert files(tmp_path) == before


def test_nothing_is_forgotten_into_the_place_of_a_lost_entry(root: Path) -> None:
    max((root / "log").iterdir()).unlink()
    min((root / "identities").iterdir()).write_bytes(b"damaged")
    before = files(root)
    done = mend(root, forget=True)
    assert (done.actions, len(done.left)) == ((), 2)
    assert files(root) == before
