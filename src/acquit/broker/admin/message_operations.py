"""The operations on the messages of a queue: looking at them, one in full, and cancelling what waits for its time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from acquit.broker.admin.examining import EXAMINED_MAX, STATES, Examined, MessagePage
from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.requests import ManagementRequest, is_number
from acquit.broker.admin.schedule import LISTED_MAX, Scheduled
from acquit.broker.refusal import Refused
from acquit.errors import DecodeError, EncodeError, StoreFull
from acquit.protocol.definitions import AmqpCondition
from acquit.protocol.message import Message
from acquit.protocol.types import ULong, Value

_MESSAGE: Final = {
    "message": bytes,
    **dict.fromkeys(("body", "message_id", "correlation_id"), object),
    **dict.fromkeys(("subject", "content_type", "content_encoding", "reply_to", "group_id", "to"), str),
    **dict.fromkeys(("priority", "ttl_ms", "group_sequence", "creation_time", "absolute_expiry_time"), int),
    **dict.fromkeys(("annotations", "application_properties"), Mapping),
    "durable": bool,
}
"""The parts of a message that PUBLISH can have, and their types; or all of it, encoded."""
READ_BYTES_MAX: Final = 16 << 20
"""Bytes of the largest message that READ gives, where the request does not say."""


def query_messages(request: ManagementRequest) -> Later[Value]:
    """Return a page of the messages in some state. Without a state: of those that wait for their time."""
    if isinstance(request.body, Mapping) and not {"state", "selector"}.isdisjoint(request.body):
        return _examine(request)
    queue = request.holder()
    after, limit, body = 0, 100, request.body
    if isinstance(body, Mapping):
        after, limit = body.get("after", after), body.get("limit", limit)
    if not is_number(after) or not is_number(limit) or not 1 <= limit <= LISTED_MAX:
        raise RequestFailure(400, f"after must be a sequence, and limit a number from 1 to {LISTED_MAX}")
    return request.broker.scheduled(queue.name, after, limit).then(_table_of_scheduled)


def _table_of_scheduled(messages: list[Scheduled]) -> Value:
    rows = [list[Value](message) for message in messages]
    return {"attributeNames": list[Value](Scheduled._fields), "results": list[Value](rows)}


def _examine(request: ManagementRequest) -> Later[Value]:
    options = request.options({"state": str, "after": int, "limit": int, "selector": str})
    queue = request.holder()
    state, selector = options.get("state", "scheduled"), options.get("selector")
    after, limit = options.get("after", 0), options.get("limit", 100)
    if state not in STATES:
        raise RequestFailure(400, f"state must be one of {', '.join(STATES)}, not {state!r:.64}")
    if not is_number(after) or not is_number(limit) or not 1 <= limit <= EXAMINED_MAX:
        raise RequestFailure(400, f"after must be a sequence, and limit a number from 1 to {EXAMINED_MAX}")
    page = request.broker.examine(
        queue.name,
        states=str(state),
        after=after,
        limit=limit,
        selector=None if selector is None else str(selector),
    )
    return page.then(_table)


def _table(page: MessagePage[Examined]) -> Value:
    next_after = None if page.next_after is None else ULong(page.next_after)
    rows = [list[Value](row) for row in page.rows]
    return {"attributeNames": list[Value](Examined._fields), "results": list[Value](rows), "next_after": next_after}


def read_message(request: ManagementRequest) -> Later[Value]:
    """Return one message in full: what a queue knows of it, its attempts, and the encoded message."""
    options = request.options({"sequence": int, "bytes_max": int})
    queue = request.holder()
    sequence, bytes_max = options.get("sequence"), options.get("bytes_max", READ_BYTES_MAX)
    if not is_number(sequence) or not sequence or not is_number(bytes_max):
        raise RequestFailure(400, "the body must be a map {sequence: number}, and perhaps bytes_max: number")

    def only(page: MessagePage[dict[Value, Value]]) -> Value | RequestFailure:
        found = [row for row in page.rows if row["sequence"] == sequence]
        if not found:
            return RequestFailure(404, f"{queue.name!r} has no message with the sequence {sequence}")
        encoded = found[0]["message"]
        if isinstance(encoded, bytes) and len(encoded) > request.broker.room_bytes:
            return RequestFailure(507, f"there is no memory for an answer of {len(encoded)} bytes")
        return found[0]

    return request.broker.read_message(queue.name, sequence, bytes_max).then(only)


def cancel_messages(request: ManagementRequest) -> Later[Value]:
    """Remove what waits for its delivery time: one message, those of one message-id, or all."""
    queue = request.holder()
    match request.body:
        case {"sequence": int() as sequence, **rest} if not rest and is_number(sequence):
            cancelled = request.broker.cancel(queue.name, request.user, sequence=sequence)
        case {"message_id": str() | int() | bytes() | UUID() as message_id, **rest} if not rest and _is_id(message_id):
            cancelled = request.broker.cancel(queue.name, request.user, message_id=message_id)
        case {"all": True, **rest} if not rest:
            return request.broker.cancel(queue.name, request.user).then(lambda count: {"cancelled": count})
        case _:
            raise RequestFailure(400, "the body must be a map: {sequence: number}, {message_id: id} or {all: true}")
    unknown = RequestFailure(404, f"nothing in {queue.name!r} that waits for its delivery time is named so")
    return cancelled.then(lambda count: {"cancelled": count} if count else unknown)


def encode_message(parts: Mapping[str, Any]) -> bytes:
    """Return a message of these parts, encoded; it is durable unless they say otherwise. Of any thread. Raises
    RequestFailure."""
    fields = {"durable": True, **parts}
    try:
        return Message(fields.pop("body", None), **fields).encode()
    except EncodeError as exc:
        raise RequestFailure(400, str(exc)) from exc


def publish_message(request: ManagementRequest) -> Later[Value]:
    """Post a message to a queue or topic, as a client of the user who asks would."""
    if request.name is None:
        raise RequestFailure(400, "the application property 'name' must be the name of a queue or topic")
    said = request.options(_MESSAGE)
    payload = said.pop("message", None)
    if not isinstance(payload, bytes):
        payload = encode_message(said)
    elif said:
        raise RequestFailure(400, "a message that is encoded already says all by itself")
    try:
        told = request.broker.publish(request.name, payload, request.user, request.rights)
    except DecodeError as exc:
        raise RequestFailure(400, str(exc)) from exc
    except StoreFull as exc:
        raise RequestFailure(507, "the broker's disk is full") from exc
    except Refused as exc:
        if (
            exc.condition == AmqpCondition.RESOURCE_LIMIT_EXCEEDED
        ):  # of the queue, or it is paused: no fault of the broker
            raise RequestFailure(409, exc.description) from exc
        raise
    return told.then(lambda published: {"queues": published.queues, "duplicate": published.duplicate})


def _is_id(value: object) -> bool:
    return not isinstance(value, int) or is_number(value)


__all__ = ["READ_BYTES_MAX", "cancel_messages", "encode_message", "publish_message", "query_messages", "read_message"]
