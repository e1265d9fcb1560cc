"""The operations on queues, and on what becomes of the messages in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.redriving import Redriven
from acquit.broker.admin.requests import Deleted, ManagementRequest, is_number
from acquit.broker.admin.survey_operations import is_ordered, list_queues
from acquit.broker.admin.trends import STEP_MS, TrendPoint
from acquit.broker.inspect import QUEUE_COLUMNS
from acquit.broker.nodes.pausing import PAUSES
from acquit.protocol.codec import EncodedList
from acquit.protocol.types import Value

MOVED_BY_SEQUENCE_MAX: Final = 10_000
"""Sequences in one request to move, redrive or purge, at most."""
_CHOOSING: Final[Mapping[str, type]] = {"selector": str, "sequences": list, "max": int}
"""Options that choose among the messages of a queue."""


def query_queues(request: ManagementRequest) -> Value | Later[Value]:
    """Return a table of the queues and topics that the user may see: all of them, or with *after* or *limit* a page,
    by name, or with *sort* and its like a page in that order. Where a queue and a topic have one name, both are in one
    page: it may have one row more."""
    if is_ordered(request.body):
        return list_queues(request)
    page = request.page(QUEUE_COLUMNS, "")
    paged = isinstance(request.body, Mapping) and not request.body.keys().isdisjoint(("after", "limit"))
    figures, may_see = request.broker.figures, request.may_see
    found = figures.queues(page.after, page.limit, of=may_see) if paged else figures.all_queues(of=may_see)
    rows = (None if queue is None else [getattr(queue, column) for column in page.columns] for queue in found)

    def told(rows: EncodedList) -> Value:
        return page.table(rows) if paged else {**page.table(rows), "warnings": list[Value](figures.warnings)}

    return request.broker.surveys.table(rows).then(told)


def read_queue(request: ManagementRequest) -> Value:
    """Return what one queue or topic holds and counts."""
    return request.broker.surveys.row(request.queue())


def query_queue_history(request: ManagementRequest) -> Value:
    """Return what a queue was like over the last hours."""
    points = [list[Value](point) for point in request.broker.trends.points(request.holder().name)]
    return {"step_ms": STEP_MS, "attributeNames": list[Value](TrendPoint._fields), "points": list[Value](points)}


def purge_queue(request: ManagementRequest) -> Later[Value]:
    """Remove what waits in a queue, or what is chosen of that."""
    queue = request.holder()
    choice = _choice(request.options(_CHOOSING))
    return request.broker.purge(queue.name, request.user, **choice._asdict()).then(lambda count: {"purged": count})


def update_queue(request: ManagementRequest) -> Later[Value]:
    """Pause a queue or topic, or resume it."""
    how = request.options({"paused": str}).get("paused")
    if not isinstance(how, str) or how not in PAUSES:
        raise RequestFailure(400, f"the body must be a map that says how: {{paused: one of {', '.join(PAUSES)}}}")
    return request.broker.pause(request.queue().name, how, request.user).then(lambda paused: {"paused": paused})


def create_queue(request: ManagementRequest) -> Later[Value]:
    """Make a queue or topic."""
    kind = request.options({"kind": str}).get("kind", "queue")
    name = request.name
    if name is None:
        raise RequestFailure(400, "the application property 'name' must be the name of a queue")
    if kind not in ("queue", "topic"):
        raise RequestFailure(400, f"kind must be 'queue' or 'topic', not {kind!r:.64}")
    return request.broker.create(name, request.user, topic=kind == "topic").then(lambda made: {"name": made})


def delete_queue(request: ManagementRequest) -> Later[Deleted]:
    """Delete a queue with everything in it, or a topic with its subscriptions and everything in them."""
    options = request.options({"if_unused": bool, "if_empty": bool})
    queue = request.queue()
    messages, links = request.broker.figures.going_with(queue.name)
    if options.get("if_unused") and queue.links:
        raise RequestFailure(409, f"{queue.name!r} is in use: it has {queue.links} links")
    if options.get("if_empty") and messages:
        raise RequestFailure(409, f"{queue.name!r} is not empty: it has {messages} messages")
    return request.broker.delete(queue.name, request.user).then(lambda _: Deleted(messages, links))


def move_messages(request: ManagementRequest) -> Later[Value]:
    """Move messages from one queue into another."""
    options = request.options({"to": str, **_CHOOSING})
    source = request.holder()
    target = options.get("to")
    if not isinstance(target, str):
        raise RequestFailure(400, "the body must be a map that says where: {to: queue}")
    if target == source.name:
        raise RequestFailure(400, f"{target!r} cannot be moved into itself: expected another queue")
    choice = _choice(options)
    if reason := request.rights.refusal("manage", target):
        raise RequestFailure(403, reason)
    moved = request.broker.move(source.name, target, request.user, **choice._asdict())
    return moved.then(lambda count: {"moved": count})


def redrive_letters(request: ManagementRequest) -> Later[Value]:
    """Move dead letters back to the queues where they died."""
    options = request.options({"dry_run": bool, **_CHOOSING})
    source = request.holder()
    choice = _choice(options)
    redriven = request.broker.redrive(
        source.name,
        request.user,
        lambda address: request.rights.refusal("manage", address),
        dry_run=bool(options.get("dry_run")),
        **choice._asdict(),
    )
    return redriven.then(_describe_redriven)


def _describe_redriven(told: Redriven) -> Value:
    return {
        "redriven": told.redriven,
        "by_origin": _map(told.by_origin),
        "without_origin": told.without_origin,
        "left": _map(told.left),
        "reasons": _map(told.reasons),
    }


def _map(values: Mapping[str, int | str]) -> Value:
    return dict[Value, Value](values.items())


class _Selected(NamedTuple):
    """The messages that a request means, as `Administration` takes it."""

    messages_max: int | None
    selector: str | None
    sequences: frozenset[int] | None


def _choice(options: Mapping[str, object]) -> _Selected:
    """Return what the options of `_CHOOSING` choose. Raises RequestFailure."""
    messages_max, selector, sequences = options.get("max"), options.get("selector"), options.get("sequences")
    if messages_max is not None and not (is_number(messages_max) and messages_max):
        raise RequestFailure(400, f"max must be a number above 0, not {messages_max!r:.64}")
    sequences = options.get("sequences")
    if isinstance(sequences, list) and not (
        len(sequences) <= MOVED_BY_SEQUENCE_MAX and all(is_number(sequence) for sequence in sequences)
    ):
        raise RequestFailure(400, f"sequences must be at most {MOVED_BY_SEQUENCE_MAX} numbers")
    return _Selected(
        messages_max,
        None if selector is None else str(selector),
        frozenset(map(int, sequences)) if isinstance(sequences, list) else None,
    )


__all__ = [
    "MOVED_BY_SEQUENCE_MAX",
    "create_queue",
    "delete_queue",
    "move_messages",
    "purge_queue",
    "query_queue_history",
    "query_queues",
    "read_queue",
    "redrive_letters",
    "update_queue",
]
