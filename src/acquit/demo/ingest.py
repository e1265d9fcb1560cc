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

import contextlib
import importlib.util
import os
import queue
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from acquit.demo.broker import BrokerProcess
from acquit.demo.chaos import DemoStuck, Tally, Watch
from acquit.demo.children import Child, Children
from acquit.demo.messages import INGEST
from acquit.demo.roles import obey_parent, report
from acquit.errors import ConfigurationError

NEEDED = ("pyspark", "pyarrow", "deltalake")
PARTS = 2
BATCHES = 4
"""Batches that forwarded messages are taken in, about, so that there is a middle to kill the driver in."""
MEMORY_MB = 768
NEXT_BATCH_S = 15.0
"""Seconds to wait for the next batch to begin before the kill."""
START_S = 120.0
"""A cold Spark on a busy machine takes its time."""


def check_installed() -> None:
    """Raises ConfigurationError when Spark or Java is missing: before the first message rather than after the last."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"--spark needs {', '.join(missing)}: pip install 'acquit[spark]'")
    from acquit.spark.java import java_home

    java_home()


def run(endpoint: Path, table: Path, *, batch_messages: int) -> None:
    """The child: ingest what is in the forward queue now, and end."""
    obey_parent()
    from acquit.spark.ingest import IngestOptions, IngestProgress, ingest

    def progress(so_far: IngestProgress) -> None:
        report(batch=so_far.batch_id, stored=so_far.batch_rows)

    summary = ingest(
        IngestOptions(
            url=endpoint.read_text(encoding="utf-8"),
            address=INGEST,
            table=table,
            parts=PARTS,
            master=f"local[{PARTS}]",
            memory_mb=MEMORY_MB,
            source={"identityField": "message-id", "maxMessagesPerBatch": str(batch_messages)},
        ),
        on_progress=progress,
    )
    report(finished=True, set_aside=summary.taken.set_aside)


def rows(folder: Path) -> list[tuple[str, str]]:
    """(path, sha256) of every row of the table, doubles included."""
    from deltalake import DeltaTable

    column = DeltaTable(str(_table(folder))).to_pyarrow_table(columns=["application_properties"]).column(0)
    properties = [dict(pairs) for pairs in column.to_pylist()]
    return [(str(one["path"]), str(one["sha256"])) for one in properties]


@contextlib.contextmanager
def cleared(folder: Path) -> Iterator[None]:
    """Remove Spark's temporary files at the end, however it comes. The children are to end within."""
    try:
        yield
    finally:
        # A Java machine that ends in order removes it, too, at the same time.
        shutil.rmtree(_temporary(folder), ignore_errors=True)


def fill(children: Children, broker: BrokerProcess, folder: Path, tally: Tally, watch: Watch) -> None:
    """Run the pipeline, kill its driver in the middle, and run it again to the end. Raises DemoStuck."""
    begun_s = time.monotonic()
    batch_messages = max(PARTS, -(-len(tally.forwarded) // BATCHES))
    driver = _start(children, broker, folder, 1, batch_messages)
    watch(tally, f"Spark starts: process {driver.pid}")
    if not _follow(children, driver, tally, watch, first_batch_only=True):
        log = _table(folder) / "_acquit" / "spool" / "log"
        before = _entries(log)
        give_up_s = time.monotonic() + NEXT_BATCH_S
        while _entries(log) == before and time.monotonic() < give_up_s and driver.process.poll() is None:
            time.sleep(0.005)
        stored = tally.stored
        driver.kill()
        watch(
            tally,
            f"kill -9 {driver.pid}: the Spark driver and its Java machine, with {stored} rows in the table and the "
            f"next batch begun; another one takes over",
        )
        driver = _start(children, broker, folder, 2, batch_messages)
        # What the first one had put into the table without our hearing of it shows in the balance, not here.
        _follow(children, driver, tally, watch, first_batch_only=False)
    watch(tally, f"Spark is done after {time.monotonic() - begun_s:.0f} s")


def _table(folder: Path) -> Path:
    return folder / "table"


def _temporary(folder: Path) -> Path:
    return folder / "temporary"


def _entries(log: Path) -> int:
    return sum(1 for _ in log.iterdir()) if log.is_dir() else 0


def _start(children: Children, broker: BrokerProcess, folder: Path, number: int, batch_messages: int) -> Child:
    name, endpoint = f"spark-{number}", str(broker.endpoint)
    arguments = ["--name", name, "--endpoint", endpoint, "--table", str(_table(folder)), "--batch", str(batch_messages)]
    temporary = _temporary(folder)
    temporary.mkdir(exist_ok=True)
    # Java does not know TMPDIR.
    told = f'{os.environ.get("SPARK_SUBMIT_OPTS", "")} "-Djava.io.tmpdir={temporary}"'
    environment = {"TMPDIR": str(temporary), "SPARK_SUBMIT_OPTS": told}
    return children.start(name, ["acquit.demo", "ingest", *arguments], group=True, environment=environment)


def _follow(children: Children, driver: Child, tally: Tally, watch: Watch, *, first_batch_only: bool) -> bool:
    """Count what the driver reports. True when it has finished; False after a batch, where that is asked for."""
    timeout_s = START_S
    while True:
        try:
            said = children.reports.get(timeout=timeout_s)
        except queue.Empty:
            raise DemoStuck(f"{driver.name} said nothing for {timeout_s:.0f} s; see {driver.log}") from None
        if said.child != driver.name:
            continue  # the last word of a process that has ended before
        stored, set_aside = said.what.get("stored"), said.what.get("set_aside")
        tally.stored += stored if isinstance(stored, int) else 0
        tally.set_aside += set_aside if isinstance(set_aside, int) else 0
        watch(tally, None)
        if "finished" in said.what:
            return True
        if said.ended is not None:
            raise DemoStuck(f"{driver.name} ended with status {said.ended}: {driver.log_tail()}")
        if first_batch_only and "batch" in said.what:
            return False
