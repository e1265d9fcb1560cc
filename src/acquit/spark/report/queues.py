"""The balance sheet and the charts: each broker with its queues, those with a fault before those with much traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acquit.spark.report.charts import charts
from acquit.spark.report.formats import duration_text, plural
from acquit.spark.report.said import BrokerSection, mood_of
from acquit.spark.report.series import Axis, Minutes
from acquit.spark.report.tables import DEAD, ENTERED, RETIRED, Key, Row

ROWS_MAX: Final = 1_000
"""Queues of one broker in its table."""
REASONS_MAX: Final = 5
"""Reasons of dead letters in one chart; what is left is summed."""
_COUNTS: Final = ("entered", "retired", "live", "live_by_seal", *ENTERED, *RETIRED)
_UNKNOWN: Final[Row] = {
    **dict.fromkeys(_COUNTS),
    "state": "unknown",
    "detail": "the audit has minutes of it and no balance",
}


@dataclass(frozen=True, slots=True)
class Sources:
    """All that is known of queues."""

    minutes: Minutes
    balance: Mapping[tuple[str, ...], Row]
    """Balances by broker and queue, and by broker."""
    dead_letters: pd.DataFrame

    @classmethod
    def of(cls, minutes: Minutes, balance: pa.Table, dead_letters: pa.Table) -> Sources:
        """Return those of the tables."""
        names = [pc.fill_null(dead_letters[name], "").to_pylist() for name in ("cause", "condition")]
        letters = pd.DataFrame(
            {
                **{name: dead_letters[name].to_pandas() for name in ("broker", "queue", "count")},
                "minute": dead_letters["minute"].cast(pa.int64()).to_pandas(),
                "reason": list(map(_reason, *names)),
            }
        )
        return cls(minutes, {**_summed(balance, "broker", "queue"), **_summed(balance, "broker")}, letters)

    @property
    def keys(self) -> list[Key]:
        """The queues that there are."""
        return sorted({*self.minutes.traffic, *((key[0], key[1]) for key in self.balance if len(key) > 1)})


def _summed(balance: pa.Table, *by: str) -> dict[tuple[str, ...], Row]:
    """Return balances by broker and queue, or by broker. A queue that was deleted and made again is two, and one by its
    name: with the sums of both, unknown where one is, and the worse of their states."""
    known = pc.ScalarAggregateOptions(skip_nulls=False)
    wanted = [*((name, "sum", known) for name in _COUNTS), ("state", "list"), ("detail", "list")]
    found = {}
    for row in balance.group_by(by, use_threads=False).aggregate(wanted).to_pylist():
        row = {name.removesuffix("_sum").removesuffix("_list"): value for name, value in row.items()}
        row["state"] = max(row["state"], key=lambda state: mood_of({"state": state}))
        row["detail"] = "; ".join(filter(None, row["detail"])) if "queue" in by else ""
        found[tuple(row[name] for name in by)] = row
    return found


def broker_sections(folders: Mapping[str, str], sources: Sources, top: int) -> list[BrokerSection]:
    """Return a section for each broker of these queues, and for each that has a folder. The first `top` queues of all
    have charts."""

    def weight(key: Key) -> tuple[bool, int, str]:
        return (sources.balance.get(key, _UNKNOWN)["state"] != "differs", -sources.minutes.traffic.get(key, 0), key[1])

    ordered = sorted(sources.keys, key=weight)
    anchors = {key: f"q{number}" for number, key in enumerate(ordered[:top], 1)}
    sections = []
    for number, broker in enumerate(dict.fromkeys([*(broker for broker, _ in ordered), *folders]), 1):
        keys = [key for key in ordered if key[0] == broker]
        rows = [
            _row(sources, key, [key], anchors.get(key, ""), drawn=key in anchors)
            | {"queue": key[1] or "(no name on record)", "opened": len(anchors) <= 3 or not at}
            for at, key in enumerate(keys[: max(ROWS_MAX, len(anchors))])
        ]
        # Where there is one queue, its charts are those of the broker.
        alone = len(keys) == 1 and keys[0] in anchors
        account = _row(sources, (broker,), keys, f"b{number}", drawn=not alone)
        charted = [row for row in rows if row["anchor"]]
        left_out = max(0, len(keys) - ROWS_MAX)
        sections.append(BrokerSection(broker, folders.get(broker, ""), account, rows[:ROWS_MAX], left_out, charted))
    return sections


def _row(sources: Sources, name: tuple[str, ...], keys: Sequence[Key], anchor: str, *, drawn: bool) -> Row:
    """Return the balance of a queue or, by its name, of a broker that has these queues; with charts where `drawn`."""
    row = sources.balance.get(name, _UNKNOWN)
    other = None if row["retired"] is None or row["live"] is None else row["retired"] + row["live"]
    series = sources.minutes.series(name, _live(sources, keys)) if drawn else None
    return {
        **row,
        "anchor": anchor,
        "state": row["state"] or "unknown",
        "mood": mood_of(row),
        "left_or_live": other,
        "off": 0 if row["entered"] is None or other is None else row["entered"] - other,
        "dead": sum(row[kind] or 0 for kind in DEAD),
        "latency": " / ".join(map(duration_text, series.latency.overall[::2]))
        if series and series.latency.count
        else "",
        "charts": charts(series, _reasons(sources.dead_letters, name, series.axis)) if series else [],
    }


def _live(sources: Sources, keys: Sequence[Key]) -> int | None:
    """Return how many are live in all of these; None where that is not known of one of them."""
    rows = [sources.balance.get(key, _UNKNOWN) for key in keys]
    known = [row["live"] for row in rows if row["state"] != "incomplete"]
    return None if len(known) < len(rows) or None in known else sum(known)


_WITHOUT_ERROR: Final = {
    "": "no reason on record",
    "REJECTED": "rejected without an error",
    "RELEASED": "released too often",
    "MODIFIED": "too many attempts, the last one failed",
}
"""Cause of dead letters: its words where no condition was given."""


def _reason(cause: str, condition: str) -> str:
    """Return why messages were dead-lettered. What was not rejected came back as often as its address allows."""
    if not condition and cause in _WITHOUT_ERROR:
        return _WITHOUT_ERROR[cause]
    if cause.upper() in ("", "REJECTED"):
        return condition
    return f"too many attempts, the last one: {condition or cause.lower().replace('_', ' ')}"


def _reasons(letters: pd.DataFrame, name: tuple[str, ...], axis: Axis) -> pd.DataFrame:
    """Return dead letters of this broker or queue by interval and reason: the most frequent, and the others in one."""
    letters = letters[(letters[["broker", "queue"][: len(name)]] == name).all(axis=1)]
    place = axis.place(letters["minute"]).clip(0, axis.count - 1)
    table = letters["count"].groupby([place, letters["reason"]]).sum().unstack(fill_value=0)
    table = table.reindex(range(axis.count), fill_value=0)
    table = table[table.sum().sort_values(ascending=False, kind="stable").index]
    first, others = table.iloc[:, :REASONS_MAX], table.iloc[:, REASONS_MAX:]
    if others.empty:
        return first
    return first.assign(**{plural(others.shape[1], "other reason", "other reasons"): others.sum(axis=1)})
