"""The journal of the stopped broker, in the few numbers that the balance sheet needs.

One pass over the folder, with the ledger's own fold beside it for the balance of each queue. Nothing is taken from what
the processes said of themselves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from acquit.demo.messages import DEAD_LETTERS, FILES, INGEST
from acquit.demo.sheet import Accounts
from acquit.ledger.balance import balance
from acquit.ledger.events import RETIRING, Event, EventFlag, EventKind
from acquit.ledger.fold import Fold
from acquit.ledger.records import Posting, RecordKind, decode_events
from acquit.ledger.verify import verify
from acquit.store.interface import Position, Record
from acquit.store.reading import FolderReader


@dataclass(slots=True)
class _PostingStory:
    """A posting, as far as the balance sheet tells of it."""

    acquired: int = 0
    runs: int = 0
    """Runs of the broker in which it was acquired."""
    last_run: int = 0
    returned_by_loss: int = 0
    """Times it came back because a connection was lost."""
    settled: bool = False

    @property
    def interest(self) -> tuple[bool, int, int, int]:
        """Lives with an end are better stories; then those with more kinds of trouble."""
        return self.settled, (self.runs > 1) + (self.returned_by_loss > 0), self.returned_by_loss, self.acquired


class Accountant:
    """A replay that keeps the ledger's fold and, beside it, who entered where and how often it was acquired."""

    def __init__(self) -> None:
        self.fold = Fold()
        self.entered: defaultdict[int, Counter[str]] = defaultdict(Counter)
        """Messages that entered, by queue number and identity."""
        self.lives: defaultdict[int, dict[int, _PostingStory]] = defaultdict(dict)
        """Postings by queue number and sequence."""
        self._run = 0

    @property
    def without_payload(self) -> frozenset[int]:
        return self.fold.without_payload

    def segment(self, number: int, base: Position) -> None:
        self.fold.segment(number, base)

    def batch(self, records: Iterator[Record], time_us: int) -> None:
        gathered = list(records)
        self.fold.batch(iter(gathered), time_us)
        for record in gathered:
            if record.kind == RecordKind.START:
                self._run += 1
            elif record.kind == RecordKind.POSTING:
                posting = Posting.decode(record)
                self.entered[posting.event.queue][str(posting.message_id)] += 1
                self.lives[posting.event.queue][posting.event.sequence] = _PostingStory()
            elif record.kind in (RecordKind.TRANSITIONS, RecordKind.ATTEMPT):
                for event in decode_events(record):
                    self._event(event)

    def sealed(self, summary: bytes) -> None:
        self.fold.sealed(summary)

    def _event(self, event: Event) -> None:
        life = self.lives[event.queue].get(event.sequence)
        if life is None:
            return
        if event.kind == EventKind.ACQUIRED:
            life.acquired += 1
            if life.last_run != self._run:
                life.runs += 1
                life.last_run = self._run
        elif event.kind in RETIRING:
            life.settled = True
        elif event.flags & EventFlag.CONNECTION_LOST:
            life.returned_by_loss += 1


def read(data: Path) -> Accounts:
    """The accounts of a stopped broker. Raises StoreError and its kin where the folder cannot be read."""
    accountant = Accountant()
    FolderReader(data).replay(accountant, archive=True)
    accountant.fold.settle()
    found = balance(accountant.fold)
    numbers = {queue.name: number for number, queue in accountant.fold.table.queues.items()}
    postings = accountant.lives[numbers.get(FILES, 0)]
    retold = {sequence: life for sequence, life in postings.items() if life.acquired > 1}
    return Accounts(
        posted=accountant.entered[numbers.get(FILES, 0)],
        forwarded=accountant.entered[numbers.get(INGEST, 0)],
        dead_lettered=accountant.entered[numbers.get(DEAD_LETTERS, 0)],
        redelivered=len(retold),
        balanced=found.balanced,
        queues={
            row.name: {"entered": sum(row.entered.values()), "live": row.live.total} | row.retired
            for row in found.queues
            if row.name
        },
        # The first of the best: `max` keeps the earlier one.
        story=max(retold, key=lambda sequence: retold[sequence].interest, default=None),
        verified=not verify(data).problems,
    )
