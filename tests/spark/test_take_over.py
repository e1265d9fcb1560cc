"""A checkpoint that is lost while the spool is not: refused with what to do, and taken over as a person decides."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import acquit
from acquit.protocol.message import Message
from acquit.spark.session import reason_of
from acquit.spark.source import AcquitDataSource
from acquit.spark.spool import FolderStore
from acquit.spark.spool.repair import RepairOptions, TakeOver, repair

pytestmark = pytest.mark.promise("one-spool")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Query:
    """Into a Parquet folder, started again and again."""

    def __init__(self, spark: SparkSession, url: str, address: str, root: Path) -> None:
        spark.dataSource.register(AcquitDataSource)
        self.spark, self.url, self.address, self.root = spark, url, address, root

    def post(self, *numbers: int) -> None:
        with acquit.connect(self.url) as connection, connection.session() as session:
            sender = session.sender(self.address)
            for number in numbers:
                sender.send(Message(f"m{number}"), wait=False)
            sender.flush()

    def run(self, table: str) -> None:
        stream = self.spark.readStream.format("acquit").options(
            url=self.url, address=self.address, spool=str(self.root / "spool"), parts="1", maxMessagesPerBatch="2"
        )
        writer = stream.load().select("body").writeStream.format("parquet").trigger(availableNow=True)
        folders = {"path": str(self.root / table), "checkpointLocation": str(self.root / "checkpoint")}
        query = writer.options(**folders).start()
        query.awaitTermination()

    def bodies(self, table: str) -> list[str]:
        rows = self.spark.read.parquet(str(self.root / table)).collect()
        return sorted(bytes(row.body).decode() for row in rows)


def test_a_lost_checkpoint_is_refused_until_somebody_says_what_the_table_has(
    spark: SparkSession, broker: acquit.Broker, address: str, tmp_path: Path
) -> None:
    query = Query(spark, broker.url, address, tmp_path)
    query.post(*range(4))
    query.run("first")
    shutil.rmtree(tmp_path / "checkpoint")
    query.post(4)
    with pytest.raises(Exception, match="checkpoint is new") as caught:
        query.run("second")
    told = reason_of(caught.value)
    assert "acquit spool repair --take-over" in told and "\n" not in told

    repair(FolderStore(tmp_path / "spool"), RepairOptions(take_over=TakeOver.REPLAY))
    query.run("second")
    assert query.bodies("first") == ["m0", "m1", "m2", "m3"]
    assert query.bodies("second") == ["m2", "m3", "m4"], "the last epoch again, and what came since"

    query.post(5)
    query.run("second")  # a restart of the query that took it over
    assert query.bodies("second") == ["m2", "m3", "m4", "m5"]
