"""The demo's output: bars on a terminal, plain lines elsewhere; with `--json` one document, and nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from acquit.demo.chaos import Tally, Watch
from acquit.demo.sheet import Sheet

WIDTH_ELSEWHERE = 120
"""Characters of a line that does not go to a terminal."""
ROWS = (
    # field of `Sheet`, label, what it means, whether a line is drawn below
    ("files", "in the manifest", "frozen before the first message", True),
    ("posted", "posted", "answered accepted: the broker has them on disk", False),
    ("posted_again", "  posted again", "in doubt when the broker was killed; copies of the above", False),
    ("redelivered", "redelivered", "acquired, not acknowledged before a kill, acquired again", False),
    ("forwarded_again", "  forwarded again", "copies that the table set aside by identity", True),
    ("in_table", "in the table ({table})", "one row each", False),
    ("dead_lettered", "dead-lettered", "not what their names claim, with the parse error", True),
    ("lost", "lost", "neither in the table nor dead-lettered", False),
    ("doubled", "doubled", "more than one row", False),
)
VERDICTS = {True: ("green", "Every file is accounted for, once."), False: ("red", "The balance does not hold.")}


class DemoStage:
    """The output of one run of the demo."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._console = Console(highlight=False, quiet=as_json)
        if not self._console.is_terminal:
            self._console.width = WIDTH_ELSEWHERE

    def plan(self, lines: Sequence[str]) -> None:
        self._console.print(escape("\n".join(lines)), "\n", sep="", soft_wrap=True)

    @contextmanager
    def act(self, title: str, files: int) -> Iterator[Watch]:
        """Show an act of the play, with its progress."""
        self._console.print(f"[bold]{escape(title)}[/bold]")
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), console=self._console, disable=self._as_json) as progress:
            yield watch_with(progress, files)
        self._console.print()

    def close(
        self,
        careful: Sheet,
        naive: Sheet | None,
        *,
        table: str,
        elapsed_s: float,
        figures: object,
        tries: dict[str, str],
    ) -> None:
        """Show the balance. `table`: "SQLite" or "Delta"; `tries`: commands, and what each shows."""
        if self._as_json:
            balances = {"balance": careful.as_json(), "naive": naive and naive.as_json()}
            facts = {"table": table, "elapsed_s": round(elapsed_s, 2), "figures": figures, "try": list(tries)}
            Console().out(json.dumps(balances | facts, indent=2), highlight=False)
        self._console.print(_sheet_table(careful, naive, table))
        for name, files in (("lost", careful.lost), ("doubled", careful.doubled)):
            if files:
                self._console.print(f"[red]{name}:[/red] {escape(', '.join(files[:10]))}")
        colour, verdict = VERDICTS[careful.holds]
        self._console.print(f"[bold {colour}]{verdict}[/bold {colour}] {elapsed_s:.0f} s.\n\nTry next:")
        for command, shows in tries.items():
            # A command that is wrapped cannot be copied.
            self._console.print(f"  [cyan]{escape(command)}[/cyan]\n      {escape(shows)}", soft_wrap=True)


def watch_with(progress: Progress, files: int) -> Watch:
    """Return what shows a tally as bars, and a sentence with the seconds since now."""
    begun_s = time.monotonic()
    names = ("posted", "checked and settled", "in the table")
    posted, checked, stored = (progress.add_task(name, total=files) for name in names)

    def watch(tally: Tally, sentence: str | None) -> None:
        progress.update(posted, completed=tally.counts["posted"])
        progress.update(checked, completed=len(tally.files["forwarded"] | tally.files["rejected"]))
        # What is dead-lettered goes to no table: without it the bar would end short of its end, as if some were lost.
        progress.update(stored, completed=tally.counts["stored"], total=files - len(tally.files["rejected"]))
        if sentence is not None:
            at = f"  {time.monotonic() - begun_s:6.1f} s"
            progress.console.print(f"{at}  [yellow]{escape(sentence)}[/yellow]", soft_wrap=True)

    return watch


def _sheet_table(careful: Sheet, naive: Sheet | None, name: str) -> Table:
    title = "Balance, from the frozen manifest, the broker's journal and the table"
    counts = ("acknowledged after the work", "acknowledged on receipt") if naive else ("count",)
    table = Table("files", title=title, title_justify="left")
    for heading in counts:
        table.add_column(heading, justify="right")
    table.add_column("what it means")
    for field, label, meaning, ends in ROWS:
        cells = [_cell(getattr(sheet, field)) for sheet in (careful, naive) if sheet is not None]
        table.add_row(label.format(table=name), *cells, meaning, end_section=ends)
    return table


def _cell(value: int | tuple[str, ...]) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"[bold {'red' if value else 'green'}]{len(value):,}[/]"
