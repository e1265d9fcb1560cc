"""The two ends of a segment file: the header in front, the seal behind the last batch.

::

    header:  "ACQUSEGM" | version u32 | header bytes u32 | alignment u32 | flags u32 | store uuid 16 | number u64 |
             epoch u64 | base position u64 | created, microseconds i64 | previous number u64 | previous valid length
             u64 | previous SHA-256 32 | previous cut bytes u64 | SHA-256 before it was erased 32 | SHA-256 of what
             follows the header since then 32 | zeros | crc u32 over all before it, in the last four bytes

    seal:    "SEAL" | crc u32 | length u32 | summary bytes u32 | epoch u64 | number u64 | end position u64
             | sealed, microseconds i64 | cut bytes u64 | reserved u64 | summary | zeros up to the alignment

The header says which segment this is and how the one before ended: number, length and SHA-256 of its valid bytes
(header, batches and seal), and how many bytes of a torn tail recovery cut from it. That is the hash chain: a closed
segment that is missing or altered no longer matches what its successor says. The newest segment has no successor; see
docs/journal-format.md for what that means. Of a segment whose bodies were erased, the header says the SHA-256 that it
had before, which is the one its successor names, and the SHA-256 of what stands behind the header since.

The seal is by definition the last thing in its segment; whatever bytes follow are nothing. Its crc covers everything
after itself. The summary is the ledger's.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final, Self
from uuid import UUID
from zlib import crc32

from acquit.errors import StoreCorrupt, StoreVersionUnsupported
from acquit.store.interface import Position
from acquit.store.record import padding

FORMAT_VERSION: Final = 1
HEADER_BYTES: Final = 4096
"""Bytes of a header: one page, so that the first batch starts at a multiple of any sector size up to this."""
HEADER_MAGIC: Final = b"ACQUSEGM"
_HEADER: Final = Struct("<8sIIII16sQQQqQQ32sQ32s32s")

SEAL_MAGIC: Final = b"SEAL"
SEAL_HEAD_BYTES: Final = 64
_SEAL: Final = Struct("<4sIIIQQQqQQ")
assert _SEAL.size == SEAL_HEAD_BYTES

NO_HASH: Final = bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHeader:
    """The first page of a segment."""

    store: UUID
    number: int
    epoch: int
    base: Position
    created_us: int
    alignment: int
    previous_number: int = 0
    """0: this is the first segment of the journal."""
    previous_length: int = 0
    previous_sha256: bytes = NO_HASH
    previous_cut: int = 0
    original_sha256: bytes = NO_HASH
    """The SHA-256 of the valid bytes before bodies were erased."""
    content_sha256: bytes = NO_HASH
    """The SHA-256 of the valid bytes behind the header since then."""

    @property
    def erased(self) -> bool:
        """True where zeros stand for the bodies."""
        return self.original_sha256 != NO_HASH

    def encode(self) -> bytes:
        head = _HEADER.pack(
            HEADER_MAGIC,
            FORMAT_VERSION,
            HEADER_BYTES,
            self.alignment,
            0,
            self.store.bytes,
            self.number,
            self.epoch,
            self.base,
            self.created_us,
            self.previous_number,
            self.previous_length,
            self.previous_sha256,
            self.previous_cut,
            self.original_sha256,
            self.content_sha256,
        )
        page = head.ljust(HEADER_BYTES - 4, b"\0")
        return page + crc32(page).to_bytes(4, "little")

    @classmethod
    def decode(cls, page: bytes, path: str) -> Self:
        """Raises StoreCorrupt naming `path`, or StoreVersionUnsupported for an intact page of another version."""
        if len(page) < HEADER_BYTES or page[:8] != HEADER_MAGIC:
            raise StoreCorrupt("not a journal segment", path=path, offset=0)
        if crc32(page[: HEADER_BYTES - 4]) != int.from_bytes(page[HEADER_BYTES - 4 : HEADER_BYTES], "little"):
            raise StoreCorrupt("the segment header's checksum does not match", path=path, offset=0)
        _, version, header_bytes, alignment, _, store, number, epoch, base, created, *previous = _HEADER.unpack_from(
            page
        )
        if version != FORMAT_VERSION or header_bytes != HEADER_BYTES:
            raise StoreVersionUnsupported(
                f"{path} has format {version}; this version of acquit reads format {FORMAT_VERSION}"
            )
        return cls(
            store=UUID(bytes=store),
            number=number,
            epoch=epoch,
            base=Position(base),
            created_us=created,
            alignment=alignment,
            previous_number=previous[0],
            previous_length=previous[1],
            previous_sha256=previous[2],
            previous_cut=previous[3],
            original_sha256=previous[4],
            content_sha256=previous[5],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """The end of a closed segment."""

    epoch: int
    number: int
    end: Position
    """Position after the segment's last batch: the base of the next segment."""
    sealed_us: int
    cut: int
    """Bytes of a torn tail that recovery dropped here; 0 where the segment was closed in order."""
    summary: bytes

    def encode(self, alignment: int) -> bytes:
        used = SEAL_HEAD_BYTES + len(self.summary)
        length = used + padding(used, alignment)
        summary_bytes = len(self.summary)
        head = _SEAL.pack(
            SEAL_MAGIC, 0, length, summary_bytes, self.epoch, self.number, self.end, self.sealed_us, self.cut, 0
        )
        rest = (head[8:] + self.summary).ljust(length - 8, b"\0")
        return SEAL_MAGIC + crc32(rest).to_bytes(4, "little") + rest


