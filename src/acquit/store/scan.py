"""Reading a segment front to back, and telling a torn tail from destruction.

A segment is its header, whole batches one after the other, and a seal once it is closed. Reading stops at the first
place where none of these stands: `stop` says where and why. What that means depends on who asks:

* In a **closed** segment (one that has a successor) it is corruption: everything in it was synced before the successor
  was begun.
* In the **newest** one it is the torn tail of a write that was never synced, unless something later in the file
  proves that it had been: a batch head of this very segment and place (epoch and position match) whose `synced end`
  lies beyond the damage, or the seal. Such proof makes it corruption. As at most one batch is in flight, only the
  very last batch can be torn; if that one was synced and is then destroyed, nothing tells it from a torn one. The
  seal ends this doubt for every segment that was closed.
* A reader beside a **running** broker simply stops there: the tail is being written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from acquit.errors import StoreCorrupt, StoreError
from acquit.store.disk import NOT_LENT, Disk, DiskFile, OpenMode, store_error
from acquit.store.interface import Position
from acquit.store.record import BATCH_HEAD_BYTES, BatchHead, batch_is_whole, decode_batch_head
from acquit.store.segment import (
    HEADER_BYTES,
    SEAL_HEAD_BYTES,
    Seal,
    SegmentHeader,
    decode_seal,
    decode_seal_head,
)

_WINDOW_BYTES: Final = 1 << 20
_SECTOR_BYTES: Final = 4096


def unreadable(error: OSError, path: str, offset: int = 0) -> StoreError:
    """The error of who reads a file that the system does not give, and can do without it: damage of that file.

    Who cannot do without it (the broker in `journal/`) takes it for a disk that fails: `store_error`.
    """
    if error.errno in NOT_LENT:
        return store_error(error, path)
    return StoreCorrupt(f"cannot be read: {error.strerror or error}", path=path, offset=offset)


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """Place where reading ended without a seal."""

    offset: int
    reason: str
    """ "" where only zeros were seen."""


class SegmentReader:
    """Segment file, read in order.

    Iterate `batches()` to its end; afterwards exactly one of `seal` and `stop` is set, and `offset` is where the valid
    bytes end. Raises StoreFailed on an I/O error, or where `unreadable_is_damage` what `unreadable` makes of it;
    FileNotFoundError when the file is not there.
    """

    def __init__(self, disk: Disk, path: Path, *, hashing: bool = False, unreadable_is_damage: bool = False) -> None:
        self.path = path
        self._unreadable_is_damage = unreadable_is_damage
        self._window = b""
        self._window_offset = 0
        self._window_bytes = _WINDOW_BYTES
        try:
            self._file: DiskFile = disk.open(path, OpenMode.READ)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._failed(error, 0) from error
        try:
            page = self._get(0, HEADER_BYTES)
            self.header = SegmentHeader.decode(page, str(path))
        except StoreError:
            self._file.close()
            raise
        self.sha256 = hashlib.sha256(page) if hashing else None
        """Hash of the valid bytes so far, where asked for."""
        self._content = hashlib.sha256() if hashing and self.header.erased else None
        """The same of the bytes behind the header, where bodies were erased."""
        self.offset = HEADER_BYTES
        self.seal: Seal | None = None
        self.stop: ReadEnd | None = None

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def position(self) -> Position:
        """Position of the next batch."""
        return self._position(self.offset)

    def _position(self, offset: int) -> Position:
        return Position(self.header.base + offset - HEADER_BYTES)

    def _get(self, offset: int, length: int) -> bytes:
        """Bytes of the file through a window; fewer only at its end."""
        start = offset - self._window_offset
        if start < 0 or start + length > len(self._window):
            self._window = self._read(offset, length)
            self._window_offset = offset
            start = 0
        return self._window[start : start + length]

    def _read(self, offset: int, length: int) -> bytes:
        while True:
            try:
                return self._file.read(max(length, self._window_bytes), offset)
            except OSError as error:
                if not self._unreadable_is_damage or self._window_bytes <= max(length, _SECTOR_BYTES):
                    raise self._failed(error, offset) from error
                # What stands before the place that cannot be read is read, and so the place is known.
                self._window_bytes //= 2

    def _failed(self, error: OSError, offset: int) -> StoreError:
        path = str(self.path)
        return unreadable(error, path, offset) if self._unreadable_is_damage else store_error(error, path)

    def batches(self) -> Iterator[tuple[BatchHead, bytes]]:
        """Each whole batch: its head, and all of its bytes."""
        while True:
            found = self._next()
            if isinstance(found, ReadEnd):
                self.stop = found
                return
            if isinstance(found, Seal):
                self.seal = found
                return
            head, data = found
            self._hash(data)
            yield head, data
            self.offset += head.length

    def _next(self) -> tuple[BatchHead, bytes] | Seal | ReadEnd:
        offset = self.offset
        data = self._get(offset, BATCH_HEAD_BYTES)
        if not data.strip(b"\0"):
            return ReadEnd(offset, "")
        if decode_seal_head(data) is not None:
            seal, length = self._seal_at(offset)
            if seal is None:
                return ReadEnd(offset, "a seal that does not match its checksum, or is not of this place")
            self._hash(self._get(offset, length))
            self.offset += length
            return seal
        head = decode_batch_head(data)
        if head is None:
            return ReadEnd(offset, "neither a batch nor a seal")
        if head.epoch != self.header.epoch or head.position != self._position(offset):
            return ReadEnd(
                offset, f"a batch of another place or time (epoch {head.epoch:016x}, position {head.position})"
            )
        data = self._get(offset, head.length)
        if not batch_is_whole(head, data):
            return ReadEnd(offset, f"a batch of {head.length} bytes that does not match its checksum")
        return head, data

    def _hash(self, data: bytes) -> None:
        for digest in (self.sha256, self._content):
            if digest is not None:
                digest.update(data)

    @property
    def chained_sha256(self) -> bytes:
        """The SHA-256 of the valid bytes as the successor's header names it; b"" where nothing was hashed.

        Where bodies were erased it is that of the original, provided that what stands here is what was written when
        they were; else that of the bytes that stand here, which no successor names.
        """
        if self._content is not None and self._content.digest() == self.header.content_sha256:
            return self.header.original_sha256
        return self.sha256.digest() if self.sha256 is not None else b""

    def _seal_at(self, offset: int) -> tuple[Seal | None, int]:
        """The seal at `offset`, and its length, when it is whole and of this segment and place."""
        head = decode_seal_head(self._get(offset, SEAL_HEAD_BYTES))
        if head is None or head.epoch != self.header.epoch or head.number != self.header.number:
            return None, 0
        if head.end != self._position(offset):
            return None, 0
        return decode_seal(self._get(offset, head.length)), head.length

    def raw(self, offset: int, length: int) -> bytes:
        """Bytes of the file as they are; fewer only at its end."""
        return self._get(offset, length)

    def corrupt(self, message: str, offset: int | None = None) -> StoreCorrupt:
        """The error for damage in this segment, at `offset` or where reading stopped."""
        return StoreCorrupt(message, path=str(self.path), offset=self.offset if offset is None else offset)

    def hash_of(self, length: int) -> bytes:
        """SHA-256 of the file's first `length` bytes, or of all of them where there are fewer."""
        sha256 = hashlib.sha256()
        for offset in range(0, length, _WINDOW_BYTES):
            sha256.update(self._get(offset, min(_WINDOW_BYTES, length - offset)))
        return sha256.digest()

    def check_end(self, *, newest: bool) -> int:
        """Check that the segment may end where reading stopped. Return how many bytes of a torn tail follow.

        Call it after `batches()` has ended. Raises StoreCorrupt for a closed segment without its seal, and for damage
        in the newest that something later proves to have been synced.
        """
        if self.stop is None:
            return 0
        if not newest:
            raise self.corrupt(self.stop.reason or "a closed segment ends without its seal")
        return self.cut_bytes()

    def cut_bytes(self) -> int:
        """Return the number of bytes from `offset` to the last that is not zero: what a recovery that cuts here drops.

        Raises StoreCorrupt when something after the damage proves that what is damaged had been synced. Call it after
        `batches()` has stopped without a seal.
        """
        end = step = self.offset
        alignment = self.header.alignment
        while True:
            chunk = self._get(step, _WINDOW_BYTES)
            if not chunk:
                return end - self.offset
            used = len(chunk.rstrip(b"\0"))
            if used:
                end = step + used
                for offset in range(step, end, alignment):
                    if offset > self.offset and self._proves(offset):
                        if self._stands_now():
                            return 0
                        raise self.corrupt(
                            f"destroyed after it was synced: {self.stop.reason if self.stop else ''} here, "
                            f"and at offset {offset} what was written later"
                        )
            step += _WINDOW_BYTES

    def _stands_now(self) -> bool:
        """Return True if, looking again, something whole is where reading stopped. Beside a running broker it may have
        been half written then; what proves that it was synced was written after it, so by now it must be whole."""
        self._window = b""
        data = self._get(self.offset, BATCH_HEAD_BYTES)
        head = decode_batch_head(data)
        if head is None:
            return decode_seal_head(data) is not None and self._seal_at(self.offset)[0] is not None
        return batch_is_whole(head, self._get(self.offset, head.length))

    def _proves(self, offset: int) -> bool:
        """Return True if what stands at `offset` shows that everything before this segment's damage had been synced."""
        data = self._get(offset, BATCH_HEAD_BYTES)
        head = decode_batch_head(data)
        if head is not None:
            here = head.epoch == self.header.epoch and head.position == self._position(offset)
            return here and head.synced_end > self.position
        return decode_seal_head(data) is not None and self._seal_at(offset)[0] is not None
