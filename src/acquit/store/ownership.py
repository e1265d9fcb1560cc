"""Making files and folders that whoever has the folder around them can use.

Commands that write into a broker's folder are often run by root, and the broker by a user of its own, who could not
open what root made there for its owner alone. So what root makes belongs to the owner and the group of the folder it is
in.

That is given to a descriptor of what was made just now, in a folder that is held open: somebody who may write there
could put a link to another's file in its place, and no such file must change hands.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def make_file(path: Path, flags: int, *, folder: int | None = None) -> int:
    """Open a file by `os.open`, with mode 0600 where the flags make it, and return the descriptor. `folder`: descriptor
    of the folder that it is in, where there is one. Errors name the path. What is no file, nor a folder, which cannot
    be read, is an OSError: to open a pipe is to wait for its other end, for ever."""
    try:
        made = _make_file(path, flags | os.O_NONBLOCK, folder)
        mode = os.fstat(made).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            os.close(made)
            raise OSError(errno.EINVAL, "expected a file, found a pipe or a device")
        return made
    except OSError as error:
        error.filename = str(path)  # and not the name in the folder alone
        raise


def _make_file(path: Path, flags: int, folder: int | None) -> int:
    if os.geteuid() != 0 or not flags & os.O_CREAT:
        return os.open(path if folder is None else path.name, flags, 0o600, dir_fd=folder)
    with _opened(path.parent) if folder is None else contextlib.nullcontext(folder) as around:
        try:
            made = os.open(path.name, flags | os.O_EXCL, 0o600, dir_fd=around)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
            return os.open(path.name, flags, 0o600, dir_fd=around)
        hand_over(made, os.fstat(around))
        return made


def make_folder(path: Path) -> None:
    """Make a folder with mode 0700, unless it is there. A link that leads nowhere is FileNotFoundError."""
    with _opened(path.parent) as around:
        try:
            os.mkdir(path.name, 0o700, dir_fd=around)
        except FileExistsError:
            os.stat(path.name, dir_fd=around)
            return
        if os.geteuid() != 0:
            return
        made = os.open(path.name, _FOLDER | os.O_NOFOLLOW, dir_fd=around)
        try:
            # Who owns the folder around it may have put another in its place. One that is empty tells nothing.
            if not os.listdir(made):
                hand_over(made, os.fstat(around))
        finally:
            os.close(made)


def hand_over(made: int, like: os.stat_result) -> None:
    """Give what was made owner and group of something else, where the process may."""
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):  # root of a container that may not, or a file system that has no owners
            os.fchown(made, like.st_uid, like.st_gid)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


__all__ = ["hand_over", "make_file", "make_folder"]
