"""What of an audit a page is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What of the audit the page is about."""

    title: str = "Audit"
    brokers: Sequence[str] = ()
    """Beginnings of uuids; none: all."""
    queues: Sequence[str] = ()
    """Patterns with ``*`` and ``?``; none: all."""
    top: int = 12
    """How many queues have charts."""
    made_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def takes(self, broker: str | None, queue: str | None) -> bool:
        """Is this queue meant?"""
        return self.takes_broker(broker) and (
            not self.queues or any(fnmatchcase(queue or "", pattern) for pattern in self.queues)
        )

    def takes_broker(self, broker: str | None) -> bool:
        """Is this broker meant?"""
        return not self.brokers or any((broker or "").startswith(start) for start in self.brokers)

    @property
    def all(self) -> bool:
        """Is nothing left out?"""
        return not (self.brokers or self.queues)

    @property
    def text(self) -> str:
        """What is chosen, for people; "" for all."""
        parts = [f"brokers {', '.join(self.brokers)}"] if self.brokers else []
        parts += [f"queues {', '.join(self.queues)}"] if self.queues else []
        return " and ".join(parts)

    def of(self, table: pa.Table) -> pa.Table:
        """The rows of a table that are meant, by its columns `broker` and `queue`."""
        if self.all:
            return table
        keys = table.select(["broker", "queue"]).group_by(["broker", "queue"]).aggregate([])
        wanted = [row for row in keys.to_pylist() if self.takes(row["broker"], row["queue"])]
        mask = pa.chunked_array([pa.repeat(False, table.num_rows)])
        for row in wanted:
            mask = pc.or_(mask, pc.and_(*(_is(table[name], row[name]) for name in ("broker", "queue"))))
        return table.filter(mask)


def _is(column: pa.ChunkedArray, value: str | None) -> pa.ChunkedArray:
    return pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)
