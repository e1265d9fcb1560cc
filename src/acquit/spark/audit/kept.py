"""State that the driver keeps from run to run, each time written anew: the queues' names, and what the seals of each
broker say in sum."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from acquit.spark.audit import tables
from acquit.spark.audit.balance import BrokerTotals
from acquit.spark.audit.log import LogEntry

Names: TypeAlias = dict[int, dict[int, tuple[str, str]]]
"""Name and address of each queue, "" where they are not known, by broker and queue, both by number."""


def read_names(root: Path, entry: LogEntry | None) -> Names:
    """Return the names that earlier runs found. Raises as `tables.read`."""
    found: Names = {}
    if entry is not None:
        for row in tables.read(root / entry.state["queues"]).to_pylist():
            queues = found.setdefault(row["broker_number"], {})
            queues[row["queue_number"]] = (row["queue"] or "", row["address"] or "")
    return found


def names_table(names: Names) -> pa.Table:
    """Return the table that `read_names` reads."""
    rows = [
        (broker, queue, *both) for broker, queues in sorted(names.items()) for queue, both in sorted(queues.items())
    ]
    return pa.table(
        {
            "broker_number": pa.array([broker for broker, _, _, _ in rows], pa.int32()),
            "queue_number": pa.array([queue for _, queue, _, _ in rows], pa.int64()),
            "queue": pa.array([name or None for _, _, name, _ in rows], pa.string()),
            "address": pa.array([address or None for _, _, _, address in rows], pa.string()),
        }
    )


def read_totals(root: Path, entry: LogEntry | None) -> dict[int, BrokerTotals]:
    """Return the totals by the broker's number. Raises as `tables.read`."""
    if entry is None:
        return {}
    rows = tables.read(root / entry.state["totals"]).to_pylist()
    return {row["broker_number"]: BrokerTotals.from_json(json.loads(row["totals"])) for row in rows}


def totals_table(totals: Mapping[int, BrokerTotals]) -> pa.Table:
    """Return the table that `read_totals` reads."""
    plain = [json.dumps(total.to_json()) for _, total in sorted(totals.items())]
    return pa.table({"broker_number": pa.array(sorted(totals), pa.int32()), "totals": pa.array(plain, pa.string())})
