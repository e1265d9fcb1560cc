"""The operations that look at all queues: a page of them in some order, and figures for monitoring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.requests import ROWS_MAX, ManagementRequest, is_number
from acquit.broker.admin.survey import (
    LISTED_COLUMNS,
    MEASURED,
    TROUBLE,
    ListedQueues,
    Measures,
    QueueMeasures,
    QueueOrder,
)
from acquit.broker.inspect import QUEUE_COLUMNS
from acquit.protocol.types import Value

ORDERS: Final = (*QUEUE_COLUMNS, TROUBLE)
"""Columns and whatever else queues can be sorted by."""
MEASURED_MAX: Final = 100_000
"""Queues that have rows of their own in the figures for monitoring, at most."""
_OPTIONS: Final[Mapping[str, type]] = {
    "sort": str,
    "descending": bool,
    "contains": str,
    "dead_letters": bool,
    "totals": bool,
    "offset": int,
    "limit": int,
    "attributeNames": list,
}


def is_ordered(body: object) -> bool:
    """Return whether a query of queues asks for a page in some order, and not for one by name."""
    return isinstance(body, Mapping) and bool(body.keys() & (_OPTIONS.keys() - {"limit", "attributeNames"}))


def list_queues(request: ManagementRequest) -> Later[Value]:
    """Return a page of the queues and topics that the user may see, in some order."""
    options = request.options(_OPTIONS)
    columns = request.page(LISTED_COLUMNS, "").columns
    options.pop("attributeNames", None)
    wanted = QueueOrder(**options)  # type: ignore[arg-type]  # `options` has looked at the types
    if wanted.sort not in ORDERS:
        raise RequestFailure(400, f"sort must be one of {', '.join(ORDERS)}, not {wanted.sort!r:.64}")
    if not is_number(wanted.offset) or not is_number(wanted.limit) or not 1 <= wanted.limit <= ROWS_MAX:
        raise RequestFailure(400, f"offset must be a number, and limit one from 1 to {ROWS_MAX}")

    def table(page: ListedQueues) -> Value:
        rows = list[Value]([[row[column] for column in columns] for row in page.rows])
        warnings = list[Value](request.broker.figures.warnings)
        return {
            "attributeNames": list[Value](columns),
            "results": rows,
            "total": page.total,
            "totals": page.totals,
            "warnings": warnings,
        }

    return request.broker.surveys.list_queues(wanted, request.may_see).then(table)


def read_metrics(request: ManagementRequest) -> Later[Value]:
    """Return figures for monitoring: of the queues that the user may see, and of the broker, but few of these to who
    may not browse or manage all addresses."""
    options = request.options({"limit": int, "increasing": bool})
    limit = options.get("limit", ROWS_MAX)
    of = (request.user,) if options.get("increasing", False) else None
    if not is_number(limit) or limit > MEASURED_MAX:
        raise RequestFailure(400, f"limit must be a number of queues, up to {MEASURED_MAX}")

    def row(one: QueueMeasures) -> list[Value]:
        return [one.name, one.is_topic, one.oldest_age_ms, *one.figures]

    def encode(found: Measures) -> Value:
        names, totals = list[Value](MEASURED), request.broker.figures.totals()
        return {
            **request.of_broker({**totals, "connections": found.connections}),
            "attributeNames": ["name", "is_topic", "oldest_age_ms", *names],
            "results": list[Value](map(row, found.rows)),
            "other": None if found.other is None else row(found.other),
            "queues": found.queues,
        }

    return request.broker.surveys.measure(limit, request.may_see, of).then(encode)


__all__ = ["MEASURED_MAX", "ORDERS", "is_ordered", "list_queues", "read_metrics"]
