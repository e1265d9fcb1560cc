"""Messages that have begun to arrive and not ended: how many bytes of them there are.

They are in memory before anybody knows where they go, so no queue's limit holds for them. One connection may have
``assembly_bytes_max`` of them (the engine sees to that), one user ``assembly_bytes_per_user_max``: the link that goes
beyond is ended with amqp:resource-limit-exceeded. Where all together have more than ``limits.assembly_bytes_max``,
the connection that has the most, of the user who has the most, loses the links that its unfinished messages are on: who
only happens to send the frame that is too much is not to pay for those who sent the others. They count as memory.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from acquit.broker.links.peers import Peer
    from acquit.broker.memory import Memory


class Assembly:
    """Counts them, by connection and user."""

    def __init__(self, memory: Memory, shed: Callable[[Peer], None]) -> None:
        """`shed` has a connection give up all its unfinished messages."""
        self._memory = memory
        self._shed = shed
        self.bytes_max = self.per_user_max = 0
        """Set by the core, as the options say."""
        self._bytes = 0
        self._by_peer: Counter[Peer] = Counter()
        self._by_user: Counter[str | None] = Counter()

    def count(self, peer: Peer, byte_count: int) -> bool:
        """Count bytes, up or down. False where it is this peer who has too many."""
        user = peer.engine.user
        self._memory.bytes += byte_count
        self._bytes += byte_count
        self._by_peer[peer] += byte_count
        self._by_user[user] += byte_count
        if byte_count <= 0:
            if self._by_peer[peer] <= 0:
                del self._by_peer[peer]
            if self._by_user[user] <= 0:
                del self._by_user[user]
            return True
        if self._by_user[user] > self.per_user_max:
            return False
        while self._bytes > self.bytes_max:
            heaviest = self._heaviest()
            before = self._bytes
            if heaviest is not peer:
                self._shed(heaviest)
            if self._bytes == before:
                return False  # it is this one, or one that is closing and gives up all it has by that
        return True

    def _heaviest(self) -> Peer:
        return max(self._by_peer, key=lambda peer: (self._by_user[peer.engine.user], self._by_peer[peer]))


__all__ = ["Assembly"]
