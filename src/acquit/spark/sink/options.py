"""The options of the sink. `OPTIONS` is the reference that `docs/spark-sink.md` repeats."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from acquit.errors import ConfigurationError
from acquit.spark.options import (
    CONNECTION_OPTIONS,
    HOUR_MS,
    Option,
    SparkConnectionOptions,
    parse_options,
    read_choice,
    read_count,
    read_duration,
    read_size,
    read_truth,
)

RUN_ID_MAX: Final = 200
"""Characters; with the partition it names a mark (docs/duplicates.md)."""
_OTHERS: Final = frozenset(("checkpointlocation",))
"""Options of a query that Spark shows to its sink, too."""


class Guarantee(StrEnum):
    """Guarantee of how often a row is posted."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class RejectedRows(StrEnum):
    """Fate of the query when a row cannot be posted."""

    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(SparkConnectionOptions):
    """Options of the sink; see `OPTIONS` for each."""

    address: str | None = None
    topic: bool = False
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    id_column: str | None = None
    run_id: str | None = None
    duplicate_window: int | None = None
    writers: int = 1
    rejected: RejectedRows = RejectedRows.FAIL
    durable: bool = True
    in_flight_max: int = 2_000
    in_flight_bytes: int = 16 << 20
    send_timeout_ms: int = 60_000
    sort_bytes: int = 256 << 20
    report: str | None = None

    def __post_init__(self) -> None:
        SparkConnectionOptions.__post_init__(self)
        if self.topic and self.address is None:
            raise ConfigurationError("option topic is given without the option address")

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Read options as Spark gives them. Raises ConfigurationError."""
        return parse_options(cls, OPTIONS, {key: text for key, text in options.items() if key.lower() not in _OTHERS})


def _run_id(text: str) -> str:
    if len(text) > RUN_ID_MAX:
        raise ValueError(f"at most {RUN_ID_MAX} characters")
    return text


def _folder(text: str) -> str:
    path = text.removeprefix("file://")
    if not os.path.isabs(path):
        raise ValueError("an absolute path (or file:///path) of a folder")
    return path


OPTIONS: Final = (
    *CONNECTION_OPTIONS,
    Option("address", "address", str, "the queue or topic to post to; without it each row says its own, by `address`"),
    Option("topic", "topic", read_truth, "`true`: the option address is that of a topic"),
    Option(
        "guarantee",
        "guarantee",
        read_choice(Guarantee, *Guarantee),
        "exactly-once, refused where it cannot be had, or at-least-once",
    ),
    Option(
        "idColumn",
        "id_column",
        str,
        "the column that names each row: for rows that come in another order when they are made again, as after a "
        "shuffle, and for batch writes",
    ),
    Option(
        "runId",
        "run_id",
        _run_id,
        "of a batch write: its name, the same when the same rows are written again, and never that of other rows",
    ),
    Option(
        "duplicateWindow",
        "duplicate_window",
        read_count(1, 1_000_000_000),
        "how many ids an address of the broker remembers: needed where ids are compared. A batch may have as many rows",
    ),
    Option(
        "writers",
        "writers",
        read_count(1, 1_000_000),
        "with duplicateWindow: how many tasks write a batch; each may write its share of the window",
    ),
    Option(
        "rejected",
        "rejected",
        read_choice(RejectedRows, *RejectedRows),
        "a row that cannot be posted: fail (the query ends, naming it), or skip (it is logged, counted and left out)",
    ),
    Option("durable", "durable", read_truth, "whether messages are durable, where the column `durable` says nothing"),
    Option("maxInFlight", "in_flight_max", read_count(1, 1_000_000), "messages of one task without an answer, at most"),
    Option("maxInFlightBytes", "in_flight_bytes", read_size(1, 1 << 30), "their bytes"),
    Option(
        "sendTimeout",
        "send_timeout_ms",
        read_duration(1, 24 * HOUR_MS),
        "how long a task goes on while the broker takes nothing: its queue is full, or it cannot be reached",
    ),
    Option(
        "sortMemory",
        "sort_bytes",
        read_size(1 << 16, 1 << 36),
        "with idColumn on an acquit broker: how many bytes of rows one task may hold to bring them in order",
    ),
    Option(
        "report",
        "report",
        _folder,
        "a folder of the driver's machine: each batch leaves a JSON file there that says what came of its rows",
    ),
)
