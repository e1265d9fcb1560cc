"""Dead letters by reason: what consumers said when messages were dead-lettered, counted by queue and minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import pyarrow as pa

from acquit.ledger.events import EventFlag, EventKind
from acquit.ledger.records import Attempt, Cause, RecordKind
from acquit.spark.audit.counters import MINUTE_US
from acquit.spark.ledger.chain import Segment
from acquit.spark.ledger.segments import Events
from acquit.store.interface import EVENTFUL
from acquit.store.reading import FolderReader
from acquit.store.record import walk

REASONS_MAX: Final = 1_000
"""Different reasons by queue and minute that one segment tells; the others are put together."""
SCHEMA: Final = pa.schema(
    [
        ("broker", pa.string()),
        ("queue", pa.string()),
        ("minute", pa.timestamp("us", "UTC")),
        ("cause", pa.string()),
        ("condition", pa.string()),
        ("count", pa.int64()),
    ]
)
_ATTEMPT_HEAD: Final = bytes((RecordKind.ATTEMPT, 1)) + int(EVENTFUL).to_bytes(2, "little")

Letters: TypeAlias = tuple[int, int, str | None, str | None, int]
"""Queue, minute, cause and condition, and how many."""


def dead_letters(segment: Segment, events: Events) -> list[Letters]:
    """Count the dead letters among these events, by queue, minute and reason."""
    letters = events[events["kind"] == EventKind.DEAD_LETTERED]
    if not len(letters):
        return []
    reasons = _reasons(segment)
    lost = (
        None if not letter["flags"] & EventFlag.CONNECTION_LOST else Cause.CONNECTION_LOST.name for letter in letters
    )
    counts: Counter[tuple[int, int, str | None, str | None]] = Counter()
    for letter, implied in zip(letters, lost, strict=True):
        cause, condition = reasons.get(int(letter["sequence"]), (implied, None))
        key = (int(letter["queue"]), int(letter["time_us"]) // MINUTE_US, cause, condition)
        if key not in counts and len(counts) >= REASONS_MAX:
            key = (*key[:2], None, "(others)")
        counts[key] += 1
    return [(*key, count) for key, count in counts.items()]


def _reasons(segment: Segment) -> dict[int, tuple[str | None, str | None]]:
    """Cause and condition of each dead letter that a record of its own tells of. These are few: only batches that have
    the head of such a record are taken apart."""
    found: dict[int, tuple[str | None, str | None]] = {}
    with FolderReader(segment.folder).open(segment.number) as opened:
        for head, data in opened.batches():
            if _ATTEMPT_HEAD not in data:
                continue
            for record in walk(head, data):
                if record.kind != RecordKind.ATTEMPT:
                    continue
                attempt = Attempt.decode(record)
                if attempt.event.kind == EventKind.DEAD_LETTERED:
                    found[attempt.event.sequence] = (cause_name(attempt.cause), attempt.condition or None)
    return found


def cause_name(cause: int) -> str:
    """Return the name of a cause, or ``CAUSE_n`` where it has none."""
    try:
        return Cause(cause).name
    except ValueError:
        return f"CAUSE_{cause}"


def table(
    letters: Iterable[tuple[int, Letters]], brokers: Mapping[int, str], names: Mapping[tuple[int, int], str]
) -> pa.Table:
    """The table, in order, of letters with their broker's number."""
    counts: Counter[tuple[int, int, int, str | None, str | None]] = Counter()
    for broker, (queue, minute, cause, condition, count) in letters:
        counts[broker, queue, minute, cause, condition] += count
    keys = sorted(counts, key=lambda key: (*key[:3], key[3] or "", key[4] or ""))
    return pa.table(
        [
            pa.array([brokers[broker] for broker, *_ in keys], pa.string()),
            pa.array([names.get((broker, queue)) for broker, queue, *_ in keys], pa.string()),
            pa.array([minute * MINUTE_US for _, _, minute, *_ in keys], pa.int64()).view(SCHEMA.field("minute").type),
            pa.array([cause for *_, cause, _ in keys], pa.string()),
            pa.array([condition for *_, condition in keys], pa.string()),
            pa.array([counts[key] for key in keys], pa.int64()),
        ],
        schema=SCHEMA,
    )
