"""What the page says, before anyone says how it looks: tables of an audit in, plain values for the template out.

A page answers in the order in which it is asked: does it balance; if not, where; and what went on. So the verdict comes
first, then what contradicts it (queues that do not balance, anomalies, reconciliations that differ), and of queues
those with a fault stand before those with much traffic. Whatever is bounded says what it left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from acquit.errors import ConfigurationError
from acquit.spark.audit.reconciled import Reconciliation
from acquit.spark.report.choice import Choice
from acquit.spark.report.faults import faults
from acquit.spark.report.formats import count_text, plural, time_text
from acquit.spark.report.queues import Sources, broker_sections, by_name
from acquit.spark.report.said import BADNESS, MOODS, AnomalyKind, Coverage, Mood, Page, QueueRow, Tile
from acquit.spark.report.series import Minutes, drawable
from acquit.spark.report.tables import DEAD, RETIRED, AuditTables, rows_of

Row = dict[str, Any]


def page_of(tables: AuditTables, choice: Choice, reconciliations: Sequence[Reconciliation] = ()) -> Page:
    """The page of these tables. Raises ConfigurationError where the choice leaves nothing: that would look well."""
    chosen = choice.of(tables.minutes)
    drawn = drawable(chosen)
    minutes = Minutes(drawn)
    balance = by_name(rows_of(choice.of(tables.balance)))
    coverage = [_coverage(row) for row in rows_of(tables.coverage) if choice.takes_broker(row["broker"])]
    folders = {covered.broker: covered.folder for covered in coverage}
    anomalies = faults(choice.of(tables.anomalies), choice.of(tables.histories))
    reconciled = [found for found in reconciliations if choice.takes(found.broker, found.queue)]
    keys = sorted({*balance, *minutes.queues})
    if not choice.all and not (keys or anomalies or reconciled):
        raise ConfigurationError(f"nothing of the audit is chosen: it has nothing of {choice.text}")
    brokers = broker_sections(keys, folders, Sources(minutes, balance, choice.of(tables.dead_letters)), choice.top)
    rows = [row for broker in brokers for row in broker.rows]
    mood, verdict, because = _verdict(list(balance.values()), anomalies, reconciled)
    return Page(
        title=choice.title,
        made=f"{choice.made_at:%Y-%m-%d %H:%M} UTC",
        span=_span(tables.coverage, choice),
        mood=mood,
        verdict=verdict,
        because=because,
        tiles=_tiles(list(balance.values()), rows, anomalies),
        brokers=brokers,
        anomalies=anomalies,
        reconciliations=reconciled,
        coverage=coverage,
        left_out=_left_out(choice, chosen.num_rows - drawn.num_rows),
    )


def _left_out(choice: Choice, undrawn: int) -> str:
    said = [] if choice.all else [f"Only {choice.text}."]
    if undrawn:
        said.append(f"{plural(undrawn, 'minute is', 'minutes are')} too far off to be drawn.")
    return " ".join(said)


def _coverage(row: Row) -> Coverage:
    return Coverage(
        broker=row["broker"] or "",
        folder=row["folder"] or "",
        segments=f"{row['first_segment']}–{row['last_segment']}",
        events=row["events"] or 0,
        first=time_text(row["first_time"]),
        last=time_text(row["last_time"]),
        missing=_numbers(row["missing"] or []),
        deleted=_numbers(row["deleted"] or []),
        unclean_stops=row["unclean_stops"] or 0,
    )


def _numbers(numbers: Sequence[int]) -> str:
    """Sorted numbers as ranges, at most eight of them."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    shown = ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in ranges[:8])
    return f"{shown} and {len(ranges) - 8} more ranges" if len(ranges) > 8 else shown


def _span(coverage: pa.Table, choice: Choice) -> str:
    rows = [row for row in rows_of(coverage) if choice.takes_broker(row["broker"])]
    first = min((row["first_time"] for row in rows if row["first_time"] is not None), default=None)
    last = max((row["last_time"] for row in rows if row["last_time"] is not None), default=None)
    return "" if first is None or last is None else f"{time_text(first)} to {time_text(last)} UTC"


def _verdict(
    balance: Sequence[Row], anomalies: Sequence[AnomalyKind], reconciled: Sequence[Reconciliation]
) -> tuple[Mood, str, list[str]]:
    states = Counter(row["state"] for row in balance)
    unmatched = [found for found in reconciled if not (found.equal or found.differs)]
    bad = [kind for kind in anomalies if kind.mood is Mood.BAD]
    differing = sum(count for state, count in states.items() if MOODS.get(state, Mood.BAD) is Mood.BAD)
    because = []
    if differing:
        because.append(f"{plural(differing, 'queue does', 'queues do')} not balance")
    because += [f"{kind.kind}: {count_text(kind.count)}" for kind in bad]
    because += [f"{found.place} differs from the ledger of {found.queue}" for found in reconciled if found.differs]
    if because:
        return Mood.BAD, "Not everything is accounted for", because
    if not balance:
        return Mood.NOTE, "Nothing to account for", ["the audit has no queue"]
    notes = [f"{kind.kind}: {count_text(kind.count)}" for kind in anomalies]
    incomplete = [
        f"{found.place} and the ledger of {found.queue} cannot be matched from what is left" for found in unmatched
    ]
    if states["incomplete"]:
        incomplete.append(f"{plural(states['incomplete'], 'queue', 'queues')} cannot be judged from what is left")
    if incomplete:
        return Mood.NOTE, "Accounted for, as far as the journal goes", [*incomplete, *notes]
    return Mood.GOOD, "Every message is accounted for", notes


def _tiles(balance: Sequence[Row], rows: Sequence[QueueRow], anomalies: Sequence[AnomalyKind]) -> list[Tile]:
    total = {name: sum(row[name] or 0 for row in balance) for name in ("entered", "retired", "live", *RETIRED)}
    processed = total["accepted"] + total["consumed"]
    dead = sum(total[name] for name in DEAD)
    faults = sum(kind.count for kind in anomalies if kind.mood is Mood.BAD)
    balanced = sum(row["state"] == "balanced" for row in balance)
    worst = max((MOODS.get(row["state"], Mood.BAD) for row in balance), key=BADNESS.__getitem__, default=None)
    return [
        Tile("Entered", count_text(total["entered"]), f"{plural(len(balance), 'queue', 'queues')}"),
        Tile("Processed", count_text(processed), "accepted or consumed"),
        Tile("Dead letters", count_text(dead), "dead-lettered or dropped"),
        Tile("Live", count_text(total["live"]), "at the end"),
        Tile(
            "Balanced",
            f"{count_text(balanced)} of {count_text(len(balance))}",
            "queues",
            worst,
        ),
        Tile("Anomalies", count_text(faults), "not counting notes", Mood.BAD if faults else Mood.GOOD),
    ]
