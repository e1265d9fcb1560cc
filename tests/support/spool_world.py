"""A small world around the real spool code: a store with moods, a broker that restarts, and a Spark that kills.

`World.run` plays one schedule: messages lie in a queue, a driver cuts them into batches of two parts, tasks read the
parts through `acquit.spark.spool`, and a sink keeps each batch once. All of it runs in turns (`tests.support.baton`),
and between any two touches of store or broker the seed may stall a task and start a copy, kill a task, kill the driver
or leave it behind as a zombie, restart the broker, lose an answer, or let a write of the store end in doubt.

At the end the world is asked what became of every message. `Faults` says which moods it has.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

import pyarrow as pa

from acquit.errors import SpoolError, SpoolFenced
from acquit.protocol.message import Message
from acquit.protocol.types import ULong
from acquit.spark.columns import MessageColumns
from acquit.spark.spool import Numbers, Outcome, Part, Poison, RetentionOptions, Spool, SpoolStore, StoreDoubt
from tests.support.baton import Actor, Killed
from tests.support.queue_double import plain

BROKER: Final = UUID("6f5c1b1e-6d0e-4f5b-9d43-4b8a55d6a2c1")
QUERY: Final = "3f0f4f52-54f4-4f0e-8a57-2f6a0c6f0001"
PARTS: Final = 2
RETENTION_MS: Final = 7 * 24 * 3600 * 1000
STEPS_MAX: Final = 20_000
BATCHES_MAX: Final = 2_000
BUSY_EPOCHS: Final = 12


@dataclass(frozen=True, kw_only=True)
class Faults:
    """How likely, at each turn, something goes wrong; 0 for never."""

    broker_restarts: float = 0
    stalls: float = 0
    """A task hangs and a copy is started; it goes on when it pleases, or after everything else."""
    task_kills: float = 0
    driver_kills: float = 0
    lost_answers: float = 0
    """A settlement is taken, and the answer does not arrive."""
    store_doubts: float = 0
    lost_requests: float = 0
    """As in an object store behind a network: any verb may fail and yet happen, now or much later, and a write that
    succeeded at the second try may happen once more when its first arrives."""
    poison: float = 0
    """Share of messages that cannot be parsed; they are to be rejected."""
    foreign: bool = False
    """The broker is not ours: identity is the message-id."""
    forgetting: bool = False
    """Days pass between turns, so that identities are forgotten."""


class Account(NamedTuple):
    """What must not be."""

    lost: list[str]
    """Accepted, and not in the table."""
    doubled: list[str]
    """In the table more than once, without retention having let go of it in between."""
    wrong_outcomes: list[str]
    """Settled twice, or poison that was accepted, or a good message that was rejected."""
    disagreements: list[str]
    """Parts whose rows depended on which attempt read them."""


@lru_cache(maxsize=1024)
def _payload(number: int, poison: bool, foreign: bool) -> bytes:
    body, name = f"m{number}".encode(), f"id-{number}"
    if number % 2 and not foreign:
        payload = plain(number + 1, body, message_id=name)
    else:
        annotations = {} if foreign else {"x-opt-acquit-sequence": ULong(number + 1)}
        payload = Message(body, message_id=name, annotations=annotations).encode()
    # A body that says it is longer than the message.
    return payload[:-4] + b"\xa0\x77" + payload[-2:] if poison else payload


@dataclass
class _Message:
    number: int
    payload: bytes
    poison: bool
    link: _Link | None = None
    outcomes: list[Outcome] = field(default_factory=list)


class _Link:
    """One attached receiver: the drain of one task."""

    def __init__(self, world: World, actor: Actor[object]) -> None:
        self._world = world
        self._actor = actor
        self._given: list[_Message] = []
        self.lost = False
        self.exhausted = False
        self.broker_id = None if world.faults.foreign else BROKER
        world.links.append(self)

    def receive(self, rows_max: int) -> Sequence[bytes]:
        self._actor.pause()
        if self.lost:
            self.exhausted = False
            return []
        found = [message for message in self._world.queue if message.link is None and not message.outcomes][:rows_max]
        found = found[: self._world.rng.randint(1, rows_max)]
        for message in found:
            message.link = self
        self._given += found
        self.exhausted = not found
        return [message.payload for message in found]

    def settle(self, outcomes: Mapping[Outcome, Numbers]) -> bool:
        # One turn for each: a restart may come in the middle.
        for outcome, number in [(outcome, one) for outcome, numbers in outcomes.items() for one in numbers]:
            self._actor.pause()
            message = self._given[number]
            if not self.lost:
                assert message.link is self
                message.outcomes.append(outcome)
                message.link = None
        return not self.lost and self._world.rng.random() >= self._world.faults.lost_answers

    def detach(self) -> None:
        if not self._actor.killed:
            self.lose()

    def lose(self) -> None:
        """Everything unsettled goes back to its place."""
        self.lost = True
        for message in self._world.queue:
            if message.link is self:
                message.link = None


class _Store:
    """The view that one process has of the world's files."""

    place = "model"

    def __init__(self, world: World) -> None:
        self._world = world
        self.actor: Actor[object] | None = None

    def _turn(self) -> None:
        assert self.actor is not None
        self.actor.pause()

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self._turn()
        files, rng = self._world.files, self._world.rng
        if self._loses():
            if name in files:
                raise StoreDoubt("no answer, and another's file was there")
            self._write_some_time(name, data)
            raise StoreDoubt("no answer")
        if rng.random() < self._world.faults.store_doubts:
            kind = rng.randrange(4)
            if kind == 0:
                raise StoreDoubt("no answer, and nothing happened")
            if kind == 1:
                self._world.in_flight.append((name, data))
                raise StoreDoubt("no answer, and it may happen later")
            files.setdefault(name, data)
            if kind == 2:
                raise StoreDoubt("no answer, and it happened")
            return False  # refused by its own first try
        return files.setdefault(name, data) is data

    def put(self, name: str, *pieces: bytes | memoryview, durable: bool = True) -> None:
        self._turn()
        assert name not in self._world.files
        data = b"".join(pieces)
        if self._loses():
            self._write_some_time(name, data)
            raise SpoolError("no answer to a PUT")
        self._world.files[name] = data
        if self._loses():
            self._world.in_flight.append((name, data))

    def get(self, name: str) -> bytes | None:
        self._turn()
        if self._loses():
            raise SpoolError("no answer to a GET")
        return self._world.files.get(name)

    def view(self, name: str) -> memoryview | None:
        data = self.get(name)
        return None if data is None else memoryview(data)

    def names(self, folder: str) -> list[str]:
        """What was there all the time is listed; what came or went meanwhile may be or not."""
        before = self._listing(folder)
        self._turn()
        if self._loses():
            raise SpoolError("no answer to a LIST")
        after = self._listing(folder)
        return [name for name in sorted(before | after) if name in before & after or self._world.rng.random() < 0.5]

    def sizes(self, folder: str) -> dict[str, int]:
        return {name: len(self._world.files.get(f"{folder}/{name}", b"")) for name in self.names(folder)}

    def remove(self, name: str) -> None:
        self._turn()
        if self._loses():
            if self._world.rng.random() < 0.5:
                self._world.files.pop(name, None)
            else:
                self._world.in_flight.append((name, None))
            raise SpoolError("no answer to a DELETE")
        self._world.files.pop(name, None)

    def _loses(self) -> bool:
        likely = self._world.faults.lost_requests
        return likely > 0 and self._world.rng.random() < likely

    def _write_some_time(self, name: str, data: bytes) -> None:
        """Never, now, or later."""
        match self._world.rng.randrange(3):
            case 0:
                self._world.files.setdefault(name, data)
            case 1:
                self._world.in_flight.append((name, data))

    def sync(self, folder: str) -> None:
        self._turn()

    def _listing(self, folder: str) -> set[str]:
        return {name.rpartition("/")[2] for name in self._world.files if name.rpartition("/")[0] == folder}


