"""Serial numbers: delivery-ids, transfer-ids and delivery-counts wrap around at 2^32 (2.8.8 to 2.8.10, RFC 1982).

`a` is before `b` when going up from `a` reaches `b` in less than half the circle. Exactly half-way RFC 1982 leaves the
order undefined: such numbers compare as neither before nor after one another here.
"""

from __future__ import annotations

from typing import Final

MODULUS: Final = 1 << 32
MASK: Final = MODULUS - 1
_HALF: Final = 1 << 31


def add(serial: int, increment: int) -> int:
    """`serial` moved forward (or back, for a negative `increment`)."""
    return (serial + increment) & MASK


def distance(start: int, end: int) -> int:
    """Return the way from `start` to `end`: from -2^31 (half-way round counts as behind) to 2^31 - 1."""
    return ((end - start + _HALF) & MASK) - _HALF


def before(a: int, b: int) -> bool:
    """Return True if `a` comes before `b`."""
    return 0 < ((b - a) & MASK) < _HALF


__all__ = ["MASK", "MODULUS", "add", "before", "distance"]
