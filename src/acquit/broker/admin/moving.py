"""Moving messages from one queue to another, because somebody asked for it.

A move is a posting there and a retirement here in one batch, each naming the other's sequence, so that a crash leaves
the message in exactly one of the two. What is moved is the message as it stands in its queue: its bare message, its
remaining time to live, a delivery time that has not come; its count begins at 0 and its history stays in the ledger.
The annotation ``x-opt-acquit-origin`` says which sequence it had. Duplicate detection is not asked, and a limit of the
other queue refuses nothing (`limits`).

Only what waits is moved, what is acquired stays with its consumer. What is posted after the move began stays as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from acquit.broker.admin.walking import MessageChoice, Walk
from acquit.broker.intake.shaping import read_posting, transfer_header
from acquit.broker.queue import NodeEvent
from acquit.ledger.events import EventKind
from acquit.protocol.extensions import ACQUIRED_COUNT, ORIGIN, POSTED_AT, SEQUENCE
from acquit.protocol.rope import behind
from acquit.protocol.sections import MESSAGE_ANNOTATIONS, PROPERTIES, scan_sections, splice_annotations
from acquit.protocol.types import ULong

if TYPE_CHECKING:
    from acquit.broker.intake.entering import Entering
    from acquit.broker.life import Life
    from acquit.broker.message import Message
    from acquit.broker.nodes.node import Queue

Done = Callable[[int, str], None]
"""Callback with the number of messages moved, and the reason why the move stopped before its end ("": it did not)."""


class Move(Walk):
    """A move of messages from one queue into another."""

    def __init__(
        self,
        life: Life,
        entering: Entering,
        source: Queue,
        target: Queue,
        choice: MessageChoice,
        *,
        actor: int,
        done: Done,
    ) -> None:
        """`actor` is who asked."""
        super().__init__(life, source, choice)
        self._entering = entering
        self._target = target
        self._actor = actor
        self._done = done
        self._moved = 0

    def _is_cut_off(self) -> bool:
        return self._source.removing or self._target.removing

    def _act_on(self, message: Message) -> bool:
        recorded = move_message(self._life, self._entering, message, self._target, self._actor)
        self._recorded = self._recorded or recorded
        self._moved += 1
        return True

    def _told(self, why: str) -> None:
        self._done(self._moved, why)


def move_message(life: Life, entering: Entering, message: Message, target: Queue, actor: int) -> bool:
    """Move one message that waits, and whose body is in memory. True if the journal has to do with it.

    Raises StoreFull, with nothing changed.
    """
    payload = _payload(message)
    copy = entering.enter(
        target,
        payload,
        read_posting(payload),
        actor=actor,
        expires_at_ms=message.expires_at_ms,
        due_at_ms=0 if message.came_back else message.due_at_ms,
        address=target.address,
        kind=EventKind.MOVED_IN,
        origin=message.sequence,
    )
    life.apply(message, NodeEvent.MOVE, actor=actor, origin=copy.sequence)
    return message.durable or copy.durable


def _payload(message: Message) -> bytes:
    body, front = message.body, message.front()
    assert body is not None
    sections = scan_sections(front)
    start, end = sections.bounds[MESSAGE_ANNOTATIONS], sections.bounds[PROPERTIES]
    annotations = splice_annotations(
        front[start:end], {ORIGIN: ULong(message.sequence)}, remove=(SEQUENCE, POSTED_AT, ACQUIRED_COUNT)
    )
    header = transfer_header(message.told_durable, message.priority, True, 0, None)
    return bytes(header + front[:start] + annotations + behind(body, end))


__all__ = ["Move", "move_message"]
