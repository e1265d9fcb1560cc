"""The balance of journals from their seals alone, at any size: a page of each segment is read, and no event.

Each seal says what its segment did and what all before it had done, so it must follow from the one before. Where one
does not, its segment is folded, which tells whether it is the segment's own counts that are wrong or what was carried
over. What is in the newest segment, as long as it has no seal, is not in it. Nothing of this needs Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from acquit.ledger.totals import QueueTotals, Summary
from acquit.spark.audit import seals
from acquit.spark.ledger.chain import READABLE, Segment, SegmentState, plan
from acquit.spark.ledger.names import names_at
from acquit.spark.ledger.options import Verify
from acquit.spark.ledger.segments import read_events


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedQueue:
    """A queue, as the newest seal of its broker has it."""

    broker: str
    queue_number: int
    queue: str | None
    totals: QueueTotals
    """Messages that entered and were retired since the beginning; `totals.live` is what must be live."""


@dataclass(slots=True, kw_only=True)
class SealBalance:
    """Balance of journals, as their seals say it."""

    queues: list[SealedQueue] = field(default_factory=list)
    segments: int = 0
    """Segments of which a seal was read: stubs of deleted ones have theirs, too."""
    events: int = 0
    """Events that these seals count."""
    differences: list[tuple[str, int, str]] = field(default_factory=list)
    """Broker, segment, and what does not follow from the seal before, or does not fit the segment's events."""
    missing: list[tuple[str, int]] = field(default_factory=list)
    """Broker and number of segments that are missing, and were not deleted by retention."""

    @property
    def sound(self) -> bool:
        """True if nothing differs, and nothing is missing."""
        return not self.differences and not self.missing


def balance_by_seals(folders: Iterable[Path]) -> SealBalance:
    """Return the balance of the journals in these data folders. Raises as `acquit.spark.ledger.chain.plan`, and as
    `acquit.spark.ledger.segments.read_events` for a segment whose seal does not follow."""
    found = SealBalance()
    before: Segment | None = None
    for segment in plan(folders, seals=True):
        if before is not None and before.store != segment.store:
            before = None
        if segment.state is SegmentState.MISSING:
            found.missing.append((str(segment.store), segment.number))
        if segment.summary is not None:
            found.segments += 1
            found.events += segment.summary.events
            if segment.number == 1 or (before is not None and before.summary is not None):
                _check(found, segment, segment.summary, before.summary if before is not None else None)
        if segment.state is SegmentState.OPEN:
            newest = segment if segment.summary is not None else before
            if newest is not None and newest.summary is not None:
                _add_queues(found, newest, newest.summary)
        before = segment
    return found


def _check(found: SealBalance, segment: Segment, summary: Summary, before: Summary | None) -> None:
    texts = seals.chain_differences(before, summary)
    if texts and segment.state in READABLE:
        texts += seals.differences(seals.totals_of(read_events(segment, Verify.FULL)), summary)
    found.differences += [(str(segment.store), segment.number, text) for text in texts]


def _add_queues(found: SealBalance, segment: Segment, summary: Summary) -> None:
    numbers = set(summary.rows) - {0}
    names = names_at(segment, numbers, set()).queues if segment.state in READABLE else {}
    for number in sorted(numbers):
        name = names[number].name if number in names else None
        row = summary.rows[number].cumulated
        found.queues.append(SealedQueue(broker=str(segment.store), queue_number=number, queue=name, totals=row))
