"""What may be on a disk after a loss of power, computed from the system calls that a process was seen to make.

The rules are those that `acquit.store.disk` takes for granted, applied from outside to what the process really did:

- an fsync or fdatasync that has returned makes safe what was written to the file before it began; a write to a file
  that was opened with O_DSYNC is safe by itself once it has returned;
- a name (made, renamed or removed) is safe once its folder was synced after it; a rename is in both folders or in none;
- everything else may have reached the platter or not, in any order: data by the sector, names one by one.

`Platter.image` is one disk that is possible at this moment; a `Luck` decides what of the unsafe is there.
"""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from tests.support.syscalls import Call, Moment

SECTOR_BYTES: Final = 512
PAGE_BYTES: Final = 4096

Unit = Literal["sector", "page", "write", "file"]


@dataclass(eq=False, slots=True)
class _Change:
    """A write, or with `data` None a truncation to `offset`."""

    offset: int
    data: bytes | None
    done: bool = False
    safe: bool = False


@dataclass(eq=False, slots=True)
class Node:
    """A file, or a folder: what is safe of it, and what was done to it since, in order."""

    folder: bool = False
    safe: bytearray = field(default_factory=bytearray)
    changes: list[_Change] = field(default_factory=list)

    def fold(self) -> None:
        """Put what is safe, and has nothing unsafe before it, together."""
        count = next((at for at, change in enumerate(self.changes) if not change.safe), len(self.changes))
        for change in self.changes[:count]:
            _write(self.safe, change.offset, change.data)
        del self.changes[:count]


@dataclass(eq=False, slots=True)
class _Naming:
    """A change of names: these go, then this one is there."""

    folders: tuple[Path, ...]
    removed: Path | None = None
    added: tuple[Path, Node] | None = None

    def apply(self, names: dict[Path, Node]) -> None:
        if self.removed is not None:
            names.pop(self.removed, None)
        if self.added is not None:
            names[self.added[0]] = self.added[1]


