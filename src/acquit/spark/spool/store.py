"""Storage of a spool: a flat folder of files with one strong verb, `put_if_absent`.

Everything the spool protocol needs from storage is in `SpoolStore`, eight verbs. `FolderStore` is the POSIX one: a
local folder, or one that every Spark worker mounts; `spool.objects` has the one in an object store, and `spool.places`
says which is meant.

How a name comes to exist exactly once on POSIX: the bytes are written under a temporary name and synced, then `link`
gives them their final name, which the kernel refuses if the name is taken. (`open(O_EXCL)` would show readers a file
that is still being written; `rename` would replace.) Then the folder is synced, because a name is data of its folder.

Two answers of a store need care, and the protocol above takes it:

- "it exists" may be about our own first try: an object store's client retries a PUT whose answer was lost, NFS a LINK.
  Who is told so reads what is there, and may find its own nonce.
- no answer at all is `StoreDoubt`: the write may have happened, may yet happen, or never will.

Temporary files bear the final name, a nonce and ``.tmp``, so that whoever owns the final name can clear them away;
no file is ever removed for its age.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from acquit.errors import SpoolError
from acquit.spark.files import make_folders, sync

TEMPORARY_SUFFIX = ".tmp"


class StoreDoubt(SpoolError):
    """A write got no answer: it may have happened, it may still happen, or it never will."""


class SpoolStore(Protocol):
    """Named files of a spool. Names are relative and use ``/``; every method may raise `SpoolError`."""

    @property
    def place(self) -> str:
        """Place of the files, for people."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create `name` with `data`, durably, unless it exists. False when it exists; StoreDoubt when unknown."""

    def put(self, name: str, *pieces: bytes | memoryview, durable: bool = True) -> None:
        """Create `name`, which the caller made unique, with these pieces, one behind the other. Durable on return
        unless told otherwise."""

    def get(self, name: str) -> bytes | None:
        """The content of `name`, or None when there is no such file."""

    def view(self, name: str) -> memoryview | None:
        """Return the content as `get`, for large files: read-only, mapped where the store can."""

    def names(self, folder: str) -> list[str]:
        """Names in `folder` ("" is the top), without the folder, in any order; temporary files included."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Return names as `names`, with the bytes of each."""

    def remove(self, name: str) -> None:
        """Remove `name`; it need not exist."""

    def sync(self, folder: str) -> None:
        """Make durable every name in `folder` that `get` can see, whoever wrote it."""


class FolderStore:
    """A `SpoolStore` in a local or shared POSIX folder. The folder is created when something is first written."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)
        self._folders: set[str] = set()

    @property
    def place(self) -> str:
        return str(self._root)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        with self._explained("write", name):
            temporary = self._write_temporary(path, data, durable=True)
        try:
            os.link(temporary, path)
        except FileExistsError:
            created = False
        except OSError as error:
            # NFS: the server may have made the link though its answer was lost.
            raise StoreDoubt(f"spool {self._root}: cannot tell whether {name} was created: {error.strerror}") from error
        else:
            created = True
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
        # Also when it exists: what the caller reads next and acts upon must not be forgotten by a power cut.
        with self._explained("sync", name):
            sync(path.parent)
        return created

    def put(self, name: str, *pieces: bytes | memoryview, durable: bool = True) -> None:
        path = self._path(name)
        with self._explained("write", name):
            temporary = self._write_temporary(path, *pieces, durable=durable)
            temporary.rename(path)
            if durable:
                sync(path.parent)

    def get(self, name: str) -> bytes | None:
        with self._explained("read", name):
            try:
                return (self._root / name).read_bytes()
            except FileNotFoundError:
                return None

    def view(self, name: str) -> memoryview | None:
        with self._explained("read", name):
            try:
                with (self._root / name).open("rb") as file:
                    if os.fstat(file.fileno()).st_size == 0:
                        return memoryview(b"")
                    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            except FileNotFoundError:
                return None

    def names(self, folder: str) -> list[str]:
        with self._explained("list", folder or "."):
            try:
                return [entry.name for entry in os.scandir(self._root / folder) if not entry.is_dir()]
            except FileNotFoundError:
                return []

    def sizes(self, folder: str) -> dict[str, int]:
        found = {}
        for name in self.names(folder):
            # It may be gone by now.
            with self._explained("look at", name), contextlib.suppress(FileNotFoundError):
                found[name] = (self._root / folder / name).stat().st_size
        return found

    def remove(self, name: str) -> None:
        with self._explained("remove", name):
            (self._root / name).unlink(missing_ok=True)

    def sync(self, folder: str) -> None:
        with self._explained("sync", folder), contextlib.suppress(FileNotFoundError):
            sync(self._root / folder)

    def _path(self, name: str) -> Path:
        path = self._root / name
        folder = str(path.parent)
        if folder not in self._folders:
            with self._explained("create", folder):
                make_folders(path.parent)
            self._folders.add(folder)
        return path

    def _write_temporary(self, path: Path, *pieces: bytes | memoryview, durable: bool) -> Path:
        temporary = path.with_name(f"{path.name}.{uuid4().hex}{TEMPORARY_SUFFIX}")
        try:
            with temporary.open("xb") as file:  # large pieces pass its buffer by
                file.writelines(pieces)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        return temporary

    @contextlib.contextmanager
    def _explained(self, verb: str, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SpoolError(f"spool {self._root}: cannot {verb} {name}: {error.strerror or error}") from error
