"""The time of day, and when somebody sets it.

Times in the journal and in messages are of the wall clock, which can be set: by hand, by a time server that found it
far off, by a machine that wakes up. The steady clock beside it cannot. Where the two disagree by more than a second on
how much time has passed since the last look, the wall clock jumped, which is logged, and told, so that what was to last
for a while does (`core.Core.clock_set`). Nothing else depends on it: messages are in the order of their sequences,
never of their times.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

logger = logging.getLogger("acquit.broker")

JUMP_US: Final = 1_000_000
"""Below that it is called drift: whoever corrects the clock, corrects it gently."""


class Clock:
    """Microseconds since the epoch."""

    def __init__(
        self, jumped: Callable[[int], None], *, wall_us: Callable[[], int], steady_s: Callable[[], float]
    ) -> None:
        """`jumped` hears by how many microseconds the clock was set: forward, or (negative) back."""
        self._jumped = jumped
        self._wall_us = wall_us
        self._steady_s = steady_s
        self._wall_last, self._steady_last = wall_us(), steady_s()
        self._ahead_us = 0

    def advance(self, by_us: int) -> None:
        """Go ahead of the machine's clocks by so much more, as if that much time had passed (for tests)."""
        self._ahead_us += by_us

    def read_us(self) -> int:
        """The time of day, without a look at whether it was set."""
        return self._wall_us() + self._ahead_us

    def now_us(self) -> int:
        """The time of day, as it is now."""
        wall, steady = self._wall_us(), self._steady_s()
        by_us = (wall - self._wall_last) - round((steady - self._steady_last) * 1e6)
        self._wall_last, self._steady_last = wall, steady
        if abs(by_us) > JUMP_US:
            logger.warning(
                "the clock was set %s: messages expire, and are delivered, by the time that it says now",
                "forward" if by_us > 0 else "back",
                extra={"seconds": round(by_us / 1e6, 3)},
            )
            self._jumped(by_us)
        return wall + self._ahead_us


def compare_with_journal(written_us: int, now_us: int) -> None:
    """Log a warning at the start if the clock is behind the last time that the journal knows. Nothing is wrong with
    that, but times in the ledger do not grow there, and what was to happen at a time waits for it again. What waits for
    another attempt does not (`recovery`): its delay is a duration."""
    behind_us = written_us - now_us
    if behind_us > JUMP_US:
        logger.warning(
            "the clock is behind the journal: it was set back while the broker was down",
            extra={"seconds": round(behind_us / 1e6, 3)},
        )


__all__ = ["JUMP_US", "Clock", "compare_with_journal"]
