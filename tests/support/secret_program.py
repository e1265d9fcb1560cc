"""A program of its own that uses a queue with a password in every way, and says all that Spark has to say of it.

    python -m tests.support.secret_program URL ADDRESS USER CREDENTIAL WRONG FOLDER CA CERT

It looks at the queue and writes what it sees into another (a batch and the sink), has a task fail that reads it, takes
what it wrote into a table and what is left somewhere else (ingest and redrive), and reads the queue (the stream). All
with the reference CREDENTIAL; ingest, redrive and the stream once more with WRONG, which must fail. Standard output has
the extended plans and the errors, standard error the log of driver, executor and workers; FOLDER gets tables,
checkpoint, spool and event log.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.functions import col, raise_error

from acquit.spark.ingest import ingest
from acquit.spark.ingest_options import IngestOptions, TableFormat
from acquit.spark.redrive import RedriveOptions, redrive
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
    sink.options(**{**options, "address": to, "runId": to}).save()
    sys.stdout.write(f"copied: {frame.count()}\n")


def fail(spark: SparkSession, **options: str) -> None:
    """A task that has opened its connection."""
    frame = spark.read.format("acquit").options(**options).load()
    refused(lambda: frame.select(raise_error(col("body").cast("string"))).collect())


def refused(attempt: Callable[[], object]) -> None:
    try:
        attempt()
    except Exception as error:
        sys.stdout.write(f"refused: {error!r}\n{traceback.format_exc()}\n")
    else:
        raise AssertionError("it was let in")


def move(spark: SparkSession, root: Path, address: str, access: dict[str, str], credentials: tuple[str, str]) -> None:
    """Pipelines: one into a table, one from queue to queue."""
    right, wrong = credentials
    reached = {
        name: Path(access[name]) if name in ("ca", "cert") else access[name] for name in ("url", "user", "ca", "cert")
    }
    for given in (wrong, right):
        reached["credential"] = given
        into = IngestOptions(
            address=f"{address}.copy", table=root / "table-ingest", format=TableFormat.PARQUET, **reached
        )  # type: ignore[arg-type]
        back = RedriveOptions(queue=f"{address}.dead", to=f"{address}.again", **reached)  # type: ignore[arg-type]
        for pipeline in (lambda into=into: ingest(into, spark=spark), lambda back=back: redrive(back, spark=spark)):
            if given == wrong:
                refused(pipeline)
            else:
                sys.stdout.write(f"done: {pipeline()!r}\n")


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
    copy(spark, f"{address}.dead", credential=credential, **given)
    fail(spark, credential=credential, **given)
    move(spark, root, address, given, (credential, wrong))
    read(spark, root, "right", credential=credential, **given)
    refused(lambda: read(spark, root, "wrong", credential=wrong, **given))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
