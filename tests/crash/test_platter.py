"""The rules of a platter, each on a trace of a few calls: what it lets be lost, and what it does not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.platter import Luck, Platter
from tests.support.syscalls import moments

ROOT = Path("/disk")
IMAGES = 200


def hexed(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def opened(name: str, descriptor: int, flags: str = "O_RDWR|O_CREAT") -> str:
    return f'openat(AT_FDCWD, "{hexed(f"/disk/{name}")}", {flags}, 0600) = {descriptor}<{hexed(f"/disk/{name}")}>'


def wrote(name: str, descriptor: int, text: str, offset: int = 0) -> str:
    return f'pwrite64({descriptor}<{hexed(f"/disk/{name}")}>, "{hexed(text)}", {len(text)}, {offset}) = {len(text)}'


def synced(name: str, descriptor: int, call: str = "fdatasync") -> str:
    path = f"/disk/{name}" if name else "/disk"
    return f"{call}({descriptor}<{hexed(path)}>) = 0"


def renamed(old: str, new: str) -> str:
    return f'rename("{hexed(f"/disk/{old}")}", "{hexed(f"/disk/{new}")}") = 0'


def possible(folder: Path, lines: Sequence[str]) -> list[dict[str, bytes | None]]:
    """Many of the disks that may be there after these calls."""
    trace = folder / "trace"
    trace.write_text("".join(f"7  {line}\n" for line in lines))
    platter = Platter(ROOT)
    for moment in moments(trace):
        platter.take(moment)
    return [platter.image(Luck(random.Random(seed))) for seed in range(IMAGES)]


NAMED = [opened("a", 3), synced("", 4, "fsync")]


def test_what_was_not_synced_may_be_lost_in_any_part(tmp_path: Path) -> None:
    found = {image["a"] for image in possible(tmp_path, [*NAMED, wrote("a", 3, "x" * 512 + "y" * 512)])}
    assert found == {b"", b"x" * 512, bytes(512) + b"y" * 512, b"x" * 512 + b"y" * 512}


def test_a_later_write_may_survive_an_earlier_one(tmp_path: Path) -> None:
    lines = [*NAMED, opened("b", 5), synced("", 4, "fsync"), wrote("a", 3, "1"), wrote("b", 5, "2")]
    found = {(image["a"], image["b"]) for image in possible(tmp_path, lines)}
    assert found == {(b"", b""), (b"1", b""), (b"", b"2"), (b"1", b"2")}


def test_what_was_synced_is_there(tmp_path: Path) -> None:
    images = possible(tmp_path, [*NAMED, wrote("a", 3, "x"), synced("a", 3), wrote("a", 3, "y", 1)])
    assert {image["a"] for image in images} == {b"x", b"xy"}


def test_a_sync_covers_nothing_that_was_written_while_it_ran(tmp_path: Path) -> None:
    call, _, _ = synced("a", 3).partition(")")
    lines = [*NAMED, f"{call} <unfinished ...>", wrote("a", 3, "x"), "<... fdatasync resumed>) = 0"]
    trace = tmp_path / "trace"
    trace.write_text("".join(f"{7 if 'fdatasync' in line else 8}  {line}\n" for line in lines))
    platter = Platter(ROOT)
    for moment in moments(trace):
        platter.take(moment)
    assert {platter.image(Luck(random.Random(seed)))["a"] for seed in range(IMAGES)} == {b"", b"x"}


def test_a_synced_write_is_there_and_what_was_written_before_it_perhaps(tmp_path: Path) -> None:
    lines = [
        *NAMED,
        wrote("a", 3, "x"),
        opened("a", 5, "O_RDWR|O_CREAT|O_DSYNC"),
        wrote("a", 5, "y", 512),
    ]
    assert {image["a"] for image in possible(tmp_path, lines)} == {bytes(512) + b"y", b"x" + bytes(511) + b"y"}


@pytest.mark.parametrize("folder_synced", [False, True])
def test_a_name_is_there_when_its_folder_was_synced(folder_synced: bool, tmp_path: Path) -> None:
    lines = [opened("a", 3), wrote("a", 3, "x"), synced("a", 3)] + [synced("", 4, "fsync")] * folder_synced
    assert {image.get("a") for image in possible(tmp_path, lines)} == ({b"x"} if folder_synced else {b"x", None})


def test_a_rename_leaves_one_name_and_never_none(tmp_path: Path) -> None:
    lines = [*NAMED, wrote("a", 3, "x"), synced("a", 3), renamed("a", "b")]
    assert {tuple(image) for image in possible(tmp_path, lines)} == {("a",), ("b",)}


def test_a_name_that_was_taken_is_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    lines = [
        *(*NAMED, wrote("a", 3, "old"), synced("a", 3)),
        *(opened("b", 5), wrote("b", 5, "new"), synced("b", 5), synced("", 4, "fsync"), renamed("b", "a")),
    ]
    assert {image["a"] for image in possible(tmp_path, lines)} == {b"old", b"new"}


def test_what_failed_did_nothing(tmp_path: Path) -> None:
    failed = synced("a", 3).replace("= 0", "= -1 EIO (Input/output error) (INJECTED)")
    assert {image["a"] for image in possible(tmp_path, [*NAMED, wrote("a", 3, "x"), failed])} == {b"", b"x"}


def test_a_call_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="not followed"):
        possible(tmp_path, [*NAMED, f"fallocate(3<{hexed('/disk/a')}>, 0, 0, 4096) = 0"])
