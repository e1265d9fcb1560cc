"""Parquet files as Spark reads them: those that are named, and some of their columns, whatever the others are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

Columns: TypeAlias = tuple[tuple[str, pa.DataType], ...]
"""Columns of a file, and their types."""

_PATTERN: Final = re.compile(r"[][{}*?\\]")
"""Characters of a path that Spark takes for a pattern."""


def read_columns(session: SparkSession, columns: Columns, paths: Iterable[str]) -> DataFrame:
    """Return these columns of files that have them in these types; null where a file has not. Spark is told the types:
    by itself it would look at all columns, and fail over one that it cannot read."""
    fields = [(name, kind.value_type if pa.types.is_dictionary(kind) else kind) for name, kind in columns]
    literal = map(literal_path, paths)
    try:
        schema = from_arrow_schema(pa.schema(fields))
    except PySparkException:  # a type that Spark has not, and takes for another one
        return session.read.parquet(*literal).select(*(f"`{name.replace('`', '``')}`" for name, _ in columns))
    return session.read.schema(schema).parquet(*literal)


def literal_path(path: str) -> str:
    """Return a path that Spark is to read as it stands, brackets and all."""
    return _PATTERN.sub(r"\\\g<0>", path)


__all__ = ["Columns", "literal_path", "read_columns"]
