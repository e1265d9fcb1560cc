"""Records of one size, one behind the other, compared column by column.

Under load most messages of a read are alike, and of one size. What must be the same in all of them is a column of
octets then, a slice with a step, and a column is compared at once. Its price is that of a few records: who compares few
looks at each of them.
"""

from __future__ import annotations

from typing import Final

_COLUMN_COST: Final = 3
"""Records that can be looked at one by one at the price of a column."""


def agreeing(data: bytes, offset: int, size: int, count: int, octets: bytes) -> int:
    """Return how many of `count` records of `size` bytes have these octets, up to the first that has not. They are at
    `offset` in the first of them."""
    width = len(octets)
    if width * _COLUMN_COST > count:
        found = [data[at : at + width] for at in range(offset, offset + count * size, size)]
        return count if found.count(octets) == count else next(at for at, one in enumerate(found) if one != octets)
    for place, octet in enumerate(octets, offset):
        if not count:
            break
        column, expected = data[place : place + (count - 1) * size + 1 : size], bytes((octet,))
        if column != expected * count:
            count -= len(column.lstrip(expected))
    return count


def all_ascii(data: bytes, offset: int, size: int, count: int, width: int) -> bool:
    """Return whether so many octets of each of `count` records of `size` bytes are ASCII. They are at `offset` in the
    first of them."""
    if width * _COLUMN_COST > count:
        return b"".join([data[at : at + width] for at in range(offset, offset + count * size, size)]).isascii()
    ends = offset + (count - 1) * size + 1
    return all(data[offset + at : ends + at : size].isascii() for at in range(width))


__all__ = ["agreeing", "all_ascii"]
