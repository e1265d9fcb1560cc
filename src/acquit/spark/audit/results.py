"""The audit's tables, read.

Small ones come as Arrow tables, whole. `closed` and `open` have a row for each message: as a Spark DataFrame, or as the
list of their Parquet files. What is read is the newest committed entry of the audit's log, as it was when
`AuditResults` was made; a run that is committed meanwhile does not show, and takes nothing away before the run after
it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acquit.errors import ConfigurationError
from acquit.ledger.events import ENTERING, RETIRING, EventKind
from acquit.spark.audit import anomalies, balance, counters, dead_letters, histories, tables
from acquit.spark.audit.counters import FIRST, LATENCY, MINUTE_US, WAIT, Counters
from acquit.spark.audit.histogram import BUCKETS
from acquit.spark.audit.log import AuditLog, BrokerState, LogEntry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HISTOGRAM: Final = pa.list_(pa.struct([("bucket", pa.int32()), ("count", pa.int64())]))
_TIME: Final = pa.timestamp("us", "UTC")
COVERAGE: Final = pa.schema(
    [
        ("broker", pa.string()),
        ("folder", pa.string()),
        ("first_segment", pa.int64()),
        ("last_segment", pa.int64()),
        ("open", pa.bool_()),
        ("events", pa.int64()),
        ("first_time", _TIME),
        ("last_time", _TIME),
        ("missing", pa.list_(pa.int64())),
        ("deleted", pa.list_(pa.int64())),
        ("unclean_stops", pa.int64()),
    ]
)
_COUNTED: Final = {
    name: (EventKind[name.upper()],)
    for name in (
        "posted accepted consumed dead_lettered expired dropped displaced moved_out moved_in dead_lettered_in "
        "expired_in purged lost_volatile acquired released modified"
    ).split()
} | {"acquired": (EventKind.ACQUIRED, EventKind.CONSUMED)}


class AuditResults:
    """The tables of the audit in `folder`. Raises ConfigurationError where there is none, StoreCorrupt where its log is
    damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._entries: list[LogEntry] = AuditLog(folder).entries()
        if not self._entries:
            raise ConfigurationError(f"{folder} has no audit: its log has no entry")

    @property
    def entry(self) -> LogEntry:
        """The newest entry of the log."""
        return self._entries[-1]

    @property
    def brokers(self) -> dict[int, BrokerState]:
        """States of the brokers, by their numbers in this audit."""
        return {broker.number: broker for broker in self.entry.brokers}

    def queues(self) -> pa.Table:
        """broker, queue_number, queue, address: what the numbers stand for."""
        names = tables.read(self.folder / self.entry.state["queues"])
        stores = pa.array([self.brokers[number].store for number in names["broker_number"].to_pylist()], pa.string())
        return names.drop_columns(["broker_number"]).add_column(0, "broker", stores)

    def minutes(self) -> pa.Table:
        """A row for each broker, queue and minute in which something happened. `acquired` counts what was handed out,
        that which was consumed in the same moment included; `redelivered`, of these, what was not for the first
        time."""
        parts = [tables.read_counters(self.folder / path) for path in self._paths("counters")]
        return _minutes(
            counters.summed(np.concatenate(parts)) if parts else counters.NO_COUNTERS,
            {number: broker.store for number, broker in self.brokers.items()},
            self._names(),
        )

    def balance(self) -> pa.Table:
        """A row for each queue."""
        return tables.read(self.folder / self.entry.state["balance"], schema=balance.SCHEMA)

    def anomalies(self) -> pa.Table:
        """Return the anomalies of all runs, oldest first."""
        return self._all("anomalies", anomalies.SCHEMA)

    def histories(self) -> pa.Table:
        """The events of messages that anomalies name."""
        return self._all("histories", histories.SCHEMA)

    def dead_letters(self) -> pa.Table:
        """Count dead-lettered messages by queue, minute and reason; null where no reason is on record."""
        found = self._all("dead_letters", dead_letters.SCHEMA)
        keys = dead_letters.SCHEMA.names[:-1]
        summed = found.group_by(keys, use_threads=False).aggregate([("count", "sum")])
        return summed.rename_columns([*keys, "count"]).sort_by([(key, "ascending") for key in keys])

    def coverage(self) -> pa.Table:
        """A row for each broker: how far the audit has come. Of what is `missing` and `deleted` (by retention, before
        it was audited), the numbers of the first 1,000 segments."""
        rows = [
            {
                "broker": broker.store,
                "folder": broker.folder,
                "first_segment": broker.first,
                "last_segment": broker.partial.number if broker.partial is not None else broker.through,
                "open": broker.partial is not None,
                "events": broker.events,
                "first_time": broker.first_us or None,
                "last_time": broker.last_us or None,
                "missing": _numbers(broker.missing),
                "deleted": _numbers(broker.deleted),
                "unclean_stops": broker.unclean_stops,
            }
            for broker in self.entry.brokers
        ]
        return pa.Table.from_pylist(rows, schema=COVERAGE)

    def closed_files(self, *, day: str | None = None, broker: str | None = None) -> list[Path]:
        """The files of `closed`; of one day of retirement (``2026-01-31``, UTC) or one broker's only. They have queues
        by number: `queues` says their names."""
        return [
            self.folder / file.path
            for file in self._files("closed")
            if day in (None, file.day) and broker in (None, file.broker)
        ]

    def open_files(self) -> list[Path]:
        """The files of `open`."""
        return [self.folder / path for _, path in sorted(self.entry.open.items())]

    def closed(self, spark: SparkSession, *, day: str | None = None, broker: str | None = None) -> DataFrame | None:
        """Return closed messages as a DataFrame, with the queues' names; None where there is none."""
        return self._frame(spark, self.closed_files(day=day, broker=broker))

    def open(self, spark: SparkSession) -> DataFrame | None:
        """Return open messages as a DataFrame, with the queues' names; None where there is none."""
        return self._frame(spark, self.open_files())

    def _frame(self, spark: SparkSession, paths: list[Path]) -> DataFrame | None:
        if not paths:
            return None
        from pyspark.sql import functions

        from acquit.spark.parquet import literal_path

        queues = spark.createDataFrame(self.queues().select(["broker", "queue_number", "queue"]))
        frame = spark.read.parquet(*(literal_path(str(path)) for path in paths))
        return frame.join(functions.broadcast(queues), ["broker", "queue_number"], "left")

    def _files(self, table: str) -> list[tables.DataFile]:
        return [file for entry in self._entries for file in entry.added if file.table == table]

    def _paths(self, table: str) -> list[str]:
        return [file.path for file in self._files(table)]

    def _all(self, table: str, schema: pa.Schema) -> pa.Table:
        parts = [tables.read(self.folder / path).select(schema.names).cast(schema) for path in self._paths(table)]
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def _names(self) -> dict[tuple[int, int], str | None]:
        names = tables.read(self.folder / self.entry.state["queues"]).to_pylist()
        return {(row["broker_number"], row["queue_number"]): row["queue"] for row in names}


