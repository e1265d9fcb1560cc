"""Content of the page, before anyone says how it looks: tables of an audit in, plain values for the template out.

A page answers in the order in which it is asked: does it balance; if not, where; and what went on. So the verdict comes
first, then what contradicts it (queues that do not balance, anomalies, reconciliations that differ), and of queues
those with a fault stand before those with much traffic. Whatever is bounded says what it left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from acquit.errors import ConfigurationError
from acquit.spark.audit.reconciled import Reconciliation
from acquit.spark.report.choice import Choice
from acquit.spark.report.faults import faults
from acquit.spark.report.formats import count_text, plural, time_text
from acquit.spark.report.queues import Sources, broker_sections
from acquit.spark.report.said import AnomalyKind, Mood, Page, Tile, mood_of
from acquit.spark.report.series import Minutes
from acquit.spark.report.tables import DEAD, AuditTables, Row, rows_of


def page_of(tables: AuditTables, choice: Choice, reconciliations: Sequence[Reconciliation] = ()) -> Page:
    """Return the page of these tables. Raises ConfigurationError where the choice leaves nothing: that would look
    well."""
    chosen = {name: choice.of(table) for name, table in tables.items()}
    minutes = Minutes(chosen["minutes"])
    sources = Sources.of(minutes, chosen["balance"], chosen["dead_letters"])
    anomalies = faults(chosen["anomalies"], chosen["histories"])
    coverage = rows_of(chosen["coverage"])
    ends = pc.min(chosen["coverage"]["first_time"]), pc.max(chosen["coverage"]["last_time"])
    first, last = (end.cast(pa.int64()).as_py() for end in ends)
    reconciled = [found for found in reconciliations if choice.takes(broker=found.broker or "", queue=found.queue)]
    if choice.text and not (sources.keys or anomalies or reconciled):
        raise ConfigurationError(f"nothing of the audit is chosen: it has nothing of {choice.text}")
    balance = [row for key, row in sources.balance.items() if len(key) > 1]
    mood, verdict, because = _verdict(balance, anomalies, reconciled)
    left_out = [f"Only {choice.text}."] if choice.text else []
    if minutes.left_out:
        left_out.append(f"{plural(minutes.left_out, 'minute is', 'minutes are')} too far off to be drawn.")
    return Page(
        title=choice.title,
        made=f"{choice.made_at:%Y-%m-%d %H:%M} UTC",
        span="" if None in (first, last) else f"{time_text(first)} to {time_text(last)} UTC",
        mood=mood,
        verdict=verdict,
        because=because,
        tiles=_tiles(balance, anomalies),
        brokers=broker_sections({row["broker"]: row["folder"] or "" for row in coverage}, sources, choice.top),
        anomalies=anomalies,
        reconciliations=reconciled,
        coverage=coverage,
        left_out=" ".join(left_out),
    )


def _verdict(
    balance: Sequence[Row], anomalies: Sequence[AnomalyKind], reconciled: Sequence[Reconciliation]
) -> tuple[Mood, str, list[str]]:
    states = Counter(map(mood_of, balance))
    kinds = {
        mood: [f"{kind.kind}: {count_text(kind.count)}" for kind in anomalies if kind.mood is mood] for mood in Mood
    }
    bad = [f"{plural(states[Mood.BAD], 'queue does', 'queues do')} not balance"] if states[Mood.BAD] else []
    bad += kinds[Mood.BAD]
    bad += [f"{found.place} differs from the ledger of {found.queue}" for found in reconciled if found.differs]
    if bad:
        return Mood.BAD, "Not everything is accounted for", bad
    if not balance:
        return Mood.NOTE, "Nothing to account for", ["the audit has no queue"]
    doubts = [
        f"{found.place} and the ledger of {found.queue} cannot be matched from what is left"
        for found in reconciled
        if mood_of(found) is Mood.NOTE
    ]
    if states[Mood.NOTE]:
        doubts.append(f"{plural(states[Mood.NOTE], 'queue', 'queues')} cannot be judged from what is left")
    if doubts:
        return Mood.NOTE, "Accounted for, as far as the journal goes", doubts + kinds[Mood.NOTE]
    return Mood.GOOD, "Every message is accounted for", kinds[Mood.NOTE]


def _tiles(balance: Sequence[Row], anomalies: Sequence[AnomalyKind]) -> list[Tile]:
    def total(*names: str) -> str:
        return count_text(sum(row[name] or 0 for row in balance for name in names))

    faulty = sum(kind.count for kind in anomalies if kind.mood is Mood.BAD)
    balanced = sum(row["state"] == "balanced" for row in balance)
    worst = max(map(mood_of, balance), default=None)
    return [
        Tile("Entered", total("entered"), plural(len(balance), "queue", "queues")),
        Tile("Processed", total("accepted", "consumed"), "accepted or consumed"),
        Tile("Dead letters", total(*DEAD), "dead-lettered or dropped"),
        Tile("Live", total("live"), "at the end"),
        Tile("Balanced", f"{count_text(balanced)} of {count_text(len(balance))}", "queues", worst),
        Tile("Anomalies", count_text(faulty), "not counting notes", Mood.BAD if faulty else Mood.GOOD),
    ]
