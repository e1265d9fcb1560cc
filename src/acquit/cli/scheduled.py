"""``acquit scheduled``: the messages of a queue that wait for their time, and how to take one back before it comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from acquit.cli.connecting import BrokerAt, broker_options
from acquit.cli.exits import Exit
from acquit.cli.lazy import WholeGroup
from acquit.cli.management import lasting, management, table_of
from acquit.cli.options import json_option, seconds
from acquit.cli.output import counted, emit_json, table, time_text
from acquit.client.management import Management
from acquit.protocol.extensions import MESSAGE
from acquit.protocol.jsonform import to_json
from acquit.protocol.types import ULong, Value

PAGE: Final = 1_000
_TIMES: Final = frozenset({"due_at_ms", "posted_at_ms"})


@click.group(cls=WholeGroup)
def scheduled() -> None:
    """Messages of a queue that wait for their time."""


@scheduled.command("list")
@click.argument("queue")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Show no more than this.")
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def list_(queue: str, limit: int, timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Show what waits in QUEUE, in the order of sequences: for a delivery time, or for another attempt."""
    with management(broker, timeout_s) as node:
        columns, rows = _listed(node, queue, limit)
    if as_json:
        for row in rows:
            emit_json({name: to_json(value) for name, value in zip(columns, row, strict=True)})
    elif rows:
        shown = [name.removesuffix("_ms").replace("_", " ") for name in columns]
        table(shown, [[_cell(name, value) for name, value in zip(columns, row, strict=True)] for row in rows])
    else:
        click.echo(f"{queue}: nothing waits for its time")
    return Exit.OK


@scheduled.command()
@click.argument("queue")
@click.option("--message-id", metavar="ID", help="The message with this message-id, a string.")
@click.option("--sequence", type=click.IntRange(1), metavar="NUMBER", help="The message with this sequence.")
@click.option("--all", "everything", is_flag=True, help="All that wait for their delivery time.")
@seconds(60.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def cancel(
    queue: str,
    message_id: str | None,
    sequence: int | None,
    everything: bool,
    timeout_s: float,
    broker: BrokerAt,
    as_json: bool,
) -> int:
    """Remove a message of QUEUE that waits for its delivery time. The ledger records it as purged, and by whom."""
    bodies: list[dict[Value, Value]] = []
    if message_id is not None:
        bodies.append({"message_id": message_id})
    if sequence is not None:
        bodies.append({"sequence": ULong(sequence)})
    if everything:
        bodies.append({"all": True})
    if len(bodies) != 1:
        raise click.UsageError("name what to cancel by one of --message-id, --sequence and --all")
    with management(broker, timeout_s) as node, lasting():
        answer = node.request("CANCEL", MESSAGE, name=queue, body=bodies[0])
    cancelled = answer.get("cancelled") if isinstance(answer, Mapping) else None
    if as_json:
        emit_json({"queue": queue, "cancelled": to_json(cancelled)})
    else:
        click.echo(f"{queue}: {counted(cancelled, 'message')} cancelled")
    return Exit.OK


def _listed(node: Management, queue: str, limit: int) -> tuple[list[str], list[list[object]]]:
    """Column names and rows, a page at a time."""
    rows: list[list[object]] = []
    after = 0
    while True:
        page = min(PAGE, limit - len(rows))
        answer = node.request("QUERY", MESSAGE, name=queue, body={"after": ULong(after), "limit": page})
        columns, found = table_of(answer)
        rows += found
        if len(found) < page or len(rows) == limit:
            return columns, rows
        after = int(found[-1][columns.index("sequence")])


def _cell(name: str, value: object) -> object:
    if name in _TIMES and isinstance(value, int):
        return time_text(value * 1_000)
    return "" if value is None else value
