"""Fates of transactions: what became of each, for who lost the answer to its commit.

The journal tells of those that were recorded (`ledger.table`: the fate follows from the records of a transaction's
beginning and end). A transaction is recorded when it first has something durable to say; the fate of one that committed
what is volatile is, a little later; of others this run alone knows. All are kept for a bounded time, and no more than a
bounded number of them.

What is not known here any more was not committed within that time: whoever can tell that its transaction is younger
knows from *unknown* that it was rolled back. So the time is one that really passes: a clock that is set makes nothing
older, and as nobody knows how long the broker was down, and what became of the clock meanwhile, what is found at a
start is kept as if it had ended then.

**Over a restart** the journal says as well for how long all fates are known (`records.FATES_KNOWN`). That is the whole
time, or nothing while one is missing that was forgotten sooner, as there were too many: so it is written when the first
of these is forgotten, and again when the time of the last is over. A fate leaves the journal with its record, and the
word on it stands before the record of that; until then a start finds the fate again. A journal of an earlier version
says nothing, and nothing is taken for known.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from acquit.ledger.records import (
    FATES_KNOWN,
    Namespace,
    State,
    Verdict,
    decode_fate,
    decode_known,
    encode_fate,
    encode_known,
)

if TYPE_CHECKING:
    from acquit.ledger.recorder import Recorder

NAMES: Final = {Verdict.COMMITTED: "committed", Verdict.ROLLED_BACK: "rolled-back"}
UNKNOWN: Final = "unknown"


class Fates:
    """Remembers fates. Times are microseconds since the epoch."""

    def __init__(self, recorder: Recorder, time_us: int) -> None:
        self._recorder = recorder
        self._table = table = recorder.table
        self._unrecorded: dict[bytes, tuple[Verdict, str]] = {}
        recorded = [
            (entry.time_us, txn_id)
            for (namespace, txn_id), entry in table.state.items()
            if namespace == Namespace.FATE and txn_id != FATES_KNOWN
        ]
        self._order: deque[tuple[int, bytes]] = deque((time_us, txn_id) for _, txn_id in sorted(recorded))
        """Since when each is kept, oldest first."""
        said = table.state.get((Namespace.FATE, FATES_KNOWN))
        self._said_us = 0 if said is None else decode_known(said.value)
        """Microseconds for which all fates are known, as the journal says it."""
        self._forgotten_us = time_us - self._said_us
        """Since when the newest of those was kept that are forgotten."""

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._order)

    def clock_set(self, by_us: int) -> None:
        """The wall clock jumped: what ended so long ago still did."""
        self._order = deque((since_us + by_us, txn_id) for since_us, txn_id in self._order)
        self._forgotten_us += by_us

    def ended(self, txn_id: bytes, verdict: Verdict, user: str, time_us: int, *, recorded: bool) -> None:
        """A transaction has ended. Of one that is recorded the journal tells."""
        if not recorded:
            self._unrecorded[txn_id] = verdict, user
        self._order.append((time_us, txn_id))

    def record(self, txn_id: bytes, time_us: int) -> None:
        """Tell the journal of a transaction that has ended without it, unless it is forgotten here, as it would stay
        there for ever. Raises StoreFull."""
        ended = self._unrecorded.get(txn_id)
        if ended is not None:
            self._recorder.append(State(time_us, Namespace.FATE, txn_id, encode_fate(*ended)))
            del self._unrecorded[txn_id]

    def of(self, txn_id: bytes, user: str) -> str:
        """Return what became of a transaction of this user; UNKNOWN if that is not known, or it was another's."""
        known = self._unrecorded.get(txn_id)
        if known is None:
            entry = self._table.state.get((Namespace.FATE, txn_id))
            if entry is None:
                return UNKNOWN
            known = decode_fate(entry.value)
        verdict, owner = known
        return NAMES[verdict] if owner == user else UNKNOWN

    def known_for_us(self, time_us: int) -> int:
        """Return for how many microseconds all fates are known."""
        return max(0, time_us - self._forgotten_us)

    def forget(self, time_us: int, kept_us: int, fates_max: int) -> None:
        """Forget those that are kept for longer than this, and the oldest of more than so many. Raises StoreFull where
        there is no room to say so: the recorder keeps it, and no batch is taken without it."""
        order = self._order
        before_us = time_us - kept_us
        while order and (len(order) > fates_max or order[0][0] < before_us):
            self._forgotten_us, txn_id = order.popleft()
            self._unrecorded.pop(txn_id, None)
            self._table.forget_fate(txn_id)  # one that was given back for being idle may be in both
        known_us = self.known_for_us(time_us)
        if self._said_us > known_us or self._said_us < kept_us < known_us:
            # Before what is forgotten here can leave the journal.
            self._said_us = kept_us if kept_us < known_us else 0
            self._recorder.keep(State(time_us, Namespace.FATE, FATES_KNOWN, encode_known(self._said_us)))


__all__ = ["NAMES", "UNKNOWN", "Fates"]
