"""What the page says, before anyone says how it looks: tables of an audit in, plain values for the template out.

A page answers in the order in which it is asked: does it balance; if not, where; and what went on. So the verdict comes
first, then what contradicts it (queues that do not balance, anomalies, reconciliations that differ), and of queues
those with a fault stand before those with much traffic. Whatever is bounded says what it left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acquit.errors import ConfigurationError
from acquit.spark.audit.anomalies import NOTES, Anomaly
from acquit.spark.audit.reconciled import Reconciliation
from acquit.spark.report.charts import Chart, charts
from acquit.spark.report.formats import count_text, duration_text, time_text
from acquit.spark.report.series import Longs, Minutes, Series
from acquit.spark.report.tables import DEAD, ENTERED, RETIRED, AuditTables

Row = dict[str, Any]

ROWS_MAX: Final = 1_000
"""Queues of one broker in its table."""
ANOMALIES_MAX: Final = 50
"""Of one kind that are shown."""
REASONS_MAX: Final = 5
"""Of dead letters, in one chart; what is left is summed."""


class Mood(StrEnum):
    """How something is, for its colour and its sign; the text beside it says it, too."""

    GOOD = "good"
    NOTE = "note"
    BAD = "bad"


_BADNESS: Final = {mood: badness for badness, mood in enumerate(Mood)}
MOODS: Final = {"balanced": Mood.GOOD, "incomplete": Mood.NOTE, "differs": Mood.BAD}
"""Of a balance, by its state."""

MEANINGS: Final[Mapping[str, str]] = {
    Anomaly.RETIRED_WITHOUT_POSTING: "left a queue that it never entered, as far as the journal goes",
    Anomaly.ACQUIRED_WITHOUT_POSTING: "handed out of a queue that it never entered, as far as the journal goes",
    Anomaly.RETIRED_TWICE: "left its queue more than once",
    Anomaly.POSTED_TWICE: "one number was given to two postings",
    Anomaly.ACQUIRED_AFTER_RETIREMENT: "something happened to it after it had left its queue",
    Anomaly.BEFORE_POSTING: "something happened to it before it was posted",
    Anomaly.ALTERED: "events of one message disagree on its size or checksum",
    Anomaly.UNBALANCED: "what a segment's seal says is not what its events add up to",
    Anomaly.GAP: "segments are missing, and nothing says that they were deleted",
    Anomaly.BACKWARD_CLOCK: "the broker's clock went back: durations across that moment are not to be trusted",
    Anomaly.DELETED: "segments were deleted by rule, and on record, before they were audited",
    Anomaly.LOWER_BOUNDS: "after an unclean stop: some attempts may not have been recorded",
}


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure that stands for itself."""

    label: str
    value: str
    note: str = ""
    mood: Mood | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A queue in the balance sheet."""

    broker: str
    queue: str
    anchor: str
    """Of its section; "" where it has none."""
    mood: Mood
    state: str
    detail: str
    entered: int | None
    retired: int | None
    live: int | None
    live_by_seal: int | None
    entered_by: tuple[tuple[str, int], ...]
    retired_by: tuple[tuple[str, int], ...]
    dead: int
    latency: str
    """p50 and p99."""

    @property
    def left_or_live(self) -> int | None:
        """The other side of the account; None where a part of it is not known."""
        return None if self.retired is None or self.live is None else self.retired + self.live

    @property
    def off(self) -> int:
        """By how much the sides differ; 0 where that cannot be said."""
        other = self.left_or_live
        return 0 if self.entered is None or other is None else self.entered - other


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSection:
    """A queue with its charts."""

    row: QueueRow
    charts: list[Chart]
    opened: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSection:
    """A broker: its charts, all its queues as rows, and some of them as sections."""

    anchor: str
    name: str
    folder: str
    charts: list[Chart]
    account: QueueRow
    """Of all its queues."""
    rows: list[QueueRow]
    rows_left_out: int
    sections: list[QueueSection]


@dataclass(frozen=True, slots=True)
class Step:
    """An event of a message's history."""

    time: str
    kind: str
    attempt: str
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Something that ought not to be."""

    broker: str
    where: str
    detail: str
    time: str
    steps: list[Step]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyKind:
    """All of one kind."""

    kind: str
    mood: Mood
    meaning: str
    count: int
    shown: list[Instance]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What of one broker's journal the audit has seen."""

    broker: str
    folder: str
    segments: str
    events: int
    first: str
    last: str
    missing: str
    deleted: str
    unclean_stops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All that the template needs."""

    title: str
    made: str
    span: str
    mood: Mood
    verdict: str
    because: list[str]
    tiles: list[Tile]
    brokers: list[BrokerSection]
    anomalies: list[AnomalyKind]
    reconciliations: list[Reconciliation]
    coverage: list[Coverage]
    left_out: str
    """What was filtered away; "" for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What of the audit the page is about."""

    title: str = "Audit"
    brokers: Sequence[str] = ()
    """Beginnings of uuids; none: all."""
    queues: Sequence[str] = ()
    """Patterns with ``*`` and ``?``; none: all."""
    top: int = 12
    """How many queues have charts."""
    made_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def takes(self, broker: str | None, queue: str | None) -> bool:
        """Is this queue meant?"""
        return self.takes_broker(broker) and (
            not self.queues or any(fnmatchcase(queue or "", pattern) for pattern in self.queues)
        )

    def takes_broker(self, broker: str | None) -> bool:
        """Is this broker meant?"""
        return not self.brokers or any((broker or "").startswith(start) for start in self.brokers)


def page_of(tables: AuditTables, choice: Choice, reconciliations: Sequence[Reconciliation] = ()) -> Page:
    """The page of these tables. Raises ConfigurationError where the choice leaves nothing: that would look well."""
    minutes = Minutes(_chosen(tables.minutes, choice))
    balance = _by_name(_chosen(tables.balance, choice).to_pylist())
    coverage = [_coverage(row) for row in tables.coverage.to_pylist() if choice.takes_broker(row["broker"])]
    folders = {covered.broker: covered.folder for covered in coverage}
    anomalies = _anomalies(_chosen(tables.anomalies, choice), _chosen(tables.histories, choice))
    reconciled = [found for found in reconciliations if choice.takes(found.broker, found.queue)]
    keys = sorted({*balance, *minutes.queues})
    if (choice.brokers or choice.queues) and not (keys or anomalies or reconciled):
        raise ConfigurationError(f"nothing of the audit is chosen: it has nothing of {_chosen_text(choice)}")
    brokers = _brokers(keys, folders, _Sources(minutes, balance, _chosen(tables.dead_letters, choice)), choice)
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
        left_out=_left_out(choice),
    )


def name_of(column: str) -> str:
    """A column of counts, or a kind of event, as people call it."""
    return column.lower().replace("dead_lettered", "dead-lettered").replace("_", " ")


@dataclass(frozen=True, slots=True)
class _Sources:
    minutes: Minutes
    balance: dict[tuple[str, str], Row]
    dead_letters: pa.Table


def _chosen(table: pa.Table, choice: Choice) -> pa.Table:
    if not (choice.brokers or choice.queues):
        return table
    keys = table.select(["broker", "queue"]).group_by(["broker", "queue"]).aggregate([])
    wanted = [row for row in keys.to_pylist() if choice.takes(row["broker"], row["queue"])]
    mask = pa.chunked_array([pa.repeat(False, table.num_rows)])
    for row in wanted:
        same = [
            pc.fill_null(pc.equal(table[name], row[name]), False) if row[name] is not None else pc.is_null(table[name])
            for name in ("broker", "queue")
        ]
        mask = pc.or_(mask, pc.and_(*same))
    return table.filter(mask)


def _together(sources: _Sources, keys: Iterable[tuple[str, str]]) -> Row | None:
    """The sum of the balances of these queues."""
    rows = [{**row, "queue": "", "detail": ""} for key in keys if (row := sources.balance.get(key)) is not None]
    return _by_name(rows).get((rows[0]["broker"] or "", "")) if rows else None


def _by_name(rows: Iterable[Row]) -> dict[tuple[str, str], Row]:
    """Balances by broker and queue. A queue that was deleted and made again is two, and one by its name: with the sums
    of both, and the worse of their states."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row["broker"] or "", row["queue"] or "")
        before = found.get(key)
        if before is None:
            found[key] = row
            continue
        for name in ("entered", "retired", "live", "live_by_seal", *ENTERED, *RETIRED):
            both = (before[name], row[name])
            before[name] = None if None in both else sum(both)
        worse = max(before, row, key=lambda each: _BADNESS[MOODS.get(each["state"], Mood.BAD)])
        before["state"] = worse["state"]
        before["detail"] = "; ".join(text for text in (before["detail"], row["detail"]) if text)
    return found


