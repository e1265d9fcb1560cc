"""How fast rows become messages.

    python benchmarks/bench_spark_sink.py [--short] [--messages N] [--rounds N] [--size BYTES] [--cpus N]

Durable messages with bodies that nothing can compress go from Parquet files to a broker on the same machine (`acquit
serve`); everything runs on two CPUs unless `--cpus` says otherwise. The start of Spark and one small write before are
not counted. CPU is of all processes, the broker included: what a message costs, however busy the machine is.

*batch* is ``df.write`` with a run id, each row posted once by the sender's mark; *at least once* leaves the mark out;
*again* is the batch written once more, so that the mark tells all of its rows; *stream* is the same rows in two batches
of a streaming query, from its start to its end.

Exits with 1 when the median of *batch* is below `--floor` messages a second (30,000; not with --short).
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from acquit.spark.source import AcquitDataSource
from spark_support import Measured, arguments, bind, body, broker, costs, session_of, spread, timed

FLOOR = 30_000
FILES = 4


def write_files(folder: Path, count: int, size: int) -> None:
    """The rows, in files."""
    folder.mkdir()
    for number in range(FILES):
        table = pa.table({"body": [body(row, size) for row in range(number, count, FILES)]})
        pq.write_table(table, folder / f"{number}.parquet", compression="none")


def main() -> int:
    """Run it and print a line for each way."""
    parser = arguments(__doc__ or "", messages=300_000, short=30_000)
    parser.add_argument("--floor", type=int, default=FLOOR)
    given = parser.parse_args()
    count, rounds = (30_000, 1) if given.short else (given.messages, given.rounds)
    cpus = bind(given.cpus or 2)
    spark = session_of(cpus)
    spark.dataSource.register(AcquitDataSource)
    runs: dict[str, list[Measured]] = {"batch": [], "again": [], "at least once": [], "stream": []}
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as name, broker(Path(name) / "broker") as (url, pid):
            root = Path(name)
            write_files(root / "rows", count, given.size)
            write_files(root / "few", 1_000, given.size)

            def write(rows: DataFrame, url: str = url, **options: str) -> None:
                rows.write.format("acquit").mode("append").options(url=url, address="batch", **options).save()

            def stream(root: Path = root, url: str = url) -> None:
                query = (
                    spark.readStream.schema("body BINARY")
                    .option("maxFilesPerTrigger", "2")
                    .parquet(str(root / "rows"))
                    .writeStream.format("acquit")
                    .options(url=url, address="stream", checkpointLocation=str(root / "checkpoint"))
                    .trigger(availableNow=True)
                    .start()
                )
                query.awaitTermination()

            rows = spark.read.parquet(str(root / "rows"))
            write(spark.read.parquet(str(root / "few")), runId="warm-up")
            ways: dict[str, Callable[[], None]] = {
                "batch": lambda: write(rows, runId="first"),  # noqa: B023  # called in this round
                "again": lambda: write(rows, runId="first"),  # noqa: B023
                "at least once": lambda: write(rows, guarantee="at-least-once"),  # noqa: B023
                "stream": stream,
            }
            for way, work in ways.items():
                with timed(count, {"broker": pid}) as measured:
                    work()
                runs[way].append(measured)
                print(f"round {number + 1}: {way} {measured.whole:,.0f}/s", flush=True)
    spark.stop()
    print(f"{count:,} messages of {given.size} bytes, {cpus} CPUs, medians of {rounds}")
    for way, measures in runs.items():
        print(f"{way:14} {spread([one.whole for one in measures])} /s   CPU us: {costs(measures)}")
    median = statistics.median(one.whole for one in runs["batch"])
    return int(not given.short and median < given.floor)


if __name__ == "__main__":
    sys.exit(main())
