"""The other side of a reconciliation: tables as their readers see them, and what producers wrote down.

A Delta table is read by its log, through delta-rs, so the session needs no jars; Parquet files of a Spark stream by the
list beside them. Of receipts, the outcome is read by its meaning: there is no standard for what a producer calls it.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final, TextIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody who reads Spark programs knows it

from acquit.errors import ConfigurationError
from acquit.spark.tables import TableKind, open_delta, readable_files

STATE_COLUMN: Final = "receipt_state"
"""The column that `read_receipts` adds."""


class ReceiptState(StrEnum):
    """Result of a send, for its producer."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    IN_DOUBT = "in_doubt"

    @property
    def words(self) -> str:
        """Name of the state, for people."""
        return self.value.replace("_", " ")


ACCEPTED_WORDS: Final = ("accepted", "applied", "answered", "ok", "success", "true", "delivered", "acknowledged")
IN_DOUBT_WORDS: Final = ("indoubt", "deliveryindoubt", "unknown", "timeout", "sent", "")
"""Letters of an outcome, in lower case. What is in neither list was refused."""
_KNOWN_BY: Final = ("sequence", "message_id")
_ODD: Final = (OSError, EOFError, ValueError, RecursionError, csv.Error, zlib.error, pa.ArrowException)
"""Errors of reading files that are not what their names say."""
_FOOTERS_MAX: Final = 100
_LINES_MAX: Final = 1_000
"""Lines that are read, at most, of receipts whose lines say themselves which columns they have."""


def check_receipts(place: Path) -> str:
    """Return the form of receipts: the key of `_FORMS`, or "" for the folder of a table. Needs no Spark. Raises
    ConfigurationError where they are not there, or in no such form; and as `readable_files`."""
    if place.is_dir():
        readable_files(place)
        return ""
    if not place.exists():
        raise ConfigurationError(f"receipts {place}: there is no such file")
    form = place.name.removesuffix(".gz").rpartition(".")[2].lower()
    if form not in _FORMS:
        raise ConfigurationError(
            f"receipts {place}: expected .csv, .json, .jsonl or .parquet, or the folder of a table"
        )
    return form


def columns_beforehand(place: Path, *, receipts: bool) -> Sequence[str] | None:
    """The columns that Spark will find in a table, or in `receipts`; None where only reading much of them would tell.

    Needs no Spark. Raises as `check_receipts` and `readable_files`.
    """
    form = check_receipts(place) if receipts else ""
    try:
        return _SEEN[form](place) if form else _columns_of_table(place)
    except ConfigurationError:
        raise
    except _ODD:  # Spark says what is wrong with it, if it is
        return None


def _columns_of_table(table: Path) -> Sequence[str] | None:
    found = readable_files(table)
    if found.kind is TableKind.DELTA:
        return [field.name for field in open_delta(table).schema().fields]
    if not found.files:
        return _KNOWN_BY
    if len(found.files) > _FOOTERS_MAX:
        return None
    names = [name for file in found.files for name in pq.read_schema(file.path).names]
    folders = [part for file in found.files for part in file.path.relative_to(table).parts[:-1]]
    names += [name for name, equals, _ in (part.partition("=") for part in folders) if equals]
    return list(dict.fromkeys(names))


def _columns_of_csv(place: Path) -> Sequence[str]:
    with _opened(place) as lines:
        return next(filter(None, csv.reader(lines)), [])


def _columns_of_json(place: Path) -> Sequence[str] | None:
    names: dict[str, None] = {}
    with _opened(place) as lines:
        for line in islice(lines, _LINES_MAX):
            row = json.loads(line) if line.strip() else {}
            if not isinstance(row, dict):
                return None
            names |= dict.fromkeys(row)
        return list(names) if next(lines, None) is None else None


@contextmanager
def _opened(place: Path) -> Iterator[TextIO]:
    with (gzip.open if place.name.lower().endswith(".gz") else open)(
        place, "rt", encoding="utf-8-sig", newline=""
    ) as lines:
        yield lines


def read_table(spark: SparkSession, table: Path) -> DataFrame:
    """The rows that readers of the table see. Raises as `readable_files`."""
    found = readable_files(table)
    if not found.files:
        return _empty(spark, table, found.kind)
    if found.kind is TableKind.STREAM:
        return spark.read.parquet(str(table))
    paths = [str(file.path) for file in found.files]
    return spark.read.option("basePath", str(table)).option("mergeSchema", "true").parquet(*paths)


def _empty(spark: SparkSession, table: Path, kind: TableKind) -> DataFrame:
    """A table without a row yet. Only the log of Delta says which columns it would have; another has those by which
    rows are known."""
    if kind is TableKind.DELTA:
        columns = [(field.name, "string") for field in open_delta(table).schema().fields]
    else:
        columns = [(name, "string") for name in _KNOWN_BY]
    return spark.createDataFrame([], ", ".join(f"`{name}` {type_}" for name, type_ in columns))


def read_receipts(spark: SparkSession, place: Path, outcome: str) -> DataFrame:
    """The rows of receipts, with a column `STATE_COLUMN` that says how the send ended (`ReceiptState`), by the column
    `outcome`; where there is none, all were accepted. Raises as `check_receipts`."""
    rows = _rows(spark, place)
    if outcome not in rows.columns:
        return rows.withColumn(STATE_COLUMN, F.lit(ReceiptState.ACCEPTED.value))
    letters = F.regexp_replace(F.lower(F.coalesce(named(outcome).cast("string"), F.lit(""))), "[^a-z]", "")
    state = (
        F.when(letters.isin(*ACCEPTED_WORDS), ReceiptState.ACCEPTED.value)
        .when(letters.isin(*IN_DOUBT_WORDS), ReceiptState.IN_DOUBT.value)
        .otherwise(ReceiptState.REFUSED.value)
    )
    return rows.withColumn(STATE_COLUMN, state)


def named(column: str) -> Column:
    """The column of that name, dots and all."""
    return F.col("`" + column.replace("`", "``") + "`")


def _rows(spark: SparkSession, place: Path) -> DataFrame:
    form = check_receipts(place)
    return _FORMS[form](spark.read, str(place)) if form else read_table(spark, place)


_FORMS: Final[Mapping[str, Callable[[DataFrameReader, str], DataFrame]]] = {
    # As RFC 4180 and Python's csv module have it: quotes are doubled, and line breaks may be in them.
    "csv": lambda read, path: read.options(header=True, escape='"', multiLine=True).csv(path),
    "json": DataFrameReader.json,
    "jsonl": DataFrameReader.json,
    "ndjson": DataFrameReader.json,
    "parquet": lambda read, path: read.parquet(path),
}
"""End of a file's name (but for ``.gz``): how the file is read."""
_SEEN: Final[Mapping[str, Callable[[Path], Sequence[str] | None]]] = {
    "csv": _columns_of_csv,
    "json": _columns_of_json,
    "jsonl": _columns_of_json,
    "ndjson": _columns_of_json,
    "parquet": lambda path: pq.read_schema(path).names,
}
"""End of a file's name: how its columns are found."""
