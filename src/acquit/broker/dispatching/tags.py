"""Delivery tags: numbers in four octets, each below 0x80.

A tag is any 32 octets to AMQP (2.8.7); but there are clients that read it as text, and fail at the first that is none.
So the numbers leave the top bit of each octet free. Counting them costs what counting costs: `STEP` sets those bits
before it adds one, so that a carry goes through them, and `MASK` clears them again. After 2**28 they begin anew.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

STEP: Final = 0x0080_8081
MASK: Final = 0x7F7F_7F7F
"""The number after `tag` is ``tag + STEP & MASK``; the first is 0."""
encode: Final = Struct(">I").pack
_LAST: Final = [bytes((octet,)) for octet in range(0x80)]


def following(tag: int, how_many: int) -> list[bytes]:
    """Return so many tags, as they are sent, the first of which follows the number `tag`."""
    encoded: list[bytes] = []
    while how_many:
        tag = tag + STEP & MASK
        low = tag & 0x7F
        alike = min(how_many, 0x80 - low)
        head = encode(tag)[:3]
        encoded += [head + last for last in _LAST[low : low + alike]]
        tag += alike - 1
        how_many -= alike
    return encoded


def number(encoded: bytes) -> int:
    """Return the number of a tag."""
    return int.from_bytes(encoded, "big")


def count(tag: int) -> int:
    """Return how many tags there were up to this number since the first, or since they began anew."""
    return (tag & 0x7F) | (tag >> 1 & 0x3F80) | (tag >> 2 & 0x1F_C000) | (tag >> 3 & 0xFE0_0000)


__all__ = ["MASK", "STEP", "count", "encode", "following", "number"]
