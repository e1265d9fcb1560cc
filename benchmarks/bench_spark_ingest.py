"""How fast a queue becomes a table, and how fast the spool gives a batch again.

    python benchmarks/bench_spark_ingest.py [--short] [--messages N] [--size BYTES] [--parts N] [--master local[2]]

The broker runs in a process of its own (`acquit serve`), with durable messages. *whole* is from the start of the query
to its end, *steady* leaves out the first batch, in which Spark warms up. A small query runs first, so that the start of
the session (5 s) and of the first query (5 s) are not in the figures. *replay* reads the data files of the spool again
as Spark would, without Spark.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import acquit
from acquit.protocol.message import Message
from acquit.spark.columns import FIELDS, MessageColumns
from acquit.spark.ingest import IngestOptions, IngestProgress, TableFormat, ingest
from acquit.spark.session import start_session
from acquit.spark.spool.data import decode_batches
from acquit.spark.spool.store import FolderStore

REPLAYED_ROWS = 500_000


@contextlib.contextmanager
def broker(data: Path) -> Iterator[str]:
    """The URL of a broker in a process of its own."""
    arguments = [sys.executable, "-m", "acquit", "serve", "--port", "0", "--data", str(data)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"amqp://[\w.:]+", process.stdout.readline())
        assert found is not None, "the broker did not start"
        try:
            yield found.group()
        finally:
            process.terminate()


def post(url: str, address: str, count: int, size: int) -> float:
    """Messages a second."""
    body = os.urandom(size)
    began_s = time.perf_counter()
    with acquit.connect(url) as connection, connection.session() as session:
        sender = session.sender(address)
        for number in range(count):
            sender.send(Message(body, message_id=f"id-{number}", durable=True), wait=False)
        sender.flush()
    return count / (time.perf_counter() - began_s)


def replay(folder: Path) -> float:
    """Rows a second out of the data files that are left in a spool, which are read again and again for a while."""
    store, reader = FolderStore(folder), MessageColumns("queue")
    schema = pa.schema([(field.name, field.arrow_type) for field in FIELDS])
    rows = 0
    began_s = time.perf_counter()
    for name in itertools.cycle(sorted(store.names("data"))):
        if rows > REPLAYED_ROWS:
            break
        view = store.view(f"data/{name}")
        assert view is not None
        for batch in reader.select(decode_batches(view), schema):
            # What handing over to the JVM costs: the bytes are written once.
            with pa.ipc.new_stream(pa.BufferOutputStream(), schema) as writer:
                writer.write_batch(batch)
            rows += batch.num_rows
    return rows / (time.perf_counter() - began_s)


class Timed:
    """Progress with its times."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, int]] = []

    def __call__(self, step: IngestProgress) -> None:
        self.steps.append((time.perf_counter(), step.rows))

    @property
    def steady(self) -> float:
        """Rows a second after the first batch; 0 where there was no other."""
        (first_s, first), (last_s, last) = self.steps[0], self.steps[-1]
        return (last - first) / (last_s - first_s) if last > first else 0.0


def main() -> None:
    """Run it and print a line for each format."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="30,000 messages, one format")
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=1_024, help="bytes of a body")
    parser.add_argument("--parts", type=int, default=2)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--batch", type=int, default=50_000, help="maxMessagesPerBatch")
    given = parser.parse_args()
    count = 30_000 if given.short else given.messages
    formats = [TableFormat.DELTA] if given.short else list(TableFormat)

    session = start_session(master=given.master)
    with tempfile.TemporaryDirectory() as name, broker(Path(name) / "broker") as url:
        root = Path(name)
        for number, kind in enumerate([formats[0], *formats]):
            address = f"bench.{number}"
            warm_up = number == 0
            posted = post(url, address, 2_000 if warm_up else count, given.size)
            timed = Timed()
            options = IngestOptions(
                url=url,
                address=address,
                table=root / address,
                format=kind,
                parts=given.parts,
                source={"maxMessagesPerBatch": str(given.batch), "maxBytesPerBatch": "256m"},
            )
            done = ingest(options, spark=session, on_progress=timed)
            if warm_up:
                continue
            print(
                f"{kind:8} posted {posted:9,.0f}/s  ingested {done.rows:9,} whole {done.rows / done.duration_s:9,.0f}/s"
                f"  steady {timed.steady:9,.0f}/s  replay {replay(options.work_folder / 'spool'):9,.0f}/s"
            )
    session.stop()


if __name__ == "__main__":
    main()