def _brokers(
    keys: Iterable[tuple[str, str]], folders: dict[str, str], sources: _Sources, choice: Choice
) -> list[BrokerSection]:
    traffic = sources.minutes.traffic

    def weight(key: tuple[str, str]) -> tuple[bool, int, str]:
        row = sources.balance.get(key)
        moved = traffic.get(key, 0)
        return (row is None or row["state"] != "differs", -moved, key[1])

    by_broker: dict[str, list[tuple[str, str]]] = defaultdict(list)
    ordered = sorted(keys, key=weight)
    for key in ordered:
        by_broker[key[0]].append(key)
    for broker in folders:
        by_broker.setdefault(broker, [])
    with_charts = {key: f"q{number}" for number, key in enumerate(ordered[: choice.top], 1)}
    found = []
    for number, (broker, its) in enumerate(by_broker.items(), 1):
        anchor = f"b{number}"
        whole = sources.minutes.broker(broker, _live(sources, its))
        rows: list[QueueRow] = []
        sections: list[QueueSection] = []
        for key in its[: max(ROWS_MAX, len(with_charts))]:
            series = None
            if key in with_charts:
                series = sources.minutes.queue(*key, _live(sources, [key]))
            row = _row(key, with_charts.get(key, ""), sources.balance.get(key), series)
            rows.append(row)
            if key in with_charts:
                drawn = _charts(series, row.anchor, sources.dead_letters, broker, key[1])
                sections.append(QueueSection(row=row, charts=drawn, opened=len(with_charts) <= 3 or not sections))
        # Where there is one queue, its charts are those of the broker.
        alone = len(its) == len(sections) == 1
        found.append(
            BrokerSection(
                anchor=anchor,
                name=broker,
                folder=folders.get(broker, ""),
                charts=[] if alone else _charts(whole, anchor, sources.dead_letters, broker, None),
                account=_row((broker, ""), "", _together(sources, its), None),
                rows=rows[:ROWS_MAX],
                rows_left_out=max(0, len(its) - ROWS_MAX),
                sections=sections,
            )
        )
    return found


