"""``acquit pipeline``: queues into tables. Spark is loaded when a pipeline runs, not before."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from acquit.cli.exits import Exit
from acquit.cli.jsonform import to_json
from acquit.cli.options import json_option, pair, url_option
from acquit.cli.output import counting, emit_json
from acquit.errors import ConfigurationError

if TYPE_CHECKING:
    from acquit.spark.ingest import IngestProgress, IngestSummary

NEEDED = ("pyspark", "pyarrow", "deltalake")


@click.group()
def pipeline() -> None:
    """Take queues into tables with Spark (needs the extra: pip install 'acquit[spark]')."""


@pipeline.command()
@click.argument("address")
@click.argument("table", type=click.Path(file_okay=False, path_type=Path))
@click.option("--format", "table_format", type=click.Choice(["delta", "parquet"]), default="delta", show_default=True)
@click.option("--columns", metavar="NAME,...", help="Columns that the table has; by default all of the source.")
@click.option(
    "--work",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Spool and checkpoint, which belong to this table alone.  [default: TABLE/_acquit]",
)
@click.option("--parts", type=click.IntRange(min=1), default=2, show_default=True, help="Tasks that read in parallel.")
@click.option("--user", metavar="NAME", help="Who to log in as.")
@click.option(
    "--credential", metavar="REFERENCE", help="The password: env:NAME, file:PATH or provider:module.function."
)
@click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the source. May be repeated."
)
@click.option("--trigger", metavar="INTERVAL", help="Go on until interrupted, a batch each INTERVAL ('2 seconds').")
@click.option("--master", metavar="URL", help="The Spark to run on: local[4], spark://host:7077.  [default: local]")
@click.option("--memory", "memory_mb", type=click.IntRange(min=512), default=1024, show_default=True, metavar="MB")
@url_option
@json_option
def ingest(
    address: str,
    table: Path,
    table_format: str,
    columns: str | None,
    work: Path | None,
    parts: int,
    user: str | None,
    credential: str | None,
    options: tuple[str, ...],
    trigger: str | None,
    master: str | None,
    memory_mb: int,
    url: str,
    as_json: bool,
) -> int:
    """Take the messages of ADDRESS into the table in the folder TABLE, each posting once.

    Ends when what is in the queue now is in the table; run it again, after a crash or for what came since. With
    --trigger it goes on until interrupted.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"this needs {', '.join(missing)}: pip install 'acquit[spark]'")
    from acquit.spark import ingest as spark

    chosen = spark.IngestOptions(
        url=url,
        address=address,
        table=table.absolute(),
        format=spark.TableFormat(table_format),
        **({"columns": tuple(name.strip() for name in columns.split(","))} if columns else {}),
        work=None if work is None else work.absolute(),
        user=user,
        credential=credential,
        parts=parts,
        source=dict(pair(text, "--option") for text in options),
        trigger=trigger,
        master=master,
        memory_mb=memory_mb,
    )
    with counting(f"ingesting {address}", None) as counter:

        def follow(progress: IngestProgress) -> None:
            counter.advance(progress.batch_rows)

        summary = spark.ingest(chosen, on_progress=follow)
    _report(address, summary, as_json=as_json)
    return Exit.OK


def _report(address: str, summary: IngestSummary, *, as_json: bool) -> None:
    taken = asdict(summary.taken)
    if as_json:
        emit_json(
            {
                "address": address,
                "table": str(summary.table),
                "query": summary.query_id,
                "batches": summary.batches,
                "rows": summary.rows,
                "taken": to_json(taken),
                "unacknowledged": summary.spool.unacknowledged,
                "duration_s": round(summary.duration_s, 3),
            }
        )
        return
    apart = [f"{count:,} {name.replace('_', ' ')}" for name, count in taken.items() if name != "rows" and count]
    aside = f" ({', '.join(apart)})" if apart else ""
    where = f"{summary.rows:,} rows in {summary.batches} batches into {summary.table}"
    click.echo(f"{address}: {where}{aside}, {summary.duration_s:.1f} s")
