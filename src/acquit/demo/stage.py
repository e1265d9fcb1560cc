"""The demo's output. `RichStage` is for people; `QuietStage` prints nothing until the end, then one JSON document."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from acquit.demo.chaos import Tally
from acquit.demo.sheet import Sheet

WIDTH_ELSEWHERE = 120
"""Characters of a line that does not go to a terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """The facts that are shown at the end."""

    careful: Sheet
    naive: Sheet | None
    table: str
    """Name of the table for the heading: "SQLite" or "Delta"."""
    elapsed_s: float
    tries: Sequence[tuple[str, str]]
    """Commands to try next, and what each shows."""
    figures: Mapping[str, float]
    """Further figures that are worth a line of JSON: times, counts."""


class Watching(Protocol):
    """An act of the play, with its progress."""

    def progress(self, tally: Tally) -> None: ...
    def happened(self, sentence: str) -> None: ...


class DemoStage(Protocol):
    """The output that the demo is shown on."""

    def plan(self, lines: Sequence[str]) -> None: ...
    def act(self, title: str, files: int) -> AbstractContextManager[Watching]: ...
    def close(self, closing: Closing) -> None: ...
    def failed(self, why: str) -> None: ...


class QuietStage:
    """An output of nothing but one JSON document."""

    def plan(self, lines: Sequence[str]) -> None:
        pass

    @contextmanager
    def act(self, title: str, files: int) -> Iterator[Watching]:
        yield _Unwatched()

    def close(self, closing: Closing) -> None:
        document = {
            "balance": closing.careful.as_json(),
            "naive": None if closing.naive is None else closing.naive.as_json(),
            "table": closing.table,
            "elapsed_s": round(closing.elapsed_s, 2),
            "figures": {name: round(value, 3) for name, value in closing.figures.items()},
            "try": [command for command, _ in closing.tries],
        }
        sys.stdout.write(json.dumps(document, indent=2) + "\n")

    def failed(self, why: str) -> None:
        sys.stdout.write(json.dumps({"error": why}) + "\n")


class _Unwatched:
    def progress(self, tally: Tally) -> None:
        pass

    def happened(self, sentence: str) -> None:
        pass


class RichStage:
    """Progress bars on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        if console is None:
            console = Console(highlight=False)
            if not console.is_terminal:
                console.width = WIDTH_ELSEWHERE
        self._console = console

    def plan(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._console.print(escape(line), soft_wrap=True)
        self._console.print()

    @contextmanager
    def act(self, title: str, files: int) -> Iterator[Watching]:
        self._console.print(f"[bold]{escape(title)}[/bold]")
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), console=self._console) as progress:
            yield _Watched(progress, files)
        self._console.print()

    def close(self, closing: Closing) -> None:
        self._console.print(_sheet_table(closing))
        for name, files in (("lost", closing.careful.lost), ("doubled", closing.careful.doubled)):
            if files:
                self._console.print(f"[red]{name}:[/red] {escape(', '.join(files[:10]))}")
        verdict = (
            "[bold green]Every file is accounted for, once.[/bold green]"
            if closing.careful.holds
            else "[bold red]The balance does not hold.[/bold red]"
        )
        self._console.print(f"{verdict} {closing.elapsed_s:.0f} s.\n")
        self._console.print("Try next:")
        for command, shows in closing.tries:
            # A command that is wrapped cannot be copied.
            self._console.print(f"  [cyan]{escape(command)}[/cyan]", soft_wrap=True)
            self._console.print(f"      {escape(shows)}")

    def failed(self, why: str) -> None:
        self._console.print(f"[red]{escape(why)}[/red]")


class _Watched:
    def __init__(self, progress: Progress, files: int) -> None:
        self._begun_s = time.monotonic()
        self._progress = progress
        self._files = files
        self._posted = progress.add_task("posted", total=files)
        self._checked = progress.add_task("checked and settled", total=files)
        self._stored = progress.add_task("in the table", total=files)

    def progress(self, tally: Tally) -> None:
        self._progress.update(self._posted, completed=tally.posted)
        self._progress.update(self._checked, completed=len(tally.forwarded | tally.rejected))
        # What is dead-lettered goes to no table: without it the bar would end short of its end, as if some were lost.
        self._progress.update(self._stored, completed=tally.stored, total=self._files - len(tally.rejected))

    def happened(self, sentence: str) -> None:
        elapsed_s = time.monotonic() - self._begun_s
        self._progress.console.print(f"  {elapsed_s:6.1f} s  [yellow]{escape(sentence)}[/yellow]", soft_wrap=True)


def _sheet_table(closing: Closing) -> Table:
    careful, naive = closing.careful, closing.naive
    table = Table(title="Balance, from the frozen manifest, the broker's journal and the table", title_justify="left")
    table.add_column("files")
    table.add_column("acknowledged after the work" if naive else "count", justify="right")
    if naive:
        table.add_column("acknowledged on receipt", justify="right")
    table.add_column("what it means")
    rows: list[tuple[str, str, str]] = [
        ("files", "in the manifest", "frozen before the first message"),
        ("posted", "posted", "answered accepted: the broker has them on disk"),
        ("posted_again", "  posted again", "in doubt when the broker was killed; copies of the above"),
        ("redelivered", "redelivered", "acquired, not acknowledged before a kill, acquired again"),
        ("forwarded_again", "  forwarded again", "copies that the table set aside by identity"),
        ("in_table", f"in the table ({closing.table})", "one row each"),
        ("dead_lettered", "dead-lettered", "not what their names claim, with the parse error"),
        ("lost", "lost", "neither in the table nor dead-lettered"),
        ("doubled", "doubled", "more than one row"),
    ]
    for field, label, meaning in rows:
        cells = [_cell(sheet, field) for sheet in (careful, naive) if sheet is not None]
        table.add_row(label, *cells, meaning, end_section=field in ("files", "forwarded_again", "dead_lettered"))
    return table


def _cell(sheet: Sheet, field: str) -> str:
    value = getattr(sheet, field)
    if not isinstance(value, tuple):
        return f"{value:,}"
    return f"[bold red]{len(value):,}[/bold red]" if value else "[bold green]0[/bold green]"
