"""The audit's log: what is in the audit's folder, run by run.

``log/<number>.json`` is one run that is committed: which segments it folded, which files it added, which it replaced,
and what the next run must know. It is created *put-if-absent*, by linking a finished file to its name: of two runs that
began at the same entry one commits, and the other fails. Before that entry nothing of a run is visible; whatever is
killed, and whenever, the run before stands.

A run writes into a folder of its own, ``runs/<number>-<nonce>``, whose name says which entry it wants to be. Once that
entry exists and is another's, the folder cannot be committed any more: that, not its age, is why it may be deleted.

The folder is on this machine or on a file system that all executors see and that has hard links.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from acquit.errors import NOT_WHAT_WAS_WRITTEN, ConfigurationError, PipelineFailed, StoreCorrupt
from acquit.spark.audit.tables import DataFile
from acquit.spark.files import sync

FORMAT: Final = 1
RUNS: Final = "runs"
"""The first that a run makes in the audit's folder."""
_ENTRY: Final = re.compile(r"(\d{8})\.json")
_RUN: Final = re.compile(r"(\d{8})-[0-9a-f]+")


@dataclass(slots=True, kw_only=True)
class Partial:
    """The open segment, as far as it is folded."""

    number: int
    events: int
    digest: str
    length: int
    """Valid bytes when it was folded."""


@dataclass(slots=True, kw_only=True)
class BrokerState:
    """State of the audit with one broker: how far it has come."""

    store: str
    """Uuid of the broker's store."""
    number: int
    """Number of the broker in this audit."""
    folder: str
    first: int = 0
    """The oldest segment that was folded."""
    through: int = 0
    """All up to this one are folded, or will never be."""
    sha256: str = ""
    """SHA-256 of segment `through`; "" where it could not be read."""
    partial: Partial | None = None
    events: int = 0
    first_us: int = 0
    last_us: int = 0
    missing: list[list[int]] = field(default_factory=list)
    """Gaps: first and last number of each."""
    deleted: list[list[int]] = field(default_factory=list)
    unclean_stops: int = 0
    entered_max: int = 0
    """The greatest sequence that entered a queue."""
    below: int = 0
    """Messages with a lower sequence can have been posted in a segment that could not be read."""
    total_known: bool = True
    """True if it is known, as totals, what the segments that could not be read had done."""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> BrokerState:
        """Return the state that `asdict` gave."""
        partial = value["partial"]
        return cls(**(value | {"partial": None if partial is None else Partial(**partial)}))


