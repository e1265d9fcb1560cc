"""A disk in memory that fails the way disks do.

It keeps what a real one keeps apart: what a process sees (all writes, at once) and what survives a loss of power
(what was synced, and of the rest whatever pleases the disk). Every operation that changes anything is a *step*:

* ``FaultyDisk(power_loss_at=n)`` dies in step n: that step may have been done in part, and every later call raises
  `PowerLoss`. ``disk.after_power_loss(choice)`` is then the disk as the next process finds it, where `choice` decides,
  for every 512-byte block of every write that was not synced, and for every change of names that was not, whether it
  got to the platter. Blocks survive or are lost independently of each other: later writes may survive earlier ones.
* ``errors={n: errno.EIO}`` raises in step n; for ENOSPC in a write, half of it is done first.
* ``failing=errno.EIO`` raises in every step and read, as a disk does that has gone for good.
* ``sync_errors=n``: the next n syncs, and synced writes, fail with EIO. The system then believes that what they were
  for is written, and may have forgotten it: `after_kill` asks its `choice` for each of its blocks.
* ``read_errors=n``: the next n reads fail with EIO.
* ``disk.lose(path, ...)``: these bytes of a file cannot be read any more, by this process or a later one.
* ``refused={path: errno.EACCES}``: this file cannot be opened to be read.
* ``unopened=errno.EMFILE``: nothing is opened, listed or, where it is a folder, synced, as in a process that has no
  descriptor left. What is open already is as it was.
* ``capacity_bytes`` is a disk that gets full: writes that would grow a file beyond it are cut short, then fail.

Renames and new names are lost from the newest backwards, as journaling file systems do, but independently of data.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from acquit.errors import StoreLocked
from acquit.store.disk import Disk, DiskFile, OpenMode, opening

BLOCK_BYTES = 512

Choice = Callable[[], bool]
"""Asked for each thing that was not synced: did it survive?"""


class PowerLoss(BaseException):
    """The machine is gone. Not an Exception: nothing that runs on the machine may handle it."""


def none_survives() -> bool:
    """Return False: no unsynced write survives."""
    return False


def all_survives() -> bool:
    """All of it did."""
    return True


@dataclass(slots=True)
class _FileNode:
    """A file: what is seen, what is safe, and what lies between."""

    seen: bytearray = field(default_factory=bytearray)
    safe: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None, bool]] = field(default_factory=list)
    """(offset, data) of writes, (size, None) of truncations, in order; and whether it is safe by itself, as a synced
    write is, whatever became of what was done before it."""
    doubtful: bool = False
    """A sync of it has failed."""
    lost: range = range(0)
    """Bytes of it that cannot be read."""

    def apply(self, content: bytearray, offset: int, data: bytes | None) -> None:
        if data is None:
            if offset < len(content):
                del content[offset:]
            else:
                content.extend(bytes(offset - len(content)))
            return
        if offset > len(content):
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(data)] = data

    def change(self, offset: int, data: bytes | None) -> None:
        self.apply(self.seen, offset, data)
        self.pending.append((offset, data, False))

    def sync_last(self) -> None:
        """The last change alone is safe: a synced write says nothing of a truncation before it."""
        offset, data, _ = self.pending[-1]
        if len(self.pending) == 1:
            self.sync()
        else:
            self.pending[-1] = offset, data, True

    def sync(self) -> None:
        for offset, data, _ in self.pending:
            self.apply(self.safe, offset, data)
        self.pending.clear()

    def survivor(self, choice: Choice) -> bytearray:
        content = bytearray(self.safe)
        for offset, data, safe in self.pending:
            if data is None or safe:
                if safe or choice():
                    self.apply(content, offset, data)
                continue
            step = offset
            while step < offset + len(data):
                end = min(offset + len(data), (step // BLOCK_BYTES + 1) * BLOCK_BYTES)
                if choice():
                    self.apply(content, step, data[step - offset : end - offset])
                step = end
        return content


class _NamedFiles(dict[Path, _FileNode]):
    """Files by path, and the names in each folder: folders are listed often."""

    def __init__(self) -> None:
        super().__init__()
        self.folders: defaultdict[Path, set[str]] = defaultdict(set)

    def __setitem__(self, path: Path, node: _FileNode) -> None:
        super().__setitem__(path, node)
        self.folders[path.parent].add(path.name)

    def __delitem__(self, path: Path) -> None:
        super().__delitem__(path)
        self.folders[path.parent].discard(path.name)

    def pop(self, path: Path, *default: _FileNode | None) -> _FileNode | None:  # type: ignore[override]
        self.folders[path.parent].discard(path.name)
        return super().pop(path, *default)


class FaultyDisk:
    """See above. A `Disk`."""

    def __init__(
        self,
        *,
        power_loss_at: int | None = None,
        errors: dict[int, int] | None = None,
        capacity_bytes: int | None = None,
        short_writes: random.Random | None = None,
    ) -> None:
        self.power_loss_at = power_loss_at
        self.errors = dict(errors or {})
        self.capacity_bytes = capacity_bytes
        self.short_writes = short_writes
        self.failing: int | None = None
        self.sync_errors = 0
        self.read_errors = 0
        self.refused: dict[Path, int] = {}
        self.unopened: int | None = None
        self.raised: set[int] = set()
        """Error numbers of all that it has refused so far."""
        self.steps = 0
        self.dead = False
        self.locked = False
        self._seen = _NamedFiles()
        self._safe: dict[Path, _FileNode] = {}
        self._names: list[tuple[frozenset[Path], Callable[[dict[Path, _FileNode]], None]]] = []
        """Changes of names not yet synced, in order: the folders they concern, and what to do."""

    # -- what its user asks of it ------------------------------------------------------------------------------------

    def after_power_loss(self, choice: Choice) -> FaultyDisk:
        """The disk as the next process finds it: whole and willing."""
        names = dict(self._safe)
        for _, change in self._names:
            if not choice():
                break
            change(names)
        return self._after(names, choice, lost=True)

    def after_kill(self, choice: Choice = none_survives) -> FaultyDisk:
        """The disk after the process alone died: all it wrote is there, but for what a failed sync was for."""
        return self._after(dict(self._seen), choice, lost=False)

    def _after(self, names: dict[Path, _FileNode], choice: Choice, *, lost: bool) -> FaultyDisk:
        after = FaultyDisk()
        copies: dict[int, _FileNode] = {}
        for path, node in names.items():
            if id(node) not in copies:
                content = node.survivor(choice) if lost or node.doubtful else bytearray(node.seen)
                copies[id(node)] = _FileNode(bytearray(content), content, lost=node.lost)
            after._seen[path] = copies[id(node)]
        after._safe = dict(after._seen)
        return after

    def content(self, path: Path) -> bytearray:
        """A file's bytes, to be looked at or spoiled."""
        return self._seen[path].seen

    def paths(self) -> list[Path]:
        return sorted(self._seen)

    def delete(self, path: Path) -> None:
        """Delete a file, as another process does."""
        del self._seen[path]
        self._safe.pop(path, None)

    def lose(self, path: Path, start: int = 0, stop: int | None = None) -> None:
        """Lose the sectors that hold these bytes of a file; all of them unless told."""
        node = self._seen[path]
        node.lost = range(start, len(node.seen) if stop is None else stop)

    @property
    def used_bytes(self) -> int:
        return sum(len(node.seen) for node in {id(n): n for n in list(self._seen.values())}.values())

    # -- the disk ---------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Count one step; die or fail in it where that was asked for."""
        self.alive()
        number = self.steps
        self.steps += 1
        if number == self.power_loss_at:
            self.dead = True
        elif self.failing is not None:
            self.refuse(self.failing)
        elif number in self.errors:
            self.refuse(self.errors[number])

    def refuse(self, code: int) -> NoReturn:
        """Fail with this error."""
        self.raised.add(code)
        raise OSError(code, os.strerror(code))

    def sync_fails(self) -> bool:
        """True where this sync is to fail."""
        if not self.sync_errors:
            return False
        self.sync_errors -= 1
        return True

    def alive(self) -> None:
        if self.dead:
            raise PowerLoss

    def finish(self) -> None:
        """The end of a step: whoever dies in it, dies here, with the step done but not synced."""
        if self.dead:
            raise PowerLoss

    def _opening(self) -> None:
        self.alive()
        if self.unopened is not None:
            with opening():
                self.refuse(self.unopened)

    def open(self, path: Path, mode: OpenMode) -> DiskFile:
        self._opening()
        node = self._seen.get(path)
        if mode is OpenMode.READ and path in self.refused:
            self.refuse(self.refused[path])
        if node is None:
            if mode is OpenMode.READ:
                raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
            self.step()
            node = _FileNode()
            created = node

            def change(names: dict[Path, _FileNode]) -> None:
                names[path] = created

            self._name(change, path.parent)
            self.finish()
        return FaultyFile(self, node, synced=mode is OpenMode.SYNCED)

    def _name(self, change: Callable[[dict[Path, _FileNode]], None], *folders: Path) -> None:
        change(self._seen)
        self._names.append((frozenset(folders), change))

    def names(self, folder: Path) -> list[str]:
        self._opening()
        return sorted(self._seen.folders[folder])

    def make_folder(self, folder: Path) -> None:
        self.alive()

    def rename(self, old: Path, new: Path) -> None:
        if old not in self._seen:  # which changes nothing on any disk
            raise FileNotFoundError(errno.ENOENT, "No such file", str(old))
        self.step()

        def change(names: dict[Path, _FileNode]) -> None:
            node = names.pop(old, None)
            if node is not None:
                names[new] = node

        self._name(change, old.parent, new.parent)
        self.finish()

    def remove(self, path: Path) -> None:
        self.step()

        def change(names: dict[Path, _FileNode]) -> None:
            names.pop(path, None)

        if path in self._seen:
            self._name(change, path.parent)
        self.finish()

    def sync_folder(self, folder: Path) -> None:
        self._opening()
        self.step()
        # Dying in it, it is not done: nothing waited for it.
        self.finish()
        if self.sync_fails():
            self.refuse(errno.EIO)
        # The file system's own journal is in order: what came before goes with it.
        while any(folder in folders for folders, _ in self._names):
            _, change = self._names.pop(0)
            change(self._safe)

    def free_bytes(self, folder: Path) -> int | None:
        """Return None: what is full shows on the write."""
        return None

    def pause(self, seconds: float) -> None:
        """A step on the disk takes as long as it takes already."""

    def lock(self, path: Path, text: str) -> contextlib.AbstractContextManager[Disk]:
        return self._lock(path)

    def check_place(self) -> None:
        """Do nothing: nobody moves it."""

    @contextlib.contextmanager
    def _lock(self, path: Path) -> Iterator[Disk]:
        if self.locked:
            raise StoreLocked(f"{path.parent} is in use")
        self.locked = True
        try:
            yield self
        finally:
            self.locked = False


