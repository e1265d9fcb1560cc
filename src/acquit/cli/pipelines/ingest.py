"""``acquit pipeline ingest``: a queue into a table."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from acquit.cli.exits import Exit
from acquit.cli.options import PathType, json_option, pair
from acquit.cli.output import counted, emit_json
from acquit.cli.pipelines.common import (
    Size,
    ended,
    following,
    need,
    spark_options,
    spool_place,
    task_broker_options,
)
from acquit.protocol.jsonform import to_json

if TYPE_CHECKING:
    from acquit.protocol.jsonform import Json
    from acquit.spark.audit.reconciled import Reconciliation
    from acquit.spark.ingest import IngestProgress, IngestSummary
    from acquit.spark.options import BrokerAccess, SparkAt


@click.command()
@click.argument("addresses", metavar="ADDRESS...", nargs=-1, required=True)
@click.argument("table", type=PathType())
@click.option("--format", "table_format", type=click.Choice(["delta", "parquet"]), default="delta", show_default=True)
@click.option("--columns", metavar="COLUMN,...", help="Columns that the table has; by default all of the source.")
@click.option(
    "--work",
    type=PathType(file_okay=False),
    metavar="DIR",
    help="Spool and checkpoint, which belong to this table alone.  [default: TABLE/_acquit]",
)
@click.option(
    "--spool",
    "spool",
    metavar="SPOOL",
    help="The spool, where it is not to be in the DIR of --work: a folder, or s3://bucket/path.",
)
@click.option("--create", is_flag=True, help="Make an ADDRESS that is not there yet, instead of refusing it.")
@click.option(
    "--parts",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    metavar="N",
    help="Tasks that read in parallel.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the source: selector, bodyAs, poison, ... May be repeated.",
)
@click.option("--partition-by", metavar="COLUMN,...", help="Columns to make partitions by; posted_day is one, too.")
@click.option(
    "--target-file-size",
    type=Size(),
    metavar="SIZE",
    help="Delta: merge small files into files of about this size as it goes; 0 for never.  [default: 16m]",
)
@click.option(
    "--ledger",
    type=PathType(),
    metavar="DIR",
    help="The broker's folder of data: at the end, is each message that was accepted in the table, once?",
)
@click.option("--trigger", metavar="INTERVAL", help="Go on until interrupted, a batch each INTERVAL: 500ms, 2s, 10min.")
@task_broker_options
@spark_options
@json_option
def ingest(
    addresses: tuple[str, ...],
    table: Path,
    table_format: str,
    columns: str | None,
    work: Path | None,
    spool: str | None,
    create: bool,
    parts: int,
    options: tuple[str, ...],
    partition_by: str | None,
    target_file_size: int | None,
    ledger: Path | None,
    trigger: str | None,
    broker: BrokerAccess,
    spark: SparkAt,
    as_json: bool,
) -> Exit:
    """Take the messages of one queue or several into the table in the folder TABLE, each posting once.

    Ends when what is in the queue now is in the table; run it again, after a crash or for what came since. With
    --trigger it goes on until interrupted.

    With --ledger the exit code is 4 when the table and what was accepted differ.
    """
    need()
    from acquit.spark import ingest as pipeline

    chosen = pipeline.IngestOptions(
        address=addresses[0] if len(addresses) == 1 else addresses,
        table=table.absolute(),
        format=pipeline.TableFormat(table_format),
        columns=_names(columns),
        partition_by=_names(partition_by),
        target_file_bytes=target_file_size,
        ledger=None if ledger is None else ledger.absolute(),
        work=None if work is None else work.absolute(),
        **asdict(broker),
        spool=None if spool is None else spool_place(spool),
        create=create,
        parts=parts,
        source=dict(pair(text, "--option") for text in options),
        trigger=trigger,
        **asdict(spark),
    )
    with following(f"ingesting {', '.join(addresses)}") as follower:

        def follow(progress: IngestProgress) -> None:
            # What was available when the batch was planned had the batch's own messages among it.
            left = progress.left
            follower.at(progress.rows, left=None if left is None else max(left - progress.batch_rows, 0))

        summary = pipeline.ingest(chosen, on_progress=follow, on_stage=follower.say)
    _report(addresses, summary, as_json=as_json)
    compared = summary.reconciliation
    if compared is None:
        return ended()
    return ended(balanced=not compared.differs, complete=compared.equal)


def _names(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(name.strip() for name in text.split(","))


def _report(addresses: tuple[str, ...], summary: IngestSummary, *, as_json: bool) -> None:
    taken = asdict(summary.taken)
    compared = summary.reconciliation
    if as_json:
        emit_json(
            {
                "addresses": list(addresses),
                "table": str(summary.table),
                "query": summary.query_id,
                "batches": summary.batches,
                "rows": summary.rows,
                "taken": to_json(taken),
                "unacknowledged": summary.spool.unacknowledged,
                "duration_s": round(summary.duration_s, 3),
                **({} if compared is None else {"reconciliation": _found(compared)}),
            }
        )
        return
    apart = [f"{count:,} {name.replace('_', ' ')}" for name, count in taken.items() if name != "rows" and count]
    aside = f" ({', '.join(apart)})" if apart else ""
    where = f"{counted(summary.rows, 'row')} in {counted(summary.batches, 'batch', 'batches')} into {summary.table}"
    click.echo(f"{', '.join(addresses)}: {where}{aside}, {summary.duration_s:.1f} s")
    if compared is not None:
        click.echo(_sentence(compared))


def _found(compared: Reconciliation) -> dict[str, Json]:
    counts: dict[str, Json] = {str(finding): count for finding, count in compared.counts.items()}
    sides: dict[str, Json] = {"accepted": compared.ledger_rows, "rows": compared.other_rows}
    return {"equal": compared.equal, **sides, "findings": counts}


def _sentence(compared: Reconciliation) -> str:
    sides = f"{compared.ledger_rows:,} accepted by the ledger, {compared.other_rows:,} in the table"
    findings = ", ".join(f"{count:,} {finding}" for finding, count in compared.counts.items() if count)
    verdict = "THEY DIFFER" if compared.differs else "they are the same" if compared.equal else "not all can be matched"
    return f"{sides}: {verdict}{f' ({findings})' if findings else ''}"
