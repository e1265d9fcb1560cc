"""The balance of each queue, from the journal alone.

For durable messages, message by message: what entered is live or was retired, and the reason is on record::

    entered = live + accepted + consumed + dead-lettered + expired + dropped + displaced + moved-out + purged

`entered` and the retired kinds are counted from events, `live` from the messages that the fold holds; and beside the
counts, the sum of hashes of all that entered minus that of all retired must be the sum over the live
(`acquit.ledger.totals`). A row in which the two sides do not agree says how. The totals are what the newest seal says,
and what was read after it.

**Losses.** A broker refuses to start on a journal that does not balance (`check`). A person may decide that it shall
(`acquit serve --accept-loss`): then what is missing in each queue, a count and a sum of hashes, is recorded as keyed
state, and is a term of the balance from then on: *lost*.

For volatile messages there are only totals, as far as they were recorded: what of them is neither retired nor
recorded as lost is *unaccounted*, which after a clean stop is nothing, and after a crash what was in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import mul
from struct import Struct
from typing import Final

from acquit.errors import StoreUnbalanced
from acquit.ledger.events import ENTERING, RETIRING, SUSPENDED, EventKind
from acquit.ledger.fold import Fold
from acquit.ledger.records import Namespace, State
from acquit.ledger.totals import HASH_MODULUS, QueueTotals, message_hash

_HASH_FACTOR: Final = message_hash(1, 0)
_BESIDE: Final = (EventKind.UNROUTED, EventKind.DUPLICATE, EventKind.ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages of one queue that entered, were not retired, and are not there."""

    count: int = 0
    """Less than 0: more are there than entered."""
    hash_sum: int = 0

    def __bool__(self) -> bool:
        return self.count != 0 or self.hash_sum != 0

    def plus(self, other: Loss) -> Loss:
        """Both together."""
        return Loss(self.count + other.count, (self.hash_sum + other.hash_sum) % HASH_MODULUS)


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
    """Balance of one queue: what entered and was retired, what is live, and what is known to be lost."""

    queue: int
    name: str
    """ "" where no record names it any more; queue 0 sums the deleted ones."""
    totals: QueueTotals
    live: LiveCount
    lost: Loss
    """Messages that are missing, and that somebody decided to go on without."""

    @property
    def entered(self) -> dict[str, int]:
        """Messages that entered, by kind as `EventKind` names it."""
        return {EventKind(kind).name: n for kind, n in sorted(self.totals.counts.items()) if kind in ENTERING}

    @property
    def retired(self) -> dict[str, int]:
        """Messages that were retired, by kind as `EventKind` names it."""
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
        """Words for what does not add up; "" when all does."""
        if not self.missing:
            return ""
        totals, live = self.totals, self.live
        if self.missing.count:
            known = f" and {self.lost.count} are known to be lost" if self.lost else ""
            return (
                f"{totals.entered} entered and {totals.retired} were retired, which leaves {totals.live}; "
                f"{live.total} are live{known}"
            )
        return f"the {live.total} live messages are not those that entered and were not retired"

    @property
    def complaint(self) -> str:
        """`mismatch`, with the queue's name."""
        return f"{self.name or ('deleted queues' if self.queue == 0 else f'queue {self.queue}')}: {self.mismatch}"

    @property
    def missing(self) -> Loss:
        """Messages that must be live and are not, beside those known to be lost; false where there are none."""
        totals, live, lost = self.totals, self.live, self.lost
        return Loss(
            totals.live - live.total - lost.count, (totals.live_sum - live.hash_sum - lost.hash_sum) % HASH_MODULUS
        )


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
    live = _count_rows(fold)
    held = 0
    for message in fold.messages.objects.values():
        if message.transaction:
            held += 1
            continue
        count = live.get(message.queue)
        if count is None:
            count = live[message.queue] = LiveCount()
        if message.flags & SUSPENDED:
            count.suspended += 1
        elif message.actor:
            count.acquired += 1
        elif message.due_at_ms:
            count.scheduled += 1
        else:
            count.available += 1
        fingerprint = message.fingerprint
        count.hash_sum += message.sequence * (_HASH_FACTOR + fingerprint)  # as `message_hash`, without a call
        count.size_bytes += fingerprint >> 32
    for count in live.values():
        count.hash_sum %= HASH_MODULUS
    totals = fold.totals()
    lost = _lost(fold, totals)
    rows = []
    for queue in sorted(totals.keys() | live.keys() | fold.table.queues.keys()):
        declared = fold.table.queues.get(queue)
        name = declared.name if declared is not None else ""
        account = totals.get(queue, QueueTotals())
        rows.append(QueueBalance(queue, name, account, live.get(queue, LiveCount()), lost.get(queue, Loss())))
    return Balance(tuple(rows), tuple(fold.anomalies), fold.anomaly_count, held)


