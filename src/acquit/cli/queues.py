"""``acquit queues`` and ``acquit purge``: what a broker holds, and what it shall hold no more.

A running broker is asked over AMQP, with the rights of the user in the URL. With ``--data`` the folder of a stopped one
is read: the journal folded, nothing written.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from acquit.cli.exits import Exit
from acquit.cli.jsonform import to_json
from acquit.cli.management import QUEUE, ManagementFailed, management
from acquit.cli.options import data_option, json_option, seconds, url_option
from acquit.cli.output import emit_json, table

ALWAYS_SHOWN: Final = ("name", "depth", "available", "acquired", "consumers", "entered")


@click.group(invoke_without_command=True)
@data_option(required=False)
@seconds(10.0, "How long to wait for the broker's answer.")
@url_option
@json_option
@click.pass_context
def queues(ctx: click.Context, data: Path | None, timeout_s: float, url: str, as_json: bool) -> int:
    """Show the queues of the broker at URL, or of the stopped one whose folder is --data."""
    if ctx.invoked_subcommand is not None:
        return Exit.OK
    columns, rows = _from_folder(data) if data is not None else _from_broker(url, timeout_s)
    if as_json:
        for row in rows:
            emit_json({name: to_json(value) for name, value in zip(columns, row, strict=True)})
    elif rows:
        shown = [
            index for index, name in enumerate(columns) if _worth_a_column(name, [row[index] for row in rows], rows)
        ]
        table([columns[index].replace("_", " ") for index in shown], [[row[index] for index in shown] for row in rows])
    else:
        click.echo("no queues")
    return Exit.OK


@queues.command()
@click.argument("name")
@click.option("--topic", is_flag=True, help="A topic instead.")
@seconds(10.0, "How long to wait for the broker's answer.")
@url_option
@json_option
def create(name: str, topic: bool, timeout_s: float, url: str, as_json: bool) -> int:
    """Make the queue NAME. It stays until somebody deletes it, whatever the policy of its address says."""
    kind = "topic" if topic else "queue"
    with management(url, timeout_s) as node:
        node.request("CREATE", QUEUE, name=name, body={"kind": kind})
    if as_json:
        emit_json({"name": name, "kind": kind})
    else:
        click.echo(f"{name}: {kind} made")
    return Exit.OK


@queues.command()
@click.argument("name")
@click.option("--if-unused", is_flag=True, help="Only if no link uses it.")
@click.option("--if-empty", is_flag=True, help="Only if there are no messages in it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@seconds(10.0, "How long to wait for the broker's answer.")
@url_option
@json_option
def delete(name: str, if_unused: bool, if_empty: bool, yes: bool, timeout_s: float, url: str, as_json: bool) -> int:
    """Delete the queue, subscription or topic NAME with all its messages, and end the links that use it.

    The ledger records each message as purged, and by whom."""
    if not yes and not click.confirm(f"Delete {name} and all that is in it?", err=True):
        return Exit.FAILED
    with management(url, timeout_s) as node:
        answer = node.ask("DELETE", QUEUE, name=name, body={"if_unused": if_unused, "if_empty": if_empty})
    told = {key: to_json(answer.application_properties.get(key)) for key in ("messages", "links")}
    if as_json:
        emit_json({"name": name, **told})
    else:
        click.echo(f"{name}: deleted, with {told.get('messages')} messages; {told.get('links')} links ended")
    return Exit.OK


@click.command()
@click.argument("queue")
@click.option("--yes", is_flag=True, help="Do not ask.")
@seconds(60.0, "How long to wait for the broker's answer.")
@url_option
@json_option
def purge(queue: str, yes: bool, timeout_s: float, url: str, as_json: bool) -> int:
    """Remove all messages of QUEUE. The ledger records each one as purged, and by whom."""
    if not yes and not click.confirm(f"Remove all messages of {queue}?", err=True):
        return Exit.FAILED
    with management(url, timeout_s) as node:
        answer = node.request("PURGE", QUEUE, name=queue)
    purged = answer.get("purged") if isinstance(answer, Mapping) else None
    if as_json:
        emit_json({"queue": queue, "purged": to_json(purged)})
    else:
        click.echo(f"{queue}: {purged} messages purged")
    return Exit.OK


def _worth_a_column(name: str, values: list[object], rows: list[list[object]]) -> bool:
    """For people: leave out what is zero everywhere, and addresses where they are the queues' names. --json has all."""
    if name == "address":
        return values != [row[0] for row in rows]
    if name == "kind":
        return any(value != "queue" for value in values)
    return name in ALWAYS_SHOWN or any(values)


def _from_broker(url: str, timeout_s: float) -> tuple[list[str], list[list[object]]]:
    """Column names and rows, as the broker gives them."""
    with management(url, timeout_s) as node:
        answer = node.request("QUERY", QUEUE)
    if not isinstance(answer, Mapping) or not {"attributeNames", "results"} <= answer.keys():
        raise ManagementFailed("QUERY: the answer is not the table that the management draft describes")
    return [str(name) for name in answer["attributeNames"]], [list(row) for row in answer["results"]]


def _kind(flags: int) -> str:
    """As the broker's own snapshot calls it."""
    from acquit.ledger.records import QueueFlag

    if flags & QueueFlag.TOPIC:
        kind = "topic"
    elif flags & QueueFlag.MULTICAST:
        return "subscription"
    else:
        kind = "queue"
    return f"temporary {kind}" if flags & QueueFlag.TEMPORARY else kind


def _from_folder(data: Path) -> tuple[list[str], list[list[object]]]:
    """The same, as the journal says it."""
    from acquit.cli.ledger import read_fold
    from acquit.ledger.balance import balance

    fold = read_fold(data)
    columns = ["name", "address", "kind", "depth", "available", "acquired", "scheduled", "suspended", "body_bytes"]
    columns += ["entered", "unrouted"]
    rows: list[list[object]] = []
    for row in balance(fold).queues:
        declared = fold.table.queues.get(row.queue)
        if declared is not None:
            live = row.live
            states = [live.total, live.available, live.acquired, live.scheduled, live.suspended, live.size_bytes]
            names = [declared.name, declared.address, _kind(declared.flags)]
            rows.append([*names, *states, sum(row.entered.values()), row.totals.unrouted])
    return columns, rows
