"""Requests to the broker besides links: whether a node is there, and that it be deleted.

Only our broker can be asked (its node ``$management``, see docs/administration.md). Each question is a conversation of
its own: threads that close their links at once would take each other's answers from one that they share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from acquit.client.blocking import Connection
from acquit.client.management import ManagementFailed, converse
from acquit.compat.qpid.messaging.exceptions import ServerError
from acquit.errors import ConnectTimeout, DeliveryInDoubt, LinkDetached, SendFailed, SessionEnded
from acquit.protocol.extensions import QUEUE

PRODUCT: Final = "acquit"
ANSWER_TIMEOUT_S: Final = 60.0
"""A large queue is deleted in steps."""
_UNANSWERED: Final = (ConnectTimeout, DeliveryInDoubt, LinkDetached, SendFailed, SessionEnded)
_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class ManagedNode:
    """A node of our broker, as addresses speak of it. All are durable but those that links have made for themselves."""

    kind: str
    durable: bool


def read(connection: Connection, name: str) -> ManagedNode | None:
    """Return what the node is; None where there is none, or where we may not know. Raises ServerError where there is no
    answer, and ConnectionFailed."""
    try:
        body = _ask(connection, "READ", name)
    except ManagementFailed:
        return None
    if not isinstance(body, dict):
        return None
    kind = str(body.get("kind"))
    return ManagedNode(kind="topic" if kind.endswith("topic") else "queue", durable=not kind.startswith("temporary"))


def is_missing(connection: Connection, name: str) -> bool:
    """Return True if the broker says that there is no such node. Raises as `read`."""
    try:
        _ask(connection, "READ", name)
    except ManagementFailed as error:
        return error.status == _NOT_FOUND
    return False


def delete(connection: Connection, name: str) -> None:
    """Delete the node with all that is in it; one that is not there is deleted. Raises as `read`, and ServerError where
    it is not to be deleted."""
    try:
        _ask(connection, "DELETE", name)
    except ManagementFailed as error:
        if error.status != _NOT_FOUND:
            raise ServerError(error.status, f"{name!r} was not deleted: {error}") from error


def _ask(connection: Connection, operation: str, name: str) -> object:
    """The answer's body. Raises ManagementFailed where the broker does not do it."""
    try:
        with converse(connection, ANSWER_TIMEOUT_S) as node:
            return node.request(operation, QUEUE, name=name)
    except _UNANSWERED as error:
        raise ServerError(text=f"{name!r}: {error}") from error


def knows(connection: Connection) -> bool:
    """Return True if the peer can be asked."""
    return connection.remote_properties.get("product") == PRODUCT


__all__ = ["ManagedNode", "delete", "is_missing", "knows", "read"]
