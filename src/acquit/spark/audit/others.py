"""The other side of a reconciliation: tables as their readers see them, and what producers wrote down.

A Delta table is read by its log, through delta-rs, so the session needs no jars; Parquet files of a Spark stream by the
list beside them. Of receipts, the outcome is read by its meaning: there is no standard for what a producer calls it.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Final, TextIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody who reads Spark programs knows it

from acquit.errors import ConfigurationError
from acquit.spark.parquet import Columns, literal_path, read_columns
from acquit.spark.tables import TableFile, TableKind, columns_of, open_delta, readable_files

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
KNOWN_BY: Final = ("sequence", "message_id")
"""Columns by which rows are known, if no other is named."""
_ODD: Final = (OSError, EOFError, ValueError, RecursionError, csv.Error, zlib.error, pa.ArrowException)
"""Errors of reading files that are not what their names say."""
_FOOTERS_MAX: Final = 100
_LINES_MAX: Final = 1_000
"""Lines that are read, at most, of receipts whose lines say themselves which columns they have."""


def check_receipts(place: Path) -> str:
    """Return the form of receipts: the key of `_SEEN`, or "" for the folder of a table. Needs no Spark. Raises
    ConfigurationError where they are not there, or in no such form; and as `readable_files`."""
    if place.is_dir():
        readable_files(place)
        return ""
    if not place.exists():
        raise ConfigurationError(f"receipts {place}: there is no such file")
    form = place.name.removesuffix(".gz").rpartition(".")[2].lower()
    if form not in _SEEN:
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


def refuse_alike(columns: Iterable[str], wanted: Iterable[str], place: Path) -> None:
    """Raise ConfigurationError for a column whose name differs from one that is wanted in upper and lower case alone:
    it would be passed over, and beside that one Spark could read neither."""
    names = list(columns)
    for name in wanted:
        alike = [other for other in names if other != name and other.lower() == name.lower()]
        if alike and name in names:
            raise ConfigurationError(f"{place} has columns {name} and {alike[0]}, which Spark does not tell apart")
        if alike:
            raise ConfigurationError(
                f"{place} has a column {alike[0]} and none {name}: say {alike[0]} where that is meant, or rename it"
            )


def _columns_of_table(table: Path) -> Sequence[str] | None:
    found = readable_files(table)
    if found.kind is TableKind.DELTA:
        return [field.name for field in open_delta(table).schema().fields]
    if not found.files:
        return KNOWN_BY
    if len(found.files) > _FOOTERS_MAX:
        return None
    names = [name for file in found.files for name in pq.read_schema(file.path).names]
    names += [name for file in found.files for name, _ in file.partition]
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


def read_table(
    spark: SparkSession, table: Path, known_by: Sequence[str], also: Sequence[str], exact: Sequence[str] = ()
) -> DataFrame:
    """The rows that readers of the table see, with those of the columns `known_by` and `also` that it has; all columns,
    and no row, where it has none of the former. Raises as `readable_files` and `columns_of`, and as `refuse_alike` for
    the columns `exact`.

    Files that have them in other types are read apart, and what is not the same in all becomes text; the value of a
    partition, which is in the log or in the name of a folder, is text."""
    found = readable_files(table)
    if not found.files:
        return _empty(spark, table, found.kind)
    return _read_files(spark, found.files, table, known_by, also, exact)


def _read_files(
    spark: SparkSession,
    files: Iterable[TableFile],
    table: Path,
    known_by: Sequence[str],
    also: Sequence[str],
    exact: Sequence[str],
) -> DataFrame:
    wanted = list(dict.fromkeys((*known_by, *also)))
    names: dict[str, None] = {}
    alike: dict[tuple[Columns, tuple[tuple[str, str | None], ...]], list[str]] = {}
    for file in files:
        schema = columns_of(file, table)
        partition = dict(file.partition)
        names |= dict.fromkeys((*schema.names, *partition))
        values = tuple((name, _text(partition[name])) for name in wanted if name in partition)
        inside = [name for name in wanted if name in schema.names and name not in partition]
        columns = tuple((name, schema.field(name).type) for name in inside)
        alike.setdefault((columns, values), []).append(str(file.path))
    refuse_alike(names, exact, table)
    if names.keys().isdisjoint(known_by):
        return spark.createDataFrame([], _texts(names))
    types = {name: {dict(columns).get(name, pa.string()) for columns, _ in alike} for name in wanted if name in names}
    parts = []
    for (columns, values), paths in alike.items():
        said = dict(values)
        # Of a file that has not one of the columns there are the rows all the same.
        rows = read_columns(spark, columns or ((wanted[0], pa.string()),), paths)
        selected = []
        for name, kinds in types.items():
            there = name in dict(columns)
            column = named(name) if there else F.lit(said.get(name))
            selected.append((column if there and len(kinds) == 1 else column.cast("string")).alias(name))
        parts.append(rows.select(*selected))
    return reduce(DataFrame.union, parts)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _texts(names: Iterable[str]) -> str:
    return ", ".join(f"`{name.replace('`', '``')}` string" for name in names)


def _empty(spark: SparkSession, table: Path, kind: TableKind) -> DataFrame:
    """A table without a row yet. Only the log of Delta says which columns it would have; another has those by which
    rows are known."""
    if kind is TableKind.DELTA:
        return spark.createDataFrame([], _texts(field.name for field in open_delta(table).schema().fields))
    return spark.createDataFrame([], _texts(KNOWN_BY))


def read_receipts(
    spark: SparkSession,
    place: Path,
    outcome: str,
    known_by: Sequence[str] = KNOWN_BY,
    also: Sequence[str] = (),
) -> DataFrame:
    """The rows of receipts, with a column `STATE_COLUMN` that says how the send ended (`ReceiptState`), by the column
    `outcome`; where there is none, all were accepted. Of a table there are the columns that `read_table` has. Raises as
    `check_receipts` and `read_table`, and as `refuse_alike` for the outcome."""
    form = check_receipts(place)
    also = (*also, outcome)
    if not form:
        rows = read_table(spark, place, known_by, also, [outcome])
    elif form == "parquet":
        files = [TableFile(place, place.stat().st_size)]
        rows = _read_files(spark, files, place, known_by, also, [outcome])
    else:
        rows = _TEXTS[form](spark.read, literal_path(str(place)))
        refuse_alike(rows.columns, [outcome], place)
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


_TEXTS: Final[Mapping[str, Callable[[DataFrameReader, str], DataFrame]]] = {
    # As RFC 4180 and Python's csv module have it: quotes are doubled, and line breaks may be in them.
    "csv": lambda read, path: read.options(header=True, escape='"', multiLine=True).csv(path),
    "json": DataFrameReader.json,
    "jsonl": DataFrameReader.json,
    "ndjson": DataFrameReader.json,
}
"""End of the name of a file with texts (but for ``.gz``): how it is read."""
_SEEN: Final[Mapping[str, Callable[[Path], Sequence[str] | None]]] = {
    "csv": _columns_of_csv,
    "json": _columns_of_json,
    "jsonl": _columns_of_json,
    "ndjson": _columns_of_json,
    "parquet": lambda path: pq.read_schema(path).names,
}
"""End of a file's name: how its columns are found."""
