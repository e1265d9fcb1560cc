"""``acquit pipeline``: what runs on Spark. One module for each pipeline; Spark is loaded when one runs, not before.

What they share (the session, the broker, progress, exit codes) is in `common`.
"""

from __future__ import annotations

import click

from acquit.cli.lazy import LazyGroup

# name: (module in this package, what it does)
PIPELINES: dict[str, tuple[str, str]] = {
    "ingest": ("ingest", "Take a queue into a table, each posting once."),
    "audit": ("audit", "Say what became of every message, from brokers' journals."),
    "report": ("report", "Write an audit as one HTML page."),
    "compact": ("compact", "Merge the small files of a table."),
}


@click.group(cls=LazyGroup, package=__name__, table=PIPELINES)
def pipeline() -> None:
    """Queues, tables and the ledger, with Spark (needs the extra: pip install 'acquit[spark]')."""
