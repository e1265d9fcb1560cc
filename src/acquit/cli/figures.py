"""Figures of a running broker and its queues, and which of these are in trouble: for `acquit status`, `acquit queues`
and `acquit top`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from acquit.cli.management import table_of
from acquit.client.management import Management, ManagementFailed
from acquit.protocol.extensions import BROKER, QUEUE
from acquit.protocol.types import Value

Row = dict[str, Any]
"""The columns of one queue, or of something else that has a table, as the broker gives them."""

_FORBIDDEN: Final = 403
_PAGE: Final = 1_000
"""Rows that a broker gives in one answer, at most."""

TROUBLES: Final[tuple[tuple[Callable[[Row], object], str], ...]] = (
    (lambda row: row.get("undeliverable"), "{undeliverable:,} undeliverable to its consumers"),
    (lambda row: row.get("available") and not row.get("consumers"), "{available:,} wait and nobody receives"),
    (lambda row: row.get("paused", "none") != "none", "paused: {paused}"),
    (lambda row: row.get("suspended"), "{suspended:,} held for links that are away"),
)
"""Conditions in which somebody should look at a queue, the worst first, and how each is told."""

RATES: Final = ("in_per_s", "out_per_s")
"""Columns that are added while a broker is watched: messages that entered and that left, by the second."""


TROUBLE: Final = "trouble"
"""Order of queues: the worst trouble first, then the deepest queue. It is no column."""


class Look(NamedTuple):
    """The broker and its queues at one moment."""

    at_s: float
    """Time of the answer, by the monotonic clock."""
    broker: Mapping[str, Any]
    """Attributes of the broker; only a few of them, if the user may not browse all addresses."""
    queues: Sequence[Row] = ()
    refusal: str = ""
    """Sentence that says why no queues are shown; empty if they are."""

    @property
    def whole(self) -> bool:
        """True if the user may see all figures of the broker."""
        return "uptime_ms" in self.broker


def look(node: Management) -> Look:
    """Return what the broker says now. Raises as `Management.ask`, but for a user who may see no queues."""
    answer = node.request("READ", BROKER)
    if not isinstance(answer, Mapping):
        raise ManagementFailed("READ: the answer is not a map of figures")
    broker = {str(key): value for key, value in answer.items()}
    try:
        found = query_all(node, QUEUE, "name", "")
    except ManagementFailed as error:
        if error.status != _FORBIDDEN:
            raise
        return Look(time.monotonic(), broker, refusal=str(error))
    return Look(time.monotonic(), broker, found)


def query_all(
    node: Management, kind: str, key: str, first: int | str, chosen: Mapping[str, int | str] | None = None
) -> list[Row]:
    """Return all rows of a table, page by page; `first` is below every `key`, and `chosen` says which rows are meant.
    Raises as `Management.ask`."""
    found: list[Row] = []
    after = first
    while True:
        body: dict[Value, Value] = {"after": after, "limit": _PAGE}
        body.update(chosen or {})
        columns, rows = table_of(node.request("QUERY", kind, body=body))
        found += (dict(zip(columns, row, strict=True)) for row in rows)
        if len(rows) < _PAGE:
            return found
        after = found[-1][key]


def troubles(row: Row) -> list[str]:
    """Return what is wrong with a queue, the worst first; nothing for a topic, which holds no messages."""
    return [words.format(**row) for condition, words in TROUBLES if condition(row)]


def rank(row: Row) -> int:
    """Return the place of a queue's worst trouble in `TROUBLES`; their number for none."""
    return next((place for place, (condition, _) in enumerate(TROUBLES) if condition(row)), len(TROUBLES))


def ordered(rows: Iterable[Row], column: str, *, descending: bool = False) -> list[Row]:
    """Return the rows in the order of a column, or of their `TROUBLE`: those without a value last, those of one value
    as they were. Raises KeyError for a column that is not there."""
    if column == TROUBLE:
        return sorted(rows, key=lambda row: (rank(row), -row["depth"]), reverse=descending)
    listed = list(rows)
    known = [row for row in listed if row[column] is not None]
    known.sort(key=lambda row: row[column], reverse=descending)
    return known + [row for row in listed if row[column] is None]


def with_rates(now: Look, before: Look | None) -> list[Row]:
    """Return the rows of `now` with the columns of `RATES`, which are None where there is nothing to compare with.

    Both must be from one connection: what a broker counts of volatile messages does not outlive it."""
    known = {(row["name"], row["kind"]): row for row in before.queues} if before else {}
    passed_s = now.at_s - before.at_s if before else 0.0
    rows = []
    for row in now.queues:
        old = known.get((row["name"], row["kind"]))
        rates: tuple[float | None, float | None] = (None, None)
        if old is not None and passed_s > 0:
            entered = row["entered"] - old["entered"]
            left = entered - (row["depth"] - old["depth"])
            rates = (max(0, entered) / passed_s, max(0, left) / passed_s)
        rows.append(row | dict(zip(RATES, rates, strict=True)))
    return rows
