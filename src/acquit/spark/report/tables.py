"""What the page is made of: the small tables of an audit, checked, and empty where the audit has none.

`SCHEMAS` is what the page reads of each. A table may have more columns; one that lacks a column is refused by name,
so that a folder written by another version fails here and not in the middle of a chart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from acquit.errors import ConfigurationError
from acquit.ledger.events import ENTERING, RETIRING
from acquit.spark.audit.results import AuditResults

_TEXT: Final = pa.string()
_LONG: Final = pa.int64()
_TIME: Final = pa.timestamp("us", "UTC")
_BUCKETS: Final = pa.list_(pa.struct([("bucket", pa.int32()), ("count", pa.int64())]))

ENTERED: Final = tuple(kind.name.lower() for kind in sorted(ENTERING))
RETIRED: Final = tuple(kind.name.lower() for kind in sorted(RETIRING))
"""Columns of `minutes` and `balance`: the two sides of the account, in the order of the events' numbers."""
DEAD: Final = ("dead_lettered", "dropped")
"""Retired without having been processed, and with a reason on record."""

_COUNTS: Final = (*ENTERED, *RETIRED, "acquired", "released", "modified", "redelivered", "depth_change")

_QUEUE: Final = (("broker", _TEXT), ("queue", _TEXT))


def _counted(*names: str) -> tuple[tuple[str, pa.DataType], ...]:
    return tuple((name, _LONG) for name in names)


SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "minutes": pa.schema(
        (*_QUEUE, ("minute", _TIME), *_counted(*_COUNTS), ("latency", _BUCKETS), ("wait", _BUCKETS)),
    ),
    "balance": pa.schema(
        (
            *_QUEUE,
            *_counted("entered", "retired", "live", "live_by_seal"),
            ("sums_agree", pa.bool_()),
            *_counted(*ENTERED, *RETIRED),
            ("state", _TEXT),
            ("detail", _TEXT),
        )
    ),
    "anomalies": pa.schema(
        (
            *_QUEUE,
            ("sequence", _LONG),
            ("kind", _TEXT),
            ("detail", _TEXT),
            ("segment", _LONG),
            ("time", _TIME),
        )
    ),
    "histories": pa.schema(
        (
            *_QUEUE,
            ("sequence", _LONG),
            ("segment", _LONG),
            ("index", pa.int32()),
            ("time", _TIME),
            ("kind", _TEXT),
            ("attempt", pa.int32()),
            ("actor", _TEXT),
            ("cause", _TEXT),
            ("condition", _TEXT),
        )
    ),
    "dead_letters": pa.schema(
        (*_QUEUE, ("minute", _TIME), ("cause", _TEXT), ("condition", _TEXT), ("count", _LONG)),
    ),
    "coverage": pa.schema(
        (
            ("broker", _TEXT),
            ("folder", _TEXT),
            *_counted("first_segment", "last_segment", "events"),
            ("first_time", _TIME),
            ("last_time", _TIME),
            ("missing", pa.list_(_LONG)),
            ("deleted", pa.list_(_LONG)),
            ("unclean_stops", _LONG),
        )
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTables:
    """The tables of one audit, as the page reads them. Raises ConfigurationError for a table that lacks a column."""

    minutes: pa.Table = field(default_factory=SCHEMAS["minutes"].empty_table)
    balance: pa.Table = field(default_factory=SCHEMAS["balance"].empty_table)
    anomalies: pa.Table = field(default_factory=SCHEMAS["anomalies"].empty_table)
    histories: pa.Table = field(default_factory=SCHEMAS["histories"].empty_table)
    dead_letters: pa.Table = field(default_factory=SCHEMAS["dead_letters"].empty_table)
    coverage: pa.Table = field(default_factory=SCHEMAS["coverage"].empty_table)

    def __post_init__(self) -> None:
        for name, schema in SCHEMAS.items():
            object.__setattr__(self, name, _as_read(name, getattr(self, name), schema))


def _as_read(name: str, table: pa.Table, schema: pa.Schema) -> pa.Table:
    missing = [column for column in schema.names if column not in table.column_names]
    if missing:
        raise ConfigurationError(f"table {name} of the audit lacks {', '.join(missing)}: audit the folder again")
    chosen = table.select(schema.names)
    try:
        return chosen.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigurationError(f"table {name} of the audit: {error}") from error


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """As plain values, with times in microseconds since the epoch: that of a clock gone wrong may be in no calendar."""
    for place, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            table = table.set_column(place, column.name, table[column.name].cast(_LONG))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def read_tables(folder: Path) -> AuditTables:
    """Those of the audit in `folder`. Raises ConfigurationError where there is none."""
    results = AuditResults(folder)
    return AuditTables(**{name: getattr(results, name)() for name in SCHEMAS})
