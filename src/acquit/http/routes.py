"""The table of routes: each is one operation of `broker.admin.operations` in the form of HTTP.

A new operation is a row here and the models of its body and its answer. `app` makes of a row what FastAPI needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from acquit.broker.admin.message_operations import encode_message
from acquit.broker.admin.requests import Deleted, check_values
from acquit.http import models
from acquit.http.content import content_of
from acquit.protocol import extensions as entities
from acquit.protocol.jsonform import Json, to_json

PREFIX: Final = "/api/v1"

Shape = Callable[[Any, Any], Json]
"""Makes the answer of what an operation gives, and of the query of the request."""


def plain(result: object, query: object) -> Json:
    """Return what the operation gives."""
    if isinstance(result, Deleted):
        return {"messages": result.messages, "links": result.links}
    return to_json(result)


def rows(result: Mapping[str, Any], query: object) -> Json:
    """Return a list of objects, of the attributes and rows of a QUERY."""
    return _items(result)


def _items(result: Mapping[str, Any]) -> dict[str, Json]:
    names = result["attributeNames"]
    return {"items": [dict(zip(names, map(to_json, row), strict=True)) for row in result["results"]]}


def page_of_queues(result: Mapping[str, Any], query: object) -> Json:
    """Return a page of queues."""
    return {**_items(result), **{name: to_json(result[name]) for name in ("total", "totals", "warnings")}}


def page_of_messages(result: Mapping[str, Any], query: object) -> Json:
    """Return a page of messages."""
    return {**_items(result), "next_after": result["next_after"]}


def one_message(result: Mapping[str, Any], query: object) -> Json:
    """Return one message with its sections in place of its octets."""
    said = {name: to_json(value) for name, value in result.items() if name != "message"}
    payload = result["message"]
    content: Json = None if payload is None else dict(content_of(bytes(payload)))
    return {**said, "content": content}


def encoded(parts: Mapping[str, Any] | None) -> dict[str, bytes]:
    """Return the body of a PUBLISH of these parts. Raises RequestFailure."""
    check_values(parts)
    return {"message": encode_message(parts or {})}


class Route(NamedTuple):
    """A route, and the operation behind it."""

    method: str
    path: str
    verb: str
    kind: str
    summary: str
    answer: type[BaseModel]
    body: type[BaseModel] | None = None
    """The model of the body; None: there is none."""
    query: type[BaseModel] | None = None
    """The model of the query: the body of the operation, where there is no other."""
    shape: Shape = plain
    prepare: Callable[[Any], Any] | None = None
    """Makes the operation's body of that of the request, where that is work: on this thread, and not the broker's."""


NAMED: Final = models.NamedQuery

ROUTES: Final = (
    Route("GET", "/broker", "READ", entities.BROKER, "The broker as a whole", models.BrokerOverview),
    Route(
        *("GET", "/queues", "QUERY", entities.QUEUE, "Queues, subscriptions and topics, a page of them"),
        models.QueuePage,
        query=models.QueuesQuery,
        shape=page_of_queues,
    ),
    Route("GET", "/queues/{name}", "READ", entities.QUEUE, "One queue or topic", models.Queue, query=NAMED),
    Route(
        *("PUT", "/queues/{name}", "CREATE", entities.QUEUE, "Make a queue or a topic", models.MadeNode),
        body=models.NewQueue,
        query=NAMED,
    ),
    Route(
        *("DELETE", "/queues/{name}", "DELETE", entities.QUEUE, "Delete it", models.DeletedNode),
        query=models.DeleteQuery,
    ),
    Route(
        *("POST", "/queues/{name}/purge", "PURGE", entities.QUEUE, "Remove its messages", models.PurgedCount),
        body=models.ChoiceBody,
        query=NAMED,
    ),
    Route(
        *("POST", "/queues/{name}/move", "MOVE", entities.QUEUE, "Move messages elsewhere", models.MovedCount),
        body=models.MoveBody,
        query=NAMED,
    ),
    Route(
        *("PATCH", "/queues/{name}", "UPDATE", entities.QUEUE, "Pause or resume it", models.PausedSide),
        body=models.PauseBody,
        query=NAMED,
    ),
    Route(
        *("POST", "/queues/{name}/redrive", "REDRIVE", entities.QUEUE, "Send dead letters back"),
        models.RedrivenCounts,
        body=models.RedriveBody,
        query=NAMED,
    ),
    Route(
        *("GET", "/connections", "QUERY", entities.CONNECTION, "Connections, a page of them", models.RowPage),
        query=models.RowsQuery,
        shape=rows,
    ),
    Route(
        *("DELETE", "/connections/{name}", "DELETE", entities.CONNECTION, "Close a connection"),
        models.ClosedConnection,
        query=models.ReasonQuery,
    ),
    Route(
        *("GET", "/links", "QUERY", entities.LINK, "Links, a page of them", models.RowPage),
        query=models.LinksQuery,
        shape=rows,
    ),
    Route(
        *("DELETE", "/links/{name}", "DELETE", entities.LINK, "Detach a link", models.DetachedLink),
        query=models.ReasonQuery,
    ),
    Route(
        *("GET", "/transactions", "QUERY", entities.TRANSACTION, "Open transactions, the oldest first"),
        models.RowPage,
        query=models.LimitQuery,
        shape=rows,
    ),
    Route(
        *("GET", "/queues/{name}/messages", "QUERY", entities.MESSAGE, "Its messages, a page of them"),
        models.PageOfMessages,
        query=models.MessagesQuery,
        shape=page_of_messages,
    ),
    Route(
        *("GET", "/queues/{name}/message", "READ", entities.MESSAGE, "One message in full", models.OneMessage),
        query=models.OneMessageQuery,
        shape=one_message,
    ),
    Route(
        *("GET", "/queues/{name}/history", "QUERY", entities.QUEUE_HISTORY, "Its last hours, a point a minute"),
        models.QueueTrend,
        query=NAMED,
    ),
    Route(
        *("GET", "/history", "READ", entities.HISTORY, "What became of a message", models.MessageHistory),
        query=models.HistoryQuery,
    ),
    Route(
        *("GET", "/queues/{name}/scheduled", "QUERY", entities.MESSAGE, "Messages that wait for their time"),
        models.RowPage,
        query=models.ScheduledQuery,
        shape=rows,
    ),
    Route(
        *("POST", "/queues/{name}/scheduled/cancel", "CANCEL", entities.MESSAGE, "Cancel such messages"),
        models.CancelledCount,
        body=models.CancelBody,
        query=NAMED,
    ),
    Route(
        *("GET", "/transactions/{name}", "READ", entities.TRANSACTION, "The fate of a transaction"),
        models.FateOfTransaction,
    ),
    Route(
        *("GET", "/termini", "QUERY", entities.TERMINUS_ENTITY, "Termini that outlive their links"),
        models.TerminusPage,
        shape=rows,
    ),
    Route(*("DELETE", "/termini/{name}", "DELETE", entities.TERMINUS_ENTITY, "End a terminus"), models.ReturnedCount),
    Route(
        *("POST", "/queues/{name}/messages", "PUBLISH", entities.QUEUE, "Post a message to a queue or topic"),
        models.PublishedMessage,
        body=models.MessageBody,
        query=NAMED,
        prepare=encoded,
    ),
    Route(*("GET", "/addresses", "QUERY", entities.ADDRESS, "Rules that operators gave"), models.RowPage, shape=rows),
    Route(
        *("GET", "/addresses/{name}", "READ", entities.ADDRESS, "The policy in force at an address"),
        models.AddressInForce,
        query=NAMED,
    ),
    Route(
        *("PATCH", "/addresses/{name}", "UPDATE", entities.ADDRESS, "Give an address or pattern other settings"),
        models.GivenRule,
        body=models.SettingsBody,
        query=NAMED,
    ),
    Route(
        *("DELETE", "/addresses/{name}", "DELETE", entities.ADDRESS, "Take back what operators gave an address"),
        models.TakenRule,
        query=NAMED,
    ),
    Route(
        *("GET", "/marks", "QUERY", entities.MARK, "Marks of senders, a page of them by id"),
        models.RowPage,
        query=models.MarksQuery,
        shape=rows,
    ),
    Route(*("POST", "/reload", "RELOAD", entities.BROKER, "Read the configuration again"), models.ConfigurationChanges),
    Route(
        *("POST", "/rotate", "ROTATE", entities.BROKER, "Close the open segment of the journal"), models.ClosedSegment
    ),
)

__all__ = ["PREFIX", "ROUTES", "Route", "page_of_queues", "plain", "rows"]
