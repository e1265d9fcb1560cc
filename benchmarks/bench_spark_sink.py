"""How fast rows become messages.

    python benchmarks/bench_spark_sink.py [--short] [--rows N] [--size BYTES] [--cores N] [--master local[2]]

The broker runs in a process of its own (`acquit serve`), with durable messages, and everything runs on `--cores` cores
of this machine, 2 unless that is said. A small write runs first, so that the start of the session and of the first
query are not in the figures.

*batch* is ``df.write`` with a run id, each row posted once by the sender's mark; *stream* the same rows from Parquet
files in a few batches, the start of the query included; *again* is the batch written once more, all of whose rows are
told by the mark; *at least once* leaves the mark out. *task* is a task's own loop over the same rows, without Spark.
Exits with 1 when *batch* is below `--floor` messages a second (30,000; 0 with --short: nothing is claimed of it).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from acquit.spark.session import start_session
from acquit.spark.sink.options import SinkOptions
from acquit.spark.sink.poster import Origin
from acquit.spark.sink.writers import write_rows
from acquit.spark.source import AcquitDataSource
from spark_support import broker

FLOOR = 30_000


def timed(rows: int, what: Callable[[], object]) -> float:
    """Rows a second."""
    began_s = time.perf_counter()
    what()
    return rows / (time.perf_counter() - began_s)


def one_task(url: str, rows: int, size: int) -> float:
    """Rows a second of one task, without Spark."""
    body = os.urandom(size)
    batch = pa.RecordBatch.from_pydict({"body": [body] * 10_000})
    options = SinkOptions.parse({"url": url, "address": "task"})
    batches = (batch for _ in range(rows // 10_000))
    return timed(rows, lambda: write_rows(options, Origin("task", 0, 0), batches))


def main() -> int:
    """Run it and print a line for each way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="30,000 rows")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=1_024, help="bytes of a body")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--floor", type=int, default=FLOOR)
    given = parser.parse_args()
    rows, floor = (30_000, 0) if given.short else (given.rows, given.floor)

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    session = start_session(master=given.master)
    session.dataSource.register(AcquitDataSource)
    with tempfile.TemporaryDirectory() as name, broker(Path(name) / "broker") as (url, _):

        def table(count: int) -> DataFrame:
            path = f"{name}/rows-{count}"
            if not Path(path).exists():
                body = f"CAST(LPAD(CAST(id AS STRING), {given.size}, 'x') AS BINARY) AS body"
                session.range(0, count, 1, 2).selectExpr(body).write.parquet(path)
            return session.read.parquet(path)

        def write(count: int, **options: str) -> None:
            table(count).write.format("acquit").mode("append").options(url=url, address="batch", **options).save()

        def stream(count: int) -> None:
            table(count)
            query = (
                session.readStream.schema("body BINARY")
                .option("maxFilesPerTrigger", "1")
                .parquet(f"{name}/rows-{count}")
                .writeStream.format("acquit")
                .options(url=url, address="stream", checkpointLocation=f"{name}/checkpoint-{count}")
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()

        write(1_000, runId="warm-up")
        table(rows)
        figures: dict[str, float] = {}

        def measure(what: str, figure: float) -> None:
            figures[what] = figure
            print(f"{what:14} {figure:9,.0f} rows/s of {given.size} bytes on {given.cores} cores", flush=True)

        measure("task", one_task(url, rows, given.size))
        measure("batch", timed(rows, lambda: write(rows, runId="first")))
        measure("again", timed(rows, lambda: write(rows, runId="first")))
        measure("at least once", timed(rows, lambda: write(rows, guarantee="at-least-once")))
        measure("stream", timed(rows, lambda: stream(rows)))
    session.stop()
    return int(figures["batch"] < floor)


if __name__ == "__main__":
    sys.exit(main())
