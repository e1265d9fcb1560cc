"""Payloads of which the beginning alone is our own: the rest stays where it came in.

Theory of operation. A message of 60 MB takes milliseconds to copy, and while one thread copies nobody else's messages
move. A broker changes nothing but the front of a message: its header and its annotations. So what it keeps of a large
one is a rope of two strands, the new front and the octets behind the old one, which stay in the payload as it arrived,
or was read back. Frames are cut from either. Small ones are copied: that costs less than an object.

No rope has fewer than `ROPE_MIN` octets, and what is sent by template has fewer (`sender.TransferTemplate`), so the
fast paths meet none.
"""

from __future__ import annotations

from typing import Final

ROPE_MIN: Final = 65_536
"""Octets of the smallest rope: those take some microseconds to copy."""
_USED_MIN: Final = 8
"""Octets that are in use for each that is not, at the least."""


class Rope:
    """The octets of `head`, and behind them those of `payload` from `start` on, which are not copied."""

    __slots__ = ("head", "payload", "start")

    def __init__(self, head: bytes, payload: bytes, start: int) -> None:
        self.head = head
        self.payload = payload
        self.start = start

    def __len__(self) -> int:
        return len(self.head) + len(self.payload) - self.start

    def __getitem__(self, where: slice) -> bytes:
        """Return the octets from `where.start` to `where.stop`, neither of which may count from the end."""
        head_bytes = len(self.head)
        begin = where.start or 0
        end = len(self) if where.stop is None else where.stop
        shift = self.start - head_bytes
        if begin >= head_bytes:
            return self.payload[begin + shift : end + shift]
        if end <= head_bytes:
            return self.head[begin:end]
        return self.head[begin:] + self.payload[self.start : end + shift]

    def __radd__(self, before: bytes) -> Rope:
        return Rope(before + self.head, self.payload, self.start)

    def __bytes__(self) -> bytes:
        return self[:]


def spliced(head: bytes, payload: bytes, start: int) -> bytes | Rope:
    """Return `head` and what follows `start` in `payload`: as a rope if that is much, and much more than what is before
    it, which a rope keeps in memory though nobody counts it."""
    rest_bytes = len(payload) - start
    if rest_bytes < ROPE_MIN or start > rest_bytes // _USED_MIN:
        return head + payload[start:]
    return Rope(head, payload, start)


def behind(body: bytes | Rope, start: int) -> bytes | Rope:
    """Return what follows `start`, which of a rope is another."""
    if not isinstance(body, Rope):
        return body[start:]
    after = max(0, start - len(body.head))
    return Rope(body.head[start:], body.payload, body.start + after)


__all__ = ["ROPE_MIN", "Rope", "behind", "spliced"]