class Process:
    """A Python process with its own memory of the log; runs one actor at a time."""

    def __init__(self, world: World) -> None:
        self.store = _Store(world)
        store: SpoolStore = self.store
        self.spool = Spool(store, world.retention, now_ms=lambda: world.now_ms)


@dataclass
class _Task:
    epoch: int
    part: int
    process: Process
    actor: Actor[list[str]]


class World:
    """One schedule. Same seed, same schedule."""

    def __init__(self, seed: int, faults: Faults, *, messages: int = 8, process: type[Process] = Process) -> None:
        self.rng = random.Random(seed)
        self.faults = faults
        self.files: dict[str, bytes] = {}
        self.in_flight: list[tuple[str, bytes | None]] = []
        """Writes that will happen some time, and deletions (None)."""
        self.links: list[_Link] = []
        self.now_ms = 1_000_000_000
        # Checkpoints all the time, so that holes in the log are as common as everything else.
        self.retention = RetentionOptions(identity_retention_ms=RETENTION_MS, checkpoint_entries=3)
        self.queue = [self._message(number) for number in range(messages)]
        self.table: dict[int, list[list[str]]] = {}
        self.disagreements: list[str] = []
        self._process = process
        self._idle: list[Process] = []
        self._tasks: list[_Task] = []
        self._zombies: list[_Task | Actor[object]] = []
        self._batches = 0
        self._offsets = 0
        self._commits = 0
        self._plan: str | None = None
        self._epoch = 0
        self._results: dict[tuple[int, int], list[str]] = {}
        self._failed = False
        self._written_at_ms: dict[tuple[int, int], int] = {}
        self._answers: dict[tuple[int, int], list[str]] = {}

    def _message(self, number: int) -> _Message:
        poison = self.rng.random() < self.faults.poison
        return _Message(number, _payload(number, poison, self.faults.foreign), poison)

    # -- the schedule -------------------------------------------------------------------------------------------------

    def run(self) -> World:
        """Play until every message is settled, wake whoever was left behind, and let a last, calm run find the rest."""
        try:
            while not self._settled():
                self._run_driver()
            while self._zombies:
                self._disturb()
                self._advance(self.rng.choice(self._zombies))
            # Connections end with their processes.
            for link in self.links:
                link.lose()
            self.faults = replace(
                self.faults,
                broker_restarts=0,
                stalls=0,
                task_kills=0,
                driver_kills=0,
                lost_answers=0,
                store_doubts=0,
                lost_requests=0,
            )
            self._run_driver()
            while not self._settled():
                self._run_driver()
            return self
        finally:
            for left in (*self._tasks, *self._zombies):
                (left.actor if isinstance(left, _Task) else left).kill()

    def _settled(self) -> bool:
        self._batches += 1
        assert self._batches < BATCHES_MAX, "the world does not come to rest"
        return all(message.outcomes for message in self.queue)

    def _run_driver(self) -> None:
        """One driver, for one batch after another until it is killed or the queue is empty."""
        first = True
        while True:
            epoch = self._commits + 1
            replay = first and self._offsets == epoch
            self._offsets = epoch
            self._plan = None
            driver = self._start_driver(epoch, tidy=not replay)
            if not self._play_batch(epoch, driver):
                return
            first = False
            if self.rng.random() < self.faults.driver_kills * 5:
                return  # after the sink, before the commit log
            self._commits = epoch
            if self._settled():
                return

    def _start_driver(self, epoch: int, *, tidy: bool) -> Actor[object]:
        process = self._take_process()

        def work(actor: Actor[object]) -> None:
            process.store.actor = actor
            if tidy and epoch > 1:
                process.spool.finish(epoch - 1)
            plan = process.spool.plan(epoch)
            if self._epoch == epoch and actor is self._driver:
                self._plan = plan
            self._idle.append(process)

        self._epoch = epoch
        self._driver: Actor[object] = Actor(f"driver-{epoch}", work)
        return self._driver

    def _play_batch(self, epoch: int, driver: Actor[object]) -> bool:
        """False when the driver was killed before the sink had the batch."""
        self._results = {}
        self._failed = False
        for _ in range(STEPS_MAX):
            if self._failed:
                self._leave_behind()
                return False
            if self._plan is not None:
                running = {task.part for task in self._tasks}
                for part in range(PARTS):
                    if (epoch, part) not in self._results and part not in running:
                        self._tasks.append(self._start_task(epoch, part))
            if all((epoch, part) in self._results for part in range(PARTS)):
                self._commit_to_sink(epoch)
                self._leave_behind()
                return True
            self._disturb()
            if self.rng.random() < self.faults.driver_kills * 0.1:
                if not driver.finished:
                    self._left_driver(driver)
                self._leave_behind()
                return False
            self._turn(driver, epoch)
        raise AssertionError("the batch does not end")

    def _turn(self, driver: Actor[object], epoch: int) -> None:
        runnable: list[_Task | Actor[object]] = list(self._tasks)
        if not driver.finished:
            runnable.append(driver)
        # A queue that is empty because they hold everything is no place to wait for long.
        if self._zombies and (not runnable or self.rng.random() < (0.5 if epoch > BUSY_EPOCHS else 0.05)):
            runnable = self._zombies
        self._advance(self.rng.choice(runnable))

    def _advance(self, one: _Task | Actor[object]) -> None:
        actor = one.actor if isinstance(one, _Task) else one
        actor.advance()
        if actor.finished:
            if one in self._zombies:
                self._zombies.remove(one)
            if isinstance(one, _Task):
                self._ended(one)
            elif isinstance(actor.error, SpoolError) and self.faults.lost_requests:
                self._failed = self._failed or actor is self._driver  # the query ends with an error, and is restarted
            elif actor.error is not None and not isinstance(actor.error, Killed):
                raise actor.error
        elif isinstance(one, _Task) and one in self._tasks:
            self._maybe_stall(one)

    def _maybe_stall(self, task: _Task) -> None:
        if self.rng.random() < self.faults.task_kills:
            task.actor.kill()
            self._tasks.remove(task)
            # The connection dies with the process; its answers in flight do not count.
            for link in self.links:
                if link._actor is task.actor:
                    link.lose()
        elif self.rng.random() < self.faults.stalls and len(self._zombies) < 3:
            self._tasks.remove(task)
            self._zombies.append(task)

    def _disturb(self) -> None:
        rng = self.rng
        if rng.random() < self.faults.broker_restarts:
            for link in self.links:
                link.lose()
        while self.in_flight and rng.random() < 0.1:
            name, data = self.in_flight.pop(rng.randrange(len(self.in_flight)))
            if data is None:
                self.files.pop(name, None)
            else:
                self.files.setdefault(name, data)
        if self.faults.forgetting and rng.random() < 0.05:
            self.now_ms += rng.randrange(RETENTION_MS)

    # -- tasks --------------------------------------------------------------------------------------------------------

    def _take_process(self) -> Process:
        """Workers are pooled: mostly one that has read the log before."""
        if self._idle and self.rng.random() < 0.7:
            return self._idle.pop(self.rng.randrange(len(self._idle)))
        return self._process(self)

    def _start_task(self, epoch: int, part: int) -> _Task:
        process = self._take_process()
        plan = self._plan
        assert plan is not None

        def work(actor: Actor[list[str]]) -> list[str]:
            process.store.actor = actor  # type: ignore[assignment]  # an actor of another result type
            process.spool.claim(QUERY)
            process.spool.check_plan(epoch, plan)
            reader = MessageColumns("queue")
            job = Part(epoch=epoch, part=part, rows_max=2, bytes_max=1 << 20, poison=Poison.REJECT)
            result = process.spool.take(job, lambda: _Link(self, actor), reader)  # type: ignore[arg-type]
            rows = [body.decode() for batch in result.batches for body in _bodies(batch)]
            self._written_at_ms[epoch, part] = result.publication.written_at_ms
            return rows

        return _Task(epoch, part, process, Actor(f"task-{epoch}-{part}", work))

    def _ended(self, task: _Task) -> None:
        key = (task.epoch, task.part)
        current = task in self._tasks
        if current:
            self._tasks.remove(task)
        self._idle.append(task.process)
        error = task.actor.error
        if error is None:
            assert task.actor.result is not None
            if self._answers.setdefault(key, task.actor.result) != task.actor.result:
                self.disagreements.append(f"two attempts at epoch {task.epoch} part {task.part} gave different rows")
            if task.epoch == self._epoch:
                self._results.setdefault(key, task.actor.result)
        elif isinstance(error, AssertionError):
            raise error
        elif current and isinstance(error, SpoolFenced):
            raise AssertionError("a current task was refused") from error
        # Any other error: Spark tries again, as for a task that was killed.

    def _commit_to_sink(self, epoch: int) -> None:
        self.table.setdefault(epoch, [self._results[epoch, part] for part in range(PARTS)])

    def _leave_behind(self) -> None:
        """What runs on when its batch has ended, or its driver has died."""
        self._zombies += self._tasks
        self._tasks = []

    def _left_driver(self, driver: Actor[object]) -> None:
        if self.rng.random() < 0.5:
            driver.kill()
        else:
            self._zombies.append(driver)

    # -- the account --------------------------------------------------------------------------------------------------

    def rows(self) -> Counter[str]:
        """How often each message is in the table."""
        return Counter(row for parts in self.table.values() for rows in parts for row in rows)

    def account(self) -> Account:
        """What became of every message; all empty if the promise was kept."""
        return Account(self._lost(), self._doubled(), self._wrong_outcomes(), self.disagreements)

    def _lost(self) -> list[str]:
        rows = self.rows()
        return [
            f"m{message.number}"
            for message in self.queue
            if Outcome.ACCEPTED in message.outcomes and f"m{message.number}" not in rows
        ]

    def _doubled(self) -> list[str]:
        return [
            row
            for row, count in self.rows().items()
            if count > 1 and not (self.faults.forgetting and self._was_forgotten(row))
        ]

    def _wrong_outcomes(self) -> list[str]:
        return [
            f"m{message.number}: {message.outcomes}"
            for message in self.queue
            if message.outcomes != [Outcome.REJECTED if message.poison else Outcome.ACCEPTED]
        ]

    def _was_forgotten(self, row: str) -> bool:
        times = [
            self._written_at_ms[epoch, part]
            for epoch, parts in self.table.items()
            for part, rows in enumerate(parts)
            for found in rows
            if found == row
        ]
        return max(times) - min(times) > RETENTION_MS


def _bodies(batch: pa.RecordBatch) -> list[bytes]:
    bodies: list[bytes] = batch.column("body").to_pylist()
    return bodies
