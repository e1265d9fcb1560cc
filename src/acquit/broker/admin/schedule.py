"""Messages that wait for their delivery time, as those see them who want one back: listed, and cancelled.

Who posted a message with a delivery time knows its message-id, not the sequence that the broker gave it. So the ids of
waiting messages are in memory (`node.Queue.scheduled_ids`), and are found in the journal again after a restart. A
message that waits for another attempt is listed beside them, and cannot be cancelled: it is on its way already.

A cancelled message is recorded as purged, with who asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from acquit.broker.admin.later import Later
from acquit.broker.admin.purging import Purge
from acquit.broker.admin.walking import PASSED
from acquit.broker.queue import NodeState
from acquit.ledger.duplicates import window_id
from acquit.ledger.records import MessageId, decode_id, encode_id

if TYPE_CHECKING:
    from acquit.broker.life import Life
    from acquit.broker.message import Message
    from acquit.broker.nodes.node import Queue

_HASHED: Final = b"h"
"""Begins an id of which only a hash is kept (`window_id`)."""
LISTED_MAX: Final = 1_000
"""Messages of one answer."""


class Scheduled(NamedTuple):
    """A message that waits for its delivery time."""

    sequence: int
    message_id: MessageId | None
    """None also for one that waits for another attempt, and for an id of more than 63 bytes."""
    due_at_ms: int
    posted_at_ms: int
    size_bytes: int
    waits_for: str
    """``delivery-time`` or ``redelivery``"""


class Listing:
    """A look at the first waiting messages with a sequence above `after`, at most `limit`."""

    ready: Final = True
    """True: it reads no bodies."""

    def __init__(self, queue: Queue, after: int, limit: int) -> None:
        self._queue = queue
        self._after = after
        self._limit = min(limit, LISTED_MAX)
        self._sequences: Iterator[int] | None = None
        self._first: list[int] = []
        self.result = Later[list[Scheduled]]()
        """The messages, once they are found."""

    def run(self) -> bool:
        """Look at some more. True when it has ended."""
        if self._sequences is None:
            self._sequences = iter(list(self._queue.scheduled))
        portion = list(islice(self._sequences, PASSED))
        above = (sequence for sequence in portion if sequence > self._after)
        self._first = nsmallest(self._limit, chain(self._first, above))
        if len(portion) == PASSED:
            return False
        scheduled = self._queue.scheduled
        self.result.finish([_describe(scheduled[sequence]) for sequence in self._first if sequence in scheduled])
        return True


def _describe(message: Message) -> Scheduled:
    extra = message.extra
    return Scheduled(
        message.sequence,
        decode_id(extra.message_id) if extra is not None and extra.message_id[:1] != _HASHED else None,
        message.due_at_ms,
        message.posted_us // 1000,
        message.size_bytes,
        "redelivery" if message.came_back else "delivery-time",
    )


class Cancel(Purge):
    """A purge of messages that wait for their delivery time. What has come to be available meanwhile is delivered, and
    not counted."""

    def __init__(
        self, life: Life, queue: Queue, messages: list[Message], actor: int, done: Callable[[int], None]
    ) -> None:
        """`done` hears how many there were, once it is recorded durably."""
        super().__init__(life, queue, actor, done)
        self._states = (NodeState.SCHEDULED,)
        self._named = messages

    def _begin(self) -> Iterator[Message]:
        return iter(self._named)

    def _finish(self) -> None:
        self._life.wake(self._queue)


def found_by_sequence(queue: Queue, sequence: int) -> list[Message]:
    """The message with this sequence, if it waits for its delivery time."""
    message = queue.scheduled.get(sequence)
    return [] if message is None or message.came_back else [message]


def found_by_id(queue: Queue, message_id: MessageId) -> list[Message]:
    """The messages with this message-id that wait for their delivery time: usually one."""
    return list(queue.scheduled_ids.get(window_id(encode_id(message_id)), ()))


def all_of(queue: Queue) -> list[Message]:
    """All that wait for their delivery time."""
    return [message for message in queue.scheduled.values() if not message.came_back]


__all__ = ["LISTED_MAX", "Cancel", "Listing", "Scheduled", "all_of", "found_by_id", "found_by_sequence"]
