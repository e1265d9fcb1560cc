"""``acquit queues`` and ``acquit purge``: what a broker holds, and what it shall hold no more.

A running broker is asked over AMQP, with the rights of the user in the URL. With ``--data`` the folder of a stopped one
is read: the journal folded, nothing written.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from textwrap import wrap
from typing import Final

import click

from acquit.cli.connecting import BrokerAt, broker_options
from acquit.cli.exits import Exit
from acquit.cli.figures import RATES, TROUBLE, Row, ordered, with_rates
from acquit.cli.lazy import WholeGroup
from acquit.cli.management import lasting, management, table_of
from acquit.cli.options import FiniteRange, data_option, json_option, seconds
from acquit.cli.output import cell, counted, emit_json, remark, time_text
from acquit.protocol.extensions import QUEUE
from acquit.protocol.jsonform import to_json

COLUMNS: Final = ("name", "kind", "depth", "available", "acquired", "consumers", "body_bytes", "entered")
"""Columns that people see of each queue; others that are not zero stand below its row."""
WATCHED: Final = (*(name for name in COLUMNS if name != "entered"), *RATES)
"""Columns that people see while they watch."""
HEADS: Final = {"in_per_s": "in/s", "out_per_s": "out/s"}
"""Heads of columns that are not their names."""
WATCH_S: Final = 2.0
FOR_MACHINES: Final = ("address", "memory_bytes")
NAME_WIDTH_MAX: Final = 24
"""A longer name has a line of its own, so that all numbers fit a hundred columns."""


@click.group(cls=WholeGroup, invoke_without_command=True)
@data_option(required=False)
@click.option("--sort", metavar="COLUMN", help="Order by this column of --json, or by trouble; -COLUMN for descending.")
@click.option(
    "--watch",
    "watch_s",
    is_flag=False,
    flag_value=WATCH_S,
    type=FiniteRange(0, min_open=True),
    metavar="[SECONDS]",
    help=f"Show them again and again, so far apart ({WATCH_S:g} s), with rates, until Ctrl-C.",
)
@click.option("--times", type=click.IntRange(1), help="With --watch: stop after so many tables.")
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
@click.pass_context
def queues(
    ctx: click.Context,
    data: Path | None,
    sort: str | None,
    watch_s: float | None,
    times: int | None,
    timeout_s: float,
    broker: BrokerAt,
    as_json: bool,
) -> int:
    """Show the queues of the broker at URL, or of the stopped one whose folder is --data.

    Below a queue stands what else of it is not zero: what is scheduled or undeliverable, who is its active consumer,
    what left it and why. --json has everything."""
    if ctx.invoked_subcommand is not None:
        return Exit.OK
    if watch_s is None:
        if times is not None:
            raise click.UsageError("--times belongs to --watch")
        columns, found = _from_folder(data) if data is not None else _from_broker(broker, timeout_s)
        rows = _sorted([dict(zip(columns, row, strict=True)) for row in found], sort)
        if as_json:
            _emit(rows)
        else:
            _tell(rows, COLUMNS)
        return Exit.OK
    if data is not None:
        raise click.UsageError("--watch asks a running broker: it does not go with --data")
    return _watch(broker, timeout_s, watch_s, times, sort, as_json=as_json)


def _watch(
    broker: BrokerAt, timeout_s: float, interval_s: float, times: int | None, sort: str | None, *, as_json: bool
) -> int:
    """Show the queues again and again."""
    from acquit.cli.watching import Missed, watch

    warned: Sequence[str] = ()
    first = True
    for seen in islice(watch(broker, timeout_s, interval_s, threading.Event().wait), times):
        if isinstance(seen, Missed):
            remark(f"acquit: no figures: {seen.reason}; trying again")
            continue
        if seen.now.refusal:
            remark(f"acquit: {seen.now.refusal}")
            return Exit.FAILED
        rows = _sorted(with_rates(seen.now, seen.before), sort)
        at_us = time.time_ns() // 1000
        if as_json:
            _emit(rows, at_ms=at_us // 1000)
        else:
            click.clear()
            if not (first or sys.stdout.isatty()):
                click.echo()
            click.echo(f"{time_text(at_us)}, every {interval_s:g} s")
            _tell(rows, WATCHED)
        first = False
        warnings = seen.now.broker.get("warnings", ())
        if warnings != warned:
            warned = warnings
            for warning in warnings:
                remark(f"acquit: {warning}")
    return Exit.OK


def _sorted(rows: list[Row], sort: str | None) -> list[Row]:
    """Return the rows in the order that an option asks for. Raises click.UsageError for a column that is not there."""
    if sort is None or not rows:
        return rows
    column = sort.removeprefix("-")
    if column != TROUBLE and column not in rows[0]:
        raise click.UsageError(f"--sort: there is no column {column!r}; there are {TROUBLE}, {', '.join(rows[0])}")
    return ordered(rows, column, descending=sort.startswith("-"))


def _emit(rows: Sequence[Row], **more: int) -> None:
    """Print the queues for machines."""
    for row in rows:
        emit_json({**more, **{name: to_json(value) for name, value in row.items()}})


def _tell(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Print the queues for people."""
    if not rows:
        click.echo("no queues")
        return
    for text in _sheet(rows, columns):
        click.echo(text)


