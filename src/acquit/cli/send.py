"""``acquit send``: messages from arguments, files or standard input, pipelined, and what became of each.

Sends run ahead of their outcomes by at most `IN_FLIGHT_MAX`, so that standard input of any length is sent in bounded
memory, and the outcomes are counted in the order of the messages. A message that is not accepted is named on standard
error and does not stop the others; a lost connection does, and so does an interrupt, and what had no outcome by then
is counted *in doubt*.
"""

from __future__ import annotations

import mimetypes
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from acquit.cli.connecting import LEAVES_S, BrokerAt, broker_options, hanging_up, opens_within
from acquit.cli.exits import Exit, one_line
from acquit.cli.messages import compose
from acquit.cli.options import FiniteRange, PathType, json_option, pair, seconds
from acquit.cli.output import counting, emit_json, remark
from acquit.cli.streams import input_lines, input_text
from acquit.client.options import DeliveryMode
from acquit.errors import (
    AcquitError,
    ConfigurationError,
    DeliveryInDoubt,
    EncodeError,
    EndpointError,
    MessageModified,
    MessageRejected,
    MessageReleased,
    NotSent,
)
from acquit.protocol.message import Message
from acquit.protocol.types import Symbol

if TYPE_CHECKING:
    from acquit import SendReceipt

IN_FLIGHT_MAX: Final = 1000
"""Messages sent and not yet answered: enough to fill the broker's group commit, small beside its credit."""
TTL_S_MAX: Final = 4_294_967
"""Longest time that the header's 32 bits of milliseconds hold (3.2.1)."""
DELAY_S_MAX: Final = 10 * 366 * 86_400
"""Ten years."""
DELAYS: Final = "DELAYED_DELIVERY"
"""Capability that a broker offers in *open* if it looks at the delay of a message."""
AS_IT_IS: Final = "; --file /dev/stdin sends it as it is"

# What is said of a message, by how its send ended. The first class that fits decides.
OUTCOMES: Final[tuple[tuple[type[AcquitError], str], ...]] = (
    (MessageRejected, "rejected"),
    (MessageReleased, "released"),
    (MessageModified, "modified"),
    (DeliveryInDoubt, "in_doubt"),
    (AcquitError, "not_sent"),
)


@click.command()
@click.argument("address")
@click.argument("bodies", metavar="[BODY]...", nargs=-1)
@click.option(
    "--file",
    "files",
    multiple=True,
    type=PathType(exists=True, dir_okay=False),
    metavar="FILE",
    help="Send the file's content as binary data, its name as the subject. May be repeated.",
)
@click.option(
    "--json-lines", is_flag=True, help="Each line of standard input is a message as `receive --json` prints it."
)
@click.option("--lines", is_flag=True, help="Each line of standard input is the text of a message.")
@click.option(
    "--durable/--volatile", default=None, help="Whether it survives a restart of the broker.  [default: durable]"
)
@click.option(
    "--property", "properties", multiple=True, metavar="KEY=VALUE", help="An application property. May be repeated."
)
@click.option("--ttl", "ttl_s", type=FiniteRange(0, TTL_S_MAX), metavar="SECONDS", help="Expires after so long.")
@click.option(
    "--delay",
    "delay_s",
    type=FiniteRange(0.001, DELAY_S_MAX),
    metavar="SECONDS",
    help="Delivered no sooner than after so long.",
)
@click.option("--id", "message_id", metavar="ID", help="The message id; with several messages -1, -2, ... is appended.")
@click.option("--subject", metavar="TEXT", help="The subject.")
@click.option("--priority", type=click.IntRange(0, 255), metavar="N", help="The priority; 4 is normal.")
@seconds(30.0, "Give up when no answer comes for so long.")
@broker_options
@json_option
def send(
    address: str,
    bodies: tuple[str, ...],
    files: tuple[Path, ...],
    json_lines: bool,
    lines: bool,
    durable: bool | None,
    properties: tuple[str, ...],
    ttl_s: float | None,
    delay_s: float | None,
    message_id: str | None,
    subject: str | None,
    priority: int | None,
    timeout_s: float,
    broker: BrokerAt,
    as_json: bool,
) -> int:
    """Send messages to ADDRESS and report their outcomes.

    Without BODY, --file, --lines or --json-lines, all of standard input is one message. Options override what a line of
    JSON says. Exit code 0 says that every message was accepted; a durable one is then on the broker's disk.
    """
    if json_lines and lines:
        raise click.UsageError("--json-lines and --lines both read standard input: give one of them")
    overrides: dict[str, object] = {
        "durable": durable,
        "subject": subject,
        "priority": priority,
        "ttl_ms": None if ttl_s is None else int(ttl_s * 1000),
    }
    single = len(bodies) + len(files) == 1 and not (json_lines or lines)
    single = single or not (bodies or files or json_lines or lines)
    named = dict(pair(text, "--property") for text in properties)

    def finished() -> Iterator[Message]:
        for number, message in enumerate(_messages(bodies, files, json_lines, lines), 1):
            for attribute, value in overrides.items():
                if value is not None:
                    setattr(message, attribute, value)
            if message_id is not None:
                message.message_id = message_id if single else f"{message_id}-{number}"
            if delay_s is not None:
                message.annotations = {**message.annotations, "x-opt-delivery-delay": int(delay_s * 1000)}
            if named:
                message.application_properties = {**message.application_properties, **named}
            yield message

    total = None if json_lines or lines else max(1, len(bodies) + len(files))
    counts, stopped = _send_all(
        broker, address, finished(), timeout_s=timeout_s, total=total, delayed=delay_s is not None
    )
    _report(address, counts, as_json=as_json)
    if stopped is not None:
        raise stopped
    return Exit.OK if counts["accepted"] == sum(counts.values()) else Exit.FAILED


