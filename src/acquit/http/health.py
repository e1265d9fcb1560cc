"""Health: whether the process is alive, and whether the broker is ready to take messages, and if not, why.

Both are for everybody who can connect, so they tell nothing else, and however often they are asked, the broker is asked
four times a second at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from acquit.broker.admin.later import RequestFailure

if TYPE_CHECKING:
    from acquit.http.bridge import Bridge

ANSWERS_WITHIN_S: Final = 1.0
"""Seconds within which the loop of a broker that is ready answers."""
ASKED_AGAIN_S: Final = 0.25
REASONS: Final = {
    "journal_failed": "the journal failed",
    "stopping": "the broker is stopping",
    "loop_late": f"the broker's loop does not answer within {ANSWERS_WITHIN_S:g} s",
    "disk_full": "the disk is full",
}
"""Reasons why a broker is not ready, and how they are said."""


class Health:
    """The health of one broker. Belongs to the loop of the HTTP interface."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._found: tuple[float, asyncio.Task[str | None]] | None = None

    async def reasons(self) -> list[str]:
        """Return the reasons why the broker is not ready, as people read them; [] for one that is."""
        reason = await self.reason()
        return [] if reason is None else [REASONS[reason]]

    async def reason(self) -> str | None:
        """Return the first reason why the broker is not ready, a key of `REASONS`; None for one that is."""
        now = time.monotonic()
        if self._found is None or now - self._found[0] > ASKED_AGAIN_S:
            self._found = now, asyncio.create_task(self._look())
        return await asyncio.shield(self._found[1])

    async def _look(self) -> str | None:
        server = self._bridge.server
        if server.failure is not None:
            return "journal_failed"
        if server.stopping:
            return "stopping"

        def begin(give: Callable[[bool | BaseException], None]) -> None:
            give(server.accepting)

        try:
            accepting = await self._bridge.ask(begin, timeout_s=ANSWERS_WITHIN_S)
        except RequestFailure:
            return "loop_late"
        return None if accepting else "disk_full"


__all__ = ["ANSWERS_WITHIN_S", "REASONS", "Health"]
