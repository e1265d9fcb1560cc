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
    "reconcile": ("reconcile", "Compare an audit with a table, or with a producer's receipts."),
    "redrive": ("redrive", "Send dead letters back to where they died, each once."),
    "compact": ("compact", "Merge the small files of a table."),
}


JOBS: tuple[str, ...] = ("ingest", "audit", "reconcile", "redrive")
"""Pipelines that run on Spark, and have a file for spark-submit in `acquit.cli.jobs`."""


def _show_job(ctx: click.Context, parameter: click.Parameter, name: str | None) -> None:
    if name is not None:
        from acquit.cli.jobs import job_file

        click.echo(job_file(name))
        ctx.exit()


@click.group(cls=LazyGroup, package=__name__, table=PIPELINES)
@click.option(
    "--job",
    type=click.Choice(JOBS),
    is_eager=True,
    expose_value=False,
    callback=_show_job,
    help="Print where the file is that spark-submit takes for a pipeline.",
)
def pipeline() -> None:
    """Queues, tables and the ledger, with Spark (needs the extra: pip install 'acquit[spark]')."""
