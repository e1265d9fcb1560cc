"""Several queues in one query, under schedules of postings, deaths and restarts: each posting at each queue is one row,
in the order of its queue, and an epoch that is read again is the same whatever queue its parts are sent to now.

What crashes, copies and sleepers can do to the spool itself is played in `test_spool_model`; here it is the driver that
is tried, who may send each attempt at a part to another queue.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.spark.columns import MessageColumns
from acquit.spark.driver import Driver, Offset, PlannedPart
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import FolderStore, Outcome, Received, Spool
from tests.support.queue_double import BROKER, DrainDouble, QueueDouble, posting

NAMES = ("a", "b", "c")
SCHEMA = pa.schema([("queue", pa.string()), ("body", pa.binary())])
Row: TypeAlias = tuple[str, bytes]


class Died(Exception):
    """A task."""


class Mortal(DrainDouble):
    """A drain whose task dies at a point, or at none."""

    def __init__(self, queue: QueueDouble, point: str) -> None:
        super().__init__(queue)
        self._point = point

    def receive(self, rows_max: int) -> Sequence[Received]:
        received = super().receive(rows_max)
        if received and self._point == "drained":
            raise Died
        return received

    def settle(self, outcomes: Mapping[Outcome, Sequence[Received]]) -> bool:
        if outcomes and self._point == "published":
            raise Died
        return super().settle(outcomes)


class World:
    """Queues, a query that reads them, and Spark's part in it."""

    def __init__(self, root: Path, *, tells: bool, parts: int, names: Sequence[str] = NAMES) -> None:
        self.root = root
        self.tells = tells
        self.queues = {name: QueueDouble(broker_id=BROKER if tells else None) for name in names}
        self.posted: list[Row] = []
        self.sequence = 0
        self.now = 0.0
        self.options = SourceOptions.parse(
            {"url": "amqp://h", "addresses": ",".join(names), "spool": str(root), "parts": str(parts)}
        )
        self.start: Offset = {"epoch": 0, "parts": parts}
        self.pending: Offset | None = None
        self.seen: dict[tuple[int, int], list[Row]] = {}
        self.table: list[list[Row]] = []
        self.restart()

    # The driver's probe.

    def available(self, address: str) -> int | None:
        return len(self.queues[address].available) if self.tells else None

    def last_sequence(self) -> int | None:
        return self.sequence if self.tells else None

    def close(self) -> None:
        """Nothing to let go."""

    # What may happen.

    def post(self, names: Sequence[str]) -> None:
        """One message, at each of these queues: as a topic's subscriptions have it."""
        number = len(self.posted)
        for name in names:
            body = f"m{number}".encode()
            self.sequence += 1
            self.queues[name].post(posting(self.sequence if self.tells else 0, body, message_id=f"id-{number}"))
            self.posted.append((name, body))

    def restart(self, *, available_now: bool = False) -> None:
        self.driver = Driver(self.options, Spool(FolderStore(self.root)), self, clock=lambda: self.now)
        self.workers = Spool(FolderStore(self.root))
        if available_now:
            self.driver.begin_available_now()

    def batch(self, rows_max: int, deaths: Sequence[str]) -> bool:
        """A batch, or the one that is pending again, up to the first task that dies. False when there was nothing."""
        self.now += 10
        if self.pending is None:
            end = self.driver.latest_offset(self.start, rows_max)
            if end == self.start:
                return False
            self.driver.commit(self.start)
            self.pending = end
        parts = []
        for number, planned in enumerate(self.driver.partitions(self.start, self.pending)):
            try:
                parts.append(self.take(planned, deaths[number] if number < len(deaths) else ""))
            except Died:
                return True
        self.table += parts
        self.start, self.pending = self.pending, None
        return True

    def take(self, planned: PlannedPart, death: str) -> list[Row]:
        reader = MessageColumns(planned.address)
        result = self.workers.take(planned.part, lambda: Mortal(self.queues[planned.address], death), reader)
        rows = [
            (row["queue"], row["body"]) for batch in reader.select(result.batches, SCHEMA) for row in batch.to_pylist()
        ]
        assert self.seen.setdefault((planned.part.epoch, planned.part.part), rows) == rows, "another time, other rows"
        return rows


POSTS = st.tuples(st.just("post"), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
BATCHES = st.tuples(
    st.just("batch"),
    st.integers(1, 6),
    st.lists(st.sampled_from(["", "", "drained", "published"]), max_size=4),
)
RESTARTS = st.tuples(st.just("restart"))


@settings(max_examples=60, deadline=None)
@given(st.booleans(), st.integers(1, 5), st.lists(st.one_of(POSTS, POSTS, BATCHES, RESTARTS), min_size=5, max_size=40))
def test_each_posting_at_each_queue_is_one_row_in_its_order(
    tells: bool, parts: int, steps: list[tuple[object, ...]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), tells=tells, parts=parts)
        for step in steps:
            match step:
                case ("post", list() as names):
                    world.post(names)
                case ("batch", int() as rows_max, list() as deaths):
                    world.batch(rows_max, deaths)
                case _:
                    world.restart()
        world.restart(available_now=True)
        batches = 0
        while world.batch(6, ()):
            batches += 1
            assert batches <= len(world.posted) + 10, "it must end"
        assert Counter(row for part in world.table for row in part) == Counter(world.posted)
        order = {row: number for number, row in enumerate(world.posted)}
        for part in world.table:
            numbers = [order[row] for row in part]
            assert numbers == sorted(numbers) and len({queue for queue, _ in part}) <= 1
        assert not any(queue.available for queue in world.queues.values())
