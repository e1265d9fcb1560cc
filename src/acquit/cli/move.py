"""``acquit move``: messages from one queue into another, by the broker itself."""

from __future__ import annotations

from collections.abc import Mapping

import click

from acquit.cli.connecting import BrokerAt, broker_options
from acquit.cli.exits import Exit
from acquit.cli.management import check_queue, lasting, management
from acquit.cli.options import json_option, seconds
from acquit.cli.output import counted, emit_json
from acquit.protocol.extensions import QUEUE
from acquit.protocol.jsonform import to_json
from acquit.protocol.types import Value


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--max", "messages_max", type=click.IntRange(1), help="No more messages than this.")
@click.option("--selector", help="Only messages that match, as in JMS: \"colour = 'red' and size > 3\".")
@click.option("--create", is_flag=True, help="Make the queue TARGET if it is not there.")
@seconds(600.0, "How long to wait for the broker to have moved them all.")
@broker_options
@json_option
def move(
    source: str,
    target: str,
    messages_max: int | None,
    selector: str | None,
    create: bool,
    timeout_s: float,
    broker: BrokerAt,
    as_json: bool,
) -> int:
    """Move the messages of queue SOURCE that nobody has acquired into queue TARGET. Both must be there, unless
    --create makes the second.

    Each message is in one of the two at any moment, also over a crash. The ledger records both sides, naming each
    other, and who asked."""
    body: dict[Value, Value] = {"to": target}
    if messages_max is not None:
        body["max"] = messages_max
    if selector is not None:
        body["selector"] = selector
    with management(broker, timeout_s) as node:
        check_queue(node, source)
        if not create:
            check_queue(node, target)
        with lasting():
            answer = node.request("MOVE", QUEUE, name=source, body=body)
    moved = answer.get("moved") if isinstance(answer, Mapping) else None
    if as_json:
        emit_json({"source": source, "target": target, "moved": to_json(moved)})
    else:
        click.echo(f"{source}: {counted(moved, 'message')} moved to {target}")
    return Exit.OK
