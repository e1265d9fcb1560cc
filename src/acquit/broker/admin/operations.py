"""The table of all operations on a running broker: what can be asked of it or done to it.

An operation has a verb and the type of what it concerns, as in the AMQP management working draft; it takes the name of
one, and perhaps a body, and gives a value, or a `Later` where it takes more than a turn. `perform` checks the
permission of whoever asks, for all of them in one place, before anything else is looked at.

The faces above have no operations of their own: the node ``$management`` (`management`) and the HTTP interface say the
same in their own form. docs/administration.md lists the bodies. All of it runs on the broker's loop and blocks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from acquit.broker.admin.address_operations import delete_address, query_addresses, read_address, update_address
from acquit.broker.admin.connection_operations import (
    close_connection,
    detach_link,
    query_connections,
    query_links,
    query_transactions,
    read_broker,
)
from acquit.broker.admin.history_operations import read_history
from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.message_operations import (
    cancel_messages,
    publish_message,
    query_messages,
    read_message,
)
from acquit.broker.admin.queue_operations import (
    create_queue,
    delete_queue,
    move_messages,
    purge_queue,
    query_queue_history,
    query_queues,
    read_queue,
    redrive_letters,
    update_queue,
)
from acquit.broker.admin.requests import Deleted, ManagementRequest, check_values
from acquit.broker.admin.survey_operations import read_metrics
from acquit.broker.inspect import MARK_COLUMNS, MarkSnapshot, TerminusSnapshot
from acquit.broker.refusal import Refused
from acquit.errors import SelectorError, StoreFull
from acquit.protocol.extensions import (
    ADDRESS,
    BROKER,
    CONNECTION,
    HISTORY,
    LINK,
    MARK,
    MESSAGE,
    METRICS,
    QUEUE,
    QUEUE_HISTORY,
    TERMINUS_ENTITY,
    TRANSACTION,
)
from acquit.protocol.types import Value

if TYPE_CHECKING:
    from acquit.broker.access.permissions import Rights


def _reload(request: ManagementRequest) -> Later[Value]:
    return request.broker.reload(request.peer).then(lambda changes: {"changes": changes})


def _rotate(request: ManagementRequest) -> Later[Value]:
    try:
        return request.broker.rotate().then(lambda number: {"closed": number})
    except StoreFull as error:
        raise RequestFailure(507, str(error)) from error


def _query_marks(request: ManagementRequest) -> Later[Value]:
    page = request.page(MARK_COLUMNS, "")

    def table(found: list[MarkSnapshot]) -> Value:
        return page.table([[getattr(one, column) for column in page.columns] for one in found])

    return request.broker.marks(page.after, page.limit).then(table)


def _query_termini(request: ManagementRequest) -> Value:
    rows = [list[Value](terminus) for terminus in request.termini()]
    return {"attributeNames": list[Value](TerminusSnapshot._fields), "results": list[Value](rows)}


def _delete_terminus(request: ManagementRequest) -> Later[Value]:
    found = next((terminus for terminus in request.termini() if terminus.identity == request.name), None)
    if found is None:
        raise RequestFailure(404, f"there is no terminus {request.name!r}")
    if not request.rights.unlimited and (reason := request.rights.refusal("manage", found.node)):
        raise RequestFailure(403, reason)
    return request.broker.end_terminus(found.identity).then(lambda count: {"returned": count})


def _read_transaction(request: ManagementRequest) -> Later[Value]:
    try:
        txn_id = bytes.fromhex(request.name or "")
    except ValueError:
        txn_id = b""
    if not txn_id:
        raise RequestFailure(400, "the application property 'name' must be the id of a transaction, in hex")
    return request.broker.fate(txn_id, request.user).then(lambda told: {"fate": told[0], "kept_ms": told[1]})


Result = Value | Later[Value] | Later[Deleted]


class Needs(Enum):
    """The permission that an operation needs."""

    NOTHING = auto()
    """No permission: the operation shows what may be seen, or looks for itself."""
    USER = auto()
    """The name of a user, whose own things the operation shows, or the permission to manage the whole broker."""
    BROWSE_ANY = auto()
    """The permission to browse or manage some queue: the operation shows those."""
    BROWSE = auto()
    """The permission to browse or manage the queue that is named."""
    BROWSE_MESSAGES = auto()
    """The same, to look into it: what another user subscribed to needs the permission to manage it, as by a link."""
    MANAGE = auto()
    """The permission to manage the queue that is named; without a name, all."""
    MANAGE_ALL = auto()
    """The permission to manage the whole broker: ``#``."""
    CREATE = auto()
    """The permission to create or manage what is named."""
    DELETE = auto()
    """The permission to delete or manage what is named."""
    SEND = auto()
    """The permission to send to or manage what is named."""


