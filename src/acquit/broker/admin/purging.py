"""Removing messages of a queue that nobody has acquired, all or chosen ones.

It goes a step at a time (`turns`), so that nobody else waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from acquit.broker.admin.walking import WAITING, MessageChoice, Walk, remembered
from acquit.broker.queue import NodeEvent, NodeState

if TYPE_CHECKING:
    from acquit.broker.life import Life
    from acquit.broker.message import Message
    from acquit.broker.nodes.node import Queue

STEP: Final = 1_000
"""Messages that one turn purges: some milliseconds' work."""


class Purge:
    """A purge of one queue. Messages posted after it began stay; none is handed out of the queue before it has
    ended."""

    ready: Final = True
    """True: it reads no bodies."""

    def __init__(self, life: Life, queue: Queue, actor: int, done: Callable[[int], None] | None = None) -> None:
        """`done` hears how many messages were purged, once that is recorded durably."""
        self._life = life
        self._queue = queue
        self._actor = actor
        self._done = done
        self._durable = False
        self.count = 0
        """Messages purged so far."""
        self._states: tuple[NodeState, ...] = WAITING
        self._messages: Iterator[Message] | None = None

    def run(self) -> bool:
        """Do some more of it. True when it has ended."""
        if self._messages is None:
            self._messages = self._begin()
        left = STEP
        for message in islice(self._messages, STEP):
            left -= 1
            if message.state in self._states:
                self._durable = self._durable or message.durable
                self._life.apply(message, NodeEvent.PURGE, actor=self._actor)
                self.count += 1
        if not left:
            return False
        self._finish()
        if self._done is not None and self._durable:
            self._life.scribe.once_durable(self._done, self.count)
        elif self._done is not None:
            self._done(self.count)
        return True

    def _begin(self) -> Iterator[Message]:
        """Return what is to be purged."""
        self._queue.purging += 1
        return remembered(self._queue)

    def _finish(self) -> None:
        """Let the queue go on."""
        self._queue.purging -= 1
        self._life.wake(self._queue)


class ChosenPurge(Walk):
    """A purge of chosen messages. The queue goes on handing out, chosen ones as well until their turn comes."""

    acted_on = STEP

    def __init__(
        self, life: Life, queue: Queue, choice: MessageChoice, actor: int, done: Callable[[int], None]
    ) -> None:
        """`done` hears how many messages were purged, once that is recorded durably; also where the queue was deleted
        meanwhile, and the rest with it."""
        super().__init__(life, queue, choice, reads_bodies=False)
        self._actor = actor
        self._done = done
        self._count = 0

    def _act_on(self, message: Message) -> bool:
        self._recorded = self._recorded or message.durable
        self._life.apply(message, NodeEvent.PURGE, actor=self._actor)
        self._count += 1
        return True

    def _told(self, why: str) -> None:
        self._done(self._count)


__all__ = ["STEP", "ChosenPurge", "Purge"]
