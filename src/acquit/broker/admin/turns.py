"""Operations that take many turns of the loop: one step of one of them in a turn, while everybody else is served.

However many are asked for, a turn costs one step. `GOING_MAX` go on together, in turns, so that a short one need not
wait for a long one. Those that come later wait in line and know nothing of their queue yet; beyond `WAITING_MAX` they
are refused.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from acquit.broker.admin.later import RequestFailure

GOING_MAX: Final = 8
"""Operations that have begun and have not ended: each remembers the messages of a whole queue."""
WAITING_MAX: Final = 256
"""Operations that wait to begin."""


class Steps(Protocol):
    """An operation in steps."""

    @property
    def ready(self) -> bool:
        """True if the next step can be taken; otherwise bodies are being read."""

    def run(self) -> bool:
        """Take the next step, a bounded one. True when it was the last."""


class InTurns:
    """The operations of one kind that have not ended."""

    def __init__(self) -> None:
        self._going: deque[Steps] = deque()
        self._waiting: deque[Steps] = deque()

    def begin(self, steps: Steps) -> None:
        """Take the first step now, where nobody else goes on, and the others with the turns that follow. Raises
        RequestFailure where too many wait."""
        if not self._going:
            if not steps.run():
                self._going.append(steps)
        elif len(self._going) < GOING_MAX:
            self._going.append(steps)
        elif len(self._waiting) < WAITING_MAX:
            self._waiting.append(steps)
        else:
            raise RequestFailure(503, "too many such requests wait: ask again later")

    def run(self) -> bool:
        """Go on with one of them. True if there is more that can be done at once."""
        going = self._going
        if not going:
            return False
        for _ in range(len(going)):
            first = going.popleft()
            if not first.ready:
                going.append(first)
                continue
            if not first.run():
                going.append(first)
            elif self._waiting:
                going.append(self._waiting.popleft())
            break
        return any(steps.ready for steps in going)


__all__ = ["GOING_MAX", "WAITING_MAX", "InTurns", "Steps"]
