"""The POSIX store: a name comes to exist once, whole, and durably."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from acquit.errors import SpoolError
from acquit.spark.spool.store import FolderStore, StoreDoubt


@pytest.mark.promise("spool-store")
def test_a_second_write_of_one_name_is_refused(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "spool")
    assert store.put_if_absent("log/1", b"first")
    assert not store.put_if_absent("log/1", b"second")
    assert store.get("log/1") == b"first"
    assert store.names("log") == ["1"], "the temporary file is gone"


def test_what_is_not_there(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "spool")
    assert store.get("log/1") is None
    assert store.view("data/1") is None
    assert store.names("log") == []
    store.remove("log/1")
    store.sync("log")


def test_large_files_are_mapped(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("data/x", memoryview(b"a"), b"", b"bc")
    store.put("data/empty", b"")
    view, empty = store.view("data/x"), store.view("data/empty")
    assert view is not None and bytes(view) == b"abc" and view.readonly
    assert empty is not None and bytes(empty) == b""


class _Calls:
    """Which system calls were made on what, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        for name in ("fsync", "link", "rename"):
            monkeypatch.setattr(os, name, self._recorded(name, getattr(os, name)))

    def _recorded(self, name: str, real):  # type: ignore[no-untyped-def]
        def call(*arguments, **keywords):  # type: ignore[no-untyped-def]
            kind = ""
            if name == "fsync":
                kind = " folder" if stat.S_ISDIR(os.fstat(arguments[0]).st_mode) else " file"
            self.made.append(name + kind)
            return real(*arguments, **keywords)

        return call


def test_the_bytes_are_durable_before_the_name_and_the_name_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(tmp_path)
    (tmp_path / "log").mkdir()
    calls = _Calls(monkeypatch)
    store.put_if_absent("log/1", b"entry")
    assert calls.made == ["fsync file", "link", "fsync folder"]


@pytest.mark.promise("spool-store")
def test_a_refused_write_makes_durable_what_it_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(tmp_path)
    store.put_if_absent("log/1", b"entry")
    calls = _Calls(monkeypatch)
    store.put_if_absent("log/1", b"other")
    assert calls.made[-1] == "fsync folder"


def test_a_data_file_is_durable_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(tmp_path)
    (tmp_path / "data").mkdir()
    calls = _Calls(monkeypatch)
    store.put("data/1", b"rows")
    assert calls.made == ["fsync file", "rename", "fsync folder"]


def test_new_folders_are_durable_in_their_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _Calls(monkeypatch)
    FolderStore(tmp_path / "a" / "b").put("data/1", b"", durable=False)
    assert calls.made == ["fsync folder"] * 3 + ["rename"]


def test_a_link_without_an_answer_is_a_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object, **__: object) -> None:
        raise OSError(errno.ETIMEDOUT, "Connection timed out")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StoreDoubt, match="cannot tell whether log/1 was created: Connection timed out"):
        FolderStore(tmp_path).put_if_absent("log/1", b"entry")


def test_a_full_disk_names_the_spool_and_the_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "data").mkdir()
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(SpoolError, match=f"spool {tmp_path}: cannot write data/1: No space left on device"):
        FolderStore(tmp_path).put("data/1", b"rows")
    assert list((tmp_path / "data").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file")
    with pytest.raises(SpoolError, match=r"cannot create .*spool"):
        FolderStore(tmp_path / "spool").put("data/1", b"")