def _messages(bodies: Iterable[str], files: Iterable[Path], json_lines: bool, lines: bool) -> Iterator[Message]:
    """Yield a message for each body, file and line, read as they are wanted."""
    anything = json_lines or lines
    for body in bodies:
        anything = True
        yield Message(body, durable=True)
    for path in files:
        anything = True
        kind, _ = mimetypes.guess_type(path.name)
        content_type = Symbol(kind or "application/octet-stream")
        yield Message(path.read_bytes(), durable=True, subject=path.name, content_type=content_type)
    if json_lines:
        for number, line in enumerate(input_lines(), 1):
            if line.strip():
                try:
                    yield compose(line)
                except ConfigurationError as error:
                    raise ConfigurationError(f"line {number} of standard input: {error}") from error
    elif lines:
        for line in input_lines(hint=AS_IT_IS):
            yield Message(line.rstrip("\n"), durable=True)
    elif not anything:
        yield Message(input_text(hint=AS_IT_IS), durable=True)


@dataclass(slots=True)
class _Progress:
    """Progress: how many were begun, how many of these ended how, and the others, by their numbers."""

    begun: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    waiting: deque[tuple[int, SendReceipt]] = field(default_factory=deque)

    def note_interrupt(self) -> None:
        """Count what was begun, now that the connection is closed and nothing more will be heard."""
        for _, receipt in self.waiting:
            if receipt.done:
                self.counts[_outcome(receipt.error())] += 1
        self.counts["in_doubt"] += self.begun - self.counts.total()


def _outcome(error: AcquitError | None) -> str:
    return "accepted" if error is None else next(name for kind, name in OUTCOMES if isinstance(error, kind))


def _send_all(
    broker: BrokerAt, address: str, messages: Iterable[Message], *, timeout_s: float, total: int | None, delayed: bool
) -> tuple[Counter[str], BaseException | None]:
    """Send them, pipelined: how many ended how, and what stopped it before the end (the connection, a line of input, an
    interrupt).

    Raises what kept the link from opening, that the broker delays nothing where that is wanted, and an interrupt before
    anything was sent.
    """
    so_far = _Progress()
    try:
        stopped = _send_each(so_far, broker, address, messages, timeout_s=timeout_s, total=total, delayed=delayed)
    except KeyboardInterrupt as interrupt:
        if not so_far.begun:
            raise
        so_far.note_interrupt()
        return so_far.counts, interrupt
    return so_far.counts, stopped


def _send_each(
    so_far: _Progress,
    broker: BrokerAt,
    address: str,
    messages: Iterable[Message],
    *,
    timeout_s: float,
    total: int | None,
    delayed: bool,
) -> AcquitError | OSError | None:
    stopped: AcquitError | OSError | None = None
    counts, waiting = so_far.counts, so_far.waiting
    with (
        broker.connect(outage_max_s=timeout_s, timeout_s=opens_within(timeout_s)) as connection,
        connection.session() as session,
        # Each message says for itself whether it is durable.
        session.sender(address, delivery_mode=DeliveryMode.NON_PERSISTENT) as sender,
        hanging_up(connection),
        counting(f"sending to {address}", total) as counter,
    ):
        if delayed and DELAYS not in connection.remote_capabilities:
            raise ConfigurationError(f"--delay: this broker does not offer {DELAYS}, and would deliver at once")

        def ended(number: int, error: AcquitError | None) -> None:
            outcome = _outcome(error)
            if error is not None:
                remark(f"message {number}: {outcome.replace('_', ' ')}: {one_line(error)}")
            counter.advance()
            counts[outcome] += 1

        def settle_oldest() -> None:
            number, receipt = waiting[0]
            try:
                receipt.result()  # each send has its own time-out
            except AcquitError as error:
                ended(number, error)
            else:
                ended(number, None)
            waiting.popleft()

        try:
            for number, message in enumerate(messages, 1):
                if len(waiting) >= IN_FLIGHT_MAX:
                    settle_oldest()
                so_far.begun = number
                try:
                    waiting.append((number, sender.send(message, wait=False, timeout=timeout_s)))
                except NotSent as error:  # large ones, which the buffer has no room for
                    ended(number, error)
                except (ConfigurationError, EncodeError) as error:
                    raise ConfigurationError(f"message {number}: {error}") from error
        except (ConfigurationError, EncodeError, EndpointError, OSError) as error:
            stopped = error  # what was sent before it still has an outcome to hear of
            so_far.begun = counts.total() + len(waiting)
        while waiting:
            settle_oldest()
        if counts["in_doubt"]:
            connection.close(LEAVES_S)  # who has not answered these may not answer a close either
    return stopped


def _report(address: str, counts: Counter[str], *, as_json: bool) -> None:
    names = ("accepted", *dict.fromkeys(name for _, name in OUTCOMES))
    if as_json:
        emit_json({"address": address, "sent": sum(counts.values()), **{name: counts[name] for name in names}})
    else:
        parts = [f"{counts[name]} {name.replace('_', ' ')}" for name in names if counts[name]]
        click.echo(f"{address}: {', '.join(parts) or 'nothing to send'}")