@dataclass(slots=True, kw_only=True)
class LogEntry:
    """Entry of the log: one committed run."""

    number: int
    run: str
    """Folder of the run."""
    buckets: int
    brokers: list[BrokerState]
    segments: list[dict[str, Any]]
    """Segments that this run folded: for each broker first, last, and the SHA-256 of the last."""
    added: list[DataFile]
    superseded: list[str]
    open: dict[int, str]
    """The file of each bucket that has open lives."""
    state: dict[str, str]
    """Files that replace those of the run before: totals, queues, balance."""
    summary: dict[str, Any]
    previous_sha256: str = ""
    """SHA-256 of the entry before."""
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        """Return the entry as its file has it."""
        return json.dumps(asdict(self), indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> LogEntry:
        """Raises ValueError, KeyError, TypeError."""
        value = json.loads(data)
        changed = {
            "brokers": [BrokerState.from_json(broker) for broker in value["brokers"]],
            "added": [DataFile(**file) for file in value["added"]],
            "open": {int(bucket): path for bucket, path in value["open"].items()},
        }
        return cls(**(value | changed))


class AuditLog:
    """The log in an audit's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folder = root / "log"

    def numbers(self) -> list[int]:
        """Return the numbers of all entries, ascending. Raises StoreCorrupt where one is missing."""
        if not self._folder.is_dir():
            return []
        found = (_ENTRY.fullmatch(name) for name in os.listdir(self._folder))
        numbers = sorted(int(match[1]) for match in found if match is not None)
        if numbers != list(range(1, len(numbers) + 1)):
            raise StoreCorrupt("an entry of the audit's log is missing", path=str(self._folder), offset=0)
        return numbers

    def read(self, number: int) -> LogEntry:
        """Raises StoreCorrupt, OSError, and ConfigurationError for an entry of a later version of acquit."""
        path = self._path(number)
        data = path.read_bytes()
        try:
            version = json.loads(data)["format"]
            entry = LogEntry.from_bytes(data) if version <= FORMAT else None
        except NOT_WHAT_WAS_WRITTEN as error:
            raise StoreCorrupt(f"no entry of an audit's log: {error}", path=str(path), offset=0) from error
        if entry is None:
            raise ConfigurationError(f"{path} was written by a later version of acquit")
        return entry

    def last(self) -> LogEntry | None:
        """The newest entry; None where there is none yet. Raises as `numbers` and `read`."""
        numbers = self.numbers()
        return self.read(numbers[-1]) if numbers else None

    def entries(self) -> list[LogEntry]:
        """All, oldest first. Raises as `numbers` and `read`, and StoreCorrupt where one was changed."""
        found, before = [], ""
        for number in self.numbers():
            entry = self.read(number)
            if entry.previous_sha256 != before:
                raise StoreCorrupt(
                    "the entry before it is not the one that it follows", path=str(self._path(number)), offset=0
                )
            before = self.sha256(number)
            found.append(entry)
        return found

    def sha256(self, number: int) -> str:
        """Return the SHA-256 of an entry; "" of number 0."""
        return hashlib.sha256(self._path(number).read_bytes()).hexdigest() if number else ""

    def begin(self, number: int) -> str:
        """A fresh folder for a run that wants to be entry `number`. Raises OSError."""
        name = f"runs/{number:08}-{secrets.token_hex(8)}"
        (self.root / name).mkdir(parents=True)
        return name

    def commit(self, entry: LogEntry) -> None:
        """Make the run visible. Its files must be synced. Raises PipelineFailed where another run was first,
        OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        finished = self.root / entry.run / "entry.json"
        with finished.open("xb") as file:
            file.write(entry.to_bytes())
            file.flush()
            os.fsync(file.fileno())
        for folder in (*_folders(self.root / entry.run), self.root / "runs", self.root):
            sync(folder)
        with contextlib.suppress(FileExistsError):
            os.link(finished, self._path(entry.number))
        # Over a network, a link that was made can be reported as one that was there.
        self.check_wanted(entry.number, entry.run)
        sync(self._folder)

    def check_wanted(self, number: int, run: str) -> None:
        """Raise PipelineFailed where entry `number` is there and is not that of the run in this folder."""
        if self._path(number).exists() and self._committed(number) != run:
            raise PipelineFailed(
                f"another run of the audit in {self.root} was committed while this one ran (entry {number}); "
                "nothing of this one is kept: run it again"
            )

    def clean(self) -> int:
        """Delete what can never be committed: how many folders. And what the entry before the newest replaced, which
        was kept for one run more. Raises as `last`."""
        last = self.last()
        if last is None:
            return 0
        if last.number > 1:
            remove_superseded(self.root, self.read(last.number - 1).superseded)
        removed = 0
        for name in sorted(os.listdir(self.root / "runs")):
            match = _RUN.fullmatch(name)
            if match is not None and int(match[1]) <= last.number and f"runs/{name}" != self._committed(int(match[1])):
                shutil.rmtree(self.root / "runs" / name, ignore_errors=True)
                removed += 1
        return removed

    def _committed(self, number: int) -> str:
        return self.read(number).run

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08}.json"


def remove_superseded(root: Path, paths: Sequence[str]) -> None:
    """Delete files that no entry uses any more; one that is gone is gone."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            (root / path).unlink()


def _folders(root: Path) -> list[Path]:
    return [Path(folder) for folder, _, _ in os.walk(root, topdown=False)]
