"""What the audit asks of a Spark session, done in this process: its tasks without Spark, so that a run costs
milliseconds.

Each task gets its number as Spark would hand it over; blocks are grouped as Spark groups them, in an order of the
test's own. A task that was tried again, and of which nobody knows, can be played with `twice`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import SparkSession

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class PlainSession:
    """A session, as far as the audit needs one."""

    defaultParallelism = 2  # noqa: N815
    master = "local[2]"
    pythonExec = sys.executable  # noqa: N815

    def __init__(self, rng: random.Random | None = None, *, twice: bool = False) -> None:
        self.rng = rng if rng is not None else random.Random(1)
        self.twice = twice
        self.shuffled: list[pa.Table] = []
        """What was grouped."""
        self.properties: dict[str, str] = {}
        """Of the jobs of this thread."""

    @property
    def sparkContext(self) -> PlainSession:  # noqa: N802
        return self

    def setJobGroup(self, group: str, description: str) -> None:  # noqa: N802
        self.properties |= {"spark.jobGroup.id": group, "spark.job.description": description}
        self.properties["spark.job.interruptOnCancel"] = "false"

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802
        return self.properties.get(key)

    def setLocalProperty(self, key: str, value: str | None) -> None:  # noqa: N802
        self.properties.pop(key, None)
        if value is not None:
            self.properties[key] = value

    def statusTracker(self) -> PlainSession:  # noqa: N802
        return self

    def getJobIdsForGroup(self, group: str) -> list[int]:  # noqa: N802
        return []

    def range(self, start: int, end: int, step: int, partitions: int) -> Frame:
        ids = [pa.RecordBatch.from_pydict({"id": [number]}) for number in range(start, end, step)]
        assert len(ids) == partitions
        return Frame(self, lambda: iter(ids))

    def as_spark(self) -> SparkSession:
        return cast("SparkSession", self)


class Frame:
    """Batches, one for each task."""

    def __init__(self, session: PlainSession, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self._session = session
        self._batches = batches

    def mapInArrow(self, task: Batches, schema: object) -> Frame:  # noqa: N802
        def run() -> Iterator[pa.RecordBatch]:
            for batch in self._batches():
                if self._session.twice:
                    for _ in task(iter([batch])):
                        pass
                yield from task(iter([batch]))

        return Frame(self._session, run)

    def limit(self, rows: int) -> Frame:
        return Frame(self._session, lambda: iter(self.toArrow().slice(0, rows).to_batches()))

    def groupBy(self, column: str) -> Grouped:  # noqa: N802
        return Grouped(self._session, self.toArrow(), column)

    def toArrow(self) -> pa.Table:  # noqa: N802
        return pa.Table.from_batches(list(self._batches()))


class Grouped:
    """Groups, which come in any order, as their rows do."""

    def __init__(self, session: PlainSession, rows: pa.Table, column: str) -> None:
        self._session = session
        self._rows = rows
        self._column = column
        session.shuffled.append(rows)

    def applyInArrow(self, task: Callable[[pa.Table], pa.Table], schema: object) -> Any:  # noqa: N802
        groups: dict[int, list[int]] = {}
        for place, key in enumerate(self._rows[self._column].to_pylist()):
            groups.setdefault(key, []).append(place)
        keys = list(groups)
        self._session.rng.shuffle(keys)
        found = []
        for key in keys:
            self._session.rng.shuffle(groups[key])
            found.append(task(self._rows.take(groups[key])))
        whole = pa.concat_tables(found)
        return Frame(self._session, lambda: iter(whole.to_batches()))
