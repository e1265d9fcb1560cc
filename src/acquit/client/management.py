"""Questions to a running broker, over AMQP: requests to the node ``$management`` and its answers.

The form is that of the AMQP management working draft, as Qpid's router and Azure's brokers speak it: a request names an
``operation``, a ``type`` and perhaps a ``name`` in its application properties, the answer carries ``statusCode`` (as in
HTTP) and ``statusDescription``, correlated by message id. No node is created for the answers: the request's reply-to is
the target address of our own receiving link from ``$management``, and the broker finds it by that: so who asks needs no
permission to create.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from acquit.errors import AcquitError, ConfigurationError, ConnectTimeout
from acquit.protocol.extensions import MANAGEMENT_NODE
from acquit.protocol.message import Message
from acquit.protocol.types import Value

if TYPE_CHECKING:
    from acquit.client.blocking import Connection, Receiver, Sender

_BAD_REQUEST: Final = 400


class ManagementFailed(AcquitError):
    """The broker did not do what was asked. `status` is its answer's, as in HTTP (403: who asks may not, 404: there is
    no such thing); None where the answer itself makes no sense."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class BadRequest(ManagementFailed, ConfigurationError):
    """The request makes no sense, or the configuration it is about is not valid (status 400): trying again will not
    help."""


class Management:
    """A conversation with a broker's management node."""

    def __init__(self, sender: Sender, receiver: Receiver, reply_to: str, timeout_s: float) -> None:
        self._sender = sender
        self._receiver = receiver
        self._reply_to = reply_to
        self._timeout_s = timeout_s

    def request(self, operation: str, kind: str, *, name: str | None = None, body: Value = None) -> object:
        """The body of the answer to a request with this body. Raises as `ask`."""
        return self.ask(operation, kind, name=name, body=body).body

    def ask(self, operation: str, kind: str, *, name: str | None = None, body: Value = None) -> Message:
        """The answer to a request with this body.

        Raises BadRequest (status 400) and ManagementFailed (any other but 2xx) with the broker's description,
        MessageRejected where too many answers wait for this conversation, ConnectTimeout where none comes in time, and
        what a lost connection raises.
        """
        identity = str(uuid.uuid4())
        properties: dict[str, object] = {"operation": operation, "type": kind}
        if name is not None:
            properties["name"] = name
        request = Message(body, message_id=identity, reply_to=self._reply_to, application_properties=properties)
        self._sender.send(request, timeout=self._timeout_s)
        while (answer := self._receiver.receive(timeout=self._timeout_s)) is not None:
            if answer.correlation_id == identity:
                break
        else:
            raise ConnectTimeout(f"{operation}: no answer from {MANAGEMENT_NODE} within {self._timeout_s:g} s")
        status = answer.application_properties.get("statusCode")
        text = answer.application_properties.get("statusDescription") or f"status {status}"
        if isinstance(status, int) and 200 <= status < 300:
            return answer
        failure = BadRequest if status == _BAD_REQUEST else ManagementFailed
        raise failure(f"{text}", status if isinstance(status, int) else None)


@contextmanager
def converse(connection: Connection, timeout_s: float) -> Iterator[Management]:
    """A conversation on a session of its own; no answer takes longer than `timeout_s`."""
    reply_to = f"acquit-management-{uuid.uuid4()}"
    with (
        # Settled as they are sent, answers are ours once they are here: also one to what ends this connection.
        connection.session("no-ack") as session,
        session.receiver(MANAGEMENT_NODE, target=reply_to, prefetch=10) as receiver,
        session.sender(MANAGEMENT_NODE) as sender,
    ):
        yield Management(sender, receiver, reply_to, timeout_s)


__all__ = ["BadRequest", "Management", "ManagementFailed", "converse"]
