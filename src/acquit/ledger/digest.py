"""The running summary of a segment: what its seal will say.

Behind a running journal it sees, on the batch thread, exactly what was written, after it was written, and nothing of
the broker's own counters: when the two differ, one of them is wrong, and the ledger says so. The fold fills one of
the same kind while it reads the journal back; that one then goes on with the new run.
"""

from __future__ import annotations

from collections.abc import Sequence

from acquit.ledger.records import Counters, QueueDeleted, RecordKind
from acquit.ledger.totals import HEAD_BYTES, KIND_BYTES, ROW_BYTES, QueueTotals, RowFlag, Summary, SummaryRow, Totals
from acquit.store.interface import Record


class RunningDigest:
    """See `acquit.store.interface.Digest`."""

    def __init__(self) -> None:
        self.cumulated: dict[int, QueueTotals] = {}
        """Totals by queue, to the end of the last segment; queue 0 for those deleted before that."""
        self.here = Totals()
        """Totals of the present segment."""
        self._deleted: set[int] = set()
        """Queues deleted in the present segment."""
        self._gone: set[int] = set()
        """Queues deleted before that, while there is a base to come."""
        self.awaits_base = False
        """True if what was read does not begin at the beginning: `add_base` will say what was before."""
        self._cumulated_entries = 0

    def add(self, events: bytes, others: Sequence[Record]) -> None:
        self.here.add_events(events)
        for record in others:
            self.add_other(record)

    def add_other(self, record: Record) -> None:
        """Take note of a record that is no event."""
        if record.kind == RecordKind.COUNTERS:
            self.here.add_volatile(Counters.decode(record).counts)
        elif record.kind == RecordKind.QUEUE_DELETED:
            self._deleted.add(QueueDeleted.decode(record).number)

    def add_base(self, summary: Summary) -> None:
        """Add what an earlier segment, not read here, had cumulated at its end."""
        for queue, row in summary.rows.items():
            key = 0 if row.flags & RowFlag.DELETED or queue in self._gone else queue
            self.cumulated.setdefault(key, QueueTotals()).add(row.cumulated)
        self.awaits_base = False
        self._gone = set()
        self._count_entries()

    def go_on_from(self, summary: Summary) -> None:
        """Take what the seal of the segment that just ended states for what was counted up to there."""
        self.cumulated = {}
        self.add_base(summary)

    def totals(self) -> dict[int, QueueTotals]:
        """Return the totals by queue, to this moment: copies."""
        result: dict[int, QueueTotals] = {}
        for part in (self.cumulated, self.here.queues()):
            for queue, totals in part.items():
                result.setdefault(queue, QueueTotals()).add(totals)
        return result

    def end_segment(self) -> Summary:
        """The segment's summary. What follows belongs to the next one."""
        here = self.here.queues()
        summary = Summary(events=self.here.events, first_us=self.here.first_us, last_us=self.here.last_us)
        for queue in sorted(self.cumulated.keys() | here.keys()):
            own = here.get(queue, QueueTotals())
            totals = self.cumulated.setdefault(queue, QueueTotals())
            totals.add(own)
            flags = RowFlag.DELETED if queue in self._deleted else 0
            summary.rows[queue] = SummaryRow(own, totals.copy(), flags)
        for queue in self._deleted & self.cumulated.keys():
            self.cumulated.setdefault(0, QueueTotals()).add(self.cumulated.pop(queue))
        if self.awaits_base:
            self._gone |= self._deleted
        self._deleted = set()
        self.here = Totals()
        self._count_entries()
        return summary

    def seal(self) -> bytes:
        return self.end_segment().encode()

    def _count_entries(self) -> None:
        self._cumulated_entries = sum(len(t.counts) + len(t.volatile) for t in self.cumulated.values())

    @property
    def seal_bytes_max(self) -> int:
        # Each entry that is new here may be of a queue that is new, too.
        entries = self.here.entries
        rows = len(self.cumulated) + entries
        return HEAD_BYTES + rows * ROW_BYTES + (self._cumulated_entries + entries) * KIND_BYTES
