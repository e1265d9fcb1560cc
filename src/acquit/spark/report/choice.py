"""Part of an audit that a page is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The part of the audit that the page is about."""

    title: str = "Audit"
    brokers: Sequence[str] = ()
    """Beginnings of uuids; none: all."""
    queues: Sequence[str] = ()
    """Patterns with ``*`` and ``?``; none: all."""
    top: int = 12
    """Queues that have charts, at most."""
    made_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def takes(self, *, broker: str | None = None, queue: str | None = None) -> bool:
        """Return whether this broker, this queue, or this queue of this broker is meant; None is any."""
        of_broker = broker is None or not self.brokers or broker.startswith(tuple(self.brokers))
        return of_broker and (queue is None or not self.queues or any(_fits(queue, each) for each in self.queues))

    @property
    def text(self) -> str:
        """Choice in words, for people; "" for all."""
        chosen = {"brokers": self.brokers, "queues": self.queues}
        return " and ".join(f"{what} {', '.join(which)}" for what, which in chosen.items() if which)

    def of(self, table: pa.Table) -> pa.Table:
        """Return the rows of a table that are meant, by its columns `broker` and `queue`: in these "" is none."""
        for name in ("broker", "queue"):
            if name in table.column_names:
                column = pc.fill_null(table[name], "")
                wanted = [each for each in column.unique().to_pylist() if self.takes(**{name: each})]
                table = table.set_column(table.column_names.index(name), name, column)
                table = table.filter(pc.is_in(column, pa.array(wanted, pa.string())))
        return table


def _fits(name: str, pattern: str) -> bool:
    """True if the name fits the pattern, in which brackets are themselves."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))