class Luck:
    """Decides what of the unsafe is on the disk: by `unit`, each with a chance of its own; names in order or not."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        units: tuple[Unit, ...] = ("sector", "page", "write", "file")
        self.unit: Unit = rng.choice(units)
        self.chance = rng.choice((0.0, 0.1, 0.5, 0.5, 0.9, 1.0))
        self.names_chance = rng.choice((0.0, 0.5, 1.0))
        self.names_in_order = rng.random() < 0.5
        self._decided: dict[Hashable, bool] = {}

    def __str__(self) -> str:
        names = "a prefix of" if self.names_in_order else "any of"
        return f"{self.chance:.0%} of each {self.unit}, {self.names_chance:.0%} of {names} names"

    def survives(self, node: Node, change: _Change, sector: int) -> bool:
        """True if this sector of an unsafe change is there."""
        key: Hashable = {
            "sector": (change, sector),
            "page": (change, sector * SECTOR_BYTES // PAGE_BYTES),
            "write": change,
            "file": node,
        }[self.unit]
        if key not in self._decided:
            self._decided[key] = self._rng.random() < self.chance
        return self._decided[key]

    def name_survives(self) -> bool:
        """True if the next unsafe change of names is there."""
        return self._rng.random() < self.names_chance


class _All(Luck):
    def __init__(self) -> None:
        super().__init__(random.Random(0))

    def survives(self, node: Node, change: _Change, sector: int) -> bool:
        return True


_ALL: Final = _All()
"""What the processes on the machine see."""


class Platter:
    """See the module. `root`: the folder whose contents are followed; it is there, and empty, at the beginning.

    `deaf_to` names calls that are taken not to make anything safe, `O_DSYNC` among them: what a process would leave
    behind that forgets them.
    """

    def __init__(self, root: Path, deaf_to: frozenset[str] = frozenset()) -> None:
        self._root = root
        self._deaf_to = deaf_to
        self._seen: dict[Path, Node] = {root: Node(folder=True)}
        self._safe: dict[Path, Node] = dict(self._seen)
        self._namings: list[_Naming] = []
        self._open: dict[int, tuple[Node, bool]] = {}
        """By descriptor: the file, and whether each write to it is safe by itself."""
        self._begun: dict[Call, list[_Change] | list[_Naming]] = {}
        self._naming: set[Call] = set()
        """Calls that change names, and have not ended."""
        self.changes = 0
        """Calls that changed something, or made it safe."""

    def ended(self, found: Path) -> None:
        """The process has ended, perhaps in the middle of calls, which may have done their work, or a part of it.

        `found` is what others see below the root then."""
        there = {self._root / path.relative_to(found) for path in found.rglob("*")} | {self._root}
        for call in self._naming:
            if (self._seen.keys() ^ there) & {self._path(call, raw) for raw in call.strings()}:
                call.result = -1
                _CALLS[call.name](self, call, True)
        for path, node in self._seen.items():
            for change in [change for change in node.changes if not change.done]:
                content = (found / path.relative_to(self._root)).read_bytes()
                change.done = True
                if change.data is not None:
                    change.data = content[change.offset : change.offset + len(change.data)]
                elif len(content) != change.offset:
                    node.changes.remove(change)
        self._naming.clear()
        self._open.clear()
        self._begun.clear()
        assert self._seen.keys() == there, "names were not followed"
        for path, node in self._seen.items():
            if not node.folder:
                content = (found / path.relative_to(self._root)).read_bytes()
                assert self._content(node, _ALL) == content, f"{path} was not followed"

    def take(self, moment: Moment) -> bool:
        """Follow what the process does. Returns True if this changed what may be on the disk."""
        handle = _CALLS.get(moment.call.name)
        if handle is None:
            return False
        if moment.ends and moment.call.result is not None and moment.call.result < 0:
            self._naming.discard(moment.call)
            return False
        if handle in _NAMING:
            self._naming ^= {moment.call}
        changed = handle(self, moment.call, moment.ends)
        self.changes += changed
        return changed

    def image(self, luck: Luck) -> dict[str, bytes | None]:
        """A disk that is possible now: contents by path below the root, None for a folder."""
        names = dict(self._safe)
        for naming in self._namings:
            if luck.name_survives():
                naming.apply(names)
            elif luck.names_in_order:
                break
        image: dict[str, bytes | None] = {}
        for path, node in sorted(names.items()):
            if path == self._root or not all(names.get(level) for level in self._levels(path)):
                continue
            image[str(path.relative_to(self._root))] = None if node.folder else bytes(self._content(node, luck))
        return image

    def _levels(self, path: Path) -> list[Path]:
        return [level for level in path.parents if level.is_relative_to(self._root)]

    def _content(self, node: Node, luck: Luck) -> bytearray:
        content = bytearray(node.safe)
        for change in node.changes:
            if change.safe or change.data is None:
                if change.safe or luck.survives(node, change, 0):
                    _write(content, change.offset, change.data)
                continue
            start, end = change.offset, change.offset + len(change.data)
            while start < end:
                sector = start // SECTOR_BYTES
                stop = min(end, (sector + 1) * SECTOR_BYTES)
                if luck.survives(node, change, sector):
                    _write(content, start, change.data[start - change.offset : stop - change.offset])
                start = stop
        return content

    # -- calls ------------------------------------------------------------------------------------------------------

    def _path(self, call: Call, raw: bytes) -> Path | None:
        """Return the path that a call was given, if it is below the root; it may be from the folder of a descriptor."""
        path = Path(call.of) / raw.decode()
        return path if path.is_relative_to(self._root) else None

    def _name(self, naming: _Naming) -> None:
        naming.apply(self._seen)
        self._namings.append(naming)

    def _opened(self, call: Call, ends: bool) -> bool:
        path = self._path(call, call.strings()[0])
        if path is None or not ends:
            return False
        assert call.result is not None
        node = self._seen.get(path)
        created = node is None
        if node is None:
            assert "O_CREAT" in call.arguments, call.arguments
            node = Node()
            self._name(_Naming((path.parent,), added=(path, node)))
        if "O_TRUNC" in call.arguments:
            node.changes.append(_Change(0, None, done=True))
        if not node.folder:
            self._open[call.result] = node, "SYNC" in call.arguments and "O_DSYNC" not in self._deaf_to
        return created

    def _file(self, call: Call) -> tuple[Node, bool] | None:
        return self._open.get(call.descriptor) if call.of.startswith(str(self._root)) else None

    def _wrote(self, call: Call, ends: bool) -> bool:
        opened = self._file(call)
        if opened is None:
            return False
        node, synced = opened
        if not ends:
            change = _Change(call.numbers()[-1], call.strings()[0])
            node.changes.append(change)
            self._begun[call] = [change]
            return True
        (change,) = self._begun.pop(call)
        assert isinstance(change, _Change) and change.data is not None and call.result is not None
        change.data = change.data[: call.result]
        change.done, change.safe = True, synced
        node.fold()
        return True

    def _truncated(self, call: Call, ends: bool) -> bool:
        opened = self._file(call)
        if opened is None:
            return False
        if ends:
            (change,) = self._begun.pop(call)
            assert isinstance(change, _Change)
            change.done = True
        else:
            change = _Change(call.numbers()[-1], None)
            opened[0].changes.append(change)
            self._begun[call] = [change]
        return True

    def _synced(self, call: Call, ends: bool) -> bool:
        if call.name in self._deaf_to or not call.of.startswith(str(self._root)):
            return False
        path = Path(call.of)
        node = self._seen.get(path)
        if node is not None and node.folder:
            return self._synced_folder(call, path, ends)
        opened = self._file(call)
        if opened is None:
            return False
        if not ends:
            self._begun[call] = [change for change in opened[0].changes if change.done]
            return False
        for change in self._begun.pop(call):
            assert isinstance(change, _Change)
            change.safe = True
        opened[0].fold()
        return True

    def _synced_folder(self, call: Call, folder: Path, ends: bool) -> bool:
        if not ends:
            self._begun[call] = [naming for naming in self._namings if folder in naming.folders]
            return False
        safe = self._begun.pop(call)
        # In their order, and with what came before them of the same names.
        for naming in list(self._namings):
            if naming in safe:
                naming.apply(self._safe)
                self._namings.remove(naming)
        return True

    def _renamed(self, call: Call, ends: bool) -> bool:
        old, new = (self._path(call, raw) for raw in call.strings())
        if not ends or old is None or new is None:
            return False
        self._name(_Naming((old.parent, new.parent), removed=old, added=(new, self._seen[old])))
        return True

    def _removed(self, call: Call, ends: bool) -> bool:
        path = self._path(call, call.strings()[-1])
        if not ends or path is None:
            return False
        self._name(_Naming((path.parent,), removed=path))
        return True

    def _made_folder(self, call: Call, ends: bool) -> bool:
        path = self._path(call, call.strings()[-1])
        if not ends or path is None:
            return False
        self._name(_Naming((path.parent,), added=(path, Node(folder=True))))
        return True

    def _unknown(self, call: Call, ends: bool) -> bool:
        if ends:
            return False
        inside = (
            any(self._path(call, raw) for raw in call.strings())
            if call.name in _BY_PATH
            else str(self._root) in call.of
        )
        assert not inside, f"a call that is not followed: {call.name}({call.arguments[:200]}"
        return False


def _write(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    if data is not None:
        content[offset : offset + len(data)] = data


_CALLS: Final = {
    "openat": Platter._opened,
    "pwrite64": Platter._wrote,
    "ftruncate": Platter._truncated,
    "fsync": Platter._synced,
    "fdatasync": Platter._synced,
    **dict.fromkeys(("rename", "renameat", "renameat2"), Platter._renamed),
    **dict.fromkeys(("unlink", "unlinkat"), Platter._removed),
    **dict.fromkeys(("mkdir", "mkdirat"), Platter._made_folder),
    **dict.fromkeys(
        (
            *("write", "writev", "pwritev", "pwritev2", "fallocate", "truncate", "rmdir", "link", "linkat", "symlink"),
            *("symlinkat", "copy_file_range", "sendfile", "open", "creat", "sync_file_range", "mmap"),
        ),
        Platter._unknown,
    ),
}

_NAMING: Final = (Platter._opened, Platter._renamed, Platter._removed, Platter._made_folder)
_BY_PATH: Final = frozenset({"truncate", "rmdir", "link", "linkat", "symlink", "symlinkat", "open", "creat"})

__all__ = ["Luck", "Platter"]
