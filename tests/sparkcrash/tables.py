"""What is in a table, by Spark and by readers that are not Spark, and what became of each message.

A message is `content(number)` under the id `identity(number)`: so each row says which one it is, and whether it still
is that one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows: TypeAlias = list[tuple[str, bytes]]
"""The message-id and the body of each."""


def identity(number: int) -> str:
    return f"id-{number}"


def content(number: int) -> str:
    return f"{number} {sha256(str(number).encode()).hexdigest() * 4}"


@dataclass(frozen=True)
class Account:
    """By identity, and by content."""

    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    strangers: tuple[str, ...]
    altered: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return self == Account((), (), (), ())


def account(table: Path, posted: Iterable[int]) -> Account:
    """Of all these messages, what is wrong in the table."""
    return judge(rows_of(table), posted)


def judge(rows: Rows, posted: Iterable[int]) -> Account:
    """Of all these messages, what is wrong in these rows."""
    found = Counter(name for name, _ in rows)
    wanted = {identity(number): content(number).encode() for number in posted}
    return Account(
        lost=tuple(sorted(wanted.keys() - found.keys())),
        doubled=tuple(sorted(name for name, count in found.items() if count > 1)),
        strangers=tuple(sorted(found.keys() - wanted.keys())),
        altered=tuple(sorted({name for name, body in rows if name in wanted and body != wanted[name]})),
    )


def rows_of(table: Path) -> Rows:
    """By readers that are not Spark."""
    if _is_delta(table):
        return _delta_rows(table)
    return _read(_files_of_the_sink(table))


def rows_by_spark(spark: SparkSession, table: Path) -> Rows:
    """By Spark, which needs a jar of Delta's to know which files are the table's: so it is told those of the log."""
    files = _files_of_the_log(table, DeltaTable(table).version()) if _is_delta(table) else {table}
    rows = spark.read.parquet(*map(str, files)).select("message_id", "body").collect()
    return [(name, bytes(body)) for name, body in rows]


def _is_delta(table: Path) -> bool:
    return any((table / "_delta_log").glob("*.json"))


def _delta_rows(table: Path) -> Rows:
    """By pyarrow, from the files that the table's log names; and counted by DataFusion, which has its own reader."""
    opened = DeltaTable(table)
    files = _files_of_the_log(table, opened.version())
    rows = _read(files)
    if files:  # else there is nothing to ask
        count = "select count(*) as n, count(distinct message_id) as m from t"
        said = pa.table(QueryBuilder().register("t", opened).execute(count).read_all()).to_pylist()
        assert said == [{"n": len(rows), "m": len({name for name, _ in rows})}]
    return rows


def _files_of_the_log(table: Path, version: int) -> set[Path]:
    """The Delta protocol, as far as a table needs it that is only appended to: what was added and not removed."""
    found: set[Path] = set()
    for number in range(version + 1):
        for line in (table / "_delta_log" / f"{number:020d}.json").read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                found.add(table / action["add"]["path"])
            if "remove" in action:
                found.discard(table / action["remove"]["path"])
    return found


def _files_of_the_sink(table: Path) -> set[Path]:
    """What a reader sees that honours the list that Spark keeps beside its Parquet files."""
    log = table / "_spark_metadata"
    return {
        Path(json.loads(line)["path"].removeprefix("file://"))
        for entry in (log.iterdir() if log.exists() else ())
        if not entry.name.startswith(".")
        for line in entry.read_text().splitlines()[1:]
    }


def _read(files: Iterable[Path]) -> Rows:
    rows: Rows = []
    for file in sorted(files):
        read = pq.ParquetFile(file).read(["message_id", "body"])
        rows += zip(read["message_id"].to_pylist(), read["body"].to_pylist(), strict=True)
    return rows
