"""Places where a spool may lie, as users write them, and what can be told of one before anything is written there.

====================================  =================================================================================
``/path`` or ``file:///path``         a folder: shared by all machines that run the query, or all of it is one machine
``s3://bucket/path`` (``s3a://``)     an object store that speaks S3 (the extra `s3`)
====================================  =================================================================================

**Whether a folder is shared** nobody can see by looking at it from one machine: an exported disk looks like any other
there. So each task asks for what the driver has left for it (`Spool.check_plan`) before it opens a link, and
`refuse_private` refuses beforehand what cannot be shared whatever is mounted elsewhere: memory and a container's own
layer, where the master is on another machine. `file_system` gives the errors a reason.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from acquit.errors import ConfigurationError, SpoolNotShared
from acquit.spark.spool.store import FolderStore, SpoolStore

PRIVATE: Final = frozenset({"tmpfs", "ramfs", "overlay", "aufs", "fuse-overlayfs", "squashfs"})
"""File systems that no other machine can have, and no other container either."""
LOCAL_DISKS: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "vfat", "exfat", "ntfs3"})
"""File systems on a disk of this machine, which other machines have only if it is exported to them."""


def read_place(text: str) -> str:
    """The place that `text` names, in the one way it is written everywhere. ValueError says what is expected;
    ConfigurationError where `text` may hold a secret and is not to be repeated beside it."""
    for scheme in ("s3://", "s3a://"):
        if text.startswith(scheme):
            return _read_objects(text.removeprefix(scheme))
    path = text.removeprefix("file://")
    if not os.path.isabs(path) or "\0" in path:
        raise ValueError(
            "an absolute path (or file:///path) of a local or shared folder, or s3://bucket/path, the same for the "
            "driver and all workers"
        )
    return path


def open_store(place: str) -> SpoolStore:
    """The store at a place that `read_place` has read. Nothing is asked of it yet.

    Raises ConfigurationError when s3fs is missing.
    """
    if not place.startswith("s3://"):
        return FolderStore(place)
    if importlib.util.find_spec("s3fs") is None:
        raise ConfigurationError(
            f"a spool at {place} needs s3fs on the driver and all workers: pip install 'acquit[s3]'"
        )
    from acquit.spark.spool.objects import ObjectStore

    return ObjectStore(place)


def file_system(folder: str | Path, mounts: Iterable[str] | None = None) -> str | None:
    """The kind of file system that `folder` lies on ("ext4", "nfs4", ...); None where the machine does not tell.

    `mounts` are lines of /proc/mounts.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return None
    wanted = Path(os.path.realpath(folder))
    deepest, kind = -1, None
    for line in mounts:
        _, point, found, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        depth = len(Path(point).parts)
        if depth >= deepest and wanted.is_relative_to(point):
            deepest, kind = depth, found
    return kind


def refuse_private(place: str, master: str, *, kind_of: Callable[[str], str | None] = file_system) -> None:
    """Raise SpoolNotShared when workers of the Spark at `master` cannot have the folder `place`.

    Says nothing where it cannot know: of a disk that may be exported, the tasks will tell (`Spool.check_plan`).
    """
    if place.startswith("s3://") or _is_here(master):
        return
    kind = kind_of(place)
    if kind in PRIVATE:
        raise SpoolNotShared(
            f"spool {place}: that is {kind} on {socket.gethostname()}, which no other machine or container can have, "
            f"and the master is {master}: name a folder that the driver and all workers mount, or s3://bucket/path"
        )


def describe(place: str) -> str:
    """Describe a place that others do not see, for people: its file system; "" where that is not known."""
    kind = None if place.startswith("s3://") else file_system(place)
    reasons: Mapping[bool, str] = {
        kind in PRIVATE: ", which no other machine or container can have",
        kind in LOCAL_DISKS: ", a disk of that machine",
    }
    return "" if kind is None else f" (there it is on {kind}{reasons.get(True, '')})"


def _read_objects(rest: str) -> str:
    bucket, _, path = rest.partition("/")
    expected = "s3://bucket/path, where the path is the spool's alone, with credentials in the environment"
    if any(mark in rest for mark in "@?#"):
        # It may be a secret: it is not repeated.
        raise ConfigurationError(f"spool in an object store: expected {expected}, and no @, ? or #")
    if not bucket or not path.strip("/"):
        raise ValueError(expected)
    return f"s3://{bucket}/{path.strip('/')}"


def _is_here(master: str) -> bool:
    """True if the workers are on this machine, as far as their master's URL says."""
    if master.startswith("local"):
        return True
    host = urlsplit(master).hostname if master.startswith("spark://") else None
    if host is None:
        return False
    if host in ("localhost", socket.gethostname()):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
