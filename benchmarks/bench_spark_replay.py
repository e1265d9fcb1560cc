"""How fast a batch that is in the spool is read again through Spark, beside the same rows out of a Parquet file.

    python benchmarks/bench_spark_replay.py [--short] [--messages N] [--rounds N] [--size BYTES] [--cpus N]

One streaming query reads a queue from our broker (`acquit serve`) in one batch. Its first action drains the queue; each
action after that reads the same batch again, as Spark does after a failure: from the spool, through the Python worker
and the JVM into the sink `noop`, all columns. In turns with it the same rows are read by Spark's Parquet reader, to the
same sink. Counted is each action from its call to its return. What is claimed is in CLAIM; the exit code says whether
it holds, but not in the short form.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame

from acquit.spark.source import AcquitDataSource
from spark_support import Measured, arguments, bind, broker, costs, post, session_of, spread, timed

CLAIM = 400_000
"""The least median of rows a second, on two CPUs."""
PART_MAX = 60_000
"""The broker lets a session hold so many unsettled, and a few more."""
WARM_UP = 3


def main() -> int:
    """Run, print the table, and say by the exit code whether what is claimed holds."""
    parser = arguments(__doc__ or "", messages=240_000, short=20_000, rounds=7)
    given = parser.parse_args()
    count, rounds = (20_000, 1) if given.short else (given.messages, given.rounds)
    cpus = bind(given.cpus)
    parts = max(cpus, -(-count // PART_MAX))
    runs: dict[str, list[Measured]] = {"drained": [], "replayed": [], "from Parquet": []}
    with tempfile.TemporaryDirectory(prefix="bench-replay-") as name:
        root = Path(name)
        with broker(root / "broker") as (url, pid):
            post(url, "bench", count, given.size)
            spark = session_of(cpus)
            spark.dataSource.register(AcquitDataSource)

            def read(frame: DataFrame, kind: str) -> None:
                with timed(count, {"broker": pid}) as measured:
                    frame.write.format("noop").mode("overwrite").save()
                runs[kind].append(measured)

            def batch(frame: DataFrame, _: int) -> None:
                read(frame, "drained")
                assert frame.count() == count, "the batch is not the whole queue"
                frame.write.parquet(str(root / "table"))
                for _round in range(rounds + WARM_UP):
                    read(frame, "replayed")
                    read(spark.read.parquet(str(root / "table")), "from Parquet")

            options = {
                "url": url,
                "address": "bench",
                "spool": str(root / "spool"),
                "parts": str(parts),
                "maxMessagesPerBatch": str(count),
                "maxBytesPerBatch": "4g",
                "drainTimeout": "60s",
            }
            frame = spark.readStream.format("acquit").options(**options).load()
            writer = frame.writeStream.foreachBatch(batch).trigger(availableNow=True)
            query = writer.option("checkpointLocation", str(root / "checkpoint")).start()
            query.awaitTermination()
            spark.stop()
    print(f"{count:,} rows of {given.size} bytes in {parts} parts, {cpus} CPUs: rows/s, median and range of {rounds}")
    for kind, measureds in runs.items():
        measureds = measureds[-rounds:]
        print(f"{kind:14} {spread([one.whole for one in measureds])}   microseconds of CPU a row: {costs(measureds)}")
    replayed = statistics.median(one.whole for one in runs["replayed"][-rounds:])
    missed = not given.short and replayed < CLAIM
    if missed:
        print(f"less than the {CLAIM:,} rows/s that are claimed")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
