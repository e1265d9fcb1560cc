"""Files that are there whole or not at all, and names that a power cut does not take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acquit.spark import files
from acquit.spark.files import make_folders, sync, write_whole


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    found: list[Path] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        found.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        real(descriptor)

    monkeypatch.setattr(files.os, "fsync", fsync)
    return found


def test_a_file_or_a_folder_is_synced(tmp_path: Path, synced: list[Path]) -> None:
    (tmp_path / "file").write_bytes(b"x")
    sync(tmp_path / "file")
    sync(tmp_path)
    assert synced == [tmp_path / "file", tmp_path]
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "nothing")


def test_every_new_folder_is_durable_in_its_parent(tmp_path: Path, synced: list[Path]) -> None:
    make_folders(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    make_folders(tmp_path / "a" / "b")
    assert len(synced) == 3, "what is there already is not synced again"


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(NotADirectoryError, match="file'"):
        make_folders(tmp_path / "file")


def test_a_file_is_replaced_by_one_that_is_durable(
    tmp_path: Path, synced: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "page.html"
    target.write_bytes(b"old")
    real = os.replace

    def replace(beside: Path, path: Path) -> None:
        assert path == target and beside.parent == tmp_path and synced == [beside]
        assert target.read_bytes() == b"old" and beside.read_bytes() == b"new"
        real(beside, path)

    monkeypatch.setattr(files.os, "replace", replace)
    write_whole(target, b"new")
    assert target.read_bytes() == b"new" and list(tmp_path.iterdir()) == [target]


def test_a_file_that_cannot_be_written_leaves_the_one_before_and_nothing_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "page.html"
    write_whole(target, b"old")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_whole(target, b"new")
    assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]


def test_two_that_write_one_file_at_once_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of one process, or hosts with the same process ids."""
    target = tmp_path / "page.html"
    real = os.fsync
    others = [b"another" * 1_000]

    def meanwhile(descriptor: int) -> None:
        if others:
            write_whole(target, others.pop())
            assert target.read_bytes() == b"another" * 1_000
        real(descriptor)

    monkeypatch.setattr(files.os, "fsync", meanwhile)
    write_whole(target, b"mine")
    assert target.read_bytes() == b"mine" and list(tmp_path.iterdir()) == [target]


def test_a_file_has_the_mode_that_is_asked_for_as_far_as_the_process_allows(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "plain", b"")
        write_whole(tmp_path / "script", b"", mode=0o777)
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("plain", "script")]
    assert modes == [0o640, 0o750]
