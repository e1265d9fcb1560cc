"""The log against its three rules: checkpoints, holes, damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from acquit.errors import SpoolDamaged, SpoolError
from acquit.spark.columns import MessageColumns
from acquit.spark.spool import FolderStore, RetentionOptions, Spool
from acquit.spark.spool.entries import Entry, FloorRaised
from acquit.spark.spool.log import Log, LogState, marker_name, slot_name
from tests.support.queue_double import QueueDouble, bodies, part, posting

READER = MessageColumns("queue")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A spool whose first entries are summed up in a checkpoint and gone."""
    spool = Spool(FolderStore(tmp_path), RetentionOptions(checkpoint_entries=3))
    for epoch in range(1, 4):
        spool.take(part(epoch), QueueDouble(posting(epoch)).attach, READER)
        spool.finish(epoch)
    return tmp_path


def raise_to(floor: int, nonce: str = "n"):  # type: ignore[no-untyped-def]
    def decide(state: LogState) -> Entry | None:
        return FloorRaised(floor=floor, nonce=nonce) if state.floor < floor else None

    return decide


def test_what_was_put_into_a_hole_is_never_seen(root: Path) -> None:
    store = FolderStore(root)
    sleeper = Log(store)
    assert store.get(slot_name(0)) is None
    # A writer that read the log when it was empty, and wakes up now.
    sleeper._newest_checkpoint = lambda: -1  # type: ignore[method-assign]
    sleeper.append(raise_to(99))
    assert store.get(slot_name(0)) is not None
    assert Log(store).read().floor == 3
    assert Spool(store).take(part(4), QueueDouble(posting(1), posting(9)).attach, READER).publication.totals.rows == 1


def test_a_writer_that_filled_a_hole_notices_and_writes_again_at_the_end(root: Path) -> None:
    store = FolderStore(root)
    sleeper = Log(store)
    real, calls = sleeper._newest_checkpoint, iter([-1])
    sleeper._newest_checkpoint = lambda: next(calls, None) or real()  # type: ignore[method-assign]
    assert sleeper.append(raise_to(99)).floor == 99
    assert Log(store).read().floor == 99


def test_a_checkpoint_without_its_entry_is_damage(root: Path) -> None:
    store = FolderStore(root)
    newest = max(store.names("checkpoints"))
    store.remove(slot_name(int(newest)))
    with pytest.raises(SpoolDamaged, match="is missing; restore the folder"):
        Log(store, readings_max=3).read()


def test_a_marker_that_points_at_an_ordinary_entry_is_damage(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    Log(store).append(raise_to(1))
    store.put(marker_name(7), b"")
    with pytest.raises(SpoolDamaged):
        Log(store, readings_max=3).read()


def test_a_missing_run_is_damage(root: Path) -> None:
    store = FolderStore(root)
    for name in store.names("identities"):
        store.remove(f"identities/{name}")
    with pytest.raises(SpoolDamaged):
        Log(store, readings_max=3).read()


def test_an_append_that_is_always_beaten_gives_up(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    log, rival = Log(store, attempts_max=3), Log(store)
    floors = iter(range(1, 100))

    def decide(state: LogState) -> Entry:
        rival.append(raise_to(next(floors)))
        return FloorRaised(floor=1_000, nonce="mine")

    with pytest.raises(SpoolError, match="gave up appending after 3 attempts"):
        log.append(decide)


def test_an_append_among_very_many_pauses_for_random_times_and_gets_in(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    pauses: list[float] = []
    log, rival = Log(store, sleep=pauses.append), Log(store)
    floors = iter(range(1, 301))

    def decide(state: LogState) -> Entry | None:
        if (floor := next(floors, None)) is not None:
            rival.append(raise_to(floor))
        return FloorRaised(floor=1_000, nonce="mine") if state.floor < 1_000 else None

    assert log.append(decide).floor == 1_000
    assert len(pauses) == 300 - 9, "the first few tries are at once"
    assert all(0 <= pause <= 1 for pause in pauses) and len(set(pauses)) > 250
    assert max(pauses[:10]) <= 0.5 < max(pauses[100:])


def test_both_of_two_writers_at_one_number_get_in(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    log, rival = Log(store), Log(store)
    rival.append(raise_to(1))
    assert log.append(raise_to(2)).next_slot == 2
    assert rival.read().floor == 2


def test_rows_survive_the_checkpoint_that_sums_them_up(tmp_path: Path) -> None:
    spool = Spool(FolderStore(tmp_path), RetentionOptions(checkpoint_entries=1))
    spool.take(part(1), QueueDouble(posting(1)).attach, READER)
    spool.take(part(2), QueueDouble(posting(2)).attach, READER)
    spool.finish(1)
    assert (tmp_path / marker_name(3)).exists()
    assert bodies(Spool(FolderStore(tmp_path)).take(part(2), QueueDouble().attach, READER)) == [b"m2"]
