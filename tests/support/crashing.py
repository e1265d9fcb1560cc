"""The source `acquit` with workers that crash at named points, each point once.

Register `CrashingSource` and read the format ``acquit_crashing``. Marks of the points that have been passed lie in
``SPOOL.crashes``, a folder of files that hold the process id; ``SPOOL.attempts`` has a file for each attempt at a part
(epoch, part, Spark's number of the attempt). Points, in the order of `acquit.spark.spool.attempt`:

received    messages are held, nothing is published
published   the entry is in the log, nothing is settled
settled     the broker has its answers, no row has been yielded

What happens there:

worker      the Python worker is killed, as by the kernel that needs its memory
everything  the JVM is killed, and the worker
zombie      the JVM is killed and the worker stopped; somebody may let it go on much later
stall       the worker is stopped

The environment variable ``ACQUIT_TEST_CRASHES`` (``1:received:worker,2:published:everything``) says what happens in
which epoch; without it, `WORKERS`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from acquit.spark import stream as stream_module
from acquit.spark.link import QueueDrain
from acquit.spark.source import AcquitDataSource
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import Outcome, Received
from acquit.spark.stream import AcquitPartition, AcquitStreamReader

VARIABLE = "ACQUIT_TEST_CRASHES"
WORKERS = "1:received:worker,2:published:worker,3:settled:worker"


def crash_once(marks: Path, point: str, what: str) -> None:
    """Do it, unless a process has been here before."""
    marks.mkdir(exist_ok=True)
    try:
        with (marks / point).open("x") as mark:
            mark.write(str(os.getpid()))
    except FileExistsError:
        return
    if what in ("zombie", "stall"):
        # When the JVM is gone, Spark's daemon ends its process group, and the kernel wakes those in it that were
        # stopped. A machine that hangs hears nothing of that.
        os.setsid()
    if what in ("everything", "zombie"):
        _kill_jvm()
    os.kill(os.getpid(), signal.SIGSTOP if what in ("zombie", "stall") else signal.SIGKILL)


def _kill_jvm() -> None:
    import psutil

    jvm = next(parent for parent in psutil.Process().parents() if "java" in parent.name())
    jvm.kill()


class CrashingSource(AcquitDataSource):
    """As its base, with readers that crash."""

    @classmethod
    def name(cls) -> str:
        return "acquit_crashing"

    def streamReader(self, schema: StructType) -> AcquitStreamReader:  # noqa: N802
        return _CrashingReader(self.options, schema)


class _CrashingReader(AcquitStreamReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, AcquitPartition)
        plan = [step.split(":") for step in os.environ.get(VARIABLE, WORKERS).split(",")]
        epoch = str(partition.planned.part.epoch)
        here = {point: what for number, point, what in plan if number == epoch}
        marks = Path(f"{self._options.spool}.crashes")
        context = TaskContext.get()
        assert context is not None
        attempts = Path(f"{self._options.spool}.attempts")
        attempts.mkdir(exist_ok=True)
        (attempts / f"{epoch}-{partition.planned.part.part}-{context.taskAttemptId()}").touch()

        class Drain(QueueDrain):
            def __init__(self, options: SourceOptions, rows_max: int, bytes_max: int) -> None:
                super().__init__(options, rows_max, bytes_max)
                self._some = False

            def _pass(self, point: str) -> None:
                if self._some and point in here:
                    crash_once(marks, point, here[point])

            def receive(self, rows_max: int) -> Sequence[Received]:
                received = super().receive(rows_max)
                self._some = self._some or bool(received)
                self._pass("received")
                return received

            def settle(self, outcomes: Sequence[tuple[Received, Outcome]]) -> bool:
                self._pass("published")
                answered = super().settle(outcomes)
                self._pass("settled")
                return answered

        stream_module.QueueDrain = Drain  # type: ignore[misc]  # in this worker; the next task of it sets its own
        return super().read(partition)
