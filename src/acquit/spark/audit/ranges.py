"""The two sides of a reconciliation, summed up by ranges of identities: a million sequences, or one of 4,096 prefixes
of the hash of the message id. Where the sums agree no row is looked at.

A side is rows with a *scope* (the broker, or "" where identities are not of one) and a *key* (the identity).
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812  # as everybody who reads Spark programs knows it

SEQUENCE: Final = "sequence"
MESSAGE_ID: Final = "message_id"
RANGE_BITS: Final = 20
"""Sequences in a range."""
PREFIX_BITS: Final = 12
"""Bits of the hash of a message id that name its range."""
_LOW: Final = (1 << 32) - 1


def range_of(by: str) -> Column:
    """Return the range of a row's key; null where it has none."""
    if by == SEQUENCE:
        return F.shiftright("key", RANGE_BITS)
    return F.when(F.col("key").isNotNull(), F.shiftrightunsigned(F.xxhash64("key"), 64 - PREFIX_BITS))


def marked(rows: DataFrame, by: str, counts: Column) -> DataFrame:
    """Sum up each range: how many rows count, the two halves of the sum of their hashes, and how many do not count.

    Halves, because a sum of whole hashes leaves 64 bits, which Spark takes for an error."""
    digest = F.xxhash64("key")
    marks = rows.select("scope", range_of(by).alias("range"), digest.alias("digest"), counts.alias("counts"))
    one = F.when(F.col("counts"), 1).otherwise(0)
    return marks.groupBy("scope", "range").agg(
        F.sum(one).alias("rows"),
        F.sum(F.when(F.col("counts"), F.col("digest").bitwiseAND(F.lit(_LOW))).otherwise(0)).alias("low"),
        F.sum(F.when(F.col("counts"), F.shiftrightunsigned("digest", 32)).otherwise(0)).alias("high"),
        F.sum(1 - one).alias("beside"),
    )


def compared(ledger: DataFrame, other: DataFrame) -> DataFrame:
    """Both sides of each range. One differs where the sums do, or where the other side has rows that do not count
    there: receipts of sends that were refused, or are in doubt."""
    left = ledger.select("scope", "range", *(F.col(name).alias(f"l_{name}") for name in ("rows", "low", "high")))
    right = other.select(
        "scope", "range", *(F.col(name).alias(f"o_{name}") for name in ("rows", "low", "high", "beside"))
    )
    both = left.join(right, ["scope", "range"], "full").na.fill(0, ["l_rows", "o_rows", "o_beside"])
    same = reduce(
        lambda a, b: a & b,
        (F.coalesce(f"l_{name}", F.lit(0)) == F.coalesce(f"o_{name}", F.lit(0)) for name in ("rows", "low", "high")),
    )
    return both.select(
        "scope",
        "range",
        F.col("l_rows").alias("ledger_rows"),
        (F.col("o_rows") + F.col("o_beside")).alias("all_rows"),
        F.col("o_rows").alias("other_rows"),
        (F.col("range").isNotNull() & (~same | (F.col("o_beside") > 0))).alias("differs"),
    )


def totals_of(sums: DataFrame) -> Row:
    """Return how many `ranges` there are, how many are `differing`; rows that count in the `ledger` and on the `other`
    side, and those without an identity (`nameless`)."""
    return sums.agg(
        F.count("range").alias("ranges"),
        F.count_if("differs").alias("differing"),
        F.coalesce(F.sum("ledger_rows"), F.lit(0)).alias("ledger"),
        F.coalesce(F.sum("other_rows"), F.lit(0)).alias("other"),
        F.coalesce(F.sum(F.when(F.col("range").isNull(), F.col("all_rows"))), F.lit(0)).alias("nameless"),
    ).collect()[0]


def within(rows: DataFrame, ranges: DataFrame, by: str) -> DataFrame:
    """Return those of `rows` that are in one of `ranges`."""
    return rows.withColumn("range", range_of(by)).join(ranges, ["scope", "range"], "left_semi").drop("range")
