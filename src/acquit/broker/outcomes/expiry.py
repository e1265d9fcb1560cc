"""Expiry of messages, and the times when scheduled ones become available.

A message that expires to another address is copied there, and its body may have to be read back for that. A million of
them are not a million reads that wait: some are read at a time, and the others stay in line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.nodes.node import whole
from acquit.broker.queue import NodeEvent, NodeState
from acquit.errors import StoreFull
from acquit.ledger.events import EventKind

if TYPE_CHECKING:
    from acquit.broker.life import Life
    from acquit.broker.message import Message
    from acquit.broker.outcomes.letters import Letters

TURN_MAX: Final = 300
"""Messages that one turn brings up: a million that expire at once are thousands of turns."""
COPIES_MAX: Final = 40
"""Messages of these that one turn copies elsewhere, which takes longer."""
READS_MAX: Final = 256
"""Bodies that are read back at a time."""
RETRY_MS: Final = 1_000
"""Milliseconds until a message is looked at again for whose copy the disk had no room."""


class Expiry:
    """Serves the timers."""

    def __init__(self, life: Life, letters: Letters) -> None:
        self._life = life
        self._letters = letters
        self._read: dict[Message, None] = {}
        """Messages whose bodies are being read back."""
        self._copied = 0
        """Messages copied in this turn."""
        self._paused_until_ms = 0
        """The disk had no room for a copy."""

    @property
    def next_ms(self) -> int | None:
        """Next look, in milliseconds since the epoch; None: at no time, or when a body that was asked for has come."""
        at_ms = self._life.timers.next_ms
        if at_ms is None or len(self._read) >= READS_MAX:
            return None
        return max(at_ms, self._paused_until_ms)

    def run(self) -> bool:
        """Bring up what is due. True if there is more."""
        life = self._life
        now_ms = life.scribe.time_us // 1000
        if now_ms < self._paused_until_ms <= now_ms + RETRY_MS:
            return False
        left = TURN_MAX
        self._copied = 0
        while left and self._copied < COPIES_MAX and len(self._read) < READS_MAX:
            due = life.timers.take_due(now_ms, min(left, COPIES_MAX - self._copied, READS_MAX - len(self._read)))
            if not due:
                return False
            left -= len(due)
            for message in due:
                extra = message.extra
                if message.state is NodeState.SCHEDULED and extra is not None and extra.is_due(now_ms):
                    life.apply(message, NodeEvent.DUE)
                self.expire(message)
        return len(self._read) < READS_MAX

    def clock_set(self, by_ms: int) -> None:
        """The clock jumped: what waits for another attempt still waits for as long; a delivery time is a time."""
        if by_ms < 0:  # what was held as its time came is to come up again as that comes again
            for message in self._life.objects.values():
                self._life.look_at_time(message)
        seen = {message.queue for message in self._life.timers.messages() if message.state is NodeState.SCHEDULED}
        for queue in seen:
            for message in whole(queue).scheduled.values():
                if message.came_back and message.extra is not None:
                    message.extra.due_shift_ms += by_ms
                    self._life.timers.add(message.extra.due_at_ms + message.extra.due_shift_ms, message)
        self._paused_until_ms = 0

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
                self._read[message] = None
                self._life.memory.want(message, self._loaded)
                return
            if self._copied >= COPIES_MAX:  # dispatch has come to it, in many queues perhaps
                self._life.timers.add(message.expires_at_ms, message)
                return
            self._copied += 1
            try:
                origin = self._letters.copy(message, address, EventKind.EXPIRED_IN)
            except StoreFull:
                self._paused_until_ms = now_ms + RETRY_MS
                self._life.timers.add(self._paused_until_ms, message)
                return
        self._life.apply(message, NodeEvent.EXPIRE, origin=origin)
        self._life.wake(message.queue)

    def _loaded(self, message: Message) -> None:
        """Bring up a message that was read, in the turn that comes: hundreds may have been read together."""
        self._read.pop(message, None)
        if message.state is not NodeState.ARCHIVED:
            self._life.timers.add(message.expires_at_ms, message)


__all__ = ["Expiry"]
