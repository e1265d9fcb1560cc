"""The order of what is done in a turn, and each second: time is served, then messages are handed out.

Each step is bounded, so that nobody waits long for a turn; one that has more to do says so, and there is another turn
once what was produced is written. A round of the server's loop may have dozens of wake-ups, each with a turn: what
takes many turns (`_go_on`) waits for that other one, so that a round has one share of it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from acquit.broker.nodes.node import whole
from acquit.broker.scribe import FULL
from acquit.ledger.events import EventKind

if TYPE_CHECKING:
    from acquit.broker.admin.administration import Administration
    from acquit.broker.admin.connections import Connections
    from acquit.broker.admin.management_node import ManagementNode
    from acquit.broker.auditing import Auditor
    from acquit.broker.dispatching.dispatch import Dispatch
    from acquit.broker.dispatching.resuming import Resuming
    from acquit.broker.intake.limits import Limits
    from acquit.broker.life import Life
    from acquit.broker.links.crediting import Crediting
    from acquit.broker.links.termini import Termini
    from acquit.broker.message import QueueBase
    from acquit.broker.nodes.queues import Queues
    from acquit.broker.nodes.removal import Removal
    from acquit.broker.outcomes.expiry import Expiry
    from acquit.broker.outcomes.leaving import Leaving
    from acquit.broker.outcomes.locks import LockKeeper
    from acquit.broker.outcomes.settling import Settling
    from acquit.broker.transact.transactions import Transactions

logger = logging.getLogger("acquit.broker.journal")

COUNTED_AT_ONCE: Final = 1_000
"""Queues and topics whose counts are recorded at once: a millisecond's work or two."""


class Agenda:
    """Performs what has become possible, turn by turn."""

    def __init__(
        self,
        life: Life,
        queues: Queues,
        removal: Removal,
        connections: Connections,
        leaving: Leaving,
        locks: LockKeeper,
        expiry: Expiry,
        termini: Termini,
        settling: Settling,
        transactions: Transactions,
        limits: Limits,
        resuming: Resuming,
        dispatch: Dispatch,
        crediting: Crediting,
        administration: Administration,
        management: ManagementNode,
        auditor: Auditor,
    ) -> None:
        self._life = life
        self._scribe = life.scribe
        self._queues = queues
        self._removal = removal
        self._connections = connections
        self._leaving = leaving
        self._locks = locks
        self._expiry = expiry
        self._termini = termini
        self._settling = settling
        self._transactions = transactions
        self._limits = limits
        self._resuming = resuming
        self._dispatch = dispatch
        self._crediting = crediting
        self._administration = administration
        self._management = management
        self._auditor = auditor
        self._full = False
        """The journal takes no postings."""
        self._stalled = False
        """The journal has no room at all, and nothing is handed out."""
        self._uncounted = 0
        """Queues and topics whose counts were due at the last tick, and are not recorded yet."""

    def run(self, *, go_on: bool) -> bool:
        """Do what has become possible. True: call again soon, after what was produced is written. `go_on`: with what
        takes many turns as well."""
        if self._scribe.journal.full is not self._full:
            self._full = not self._full
            logger.warning("%s", FULL if self._full else "there is room on the disk again: postings are taken")
        if self._scribe.exhausted:
            self._scribe.look_for_room()
        if self._scribe.exhausted:
            self._stalled = True
        elif self._stalled:
            self._stalled = False
            for queue in self._queues.by_name.values():
                self._life.wake(queue)
        more = not go_on or self._go_on()
        more = self._limits.run() or more
        for queue in [queue for queue in map(whole, self._life.dirty) if not queue.in_use]:
            self._removal.let_go(queue)  # its last message expired, or was purged, after its last link had gone
        more = self._removal.run() or more
        more = self._resuming.run() or more
        more = self._dispatch.run() or more
        more = self._management.send_answers() or more
        self._connections.run()
        self._crediting.look_again()
        self._life.occupancy.collect(self._scribe.journal.segments)
        return more

    def _go_on(self) -> bool:
        """Go on with what takes many turns, by a share of each. True if there is more."""
        more = bool(self._uncounted) and self._write_counters()
        more = self._leaving.run() or more
        more = self._locks.run() or more
        more = self._expiry.run() or more
        more = self._termini.run(self._settling.terminus_ended) or more
        return self._administration.run() or more

    @property
    def next_due_ms(self) -> int | None:
        """Latest time to call `turn`, in milliseconds since the epoch; None: nothing waits for a time."""
        times_ms = self._expiry.next_ms, self._locks.next_ms, self._termini.next_ms
        known_ms = [at_ms for at_ms in times_ms if at_ms is not None]
        return min(known_ms) if known_ms else None

    def tick(self, time_us: int) -> None:
        """A second or so has passed: what happened to volatile messages is recorded now and then."""
        self._transactions.expire()
        self._life.memory.page_out(self._queues.by_name.values())
        self._dispatch.look_again()
        self._uncounted = self._scribe.uncounted
        self._write_counters()
        self._connections.note_output(self._life.touched)
        self._connections.look(time_us)
        self._auditor.tick()
        self._administration.trends.look(time_us)

    def _write_counters(self) -> bool:
        """Record what was counted, some queues at a time. True if there are more that were due at the last tick."""
        self._scribe.write_counters(COUNTED_AT_ONCE)
        self._uncounted = max(0, self._uncounted - COUNTED_AT_ONCE)
        return self._uncounted > 0

    def clock_set(self, by_us: int) -> None:
        """The wall clock jumped, forward or (negative) back. What was to last for a while still does; what was to be at
        a time (to expire, to be delivered) is at that time by the clock as it is now."""
        self._expiry.clock_set(by_us // 1000)
        self._locks.clock_set(by_us // 1000)
        self._termini.clock_set(by_us // 1000)
        self._transactions.clock_set(by_us)
        self._connections.clock_set(by_us)

    def close(self) -> None:
        """The last words before a clean stop, when all connections have ended: volatile messages end here."""
        while self._leaving.run():
            pass
        durable: dict[QueueBase, int] = {}
        for message in self._life.live.values():
            durable[message.queue] = durable.get(message.queue, 0) + 1
        for queue in (*self._queues.by_name.values(), *self._removal.queues):
            lost = queue.live - durable.get(queue, 0) - self._life.parking.count(queue)
            if lost:
                self._scribe.volatile_events(EventKind.LOST_VOLATILE, queue, lost)
        self._scribe.write_counters()
        self._transactions.tell_volatile()
        self._auditor.tick()


__all__ = ["Agenda"]
