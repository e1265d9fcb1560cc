"""``acquit termini``: what a broker keeps for links that resume their deliveries, and who has left it there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from acquit.cli.connecting import BrokerAt, broker_options
from acquit.cli.exits import Exit
from acquit.cli.lazy import WholeGroup
from acquit.cli.management import management, table_of
from acquit.cli.options import json_option, seconds
from acquit.cli.output import counted, emit_json, table
from acquit.protocol.extensions import TERMINUS_ENTITY
from acquit.protocol.jsonform import to_json

COLUMNS: Final = ("identity", "role", "node", "container", "link", "user", "state", "messages", "tags")
"""Columns for people; --json has everything."""


@click.group(cls=WholeGroup, invoke_without_command=True)
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
@click.pass_context
def termini(ctx: click.Context, timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Show the termini that outlive their links: exactly-once senders and receivers, present and away.

    A source that is suspended holds messages for a receiver that may come back. `end` gives them to others."""
    if ctx.invoked_subcommand is not None:
        return Exit.OK
    with management(broker, timeout_s) as node:
        answer = node.request("QUERY", TERMINUS_ENTITY)
    columns, found = table_of(answer)
    rows = [dict(zip(columns, row, strict=True)) for row in found]
    if as_json:
        for row in rows:
            emit_json({name: to_json(value) for name, value in row.items()})
    elif rows:
        table(COLUMNS, [[_state(row) if name == "state" else row.get(name) for name in COLUMNS] for row in rows])
    else:
        click.echo("no termini outlive their links")
    return Exit.OK


@termini.command()
@click.argument("identity")
@click.option("--yes", is_flag=True, help="Do not ask.")
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def end(identity: str, yes: bool, timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """End the terminus IDENTITY, and the link on it. What it holds goes back to its queue, as from a lost connection.

    Whoever comes back to it hears that it is another one: its acknowledgements are unknown, its sends in doubt."""
    if not yes and not click.confirm(f"End the terminus {identity}?", err=True):
        return Exit.FAILED
    with management(broker, timeout_s) as node:
        answer = node.request("DELETE", TERMINUS_ENTITY, name=identity)
    returned = answer.get("returned") if isinstance(answer, Mapping) else None
    if as_json:
        emit_json({"identity": identity, "returned": to_json(returned)})
    else:
        click.echo(f"{identity}: ended, {counted(returned, 'message')} given back")
    return Exit.OK


def _state(row: Mapping[str, object]) -> str:
    if row.get("attached"):
        return "attached"
    suspended, left = row.get("suspended_ms"), row.get("ends_in_ms")
    if not isinstance(suspended, int) or not isinstance(left, int):
        return "suspended"
    return f"away for {suspended // 1000} s, ends in {left // 1000} s"
