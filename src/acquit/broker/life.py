"""Performs `queue.TABLE`: the one place where a message changes its state, but for the hot path.

Posting, acquiring and accepting in numbers are written out where they happen (`posting`, `dispatch`, `settling`), with
the effects of their row and no others; tests hold them to the table. Everything else comes through `apply`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from acquit.broker.message import COPY, DISPATCHED, DURABLE, Message, QueueBase
from acquit.broker.parking import Parking
from acquit.broker.queue import Effect, NodeEvent, NodeState, step
from acquit.errors import StoreFull
from acquit.ledger.events import ATTEMPT_MAX, LEFT_BEHIND, EventKind
from acquit.ledger.occupancy import Occupancy
from acquit.ledger.records import AttemptNote, Cause, Namespace, StateDeleted

if TYPE_CHECKING:
    from acquit.broker.memory import Memory
    from acquit.broker.message_run import MessageRun, Recorded
    from acquit.broker.outcomes.timers import Timers
    from acquit.broker.scribe import Scribe
    from acquit.protocol.connection_base import ConnectionBase

_NOTE: Final = int(Effect.NOTE)
_OFFER: Final = int(Effect.OFFER)
_RETIRE: Final = int(Effect.RETIRE)
_SCHEDULE: Final = int(Effect.SCHEDULE)
_LEFT: Final = int(Effect.LEFT)
_HOLDING_BACK: Final = frozenset({NodeState.SCHEDULED, NodeState.SUSPENDED})
"""States of a message in which its group may wait for it."""
_RETURNING: Final = frozenset({EventKind.RELEASED, EventKind.MODIFIED})
LEARNING_MAX: Final = 256
"""Bodies that are read at a time to learn of which group they are."""
EXCLUDED_MAX: Final = 64
"""Termini that one message is kept from; what more of them say of it is forgotten."""


@dataclass(frozen=True, slots=True)
class Account:
    """Reason why an attempt ended, for the journal and the message's history."""

    cause: Cause
    actor: int = 0
    flags: int = 0
    condition: str = ""
    description: str = ""
    excluded: str = ""
    annotations: bytes = b""

    def adds_to(self, kind: int) -> bool:
        """True if it says more than an event of this kind does by its kind and flags."""
        if self.condition or self.description or self.excluded or self.annotations:
            return True
        return self.cause not in _PLAIN_CAUSES or self.cause in _NOT_IMPLIED.get(kind, ())


_PLAIN_CAUSES: Final = frozenset(
    {Cause.REJECTED, Cause.RELEASED, Cause.MODIFIED, Cause.DETACHED, Cause.CONNECTION_LOST}
)
"""Causes that the event's kind and flags imply."""
_NOT_IMPLIED: Final[dict[int, frozenset[Cause]]] = {
    EventKind.DEAD_LETTERED: _PLAIN_CAUSES,
    EventKind.DROPPED: _PLAIN_CAUSES,
    EventKind.MODIFIED: frozenset({Cause.REJECTED, Cause.RELEASED}),
}
"""Causes of these that must be told all the same, by kind of event: a message is dead-lettered because it was rejected,
or because it failed too often; and what finds no room as a dead letter counts as failed, whatever was said of it."""