@dataclass(frozen=True, slots=True)
class SealHead:
    """Claims in the first 64 bytes of a seal; true only once `decode_seal` has verified the whole."""

    length: int
    epoch: int
    number: int
    end: Position


def decode_seal_head(data: bytes) -> SealHead | None:
    """None when there is no seal."""
    if len(data) < SEAL_HEAD_BYTES or data[:4] != SEAL_MAGIC:
        return None
    _, _, length, summary_bytes, epoch, number, end, _, _, _ = _SEAL.unpack_from(data)
    if length < SEAL_HEAD_BYTES + summary_bytes:
        return None
    return SealHead(length, epoch, number, Position(end))


def decode_seal(data: bytes) -> Seal | None:
    """The seal that `data` (of the length its head says) is, or None when it is damaged."""
    head = decode_seal_head(data)
    if head is None or len(data) != head.length or crc32(data[8:]) != int.from_bytes(data[4:8], "little"):
        return None
    _, _, _, summary_bytes, epoch, number, end, sealed_us, cut, _ = _SEAL.unpack_from(data)
    summary = data[SEAL_HEAD_BYTES : SEAL_HEAD_BYTES + summary_bytes]
    return Seal(epoch=epoch, number=number, end=Position(end), sealed_us=sealed_us, cut=cut, summary=summary)


_DELETED: Final = Struct("<QQ32sqq")


@dataclass(frozen=True, slots=True)
class DeletedSegment:
    """Content of the record of a deletion: the link of the chain, and when the segment lived."""

    number: int
    valid_bytes: int
    sha256: bytes
    created_us: int
    sealed_us: int

    def encode(self) -> bytes:
        return _DELETED.pack(self.number, self.valid_bytes, self.sha256, self.created_us, self.sealed_us)

    @classmethod
    def decode(cls, meta: bytes) -> Self:
        """Raises ValueError for bytes that are none."""
        if len(meta) != _DELETED.size:
            raise ValueError(f"the record of a deleted segment has {len(meta)} bytes, expected {_DELETED.size}")
        return cls(*_DELETED.unpack(meta))


_ERASED: Final = Struct("<Q32s32s")


@dataclass(frozen=True, slots=True)
class ErasedSegment:
    """The record of an erasure: which segment, and the two hashes that its header has since."""

    number: int
    original_sha256: bytes
    content_sha256: bytes

    def encode(self) -> bytes:
        return _ERASED.pack(self.number, self.original_sha256, self.content_sha256)

    @classmethod
    def decode(cls, meta: bytes) -> Self:
        """Raises ValueError for bytes that are none."""
        if len(meta) != _ERASED.size:
            raise ValueError(f"the record of an erased segment has {len(meta)} bytes, expected {_ERASED.size}")
        return cls(*_ERASED.unpack(meta))


_LEFT: Final = Struct("<Q")


def encode_left(number: int) -> bytes:
    """The meta of a LEFT record."""
    return _LEFT.pack(number)


def decode_left(meta: bytes) -> int:
    """The number of the segment that left. Raises ValueError for bytes that are none."""
    if len(meta) != _LEFT.size:
        raise ValueError(f"the number of a segment that left has {len(meta)} bytes, expected {_LEFT.size}")
    (number,) = _LEFT.unpack(meta)
    return int(number)


EVENTS_MAGIC: Final = b"ACQUEVTS"
EVENTS_HEADER_BYTES: Final = 128
_EVENTS: Final = Struct("<8sIIQQ16s32sQ")


@dataclass(frozen=True, slots=True)
class EventsHeader:
    """The front of a side file ``<number>.events``: the segment's events as one array, for the audit. Derived: it can
    be deleted and is built again from the segment.

    ::

        "ACQUEVTS" | version u32 | header bytes u32 | segment number u64 | events u64 | store uuid 16
        | SHA-256 of the segment's valid bytes 32 | base position u64 | zeros | crc u32 of the 124 bytes before it
    """

    store: UUID
    number: int
    events: int
    sha256: bytes
    base: Position

    def encode(self) -> bytes:
        head = _EVENTS.pack(
            EVENTS_MAGIC,
            FORMAT_VERSION,
            EVENTS_HEADER_BYTES,
            self.number,
            self.events,
            self.store.bytes,
            self.sha256,
            self.base,
        ).ljust(EVENTS_HEADER_BYTES - 4, b"\0")
        return head + crc32(head).to_bytes(4, "little")

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """None when it is no such header, or damaged."""
        if len(data) < EVENTS_HEADER_BYTES or data[:8] != EVENTS_MAGIC:
            return None
        if crc32(data[:124]) != int.from_bytes(data[124:128], "little"):
            return None
        _, version, header_bytes, number, events, store, sha256, base = _EVENTS.unpack_from(data)
        if version != FORMAT_VERSION or header_bytes != EVENTS_HEADER_BYTES:
            return None
        return cls(UUID(bytes=store), number, events, sha256, Position(base))
