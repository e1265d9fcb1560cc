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


class Health:
    """The health of one broker. Belongs to the loop of the HTTP interface."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._found: tuple[float, asyncio.Task[list[str]]] | None = None

    async def reasons(self) -> list[str]:
        """Return the reasons why the broker is not ready; [] for one that is."""
        now = time.monotonic()
        if self._found is None or now - self._found[0] > ASKED_AGAIN_S:
            self._found = now, asyncio.create_task(self._look())
        return await asyncio.shield(self._found[1])

    async def _look(self) -> list[str]:
        server = self._bridge.server
        if server.failure is not None:
            return ["the journal failed"]
        if server.stopping:
            return ["the broker is stopping"]

        def begin(give: Callable[[bool | BaseException], None]) -> None:
            give(server.accepting)

        try:
            accepting = await self._bridge.ask(begin, timeout_s=ANSWERS_WITHIN_S)
        except RequestFailure:
            return [f"the broker's loop does not answer within {ANSWERS_WITHIN_S:g} s"]
        return [] if accepting else ["the disk is full"]


__all__ = ["ANSWERS_WITHIN_S", "Health"]
