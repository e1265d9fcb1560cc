"""``acquit marks``: how far senders whose postings are numbered have come."""

from __future__ import annotations

from typing import Final

import click

from acquit.cli.connecting import BrokerAt, broker_options
from acquit.cli.exits import Exit
from acquit.cli.management import management, table_of
from acquit.cli.options import json_option, seconds
from acquit.cli.output import emit_json, table, time_text
from acquit.protocol.extensions import MARK
from acquit.protocol.jsonform import to_json

PAGE: Final = 1_000
COLUMNS: Final = ("name", "user", "batch", "index_in_batch", "sequence", "links", "moved")


@click.command()
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def marks(timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Show the marks of senders that number their postings, as Spark's sink does: the highest that was posted."""
    found: list[dict[str, object]] = []
    with management(broker, timeout_s) as node:
        after = ""
        while True:
            columns, rows = table_of(node.request("QUERY", MARK, body={"after": after, "limit": PAGE}))
            found += [dict(zip(columns, row, strict=True)) for row in rows]
            if len(rows) < PAGE:
                break
            after = str(found[-1]["id"])
    if as_json:
        for row in found:
            emit_json({name: to_json(value) for name, value in row.items()})
    elif found:
        for row in found:
            moved = row["moved_ms"]
            row["moved"] = time_text(moved * 1000) if isinstance(moved, int) else ""
        table(COLUMNS, [[row[name] for name in COLUMNS] for row in found])
    else:
        click.echo("no sender has a mark")
    return Exit.OK
