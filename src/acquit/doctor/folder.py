"""Checks of the data folder: its disk, and the journal in it.

The journal is read as the audit reads it, so a broker may be running on it, and is not disturbed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acquit.broker.options import BrokerOptions
from acquit.doctor.findings import Diagnosis, ok, problem, size_text, warning
from acquit.errors import StoreError, StoreMissing
from acquit.ledger.balance import balance
from acquit.ledger.fold import read_fold
from acquit.store.disk import NOT_HERE, OpenMode, PosixDisk, read_holder
from acquit.store.folder import PART
from acquit.store.ownership import make_file
from acquit.store.reading import FolderReader

MOUNTS: Final = Path("/proc/self/mountinfo")
SYNCS: Final = 30
SYNC_BYTES: Final = 4096
SLOW_MS: Final = 20.0
"""Median of a sync, in milliseconds, beyond which durable sends one by one are fewer than 50 a second."""
PAUSE_MS: Final = 250.0
"""Longest sync that is not worth a word."""
INSTANT_MS: Final = 0.005
"""Median below which no device has taken anything."""
SIDE_FILES: Final = 4 / 3
"""Room of an archive with its side files, for each byte of segments."""
_OTHERS: Final = 0o077
_OCTAL: Final = re.compile(r"\\([0-7]{3})")

# file system: (whether a broker must not be there, what it is, what to do)
FILE_SYSTEMS: Final[dict[str, tuple[bool, str, str]]] = {
    "tmpfs": (True, "is memory: all of it is gone after a restart of the machine", "put --data on a disk"),
    "ramfs": (True, "is memory: all of it is gone after a restart of the machine", "put --data on a disk"),
    "overlay": (False, "goes with the container", "mount a volume there"),
    "nfs": (False, "is a network's: locks and syncs are as good as its server's", "use a disk of this machine"),
    "nfs4": (False, "is a network's: locks and syncs are as good as its server's", "use a disk of this machine"),
    "cifs": (False, "is a network's: locks and syncs are as good as its server's", "use a disk of this machine"),
    "9p": (False, "is another system's: its syncs may not reach a disk", "use a disk of this machine"),
    "fuse": (False, "is a program's: its syncs may not reach a disk", "use a disk of this machine"),
}


@dataclass(frozen=True, slots=True)
class SyncTimes:
    """Times of small synced writes, in milliseconds."""

    median_ms: float
    max_ms: float


def examine(data: Path, options: BrokerOptions) -> Iterator[Diagnosis]:
    """Yield what is found of a data folder, or of the place where it will be made."""
    place = nearest(data)
    kind = file_system(place, mounts())
    yield judge_file_system(place, kind)
    within = (data / "journal", data / "archive") if place == data.absolute() and os.access(data, os.X_OK) else ()
    shut = {path: verb for path in (place, *within) if os.path.lexists(path) and (verb := _shut(path))}
    for path, verb in shut.items():
        yield problem("folder", f"{path} cannot be {verb} by this user", "run as the broker's user, or chown it")
    if shut:
        return
    if place == data and data.stat().st_mode & _OTHERS:
        yield warning("folder", f"others may read {data}, and the messages in it", f"chmod 700 {data}")
    yield room(shutil.disk_usage(place).free, used_bytes(data), options)
    try:
        yield judge_syncs(time_syncs(place), kind)
    except OSError as error:
        yield problem("sync", f"a file in {place} cannot be written: {error.strerror}", "see to the disk")
    yield holder(data)
    yield journal(data)


def _shut(folder: Path) -> str:
    """Return what this user may not do in a folder that a broker works in; empty where everything is allowed."""
    verbs = {os.W_OK: "written", os.R_OK: "read", os.X_OK: "entered"}
    return next((verb for mode, verb in verbs.items() if not os.access(folder, mode)), "")


def nearest(path: Path) -> Path:
    """Return the path itself, or the closest folder above it that is there."""
    path = path.absolute()
    return next(level for level in (path, *path.parents) if level.is_dir())


def mounts() -> str:
    """Return the mounts that this process sees; empty on systems that do not tell."""
    try:
        return MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def file_system(path: Path, mountinfo: str) -> str:
    """Return the kind of the file system that has `path`, by the lines of proc(5)'s mountinfo; empty if unknown."""
    found, longest = "", -1
    target = path.resolve()
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        point = Path(_OCTAL.sub(lambda match: chr(int(match[1], 8)), fields.split(" ")[4]))
        # Of two mounts at one point the later covers the earlier.
        if target.is_relative_to(point) and len(point.parts) >= longest:
            found, longest = rest.split(" ")[0], len(point.parts)
    return found