_BROWSING: Final = (Needs.BROWSE, Needs.BROWSE_MESSAGES)
_ALSO_BY: Final[Mapping[Needs, str]] = {Needs.CREATE: "create", Needs.DELETE: "delete", Needs.SEND: "send"}


class Operation(NamedTuple):
    """The function that performs an operation, and who may ask for it."""

    perform: Callable[[ManagementRequest], Result]
    needs: Needs
    success: tuple[int, str] = (200, "OK")
    """Status and description of what went well."""


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("QUERY", QUEUE): Operation(query_queues, Needs.BROWSE_ANY),
    ("READ", QUEUE): Operation(read_queue, Needs.BROWSE),
    ("READ", BROKER): Operation(read_broker, Needs.NOTHING),
    ("READ", METRICS): Operation(read_metrics, Needs.BROWSE_ANY),
    ("CREATE", QUEUE): Operation(create_queue, Needs.CREATE, (201, "Created")),
    ("DELETE", QUEUE): Operation(delete_queue, Needs.DELETE, (204, "No Content")),
    ("UPDATE", QUEUE): Operation(update_queue, Needs.MANAGE),
    ("PURGE", QUEUE): Operation(purge_queue, Needs.MANAGE),
    ("MOVE", QUEUE): Operation(move_messages, Needs.MANAGE),
    ("REDRIVE", QUEUE): Operation(redrive_letters, Needs.MANAGE),
    ("QUERY", QUEUE_HISTORY): Operation(query_queue_history, Needs.BROWSE),
    ("QUERY", CONNECTION): Operation(query_connections, Needs.USER),
    ("DELETE", CONNECTION): Operation(close_connection, Needs.MANAGE_ALL),
    ("QUERY", LINK): Operation(query_links, Needs.BROWSE_ANY),
    ("DELETE", LINK): Operation(detach_link, Needs.BROWSE_ANY),
    ("QUERY", TRANSACTION): Operation(query_transactions, Needs.MANAGE_ALL),
    ("PUBLISH", QUEUE): Operation(publish_message, Needs.SEND),
    ("READ", ADDRESS): Operation(read_address, Needs.BROWSE),
    ("QUERY", ADDRESS): Operation(query_addresses, Needs.MANAGE_ALL),
    ("UPDATE", ADDRESS): Operation(update_address, Needs.MANAGE_ALL),
    ("DELETE", ADDRESS): Operation(delete_address, Needs.MANAGE_ALL),
    ("QUERY", MARK): Operation(_query_marks, Needs.MANAGE_ALL),
    ("RELOAD", BROKER): Operation(_reload, Needs.MANAGE_ALL),
    ("ROTATE", BROKER): Operation(_rotate, Needs.MANAGE_ALL),
    ("QUERY", MESSAGE): Operation(query_messages, Needs.BROWSE_MESSAGES),
    ("READ", MESSAGE): Operation(read_message, Needs.BROWSE_MESSAGES),
    ("READ", HISTORY): Operation(read_history, Needs.BROWSE_ANY),
    ("CANCEL", MESSAGE): Operation(cancel_messages, Needs.MANAGE),
    ("READ", TRANSACTION): Operation(_read_transaction, Needs.NOTHING),
    ("QUERY", TERMINUS_ENTITY): Operation(_query_termini, Needs.NOTHING),
    ("DELETE", TERMINUS_ENTITY): Operation(_delete_terminus, Needs.NOTHING),
}
"""The operations by verb and type."""

_ACTIONS: Final = {operation: f"{verb} {kind}" for (verb, kind), operation in OPERATIONS.items()}
"""Names of the operations in the audit."""
_CHANGING: Final = frozenset(operation for (verb, _), operation in OPERATIONS.items() if verb not in ("QUERY", "READ"))
"""Operations that change something."""
_FORBIDDEN: Final = 403
_STATUS: Final = {
    "amqp:not-found": 404,
    "amqp:unauthorized-access": 403,
    "amqp:resource-limit-exceeded": 507,
    "amqp:link:message-size-exceeded": 413,
}


