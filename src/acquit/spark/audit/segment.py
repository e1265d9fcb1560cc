"""The fold of one segment: all of its events read, held to the hash chain, and put together by message.

What has posting and retirement in the segment is done with here. What has not is a *piece*, and meets the others of its
message elsewhere (`bucket`). Beside these the fold counts by minute, compares the events with the seal and the seal
with the one before, and notes what else the whole run needs to know of the segment: its `Facts`, a few numbers.

An open segment is folded to where it was planned. The next run reads it again from its beginning, so that the hash
chain holds all of it, and passes over the events that are folded already; their digest shows that they are the same.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from acquit.ledger.records import RecordKind, Start
from acquit.ledger.totals import Summary
from acquit.spark.audit import counters as counting
from acquit.spark.audit import seals
from acquit.spark.audit.anomalies import Anomaly, AnomalyRow, of_extras, of_flags
from acquit.spark.audit.clock import went_back_us
from acquit.spark.audit.counters import Counters
from acquit.spark.audit.dead_letters import Letters, dead_letters
from acquit.spark.audit.lives import LifeFlag, Lives, complete, flagged, merge, of_events
from acquit.spark.ledger.chain import Segment, SegmentState, read_seal
from acquit.spark.ledger.names import declared_at, names_at
from acquit.spark.ledger.options import Verify
from acquit.spark.ledger.segments import Events, entering, read_events
from acquit.store.reading import FolderReader
from acquit.store.record import walk


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A segment to be folded."""

    segment: Segment
    broker: int
    """Number of the broker in this audit."""
    before: Segment | None
    """The segment before it, where it can be read."""
    resumed: bool = False
    """An earlier run has folded the beginning of it, when it was open."""
    skip: int = 0
    """Events that it folded."""
    digest: str = ""
    """Digest of these events."""
    at_start: bool = False
    """True if the totals of all segments before it are wanted: those cannot be read."""
    at_end: bool = False
    """True if the totals of all segments to its end are wanted."""
    known: frozenset[int] = frozenset()
    """Queues whose names are known."""


@dataclass(slots=True, kw_only=True)
class Facts:
    """Facts that a run needs to know of a segment that it folded."""

    broker: int
    number: int
    events: int
    folded: int
    """Events that this run folded."""
    digest: str
    """Digest of all its events, where it is open; else ""."""
    sealed: bool
    first_us: int = 0
    last_us: int = 0
    entered_min: int = 0
    """Least and greatest sequence that entered a queue; 0: none did."""
    entered_max: int = 0
    created_us: int = 0
    """Time at which it was begun."""
    unclean: bool = False
    """A run of the broker begins here, and the one before was not stopped in order."""
    start: dict[str, Any] | None = None
    """Totals of all before it, as `seals.to_json` gives them; None where nobody asked, or nothing says them."""
    end: dict[str, Any] | None = None
    """Totals to the end of the last seal: its own, or the one before."""
    here: dict[str, Any] | None = None
    """Totals since `end`, where it has no seal."""
    deleted: dict[str, Any] = field(default_factory=dict)
    """Totals of queues that were deleted in it, to their end."""
    queues: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Names and addresses of queues that it declares."""
    backward_us: int = 0
    """Microseconds by which the clock went back, where that shows in the order of events."""
    backward_messages: int = 0
    """Messages whose own events go back."""
    letters: list[Letters] = field(default_factory=list)
    """Dead letters by queue, minute, cause and condition: how many."""
    anomalies: list[AnomalyRow] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """Anomalies by kind, those included that no row tells of."""

    def to_json(self) -> dict[str, Any]:
        """Return the facts as plain values."""
        return asdict(self) | {"anomalies": [list(row) for row in self.anomalies]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Facts:
        """Return the facts that `to_json` gave, by way of JSON."""
        changed = {
            "queues": {int(number): (name, address) for number, (name, address) in value["queues"].items()},
            "anomalies": [AnomalyRow(*row) for row in value["anomalies"]],
            "letters": [tuple(letter) for letter in value["letters"]],
        }
        return cls(**(value | changed))


class Folded(NamedTuple):
    """A segment, folded."""

    closed: Lives
    pieces: Lives
    counters: Counters
    facts: Facts


def fold(work: Work, verify: Verify, anomalies_max: int) -> Folded:
    """Fold it. Raises as `acquit.spark.ledger.segments.read_events`, and StoreCorrupt where events that an earlier run
    folded are not the same any more."""
    segment = work.segment
    everything = read_events(segment, verify)
    if work.resumed and digest_of(everything[: work.skip]) != work.digest:
        raise segment.corrupt(
            f"its first {work.skip} events are not those that an earlier run of this audit has folded: audit this "
            "journal into a new folder"
        )
    events = everything[work.skip :]
    summary, before = _seals(work)
    facts = Facts(
        broker=work.broker,
        number=segment.number,
        events=len(everything),
        folded=len(events),
        digest=digest_of(everything) if summary is None else "",
        sealed=summary is not None,
        created_us=segment.header.created_us if segment.header is not None else 0,
        unclean=not work.resumed and _begins_unclean(segment),
        queues=_queues(segment, events, verify, work.known),
    )
    _note_range(facts, events)
    _note_balance(facts, everything, summary, before, work)
    facts.backward_us = went_back_us(everything, work.skip, before)
    facts.letters = dead_letters(segment, events)
    merged = merge(of_events(events, segment.number, work.broker))
    lives = merged.lives
    _note_lives(facts, lives, merged.extras, anomalies_max)
    lives["flags"] = 0
    done = complete(lives)
    known = lives["entered"] != 0
    counters = counting.summed(
        np.concatenate([counting.of_events(events, work.broker), counting.of_lives(lives[known])])
    )
    lives["flags"][known & (lives["acquired"] > 0)] = LifeFlag.COUNTED
    return Folded(lives[done], lives[~done], counters, facts)


def digest_of(events: Events) -> str:
    """Return the digest of these events, in this order."""
    return hashlib.blake2b(np.ascontiguousarray(events).tobytes(), digest_size=16).hexdigest()


def _seals(work: Work) -> tuple[Summary | None, Summary | None]:
    """Return the summary of the segment's own seal, and of the segment before; None where there is none."""

    def read(segment: Segment) -> Summary:
        if segment.summary is not None:
            return segment.summary
        try:
            return Summary.decode(read_seal(FolderReader(segment.folder), segment).summary)
        except ValueError as error:
            raise segment.corrupt(f"its summary: {error}", segment.seal_at) from error

    own = work.segment
    closed = own.state is not SegmentState.OPEN and own.seal_at > 0
    return (
        read(own) if own.summary is not None or closed else None,
        read(work.before) if work.before is not None else None,
    )


