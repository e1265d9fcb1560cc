"""``acquit dlq``: dead letters of a running broker, and why each is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from acquit.cli.connecting import BrokerAt, broker_options
from acquit.cli.examining import read, rows, tell
from acquit.cli.exits import Exit
from acquit.cli.jsonform import to_json
from acquit.cli.lazy import WholeGroup
from acquit.cli.management import check_queue, management
from acquit.cli.options import json_option, seconds
from acquit.cli.output import emit_json, table, time_text
from acquit.client.management import Management, ManagementFailed

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
    """Dead letters: which there are and why, and one in full."""


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
