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
QUERY      acquit:message name: the queue; body, optional: {after:     {attributeNames: [...], results: [[...]...]}:
                          sequence, limit: number of messages}         what waits for its time, by sequence
CANCEL     acquit:message name: the queue; body: {sequence: number},   {cancelled: number of messages}
                          {message_id: id} or {all: true}
=========  =============  ===========================================  ==========================================

Who asks sees the queues that it may browse or manage, and changes those that it may manage; other requests are answered
with status 403.

This module is pure: bytes of a request in, bytes of an answer out. Links and replies are the core's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, TypeGuard
from uuid import UUID

from acquit.broker.inspect import QUEUE_COLUMNS, BrokerSnapshot, QueueSnapshot
from acquit.broker.schedule import LISTED_MAX, Scheduled
from acquit.errors import DecodeError
from acquit.ledger.records import MessageId
from acquit.protocol.message import AmqpValue, Message
from acquit.protocol.types import Value

if TYPE_CHECKING:
    from acquit.broker.permissions import Rights

NODE: Final = "$management"
QUEUE: Final = "acquit:queue"
MESSAGE: Final = "acquit:message"
BROKER: Final = "acquit:broker"


class Managed(Protocol):
    """What the node asks of the broker."""

    def snapshot(self) -> BrokerSnapshot:
        """What is in it now."""
        ...

    def purge(self, queue: str, user: str | None) -> int:
        """Remove all messages of the queue; how many there were. `user` is recorded as who asked."""
        ...

    def scheduled(self, queue: str, after: int, limit: int) -> list[Scheduled]:
        """The next messages of the queue, above this sequence, that wait for their time."""
        ...

    def cancel(
        self, queue: str, user: str | None, *, sequence: int | None = None, message_id: MessageId | None = None
    ) -> int:
        """Remove what waits for its delivery time in the queue: this message, those of this id, or all; how many."""
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


def _query_messages(node: Managed, name: str | None, body: object, user: str | None) -> Value:
    queue = _queue(node.snapshot(), name)
    after, limit = 0, 100
    if isinstance(body, Mapping):
        after, limit = body.get("after", after), body.get("limit", limit)
    if not _is_number(after) or not _is_number(limit) or not 1 <= limit <= LISTED_MAX:
        raise _Refused(400, f"after must be a sequence, and limit a number from 1 to {LISTED_MAX}")
    rows = [list[Value](message) for message in node.scheduled(queue.name, after, limit)]
    return {"attributeNames": list[Value](Scheduled._fields), "results": list[Value](rows)}


def _cancel_messages(node: Managed, name: str | None, body: object, user: str | None) -> Value:
    queue = _queue(node.snapshot(), name)
    match body:
        case {"sequence": int() as sequence, **rest} if not rest and _is_number(sequence):
            cancelled = node.cancel(queue.name, user, sequence=sequence)
        case {"message_id": str() | int() | bytes() | UUID() as message_id, **rest} if not rest and _is_id(message_id):
            cancelled = node.cancel(queue.name, user, message_id=message_id)
        case {"all": True, **rest} if not rest:
            return {"cancelled": node.cancel(queue.name, user)}
        case _:
            raise _Refused(400, "the body must be a map: {sequence: number}, {message_id: id} or {all: true}")
    if not cancelled:
        raise _Refused(404, f"nothing in {queue.name!r} that waits for its delivery time is named so")
    return {"cancelled": cancelled}


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64


def _is_id(value: object) -> bool:
    return not isinstance(value, int) or _is_number(value)


_OPERATIONS: Final[Mapping[tuple[str, str], Callable[[Managed, str | None, object, str | None], Value]]] = {
    ("QUERY", QUEUE): _query_queues,
    ("READ", QUEUE): _read_queue,
    ("READ", BROKER): _read_broker,
    ("PURGE", QUEUE): _purge_queue,
    ("QUERY", MESSAGE): _query_messages,
    ("CANCEL", MESSAGE): _cancel_messages,
}


_SEEING: Final = frozenset((("QUERY", QUEUE), ("READ", QUEUE), ("READ", BROKER), ("QUERY", MESSAGE)))
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

    def scheduled(self, queue: str, after: int, limit: int) -> list[Scheduled]:
        return self._node.scheduled(queue, after, limit)

    def cancel(
        self, queue: str, user: str | None, *, sequence: int | None = None, message_id: MessageId | None = None
    ) -> int:
        return self._node.cancel(queue, user, sequence=sequence, message_id=message_id)


def _check_permission(node: Managed, rights: Rights, operation: tuple[str, str], name: str | None) -> None:
    """Raise _Refused unless whoever has these rights may do this."""
    if operation in (("READ", QUEUE), ("QUERY", MESSAGE)) and name is not None:
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


__all__ = ["BROKER", "MESSAGE", "NODE", "QUEUE", "Managed", "answer", "reply_address"]