def _count_rows(fold: Fold) -> dict[int, LiveCount]:
    """Count the messages of which there is nothing special to say, by queue: they may be millions."""
    live: dict[int, LiveCount] = {}
    for lot in fold.messages.rows.lots():
        count = live.get(lot.queue)
        if count is None:
            count = live[lot.queue] = LiveCount()
        if lot.flags & SUSPENDED:
            count.suspended += len(lot.sequences)
        elif lot.actor:
            count.acquired += len(lot.sequences)
        else:
            count.available += len(lot.sequences)
        # As `message_hash`, without a call for each.
        count.hash_sum += sum(map(mul, lot.sequences, lot.fingerprints)) + sum(lot.sequences) * _HASH_FACTOR
        count.size_bytes += lot.size_bytes
    return live


def check(fold: Fold, where: str) -> None:
    """Check that what is live is what the newest seal, and the events after it, say. Raises StoreUnbalanced."""
    wrong = [row for row in balance(fold).queues if row.missing]
    if wrong:
        said = "; ".join(row.complaint for row in wrong[:_NAMED_MAX])
        more = f"; and {len(wrong) - _NAMED_MAX} more queues" if len(wrong) > _NAMED_MAX else ""
        raise StoreUnbalanced(
            f"{where}: the journal does not hold the messages that it accounts for. {said}{more}. Nothing was changed. "
            "Restore a backup, or keep a copy of the folder and start once with `acquit serve --accept-loss`, which "
            "records what is lost and goes on without it"
        )


_NAMED_MAX: Final = 5


# -- what is known to be lost -----------------------------------------------------------------------------------------

_QUEUE: Final = Struct("<I")
_LOSS: Final = Struct("<q16s")


def accept_losses(fold: Fold, time_us: int) -> dict[str, State]:
    """The records by which what is missing now is known to be lost, each by the words that say what it is."""
    records: dict[str, State] = {}
    for row in balance(fold).queues:
        if row.missing:
            key = _QUEUE.pack(row.queue)
            known = fold.table.state.get((Namespace.LOSS, key))
            lost = row.missing if known is None else row.missing.plus(_decode(known))
            value = _LOSS.pack(lost.count, lost.hash_sum.to_bytes(16, "little"))
            records[row.complaint] = State(time_us, Namespace.LOSS, key, value)
    return records


def _decode(state: State) -> Loss:
    count, hash_sum = _LOSS.unpack(state.value)
    return Loss(count, int.from_bytes(hash_sum, "little"))


def _lost(fold: Fold, totals: Mapping[int, QueueTotals]) -> dict[int, Loss]:
    """Return what is known to be lost, by queue; that of deleted queues as queue 0, as their totals are."""
    lost: dict[int, Loss] = {}
    for (namespace, key), state in fold.table.state.items():
        if namespace == Namespace.LOSS:
            (number,) = _QUEUE.unpack(key)
            queue = number if number in totals else 0
            lost[queue] = lost.get(queue, Loss()).plus(_decode(state))
    return lost


__all__ = ["Balance", "LiveCount", "Loss", "QueueBalance", "accept_losses", "balance", "check"]
