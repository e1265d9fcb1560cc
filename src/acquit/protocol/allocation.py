"""Numbers for channels and handles: the lowest that is free, as 2.5.1 and 2.7.3 recommend."""

from __future__ import annotations

from heapq import heappop, heappush


class LowestFree:
    """Gives out the lowest free number, in logarithmic time however many are taken."""

    __slots__ = ("_freed", "_next")

    def __init__(self) -> None:
        self._freed: list[int] = []
        self._next = 0

    def peek(self) -> int:
        """The number that `take` would give."""
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


__all__ = ["LowestFree"]
