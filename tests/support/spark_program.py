"""A program of its own that runs the pipeline *ingest*, as its users do, and may be killed while it does.

    python -m tests.support.spark_program JOB.json

The job (`Job`) says what. One with a trigger goes on until there is a file ``stop`` in the work folder.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.crashing import PYTHONPATH, folder_of, pass_point

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 0.05

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "3s",
}
"""Slow tasks are tried a second time while the first still runs. On one host Spark never does that."""

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""For JVMs that live for seconds, of which they need most to load their classes."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run."""

    url: str
    address: str
    table: str
    format: str = "delta"
    trigger: str | None = None
    user: str | None = None
    credential: str | None = None
    source: dict[str, str] = field(default_factory=dict)
    master: str = "local[2,4]"
    settings: dict[str, str] = field(default_factory=dict)
    seen: str | None = None
    """A file for the rows of the table, as this very Spark reads them once the run has ended: id, and body in hex."""

    @property
    def work(self) -> Path:
        return Path(self.table) / "_acquit"

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps(asdict(self)))
        return path


def main(job: Job) -> None:
    from acquit.spark.session import start_session

    os.environ["PYTHONPATH"] = PYTHONPATH
    settings = {"spark.ui.enabled": "false", **SPECULATION, **job.settings}
    spark = start_session(master=job.master, memory_mb=512, log_level="OFF", settings=settings)
    run(job, spark)
    spark.stop()


def run(job: Job, spark: SparkSession) -> None:
    """In the session of the caller."""
    from acquit.spark.ingest import IngestOptions, TableFormat, ingest

    options = IngestOptions(
        url=job.url,
        address=job.address,
        table=Path(job.table),
        format=TableFormat(job.format),
        trigger=job.trigger,
        user=job.user,
        credential=job.credential,
        source=job.source,
    )
    done = threading.Event()
    watchers = []
    if job.trigger is not None:
        watchers.append(threading.Thread(target=_stop_when_told, args=(job, spark, done), daemon=True))
    if job.format == "parquet":
        watchers.append(threading.Thread(target=_watch_sink, args=(job, done), daemon=True))
    for watcher in watchers:
        watcher.start()
    try:
        ingest(options, spark=spark)
    finally:
        done.set()
        for watcher in watchers:
            watcher.join()
    if job.seen is not None:
        from tests.sparkcrash.tables import rows_by_spark

        rows = rows_by_spark(spark, Path(job.table))
        Path(job.seen).write_text(json.dumps([(name, body.hex()) for name, body in rows]))


def _stop_when_told(job: Job, spark: SparkSession, done: threading.Event) -> None:
    while not done.wait(LOOK_S):
        if (job.work / "stop").exists():
            for query in spark.streams.active:
                query.stop()
            return


def _watch_sink(job: Job, done: threading.Event) -> None:
    """The Parquet sink commits in the JVM, where nobody can look: so this looks at what it has written. Who asks for
    this point must look whether it came in time."""
    log = Path(job.table) / "_spark_metadata"
    before = _newest(log)
    while not done.is_set():
        if _newest(log) > before:
            pass_point(folder_of(job.work), "table-committed")
            before = _newest(log)
        time.sleep(0.001)


def _newest(log: Path) -> int:
    try:
        names = os.listdir(log)
    except FileNotFoundError:
        return -1
    return max((int(name) for part in names if (name := part.removesuffix(".compact")).isdecimal()), default=-1)


if __name__ == "__main__":
    main(Job(**json.loads(Path(sys.argv[1]).read_text())))