@queues.command()
@click.argument("name")
@click.option("--topic", is_flag=True, help="A topic instead.")
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def create(name: str, topic: bool, timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Make the queue NAME. It stays until somebody deletes it, whatever the policy of its address says."""
    kind = "topic" if topic else "queue"
    with management(broker, timeout_s) as node:
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
@broker_options
@json_option
def delete(
    name: str, if_unused: bool, if_empty: bool, yes: bool, timeout_s: float, broker: BrokerAt, as_json: bool
) -> int:
    """Delete the queue, subscription or topic NAME with all its messages, and end the links that use it.

    The ledger records each message as purged, and by whom."""
    if not yes and not click.confirm(f"Delete {name} and all that is in it?", err=True):
        return Exit.FAILED
    with management(broker, timeout_s) as node, lasting():
        answer = node.ask("DELETE", QUEUE, name=name, body={"if_unused": if_unused, "if_empty": if_empty})
    told = {key: to_json(answer.application_properties.get(key)) for key in ("messages", "links")}
    if as_json:
        emit_json({"name": name, **told})
    else:
        click.echo(f"{name}: deleted (messages in it: {told.get('messages')}; links ended: {told.get('links')})")
    return Exit.OK


@click.command()
@click.argument("queue")
@click.option("--yes", is_flag=True, help="Do not ask.")
@seconds(60.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def purge(queue: str, yes: bool, timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Remove all messages of QUEUE that nobody has acquired. The ledger records each one as purged, and by whom."""
    if not yes and not click.confirm(f"Remove all messages of {queue}?", err=True):
        return Exit.FAILED
    with management(broker, timeout_s) as node, lasting():
        answer = node.request("PURGE", QUEUE, name=queue)
    purged = answer.get("purged") if isinstance(answer, Mapping) else None
    if as_json:
        emit_json({"queue": queue, "purged": to_json(purged)})
    else:
        click.echo(f"{queue}: {counted(purged, 'message')} purged")
    return Exit.OK


def _sheet(rows: Sequence[Mapping[str, object]], shown: Sequence[str]) -> Iterator[str]:
    """The queues for people, line by line."""
    columns = [name for name in shown if name in rows[0]]
    if all(row["kind"] == "queue" for row in rows):
        columns.remove("kind")
    cells = [[cell(row[name]) for name in columns] for row in rows]
    heads = [HEADS.get(name, name.replace("_", " ")) for name in columns]
    widths = [max(map(len, texts)) for texts in zip(heads, *cells, strict=True)]
    widths[0] = max(len(text) for text in (heads[0], *(row[0] for row in cells)) if len(text) <= NAME_WIDTH_MAX)

    def line(texts: Sequence[str]) -> str:
        flush = (str.ljust if name in ("name", "kind") else str.rjust for name in columns)
        return "  ".join(put(text, width) for put, text, width in zip(flush, texts, widths, strict=True)).rstrip()

    yield click.style(line(heads), bold=True)
    for row, texts in zip(rows, cells, strict=True):
        if len(texts[0]) > NAME_WIDTH_MAX:
            yield texts[0]
            texts[0] = ""
        yield line(texts)
        rest = [f"{name.replace('_', ' ')} {cell(value)}" for name, value in row.items() if _worth_telling(name, value)]
        yield from wrap(", ".join(rest), 100, initial_indent="    ", subsequent_indent="    ")


def _worth_telling(name: str, value: object) -> bool:
    return value not in (None, 0, "", "none") and name not in (*COLUMNS, *RATES, *FOR_MACHINES)


def _from_broker(broker: BrokerAt, timeout_s: float) -> tuple[list[str], list[list[object]]]:
    """Column names and rows, as the broker gives them."""
    with management(broker, timeout_s) as node:
        answer = node.request("QUERY", QUEUE)
    found = table_of(answer)
    for warning in answer.get("warnings", ()) if isinstance(answer, Mapping) else ():
        remark(f"acquit: {warning}")
    return found


def _kind(flags: int) -> str:
    """Return the kind of a queue under the name that the broker's own snapshot uses."""
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
