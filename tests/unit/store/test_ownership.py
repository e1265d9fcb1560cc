"""Whose files are that root makes. As root, which the tests may not be, with the calls that it takes noted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acquit.errors import StoreError
from acquit.ledger.recovery import close_journal, open_journal
from acquit.store.backup import mark
from acquit.store.disk import OpenMode, PosixDisk
from acquit.store.options import JournalOptions
from acquit.store.ownership import hand_over, make_file, make_folder
from tests.support.owners import Owners

WRITTEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> Owners:
    return Owners(monkeypatch)


def test_a_new_file_and_a_new_folder_are_those_of_their_folders_owner(tmp_path: Path, owners: Owners) -> None:
    make_folder(tmp_path / "folder")
    os.close(make_file(tmp_path / "folder" / "file", WRITTEN))
    assert owners.handed_over == ["folder", "file"]
    os.close(make_file(tmp_path / "folder" / "file", WRITTEN))
    make_folder(tmp_path / "folder")
    assert len(owners.handed_over) == 2, "what is there stays whose it is"
    with pytest.raises(FileExistsError):
        make_file(tmp_path / "folder" / "file", WRITTEN | os.O_EXCL)


@pytest.mark.parametrize("mode", OpenMode)
def test_what_is_no_file_is_not_opened(tmp_path: Path, mode: OpenMode) -> None:
    """Who opens a pipe to read from it waits until somebody opens it to write."""
    pipe, device = tmp_path / "pipe", tmp_path / "device"
    os.mkfifo(pipe)
    device.symlink_to(os.devnull)
    end = os.open(pipe, os.O_RDWR)  # so that a test that fails ends as well
    try:
        for path in (pipe, device):
            with pytest.raises(OSError, match="expected a file, found a pipe or a device") as caught:
                PosixDisk().open(path, mode).close()
            assert caught.value.filename == str(path)
    finally:
        os.close(end)


def test_a_link_that_leads_nowhere_is_no_folder(tmp_path: Path) -> None:
    """A broker without its archive would end when the first segment leaves for it."""
    (tmp_path / "archive").symlink_to(tmp_path / "away")
    with pytest.raises(FileNotFoundError):
        make_folder(tmp_path / "archive")
    with pytest.raises(StoreError, match=f"cannot use {tmp_path} as a data folder: {tmp_path / 'archive'}: No such"):
        open_journal(tmp_path, JournalOptions.small())
    (tmp_path / "away").mkdir()
    make_folder(tmp_path / "archive")


def test_what_a_link_names_does_not_change_hands(tmp_path: Path, owners: Owners) -> None:
    (tmp_path / "anothers").write_text("secret")
    (tmp_path / "lock").symlink_to(tmp_path / "anothers")
    (tmp_path / "linked").hardlink_to(tmp_path / "anothers")
    for name in ("lock", "linked"):
        os.close(make_file(tmp_path / name, WRITTEN))
    assert owners.handed_over == []


def test_a_folder_that_was_put_in_the_place_of_the_new_one_does_not_change_hands(
    tmp_path: Path, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "anothers").mkdir()
    (tmp_path / "anothers" / "secret").touch()
    make = os.mkdir

    def make_and_swap(path: str, mode: int, *, dir_fd: int) -> None:
        make(path, mode, dir_fd=dir_fd)
        (tmp_path / "folder").rmdir()
        (tmp_path / "anothers").rename(tmp_path / "folder")

    monkeypatch.setattr(os, "mkdir", make_and_swap)
    make_folder(tmp_path / "folder")
    assert owners.handed_over == []


def test_who_is_not_root_or_may_not_gives_nothing_away(tmp_path: Path, owners: Owners) -> None:
    owners.refusing = True
    os.close(make_file(tmp_path / "a", WRITTEN))
    owners.uid = 1000
    os.close(make_file(tmp_path / "b", WRITTEN))
    make_folder(tmp_path / "c")
    with (tmp_path / "b").open() as file:
        hand_over(file.fileno(), tmp_path.stat())
    assert owners.handed_over == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_what_commands_leave_in_a_data_folder_is_the_brokers(tmp_path: Path, owners: Owners) -> None:
    owners.uid = 1000
    data = tmp_path / "data"
    close_journal(open_journal(data, JournalOptions.small()).recorder, 1)
    (data / "lock").unlink()
    owners.uid = 0
    mark(data)
    PosixDisk().open(data / "other", OpenMode.SYNCED).close()
    PosixDisk().make_folder(data / "folder" / "in it")
    lock, mark_, *others = owners.handed_over
    assert (lock, others) == ("lock", ["other", "folder", "in it"])
    assert mark_.startswith("backup.")  # its name until it is whole
