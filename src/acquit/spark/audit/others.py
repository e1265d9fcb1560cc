"""The other side of a reconciliation: tables as their readers see them, and what producers wrote down.

A Delta table is read by its log, through delta-rs, so the session needs no jars; Parquet files of a Spark stream by the
list beside them. Of receipts, the outcome is read by its meaning: there is no standard for what a producer calls it.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody who reads Spark programs knows it

from acquit.errors import ConfigurationError
from acquit.spark.tables import TableKind, readable_files

STATE_COLUMN: Final = "receipt_state"
"""The column that `read_receipts` adds."""


class ReceiptState(StrEnum):
    """How a send ended, for its producer."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    IN_DOUBT = "in_doubt"

    @property
    def words(self) -> str:
        """For people."""
        return self.value.replace("_", " ")


ACCEPTED_WORDS: Final = ("accepted", "applied", "answered", "ok", "success", "true", "delivered", "acknowledged")
IN_DOUBT_WORDS: Final = ("indoubt", "deliveryindoubt", "unknown", "timeout", "sent", "")
"""Of an outcome, its letters in lower case. What is in neither list was refused."""


def read_table(spark: SparkSession, table: Path) -> DataFrame:
    """The rows that readers of the table see. Raises ConfigurationError where it is no table, or one whose files do not
    hold its rows as they are."""
    found = readable_files(table)
    if not found.files:
        raise ConfigurationError(f"table {table} has no rows yet")
    if found.kind is TableKind.STREAM:
        return spark.read.parquet(str(table))
    paths = [str(file.path) for file in found.files]
    return spark.read.option("basePath", str(table)).option("mergeSchema", "true").parquet(*paths)


def read_receipts(spark: SparkSession, place: Path, outcome: str) -> DataFrame:
    """The rows of receipts, with a column `STATE_COLUMN` that says how the send ended (`ReceiptState`), by the column
    `outcome`; where there is none, all were accepted. Raises ConfigurationError."""
    rows = _rows(spark, place)
    if outcome not in rows.columns:
        return rows.withColumn(STATE_COLUMN, F.lit(ReceiptState.ACCEPTED.value))
    letters = F.regexp_replace(F.lower(F.coalesce(F.col(outcome).cast("string"), F.lit(""))), "[^a-z]", "")
    state = (
        F.when(letters.isin(*ACCEPTED_WORDS), ReceiptState.ACCEPTED.value)
        .when(letters.isin(*IN_DOUBT_WORDS), ReceiptState.IN_DOUBT.value)
        .otherwise(ReceiptState.REFUSED.value)
    )
    return rows.withColumn(STATE_COLUMN, state)


def _rows(spark: SparkSession, place: Path) -> DataFrame:
    if place.is_dir():
        return read_table(spark, place)
    if not place.exists():
        raise ConfigurationError(f"receipts {place}: there is no such file")
    kind = place.name.removesuffix(".gz").rpartition(".")[2].lower()
    match kind:
        case "csv":
            return spark.read.option("header", "true").csv(str(place))
        case "json" | "jsonl" | "ndjson":
            return spark.read.json(str(place))
        case "parquet":
            return spark.read.parquet(str(place))
        case _:
            raise ConfigurationError(
                f"receipts {place}: expected .csv, .json, .jsonl or .parquet, or the folder of a table"
            )
