"""The end of the line with Spark: the pipeline *ingest* takes the forward queue into a Delta table.

The child process is the driver: it starts a local Spark and runs the pipeline of `acquit.spark` with two parts and
small batches. `fill` kills it with -9, its Java machine with it, in the middle: when a batch is in the table and the
spool's log shows that the next one is being taken from the queue. What that driver had taken and not committed is in
the spool, what it held and had not yet published goes back to the queue. The second driver goes on from there. Whoever
is killed so cannot clear up, so both have a folder of the demo's for what is temporary.

A file that was forwarded twice is two postings with one message id. The pipeline is told that the message id is what
identifies a message (`identityField`), so it sets the second aside, as the SQLite table does by its key.
"""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path

from acquit.demo.chaos import PipelineRun
from acquit.demo.messages import INGEST
from acquit.demo.roles import report
from acquit.errors import ConfigurationError

NEEDED = ("pyspark", "pyarrow", "deltalake")
PARTS = 2
BATCHES = 4
"""Batches that forwarded messages are taken in, about, so that there is a middle to kill the driver in."""
MEMORY_MB = 768
NEXT_BATCH_S = 15.0
"""Seconds to wait for the next batch to begin before the kill."""
START_S = 300.0
"""A cold Spark on a busy machine takes its time."""


def check_installed() -> None:
    """Raises ConfigurationError when Spark or Java is missing: before the first message rather than after the last."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"--spark needs {', '.join(missing)}: pip install 'acquit[spark]'")
    from acquit.spark.java import java_home

    java_home()


def take(*, name: str, url: str, table: str, batch_messages: int, temporary: str) -> None:
    """The child: ingest what is in the forward queue now, and end."""
    # Java does not know TMPDIR.
    java_options = f'{os.environ.get("SPARK_SUBMIT_OPTS", "")} "-Djava.io.tmpdir={temporary}"'
    os.environ |= {"TMPDIR": temporary, "SPARK_SUBMIT_OPTS": java_options}
    from acquit.spark.ingest import IngestOptions, ingest

    options = IngestOptions(
        url=url,
        address=INGEST,
        table=Path(table),
        parts=PARTS,
        master=f"local[{PARTS}]",
        memory_mb=MEMORY_MB,
        source={"identityField": "message-id", "maxMessagesPerBatch": str(batch_messages)},
    )
    ingest(options, on_progress=lambda so_far: report(batches=1, stored=so_far.batch_rows))


def rows(table: Path) -> list[tuple[str, str]]:
    """Return (path, sha256) of every row of the table, doubles included."""
    from deltalake import DeltaTable

    column = DeltaTable(str(table)).to_pyarrow_table(columns=["application_properties"]).column(0)
    return [(str(one["path"]), str(one["sha256"])) for one in map(dict, column.to_pylist())]


def fill(run: PipelineRun, table: Path, temporary: Path) -> None:
    """Run the pipeline, kill its driver in the middle, and run it again to the end. Raises DemoStuck."""
    begun_s, tally, first, second = time.monotonic(), run.tally, "spark-1", "spark-2"
    temporary.mkdir()
    batch_messages = max(PARTS, -(-len(tally.files["forwarded"]) // BATCHES))
    arguments = {"table": str(table), "temporary": str(temporary), "batch_messages": batch_messages}
    run.watch(tally, f"Spark starts: process {run.start('take', first, arguments)}")
    run.until(lambda: tally.counts["batches"] > 0 or first not in run.running, silence_s=START_S)
    if first in run.running:
        log, driver = table / "_acquit" / "spool" / "log", run.running[first]
        before, give_up_s = os.listdir(log), time.monotonic() + NEXT_BATCH_S
        while os.listdir(log) == before and time.monotonic() < give_up_s and driver.poll() is None:
            time.sleep(0.005)
        run.watch(
            tally,
            f"kill -9 {run.kill(first)}: the Spark driver and its Java machine, with {tally.counts['stored']} rows in "
            "the table and the next batch begun; another one takes over",
        )
        # What the first one had put into the table without our hearing of it shows in the balance, not here.
        run.start("take", second, arguments)
        run.until(lambda: second not in run.running, silence_s=START_S)
    run.watch(tally, f"Spark is done after {time.monotonic() - begun_s:.0f} s")
