"""What reading the ledger into Arrow, and through Spark, costs.

    python benchmarks/bench_ledger_source.py [--short] [--folder DIR] [--payload BYTES] [--cpus N] [--no-spark]

A journal is made by driving the real writer: messages posted, acquired and accepted on four queues by eight links, with
a clean stop. Then, on one core each: the segments into Arrow with all columns, from the segments (`verify = full`) and
from the side files (`quick`), and with the few columns that an audit folds; with `details`; and through a local
Spark, where an aggregate by kind reads every row: median and range of rounds that take turns, and CPU time. Figures
swing with the machine: compare runs side by side only. CLAIM is for all columns, fully verified, on two CPUs.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrameReader

from acquit.ledger.events import EventKind
from acquit.ledger.records import Actor, Queue, encode_id, encode_posting_meta
from acquit.ledger.recovery import close_journal, open_journal, write_now
from acquit.spark.ledger.columns import event_rows, fields_of
from acquit.spark.ledger.options import LedgerOptions
from acquit.spark.ledger.source import planned
from acquit.store.options import JournalOptions
from spark_support import Measured, bind, costs, session_of, spread, timed

CLAIM = 1_000_000
"""The least median of events a second through Spark."""
QUEUES, LINKS, BATCH = 4, 8, 2_000
AUDIT = "broker segment sequence queue_number kind_number time size crc attempt".split()


def make(path: Path, events: int, payload_bytes: int) -> None:
    """A journal of so many events."""
    opened = open_journal(path, JournalOptions(recovery_bytes_max=1 << 42))
    recorder, journal, sequences = opened.recorder, opened.journal, opened.sequences
    payload = bytes(range(256)) * (payload_bytes // 256 + 1)
    for number in range(1, QUEUES + 1):
        recorder.append(Queue(_now(), number, f"orders-{number}", f"orders-{number}"))
    for number in range(1, LINKS + 1):
        recorder.append(Actor(_now(), number, f"worker-{number}", "orders", "user", "orders-1"))
    write_now(recorder)
    for _ in range(events // (3 * BATCH)):
        when = _now()
        posted = []
        for _ in range(BATCH):
            sequence = sequences.take(when)
            meta = encode_posting_meta(b"orders", encode_id(f"message-{sequence}"))
            queue = sequence % QUEUES + 1
            mark = recorder.posted(sequence, queue, payload[:payload_bytes], meta, when)[1]
            posted.append((sequence, queue, mark))
        for kind in (EventKind.ACQUIRED, EventKind.ACCEPTED):
            for sequence, queue, mark in posted:
                recorder.transition(int(kind), sequence, queue, mark, when, actor=sequence % LINKS + 1)
        write_now(recorder)
        while (chore := journal.take_chore()) is not None:
            chore.run()
            journal.complete_chore(chore)
    write_now(recorder)
    close_journal(recorder, _now())


def _now() -> int:
    return time.time_ns() // 1000


def to_arrow(path: Path, label: str, names: list[str] | None = None, **options: str) -> None:
    """Every segment into Arrow, in this thread."""
    parsed = LedgerOptions.parse({"folders": str(path), **options})
    fields = [field for field in fields_of(parsed) if names is None or field.name in names]
    schema = pa.schema([(field.name, field.type) for field in fields])
    start = time.perf_counter()
    rows = size = 0
    for segments in planned(parsed):
        for batch in event_rows(segments[0], parsed, schema):
            rows += batch.num_rows
            size += batch.nbytes
    elapsed = time.perf_counter() - start
    print(f"{label:<44} {rows / elapsed / 1e6:6.2f} M events/s ({len(fields)} columns, {size / 1e6:,.0f} MB of Arrow)")


def through_spark(path: Path, cpus: int, rounds: int) -> float:
    """Through Spark; the median events a second of all columns with `verify = full`."""
    spark = session_of(cpus)
    jobs: dict[str, DataFrameReader] = {}
    for label, options in (("full", {}), ("quick", {"verify": "quick"})):
        for columns in ("all", "audit"):
            reader = spark.read.format("acquit.ledger").options(folders=str(path), **options)
            if columns == "audit":
                parsed = LedgerOptions.parse({"folders": str(path)})
                types = {field.name: field.spark_type for field in fields_of(parsed)}
                reader = reader.schema(", ".join(f"{name} {types[name]}" for name in AUDIT))
            jobs[f"verify = {label}, {columns} columns"] = reader
    runs: dict[str, list[Measured]] = {name: [] for name in jobs}
    try:
        for round_ in range(rounds + 1):  # the first one starts workers
            for name, reader in jobs.items():
                with timed(0, {}) as measured:
                    # A frame that was collected before would be answered from the files of its shuffle.
                    found = reader.load().groupBy("kind_number").agg({"sequence": "sum", "*": "count"}).collect()
                measured.count = sum(row["count(1)"] for row in found)
                if round_:
                    runs[name].append(measured)
    finally:
        spark.stop()
    for name, measureds in runs.items():
        rates = spread([one.whole / 1e6 for one in measureds], "6.2f")
        print(
            f"Spark, {cpus} CPUs, {name}".ljust(44), f"{rates} M events/s, microseconds of CPU: {costs(measureds, 2)}"
        )
    return statistics.median(one.whole for one in runs["verify = full, all columns"])


def main() -> int:
    """Run, and say by the exit code whether what is claimed holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="half a million events instead of six, one round")
    parser.add_argument("--folder", type=Path, help="where to write (here)")
    parser.add_argument("--payload", type=int, default=200, help="bytes of each message (200)")
    parser.add_argument("--events", type=int, default=6_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpus", type=int, help="run on the first so many CPUs")
    parser.add_argument("--no-spark", action="store_true", help="Arrow only")
    options = parser.parse_args()
    cpus = bind(options.cpus)
    folder = Path(tempfile.mkdtemp(prefix="bench-ledger-", dir=options.folder or Path.cwd()))
    missed = False
    try:
        path = folder / "data"
        start = time.perf_counter()
        make(path, 500_000 if options.short else options.events, options.payload)
        size = sum(file.stat().st_size for file in path.rglob("*.seg"))
        print(f"made a journal of {size / 1e6:,.0f} MB in {time.perf_counter() - start:.0f} s")
        to_arrow(path, "full, all columns")
        to_arrow(path, "full, columns of an audit", AUDIT)
        to_arrow(path, "quick, all columns", verify="quick")
        to_arrow(path, "quick, columns of an audit", AUDIT, verify="quick")
        to_arrow(path, "with details", details="true")
        if not options.no_spark:
            missed = through_spark(path, cpus, 1 if options.short else options.rounds) < CLAIM and not options.short
            if missed:
                print(f"less than the {CLAIM:,} events/s that are claimed")
    finally:
        shutil.rmtree(folder)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
