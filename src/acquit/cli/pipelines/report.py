"""``acquit pipeline report``: an audit as a page."""

from __future__ import annotations

from pathlib import Path

import click

from acquit.cli.exits import Exit
from acquit.cli.options import PathType
from acquit.cli.pipelines.common import need


@click.command()
@click.argument("audit", metavar="AUDIT", type=PathType(exists=True, file_okay=False))
@click.argument("out", metavar="FILE", type=PathType(dir_okay=False))
@click.option("--title", metavar="TEXT", help="What heads the page.  [default: Audit]")
@click.option("--broker", "brokers", multiple=True, metavar="UUID", help="Only this broker: the beginning of its uuid.")
@click.option("--queue", "queues", multiple=True, metavar="PATTERN", help="Only queues like this: * and ? as in files.")
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=12,
    show_default=True,
    metavar="N",
    help="Draw charts of so many queues: first of those that do not balance, then of the busiest.",
)
def report(
    audit: Path, out: Path, title: str | None, brokers: tuple[str, ...], queues: tuple[str, ...], top: int
) -> int:
    """Write the audit in the folder AUDIT as one HTML page, FILE: charts, the balance sheet, anomalies.

    The page needs no network, no server and no script. --broker and --queue may be repeated. Spark is not started.
    """
    need("jinja2", "matplotlib", "pandas", "pyarrow", "pyspark")
    from acquit.spark.report import report as write

    written = write(audit, out, title=title, brokers=brokers, queues=queues, top=top)
    click.echo(f"{written}: {written.stat().st_size:,} bytes")
    return Exit.OK
