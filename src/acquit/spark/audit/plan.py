"""Plan of a run of the audit: which segments of which brokers to fold, and in which pieces of work.

A broker is its store's uuid: a folder that was moved, or given under another path, goes on where it was. All segments
behind the last one that an earlier run covered are folded, if they can be read. One that cannot was deleted by
retention, which is on record, or is missing: a *gap*. Either is a hole: what was posted in it is unknown, except in
totals, where the seals on both sides of it say them. A hole is covered, too: a segment that comes back later is not
looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final

from acquit.errors import StoreCorrupt
from acquit.spark.audit.log import BrokerState, Partial
from acquit.spark.audit.segment import Facts, Work
from acquit.spark.ledger.chain import READABLE, Segment, SegmentState
from acquit.spark.ledger.options import Verify
from acquit.spark.ledger.segments import entering, read_events

TASK_BYTES: Final = 64 * 1024 * 1024
"""Small segments share a task up to this."""
SEQUENCE_MAX: Final = (1 << 63) - 1


@dataclass(slots=True)
class Hole:
    """Segments that cannot be read."""

    broker: int
    first: int
    last: int
    deleted: bool
    """True if retention deleted them, which is on record; else it is a gap."""


@dataclass(slots=True)
class Plan:
    """See the module's text."""

    brokers: list[BrokerState]
    """States of the brokers when the run is done, as far as they are known beforehand."""
    works: list[Work] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    segments: dict[tuple[int, int], Segment] = field(default_factory=dict)
    """Segments to be folded, by broker and number."""


def plan_run(segments: Iterable[Segment], before: Sequence[BrokerState], known: dict[int, frozenset[int]]) -> Plan:
    """`segments` as `chain.plan` gives them; `known`: the queues of each broker whose names are known. Raises
    StoreCorrupt where a journal is not the one that earlier runs have read, and as `read_events` for the segments next
    to a hole."""
    states = {broker.store: replace(broker) for broker in before}
    plan = Plan(list(states.values()))
    for store, own in groupby(segments, lambda segment: str(segment.store)):
        listed = list(own)
        broker = states.get(store)
        if broker is None:
            broker = BrokerState(store=store, number=len(plan.brokers) + 1, folder=str(listed[0].folder))
            plan.brokers.append(broker)
        broker.folder = str(listed[0].folder)
        _plan_broker(plan, broker, listed, known.get(broker.number, frozenset()))
    return plan


def _plan_broker(plan: Plan, broker: BrokerState, segments: list[Segment], known: frozenset[int]) -> None:
    _check_same(broker, segments)
    by_number = {segment.number: segment for segment in segments}
    behind_hole = False
    partial = broker.partial
    for segment in segments:
        if segment.number <= broker.through:
            continue
        if segment.state not in READABLE:
            behind_hole = True
            _add_hole(plan, broker, segment)
            continue
        resumed, skip, digest = False, 0, ""
        if partial is not None and partial.number == segment.number:
            if segment.state is SegmentState.OPEN and segment.seal is None and segment.length == partial.length:
                continue  # nothing new in it
            resumed, skip, digest = True, partial.events, partial.digest
        after = by_number.get(segment.number + 1)
        previous = by_number.get(segment.number - 1)
        work = Work(
            segment=segment,
            broker=broker.number,
            before=previous if previous is not None and previous.header is not None else None,
            resumed=resumed,
            skip=skip,
            digest=digest,
            at_start=behind_hole,
            at_end=after is None or after.state not in READABLE,
            known=known,
        )
        plan.works.append(work)
        plan.segments[broker.number, segment.number] = segment
        behind_hole = False
    own = [hole for hole in plan.holes if hole.broker == broker.number]
    if own:
        broker.below = _entered_from(segments, own[-1].last)


def _check_same(broker: BrokerState, segments: list[Segment]) -> None:
    """The journal that earlier runs read, and not one that was restored or written anew."""
    newest = segments[-1]
    last = next((segment for segment in segments if segment.number == broker.through), None)
    changed = last is not None and broker.sha256 and last.sha256 and last.sha256.hex() != broker.sha256
    if changed or newest.number < broker.through:
        at = last if last is not None else newest
        raise StoreCorrupt(
            f"segment {broker.through} of store {broker.store} is not the one that earlier runs of this audit have "
            "read: audit this journal into a new folder",
            path=str(at.path),
            offset=0,
        )


def _add_hole(plan: Plan, broker: BrokerState, segment: Segment) -> None:
    deleted = segment.state is SegmentState.DELETED
    last = plan.holes[-1] if plan.holes else None
    if last is not None and (last.broker, last.last, last.deleted) == (broker.number, segment.number - 1, deleted):
        last.last = segment.number
    else:
        plan.holes.append(Hole(broker.number, segment.number, segment.number, deleted))


def _entered_from(segments: Sequence[Segment], hole: int) -> int:
    """The first sequence that entered a queue behind a hole: what has a lower one may have been posted in it."""
    for segment in segments:
        if segment.number > hole and segment.state in READABLE:
            events = read_events(segment, Verify.QUICK)
            entered = events["sequence"][entering(events)]
            if len(entered):
                return int(entered.min())
    return SEQUENCE_MAX


def tasks(works: Sequence[Work], parallelism: int) -> list[list[Work]]:
    """The works of each task: neighbours, so that a task's files are of one broker and few days."""
    total = sum(work.segment.length for work in works)
    limit = min(TASK_BYTES, total // max(1, parallelism) + 1)
    found: list[list[Work]] = []
    size = 0
    for work in works:
        if not found or size + work.segment.length > limit:
            found.append([])
            size = 0
        found[-1].append(work)
        size += work.segment.length
    return found


def advance(plan: Plan, facts: Iterable[Facts]) -> None:
    """Bring the states of its brokers to the end of the run: these segments were folded, in order."""
    by_number = {broker.number: broker for broker in plan.brokers}
    for hole in plan.holes:
        broker = by_number[hole.broker]
        (broker.deleted if hole.deleted else broker.missing).append([hole.first, hole.last])
        if hole.last > broker.through:
            broker.through, broker.sha256 = hole.last, ""
    for fact in facts:
        broker = by_number[fact.broker]
        segment = plan.segments[fact.broker, fact.number]
        broker.first = broker.first or fact.number
        if fact.folded:
            broker.first_us = min(broker.first_us or fact.first_us, fact.first_us)
            broker.last_us = max(broker.last_us, fact.last_us)
        broker.events += fact.folded
        broker.unclean_stops += fact.unclean
        broker.entered_max = max(broker.entered_max, fact.entered_max)
        if fact.sealed:
            broker.partial = None
            if fact.number > broker.through:
                broker.through, broker.sha256 = fact.number, segment.sha256.hex()
        else:
            broker.partial = Partial(number=fact.number, events=fact.events, digest=fact.digest, length=segment.length)


def covered(plan: Plan) -> list[dict[str, Any]]:
    """Return what a run folds: for each broker first, last, and the SHA-256 of the last."""
    found: dict[int, dict[str, Any]] = {}
    stores = {broker.number: broker.store for broker in plan.brokers}
    for (broker, number), segment in plan.segments.items():
        own = found.setdefault(broker, {"broker": stores[broker], "first": number})
        own["last"], own["sha256"] = number, segment.sha256.hex()
    return list(found.values())
