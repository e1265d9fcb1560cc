"""The node ``$management``: questions about the broker, asked and answered as messages.

The form is that of the AMQP management working draft, as Qpid's router and Azure's brokers speak it. A request names
an ``operation``, a ``type`` and perhaps a ``name`` in its application properties; the answer is correlated by message
id and carries ``statusCode`` (as in HTTP) and ``statusDescription``. Its body is an amqp-value:

=========  =============  ===========================================  ==========================================
operation  type           request                                      body of the answer
=========  =============  ===========================================  ==========================================
QUERY      acquit:queue   body, optional: {attributeNames: [name...]}  {attributeNames: [...], results: [[...]...]}
READ       acquit:queue   name: the queue                              {attribute: value, ...}
READ       acquit:broker                                               {broker_id, last_sequence, accepting}
PURGE      acquit:queue   name: the queue                              {purged: number of messages}
=========  =============  ===========================================  ==========================================

Who asks sees the queues that it may browse or manage, and changes those that it may manage; other requests are answered
with status 403.

This module is pure: bytes of a request in, bytes of an answer out. Links and replies are the core's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from acquit.broker.inspect import QUEUE_COLUMNS, BrokerSnapshot, QueueSnapshot
from acquit.errors import DecodeError
from acquit.protocol.message import AmqpValue, Message
from acquit.protocol.types import Value

if TYPE_CHECKING:
    from acquit.broker.permissions import Rights

NODE: Final = "$management"
QUEUE: Final = "acquit:queue"
BROKER: Final = "acquit:broker"


class Managed(Protocol):
    """What the node asks of the broker."""

    def snapshot(self) -> BrokerSnapshot:
        """What is in it now."""
        ...

    def purge(self, queue: str, user: str | None) -> int:
        """Remove all messages of the queue; how many there were. `user` is recorded as who asked."""
        ...


class _Refused(Exception):
    """The request cannot be answered; `status` is as in HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def _queue(broker: BrokerSnapshot, name: str | None) -> QueueSnapshot:
    if name is None:
        raise _Refused(400, "the application property 'name' must be the name of a queue")
    found = broker.queue(name)
    if found is None:
        raise _Refused(404, f"there is no queue {name!r}")
    return found


def _columns(body: object) -> list[str]:
    """Which attributes a QUERY wants; all where it does not say."""
    wanted = body.get("attributeNames") if isinstance(body, Mapping) else None
    if not wanted:
        return list(QUEUE_COLUMNS)
    if not isinstance(wanted, list) or not set(wanted) <= set(QUEUE_COLUMNS):
        raise _Refused(400, f"attributeNames must be a list of some of: {', '.join(QUEUE_COLUMNS)}")
    return [str(name) for name in wanted]


def _query_queues(node: Managed, name: str | None, body: object, user: str | None) -> Value:
    columns = _columns(body)
    rows: list[Value] = [[getattr(queue, column) for column in columns] for queue in node.snapshot().queues]
    return {"attributeNames": list[Value](columns), "results": rows}


def _read_queue(node: Managed, name: str | None, body: object, user: str | None) -> Value:
    queue = _queue(node.snapshot(), name)
    return {column: getattr(queue, column) for column in QUEUE_COLUMNS}


def _read_broker(node: Managed, name: str | None, body: object, user: str | None) -> Value:
    broker = node.snapshot()
    return {"broker_id": broker.broker_id, "last_sequence": broker.last_sequence, "accepting": broker.accepting}


def _purge_queue(node: Managed, name: str | None, body: object, user: str | None) -> Value:
    queue = _queue(node.snapshot(), name)
    return {"purged": node.purge(queue.name, user)}


_OPERATIONS: Final[Mapping[tuple[str, str], Callable[[Managed, str | None, object, str | None], Value]]] = {
    ("QUERY", QUEUE): _query_queues,
    ("READ", QUEUE): _read_queue,
    ("READ", BROKER): _read_broker,
    ("PURGE", QUEUE): _purge_queue,
}


_SEEING: Final = frozenset((("QUERY", QUEUE), ("READ", QUEUE), ("READ", BROKER)))
"""Operations that change nothing, on what may be seen. All others need the permission to manage."""


class _Seen:
    """The broker as somebody sees it who may not see everything."""

    def __init__(self, node: Managed, rights: Rights) -> None:
        self._node = node
        self._rights = rights

    def snapshot(self) -> BrokerSnapshot:
        """The queues that may be seen."""
        whole, rights = self._node.snapshot(), self._rights
        seen = (
            queue
            for queue in whole.queues
            if rights.may("browse", queue.address) or rights.may("manage", queue.address)
        )
        return replace(whole, queues=tuple(seen))

    def purge(self, queue: str, user: str | None) -> int:
        return self._node.purge(queue, user)


def _check_permission(node: Managed, rights: Rights, operation: tuple[str, str], name: str | None) -> None:
    """Raise _Refused unless whoever has these rights may do this."""
    if operation == ("READ", QUEUE) and name is not None:
        found = node.snapshot().queue(name)
        address = name if found is None else found.address
        if not rights.may("manage", address) and (reason := rights.refusal("browse", address)):
            raise _Refused(403, reason)
    if operation in _SEEING:
        return
    if name is None:
        if not rights.everywhere("manage"):
            raise _Refused(403, "this needs the permission to manage '#', which no role gives")
        return
    found = node.snapshot().queue(name)
    if reason := rights.refusal("manage", name if found is None else found.address):
        raise _Refused(403, reason)


def reply_address(payload: bytes) -> str | None:
    """Where the answer to this request goes: its reply-to. Raises DecodeError for bytes that are no message."""
    reply_to = Message.decode(payload).reply_to
    return None if reply_to is None else str(reply_to)


def answer(payload: bytes, node: Managed, user: str | None, rights: Rights) -> bytes:
    """The encoded answer to an encoded request of a user with these rights. Never raises for what a request says: the
    status tells."""
    correlation_id = None
    try:
        request = Message.decode(payload)
        correlation_id = request.message_id if request.correlation_id is None else request.correlation_id
        properties = request.application_properties
        operation, kind, name = (properties.get(key) for key in ("operation", "type", "name"))
        perform = _OPERATIONS.get((str(operation), str(kind)))
        if perform is None:
            known = ", ".join(f"{known_operation} {known_kind}" for known_operation, known_kind in _OPERATIONS)
            raise _Refused(501, f"{operation!s:.64} {kind!s:.64} is not among: {known}")
        body, name = request.body, None if name is None else str(name)
        if not rights.unlimited:
            _check_permission(node, rights, (str(operation), str(kind)), name)
            node = _Seen(node, rights)
        result = perform(node, name, getattr(body, "value", body), user)
        status, text = 200, "OK"
    except (_Refused, DecodeError) as exc:
        result, status, text = None, getattr(exc, "status", 400), str(exc)
    return Message(
        AmqpValue(result),
        correlation_id=correlation_id,
        application_properties={"statusCode": status, "statusDescription": text},
    ).encode()


__all__ = ["BROKER", "NODE", "QUEUE", "Managed", "answer", "reply_address"]
