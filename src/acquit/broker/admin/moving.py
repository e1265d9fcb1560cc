"""Moving messages from one queue to another, because somebody asked for it.

A move is a posting there and a retirement here in one batch, each naming the other's sequence, so that a crash leaves
the message in exactly one of the two. What is moved is the message as it stands in its queue: its bare message, its
remaining time to live, a delivery time that has not come; its count begins at 0 and its history stays in the ledger.
The annotation ``x-opt-acquit-origin`` says which sequence it had. Duplicate detection is not asked, and a limit of the
other queue refuses nothing (`limits`).

Only what waits is moved, what is acquired stays with its consumer. What is posted after the move began stays as well.
Bodies that are not in memory are read back first, some at a time, while everything else goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from acquit.broker.intake.shaping import read_posting, transfer_header
from acquit.broker.queue import NodeEvent, NodeState
from acquit.broker.selector.fields import fields_of
from acquit.errors import StoreFull
from acquit.ledger.events import EventKind
from acquit.protocol.extensions import ACQUIRED_COUNT, ORIGIN, POSTED_AT, SEQUENCE
from acquit.protocol.sections import MESSAGE_ANNOTATIONS, PROPERTIES, scan_sections, splice_annotations
from acquit.protocol.types import ULong

if TYPE_CHECKING:
    from acquit.broker.intake.entering import Entering
    from acquit.broker.life import Life
    from acquit.broker.message import Message
    from acquit.broker.nodes.node import Queue
    from acquit.broker.selector import Selector

STEP: Final = 256
"""Messages that are looked at in one turn, and whose bodies are asked for at once."""
STEP_BYTES: Final = 4 << 20
"""Bytes of one step, beyond which no further message is begun."""
_WAITING: Final = (NodeState.AVAILABLE, NodeState.SCHEDULED)

Done = Callable[[int, str], None]
"""Callback with the number of messages moved, and the reason why the move stopped before its end ("": it did not)."""


class Move:
    """A move of messages from one queue into another."""

    def __init__(
        self,
        life: Life,
        entering: Entering,
        source: Queue,
        target: Queue,
        *,
        actor: int,
        messages_max: int | None,
        selector: Selector | None,
        sequences: frozenset[int] | None,
        done: Done,
    ) -> None:
        """`actor` is who asked; `messages_max`: no more than that; `selector`: only what matches; `sequences`: none but
        these."""
        self._life = life
        self._entering = entering
        self._source = source
        self._target = target
        self._actor = actor
        self._left = messages_max
        self._selector = selector
        self._done = done
        waiting = [*source.backlog.next_messages(), *source.aside, *source.scheduled.values()]
        if sequences is not None:
            waiting = [message for message in waiting if message.sequence in sequences]
        self._messages: Iterator[Message] = iter(waiting)
        self._step: list[Message] = []
        self._unread: set[Message] = set()
        self._moved = 0
        self._recorded = False

    @property
    def ready(self) -> bool:
        """True if the next step can be taken; otherwise bodies are being read."""
        return not self._unread

    def run(self) -> bool:
        """Go on. True when it has ended."""
        if self._source.removing or self._target.removing:
            return self._end("a queue was deleted meanwhile")
        if not self._step:
            self._step = self._take()
        if not self._step or self._left == 0:
            return self._end("")
        self._unread = {message for message in self._step if message.body is None and message.state in _WAITING}
        if self._unread:
            for message in tuple(self._unread):
                self._life.memory.want(message, self._unread.discard)
            return False
        messages, self._step = self._step, []
        try:
            for message in messages:
                if message.state in _WAITING and self._left != 0:
                    self._look_at(message)
        except StoreFull:
            return self._end("the broker's disk is full")
        self._life.wake(self._source)
        return False

    def _take(self) -> list[Message]:
        taken: list[Message] = []
        size = 0
        for message in islice(self._messages, STEP):
            taken.append(message)
            size += message.size_bytes
            if size > STEP_BYTES:
                break
        return taken

    def _end(self, why: str) -> bool:
        if self._recorded:  # who is told that it is done finds it done after a crash, and the messages there
            self._life.scribe.once_durable(self._done, self._moved, why)
        else:
            self._done(self._moved, why)
        return True

    def _look_at(self, message: Message) -> None:
        if self._selector is not None and not self._selector.matches(fields_of(message)):
            if message.durable and self._life.memory.crowded(self._source):
                self._life.memory.drop(message)
            return
        payload = _payload(message)
        posting = read_posting(payload)
        copy = self._entering.enter(
            self._target,
            payload,
            posting,
            actor=self._actor,
            expires_at_ms=message.expires_at_ms,
            due_at_ms=0 if message.came_back else message.due_at_ms,
            address=self._target.address,
            kind=EventKind.MOVED_IN,
            origin=message.sequence,
        )
        self._life.apply(message, NodeEvent.MOVE, actor=self._actor, origin=copy.sequence)
        self._moved += 1
        self._recorded = self._recorded or message.durable or copy.durable
        if self._left is not None:
            self._left -= 1


class Moves:
    """All moves that have not ended."""

    def __init__(self) -> None:
        self._moves: list[Move] = []

    def begin(self, move: Move) -> None:
        """Do the first step now and the others with the turns that follow."""
        if not move.run():
            self._moves.append(move)

    def run(self) -> bool:
        """Go on with those that can. True if there is more that can be done at once."""
        if not self._moves:
            return False
        self._moves = [move for move in self._moves if not (move.ready and move.run())]
        return any(move.ready for move in self._moves)


def _payload(message: Message) -> bytes:
    body = message.body
    assert body is not None
    sections = scan_sections(body)
    start, end = sections.bounds[MESSAGE_ANNOTATIONS], sections.bounds[PROPERTIES]
    annotations = splice_annotations(
        body[start:end], {ORIGIN: ULong(message.sequence)}, remove=(SEQUENCE, POSTED_AT, ACQUIRED_COUNT)
    )
    header = transfer_header(message.told_durable, message.priority, True, 0, None)
    return header + body[:start] + annotations + body[end:]


__all__ = ["STEP", "Move", "Moves"]