class Life:
    """Changes states, with all that belongs to it."""

    def __init__(self, scribe: Scribe, memory: Memory, timers: Timers) -> None:
        self.scribe = scribe
        self.memory = memory
        self.timers = timers
        self.objects: dict[int, Message] = {}
        """Durable messages that are objects of their own, by sequence: those that are not parked, nor in runs."""
        self._runs: dict[int, MessageRun] = {}
        """Durable messages that are in runs, by the last sequence of each: that stays as others are split off."""
        self._last_ones: list[int] | None = []
        """Last sequences of these in order; None: there are others since."""
        self._in_runs = 0
        self.parking = Parking(self.objects, memory, self._in_run)
        self.occupancy = Occupancy()
        """Count, by segment, of the records of these messages and of those that transactions hold."""
        self.live_bytes = 0
        """Bytes of the payloads of durable messages, copies left out: a topic's posting is one payload on the disk."""
        self.dirty: dict[QueueBase, None] = {}
        """Queues where something may be handed out now."""
        self.retiring: dict[Message, object] = {}
        """Messages that are ACQUIRED, and have an outcome in a transaction: that, and nobody else may say another."""
        self.retired_runs: dict[MessageRun, Callable[[Sequence[Message]], None]] = {}
        """The same of durable messages in runs: what becomes of an outcome whose run is laid out."""
        self.touched: dict[ConnectionBase, None] = {}
        """Connections that have output."""
        self.exclusions: dict[str, dict[Message, None]] = {}
        """Messages that a terminus shall not see again, by terminus."""
        self._exclusions_swept: dict[str, int] = {}
        """Number of exclusions beyond which those of gone messages are dropped, by terminus, where it is not 1,000."""
        self._learning = 0
        self._unlearned: deque[Message] = deque()

    def touch(self, engine: ConnectionBase) -> None:
        """Note that something was produced for this connection outside of its own turn."""
        self.touched[engine] = None

    def take_touched(self) -> Collection[ConnectionBase]:
        """Return the connections for which something was produced since the last time."""
        touched, self.touched = self.touched, {}
        return touched

    def wake(self, queue: QueueBase) -> None:
        """Note that something may be handed out of this queue now."""
        self.dirty[queue] = None

    def enter(self, message: Message) -> None:
        """Count a message that was recorded as entering: it is one more in its queue."""
        queue = message.queue
        size = message.fingerprint >> 32
        queue.bytes += size
        self.memory.enter(message)
        if message.flags & DURABLE:
            self.objects[message.sequence] = message
            self.occupancy.entered(message.position)
            if not message.flags & COPY:
                self.live_bytes += size
        if message.expires_at_ms:
            self.timers.add(message.expires_at_ms, message)

    # -- durable messages in runs -------------------------------------------------------------------------------------

    @property
    def live(self) -> dict[int, Message]:
        """Durable messages, by sequence, but for those that are parked. Lays out those that are in runs."""
        for run in list(self._runs.values()):
            _lay_out(run)
        return self.objects

    @property
    def live_count(self) -> int:
        """Number of these."""
        return len(self.objects) + self._in_runs

    def sequences(self) -> Iterable[int]:
        """Return the sequences of these, as they are at this moment."""
        return chain(list(self.objects), *[run.sequences for run in self._runs.values()])

    def message(self, sequence: int) -> Message | None:
        """Return one of these, laid out if it is in a run; None where it is parked, or not live."""
        return self.objects.get(sequence) or self._in_run(sequence)

    def position(self, sequence: int) -> int:
        """Return where the record of one of these stands; 0 where it is parked, or not live."""
        message = self.objects.get(sequence)
        if message is not None:
            return message.position
        run = self._run_of(sequence)
        if run is None or run.recorded is None:
            return 0
        return run.recorded.positions[run.sequences.index(sequence)]

    def _in_run(self, sequence: int) -> Message | None:
        """Return one that is in a run, which is laid out; None where it is in none."""
        run = self._run_of(sequence)
        if run is None:
            return None
        _lay_out(run)
        return self.objects.get(sequence)

    def _run_of(self, sequence: int) -> MessageRun | None:
        if not self._runs:
            return None
        if self._last_ones is None:
            self._last_ones = sorted(self._runs)
        at = bisect_left(self._last_ones, sequence)
        run = None if at == len(self._last_ones) else self._runs[self._last_ones[at]]
        return None if run is None or sequence not in run.sequences else run

    def enter_run(self, run: MessageRun, recorded: Recorded) -> None:
        """Count durable messages in a run that were recorded as entering."""
        self.add_run(run)
        self.occupancy.entered_together(recorded.positions)
        self.live_bytes += run.payload_bytes

    def add_run(self, run: MessageRun) -> None:
        """Know messages that have come into a run: they were recorded, or parked. The sequences of a run follow one
        another; one with gaps would hide what is in them from `message`."""
        self.keep_run(run)
        self._in_runs += run.count

    def keep_run(self, run: MessageRun) -> None:
        """Know messages that were split off a run."""
        self._runs[run.sequences[-1]] = run
        self._last_ones = None

    def run_laid_out(self, run: MessageRun, messages: Sequence[Message]) -> None:
        """Know the messages of a run as objects of their own from now on."""
        self._forget_run(run)
        self.objects.update(zip(run.sequences, messages, strict=True))
        retired = self.retired_runs.pop(run, None)
        if retired is not None:
            retired(messages)

    def _forget_run(self, run: MessageRun) -> None:
        del self._runs[run.sequences[-1]]
        self._last_ones = None
        self._in_runs -= run.count

    def run_parked(self, run: MessageRun) -> None:
        """Forget durable messages in a run that are parked from now on, and their bodies."""
        self._forget_run(run)
        self.memory.drop_run(run)
        run.end()

    def run_left(self, run: MessageRun, recorded: Recorded) -> None:
        """Forget durable messages in a run that have left for good."""
        self._forget_run(run)
        self.occupancy.left_together(recorded.positions)
        self.live_bytes -= run.payload_bytes

    # -- one message --------------------------------------------------------------------------------------------------

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
        effects = int(row.effects)  # what is done with an IntFlag costs a call each time
        left = 1 if effects & _LEFT else 0
        counted = row.attempts > 0 and message.attempt < ATTEMPT_MAX
        if counted:
            message.attempt += row.attempts
            if left:
                message.need_extra().left_counted += 1
        elif row.record in _RETURNING:
            extra = message.need_extra()
            extra.returns += 1
            extra.left_uncounted += left
            if not left:
                extra.returned_ms = max(self.scribe.time_us // 1000, due_at_ms)
        if row.record:
            self._record(message, row.record, account, actor, origin or due_at_ms, LEFT_BEHIND if left else 0)
        if effects & _NOTE and account is not None and (counted or not left):
            note = AttemptNote(
                self.scribe.time_us, account.actor, row.record, account.cause, account.condition, account.description
            )
            message.note(note)
        if effects & _RETIRE:
            self.retire(message)
            if message.extra is not None and message.extra.excluded:
                self._forget_exclusions(message, message.extra.excluded)
        elif effects & _SCHEDULE:
            self.schedule(message, due_at_ms)
        elif effects & _OFFER:
            self.offer(message)
        elif row.next is NodeState.SUSPENDED and row.state is not row.next:
            self.suspended(message)

    def offer(self, message: Message) -> None:
        """Put an AVAILABLE message in its place."""
        queue = message.queue
        if message.extra is not None:
            message.extra.due_at_ms = 0
        queue.offer(message)
        self.look_at_time(message)
        if message.flags & DURABLE and self.memory.crowded(queue):
            self.memory.drop(message)
        self.dirty[queue] = None

    def look_at_time(self, message: Message) -> None:
        """Let a message that waits from now on expire at the next turn, if its time came while it could not expire."""
        if message.expires_at_ms and message.expires_at_ms * 1000 <= self.scribe.time_us:
            self.timers.add(message.expires_at_ms, message)

    def retire(self, message: Message) -> None:
        """Remove a message that has left for good from all accounts: nothing of it is kept."""
        queue = message.queue
        size = message.fingerprint >> 32
        queue.bytes -= size
        self.memory.leave(message)
        if message.flags & DURABLE:
            del self.objects[message.sequence]
            self.occupancy.left(message.position)
            if not message.flags & COPY:
                self.live_bytes -= size
        if message.expires_at_ms or (message.extra is not None and message.extra.due_at_ms):
            self.timers.forget(message)

    # -- waiting for a time -------------------------------------------------------------------------------------------

    def schedule(self, message: Message, due_at_ms: int) -> None:
        """A message is SCHEDULED: it waits for that time."""
        queue, extra = message.queue, message.need_extra()
        extra.due_at_ms, extra.due_shift_ms = due_at_ms, 0
        queue.schedule(message)
        self.timers.add(due_at_ms, message)
        self.look_at_time(message)
        if queue.displaces:
            self.dirty[queue] = None
        if message.came_back and queue.policy.redelivery_blocks == "group":
            self._hold_back_group(message)

    def suspended(self, message: Message) -> None:
        """Count a message that is SUSPENDED, and hold back its group: what comes after it goes to the same consumer."""
        message.queue.suspended += 1
        self._hold_back_group(message)

    def _hold_back_group(self, message: Message) -> None:
        if not message.queue.policy.message_groups:
            return
        extra = message.extra
        if extra is not None and extra.group is not None:
            self._block_group(message, extra.group)
        elif message.body is None:
            self._learn_group(message)

    def _block_group(self, message: Message, group: str) -> None:
        message.need_extra().blocks = True
        blocked = message.queue.blocked_groups
        blocked[group] = blocked.get(group, 0) + 1

    def _learn_group(self, message: Message) -> None:
        """Read its body after a restart to learn of which group it is; until then its queue hands out nothing."""
        message.queue.learning += 1
        if self._learning < LEARNING_MAX:
            self._learning += 1
            self.memory.want(message, self._learned)
        else:
            self._unlearned.append(message)

    def _learned(self, message: Message) -> None:
        queue, extra = message.queue, message.need_extra()
        queue.learning -= 1
        self._learning -= 1
        if message.state in _HOLDING_BACK and extra.group is not None and not extra.blocks:
            self._block_group(message, extra.group)
        if self.memory.crowded(queue):
            self.memory.drop(message)
        if self._unlearned:
            self._learning += 1
            self.memory.want(self._unlearned.popleft(), self._learned)
        self.dirty[queue] = None

    def _unschedule(self, message: Message) -> None:
        queue = message.queue
        if queue.unschedule(message):
            self.dirty[queue] = None
        self._let_group_go(message)

    def _let_group_go(self, message: Message) -> None:
        queue, extra = message.queue, message.extra
        if extra is not None and extra.blocks:
            extra.blocks = False
            assert extra.group is not None
            queue.blocked_groups[extra.group] -= 1
            if not queue.blocked_groups[extra.group]:
                del queue.blocked_groups[extra.group]
                queue.release(extra.group)
                self.dirty[queue] = None

    # -- undeliverable here -------------------------------------------------------------------------------------------

    def exclude(self, message: Message, terminus: str) -> None:
        """Keep the message from this terminus until the terminus is destroyed."""
        extra = message.need_extra()
        extra.excluded |= {terminus}
        excluded = self.exclusions.setdefault(terminus, {})
        excluded[message] = None
        if len(excluded) > self._exclusions_swept.get(terminus, 1_000):  # some of them others have taken since
            for gone in [one for one in excluded if one.state is NodeState.ARCHIVED]:
                del excluded[gone]
            self._exclusions_swept[terminus] = 1_000 + 2 * len(excluded)

    def _forget_exclusions(self, message: Message, termini: Iterable[str]) -> None:
        for terminus in termini:
            excluded = self.exclusions.get(terminus)
            if excluded is not None:
                excluded.pop(message, None)
                if not excluded:
                    del self.exclusions[terminus]

    def terminus_over(self, terminus: str) -> None:
        """A terminus is destroyed: what it shall not see is for the next one of its name."""
        self._exclusions_swept.pop(terminus, None)
        messages = self.exclusions.pop(terminus, None)
        if messages is None:
            return
        durable = False
        for message in messages:
            if message.extra is not None and message.state is not NodeState.ARCHIVED:
                message.extra.excluded -= {terminus}
                durable = durable or message.durable
        if durable:
            try:
                self.scribe.recorder.append(StateDeleted(self.scribe.time_us, Namespace.TERMINUS, terminus.encode()))
            except StoreFull:
                self.scribe.exhausted = True  # a restart will know it still; nothing is lost by that

    # -- what belongs to a row ----------------------------------------------------------------------------------------

    def _leave(self, message: Message, state: NodeState) -> None:
        queue = message.queue
        match state:
            case NodeState.ACQUIRED:
                queue.acquired -= 1
                if message.holder is not None:
                    message.holder.let_go(message, self.scribe.time_us)
                    if queue.policy.prefetch_max:
                        message.holder.stand_in_line()
                        self.dirty[queue] = None
                    message.holder = None
                self.retiring.pop(message, None)
            case NodeState.SUSPENDED:
                queue.suspended -= 1
                self._let_group_go(message)
                if message.holder is not None:
                    message.holder.let_go(message, self.scribe.time_us)
                    message.holder = None
            case NodeState.AVAILABLE:
                queue.withdraw(message)
            case NodeState.SCHEDULED:
                self._unschedule(message)
            case NodeState.PENDING:
                queue.pending -= 1
            case _:
                pass

    def _record(
        self, message: Message, kind: int, account: Account | None, actor: int, origin: int, flags: int
    ) -> None:
        scribe = self.scribe
        if account is None:
            scribe.event(kind, message, actor=actor, origin=origin, flags=flags)
        elif account.adds_to(kind):
            scribe.attempt(
                kind,
                message,
                actor=account.actor,
                origin=origin,
                flags=account.flags | flags,
                cause=account.cause,
                condition=account.condition,
                description=account.description,
                excluded=account.excluded,
                annotations=account.annotations,
            )
        else:
            scribe.event(kind, message, actor=account.actor, origin=origin, flags=account.flags | flags)


def _lay_out(run: MessageRun) -> None:
    """Let the messages of a run be objects of their own, those that its consumer holds with their deliveries."""
    if run.holder is not None:
        run.holder.lay_out_sent()
    run.each()  # perhaps its consumer's word is on its way from the engine, which has it no more


__all__ = ["DISPATCHED", "EXCLUDED_MAX", "Account", "Life"]
