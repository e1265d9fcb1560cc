"""The spool stays small: what the floor and a checkpoint remove, and what is forgotten."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from acquit.errors import ConfigurationError, SpoolError
from acquit.spark.columns import MessageColumns
from acquit.spark.spool import FolderStore, RetentionOptions, Spool
from acquit.spark.spool.housekeeping import FANIN, RUN_SHARE
from acquit.spark.spool.log import MARKERS_KEPT
from tests.support.queue_double import QueueDouble, bodies, part, posting

READER = MessageColumns("queue")


class _Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def _files(root: Path) -> Counter[str]:
    return Counter(path.relative_to(root).parts[0] for path in root.rglob("*") if path.is_file())


def _play(spool: Spool, first: int, last: int, clock: _Clock | None = None, step_ms: int = 0) -> None:
    """Epochs with one new message each."""
    for epoch in range(first, last + 1):
        if epoch > 1:
            spool.finish(epoch - 1)
        spool.plan(epoch)
        spool.take(part(epoch), QueueDouble(posting(epoch)).attach, READER)
        if clock is not None:
            clock.now_ms += step_ms


def test_the_number_of_files_does_not_grow(tmp_path: Path) -> None:
    spool = Spool(FolderStore(tmp_path), RetentionOptions(checkpoint_entries=4))
    _play(spool, 1, 150)
    files = _files(tmp_path)
    assert files["data"] == files["plans"] == files["acknowledged"] == 1
    assert files["log"] <= 4 + 2
    assert files["checkpoints"] <= MARKERS_KEPT
    assert files["identities"] <= 3 * FANIN
    assert spool.status().remembered == 150


class _Stubborn(FolderStore):
    """Does not remove what has `kept` in its name."""

    kept = ""

    def remove(self, name: str) -> None:
        if self.kept and self.kept in name:
            raise SpoolError(f"spool {self.place}: cannot remove {name}: Device or resource busy")
        super().remove(name)


@pytest.mark.parametrize("folder", ["data", "plans", "log", "identities", "checkpoints"])
def test_a_file_that_cannot_be_removed_ends_nothing_and_goes_with_a_later_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, folder: str
) -> None:
    store, clock = _Stubborn(tmp_path), _Clock()
    spool = Spool(store, RetentionOptions(checkpoint_entries=2, identity_retention_ms=3_000), now_ms=clock)
    _play(spool, 1, 20, clock, step_ms=1_000)
    store.kept = f"{folder}/"
    _play(spool, 21, 40, clock, step_ms=1_000)
    assert spool.state().floor == 39
    assert f"cannot remove {folder}/" in caplog.text
    assert len(list((tmp_path / folder).iterdir())) > MARKERS_KEPT
    store.kept = ""
    _play(spool, 41, 50, clock, step_ms=1_000)
    assert len(list((tmp_path / folder).iterdir())) <= MARKERS_KEPT


def test_a_fresh_process_knows_what_the_log_no_longer_holds(tmp_path: Path) -> None:
    _play(Spool(FolderStore(tmp_path), RetentionOptions(checkpoint_entries=4)), 1, 50)
    queue = QueueDouble(*(posting(number) for number in (1, 25, 50, 51)))
    result = Spool(FolderStore(tmp_path)).take(part(51), queue.attach, READER)
    assert bodies(result) == [b"m51"] and result.publication.totals.set_aside == 3


def test_a_process_that_slept_through_checkpoints_catches_up(tmp_path: Path) -> None:
    sleeper = Spool(FolderStore(tmp_path))
    _play(Spool(FolderStore(tmp_path), RetentionOptions(checkpoint_entries=4)), 1, 3)
    sleeper.state()
    _play(Spool(FolderStore(tmp_path), RetentionOptions(checkpoint_entries=4)), 4, 50)
    result = sleeper.take(part(51), QueueDouble(posting(10), posting(60)).attach, READER)
    assert bodies(result) == [b"m60"]


@pytest.mark.promise("retention")
def test_identities_are_forgotten_after_the_retention(tmp_path: Path) -> None:
    clock = _Clock()
    options = RetentionOptions(checkpoint_entries=4, identity_retention_ms=10_000)
    spool = Spool(FolderStore(tmp_path), options, now_ms=clock)
    _play(spool, 1, 100, clock, step_ms=1_000)
    status = spool.status()
    assert 10 <= status.remembered <= 10 + 2 * 4
    assert status.forgotten.count == 100 - status.remembered and status.forgotten.by_limit == 0
    assert status.remembered_since_ms is not None
    assert clock.now_ms - status.remembered_since_ms >= 10_000
    again = spool.take(part(101), QueueDouble(posting(1), posting(100)).attach, READER)
    assert bodies(again) == [b"m1"]


@pytest.mark.promise("retention")
def test_identities_are_forgotten_beyond_the_limit_and_that_is_told(tmp_path: Path) -> None:
    limit = 2 * RUN_SHARE
    spool = Spool(FolderStore(tmp_path), RetentionOptions(checkpoint_entries=4, identity_limit=limit))
    _play(spool, 1, 100)
    status = spool.status()
    assert limit - 4 <= status.remembered <= limit + 4
    assert status.forgotten.by_limit == status.forgotten.count == 100 - status.remembered


def test_left_overs_of_crashes_are_cleared_away_by_their_owners_number(tmp_path: Path) -> None:
    spool = Spool(FolderStore(tmp_path), RetentionOptions(checkpoint_entries=1))
    _play(spool, 1, 2)
    left = [
        "data/1-0-dead.arrow",
        "data/1-0-dead.arrow.1234.tmp",
        "log/000000000001.1234.tmp",
        "identities/000000000001-dead-0",
        "plans/1-dead",
    ]
    foreign = ["data/.nfs0001", "log/README", "identities/notes.txt"]
    live = ["data/99-0-busy.arrow", "log/000000000999.1234.tmp", "identities/000000000999-busy-0"]
    for name in (*left, *foreign, *live):
        (tmp_path / name).write_bytes(b"")
    _play(spool, 3, 4)
    assert not [name for name in left if (tmp_path / name).exists()]
    assert all((tmp_path / name).exists() for name in (*foreign, *live))


def test_the_floor_never_falls(tmp_path: Path) -> None:
    spool = Spool(FolderStore(tmp_path))
    spool.finish(5)
    assert spool.finish(3).floor == 5


def test_options_say_what_is_wrong() -> None:
    with pytest.raises(ConfigurationError, match="identity_limit must be at least 1, got 0"):
        RetentionOptions(identity_limit=0)
