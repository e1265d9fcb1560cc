"""The frozen list of files that one run must account for.

The demo's claim is "every file is in the table once, or dead-lettered". A claim like that is worth something only
against a list that was written down *before* the first message was posted and that nobody touched since. So a run
begins by walking the folder, hashing what it finds, and writing the result to ``manifest.jsonl``: one line for the
run, then one line a file. Everything later (producers, workers, the closing balance) reads that file.

What is listed: regular files, in the order of their paths. What is not, and is counted instead: `LEFT_OUT`. Folders in
`SKIPPED_FOLDERS` are caches and other people's packages. When more than `files_max` remain, every n-th by path is taken
rather than the first, so that a small run still sees the whole tree.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from acquit.errors import ConfigurationError

SKIPPED_FOLDERS = frozenset({"__pycache__", "site-packages", "dist-packages", "node_modules"})
LEFT_OUT = ("links", "unreadable", "too_large", "name_not_unicode", "above_files_max")
"""Links would list a file twice; the bytes of a name that is not Unicode could not be printed in the closing table."""
IDENTITY_HASH_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """A file as it was when the manifest was frozen."""

    path: str
    """Relative to the root, with forward slashes; absolute where it is not under the root."""
    size: int
    """Bytes."""
    mtime_ms: int
    """Last change, milliseconds since the epoch."""
    sha256: str
    """Digest of the whole content, hexadecimal."""

    @property
    def identity(self) -> str:
        """The message id of this file, the same in every attempt to post it: path and beginning of the hash."""
        return f"{self.path}#{self.sha256[:IDENTITY_HASH_DIGITS]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A frozen list of files. `entries` are ordered by path and have distinct paths."""

    root: Path
    frozen_at_ms: int
    left_out: Mapping[str, int]
    """The number of files seen and not listed, by reason."""
    entries: tuple[ManifestEntry, ...]

    def save(self, target: Path) -> str:
        """Write the manifest and return its SHA-256."""
        run = {"root": str(self.root), "frozen_at_ms": self.frozen_at_ms, "left_out": dict(self.left_out)}
        lines = [json.dumps(run), *(json.dumps(asdict(entry), ensure_ascii=False) for entry in self.entries)]
        data = "".join(f"{line}\n" for line in lines).encode()
        target.write_bytes(data)
        return hashlib.sha256(data).hexdigest()

    @classmethod
    def load(cls, source: Path) -> Manifest:
        """Read what `save` wrote."""
        with source.open(encoding="utf-8") as lines:
            run, *entries = map(json.loads, lines)
        return cls(**run | {"root": Path(run["root"]), "entries": tuple(ManifestEntry(**one) for one in entries)})


def freeze(root: Path, *, files_max: int, file_bytes_max: int, now_ms: int, extra: Iterable[Path] = ()) -> Manifest:
    """Walk `root`, and hash what is there. `files_max` bounds the entries from it; `extra` files are always listed.

    Raises ConfigurationError when `root` is not a folder or has no file to list.
    """
    if not root.is_dir():
        raise ConfigurationError(f"{root}: expected a folder with files")
    root = root.resolve()
    left_out = Counter(dict.fromkeys(LEFT_OUT, 0))
    candidates = _candidates(root, file_bytes_max, left_out)
    chosen = candidates[:: max(1, -(-len(candidates) // files_max))]
    left_out["above_files_max"] = len(candidates) - len(chosen)
    entries = []
    for path in sorted([*chosen, *map(str, extra)]):
        try:
            content, mtime_ms = (root / path).read_bytes(), (root / path).stat().st_mtime_ns // 1_000_000
        except OSError:
            left_out["unreadable"] += 1
            continue
        sha256 = hashlib.sha256(content).hexdigest()
        entries.append(ManifestEntry(path=path, size=len(content), mtime_ms=mtime_ms, sha256=sha256))
    if not entries:
        raise ConfigurationError(f"{root}: expected at least one readable file of at most {file_bytes_max} bytes")
    return Manifest(root=root, frozen_at_ms=now_ms, left_out=left_out, entries=tuple(entries))


def _candidates(root: Path, file_bytes_max: int, left_out: Counter[str]) -> list[str]:
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
        for file in (Path(folder, name) for name in names):
            path = file.relative_to(root).as_posix()
            if file.is_symlink():
                left_out["links"] += 1
            elif not file.is_file():
                left_out["unreadable"] += 1
            elif path != path.encode(errors="replace").decode():
                left_out["name_not_unicode"] += 1
            elif file.stat().st_size > file_bytes_max:
                left_out["too_large"] += 1
            else:
                found.append(path)
    return sorted(found)


def head(content: bytes, bytes_max: int) -> bytes:
    """Return the first `bytes_max` bytes of `content` at most, not cut inside a character where they are UTF-8."""
    cut = content[:bytes_max]
    if len(cut) < len(content):
        with suppress(UnicodeDecodeError):
            return codecs.getincrementaldecoder("utf-8")().decode(cut).encode()
    return cut
