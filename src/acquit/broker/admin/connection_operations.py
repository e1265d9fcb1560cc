"""The operations on the broker as a whole and on the connections to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final

from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.requests import ManagementRequest, is_number
from acquit.broker.inspect import CONNECTION_COLUMNS, LINK_COLUMNS, TRANSACTION_COLUMNS, Overview
from acquit.protocol.types import Value

if TYPE_CHECKING:
    from acquit.broker.access.permissions import Rights

REASON_MAX: Final = 256
"""Characters of a reason for closing something."""
_LINK_ID: Final = re.compile("([0-9]{1,20})[.]([0-9]{1,20})", re.ASCII)
NUMBER_DIGITS_MAX: Final = 20
"""Digits of a number in the name of a request."""
CLOSED: Final = "closed by an administrator"
"""Reason that is told where the request gives none."""


def read_broker(request: ManagementRequest) -> Later[Value]:
    """Return the broker in figures. Who may not browse or manage all addresses sees a few of them."""

    def encode(overview: Overview) -> Value:
        figures: dict[Value, Value] = {}
        for name, value in asdict(overview).items():
            figures[name] = list(value) if isinstance(value, tuple) else value
        return request.of_broker(figures)

    return request.broker.figures.overview().then(encode)


def query_connections(request: ManagementRequest) -> Value:
    """Return a table of the connections, by number: all, or those of the user who asks."""
    page = request.page(CONNECTION_COLUMNS, 0)
    found = request.broker.figures.connections(page.after, page.limit, of=lambda user: _may_see(request, user))
    return page.table([[getattr(one, column) for column in page.columns] for one in found])


def close_connection(request: ManagementRequest) -> Value:
    """Close a connection, with a reason."""
    number = numbered(request, "connection")
    if not request.broker.close_connection(number, reason(request)):
        raise RequestFailure(404, f"there is no connection {number}")
    return {"closed": True}


def query_links(request: ManagementRequest) -> Value:
    """Return a table of the links, by connection and number, of nodes that the user may see."""
    page = request.page(LINK_COLUMNS, "")
    body = request.body if isinstance(request.body, Mapping) else {}
    connection, node = body.get("connection"), body.get("node")
    if not (connection is None or is_number(connection)) or not (node is None or isinstance(node, str)):
        raise RequestFailure(400, "connection must be the id of a connection, and node the name of a queue or topic")
    after = _link_id(page.after) if page.after else (0, 0)
    found = request.broker.figures.links(
        after, page.limit, connection=connection, node=node, of=partial(_may_see_link, request.rights)
    )
    return page.table([[getattr(one, column) for column in page.columns] for one in found])


def detach_link(request: ManagementRequest) -> Value:
    """Detach a link, with a reason."""
    rights, broker = request.rights, request.broker
    connection, number = _link_id(request.name or "")
    address = broker.link_address(connection, number)
    if address is None or not _may_see_link(rights, address):
        raise RequestFailure(404, f"there is no link {request.name!r}")
    refusal = rights.refusal("manage", address) if _is_node(address) else None
    if refusal:
        raise RequestFailure(403, refusal)
    broker.detach_link(connection, number, reason(request))
    return {"detached": True}


def query_transactions(request: ManagementRequest) -> Value:
    """Return a table of the transactions that are open, the oldest first."""
    page = request.page(TRANSACTION_COLUMNS, "")
    found = request.broker.figures.transactions(page.limit)
    return page.table([[getattr(one, column) for column in page.columns] for one in found])


def _link_id(text: str) -> tuple[int, int]:
    match = _LINK_ID.fullmatch(text)
    if match is None:
        raise RequestFailure(400, f"the id of a link is two numbers, as in 12.3, not {text!r:.64}")
    return int(match[1]), int(match[2])


def _is_node(address: str) -> bool:
    """True if it is the address of a queue or topic, which permissions are about."""
    return bool(address) and not address.startswith("$")


def _may_see_link(rights: Rights, address: str) -> bool:
    if not _is_node(address):
        return rights.everywhere("manage")
    return rights.may("browse", address) or rights.may("manage", address)


def numbered(request: ManagementRequest, what: str) -> int:
    """Return the number that the request names. Raises RequestFailure for what is none."""
    name = request.name or ""
    if not (name.isascii() and name.isdigit() and len(name) <= NUMBER_DIGITS_MAX):
        raise RequestFailure(400, f"the application property 'name' must be the number of a {what}, not {name!r:.64}")
    return int(name)


def reason(request: ManagementRequest) -> str:
    """Return the reason that the request gives for closing something. Raises RequestFailure for what is none."""
    text = str(request.options({"reason": str}).get("reason", "")).strip()
    if len(text) > REASON_MAX:
        raise RequestFailure(400, f"reason must have at most {REASON_MAX} characters")
    return text or CLOSED


def _may_see(request: ManagementRequest, user: str | None) -> bool:
    return request.rights.everywhere("manage") or (user is not None and user == request.user)


__all__ = [
    "CLOSED",
    "REASON_MAX",
    "close_connection",
    "detach_link",
    "numbered",
    "query_connections",
    "query_links",
    "query_transactions",
    "read_broker",
    "reason",
]
