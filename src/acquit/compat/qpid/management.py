"""What is asked of the broker besides links: whether a node is there, and that it be deleted.

Only our broker can be asked (its node ``$management``, see docs/administration.md).
"""

from __future__ import annotations

import uuid
from typing import Final

from acquit.client.blocking import Connection
from acquit.compat.qpid.messaging.exceptions import ServerError
from acquit.protocol.message import Message

NODE: Final = "$management"
PRODUCT: Final = "acquit"
ANSWER_TIMEOUT_S: Final = 60.0
"""A large queue is deleted in steps."""


class Management:
    """One conversation with the broker of a connection."""

    def __init__(self, connection: Connection) -> None:
        self._reply_to = f"qpid-{uuid.uuid4()}"
        session = connection.session()
        self._answers = session.receiver(NODE, target=self._reply_to, prefetch=1)
        self._requests = session.sender(NODE)

    def read(self, name: str) -> dict[str, object] | None:
        """What the node is: its ``kind`` and more. None where there is none, or where we may not know."""
        status, _, body = self._ask("READ", name)
        return body if status == 200 and isinstance(body, dict) else None

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
        raise ServerError(text=f"{operation} {name!r}: no answer from {NODE} within {ANSWER_TIMEOUT_S:g} s")


def knows(connection: Connection) -> bool:
    """Whether the peer can be asked."""
    return connection.remote_properties.get("product") == PRODUCT


__all__ = ["Management", "knows"]
