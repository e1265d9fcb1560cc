"""The balance of each queue, from the journal alone.

For durable messages, message by message: what entered is live or was retired, and the reason is on record::

    entered = live + accepted + consumed + dead-lettered + expired + dropped + displaced + moved-out + purged

`entered` and the retired kinds are counted from events, `live` from the messages that the fold holds; and beside the
counts, the sum of hashes of all that entered minus that of all retired must be the sum over the live
(`acquit.ledger.totals`). A row in which the two sides differ says how.

For volatile messages there are only totals, as far as they were recorded: what of them is neither retired nor
recorded as lost is *unaccounted*, which after a clean stop is nothing, and after a crash what was in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from acquit.ledger.events import ENTERING, RETIRING, EventFlag, EventKind
from acquit.ledger.fold import Fold
from acquit.ledger.totals import HASH_MODULUS, QueueTotals, message_hash

_BESIDE: Final = (EventKind.UNROUTED, EventKind.DUPLICATE, EventKind.ROLLED_BACK)


@dataclass(slots=True)
class LiveCount:
    """The live messages of one queue, as the fold holds them."""

    available: int = 0
    acquired: int = 0
    scheduled: int = 0
    suspended: int = 0
    hash_sum: int = 0
    size_bytes: int = 0

    @property
    def total(self) -> int:
        return self.available + self.acquired + self.scheduled + self.suspended


@dataclass(frozen=True, slots=True)
class QueueBalance:
    """One queue's balance."""

    queue: int
    name: str
    """ "" where no record names it any more; queue 0 sums the deleted ones."""
    totals: QueueTotals
    live: LiveCount

    @property
    def entered(self) -> dict[str, int]:
        """By kind, as `EventKind` names it."""
        return {EventKind(kind).name: n for kind, n in sorted(self.totals.counts.items()) if kind in ENTERING}

    @property
    def retired(self) -> dict[str, int]:
        """By kind, as `EventKind` names it."""
        return {EventKind(kind).name: n for kind, n in sorted(self.totals.counts.items()) if kind in RETIRING}

    @property
    def beside(self) -> dict[str, int]:
        """Postings that never entered, durable and volatile, by kind."""
        durable, volatile = self.totals.counts, self.totals.volatile
        counts = {kind: durable.get(kind, 0) + volatile.get(kind, 0) for kind in _BESIDE}
        return {kind.name: count for kind, count in counts.items() if count}

    @property
    def volatile_unaccounted(self) -> int:
        counts = self.totals.volatile
        entered = sum(n for kind, n in counts.items() if kind in ENTERING)
        return entered - sum(n for kind, n in counts.items() if kind in RETIRING)

    @property
    def mismatch(self) -> str:
        """What does not add up; "" when all does."""
        totals, live = self.totals, self.live
        if totals.live != live.total:
            return (
                f"{totals.entered} entered and {totals.retired} were retired, which leaves {totals.live}; "
                f"{live.total} are live"
            )
        if totals.live_sum != live.hash_sum:
            return f"the {live.total} live messages are not those that entered and were not retired"
        return ""


@dataclass(frozen=True, slots=True)
class Balance:
    """All queues, and what else is wrong."""

    queues: tuple[QueueBalance, ...]
    anomalies: tuple[str, ...]
    """Records that did not fit, the first of them."""
    anomaly_count: int
    held: int
    """Messages in open transactions: in no queue yet."""

    @property
    def balanced(self) -> bool:
        return not self.anomaly_count and not any(row.mismatch for row in self.queues)


def balance(fold: Fold) -> Balance:
    """Balance a fold over a whole journal, or over what recovery reads."""
    live: dict[int, LiveCount] = {}
    held = 0
    for message in fold.messages.values():
        if message.transaction:
            held += 1
            continue
        count = live.get(message.queue)
        if count is None:
            count = live[message.queue] = LiveCount()
        if message.flags & EventFlag.SUSPENDED:
            count.suspended += 1
        elif message.actor:
            count.acquired += 1
        elif message.due_at_ms:
            count.scheduled += 1
        else:
            count.available += 1
        count.hash_sum = (count.hash_sum + message_hash(message.sequence, message.fingerprint)) % HASH_MODULUS
        count.size_bytes += message.size_bytes
    totals = fold.totals()
    rows = []
    for queue in sorted(totals.keys() | live.keys() | fold.table.queues.keys()):
        declared = fold.table.queues.get(queue)
        name = declared.name if declared is not None else ""
        rows.append(QueueBalance(queue, name, totals.get(queue, QueueTotals()), live.get(queue, LiveCount())))
    return Balance(tuple(rows), tuple(fold.anomalies), fold.anomaly_count, held)
