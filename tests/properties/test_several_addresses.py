"""Several queues in one query, under schedules of postings, deaths and restarts: each posting at each queue is one row,
in the order of its queue, and an epoch that is read again is the same whatever queue its parts are sent to now. And a
run that reads what is there now takes all of that, whatever comes in front of it meanwhile, and then ends.

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
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.protocol.message import Message
from acquit.spark.columns import MessageColumns
from acquit.spark.driver import Offset, PlannedPart, StreamDriver
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import FolderStore, Numbers, Outcome, Spool, attempt
from tests.support.examples import examples
from tests.support.queue_double import BROKER, DrainDouble, QueueDouble, posting

pytestmark = pytest.mark.promise("once-in-a-table")

NAMES = ("a", "b", "c")
SCHEMA = pa.schema([("queue", pa.string()), ("body", pa.binary())])
Row: TypeAlias = tuple[str, bytes]


class Died(Exception):
    """A task."""


class Mortal(DrainDouble):
    """A drain whose task dies at a point, or at none. One that is stuck keeps what it has until its link is gone."""

    def __init__(self, queue: QueueDouble, point: str, until: int | None, stuck: list[DrainDouble]) -> None:
        super().__init__(queue, until)
        self._point = point
        self._stuck = stuck

    def receive(self, rows_max: int) -> Sequence[bytes]:
        received = super().receive(rows_max)
        if received and self._point in ("drained", "stuck"):
            raise Died
        return received

    def detach(self) -> None:
        if self._point == "stuck":
            self._point = ""
            self._stuck.append(self)
        else:
            super().detach()

    def settle(self, outcomes: Mapping[Outcome, Numbers]) -> bool:
        if outcomes and self._point == "published":
            raise Died
        return super().settle(outcomes)


class World:
    """Queues, a query that reads them, and Spark's part in it."""

    def __init__(self, root: Path, *, tells: bool, parts: int, names: Sequence[str] = NAMES) -> None:
        self.root = root
        self.tells = tells
        self.queues = {name: QueueDouble(broker_id=BROKER if tells else None, order=self.place) for name in names}
        self.posted: list[Row] = []
        self.places: dict[bytes, tuple[int, int]] = {}
        """Of each body: its priority, negated, and its number. What is given back goes there."""
        self.stuck: list[DrainDouble] = []
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

    def older(self, address: str, until: int) -> bool:
        return bool(self.queues[address].older(until))

    def close(self) -> None:
        """Nothing to let go."""

    # What may happen.

    def place(self, payload: bytes) -> tuple[int, int]:
        body = Message.decode(payload).body
        assert isinstance(body, bytes)
        return self.places[body]

    def post(self, names: Sequence[str], priority: int = 4) -> None:
        """One message, at each of these queues: as a topic's subscriptions have it."""
        number = len(self.posted)
        for name in names:
            body = f"m{number}".encode()
            self.places[body] = (-priority, number)
            self.sequence += 1
            self.queues[name].post(posting(self.sequence if self.tells else 0, body, message_id=f"id-{number}"))
            self.posted.append((name, body))

    def restart(self, *, available_now: bool = False) -> None:
        self.release()
        self.driver = StreamDriver(self.options, Spool(FolderStore(self.root)), self, clock=lambda: self.now)
        self.workers = Spool(FolderStore(self.root))
        if available_now:
            self.driver.begin_available_now()

    def release(self) -> None:
        """The links of tasks that were stuck are gone."""
        for drain in self.stuck:
            drain.detach()
        self.stuck.clear()

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
        self.release()
        self.table += parts
        self.start, self.pending = self.pending, None
        return True

    def take(self, planned: PlannedPart, death: str) -> list[Row]:
        reader = MessageColumns(planned.address)
        queue, until = self.queues[planned.address], planned.only_until
        result = self.workers.take(planned.part, lambda: Mortal(queue, death, until, self.stuck), reader)
        rows = [
            (row["queue"], row["body"]) for batch in reader.select(result.batches, SCHEMA) for row in batch.to_pylist()
        ]
        assert self.seen.setdefault((planned.part.epoch, planned.part.part), rows) == rows, "another time, other rows"
        return rows


POSTS = st.tuples(
    st.just("post"),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True),
    st.sampled_from([4, 4, 0, 9]),
)
BATCHES = st.tuples(
    st.just("batch"),
    st.integers(1, 6),
    st.lists(st.sampled_from(["", "", "drained", "published", "stuck"]), max_size=4),
)
RESTARTS = st.tuples(st.just("restart"))


def play(world: World, step: tuple[object, ...], rows_max: int | None = None) -> None:
    match step:
        case ("post", list() as names, int() as priority):
            world.post(names, priority)
        case ("batch", int() as rows, list() as deaths):
            world.batch(rows if rows_max is None else rows_max, deaths)
        case _:
            world.restart()


@examples(20)
@given(st.booleans(), st.integers(1, 5), st.lists(st.one_of(POSTS, POSTS, BATCHES, RESTARTS), min_size=5, max_size=40))
def test_each_posting_at_each_queue_is_one_row_in_its_order(
    tells: bool, parts: int, steps: list[tuple[object, ...]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), tells=tells, parts=parts)
        for step in steps:
            play(world, step)
        world.restart(available_now=True)
        batches = 0
        while world.batch(6, ()):
            batches += 1
            assert batches <= len(world.posted) + 10, "it must end"
        assert Counter(row for part in world.table for row in part) == Counter(world.posted)
        for part in world.table:
            places = [world.places[body] for _, body in part]
            assert places == sorted(places) and len({queue for queue, _ in part}) <= 1
        assert not any(queue.available for queue in world.queues.values())


@examples(30)
@given(
    st.booleans(),
    st.integers(1, 5),
    st.integers(1, 6),
    st.sampled_from([1, 3, 1_000]),
    st.lists(st.one_of(POSTS, BATCHES), max_size=12),
    st.lists(st.one_of(POSTS, POSTS, POSTS, BATCHES), min_size=5, max_size=30),
)
def test_what_was_there_when_a_run_began_is_taken_and_then_it_ends(
    tells: bool,
    parts: int,
    rows_max: int,
    newer_max: int,
    before: list[tuple[object, ...]],
    during: list[tuple[object, ...]],
) -> None:
    """Of brokers that do not tell, queues are read until they were seen empty: so no task is stuck there then.
    Elsewhere one is in the first batch: who goes on for ever, for somebody may give something back, does not end."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempt, "NEWER_MAX", newer_max)
        world = World(Path(folder), tells=tells, parts=parts)
        for step in before:
            play(world, step, rows_max)
        world.restart(available_now=True)
        old, pending = Counter(world.posted), world.pending
        batches = 0
        while True:
            # What happens meanwhile: messages, some of them in front of all others, and deaths.
            more = during[batches * 3 : batches * 3 + 3]
            deaths: list[str] = []
            for step in more:
                match step:
                    case ("post", list() as names, int() as priority):
                        world.post(names, priority)
                    case ("batch", _, list() as points):
                        deaths = [point for point in points if point != "stuck" or (tells and not batches)]
            if not world.batch(rows_max, deaths):
                break
            batches += 1
            assert batches <= 2 * len(world.posted) + len(during) + 10, "it must end"
        rows = Counter(row for part in world.table for row in part)
        assert rows >= old and rows <= Counter(world.posted)
        if tells and pending is None:
            assert rows == old, "and nothing of what came later"
