"""A data folder: which files are in it, whose it is, and that only one process has it open.

::

    DATA/broker.json                       the store's uuid, the format's version, the container-id; written once
    DATA/lock                              held with flock, as DATA is, by the process that opened it; names its pid
    DATA/journal/00000000000000000007.seg  segments that recovery reads, and the newest, which is written
    DATA/journal/00000000000000000006.events   the events of a closed segment as one array; derived
    DATA/journal/1.zeros                   prewritten files waiting to become segments (.part: not finished)
    DATA/archive/00000000000000000003.seg  segments that left the recovery set, for the audit, with their .events
    DATA/archive/00000000000000000001.stub header and seal of a segment that retention deleted

`broker.json` is written last when a store is made, after its first segment: so a folder with the one and without the
other is damaged, not new, and is refused rather than started empty.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from uuid import UUID
from zlib import crc32

from acquit.errors import NOT_WHAT_WAS_WRITTEN, StoreCorrupt, StoreError, StoreVersionUnsupported
from acquit.store.disk import Disk, NotOpened, OpenMode, folder_error, store_error, write_all
from acquit.store.segment import FORMAT_VERSION

SEGMENT: Final = ".seg"
EVENTS: Final = ".events"
STUB: Final = ".stub"
ZEROS: Final = ".zeros"
PART: Final = ".part"
_IDENTITY_BYTES_MAX: Final = 65536
_NOTHING: Final = "nothing" + PART
"""Name of a file that is not there."""


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """Identity of a store: its own UUID, and the container-id of its broker."""

    store: UUID
    container_id: str
    """The AMQP container-id of the broker: link identity depends on it, so it is part of the data."""

    def encode(self) -> bytes:
        """JSON, for people to read; the check is there because nothing else would notice a flipped bit in it."""
        content = {"format": FORMAT_VERSION, "store": str(self.store), "container-id": self.container_id}
        return (json.dumps({**content, "check": self._check()}, indent=2) + "\n").encode()

    def _check(self) -> str:
        return f"{crc32(f'{FORMAT_VERSION} {self.store} {self.container_id}'.encode()):08x}"

    @classmethod
    def decode(cls, content: dict[str, object]) -> Self:
        """Raises KeyError, ValueError."""
        identity = cls(UUID(str(content["store"])), str(content["container-id"]))
        if content["check"] != identity._check():
            raise ValueError("its check does not match")
        return identity


class Folder:
    """Paths and names of one data folder."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self.disk = disk
        self.journal = path / "journal"
        self.archive = path / "archive"
        self.identity_path = path / "broker.json"

    def segment(self, number: int, *, archived: bool = False, suffix: str = SEGMENT) -> Path:
        return (self.archive if archived else self.journal) / f"{number:020}{suffix}"

    def numbers(self, *, archived: bool = False, suffix: str = SEGMENT) -> list[int]:
        """Numbers of the files with this suffix, in order."""
        names = self.disk.names(self.archive if archived else self.journal)
        stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
        return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdigit())

    def make(self) -> None:
        """Create the folders. Raises StoreError where that is not possible, and where segments could not be moved from
        the journal to the archive; StoreFull where there is no descriptor to look into them with."""
        within = (self.journal, self.archive)
        place = self.path
        try:
            for place in (self.path, *within):
                self.disk.make_folder(place)
            for place in within:
                self.disk.names(place)
            # Linux says first what it thinks of the two folders, and of each when it is both.
            for place, other in ((self.journal, self.journal), (self.archive, self.archive), within):
                with contextlib.suppress(FileNotFoundError):
                    self.disk.rename(place / _NOTHING, other / _NOTHING)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise StoreError(
                    f"{self.archive} is on another file system than {self.journal}: segments are renamed from the one "
                    "into the other, so both must be on one"
                ) from error
            if isinstance(error, NotOpened):
                raise folder_error(error, place) from error
            why = f"{error.strerror or error}" if place == self.path else f"{place}: {error.strerror or error}"
            raise StoreError(f"cannot use {self.path} as a data folder: {why}") from error

    def lock(self) -> contextlib.AbstractContextManager[Disk]:
        """Raises StoreLocked on entry while another process has the folder. Gives the holder's disk: `Disk.lock`."""
        return self.disk.lock(self.path / "lock", f"process {os.getpid()}\n")

    def read_identity(self) -> StoreIdentity | None:
        """None where the folder is new. Raises StoreVersionUnsupported, or StoreCorrupt for what is not an identity."""
        name = str(self.identity_path)
        try:
            if self.identity_path.name not in self.disk.names(self.path):
                return None
            file = self.disk.open(self.identity_path, OpenMode.READ)
        except OSError as error:
            raise folder_error(error, self.identity_path) from error
        try:
            content = json.loads(file.read(_IDENTITY_BYTES_MAX, 0))
            version = content["format"]
            if version == FORMAT_VERSION:
                return StoreIdentity.decode(content)
        except OSError as error:
            raise store_error(error, name) from error
        except NOT_WHAT_WAS_WRITTEN as error:
            raise StoreCorrupt(f"not the identity of a store ({error})", path=name, offset=0) from error
        finally:
            file.close()
        raise StoreVersionUnsupported(
            f"{self.path} has format {version!r}; this version of acquit reads and writes format {FORMAT_VERSION}"
        )

    def write_identity(self, identity: StoreIdentity) -> None:
        """Whole or not at all."""
        try:
            self.write_whole(self.identity_path, identity.encode())
        except OSError as error:
            raise store_error(error, str(self.identity_path)) from error

    def write_whole(self, path: Path, content: bytes) -> None:
        """Write a file that lies in the folder itself, durably, and whole or not at all. Raises OSError."""
        part = path.with_suffix(f".{secrets.token_hex(4)}{PART}")
        file = self.disk.open(part, OpenMode.WRITE)
        try:
            write_all(file, content, 0)
            file.sync()
        finally:
            file.close()
        self.disk.rename(part, path)
        self.disk.sync_folder(self.path)

    def remove_parts(self) -> None:
        """Remove what an earlier process had begun to write and not finished."""
        for folder in (self.path, self.journal, self.archive):
            for name in self.disk.names(folder):
                if name.endswith(PART):
                    self.disk.remove(folder / name)
