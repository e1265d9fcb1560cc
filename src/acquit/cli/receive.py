"""``acquit receive`` and ``acquit browse``: the messages of a queue, taken or only looked at.

`receive` accepts a message after it was printed and the output flushed, so that what a broken pipe swallowed stays in
the queue (mode INDIVIDUAL). With ``--mode auto`` it is accepted as it arrives, with ``no-ack`` before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from acquit.cli.connecting import BrokerAt, broker_options, hanging_up, opens_within
from acquit.cli.exits import Exit
from acquit.cli.management import meant
from acquit.cli.messages import body_text, body_to_json, death, describe
from acquit.cli.options import MODES, json_option, seconds
from acquit.cli.output import counted, emit_json, line, remark, time_text
from acquit.errors import AcquitError, ConfigurationError, ConnectTimeout, LinkDetached, NotFound
from acquit.protocol.definitions import AmqpCondition
from acquit.protocol.extensions import ATTEMPTS, EXISTING, ORIGIN

if TYPE_CHECKING:
    from acquit import Connection, Receipt, ReceivedMessage, Receiver

OUTCOMES: Final = ("accept", "release", "reject", "modify")
UNSURE: Final = ("STALE", "UNKNOWN")
"""Statuses of a receipt that do not confirm what was asked for."""
PREFETCH_MAX: Final = 100
ORIG_QUEUE: Final = "x-opt-ORIG-QUEUE"
ACTUAL_EXPIRY: Final = "x-opt-ACTUAL-EXPIRY"
"""Annotations of dead letters, as Artemis names them."""
ASKING_MAX_S: Final = 5.0
"""Seconds to wait for the names of queues that were perhaps meant."""
ANSWERS_S_MIN: Final = 1.0
"""Seconds that a broker has to say that there is nothing more, however short somebody wants to wait."""
ANSWERS_S_MAX: Final = 5.0
"""Seconds that a broker has to say that there is nothing more, when nothing came for as long as somebody wants to
wait."""
OUTAGE_MAX_S: Final = 24 * 3600.0
"""Seconds that `--follow` waits for a broker that is gone."""

_selector_option = click.option(
    "--selector", help="Only messages that match, as in JMS: \"colour = 'red' and size > 3\"."
)


@click.command()
@click.argument("address")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after so many; fewer are a failure.")
@seconds(1.0, "Stop when nothing comes for so long.")
@click.option("--follow", is_flag=True, help="Wait for more until interrupted.")
@click.option("--mode", type=click.Choice(MODES), default="individual", show_default=True, help="How it acknowledges.")
@click.option(
    "--outcome",
    type=click.Choice(OUTCOMES),
    default="accept",
    show_default=True,
    help="What becomes of each message; others than accept in mode individual only.",
)
@click.option("--reason", metavar="TEXT", help="With --outcome reject: the description of the error.")
@_selector_option
@click.option("--create", is_flag=True, help="Make the queue if it is not there.")
@broker_options
@json_option
def receive(
    address: str,
    count: int | None,
    timeout_s: float,
    follow: bool,
    mode: str,
    outcome: str,
    reason: str | None,
    selector: str | None,
    create: bool,
    broker: BrokerAt,
    as_json: bool,
) -> int:
    """Take messages from ADDRESS and print them.

    A message is accepted after it was printed. Without --count and --follow all that is there is taken. The queue must
    be there, unless --create makes it.
    """
    if outcome != "accept" and mode != "individual":
        raise click.UsageError(f"--outcome {outcome} needs --mode individual: mode {mode} acknowledges by itself")
    if reason is not None and outcome != "reject":
        raise click.UsageError("--reason belongs to --outcome reject")

    def settle(message: ReceivedMessage) -> Receipt | None:
        match mode, outcome:
            case "individual", "accept":
                return message.accept()
            case "individual", "release":
                return message.release()
            case "individual", "modify":
                return message.modify(delivery_failed=True)
            case "individual", _:
                return message.reject(description=reason)
            case "client", _:
                return message.acknowledge()
            case _:
                return None  # settled before it was handed to us

    # Asked for a few, it takes no more from others than these: without prefetch each one is fetched by itself.
    prefetch = PREFETCH_MAX if count is None or count > PREFETCH_MAX else 0
    with (
        broker.connect(
            outage_max_s=OUTAGE_MAX_S if follow else timeout_s, timeout_s=opens_within(max(timeout_s, ANSWERS_S_MAX))
        ) as connection,
        connection.session(mode) as session,
        _explaining(connection, address, selector),
        session.receiver(
            address, prefetch=prefetch, selector=selector, capabilities=() if create else (EXISTING,)
        ) as receiver,
        hanging_up(connection),
    ):
        taken, unsure = _take(receiver, count, None if follow else timeout_s, _printer(as_json, address), settle)
    if count is not None and taken < count:
        remark(f"{address}: {taken} of {counted(count, 'message')} came within {timeout_s:g} s")
        return Exit.FAILED
    return Exit.FAILED if unsure else Exit.OK


@click.command()
@click.argument("address")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show the first so many.")
@seconds(5.0, "How long to wait for the broker to say that there is no more.")
@_selector_option
@broker_options
@json_option
def browse(
    address: str, limit: int | None, timeout_s: float, selector: str | None, broker: BrokerAt, as_json: bool
) -> int:
    """Print the messages waiting at ADDRESS, oldest first, and leave them there.

    Messages that a consumer has acquired are not shown.
    """
    with (
        broker.connect(timeout_s=opens_within(timeout_s)) as connection,
        connection.session() as session,
        _explaining(connection, address, selector),
        session.receiver(
            address,
            browse=True,
            prefetch=min(limit or PREFETCH_MAX, PREFETCH_MAX),
            selector=selector,
            capabilities=(EXISTING,),
        ) as receiver,
        hanging_up(connection),
    ):
        show = _printer(as_json, address)
        for message in waiting(receiver, limit, timeout_s):
            show(message)
    return Exit.OK


def waiting(receiver: Receiver, limit: int | None, timeout_s: float) -> Iterator[ReceivedMessage]:
    """Yield what waits at the source of a browsing receiver, up to `limit` messages. Raises ConnectTimeout where the
    broker does not say within `timeout_s` seconds, or one, that there is no more."""
    shown = empty = 0
    # Drained: whatever there is for our credit has come (2.6.7). A drain leaves no credit, and the receive that finds
    # nothing then grants some: so the end of the queue is the second time that nothing came.
    while empty < 2 and (limit is None or shown < limit):
        within_s = max(timeout_s, ANSWERS_S_MIN)
        if not receiver.drain(within_s):
            raise ConnectTimeout(f"{receiver.address}: the broker did not answer within {within_s:g} s")
        messages = receiver.receive_many(PREFETCH_MAX if limit is None else limit - shown, timeout=0)
        yield from messages
        shown += len(messages)
        empty = 0 if messages else empty + 1


@contextmanager
def _explaining(connection: Connection, address: str, selector: str | None) -> Iterator[None]:
    """Make of the refusal of an address that is not there one that names those that were perhaps meant, and of that of
    a selector a ConfigurationError: it is the input that is wrong."""
    try:
        yield
    except NotFound as error:
        try:
            said = meant(connection, address, ASKING_MAX_S)
        except AcquitError:
            raise error from None  # a broker without a management node, or one that was lost
        raise NotFound(said, condition=error.condition, description=error.description, remote=error.remote) from error
    except LinkDetached as error:
        if selector is None or error.condition != AmqpCondition.INVALID_FIELD:
            raise
        raise ConfigurationError(str(error)) from error


def _take(
    receiver: Receiver,
    count: int | None,
    timeout_s: float | None,
    show: Callable[[ReceivedMessage], None],
    settle: Callable[[ReceivedMessage], Receipt | None],
) -> tuple[int, int]:
    """Show and settle up to `count` messages, until none comes for `timeout_s`. Raises ConnectTimeout where that is
    because the broker does not answer.

    Returns how many there were, and of how many the broker did not confirm what became of them; those are named.
    """
    taken = unsure = 0
    while count is None or taken < count:
        message = receiver.receive(timeout=timeout_s)
        if message is None:
            if not receiver.drain(ANSWERS_S_MAX):
                raise ConnectTimeout(
                    f"{receiver.address}: the broker does not answer; whether there is more is not known"
                )
            message = receiver.receive(timeout=0)
        if message is None:
            break
        show(message)
        receipt = settle(message)
        taken += 1
        status = None if receipt is None else receipt.status
        if receipt is not None and status is not None and status.name in UNSURE:
            unsure += 1
            remark(f"message {taken}: its settlement is {status.name.lower()}: {receipt.reason}")
    return taken, unsure


def _printer(as_json: bool, address: str) -> Callable[[ReceivedMessage], None]:
    return (lambda message: emit_json(describe(message))) if as_json else lambda message: _show(message, address)


def _show(message: ReceivedMessage, address: str) -> None:
    """A line of facts and the body below it."""
    facts = [f"#{message.sequence}" if message.sequence is not None else "", _text(message.message_id)]
    facts += [_text(message.subject), _text(message.content_type), "durable" if message.durable else "volatile"]
    if message.delivery_count:
        facts.append(f"failed before: {message.delivery_count}")
    if message.creation_time is not None:
        facts.append(f"made {time_text(message.creation_time * 1000)}")
    line(("  ".join(fact for fact in facts if fact), "dim"))
    if (origin := message.annotations.get(ORIG_QUEUE)) is not None:
        line(("  ", "dim"), death(address, _text(origin), message.annotations.get(ORIGIN), _reason(message)))
    for key, value in message.application_properties.items():
        line((f"  {key}: ", "dim"), _text(value))
    line(body_text(body_to_json(message.body)[0]))


def _reason(message: ReceivedMessage) -> str:
    """Return why a message is a dead letter: that it expired, or how its last attempt ended."""
    if ACTUAL_EXPIRY in message.annotations:
        return "expired"
    attempts = message.annotations.get(ATTEMPTS)
    last = attempts[-1] if isinstance(attempts, list) and attempts else None
    parts = [last.get(name) for name in ("cause", "condition", "description")] if isinstance(last, Mapping) else []
    return ": ".join(_text(part) for part in parts if part) or "for a reason that it does not say"


def _text(value: object) -> str:
    return "" if value is None else str.__str__(value) if isinstance(value, str) else str(value)
