"""What is asked of the broker besides links: whether a node is there, and that it be deleted.

Only our broker can be asked (its node ``$management``, see docs/administration.md).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

from acquit.client.blocking import Connection
from acquit.compat.qpid.messaging.exceptions import ServerError
from acquit.protocol.message import Message

ADDRESS: Final = "$management"
PRODUCT: Final = "acquit"
ANSWER_TIMEOUT_S: Final = 60.0
"""A large queue is deleted in steps."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of our broker, as addresses speak of it. All are durable but those that links have made for themselves."""

    kind: str
    durable: bool


class Management:
    """One conversation with the broker of a connection."""

    def __init__(self, connection: Connection) -> None:
        self._reply_to = f"qpid-{uuid.uuid4()}"
        session = connection.session()
        self._answers = session.receiver(ADDRESS, target=self._reply_to, prefetch=1)
        self._requests = session.sender(ADDRESS)

    def read(self, name: str) -> Node | None:
        """What the node is. None where there is none, or where we may not know."""
        status, _, body = self._ask("READ", name)
        if status != 200 or not isinstance(body, dict):
            return None
        kind = str(body.get("kind"))
        return Node(kind="topic" if kind.endswith("topic") else "queue", durable=not kind.startswith("temporary"))

    def is_missing(self, name: str) -> bool:
        """Whether the broker says that there is no such node."""
        return self._ask("READ", name)[0] == 404

    def delete(self, name: str) -> None:
        """Delete the node with all that is in it; one that is not there is deleted. Raises ServerError."""
        status, text, _ = self._ask("DELETE", name)
        if status not in (200, 204, 404):
            raise ServerError(status, f"{name!r} was not deleted: {text}")

    def _ask(self, operation: str, name: str) -> tuple[object, object, object]:
        identity = str(uuid.uuid4())
        self._requests.send(
            Message(
                message_id=identity,
                reply_to=self._reply_to,
                application_properties={"operation": operation, "type": "acquit:queue", "name": name},
            ),
            timeout=ANSWER_TIMEOUT_S,
        )
        while (answer := self._answers.receive(timeout=ANSWER_TIMEOUT_S)) is not None:
            if answer.correlation_id == identity:
                said = answer.application_properties
                return said.get("statusCode"), said.get("statusDescription"), answer.body
        raise ServerError(text=f"{operation} {name!r}: no answer from {ADDRESS} within {ANSWER_TIMEOUT_S:g} s")


def knows(connection: Connection) -> bool:
    """Whether the peer can be asked."""
    return connection.remote_properties.get("product") == PRODUCT


__all__ = ["Management", "knows"]
