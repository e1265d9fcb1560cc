"""``acquit status`` and ``acquit health``: how a broker is, on one screen for people, in an exit code for probes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click
from rich.filesize import decimal

from acquit.cli.connecting import BrokerAt, broker_options
from acquit.cli.exits import Exit, exit_of, one_line
from acquit.cli.figures import TROUBLE, Look, Row, look, ordered, troubles
from acquit.cli.management import management
from acquit.cli.options import json_option, seconds
from acquit.cli.output import counted, emit_json, line, remark, span_text
from acquit.errors import AcquitError, ConfigurationError
from acquit.protocol.extensions import BROKER
from acquit.protocol.jsonform import to_json

TOLD_MAX: Final = 10
"""Queues in trouble that people are told of by name; --json has all."""
NOT_WHOLE: Final = "there are more figures for who may browse or manage all addresses (#)"


@click.command()
@seconds(10.0, "How long to wait for the broker, and for each of its answers.")
@broker_options
@json_option
def status(timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Show on one screen how the broker is: connections, queues, memory, disk, warnings, and queues in trouble.

    A queue is in trouble if messages wait in it and nobody receives, if its consumers may not have what waits, if it is
    paused, or if a link that is away holds messages. Trouble does not change the exit code: see `acquit health`."""
    with management(broker, timeout_s, connect_timeout_s=timeout_s) as node:
        seen = look(node)
    if as_json:
        troubled = [{"queue": row["name"], "troubles": list(troubles(row))} for row in in_trouble(seen)]
        figures = {name: to_json(value) for name, value in seen.broker.items()}
        emit_json({**figures, "in_trouble": None if seen.refusal else to_json(troubled)})
    else:
        for label, text in _screen(seen):
            line((f"{label:<12}", "bold"), text)
    if seen.refusal:
        remark(f"acquit: {seen.refusal}")
        return Exit.FAILED
    if not seen.whole:
        remark(f"acquit: {NOT_WHOLE}")
    return Exit.OK


@click.command()
@seconds(5.0, "How long to wait for the broker, and for its answer.")
@broker_options
@json_option
def health(timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Say in one line, and in the exit code, whether the broker answers and takes messages.

    Exit codes: 0 healthy; 1 it did not let us in; 3 it does not answer; 5 it answers, and refuses messages for want of
    room. It needs a user who may log in, and no permission."""
    code, reason, warnings = _examine(broker, timeout_s)
    if as_json:
        emit_json({"healthy": code == Exit.OK, "code": int(code), "reason": reason, "warnings": to_json(warnings)})
    else:
        line("; ".join([reason, *(f"warning: {text}" for text in warnings)]))
    return code


def in_trouble(seen: Look) -> list[Row]:
    """Return the queues that somebody should look at, the worst first."""
    return ordered((row for row in seen.queues if troubles(row)), TROUBLE)


def _examine(broker: BrokerAt, timeout_s: float) -> tuple[Exit, str, list[str]]:
    """Return the exit code, what to say, and the broker's warnings. Raises ConfigurationError."""
    try:
        with management(broker, timeout_s, connect_timeout_s=timeout_s) as node:
            answer = node.request("READ", BROKER)
    except ConfigurationError:
        raise
    except (AcquitError, OSError) as error:
        return exit_of(error) or Exit.FAILED, f"unhealthy: {one_line(error)}", []
    figures = answer if isinstance(answer, dict) else {}
    warnings = [str(text) for text in figures.get("warnings", ())]
    if not figures.get("accepting"):
        return Exit.REFUSING, f"refusing: {warnings[0] if warnings else 'it takes no messages'}", warnings[1:]
    return Exit.OK, "healthy", warnings


def _screen(seen: Look) -> Iterator[tuple[str, str]]:
    """Yield the lines for people: what each is about, and its text."""
    broker = seen.broker
    state = "accepting messages" if broker["accepting"] else "REFUSING messages"
    if seen.whole:
        yield "acquit", f"{broker['version']}, up {span_text(broker['uptime_ms'])}, {state}"
    else:
        yield "acquit", state
    yield "broker", f"{broker['broker_id']}, last sequence {broker['last_sequence']:,}"
    if seen.whole:
        disk, sync = broker["disk"], broker["sync"]
        yield "connections", f"{broker['connections']:,} with {counted(broker['links'], 'link')}"
        held, open_ones = counted(broker["unsettled"], "message"), counted(broker["transactions"], "open transaction")
        topics = counted(broker["topics"], "topic")
        yield "queues", f"{broker['queues']:,}, {topics}, {held} held by consumers, {open_ones}"
        yield "memory", f"{decimal(broker['memory_bytes'])} of {decimal(broker['memory_bytes_max'])} for messages"
        free = "unknown room" if disk["free_bytes"] is None else f"{decimal(disk['free_bytes'])} free"
        yield (
            "disk",
            f"{free}, journal {decimal(disk['journal_bytes'])} in {counted(disk['segments'], 'segment')}",
        )
        yield "sync", f"{sync['p50_ms']:,.1f} ms (p50), {sync['p99_ms']:,.1f} ms (p99), {sync['count']:,} in all"
        yield "loop", f"late by at most {broker['loop_lag_ms']:,.1f} ms in the last 10 s"
    yield from (("warning", text) for text in broker["warnings"])
    if seen.refusal:
        return
    found = in_trouble(seen)
    yield "trouble", counted(len(found), "queue") if found else "none"
    yield from (("", f"{row['name']}: {'; '.join(troubles(row))}") for row in found[:TOLD_MAX])
    if len(found) > TOLD_MAX:
        yield "", f"and {len(found) - TOLD_MAX:,} more"
