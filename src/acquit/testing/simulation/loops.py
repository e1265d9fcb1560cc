"""Virtual time, and processes that live in it: event loops of which one runs at a time, in an order that a seed draws.

A `Scheduler` owns the time and everything that is due. A `Process` is an event loop for asyncio that has no selector,
no thread and no clock of its own. What is due now runs in *turns*, as in asyncio's own loop; which process has the next
turn is drawn. When nobody has anything to do, the time moves on to what is due next. So a minute in which little
happens costs nothing, a run is repeated exactly by its seed, and a process can be killed between any two of its turns,
or stand still while others go on.

A job for a thread (`run_in_executor`, `Worker`) is due a drawn time later, and runs in one piece then: what matters of
threads here is when they are done, and what the disk does meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from random import Random
from typing import Any

from acquit.broker.machine import Job
from acquit.testing.simulation.disk import PowerLoss

TURN_S = 0.000_02
"""Seconds that a turn takes, so that time passes for processes that never wait."""
START_S = 1_700_000_000.0


class Handle:
    """A call that is due, or will be (as asyncio's Handle and TimerHandle)."""

    __slots__ = ("_arguments", "_call", "_cancelled", "_context", "_when")

    def __init__(
        self, call: Callable[..., object], arguments: tuple[Any, ...], context: contextvars.Context | None, when: float
    ) -> None:
        self._call = call
        self._arguments = arguments
        self._context = context if context is not None else contextvars.copy_context()
        self._when = when
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when

    def run(self) -> None:
        if not self._cancelled:
            self._context.run(self._call, *self._arguments)


class Scheduler:
    """The time, and what is due."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.now = 0.0
        self.turns = 0
        self.calls = 0
        self.failures: list[BaseException | str] = []
        """Failures that no process should have: exceptions that nobody catches."""
        self.watches: list[Callable[[], bool]] = []
        """Asked after each turn, until they say True."""
        self._due: list[tuple[float, int, Process | None, Handle]] = []
        self._number = 0
        self._active: list[Process] = []

    def at(self, when: float, process: Process | None, handle: Handle) -> None:
        """Schedule a call at a time. A call without a process is the world's: it runs at once when it is due."""
        self._number += 1
        heapq.heappush(self._due, (when, self._number, process, handle))

    def later(self, delay_s: float, call: Callable[..., object], *arguments: object) -> Handle:
        """Schedule a call of the world after a delay."""
        handle = Handle(call, arguments, None, self.now + delay_s)
        self.at(handle.when(), None, handle)
        return handle

    def activate(self, process: Process) -> None:
        """The process has something to do."""
        if not process.active:
            process.active = True
            self._active.append(process)

    def step(self) -> bool:
        """Perform one turn of one process. False where no process will ever have one again."""
        due = self._due
        if not self._active:
            if not due:
                return False
            self.now = max(self.now, due[0][0])
        while due and due[0][0] <= self.now:
            _, _, process, handle = heapq.heappop(due)
            if process is None:
                self.calls += 1
                handle.run()
            elif not process.dead and not handle._cancelled:
                process.ready.append(handle)
                self.activate(process)
        active = self._active
        if active:
            at = int(self.rng.random() * len(active))
            process = active[at]
            active[at] = active[-1]
            active.pop()
            process.active = False
            if self.now < process.stands_still_until:
                self.at(process.stands_still_until, None, Handle(self.activate, (process,), None, 0.0))
            else:
                self.turns += 1
                self.now += TURN_S
                process.turn()
                if self.watches:
                    self.watches = [watch for watch in self.watches if not watch()]
                if process.ready:
                    self.activate(process)
        return True

    def run_until(self, done: Callable[[], bool], within_s: float) -> bool:
        """Go on until this is so; False where it was not within so much (virtual) time."""
        end = self.now + within_s
        while not done():
            if self.now > end or not self.step():
                return False
            if self.failures:
                raise self._failure()
        return True

    def run_for(self, seconds: float) -> None:
        """Go on for so long."""
        self.run_until(lambda: False, seconds)

    def _failure(self) -> BaseException:
        first = self.failures[0]
        return first if isinstance(first, BaseException) else AssertionError(first)


class Process(asyncio.AbstractEventLoop):
    """An event loop in virtual time. `kill` ends it as SIGKILL would: nothing of it runs any more.

    Its methods take what those of asyncio's own loops take, without tying a callback's parameters to its arguments.
    """

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.scheduler = scheduler
        self.name = name
        self.ready: deque[Handle] = deque()
        self.active = False
        self.dead = False
        self.stands_still_until = 0.0
        self.on_death: list[Callable[[], None]] = []
        """Called when it is killed: what the machine does for a process that is gone, its sockets closed above all."""
        self.network: Any = None
        self.delay_max_s = 0.002
        """Longest delay of a job for a thread."""
        self.busy_until = 0.0
        """Time when the last of the jobs that were begun ends."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._readers: dict[int, tuple[Any, tuple[Any, ...]]] = {}

    # -- for the world -------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Run what is ready now; what that makes ready waits for the next turn."""
        scheduler = self.scheduler
        asyncio._set_running_loop(self)
        try:
            for _ in range(len(self.ready)):
                scheduler.calls += 1
                try:
                    self.ready.popleft().run()
                except PowerLoss:
                    self.kill()
                except BaseException as why:  # noqa: BLE001  # whatever nobody has caught, a cancellation included
                    if not self.dead:
                        scheduler.failures.append(why)
                if self.dead:
                    return
        finally:
            asyncio._set_running_loop(None)

    def kill(self) -> None:
        """SIGKILL."""
        if not self.dead:
            self.dead = True
            self.ready.clear()
            for call in self.on_death:
                call()

    def bury(self) -> None:
        """Give up what is left of it in this process, without a word from asyncio."""
        for task in list(self._tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(BaseException):
                task.get_coro().close()
        self._tasks.clear()

    def spawn(self, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin a task from outside."""
        return self.create_task(main)

    # -- asyncio's loop ------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.scheduler.now

    def call_soon(self, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:  # type: ignore[override]
        handle = Handle(callback, args, context, 0.0)
        if not self.dead:
            self.ready.append(handle)
            self.scheduler.activate(self)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self.call_at(self.scheduler.now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        handle = Handle(callback, args, context, when)
        if not self.dead:
            self.scheduler.at(when, self, handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Any = None,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if isinstance(getattr(task, "_exception", None), PowerLoss):  # asyncio keeps it in the task
            self.kill()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()

        def run() -> None:
            try:
                result = func(*args)
            except Exception as why:  # noqa: BLE001  # it is told to whoever waits
                if not future.cancelled():
                    future.set_exception(why)
            else:
                if not future.cancelled():
                    future.set_result(result)

        self.job(run)
        return future

    def job(self, run: Job) -> None:
        """Run a job as if on a thread, which takes a while."""
        delay_s = self.scheduler.rng.random() * self.delay_max_s
        self.busy_until = max(self.busy_until, self.scheduler.now + delay_s)
        self.call_later(delay_s, run)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return self.network.bind(self, host, port)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return await self.network.connect(self, protocol_factory, host, port)

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **_: Any) -> Any:
        return self.network.accept(sock, protocol_factory)

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> Any:  # type: ignore[override]
        self._readers[fd] = callback, args
        self.readable(fd)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def readable(self, fd: int) -> None:
        """Call the reader of a descriptor, for which there may be something."""
        if fd in self._readers:
            self.call_soon(self._read, fd)

    def _read(self, fd: int) -> None:
        if fd in self._readers:
            callback, args = self._readers[fd]
            callback(*args)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.dead:
            self.scheduler.failures.append(context.get("exception") or str(context))

    def get_exception_handler(self) -> Any:
        return None

    def get_task_factory(self) -> Any:
        return None

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def close(self) -> None:
        pass


class SimulatedWorker:
    """A thread of a process (`acquit.broker.machine.Worker`): one job after the other, each after a drawn time."""

    def __init__(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Process)
        self._process = loop
        self._name = name
        self._jobs: deque[Job] = deque()
        self._ended = loop.create_future()
        self._stopping = False

    def submit(self, job: Job) -> None:
        """Run this after all that was submitted before."""
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._process.job(self._run)

    async def stop(self) -> None:
        """Wait until all that was submitted has run."""
        self._stopping = True
        if not self._jobs:
            self._end()
        await self._ended

    def tell(self, call: Callable[..., None], *arguments: object) -> None:
        """Make a call on the loop."""
        self._process.call_soon(call, *arguments)

    def give_way(self) -> None:
        """Do nothing: a job runs when its time has come, whatever the loop does."""

    def _end(self) -> None:
        if not self._ended.done():
            self.tell(self._tell_ended)

    def _tell_ended(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _run(self) -> None:
        self._jobs[0]()
        self._jobs.popleft()
        if self._jobs:
            self._process.job(self._run)
        elif self._stopping:
            self._end()


__all__ = ["START_S", "Handle", "Process", "Scheduler", "SimulatedWorker"]