def _numbers(ranges: list[list[int]]) -> list[int]:
    found: list[int] = []
    for first, last in ranges:
        found += range(first, min(last, first + 1_000 - len(found)) + 1)
    return found[:1_000]


def _minutes(rows: Counters, brokers: dict[int, str], names: dict[tuple[int, int], str | None]) -> pa.Table:
    """Return the table of minutes, from counters in order of minute, broker, queue and code."""
    new = np.ones(len(rows), np.bool_)
    for number, name in enumerate(("minute", "broker", "queue")):
        changed = rows[name][1:] != rows[name][:-1]
        new[1:] = changed if not number else new[1:] | changed
    starts = np.flatnonzero(new)
    group = np.cumsum(new) - 1

    def total(*codes: int) -> npt.NDArray[np.int64]:
        mine = np.isin(rows["code"], codes)
        return np.bincount(group[mine], rows["count"][mine], len(starts)).astype(np.int64)

    columns: dict[str, Any] = {name: total(*kinds) for name, kinds in _COUNTED.items()}
    columns["redelivered"] = columns["acquired"] - total(FIRST)
    columns["depth_change"] = total(*ENTERING) - total(*RETIRING)
    heads = rows[starts]
    keys = list(zip(heads["broker"].tolist(), heads["queue"].tolist(), strict=True))
    wanted = np.flatnonzero((columns["posted"] >= 0) & (heads["queue"] > 0))
    table = pa.table(
        {
            "broker": pa.array([brokers[broker] for broker, _ in keys], pa.string()),
            "queue": pa.array([names.get(key) for key in keys], pa.string()),
            "queue_number": pa.array(heads["queue"].astype(np.int64)),
            "minute": pa.array(heads["minute"] * MINUTE_US).view(_TIME),
            **{name: pa.array(values) for name, values in columns.items()},
            "latency": _histograms(rows, group, len(starts), LATENCY),
            "wait": _histograms(rows, group, len(starts), WAIT),
        }
    ).take(pa.array(wanted))
    return table.sort_by([(name, "ascending") for name in ("broker", "queue_number", "minute")])


def _histograms(rows: Counters, group: npt.NDArray[np.int64], groups: int, base: int) -> pa.Array:
    mine = (rows["code"] >= base) & (rows["code"] < base + BUCKETS)
    offsets = np.searchsorted(group[mine], np.arange(groups + 1)).astype(np.int32)
    buckets = pa.array((rows["code"][mine] - base).astype(np.int32))
    values = pa.StructArray.from_arrays([buckets, pa.array(rows["count"][mine])], ["bucket", "count"])
    return pa.ListArray.from_arrays(pa.array(offsets), values).cast(HISTOGRAM)