def _begins_unclean(segment: Segment) -> bool:
    with FolderReader(segment.folder).open(segment.number) as opened:
        for head, data in opened.batches():
            return any(not Start.decode(record).clean for record in walk(head, data) if record.kind == RecordKind.START)
    return False


def _queues(segment: Segment, events: Events, verify: Verify, known: frozenset[int]) -> dict[int, tuple[str, str]]:
    """The names that it declares, where all of it was read; else those of the queues that are not known yet."""
    if verify is Verify.FULL:
        queues = declared_at(segment).queues
    else:
        wanted = set(np.unique(events["queue"]).tolist()) - known - {0}
        queues = names_at(segment, wanted, set()).queues if wanted else {}
    return {number: (queue.name, queue.address) for number, queue in queues.items()}


def _note_range(facts: Facts, events: Events) -> None:
    if not len(events):
        return
    facts.first_us, facts.last_us = int(events["time_us"].min()), int(events["time_us"].max())
    entered = events["sequence"][entering(events)]
    if len(entered):
        facts.entered_min, facts.entered_max = int(entered.min()), int(entered.max())


def _note_balance(facts: Facts, events: Events, summary: Summary | None, before: Summary | None, work: Work) -> None:
    found = seals.totals_of(events)
    number, first = work.segment.number, work.segment.number == 1
    if summary is not None:
        texts = seals.differences(found, summary)
        if before is not None or first:
            texts += seals.chain_differences(before, summary)
        last_us = int(events["time_us"].max()) if len(events) else 0
        for text in texts:
            facts.anomalies.append(AnomalyRow(work.broker, 0, 0, Anomaly.UNBALANCED.value, text, number, last_us))
            facts.counts[Anomaly.UNBALANCED.value] = facts.counts.get(Anomaly.UNBALANCED.value, 0) + 1
        facts.deleted = seals.to_json({q: r.cumulated for q, r in summary.rows.items() if r.flags})
    if work.at_end:
        last = summary if summary is not None else before
        if last is not None or first:
            rows = last.rows if last is not None else {}
            facts.end = seals.to_json({queue: row.cumulated for queue, row in rows.items()})
        facts.here = seals.to_json(found) if summary is None else None
    if work.at_start and summary is not None:
        starts = {}
        for queue, line in summary.rows.items():
            total = line.cumulated.copy()
            total.counts = {k: n - line.here.counts.get(k, 0) for k, n in total.counts.items()}
            total.entered_sum -= line.here.entered_sum
            total.retired_sum -= line.here.retired_sum
            starts[queue] = total
        facts.start = seals.to_json(starts)


def _note_lives(facts: Facts, lives: Lives, extras: Lives, most: int) -> None:
    facts.backward_messages = int(flagged(lives, LifeFlag.BACKWARD).sum())
    counts = Counter(facts.counts)
    for rows, more in (of_extras(extras, most), of_flags(lives, most)):
        facts.anomalies += rows
        counts += more
    facts.counts = dict(counts)
