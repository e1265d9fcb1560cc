"""A system on one seed: a broker with its disk, a network, and programs; and what goes wrong with them.

The broker is the real one (`acquit.broker.server.Server`), and so is the client that programs use (`acquit.aio`). What
is simulated is the machine below them. Whatever is left to chance, in the system and in Python, is drawn from the seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Self, TypeVar

from acquit.broker.machine import Machine
from acquit.broker.options import BrokerOptions
from acquit.broker.server import Server
from acquit.errors import StoreFailed, StoreFull
from acquit.testing.simulation.disk import FaultyDisk
from acquit.testing.simulation.loops import START_S, Process, Scheduler, SimulatedWorker
from acquit.testing.simulation.network import Network, TcpConnection

if TYPE_CHECKING:
    from acquit.broker.inspect import BrokerSnapshot

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")

HOST: Final = "127.0.0.1"
PORT: Final = 5672
DATA: Final = Path("/simulated/acquit")
DOWN_S: Final = 0.5
"""The longest that a broker which has died is away."""
UP_S: Final = 60.0
"""Within which a broker is up."""


class Program(Generic[T_co]):
    """A program in a `Simulation`: a process with an event loop of its own. Made by `Simulation.start`."""

    def __init__(self, simulation: Simulation, name: str, main: Callable[[], Coroutine[object, None, T_co]]) -> None:
        self.name = name
        self._simulation = simulation
        self._main = main
        self.start()

    def start(self) -> None:
        """Begin it anew, as after `kill`: with nothing in memory of what it was."""
        self.process = self._simulation.process(self.name)
        self._task: asyncio.Task[T_co] = self.process.spawn(self._main())

    def kill(self) -> None:
        """SIGKILL: it does nothing any more, and its connections are closed by the machine."""
        self.process.kill()

    @property
    def done(self) -> bool:
        """True if the program has ended, by itself or because it was killed."""
        return self.process.dead or self._task.done()

    def result(self) -> T_co:
        """Return the program's result. Raises what it raised, or RuntimeError where it was killed or goes on."""
        if not self._task.done():
            raise RuntimeError(f"{self.name} {'was killed' if self.process.dead else 'has not ended'}")
        return self._task.result()

    @property
    def failure(self) -> BaseException | None:
        """Return the exception that the program raised, or None."""
        return self._task.exception() if self._task.done() and not self._task.cancelled() else None


