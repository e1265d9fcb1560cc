"""The node ``$management``: questions about the broker, asked and answered as messages.

The form is that of the AMQP management working draft, as Qpid's router and Azure's brokers speak it. A request names
an ``operation``, a ``type`` and perhaps a ``name`` in its application properties; the answer is correlated by message
id and carries ``statusCode`` (as in HTTP) and ``statusDescription``. Its body is an amqp-value: docs/administration.md,
"Over AMQP", has the bodies of each operation, and a test holds that table to `operations.OPERATIONS`.

Who asks sees the queues that it may browse or manage, and changes those that it may manage (or create, or delete); a
move needs that of both queues, a redrive of each queue that letters go back to: others stay, with that as the reason.
Other requests are answered with status 403. The fate of a transaction is told to the user whose it was; one that is
live is fenced first: its connection is closed, so that it is rolled back, unless its commit is on the way to the disk
already, which is then awaited.

What changes something is answered when it is done, to its last step, and durable.

This module is pure: bytes of a request in, bytes of an answer out, some of them only `Later`. What is done stands in
`operations`. Links and replies are the core's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.operations import operation, perform
from acquit.broker.admin.requests import Deleted, ManagementRequest
from acquit.errors import DecodeError
from acquit.ledger.records import MessageId
from acquit.protocol.message import AmqpValue, Message
from acquit.protocol.types import Value

if TYPE_CHECKING:
    from acquit.broker.access.permissions import Rights
    from acquit.broker.admin.administration import Administration


def reply_address(payload: bytes) -> str | None:
    """Return the *reply-to* of a request. Raises DecodeError for bytes that are no message."""
    reply_to = Message.decode(payload).reply_to
    return None if reply_to is None else str(reply_to)


def answer(
    payload: bytes, broker: Administration, user: str | None, rights: Rights, peer: str = ""
) -> bytes | Later[bytes]:
    """The encoded answer to an encoded request of a user with these rights, or where one will be; `peer` is the address
    that it came from. Never raises for what a request says: the status tells."""
    correlation_id: MessageId | None = None
    try:
        message = Message.decode(payload)
        correlation_id = message.message_id if message.correlation_id is None else message.correlation_id
        properties = message.application_properties
        wanted = operation(properties.get("operation"), properties.get("type"))
        name = properties.get("name")
        body = getattr(message.body, "value", message.body)
        request = ManagementRequest(broker, user, rights, None if name is None else str(name), body, peer)
        result = perform(wanted, request)
    except RequestFailure as exc:
        return _encode(exc, correlation_id)
    except DecodeError as exc:
        return _encode(RequestFailure(400, str(exc)), correlation_id)
    if isinstance(result, Later):
        encoded = Later[bytes]()
        result.when_finished(lambda value: encoded.finish(_encode(value, correlation_id, wanted.success)))
        return encoded
    return _encode(result, correlation_id, wanted.success)


def _encode(
    result: Value | Deleted | RequestFailure, correlation_id: MessageId | None, success: tuple[int, str] = (200, "OK")
) -> bytes:
    body: Value = None
    properties: dict[str, object] = {}
    match result:
        case RequestFailure():
            success = result.status, str(result)
        case Deleted():
            body, properties = {}, {"messages": result.messages, "links": result.links}
        case _:
            body = result
    properties["statusCode"], properties["statusDescription"] = success
    return Message(AmqpValue(body), correlation_id=correlation_id, application_properties=properties).encode()


__all__ = ["answer", "reply_address"]
