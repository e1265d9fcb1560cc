"""Delivery tags of a sending link: different, all of one width, and readable in the logs of any broker.

The specification leaves tags to the sender (2.6.12), up to 32 bytes that mean something to it alone. Ours count, in 64
signs of ASCII in their order, so that the transfers of a link differ in nothing but numbers, and each tag is larger
than the one before: of such a link a receiver need not remember which tags are in use (`receiver.use_tags`). A new tag
is made for each message: the last two signs, of which there are few, are made beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Final

TAG_BYTES: Final = 6
"""Tags come again after 64 ** 6 messages. They have to differ only from those that are not settled."""

_SIGNS: Final = f"{digits}{ascii_uppercase}_{ascii_lowercase}~".encode()
_ENDS: Final = tuple(bytes(signs) for signs in product(_SIGNS, repeat=2))


def delivery_tags() -> Iterator[bytes]:
    """The tags of one link."""
    while True:
        for signs in product(_SIGNS, repeat=TAG_BYTES - 2):
            begin = bytes(signs)
            for end in _ENDS:
                yield begin + end


__all__ = ["TAG_BYTES", "delivery_tags"]
