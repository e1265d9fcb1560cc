"""What became of each transaction, for who lost the answer to its commit.

The journal tells of those that were recorded (`ledger.table`: the fate follows from the records of a transaction's
beginning and end). A transaction is recorded when it first has something durable to say, so of those that never had,
this run alone knows. Both are kept for a bounded time, and no more than a bounded number of them.

What is not known here any more was not committed within that time: whoever can tell that its transaction is younger
knows from *unknown* that it was rolled back. So the time is one that really passes: a clock that is set makes nothing
older, and as nobody knows how long the broker was down, and what became of the clock meanwhile, what is found at a
start is kept as if it had ended then.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from acquit.ledger.records import Namespace, Verdict, decode_fate

if TYPE_CHECKING:
    from acquit.ledger.table import StateTable

NAMES: Final = {Verdict.COMMITTED: "committed", Verdict.ROLLED_BACK: "rolled-back"}
UNKNOWN: Final = "unknown"


class Fates:
    """Remembers fates. Times are microseconds since the epoch."""

    def __init__(self, table: StateTable, time_us: int) -> None:
        self._table = table
        self._unrecorded: dict[bytes, tuple[Verdict, str]] = {}
        recorded = [
            (entry.time_us, txn_id) for (namespace, txn_id), entry in table.state.items() if namespace == Namespace.FATE
        ]
        self._order: deque[tuple[int, bytes]] = deque((time_us, txn_id) for _, txn_id in sorted(recorded))
        """Since when each is kept, oldest first."""
        self._forgotten_us: int | None = None
        """Since when the newest was that was forgotten before its time; None: none was."""

    def clock_set(self, by_us: int) -> None:
        """The wall clock jumped: what ended so long ago still did."""
        self._order = deque((since_us + by_us, txn_id) for since_us, txn_id in self._order)
        if self._forgotten_us is not None:
            self._forgotten_us += by_us

    def ended(self, txn_id: bytes, verdict: Verdict, user: str, time_us: int, *, recorded: bool) -> None:
        """A transaction has ended. Of one that is recorded the journal tells."""
        if not recorded:
            self._unrecorded[txn_id] = verdict, user
        self._order.append((time_us, txn_id))

    def of(self, txn_id: bytes, user: str) -> str:
        """What became of it, if it was this user's."""
        known = self._unrecorded.get(txn_id)
        if known is None:
            entry = self._table.state.get((Namespace.FATE, txn_id))
            if entry is None:
                return UNKNOWN
            known = decode_fate(entry.value)
        verdict, owner = known
        return NAMES[verdict] if owner == user else UNKNOWN

    def known_for_us(self, time_us: int) -> int:
        """For how long all of them are known, as far as their number sets a limit to that."""
        return time_us if self._forgotten_us is None else max(0, time_us - self._forgotten_us)

    def forget(self, before_us: int, fates_max: int) -> None:
        """Forget those that are kept since before this time, and the oldest of more than so many."""
        order = self._order
        while order and (len(order) > fates_max or order[0][0] < before_us):
            since_us, txn_id = order.popleft()
            if since_us >= before_us:
                self._forgotten_us = since_us
            self._unrecorded.pop(txn_id, None)
            self._table.forget_fate(txn_id)  # one that was given back for being idle may be in both


__all__ = ["NAMES", "UNKNOWN", "Fates"]
