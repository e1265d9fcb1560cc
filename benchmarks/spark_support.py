"""What the benchmarks of the Spark pipelines share: a broker, messages, CPU times, medians and ranges.

CPU times are of whole processes, user and system: what work costs, however busy the machine is. A rate in messages a
second means something only beside another one of the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

import acquit
from acquit.protocol.message import Message
from acquit.spark.session import start_session

_POOL = os.urandom(1 << 20)
_STEP = 104_729


def body(number: int, size: int) -> bytes:
    """Bytes that differ from those of other numbers and that nothing can compress."""
    start = number * _STEP % (len(_POOL) - size)
    return _POOL[start : start + size]


@contextlib.contextmanager
def broker(data: Path) -> Iterator[tuple[str, int]]:
    """The URL and the process number of a broker in a process of its own."""
    arguments = [sys.executable, "-m", "acquit", "serve", "--host", "127.0.0.1", "--port", "0", "--data", str(data)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"amqp://[\w.:]+", process.stdout.readline())
        assert found is not None, "the broker did not start"
        try:
            yield found.group(), process.pid
        finally:
            process.terminate()


def with_id(number: int, content: bytes) -> Message:
    """A durable message with a message-id."""
    return Message(content, message_id=f"id-{number}", durable=True)


def post(url: str, address: str, count: int, size: int, make: Callable[[int, bytes], Message] = with_id) -> None:
    """Messages of `make`, which is given their numbers and bodies."""
    with acquit.connect(url) as connection, connection.session() as session:
        sender = session.sender(address)
        for number in range(count):
            sender.send(make(number, body(number, size)), wait=False)
        sender.flush()


def session_of(cpus: int, memory_mb: int = 2_048, jars: Sequence[str] = ()) -> SparkSession:
    """A local session with so many cores."""
    settings = {"spark.jars": ",".join(jars)} if jars else {}
    return start_session(master=f"local[{cpus}]", memory_mb=memory_mb, log_level="OFF", settings=settings)


def bind(cpus: int | None) -> int:
    """Run on the first so many CPUs, with all that is started; how many there are then. Who ends this process ends what
    it has started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if cpus:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cpus])
    return len(os.sched_getaffinity(0))


def cpu_seconds(named: Mapping[str, int]) -> dict[str, float]:
    """CPU times so far: of the processes `named` by their numbers, of this one (`driver`), of the JVM, and of all other
    children together (`workers`)."""
    found = {name: _cpu(psutil.Process(number)) for name, number in named.items()}
    found |= {"driver": _cpu(psutil.Process()), "jvm": 0.0, "workers": 0.0}
    for child in psutil.Process().children(recursive=True):
        if child.pid not in named.values():
            with contextlib.suppress(psutil.Error):
                found["jvm" if child.name() == "java" else "workers"] += _cpu(child)
    return found


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    # Workers that have ended count with the daemon that waited for them.
    return float(times.user + times.system + times.children_user * (process.name() != "java" and process.pid != _ME))


_ME = os.getpid()


@dataclass
class Measured:
    """One job: how many messages, how long it took and what it cost."""

    count: int
    seconds: float = 0.0
    """From the start of the query to its end."""
    batches: list[tuple[float, int]] = field(default_factory=list)
    """When each batch was done, by the clock of `timed`, and how many messages were in all by then."""
    cpu: dict[str, float] = field(default_factory=dict)

    @property
    def whole(self) -> float:
        """Messages a second over all of it."""
        return self.count / self.seconds

    @property
    def steady(self) -> float:
        """Messages a second after the first batch; `whole` where there is no second one."""
        (first_s, first), (last_s, last) = (self.batches or [(0.0, 0)])[0], (self.batches or [(0.0, 0)])[-1]
        return (last - first) / (last_s - first_s) if last > first else self.whole

    @property
    def cpu_per_million(self) -> float:
        """CPU seconds of all processes for a million messages."""
        return sum(self.cpu.values()) / self.count * 1e6


@contextlib.contextmanager
def timed(count: int, named: Mapping[str, int]) -> Iterator[Measured]:
    """Measure what is done within."""
    measured = Measured(count)
    before = cpu_seconds(named)
    begun = time.perf_counter()
    yield measured
    measured.seconds = time.perf_counter() - begun
    after = cpu_seconds(named)
    measured.cpu = {name: max(0.0, after[name] - before.get(name, 0.0)) for name in after}


def spread(values: Sequence[float], form: str = "9,.0f") -> str:
    """Median and range."""
    return f"{statistics.median(values):{form}}  ({min(values):{form}} ..{max(values):{form}})"


def costs(runs: Sequence[Measured], digits: int = 1) -> str:
    """The medians of what each kind of process costs, in microseconds of CPU for a message."""
    names = runs[0].cpu
    return ", ".join(
        f"{name} {statistics.median(run.cpu[name] / run.count * 1e6 for run in runs):.{digits}f}" for name in names
    )


def arguments(text: str, *, messages: int, short: int, rounds: int = 3) -> argparse.ArgumentParser:
    """The options that all of them have."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help=f"{short:,} messages, one round: to see that it runs")
    parser.add_argument("--messages", type=int, default=messages)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--size", type=int, default=1_024, help="bytes of a body")
    parser.add_argument("--cpus", type=int, help="run on the first so many CPUs, all processes together")
    return parser
