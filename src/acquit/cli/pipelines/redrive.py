"""``acquit pipeline redrive``: dead letters back to where they died."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from acquit.cli import output
from acquit.cli.options import RATE_MAX, FiniteRange, PathType, json_option
from acquit.cli.output import counted, emit_json
from acquit.cli.pipelines.common import (
    ended,
    following,
    need,
    spark_options,
    task_broker_options,
)
from acquit.protocol.jsonform import to_json

if TYPE_CHECKING:
    from acquit.cli.exits import Exit
    from acquit.spark.options import BrokerAccess, SparkAt
    from acquit.spark.redrive import RedriveSummary

_DESCRIPTION_MAX: Final = 100
"""Characters of a letter's description that a dry run shows."""


@click.command()
@click.argument("queue", metavar="[QUEUE]", default="DLQ")
@click.option(
    "--where",
    default="true",
    metavar="SQL",
    help="Only letters for which this holds: \"cause = 'rejected' AND size(attempts) < 3\".",
)
@click.option(
    "--to", metavar="QUEUE", help="Where they go; made if it is not there.  [default: each to the queue where it died]"
)
@click.option(
    "--table",
    type=PathType(),
    metavar="TABLE",
    help="Letters whose posting has a row in this table stay.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="No more than these, the oldest first.")
@click.option("--rate", type=FiniteRange(0, RATE_MAX, min_open=True), metavar="N", help="No more in a second.")
@click.option("--dry-run", is_flag=True, help="Show which would go, and move nothing.")
@task_broker_options
@spark_options
@json_option
def redrive(
    queue: str,
    where: str,
    to: str | None,
    table: Path | None,
    limit: int | None,
    rate: float | None,
    dry_run: bool,
    broker: BrokerAccess,
    spark: SparkAt,
    as_json: bool,
) -> Exit:
    """Send the dead letters in QUEUE (DLQ) back to where they died, each exactly once.

    Killed, or without an answer, it is just run again: what was moved is not there any more.
    """
    need()
    from acquit.spark import redrive as pipeline

    options = pipeline.RedriveOptions(
        queue=queue,
        where=where,
        to=to,
        table=None if table is None else table.absolute(),
        limit=limit,
        rate=rate,
        dry_run=dry_run,
        **asdict(broker),
        **asdict(spark),
    )
    with following(f"redriving {queue}", "letters") as follower:
        summary = pipeline.redrive(
            options,
            on_progress=lambda told: follower.at(told.moved, left=told.of - told.moved, place="to go"),
            on_stage=follower.say,
        )
    _report(summary, as_json=as_json)
    return ended(complete=not summary.gone)


def _report(summary: RedriveSummary, *, as_json: bool) -> None:
    if as_json:
        emit_json({**{key: to_json(value) for key, value in asdict(summary).items()}})
        return
    if summary.dry_run and summary.shown:
        rows = [
            (
                one.sequence,
                one.message_id,
                one.target,
                one.cause,
                one.condition,
                _line(one.description),
                _fate(one.target, one.in_table),
            )
            for one in summary.shown
        ]
        output.table(("sequence", "message id", "target", "cause", "condition", "description", ""), rows)
        click.echo()
    for group in summary.groups:
        why = ", ".join(text for text in (group.cause, group.condition) if text) or "no reason given"
        click.echo(f"{group.count:>9,}  {why}: {_fate(group.target, group.in_table)}")
    done = f"{summary.would_move:,} would be moved" if summary.dry_run else f"{summary.moved:,} moved"
    parts = [f"{counted(summary.selected, 'letter')} selected", done]
    parts += [f"{summary.in_table:,} already in the table"] if summary.in_table else []
    parts += [f"{summary.homeless:,} without a place to go"] if summary.homeless else []
    parts += [f"{summary.gone:,} gone meanwhile"] if summary.gone else []
    click.echo(f"{summary.queue}: {', '.join(parts)}, {summary.duration_s:.1f} s")


def _line(text: str | None) -> str:
    """Return a text as one line, cut where it is too long: consumers write what they like."""
    words = " ".join((text or "").split())
    return words if len(words) <= _DESCRIPTION_MAX else f"{words[: _DESCRIPTION_MAX - 1]}…"


def _fate(target: str | None, in_table: bool) -> str:
    if in_table:
        return "already in the table, stays"
    return "nowhere to go, stays" if target is None else f"to {target}"
