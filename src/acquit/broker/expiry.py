"""What time does to messages: they expire, and scheduled ones become available."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.queue import NodeEvent, NodeState
from acquit.errors import StoreFull
from acquit.ledger.events import EventKind

if TYPE_CHECKING:
    from acquit.broker.letters import Letters
    from acquit.broker.life import Life
    from acquit.broker.message import Message

TURN_MAX: Final = 1_000
"""Messages that one turn brings up: a million that expire at once are a thousand turns."""
RETRY_MS: Final = 1_000
"""When the disk has no room for a copy, its message is looked at again after this."""


class Expiry:
    """Serves the timers."""

    def __init__(self, life: Life, letters: Letters) -> None:
        self._life = life
        self._letters = letters

    def run(self) -> bool:
        """Bring up what is due. True if there is more."""
        life = self._life
        now_ms = life.scribe.time_us // 1000
        due = life.timers.take_due(now_ms, TURN_MAX)
        for message in due:
            if message.state is NodeState.SCHEDULED and 0 < message.due_at_ms <= now_ms:
                life.apply(message, NodeEvent.DUE)
            self.expire(message)
        return len(due) == TURN_MAX

    def expire(self, message: Message) -> None:
        """Let it expire, if it waits in its queue and its time has passed. Its body may have to be read first."""
        now_ms = self._life.scribe.time_us // 1000
        waits = message.state in (NodeState.AVAILABLE, NodeState.SCHEDULED)
        if not waits or not 0 < message.expires_at_ms <= now_ms:
            return
        address = message.queue.policy.expiry_address
        origin = 0
        if address:
            if message.body is None:
                self._life.memory.want(message, self.expire)
                return
            try:
                origin = self._letters.copy(message, address, EventKind.EXPIRED_IN)
            except StoreFull:
                self._life.timers.add(now_ms + RETRY_MS, message)
                return
        self._life.apply(message, NodeEvent.EXPIRE, origin=origin)
        self._life.wake(message.queue)


__all__ = ["Expiry"]
