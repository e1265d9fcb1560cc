"""Resources that a broker takes from the machine that it runs on: the disk, the clocks, and threads for what blocks.

`Server` decides nothing here: it asks a `Machine`. `MACHINE` is the real one. A simulation gives another, whose disk is
in memory, whose clocks it sets, and whose workers take turns in an order that it chooses.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Final, Protocol

from acquit.store.disk import Disk, PosixDisk

logger = logging.getLogger("acquit.broker")

Job = Callable[[], None]
GIVE_WAY_S: Final = 0.00002
"""Seconds; a tenth of a millisecond with what the operating system adds."""


class Worker(Protocol):
    """Runs jobs that block, one after the other, beside the event loop that made it."""

    def submit(self, job: Job) -> None:
        """Run the job after all that were submitted before."""
        ...

    async def stop(self) -> None:
        """Wait until all that was submitted has run. Nothing may be submitted afterwards."""
        ...

    def tell(self, call: Callable[..., None], *arguments: object) -> None:
        """Make this call on the event loop. Used by jobs; a loop that is closed is told nothing."""
        ...

    def give_way(self) -> None:
        """Let the job go on for a moment in which the event loop does nothing."""
        ...


class ThreadWorker:
    """A thread that runs what it is given, in order. A daemon, so that a program which forgot to stop its broker still
    ends: a batch that is cut off there is a torn tail, as after any other crash."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, job: Job) -> None:
        """Run this after all that was submitted before."""
        self._jobs.put(job)

    async def stop(self) -> None:
        """Wait until all that was submitted has run, and the thread has ended."""
        self._jobs.put(None)
        await self._ended

    def tell(self, call: Callable[..., None], *arguments: object) -> None:
        """Make this call on the loop. A loop that is closed has nobody left to tell."""
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def give_way(self) -> None:
        """Sleep on the loop's thread. A loop that always finds something to do gives up the interpreter's lock for the
        time of a system call, too short for a thread to wake up in it, and else once in `sys.getswitchinterval`."""
        time.sleep(GIVE_WAY_S)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:  # a bug; whoever waits for this thread must not wait for ever
                logger.exception("a job of the broker failed")
        self.tell(self._ended.set_result, None)


def _wall_us() -> int:
    return time.time_ns() // 1000


def _free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """A disk, two clocks, and workers."""

    disk: Disk
    wall_us: Callable[[], int] = _wall_us
    """Microseconds since the epoch. May be set, by people and by time servers."""
    steady_s: Callable[[], float] = time.monotonic
    """Seconds since some moment. Never set."""
    make_worker: Callable[[str], Worker] = ThreadWorker
    """Make a worker with this name, for the running event loop."""
    free_bytes: Callable[[Path], int | None] = _free_bytes
    """Room for users on the disk that a folder is on; None if that cannot be told. May block."""


MACHINE: Final = Machine(disk=PosixDisk())
"""The one that this process runs on."""

__all__ = ["MACHINE", "Job", "Machine", "ThreadWorker", "Worker"]
