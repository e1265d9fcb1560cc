"""A page of the marks of senders, found in small steps among all that the journal keeps by a key."""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from acquit.ledger.records import Namespace

if TYPE_CHECKING:
    from acquit.broker.inspect import MarkSnapshot
    from acquit.broker.intake.marks import Marks

STEP: Final = 5_000
"""Keys that are looked at in one turn."""


class MarksListing:
    """The marks above some id, by id, so many at most."""

    ready = True

    def __init__(self, marks: Marks, after: str, limit: int, finish: Callable[[list[MarkSnapshot]], None]) -> None:
        self._marks = marks
        self._after = after
        self._limit = limit
        self._finish = finish
        self._keys = [key for key in marks.unrecorded() if key.hex() > after]
        self._all = list(marks.state)
        self._looked = 0

    def run(self) -> bool:
        """Look at some. True when it was the last step."""
        step = self._all[self._looked : self._looked + STEP]
        self._looked += len(step)
        self._keys += [key for namespace, key in step if namespace == Namespace.SENDER_MARK and key.hex() > self._after]
        self._keys = nsmallest(self._limit, self._keys)
        if self._looked < len(self._all):
            return False
        found = (self._marks.look(key) for key in self._keys)
        self._finish([one for one in found if one is not None])
        return True


__all__ = ["STEP", "MarksListing"]
