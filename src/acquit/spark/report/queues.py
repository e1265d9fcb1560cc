"""The balance sheet and the charts: each broker with its queues, those with a fault before those with much traffic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acquit.spark.report.charts import Chart, charts
from acquit.spark.report.formats import duration_text, name_of, plural
from acquit.spark.report.said import BADNESS, MOODS, BrokerSection, Mood, QueueRow, QueueSection
from acquit.spark.report.series import Longs, Minutes, Series
from acquit.spark.report.tables import DEAD, ENTERED, RETIRED

Key: TypeAlias = tuple[str, str]
"""Broker and queue."""
Row: TypeAlias = dict[str, Any]

ROWS_MAX: Final = 1_000
"""Queues of one broker in its table."""
REASONS_MAX: Final = 5
"""Of dead letters, in one chart; what is left is summed."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What is known of queues."""

    minutes: Minutes
    balance: dict[Key, Row]
    """As `by_name` gives it."""
    dead_letters: pa.Table


def _together(sources: Sources, keys: Iterable[Key]) -> Row | None:
    """The sum of the balances of these queues."""
    rows = [{**row, "queue": "", "detail": ""} for key in keys if (row := sources.balance.get(key)) is not None]
    return by_name(rows).get((rows[0]["broker"] or "", "")) if rows else None


def by_name(rows: Iterable[Row]) -> dict[Key, Row]:
    """Balances by broker and queue. A queue that was deleted and made again is two, and one by its name: with the sums
    of both, and the worse of their states."""
    found: dict[Key, Row] = {}
    for row in rows:
        key = (row["broker"] or "", row["queue"] or "")
        before = found.get(key)
        if before is None:
            found[key] = row
            continue
        for name in ("entered", "retired", "live", "live_by_seal", *ENTERED, *RETIRED):
            both = (before[name], row[name])
            before[name] = None if None in both else sum(both)
        worse = max(before, row, key=lambda each: BADNESS[MOODS.get(each["state"], Mood.BAD)])
        before["state"] = worse["state"]
        before["detail"] = "; ".join(text for text in (before["detail"], row["detail"]) if text)
    return found


def broker_sections(keys: Iterable[Key], folders: Mapping[str, str], sources: Sources, top: int) -> list[BrokerSection]:
    """A section for each broker of these queues, and for each that has a folder. The first `top` queues of all have
    charts."""
    ordered = sorted(keys, key=lambda key: _weight(key, sources))
    by_broker: dict[str, list[Key]] = defaultdict(list)
    for key in ordered:
        by_broker[key[0]].append(key)
    for broker in folders:
        by_broker.setdefault(broker, [])
    anchors = {key: f"q{number}" for number, key in enumerate(ordered[:top], 1)}
    return [
        _broker_section(f"b{number}", broker, folders.get(broker, ""), its, anchors, sources)
        for number, (broker, its) in enumerate(by_broker.items(), 1)
    ]


def _weight(key: Key, sources: Sources) -> tuple[bool, int, str]:
    row = sources.balance.get(key)
    return (row is None or row["state"] != "differs", -sources.minutes.traffic.get(key, 0), key[1])


def _broker_section(
    anchor: str, broker: str, folder: str, keys: Sequence[Key], anchors: Mapping[Key, str], sources: Sources
) -> BrokerSection:
    """`anchors`: of all queues that have charts, whose ever they are."""
    rows: list[QueueRow] = []
    sections: list[QueueSection] = []
    for key in keys[: max(ROWS_MAX, len(anchors))]:
        series = sources.minutes.queue(*key, _live(sources, [key])) if key in anchors else None
        row = _row(key, anchors.get(key, ""), sources.balance.get(key), series)
        rows.append(row)
        if key in anchors:
            drawn = _charts(series, row.anchor, sources.dead_letters, broker, key[1])
            sections.append(QueueSection(row=row, charts=drawn, opened=len(anchors) <= 3 or not sections))
    # Where there is one queue, its charts are those of the broker.
    alone = len(keys) == len(sections) == 1
    whole = sources.minutes.broker(broker, _live(sources, keys))
    return BrokerSection(
        anchor=anchor,
        name=broker,
        folder=folder,
        charts=[] if alone else _charts(whole, anchor, sources.dead_letters, broker, None),
        account=_row((broker, ""), "", _together(sources, keys), None),
        rows=rows[:ROWS_MAX],
        rows_left_out=max(0, len(keys) - ROWS_MAX),
        sections=sections,
    )


def _live(sources: Sources, keys: Sequence[Key]) -> int | None:
    """How many are live in all of these; None where that is not known of one of them."""
    rows = [sources.balance.get(key) for key in keys]
    known = [row["live"] for row in rows if row is not None and row["state"] != "incomplete"]
    return None if len(known) < len(rows) or None in known else sum(known)


def _row(key: Key, anchor: str, row: Row | None, series: Series | None) -> QueueRow:
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


_BETWEEN: Final = "\0"
"""In a text of cause and condition."""
_WITHOUT_ERROR: Final = {
    "": "no reason on record",
    "REJECTED": "rejected without an error",
    "RELEASED": "released too often",
    "MODIFIED": "too many attempts, the last one failed",
}
"""By cause."""


def _reason(cause: str, condition: str) -> str:
    """Why messages were dead-lettered. What was not rejected came back as often as its address allows."""
    if not condition and cause in _WITHOUT_ERROR:
        return _WITHOUT_ERROR[cause]
    if cause.upper() in ("", "REJECTED"):
        return condition
    return f"too many attempts, the last one: {condition or cause.lower().replace('_', ' ')}"


def _reasons(dead: pa.Table, series: Series) -> list[tuple[str, Longs]]:
    """Dead letters by reason and interval: the most frequent, and the others in one."""
    if not dead.num_rows:
        return []
    cause, condition = (pc.fill_null(dead[name], "") for name in ("cause", "condition"))
    encoded = pc.dictionary_encode(pc.binary_join_element_wise(cause, condition, _BETWEEN)).combine_chunks()
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
    labels = [_reason(*names[at].split(_BETWEEN, 1)) for at in order[:kept]]
    if len(names) > kept:
        labels.append(plural(len(names) - kept, "other reason", "other reasons"))
    return list(zip(labels, table, strict=False))
