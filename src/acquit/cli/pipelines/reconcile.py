"""``acquit pipeline reconcile``: the ledger beside a table, or a producer's receipts."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from acquit.cli import output
from acquit.cli.options import PathType, json_option
from acquit.cli.output import emit_json
from acquit.cli.pipelines.common import ended, following, need, spark_options

if TYPE_CHECKING:
    from acquit.cli.exits import Exit
    from acquit.spark.audit.reconciled import Reconciliation
    from acquit.spark.options import SparkAt


class _Time(click.DateTime):
    """A day, or a time of a day."""

    def __init__(self) -> None:
        super().__init__(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"])

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            found: datetime = super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"expected a time such as 2026-01-31 or 2026-01-31T12:00 (UTC), found {value!r}", param, ctx)
        return found


@click.command()
@click.argument("audit", type=PathType(exists=True, file_okay=False))
@click.option("--queue", required=True, metavar="QUEUE", help="The queue whose messages are compared.")
@click.option(
    "--table",
    type=PathType(),
    metavar="TABLE",
    help="A Delta table, or a folder of Parquet files.",
)
@click.option(
    "--receipts",
    type=PathType(),
    metavar="FILE",
    help="What a producer wrote down, a row for each send: CSV, JSON lines, Parquet, or a table's folder.",
)
@click.option(
    "--broker", metavar="UUID", help="Whose queue, where several brokers have one: the beginning of its uuid."
)
@click.option(
    "--by",
    type=click.Choice(["sequence", "message_id"]),
    help="What rows are matched by.  [default: what the table has of these; for receipts the message id first]",
)
@click.option("--column", metavar="COLUMN", help="The column with that, if it has another name.")
@click.option(
    "--outcome", metavar="COLUMN", help="Of receipts: how the send ended.  [default: outcome, if it is there]"
)
@click.option(
    "--since",
    type=_Time(),
    metavar="TIME",
    help="Expect only what was posted then or later: 2026-01-31, or 2026-01-31T12:00 (UTC).",
)
@click.option("--until", type=_Time(), metavar="TIME", help="Expect only what was posted before then.")
@click.option(
    "--some", is_flag=True, help="The receipts are not of all who post: what they do not mention is no fault."
)
@spark_options
@json_option
def reconcile(
    audit: Path,
    queue: str,
    table: Path | None,
    receipts: Path | None,
    broker: str | None,
    by: str | None,
    column: str | None,
    outcome: str | None,
    since: datetime | None,
    until: datetime | None,
    some: bool,
    spark: SparkAt,
    as_json: bool,
) -> Exit:
    """Compare the audit in the folder AUDIT with a table, or with a producer's receipts.

    Exits with 4 when they are not equal, with 1 when that cannot be told. What was found is kept with the audit, and
    stands in its report.
    """
    need()
    from acquit.spark.audit import reconcile as pipeline

    options = pipeline.ReconcileOptions(
        audit=audit.absolute(),
        queue=queue,
        table=None if table is None else table.absolute(),
        receipts=None if receipts is None else receipts.absolute(),
        broker=broker,
        by=by,
        column=column,
        outcome=outcome,
        since=None if since is None else since.replace(tzinfo=UTC),
        until=None if until is None else until.replace(tzinfo=UTC),
        complete=not some,
        **asdict(spark),
    )
    with following(f"reconciling {queue}") as follower:
        found = pipeline.reconcile(options, on_progress=follower.say)
    _report(found, options.audit, as_json=as_json)
    return ended(balanced=not found.differs, complete=found.equal)


def _report(found: Reconciliation, audit: Path, *, as_json: bool) -> None:
    from acquit.spark.audit.reconciled import MEANING

    findings = str(audit / found.findings) if found.findings else None
    if as_json:
        emit_json(
            {
                "equal": found.equal,
                "against": found.against.value,
                "place": found.place,
                "queue": found.queue,
                "broker": found.broker,
                "by": found.identity,
                "ledger_rows": found.ledger_rows,
                "other_rows": found.other_rows,
                "ranges": found.ranges,
                "ranges_differing": found.ranges_differing,
                "counts": {finding.value: count for finding, count in found.counts.items()},
                "examples": [
                    {
                        "finding": each.finding.value,
                        "broker": each.broker,
                        found.identity: each.identity,
                        "ledger": each.ledger,
                        "other": each.other,
                    }
                    for each in found.examples
                ],
                "findings": findings,
            }
        )
        return
    rows = f"{found.ledger_rows:,} in the ledger, {found.other_rows:,} in the {found.against.value}"
    verdict = "NOT equal" if found.differs else "equal" if found.equal else "not all can be matched"
    click.echo(f"{found.queue}, {found.place}: {verdict}; {rows}, by {found.identity}")
    if found.counts:
        first: dict[str, str] = {}
        for each in found.examples:
            first.setdefault(each.finding.value, each.identity)
        output.table(
            ["finding", "count", "such as", "meaning"],
            [(f.value, count, first.get(f.value), MEANING[f]) for f, count in found.counts.items()],
        )
    if findings:
        click.echo(f"all of them: {findings}")
