"""The operation that tells what became of a message, by the journal.

Who asks names no queue, so the permission is looked at message by message: shown are the copies that were in queues
which the user may browse or manage. The others are counted. Who may see none of them is told the same as where there
is no such message: ids are guessed easily, and whether there is one is nobody else's business.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.requests import ManagementRequest, is_number
from acquit.ledger.events import EventFlag
from acquit.ledger.history import Asked, History, Life, Step
from acquit.protocol.types import ULong, Value

_WAYS: Final = "{sequence: number}, {message_id: id} or {duplicate_id: id}"


def read_history(request: ManagementRequest) -> Later[Value]:
    """Return what became of a message, and of the copies that it came from and became."""
    body = dict(request.body) if isinstance(request.body, dict) else {}
    bytes_max = body.pop("bytes_max", (1 << 64) - 1)
    asked: Asked
    match body:
        case {"sequence": int() as sequence, **rest} if not rest and is_number(sequence) and sequence:
            asked = Asked(sequence=int(sequence))
        case {"message_id": str() | int() | bytes() | UUID() as message_id, **rest} if not rest and _is_id(message_id):
            asked = Asked(message_id=message_id)
        case {"duplicate_id": str() | int() | bytes() | UUID() as duplicate_id, **rest} if not rest and _is_id(
            duplicate_id
        ):
            asked = Asked(duplicate_id=duplicate_id)
        case _:
            raise RequestFailure(400, f"the body must be a map: {_WAYS}")
    if not is_number(bytes_max):
        raise RequestFailure(400, f"bytes_max must be a number, not {bytes_max!r:.64}")
    return request.broker.history(asked, bytes_max).then(lambda found: _told(request, found))


def _is_id(value: object) -> bool:
    return not isinstance(value, int) or is_number(value)


def _told(request: ManagementRequest, found: History) -> Value | RequestFailure:
    shown = [life for life in found.lives if _may_see(request, life)]
    if not shown and not found.stopped:
        hidden = "" if request.rights.unlimited else f" that {request.rights.who} may browse or manage the queue of"
        return RequestFailure(
            404,
            f"the journal, which reaches back to segment {found.first_segment}, has no such message{hidden} "
            "(of what is not durable it has none)",
        )
    return {
        "lives": [encode_life(life) for life in shown],
        "hidden": len(found.lives) - len(shown) if shown else 0,
        "complete": not (found.stopped or found.gone or found.left_out or found.truncated),
        "stopped": found.stopped or None,
        "stopped_in_segment": found.stopped_in or None,
        "first_segment": found.first_segment,
        "last_segment": found.last_segment,
        "gone_segments": list[Value](found.gone),
        "left_out": found.left_out,
        "truncated": found.truncated,
        "bytes_read": found.bytes_read,
    }


def _may_see(request: ManagementRequest, life: Life) -> bool:
    rights = request.rights
    if rights.unlimited:
        return True
    name = next((step.queue_name for step in life.steps if step.queue_name), "")
    queue = request.broker.figures.node(name) if name else None
    address = queue.address if queue is not None else name or life.address
    return rights.may("browse", address) or rights.may("manage", address)


def encode_life(life: Life) -> dict[Value, Value]:
    """Return the life of one copy as the answer has it."""
    return {
        "sequence": ULong(life.sequence),
        "message_id": life.message_id,
        "address": life.address,
        "size_bytes": life.size_bytes,
        "crc": life.crc,
        "standing": life.standing,
        "entered_as": ULong(life.entered_as) if life.entered_as else None,
        "came_from": ULong(life.came_from) if life.came_from else None,
        "became": ULong(life.became) if life.became else None,
        "steps": [_encode_step(step) for step in life.steps],
    }


def _encode_step(step: Step) -> dict[Value, Value]:
    return {
        "time_us": step.time_us,
        "event": step.kind.name.lower().replace("_", "-"),
        "queue": step.queue_name,
        "delivery_count": step.attempt,
        "who": step.actor_name if step.actor else None,
        "cause": step.cause.lower().replace("_", "-"),
        "condition": step.condition,
        "description": step.description,
        "origin": ULong(step.origin),
        "flags": [flag.name.lower().replace("_", "-") for flag in EventFlag if step.flags & flag and flag.name],
        "run": step.run,
        "segment": step.segment,
        "position": ULong(step.position),
    }


__all__ = ["encode_life", "read_history"]
