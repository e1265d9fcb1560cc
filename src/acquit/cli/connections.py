"""``acquit connections``, ``links`` and ``close``: who is connected, what each link does, and an end to it."""

from __future__ import annotations

from typing import Final

import click

from acquit.cli.connecting import BrokerAt, broker_options
from acquit.cli.exits import Exit
from acquit.cli.figures import Row, query_all
from acquit.cli.ledger import ulong_of
from acquit.cli.management import management, table_of
from acquit.cli.options import json_option, seconds
from acquit.cli.output import counted, emit_json, span_text, table
from acquit.client.management import Management, ManagementFailed
from acquit.protocol.extensions import CONNECTION, LINK
from acquit.protocol.jsonform import to_json

CONNECTIONS: Final = (
    "id",
    "peer",
    "user",
    "container",
    "client",
    "tls",
    "links",
    "unsettled",
    "oldest",
    "starved",
    "up",
)
LINKS: Final = ("id", "role", "node", "name", "user", "container", "credit", "unsettled", "oldest", "delivered", "mode")
"""Columns for people; --json has everything."""
_NOT_FOUND: Final = 404


@click.command()
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def connections(timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Show who is connected: all connections to who may manage all addresses (#), and to others their own user's.

    Oldest is how long the oldest unsettled delivery is out; starved, how many links that receive have given no credit
    while messages wait for them."""
    with management(broker, timeout_s) as node:
        rows = query_all(node, CONNECTION, "id", 0)
    _show(rows, as_json, CONNECTIONS, "no connections")
    return Exit.OK


@click.command()
@click.option("--connection", type=click.IntRange(1), metavar="ID", help="Only those of this connection.")
@click.option("--node", metavar="NAME", help="Only those of this queue or topic.")
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def links(connection: int | None, node: str | None, timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Show the links of the queues and topics that you may browse or manage, and what each holds.

    A sender is one whose peer sends. Oldest is how long the oldest unsettled delivery is out, where that is known."""
    chosen: dict[str, int | str] = {}
    if connection is not None:
        chosen["connection"] = connection
    if node is not None:
        chosen["node"] = node
    with management(broker, timeout_s) as conversation:
        rows = query_all(conversation, LINK, "id", "", chosen)
    _show(rows, as_json, LINKS, "no links")
    return Exit.OK


@click.command()
@click.argument("connection", type=click.IntRange(1), required=False)
@click.option("--link", metavar="LINK", help="Detach this link instead: an id of `acquit links`, as 12.3.")
@click.option("--reason", default="", help="The reason that the peer is told.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def close(
    connection: int | None,
    link: str | None,
    reason: str,
    yes: bool,
    timeout_s: float,
    broker: BrokerAt,
    as_json: bool,
) -> int:
    """Close the connection with the id CONNECTION of `acquit connections`, or one link.

    What it held goes back to its queues, and no attempt is counted. A client that reconnects may come back: to keep it
    away, take its user's permission."""
    if (connection is None) == (link is None):
        raise click.UsageError("give either the id of a connection, or --link")
    kind, name = (LINK, link) if link is not None else (CONNECTION, str(connection))
    with management(broker, timeout_s) as node:
        if not yes:
            said = _describe_link(node, str(link)) if link is not None else _describe(node, connection or 0)
            if not click.confirm(f"End {said}?", err=True):
                return Exit.FAILED
        node.request("DELETE", kind, name=name, body={"reason": reason} if reason else None)
    what = "link" if link is not None else "connection"
    if as_json:
        emit_json({what: link if link is not None else connection, "reason": reason or None})
    else:
        click.echo(f"{what} {name}: {'detached' if link is not None else 'closed'}")
    return Exit.OK


def _describe(node: Management, number: int) -> str:
    """Return a connection in words. Raises ManagementFailed where there is none that the user may see."""
    columns, rows = table_of(node.request("QUERY", CONNECTION, body={"after": number - 1, "limit": 1}))
    row = dict(zip(columns, rows[0], strict=True)) if rows else {}
    if row.get("id") != number:
        raise ManagementFailed(f"there is no connection {number}", _NOT_FOUND)
    user = f" of user {row['user']}" if row["user"] else ""
    return (
        f"connection {number}{user} from {row['peer']} ({row['container']}), with {counted(row['links'], 'link')} "
        f"and {counted(row['unsettled'], 'unsettled delivery', 'unsettled deliveries')}"
    )


def _describe_link(node: Management, link: str) -> str:
    """Return a link in words. Raises ManagementFailed where there is none that the user may see."""
    connection = ulong_of(link.partition(".")[0])
    chosen = {} if connection is None else {"connection": connection}
    row = next((row for row in query_all(node, LINK, "id", "", chosen) if row["id"] == link), None)
    if row is None:
        raise ManagementFailed(f"there is no link {link!r}", _NOT_FOUND)
    held = counted(row["unsettled"], "unsettled delivery", "unsettled deliveries")
    return f"link {link} ({row['role']} of {row['node']}, {row['container']}), with {held}"


def _show(rows: list[Row], as_json: bool, columns: tuple[str, ...], none: str) -> None:
    if as_json:
        for row in rows:
            emit_json({name: to_json(value) for name, value in row.items()})
    elif rows:
        table(columns, [[_cell(row, column) for column in columns] for row in rows])
    else:
        click.echo(none)


def _cell(row: Row, column: str) -> object:
    """Return what people read in a column."""
    match column:
        case "client":
            return f"{row['product']} {row['version']}".strip()
        case "oldest":
            return span_text(row["oldest_unsettled_ms"]) if row["oldest_unsettled_ms"] else None
        case "starved":
            return row["credit_starved"]
        case "up":
            return span_text(row["since_ms"])
        case _:
            return row[column]
