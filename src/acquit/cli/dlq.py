"""``acquit dlq``: dead letters of a running broker, why each is there, and back to work with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from acquit.cli.connecting import BrokerAt, broker_options
from acquit.cli.examining import read, rows, tell
from acquit.cli.exits import Exit
from acquit.cli.lazy import WholeGroup
from acquit.cli.management import check_queue, lasting, management
from acquit.cli.options import json_option, seconds
from acquit.cli.output import cell, counted, emit_json, remark, table, time_text
from acquit.client.management import Management, ManagementFailed
from acquit.protocol.extensions import QUEUE
from acquit.protocol.jsonform import to_json
from acquit.protocol.types import ULong, Value

DEFAULT: Final = "DLQ"
_NOT_FOUND: Final = 404

queue_option: Final = click.option(
    "--queue", default=DEFAULT, show_default=True, metavar="NAME", help="The queue of dead letters."
)
selector_option: Final = click.option(
    "--selector", help='Only letters that match, as in JMS: "\\"m.x-opt-ORIG-QUEUE\\" = \'orders\'".'
)


@click.group(cls=WholeGroup)
def dlq() -> None:
    """Dead letters: which there are and why, one in full, and back to where they died."""


@dlq.command("list")
@queue_option
@selector_option
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Show no more than this.")
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def list_(queue: str, selector: str | None, limit: int, timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Show the dead letters of a queue, the oldest first: where each died, as which message, and why."""
    with management(broker, timeout_s) as node:
        found = list(rows(node, queue, selector=selector, limit=limit)) if _there(node, queue) else []
    if as_json:
        for row in found:
            emit_json({name: to_json(value) for name, value in row.items()})
    elif found:
        columns = ("sequence", "message id", "origin", "origin sequence", "reason", "died")
        table(columns, [_row(row) for row in found])
    else:
        click.echo(f"{queue}: no dead letters")
    return Exit.OK


def _row(row: Mapping[str, object]) -> list[object]:
    died = row["posted_at_ms"]
    when = time_text(died * 1000) if isinstance(died, int) else None
    return [row["sequence"], row["message_id"], row["origin_queue"], row["origin"], row["reason"], when]


@dlq.command()
@click.argument("sequence", type=click.IntRange(1))
@queue_option
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def show(sequence: int, queue: str, timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Show the dead letter SEQUENCE in full: where it died, the history of its attempts, and every section."""
    with management(broker, timeout_s) as node:
        found = read(node, queue, sequence)
    tell(queue, found, as_json=as_json)
    return Exit.OK


@dlq.command()
@click.argument("sequences", type=click.IntRange(1), metavar="[SEQUENCE]...", nargs=-1)
@queue_option
@selector_option
@click.option("--max", "letters_max", type=click.IntRange(1), help="No more letters than this, the oldest first.")
@click.option("--dry-run", is_flag=True, help="Say how many would go where, and move nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@seconds(600.0, "How long to wait for the broker to have moved them all.")
@broker_options
@json_option
def redrive(
    sequences: tuple[int, ...],
    queue: str,
    selector: str | None,
    letters_max: int | None,
    dry_run: bool,
    yes: bool,
    timeout_s: float,
    broker: BrokerAt,
    as_json: bool,
) -> int:
    """Send dead letters back, each to the queue where it died: those with these sequences, those that match the
    selector, or all.

    Their attempts begin anew. The broker moves them; each is in one of the two queues at any moment, also over a crash.
    Exit code 1 where some stay: they do not say where they died, cannot go there, or are not there any more."""
    body: dict[Value, Value] = {}
    if sequences:
        body["sequences"] = [ULong(sequence) for sequence in sequences]
    if selector is not None:
        body["selector"] = selector
    if letters_max is not None:
        body["max"] = letters_max
    with management(broker, timeout_s) as node:
        if not _there(node, queue):
            told: Mapping[object, object] = {"redriven": 0, "by_origin": {}, "without_origin": 0}
        elif dry_run:
            told = _redrive(node, queue, body, dry_run=True)
        else:
            if not yes:
                planned = _redrive(node, queue, body, dry_run=True)
                remark(_sentence(queue, planned, "would go back"))
                if not planned.get("redriven") or not click.confirm("Send them back?", err=True):
                    return Exit.FAILED
            with lasting():
                told = _redrive(node, queue, body, dry_run=False)
    if as_json:
        emit_json({"queue": queue, "dry_run": dry_run, **{str(key): to_json(value) for key, value in told.items()}})
    else:
        click.echo(_sentence(queue, told, "would go back" if dry_run else "sent back"))
    left = told.get("left")
    if isinstance(left, Mapping):
        reasons = told.get("reasons")
        for origin, count in left.items():
            reason = reasons.get(origin) if isinstance(reasons, Mapping) else None
            remark(f"{counted(count, 'letter')} of {origin} cannot go there: {reason}")
    missed = bool(sequences) and told.get("redriven") != len(set(sequences))
    if missed and not left and not told.get("without_origin") and letters_max is None:
        remark(f"not all of these sequences are letters in {queue!r}")
    return Exit.FAILED if left or told.get("without_origin") or missed else Exit.OK


def _redrive(node: Management, queue: str, body: Mapping[Value, Value], *, dry_run: bool) -> Mapping[object, object]:
    answer = node.request("REDRIVE", QUEUE, name=queue, body={**body, **({"dry_run": True} if dry_run else {})})
    if not isinstance(answer, Mapping):
        raise ManagementFailed("REDRIVE: the answer does not say what became of the letters")
    return answer


def _sentence(queue: str, told: Mapping[object, object], verb: str) -> str:
    """Return how many letters go where, and how many do not say where they died."""
    by_origin = told.get("by_origin")
    parts = [f"{count:,} to {origin}" for origin, count in by_origin.items()] if isinstance(by_origin, Mapping) else []
    text = f"{queue}: {counted(told.get('redriven'), 'letter')} {verb}" + (f", {', '.join(parts)}" if parts else "")
    if without := told.get("without_origin"):
        text += f"; without an origin, and left there: {cell(without)}"
    return text


def _there(node: Management, queue: str) -> bool:
    """Return whether there is the queue. Raises ManagementFailed for one that is not, and was named: the default one is
    made by the first letter."""
    try:
        check_queue(node, queue)
    except ManagementFailed as error:
        if error.status != _NOT_FOUND or queue != DEFAULT:
            raise
        return False
    return True
