"""The source `acquit` with workers that kill themselves at named points, each point once.

Register `CrashingSource` and read the format ``acquit_crashing``; the option `spool` also says where the marks of the
points that have been passed lie (``SPOOL.crashes``). Points, in the order of `acquit.spark.spool.attempt`:

received    messages are held, nothing is published
published   the entry is in the log, nothing is settled
settled     the broker has its answers, no row has been yielded
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from acquit.spark import source as source_module
from acquit.spark.link import QueueDrain
from acquit.spark.options import SourceOptions
from acquit.spark.source import AcquitDataSource, AcquitPartition, AcquitStreamReader
from acquit.spark.spool import Outcome, Received

POINTS = ("received", "published", "settled")


def crash_once(marks: Path, point: str) -> None:
    """Kill this process, unless a process has been killed here before."""
    marks.mkdir(exist_ok=True)
    try:
        (marks / point).touch(exist_ok=False)
    except FileExistsError:
        return
    _die()


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


class CrashingSource(AcquitDataSource):
    """As its base, with readers that crash in epochs 1, 2 and 3."""

    @classmethod
    def name(cls) -> str:
        return "acquit_crashing"

    def streamReader(self, schema: StructType) -> AcquitStreamReader:  # noqa: N802
        return _CrashingReader(self._parsed, schema)


class _CrashingReader(AcquitStreamReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, AcquitPartition)
        epoch = partition.planned.part.epoch
        point = POINTS[epoch - 1] if epoch <= len(POINTS) else ""
        marks = Path(f"{self._options.spool}.crashes")

        class Drain(QueueDrain):
            def __init__(self, options: SourceOptions, rows_max: int, bytes_max: int) -> None:
                super().__init__(options, rows_max, bytes_max)
                self._some = False

            def receive(self, rows_max: int) -> Sequence[Received]:
                received = super().receive(rows_max)
                self._some = self._some or bool(received)
                if self._some and point == "received":
                    crash_once(marks, point)
                return received

            def settle(self, outcomes: Sequence[tuple[Received, Outcome]]) -> bool:
                if outcomes and point == "published":
                    crash_once(marks, point)
                answered = super().settle(outcomes)
                if outcomes and point == "settled":
                    crash_once(marks, point)
                return answered

        source_module.QueueDrain = Drain  # type: ignore[misc]  # in this worker; the next task of it sets its own
        return super().read(partition)
