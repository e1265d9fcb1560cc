"""A program of its own that uses a queue with a password in every way, and says all that Spark has to say of it.

    python -m tests.support.secret_program URL ADDRESS USER CREDENTIAL WRONG FOLDER CA CERT

It looks at the queue and writes what it sees into another (a batch and the sink), then reads it (the stream). All with
the reference CREDENTIAL, and the stream once more with WRONG, which must fail. Standard output has the extended plans
and the error, standard error the log of driver, executor and workers; FOLDER gets table, checkpoint, spool and event
log.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from acquit.spark.session import start_session
from acquit.spark.source import AcquitDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read(spark: SparkSession, root: Path, name: str, **options: str) -> None:
    frame = spark.readStream.format("acquit").options(spool=str(root / f"spool-{name}"), **options).load()
    frame.explain(extended=True)
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(root / f"table-{name}"))
        .option("checkpointLocation", str(root / f"checkpoint-{name}"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.explain(extended=True)
        sys.stdout.write(f"{query.exception()}\n{query.recentProgress}\n{spark.sparkContext.getConf().getAll()}\n")


def copy(spark: SparkSession, to: str, **options: str) -> None:
    """A batch, and the sink."""
    frame = spark.read.format("acquit").options(**options).load()
    frame.explain(extended=True)
    sink = frame.select("body").write.format("acquit").mode("append")
    sink.options(**{**options, "address": to, "runId": "copy"}).save()
    sys.stdout.write(f"copied: {frame.count()}\n")


def main(url: str, address: str, user: str, credential: str, wrong: str, folder: str, ca: str, cert: str) -> None:
    logging.basicConfig(level=logging.DEBUG)
    root = Path(folder)
    (root / "events").mkdir()
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (root / "events").as_uri(),
        "spark.eventLog.compress": "false",
    }
    spark = start_session(master="local[2]", memory_mb=512, log_level="INFO", settings=settings)
    spark.dataSource.register(AcquitDataSource)
    given = {"url": url, "address": address, "user": user, "connectTimeout": "5s", "ca": ca, "cert": cert}
    copy(spark, f"{address}.copy", credential=credential, **given)
    read(spark, root, "right", credential=credential, **given)
    try:
        read(spark, root, "wrong", credential=wrong, **given)
    except Exception as error:
        sys.stdout.write(f"refused: {error}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
