"""The node ``$management``: questions about the broker, asked and answered as messages.

The form is that of the AMQP management working draft, as Qpid's router and Azure's brokers speak it. A request names
an ``operation``, a ``type`` and perhaps a ``name`` in its application properties; the answer is correlated by message
id and carries ``statusCode`` (as in HTTP) and ``statusDescription``. Its body is an amqp-value:

=========  =============  ===========================================  ==========================================
operation  type           request                                      body of the answer
=========  =============  ===========================================  ==========================================
QUERY      acquit:queue   body, optional: {attributeNames: [name...],  {attributeNames: [...], results: [[...]...]}:
                          after: name, limit: number of rows}          all, or with after or limit a page, by name
READ       acquit:queue   name: the queue                              {attribute: value, ...}
QUERY      acquit:        name: the queue                              {step_ms, attributeNames: [...], points:
           queue-history                                               [[...]...]}: a point a minute, hours back
READ       acquit:broker                                               {broker_id, last_sequence, accepting, warnings},
                                                                       and the rest of `inspect.Overview`
READ       acquit:metrics body, optional: {limit: number of rows}      {attributeNames: [...], results: [[...]...],
                                                                       other: [...] or null, queues, connections:
                                                                       {...}, ...}: figures of the queues with most
                                                                       in them, and the sums of the others
QUERY      acquit:        body, optional: {attributeNames: [name...],  {attributeNames: [...], results: [[...]...]}: a
           connection     after: id, limit: number of rows}            page of the connections, by id
DELETE     acquit:        name: the id of a connection; body,          {closed: true}
           connection     optional: {reason: text}
CREATE     acquit:queue   name: the queue; body, optional:             {name: queue}; status 201
                          {kind: "topic"}
DELETE     acquit:queue   name: the queue or topic; body, optional:    {}; status 204. Application properties: messages,
                          {if_unused: true, if_empty: true}            how many went with it, links, how many ended
PURGE      acquit:queue   name: the queue; body, optional: {max:       {purged: number of messages}
                          number, selector: text, sequences:
                          [number...]}
UPDATE     acquit:queue   name: the queue or topic; body: {paused:     {paused: how}
                          "none", "producers", "consumers" or "both"}
MOVE       acquit:queue   name: the queue; body: {to: another queue,   {moved: number of messages}
                          max: number, selector: text, sequences:
                          [number...]}, all but the first optional
REDRIVE    acquit:queue   name: a queue of dead letters; body,         {redriven: number of messages, by_origin:
                          optional: {max: number, selector: text,      {queue: number}, without_origin: number,
                          sequences: [number...], dry_run: true}       left: {queue: number}, reasons: {queue: text}}
QUERY      acquit:link    body, optional: {connection: id, node: name, {attributeNames: [...], results: [[...]...]}: a
                          attributeNames: [name...], after: id,        page of the links, by id
                          limit: number of rows}
DELETE     acquit:link    name: the id of a link; body, optional:      {detached: true}
                          {reason: text}
QUERY      acquit:        body, optional: {attributeNames: [name...],  {attributeNames: [...], results: [[...]...]}:
           transaction    limit: number of rows}                       those that are open, the oldest first
RELOAD     acquit:broker                                               {changes: [{key, old, new, applies}...]}
QUERY      acquit:message name: the queue; body, optional: {after:     {attributeNames: [...], results: [[...]...]}:
                          sequence, limit: number of messages}         what waits for its time, by sequence
QUERY      acquit:message name: the queue; body: {state: which, after: {attributeNames: [...], results: [[...]...],
                          sequence, limit: number, selector: text},    next_after: sequence or null}: messages that are
                          all but state or selector optional           available, acquired, suspended or scheduled
READ       acquit:message name: the queue; body: {sequence: number,    {attribute: value, ..., attempts: [...],
                          bytes_max: number}, the second optional      message: binary}: one in full, whoever has it
READ       acquit:history body: {sequence: number}, {message_id: id}   {lives: [...], complete, stopped, hidden, ...}:
                          or {duplicate_id: id}; optional: bytes_max   what became of it, and of its copies
CANCEL     acquit:message name: the queue; body: {sequence: number},   {cancelled: number of messages}
                          {message_id: id} or {all: true}
QUERY      acquit:                                                     {attributeNames: [...], results: [[...]...]}:
           terminus-entity                                             the termini that outlive their links
DELETE     acquit:        name: the identity of a terminus, in hex     {returned: number of messages}
           terminus-entity
READ       acquit:        name: the id of a transaction, in hex        {fate: "committed", "rolled-back" or
           transaction                                                 "unknown", kept_ms: how long it is known}
=========  =============  ===========================================  ==========================================

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
