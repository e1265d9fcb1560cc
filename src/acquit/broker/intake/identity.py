"""The id by which a posting is known to come twice."""

from __future__ import annotations


class Identity:
    """The id of a posting, and what is known of it."""

    __slots__ = ("address", "durable", "fingerprint", "first", "flags", "identity", "limit", "recorded")

    def __init__(self, address: str, identity: bytes, fingerprint: int, limit: int, *, durable: bool) -> None:
        self.address = address
        self.identity = identity
        self.fingerprint = fingerprint
        """Size and CRC-32 of the body sections."""
        self.limit = limit
        self.durable = durable
        self.first = 0
        """The sequence of the posting that this one repeats (within a transaction its provisional one); 0: of none."""
        self.recorded = True
        """True if that posting is in the journal."""
        self.flags = 0
        """EventFlag of the posting: ID_REUSED where the id is known with another body."""


__all__ = ["Identity"]
