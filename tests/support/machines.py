"""Parts of a machine that a test may spoil for one process alone: a small disk, a clock, memory, without root; and, as
root, a whole file system."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

from tests.support.syscalls import lacking, require

_MOUNT: Final = 'mount -t tmpfs -o "size=$1" tmpfs "$2" && echo mounted && exec cat'


class SmallDisk:
    """A file system of this size, mounted on `folder` for those alone who are started with `prefix`.

    It lives in a namespace of mounts that belongs to a process of ours, and ends with that. Here it is seen below
    `seen`.
    """

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self.folder = folder
        self._holder = subprocess.Popen(
            [
                *(require("unshare"), "--user", "--map-root-user", "--mount"),
                *("sh", "-c", _MOUNT, "sh", str(size_bytes), str(folder)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"mounted\n":
            pytest.skip("this machine allows no namespaces")
        target = f"--target={self._holder.pid}"
        self.prefix = [require("nsenter"), target, "--user", "--mount", "--preserve-credentials"]
        self.seen = Path("/proc", str(self._holder.pid), "root", folder.relative_to("/"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._holder.communicate()

    def fill(self, leave_bytes: int = 0) -> None:
        """Have somebody else take all the room, but for so much."""
        room = os.statvfs(self.seen)
        with (self.seen / "ballast").open("wb") as file:
            file.write(bytes(max(0, room.f_bavail * room.f_bsize - leave_bytes)))

    def make_room(self) -> None:
        """Somebody else has tidied up."""
        (self.seen / "ballast").unlink()


class Ext4:
    """A file system of its own in an image, mounted on `folder`, that fails as those of machines do. Needs root."""

    _SHUTDOWN: Final = 0x8004_587D
    """EXT4_IOC_SHUTDOWN of linux/ext4.h: the file system is gone from one moment to the next."""
    _WITHOUT_FLUSH: Final = struct.pack("I", 2)
    """EXT4_GOING_FLAGS_NOLOGFLUSH: what was not synced by then is lost, as with the power."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self.folder = folder
        self._image = folder.with_name(folder.name + ".img")
        with self._image.open("wb") as file:
            file.truncate(size_bytes)
        folder.mkdir()
        self._run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mounted = False
        self.mount()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._mounted:
            self.unmount()

    @staticmethod
    def _run(command: str, *arguments: str) -> str:
        done = subprocess.run([require(command), *arguments], capture_output=True, text=True, check=False)
        if done.returncode > 1:  # 1: fsck has mended something
            pytest.skip(f"this machine lets us have no file system: {done.stderr.strip()}")
        return done.stdout

    def mount(self) -> None:
        """Look through it and mount it, as a machine does that starts."""
        self._run("fsck.ext4", "-p", str(self._image))
        self._run("mount", "-o", "loop,errors=remount-ro", str(self._image), str(self.folder))
        self._mounted = True

    def unmount(self) -> None:
        """Nobody may use it any more."""
        self._run("umount", str(self.folder))
        self._mounted = False

    def fail(self) -> None:
        """It finds an error in itself, and is read-only from now on."""
        source = self._run("findmnt", "--noheadings", "--output", "SOURCE", str(self.folder)).strip()
        Path("/sys/fs/ext4", Path(source).name, "trigger_fs_error").write_text("acquit's test")

    def lose_power(self) -> None:
        """What was not synced is lost, and nothing is written or read from now on."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, self._SHUTDOWN, self._WITHOUT_FLUSH)
        finally:
            os.close(descriptor)


class WrongClock:
    """A wall clock that can be set for one process, by libfaketime; what runs steadily goes on as ever."""

    def __init__(self, folder: Path) -> None:
        found = list(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        if not found:
            lacking("libfaketime")
        self._file = folder / "clock"
        self.set(0)
        self.prefix = [
            *("env", f"LD_PRELOAD={found[0]}", f"FAKETIME_TIMESTAMP_FILE={self._file}"),
            *("FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1"),
            "NO_FAKE_STAT=1",
        ]

    def set(self, ahead_s: int) -> None:
        """From now on it is so much ahead of the right time, or (negative) behind."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{ahead_s:+d}\n")
        fresh.rename(self._file)


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[list[str]]:
    """A control group that may use so much memory: what stands in front of a command that is to be in it."""
    for root, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / f"acquit-{os.getpid()}-{time.monotonic_ns()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(limit_bytes))
        except OSError:
            if group.exists():
                group.rmdir()
            continue
        try:
            join = f'echo $$ > "{group}/cgroup.procs" && exec "$@"'
            yield ["sh", "-c", join, "sh"]
        finally:
            group.rmdir()
        return
    pytest.skip("this machine lets us make no control group")


__all__ = ["Ext4", "SmallDisk", "WrongClock", "memory_group"]
