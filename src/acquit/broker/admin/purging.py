"""Removing messages of a queue that nobody has acquired, all or chosen ones.

It goes a step at a time, so that nobody else waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from acquit.broker.admin.walking import WAITING, MessageChoice, Walk
from acquit.broker.queue import NodeEvent

if TYPE_CHECKING:
    from acquit.broker.life import Life
    from acquit.broker.message import Message
    from acquit.broker.nodes.node import Queue

STEP: Final = 5_000


class Purge:
    """A purge of one queue. Messages posted after it began stay; none is handed out of the queue before it has
    ended."""

    def __init__(self, life: Life, queue: Queue, actor: int, done: Callable[[int], None] | None = None) -> None:
        """`done` hears how many messages were purged, once that is recorded durably."""
        self._life = life
        self._queue = queue
        self._actor = actor
        self._done = done
        self._durable = False
        self._count = 0
        self._messages: Iterator[Message] = iter(
            [*queue.backlog.next_messages(), *queue.aside, *queue.scheduled.values()]
        )
        queue.purging += 1

    def step(self) -> bool:
        """Do some more of it. True when it has ended."""
        left = STEP
        for message in islice(self._messages, STEP):
            left -= 1
            if message.state in WAITING:
                self._life.apply(message, NodeEvent.PURGE, actor=self._actor)
                self._count += 1
                self._durable = self._durable or message.durable
        if not left:
            return False
        self._queue.purging -= 1
        self._life.wake(self._queue)
        if self._done is not None and self._durable:
            self._life.scribe.once_durable(self._done, self._count)
        elif self._done is not None:
            self._done(self._count)
        return True


class ChosenPurge(Walk):
    """A purge of chosen messages. The queue goes on handing out, chosen ones as well until their turn comes."""

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
