"""Performs `queue.TABLE`: the one place where a message changes its state, but for the hot path.

Posting, acquiring and accepting in numbers are written out where they happen (`posting`, `dispatch`, `settling`), with
the effects of their row and no others; tests hold them to the table. Everything else comes through `apply`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from acquit.broker.message import DISPATCHED, DURABLE, Message
from acquit.broker.queue import Effect, NodeEvent, NodeState, step
from acquit.ledger.records import AttemptNote, Cause

if TYPE_CHECKING:
    from acquit.broker.memory import Memory
    from acquit.broker.node import Queue
    from acquit.broker.scribe import Scribe
    from acquit.broker.timers import Timers
    from acquit.protocol.connection import Connection

_NOTE: Final = int(Effect.NOTE)
_OFFER: Final = int(Effect.OFFER)
_RETIRE: Final = int(Effect.RETIRE)
_SCHEDULE: Final = int(Effect.SCHEDULE)


@dataclass(frozen=True, slots=True)
class Account:
    """Why an attempt ended, for the journal and the message's history."""

    cause: Cause
    actor: int = 0
    flags: int = 0
    condition: str = ""
    description: str = ""
    excluded: str = ""
    annotations: bytes = b""

    @property
    def detailed(self) -> bool:
        """Does it say more than the event itself?"""
        return bool(self.condition or self.description or self.excluded or self.annotations)


class Life:
    """Changes states, with all that belongs to it."""

    def __init__(self, scribe: Scribe, memory: Memory, timers: Timers) -> None:
        self.scribe = scribe
        self.memory = memory
        self.timers = timers
        self.live: dict[int, Message] = {}
        """Durable messages, by sequence."""
        self.live_bytes = 0
        """Their payloads together."""
        self.dirty: dict[Queue, None] = {}
        """Queues where something may be handed out now."""
        self.touched: dict[Connection, None] = {}
        """Connections that have output."""

    def touch(self, engine: Connection) -> None:
        """Something was produced for this connection outside of its own turn."""
        self.touched[engine] = None

    def wake(self, queue: Queue) -> None:
        """Something may be handed out of this queue now."""
        self.dirty[queue] = None

    def enter(self, message: Message) -> None:
        """Count a message that was recorded as entering: it is one more in its queue."""
        queue = message.queue
        size = message.fingerprint >> 32
        queue.bytes += size
        self.memory.hold(message)
        if message.flags & DURABLE:
            self.live[message.sequence] = message
            self.live_bytes += size
        if message.expires_at_ms:
            self.timers.add(message.expires_at_ms, message)

    def apply(
        self,
        message: Message,
        event: NodeEvent,
        account: Account | None = None,
        *,
        actor: int = 0,
        origin: int = 0,
        due_at_ms: int = 0,
    ) -> None:
        """Do what the table says. `account` for outcomes; `origin`: the copy it became; `due_at_ms`: for SCHEDULED.

        Raises LocalProtocolError for a case without a row.
        """
        row = step(message.state, event)
        if row.next is not row.state:
            message.state = row.next
            self._leave(message, row.state)
        message.attempt = min(message.attempt + row.attempts, 0xFFFF)
        effects = row.effects
        if row.record:
            self._record(message, row.record, account, actor, origin or due_at_ms)
        if effects & _NOTE and account is not None:
            note = AttemptNote(
                self.scribe.time_us, account.actor, row.record, account.cause, account.condition, account.description
            )
            message.note(note)
        if effects & _RETIRE:
            self.retire(message)
        elif effects & _SCHEDULE:
            self._schedule(message, due_at_ms)
        elif effects & _OFFER:
            self.offer(message)

    def offer(self, message: Message) -> None:
        """Put an AVAILABLE message in its place."""
        queue = message.queue
        if message.extra is not None:
            message.extra.due_at_ms = 0
        queue.backlog.add(message)
        for browser in queue.browsers:
            browser.offered(message)
        if message.expires_at_ms and message.expires_at_ms * 1000 <= self.scribe.time_us:
            self.timers.add(message.expires_at_ms, message)  # it ran out while it was acquired: up at the next turn
        if message.flags & DURABLE and self.memory.crowded(queue):
            self.memory.drop(message)
        self.dirty[queue] = None

    def retire(self, message: Message) -> None:
        """It has left for good: nothing of it is kept."""
        queue = message.queue
        size = message.fingerprint >> 32
        queue.bytes -= size
        self.memory.drop(message)
        if message.flags & DURABLE:
            del self.live[message.sequence]
            self.live_bytes -= size
        if message.expires_at_ms:
            self.timers.forget(message)

    def _leave(self, message: Message, state: NodeState) -> None:
        queue = message.queue
        match state:
            case NodeState.ACQUIRED:
                queue.acquired -= 1
                if message.holder is not None:
                    message.holder.held -= 1
                    message.holder = None
            case NodeState.AVAILABLE:
                if queue.aside.pop(message.sequence, None) is None:
                    queue.backlog.left()
            case NodeState.SCHEDULED:
                del queue.scheduled[message.sequence]
            case NodeState.PENDING:
                queue.pending -= 1
            case _:
                pass

    def _record(self, message: Message, kind: int, account: Account | None, actor: int, origin: int) -> None:
        scribe = self.scribe
        if account is None:
            scribe.event(kind, message, actor=actor, origin=origin)
        elif account.detailed:
            scribe.attempt(
                kind,
                message,
                actor=account.actor,
                origin=origin,
                flags=account.flags,
                cause=account.cause,
                condition=account.condition,
                description=account.description,
                excluded=account.excluded,
                annotations=account.annotations,
            )
        else:
            scribe.event(kind, message, actor=account.actor, origin=origin, flags=account.flags)

    def _schedule(self, message: Message, due_at_ms: int) -> None:
        message.need_extra().due_at_ms = due_at_ms
        message.queue.scheduled[message.sequence] = message
        self.timers.add(due_at_ms, message)


__all__ = ["DISPATCHED", "Account", "Life"]
