"""Frames of `acquit top`: figures of a broker, cut to the size of a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from rich.filesize import decimal
from rich.text import Text

from acquit.cli.figures import TROUBLE, Look, Row, ordered, troubles, with_rates
from acquit.cli.output import printable, span_text
from acquit.cli.watching import Seen

GAP: Final = 2
"""Blanks between two parts of a line."""
NAME_MIN: Final = 12
NAME_MAX: Final = 40
TROUBLE_MIN: Final = 12
"""A narrower column would say nothing: a mark before the name says that there is trouble."""
STALE_S: Final = 3.0
"""Age of figures from which on it is told, and so long behind the look that was due."""
_SHORT: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


class Sort(NamedTuple):
    """An order of the queues."""

    label: str
    column: str
    descending: bool


SORTS: Final = (
    Sort("trouble", TROUBLE, False),
    Sort("in/s", "in_per_s", True),
    Sort("out/s", "out_per_s", True),
    Sort("depth", "depth", True),
    Sort("name", "name", False),
)
"""The orders that the key s goes through."""


class NumberColumn(NamedTuple):
    """A column of numbers."""

    head: str
    width: int
    value: Callable[[Row], float | None]


NUMBERS: Final = (
    NumberColumn("depth", 7, lambda row: row["depth"]),
    NumberColumn("in/s", 6, lambda row: row["in_per_s"]),
    NumberColumn("out/s", 6, lambda row: row["out_per_s"]),
    NumberColumn("recv", 5, lambda row: row["consumers"]),
    NumberColumn("held", 6, lambda row: row["acquired"]),
)
"""Columns of numbers, of which the first ones are shown where there is no room for all."""


@dataclass(frozen=True, slots=True)
class View:
    """The things that a frame shows."""

    seen: Seen
    interval_s: float
    sort: Sort = SORTS[0]
    held: bool = False
    """True while the display is paused."""
    missed: str = ""
    """Reason why there are no newer figures; empty if there are."""


def frame(view: View, now_s: float, width: int, height: int | None) -> list[Text]:
    """Return the lines of a frame of this size, none of them longer; of any number of lines where `height` is None.
    `now_s` is the time by the monotonic clock."""
    look = view.seen.now
    rows = with_rates(look, view.seen.before)
    queues = ordered(
        (row for row in rows if "topic" not in row["kind"]), view.sort.column, descending=view.sort.descending
    )
    lines = [Text(text) for text in _packed(_header(look, queues), width)]
    lines += (Text(printable(text), "bold red") for text in _alarms(view, now_s))
    lines += (Text(""), *_table(queues, width))
    if height is not None:
        footer = Text(f"q quit  s sort: {view.sort.label}  p {'go on' if view.held else 'pause'}", "dim")
        hidden = len(lines) - (height - 1)
        if hidden > 0:
            lines[height - 2 :] = [Text(f"... and {hidden + 1:,} more", "dim")]
        lines += (Text("") for _ in range(height - 1 - len(lines)))
        lines = [*lines[: height - 1], footer]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def short(number: float | None) -> str:
    """Return a number in at most six characters: ``12,345``, ``0.5``, ``3.2M``; ``-`` for None."""
    if number is None:
        return "-"
    if 0 < number < 9.95 and number % 1:
        return f"{number:.1f}"
    if number < 99_999.5:
        return f"{number:,.0f}"
    unit, letter = next((unit, letter) for unit, letter in _SHORT if number >= unit * 0.9995)
    scaled = number / unit
    return f"{scaled:,.1f}{letter}" if scaled < 99.95 else f"{scaled:,.0f}{letter}"


def _header(look: Look, queues: list[Row]) -> Iterator[str]:
    """Yield the parts of the header, the most important first."""
    broker = look.broker
    yield f"acquit {broker['version']}" if look.whole else "acquit"
    yield "accepting" if broker["accepting"] else "REFUSING"
    if look.whole:
        yield f"up {span_text(broker['uptime_ms'])}"
    yield f"in {_total(queues, 'in_per_s')}/s"
    yield f"out {_total(queues, 'out_per_s')}/s"
    yield f"queues {len(queues):,}"
    yield f"messages {short(sum(row['depth'] for row in queues))}"
    yield f"held {short(sum(row['acquired'] for row in queues))}"
    if look.whole:
        disk = broker["disk"]
        yield f"connections {broker['connections']:,}"
        yield f"links {broker['links']:,}"
        yield f"memory {decimal(broker['memory_bytes'])}/{decimal(broker['memory_bytes_max'])}"
        yield "disk ?" if disk["free_bytes"] is None else f"disk {decimal(disk['free_bytes'])} free"
        yield f"journal {decimal(disk['journal_bytes'])}"
        yield f"sync {broker['sync']['p99_ms']:,.1f} ms"
        yield f"lag {broker['loop_lag_ms']:,.1f} ms"


def _total(rows: list[Row], column: str) -> str:
    known = [row[column] for row in rows if row[column] is not None]
    return short(sum(known)) if known else "-"


def _packed(parts: Iterable[str], width: int) -> Iterator[str]:
    """Yield lines of as many parts as there is room for."""
    line = ""
    for part in parts:
        longer = f"{line}{' ' * GAP}{part}" if line else part
        if line and len(longer) > width:
            yield line
            longer = part
        line = longer
    yield line


def _alarms(view: View, now_s: float) -> Iterator[str]:
    """Yield what somebody should see before anything else."""
    if view.held:
        yield "PAUSED: p goes on"
    look = view.seen.now
    age_s = now_s - look.at_s
    if view.missed or (age_s > STALE_S + view.interval_s and not view.held):
        since = time.strftime("%H:%M:%S", time.localtime(time.time() - age_s))
        yield f"OLD FIGURES, of {since}, {span_text(int(age_s * 1000))} ago: {view.missed or 'no answer'}"
    yield from (f"! {warning}" for warning in look.broker["warnings"])
    if look.refusal:
        yield f"! {look.refusal}"


def _table(queues: list[Row], width: int) -> Iterator[Text]:
    """Yield the head of the table and the lines of all queues."""
    room = width - 2 - NAME_MIN  # a mark and a blank before the name
    columns = []
    for column in NUMBERS:
        if room < column.width + 1:
            break
        columns.append(column)
        room -= column.width + 1
    longest = max((Text(printable(row["name"])).cell_len for row in queues), default=0)
    trouble = room >= GAP + TROUBLE_MIN
    spare = room - (GAP + TROUBLE_MIN if trouble else 0)
    name_width = NAME_MIN + max(0, min(spare, max(longest, NAME_MIN) - NAME_MIN, NAME_MAX - NAME_MIN))

    def line(mark: str, name: str, numbers: Iterable[str], rest: str, style: str) -> Text:
        text = Text(f"{mark} ", style)
        named = Text(printable(name))
        named.truncate(name_width, overflow="ellipsis", pad=True)
        text.append_text(named)
        for column, number in zip(columns, numbers, strict=True):
            text.append(f" {number:>{column.width}}")
        if trouble:
            text.append(" " * GAP + rest)
        return text

    yield line(" ", "queue", (column.head for column in columns), "trouble", "bold")
    for row in queues:
        found = troubles(row)
        numbers = (short(column.value(row)) for column in columns)
        yield line("!" if found else " ", row["name"], numbers, "; ".join(found), "yellow" if found else "")