def _live(sources: _Sources, keys: Sequence[tuple[str, str]]) -> int | None:
    """How many are live in all of these; None where that is not known of one of them."""
    rows = [sources.balance.get(key) for key in keys]
    known = [row["live"] for row in rows if row is not None and row["state"] != "incomplete"]
    return None if len(known) < len(rows) or None in known else sum(known)


def _row(key: tuple[str, str], anchor: str, row: Row | None, series: Series | None) -> QueueRow:
    latency = ""
    if series is not None and series.latency.count:
        latency = f"{duration_text(series.latency.overall[0])} / {duration_text(series.latency.overall[-1])}"
    if row is None:
        row = {"state": "unknown", "detail": "the audit has minutes of it and no balance"}
    return QueueRow(
        broker=key[0],
        queue=key[1] or "(no name on record)",
        anchor=anchor,
        mood=MOODS.get(row["state"], Mood.BAD),
        state=row["state"] or "unknown",
        detail=row["detail"] or "",
        entered=row.get("entered"),
        retired=row.get("retired"),
        live=row.get("live"),
        live_by_seal=row.get("live_by_seal"),
        entered_by=_parts(row, ENTERED),
        retired_by=_parts(row, RETIRED),
        dead=sum(row.get(name) or 0 for name in DEAD),
        latency=latency,
    )


