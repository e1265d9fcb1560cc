"""Lets a few through in each round of the loop: for work that thousands of sockets may ask for in the same moment.

What a connection asks for itself is served in its own turns (`pump`). What is done for one that has come or gone is
nobody's turn, and all of it at once would hold up everybody who is there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


class Turnstile:
    """Calls that wait, in the order in which they came. Nothing is lost: each round lets the next of them through."""

    def __init__(self, loop: asyncio.AbstractEventLoop, per_round: int) -> None:
        self._loop = loop
        self._per_round = per_round
        self._left = per_round
        """Number of calls that may still pass in this round."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._due = False

    def enter(self, call: Callable[[], None]) -> None:
        """Make the call: at once where few have come in this round, and in one of the next otherwise."""
        if not self._due:
            self._due = True
            self._loop.call_soon(self._next_round)
        if self._left > 0 and not self._waiting:
            self._left -= 1
            call()
        else:
            self._waiting.append(call)

    def leave(self, call: Callable[[], None]) -> bool:
        """Make that call no more. False if it does not wait."""
        try:
            self._waiting.remove(call)
        except ValueError:
            return False
        return True

    def _next_round(self) -> None:
        self._left = self._per_round
        self._due = bool(self._waiting)
        if self._due:
            self._loop.call_soon(self._next_round)
        while self._waiting and self._left > 0:
            self._left -= 1
            self._waiting.popleft()()


async def in_turns(do: Callable[[T], object], things: Iterable[T], per_round: int) -> None:
    """Do something with each of many things, with so many in each round of the loop."""
    for number, thing in enumerate(things, 1):
        do(thing)
        if not number % per_round:
            await asyncio.sleep(0)


__all__ = ["Turnstile", "in_turns"]
