"""Messages of a running broker, looked at over the wire: a page of them, and one in full (``acquit message show``).

Asked of the management node, so that a message is found whoever has it: available, acquired, suspended or scheduled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from acquit.cli.connecting import BrokerAt, broker_options
from acquit.cli.exits import Exit
from acquit.cli.lazy import WholeGroup
from acquit.cli.management import check_queue, management, table_of
from acquit.cli.messages import body_text, body_to_json, death
from acquit.cli.options import json_option, seconds
from acquit.cli.output import emit_json, line, time_text
from acquit.client.management import Management, ManagementFailed
from acquit.errors import DecodeError
from acquit.protocol.extensions import ATTEMPTS, MESSAGE
from acquit.protocol.jsonform import Json, to_json
from acquit.protocol.message import Message
from acquit.protocol.types import ULong, Value

PAGE: Final = 500
"""Messages that are asked for at once."""
SECTIONS: Final = ("header", "delivery_annotations", "annotations", "properties", "application_properties", "footer")
"""Sections beside the body, as attributes of a message."""
_NOT_FOUND: Final = 404


@click.group(cls=WholeGroup)
def message() -> None:
    """Messages of a running broker, one at a time."""


@message.command()
@click.argument("queue")
@click.argument("sequence", type=click.IntRange(1))
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def show(queue: str, sequence: int, timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Show the message SEQUENCE of QUEUE in full, whoever has it, and take nothing: who holds it, its failed attempts,
    and every section."""
    with management(broker, timeout_s) as node:
        found = read(node, queue, sequence)
    tell(queue, found, as_json=as_json)
    return Exit.OK


def rows(
    node: Management, queue: str, *, selector: str | None = None, limit: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the messages of a queue in any state, as the broker describes them, up to `limit`. Raises as `ask`."""
    after, left = 0, limit
    while left is None or left > 0:
        body: dict[Value, Value] = {
            "state": "all",
            "after": ULong(after),
            "limit": PAGE if left is None else min(PAGE, left),
        }
        if selector is not None:
            body["selector"] = selector
        answer = node.request("QUERY", MESSAGE, name=queue, body=body)
        columns, found = table_of(answer)
        for row in found:
            yield dict(zip(columns, row, strict=True))
        if left is not None:
            left -= len(found)
        next_after = answer.get("next_after") if isinstance(answer, Mapping) else None
        if not isinstance(next_after, int):
            return
        after = next_after


def read(node: Management, queue: str, sequence: int) -> Mapping[str, Any]:
    """Return all that the broker tells of a message. Raises ManagementFailed, naming queues of a like name where there
    is none of this one."""
    try:
        found = node.request("READ", MESSAGE, name=queue, body={"sequence": ULong(sequence)})
    except ManagementFailed as error:
        if error.status == _NOT_FOUND:
            check_queue(node, queue)
        raise
    if not isinstance(found, Mapping):
        raise ManagementFailed("READ: the answer is not a message")
    return found


def tell(queue: str, found: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a message in full."""
    encoded = found.get("message")
    sections = _sections(Message.decode(encoded)) if isinstance(encoded, bytes) else None
    facts: dict[str, Json] = {str(key): to_json(value) for key, value in found.items() if key != "message"}
    if as_json:
        emit_json({"queue": queue, **facts, "history": _history(sections), "message": sections})
        return
    line((f"#{facts.get('sequence')} in {queue}: {facts.get('state')}, {facts.get('size_bytes')} bytes", "bold"))
    for name, text in _facts(found):
        line((f"  {name}: ", "dim"), text)
    if isinstance(origin := found.get("origin_queue"), str):
        line(("  ", "dim"), death(queue, origin, found.get("origin"), found.get("reason")))
    for title, attempts in (("attempts here", found.get("attempts")), ("attempts before", _history(sections))):
        if isinstance(attempts, list) and attempts:
            line((title, "bold"))
            for attempt in attempts:
                line("  ", _attempt(attempt))
    if sections is None:
        line(("the message is too large for an answer: receive or browse it", "dim"))
        return
    for name in SECTIONS:
        values = sections.get(name)
        if isinstance(values, Mapping) and values:
            line((name.replace("_", " "), "bold"))
            for key, value in values.items():
                if key != ATTEMPTS:  # told above
                    line(
                        (f"  {key}: ", "dim"),
                        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False),
                    )
        elif isinstance(values, str):
            line((name.replace("_", " "), "bold"), f": {values}")
    line((f"body ({sections['body_type']})", "bold"))
    line(body_text(sections["body"]))


def _facts(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is worth telling of a message's state."""
    if found.get("holder") is not None:
        yield "held by", str(found["holder"])
    for name in ("posted_at_ms", "due_at_ms", "expires_at_ms"):
        if time_ms := found.get(name):
            yield name.removesuffix("_ms").replace("_", " "), time_text(int(time_ms) * 1000)
    for name in ("delivery_count", "returns"):
        if found.get(name):
            yield name.replace("_", " "), str(found[name])


def _sections(message: Message) -> dict[str, Json]:
    """Return every section that there is, as JSON; the text of the fault for one that is malformed."""
    document: dict[str, Json] = {}
    for name in SECTIONS:
        try:
            values = getattr(message, name)
            fields = values if isinstance(values, Mapping) else _fields(values)
            document[name] = to_json(fields)
        except DecodeError as error:
            document[name] = f"malformed: {error}"
    try:
        document["body"], document["body_type"] = body_to_json(message.body)
    except DecodeError as error:
        document["body"], document["body_type"] = f"malformed: {error}", "malformed"
    return document


def _fields(composite: object) -> dict[str, object]:
    """Return the fields of a header, or of properties, that are set."""
    names = getattr(type(composite), "__slots__", ())
    return {name: value for name in names if (value := getattr(composite, name)) is not None}


def _history(sections: Mapping[str, Json] | None) -> list[Json]:
    """Return the attempts that a dead letter says were made where it died."""
    annotations = None if sections is None else sections.get("annotations")
    attempts = annotations.get(ATTEMPTS) if isinstance(annotations, Mapping) else None
    return attempts if isinstance(attempts, list) else []


def _attempt(attempt: object) -> str:
    """Return an attempt as a line: when, by whom, how it ended, and why."""
    if not isinstance(attempt, Mapping):
        return str(attempt)
    when = attempt.get("when")
    at_ms = when.get("timestamp_ms") if isinstance(when, Mapping) else when
    parts = [time_text(int(at_ms) * 1000) if isinstance(at_ms, int) else "", str(attempt.get("consumer") or "")]
    parts.append(" ".join(dict.fromkeys(str(attempt[key]) for key in ("outcome", "cause") if attempt.get(key))))
    parts.append(": ".join(str(attempt[key]) for key in ("condition", "description") if attempt.get(key)))
    return "  ".join(part for part in parts if part)
