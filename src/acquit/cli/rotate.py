"""``acquit rotate``: a new segment for a running broker's journal."""

from __future__ import annotations

from collections.abc import Mapping

import click

from acquit.cli.connecting import BrokerAt, broker_options
from acquit.cli.exits import Exit
from acquit.cli.management import management
from acquit.cli.options import json_option, seconds
from acquit.cli.output import emit_json
from acquit.protocol.extensions import BROKER
from acquit.protocol.jsonform import to_json


@click.command()
@seconds(60.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def rotate(timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Close the open segment of the journal of the broker at URL, and begin the next.

    A closed segment does not change any more: its hash is in the chain, and tools that copy files can take it."""
    with management(broker, timeout_s) as node:
        answer = node.request("ROTATE", BROKER)
    closed = answer.get("closed") if isinstance(answer, Mapping) else None
    if as_json:
        emit_json({"closed": to_json(closed)})
    else:
        click.echo(f"segment {closed} is closed")
    return Exit.OK
