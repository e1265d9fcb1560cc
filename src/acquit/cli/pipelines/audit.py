"""``acquit pipeline audit``: what became of every message, from brokers' journals."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from acquit.cli.exits import Exit
from acquit.cli.options import PathType, json_option
from acquit.cli.output import counted, emit_json, remark
from acquit.cli.pipelines.common import ended, following, need, spark_options
from acquit.errors import ConfigurationError
from acquit.protocol.jsonform import Json

if TYPE_CHECKING:
    from acquit.spark.audit import AuditProgress, AuditSummary
    from acquit.spark.options import SparkAt


@click.command()
@click.argument("folders", metavar="DATA...", nargs=-1, required=True, type=PathType(exists=True, file_okay=False))
@click.option(
    "--into",
    type=PathType(file_okay=False),
    metavar="DIR",
    help="The audit's folder; made if it is not there. All that earlier runs found is in it. "
    " [required, unless --seals]",
)
@click.option(
    "--seals",
    is_flag=True,
    help="Only balance what the journals' seals say, in seconds: no Spark, no event is read, nothing is written.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Believe the side file of a segment where hash and totals agree, and do not read every byte.",
)
@click.option(
    "--histories",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    metavar="N",
    help="Keep the events of so many messages that anomalies name.",
)
@click.option(
    "--report",
    type=PathType(dir_okay=False),
    metavar="FILE",
    help="Then write the audit as one HTML page, as acquit pipeline report does.",
)
@spark_options
@json_option
def audit(
    folders: tuple[Path, ...],
    into: Path | None,
    seals: bool,
    quick: bool,
    histories: int,
    report: Path | None,
    spark: SparkAt,
    as_json: bool,
) -> Exit:
    """Audit the journals in DATA, brokers' folders of data: what has come since the last run joins the audit in DIR.

    Ends with 4 when a balance does not hold, or a journal says what cannot be.
    """
    if (into is None) != seals:
        raise ConfigurationError("expected either --into DIR, the folder of the audit, or --seals")
    if into is None:
        return _balance(folders, as_json=as_json)
    need("pyspark", "pyarrow", *(("jinja2", "matplotlib", "pandas") if report is not None else ()))
    if report is not None:
        from acquit.spark.report import check_target

        check_target(report)
    from acquit.spark import audit as pipeline
    from acquit.spark.ledger.options import Verify

    chosen = pipeline.AuditOptions(
        folders=[folder.absolute() for folder in folders],
        into=into.absolute(),
        verify=Verify.QUICK if quick else Verify.FULL,
        histories=histories,
        **asdict(spark),
    )
    with following(f"auditing into {into}", "segments") as follower:

        def follow(progress: AuditProgress) -> None:
            if progress.stage == "folding" and progress.segments:
                left = progress.segments_total - progress.segments
                follower.at(progress.segments, left=left, place="to be folded")
            else:
                follower.say(progress.stage)

        summary = pipeline.audit(chosen, on_progress=follow)
        if report is not None:
            from acquit.spark.report import report as write

            follower.say("drawing")
            write(chosen.into, report)
    if as_json:
        emit_json(pipeline.summary_json(summary))
    else:
        _tell(summary)
    return ended(balanced=summary.sound)


def _balance(folders: tuple[Path, ...], *, as_json: bool) -> Exit:
    need("pyspark", "pyarrow")
    from acquit.spark.audit.quick import balance_by_seals

    found = balance_by_seals(folder.absolute() for folder in folders)
    if as_json:
        queues: list[Json] = [
            {
                "broker": queue.broker,
                "queue_number": queue.queue_number,
                "queue": queue.queue,
                "entered": queue.totals.entered,
                "retired": queue.totals.retired,
                "live": queue.totals.live,
            }
            for queue in found.queues
        ]
        emit_json(
            {
                "segments": found.segments,
                "events": found.events,
                "queues": queues,
                "differences": [
                    {"broker": b, "segment": number, "detail": text} for b, number, text in found.differences
                ],
                "missing": [{"broker": broker, "segment": segment} for broker, segment in found.missing],
                "sound": found.sound,
            }
        )
        return ended(balanced=found.sound)
    seals = (
        f"{counted(found.segments, 'seal')} count{'s' if found.segments == 1 else ''} {counted(found.events, 'event')}"
    )
    click.echo(f"{seals}; what came after the newest seal is in no balance yet")
    if not found.segments:
        remark("no segment is sealed yet: the newest one is not counted here, the audit with --into reads it, too")
    for queue in found.queues:
        totals, name = queue.totals, queue.queue or f"queue {queue.queue_number}"
        click.echo(f"  {name}: {totals.entered:,} entered, {totals.retired:,} retired, {totals.live:,} live")
    for broker, segment, text in found.differences:
        click.echo(f"segment {segment} of {broker}: {text}", err=True)
    for broker, segment in found.missing:
        click.echo(f"segment {segment} of {broker} is missing", err=True)
    return ended(balanced=found.sound)


def _open(count: int) -> str:
    return f"{counted(count, 'message')} {'is' if count == 1 else 'are'} open"


def _tell(summary: AuditSummary) -> None:
    if summary.changed:
        click.echo(
            f"{counted(summary.events, 'event')} in {counted(summary.segments, 'segment')} of "
            f"{counted(summary.brokers, 'broker')} folded into "
            f"{summary.into} (entry {summary.entry}), {summary.duration_s:.1f} s"
        )
        click.echo(f"messages: {summary.closed:,} closed, {summary.open:,} open")
    else:
        click.echo(f"nothing new since entry {summary.entry} in {summary.into}; {_open(summary.open)}")
    states = ", ".join(f"{count:,} {state}" for state, count in summary.balance.items())
    click.echo(f"queues: {states or 'none'}")
    for text in summary.differing:
        click.echo(f"  {text}")
    for kind, count in summary.anomalies.items():
        click.echo(f"{kind}: {count:,}")
    for kind, count in summary.anomalies_before.items():
        click.echo(f"{kind}: {count:,}, found by earlier runs")
    if not summary.sound:
        click.echo("not sound: see the tables anomalies and balance", err=True)