def judge_file_system(place: Path, kind: str) -> Diagnosis:
    """Judge where the folder is."""
    known = FILE_SYSTEMS.get(kind) or FILE_SYSTEMS.get(kind.partition(".")[0])
    if known is None:
        return ok(
            "file system", f"{place} is on {kind}" if kind else f"{place}; this system does not tell of which kind"
        )
    lost, found, advice = known
    make = problem if lost else warning
    return make("file system", f"{place} is on {kind}, which {found}", advice)


def used_bytes(data: Path) -> int:
    """Return the room that a data folder takes."""
    total = 0
    for folder, _, names in os.walk(data):
        for name in names:
            with contextlib.suppress(OSError):  # the broker removed it meanwhile
                total += (Path(folder) / name).stat().st_blocks * 512
    return total


def room(free_bytes: int, taken_bytes: int, options: BrokerOptions) -> Diagnosis:
    """Judge the free room, by what the journal and its archive may grow to."""
    limits = options.journal
    files = limits.reserve_segments + limits.spare_segments + 1
    first = files * limits.prewritten_bytes(0)
    grown = int(limits.recovery_bytes_max + limits.archive_bytes_max * SIDE_FILES) + files * limits.segment_bytes
    left = max(0, grown - taken_bytes)
    found = f"{size_text(free_bytes)} free; the journal and its archive take {size_text(taken_bytes)}"
    if free_bytes + taken_bytes < first:
        return problem(
            "disk", f"{found}, and need {size_text(first)} to start", "make room, or lower journal.first_segment_bytes"
        )
    if free_bytes < left:
        happens = (
            "the oldest of the archive goes early"
            if limits.archive_yields
            else "then messages are refused, as journal.archive_yields is false"
        )
        return warning(
            "disk",
            f"{found} and may grow by {size_text(left)}: {happens}",
            f"lower journal.archive_bytes_max (now {size_text(limits.archive_bytes_max)}), or make room",
        )
    return ok("disk", f"{found} and may grow by {size_text(left)}")


def time_syncs(place: Path) -> SyncTimes:
    """Write a small file of its own with synced writes, as the journal does, and remove it. Raises OSError."""
    path = place / f"doctor.{secrets.token_hex(4)}{PART}"  # a broker that starts removes what such a name was left
    disk = PosixDisk()
    file = disk.open(path, OpenMode.SYNCED)
    times = []
    try:
        file.write(bytes(SYNC_BYTES * SYNCS), 0)
        for number in range(SYNCS):
            begun = time.perf_counter()
            file.write(os.urandom(SYNC_BYTES), number * SYNC_BYTES)
            times.append((time.perf_counter() - begun) * 1000)
    finally:
        file.close()
        disk.remove(path)
    return SyncTimes(statistics.median(times), max(times))


def judge_syncs(times: SyncTimes, kind: str) -> Diagnosis:
    """Judge how long a durable message waits for the disk at least."""
    found = f"a synced write takes {times.median_ms:.2f} ms (median), {times.max_ms:.2f} ms at most"
    if times.median_ms < INSTANT_MS and kind not in ("tmpfs", "ramfs"):
        advice = "see whether the disk or its host answers before the data is safe"
        return warning("sync", f"{found}: no disk is so quick", advice)
    if times.median_ms > SLOW_MS:
        return warning("sync", f"{found}: each durable message waits for that", "use an SSD of this machine")
    if times.max_ms > PAUSE_MS:
        return warning("sync", f"{found}: such pauses are seen by everybody who sends", "see who else uses the disk")
    return ok("sync", found)


def holder(data: Path) -> Diagnosis:
    """Say whether a broker is running on the folder. The lock is tried, and given back at once."""
    none = "none is running on this folder"
    try:
        fd = make_file(data / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ok("broker", none)
    except OSError as error:
        return problem("broker", f"{data / 'lock'} cannot be opened: {error.strerror}", "run as the broker's user")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        name, absent = read_holder(fd)
        if absent:
            return warning("broker", f"this folder is held by {name}, {NOT_HERE}", f"fuser {data / 'lock'} names it")
        return ok("broker", f"one is running on this folder: {name}")
    finally:
        os.close(fd)
    return ok("broker", none)


def journal(data: Path) -> Diagnosis:
    """Read the journal as a start would, without writing."""
    try:
        fold = read_fold(FolderReader(data))
    except StoreMissing:
        if any(
            path.is_file() and path.name != "lock" for path in data.rglob("*")
        ):  # a start that was refused left that
            return problem("journal", f"{data} has files and no broker.json", "name the broker's folder with --data")
        return ok("journal", f"there is none in {data} yet: the first start makes it")
    except (StoreError, OSError) as error:
        return problem("journal", " ".join(str(error).split()), "docs/not-starting.md says what to do")
    rows = balance(fold)
    found = f"queues: {len(rows.queues)}, messages: {sum(row.live.total for row in rows.queues):,}"
    if not rows.balanced:
        return problem("journal", f"{found}; the accounts do not balance", "acquit ledger balance says where")
    return ok("journal", f"readable: {found}; the accounts balance")
