"""The operations on the broker as a whole and on the connections to it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.requests import ManagementRequest
from acquit.broker.inspect import CONNECTION_COLUMNS, Overview
from acquit.protocol.types import Value

REASON_MAX: Final = 256
"""Characters of a reason for closing something."""
NUMBER_DIGITS_MAX: Final = 20
"""Digits of a number in the name of a request."""
CLOSED: Final = "closed by an administrator"
"""Reason that is told where the request gives none."""
_PLAIN: Final = ("broker_id", "last_sequence", "accepting", "warnings")
"""Attributes of the broker that everybody may see."""


def read_broker(request: ManagementRequest) -> Later[Value]:
    """Return the broker in figures. Who may not browse or manage all addresses sees a few of them."""
    rights = request.rights
    everything = rights.everywhere("browse") or rights.everywhere("manage")

    def encode(overview: Overview) -> Value:
        figures: dict[Value, Value] = {}
        for name, value in asdict(overview).items():
            if everything or name in _PLAIN:
                figures[name] = list(value) if isinstance(value, tuple) else value
        return figures

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


__all__ = ["CLOSED", "REASON_MAX", "close_connection", "numbered", "query_connections", "read_broker", "reason"]
