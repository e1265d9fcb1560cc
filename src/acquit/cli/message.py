"""``acquit message history``: what became of a message, asked of a running broker."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from acquit.cli.connecting import BrokerAt, broker_options
from acquit.cli.examining import message
from acquit.cli.exits import Exit
from acquit.cli.ledger import show_lives, ulong_of
from acquit.cli.management import management
from acquit.cli.options import json_option, seconds
from acquit.cli.output import counted, remark
from acquit.client.management import Management, ManagementFailed
from acquit.protocol.extensions import HISTORY
from acquit.protocol.types import ULong, Value

if TYPE_CHECKING:
    from acquit.ledger.history import Life

_NOT_FOUND: Final = 404


@message.command("history")
@click.option("--sequence", type=click.IntRange(1), metavar="NUMBER", help="The message with this sequence.")
@click.option("--message-id", metavar="ID", help="The messages with this message-id: a string, else a number or uuid.")
@click.option("--duplicate-id", metavar="ID", help="The messages with this id of duplicate detection.")
@seconds(60.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def history(
    sequence: int | None,
    message_id: str | None,
    duplicate_id: str | None,
    timeout_s: float,
    broker: BrokerAt,
    as_json: bool,
) -> int:
    """Tell what became of a message: each event, and those of the copies that it came from and became.

    The broker reads it from its journal; `acquit ledger show` tells the same from the folder of a stopped one.
    """
    bodies: list[dict[Value, Value]] = []
    if sequence is not None:
        bodies.append({"sequence": ULong(sequence)})
    if message_id is not None:
        bodies += [{"message_id": meaning} for meaning in _meanings(message_id)]
    if duplicate_id is not None:
        bodies += [{"duplicate_id": meaning} for meaning in _meanings(duplicate_id)]
    if (sequence, message_id, duplicate_id).count(None) != 2:
        raise click.UsageError("name the message by one of --sequence, --message-id and --duplicate-id")
    with management(broker, timeout_s) as node:
        answer = _first(node, bodies)
    lives = [_life(one) for one in answer["lives"]]
    show_lives(lives, as_json=as_json)
    _remark_on(answer)
    return Exit.OK if lives else Exit.FAILED


def _meanings(text: str) -> list[Value]:
    """Return the ids that a text can mean: itself, then a number and a uuid, if it looks like one."""
    meanings: list[Value] = [text]
    if (number := ulong_of(text)) is not None:
        meanings.append(ULong(number))
    with contextlib.suppress(ValueError):
        meanings.append(uuid.UUID(text))
    return meanings


def _first(node: Management, bodies: list[dict[Value, Value]]) -> Mapping[str, Any]:
    """Return the answer to the first request that finds something; the failure of the first if none does."""
    failure: ManagementFailed | None = None
    for body in bodies:
        try:
            answer = node.request("READ", HISTORY, body=body)
        except ManagementFailed as error:
            if error.status != _NOT_FOUND:
                raise
            failure = failure or error
        else:
            if isinstance(answer, Mapping):
                return answer
    raise failure or ManagementFailed("READ: the answer is no history")


def _life(told: Mapping[str, Any]) -> Life:
    """Return the life that an answer tells."""
    from acquit.ledger.events import EventFlag, EventKind
    from acquit.ledger.history import Life, Step
    from acquit.store.interface import Position

    steps = [
        Step(
            time_us=step["time_us"],
            kind=EventKind[_constant(step["event"])],
            queue=0,
            queue_name=step["queue"],
            actor=0 if step["who"] is None else 1,
            actor_name=step["who"] or "",
            attempt=step["delivery_count"],
            origin=int(step["origin"]),
            flags=sum(EventFlag[_constant(name)] for name in step["flags"]),
            cause=_constant(step["cause"]),
            condition=step["condition"],
            description=step["description"],
            run=step["run"],
            segment=step["segment"],
            position=Position(int(step["position"])),
        )
        for step in told["steps"]
    ]
    return Life(
        int(told["sequence"]),
        told["message_id"],
        told["address"],
        told["size_bytes"],
        told["crc"],
        int(told["entered_as"] or 0),
        steps,
    )


def _constant(word: str) -> str:
    return word.upper().replace("-", "_")


def _remark_on(answer: Mapping[str, Any]) -> None:
    """Say what the answer leaves out."""
    if answer["stopped"]:
        where = f"in segment {answer['stopped_in_segment']} of {answer['first_segment']} and on"
        remark(f"acquit: not all of the journal was read: the limit of {answer['stopped']} was met {where}")
    if answer["gone_segments"]:
        remark(f"{counted(len(answer['gone_segments']), 'segment')} left the journal while it was read")
    if answer["left_out"]:
        remark(f"{counted(answer['left_out'], 'event')} more are not shown")
    if answer["hidden"]:
        remark(f"{counted(answer['hidden'], 'copy', 'copies')} in queues that you may not browse are not shown")
    if answer["truncated"]:
        remark(f"there are more than these {len(answer['lives']):,} copies")


__all__ = ["history", "message"]
