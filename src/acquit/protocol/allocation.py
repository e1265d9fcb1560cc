"""Numbers for channels and handles: the lowest that is free, as 2.5.1 and 2.7.3 recommend.

A number may be left to *rest*, which makes it the last choice: who has used it may not be over it yet.
"""

from __future__ import annotations

from heapq import heappop, heappush


class LowestFree:
    """Gives out the lowest free number, in logarithmic time however many are taken."""

    __slots__ = ("_freed", "_next", "_resting")

    def __init__(self) -> None:
        self._freed: list[int] = []
        self._resting: list[int] = []
        self._next = 0

    def peek(self) -> int:
        """The number that `take` would give: none that rests."""
        return self._freed[0] if self._freed else self._next

    def take(self) -> int:
        """The lowest number that is free, which is then taken."""
        if self._freed:
            return heappop(self._freed)
        self._next += 1
        return self._next - 1

    def free(self, number: int) -> None:
        """Give back a number that `take` gave."""
        heappush(self._freed, number)

    def rest(self, number: int) -> None:
        """Give back a number that is not to be taken before `wake`."""
        self._resting.append(number)

    def wake(self) -> None:
        """Numbers that rest are free, because there is no other that can be taken."""
        while self._resting:
            self.free(self._resting.pop())


__all__ = ["LowestFree"]
