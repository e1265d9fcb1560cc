"""The output of commands: tables and lines for people, one JSON document a line for machines.

Results go to standard output and nothing else does; progress and remarks go to standard error, so that
``acquit receive orders --json | jq .body`` always works. rich takes longer to load than a command to ask a broker for
its queues, so it is loaded by what needs it.
"""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

from acquit.protocol.jsonform import Json

if TYPE_CHECKING:
    from rich.progress import Progress

TABLE_WIDTH_MAX = 10_000
CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}
"""Control characters, and how they are written out (C0, DEL and C1)."""
PROGRESS_AFTER_S = 1.0
"""Work that ends sooner shows no progress."""


def emit_json(document: Mapping[str, Json]) -> None:
    """Print one document on one line, and flush it: a reader in a pipe sees it now. Where that is not in UTF-8, what is
    no ASCII is escaped as JSON does."""
    ascii_alone = codecs.lookup(sys.stdout.encoding or "ascii").name != "utf-8"
    click.echo(json.dumps(document, ensure_ascii=ascii_alone, separators=(", ", ": "), allow_nan=False))


def line(*parts: tuple[str, str] | str) -> None:
    """Print one line of text and (text, style) parts on standard output. Nothing in it is taken for markup, and on a
    terminal nothing for a command to that: what others wrote into a message must not move its cursor."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    text = Text.assemble(*parts)
    if console.is_terminal and printable(text.plain) != text.plain:
        text = Text.assemble(
            *(printable(part) if isinstance(part, str) else (printable(part[0]), part[1]) for part in parts)
        )
    console.print(text)


def printable(text: str) -> str:
    """Return the text with control characters, but for tabs and line ends, written out: ``\\x1b``."""
    return text.translate(CONTROLS)


def time_text(time_us: int) -> str:
    """Microseconds since the epoch as ISO 8601 in UTC, to the millisecond."""
    try:
        moment = datetime(1970, 1, 1) + timedelta(microseconds=time_us)  # noqa: DTZ001  # UTC by construction
    except OverflowError:
        return f"{time_us} µs"  # a clock that was wrong by more than a calendar holds
    return moment.isoformat(timespec="milliseconds") + "Z"


def span_text(span_ms: int) -> str:
    """Return a span of time as people say it, in its two largest units: ``3 d 4 h``, ``12 s``."""
    rest = span_ms // 1000
    parts: list[str] = []
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        count, rest = divmod(rest, unit_s)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def remark(text: str) -> None:
    """A line on standard error. Where that is full, nobody sees it, and the work goes on."""
    with suppress(OSError):
        click.echo(text, err=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, footer: Sequence[object] | None = None) -> None:
    """A table; columns whose cells are all numbers are set flush right. Written in full, however narrow the screen."""
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    listed = [list(row) for row in rows]
    sheet = Table(box=None, pad_edge=False, show_footer=footer is not None, header_style="bold", footer_style="bold")
    for index, name in enumerate(columns):
        numeric = all(_is_number(row[index]) for row in listed if row[index] is not None)
        foot = "" if footer is None else cell(footer[index])
        sheet.add_column(Text(name), Text(foot), justify="right" if numeric else "left", no_wrap=True)
    for row in listed:
        sheet.add_row(*(Text(printable(cell(value))) for value in row))
    console = Console(highlight=False)
    width = Measurement.get(console, console.options.update(max_width=TABLE_WIDTH_MAX), sheet).maximum
    console.width = max(console.width, width)
    console.print(sheet)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def cell(value: object) -> str:
    """A value as people read it: thousands set apart, nothing for None."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}"
        case _:
            return str(value)


def counted(count: object, noun: str, plural: str = "") -> str:
    """``1 file``, ``2 files``; with `plural` where an s does not make it. What is no number is shown as it is: brokers
    say how many."""
    number = f"{count:,}" if isinstance(count, int) else str(count)
    return f"{number} {noun if count == 1 else plural or f'{noun}s'}"


class Counter:
    """A running count that shows itself on a terminal once the work turns out to be long."""

    def __init__(self, progress: Progress, description: str, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task(description, total=total, visible=False)
        self._shown = False

    def advance(self, by: int = 1) -> None:
        """Count `by` more."""
        self._progress.advance(self._task, by)
        self._show()

    def at(self, done: int, total: int) -> None:
        """Show that `done` of `total` are done now."""
        self._progress.update(self._task, completed=done, total=total)
        self._show()

    def _show(self) -> None:
        if not self._shown:
            elapsed = self._progress.tasks[0].elapsed
            if elapsed is not None and elapsed > PROGRESS_AFTER_S:
                self._shown = True
                self._progress.update(self._task, visible=True)


@contextmanager
def counting(description: str, total: int | None) -> Iterator[Counter]:
    """Show how far the work is, on standard error and only where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    ]
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Counter(progress, description, total)