def operation(verb: object, kind: object) -> Operation:
    """Return the operation of this verb and type. Raises RequestFailure for an unknown one."""
    found = OPERATIONS.get((str(verb), str(kind)))
    if found is None:
        known = ", ".join(f"{known_verb} {known_kind}" for known_verb, known_kind in OPERATIONS)
        raise RequestFailure(501, f"{verb!s:.64} {kind!s:.64} is not among: {known}")
    return found


def perform(operation: Operation, request: ManagementRequest) -> Result:
    """Return what an operation gives. Raises RequestFailure, also for what the user may not do. What changes something,
    and what is refused for want of a permission, is recorded."""
    check_values(request.name)
    check_values(request.body)
    try:
        result = _perform(operation, request)
    except RequestFailure as failure:
        if operation in _CHANGING or failure.status == _FORBIDDEN:
            _record(operation, request, failure)
        raise
    if operation in _CHANGING:
        if isinstance(result, Later):
            return result.also(partial(_record, operation, request))
        _record(operation, request, result)
    return result


def _perform(operation: Operation, request: ManagementRequest) -> Result:
    try:
        if not request.rights.unlimited:
            _check_permission(request, operation.needs)
        return operation.perform(request)
    except SelectorError as exc:
        raise RequestFailure(400, str(exc)) from exc
    except Refused as exc:
        raise RequestFailure(_STATUS.get(str(exc.condition), 400), exc.description) from exc


def _record(operation: Operation, request: ManagementRequest, result: object) -> None:
    refused = isinstance(result, RequestFailure)
    if isinstance(result, RequestFailure):
        text = f"refused: {result.status} {result}"
    elif isinstance(result, Deleted):
        text = f"messages {result.messages}, links {result.links}"
    else:
        text = _told(result if isinstance(result, Mapping) else {}) or "done"
    request.broker.auditor.performed(
        _ACTIONS[operation], request.user, request.peer, request.name or "", text, refused=refused
    )


def _told(result: Mapping[Any, Any]) -> str:
    """Return an answer as the audit has it: its numbers and texts, and those of the maps in it."""
    words = []
    for key, value in result.items():
        if isinstance(value, int | float | str):
            words.append(f"{key} {value}")
        elif isinstance(value, Mapping) and (inner := _told(value)):
            words.append(f"{key} ({inner})")
    return ", ".join(words)


def check_browse_any(rights: Rights) -> None:
    """Raise RequestFailure unless the user may browse or manage some queue."""
    if not (rights.anywhere("browse") or rights.anywhere("manage")):
        raise RequestFailure(
            403, f"{rights.who} may not see any queue: no role gives the permission to browse or to manage"
        )


def _check_permission(request: ManagementRequest, needs: Needs) -> None:
    """Raise RequestFailure unless the user of the request has the permission."""
    rights, name = request.rights, request.name
    if needs is Needs.NOTHING:
        return
    if needs is Needs.USER:
        if request.user is None and not rights.everywhere("manage"):
            raise RequestFailure(403, f"{rights.who} may not see any connection: no role gives the permission")
        return
    if needs is Needs.BROWSE_ANY:
        check_browse_any(rights)
        return
    if name is None or needs is Needs.MANAGE_ALL:
        if needs not in _BROWSING and not rights.everywhere("manage"):
            raise RequestFailure(403, "this needs the permission to manage '#', which no role gives")
        return
    found = request.broker.figures.node(name)
    address = name if found is None else found.address
    if needs in _BROWSING:
        if not rights.may("manage", address) and (reason := rights.refusal("browse", address)):
            raise RequestFailure(403, reason)
        owner = request.broker.figures.subscriber(name) if needs is Needs.BROWSE_MESSAGES else None
        if reason := rights.refusal_of_others(owner, request.user, address):
            raise RequestFailure(403, reason)
        return
    if needs in _ALSO_BY and rights.may(_ALSO_BY[needs], address):
        return
    if reason := rights.refusal("manage", address):
        raise RequestFailure(403, reason)


__all__ = [
    "OPERATIONS",
    "Needs",
    "Operation",
    "Result",
    "check_browse_any",
    "operation",
    "perform",
]
