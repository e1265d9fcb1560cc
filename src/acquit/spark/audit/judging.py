"""Judgement of each message in ranges that differ: what the ledger has of it, in this queue and elsewhere, beside what
the other side has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody who reads Spark programs knows it

from acquit.ledger.events import RETIRING
from acquit.spark.audit.log import BrokerState
from acquit.spark.audit.others import ReceiptState
from acquit.spark.audit.ranges import SEQUENCE
from acquit.spark.audit.reconciled import Against, Finding

FATES: Final = ("live", *(kind.name.lower() for kind in sorted(RETIRING)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Judge of messages that may differ, with what that depends on beside the rows."""

    against: Against
    by: str
    complete: bool
    """True if the receipts are of all who post to the queue."""
    brokers: Sequence[BrokerState]
    """States of the brokers: how far the audit has come with each."""
    ids_known: bool = True
    """The identities of all messages that may be on the other side are, so what the ledger has not was not posted."""

    def judged(self, ledger: DataFrame, other: DataFrame) -> DataFrame:
        """A row for each message about which something is to be said."""
        flags = ("counted", "due", "otherwise", "live", "elsewhere")
        said = ledger.groupBy("scope", "key").agg(
            *(F.count_if(flag).alias(flag) for flag in flags),
            F.bit_or("here").alias("here"),
            F.bit_or("there").alias("there"),
            F.sum("suppressed").alias("suppressed"),
        )
        held = other.groupBy("scope", "key").agg(
            *(F.count_if(F.col("state") == state.value).alias(state.value) for state in ReceiptState),
            F.count("*").alias("rows"),
        )
        joined = said.join(held, ["scope", "key"], "full")
        joined = joined.na.fill(
            0, [*flags, "here", "there", "suppressed", *(state.value for state in ReceiptState), "rows"]
        )
        times = F.concat(F.lit(" × "), F.col("counted").cast("string"))
        return (
            joined.withColumn("finding", self._finding())
            .where(F.col("finding").isNotNull())
            .select(
                "finding",
                F.when(F.col("scope") != "", F.col("scope")).alias("broker"),
                F.col("key").cast("string").alias("identity"),
                F.concat(_fates(), F.when(F.col("counted") > 1, times).otherwise("")).alias("ledger"),
                self._held().alias("other"),
            )
        )

    def _finding(self) -> Column:
        if self.against is Against.TABLE:
            return self._of_table()
        counted, rows = F.col("counted"), F.col("rows")
        accepted, in_doubt = F.col(ReceiptState.ACCEPTED.value), F.col(ReceiptState.IN_DOUBT.value)
        unknown = F.when(F.col("due") > 0, Finding.UNKNOWN_TO_PRODUCER.value) if self.complete else F.lit(None)
        return (
            F.when((counted > 0) & (rows == 0), unknown)
            .when((counted > 0) & (accepted + in_doubt == 0), Finding.POSTED_THOUGH_REFUSED.value)
            .when((counted > 0) & (counted > accepted + in_doubt), Finding.POSTED_TWICE.value)
            .when((counted > 0) & (accepted > counted + F.col("suppressed")), Finding.ACCEPTED_TWICE.value)
            .when((counted > 0) & (accepted == 0), Finding.IN_DOUBT_POSTED.value)
            .when((counted == 0) & (accepted > 0), self._if_known(Finding.NEVER_POSTED))
            .when((counted == 0) & (in_doubt > 0), self._if_known(Finding.IN_DOUBT_NOT_POSTED))
        )

    def _of_table(self) -> Column:
        counted, rows = F.col("counted"), F.col("rows")
        foreign = F.when(F.col("otherwise") > 0, Finding.NOT_ACCEPTED.value)
        foreign = foreign.when(F.col("live") > 0, Finding.STILL_LIVE.value)
        foreign = foreign.when(F.col("elsewhere") > 0, Finding.OTHER_QUEUE.value)
        if self.by == SEQUENCE:
            states = {broker.store: broker for broker in self.brokers}
            newest = _of_scope({name: state.entered_max for name, state in states.items()})
            oldest = _of_scope({name: state.below for name, state in states.items()})
            foreign = foreign.when(F.col("key") > newest, Finding.LATER.value)
            foreign = foreign.when(F.col("key") < oldest, Finding.EARLIER.value)
        return (
            F.when((counted > 0) & (rows > counted), Finding.DOUBLED.value)
            .when((F.col("due") > 0) & (rows < counted), Finding.MISSING.value)
            .when((counted == 0) & (rows > 0), foreign.otherwise(self._if_known(Finding.UNKNOWN)))
        )

    def _if_known(self, finding: Finding) -> str:
        return (finding if self.ids_known else Finding.UNMATCHED).value

    def _held(self) -> Column:
        """Return what the other side has of a message, in words."""
        if self.against is Against.TABLE:
            return F.when(F.col("rows") > 0, F.concat(F.col("rows").cast("string"), F.lit("×"))).otherwise("")
        parts = [
            F.when(
                F.col(state.value) > 0,
                F.concat(F.lit(f"{state.words} "), F.col(state.value).cast("string"), F.lit("×")),
            )
            for state in ReceiptState
        ]
        return F.concat_ws(", ", *parts)


def fate() -> Column:
    """Return what became of a message, as a bit of its own: sums of these are quick, sets of words are not."""
    bit = F.when(F.col("outcome").isNull(), 1)
    for place, fate in enumerate(FATES[1:], 1):
        bit = bit.when(F.col("outcome") == fate.upper(), 1 << place)
    return bit.otherwise(0)


def _fates() -> Column:
    """Return in words what became of a message, here and elsewhere."""
    return F.concat_ws(
        ", ",
        *(
            F.when(F.col(column).bitwiseAND(F.lit(1 << place)) != 0, f"{fate.replace('_', ' ')}{suffix}")
            for column, suffix in (("here", ""), ("there", " elsewhere"))
            for place, fate in enumerate(FATES)
        ),
    )


def _of_scope(values: Mapping[str, int]) -> Column:
    """The value of a row's broker; null where it has none."""
    pairs = [F.lit(item) for pair in values.items() for item in pair]
    return F.create_map(*pairs)[F.col("scope")]
