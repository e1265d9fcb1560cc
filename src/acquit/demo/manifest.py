"""The frozen list of files that one run must account for.

The demo's claim is "every file is in the table once, or dead-lettered". A claim like that is worth something only
against a list that was written down *before* the first message was posted and that nobody touched since. So a run
begins by walking the folder, hashing what it finds, and writing the result to ``manifest.jsonl``: one line for the
run, then one line a file. Everything later (producers, workers, the closing balance) reads that file.

What is listed: regular files, in the order of their paths. What is not, and is counted instead: links (they would
list a file twice), unreadable files, files above `file_bytes_max`, and names that are not Unicode (a message could
carry their bytes, the closing table could not print them). Folders in `SKIPPED_FOLDERS` are caches and other people's
packages. When more than `files_max` remain, every n-th by path is taken, so that a small run still sees the whole tree.

A run may add a second folder under a prefix of its own (`extra`): see `samples`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from acquit.errors import ConfigurationError

SKIPPED_FOLDERS = frozenset({"__pycache__", "site-packages", "dist-packages", "node_modules"})
IDENTITY_HASH_DIGITS = 12
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """A file as it was when the manifest was frozen."""

    path: str
    """Relative to the root, with forward slashes."""
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
class LeftOut:
    """The number of files seen and not listed, by reason."""

    links: int = 0
    unreadable: int = 0
    too_large: int = 0
    name_not_unicode: int = 0
    above_files_max: int = 0

    @property
    def total(self) -> int:
        return self.links + self.unreadable + self.too_large + self.name_not_unicode + self.above_files_max


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A frozen list of files. `entries` are ordered by path and have distinct paths."""

    root: Path
    extra: Mapping[str, Path]
    """First component of a path -> the folder it stands for, for files that are not under `root`."""
    frozen_at_ms: int
    entries: tuple[ManifestEntry, ...]
    left_out: LeftOut

    def locate(self, path: str) -> Path:
        """Return the path on disk of the file with this manifest path."""
        first, _, rest = path.partition("/")
        folder = self.extra.get(first)
        return self.root / path if folder is None else folder / rest

    @property
    def content_bytes(self) -> int:
        return sum(entry.size for entry in self.entries)

    def save(self, target: Path) -> str:
        """Write the manifest and return its SHA-256. The file is complete or absent, never half written."""
        lines = [
            json.dumps(
                {
                    "root": str(self.root),
                    "extra": {name: str(folder) for name, folder in self.extra.items()},
                    "frozen_at_ms": self.frozen_at_ms,
                    "left_out": asdict(self.left_out),
                }
            )
        ]
        lines += [json.dumps(asdict(entry), ensure_ascii=False) for entry in self.entries]
        data = ("\n".join(lines) + "\n").encode()
        scratch = target.with_suffix(".part")
        scratch.write_bytes(data)
        os.replace(scratch, target)
        return hashlib.sha256(data).hexdigest()

    @classmethod
    def load(cls, source: Path) -> Manifest:
        """Read what `save` wrote."""
        with source.open(encoding="utf-8") as stream:
            first = json.loads(stream.readline())
            entries = tuple(ManifestEntry(**json.loads(line)) for line in stream)
        return cls(
            root=Path(first["root"]),
            extra={name: Path(folder) for name, folder in first["extra"].items()},
            frozen_at_ms=first["frozen_at_ms"],
            entries=entries,
            left_out=LeftOut(**first["left_out"]),
        )


def freeze(
    root: Path,
    *,
    files_max: int,
    file_bytes_max: int,
    now_ms: int,
    extra: Mapping[str, Path] | None = None,
) -> Manifest:
    """Walk `root` (and the folders of `extra`, each under its prefix) and hash what is there.

    `files_max` bounds the entries from `root`; what `extra` names is always listed. Raises ConfigurationError when
    `root` is not a folder or has no file to list.
    """
    if not root.is_dir():
        raise ConfigurationError(f"{root}: expected a folder with files")
    root = root.resolve()
    counts = dict.fromkeys(LeftOut.__dataclass_fields__, 0)
    candidates = sorted(_candidates(root, file_bytes_max, counts))
    # Every n-th by path rather than the first ones: the last folders of the tree belong into a small run as well.
    stride = max(1, -(-len(candidates) // files_max))
    chosen = candidates[::stride]
    counts["above_files_max"] = len(candidates) - len(chosen)
    entries = [entry for path in chosen if (entry := _read(root, path, path, counts)) is not None]
    for name, folder in (extra or {}).items():
        inside = sorted(_candidates(folder, file_bytes_max, counts))
        entries += [entry for path in inside if (entry := _read(folder, path, f"{name}/{path}", counts)) is not None]
    if not entries:
        raise ConfigurationError(f"{root}: expected at least one readable file of at most {file_bytes_max} bytes")
    return Manifest(
        root=root,
        extra=dict(extra or {}),
        frozen_at_ms=now_ms,
        entries=tuple(sorted(entries, key=lambda entry: entry.path)),
        left_out=LeftOut(**counts),
    )


def _candidates(root: Path, file_bytes_max: int, counts: dict[str, int]) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
        for name in names:
            full = Path(folder, name)
            path = full.relative_to(root).as_posix()
            try:
                path.encode()
            except UnicodeEncodeError:
                counts["name_not_unicode"] += 1
                continue
            if full.is_symlink():
                counts["links"] += 1
            elif not full.is_file():
                counts["unreadable"] += 1
            elif full.stat().st_size > file_bytes_max:
                counts["too_large"] += 1
            else:
                yield path


def _read(root: Path, path: str, listed_as: str, counts: dict[str, int]) -> ManifestEntry | None:
    digest = hashlib.sha256()
    size = 0
    try:
        with (root / path).open("rb") as stream:
            mtime_ms = os.fstat(stream.fileno()).st_mtime_ns // 1_000_000
            while block := stream.read(_READ_BYTES):
                digest.update(block)
                size += len(block)
    except OSError:
        counts["unreadable"] += 1
        return None
    # Size and hash are of the bytes that were read, also when the file grew meanwhile: a worker will notice.
    return ManifestEntry(path=listed_as, size=size, mtime_ms=mtime_ms, sha256=digest.hexdigest())


def head(content: bytes, bytes_max: int) -> bytes:
    """The first `bytes_max` bytes of `content` at most, not cut inside a UTF-8 character.

    Content that is not UTF-8 has no character boundaries to respect and is cut at the limit.
    """
    if len(content) <= bytes_max:
        return content
    cut = bytes_max
    # A character has at most three continuation bytes (10xxxxxx).
    while cut > max(0, bytes_max - 3) and content[cut] & 0xC0 == 0x80:
        cut -= 1
    return content[:cut] if content[cut] & 0xC0 != 0x80 else content[:bytes_max]