class FaultyFile:
    """An open file of the disk."""

    def __init__(self, disk: FaultyDisk, node: _FileNode, *, synced: bool) -> None:
        self._disk = disk
        self._node = node
        self._synced = synced

    def read(self, length: int, offset: int) -> bytes:
        disk = self._disk
        disk.alive()
        if disk.failing is not None:
            disk.refuse(disk.failing)
        if disk.read_errors:
            disk.read_errors -= 1
            disk.refuse(errno.EIO)
        lost = self._node.lost
        if offset < lost.stop and lost.start < offset + length:
            disk.refuse(errno.EIO)
        return bytes(self._node.seen[offset : offset + length])

    def write(self, data: bytes, offset: int) -> int:
        disk, node = self._disk, self._node
        try:
            disk.step()
        except OSError as error:
            if error.errno == errno.ENOSPC:
                node.change(offset, data[: len(data) // 2])
            raise
        grows = offset + len(data) - max(offset, len(node.seen))
        if disk.capacity_bytes is not None and grows > 0:
            room = disk.capacity_bytes - disk.used_bytes
            if room < grows:
                data = data[: len(data) - (grows - max(0, room))]
                if not data:
                    disk.refuse(errno.ENOSPC)
        if disk.short_writes is not None and len(data) > 1 and disk.short_writes.random() < 0.3:
            data = data[: disk.short_writes.randrange(1, len(data))]
        node.change(offset, data)
        disk.finish()
        if self._synced:
            if disk.sync_fails():
                self._doubt()
            node.sync_last()
        return len(data)

    def sync(self) -> None:
        self._disk.step()
        self._disk.finish()
        if self._disk.sync_fails():
            self._doubt()
        self._node.sync()

    def _doubt(self) -> NoReturn:
        self._node.doubtful = True
        self._disk.refuse(errno.EIO)

    def truncate(self, size_bytes: int) -> None:
        self._disk.step()
        self._node.change(size_bytes, None)
        self._disk.finish()

    def size(self) -> int:
        self._disk.alive()
        return len(self._node.seen)

    def close(self) -> None:
        """Do nothing: a file that is open when power is lost needs no closing."""
