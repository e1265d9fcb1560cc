"""The bounds of a journal, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from acquit.errors import ConfigurationError

MIB = 1 << 20
_GROWTH: Final = 4
"""A reserve of two files has room for eight times what was ever written, until files have their full size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JournalOptions:
    """Options of a journal: how large things may grow. Raises ConfigurationError for values that cannot work."""

    segment_bytes: int = 64 * MIB
    """A segment is prewritten to this size, and left when the next batch no longer fits. Larger means fewer seals,
    smaller means that space comes back in smaller steps. A single larger batch gets a larger segment."""

    first_segment_bytes: int = 4 * MIB
    """Segments and reserve of a new journal begin at this size, and double while they are smaller than four times what
    was ever written, up to segment_bytes: a broker that is little used takes little room. As large as segment_bytes,
    the whole reserve is there from the beginning."""

    alignment_bytes: int = 4096
    """Batches start at multiples of this: no less than the sector of the device, so that a torn write never touches a
    sector that holds older bytes. It costs half of it in space for each batch, and no time: the kernel writes whole
    pages anyway. A power of two."""

    reserve_segments: int = 2
    """Prewritten segments kept for outcomes and checkpoints: postings never use them. When the disk is full, consumers
    are served while these last."""

    spare_segments: int = 1
    """Prewritten segments beyond the reserve, so that moving on to the next does not wait for the disk."""

    batch_bytes_max: int = 8 * MIB
    """`Journal.congested` beyond this much waiting: more would only make the batch in flight late. At least 512."""

    recovery_bytes_max: int = 1024 * MIB
    """The oldest segment is due to leave when those that recovery must read exceed this (and twice what is live in
    them: below that, copying forward costs more than it frees)."""

    archive_bytes_max: int = 10 * 1024 * MIB
    """Segments that left are kept for the audit up to this much, deleted oldest first. 0 keeps none. (Their side files
    come on top: up to a third more.)"""

    archive_age_max_s: int = 30 * 24 * 3600
    """Longest time, in seconds after it was sealed, for which an archived segment is kept."""

    erase_bodies_after_s: int = 0
    """Bodies, with their properties and annotations, become zeros on the disk no later than this after their messages
    were settled, while the records about them stay for the audit; docs/privacy.md says what that costs. 0: they stay
    until their segment is deleted."""

    archive_yields: bool = True
    """True if the archive gives way when the disk is full, oldest first, before messages are refused for want of room.
    Each deletion is on record as any other. False keeps to the two bounds above whatever happens."""

    stubs_max: int = 100_000
    """Deleted segments of which header and seal (a few KiB) are kept, so that chain and summaries stay whole."""

    open_files_max: int = 16
    """Segments kept open for reading bodies back."""

    retry_ms: int = 1000
    """Milliseconds before the disk is tried again that had no room for a segment or a chore, and between two segments
    whose bodies are erased. At least 10."""

    def __post_init__(self) -> None:
        align = self.alignment_bytes
        if align < 512 or align > 65536 or align & (align - 1):
            raise ConfigurationError(f"alignment_bytes is {align}; expected a power of two from 512 to 65536")
        for name in ("segment_bytes", "first_segment_bytes"):
            size = getattr(self, name)
            if size < 16 * align or size % align:
                raise ConfigurationError(f"{name} is {size}; expected a multiple of alignment_bytes, at least 16 times")
        # The head of a batch alone counts: with less than that, no posting would ever be asked for.
        if not 512 <= self.batch_bytes_max <= 1024 * MIB:
            raise ConfigurationError(f"batch_bytes_max is {self.batch_bytes_max}; expected 512 bytes to 1 GiB")
        if self.retry_ms < 10:  # a full disk would be tried without a pause
            raise ConfigurationError(f"retry_ms is {self.retry_ms}; expected 10 or more")
        for name in (
            "recovery_bytes_max",
            "reserve_segments",
            "spare_segments",
            "archive_bytes_max",
            "archive_age_max_s",
            "erase_bodies_after_s",
            "stubs_max",
        ):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; expected 0 or more")
        if self.open_files_max < 1:
            raise ConfigurationError(f"open_files_max is {self.open_files_max}; expected 1 or more")

    @property
    def leave_after_us(self) -> int | None:
        """The longest time for which a segment that holds settled bodies is written, and for which it stays once it is
        closed, microseconds; None: as long as its size allows. Both together are `erase_bodies_after_s`."""
        return self.erase_bodies_after_s * 500_000 or None

    def prewritten_bytes(self, end: int) -> int:
        """Return the size of the files that are prewritten once `end` bytes were ever written."""
        size = min(self.first_segment_bytes, self.segment_bytes)
        while size < min(self.segment_bytes, _GROWTH * end):
            size *= 2
        return min(size, self.segment_bytes)

    @classmethod
    def small(cls) -> Self:
        """Return options for brokers that live as long as a test: 4 MiB segments, the least reserve with one spare,
        64 MiB to recover and 256 MiB of archive."""
        return cls(
            segment_bytes=4 * MIB,
            reserve_segments=1,
            spare_segments=1,
            recovery_bytes_max=64 * MIB,
            archive_bytes_max=256 * MIB,
        )