def _parts(row: Row, names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple((name_of(name), row[name]) for name in names if row.get(name))


def _charts(series: Series | None, anchor: str, dead: pa.Table, broker: str, queue: str | None) -> list[Chart]:
    if series is None:
        return []
    mine = pc.equal(dead["broker"], broker)
    if queue is not None:
        mine = pc.and_(mine, pc.equal(dead["queue"], queue))
    return charts(series, anchor, _reasons(dead.filter(mine), series))


def _reasons(dead: pa.Table, series: Series) -> list[tuple[str, Longs]]:
    """Dead letters by reason and interval: the most frequent, and the others in one."""
    if not dead.num_rows:
        return []
    cause, condition = (pc.fill_null(dead[name], "") for name in ("cause", "condition"))
    text = pc.if_else(pc.equal(condition, ""), cause, condition)
    encoded = pc.dictionary_encode(text).combine_chunks()
    codes, names = np.asarray(encoded.indices), encoded.dictionary.to_pylist()
    count = np.asarray(pc.fill_null(dead["count"], 0), np.int64)
    place = series.axis.place(np.asarray(dead["minute"].cast(pa.int64()), np.int64))
    place = np.clip(place, 0, series.axis.count - 1)
    total = np.bincount(codes, count, len(names))
    order = np.argsort(-total, kind="stable")
    rank = np.empty(len(names), np.int64)
    rank[order] = np.arange(len(names))
    kept = min(len(names), REASONS_MAX)
    table = np.zeros((kept + 1, series.axis.count), np.int64)
    np.add.at(table, (np.minimum(rank[codes], kept), place), count)
    labels = [names[at] or "no reason on record" for at in order[:kept]]
    if len(names) > kept:
        labels.append(_plural(len(names) - kept, "other reason", "other reasons"))
    return list(zip(labels, table, strict=False))


def _anomalies(anomalies: pa.Table, histories: pa.Table) -> list[AnomalyKind]:
    counts = Counter({row["kind"]: row["kind_count"] for row in _counted(anomalies, "kind")})
    steps: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in histories.to_pylist():
        steps[row["broker"], row["queue"], row["sequence"]].append(row)
    found = []
    for kind, count in counts.items():
        mood, meaning = Mood.NOTE if kind in NOTES else Mood.BAD, MEANINGS.get(kind, "")
        rows = anomalies.filter(pc.equal(anomalies["kind"], kind)).slice(0, ANOMALIES_MAX).to_pylist()
        shown = [_anomaly(row, steps.get((row["broker"], row["queue"], row["sequence"]), [])) for row in rows]
        found.append(AnomalyKind(kind=kind, mood=mood, meaning=meaning, count=count, shown=shown))
    return sorted(found, key=lambda each: (each.mood is not Mood.BAD, each.kind))


def _counted(table: pa.Table, column: str) -> list[Row]:
    rows: list[Row] = table.group_by(column).aggregate([(column, "count")]).to_pylist()
    return rows


def _anomaly(row: Row, steps: list[Row]) -> Instance:
    where = [f"queue {row['queue']}" if row["queue"] else "", _numbered("message", row["sequence"])]
    where.append(_numbered("segment", row["segment"]))
    return Instance(
        broker=row["broker"] or "",
        where=", ".join(part for part in where if part),
        detail=row["detail"] or "",
        time=time_text(_us(row["time"]), exact=True) if row["time"] else "",
        steps=[_step(step) for step in sorted(steps, key=lambda step: (step["segment"] or 0, step["index"] or 0))],
    )


def _step(row: Row) -> Step:
    reason = ": ".join(part for part in (row["cause"], row["condition"]) if part)
    attempt = "" if row["attempt"] is None else str(row["attempt"])
    return Step(
        time_text(_us(row["time"]), exact=True), name_of(row["kind"] or ""), attempt, row["actor"] or "", reason
    )


def _numbered(what: str, number: int | None) -> str:
    return "" if number is None else f"{what} {number}"


def _us(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1_000_000)


def _coverage(row: Row) -> Coverage:
    return Coverage(
        broker=row["broker"] or "",
        folder=row["folder"] or "",
        segments=f"{row['first_segment']}–{row['last_segment']}",
        events=row["events"] or 0,
        first=time_text(_us(row["first_time"])),
        last=time_text(_us(row["last_time"])),
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
    rows = [row for row in coverage.to_pylist() if choice.takes_broker(row["broker"])]
    first = min((row["first_time"] for row in rows if row["first_time"]), default=None)
    last = max((row["last_time"] for row in rows if row["last_time"]), default=None)
    return f"{time_text(_us(first))} to {time_text(_us(last))} UTC" if first and last else ""


def _verdict(
    balance: Sequence[Row], anomalies: Sequence[AnomalyKind], reconciled: Sequence[Reconciliation]
) -> tuple[Mood, str, list[str]]:
    states = Counter(row["state"] for row in balance)
    unequal = [found for found in reconciled if not found.equal]
    bad = [kind for kind in anomalies if kind.mood is Mood.BAD]
    differing = sum(count for state, count in states.items() if MOODS.get(state, Mood.BAD) is Mood.BAD)
    because = []
    if differing:
        because.append(f"{_plural(differing, 'queue does', 'queues do')} not balance")
    because += [f"{kind.kind}: {count_text(kind.count)}" for kind in bad]
    because += [f"{found.place} differs from the ledger of {found.queue}" for found in unequal]
    if because:
        return Mood.BAD, "Not everything is accounted for", because
    if not balance:
        return Mood.NOTE, "Nothing to account for", ["the audit has no queue"]
    notes = [f"{kind.kind}: {count_text(kind.count)}" for kind in anomalies]
    if states["incomplete"]:
        incomplete = f"{_plural(states['incomplete'], 'queue', 'queues')} cannot be judged from what is left"
        return Mood.NOTE, "Accounted for, as far as the journal goes", [incomplete, *notes]
    return Mood.GOOD, "Every message is accounted for", notes


def _tiles(balance: Sequence[Row], rows: Sequence[QueueRow], anomalies: Sequence[AnomalyKind]) -> list[Tile]:
    total = {name: sum(row[name] or 0 for row in balance) for name in ("entered", "retired", "live", *RETIRED)}
    processed = total["accepted"] + total["consumed"]
    dead = sum(total[name] for name in DEAD)
    faults = sum(kind.count for kind in anomalies if kind.mood is Mood.BAD)
    balanced = sum(row["state"] == "balanced" for row in balance)
    worst = max((MOODS.get(row["state"], Mood.BAD) for row in balance), key=_BADNESS.__getitem__, default=None)
    return [
        Tile("Entered", count_text(total["entered"]), f"{_plural(len(balance), 'queue', 'queues')}"),
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


def _plural(count: int, one: str, many: str) -> str:
    return f"{count_text(count)} {one if count == 1 else many}"


def _left_out(choice: Choice) -> str:
    return f"Only {_chosen_text(choice)}." if choice.brokers or choice.queues else ""


def _chosen_text(choice: Choice) -> str:
    parts = [f"brokers {', '.join(choice.brokers)}"] if choice.brokers else []
    parts += [f"queues {', '.join(choice.queues)}"] if choice.queues else []
    return " and ".join(parts)
