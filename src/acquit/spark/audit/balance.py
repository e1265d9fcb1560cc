"""Balance of each queue: what the seals say against the messages that are open.

The seals say how many messages entered and were retired, and the sums of their hashes; the open lives say which
messages are left. For a journal that could be read from its beginning::

    entered - retired, by the seals  =  open messages        in number, and in the sum of their hashes

Where segments could not be read, what happened in them is known as totals, if there are seals on both sides. These make
the *unknown* of a queue: it grows by what entered in such segments minus what was retired in them, and falls by each
message that is retired later and whose posting nobody saw. Then open and unknown together must be what the seals say.
As long as something is unknown, the balance holds and is *incomplete*: it says how many, not which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from acquit.ledger.events import ENTERING, RETIRING, EventKind
from acquit.ledger.totals import HASH_MODULUS, QueueTotals
from acquit.spark.audit import seals
from acquit.spark.audit.bucket import Sums
from acquit.spark.audit.segment import Facts

BALANCED, DIFFERS, INCOMPLETE = "balanced", "differs", "incomplete"
_KINDS: Final = tuple(kind for kind in EventKind if kind in ENTERING or kind in RETIRING)
SCHEMA: Final = pa.schema(
    [
        ("broker", pa.string()),
        ("queue", pa.string()),
        ("queue_number", pa.int64()),
        ("entered", pa.int64()),
        ("retired", pa.int64()),
        ("live", pa.int64()),
        ("live_by_seal", pa.int64()),
        ("unknown", pa.int64()),
        ("sums_agree", pa.bool_()),
        *((kind.name.lower(), pa.int64()) for kind in _KINDS),
        ("state", pa.string()),
        ("detail", pa.string()),
    ]
)


@dataclass(slots=True)
class BrokerTotals:
    """Totals of a broker's queues, as its seals say them."""

    end: seals.Totals = field(default_factory=dict)
    """Totals to the end of the last seal."""
    here: seals.Totals = field(default_factory=dict)
    """Since then."""
    deleted: seals.Totals = field(default_factory=dict)
    """Totals of queues that are deleted, to their end."""
    unknown: dict[int, list[int]] = field(default_factory=dict)
    """Unknown messages by queue: their number, and the sum of their hashes."""

    def to_json(self) -> dict[str, Any]:
        """Return the totals as plain values."""
        return {
            "end": seals.to_json(self.end),
            "here": seals.to_json(self.here),
            "deleted": seals.to_json(self.deleted),
            "unknown": {str(queue): value for queue, value in self.unknown.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BrokerTotals:
        """Return the totals that `to_json` gave."""
        return cls(
            seals.from_json(value["end"]),
            seals.from_json(value["here"]),
            seals.from_json(value["deleted"]),
            {int(queue): list(pair) for queue, pair in value["unknown"].items()},
        )

    def advance(self, facts: Sequence[Facts], behind_holes: Iterable[int]) -> bool:
        """Go on by the segments that were folded, in order. `behind_holes`: the first segment behind each hole. False
        where nothing says what the segments of a hole did."""
        known = True
        behind = set(behind_holes)
        for fact in facts:
            if fact.number in behind:
                if fact.start is None:
                    known = False
                else:
                    self._add_unknown(seals.from_json(fact.start))
            if fact.end is not None:
                self.end = seals.from_json(fact.end)
                self.here = seals.from_json(fact.here or {})
            elif fact.here is not None:
                known = False
            self.deleted.update(seals.from_json(fact.deleted))
        return known

    def _add_unknown(self, start: seals.Totals) -> None:
        for queue, total in start.items():
            before = self.total(queue)
            self._change(queue, total.live - before.live, total.live_sum - before.live_sum)

    def found(self, queue: int, count: int, hash_sum: int) -> None:
        """Take `count` messages off the unknown ones of a queue: they were retired."""
        self._change(queue, -count, -hash_sum)

    def _change(self, queue: int, count: int, hash_sum: int) -> None:
        if queue:
            pair = self.unknown.setdefault(queue, [0, 0])
            pair[0] += count
            pair[1] = (pair[1] + hash_sum) % HASH_MODULUS

    def total(self, queue: int) -> QueueTotals:
        """Return the totals of a queue, to this moment."""
        total = self.deleted.get(queue, self.end.get(queue, QueueTotals())).copy()
        total.add(self.here.get(queue, QueueTotals()))
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceRow:
    """Balance of one queue, a row of the table."""

    broker: str
    queue_number: int
    queue: str | None
    totals: QueueTotals
    live: int
    unknown: int
    sums_agree: bool
    state: str
    detail: str


def balance(
    broker: str,
    totals: BrokerTotals,
    live: Mapping[int, Sequence[int]],
    names: Mapping[int, str],
    *,
    holes: bool,
    known: bool,
) -> list[BalanceRow]:
    """The queues of a broker. `live`: by queue, number of open messages and sum of their hashes. `holes`: there are
    segments that could not be read. `known`: what the
    segments that could not be read have done is known."""
    rows = []
    queues = totals.end.keys() | totals.here.keys() | totals.deleted.keys() | live.keys() | totals.unknown.keys()
    for queue in sorted(queues - {0}):
        total = totals.total(queue)
        count, hash_sum = live.get(queue, (0, 0))
        unknown, unknown_sum = totals.unknown.get(queue, (0, 0))
        agree = (hash_sum + unknown_sum) % HASH_MODULUS == total.live_sum
        # A queue that was deleted in a segment that cannot be read is in no seal any more.
        stated = known and (not holes or queue in totals.end or queue in totals.here or queue in totals.deleted)
        state, detail = _judge(total, count, unknown, agree=agree, known=stated, unknown_sum=unknown_sum)
        rows.append(
            BalanceRow(
                broker=broker,
                queue_number=queue,
                queue=names.get(queue),
                totals=total,
                live=count,
                unknown=unknown,
                sums_agree=agree,
                state=state,
                detail=detail,
            )
        )
    return rows


def _judge(
    total: QueueTotals, live: int, unknown: int, *, agree: bool, known: bool, unknown_sum: int
) -> tuple[str, str]:
    if not known:
        return INCOMPLETE, "no seal says what happened in it, or in segments that cannot be read"
    if live + unknown != total.live:
        return (
            DIFFERS,
            f"{total.entered} entered and {total.retired} were retired, which leaves {total.live}; {live} are open"
            + (f" and {unknown} unknown" if unknown else ""),
        )
    if not agree:
        return DIFFERS, f"the {live} open messages are not those that entered and were not retired"
    if unknown or unknown_sum:
        which = "were posted in segments that cannot be read, and not retired since"
        if unknown < 0:
            which = "more were retired than posted in segments that cannot be read: they are open here"
        return INCOMPLETE, f"{abs(unknown)} messages {which}"
    return BALANCED, ""


def table(rows: Iterable[BalanceRow]) -> pa.Table:
    """Return the table as the audit keeps it."""
    return pa.Table.from_pylist(
        [
            {
                "broker": row.broker,
                "queue": row.queue,
                "queue_number": row.queue_number,
                "entered": row.totals.entered,
                "retired": row.totals.retired,
                "live": row.live,
                "live_by_seal": row.totals.live,
                "unknown": row.unknown,
                "sums_agree": row.sums_agree,
                **{kind.name.lower(): row.totals.counts.get(kind, 0) for kind in _KINDS},
                "state": row.state,
                "detail": row.detail,
            }
            for row in rows
        ],
        schema=SCHEMA,
    )


def live_by_broker(sums: Iterable[Sums]) -> dict[int, dict[int, list[int]]]:
    """Add up what buckets say of their open lives, by broker and queue."""
    found: dict[int, dict[int, list[int]]] = {}
    for part in sums:
        for key, (count, hash_sum) in part.items():
            broker, queue = map(int, key.split())
            pair = found.setdefault(broker, {}).setdefault(queue, [0, 0])
            pair[0] += count
            pair[1] = (pair[1] + hash_sum) % HASH_MODULUS
    return found
