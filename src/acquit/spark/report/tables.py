"""Tables that the page is made of: the small ones of an audit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa

from acquit.ledger.events import ENTERING, RETIRING
from acquit.spark.audit.results import AuditResults

AuditTables: TypeAlias = Mapping[str, pa.Table]
"""Tables by the names of `TABLES`."""
Key: TypeAlias = tuple[str, str]
"""Broker and queue."""
Row: TypeAlias = dict[str, Any]

TABLES: Final = ("minutes", "balance", "anomalies", "histories", "dead_letters", "coverage")
ENTERED: Final = tuple(kind.name.lower() for kind in sorted(ENTERING))
RETIRED: Final = tuple(kind.name.lower() for kind in sorted(RETIRING))
"""Columns of `minutes` and `balance`: the two sides of the account, in the order of the events' numbers."""
DEAD: Final = ("dead_lettered", "dropped")
"""Retired without having been processed, and with a reason on record."""


def rows_of(table: pa.Table) -> list[Row]:
    """Return plain values, with times in microseconds since the epoch: that of a clock gone wrong may be in no
    calendar."""
    schema = pa.schema(
        [pa.field(field.name, pa.int64()) if pa.types.is_timestamp(field.type) else field for field in table.schema]
    )
    rows: list[Row] = table.cast(schema).to_pylist()
    return rows


def read_tables(folder: Path) -> AuditTables:
    """Return those of the audit in `folder`. Raises ConfigurationError where there is none."""
    results = AuditResults(folder)
    return {name: getattr(results, name)() for name in TABLES}
