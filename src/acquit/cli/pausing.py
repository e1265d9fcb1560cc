"""``acquit pause`` and ``acquit resume``: a queue that takes or gives no messages for a while."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from acquit.cli.connecting import BrokerAt, broker_options
from acquit.cli.exits import Exit
from acquit.cli.management import check_queue, management
from acquit.cli.options import json_option, seconds
from acquit.cli.output import emit_json
from acquit.protocol.extensions import QUEUE
from acquit.protocol.jsonform import to_json

_PAUSED: Final = {(True, True): "both", (False, False): "both", (True, False): "producers", (False, True): "consumers"}
"""The links that a queue is paused for, by the options --producers and --consumers."""
_SAID: Final = {
    "none": "not paused",
    "both": "paused for producers and consumers",
    "producers": "paused for producers",
    "consumers": "paused for consumers",
}


@click.command()
@click.argument("queue")
@click.option("--producers", is_flag=True, help="Only for who sends: senders get no credit, and wait.")
@click.option("--consumers", is_flag=True, help="Only for who receives: nothing is handed out.")
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def pause(queue: str, producers: bool, consumers: bool, timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Pause QUEUE for producers and consumers, or for one of them, until `acquit resume`, also over a restart.

    What was paused before is replaced. What consumers have acquired they can still settle."""
    return _update(queue, _PAUSED[producers, consumers], timeout_s, broker, as_json=as_json)


@click.command()
@click.argument("queue")
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def resume(queue: str, timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Let producers and consumers of QUEUE go on."""
    return _update(queue, "none", timeout_s, broker, as_json=as_json)


def _update(queue: str, how: str, timeout_s: float, broker: BrokerAt, *, as_json: bool) -> int:
    with management(broker, timeout_s) as node:
        check_queue(node, queue)
        answer = node.request("UPDATE", QUEUE, name=queue, body={"paused": how})
    paused = answer.get("paused") if isinstance(answer, Mapping) else None
    if as_json:
        emit_json({"queue": queue, "paused": to_json(paused)})
    else:
        click.echo(f"{queue}: {_SAID.get(str(paused), paused)}")
    return Exit.OK
