"""Message ids that a sender gives to messages without one, so that a receiver recognises a send that is repeated.

An id is a random prefix of the sender and a number, all of one width: so that the properties section (3.2.4) that says
nothing but the id is bytes that are known but for the number.
"""

from __future__ import annotations

import uuid
from itertools import count
from typing import Final

from acquit.protocol.sections import message_id_head

PREFIX_CHARACTERS: Final = 16
NUMBER_DIGITS: Final = 12
"""Hexadecimal: enough for nine years at a million a second."""


class MessageIds:
    """The ids that one sender gives; several threads may ask at once."""

    __slots__ = ("_before", "_numbers", "_prefix")

    def __init__(self) -> None:
        self._prefix = f"{uuid.uuid4().hex[:PREFIX_CHARACTERS]}-".encode()
        size = len(self._prefix) + NUMBER_DIGITS
        self._before = message_id_head(size) + self._prefix
        self._numbers = count(1)

    def next(self) -> str:
        """Return another id."""
        return (self._prefix + b"%012x" % next(self._numbers)).decode()

    def next_section(self) -> bytes:
        """Return another id, as a properties section that has nothing else."""
        return self._before + b"%012x" % next(self._numbers)


__all__ = ["MessageIds"]
