"""Whose folder it is, and what is in it."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from uuid import UUID

import pytest

from acquit.errors import StoreCorrupt, StoreError, StoreFailed, StoreFull, StoreVersionUnsupported
from acquit.store.disk import NotOpened
from acquit.store.folder import STUB, Folder, StoreIdentity
from acquit.store.memory import MemoryDisk
from acquit.store.reading import FolderReader

IDENTITY = StoreIdentity(UUID("00112233-4455-6677-8899-aabbccddeeff"), "the broker")


@pytest.fixture
def folder() -> Folder:
    return Folder(Path("/data"), MemoryDisk())


def content(folder: Folder, data: bytes) -> None:
    assert isinstance(folder.disk, MemoryDisk)
    folder.disk.files[folder.identity_path] = bytearray(data)


def test_an_archive_on_another_file_system_is_refused_at_once(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not when the first segment leaves, which may be days later."""

    def rename(self: MemoryDisk, old: Path, new: Path) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    folder.make()
    monkeypatch.setattr(MemoryDisk, "rename", rename)
    with pytest.raises(StoreError, match="/data/archive is on another file system than /data/journal"):
        folder.make()


@pytest.mark.parametrize("call", ["names", "rename"])
@pytest.mark.parametrize("name", ["journal", "archive"])
def test_the_folder_that_may_not_be_used_is_named(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, name: str, call: str
) -> None:
    """`rename` is refused where names can be listed, and no more (mode 0400)."""
    refuse_in(monkeypatch, call, folder.path / name)
    with pytest.raises(StoreError) as caught:
        folder.make()
    assert str(caught.value) == f"cannot use /data as a data folder: /data/{name}: Permission denied"


@pytest.mark.parametrize("name", ["journal", "archive"])
def test_a_folder_that_nothing_is_left_to_look_into_with_is_not_refused(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whoever tries again later may find descriptors: the folder is as it should be."""

    def names(self: MemoryDisk, looked_at: Path) -> list[str]:
        if looked_at == folder.path / name:
            raise NotOpened(errno.EMFILE, "Too many open files", str(looked_at))
        return []

    monkeypatch.setattr(MemoryDisk, "names", names)
    with pytest.raises(StoreFull, match=f"^/data/{name}: Too many open files$") as caught:
        folder.make()
    assert caught.value.limit == "the process has no file descriptor left"


@pytest.mark.parametrize("name", ["", "journal", "archive"])
def test_the_folder_that_may_not_be_read_is_named(folder: Folder, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    folder.make()
    folder.write_identity(IDENTITY)
    refuse_in(monkeypatch, "names", folder.path / name)
    with pytest.raises(StoreFailed) as caught:
        FolderReader(folder.path, folder.disk).contents()
    assert str(caught.value) == f"{folder.path / name}: Permission denied"


def refuse_in(monkeypatch: pytest.MonkeyPatch, call: str, refused: Path) -> None:
    """Have the system refuse a call with anything in this folder."""
    real = getattr(MemoryDisk, call)

    def attempt(self: MemoryDisk, *paths: Path) -> object:
        for path in paths:
            if refused in (path, path.parent):
                raise PermissionError(errno.EACCES, "Permission denied", str(paths[0]))
        return real(self, *paths)

    monkeypatch.setattr(MemoryDisk, call, attempt)


def test_a_new_folder_has_no_identity(folder: Folder) -> None:
    assert folder.read_identity() is None


def test_an_identity_comes_back(folder: Folder) -> None:
    folder.write_identity(IDENTITY)
    assert folder.read_identity() == IDENTITY
    assert folder.disk.names(folder.path) == ["broker.json"]


def test_a_format_of_the_future(folder: Folder) -> None:
    document = {**json.loads(IDENTITY.encode()), "format": 99, "unheard": "of"}
    content(folder, json.dumps(document).encode())
    with pytest.raises(StoreVersionUnsupported, match="format 99; this version of acquit reads and writes format 1"):
        folder.read_identity()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'"text"',
        b'{"format": 1}',
        b'{"format": 1, "store": "x", "container-id": "y", "check": "z"}',
        b"\xff\xfe",
        IDENTITY.encode().replace(b"the broker", b"THE broker"),
    ],
)
def test_what_is_no_identity(folder: Folder, data: bytes) -> None:
    content(folder, data)
    with pytest.raises(StoreCorrupt, match=r"broker\.json, offset 0: not the identity of a store"):
        folder.read_identity()


def test_numbers_are_those_of_segments(folder: Folder) -> None:
    assert isinstance(folder.disk, MemoryDisk)
    for name in (f"{7:020}.seg", f"{3:020}.seg", "7.seg", f"{4:020}.seg.part", f"{'x' * 20}.seg", f"{3:020}.events"):
        folder.disk.files[folder.journal / name] = bytearray()
    folder.disk.files[folder.archive / f"{1:020}.stub"] = bytearray()
    assert folder.numbers() == [3, 7]
    assert folder.numbers(archived=True) == []
    assert folder.numbers(archived=True, suffix=STUB) == [1]


def test_parts_are_removed_and_nothing_else(folder: Folder) -> None:
    assert isinstance(folder.disk, MemoryDisk)
    keep = folder.journal / f"{3:020}.seg"
    for path in (keep, folder.journal / "x.part", folder.path / "broker.12.part", folder.archive / "y.events.part"):
        folder.disk.files[path] = bytearray()
    folder.remove_parts()
    assert list(folder.disk.files) == [keep]
