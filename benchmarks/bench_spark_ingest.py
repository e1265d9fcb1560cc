"""From a queue into a Delta table: `acquit pipeline ingest`, the job that one writes by hand, and Spark's Kafka source.

    python benchmarks/bench_spark_ingest.py [--short] [--messages N] [--rounds N] [--size BYTES] [--cpus N]
                                             [--like KIND]

Three jobs take the same number of durable messages out of a broker on the same machine into a Delta table, each with
Spark in `local[cpus]`, and take turns, round by round. The messages carry an id and random bytes, or what `--like` says
(the kinds of `bench_columns.py`); Kafka's have the id and the same body, and nobody reads what JSON they are.

*acquit ingest* reads our broker (`acquit serve`) through the source `acquit`, exactly once.

*foreachBatch over proton* is the job by hand, over python-qpid-proton and the same broker: in each batch the driver
receives, writes to the table, and then accepts; at least once, as messages that were written and not accepted come
again. (Executors cannot do it: a task that ends gives up its connection, and with it what is not accepted.)

*Kafka source* reads a Kafka broker (one node, as many partitions as we have parts) through Spark's own source and
writes Parquet through Spark's own writer, committed as ingest does. It is left out, and the reason printed, where Maven
Central cannot be reached.

Counted are *whole*: messages by the time from the start of the query to its end, the brokers' work included; and
*steady*: the same from the end of the first batch on, without planning and the start of the query. Not counted: the
start of Spark, one small query before, and filling queue and topic. CPU is of all processes, brokers included. What is
claimed is in CLAIMS; the exit code says whether it holds, but not in the short form.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from acquit.spark.delta import DeltaAppender, WrittenFile
from acquit.spark.files import sync
from acquit.spark.ingest import IngestOptions, IngestProgress, ingest
from bench_columns import KINDS, ORDER_DDL
from kafka_peer import PeerMissing, kafka, source_jars
from spark_support import Measured, arguments, bind, body, broker, costs, post, session_of, spread, timed

try:
    from proton.utils import BlockingConnection
except ImportError:
    BlockingConnection = None

CLAIMS = {"acquit ingest": 40_000}
"""The least median of messages a second, of the whole query, on two CPUs."""
HAND_WRITTEN_BATCH = 5_000
HAND_WRITTEN_SHARE = 10
"""It gets so much fewer messages, so that a round is not all its own."""

Job = Callable[[Path, str, int], Measured]
"""Takes a folder for the table, the queue or topic, and how many messages are in it."""


class Jobs:
    """The jobs, over what they all need."""

    def __init__(self, spark: SparkSession, url: str, broker_pid: int, *, parts: int, batch: int, like: str) -> None:
        self.spark = spark
        self.make, self.decoder = KINDS[like]
        self.url = url
        self.parts = parts
        self.batch = batch
        self.bootstrap = ""
        self.named = {"broker": broker_pid}

    def ingest(self, table: Path, queue: str, count: int) -> Measured:
        """Ours."""
        options = IngestOptions(
            url=self.url,
            address=queue,
            table=table,
            parts=self.parts,
            target_file_bytes=0,
            source={
                "maxMessagesPerBatch": str(self.batch),
                "maxBytesPerBatch": "1g",
                "drainTimeout": "20s",
            }
            | ({} if self.decoder is None else {"bodyAs": "json", "bodySchema": ORDER_DDL}),
        )
        with timed(count, self.named) as measured:

            def note(step: IngestProgress) -> None:
                measured.batches.append((time.perf_counter(), step.rows))

            done = ingest(options, spark=self.spark, on_progress=note)
        assert done.rows == count
        return measured

    def by_hand(self, table: Path, queue: str, count: int) -> Measured:
        """As one would write it."""
        connection = BlockingConnection(self.url)
        receiver = connection.create_receiver(queue, credit=HAND_WRITTEN_BATCH)
        taken = 0

        with timed(count, self.named) as measured:

            def take(_: DataFrame, __: int) -> None:
                nonlocal taken
                ids, bodies = [], []
                for _number in range(min(HAND_WRITTEN_BATCH, count - taken)):
                    message = receiver.receive(10)
                    ids.append(message.id)
                    bodies.append(bytes(message.body))
                if ids:
                    write_deltalake(table, pa.table({"message_id": ids, "body": bodies}), mode="append")
                for _number in ids:
                    receiver.accept()
                taken += len(ids)
                measured.batches.append((time.perf_counter(), taken))

            ticks = self.spark.readStream.format("rate").option("rowsPerSecond", 1).load()
            writer = ticks.writeStream.foreachBatch(take).trigger(processingTime="0 seconds")
            query = writer.option("checkpointLocation", str(table) + "-checkpoint").start()
            while taken < count and query.exception() is None:
                query.awaitTermination(0.1)  # type: ignore[arg-type]  # it takes fractions
            query.stop()
        connection.close()
        return measured

    def kafka(self, table: Path, topic: str, count: int) -> Measured:
        """Spark's source and writer, and the table's log written as ingest does."""
        done = 0
        with timed(count, self.named) as measured:
            options = {
                "kafka.bootstrap.servers": self.bootstrap,
                "subscribe": topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(self.batch),
            }
            frame = self.spark.readStream.format("kafka").options(**options).load()
            appender = DeltaAppender(table, to_arrow_schema(frame.schema, timezone="UTC"), topic)

            def append(batch: DataFrame, batch_id: int) -> None:
                nonlocal done
                folder = table / "kafka" / str(batch_id)
                batch.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
                written = batch.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
                written.parquet(str(folder))
                files = [_written(table, path) for path in sorted(folder.glob("*.parquet"))]
                appender.commit(batch_id, files)
                done += sum(file.rows for file in files)
                measured.batches.append((time.perf_counter(), done))

            writer = frame.writeStream.foreachBatch(append).trigger(availableNow=True)
            query = writer.option("checkpointLocation", str(table) + "-checkpoint").start()
            query.awaitTermination()
        return measured

    def fill_queue(self, queue: str, count: int, size: int) -> None:
        """For ours and the hand-written one."""
        post(self.url, queue, count, size, self.make)

    def fill_topic(self, topic: str, count: int, size: int) -> None:
        """For Kafka's, through Spark's sink."""
        step = 50_000
        for start in range(0, count, step):
            numbers = range(start, min(count, start + step))
            bodies = [bytes(self.make(n, body(n, size)).body) for n in numbers]  # type: ignore[arg-type]  # all bytes
            rows = pa.table({"key": [b"id-%d" % n for n in numbers], "value": bodies})
            writer = self.spark.createDataFrame(rows).repartition(self.parts).write.format("kafka")
            writer.option("kafka.bootstrap.servers", self.bootstrap).option("topic", topic).save()


def main() -> int:
    """Run, print the table, and say by the exit code whether what is claimed holds."""
    parser = arguments(__doc__ or "", messages=500_000, short=20_000)
    parser.add_argument("--parts", type=int, default=2)
    parser.add_argument("--batch", type=int, default=100_000, help="messages in a batch, at most")
    parser.add_argument("--like", metavar="KIND", choices=KINDS, default="id only", help=", ".join(KINDS))
    parser.add_argument("--only", metavar="TEXT", default="", help="only jobs with this in their names")
    given = parser.parse_args()
    count, rounds = (20_000, 1) if given.short else (given.messages, given.rounds)
    # What is installed has its bytecode. Each Python process of Spark's would compile all that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    cpus = bind(given.cpus)
    numbers = itertools.count()
    runs: dict[str, list[Measured]] = {}
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-ingest-")))
        url, pid = stack.enter_context(broker(root / "broker"))
        jars: list[str] = []
        if given.only.lower() in "kafka source":
            try:
                jars = source_jars()
                bootstrap, kafka_pid = stack.enter_context(kafka(root / "kafka", given.parts))
            except PeerMissing as reason:
                print(f"without Kafka: {reason}")
                jars = []
        spark = session_of(cpus, jars=jars)
        stack.callback(spark.stop)
        jobs = Jobs(spark, url, pid, parts=given.parts, batch=given.batch, like=given.like)
        contests: dict[str, tuple[Job, Callable[[str, int, int], None], int]] = {
            "acquit ingest": (jobs.ingest, jobs.fill_queue, 1)
        }
        if BlockingConnection is not None:
            contests["foreachBatch over proton"] = (jobs.by_hand, jobs.fill_queue, HAND_WRITTEN_SHARE)
        if jars:
            jobs.bootstrap, jobs.named["kafka"] = bootstrap, kafka_pid
            contests["Kafka source"] = (jobs.kafka, jobs.fill_topic, 1)
        contests = {name: contest for name, contest in contests.items() if given.only.lower() in name.lower()}
        for round_ in range(rounds + 1):
            for name, (job, fill, share) in contests.items():
                amount = 2_000 if not round_ else count // share
                place = f"bench.{next(numbers)}"
                fill(place, amount, given.size)
                measured = job(root / place, place, amount)
                measured.cpu.pop("broker" if name == "Kafka source" else "kafka", None)
                assert DeltaTable(root / place).to_pyarrow_dataset().count_rows() == amount, "rows were lost or doubled"
                if round_:
                    runs.setdefault(name, []).append(measured)
    print(f"{count:,} messages, {given.like}, of {given.size} bytes, rounds: {rounds}, {cpus} CPUs: median and range")
    for name, measureds in runs.items():
        print(f"{name:26} whole  {spread([one.whole for one in measureds])}")
        print(f"{'':26} steady {spread([one.steady for one in measureds])}")
        total = spread([one.cpu_per_million for one in measureds], "6.1f")
        print(f"{'':26} CPU seconds for a million {total}; microseconds for a message: {costs(measureds)}")
    missed = [] if given.short else [n for n, least in CLAIMS.items() if n in runs and _whole(runs[n]) < least]
    for name in missed:
        print(f"{name}: less than the {CLAIMS[name]:,} messages/s that are claimed")
    return 1 if missed else 0


def _written(table: Path, path: Path) -> WrittenFile:
    """A file of Spark's, made durable as ours are."""
    sync(path)
    status = path.stat()
    rows = pq.read_metadata(path).num_rows
    return WrittenFile(path.relative_to(table).as_posix(), status.st_size, rows, status.st_mtime_ns // 1_000_000)


def _whole(runs: list[Measured]) -> float:
    return statistics.median(one.whole for one in runs)


if __name__ == "__main__":
    sys.exit(main())
