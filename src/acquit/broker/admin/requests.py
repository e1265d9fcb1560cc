"""A request for an operation: who asks, for what, and what they may see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Generic, TypeGuard, TypeVar

from acquit.broker.admin.later import RequestFailure
from acquit.broker.inspect import QueueSnapshot, TerminusSnapshot
from acquit.protocol.types import Array, Described, Value

if TYPE_CHECKING:
    from acquit.broker.access.permissions import Rights
    from acquit.broker.admin.administration import Administration


@dataclass(frozen=True, slots=True)
class Deleted:
    """The messages and links that went with a deleted node. The draft leaves no room for them in the body of the
    answer."""

    messages: int
    links: int


ROWS_MAX: Final = 1_000
"""Rows of one page of a table."""

VALUES_MAX: Final = 12_000
"""Values that a request may hold, those in lists and maps counted: 10,000 sequences, and what is around them. Each
costs the broker's loop about a microsecond, and a MiB could hold half a million."""

PLAIN: Final = ("broker_id", "last_sequence", "accepting", "warnings")
"""Figures of the broker as a whole that everybody may see who may ask for them."""

K = TypeVar("K", int, str)


@dataclass(frozen=True, slots=True)
class TablePage(Generic[K]):
    """A part of a table: these columns, of at most `limit` rows whose key is above `after`."""

    columns: list[str]
    after: K
    limit: int

    def table(self, rows: list[Any]) -> dict[Value, Value]:
        """Return the body of an answer that has these rows."""
        return {"attributeNames": list[Value](self.columns), "results": rows}


@dataclass(frozen=True, slots=True)
class ManagementRequest:
    """A request of a user with these rights, who sees the queues that they may browse or manage."""

    broker: Administration
    user: str | None
    rights: Rights
    name: str | None
    body: object
    peer: str = ""
    """Address that the request came from, ``host:port``."""

    def find(self, name: str) -> QueueSnapshot | None:
        """Return a snapshot of one queue or topic; None if there is none that the user may see."""
        queue = self.broker.figures.node(name)
        return queue if queue is not None and self.may_see(queue.address) else None

    def queue(self) -> QueueSnapshot:
        """Return a snapshot of the queue or topic that the request names. Raises RequestFailure."""
        if self.name is None:
            raise RequestFailure(400, "the application property 'name' must be the name of a queue")
        found = self.find(self.name)
        if found is None:
            raise RequestFailure(404, f"there is no queue {self.name!r}")
        return found

    def termini(self) -> list[TerminusSnapshot]:
        """Return snapshots of the termini that outlive their links, of nodes that the user may see."""
        may = self.rights.may
        return [one for one in self.broker.termini() if may("browse", one.node) or may("manage", one.node)]

    def holder(self) -> QueueSnapshot:
        """Return a snapshot of the queue that the request names. Raises RequestFailure, for a topic as well."""
        found = self.queue()
        if "topic" in found.kind:
            raise RequestFailure(
                400, f"{self.name!r} is a topic: what is posted to it is in the queues of its subscriptions"
            )
        return found

    def page(self, known: Sequence[str], first: K) -> TablePage[K]:
        """Return the part of a table that a QUERY asks for; without a word, all columns of the first rows. `known` are
        the table's columns, and `first` is below all keys. Raises RequestFailure."""
        body = self.body if isinstance(self.body, Mapping) else {}
        wanted, after, limit = body.get("attributeNames"), body.get("after", first), body.get("limit", ROWS_MAX)
        if wanted and not (isinstance(wanted, list) and all(name in known for name in wanted)):
            raise RequestFailure(400, f"attributeNames must be a list of some of: {', '.join(known)}")
        if not is_number(limit) or not 1 <= limit <= ROWS_MAX:
            raise RequestFailure(400, f"limit must be a number from 1 to {ROWS_MAX}")
        if isinstance(after, bool) or not isinstance(after, type(first)):
            raise RequestFailure(400, "after must be what the last row before this page is known by")
        return TablePage([str(name) for name in wanted or known], after, limit)

    def options(self, known: Mapping[str, type]) -> dict[str, object]:
        """Return the options of a request, whose body is a map or nothing. Raises RequestFailure for unknown ones."""
        if self.body is None:
            return {}
        if not isinstance(self.body, Mapping) or not all(
            key in known and isinstance(value, known[key]) and not (known[key] is int and isinstance(value, bool))
            for key, value in self.body.items()
        ):
            raise RequestFailure(400, f"the body must be a map of some of: {', '.join(known)}")
        return {str(key): value for key, value in self.body.items()}

    def of_broker(self, figures: dict[Value, Value]) -> dict[Value, Value]:
        """Return those figures of the broker as a whole that the user may see."""
        if self.rights.sees_broker:
            return figures
        return {name: value for name, value in figures.items() if name in PLAIN}

    def may_see(self, address: str) -> bool:
        """Return whether the user may browse or manage an address."""
        return self.rights.may("browse", address) or self.rights.may("manage", address)


def check_values(value: object, left: int = VALUES_MAX) -> int:
    """Return how many more values a request may hold that holds this one. Raises RequestFailure for more than
    `VALUES_MAX`, and for half a pair of surrogates: JSON can say it, and neither AMQP nor the journal can."""
    if not left:
        raise RequestFailure(400, f"a request holds at most {VALUES_MAX:,} values: send more of them as text or octets")
    left -= 1
    match value:
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise RequestFailure(400, f"{value!a:.64} is no text: it has half a pair of surrogates") from None
        case Mapping():
            for part in chain.from_iterable(value.items()):
                left = check_values(part, left)
        case list() | tuple():
            for part in value:
                left = check_values(part, left)
        case Array():
            left = check_values(value.items, left)
        case Described():
            left = check_values(value.value, check_values(value.descriptor, left))
        case _:
            pass
    return left


def is_number(value: object) -> TypeGuard[int]:
    """True if it is a number that can be a sequence, or a count."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64


__all__ = ["PLAIN", "ROWS_MAX", "VALUES_MAX", "Deleted", "ManagementRequest", "TablePage", "check_values", "is_number"]
