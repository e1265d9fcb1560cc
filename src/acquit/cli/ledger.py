"""``acquit ledger``: what the journal in a broker's folder says. The broker may be running, stopped or long gone.

Nothing is locked and nothing is written. Of a running broker, what its last whole batch on the disk says is read.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from acquit.cli.exits import Exit
from acquit.cli.lazy import WholeGroup
from acquit.cli.options import data_option, json_option
from acquit.cli.output import counted, counting, emit_json, line, remark, table, time_text
from acquit.errors import ConfigurationError
from acquit.protocol.jsonform import to_json

if TYPE_CHECKING:
    from acquit.ledger.balance import QueueBalance
    from acquit.ledger.fold import Fold
    from acquit.ledger.history import History, Life, Step
    from acquit.ledger.verify import ChainLink
    from acquit.protocol.jsonform import Json

_DIGITS_MAX: Final = 20
"""Digits of the largest sequence; of thousands Python makes no number."""


@click.group(cls=WholeGroup)
def ledger() -> None:
    """Ask the journal what became of every message."""


@ledger.command("show")
@click.argument("message", metavar="SEQUENCE|MESSAGE-ID")
@data_option(required=True)
@click.option("--id", "by_id", is_flag=True, help="Take the argument for a message id even if it is a number.")
@json_option
def show(message: str, data: Path, by_id: bool, as_json: bool) -> int:
    """Tell the life of one message: posted, acquired, returned, settled; and of the copies it came from and became.

    A number is the sequence that the broker gave it (`acquit browse` shows it as #12), anything else its message id.
    """
    with counting("reading segments", None) as counter:
        found = _find(data, message, by_id=by_id, progress=counter.at)
    if not found.lives:
        remark(f"acquit: no message {message} in {data}, whose journal reaches back to segment {found.first_segment}")
        return Exit.FAILED
    show_lives(found.lives, as_json=as_json)
    if found.truncated:
        remark(f"there are more than these {len(found.lives):,} copies")
    return Exit.OK


@ledger.command("balance")
@data_option(required=True)
@click.option(
    "--archive", is_flag=True, help="Fold from the oldest segment that is kept, not only what recovery reads."
)
@json_option
def balance_(data: Path, archive: bool, as_json: bool) -> int:
    """Balance each queue: what entered must be live or have left for a reason on record.

    Durable messages one by one, volatile ones in totals as far as they were recorded. Exit code 4 if it does not hold.
    """
    from acquit.ledger.balance import balance

    found = balance(read_fold(data, archive=archive))
    if as_json:
        for row in found.queues:
            emit_json(
                {
                    "queue": row.name,
                    "number": row.queue,
                    "entered": sum(row.entered.values()),
                    "live": row.live.total,
                    "available": row.live.available,
                    "acquired": row.live.acquired,
                    "scheduled": row.live.scheduled,
                    "suspended": row.live.suspended,
                    "by_entry": _counts(row.entered),
                    "by_exit": _counts(row.retired),
                    "never_entered": _counts(row.beside),
                    "lost": row.lost.count,
                    "volatile_unaccounted": row.volatile_unaccounted,
                    "mismatch": row.mismatch or None,
                }
            )
        emit_json({"balanced": found.balanced, "held": found.held, "anomalies": list(found.anomalies)})
    else:
        _show_balance(found.queues)
        if found.held:
            held = counted(found.held, "message")
            click.echo(f"{held} {'is' if found.held == 1 else 'are'} held by open transactions")
        for row in found.queues:
            if row.mismatch:
                remark(row.complaint)
        for anomaly in found.anomalies:
            remark(anomaly)
        if found.anomaly_count > len(found.anomalies):
            remark(f"and {found.anomaly_count - len(found.anomalies):,} more records that do not fit")
        click.echo("balanced" if found.balanced else "NOT balanced")
    return Exit.OK if found.balanced else Exit.UNSOUND


@ledger.command("verify")
@data_option(required=True)
@click.option(
    "--against",
    "heads",
    multiple=True,
    metavar="HEAD",
    help="A head that `acquit ledger head` printed earlier, which must still be part of the chain. May be repeated.",
)
@json_option
def verify_(data: Path, heads: tuple[str, ...], as_json: bool) -> int:
    """Verify every checksum and the hash chain of the segments. Exit code 4 if anything is damaged or missing."""
    from acquit.ledger.verify import Head, verify

    known = [Head.parse(text) for text in heads]
    with counting("verifying segments", None) as counter:
        found = verify(data, against=known, progress=counter.at)
    if as_json:
        for link in found.links:
            emit_json(
                {
                    "segment": link.number,
                    "place": link.place.name.lower(),
                    "bytes": link.valid_bytes,
                    "sha256": link.sha256.hex() or None,
                    "events": link.events,
                    "erased": link.erased,
                    "problems": list(link.problems),
                }
            )
        problems: list[Json] = list(found.problems)
        left: Json = list(found.left_behind)
        emit_json({"whole": not problems, "head": str(found.head), "problems": problems, "left_behind": left})
    else:
        rows = [(link.number, link.place.value, link.valid_bytes, link.events, _state(link)) for link in found.links]
        table(["segment", "place", "bytes", "events", "state"], rows)
        for problem in found.problems:
            remark(problem)
        click.echo(f"head {found.head}")
        if left_behind := found.left_behind:
            many = counted(len(left_behind), "segment")
            click.echo(f"a copy made without {many}, {left_behind[0]} to {left_behind[-1]}: of these it proves nothing")
        click.echo("the journal is whole" if not found.problems else counted(len(found.problems), "problem"))
    return Exit.OK if not found.problems else Exit.UNSOUND


def _state(link: ChainLink) -> str:
    if link.problems:
        return "damaged"
    if link.place.name == "LEFT_BEHIND":
        return "not here"
    return "whole, bodies erased" if link.erased else "whole"


@ledger.command("head")
@data_option(required=True)
@json_option
def head_(data: Path, as_json: bool) -> int:
    """Print the head of the hash chain, to be kept elsewhere: whoever has it can later show that nothing before it was
    altered or removed (`ledger verify --against HEAD`)."""
    from acquit.ledger.verify import read_head

    found = read_head(data)
    if as_json:
        emit_json(
            {
                "head": str(found),
                "store": str(found.store),
                "segment": found.number,
                "bytes": found.valid_bytes,
                "sha256": found.sha256.hex(),
            }
        )
    else:
        click.echo(str(found))
    return Exit.OK


@ledger.command("audit-log")
@data_option(required=True)
@json_option
def audit_log(data: Path, as_json: bool) -> int:
    """List what operators did to the broker, what they were refused, and who was not let in, oldest first.

    The lines are as old as the oldest segment that is kept.
    """
    from acquit.ledger.audit_lines import read_audit
    from acquit.store.reading import FolderReader

    rows: list[list[object]] = []
    for one in read_audit(FolderReader(data)):
        if as_json:
            emit_json({"time": time_text(one.time_us), **asdict(one)})
        else:
            times = f" ({counted(one.count, 'time')})" if one.count > 1 else ""
            rows.append([time_text(one.time_us), one.action, one.target, one.user, one.peer, one.result + times])
    if not as_json:
        table(["time", "action", "object", "user", "peer", "result"], rows)
    return Exit.OK


def _find(data: Path, text: str, *, by_id: bool, progress: Callable[[int, int], None]) -> History:
    """The first that is found of what `text` may mean: a sequence, then an id of each type that can look like it."""
    from acquit.ledger.history import history

    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"expected a sequence, or an id in UTF-8, found {text!r}") from None
    meanings: list[Callable[[], History]] = []
    if (sequence := ulong_of(text.removeprefix("#"))) is not None and not by_id:
        meanings.append(lambda: history(data, sequence=sequence, progress=progress))
    meanings.append(lambda: history(data, message_id=text, progress=progress))
    if (number := ulong_of(text)) is not None:
        meanings.append(lambda: history(data, message_id=number, progress=progress))
    with contextlib.suppress(ValueError):
        identity = uuid.UUID(text)
        meanings.append(lambda: history(data, message_id=identity, progress=progress))
    for meaning in meanings:
        found = meaning()
        if found.lives:
            break
    return found


def ulong_of(text: str) -> int | None:
    """Return the number that a text names, or None for what is none, or more than sequences and ids can be."""
    if not text.isdecimal() or len(text) > _DIGITS_MAX:
        return None
    number = int(text)
    return number if number < 2**64 else None


def show_lives(lives: Iterable[Life], *, as_json: bool) -> None:
    """Print what became of messages, one after the other."""
    for number, life in enumerate(lives):
        if as_json:
            emit_json(_life_document(life))
        else:
            if number:
                click.echo()
            _show_life(life)


def _show_life(life: Life) -> None:
    """Print a line about the message, and one for each event, with a rule where the broker was started again."""
    end = life.standing
    if life.entered_as:
        end += f" as #{life.entered_as}"
    identity = "" if life.message_id is None else f"  id {_id_text(life.message_id)}"
    line((f"#{life.sequence}", "bold"), f"{identity}  {life.address}  {life.size_bytes:,} bytes  ", (end, "bold"))
    run = life.steps[0].run if life.steps else 0
    rows: list[list[object]] = []
    for step in life.steps:
        if step.run != run:
            rows.append(["", "-- the broker was started again --", "", None, "", ""])
            run = step.run
        who = step.actor_name or ("" if step.actor else "the broker")
        count = str(step.attempt) if step.attempt else ""
        rows.append([time_text(step.time_us), _words(step.kind.name), step.queue_name, count, who, _note(step)])
    table(["time", "event", "queue", "count", "who", "why"], rows)


def _note(step: Step) -> str:
    """Return the reason of a step, as far as it is known, and where the message went."""
    from acquit.ledger.events import ENTERING, READ_OUTCOMES, RETIRING, EventFlag, EventKind

    notes = []
    if step.cause and step.cause.lower() != step.kind.name.lower():
        notes.append(_words(step.cause))
    elif step.flags & EventFlag.CONNECTION_LOST:
        notes.append("connection-lost")
    elif step.flags & EventFlag.LEFT_BEHIND:
        notes.append("detached")
    if step.condition or step.description:
        notes.append(": ".join(part for part in (step.condition, step.description) if part))
    if step.flags & EventFlag.UNDELIVERABLE_HERE:
        notes.append("undeliverable here")
    if step.flags & EventFlag.ID_REUSED:
        notes.append("its id was used before, with another body")
    if step.origin and step.kind in ENTERING:
        notes.append(f"from #{step.origin}")
    elif step.origin and step.kind in RETIRING:
        notes.append(f"became #{step.origin}")
    elif step.kind == EventKind.READ:
        notes.append(READ_OUTCOMES[step.origin] if step.origin < len(READ_OUTCOMES) else str(step.origin))
    elif step.origin:
        notes.append(f"not before {time_text(step.origin * 1000)}")
    return "; ".join(notes)


def _life_document(life: Life) -> dict[str, Json]:
    """Return the life of a message as JSON."""
    return {
        "sequence": life.sequence,
        "message_id": to_json(life.message_id),
        "address": life.address,
        "bytes": life.size_bytes,
        "crc": life.crc,
        "end": None if life.end is None else life.end.name.lower(),
        "standing": life.standing,
        "entered_as": life.entered_as or None,
        "came_from": life.came_from or None,
        "became": life.became or None,
        "steps": [
            {
                "time": time_text(step.time_us),
                "event": step.kind.name.lower(),
                "queue": step.queue_name,
                "delivery_count": step.attempt,
                "who": step.actor_name or None,
                "why": _note(step) or None,
                "run": step.run,
                "segment": step.segment,
                "position": int(step.position),
            }
            for step in life.steps
        ],
    }


def _id_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(to_json(value))


def _show_balance(rows: tuple[QueueBalance, ...]) -> None:
    """Print a line for each queue. Only the ways in and out that were ever used have a column. In parentheses: never
    entered."""
    states = ("available", "acquired", "scheduled", "suspended")
    used_states = [name for name in states if any(getattr(row.live, name) for row in rows)]
    ways_in = list(dict.fromkeys(kind for row in rows for kind in row.entered))
    ways_out = list(dict.fromkeys(kind for row in rows for kind in row.retired))
    volatile = any(row.volatile_unaccounted for row in rows)
    columns = ["queue", "entered", *([*map(_words, ways_in)] if len(ways_in) > 1 else [])]
    columns += ["= live", *used_states, *(f"+ {_words(kind)}" for kind in ways_out)]
    lost = any(row.lost.count for row in rows)
    columns += ["+ lost"] if lost else []
    columns += ["volatile, unaccounted"] if volatile else []
    beside = list(dict.fromkeys(kind for row in rows for kind in row.beside))
    columns += [f"({_words(kind)})" for kind in beside]
    counts: list[list[int]] = []
    for row in rows:
        cells = [sum(row.entered.values())]
        cells += [row.entered.get(kind, 0) for kind in ways_in] if len(ways_in) > 1 else []
        cells += [row.live.total, *(getattr(row.live, name) for name in used_states)]
        cells += [row.retired.get(kind, 0) for kind in ways_out]
        cells += [row.lost.count] if lost else []
        cells += [row.volatile_unaccounted] if volatile else []
        cells += [row.beside.get(kind, 0) for kind in beside]
        counts.append(cells)
    lines = [[_name(row), *cells] for row, cells in zip(rows, counts, strict=True)]
    table(columns, lines, footer=["total", *map(sum, zip(*counts, strict=True))] if counts else None)


def read_fold(data: Path, *, archive: bool = False) -> Fold:
    """The state that the journal in `data` says, as recovery would have it. Nothing is written."""
    from acquit.ledger import fold
    from acquit.store.reading import FolderReader

    return fold.read_fold(FolderReader(data), archive=archive)


def _name(row: QueueBalance) -> str:
    return row.name or ("(deleted queues)" if row.queue == 0 else f"queue {row.queue}")


def _words(kind: str) -> str:
    return kind.lower().replace("_", "-")


def _counts(counts: dict[str, int]) -> dict[str, Json]:
    return {kind.lower(): count for kind, count in counts.items()}