class Simulation:
    """A broker, and programs that use it, in one thread and in virtual time: the same seed is the same run.

    `seed` (0): whatever is left to chance is drawn from it: which of two things comes first, how long the network
    takes, where a fault strikes, ``random``, ``uuid`` and ``os.urandom``. `options`: of the broker; None takes the
    defaults and a small journal. `within_s` (3,600): of virtual time, after which `run` and `wait` give up.

    A context manager: as it is entered the broker starts, and listens at `url`. Programs are coroutine functions that
    use `acquit.aio`; nobody waits for anything in real time. What is raised inside has a note that says which seed
    repeats it. It cannot run in a coroutine, and raises RuntimeError there. What blocks a thread (the blocking API,
    ``time.sleep``) and what reads ``time.time`` is not simulated.
    """

    url: Final = f"amqp://{HOST}:{PORT}"
    """URL of the broker for programs."""

    def __init__(self, seed: int = 0, *, options: BrokerOptions | None = None, within_s: float = 3_600.0) -> None:
        self.seed = seed
        self.within_s = within_s
        self.rng = random.Random(seed)
        """Generator for further random draws, of the same seed."""
        self.fault_rng = random.Random(self.rng.getrandbits(64))
        self.scheduler = Scheduler(random.Random(self.rng.getrandbits(64)))
        self.network = Network(self.scheduler)
        self.disk = FaultyDisk()
        self.options = (options or BrokerOptions()).with_small_journal()
        self.processes: list[Process] = []
        self.broker: Process | None = None
        self.server: Server
        self.power_fails = False
        """True if unsynced writes are lost when the broker dies next."""
        self.up = False
        """The broker takes connections."""
        self.faults: Counter[str] = Counter()
        """Number of times that each fault has struck (`trouble`)."""
        self.programs: list[Program[object]] = []
        """All that were begun."""
        self._trouble_until_s = -math.inf
        self._chance = seeded(seed)

    def __enter__(self) -> Self:
        if asyncio._get_running_loop() is not None:
            raise RuntimeError(
                "a Simulation has event loops of its own: use it in a plain function, not in a coroutine"
            )
        self._chance.__enter__()
        self.start_broker()
        self.scheduler.run_until(lambda: self.up, UP_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.dead = True
            process.bury()
        self._chance.__exit__(None, None, None)
        if exc is not None:
            exc.add_note(f"Simulation({self.seed}) repeats it, at {self.now_s:.3f} s, after {dict(self.faults)}")

    # -- time and programs ---------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Seconds since the beginning, in virtual time."""
        return self.scheduler.now

    def wall_us(self) -> int:
        """The time of day, as the broker sees it: microseconds since the epoch."""
        return int((START_S + self.scheduler.now) * 1_000_000)

    def process(self, name: str) -> Process:
        """Make a process without anything to do."""
        process = Process(self.scheduler, name)  # type: ignore[abstract]  # what it lacks raises NotImplementedError
        process.network = self.network
        self.processes.append(process)
        return process

    def start(
        self, program: Callable[P, Coroutine[object, None, T]], *arguments: P.args, **keywords: P.kwargs
    ) -> Program[T]:
        """Begin a program beside what runs: a call of it in a process of its own. It goes on in `run` and `wait`."""
        started = Program(self, program.__name__, lambda: program(*arguments, **keywords))
        self.programs.append(started)
        return started

    def run(self, program: Callable[P, Coroutine[object, None, T]], *arguments: P.args, **keywords: P.kwargs) -> T:
        """Run a program to its end and return what it returns; all others go on meanwhile. Raises as `wait` does."""
        started = self.start(program, *arguments, **keywords)
        self.wait(started)
        return started.result()

    def wait(self, *programs: Program[object]) -> None:
        """Go on until these have ended; without any, until all have.

        Raises what any program of the simulation raises, and TimeoutError after `within_s` of virtual time.
        """
        waited = programs or tuple(self.programs)
        if not self.scheduler.run_until(lambda: self._raised() or all(one.done for one in waited), self.within_s):
            going_on = ", ".join(one.name for one in waited if not one.done)
            raise TimeoutError(f"after {self.within_s:g} s of virtual time these go on: {going_on}")
        self._raise()

    def advance(self, seconds: float) -> None:
        """Go on for so long, in virtual time. Raises what a program raises meanwhile."""
        self.scheduler.run_until(self._raised, seconds)
        self._raise()

    def _raised(self) -> bool:
        return any(one.failure is not None for one in self.programs)

    def _raise(self) -> None:
        for one in self.programs:
            if one.failure is not None:
                one.result()

    def inspect(self) -> BrokerSnapshot:
        """Queues, connections and totals of the broker (as `acquit.Broker.inspect`)."""
        return self.server.inspect()

    # -- the broker ----------------------------------------------------------------------------------------------------

    def start_broker(self) -> None:
        """Start the broker as a new process; the one before has died."""
        process = self.broker = self.process(f"broker-{len(self.processes)}")
        process.on_death.append(self._broker_died)
        machine = Machine(
            disk=self.disk,
            wall_us=self.wall_us,
            steady_s=lambda: self.scheduler.now,
            make_worker=SimulatedWorker,
        )
        self.server = server = Server(DATA, self.options, host=HOST, port=PORT, machine=machine)

        async def serve() -> None:
            """Run the broker as the command does: one that cannot go on ends, and another process is started."""
            try:
                await server.start()
                self._has_started()
                self.up = True
                await server.wait()
            except (StoreFull, StoreFailed):
                if not self.disk.raised:
                    raise
                if self.up:
                    self.up = False
                    await server.stop()
            process.kill()

        _ = process.spawn(serve())

    def _has_started(self) -> None:
        """The broker is about to take connections."""

    def _broker_died(self) -> None:
        self.up = False
        self._replace_disk()
        self.scheduler.later(self.rng.random() * DOWN_S, self.start_broker)

    def _replace_disk(self) -> None:
        """Prepare the disk that the next broker finds."""
        before = self.disk
        before.dead = False
        power, self.power_fails = self.power_fails, False
        survives = lambda: self.rng.random() < 0.5  # noqa: E731
        self.disk = disk = before.after_power_loss(survives) if power else before.after_kill(survives)
        # What is wrong with it is still wrong with it.
        disk.capacity_bytes, disk.failing, disk.short_writes = (
            before.capacity_bytes,
            before.failing,
            before.short_writes,
        )

    def kill_broker(self, *, power: bool = False) -> None:
        """SIGKILL for the broker; with `power`, its machine goes down, and what was not synced may be lost. Another
        starts on its journal within half a second."""
        if self.broker is not None and not self.broker.dead:
            self.power_fails = self.power_fails or power
            self.broker.kill()

    def stop_broker(self) -> bool:
        """SIGTERM for the broker, and another starts on its journal. False where none is up."""
        broker = self.broker
        if broker is None or broker.dead or not self.up:
            return False
        self.up = False
        _ = broker.spawn(self.server.stop())
        return True

    # -- what goes wrong -----------------------------------------------------------------------------------------------

    def links(self, program: Program[object] | None = None) -> list[TcpConnection]:
        """The connections that stand, or those of one program."""
        found = [link for link in self.network.links if not link.over and not link.is_cut]
        return found if program is None else [link for link in found if link.client.process is program.process]

    def cut(self, program: Program[object] | None = None) -> int:
        """Lose all connections, or those of one program, and what is under way on them; each end hears of it, or finds
        out. Returns how many there were."""
        lost = self.links(program)
        for link in lost:
            link.cut(notices=self.fault_rng.choice(NOTICES))
        return len(lost)

    def trouble(self, seconds: float, *faults: str, every_s: float = 1.0) -> None:
        """Let faults strike for `seconds` from now on, one about every `every_s` seconds. `faults`: names of `FAULTS`;
        without any, all of them. Then all is well again. Raises KeyError for a name that is none."""
        names = faults or tuple(FAULTS)
        for name in names:
            if name not in FAULTS:
                raise KeyError(f"{name!r} is no fault: {', '.join(FAULTS)}")
        self._trouble_until_s = self.now_s + seconds
        self.scheduler.later(seconds, self.heal)
        self._await_trouble(names, every_s)

    def _await_trouble(self, names: tuple[str, ...], every_s: float) -> None:
        self.scheduler.later(self.fault_rng.expovariate(1 / every_s), self._harm, names, every_s)

    def _harm(self, names: tuple[str, ...], every_s: float) -> None:
        if self.now_s < self._trouble_until_s:
            name = self.fault_rng.choice(names)
            FAULTS[name](self)
            self.faults[name] += 1
            self._await_trouble(names, every_s)

    def heal(self) -> None:
        """End all faults of disk, network and processes."""
        weather, disk = self.network.weather, self.disk
        weather.jitter_s, weather.piece_bytes_max = 0.0, 1 << 20
        disk.power_loss_at = disk.failing = disk.short_writes = disk.capacity_bytes = None
        disk.sync_errors = disk.read_errors = 0
        disk.unopened = None
        disk.errors.clear()
        for process in self.processes:
            process.stands_still_until = 0.0
            process.delay_max_s = 0.002
            if process.ready and not process.dead:
                self.scheduler.activate(process)


def _kill(system: Simulation) -> None:
    system.kill_broker()


def _power(system: Simulation) -> None:
    system.kill_broker(power=True)


def _stop(system: Simulation) -> None:
    system.stop_broker()


def _cut(system: Simulation) -> None:
    links = system.links()
    if links:
        system.fault_rng.choice(links).cut(notices=system.fault_rng.choice(NOTICES))


def _stall(system: Simulation) -> None:
    links = system.links()
    if links:
        link = system.fault_rng.choice(links)
        system.fault_rng.choice((link.client, link.server)).out.hold(system.fault_rng.choice((0.05, 0.5, 5.0)))


def _weather(system: Simulation) -> None:
    weather = system.network.weather
    weather.jitter_s = system.fault_rng.choice((0.0, 0.001, 0.02, 0.2))
    weather.piece_bytes_max = system.fault_rng.choice((1 << 20, 1_000, 40))


def _stand_still(system: Simulation) -> None:
    process = system.fault_rng.choice([one for one in system.processes if not one.dead] or [None])
    if process is not None:
        process.stands_still_until = system.now_s + system.fault_rng.choice((0.05, 0.5, 3.0))


def _slow_disk(system: Simulation) -> None:
    if system.broker is not None:
        system.broker.delay_max_s = system.fault_rng.choice((0.05, 0.5))


def _full_disk(system: Simulation) -> None:
    system.disk.capacity_bytes = system.disk.used_bytes + system.fault_rng.choice((0, 30_000))
    system.scheduler.later(system.fault_rng.random() * 2, lambda: setattr(system.disk, "capacity_bytes", None))


NOTICES: Final = ((True, True), (True, False), (False, True), (False, False))
"""Ends that hear at once of a cut connection: the client, and the broker."""

FAULTS: Final[dict[str, Callable[[Simulation], None]]] = {
    "kill": _kill,
    "power": _power,
    "stop": _stop,
    "cut": _cut,
    "stall": _stall,
    "weather": _weather,
    "stand_still": _stand_still,
    "slow_disk": _slow_disk,
    "full_disk": _full_disk,
}
"""Faults of `Simulation.trouble`: the broker is killed, loses its power, is stopped; a connection is cut, or holds
everything up; the network is slow and splits what is sent; a process stands still; the disk is slow, or full."""


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Feed every source of chance in this process from a seed."""
    chance = random.Random(seed)
    real, state = random.Random, random.getstate()

    class Seeded(real):  # type: ignore[misc, valid-type]
        def __init__(self, of: Any = None) -> None:
            super().__init__(chance.getrandbits(64) if of is None else of)

    saved: list[tuple[Any, str, Any]] = [
        (os, "urandom", os.urandom),
        (random, "_urandom", os.urandom),
        (random, "Random", real),
    ]
    os.urandom = random._urandom = chance.randbytes  # type: ignore[attr-defined]
    random.Random = Seeded  # type: ignore[assignment, misc]
    random.seed(seed)
    try:
        yield
    finally:
        for module, name, value in saved:
            setattr(module, name, value)
        random.setstate(state)


__all__ = ["FAULTS", "Program", "Simulation"]
