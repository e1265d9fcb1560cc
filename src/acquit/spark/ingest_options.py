"""Options of an ingest, and the checks of them that need neither broker, table nor Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from acquit.errors import ConfigurationError
from acquit.spark.columns import BY_NAME, generations
from acquit.spark.decoding import BodyAs, body_ddl
from acquit.spark.options import YEAR_MS, BrokerAccess, SparkAt, read_duration
from acquit.spark.source_options import SourceOptions
from acquit.spark.table_source import POSTED_DAY

WORK_FOLDER: Final = "_acquit"
_read_trigger: Final = read_duration(0, YEAR_MS)
_PARTITION_TYPES: Final = ("STRING", "BOOLEAN")


class TableFormat(StrEnum):
    """Format of the table."""

    DELTA = "delta"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions(BrokerAccess, SparkAt):
    """Options of an ingest: source and table. Raises ConfigurationError for options that cannot be."""

    address: str | tuple[str, ...]
    """The queue, or several."""
    table: Path
    """Folder of the table, seen under the same path by driver and workers."""
    format: TableFormat = TableFormat.DELTA
    columns: tuple[str, ...] = ()
    """Columns of the source that the table has; by default all, or all that there were when the table was made."""
    partition_by: tuple[str, ...] = ()
    """Columns to make partitions by: chosen ones of type STRING or BOOLEAN with few values (`queue`, `subject`), or
    ``posted_day``, which is made of `posted_at` in UTC and added to the table. Each batch makes a file for each value,
    so a partition should take days to become large. By default none."""
    target_file_bytes: int | None = None
    """Delta: small files are merged as the stream goes into files of up to about this size; 0 for never. By default
    16 MiB."""
    work: Path | None = None
    """Folder of the query's spool and checkpoint; by default `_acquit` in the table's folder."""
    spool: str | None = None
    """The spool, where it is not to be in `work`: an absolute path, or ``s3://bucket/path``."""
    create: bool = False
    """True to make a queue that is not there by reading it, instead of raising an error. For a run with a `trigger`
    that may begin before its producers. Brokers other than acquit do as they do."""
    parts: int = 2
    """Tasks that read the queue in parallel."""
    source: Mapping[str, str] = field(default_factory=dict)
    """More options of the source, by their names in `docs/spark.md`."""
    ledger: Path | None = None
    """A folder of the broker's data, seen here: at the end the ledger is audited into `work`, and reconciled with the
    table (`acquit.spark.audit.reconcile`). Of one queue, with the column `sequence` or `message_id`, and without
    `identityField`."""
    trigger: str | None = None
    """None: ingest what is in the queue now, and end. Else run until interrupted, a batch each such interval
    (``2s``, ``2 seconds``; ``0s`` for as fast as may be)."""

    def __post_init__(self) -> None:
        if not self.table.is_absolute():
            raise ConfigurationError(f"table: expected an absolute path, got {self.table}")
        _ = self.trigger_ms
        if self.target_file_bytes is not None:
            if self.format is not TableFormat.DELTA:
                raise ConfigurationError(
                    "target file size: the files of a Parquet table that Spark lists are not merged"
                )
            if self.target_file_bytes < 0:
                raise ConfigurationError(f"target file size: expected bytes, got {self.target_file_bytes}")
        if self.ledger is not None:
            self._check_ledger(self.ledger)
        source = SourceOptions.parse(self.source_options())
        other = next((name for name in self.addresses if name.strip() not in source.queues), None)
        if other is not None:  # others would be emptied in its place
            raise ConfigurationError(
                f"address {other!r}: several are separated by commas, so one with a comma in its name is ingested alone"
            )
        if self.ledger is not None and source.identity_field is not None:
            raise ConfigurationError(
                "ledger: with the option identityField a message that was posted twice is one row, and the ledger has "
                "two: leave one of the two options out"
            )
        for place in (self.work_folder, Path(source.spool)):
            if place.is_relative_to(self.table) and not str(place.relative_to(self.table)).startswith("_"):
                raise ConfigurationError(
                    f"{place} is within the table's folder: there its name must begin with _, as a vacuum removes what "
                    "is not the table's"
                )
        available = columns_of(source)
        unknown = [name for name in self.columns if name not in available]
        if unknown:
            raise ConfigurationError(f"columns: {', '.join(unknown)} given; the source has {', '.join(available)}")
        for option, names in (("columns", self.columns), ("partition by", self.partition_by)):
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise ConfigurationError(f"{option}: {twice} is given {names.count(twice)} times")
        whole = self.format is TableFormat.DELTA  # which keeps what the source made, and Parquet what is chosen of it
        if whole and self.columns and source.body_as is BodyAs.JSON and BodyAs.JSON not in self.columns:
            raise ConfigurationError(
                "option bodyAs = json makes the column json, which is not one of the columns "
                f"{', '.join(self.columns)}: choose it, or leave bodyAs out"
            )
        self._check_partitions()

    def _check_ledger(self, ledger: Path) -> None:
        if not ledger.is_absolute():
            raise ConfigurationError(f"ledger: expected an absolute path, got {ledger}")
        if not ledger.is_dir():
            raise ConfigurationError(f"ledger {ledger}: expected the folder of a broker's data")
        if len(self.addresses) > 1:
            raise ConfigurationError("ledger: a table of several queues is not reconciled; make one for each")
        if self.columns and not {"sequence", "message_id"} & set(self.columns):
            raise ConfigurationError("ledger: expected sequence or message_id among the columns, to know messages by")
        if not (ledger / "broker.json").is_file():
            raise ConfigurationError(
                f"ledger {ledger}: expected the folder of a broker's data, which has a broker.json"
            )

    def _check_partitions(self) -> None:
        for name in self.partition_by:
            field = BY_NAME.get(name)
            if name != POSTED_DAY and (field is None or field.spark_type not in _PARTITION_TYPES):
                raise ConfigurationError(
                    f"partition by {name}: expected {POSTED_DAY}, or a column of type {' or '.join(_PARTITION_TYPES)}"
                )
            if name != POSTED_DAY and self.columns and name not in self.columns:
                raise ConfigurationError(f"partition by {name}: not one of the columns {', '.join(self.columns)}")
        if self.columns and not set(self.columns) - set(self.partition_by):
            raise ConfigurationError("partition by: expected at least one column that is not a partition's")

    @property
    def addresses(self) -> tuple[str, ...]:
        """The queues."""
        return (self.address,) if isinstance(self.address, str) else self.address

    @property
    def trigger_ms(self) -> int | None:
        """The interval of `trigger`, in milliseconds. Raises ConfigurationError where it is none."""
        if self.trigger is None:
            return None
        try:
            return _read_trigger(self.trigger.strip())
        except ValueError as error:
            raise ConfigurationError(f"trigger = {self.trigger!r}: expected {error}") from None

    @property
    def work_folder(self) -> Path:
        """Folder of the checkpoint, and of the spool unless that is named."""
        return self.work if self.work is not None else self.table / WORK_FOLDER

    def source_options(self) -> dict[str, str]:
        """Return the options in the form that the source takes."""
        queues = self.addresses
        found = {
            **self.access_options(),
            **({"address": queues[0]} if len(queues) == 1 else {"addresses": ",".join(queues)}),
            "spool": self.spool or str(self.work_folder / "spool"),
            "parts": str(self.parts),
            "create": str(self.create).lower(),
        }
        # The source takes names in any case, and each option once.
        names = {name.lower(): name for name in found}
        return found | {names.get(name.lower(), name): text for name, text in self.source.items()}


def columns_of(source: SourceOptions) -> list[str]:
    """Return the columns that the source has with these options."""
    return [*BY_NAME, *_decoded_columns(source)]


def _decoded_columns(source: SourceOptions) -> list[str]:
    decoded = body_ddl(source.body_as, source.body_schema)
    return [] if decoded is None else [decoded.partition(" ")[0]]


def with_columns_of(options: IngestOptions, found: Sequence[str]) -> IngestOptions:
    """`options` for a table that is there and has the columns `found`, beside those that are made for partitions. One
    that was made before the source had all of its columns goes on with those that it has."""
    if options.columns:
        return options
    decoded = _decoded_columns(SourceOptions.parse(options.source_options()))
    for columns in generations():
        if {*columns, *decoded} == {*found} - {POSTED_DAY}:
            return replace(options, columns=(*columns, *decoded))
    return options


__all__ = ["IngestOptions", "TableFormat", "columns_of", "with_columns_of"]
