"""What ingesting costs for a million messages, how that grows, and what a day of so many events would need.

    python benchmarks/bench_spark_sizing.py [--short] [--size BYTES] [--cpus N] [--counts N,N] [--parts N,N]
                                            [--into docs/spark-sizing.md]
    python benchmarks/bench_spark_sizing.py --plan EVENTS [--core-rate N] [--event-bytes N] [--shuffle-bytes N]

Each number of messages is ingested from our broker (`acquit serve`) into a Delta table with each number of parts, in
one Spark session with as many cores as there are CPUs. Printed is a table as docs/spark-sizing.md has it: time from the
start of the query to its end, CPU time of all processes for a million messages and where it goes, the broker's memory
at the end, and bytes in the table. A small query runs before, so that the start of Spark is in none of the figures. All
of it takes about 40 minutes on two cores, and 30 GB of disk for a while.

With `--plan` nothing is measured: the plan of docs/spark-sizing.md for that many ledger events a day is computed from
what is given, which are figures of bench_ledger_source.py and bench_audit.py.
"""

from __future__ import annotations

import itertools
import math
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil

from acquit.spark.ingest import IngestOptions, ingest
from spark_support import Measured, arguments, bind, broker, post, session_of, timed

COUNTS = "10000,100000,1000000,10000000"
PARTS = "1,2,4"
BATCH_OF_PART = 50_000
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
COLUMNS = (
    "messages",
    "parts",
    "seconds",
    "messages/s",
    "CPU s a million",
    "of it broker",
    "workers",
    "JVM",
    "broker MB",
    "table MB",
)
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Plan:
    """What a day of `events` needs. Rates and bytes are measured ones."""

    events: float
    core_rate: float
    """Events a second that a core reads, verifies and folds."""
    event_bytes: float
    """Of the journal, for each event, payloads included."""
    shuffle_bytes: float
    """For each event."""
    core_share: float = 0.5
    """So much of a core's time is planned for: the rest is for stragglers, retries and the next day."""
    hours: float = 6.0
    """The day's audit takes so long."""
    executor_cores: int = 4
    network_bytes_s: float = 1.25e9
    """Of an executor's machine: 10 Gbit/s."""
    segment_bytes: float = 64 * 2**20

    def lines(self) -> list[tuple[str, str]]:
        """What is needed, and how much."""
        cores = self.events / (self.core_rate * self.core_share * self.hours * 3_600)
        executors = math.ceil(cores / self.executor_cores)
        journal = self.events * self.event_bytes
        shuffle = self.events * self.shuffle_bytes
        network_s = (journal + shuffle) / executors / self.network_bytes_s
        return [
            ("events a second, over the day", f"{self.events / DAY_S:,.0f}"),
            ("journal a day", f"{journal / 1e12:,.1f} TB"),
            (
                f"segments of {self.segment_bytes / 2**20:.0f} MiB, which are tasks",
                f"{journal / self.segment_bytes:,.0f}",
            ),
            (f"cores, to be done in {self.hours:g} hours", f"{cores:,.0f}"),
            (f"executors of {self.executor_cores} cores", f"{executors:,}"),
            ("shuffled", f"{shuffle / 1e12:,.2f} TB"),
            ("local disk of an executor for it", f"{2 * shuffle / executors / 1e9:,.0f} GB"),
            ("of it on the network, reading and shuffling", f"{network_s / 3_600:.1f} h"),
        ]


def measure(root: Path, counts: list[int], parts_of: list[int], size: int, cpus: int) -> list[str]:
    """Run, and print a line for each; the lines of the table."""
    spark = session_of(cpus)
    numbers = itertools.count()
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---:|" * len(COLUMNS)]
    print(
        f"{cpus} CPUs, bodies of {size} bytes, batches of {BATCH_OF_PART:,} messages a part",
        *lines,
        sep="\n",
        flush=True,
    )
    for count, parts in [(2_000, 2), *itertools.product(counts, parts_of)]:
        number = next(numbers)
        # A broker of its own: one that has had ten million messages before has a journal to show for it.
        with broker(root / f"broker{number}") as (url, pid):
            post(url, "bench", count, size)
            table = root / f"table{number}"
            options = IngestOptions(
                url=url,
                address="bench",
                table=table,
                parts=parts,
                target_file_bytes=0,
                source={
                    "maxMessagesPerBatch": str(parts * BATCH_OF_PART),
                    "maxBytesPerBatch": "4g",
                    "drainTimeout": "20s",
                },
            )
            with timed(count, {"broker": pid}) as measured:
                done = ingest(options, spark=spark)
            assert done.rows == count, "rows were lost or doubled"
            if number:
                memory = psutil.Process(pid).memory_info().rss / 1e6
                lines.append(line(measured, parts, memory, table))
                print(lines[-1], flush=True)
        for folder in (root / f"broker{number}", root / f"table{number}"):
            for path in sorted(folder.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
    spark.stop()
    return lines


def numbers_in(text: str) -> list[int]:
    """With commas between them."""
    return [int(number) for number in text.split(",")]


def put_into(page: Path, lines: list[str]) -> None:
    """In place of the table between the marks of the page."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    page.write_text("\n".join([before + BEGIN, *lines, END + after]), encoding="utf-8")


def line(measured: Measured, parts: int, memory_mb: float, table: Path) -> str:
    """A line of the table."""
    stored = sum(path.stat().st_size for path in (table / "acquit").rglob("*.parquet")) / 1e6
    cpu = {name: seconds / measured.count * 1e6 for name, seconds in measured.cpu.items()}
    return (
        f"| {measured.count:,} | {parts} | {measured.seconds:,.1f} | {measured.whole:,.0f} "
        f"| {measured.cpu_per_million:,.0f} | {cpu['broker']:,.0f} | {cpu['workers']:,.0f} | {cpu['jvm']:,.0f} "
        f"| {memory_mb:,.0f} | {stored:,.0f} |"
    )


def main() -> int:
    """Run it."""
    parser = arguments(__doc__ or "", messages=0, short=10_000, rounds=1)
    parser.add_argument("--counts", default=COUNTS, help=f"numbers of messages ({COUNTS})")
    parser.add_argument("--parts", default=PARTS, help=f"numbers of parts ({PARTS})")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the table into this page (docs/spark-sizing.md)")
    parser.add_argument("--plan", type=float, metavar="EVENTS", help="compute the plan for so many events a day")
    parser.add_argument("--core-rate", type=float, default=200_000, help="events a second of a core (200,000)")
    parser.add_argument("--event-bytes", type=float, default=136, help="bytes of journal for an event (136)")
    parser.add_argument("--shuffle-bytes", type=float, default=17, help="bytes of shuffle for an event (17)")
    given = parser.parse_args()
    if given.plan:
        for what, much in Plan(given.plan, given.core_rate, given.event_bytes, given.shuffle_bytes).lines():
            print(f"| {what} | {much} |")
        return 0
    counts, parts = ("10000", "1,2") if given.short else (given.counts, given.parts)
    cpus = bind(given.cpus)
    with tempfile.TemporaryDirectory(prefix="bench-sizing-") as name:
        lines = measure(Path(name), numbers_in(counts), numbers_in(parts), given.size, cpus)
    if given.into is not None:
        put_into(given.into, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
